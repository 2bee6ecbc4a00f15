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

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"
#include "socket/socket.h"
#include "wait/wait.h"

/* All socket objects ever made; memory is reused, never freed (vfd.h). */
struct slab {
	_Alignas(64) struct tcp_sock socks[32]; /* zero beyond `used`: not in use */
	unsigned used;
	struct slab *next; /* never changes once the slab is listed */
};
static struct lock list_lock;
static struct slab *slabs; /* the latest first */
static struct tcp_sock
	*_Atomic by_id[TCP_SOCK_NUMBERED]; /* pages that nobody touches cost nothing */
static _Atomic uint32_t next_id;
/* by next_free, the longest rested first */
static struct tcp_sock *free_socks, **free_tail = &free_socks;

/* Before the first socket is made, and for good. */
static const struct tcp_sock_handover *handover;

#ifdef VMA_CHECK
/* By id. What was given back twice would be two sockets at a time. */
static _Atomic bool rests[TCP_SOCK_NUMBERED];

static void check_rests(const struct tcp_sock *s, bool is)
{
	if (s->id >= TCP_SOCK_NUMBERED || atomic_exchange(&rests[s->id], is) != is)
		return;
	log_error("socket object %u is %s twice", s->id, is ? "given back" : "taken");
	__builtin_trap();
}
#else
#define check_rests(s, is) ((void)0)
#endif

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
static struct tcp_sock *sock_fresh(void)
{
	struct slab *b = slabs;
	struct tcp_sock *s;

	if (!b || b->used == sizeof(b->socks) / sizeof(b->socks[0]))
		b = slab_new();
	if (!b)
		return NULL;
	s = &b->socks[b->used++];
	s->v.ops = &tcp_sock_ops;
	s->v.kind = VFD_TCP;
	lock_class(&s->lock, "tcp_sock.lock");
	s->id = next_id++;
	if (s->id < TCP_SOCK_NUMBERED)
		by_id[s->id] = s;
	return s;
}

static struct tcp_sock *sock_alloc(void)
{
	struct tcp_sock *s;

	lock_take(&list_lock);
	s = free_socks;
	if (s) {
		free_socks = s->next_free;
		if (!free_socks)
			free_tail = &free_socks;
		check_rests(s, false);
	} else {
		s = sock_fresh();
	}
	lock_drop(&list_lock);
	return s;
}

uint32_t tcp_sock_count(void)
{
	return atomic_load(&next_id);
}

struct tcp_sock *tcp_sock_numbered(uint32_t id)
{
	return id < atomic_load(&next_id) && id < TCP_SOCK_NUMBERED ? atomic_load(&by_id[id])
								    : NULL;
}

void tcp_sock_free(struct tcp_sock *s)
{
	/* linger() knows by it that s is another's. */
	atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
	atomic_store_explicit(&s->in_use, false, memory_order_release);
	/* Of one that was in no table, too. */
	atomic_store_explicit(&s->given_up, true, memory_order_relaxed);
	lock_take(&list_lock);
	check_rests(s, true);
	s->next_free = NULL;
	*free_tail = s;
	free_tail = &s->next_free;
	lock_drop(&list_lock);
}

/* What a socket has that is new. */
static void make_new(struct tcp_sock *s, int fd, int domain)
{
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->v.os_events, 0, memory_order_relaxed);
	atomic_store_explicit(&s->v.kernels, false, memory_order_relaxed);
	/* A hand-over may come before vfd_install(). */
	atomic_store_explicit(&s->v.os_fd, fd, memory_order_relaxed);
	s->user.kind = TCP_SOCK_USER_CONN;
	atomic_store_explicit(&s->mode, TCP_SOCK_KERNEL, memory_order_relaxed);
	s->domain = (uint8_t)domain;
	s->tuple.lport = 0;
	s->port_bound = s->v6only = s->stale = false;
	atomic_store_explicit(&s->pending_error, 0, memory_order_relaxed);
	s->bound = s->accepted = s->has_own_rule = s->by_shared = s->on_block = s->by_another =
		s->closed = s->in_close = s->in_engine = s->connected = s->in_kernel =
			s->opts_deferred = false;
	s->nonblock = s->zerocopy = s->has_status_flags = false;
	atomic_store_explicit(&s->has_held, false, memory_order_relaxed);
	atomic_store_explicit(&s->hint, 0, memory_order_relaxed);
	atomic_store_explicit(&s->spin.seen, 0, memory_order_relaxed);
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	atomic_store_explicit(&s->st, NULL, memory_order_relaxed);
	/*
	 * One that rested has none; a thread that is still inside its former life may look at that,
	 * and may not see it written.
	 */
	if (s->c)
		s->c = NULL;
	s->slot = NULL;
	s->port_fd = -1;
	__atomic_store_n(&s->worker_fd, -1, __ATOMIC_RELAXED);
	s->kept = NULL;
	s->rcvlowat = 1;
	s->linger_s = -1;
	s->rcvtimeo_ns = s->sndtimeo_ns = 0;
	s->tells = params.socketxtreme ? TCP_SOCK_COMPLETIONS : 0;
	atomic_store_explicit(&s->zc_next, 0, memory_order_relaxed);
	atomic_store_explicit(&s->zc_told, 0, memory_order_relaxed);
	s->mark = 0;
	s->bound_if = 0;
	memset(&s->unconn, 0, sizeof(s->unconn));
}

