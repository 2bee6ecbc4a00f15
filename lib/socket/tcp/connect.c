/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* connect(): who serves the connection, its local port, its steering rule, and the waiting for it. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/rules.h"
#include "socket/tcp_int.h"
#include "socket/udp_int.h"

struct stack *tsock_conn_lock(struct tsock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_acquire);

	if (!st || lock_mine(&st->lock))
		return NULL;
	lock_take(&st->lock);
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	if (s->c)
		return st;
	lock_drop(&st->lock);
	return NULL;
}

void tsock_key(const struct tcp_tuple *t, bool exact, struct vma_flow_key *key)
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

void tsock_show_state(struct tsock *s, enum tcp_state state)
{
	static const uint8_t shown[] = {
		[TCPS_ESTABLISHED] = VMA_STATE_ESTABLISHED, [TCPS_SYN_SENT] = VMA_STATE_SYN_SENT,
		[TCPS_SYN_RECV] = VMA_STATE_SYN_RCVD,	    [TCPS_FIN_WAIT1] = VMA_STATE_FIN_WAIT_1,
		[TCPS_FIN_WAIT2] = VMA_STATE_FIN_WAIT_2,    [TCPS_TIME_WAIT] = VMA_STATE_TIME_WAIT,
		[TCPS_CLOSED] = VMA_STATE_CLOSED,	    [TCPS_CLOSE_WAIT] = VMA_STATE_CLOSE_WAIT,
		[TCPS_LAST_ACK] = VMA_STATE_LAST_ACK,	    [TCPS_LISTEN] = VMA_STATE_LISTEN,
		[TCPS_CLOSING] = VMA_STATE_CLOSING,
	};

	if (state < sizeof(shown))
		__atomic_store_n(&s->stats->state, shown[state], __ATOMIC_RELAXED);
}

void tsock_show_addresses(struct tsock *s)
{
	struct vma_stats_socket *b = tsock_shown(s);

	if (!b)
		return;
	memcpy(b->local.byte, &s->tuple.local, 16);
	memcpy(b->remote.byte, &s->tuple.remote, 16);
	b->local_port = s->tuple.lport;
	b->remote_port = s->tuple.rport;
	b->offloaded = 1;
}

/* What a connect() to addr is about. */
struct target {
	struct in6_addr dst, src; /* src: as bound, :: any; then as routed */
	uint16_t dport, sport; /* sport 0: not bound */
	uint32_t scope;
	bool v4;
	struct net_route route;
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
	    !udp_addr_get((struct sockaddr *)&ss, len, &t->src, &t->sport, &scope))
		return;
	/* 0.0.0.0 is v4-mapped here; "any" has one form inside. */
	if (IN6_IS_ADDR_V4MAPPED(&t->src) && !memcmp(&t->src.s6_addr[12], "\0\0\0\0", 4))
		memset(&t->src, 0, sizeof(t->src));
}

uint64_t tsock_key_rx(const struct tsock *s, const struct in6_addr *local)
{
	/* Not one of those that UDP sockets have. */
	return stack_key_by(params.ring_allocation_logic_rx, &(struct stack_client){ .local = *local, .socket = 1ull << 40 | s->id });
}

/* fn of stacks_any_on(): a connection of the stack, or its TIME_WAIT, has the target's name. */
static bool has_name(struct stack *st, void *arg)
{
	struct target *t = arg;
	struct tcp_tuple name = { .local = t->src, .remote = t->dst, .lport = t->sport, .rport = t->dport };

	name.family = t->v4 ? AF_INET : AF_INET6;
	if (!st->tcp || !tcp_tuple_used(st->tcp->ts, &name))
		return false;
	stack_users(st, 1);
	stack_put(t->st);
	t->st = st;
	return true;
}

/* The stack for the connection, to be put: its key's, but what has its name already says whether it can be had. */
static void choose_stack(const struct tsock *s, struct target *t)
{
	t->st = stack_get(t->route.oif, tsock_key_rx(s, &t->src));
	if (t->st && t->sport && stacks_several())
		(void)stacks_any_on(t->route.oif, has_name, t);
}

