/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(), the child's side: a number that names a connection of the owner names an inherited object
 * here. Closing it costs nothing; any other use has the owner hand the connection to the kernel,
 * and from then on the kernel serves the number.
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

#include "handover/internal.h"
#include "runtime/runtime.h"
#include "handover/claim.h"

#define ASK_NS 20000000L /* a claim is repeated so often */
/* by an owner that still seems to be there: its end, or a network namespace in between */
#define REFUSALS_MAX 250

struct inherited_conn {
	struct vfd v; /* first */
	struct claim_ref ref;
};

/*
 * Whose connections this process has inherited. Written in the child of a fork() only, before
 * anything else runs there.
 */
static struct inherited_from {
	struct claims *claims;
	struct claim_holder *own; /* this process's entry; NULL: none */
	uint32_t seq;
	bool child_of; /* the owner is this process's parent */
} from[HANDOVER_FORK_DEPTH];
static unsigned num_from;
/*
 * One for each object of the owner, by id; NULL: none yet in this process. Never freed: an old
 * generation's stays in use.
 */
static struct inherited_conn *inherited;
static uint32_t num_inherited;

static const struct vfd_ops inherited_ops;

static struct inherited_conn *inherited_of(struct vfd *v)
{
	return (struct inherited_conn *)v;
}

static _Atomic uint64_t *word_of(const struct claim_ref *r)
{
	return &r->claims->words[r->id];
}

/* --- claiming */

/* The owner looks at its words. 0 or negative errno. */
static int wake_owner(struct claims *c)
{
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
	    err = 0;

	if (fd < 0)
		return -errno; /* it looks once a second besides */
	if (raw.sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&c->addr,
		       c->addr_len) < 0)
		err = -errno;
	own_fd_close(fd);
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

/*
 * True while the connection is the owner's; raises the claim. *seen: the lower half of the word, as
 * it was then.
 */
static bool wanted(const struct claim_ref *r, uint32_t *seen)
{
	uint64_t w = atomic_load(word_of(r));

	for (;;) {
		if (claim_gen(w) != r->gen || claim_state(w) >= CLAIM_IN_KERNEL)
			return false;
		*seen = (uint32_t)w;
		if (claim_state(w) == CLAIM_WANTED)
			return true;
		if (atomic_compare_exchange_weak(word_of(r), &w, w | CLAIM_WANTED))
			w |= CLAIM_WANTED;
	}
}

enum claim_answer claim_wait(const struct claim_ref *r)
{
	struct timespec wait = {0, ASK_NS};
	unsigned refused = 0;
	uint32_t seen;
	uint64_t w;

	while (wanted(r, &seen)) {
		refused += wake_owner(r->claims) == -ECONNREFUSED;
		if (refused && (owner_is_dead(r->claims) || refused > REFUSALS_MAX)) {
			if (wanted(r, &seen))
				return CLAIM_OWNER_GONE;
			continue;
		}
		libc_raw(SYS_futex, (long)(uintptr_t)word_of(r), FUTEX_WAIT, seen,
			 (long)(uintptr_t)&wait, 0, 0);
	}
	w = atomic_load(word_of(r));
	return claim_gen(w) == r->gen && claim_state(w) == CLAIM_IN_KERNEL ? CLAIM_TAKEN
									   : CLAIM_OVER;
}

/* The kernel serves what h named. No lock held; keeps errno. */
static void claim(struct inherited_conn *h)
{
	int err = errno, cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (claim_wait(&h->ref) == CLAIM_OWNER_GONE)
		log_warn("a connection of process %d has ended with it", (int)h->ref.claims->owner);
	vfd_disown(&h->v);
	pthread_setcancelstate(cancel, NULL);
	errno = err;
}

/* --- operations: all but closing claim first */

static int inherited_bind(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	claim(inherited_of(v));
	return libc.bind(fd, addr, len);
}

static int inherited_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	claim(inherited_of(v));
	return libc.connect(fd, addr, len);
}

static int inherited_listen(struct vfd *v, int fd, int backlog)
{
	claim(inherited_of(v));
	return libc.listen(fd, backlog);
}

static int inherited_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len,
			     int flags)
{
	claim(inherited_of(v));
	return PROGRAM_FD(libc.accept4(fd, addr, len, flags));
}

static int inherited_shutdown(struct vfd *v, int fd, int how)
{
	claim(inherited_of(v));
	return libc.shutdown(fd, how);
}

static int inherited_getsockname(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	claim(inherited_of(v));
	return libc.getsockname(fd, addr, len);
}

static int inherited_getpeername(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	claim(inherited_of(v));
	return libc.getpeername(fd, addr, len);
}

static int inherited_getsockopt(struct vfd *v, int fd, int level, int opt, void *val,
				socklen_t *len)
{
	claim(inherited_of(v));
	return libc.getsockopt(fd, level, opt, val, len);
}

static int inherited_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val,
				socklen_t len)
{
	claim(inherited_of(v));
	return libc.setsockopt(fd, level, opt, val, len);
}

static int inherited_ioctl(struct vfd *v, int fd, unsigned long req, void *arg)
{
	/* The number's own, not the connection's. */
	if (req != FIOCLEX && req != FIONCLEX)
		claim(inherited_of(v));
	return libc.ioctl(fd, req, arg);
}

static int inherited_fcntl(struct vfd *v, int fd, int cmd, long arg)
{
	if (cmd != F_GETFD && cmd != F_SETFD)
		claim(inherited_of(v));
	return raw.fcntl(fd, cmd, arg);
}

