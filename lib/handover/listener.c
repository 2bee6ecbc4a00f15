/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A listener that a process had offloaded when it forked: the child's first wait raises a claim, as
 * with connections. The owner then leaves the port to the kernel, where all wait alike, and sends
 * what its engine has accepted and nobody taken yet to the claimer: as kernel connections, by
 * SCM_RIGHTS. accept() hands those out first.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/claim.h"
#include "handover/internal.h"
#include "runtime/runtime.h"

#define GIVEN_MAX 250u /* in one message: SCM_MAX_FD is 253 */
#define ASK_NS 20000000L /* the claim is repeated so often */
/* Rounds of a millisecond in which handshakes that are under way may end. */
#define LATE_ROUNDS 20
/* In claims.takers: what waits stays the owner's. */
#define TAKER_NONE UINT32_MAX

/* --- the owner's side; the internal thread */

/* The address of a socket that the kernel has named (unix(7), autobind): five hexadecimal digits.
 */
static socklen_t taker_addr(uint32_t number, struct sockaddr_un *to)
{
	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	snprintf(to->sun_path + 1, sizeof(to->sun_path) - 1, "%05x", number & 0xfffff);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 6);
}

static int send_fds(const int *fds, unsigned n, uint32_t taker)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(GIVEN_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = "", .iov_len = 1};
	struct sockaddr_un to;
	struct msghdr msg = {.msg_name = &to,
			     .msg_namelen = taker_addr(taker, &to),
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = &control.align;
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
	    err = 0;

	if (fd < 0)
		return -errno;
	memset(&control, 0, sizeof(control));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	if (raw.sendmsg(fd, &msg, MSG_NOSIGNAL) < 0)
		err = -errno;
	own_fd_close(fd);
	return err;
}

/* Up to GIVEN_MAX connections of s, each in the kernel. Returns how many. */
static unsigned take_queued(struct tcp_sock *s, int *fds)
{
	unsigned n = 0;
	int fd;

	while (n < GIVEN_MAX && (fd = tcp_sock_accept_queued(s)) >= 0) {
		struct vfd *v = vfd_get(fd);

		if (v && !tcp_sock_to_kernel(tcp_sock_of(v), "a child process accepts it"))
			fds[n++] = fd;
		else
			vfd_close(fd); /* it is over, or logged */
	}
	return n;
}

static unsigned give_queued(struct tcp_sock *s, uint32_t taker)
{
	int fds[GIVEN_MAX], err;
	unsigned n = take_queued(s, fds);

	err = n ? send_fds(fds, n, taker) : 0;
	if (err)
		log_warn("%u connections that waited for accept() are lost: the process that "
			 "accepts has gone (%s)",
			 n, strerror(-err));
	for (unsigned i = 0; i < n; i++)
		vfd_close(fds[i]);
	return n;
}