struct tcp_sock *tcp_sock_new(int fd, int domain)
{
	struct tcp_sock *s = sock_alloc();

	if (!s)
		return NULL;
	make_new(s, fd, domain);
	/* The last: who finds this finds all of the new one. */
	atomic_store_explicit(&s->given_up, false, memory_order_release);
	if (handover)
		handover->made(s);
	tcp_sock_stats_begin(s, fd);
	return s;
}

int tcp_sock_socket_created(int fd, int domain, int type, int protocol)
{
	struct tcp_sock *s;
	int err;

	if ((domain != AF_INET && domain != AF_INET6) || (type & 0xf) != SOCK_STREAM ||
	    (protocol && protocol != IPPROTO_TCP))
		return -EPROTONOSUPPORT;
	if (params.ring_type == RING_TYPE_NONE)
		return -EOPNOTSUPP;
	s = tcp_sock_new(fd, domain);
	if (!s)
		return -ENOMEM;
	s->nonblock = type & SOCK_NONBLOCK;
	if (params.tcp_nodelay) {
		int on = 1;

		/* what reads back */
		(void)libc.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	tcp_sock_show_blocking(s);
	err = vfd_install(fd, &s->v);
	if (err) {
		tcp_sock_stats_end(s);
		tcp_sock_free(s);
		return err;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
	return 0;
}

/*
 * Frames that the program keeps outlive s and its statistics; its connection may have left for the
 * kernel before.
 */
static void held_over(const struct tcp_sock *s)
{
	if (atomic_load_explicit(&s->has_held, memory_order_relaxed))
		stack_held_orphan(s);
}

static void release(struct tcp_sock *s, void (*stats_end)(struct tcp_sock *s))
{
	lock_enter(); /* no handler while the statistics' mutex is held */
	if (vfd_disown(&s->v)) { /* else close() was faster, and has freed it */
		atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
		held_over(s);
		stats_end(s);
		tcp_sock_completion_forget(s);
		tcp_sock_free(s);
	}
	lock_leave();
}

void tcp_sock_release(struct tcp_sock *s)
{
	release(s, tcp_sock_stats_end);
}

void tcp_sock_release_shown(struct tcp_sock *s)
{
	release(s, tcp_sock_stats_leave);
}

/* Those of b's slab and of the older ones. */
static void each_of(struct slab *b, void (*fn)(struct tcp_sock *s, void *arg), void *arg)
{
	for (; b; b = b->next) {
		for (size_t i = 0; i < sizeof(b->socks) / sizeof(b->socks[0]); i++) {
			if (atomic_load_explicit(&b->socks[i].in_use, memory_order_acquire))
				fn(&b->socks[i], arg);
		}
	}
}

void tcp_sock_each(void (*fn)(struct tcp_sock *s, void *arg), void *arg)
{
	struct slab *b;

	lock_take(&list_lock);
	b = slabs;
	lock_drop(&list_lock);
	each_of(b, fn, arg);
}

void tcp_sock_list_forked(void (*fn)(struct tcp_sock *parents, void *arg))
{
	struct slab *parents = slabs;

	/*
	 * Objects, stacks and locks are as the parent had them at this instant: all are left
	 * behind.
	 */
	atomic_store(&list_lock.owner, 0);
	slabs = NULL;
	free_socks = NULL;
#ifdef VMA_CHECK
	memset(rests, 0, sizeof(rests));
#endif
	next_id = 0;
	free_tail = &free_socks;
	each_of(parents, fn, NULL);
}

/* The connection is over, and the port was not of the user's choice. */
static bool gave_port_back(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);
	bool yes = !s->port_bound && !s->accepted && (!st || tcp_conn_state(s->c) == TCPS_CLOSED);

	if (st)
		lock_drop(&st->lock);
	return yes;
}

/* The kernel socket has just been bound to addr. s->lock is held. */
static void note_bound(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct in6_addr ip;
	uint16_t port;
	uint32_t scope;
	bool named = sock_addr_get(addr, len, &ip, &port, &scope);

	s->bound = true;
	s->port_bound = named && port;
	/* To its interface, too: another one may have the same address. */
	if (named && IN6_IS_ADDR_LINKLOCAL(&ip))
		s->bound_if = opt_get_int(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0);
}

static int tcp_sock_bind(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	bool renewed;
	int cancel, ret, err;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.bind(fd, addr, len);
	if (tcp_sock_mode(s) == TCP_SOCK_CONN && !gave_port_back(s)) {
		tcp_sock_unlock(s, cancel);
		errno = EINVAL; /* it has its address; the kernel socket may not */
		return -1;
	}
	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		tcp_sock_disconnect(s);
	renewed = s->stale;
	tcp_sock_shadow_renew(s, fd);
	ret = libc.bind(fd, addr, len);
	err = errno;
	if (!ret)
		note_bound(s, fd, addr, len);
	tcp_sock_unlock(s, cancel);
	if (renewed)
		vfd_shadow_changed(v);
	errno = err;
	return ret;
}

void tcp_sock_listen_over(struct tcp_sock *s)
{
	tcp_sock_unlisten(s);
	s->unconn.attached = false;
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->mode, TCP_SOCK_KERNEL, memory_order_release);
	atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLHUP, memory_order_release);
}

