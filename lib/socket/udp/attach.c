/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a socket is attached: its stacks, its places in their demultiplexers and its steering
 * rules, brought into agreement with what it is bound to, what has been joined, what the rules
 * allow and who else has the port.
 */
#include "socket/udp/internal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/flow_keys.h"

static struct lock free_lock;
static struct udp_att *free_atts;

static struct udp_att *att_alloc(void)
{
	struct udp_att *att;

	lock_take(&free_lock);
	att = free_atts;
	if (att)
		free_atts = att->next_free;
	lock_drop(&free_lock);
	return att ? att : calloc(1, sizeof(*att));
}

static void att_free(struct udp_att *att)
{
	lock_take(&free_lock);
	att->next_free = free_atts;
	free_atts = att;
	lock_drop(&free_lock);
}

void udp_atts_forked(void)
{
	atomic_store(&free_lock.owner, 0);
	free_atts = NULL;
}

#define UDP_DRAIN_BATCH 64u
#define UDP_DRAIN_ROUNDS 64u /* twice the ring */

/*
 * Takes the attachment out of the demultiplexer and its rules out of the ring. st's lock is held.
 */
static void att_unlist(struct udp_att *att, struct stack *st)
{
	for (unsigned i = 0; i < att->num_keys; i++)
		stack_flow_del(st, &att->keys[i]);
	free(att->keys);
	att->keys = NULL;
	att->num_keys = 0;
	if (!att->listed)
		return;
	/*
	 * What the rules have brought so far is this socket's: it waits in the ring. Bounded, as
	 * others may be flooded. To the end: fewer than asked for may be those that the ring had
	 * seen earlier.
	 */
	for (unsigned i = 0;
	     i < UDP_DRAIN_ROUNDS && atomic_load_explicit(&st->open, memory_order_relaxed); i++) {
		if (!stack_poll(st, UDP_DRAIN_BATCH))
			break;
	}
	udp_demux_remove(&st->udp, &att->bind);
	stack_udp_changed(st);
	stack_users(st, -1);
	att->listed = false;
}

void udp_unlist(struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = udp_att(s, i)->st;

		lock_take(&st->lock);
		att_unlist(udp_att(s, i), st);
		lock_drop(&st->lock);
	}
	s->stats->offloaded = 0;
}

bool udp_kernel_has(int fd)
{
	struct pollfd os = {.fd = fd, .events = POLLIN};

	/* Not libc's: that is a cancellation point. */
	return raw.poll(&os, 1, 0) > 0;
}

void udp_to_kernel(struct udp_sock *s, int fd, struct vma_stats_why why)
{
	if (atomic_exchange_explicit(&s->in_kernel, true, memory_order_acq_rel))
		return;
	stats_why(s->stats, fd, VMA_WHY_SOCKET, why);
	/* What the kernel gets from here on is younger than what is queued here. */
	if (s->kernel_has_older && !udp_kernel_has(fd))
		atomic_store_explicit(&s->kernel_has_older, false, memory_order_relaxed);
	udp_unlist(s);
	udp_port_forget(s->lport);
	atomic_store_explicit(&s->os_countdown, 1, memory_order_relaxed);
}

static struct udp_att *att_find(struct udp_sock *s, struct stack *st)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		if (udp_att(s, i)->st == st)
			return udp_att(s, i);
	}
	return NULL;
}

/* It is no socket's any more; its stack is locked. What the program still holds is charged to
 * nobody. */
static void att_end(struct udp_att *att)
{
	att->uses++;
	stack_due_del(att->st, &att->due);
	atomic_store_explicit(&att->s, NULL, memory_order_release);
}