static ssize_t inherited_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	claim(inherited_of(v));
	return libc.recvmsg(fd, msg, flags);
}

static ssize_t inherited_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	claim(inherited_of(v));
	if (flags & VMA_SND_FLAGS_DUMMY) {
		errno = EAGAIN;
		return -1;
	}
	return libc.sendmsg(fd, msg, flags);
}

static uint32_t inherited_events(struct vfd *v)
{
	(void)v;
	return 0; /* the kernel answers */
}

static void inherited_touch(struct vfd *v)
{
	claim(inherited_of(v));
}

static void inherited_share(struct vfd *v, struct vma_stats_why why)
{
	(void)why;
	claim(inherited_of(v));
}

static int inherited_close(struct vfd *v, int fd)
{
	int ret = fd >= 0 ? vfd_release(fd) : 0, err = errno;
	struct inherited_conn *h = inherited_of(v);
	uint64_t w = atomic_load(word_of(&h->ref));

	/* Only now: the owner lets go of the connection when nobody else has it. */
	while (claim_gen(w) == h->ref.gen && claim_copies(w) &&
	       !atomic_compare_exchange_weak(word_of(&h->ref), &w, w - CLAIM_COPY))
		;
	errno = err;
	return ret;
}

/* --- fork() */

/* A grandchild has what the child has. */
static void inherited_forking(struct vfd *v)
{
	claim_copy_add(word_of(&inherited_of(v)->ref));
}

static struct vfd *inherited_again(struct vfd *v)
{
	atomic_store(&v->watch_lock.owner, 0);
	atomic_store(&v->watches, NULL);
	return v;
}

static const struct vfd_ops inherited_ops = {
	.bind = inherited_bind,
	.connect = inherited_connect,
	.listen = inherited_listen,
	.accept4 = inherited_accept4,
	.shutdown = inherited_shutdown,
	.getsockname = inherited_getsockname,
	.getpeername = inherited_getpeername,
	.getsockopt = inherited_getsockopt,
	.setsockopt = inherited_setsockopt,
	.ioctl = inherited_ioctl,
	.fcntl = inherited_fcntl,
	.recvmsg = inherited_recvmsg,
	.sendmsg = inherited_sendmsg,
	.close = inherited_close,
	.events = inherited_events,
	.waited = inherited_touch,
	.share = inherited_share,
	.touch = inherited_touch,
	.forking = inherited_forking,
	.inherited = inherited_again,
};

struct vfd *tcp_sock_inherited(struct vfd *v)
{
	const struct tcp_sock *s = tcp_sock_of(v);
	struct claims *c = tcp_sock_claims();
	struct inherited_conn *h;

	if (!c || tcp_sock_mode(s) != TCP_SOCK_CONN || s->closed || s->id >= CLAIM_WORDS)
		return NULL;
	if (!inherited) {
		num_inherited = tcp_sock_count();
		inherited = calloc(num_inherited, sizeof(*inherited));
	}
	if (!inherited || s->id >= num_inherited)
		return NULL;
	h = &inherited[s->id];
	h->v.ops = &inherited_ops;
	h->v.kind = VFD_TCP;
	atomic_store_explicit(&h->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	h->ref = (struct claim_ref){c, s->id, s->claim_gen};
	return &h->v;
}

void tcp_sock_inherit_from(struct claims *c, uint32_t seq)
{
	inherited = NULL; /* they are in the table; the next generation makes its own */
	if (num_from == HANDOVER_FORK_DEPTH) {
		/* The oldest owner is dropped: from here on nobody tells it who has copies. */
		claim_lost(from[0].claims, from[0].seq);
		for (unsigned i = 1; i < num_from; i++)
			from[i - 1] = from[i];
		num_from--;
	}
	from[num_from++] =
		(struct inherited_from){.claims = c, .seq = seq, .child_of = getppid() == c->owner};
}

bool tcp_sock_parents_claim(const struct tcp_sock *parents, struct claim_ref *out)
{
	if (!num_from || !from[num_from - 1].child_of || parents->id >= CLAIM_WORDS)
		return false;
	*out = (struct claim_ref){from[num_from - 1].claims, parents->id, parents->claim_gen};
	return true;
}

void tcp_sock_inherited_fork_begin(struct handover_fork *f)
{
	for (unsigned i = 0; i < num_from; i++) {
		struct claim_holder *h = claim_hold(from[i].claims);

		if (!h)
			claim_lost(from[i].claims, from[i].seq);
		f->claims[f->num++] = (struct handover_fork_claim){from[i].claims, h};
	}
}

void tcp_sock_inherited_fork_end(const struct handover_fork *f, pid_t pid)
{
	for (unsigned i = 0; i < num_from; i++) {
		struct claim_holder *own = from[i].own,
				    *h = i < f->num ? f->claims[i].holder : NULL;

		if (!h)
			continue;
		atomic_store(&h->seq, from[i].seq);
		/*
		 * Numbers of another namespace mean nothing to the owner: the entry stays pending.
		 */
		if (pid < 0 || (own && atomic_load(&own->pid) == getpid()))
			atomic_store(&h->pid, pid < 0 ? 0 : pid);
	}
}

void handover_fork_child(const struct handover_fork *f)
{
	for (unsigned i = 0; i < num_from; i++) {
		from[i].child_of = getppid() == from[i].claims->owner;
		from[i].own = NULL;
		for (unsigned k = 0; k < f->num; k++) {
			if (f->claims[k].claims == from[i].claims)
				from[i].own = f->claims[k].holder;
		}
	}
}