void tcp_sock_listener_give(struct tcp_sock *s, uint32_t taker)
{
	const struct timespec ms = {0, 1000000};
	int cancel = tcp_sock_lock(s);

	tcp_sock_listen_to_kernel(s);
	tcp_sock_unlock(s, cancel);
	log_debug("fd %d listens in the kernel from now on: a child process waits for it",
		  atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	if (taker == TAKER_NONE)
		return;
	for (unsigned i = 0; i < LATE_ROUNDS && give_queued(s, taker) < GIVEN_MAX; i++)
		libc_raw(SYS_nanosleep, (long)(uintptr_t)&ms, 0, 0, 0, 0, 0);
}

/* --- the child's side */

/* What a listener of this process has of its parent's. */
static struct inherited_listener {
	struct inherited_listener *next;
	const struct tcp_sock *s;
	struct claim_ref ref; /* claims NULL: claimed */
	unsigned num; /* connections that are to be accepted */
	int *fds;
} * listeners;
static struct lock listeners_lock;

static struct inherited_listener **find(const struct tcp_sock *s)
{
	struct inherited_listener **at = &listeners;

	while (*at && (*at)->s != s)
		at = &(*at)->next;
	return at;
}

void tcp_sock_listeners_forked(void)
{
	/* Entries of the parent's sockets serve tcp_sock_listener_inherited(), then rest. */
	atomic_store(&listeners_lock.owner, 0);
}

void tcp_sock_listener_inherited(struct tcp_sock *s, const struct tcp_sock *parents)
{
	struct inherited_listener *was = *find(parents), *l = calloc(1, sizeof(*l));

	for (unsigned i = 0; was && i < was->num; i++)
		own_fd_close(was->fds[i]);
	if (!l)
		return;
	l->s = s;
	if (was && was->ref.claims)
		l->ref = was->ref;
	else if (!tcp_sock_parents_claim(parents, &l->ref)) {
		free(l);
		return;
	}
	l->next = listeners;
	listeners = l;
}

/* Takes in what the owner has sent. */
static void receive(struct tcp_sock *s, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(GIVEN_MAX * sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct inherited_listener *l;
	unsigned n;
	int *more;

	for (;;) {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		if (raw.recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
			return;
		if (msg.msg_controllen < CMSG_LEN(sizeof(int)) ||
		    control.align.cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((control.align.cmsg_len - CMSG_LEN(0)) / sizeof(int));
		lock_take(&listeners_lock);
		l = *find(s);
		more = l ? realloc(l->fds, (l->num + n) * sizeof(int)) : NULL;
		if (more) {
			l->fds = more;
			memcpy(more + l->num, CMSG_DATA(&control.align), n * sizeof(int));
			l->num += n;
		}
		lock_drop(&listeners_lock);
		for (unsigned i = 0; !more && i < n; i++)
			own_fd_close(((int *)(void *)CMSG_DATA(&control.align))[i]);
	}
}

/* A socket with a name of the kernel's choice, and the name's number. Negative errno: none. */
static int taker_open(uint32_t *number)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), err;
	socklen_t len = sizeof(a);
	char name[8] = "";

	if (fd < 0)
		return -errno;
	if (libc.bind(fd, (struct sockaddr *)&a, sizeof(a.sun_family)) ||
	    libc.getsockname(fd, (struct sockaddr *)&a, &len)) {
		err = -errno;
		own_fd_close(fd);
		return err;
	}
	memcpy(name, a.sun_path + 1, 5);
	*number = (uint32_t)strtoul(name, NULL, 16);
	return fd;
}

/* How s can be claimed; claims NULL: it cannot, or has been. */
static struct claim_ref unclaimed(const struct tcp_sock *s)
{
	struct claim_ref ref = {0};
	struct inherited_listener *l;

	lock_take(&listeners_lock);
	l = *find(s);
	if (l)
		ref = l->ref;
	lock_drop(&listeners_lock);
	return ref;
}

void tcp_sock_listener_leave(struct tcp_sock *s)
{
	struct claim_ref ref = unclaimed(s);
	struct inherited_listener *l;
	int cancel;

	if (!ref.claims)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_store(&ref.claims->takers[ref.id], TAKER_NONE);
	(void)claim_wait(&ref);
	pthread_setcancelstate(cancel, NULL);
	lock_take(&listeners_lock);
	l = *find(s);
	if (l)
		l->ref.claims = NULL;
	lock_drop(&listeners_lock);
}

bool tcp_sock_listener_wanted(struct tcp_sock *s, bool *given)
{
	struct inherited_listener *l;
	struct claim_ref ref = unclaimed(s);
	uint32_t number = 0;
	int fd, cancel;
	bool kernel;

	*given = false;
	if (!ref.claims)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	fd = taker_open(&number);
	atomic_store(&ref.claims->takers[ref.id], number);
	kernel = claim_wait(&ref) == CLAIM_TAKEN;
	if (fd >= 0) {
		receive(s, fd);
		own_fd_close(fd);
	}
	pthread_setcancelstate(cancel, NULL);
	lock_take(&listeners_lock);
	l = *find(s);
	if (l) {
		l->ref.claims = NULL;
		*given = l->num > 0;
	}
	lock_drop(&listeners_lock);
	return kernel;
}

int tcp_sock_listener_given(struct tcp_sock *s, bool *more)
{
	struct inherited_listener *l;
	int fd = -1;

	lock_take(&listeners_lock);
	l = *find(s);
	if (l && l->num) {
		fd = l->fds[0];
		memmove(l->fds, l->fds + 1, --l->num * sizeof(int));
	}
	*more = l && l->num;
	lock_drop(&listeners_lock);
	return fd;
}

void tcp_sock_listener_over(const struct tcp_sock *s)
{
	struct inherited_listener **at, *l;

	lock_take(&listeners_lock);
	at = find(s);
	l = *at;
	if (l)
		*at = l->next;
	lock_drop(&listeners_lock);
	for (unsigned i = 0; l && i < l->num; i++)
		own_fd_close(l->fds[i]);
	if (l)
		free(l->fds);
	free(l);
}