/* The attachment of s to st, made when there is none. NULL when there can be no more. */
static struct udp_att *att_get(struct udp_sock *s, struct stack *st)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);
	struct udp_att *att = att_find(s, st);

	if (att || n == UDP_ATT_MAX)
		return att;
	att = att_alloc();
	if (!att)
		return NULL;
	att->head = NULL;
	att->tail = &att->head;
	att->charge = att->held = 0;
	att->listed = att->is_chosen = att->is_due = att->showing = false;
	att->uses++;
	att->cb = s->cb;
	att->queues_unshown = s->cb.fn || params.socketxtreme;
	att->due.tell = udp_tell;
	att->kernel_events = 0;
	att->unshown = NULL;
	att->unshown_tail = &att->unshown;
	atomic_store_explicit(&att->st, st, memory_order_release);
	atomic_store_explicit(&att->s, s, memory_order_release);
	atomic_store_explicit(&s->att[n], att, memory_order_release);
	atomic_store_explicit(&s->natt, n + 1, memory_order_release);
	return att;
}

static void fill_bind(struct udp_sock *s, struct udp_bind *b)
{
	union udp_addr peer;
	socklen_t len = udp_peer_get(s, &peer);
	uint32_t scope;

	memset(b, 0, sizeof(*b));
	b->family = (uint8_t)s->domain;
	b->v6only = s->o.v6only;
	b->lport = s->lport;
	b->local = s->local;
	b->local_any = IN6_IS_ADDR_UNSPECIFIED(&s->local);
	b->reuseport = s->o.reuseport;
	b->order = s->bind_order;
	b->bound_if = s->o.bound_if;
	b->connected = s->connected && sock_addr_get(&peer.sa, len, &b->remote, &b->rport, &scope);
}

static bool same_bind(const struct udp_bind *a, const struct udp_bind *b)
{
	return !memcmp(&a->local, &b->local, 16) && !memcmp(&a->remote, &b->remote, 16) &&
	       a->lport == b->lport && a->rport == b->rport && a->v6only == b->v6only &&
	       a->connected == b->connected && a->reuseport == b->reuseport &&
	       a->bound_if == b->bound_if;
}

/* The attachment has the rule; its stack's lock is held, or its socket's. */
static bool has_key(const struct udp_att *att, const struct vma_flow_key *key)
{
	for (unsigned i = 0; i < att->num_keys; i++) {
		if (!memcmp(&att->keys[i], key, sizeof(*key)))
			return true;
	}
	return false;
}

/*
 * att is on no list; st, its lock held, is open. 0 or negative errno; on failure nothing is left.
 */
static int att_relist(struct udp_att *att, int fd, struct stack *st, const struct udp_bind *bind,
		      const struct udp_keys *keys)
{
	int err = 0;

	att->keys = malloc(keys->num * sizeof(*keys->key));
	if (!att->keys)
		return -ENOMEM;
	/* Listed before the first rule: no packet that a rule brings may find nobody. */
	att->bind = *bind;
	udp_demux_add(&st->udp, &att->bind);
	stack_udp_changed(st);
	stack_users(st, 1);
	att->listed = true;
	for (unsigned i = 0; i < keys->num && !err; i++) {
		err = stack_flow_add(st, &keys->key[i], fd);
		if (!err)
			att->keys[att->num_keys++] = keys->key[i];
	}
	if (err)
		att_unlist(att, st);
	return err;
}

/*
 * Puts s on one stack with these steering rules. 0 or negative errno; on failure nothing is left.
 */
static int att_list(struct udp_sock *s, int fd, struct stack *st, const struct udp_keys *keys)
{
	struct udp_att *att = att_get(s, st);
	bool held[UDP_KEYS_MAX];
	struct udp_bind bind;
	int err = 0;

	if (!att)
		return -ENOSPC;
	fill_bind(s, &bind);
	lock_take(&st->lock);
	if (att->listed && same_bind(&bind, &att->bind) && keys->num == att->num_keys &&
	    !memcmp(keys->key, att->keys, keys->num * sizeof(*keys->key))) {
		lock_drop(&st->lock);
		return 0;
	}
	/* A rule that stays is not made anew. */
	for (unsigned i = 0; i < keys->num; i++)
		held[i] = has_key(att, &keys->key[i]) && !stack_flow_add(st, &keys->key[i], fd);
	att_unlist(att, st);
	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		err = keys->num ? -ENODEV : 0;
	else if (keys->num)
		err = att_relist(att, fd, st, &bind, keys);
	for (unsigned i = 0; i < keys->num; i++) {
		if (held[i])
			stack_flow_del(st, &keys->key[i]);
	}
	lock_drop(&st->lock);
	if (!keys->num || err == -ENODEV || err == -ENOMEM)
		return err;
	/* Who sleeps does so on the stacks' fds of before. */
	vfd_notify(&s->v, EPOLLIN);
	return err;
}

