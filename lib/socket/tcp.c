/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The life of a TCP socket: made, bound, shut, closed. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "socket/tcp_claim.h"
#include "socket/tcp_int.h"
#include "socket/udp_int.h"
#include "socket/wait.h"

/* All socket objects ever made; memory is reused, never freed (vfd.h). */
struct slab {
	_Alignas(64) struct tsock socks[32]; /* zero beyond `used`: not in use */
	unsigned used;
	struct slab *next; /* never changes once the slab is listed */
};
static struct lock list_lock;
static struct slab *slabs; /* the latest first */
static struct tsock *_Atomic by_id[CLAIM_WORDS]; /* pages that nobody touches cost nothing */
static _Atomic uint32_t next_id;
static struct tsock *free_socks, **free_tail = &free_socks; /* by next_free, the longest rested first */

/* Counted into by sockets that have no block of their own (any more): nobody reads them. Several, for several threads. */
struct vma_stats_socket tsock_no_stats[TSOCK_NO_STATS];

static void stats_begin(struct tsock *s, int fd)
{
	struct vma_stats_socket *b = stats_socket_if_shown(fd);

	s->stats = b ? b : &tsock_no_stats[s->id % TSOCK_NO_STATS];
	if (!b)
		return;
	b->family = s->domain;
	b->proto = IPPROTO_TCP;
}

void tsock_stats_end(struct tsock *s)
{
	struct vma_stats_socket *b = tsock_shown(s);

	s->stats = &tsock_no_stats[s->id % TSOCK_NO_STATS];
	stats_socket_put(b);
}

static struct slab *slab_new(void)
{
	struct slab *b = aligned_alloc(_Alignof(struct slab), sizeof(*b));

	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	b->next = slabs;
	slabs = b;
	return b;
}

/* An object that never was in use; list_lock is held. */
static struct tsock *sock_fresh(void)
{
	struct slab *b = slabs;
	struct tsock *s;

	if (!b || b->used == sizeof(b->socks) / sizeof(b->socks[0]))
		b = slab_new();
	if (!b)
		return NULL;
	s = &b->socks[b->used++];
	s->v.ops = &tsock_ops;
	s->v.kind = VFD_TCP;
	s->id = next_id++;
	if (s->id < CLAIM_WORDS)
		by_id[s->id] = s;
	return s;
}

static struct tsock *sock_alloc(void)
{
	struct tsock *s;

	lock_take(&list_lock);
	s = free_socks;
	if (s) {
		free_socks = s->next_free;
		if (!free_socks)
			free_tail = &free_socks;
	} else {
		s = sock_fresh();
	}
	lock_drop(&list_lock);
	return s;
}

uint32_t tsock_count(void)
{
	return atomic_load(&next_id);
}

struct tsock *tsock_numbered(uint32_t id)
{
	return id < atomic_load(&next_id) && id < CLAIM_WORDS ? atomic_load(&by_id[id]) : NULL;
}

void tsock_free(struct tsock *s)
{
	atomic_store_explicit(&s->in_use, false, memory_order_release);
	lock_take(&list_lock);
	s->next_free = NULL;
	*free_tail = s;
	free_tail = &s->next_free;
	lock_drop(&list_lock);
}

struct tsock *tsock_new(int fd, int domain)
{
	struct tsock *s = sock_alloc();

	if (!s)
		return NULL;
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->v.os_events, 0, memory_order_relaxed);
	s->user.kind = TSOCK_USER_CONN;
	atomic_store_explicit(&s->mode, TSOCK_KERNEL, memory_order_relaxed);
	s->domain = (uint8_t)domain;
	s->tuple.lport = 0;
	s->port_bound = s->stale = false;
	atomic_store_explicit(&s->left_err, 0, memory_order_relaxed);
	s->bound = s->accepted = s->own_rule = s->wide = s->closed = s->in_close = s->engine = s->connected = s->home = s->untold = false;
	s->nonblock = s->zerocopy = s->flagged = false;
	atomic_store_explicit(&s->hint, 0, memory_order_relaxed);
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	atomic_store_explicit(&s->st, NULL, memory_order_relaxed);
	/* One that rested has none; a thread that is still inside its former life may look at that, and may not see it written. */
	if (s->c)
		s->c = NULL;
	s->slot = NULL;
	s->held_fd = s->worker_fd = -1;
	s->kept = NULL;
	s->rcvlowat = 1;
	s->linger_s = -1;
	s->rcvtimeo_ns = s->sndtimeo_ns = 0;
	atomic_store_explicit(&s->zc_next, 0, memory_order_relaxed);
	atomic_store_explicit(&s->zc_told, 0, memory_order_relaxed);
	s->mark = 0;
	s->bound_if = 0;
	memset(&s->spare, 0, sizeof(s->spare));
	tsock_claim_new(s);
	stats_begin(s, fd);
	return s;
}