/*
 * As in the kernel: a listener that is shut for reading listens no more, and who waits in accept()
 * learns it. s->lock is held. As shutdown(2), with a negative errno.
 */
static int shut_listener(struct tcp_sock *s, int fd, int how)
{
	if (libc.shutdown(fd, how))
		return -errno;
	if (how != SHUT_WR)
		tcp_sock_listen_over(s);
	vfd_notify(&s->v, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
	return 0;
}

/* As shut_listener(), of a connection. */
static int shut_conn(struct tcp_sock *s, int how)
{
	struct stack *st;
	uint64_t now;
	int err;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	st = tcp_sock_conn_look(s);
	if (!st)
		return -ENOTCONN;
	/* A connect() under way is given up, whatever `how` says (Linux: inet_shutdown()). */
	if (tcp_conn_state(s->c) == TCPS_SYN_SENT) {
		lock_drop(&st->lock);
		tcp_sock_disconnect(s);
		return 0;
	}
	now = tcp_sock_now_us();
	err = tcp_shutdown(s->c, how, now);
	stack_round_says_last(s, now);
	tcp_sock_show_state(s, tcp_conn_state(s->c));
	if (!err) {
		s->connected = true; /* no connect() has to say so any more, as in the kernel */
		/* Whoever waits in this direction learns it now. */
		atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLOUT | EPOLLRDHUP,
					 memory_order_release);
		vfd_notify(&s->v, tcp_sock_epoll_bits(tcp_ready(s->c)));
	}
	tcp_sock_unlock_stack_in_round(st, now);
	return err;
}

static int tcp_sock_shutdown(struct vfd *v, int fd, int how)
{
	struct tcp_sock *s = tcp_sock_of(v);
	enum tcp_sock_mode mode;
	int cancel, err = 0;
	bool over;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.shutdown(fd, how);
	mode = tcp_sock_mode(s);
	if (mode == TCP_SOCK_LISTEN)
		err = shut_listener(s, fd, how);
	else if (mode == TCP_SOCK_CONN)
		err = shut_conn(s, how);
	else if (libc.shutdown(fd, how))
		err = -errno;
	over = mode != tcp_sock_mode(s);
	tcp_sock_unlock(s, cancel);
	if (over)
		vfd_shadow_changed(v);
	errno = -err;
	return err ? -1 : 0;
}

