/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * connect(): who serves the connection, its local port, its steering rule, and the waiting for it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

struct stack *tcp_sock_conn_lock(struct tcp_sock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);

	if (!st || lock_mine(&st->lock))
		return NULL;
	lock_take(&st->lock);
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	/* Closed meanwhile, s may have become a connection of another stack. */
	if (s->c && atomic_load_explicit(&s->st, memory_order_acquire) == st)
		return st;
	lock_drop(&st->lock);
	return NULL;
}

struct stack *tcp_sock_conn_look(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);

	if (!st || !stack_pending(st))
		return st;
	stack_poll_called(st);
	if (s->c)
		return st;
	lock_drop(&st->lock);
	return NULL;
}

void tcp_sock_key(const struct tcp_tuple *t, bool exact, struct vma_flow_key *key)
{
	memset(key, 0, sizeof(*key));
	memcpy(key->local.byte, &t->local, 16);
	key->local_port = t->lport;
	key->proto = IPPROTO_TCP;
	if (!exact)
		return;
	memcpy(key->remote.byte, &t->remote, 16);
	key->remote_port = t->rport;
}

void tcp_sock_show_state_in(struct vma_stats_socket *b, enum tcp_state state)
{
	static const uint8_t shown[] = {
		[TCPS_ESTABLISHED] = VMA_STATE_ESTABLISHED,
		[TCPS_SYN_SENT] = VMA_STATE_SYN_SENT,
		[TCPS_SYN_RECV] = VMA_STATE_SYN_RCVD,
		[TCPS_FIN_WAIT1] = VMA_STATE_FIN_WAIT_1,
		[TCPS_FIN_WAIT2] = VMA_STATE_FIN_WAIT_2,
		[TCPS_TIME_WAIT] = VMA_STATE_TIME_WAIT,
		[TCPS_CLOSED] = VMA_STATE_CLOSED,
		[TCPS_CLOSE_WAIT] = VMA_STATE_CLOSE_WAIT,
		[TCPS_LAST_ACK] = VMA_STATE_LAST_ACK,
		[TCPS_LISTEN] = VMA_STATE_LISTEN,
		[TCPS_CLOSING] = VMA_STATE_CLOSING,
	};

	if (state < sizeof(shown))
		__atomic_store_n(&b->state, shown[state], __ATOMIC_RELAXED);
}

void tcp_sock_show_state(struct tcp_sock *s, enum tcp_state state)
{
	tcp_sock_show_state_in(s->stats, state);
}

void tcp_sock_show_addresses(struct tcp_sock *s)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	if (!b)
		return;
	memcpy(b->local.byte, &s->tuple.local, 16);
	memcpy(b->remote.byte, &s->tuple.remote, 16);
	b->local_port = s->tuple.lport;
	b->remote_port = s->tuple.rport;
	b->offloaded = 1;
	tcp_sock_figures_begin(b);
}

/* What a connect() to addr is about. */
struct target {
	struct in6_addr dst, src; /* src: as bound, :: any; then as routed */
	uint16_t dport, sport; /* sport 0: not bound */
	uint32_t scope;
	bool v4;
	struct net_route route;
	/* stack_get(), or for who does not wait stack_get_soon() */
	struct stack *(*get)(int ifindex, uint64_t key);
	struct stack *st;
};

/* What the kernel socket is bound to. */
static void learn_local(int fd, struct target *t)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint32_t scope;

	memset(&t->src, 0, sizeof(t->src));
	t->sport = 0;
	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    !sock_addr_get((struct sockaddr *)&ss, len, &t->src, &t->sport, &scope))
		return;
	/* 0.0.0.0 is v4-mapped here; "any" has one form inside. */
	if (IN6_IS_ADDR_V4MAPPED(&t->src) && !memcmp(&t->src.s6_addr[12], "\0\0\0\0", 4))
		memset(&t->src, 0, sizeof(t->src));
}