int tsock_socket_created(int fd, int domain, int type, int protocol)
{
	struct tsock *s;
	int err;

	if ((domain != AF_INET && domain != AF_INET6) || (type & 0xf) != SOCK_STREAM || (protocol && protocol != IPPROTO_TCP))
		return -EPROTONOSUPPORT;
	if (!params.offloaded_sockets || params.ring_type == RING_TYPE_NONE)
		return -EOPNOTSUPP;
	s = tsock_new(fd, domain);
	if (!s)
		return -ENOMEM;
	s->nonblock = type & SOCK_NONBLOCK;
	if (params.tcp_nodelay) {
		int on = 1;

		(void)libc.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* what reads back */
	}
	tsock_show_blocking(s);
	err = vfd_install(fd, &s->v);
	if (err) {
		tsock_stats_end(s);
		tsock_free(s);
		return err;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
	return 0;
}

void tsock_release(struct tsock *s)
{
	if (!vfd_disown(&s->v))
		return; /* close() was faster, and has freed it */
	atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
	tsock_stats_end(s);
	tsock_free(s);
}

/* Those of b's slab and of the older ones. */
static void each_of(struct slab *b, void (*fn)(struct tsock *s, void *arg), void *arg)
{
	for (; b; b = b->next) {
		for (size_t i = 0; i < sizeof(b->socks) / sizeof(b->socks[0]); i++) {
			if (atomic_load_explicit(&b->socks[i].in_use, memory_order_acquire))
				fn(&b->socks[i], arg);
		}
	}
}

void tsock_each(void (*fn)(struct tsock *s, void *arg), void *arg)
{
	struct slab *b;

	lock_take(&list_lock);
	b = slabs;
	lock_drop(&list_lock);
	each_of(b, fn, arg);
}

void tsock_list_forked(void (*fn)(struct tsock *parents, void *arg))
{
	struct slab *parents = slabs;

	/* Objects, stacks and locks are as the parent had them at this instant: all are left behind. */
	atomic_store(&list_lock.owner, 0);
	slabs = NULL;
	free_socks = NULL;
	next_id = 0;
	free_tail = &free_socks;
	each_of(parents, fn, NULL);
}

/* The connection is over, and the port was not of the user's choice. */
static bool gave_port_back(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);
	bool yes = !s->port_bound && !s->accepted && (!st || tcp_conn_state(s->c) == TCPS_CLOSED);

	if (st)
		lock_drop(&st->lock);
	return yes;
}

static int tsock_bind(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct tsock *s = tsock_of(v);
	struct in6_addr ip;
	uint16_t port;
	uint32_t scope;
	bool renewed;
	int cancel, ret, err;

	if (tsock_mode(s) == TSOCK_CONN && !gave_port_back(s)) {
		errno = EINVAL; /* it has its address; the kernel socket may not */
		return -1;
	}
	if (!tsock_lock_live(s, fd, &cancel))
		return libc.bind(fd, addr, len);
	if (tsock_mode(s) == TSOCK_CONN)
		tsock_disconnect(s);
	renewed = s->stale;
	tsock_shadow_renew(s, fd);
	ret = libc.bind(fd, addr, len);
	if (!ret) {
		s->bound = true;
		s->port_bound = udp_addr_get(addr, len, &ip, &port, &scope) && port;
	}
	err = errno;
	tsock_unlock(s, cancel);
	if (renewed)
		vfd_shadow_changed(v);
	errno = err;
	return ret;
}

void tsock_listen_over(struct tsock *s)
{
	tsock_unlisten(s);
	s->spare.attached = false;
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->mode, TSOCK_KERNEL, memory_order_release);
	atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLHUP, memory_order_release);
}

