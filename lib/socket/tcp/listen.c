/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Listening: the kernel socket listens as ever; when the listener is first waited on it attaches to
 * the stacks besides, and accept() takes from both (accept.c). A master process that only forks
 * owns nothing so, and its worker does.
 */
#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

/* The worker's epoll saw a connection in the kernel's queue. */
static void os_event(int fd, uint32_t events, void *arg)
{
	struct tcp_sock *s = arg;

	(void)fd;
	atomic_fetch_or_explicit(&s->v.os_events, events, memory_order_acq_rel);
	vfd_notify(&s->v, events);
}

/* What the listener is bound to. False: it cannot be read, or is no usable address. */
static bool bound_to(const struct tcp_sock *s, int fd, struct tcp_listen_spec *spec)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint32_t scope;
	int on = 0;

	memset(spec, 0, sizeof(*spec));
	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    !sock_addr_get((struct sockaddr *)&ss, len, &spec->local, &spec->port, &scope) ||
	    !spec->port)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&spec->local) && !memcmp(&spec->local.s6_addr[12], "\0\0\0\0", 4))
		memset(&spec->local, 0, sizeof(spec->local));
	spec->family = s->domain;
	/* An IPv4 address on an IPv6 socket: only IPv4 comes. */
	if (IN6_IS_ADDR_V4MAPPED(&spec->local))
		spec->family = AF_INET;
	spec->mapped = spec->family != s->domain;
	/* Only the stacks of this interface get the listener. */
	spec->on_device = s->bound_if != 0;
	len = sizeof(on);
	if (s->domain == AF_INET6 && !libc.getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len))
		spec->v6only = on;
	on = 0;
	len = sizeof(on);
	if (!libc.getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, &len))
		spec->reuseport = on;
	spec->joint = s->unconn.is_joint || spec->reuseport;
	spec->backlog = s->unconn.backlog;
	return true;
}

static bool rules_want_os(int fd)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);

	return libc.getsockname(fd, (struct sockaddr *)&local, &len) ||
	       rules_match(RULE_TCP_SERVER, (struct sockaddr *)&local, NULL) == RULE_OS;
}

/*
 * Packets of the interface are the listener's. A cable that is cut takes no rule away: connections
 * live on it, and what comes before a new rule stood would be reset by the kernel.
 */
static bool covers(const struct tcp_sock *s, int ifindex, const struct net_link *link)
{
	if (s->bound_if && s->bound_if != ifindex)
		return false;
	return stack_wanted(ifindex) || (!link->up && stack_any(ifindex));
}

/*
 * The local addresses of the interface that the listener covers, as steering rules. Returns how
 * many.
 */
static unsigned make_keys(const struct tcp_sock *s, const struct tcp_listen_spec *spec, int ifindex,
			  struct vma_flow_key *keys)
{
	struct in6_addr addrs[STACK_ADDRS_MAX];
	struct net_link link;
	unsigned n, num = 0;
	bool any = IN6_IS_ADDR_UNSPECIFIED(&spec->local);

	if (net_link_get(ifindex, &link) || !covers(s, ifindex, &link))
		return 0;
	/* What comes by another interface is not its connections' where it is bound to this one. */
	n = s->bound_if ? stack_addrs(ifindex, addrs, STACK_ADDRS_MAX)
			: stack_addrs_lasting(ifindex, addrs, STACK_ADDRS_MAX);
	for (unsigned i = 0; i < n; i++) {
		struct tcp_tuple t = {.local = addrs[i], .lport = spec->port};
		bool v4 = IN6_IS_ADDR_V4MAPPED(&addrs[i]);

		if (any ? (spec->family == AF_INET ? v4 : !(v4 && spec->v6only))
			: !memcmp(&addrs[i], &spec->local, 16))
			tcp_sock_key(&t, false, &keys[num++]);
	}
	return num;
}

bool tcp_sock_covers(const struct tcp_sock *s, int ifindex)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	struct vma_flow_key keys[STACK_ADDRS_MAX];
	struct tcp_listen_spec spec;

	return !rules_want_os(fd) && bound_to(s, fd, &spec) &&
	       make_keys(s, &spec, ifindex, keys) > 0;
}

static struct lock free_lock;
/* type-stable: tx.user and event() may name one that has just left */
static struct tcp_sock_att *free_atts;

