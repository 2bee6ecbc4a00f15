/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(), the child's side: a number that names a connection of the owner names an heir here. Closing it costs nothing; any
 * other use has the owner hand the connection to the kernel, and from then on the number is the kernel's alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "socket/tcp_claim.h"
#include "socket/tcp_int.h"

#define ASK_NS 20000000L /* a claim is repeated so often */
#define REFUSALS_MAX 250 /* by an owner that still seems to be there: its end, or a network namespace in between */

struct heir {
	struct vfd v; /* first */
	struct claims *claims;
	uint32_t id, gen; /* of the owner's connection */
};

/* Whose heirs this process has. Written in the child of a fork() only, before anything else runs there. */
static struct inherited {
	struct claims *claims;
	struct claim_holder *own; /* this process's entry; NULL: none */
	uint32_t seq;
	bool child_of; /* the owner is this process's parent */
} from[TSOCK_FORK_DEPTH];
static unsigned num_from;
/* One for each object of the owner, by id; NULL: none yet in this process. Never freed: an old generation's stays in use. */
static struct heir *heirs;
static uint32_t num_heirs;

static const struct vfd_ops heir_ops;

static struct heir *heir_of(struct vfd *v)
{
	return (struct heir *)v;
}

static _Atomic uint64_t *word_of(struct heir *h)
{
	return &h->claims->words[h->id];
}

/* --- claiming */

/* The owner looks at its words. 0 or negative errno. */
static int wake_owner(struct claims *c)
{
	int fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

	if (fd < 0)
		return -errno; /* it looks once a second besides */
	if (libc.sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&c->addr, c->addr_len) < 0)
		err = -errno;
	libc.close(fd);
	return err;
}

static bool owner_is_dead(const struct claims *c)
{
	if (kill(c->owner, 0) && errno == ESRCH)
		return true;
	for (unsigned i = 0; i < num_from; i++) {
		if (from[i].claims == c && from[i].child_of)
			return getppid() != c->owner;
	}
	return false;
}

/* True while the connection is the owner's; raises the claim. *seen: the lower half of the word, as it was then. */
static bool wanted(struct heir *h, uint32_t *seen)
{
	uint64_t w = atomic_load(word_of(h));

	for (;;) {
		if (claim_gen(w) != h->gen || claim_state(w) >= CLAIM_HOME)
			return false;
		*seen = (uint32_t)w;
		if (claim_state(w) == CLAIM_WANTED)
			return true;
		if (atomic_compare_exchange_weak(word_of(h), &w, w | CLAIM_WANTED))
			w |= CLAIM_WANTED;
	}
}

/* Returns when the connection is the kernel's, or nobody's. */
static void wait_for_owner(struct heir *h)
{
	struct timespec wait = {0, ASK_NS};
	unsigned refused = 0;
	uint32_t seen;

	while (wanted(h, &seen)) {
		refused += wake_owner(h->claims) == -ECONNREFUSED;
		if (refused && (owner_is_dead(h->claims) || refused > REFUSALS_MAX)) {
			if (wanted(h, &seen))
				log_warn("a connection of process %d has ended with it", (int)h->claims->owner);
			return;
		}
		libc_raw(SYS_futex, (long)(uintptr_t)word_of(h), FUTEX_WAIT, seen, (long)(uintptr_t)&wait, 0, 0);
	}
}

/* The kernel serves what h named. No lock held; keeps errno. */
static void claim(struct heir *h)
{
	int err = errno, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	wait_for_owner(h);
	vfd_disown(&h->v);
	pthread_setcancelstate(cancel, NULL);
	errno = err;
}

/* --- operations: all but closing claim first */

static int heir_bind(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	claim(heir_of(v));
	return libc.bind(fd, addr, len);
}

static int heir_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	claim(heir_of(v));
	return libc.connect(fd, addr, len);
}

static int heir_listen(struct vfd *v, int fd, int backlog)
{
	claim(heir_of(v));
	return libc.listen(fd, backlog);
}

static int heir_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	claim(heir_of(v));
	return libc.accept4(fd, addr, len, flags);
}

static int heir_shutdown(struct vfd *v, int fd, int how)
{
	claim(heir_of(v));
	return libc.shutdown(fd, how);
}

static int heir_getsockname(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	claim(heir_of(v));
	return libc.getsockname(fd, addr, len);
}

static int heir_getpeername(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	claim(heir_of(v));
	return libc.getpeername(fd, addr, len);
}

static int heir_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len)
{
	claim(heir_of(v));
	return libc.getsockopt(fd, level, opt, val, len);
}

static int heir_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len)
{
	claim(heir_of(v));
	return libc.setsockopt(fd, level, opt, val, len);
}

static int heir_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	/* The number's own, not the connection's. */
	if (req != FIOCLEX && req != FIONCLEX)
		claim(heir_of(v));
	return libc.ioctl(fd, req, arg);
}

static int heir_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	if (cmd != F_GETFD && cmd != F_SETFD)
		claim(heir_of(v));
	return libc.fcntl(fd, cmd, arg);
}