/* Rules leave receiving on this address to the kernel? */
static bool rules_want_os(const struct udp_sock *s)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	union udp_addr peer;

	if (libc.getsockname(s->v.os_fd, (struct sockaddr *)&local, &len))
		return true;
	if (s->connected) {
		udp_peer_get(s, &peer);
		return rules_match(RULE_UDP_CONNECT, &peer.sa, (struct sockaddr *)&local) ==
		       RULE_OS;
	}
	return rules_match(RULE_UDP_RECEIVER, (struct sockaddr *)&local, NULL) == RULE_OS;
}

/*
 * A port opened to others by SO_REUSEADDR or SO_REUSEPORT, or a multicast group's: the steering
 * would take their packets. While somebody else has the port, the kernel distributes.
 */
static bool shared_with_others(const struct udp_sock *s)
{
	return udp_can_share(s) && udp_port_shared(s->lport);
}

struct udp_att *udp_att_chosen(const struct udp_sock *s, int ifindex)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		struct udp_att *att = udp_att(s, i);
		const struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);

		if (att->is_chosen && atomic_load_explicit(&st->open, memory_order_acquire) &&
		    st->ifindex == ifindex)
			return att;
	}
	return NULL;
}

/* No keys for s on one interface any more. */
static void leave_interface(struct udp_sock *s, int fd, int ifindex)
{
	const struct udp_keys none = {.num = 0};
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = udp_att(s, i)->st;

		if (atomic_load_explicit(&st->open, memory_order_acquire) && st->ifindex == ifindex)
			(void)att_list(s, fd, st, &none);
	}
}

/* The keys of one interface by the stacks that are to have them. */
struct parts {
	unsigned num;
	struct stack *st[STACKS_MAX];
	struct udp_keys keys[STACKS_MAX];
};

static struct udp_keys *part_of(struct parts *p, struct stack *st)
{
	unsigned i = 0;

	while (i < p->num && p->st[i] != st)
		i++;
	if (i == p->num) {
		p->st[p->num] = st;
		p->keys[p->num++].num = 0;
	}
	return &p->keys[i];
}

/*
 * Who has the rule already, if not s alone; NULL: nobody. A device gives a packet to one ring:
 * sockets that want the same ones, of a port or a group, must be where the first of them is, and
 * get their copies there. But SO_REUSEPORT divides them. Where a group's rule brings others'
 * packets, too, one stack has all groups, or a socket in two would get them twice.
 */
static struct stack *owner_of(struct udp_sock *s, struct stack *chosen,
			      const struct vma_flow_key *key)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	if (ring_flow_of_group(key) && chosen->ring->caps.groups_by_mac)
		return stack_groups_owner(chosen->ifindex);
	if (s->o.reuseport && chosen->ring->caps.spread && !s->num_groups &&
	    !ring_flow_of_group(key))
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		struct udp_att *att = udp_att(s, i);

		if (att->st != chosen && att->st->ifindex == chosen->ifindex && has_key(att, key))
			return stack_flow_owner(chosen->ifindex, key, att->st, 1);
	}
	return stack_flow_owner(chosen->ifindex, key, chosen, UINT_MAX);
}

/*
 * As att_list(), where the interface has several stacks: chosen is the one by the socket's key.
 * What goes from one to another is the kernel socket's in between, so that nothing is lost and
 * nothing comes twice.
 */