/* As in the kernel: a listener that is shut for reading listens no more, and who waits in accept() learns it. */
static int shut_listener(struct tsock *s, int fd, int how)
{
	int cancel = tsock_lock(s), ret, err;

	ret = libc.shutdown(fd, how);
	err = errno;
	if (!ret && how != SHUT_WR)
		tsock_listen_over(s);
	tsock_unlock(s, cancel);
	vfd_shadow_changed(&s->v);
	vfd_notify(&s->v, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
	errno = err;
	return ret;
}

/* A connect() under way is given up, whatever `how` says (Linux: inet_shutdown()). */
static int shut_syn_sent(struct tsock *s, int fd)
{
	int cancel;

	if (!tsock_lock_live(s, fd, &cancel)) {
		errno = EBADF;
		return -1;
	}
	if (tsock_mode(s) == TSOCK_CONN)
		tsock_disconnect(s);
	tsock_unlock(s, cancel);
	vfd_shadow_changed(&s->v);
	return 0;
}

static int tsock_shutdown(struct vfd *v, int fd, int how)
{
	struct tsock *s = tsock_of(v);
	struct stack *st;
	uint64_t now;
	int err;

	if (tsock_mode(s) == TSOCK_LISTEN)
		return shut_listener(s, fd, how);
	if (tsock_mode(s) != TSOCK_CONN)
		return libc.shutdown(fd, how);
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
		errno = EINVAL;
		return -1;
	}
	st = tsock_conn_lock(s);
	if (!st) {
		errno = ENOTCONN;
		return -1;
	}
	if (tcp_conn_state(s->c) == TCPS_SYN_SENT) {
		lock_drop(&st->lock);
		return shut_syn_sent(s, fd);
	}
	now = tsock_now();
	err = tcp_shutdown(s->c, how, now);
	tsock_show_state(s, tcp_conn_state(s->c));
	if (!err) {
		/* Whoever waits in this direction learns it now. */
		atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLOUT | EPOLLRDHUP, memory_order_release);
		vfd_notify(v, tsock_epoll_bits(tcp_ready(s->c)));
	}
	tsock_unlock_stack(st, now);
	errno = -err;
	return err ? -1 : 0;
}

/* The two addresses of a connection, in the form of the socket's family. */
static void addr_put(const struct tsock *s, bool remote, struct sockaddr *addr, socklen_t *len)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct sockaddr_storage ss;
	socklen_t full = udp_addr_put(s->domain, remote ? &s->tuple.remote : &s->tuple.local,
				      remote ? s->tuple.rport : s->tuple.lport, st ? (uint32_t)st->ifindex : 0, &ss);

	memcpy(addr, &ss, *len < full ? *len : full);
	*len = full;
}

void tsock_addr_put(const struct tsock *s, bool remote, struct sockaddr *addr, socklen_t *len)
{
	if (addr && len)
		addr_put(s, remote, addr, len);
}

/* The names are read under s->lock: another thread may connect the socket, or close it and have its memory serve the next one. */

static int tsock_getsockname(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct tsock *s = tsock_of(v);
	int ret = 0, cancel, err;

	if (!tsock_lock_live(s, fd, &cancel))
		return libc.getsockname(fd, addr, len);
	if (tsock_mode(s) != TSOCK_CONN || !addr || !len || *len > INT32_MAX)
		ret = tsock_shadow_name(s, fd, addr, len);
	else
		addr_put(s, false, addr, len);
	err = errno;
	tsock_unlock(s, cancel);
	errno = err;
	return ret;
}

static bool has_peer(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);
	enum tcp_state state;

	if (!st)
		return false;
	state = tcp_conn_state(s->c);
	lock_drop(&st->lock);
	return state != TCPS_CLOSED && state != TCPS_SYN_SENT;
}

static int tsock_getpeername(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct tsock *s = tsock_of(v);
	int ret = 0, err = ENOTCONN, cancel;

	if (!tsock_lock_live(s, fd, &cancel))
		return libc.getpeername(fd, addr, len);
	if (tsock_mode(s) != TSOCK_CONN || !addr || !len || *len > INT32_MAX) {
		ret = libc.getpeername(fd, addr, len);
		err = errno;
	} else if (has_peer(s)) {
		addr_put(s, true, addr, len);
	} else {
		ret = -1;
	}
	tsock_unlock(s, cancel);
	if (ret)
		errno = err;
	return ret;
}

/* --- closing */

/* SO_LINGER: until everything is acknowledged or the time is up. */
static void linger(struct tsock *s, int seconds)
{
	uint64_t deadline = wait_now_ns() + (uint64_t)seconds * 1000000000u;
	struct stack *st;
	bool more = true;

	while (more && (st = tsock_conn_lock(s))) {
		uint64_t now = tsock_now();

		stack_poll(st, (unsigned)params.cq_poll_batch_max);
		more = s->c && tsock_unfinished(s->c);
		tsock_unlock_stack(st, now);
		if (more && wait_now_ns() >= deadline)
			return;
		if (more)
			usleep(200);
	}
}

