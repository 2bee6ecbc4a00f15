/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A listener that a process had offloaded when it forked: the child's first wait raises a claim, as
 * with connections. The owner then leaves the port to the kernel, where all wait alike, and sends
 * what its engine has accepted and nobody taken yet to the claimer: as kernel connections, by
 * SCM_RIGHTS. accept() hands those out first.
 *
 * One that it had not: listener_parts.c.
 */
#include <errno.h>
#include <linux/futex.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "handover/listener.h"
#include "net/net.h"

#define ASK_NS 20000000L /* the claim is repeated so often */
/* Rounds of a millisecond in which handshakes that are under way may end. */
#define LATE_ROUNDS 20
#define LATE_ROUND_NS 1000000u
#define TURN_ROUNDS 1000u
/*
 * In claims.takers: bits 63..32 are the process, 31..0 the name of its socket. What waits stays the
 * owner's:
 */
#define TAKER_NONE UINT64_MAX
#define TAKER_BACKLOG 16

/* --- what a listener of this process has of its parent's, or of its own from before */

struct inherited_listener *listeners;
struct lock listeners_lock;
_Atomic unsigned listeners_shared;

struct inherited_listener **listener_find(const struct tcp_sock *s)
{
	struct inherited_listener **at = &listeners;

	while (*at && (*at)->s != s)
		at = &(*at)->next;
	return at;
}

struct inherited_listener *listener_entry(struct tcp_sock *s)
{
	struct inherited_listener **at = listener_find(s);

	if (!*at)
		*at = calloc(1, sizeof(**at));
	if (*at)
		(*at)->s = s;
	return *at;
}

bool listener_listens(const struct tcp_sock *s)
{
	return !tcp_sock_given_up(s) && atomic_load_explicit(&s->in_use, memory_order_relaxed) &&
	       tcp_sock_mode(s) == TCP_SOCK_LISTEN;
}

/* accept() finds these first. They are the caller's no more: closed when memory is out. */
static void add(struct tcp_sock *s, const int *fds, unsigned n)
{
	struct inherited_listener *l;
	int *more;

	lock_take(&listeners_lock);
	l = listener_entry(s);
	more = l ? realloc(l->fds, (l->num + n) * sizeof(int)) : NULL;
	if (more) {
		l->fds = more;
		memcpy(more + l->num, fds, n * sizeof(int));
		l->num += n;
	}
	lock_drop(&listeners_lock);
	for (unsigned i = 0; !more && i < n; i++)
		own_fd_close(fds[i]);
}

/*
 * Names like these can be read by all, in /proc/net/unix: is it pid that listens, or has connected,
 * at the other end of fd?
 */
static bool peer_is(int fd, pid_t pid)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return !libc.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.pid == pid;
}

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

/* Negative errno: it is not there, or in a PID namespace of its own. */
static int taker_connect(uint64_t taker)
{
	struct sockaddr_un to;
	socklen_t len = taker_addr((uint32_t)taker, &to);
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
	    err = 0;

	if (fd < 0)
		return -errno;
	if (raw.connect(fd, (struct sockaddr *)&to, len))
		err = -errno;
	else if (!peer_is(fd, (pid_t)(taker >> 32)))
		err = -EACCES;
	if (!err)
		return fd;
	own_fd_close(fd);
	return err;
}

static int send_fds(const int *fds, unsigned n, int taker)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(GIVEN_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = "", .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.room,
			     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = &control.align;

	memset(&control, 0, sizeof(control));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return raw.sendmsg(taker, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* implant(), also where the kernel still has the end of an earlier connection of that name. */
static int implant_anew(struct implant *im, struct tcp_sock *s)
{
	const struct tcp_tuple *t = &s->tuple;
	int err = implant(im, s);

	if (err == -EADDRINUSE && !net_tcp_time_wait_end(&t->local, t->lport, &t->remote, t->rport))
		err = implant(im, s);
	return err;
}

bool listener_kernel_has_room(const struct tcp_sock *s)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	struct tcp_info i;
	socklen_t len = sizeof(i);

	return libc.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) ||
	       i.tcpi_unacked <= i.tcpi_sacked;
}