int tcp_sock_addr_put(const struct tcp_sock *s, bool remote, struct sockaddr *addr, socklen_t *len)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct sockaddr_storage ss;
	socklen_t full = sock_addr_put(s->domain, remote ? &s->tuple.remote : &s->tuple.local,
				       remote ? s->tuple.rport : s->tuple.lport,
				       st ? (uint32_t)st->ifindex : 0, &ss);

	return sock_addr_give(&ss, full, addr, len);
}

/*
 * The names are read under s->lock: another thread may connect the socket, or close it and have its
 * memory serve the next one.
 */

static int tcp_sock_getsockname(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int ret = 0, cancel, err;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.getsockname(fd, addr, len);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN) {
		ret = tcp_sock_shadow_name(s, fd, addr, len);
		err = errno;
	} else {
		err = -tcp_sock_addr_put(s, false, addr, len);
		ret = err ? -1 : 0;
	}
	tcp_sock_unlock(s, cancel);
	if (ret)
		errno = err;
	return ret;
}

int tcp_sock_kernel_peer(int fd, int domain, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t full =
		domain == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (libc.getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &ss, &full))
		return -errno;
	return sock_addr_give(&ss, full, addr, len);
}

int tcp_sock_peer(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len)
{
	int err, cancel;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EBADF;
	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		err = tcp_sock_addr_put(s, true, addr, len);
	else
		err = tcp_sock_kernel_peer(fd, s->domain, addr, len);
	tcp_sock_unlock(s, cancel);
	return err;
}

static bool has_peer(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_look(s);
	enum tcp_state state;

	if (!st)
		return false;
	state = tcp_conn_state(s->c);
	lock_drop(&st->lock);
	return state != TCPS_CLOSED && state != TCPS_SYN_SENT;
}

static int tcp_sock_getpeername(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int ret = 0, err = ENOTCONN, cancel;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.getpeername(fd, addr, len);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN) {
		ret = libc.getpeername(fd, addr, len);
		err = errno;
	} else {
		if (has_peer(s))
			err = -tcp_sock_addr_put(s, true, addr, len);
		ret = err ? -1 : 0;
	}
	tcp_sock_unlock(s, cancel);
	if (ret)
		errno = err;
	return ret;
}

/* --- closing */

/* Our FIN is not acknowledged yet; polls the stack. s may be another's: gen tells. */
static bool lingers(struct tcp_sock *s, uint32_t gen)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);
	uint64_t now = tcp_sock_now_us();
	bool more = false;

	if (!st)
		return false;
	lock_take(&st->lock);
	/* Under the lock that the engine gives it back under. */
	if (atomic_load_explicit(&s->gen, memory_order_acquire) == gen && s->c &&
	    atomic_load_explicit(&st->open, memory_order_relaxed)) {
		stack_poll(st, (unsigned)params.cq_poll_batch_max);
		more = atomic_load_explicit(&s->gen, memory_order_acquire) == gen && s->c &&
		       tcp_sock_unfinished(s->c);
	}
	tcp_sock_unlock_stack(st, now);
	return more;
}

/*
 * SO_LINGER: until everything is acknowledged, the time is up or a handler has run. As in the
 * kernel the number is free meanwhile, and close() returns 0 whatever ends it. arg: s->gen and the
 * seconds.
 */
static void linger(struct vfd *v, uint64_t arg)
{
	uint64_t deadline = clock_monotonic_ns() + (arg & UINT32_MAX) * 1000000000u;
	uint32_t handled = signals_handled;

	while (lingers(tcp_sock_of(v), (uint32_t)(arg >> 32)) && signals_handled == handled &&
	       clock_monotonic_ns() < deadline)
		clock_sleep_ns(200000);
}

static void close_conn(struct tcp_sock *s, int fd)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	uint64_t now = tcp_sock_now_us();

	lock_take(&st->lock);
	s->in_close = true;
	s->closed = true;
	held_over(s);
	if (s->c && s->linger_s == 0)
		tcp_abort(s->c, now);
	else if (s->c)
		tcp_close(s->c, now);
	stack_round_says_last(s, now);
	/*
	 * A client's port is the kernel socket's: it stays reserved while segments of ours carry
	 * it. An accepted one has its listener's (port/accepted.c).
	 */
	if (s->c && !s->accepted && (s->has_own_rule || s->on_block) && fd >= 0)
		s->port_fd = own_fd_copy(fd);
	tcp_sock_unlock_stack_in_round(st, now);
}