static void close_conn(struct tsock *s, int fd)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	uint64_t now = tsock_now();

	lock_take(&st->lock);
	s->in_close = true;
	s->closed = true;
	if (s->c && s->linger_s == 0)
		tcp_abort(s->c, now);
	else if (s->c)
		tcp_close(s->c, now);
	/* A client's port is the kernel socket's: it stays reserved while segments of ours carry it. */
	if (s->c && (s->own_rule || s->wide) && fd >= 0)
		s->held_fd = tsock_fd_hold(fd);
	tsock_unlock_stack(st, now);
	if (s->linger_s > 0)
		linger(s, s->linger_s);
}

/* close() is done with s: it goes, or waits for the engine. */
static void close_done(struct tsock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	bool over = true;

	if (st) {
		lock_take(&st->lock);
		over = !s->engine;
		s->in_close = false; /* from here on the event frees it */
		lock_drop(&st->lock);
	}
	if (over)
		tsock_free(s);
}

/* VMA_DEFERRED_CLOSE: the number is free when the engine has no more to do for s. close()'s result. */
static int close_later(struct tsock *s, int fd)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct vfd *kept = st ? vfd_keep(fd) : NULL;

	if (!kept)
		return vfd_release(fd);
	lock_take(&st->lock);
	if (s->engine) {
		s->kept_fd = fd;
		s->kept = kept;
		kept = NULL;
	}
	lock_drop(&st->lock);
	if (kept)
		vfd_unkeep(fd, kept);
	return 0;
}

static int tsock_close(struct vfd *v, int fd)
{
	struct tsock *s = tsock_of(v);
	int ret, err, cancel;

	/* The kernel's counts who has it. */
	if (fd >= 0)
		tsock_leaving(v);
	/* Neither a handler nor a cancellation may see it half closed. */
	lock_enter();
	cancel = tsock_lock(s);
	atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
	if (tsock_mode(s) == TSOCK_LISTEN)
		tsock_unlisten(s);
	vfd_notify(v, EPOLLHUP);
	tsock_stats_end(s);
	if (tsock_mode(s) == TSOCK_CONN)
		close_conn(s, fd);
	tsock_claim_over(s);
	lock_drop(&s->lock);
	if (fd < 0)
		ret = 0;
	else
		ret = params.deferred_close ? close_later(s, fd) : vfd_release(fd);
	err = errno;
	close_done(s);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	errno = err;
	return ret;
}

static uint32_t left_err(const struct tsock *s)
{
	return atomic_load_explicit(&s->left_err, memory_order_relaxed) ? EPOLLERR : 0;
}

static uint32_t tsock_events(struct vfd *v)
{
	struct tsock *s = tsock_of(v);
	struct stack *st;
	uint32_t ev = 0;

	switch (tsock_mode(s)) {
	case TSOCK_LISTEN:
		return tsock_listen_events(s);
	case TSOCK_CONN:
		/* Whoever spins over many sockets reads one word of each. */
		ev = atomic_load_explicit(&s->level, memory_order_acquire);
		if (ev & TSOCK_LEVEL)
			return (ev & ~TSOCK_LEVEL) | tsock_errq_events(s);
		st = tsock_conn_lock(s);
		if (!st)
			return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLHUP | EPOLLRDHUP | left_err(s) | tsock_errq_events(s);
		ev = tsock_epoll_bits(tcp_ready(s->c));
		/* Room in the send buffer comes back without an event: it is looked for each time. */
		if (ev & EPOLLOUT)
			atomic_store_explicit(&s->level, ev | TSOCK_LEVEL, memory_order_release);
		lock_drop(&st->lock);
		return ev | tsock_errq_events(s);
	default:
		return left_err(s); /* the kernel answers else */
	}
}

const struct vfd_ops tsock_ops = {
	.bind = tsock_bind,
	.connect = tsock_connect,
	.listen = tsock_listen,
	.accept4 = tsock_accept4,
	.shutdown = tsock_shutdown,
	.getsockname = tsock_getsockname,
	.getpeername = tsock_getpeername,
	.getsockopt = tsock_getsockopt,
	.setsockopt = tsock_setsockopt,
	.ioctl = tsock_ioctl,
	.fcntl = tsock_fcntl,
	.recvmsg = tsock_recvmsg,
	.sendmsg = tsock_sendmsg,
	.recvfrom = tsock_recvfrom,
	.sendto = tsock_sendto,
	.close = tsock_close,
	.events = tsock_events,
	.waited = tsock_waited,
	.share = tsock_share,
	.leaving = tsock_leaving,
	.forking = tsock_forking,
	.heir = tsock_heir,
};