static int list_parts(struct udp_sock *s, int fd, struct stack *chosen, const struct udp_keys *keys)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);
	struct stack *owner[UDP_KEYS_MAX], *rest = chosen;
	struct parts *p = malloc(sizeof(*p));
	int err = 0, one;

	if (!p)
		return -ENOMEM;
	p->num = 0;
	lock_take(&stack_flows_lock);
	for (unsigned i = 0; i < keys->num; i++) {
		owner[i] = owner_of(s, chosen, &keys->key[i]);
		/*
		 * What nobody has yet goes where the others of the port are: they may want its
		 * groups (IP_MULTICAST_ALL).
		 */
		if (owner[i] && rest == chosen)
			rest = owner[i];
	}
	for (unsigned i = 0; i < keys->num; i++) {
		struct udp_keys *part = part_of(p, owner[i] ? owner[i] : rest);

		part->key[part->num++] = keys->key[i];
	}
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = udp_att(s, i)->st;

		if (atomic_load_explicit(&st->open, memory_order_acquire) &&
		    st->ifindex == chosen->ifindex)
			(void)att_list(s, fd, st, part_of(p, st));
	}
	for (unsigned i = 0; i < p->num; i++) {
		one = p->keys[i].num ? att_list(s, fd, p->st[i], &p->keys[i]) : 0;
		err = err ? err : one;
	}
	lock_drop(&stack_flows_lock);
	free(p);
	return err;
}

/*
 * The stack of s on an interface, its attachment there made. 0 and *out (NULL: none is to be had;
 * else the caller's to put) or negative errno.
 */
static int chosen_get(struct udp_sock *s, int fd, int ifindex, struct stack **out)
{
	static _Atomic bool told;
	struct udp_att *att = udp_att_chosen(s, ifindex);
	struct stack *st;

	*out = NULL;
	if (att) {
		*out = att->st;
		stack_users(*out, 1);
		return 0;
	}
	if (atomic_load_explicit(&s->natt, memory_order_relaxed) == UDP_ATT_MAX) {
		if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
			log_warn("fd %d, port %u: its packets may come from more than %d "
				 "interfaces; those of the others go through the kernel",
				 fd, s->lport, UDP_ATT_MAX);
		return -ENOSPC;
	}
	st = stack_get(ifindex, s->key);
	if (!st)
		return 0;
	att = att_get(s, st);
	if (!att) {
		stack_put(st);
		return -ENOMEM;
	}
	att->is_chosen = true;
	*out = st;
	return 0;
}

/* Makes one interface agree. 1: it brings packets of s, 0: it does not, or negative errno. */
static int attach_one(struct udp_sock *s, int fd, int ifindex)
{
	static _Atomic bool rule_told;
	struct udp_keys keys;
	struct stack *st;
	int err;

	udp_keys_make(s, ifindex, &keys);
	if (s->kernel_rx || s->shared)
		keys.num = 0;
	if (!keys.num) {
		leave_interface(s, fd, ifindex);
		return 0;
	}
	err = chosen_get(s, fd, ifindex, &st);
	if (err || !st)
		return err;
	udp_keys_make(s, ifindex, &keys); /* now that it is known what its ring wants */
	err = stacks_several() ? list_parts(s, fd, st, &keys) : att_list(s, fd, st, &keys);
	stack_put(st);
	/* A full table is full for the thousands that follow as well. */
	if (err && !atomic_exchange_explicit(&rule_told, true, memory_order_relaxed))
		log_warn("fd %d, port %u on interface %d: the steering rule cannot be set (%s): "
			 "its packets go through the kernel (said once)",
			 fd, s->lport, ifindex,
			 err == -ENOSPC ? "the flow table is full" : strerror(-err));
	else if (err)
		log_debug("fd %d, port %u on interface %d: no steering rule: %s", fd, s->lport,
			  ifindex, strerror(-err));
	return err ? err : 1;
}