static struct tcp_sock_att *att_alloc(void)
{
	struct tcp_sock_att *att;

	lock_take(&free_lock);
	att = free_atts;
	if (att)
		free_atts = att->next;
	lock_drop(&free_lock);
	if (!att)
		return calloc(1, sizeof(*att));
	memset(att, 0, sizeof(*att));
	return att;
}

static void att_free(struct tcp_sock_att *att)
{
	lock_take(&free_lock);
	att->next = free_atts;
	free_atts = att;
	lock_drop(&free_lock);
}

void tcp_sock_atts_forked(void)
{
	atomic_store(&free_lock.owner, 0);
	free_atts = NULL;
}

/* The one that listens in st, NULL: none. s->lock is held. */
static struct tcp_sock_att *att_find(struct tcp_sock *s, const struct stack *st)
{
	struct tcp_sock_att *att = s->unconn.atts;

	while (att && (att->st != st || !att->l))
		att = att->next;
	return att;
}

bool tcp_sock_att_is_shared(const struct tcp_sock_att *att)
{
	return att->spread || (att->is_joint && att->st->ring->caps.joins);
}

static bool is_one_of(const struct vma_flow_key *key, const struct vma_flow_key *keys, unsigned num)
{
	for (unsigned i = 0; i < num; i++) {
		if (!memcmp(&keys[i], key, sizeof(*key)))
			return true;
	}
	return false;
}

/*
 * An address has gone. It may come back, and the kernel would reset the connections before our rule
 * stood again.
 */
static void keep_connections(struct stack *st, const struct vma_flow_key *key)
{
	struct tcp_tuple at = {.lport = key->local_port};

	memcpy(&at.local, key->local.byte, sizeof(at.local));
	tcp_sock_rules_of_own(st, &at);
}

/* Rules of att become keys[0..num); st->lock is held. 0 or negative errno. */
static int set_rules(struct tcp_sock_att *att, int fd, const struct vma_flow_key *keys,
		     unsigned num)
{
	struct vma_flow_key *copy = malloc((num ? num : 1) * sizeof(*copy));
	unsigned done = 0;
	int err = copy ? 0 : -ENOMEM;

	/* The new ones first: what both have stays without a gap. */
	for (; !err && done < num; done++) {
		err = att->s->unconn.is_joint ? stack_flow_join(att->st, &keys[done], fd)
					      : stack_flow_add(att->st, &keys[done], fd);
		if (err)
			break;
		copy[done] = keys[done];
	}
	if (err) {
		while (done)
			stack_flow_del(att->st, &copy[--done]);
		free(copy);
		return err;
	}
	for (unsigned i = 0; i < att->num_keys; i++) {
		if (!is_one_of(&att->keys[i], copy, num))
			keep_connections(att->st, &att->keys[i]);
		stack_flow_del(att->st, &att->keys[i]);
	}
	free(att->keys);
	att->keys = copy;
	att->num_keys = num;
	att->s->unconn.is_quiet = false;
	return 0;
}

static struct tcp_sock_att *att_new(struct tcp_sock *s, struct stack *st,
				    const struct tcp_listen_spec *spec, const struct tcp_opts *o)
{
	struct tcp_sock_att *att = att_alloc();
	struct tcp_sock_stack *t;
	int err = -ENOMEM;

	if (!att)
		return NULL;
	att->user.kind = TCP_SOCK_USER_LISTENER;
	att->s = s;
	att->st = st;
	t = tcp_sock_stack_get(st);
	if (t)
		err = tcp_listen(t->ts, spec, o, &att->user, &att->l);
	if (err) {
		log_debug("port %u on interface %d: the engine does not listen: %s", spec->port,
			  st->ifindex, strerror(-err));
		att_free(att);
		return NULL;
	}
	stack_users(st, 1);
	att->next = s->unconn.atts;
	s->unconn.atts = att;
	return att;
}

/*
 * The stack of s on an interface: the one that it is in, or its key's. NULL: none is to be had;
 * else the caller's to put.
 */
static struct stack *chosen_get(struct tcp_sock *s, int ifindex, const struct tcp_listen_spec *spec)
{
	struct tcp_sock_att *att, *any = s->unconn.atts;