/* fn of stacks_any_on(): a connection of the stack, or its TIME_WAIT, has the target's name. */
static bool has_name(struct stack *st, void *arg)
{
	struct target *t = arg;
	struct tcp_tuple name = {
		.local = t->src, .remote = t->dst, .lport = t->sport, .rport = t->dport};

	name.family = t->v4 ? AF_INET : AF_INET6;
	if (!st->tcp || !tcp_tuple_used(st->tcp->ts, &name))
		return false;
	stack_users(st, 1);
	stack_put(t->st);
	t->st = st;
	return true;
}

/*
 * The stack for the connection, to be put: its key's, but what has its name already says whether it
 * can be had.
 */
static void choose_stack(const struct tcp_sock *s, struct target *t)
{
	t->st = t->get(t->route.oif, tcp_sock_key_rx(s, &t->src));
	if (t->st && t->sport && stacks_several())
		(void)stacks_any_on(t->route.oif, has_name, t);
}

/*
 * Rules leave it to the kernel? The local side that they may name is the one that the connection
 * will have, also when the kernel has yet to choose it by the route.
 */
static bool rules_want_os(const struct target *t, const struct sockaddr *to)
{
	struct sockaddr_storage local;

	sock_addr_put(t->v4 ? AF_INET : AF_INET6, &t->src, t->sport, 0, &local);
	return rules_match(RULE_TCP_CLIENT, to, (struct sockaddr *)&local) == RULE_OS;
}

/* A link-local one by no interface, or by another than s is bound to: the kernel says so. */
static bool is_by_none(const struct tcp_sock *s, const struct target *t)
{
	int bound_if = s->bound_if;

	return IN6_IS_ADDR_LINKLOCAL(&t->dst) &&
	       (bound_if ? t->scope && (int)t->scope != bound_if : !t->scope);
}

/* Who is to be connected to, and from where; fills t. VMA_WHY_NONE, or why user space does not. */
static enum vma_why get_addresses(struct tcp_sock *s, int fd, const struct sockaddr *addr,
				  socklen_t len, struct target *t)
{
	if (!sock_addr_get(addr, len, &t->dst, &t->dport, &t->scope) || !t->dport)
		return VMA_WHY_ADDRESS;
	t->v4 = IN6_IS_ADDR_V4MAPPED(&t->dst);
	if (addr->sa_family != s->domain && !(s->domain == AF_INET6 && t->v4))
		return VMA_WHY_ADDRESS;
	if (s->domain == AF_INET && !t->v4)
		return VMA_WHY_ADDRESS;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->dst) || sock_addr_is_multicast(&t->dst) ||
	    net_addr_is_broadcast(&t->dst) || is_by_none(s, t) ||
	    (t->v4 && !memcmp(&t->dst.s6_addr[12], "\0\0\0\0", 4)))
		return VMA_WHY_ADDRESS;
	/* An earlier connect() has left its port, too. */
	if (s->bound || s->tuple.lport)
		learn_local(fd, t);
	if (!IN6_IS_ADDR_UNSPECIFIED(&t->src) && IN6_IS_ADDR_V4MAPPED(&t->src) != t->v4)
		return VMA_WHY_ADDRESS;
	return VMA_WHY_NONE;
}

/* The way there; fills t. As get_addresses(). */
static enum vma_why get_route(struct tcp_sock *s, struct target *t)
{
	struct net_route_query q = {
		.dst = t->dst,
		.src = t->src,
		.oif = IN6_IS_ADDR_LINKLOCAL(&t->dst) ? (int)t->scope : 0,
		.sport = t->sport,
		.dport = t->dport,
	};

	/* What the kernel cannot route it says itself, with its own errno. */
	if (tcp_sock_route(s, &q, &t->route))
		return VMA_WHY_ROUTE;
	if (t->route.type == NET_ROUTE_LOCAL && !params.offload_loopback)
		return VMA_WHY_LOCAL;
	if (t->route.type != NET_ROUTE_LOCAL && t->route.type != NET_ROUTE_UNICAST)
		return VMA_WHY_ROUTE;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->src))
		t->src = t->route.prefsrc;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->src) || IN6_IS_ADDR_V4MAPPED(&t->src) != t->v4)
		return VMA_WHY_ADDRESS;
	return VMA_WHY_NONE;
}