void udp_prune(struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = n; i-- > 0;) {
		struct udp_att *att = udp_att(s, i);
		struct stack *st = att->st;
		bool gone = false;

		lock_take(&st->lock);
		if (!att->is_chosen && !att->listed && !att->head && !att->unshown &&
		    !att->showing) {
			att_end(att);
			atomic_store_explicit(&s->att[i], udp_att(s, --n), memory_order_release);
			atomic_store_explicit(&s->natt, n, memory_order_release);
			gone = true;
		}
		lock_drop(&st->lock);
		if (gone)
			att_free(att);
	}
}

void udp_follow_key(struct udp_sock *s, int fd)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++)
		udp_att(s, i)->is_chosen = false;
	udp_attach(s, fd);
	udp_prune(s);
}

/* No interface brings packets of s; failed: negative errno of a steering rule, or 0. */
static struct vma_stats_why why_none(const struct udp_sock *s, int failed)
{
	if (s->kernel_rx)
		return STATS_WHY(RULE);
	if (s->shared)
		return STATS_WHY(SHARED_PORT);
	if (failed)
		return (struct vma_stats_why){VMA_WHY_STEERING, -failed};
	return udp_keys_why_none(s);
}

void udp_attach(struct udp_sock *s, int fd)
{
	struct net_link_walk links = {.num = 0};
	int ifindex, failed = 0;
	bool any = false;

	/*
	 * Closed by another thread while this one was on its way here: what is attached now would
	 * never be taken off.
	 */
	if (!atomic_load_explicit(&s->in_use, memory_order_relaxed))
		return;
	if (s->in_kernel || !s->lport)
		return;
	udp_key_rx(s);
	/* The ring is that of who binds; only its opening waits. */
	if (!s->begun)
		return;
	atomic_store_explicit(&s->stacks_seen, stacks_generation(), memory_order_relaxed);
	s->kernel_rx = rules_want_os(s);
	s->shared = shared_with_others(s);
	while ((ifindex = net_link_next(&links))) {
		int err = attach_one(s, fd, ifindex);

		any = any || err > 0;
		failed = err < 0 ? err : failed;
	}
	s->stats->offloaded = any;
	stats_why(s->stats, fd, VMA_WHY_RX, any ? STATS_WHY(NONE) : why_none(s, failed));
	/* Found out now, if the option was set before. */
	if (!udp_stamps_here(s))
		udp_to_kernel(s, fd, STATS_WHY(STAMPS));
	/* What came before the rules stood waits in the kernel socket. */
	atomic_store_explicit(&s->os_countdown, 1, memory_order_relaxed);
}

/* Of all binds of this process. */
static _Atomic uint64_t binds;

void udp_learn_local(struct udp_sock *s, int fd)
{
	const uint16_t before = s->lport;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint16_t port;
	uint32_t scope;

	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    !sock_addr_get((struct sockaddr *)&ss, len, &s->local, &port, &scope))
		return;
	/* An address with a scope sets it, and connect() to AF_UNSPEC ends it. */
	udp_opts_mirror(s, fd, SOL_SOCKET, SO_BINDTOIFINDEX);
	atomic_store_explicit(&s->lport, port, memory_order_relaxed);
	if (!before)
		s->bind_order = atomic_fetch_add_explicit(&binds, 1, memory_order_relaxed) + 1;
	/* 0.0.0.0 is v4-mapped here; "any" has one form inside. */
	if (IN6_IS_ADDR_V4MAPPED(&s->local) && !memcmp(&s->local.s6_addr[12], "\0\0\0\0", 4))
		memset(&s->local, 0, sizeof(s->local));
	memcpy(s->stats->local.byte, &s->local, 16);
	s->stats->local_port = s->lport;
}

int udp_autobind(struct udp_sock *s, int fd)
{
	struct sockaddr_storage any = {.ss_family = (sa_family_t)s->domain};
	socklen_t len =
		s->domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	if (s->lport)
		return 0;
	udp_learn_local(s, fd);
	if (!s->lport) {
		if (libc.bind(fd, (struct sockaddr *)&any, len))
			return -errno;
		udp_learn_local(s, fd);
	}
	udp_attach(s, fd);
	return 0;
}