	for (att = any; att; att = att->next) {
		if (att->is_chosen && att->st->ifindex == ifindex &&
		    atomic_load_explicit(&att->st->open, memory_order_acquire)) {
			stack_users(att->st, 1);
			return att->st;
		}
	}
	/* Who follows an interface that has come is the internal thread. */
	return stack_get(ifindex, any ? atomic_load_explicit(&any->st->key, memory_order_relaxed)
				      : tcp_sock_key_rx(s, &spec->local));
}

/* What attach_one() has to know. */
struct attaching {
	struct tcp_sock *s;
	int fd, ifindex;
	const struct tcp_listen_spec *spec;
	const struct tcp_opts *o;
	struct stack *chosen;
};

/* Has s these rules on st and no others there. 0 or negative errno. */
static int attach_stack(const struct attaching *a, struct stack *st,
			const struct vma_flow_key *keys, unsigned num)
{
	struct tcp_sock_att *att;
	int err = 0;

	lock_take(&st->lock);
	att = att_find(a->s, st);
	if (!att && num && atomic_load_explicit(&st->open, memory_order_relaxed))
		att = att_new(a->s, st, a->spec, a->o);
	if (att) {
		att->is_chosen = att->is_chosen || st == a->chosen;
		att->is_joint = a->s->unconn.is_joint;
		att->spread = stacks_several() && a->spec->reuseport && st->ring->caps.spread;
		err = set_rules(att, a->fd, keys, num);
		att->has_no_room = att->is_joint && (err == -ENOSPC || err == -EUSERS);
	}
	lock_drop(&st->lock);
	return !att && num ? -ENODEV : err;
}

/*
 * The one that is to have the rule: where another listener has it already (SO_REUSEPORT), a device
 * that cannot divide it brings the packets there.
 */
static struct stack *stack_for(const struct attaching *a, const struct vma_flow_key *key)
{
	struct stack *owner = NULL;

	if (stacks_several() && !(a->spec->reuseport && a->chosen->ring->caps.spread))
		owner = stack_flow_owner(a->ifindex, key, a->chosen, UINT_MAX);
	return owner ? owner : a->chosen;
}

/* The rules by their stacks. 0 or negative errno. */
static int attach_parts(const struct attaching *a, const struct vma_flow_key *keys, unsigned num)
{
	struct vma_flow_key part[STACK_ADDRS_MAX];
	struct stack *st[STACK_ADDRS_MAX];
	int err = 0, one;

	for (unsigned i = 0; i < num; i++)
		st[i] = stack_for(a, &keys[i]);
	for (struct tcp_sock_att *att = a->s->unconn.atts; att; att = att->next) {
		unsigned i = 0;

		while (i < num && st[i] != att->st)
			i++;
		if (i == num && att->st->ifindex == a->ifindex &&
		    atomic_load_explicit(&att->st->open, memory_order_acquire))
			(void)attach_stack(a, att->st, NULL, 0);
	}
	for (unsigned i = 0; i < num; i++) {
		unsigned n = 0, first = 0;

		while (st[first] != st[i])
			first++;
		for (unsigned k = i; first == i && k < num; k++) {
			if (st[k] == st[i])
				part[n++] = keys[k];
		}
		one = n ? attach_stack(a, st[i], part, n) : 0;
		/* Any other error says more than that the port is shared. */
		err = one && (!err || err == -EEXIST) ? one : err;
	}
	return err;
}

/* find_room() does, each second; once is said. */
static bool is_asked_again(const struct tcp_sock *s, int err)
{
	static _Atomic bool told;

	return s->unconn.is_joint && err == -ENOSPC && atomic_exchange(&told, true);
}

/*
 * Attaches to one interface, or follows its addresses. s->lock is held. True: packets come from
 * there; else *why may say why not.
 */