int listener_take_first(struct tcp_sock *s, struct implant *im, int *fds, unsigned *n)
{
	int fd = tcp_sock_accept_queued(s), err = -EOPNOTSUPP;
	struct vfd *v;

	if (fd < 0)
		return -EAGAIN;
	v = vfd_get(fd);
	if (v && im && listener_kernel_has_room(s))
		err = implant_anew(im, tcp_sock_of(v));
	if (!err || err == -ECONNRESET)
		vfd_close(fd);
	else if (v && !tcp_sock_to_kernel(tcp_sock_of(v), STATS_WHY(FORK)))
		fds[(*n)++] = fd;
	else
		vfd_close(fd); /* it is over, or logged */
	return err == -EAGAIN ? -EIO : err;
}

/* The number fd, a connection of the kernel's by now, is in no table any more. */
static void release(int fd)
{
	struct vfd *v = vfd_get(fd);
	struct tcp_sock *c = v ? tcp_sock_of(v) : NULL;
	int cancel;

	if (!c)
		return;
	cancel = tcp_sock_lock(c);
	atomic_store_explicit(&c->given_up, true, memory_order_relaxed);
	tcp_sock_unlock(c, cancel);
	tcp_sock_release(c);
}

void listener_keep(struct tcp_sock *s, const int *fds, unsigned n)
{
	bool is_there;
	int cancel;

	if (!n)
		return;
	for (unsigned i = 0; i < n; i++)
		release(fds[i]);
	cancel = tcp_sock_lock(s);
	is_there = listener_listens(s);
	if (is_there) {
		add(s, fds, n);
		s->unconn.given = true;
	}
	tcp_sock_unlock(s, cancel);
	for (unsigned i = 0; !is_there && i < n; i++)
		own_fd_close(fds[i]);
	if (is_there)
		vfd_notify(&s->v, EPOLLIN);
}

/* What waits at s enters the kernel's queue; what cannot is in fds then. How many those are. */
static unsigned take_queued(struct tcp_sock *s, struct implant *im, int fds[GIVEN_MAX])
{
	unsigned n = 0;

	while (n < GIVEN_MAX && listener_take_first(s, im, fds, &n) != -EAGAIN)
		;
	return n;
}

unsigned listener_give_queued(struct tcp_sock *s, struct implant *im)
{
	int fds[GIVEN_MAX];
	unsigned n = take_queued(s, im, fds);

	listener_keep(s, fds, n);
	return n;
}

/* The same, but that what cannot goes to taker, which is taker_connect()'s. */
static unsigned give_to(struct tcp_sock *s, struct implant *im, int taker)
{
	int fds[GIVEN_MAX], err;
	unsigned n = take_queued(s, im, fds);

	err = n ? send_fds(fds, n, taker) : 0;
	if (err)
		log_warn("%u connections that waited for accept() are lost: the process that "
			 "accepts has gone (%s)",
			 n, strerror(-err));
	for (unsigned i = 0; i < n; i++)
		vfd_close(fds[i]);
	return n;
}

/* Another thread gives clients away; that takes less than a second. NULL: it cannot be done. */
static struct implant *open_in_turn(const struct tcp_sock *s)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	struct implant *im;

	for (unsigned i = 0; implant_open(fd, &im) == -EBUSY && i < TURN_ROUNDS; i++)
		clock_sleep_ns(LATE_ROUND_NS);
	return im;
}

void listener_give_late(struct tcp_sock *s)
{
	struct implant *im = open_in_turn(s);

	if (im)
		(void)listener_give_queued(s, im);
	implant_close(im);
}

/*
 * s, whose new connections are the kernel's by now, gives what waits in its queue; handshakes that
 * are under way may end meanwhile.
 */
static void give_all(struct tcp_sock *s, uint64_t taker)
{
	unsigned rounds = LATE_ROUNDS;
	struct implant *im;
	int to = -1;

	if (!tcp_sock_clients(s))
		return;
	im = open_in_turn(s);
	libc_internal_begin();
	if (taker != TAKER_NONE)
		to = taker_connect(taker);
	libc_internal_end();
	/* Nobody is there to take what cannot wait in the kernel: it stays with us. */
	while (rounds-- && (im || to >= 0) && tcp_sock_clients(s)) {
		if (!(to >= 0 ? give_to(s, im, to) : listener_give_queued(s, im)))
			clock_sleep_ns(LATE_ROUND_NS);
	}
	implant_close(im);
	if (to >= 0)
		own_fd_close(to);
}