static void linger_later(struct tcp_sock *s)
{
	uint64_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);

	if (tcp_sock_mode(s) == TCP_SOCK_CONN && s->linger_s > 0)
		vfd_wait_after_close(&s->v, linger, gen << 32 | (uint32_t)s->linger_s);
}

/* close() is done with s: it goes, or waits for the engine. */
static void close_done(struct tcp_sock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	bool over = true;

	if (st) {
		lock_take(&st->lock);
		over = !s->in_engine;
		s->in_close = false; /* from here on the event frees it */
		lock_drop(&st->lock);
	}
	if (over)
		tcp_sock_free(s);
}

/*
 * VMA_DEFERRED_CLOSE: the number is free when the engine has no more to do for s. close()'s result.
 */
static int close_later(struct tcp_sock *s, int fd)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct vfd *kept = st ? vfd_keep(fd) : NULL;

	if (!kept)
		return vfd_release(fd);
	lock_take(&st->lock);
	if (s->in_engine) {
		s->kept_fd = fd;
		s->kept = kept;
		kept = NULL;
	}
	lock_drop(&st->lock);
	if (kept)
		vfd_unkeep(fd, kept);
	return 0;
}

/* The number's kernel socket was never connected: its close() waits for nothing. */
static bool is_idle(const struct tcp_sock *s)
{
	return tcp_sock_mode(s) == TCP_SOCK_CONN &&
	       atomic_load_explicit(&s->v.shadow, memory_order_relaxed) == VFD_SHADOW_NONE;
}

static int close_number(struct tcp_sock *s, int fd)
{
	if (params.deferred_close)
		return close_later(s, fd);
	return is_idle(s) ? vfd_release_idle(fd) : vfd_release(fd);
}

static int tcp_sock_close(struct vfd *v, int fd)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct tcp_sock_port port = {.port = 0};
	int ret, err, cancel;

	/* The kernel's counts who has it. */
	if (fd >= 0 && tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		handover->listener_closing(s);
	else if (fd >= 0)
		handover->leaving(v);
	/* Neither a handler nor a cancellation may see it half closed. */
	lock_enter();
	cancel = tcp_sock_lock(s);
	atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
	/* From here on nobody begins anything with it who finds it among all, or has it still. */
	atomic_store_explicit(&s->given_up, true, memory_order_relaxed);
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		if (fd >= 0)
			tcp_sock_port_learn(s, fd, &port);
		tcp_sock_unlisten(s);
	}
	vfd_notify(v, EPOLLHUP);
	tcp_sock_figures_last(s);
	held_over(s); /* who gives a frame back counts it in the statistics */
	tcp_sock_stats_end(s);
	tcp_sock_completion_forget(s);
	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		close_conn(s, fd);
	else
		held_over(s);
	handover->over(s);
	lock_drop(&s->lock);
	if (fd < 0)
		ret = 0;
	else
		ret = close_number(s, fd);
	err = errno;
	tcp_sock_port_keep(&port);
	linger_later(s);
	close_done(s);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	errno = err;
	return ret;
}

static uint32_t pending_error(const struct tcp_sock *s)
{
	return atomic_load_explicit(&s->pending_error, memory_order_relaxed) ? EPOLLERR : 0;
}

static uint32_t tcp_sock_events(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct stack *st;
	uint32_t ev = 0;

	switch (tcp_sock_mode(s)) {
	case TCP_SOCK_LISTEN:
		return tcp_sock_listen_events(s);
	case TCP_SOCK_CONN:
		/* Whoever spins over many sockets reads one word of each. */
		ev = atomic_load_explicit(&s->level, memory_order_acquire);
		if (ev & TCP_SOCK_LEVEL)
			return (ev & ~TCP_SOCK_LEVEL) | tcp_sock_errq_events(s);
		st = tcp_sock_conn_lock(s);
		/* While this waited for the lock it has gone to the kernel. */
		if (!st && tcp_sock_mode(s) != TCP_SOCK_CONN)
			return pending_error(s);
		if (!st)
			return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLHUP |
			       EPOLLRDHUP | pending_error(s) | tcp_sock_errq_events(s);
		ev = tcp_sock_epoll_bits(tcp_ready(s->c));
		/*
		 * Room in the send buffer comes back without an event: it is looked for each time.
		 */
		if (ev & EPOLLOUT)
			atomic_store_explicit(&s->level, ev | TCP_SOCK_LEVEL, memory_order_release);
		lock_drop(&st->lock);
		return ev | tcp_sock_errq_events(s);
	default:
		return pending_error(s); /* the kernel answers else */
	}
}