static bool attach_one(struct tcp_sock *s, int fd, int ifindex, const struct tcp_listen_spec *spec,
		       const struct tcp_opts *o, struct vma_stats_why *why)
{
	struct attaching a = {.s = s, .fd = fd, .ifindex = ifindex, .spec = spec, .o = o};
	struct vma_flow_key keys[STACK_ADDRS_MAX];
	unsigned num = make_keys(s, spec, ifindex, keys);
	int err;

	if (!num) {
		for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
			if (att->st->ifindex == ifindex &&
			    atomic_load_explicit(&att->st->open, memory_order_acquire))
				(void)attach_stack(&a, att->st, NULL, 0);
		}
		return false;
	}
	a.chosen = chosen_get(s, ifindex, spec);
	if (!a.chosen) {
		*why = stack_why_not(ifindex);
		return false;
	}
	lock_take(&stack_flows_lock);
	err = attach_parts(&a, keys, num);
	lock_drop(&stack_flows_lock);
	stack_put(a.chosen);
	/*
	 * As of a prefork server's workers over a card: one has the packets of all clients. Or
	 * there are more of them than can share a rule.
	 */
	if (err == -EEXIST || err == -EUSERS) {
		*why = STATS_WHY(SHARED_PORT);
	} else if (err) {
		if (!is_asked_again(s, err))
			log_warn("fd %d, TCP port %u on interface %d: the steering rule cannot be "
				 "set (%s): its connections go through the kernel",
				 fd, spec->port, ifindex, strerror(-err));
		*why = (struct vma_stats_why){VMA_WHY_STEERING, -err};
	}
	return !err;
}

static void show(struct tcp_sock *s, const struct tcp_listen_spec *spec, bool offloaded)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	if (b) {
		memcpy(b->local.byte, &spec->local, 16);
		b->local_port = spec->port;
	}
	tcp_sock_show_offloaded(s, offloaded);
	tcp_sock_show_state(s, TCPS_LISTEN);
}

static bool attach_all(struct tcp_sock *s, int fd)
{
	struct net_link_walk links = {.num = 0};
	struct tcp_listen_spec spec;
	struct tcp_opts o;
	struct vma_stats_why why = STATS_WHY(NONE);
	bool any = false;
	int ifindex;

	if (rules_want_os(fd)) {
		stats_why(tcp_sock_shown(s), fd, VMA_WHY_RX, STATS_WHY(RULE));
		return false;
	}
	if (!bound_to(s, fd, &spec))
		return false;
	s->unconn.is_joint = spec.joint;
	tcp_sock_opts_read(s, fd, &o);
	while ((ifindex = net_link_next(&links)))
		any = attach_one(s, fd, ifindex, &spec, &o, &why) || any;
	tcp_sock_fast_open_listen(s);
	show(s, &spec, any);
	if (any)
		why = STATS_WHY(NONE);
	else if (!why.reason)
		why = !s->bound_if && stack_by_several_ways(&spec.local)
			      ? STATS_WHY(SEVERAL_WAYS)
			      : stack_why_unserved(&spec.local, s->bound_if);
	stats_why(tcp_sock_shown(s), fd, VMA_WHY_RX, why);
	return any;
}

void tcp_sock_relisten(struct tcp_sock *s)
{
	if (tcp_sock_given_up(s))
		return;
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN && s->unconn.attached && !s->unconn.no_offload &&
	    !s->unconn.elsewhere)
		attach_all(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
}

/*
 * A handshake that began now would have no rule for its last segment. What has come so far is taken
 * in; the SYNs of the next moment come again, to the kernel.
 */
#define LAST_LOOKS 64

static void poll_until_empty(struct stack *st)
{
	for (unsigned i = 0; i < LAST_LOOKS; i++) {
		if (!stack_poll(st, (unsigned)params.cq_poll_batch_max))
			break;
	}
}

static void stop_engine(struct tcp_sock_att *att)
{
	struct stack *st = att->st;

	lock_take(&st->lock);
	if (att->l && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		poll_until_empty(st);
		tcp_listen_stop(att->l);
	}
	tcp_sock_unlock_stack(st, tcp_sock_now_us());
}

void tcp_sock_listen_to_kernel(struct tcp_sock *s)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	struct attaching a = {.s = s, .fd = fd};
	struct tcp_listen_spec spec;

	s->unconn.no_offload = s->unconn.no_offload || s->unconn.attached;
	s->unconn.elsewhere = true;
	if (!s->unconn.atts || !bound_to(s, fd, &spec))
		return;
	a.spec = &spec;
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		/* Where others have the rule, too, they have the next clients at once. */
		if (!s->unconn.is_joint)
			stop_engine(att);
		if (atomic_load_explicit(&att->st->open, memory_order_acquire))
			(void)attach_stack(&a, att->st, NULL, 0);
		if (s->unconn.is_joint)
			stop_engine(att);
	}
	show(s, &spec, false);
}