/* The answer would be held back there, and each try would take a second. */
static bool has_more_queues(const struct stack *st)
{
	return atomic_load_explicit(&stack_ring(st)->has_more_queues, memory_order_relaxed);
}

/* True when user space can and may make this connection; fills t. Else vma_stats shows why. */
static bool offloadable(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			struct target *t)
{
	struct vma_stats_why why;

	if (s->unconn.no_offload)
		return false;
	why = (struct vma_stats_why){.reason = get_addresses(s, fd, addr, len, t)};
	if (!why.reason)
		why.reason = get_route(s, t);
	if (!why.reason && rules_want_os(t, addr))
		why.reason = VMA_WHY_RULE;
	if (!why.reason) {
		choose_stack(s, t);
		why = t->st ? STATS_WHY(NONE) : stack_why_not(t->route.oif);
	}
	if (!why.reason && has_more_queues(t->st)) {
		stack_put(t->st);
		why.reason = VMA_WHY_QUEUES;
	}
	stats_why(tcp_sock_shown(s), fd, VMA_WHY_TX, why);
	return !why.reason;
}

/* The engine's part and the steering rule; st->lock is held. 0 or negative errno. */
static int open_conn(struct tcp_sock *s, int fd, struct stack *st, struct tcp_sock_opening *o,
		     uint64_t now)
{
	struct tcp_sock_stack *ts = tcp_sock_stack_get(st);
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)fd};
	struct vma_flow_key key;
	int err;

	if (!ts)
		return -ENOMEM;
	atomic_store_explicit(&s->hint, 0, memory_order_relaxed);
	/*
	 * First the engine: a TIME_WAIT that it takes over gives its rule back. The SYN leaves at
	 * the flush.
	 */
	err = tcp_connect(ts->ts, &s->tuple, &o->opts, &s->user, now, &s->c);
	if (err) {
		s->c = NULL;
		return err;
	}
	s->in_engine = true;
	stack_users(st, 1);
	if (s->on_block && !tcp_sock_block_stands(s, st))
		tcp_sock_block_put(s, st);
	if (!s->on_block) {
		tcp_sock_key(&s->tuple, true, &key);
		err = st->ring->ops->flow_add(st->ring, &key, &info);
		if (err) {
			tcp_abort(s->c, now);
			/* Another process has it in TIME_WAIT; the kernel calls the port free. */
			return err == -EEXIST ? -EADDRNOTAVAIL : err;
		}
		s->has_own_rule = true;
	}
	tcp_sock_opts_begin(s, fd, now);
	/* Without a cookie, as before the first one has come: data go after the handshake. */
	if (stack_ring_comes(st))
		tcp_hold_syn(s->c);
	else if (o->fast_open)
		tcp_sock_fast_open_begin(s, o, now);
	tcp_sock_kmod_add(s, fd);
	return 0;
}

/* The tuple of s has its ports. As start(). */
static int begin(struct tcp_sock *s, int fd, struct stack *st, struct tcp_sock_opening *o)
{
	uint64_t now = tcp_sock_now_us();
	int err;

	tcp_sock_completion_forget(s);
	lock_take(&st->lock);
	if (!atomic_load_explicit(&st->open, memory_order_relaxed) || stack_refused(st)) {
		lock_drop(&st->lock);
		stats_why(tcp_sock_shown(s), fd, VMA_WHY_TX, STATS_WHY(RING_GONE));
		return 1;
	}
	atomic_store_explicit(&s->st, st, memory_order_release);
	err = open_conn(s, fd, st, o, now);
	if (!err) {
		atomic_store_explicit(&s->mode, TCP_SOCK_CONN, memory_order_release);
		atomic_store_explicit(&s->v.shadow, VFD_SHADOW_NONE, memory_order_release);
		tcp_sock_show_addresses(s);
		tcp_sock_show_state(s, TCPS_SYN_SENT);
	}
	tcp_sock_unlock_stack_in_round(st, now);
	if (err) {
		atomic_store_explicit(&s->st, NULL, memory_order_relaxed);
		s->stale = !s->port_bound;
	}
	return err;
}

/* A name, and whose it may not be already. */
struct taken {
	const struct tcp_tuple *name;
	const struct stack *but;
};