static ssize_t heir_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	claim(heir_of(v));
	return libc.recvmsg(fd, msg, flags);
}

static ssize_t heir_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	claim(heir_of(v));
	if (flags & VMA_SND_FLAGS_DUMMY) {
		errno = EAGAIN;
		return -1;
	}
	return libc.sendmsg(fd, msg, flags);
}

static uint32_t heir_events(struct vfd *v)
{
	(void)v;
	return 0; /* the kernel answers */
}

static void heir_touch(struct vfd *v)
{
	claim(heir_of(v));
}

static void heir_share(struct vfd *v, const char *why)
{
	(void)why;
	claim(heir_of(v));
}

static int heir_close(struct vfd *v, int fd)
{
	int ret = fd >= 0 ? vfd_release(fd) : 0, err = errno;
	struct heir *h = heir_of(v);
	uint64_t w = atomic_load(word_of(h));

	/* Only now: the owner lets go of the connection when nobody else has it. */
	while (claim_gen(w) == h->gen && claim_copies(w) &&
	       !atomic_compare_exchange_weak(word_of(h), &w, w - CLAIM_COPY))
		;
	errno = err;
	return ret;
}

/* --- fork() */

/* A grandchild has what the child has. */
static void heir_forking(struct vfd *v)
{
	claim_copy_add(word_of(heir_of(v)));
}

static struct vfd *heir_again(struct vfd *v)
{
	atomic_store(&v->watch_lock.owner, 0);
	atomic_store(&v->watches, NULL);
	return v;
}

static const struct vfd_ops heir_ops = {
	.bind = heir_bind,
	.connect = heir_connect,
	.listen = heir_listen,
	.accept4 = heir_accept4,
	.shutdown = heir_shutdown,
	.getsockname = heir_getsockname,
	.getpeername = heir_getpeername,
	.getsockopt = heir_getsockopt,
	.setsockopt = heir_setsockopt,
	.ioctl = heir_ioctl,
	.fcntl = heir_fcntl,
	.recvmsg = heir_recvmsg,
	.sendmsg = heir_sendmsg,
	.close = heir_close,
	.events = heir_events,
	.waited = heir_touch,
	.share = heir_share,
	.touch = heir_touch,
	.forking = heir_forking,
	.heir = heir_again,
};

struct vfd *tsock_heir(struct vfd *v)
{
	const struct tsock *s = tsock_of(v);
	struct claims *c = tsock_claims();
	struct heir *h;

	if (!c || tsock_mode(s) != TSOCK_CONN || s->closed || s->id >= CLAIM_WORDS)
		return NULL;
	if (!heirs) {
		num_heirs = tsock_count();
		heirs = calloc(num_heirs, sizeof(*heirs));
	}
	if (!heirs || s->id >= num_heirs)
		return NULL;
	h = &heirs[s->id];
	h->v.ops = &heir_ops;
	h->v.kind = VFD_TCP;
	atomic_store_explicit(&h->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	h->claims = c;
	h->id = s->id;
	h->gen = s->claim_gen;
	return &h->v;
}

void tsock_heirs_of(struct claims *c, uint32_t seq)
{
	heirs = NULL; /* they are in the table; the next generation makes its own */
	if (num_from == TSOCK_FORK_DEPTH) {
		/* The eldest: from here on nobody tells its owner who has copies. */
		claim_lost(from[0].claims, from[0].seq);
		for (unsigned i = 1; i < num_from; i++)
			from[i - 1] = from[i];
		num_from--;
	}
	from[num_from++] = (struct inherited){.claims = c, .seq = seq, .child_of = getppid() == c->owner};
}

void tsock_heirs_fork_begin(struct tsock_fork *f)
{
	for (unsigned i = 0; i < num_from; i++) {
		struct claim_holder *h = claim_hold(from[i].claims);

		if (!h)
			claim_lost(from[i].claims, from[i].seq);
		f->held[f->num++] = (struct tsock_fork_held){from[i].claims, h};
	}
}

void tsock_heirs_fork_end(const struct tsock_fork *f, pid_t pid)
{
	for (unsigned i = 0; i < num_from; i++) {
		struct claim_holder *own = from[i].own, *h = i < f->num ? f->held[i].holder : NULL;

		if (!h)
			continue;
		atomic_store(&h->seq, from[i].seq);
		/* Numbers of another namespace mean nothing to the owner: the entry stays pending. */
		if (pid < 0 || (own && atomic_load(&own->pid) == getpid()))
			atomic_store(&h->pid, pid < 0 ? 0 : pid);
	}
}

void tsock_fork_child(const struct tsock_fork *f)
{
	for (unsigned i = 0; i < num_from; i++) {
		from[i].child_of = getppid() == from[i].claims->owner;
		from[i].own = NULL;
		for (unsigned k = 0; k < f->num; k++) {
			if (f->held[k].claims == from[i].claims)
				from[i].own = f->held[k].holder;
		}
	}
}