/* --- a part of the clients while a call waits for them */

/* fn for each rule of s that no other socket of this process wants, too. s->lock is held. */
static void own_rules(struct tcp_sock *s,
		      void (*fn)(struct stack *st, const struct vma_flow_key *key))
{
	libc_internal_begin();
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		struct stack *st = att->st;

		lock_take(&st->lock);
		for (unsigned i = 0; i < att->num_keys && tcp_sock_att_is_shared(att) &&
				     atomic_load_explicit(&st->open, memory_order_relaxed);
		     i++) {
			if (stack_flow_users(st, &att->keys[i]) == 1)
				fn(st, &att->keys[i]);
		}
		lock_drop(&st->lock);
	}
	libc_internal_end();
}

static void rule_out(struct stack *st, const struct vma_flow_key *key)
{
	if (stack_flow_stands(st, key))
		stack_flow_suspend(st, key);
}

static void rule_in(struct stack *st, const struct vma_flow_key *key)
{
	if (!stack_flow_stands(st, key))
		stack_flow_resume(st, key);
}

static void set_part(struct tcp_sock *s, enum tcp_sock_part part)
{
	atomic_store_explicit(&s->unconn.part, part, memory_order_relaxed);
}

void tcp_sock_listener_step_out(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s), err = errno;
	uint32_t calls = 0;

	if (atomic_load_explicit(&s->in_use, memory_order_relaxed) &&
	    tcp_sock_mode(s) == TCP_SOCK_LISTEN && s->unconn.is_joint) {
		set_part(s, TCP_SOCK_PART_NOW);
		if (!vfd_is_waited_for(&s->v, &calls)) {
			own_rules(s, rule_out);
			set_part(s, TCP_SOCK_PART_NONE);
		}
	}
	tcp_sock_unlock(s, cancel);
	errno = err;
}

static void step_in(struct tcp_sock *s, enum tcp_sock_part part)
{
	int cancel = tcp_sock_lock(s), err = errno;

	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN && tcp_sock_part(s) == TCP_SOCK_PART_NONE)
		own_rules(s, rule_in);
	if (tcp_sock_part(s) != TCP_SOCK_PART_ALWAYS)
		set_part(s, part);
	tcp_sock_unlock(s, cancel);
	errno = err;
}

void tcp_sock_listener_stay(struct tcp_sock *s)
{
	step_in(s, TCP_SOCK_PART_ALWAYS);
}

/* A call waits for s, and not for the first time. */
static void waited_again(struct tcp_sock *s)
{
	uint8_t calls = atomic_load_explicit(&s->unconn.calls, memory_order_relaxed);

	/* Of two at once one may not count. */
	atomic_store_explicit(&s->unconn.calls, (uint8_t)(calls + 1), memory_order_relaxed);
	if (__builtin_expect(tcp_sock_part(s) == TCP_SOCK_PART_NONE, 0))
		step_in(s, TCP_SOCK_PART_NOW);
}

void tcp_sock_waited(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	bool kernel = false, given = false;
	int cancel, fd;

	if (__builtin_expect(tcp_sock_mode(s) != TCP_SOCK_LISTEN, 1))
		return;
	if (s->unconn.attached) {
		waited_again(s);
		return;
	}
	if (tcp_sock_begin())
		return; /* the library is off in this process */
	if (s->unconn.waited_by_parent)
		kernel = tcp_sock_listener_claim(s, &given);
	else
		tcp_sock_listener_waited(s);
	cancel = tcp_sock_lock(s);
	if (tcp_sock_given_up(s) || tcp_sock_mode(s) != TCP_SOCK_LISTEN || s->unconn.attached ||
	    !atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		tcp_sock_unlock(s, cancel);
		return;
	}
	libc_internal_begin();
	s->unconn.attached = true;
	/* The kernel's for good, so that no child's first wait takes the clients. */
	s->unconn.no_offload = s->unconn.no_offload || kernel || s->unconn.elsewhere;
	if (kernel)
		stats_why(tcp_sock_shown(s), atomic_load_explicit(&v->os_fd, memory_order_relaxed),
			  VMA_WHY_SOCKET, STATS_WHY(FORK));
	s->unconn.given = given;
	fd = atomic_load_explicit(&v->os_fd, memory_order_relaxed);
	s->v6only = s->domain == AF_INET6 && opt_get_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	if (!s->unconn.no_offload)
		attach_all(s, fd);
	if (!worker_fd_add(fd, EPOLLIN | EPOLLET, os_event, s))
		__atomic_store_n(&s->worker_fd, fd, __ATOMIC_RELAXED);
	/* What the kernel has queued so far. */
	atomic_fetch_or_explicit(&v->os_events, EPOLLIN, memory_order_release);
	atomic_store_explicit(&v->shadow, VFD_SHADOW_IN, memory_order_release);
	libc_internal_end();
	tcp_sock_unlock(s, cancel);
	vfd_shadow_changed(v);
}