/* fn of stacks_any_on(): a connection of another stack, or its TIME_WAIT, has the name. */
static bool has_taken(struct stack *st, void *arg)
{
	const struct taken *t = arg;

	return st != t->but && st->tcp && tcp_tuple_used(st->tcp->ts, t->name);
}

/*
 * As begin(), where the interface has several stacks: -EADDRNOTAVAIL when another one has the name.
 * A card would give its segments to both. The kernel's idea of the port does not tell: it is free
 * again when the other's connection is in TIME_WAIT.
 */
static int begin_among(struct tcp_sock *s, int fd, struct stack *st, struct tcp_sock_opening *o)
{
	struct taken t = {.name = &s->tuple, .but = st};
	int err = -EADDRNOTAVAIL;

	lock_take(&stack_flows_lock);
	if (!stacks_any_on(st->ifindex, has_taken, &t))
		err = begin(s, fd, st, o);
	else
		s->stale = !s->port_bound;
	lock_drop(&stack_flows_lock);
	return err;
}

/*
 * With t's addresses and stack; a port is chosen where t has none. As start(), and as
 * begin_among().
 */
static int start_on(struct tcp_sock *s, int fd, const struct target *t, struct tcp_sock_opening *o)
{
	bool on_block;
	int err = 0;

	memset(&s->tuple, 0, sizeof(s->tuple));
	s->tuple.local = t->src;
	s->tuple.remote = t->dst;
	s->tuple.lport = t->sport;
	s->tuple.rport = t->dport;
	s->tuple.family = t->v4 ? AF_INET : AF_INET6;
	on_block = !t->sport && tcp_sock_block_take(s, fd, t->st);
	if (!t->sport && !on_block)
		err = tcp_sock_port_take(s->domain, fd, t->st, &s->tuple);
	if (err)
		return err;
	err = stacks_several() ? begin_among(s, fd, t->st, o) : begin(s, fd, t->st, o);
	/* The kernel socket has the port of a block, and may connect from it. */
	if (err && on_block) {
		s->on_block = false;
		tcp_sock_block_lost(&s->tuple);
	}
	return err;
}

/*
 * Of ports that another process has in TIME_WAIT, and the kernel calls free. They come in long
 * rows: the steps grow.
 */
#define START_TRIES 16

/*
 * Begins the connection in user space; s->lock is held. 0, 1: the kernel is to do it, or negative
 * errno.
 */
static int start(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
		 struct tcp_sock_opening *o)
{
	bool waits = !s->nonblock && !(o->flags & MSG_DONTWAIT);
	struct target t = {.get = waits ? stack_get : stack_get_soon};
	int err;

	if (!offloadable(s, fd, addr, len, &t))
		return 1;
	tcp_sock_opts_read(s, fd, &o->opts);
	/* Before the kernel socket is bound to the address, which sets it. */
	s->v6only = s->domain == AF_INET6 && opt_get_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	err = start_on(s, fd, &t, o);
	for (int i = 1; err == -EADDRNOTAVAIL && !t.sport && i < START_TRIES; i++) {
		if (!tcp_sock_shadow_renew(s, fd))
			break;
		tcp_sock_ports_skip(&s->tuple, 1u << i);
		err = start_on(s, fd, &t, o);
	}
	stack_put(t.st);
	if (err == -ENOSPC || err == -ENOMEM) {
		log_debug("fd %d: connect() is left to the kernel: %s", fd, strerror(-err));
		stats_why(tcp_sock_shown(s), fd, VMA_WHY_TX,
			  (struct vma_stats_why){VMA_WHY_STEERING, -err});
		return 1;
	}
	return err;
}

/*
 * How far a begun connection is. 0: established, -EINPROGRESS, or why it failed; 1: it has gone to
 * the kernel, which knows.
 */