/*
 * True: it had been waited on here, and its queue may hold something. Not of what was closed
 * meanwhile, or is another socket by now.
 */
static bool stop_listening(struct tcp_sock *s, struct vma_stats_why why)
{
	int cancel = tcp_sock_lock(s);
	bool had;

	if (!listener_listens(s)) {
		tcp_sock_unlock(s, cancel);
		return false;
	}
	had = s->unconn.atts && !s->unconn.elsewhere;
	tcp_sock_listen_to_kernel(s);
	if (why.reason)
		stats_why(tcp_sock_shown(s),
			  atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), VMA_WHY_SOCKET,
			  why);
	tcp_sock_unlock(s, cancel);
	return had;
}

void tcp_sock_listener_give(struct tcp_sock *s, uint64_t taker)
{
	if (stop_listening(s, STATS_WHY(FORK)))
		log_debug("fd %d listens in the kernel from now on: a child process waits for it",
			  atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	give_all(s, taker);
}

void tcp_sock_listener_share(struct tcp_sock *s, struct vma_stats_why why)
{
	if (!stop_listening(s, why))
		return;
	give_all(s, TAKER_NONE);
	if (why.reason == VMA_WHY_ASYNC)
		listener_late_begin(s);
}

/* They have, or had. */
static bool others_have(const struct tcp_sock *s)
{
	return s->unconn.inherited || tcp_sock_has_copies(s);
}

/* A process that has s lives, as far as is known. */
static bool others_live(const struct tcp_sock *s)
{
	const struct inherited_listener *l;
	const struct claims *c = NULL;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l)
		c = l->shared.claims ? l->shared.claims : l->ref.claims;
	lock_drop(&listeners_lock);
	return (c && claim_others_live(c)) || tcp_sock_has_copies(s);
}

void tcp_sock_listener_last_share(struct tcp_sock *s)
{
	struct implant *im;

	(void)stop_listening(s, others_have(s) ? STATS_WHY(FORK) : STATS_WHY(NONE));
	im = tcp_sock_clients(s) ? open_in_turn(s) : NULL;
	if (!im)
		return;
	(void)listener_give_queued(s, im);
	implant_close(im);
	if (others_live(s))
		listener_last_begin(s);
}

void tcp_sock_listener_closing(struct tcp_sock *s)
{
	if (others_have(s))
		tcp_sock_listener_last_share(s);
}

/* --- the child's side */

void tcp_sock_listeners_forked(void)
{
	/* Entries of the parent's sockets serve tcp_sock_listener_inherited(), then rest. */
	atomic_store(&listeners_lock.owner, 0);
	atomic_store(&listeners_shared, 0);
	for (struct inherited_listener *l = listeners; l; l = l->next)
		l->waits = false;
	atomic_store(&vfd_set_waits, NULL);
	listener_parts_forked();
	listener_last_forked();
	listener_late_forked();
}

void tcp_sock_listener_inherited(struct tcp_sock *s, const struct tcp_sock *parents)
{
	struct inherited_listener *was = *listener_find(parents), *l = calloc(1, sizeof(*l));
	bool known = l != NULL;

	for (unsigned i = 0; was && i < was->num; i++)
		own_fd_close(was->fds[i]);
	if (known && was && was->ref.claims)
		l->ref = was->ref;
	else if (known && s->unconn.waited_by_parent)
		known = tcp_sock_parents_claim(parents, &l->ref);
	else if (known && was && was->shared.claims)
		l->shared = was->shared;
	else if (known)
		known = tcp_sock_parents_claim(parents, &l->shared);
	if (!known) {
		free(l);
		return;
	}
	l->s = s;
	l->next = listeners;
	listeners = l;
}

/* Those of the message, as descriptors of the library's own. */
static void take_fds(struct tcp_sock *s, const struct cmsghdr *c)
{
	unsigned n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), kept = 0;
	int fds[GIVEN_MAX];

	if (n > GIVEN_MAX)
		n = GIVEN_MAX;
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	for (unsigned i = 0; i < n; i++) {
		fds[kept] = own_fd_adopt(fds[i]);
		kept += fds[kept] >= 0;
	}
	if (kept)
		add(s, fds, kept);
}