/* --- the room of handovers, which is above this one */

void tcp_sock_handover_register(const struct tcp_sock_handover *h)
{
	handover = h;
}

void tcp_sock_handover_second(void)
{
	handover->second();
}

void tcp_sock_handover_tick(void)
{
	handover->tick();
}

bool tcp_sock_handover_rests(void)
{
	return handover->rests();
}

bool tcp_sock_handover_crowded(struct tcp_sock *s)
{
	return handover->crowded(s);
}

void tcp_sock_handover_held(struct tcp_sock *s)
{
	handover->share(&s->v, (struct vma_stats_why){VMA_WHY_STEERING, ENOSPC});
}

void tcp_sock_listener_waited(struct tcp_sock *s)
{
	handover->listener_waits(s);
}

bool tcp_sock_listener_claim(struct tcp_sock *s, bool *given)
{
	return handover->listener_wanted(s, given);
}

int tcp_sock_given_take(struct tcp_sock *s, bool *more)
{
	return handover->listener_given(s, more);
}

void tcp_sock_given_inherit(struct tcp_sock *s, const struct tcp_sock *parents)
{
	handover->listener_inherited(s, parents);
}

void tcp_sock_handover_cut_off(struct stack *st)
{
	handover->cut_off(st);
}

void tcp_sock_handover_strays(const struct vma_stray *stray)
{
	handover->strays(stray);
}

void tcp_sock_handover_leave(struct tcp_sock *s, struct vma_stats_why why)
{
	handover->leave(s, why);
}

void tcp_sock_handover_client(void)
{
	handover->client();
}

void tcp_sock_handover_accepted(struct tcp_sock *s)
{
	handover->accepted(s);
}

void tcp_sock_handover_decided(struct tcp_sock *s)
{
	handover->decided(s);
}

static void share(struct vfd *v, struct vma_stats_why why)
{
	handover->share(v, why);
}

static struct wait_spin_memory *alone(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);

	return tcp_sock_mode(s) == TCP_SOCK_CONN ? &s->spin : NULL;
}

static bool crowded(struct vfd *v)
{
	return handover->crowded(tcp_sock_of(v));
}

static void give(struct vfd *v, struct vma_stats_why why)
{
	handover->give(v, why);
}

/* Its parent's epoll set is waited on, which has what the parent had put there. */
static void touch(struct vfd *v)
{
	int err = errno;

	if (tcp_sock_of(v)->unconn.waited_by_parent)
		tcp_sock_waited(v);
	errno = err;
}

static void leaving(struct vfd *v)
{
	handover->leaving(v);
}

/* Whoever has s->lock may be using the number. */
static void renumbered(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int cancel;

	if (lock_mine(&s->lock)) /* a signal handler: that call of this thread goes on afterwards */
		return;
	cancel = tcp_sock_lock(s);
	tcp_sock_unlock(s, cancel);
}

static void forking(struct vfd *v)
{
	handover->forking(v);
}

static struct vfd *inherited(struct vfd *v)
{
	return handover->inherited(v);
}

const struct vfd_ops tcp_sock_ops = {
	.bind = tcp_sock_bind,
	.connect = tcp_sock_connect,
	.listen = tcp_sock_listen,
	.accept4 = tcp_sock_accept4,
	.shutdown = tcp_sock_shutdown,
	.getsockname = tcp_sock_getsockname,
	.getpeername = tcp_sock_getpeername,
	.getsockopt = tcp_sock_getsockopt,
	.setsockopt = tcp_sock_setsockopt,
	.ioctl = tcp_sock_ioctl,
	.fcntl = tcp_sock_fcntl,
	.recvmsg = tcp_sock_recvmsg,
	.sendmsg = tcp_sock_sendmsg,
	.recvfrom = tcp_sock_recvfrom,
	.sendto = tcp_sock_sendto,
	.room = tcp_sock_room,
	.send_file = tcp_sock_send_file,
	.close = tcp_sock_close,
	.events = tcp_sock_events,
	.waited = tcp_sock_waited,
	.touch = touch,
	.alone = alone,
	.crowded = crowded,
	.share = share,
	.give = give,
	.leaving = leaving,
	.renumbered = renumbered,
	.forking = forking,
	.inherited = inherited,
};