/* True when user space can and may make this connection; fills t. */
static bool offloadable(struct tsock *s, int fd, const struct sockaddr *addr, socklen_t len, struct target *t)
{
	struct sockaddr_storage local;
	socklen_t llen = sizeof(local);

	if (s->spare.no_offload || !udp_addr_get(addr, len, &t->dst, &t->dport, &t->scope) || !t->dport)
		return false;
	t->v4 = IN6_IS_ADDR_V4MAPPED(&t->dst);
	if (addr->sa_family != s->domain && !(s->domain == AF_INET6 && t->v4))
		return false;
	if (s->domain == AF_INET && !t->v4)
		return false;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->dst) || udp_is_multicast(&t->dst) || net_addr_is_broadcast(&t->dst) ||
	    (t->v4 && !memcmp(&t->dst.s6_addr[12], "\0\0\0\0", 4)))
		return false;
	if (s->bound && libc.getsockname(fd, (struct sockaddr *)&local, &llen))
		return false;
	if (rules_match(RULE_TCP_CLIENT, addr, s->bound ? (struct sockaddr *)&local : NULL) == RULE_OS)
		return false;
	/* An earlier connect() has left its port, too. */
	if (s->bound || s->tuple.lport)
		learn_local(fd, t);
	if (!IN6_IS_ADDR_UNSPECIFIED(&t->src) && IN6_IS_ADDR_V4MAPPED(&t->src) != t->v4)
		return false;
	/* What the kernel cannot route it says itself, with its own errno. */
	if (tsock_route(s, &t->src, &t->dst, IN6_IS_ADDR_LINKLOCAL(&t->dst) ? (int)t->scope : 0, &t->route))
		return false;
	if (t->route.type == NET_ROUTE_LOCAL ? !params.offload_loopback : t->route.type != NET_ROUTE_UNICAST)
		return false;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->src))
		t->src = t->route.prefsrc;
	if (IN6_IS_ADDR_UNSPECIFIED(&t->src) || IN6_IS_ADDR_V4MAPPED(&t->src) != t->v4)
		return false;
	choose_stack(s, t);
	return t->st != NULL;
}

/* The engine's part and the steering rule; st->lock is held. 0 or negative errno. */
static int open_conn(struct tsock *s, int fd, struct stack *st, const struct tcp_opts *o, uint64_t now)
{
	struct tsock_stack *ts = tsock_stack_get(st);
	struct vma_flow_info info = { .pid = (uint32_t)getpid(), .fd = (uint32_t)fd };
	struct vma_flow_key key;
	int err;

	if (!ts)
		return -ENOMEM;
	atomic_store_explicit(&s->hint, 0, memory_order_relaxed);
	/* First the engine: a TIME_WAIT that it takes over gives its rule back. The SYN leaves at the flush. */
	err = tcp_connect(ts->ts, &s->tuple, o, &s->user, now, &s->c);
	if (err) {
		s->c = NULL;
		return err;
	}
	s->engine = true;
	stack_users(st, 1);
	if (s->wide && !tsock_block_stands(s, st))
		s->wide = false;
	if (!s->wide) {
		tsock_key(&s->tuple, true, &key);
		err = st->ring->ops->flow_add(st->ring, &key, &info);
		if (err) {
			tcp_abort(s->c, now);
			return err;
		}
		s->own_rule = true;
	}
	tsock_kmod_add(s, fd);
	return 0;
}