/* One message of the owner's. False: there is none. */
static bool receive_one(struct tcp_sock *s, int fd, struct msghdr *msg, const struct cmsghdr *c)
{
	bool got;

	own_fd_begin();
	got = raw.recvmsg(fd, msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0;
	if (got && msg->msg_controllen >= CMSG_LEN(sizeof(int)) && c->cmsg_type == SCM_RIGHTS)
		take_fds(s, c);
	own_fd_end();
	return got;
}

/* Takes in what has been sent on a connection of the owner's. */
static void receive_from(struct tcp_sock *s, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(GIVEN_MAX * sizeof(int))];
	} control;
	char byte;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	do {
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
	} while (receive_one(s, fd, &msg, &control.align));
}

/* Of all that have connected only the owner counts. */
static void receive(struct tcp_sock *s, int listener, pid_t owner)
{
	int fd;

	while ((fd = OWN_FD(raw.accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK))) >=
	       0) {
		if (peer_is(fd, owner))
			receive_from(s, fd);
		own_fd_close(fd);
	}
}

/* A socket with a name of the kernel's choice, and who it is. Negative errno: none. */
static int taker_open(uint64_t *taker)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
	    err;
	socklen_t len = sizeof(a);
	char name[8] = "";

	if (fd < 0)
		return -errno;
	if (libc.bind(fd, (struct sockaddr *)&a, sizeof(a.sun_family)) ||
	    libc.getsockname(fd, (struct sockaddr *)&a, &len) || libc.listen(fd, TAKER_BACKLOG)) {
		err = -errno;
		own_fd_close(fd);
		return err;
	}
	memcpy(name, a.sun_path + 1, 5);
	*taker = (uint64_t)getpid() << 32 | (uint32_t)strtoul(name, NULL, 16);
	return fd;
}

/* How s can be claimed; claims NULL: it cannot, or has been. */
static struct claim_ref unclaimed(const struct tcp_sock *s)
{
	struct claim_ref ref = {0};
	struct inherited_listener *l;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l)
		ref = l->ref;
	lock_drop(&listeners_lock);
	return ref;
}

/* Who has it next, a program behind exec() perhaps, may wait as this process could. */
static void enlist_next(const struct tcp_sock *s)
{
	const struct inherited_listener *l;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l && l->shared.claims)
		listener_enlist(&l->shared);
	lock_drop(&listeners_lock);
}

void tcp_sock_listener_leave(struct tcp_sock *s)
{
	struct claim_ref ref = unclaimed(s);
	struct inherited_listener *l;
	int cancel;

	enlist_next(s);
	if (!ref.claims)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	atomic_store(&ref.claims->takers[ref.id], TAKER_NONE);
	(void)claim_wait(&ref);
	pthread_setcancelstate(cancel, NULL);
	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l)
		l->ref.claims = NULL;
	lock_drop(&listeners_lock);
}

bool tcp_sock_listener_wanted(struct tcp_sock *s, bool *given)
{
	struct inherited_listener *l;
	struct claim_ref ref = unclaimed(s);
	uint64_t taker = TAKER_NONE;
	int fd, cancel;
	bool kernel;

	*given = false;
	if (!ref.claims)
		return false;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	fd = taker_open(&taker);
	atomic_store(&ref.claims->takers[ref.id], taker);
	kernel = claim_wait(&ref) == CLAIM_TAKEN;
	if (fd >= 0) {
		receive(s, fd, ref.claims->owner);
		own_fd_close(fd);
	}
	pthread_setcancelstate(cancel, NULL);
	lock_take(&listeners_lock);
	l = *listener_find(s);
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
	l = *listener_find(s);
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
	at = listener_find(s);
	l = *at;
	if (l)
		*at = l->next;
	if (l && l->waits)
		atomic_fetch_sub(&listeners_shared, 1);
	lock_drop(&listeners_lock);
	for (unsigned i = 0; l && i < l->num; i++)
		own_fd_close(l->fds[i]);
	if (l)
		free(l->fds);
	free(l);
}