static int progress(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_look(s);
	enum tcp_state state;
	int err = 0;

	if (!st && s->in_kernel && !atomic_load_explicit(&s->pending_error, memory_order_relaxed))
		return 1;
	if (!st) {
		err = tcp_sock_pending_error_take(s);
		return err ? -err : -ECONNABORTED;
	}
	state = tcp_conn_state(s->c);
	if (state == TCPS_SYN_SENT || state == TCPS_SYN_RECV) {
		err = -EINPROGRESS;
		tcp_sock_hint_clear(s, EPOLLOUT | EPOLLWRNORM);
	} else if (state == TCPS_CLOSED) {
		err = -tcp_error(s->c);
		if (!err)
			err = -ECONNABORTED; /* SO_ERROR has told why */
	}
	tcp_sock_show_state(s, state);
	lock_drop(&st->lock);
	return err;
}

/* Linux: tcp_need_reset(). */
static bool was_open(enum tcp_state state)
{
	return state == TCPS_ESTABLISHED || state == TCPS_CLOSE_WAIT || state == TCPS_FIN_WAIT1 ||
	       state == TCPS_FIN_WAIT2 || state == TCPS_SYN_SENT || state == TCPS_SYN_RECV;
}

void tcp_sock_disconnect(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint64_t now = tcp_sock_now_us();

	tcp_sock_opts_sync(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	if (st) {
		atomic_store_explicit(
			&s->pending_error,
			(uint16_t)(was_open(tcp_conn_state(s->c)) ? ECONNRESET : tcp_error(s->c)),
			memory_order_relaxed);
		if (tcp_conn_state(s->c) == TCPS_CLOSED && !tcp_is_over(s->c))
			tcp_sock_time_wait_rule(s);
		/* A TIME_WAIT that stays would say TCP_EV_GONE to whatever s is then. */
		tcp_conn_set_user(s->c, NULL);
		tcp_sock_figures_end(s);
		tcp_abort(s->c, now);
		tcp_sock_conn_over(s);
		tcp_sock_unlock_stack(st, now);
	}
	s->stale = !s->port_bound;
	s->connected = s->accepted = false;
	atomic_store_explicit(&s->st, NULL, memory_order_relaxed);
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->mode, TCP_SOCK_KERNEL, memory_order_release);
	tcp_sock_show_state(s, TCPS_CLOSED);
	atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLOUT | EPOLLHUP, memory_order_release);
	/* whoever waits in another call learns it */
	vfd_notify(&s->v, EPOLLIN | EPOLLOUT | EPOLLHUP);
}

/* A call that has begun a connection, or waits for it. */
struct connecting {
	uint32_t gen; /* of s, under the lock */
	struct wait_signals begin; /* of the call */
};

static int wait_connected(struct tcp_sock *s, const struct connecting *call)
{
	struct tcp_sock_wait w;
	int err;

	tcp_sock_wait_init(s, &w, EPOLLOUT | EPOLLERR | EPOLLHUP, s->sndtimeo_ns);
	wait_call_since(&w.call, &call->begin);
	/* What is closed from here on the waiting sees. */
	if (atomic_load_explicit(&s->gen, memory_order_acquire) != call->gen)
		return -EBADF;
	while ((err = progress(s)) == -EINPROGRESS) {
		err = tcp_sock_wait_more(s, &w);
		if (err)
			return err == -EAGAIN ? -EINPROGRESS : err; /* SO_SNDTIMEO */
	}
	return err;
}

/*
 * Waits for a begun connection if the socket is a blocking one. As connect(), pending: the errno
 * while it is not decided; 1: it has gone to the kernel.
 */
static int conclude(struct tcp_sock *s, int fd, const struct connecting *call, bool nonblock,
		    int pending)
{
	int err = nonblock ? progress(s) : wait_connected(s, call), cancel;
	bool ours;

	if (err == -EINPROGRESS)
		return pending;
	if (err == -EINTR || err == -EBADF || err > 0)
		return err;
	cancel = tcp_sock_lock(s);
	/* Closed meanwhile, it may be another socket by now. */
	ours = atomic_load_explicit(&s->gen, memory_order_relaxed) == call->gen;
	if (ours && !err)
		s->connected = true;
	ours = ours && err && tcp_sock_mode(s) == TCP_SOCK_CONN;
	if (ours) {
		tcp_sock_disconnect(s);
		/* The port is free from here on; getsockname() goes on telling it. */
		tcp_sock_shadow_renew(s, vfd_held_fd(&s->v, fd));
	}
	tcp_sock_unlock(s, cancel);
	if (ours)
		vfd_shadow_changed(&s->v);
	return err;
}