static void begin(struct udp_sock *s, int fd)
{
	if (s->begun || !atomic_load_explicit(&s->in_use, memory_order_relaxed))
		return;
	atomic_store_explicit(&s->begun, true, memory_order_relaxed);
	libc_internal_begin();
	udp_attach(s, fd);
	libc_internal_end();
	if (!udp_kernel_has(fd))
		return;
	atomic_store_explicit(&s->kernel_has_older, true, memory_order_relaxed);
	atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release);
	udp_completion_kernel(s, EPOLLIN);
}

/* fn of udp_each(): what one socket's rule brings may be another's of the port, bound beside it. */
static void begin_on_port(struct udp_sock *s, void *arg)
{
	if (s->lport == *(const uint16_t *)arg && udp_can_share(s))
		begin(s, s->v.os_fd);
}

void udp_begin_slow(struct udp_sock *s, int fd)
{
	int err = errno, cancel;
	uint16_t port, divided;

	if (lock_mine(&s->lock))
		return;
	cancel = lock_quiet_begin();
	/* Another thread may bind it. */
	lock_take(&s->lock);
	port = udp_can_share(s) ? s->lport : 0;
	lock_drop(&s->lock);
	if (port)
		udp_each(begin_on_port, &port);
	lock_take(&s->lock);
	lock_leave();
	begin(s, fd);
	divided = s->in_kernel ? port : 0;
	udp_unlock(s, cancel);
	udp_port_divide(divided);
	udp_port_joined(port);
	errno = err;
}

static bool has_begun(const struct udp_sock *s)
{
	return atomic_load_explicit(&s->begun, memory_order_relaxed);
}

void udp_follow_port(struct udp_sock *s)
{
	if (s->lport && udp_can_share(s) && udp_port_any(s->lport, has_begun))
		atomic_store_explicit(&s->begun, true, memory_order_relaxed);
}

static void begin_bound(struct udp_sock *s, void *arg)
{
	(void)arg;
	if (s->lport && !s->in_kernel)
		begin(s, s->v.os_fd);
}

void udp_preopen(void)
{
	udp_each(begin_bound, NULL);
}

void udp_detach(struct udp_sock *s)
{
	unsigned n = atomic_exchange_explicit(&s->natt, 0, memory_order_acq_rel);

	for (unsigned i = 0; i < n; i++) {
		struct udp_att *att = udp_att(s, i);
		struct stack *st = att->st;

		lock_take(&st->lock);
		att_unlist(att, st);
		udp_att_flush(att);
		att_end(att);
		lock_drop(&st->lock);
		att_free(att);
	}
}

static void drop_stack(struct udp_sock *s, void *arg)
{
	struct stack *st = arg;
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		if (udp_att(s, i)->st != st)
			continue;
		lock_take(&st->lock);
		att_unlist(udp_att(s, i), st);
		/* The buffers are the ring's memory, which goes away. */
		udp_att_flush(udp_att(s, i));
		lock_drop(&st->lock);
	}
}

static void stack_gone(struct stack *st)
{
	udp_each(drop_stack, st);
}

/* The kernel socket has all that comes from now on. */
static void stack_cut_off(struct stack *st)
{
	(void)st;
}

/*
 * Each look is two system calls and more: so many sockets in a tick, the others in the next ones.
 */
#define SHARING_LOOKS 256
struct sharing_turn {
	uint16_t port; /* only this one; 0: all */
	unsigned from, left; /* ids from `from` downwards, as the list has them */
	unsigned next;
	bool more;
};

/* It has a peer, and may belong on an interface that has got a stack since it was attached. */
static bool lacks_stack(const struct udp_sock *s)
{
	return atomic_load_explicit(&s->connected, memory_order_relaxed) && has_begun(s) &&
	       !atomic_load_explicit(&s->in_kernel, memory_order_relaxed) &&
	       atomic_load_explicit(&s->stacks_seen, memory_order_relaxed) != stacks_generation();
}