/* The tuple of s has its ports. As start(). */
static int begin(struct tsock *s, int fd, struct stack *st, const struct tcp_opts *o)
{
	uint64_t now = tsock_now();
	int err;

	lock_take(&st->lock);
	if (!atomic_load_explicit(&st->open, memory_order_relaxed)) {
		lock_drop(&st->lock);
		return 1;
	}
	atomic_store_explicit(&s->st, st, memory_order_release);
	err = open_conn(s, fd, st, o, now);
	if (!err) {
		atomic_store_explicit(&s->mode, TSOCK_CONN, memory_order_release);
		atomic_store_explicit(&s->v.shadow, VFD_SHADOW_NONE, memory_order_release);
		tsock_show_addresses(s);
		tsock_show_state(s, TCPS_SYN_SENT);
	}
	tsock_unlock_stack(st, now);
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
 * As begin(), where the interface has several stacks: -EADDRNOTAVAIL when another one has the name. A card would give its segments to both. The
 * kernel's idea of the port does not tell: it is free again when the other's connection is in TIME_WAIT.
 */
static int begin_among(struct tsock *s, int fd, struct stack *st, const struct tcp_opts *o)
{
	struct taken t = { .name = &s->tuple, .but = st };
	int err = -EADDRNOTAVAIL;

	lock_take(&stack_flows_lock);
	if (!stacks_any_on(st->ifindex, has_taken, &t))
		err = begin(s, fd, st, o);
	else
		s->stale = !s->port_bound;
	lock_drop(&stack_flows_lock);
	return err;
}

/* With t's addresses and stack; a port is chosen where t has none. As start(), and as begin_among(). */
static int start_on(struct tsock *s, int fd, const struct target *t, const struct tcp_opts *o)
{
	bool wide;
	int err = 0;

	memset(&s->tuple, 0, sizeof(s->tuple));
	s->tuple.local = t->src;
	s->tuple.remote = t->dst;
	s->tuple.lport = t->sport;
	s->tuple.rport = t->dport;
	s->tuple.family = t->v4 ? AF_INET : AF_INET6;
	wide = !t->sport && tsock_block_take(s, fd, t->st);
	if (!t->sport && !wide)
		err = tsock_port_take(s->domain, fd, t->st, &s->tuple);
	if (err)
		return err;
	err = stacks_several() ? begin_among(s, fd, t->st, o) : begin(s, fd, t->st, o);
	/* The kernel socket has the port of a block, and may connect from it. */
	if (err && wide) {
		s->wide = false;
		tsock_block_lost(&s->tuple);
	}
	return err;
}

#define START_TRIES 4

/* Begins the connection in user space; s->lock is held. 0, 1: the kernel is to do it, or negative errno. */
static int start(struct tsock *s, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct target t = { .scope = 0 };
	struct tcp_opts o;
	int err;

	if (!offloadable(s, fd, addr, len, &t))
		return 1;
	tsock_opts_read(s, fd, &o);
	err = start_on(s, fd, &t, &o);
	for (int i = 1; err == -EADDRNOTAVAIL && s->stale && !t.sport && i < START_TRIES; i++) {
		tsock_shadow_renew(s, fd);
		err = start_on(s, fd, &t, &o);
	}
	stack_put(t.st);
	if (err == -ENOSPC || err == -ENOMEM) {
		log_debug("fd %d: connect() is left to the kernel: %s", fd, strerror(-err));
		return 1;
	}
	return err;
}

/* How far a begun connection is. 0: established, -EINPROGRESS, or why it failed. */
static int progress(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);
	enum tcp_state state;
	int err = 0;

	if (!st && s->home) /* established ones may have gone to the kernel meanwhile */
		return 0;
	if (!st) {
		err = tsock_left_error(s);
		return err ? -err : -ECONNABORTED;
	}
	tsock_hint_clear(s, EPOLLOUT | EPOLLWRNORM);
	state = tcp_conn_state(s->c);
	if (state == TCPS_SYN_SENT || state == TCPS_SYN_RECV) {
		err = -EINPROGRESS;
	} else if (state == TCPS_CLOSED) {
		err = -tcp_error(s->c);
		if (!err)
			err = -ECONNABORTED; /* SO_ERROR has told why */
	}
	tsock_show_state(s, state);
	lock_drop(&st->lock);
	return err;
}

/* Linux: tcp_need_reset(). */
static bool was_open(enum tcp_state state)
{
	return state == TCPS_ESTABLISHED || state == TCPS_CLOSE_WAIT || state == TCPS_FIN_WAIT1 || state == TCPS_FIN_WAIT2 ||
	       state == TCPS_SYN_SENT || state == TCPS_SYN_RECV;
}

void tsock_disconnect(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);
	uint64_t now = tsock_now();

	tsock_opts_tell(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	if (st) {
		atomic_store_explicit(&s->left_err, (uint16_t)(was_open(tcp_conn_state(s->c)) ? ECONNRESET : tcp_error(s->c)),
				      memory_order_relaxed);
		/* A TIME_WAIT that stays would say TCP_EV_GONE to whatever s is then. */
		tcp_conn_set_user(s->c, NULL);
		tcp_abort(s->c, now);
		tsock_conn_over(s);
		tsock_unlock_stack(st, now);
	}
	s->stale = !s->port_bound;
	s->connected = false;
	atomic_store_explicit(&s->st, NULL, memory_order_relaxed);
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_ALL, memory_order_relaxed);
	atomic_store_explicit(&s->mode, TSOCK_KERNEL, memory_order_release);
	tsock_show_state(s, TCPS_CLOSED);
	atomic_fetch_or_explicit(&s->hint, EPOLLIN | EPOLLOUT | EPOLLHUP, memory_order_release);
	vfd_notify(&s->v, EPOLLIN | EPOLLOUT | EPOLLHUP); /* whoever waits in another call learns it */
}