/* As conclude(); close() of another thread waits for its end. */
static int conclude_held(struct tcp_sock *s, int fd, const struct connecting *call, bool nonblock,
			 int pending)
{
	int err;

	if (!vfd_hold(&s->v, fd))
		return -EBADF;
	err = conclude(s, fd, call, nonblock, pending);
	vfd_let_go();
	return err;
}

/*
 * connect() of a connection that has gone to the kernel: established, or before its SYN had left.
 */
static int ask_kernel(int fd, const struct sockaddr *addr, socklen_t len)
{
	int ret = libc.connect(fd, addr, len);

	return ret && errno == EISCONN ? 0 : ret;
}

/* connect() on a socket that has a connection; s->lock is held and dropped here. As conclude(). */
static int connect_again(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			 int cancel)
{
	struct connecting call = {
		.gen = atomic_load_explicit(&s->gen, memory_order_relaxed),
		.begin = wait_signals_now(),
	};
	bool done = s->connected;

	if (addr && len >= sizeof(sa_family_t) && addr->sa_family == AF_UNSPEC) {
		tcp_sock_disconnect(s);
		tcp_sock_unlock(s, cancel);
		vfd_shadow_changed(&s->v);
		return 0;
	}
	tcp_sock_unlock(s, cancel);
	return done ? -EISCONN : conclude_held(s, fd, &call, s->nonblock, -EALREADY);
}

/*
 * connect() on a listener, which only AF_UNSPEC ends; s->lock is held and dropped here. As
 * connect(2).
 */
static int connect_listener(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			    int cancel)
{
	int ret = raw.connect(fd, addr, len), err = errno;

	if (!ret)
		tcp_sock_listen_over(s);
	tcp_sock_unlock(s, cancel);
	if (!ret) {
		vfd_shadow_changed(&s->v);
		vfd_notify(&s->v, EPOLLIN | EPOLLHUP);
	}
	errno = err;
	return ret;
}

/*
 * connect() to addr of a socket that has no connection; s->lock is held. As start(), and the mode
 * says who has it.
 */
static int connect_first(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			 struct tcp_sock_opening *o)
{
	int ret;

	tcp_sock_shadow_renew(s, fd);
	libc_internal_begin();
	if (o->fast_open)
		tcp_sock_fast_open_prepare(s, fd, o);
	ret = start(s, fd, addr, len, o);
	libc_internal_end();
	if (!ret)
		atomic_store_explicit(&s->pending_error, 0, memory_order_relaxed);
	/* A program that was told so writes: that makes the SYN leave. */
	if (!ret && o->waits)
		s->connected = true;
	atomic_store_explicit(&s->given_up, ret > 0, memory_order_relaxed);
	return ret;
}

int tcp_sock_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct tcp_sock_opening o = {.iovcnt = 0};
	struct connecting call = {.begin = wait_signals_now()};
	int cancel, ret;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.connect(fd, addr, len);
	call.gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	if (tcp_sock_mode(s) == TCP_SOCK_CONN) {
		ret = connect_again(s, fd, addr, len, cancel);
	} else if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		return connect_listener(s, fd, addr, len, cancel);
	} else if (!addr || len < sizeof(sa_family_t) || addr->sa_family == AF_UNSPEC) {
		tcp_sock_unlock(s, cancel);
		return libc.connect(fd, addr, len);
	} else {
		o.fast_open = tcp_sock_fast_open_wanted(s, fd);
		if (o.fast_open)
			o.mode = tcp_sock_fast_open_mode();
		ret = connect_first(s, fd, addr, len, &o);
		tcp_sock_unlock(s, cancel);
		if (ret > 0) {
			/* The kernel's connection has no object of ours. */
			tcp_sock_release_shown(s);
			return libc.connect(fd, addr, len);
		}
		vfd_shadow_changed(v);
		/* However fast the answer is: the call that begins it does not wait for it. */
		if (!ret && !o.waits)
			ret = s->nonblock ? -EINPROGRESS
					  : conclude_held(s, fd, &call, false, -EINPROGRESS);
	}
	if (ret > 0)
		return ask_kernel(fd, addr, len);
	if (ret < 0)
		errno = -ret;
	return ret < 0 ? -1 : 0;
}