/* fn of udp_each() */
static void follow_stacks(struct udp_sock *s, void *arg)
{
	if (s->lport == *(const uint16_t *)arg && udp_can_share(s) && lacks_stack(s))
		udp_attach(s, s->v.os_fd);
}

void udp_port_joined(uint16_t port)
{
	/* stacks_generation() when nobody was found: the walk goes through all sockets. */
	static _Atomic uint32_t none_lacks;
	uint32_t now = stacks_generation();
	int err = errno, cancel;

	if (!port || atomic_load_explicit(&none_lacks, memory_order_relaxed) == now)
		return;
	if (!udp_port_any(0, lacks_stack)) {
		atomic_store_explicit(&none_lacks, now, memory_order_relaxed);
		return;
	}
	/* No handler of the program's between two sockets: what it makes there would be ours. */
	cancel = lock_quiet_begin();
	libc_internal_begin();
	udp_each(follow_stacks, &port);
	libc_internal_end();
	lock_quiet_end(cancel);
	errno = err;
}

static bool is_alone(const struct udp_sock *s)
{
	return has_begun(s) && !atomic_load_explicit(&s->in_kernel, memory_order_relaxed) &&
	       !atomic_load_explicit(&s->shared, memory_order_relaxed);
}

void udp_port_divide(uint16_t port)
{
	int err = errno, cancel;

	if (!port || !udp_port_any(port, is_alone))
		return;
	udp_port_forget(port);
	cancel = lock_quiet_begin();
	libc_internal_begin();
	udp_sharing_look(port);
	libc_internal_end();
	lock_quiet_end(cancel);
	errno = err;
}

/* Somebody has come to share the port, or has left it alone again. */
static void follow_sharing(struct udp_sock *s, void *arg)
{
	struct sharing_turn *turn = arg;
	bool shared;

	if (!s->lport || (turn->port && s->lport != turn->port))
		return;
	if (!s->begun || s->in_kernel || s->kernel_rx || (!s->o.reuseaddr && !s->o.reuseport) ||
	    s->id > turn->from)
		return;
	if (!turn->left) {
		if (!turn->more)
			turn->next = s->id;
		turn->more = true;
		return;
	}
	turn->left--;
	shared = shared_with_others(s);
	if (shared != s->shared)
		log_debug("fd %d, port %u: %s", s->v.os_fd, s->lport,
			  shared ? "another process shares the port: received by the kernel"
				 : "the port is ours alone again");
	else if (!lacks_stack(s))
		return;
	udp_attach(s, s->v.os_fd);
}

void udp_sharing_look(uint16_t port)
{
	struct sharing_turn turn = {.port = port, .from = UINT_MAX, .left = UINT_MAX};

	udp_each(follow_sharing, &turn);
}

static void follow_addresses(struct udp_sock *s, void *arg)
{
	(void)arg;
	if (s->lport && !s->in_kernel)
		udp_attach(s, s->v.os_fd);
}

static void addresses_changed(void)
{
	udp_each(follow_addresses, NULL);
}

static void tick(void *arg)
{
	static unsigned from = UINT_MAX; /* worker only */
	struct sharing_turn turn = {.from = from, .left = SHARING_LOOKS};

	(void)arg;
	net_routes_expire();
	atomic_fetch_add_explicit(&udp_tick, 1, memory_order_relaxed);
	udp_each(follow_sharing, &turn);
	from = turn.more ? turn.next : UINT_MAX;
}

static const struct stack_user_ops user_ops = {
	.input = udp_input,
	.gone = stack_gone,
	.cut_off = stack_cut_off,
	.addresses_changed = addresses_changed,
	.show = udp_show,
};

int udp_start(void)
{
	int id = worker_timer_add(1000, tick, NULL);

	if (id >= 0 && params.tx_nonblocked_eagains)
		udp_full_queues_start();
	stack_register_udp(&user_ops);
	udp_moves_start();
	return id < 0 ? id : 0;
}