static uint32_t handed_over(struct stack *st)
{
	uint32_t n;

	lock_take(&st->lock);
	n = st->tcp ? st->tcp->to_kernel : 0;
	lock_drop(&st->lock);
	return n;
}

/*
 * False: the kernel has got a connection meanwhile. s->lock is held, and no stack's while the
 * kernel is asked: that takes as long as it has sockets.
 */
static bool quieten(struct tcp_sock_att *att, uint16_t port)
{
	struct stack *st = att->st;
	uint32_t before = handed_over(st);
	bool none = net_tcp_conns(port) == 0;

	lock_take(&st->lock);
	if (!st->tcp || !atomic_load_explicit(&st->open, memory_order_relaxed) ||
	    /* The look-up would be off for the one that was handed over since. */
	    st->tcp->to_kernel != before ||
	    /* The kernel gets some of those that come. */
	    atomic_load_explicit(&st->ring->has_more_queues, memory_order_relaxed))
		none = false;
	if (none)
		st->ring->ops->port_quiet(st->ring, port, true);
	lock_drop(&st->lock);
	return none;
}

/*
 * The flow table was full, or the rule had as many processes as it can. Who lacks a rule of his own
 * in it asks again. Who has one and finds no room for his clients leaves them to the kernel until
 * the next second: their SYNs come again after one. s->lock is held.
 */
static void find_room(struct tcp_sock *s)
{
	static _Atomic bool told;
	bool lacks = false, full = false;

	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->has_no_room)
			*(att->num_keys ? &full : &lacks) = true;
		att->has_no_room = false;
		lock_drop(&att->st->lock);
	}
	if (lacks)
		tcp_sock_relisten(s);
	if (full && !atomic_exchange(&told, true))
		log_warn("fd %d: an interface has as many flows as it can: new clients come "
			 "through the kernel until some of them end",
			 atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	if (full)
		own_rules(s, rule_out);
	else if (tcp_sock_part(s) != TCP_SOCK_PART_NONE)
		own_rules(s, rule_in);
}

void tcp_sock_listen_tick(struct tcp_sock *s)
{
	struct tcp_sock_att *att;
	uint16_t port = 0;

	/* Who has it for long may be asleep in the kernel (accept.c); the next second is as good.
	 */
	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN || !lock_try(&s->lock))
		return;
	if (tcp_sock_given_up(s)) {
		lock_drop(&s->lock);
		return;
	}
	if ((s->tells & TCP_SOCK_COMPLETIONS) && (tcp_sock_listen_events(s) & EPOLLIN))
		tcp_sock_completion_kernel(s);
	if (s->unconn.is_joint)
		find_room(s);
	/* Of what others hand over nobody here hears. */
	if (s->unconn.is_quiet || s->unconn.is_joint || !s->unconn.atts) {
		lock_drop(&s->lock);
		return;
	}
	for (att = s->unconn.atts; att && !port; att = att->next)
		port = att->num_keys ? att->keys[0].local_port : 0;
	if (port && net_tcp_conns(port) == 0) {
		s->unconn.is_quiet = true;
		for (att = s->unconn.atts; att; att = att->next)
			s->unconn.is_quiet =
				(!att->num_keys || quieten(att, port)) && s->unconn.is_quiet;
	}
	lock_drop(&s->lock);
}