static int wait_connected(struct tsock *s, int fd)
{
	struct tsock_wait w;
	int err;

	tsock_wait_init(s, &w, EPOLLOUT | EPOLLERR | EPOLLHUP, s->sndtimeo_ns);
	while ((err = progress(s)) == -EINPROGRESS) {
		err = tsock_wait_more(s, fd, &w);
		if (err)
			return err == -EAGAIN ? -EINPROGRESS : err; /* SO_SNDTIMEO */
	}
	return err;
}

/* Waits for a begun connection if the socket is a blocking one. As connect(), pending: the errno while it is not decided. */
static int conclude(struct tsock *s, struct vfd *v, int fd, int pending)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	int err = s->nonblock ? progress(s) : wait_connected(s, fd), cancel;
	bool ours;

	if (err == -EINPROGRESS)
		return pending;
	if (!err)
		s->connected = true;
	if (!err || err == -EINTR || err == -EBADF)
		return err;
	cancel = tsock_lock(s);
	/* Closed meanwhile, it may be another socket by now. */
	ours = atomic_load_explicit(&s->gen, memory_order_relaxed) == gen && tsock_mode(s) == TSOCK_CONN;
	if (ours)
		tsock_disconnect(s);
	tsock_unlock(s, cancel);
	if (ours)
		vfd_shadow_changed(v);
	return err;
}

/* connect() on a socket that has a connection; s->lock is held and dropped here. */
static int connect_again(struct tsock *s, struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len, int cancel)
{
	bool done = s->connected;

	if (addr && len >= sizeof(sa_family_t) && addr->sa_family == AF_UNSPEC) {
		tsock_disconnect(s);
		tsock_unlock(s, cancel);
		vfd_shadow_changed(v);
		return 0;
	}
	tsock_unlock(s, cancel);
	return done ? -EISCONN : conclude(s, v, fd, -EALREADY);
}

/* connect() on a listener, which only AF_UNSPEC ends; s->lock is held and dropped here. As connect(2). */
static int connect_listener(struct tsock *s, int fd, const struct sockaddr *addr, socklen_t len, int cancel)
{
	int ret = libc.connect(fd, addr, len), err = errno;

	if (!ret)
		tsock_listen_over(s);
	tsock_unlock(s, cancel);
	if (!ret) {
		vfd_shadow_changed(&s->v);
		vfd_notify(&s->v, EPOLLIN | EPOLLHUP);
	}
	errno = err;
	return ret;
}

int tsock_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct tsock *s = tsock_of(v);
	int cancel = tsock_lock(s), ret;

	if (tsock_mode(s) == TSOCK_CONN) {
		ret = connect_again(s, v, fd, addr, len, cancel);
	} else if (tsock_mode(s) == TSOCK_LISTEN) {
		return connect_listener(s, fd, addr, len, cancel);
	} else if (!addr || len < sizeof(sa_family_t) || addr->sa_family == AF_UNSPEC) {
		tsock_unlock(s, cancel);
		return libc.connect(fd, addr, len);
	} else {
		tsock_shadow_renew(s, fd);
		libc_internal++;
		ret = start(s, fd, addr, len);
		libc_internal--;
		if (!ret)
			atomic_store_explicit(&s->left_err, 0, memory_order_relaxed);
		tsock_unlock(s, cancel);
		if (ret > 0) {
			/* The kernel's connection has no object of ours. */
			tsock_release(s);
			return libc.connect(fd, addr, len);
		}
		vfd_shadow_changed(v);
		if (!ret)
			ret = conclude(s, v, fd, -EINPROGRESS);
	}
	if (ret < 0)
		errno = -ret;
	return ret < 0 ? -1 : 0;
}