/* As conclude(), for who sends next: that the kernel answers as well. */
static int conclude_to_send(struct tcp_sock *s, int fd, const struct connecting *call,
			    bool nonblock, int pending)
{
	int ret = conclude_held(s, fd, call, nonblock, pending);

	return ret > 0 ? 0 : ret;
}

int tcp_sock_connect_with(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			  struct tcp_sock_opening *o)
{
	struct connecting call = {.begin = wait_signals_now()};
	int cancel, ret = 1;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return 1;
	call.gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	/* Another thread was faster: the caller looks again. */
	if (tcp_sock_mode(s) != TCP_SOCK_KERNEL) {
		tcp_sock_unlock(s, cancel);
		return -EAGAIN;
	}
	ret = connect_first(s, fd, addr, len, o);
	tcp_sock_unlock(s, cancel);
	if (ret > 0)
		tcp_sock_release_shown(s);
	else
		vfd_shadow_changed(&s->v);
	if (!ret)
		ret = s->nonblock || (o->flags & MSG_DONTWAIT)
			      ? -EINPROGRESS
			      : conclude_to_send(s, fd, &call, false, -EINPROGRESS);
	return ret;
}

/* --- the ring was still to come */

/* fn of tcp_sock_each(): the connection of s on the stack begins. Its lock is held. */
static void begin_held(struct tcp_sock *s, void *arg)
{
	struct stack *st = arg;
	struct vma_flow_info info = {
		.pid = (uint32_t)getpid(),
		.fd = (uint32_t)atomic_load_explicit(&s->v.os_fd, memory_order_relaxed)};
	struct vma_flow_key key;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st || !s->c ||
	    !tcp_syn_is_held(s->c))
		return;
	tcp_sock_key(&s->tuple, true, &key);
	if (!s->on_block)
		s->has_own_rule = !st->ring->ops->flow_add(st->ring, &key, &info);
	if (s->on_block || s->has_own_rule)
		tcp_let_syn_go(s->c);
	/* Who sleeps does not know of the ring. */
	vfd_notify(&s->v, EPOLLOUT);
}

/* The same, of one that has got no rule: the kernel is to do it. No lock is held. */
static void leave_held(struct tcp_sock *s, void *arg)
{
	struct stack *st = arg;
	bool held;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st)
		return;
	lock_take(&st->lock);
	held = atomic_load_explicit(&s->st, memory_order_relaxed) == st && s->c &&
	       tcp_syn_is_held(s->c);
	lock_drop(&st->lock);
	if (held)
		tcp_sock_handover_held(s);
}

void tcp_sock_ring_came(struct stack *st)
{
	lock_take(&st->lock);
	if (st->tcp && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		tcp_sock_ring_watch(st);
		tcp_sock_blocks_came(st);
		tcp_sock_each(begin_held, st);
	}
	tcp_sock_unlock_stack(st, tcp_sock_now_us());
	tcp_sock_each(leave_held, st);
	tcp_sock_sleep_hint();
}

/* The SYN waits for data. */
static bool waits(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);
	bool yes = st && tcp_fast_open_waits(s->c);

	if (st)
		lock_drop(&st->lock);
	return yes;
}

int tcp_sock_connect_again(struct tcp_sock *s, int fd, bool nonblock)
{
	struct connecting call = {.begin = wait_signals_now()};
	int cancel;
	bool told;

	if (waits(s))
		return 0;
	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EBADF;
	call.gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	told = s->connected;
	tcp_sock_unlock(s, cancel);
	if (told)
		return -EISCONN;
	return conclude_to_send(s, fd, &call, nonblock, -EALREADY);
}

int tcp_sock_connect_rest(struct tcp_sock *s, int fd)
{
	struct connecting call = {
		.gen = atomic_load_explicit(&s->gen, memory_order_acquire),
		.begin = wait_signals_now(),
	};

	return conclude_to_send(s, fd, &call, s->nonblock, -EINPROGRESS);
}