/* What the kernel has made of the backlog, by net.core.somaxconn. */
static uint16_t backlog_of(int fd, int backlog)
{
	struct tcp_info i = {.tcpi_sacked = backlog < 0 ? SOMAXCONN : (uint32_t)backlog};
	socklen_t len = sizeof(i);

	(void)libc.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len);
	return i.tcpi_sacked < UINT16_MAX ? (uint16_t)i.tcpi_sacked : UINT16_MAX;
}

int tcp_sock_listen(struct vfd *v, int fd, int backlog)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int cancel, ret, err;
	bool renewed;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return libc.listen(fd, backlog);
	if (tcp_sock_mode(s) == TCP_SOCK_CONN) {
		tcp_sock_unlock(s, cancel);
		errno = EINVAL; /* the idle kernel socket would */
		return -1;
	}
	renewed = s->stale;
	tcp_sock_shadow_renew(s, fd);
	/* What an earlier connection, or listening, has left: accept() would never sleep for it. */
	if (tcp_sock_mode(s) == TCP_SOCK_KERNEL)
		atomic_store_explicit(&s->hint, 0, memory_order_relaxed);
	ret = libc.listen(fd, backlog);
	if (ret) {
		err = errno;
		tcp_sock_unlock(s, cancel);
		if (renewed)
			vfd_shadow_changed(v);
		errno = err;
		return ret;
	}
	s->unconn.backlog = backlog_of(fd, backlog);
	for (struct tcp_sock_att *att = s->unconn.atts; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l)
			tcp_listen_backlog(att->l, s->unconn.backlog);
		lock_drop(&att->st->lock);
	}
	tcp_sock_fast_open_listen(s); /* the backlog is a limit of its own here (0x400) */
	atomic_store_explicit(&s->mode, TCP_SOCK_LISTEN, memory_order_release);
	tcp_sock_show_state(s, TCPS_LISTEN);
	tcp_sock_unlock(s, cancel);
	if (renewed)
		vfd_shadow_changed(v);
	/* Somebody waits for it already. */
	if (atomic_load_explicit(&v->watches, memory_order_relaxed))
		tcp_sock_waited(v);
	return 0;
}

/* --- leaving */

struct leaving {
	struct stack *st;
	uint16_t port;
};

