/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a number is while it is being closed: in the table vfd_closing, in the kernel a descriptor
 * that refuses everything.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

#include "runtime/runtime.h"
#include "fd/fd.h"

static int refuse(void)
{
	errno = EBADF;
	return -1;
}

static int no_addr(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	(void)v, (void)fd, (void)addr, (void)len;
	return refuse();
}

static int no_int(struct vfd *v, int fd, int n)
{
	(void)v, (void)fd, (void)n;
	return refuse();
}

static int no_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	(void)v, (void)fd, (void)addr, (void)len, (void)flags;
	return refuse();
}

static int no_name(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	(void)v, (void)fd, (void)addr, (void)len;
	return refuse();
}

static int no_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len)
{
	(void)v, (void)fd, (void)level, (void)opt, (void)val, (void)len;
	return refuse();
}

static int no_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len)
{
	(void)v, (void)fd, (void)level, (void)opt, (void)val, (void)len;
	return refuse();
}

static int no_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	(void)v, (void)fd, (void)req, (void)arg;
	return refuse();
}

static int no_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	(void)v, (void)fd, (void)cmd, (void)arg;
	return refuse();
}

static ssize_t no_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	(void)v, (void)fd, (void)msg, (void)flags;
	return refuse();
}

static ssize_t no_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	(void)v, (void)fd, (void)msg, (void)flags;
	return refuse();
}

static uint32_t no_events(struct vfd *v)
{
	(void)v;
	return POLLNVAL;
}

static const struct vfd_ops closing_ops = {
	.bind = no_addr,
	.connect = no_addr,
	.listen = no_int,
	.accept4 = no_accept4,
	.shutdown = no_int,
	.getsockname = no_name,
	.getpeername = no_name,
	.getsockopt = no_getsockopt,
	.setsockopt = no_setsockopt,
	.ioctl = no_ioctl,
	.fcntl = no_fcntl,
	/* The short and the many-message forms are built of these two by preload. */
	.recvmsg = no_recvmsg,
	.sendmsg = no_sendmsg,
	.events = no_events,
};

struct vfd vfd_closing = {.ops = &closing_ops, .kind = VFD_CLOSING};

/* Open with O_PATH: every use of it but closing and copying is EBADF (open(2)). -1: none yet. */
static _Atomic int dead_fd = -1;

static int dead_open(void)
{
	/* The root directory: nothing that the program could want to unmount or to remove. */
	return OWN_FD(raw.open("/", O_PATH | O_CLOEXEC));
}

/* Its number, or -1 when no descriptor is left. */
static int dead_get(void)
{
	int fd = atomic_load(&dead_fd), flags = fd < 0 ? -1 : raw.fcntl(fd, F_GETFL), mine;

	if (flags >= 0 && flags & O_PATH)
		return fd;
	/*
	 * The first time, or the program has closed it by means that we do not see, and may use the
	 * number itself now.
	 */
	own_fd_lost(fd);
	mine = dead_open();
	if (mine >= 0 && !atomic_compare_exchange_strong(&dead_fd, &fd, mine)) {
		own_fd_close(mine); /* another thread was first */
		mine = fd;
	}
	return mine;
}

void vfd_vacate(int fd)
{
	int dead = dead_get();

	if (dead >= 0 && dead != fd)
		libc.dup3(dead, fd, O_CLOEXEC);
}

/* What kept numbers name, one each; memory is reused for the same only (vfd.h). */
struct kept_number {
	struct vfd v; /* first */
	struct kept_number *next;
};

/* no handler runs under it: lock_enter() */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept_number *kept_numbers;

void vfd_closing_forked(void)
{
	/* Another thread of the parent may have held it. */
	pthread_mutex_init(&kept_lock, NULL);
	kept_numbers = NULL;
}

static void kept_number_free(struct kept_number *g)
{
	pthread_mutex_lock(&kept_lock);
	g->next = kept_numbers;
	kept_numbers = g;
	pthread_mutex_unlock(&kept_lock);
}

static struct kept_number *kept_number_alloc(void)
{
	struct kept_number *g;

	pthread_mutex_lock(&kept_lock);
	g = kept_numbers;
	if (g)
		kept_numbers = g->next;
	pthread_mutex_unlock(&kept_lock);
	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (g) {
		g->v.ops = &closing_ops;
		g->v.kind = VFD_CLOSING;
	}
	return g;
}

struct vfd *vfd_keep(int fd)
{
	struct kept_number *g = kept_number_alloc();

	if (!g)
		return NULL;
	vfd_vacate(fd);
	if (vfd_exchange(fd, &vfd_closing, &g->v))
		return &g->v;
	kept_number_free(g);
	return NULL;
}

void vfd_unkeep(int fd, struct vfd *kept)
{
	if (vfd_exchange(fd, kept, NULL))
		(void)vfd_release_plain(fd);
	kept_number_free((struct kept_number *)kept);
}