void tcp_sock_own_rule(struct tcp_sock *c, struct stack *st)
{
	struct vma_flow_info info = {
		.pid = (uint32_t)getpid(),
		.fd = (uint32_t)atomic_load_explicit(&c->v.os_fd, memory_order_relaxed)};
	struct vma_flow_key key;
	int err;

	tcp_sock_key(&c->tuple, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	c->has_own_rule = !err;
	if (err)
		log_warn(
			"TCP port %u: a connection has no steering rule besides its listener's: %s",
			c->tuple.lport, strerror(-err));
}

/*
 * fn of tcp_sock_each(): the listener leaves. st->lock is held; what else has no connection here
 * any more may be changing.
 */
static void own_rule(struct tcp_sock *c, void *arg)
{
	const struct leaving *lv = arg;

	if (params.tcp_3t_rules || atomic_load_explicit(&c->st, memory_order_relaxed) != lv->st ||
	    !c->c || !c->accepted || c->has_own_rule || c->tuple.lport != lv->port)
		return;
	tcp_sock_own_rule(c, lv->st);
}

/* att has no rules any more; st->lock is held. */
static void drop_keys(struct tcp_sock_att *att)
{
	for (unsigned i = 0; i < att->num_keys; i++)
		stack_flow_del(att->st, &att->keys[i]);
	free(att->keys);
	att->keys = NULL;
	att->num_keys = 0;
}

static void att_gone(struct tcp_sock_att *att)
{
	att->l = NULL;
	att->is_chosen = false;
	drop_keys(att);
	stack_due_del(att->st, &att->due);
	stack_users(att->st, -1);
}

void tcp_sock_listener_gone(struct tcp_sock *s, struct stack *st)
{
	struct tcp_sock_att *att;

	lock_take(&s->lock);
	lock_take(&st->lock);
	att = tcp_sock_given_up(s) ? NULL : att_find(s, st);
	if (att)
		att_gone(att);
	lock_drop(&st->lock);
	lock_drop(&s->lock);
}

/* SYNs that are here get no answer. */
static void drop_last(struct tcp_sock_att *att)
{
	if (!att->l || !atomic_load_explicit(&att->st->open, memory_order_relaxed))
		return;
	tcp_listen_stop(att->l);
	poll_until_empty(att->st);
}

static void att_leave(struct tcp_sock_att *att)
{
	struct stack *st = att->st;
	struct leaving lv = {.st = st};
	uint64_t now = tcp_sock_now_us();

	lock_take(&st->lock);
	if (att->num_keys && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		lv.port = att->keys[0].local_port;
		tcp_sock_each(own_rule, &lv);
	}
	drop_keys(att);
	/*
	 * What the rules have brought so far is in the ring. Without the listener it is answered by
	 * RST, as it should; but others may have the port, to whom the client's next SYN goes. The
	 * steering program of another processor may still bring one: tcp_sock_env_kernels().
	 */
	if (att->is_joint) {
		st->tcp->joint_left = true;
		drop_last(att);
	}
	if (att->l) {
		tcp_listen_close(att->l, now);
		stack_users(st, -1);
	}
	att->l = NULL;
	stack_due_del(st, &att->due);
	tcp_sock_unlock_stack(st, now);
	att_free(att);
}

/* Those of s whose stack is there name own from now on, and are taken from s: a list. */
static struct tcp_sock_att *take_atts(struct tcp_sock *s, struct tcp_sock *own)
{
	struct tcp_sock_att **at = &s->unconn.atts, *list = NULL, *att;

	while ((att = *at)) {
		lock_take(&att->st->lock);
		if (!att->l || !atomic_load_explicit(&att->st->open, memory_order_relaxed)) {
			at = &att->next;
			lock_drop(&att->st->lock);
			continue;
		}
		att->s = own;
		att->kernel_has = false;
		stack_due_del(att->st, &att->due);
		lock_drop(&att->st->lock);
		*at = att->next;
		att->next = list;
		list = att;
	}
	return list;
}

/* own has them. Who takes a stack away may have looked at own before. */
static void put_atts(struct tcp_sock *own, struct tcp_sock_att *list)
{
	int cancel = tcp_sock_lock(own);

	own->unconn.atts = list;
	for (struct tcp_sock_att *att = list; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l && !atomic_load_explicit(&att->st->open, memory_order_relaxed))
			att_gone(att);
		lock_drop(&att->st->lock);
	}
	tcp_sock_unlock(own, cancel);
}

struct tcp_sock *tcp_sock_listener_split(struct tcp_sock *s)
{
	int fd = OWN_FD(libc.socket(s->domain, SOCK_STREAM | SOCK_CLOEXEC, 0)), cancel;
	struct tcp_sock *own = fd < 0 ? NULL : tcp_sock_new(fd, s->domain);
	struct tcp_sock_att *list;

	if (!own) {
		if (fd >= 0)
			own_fd_close(fd);
		return NULL;
	}
	tcp_sock_stats_end(own);
	cancel = tcp_sock_lock(s);
	tcp_sock_fields_inherit(s, own);
	own->tells = 0;
	own->unconn.attached = own->unconn.no_offload = own->unconn.elsewhere = true;
	own->unconn.is_joint = s->unconn.is_joint;
	atomic_store_explicit(&own->mode, TCP_SOCK_LISTEN, memory_order_release);
	atomic_store_explicit(&own->in_use, true, memory_order_release);
	list = take_atts(s, own);
	tcp_sock_unlock(s, cancel);
	put_atts(own, list);
	return own;
}

void tcp_sock_listener_end(struct tcp_sock *own)
{
	int cancel = tcp_sock_lock(own);

	tcp_sock_unlisten(own);
	own_fd_close(atomic_load_explicit(&own->v.os_fd, memory_order_relaxed));
	tcp_sock_unlock(own, cancel);
	tcp_sock_free(own);
}

void tcp_sock_unlisten(struct tcp_sock *s)
{
	struct tcp_sock_att *att;

	if (s->worker_fd >= 0)
		worker_fd_del(s->worker_fd, s);
	__atomic_store_n(&s->worker_fd, -1, __ATOMIC_RELAXED);
	while ((att = s->unconn.atts)) {
		s->unconn.atts = att->next;
		att_leave(att);
	}
}
