/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Listening: the kernel socket listens as ever; when the listener is first waited on it attaches to the stacks besides, and
 * accept() takes from both (tcp_accept.c). A master process that only forks owns nothing so, and its worker does.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/rules.h"
#include "runtime/worker.h"
#include "socket/tcp_int.h"
#include "socket/udp_int.h"

#define ADDRS_MAX 64

/* The worker's epoll saw a connection in the kernel's queue. */
static void os_event(int fd, uint32_t events, void *arg)
{
	struct tsock *s = arg;

	(void)fd;
	atomic_fetch_or_explicit(&s->v.os_events, events, memory_order_acq_rel);
	vfd_notify(&s->v, events);
}

/* What the listener is bound to. False: it cannot be read, or is no usable address. */
static bool bound_to(const struct tsock *s, int fd, struct tcp_listen_spec *spec)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint32_t scope;
	int on = 0;

	memset(spec, 0, sizeof(*spec));
	if (libc.getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    !udp_addr_get((struct sockaddr *)&ss, len, &spec->local, &spec->port, &scope) || !spec->port)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&spec->local) && !memcmp(&spec->local.s6_addr[12], "\0\0\0\0", 4))
		memset(&spec->local, 0, sizeof(spec->local));
	spec->family = s->domain;
	/* An IPv4 address on an IPv6 socket: only IPv4 comes. */
	if (IN6_IS_ADDR_V4MAPPED(&spec->local))
		spec->family = AF_INET;
	len = sizeof(on);
	if (s->domain == AF_INET6 && !libc.getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, &len))
		spec->v6only = on;
	on = 0;
	len = sizeof(on);
	if (!libc.getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, &len))
		spec->reuseport = on;
	spec->backlog = s->spare.backlog;
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
 * Packets of the interface are the listener's. A cable that is cut takes no rule away: connections live on it, and what comes
 * before a new rule stood would be reset by the kernel.
 */
static bool covers(const struct tsock *s, int ifindex, const struct net_link *link)
{
	if (s->bound_if && s->bound_if != ifindex)
		return false;
	return stack_wanted(ifindex) || (!link->up && stack_any(ifindex));
}

/* The local addresses of the interface that the listener covers, as steering rules. Returns how many. */
static unsigned make_keys(const struct tsock *s, const struct tcp_listen_spec *spec, int ifindex, struct vma_flow_key *keys)
{
	struct in6_addr addrs[ADDRS_MAX];
	struct net_link link;
	unsigned n, num = 0;
	bool any = IN6_IS_ADDR_UNSPECIFIED(&spec->local);

	if (net_link_get(ifindex, &link) || !covers(s, ifindex, &link))
		return 0;
	n = net_addr_list(link.kind == NET_LINK_LOOPBACK ? 0 : ifindex, addrs, ADDRS_MAX);
	for (unsigned i = 0; i < n && i < ADDRS_MAX; i++) {
		struct tcp_tuple t = { .local = addrs[i], .lport = spec->port };
		bool v4 = IN6_IS_ADDR_V4MAPPED(&addrs[i]);

		if (any ? (spec->family == AF_INET ? v4 : !(v4 && spec->v6only)) : !memcmp(&addrs[i], &spec->local, 16))
			tsock_key(&t, false, &keys[num++]);
	}
	return num;
}

bool tsock_covers(const struct tsock *s, int ifindex)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	struct vma_flow_key keys[ADDRS_MAX];
	struct tcp_listen_spec spec;

	return !rules_want_os(fd) && bound_to(s, fd, &spec) && make_keys(s, &spec, ifindex, keys) > 0;
}

static struct lock free_lock;
static struct tsock_att *free_atts; /* type-stable: tx.user and event() may name one that has just left */

static struct tsock_att *att_alloc(void)
{
	struct tsock_att *att;

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

static void att_free(struct tsock_att *att)
{
	lock_take(&free_lock);
	att->next = free_atts;
	free_atts = att;
	lock_drop(&free_lock);
}

void tsock_atts_forked(void)
{
	atomic_store(&free_lock.owner, 0);
	free_atts = NULL;
}

static struct tsock_att *att_find(struct tsock *s, const struct stack *st)
{
	struct tsock_att *att = s->spare.atts;

	while (att && att->st != st)
		att = att->next;
	return att;
}

static bool is_one_of(const struct vma_flow_key *key, const struct vma_flow_key *keys, unsigned num)
{
	for (unsigned i = 0; i < num; i++) {
		if (!memcmp(&keys[i], key, sizeof(*key)))
			return true;
	}
	return false;
}

/* An address has gone. It may come back, and the kernel would reset the connections before our rule stood again. */
static void keep_connections(struct stack *st, const struct vma_flow_key *key)
{
	struct tcp_tuple at = { .lport = key->local_port };

	memcpy(&at.local, key->local.byte, sizeof(at.local));
	tsock_rules_of_own(st, &at);
}

/* Rules of att become keys[0..num); st->lock is held. 0 or negative errno. */
static int set_rules(struct tsock_att *att, int fd, const struct vma_flow_key *keys, unsigned num)
{
	struct vma_flow_key *copy = malloc((num ? num : 1) * sizeof(*copy));
	unsigned done = 0;
	int err = copy ? 0 : -ENOMEM;

	/* The new ones first: what both have stays without a gap. */
	for (; !err && done < num; done++) {
		err = stack_flow_add(att->st, &keys[done], fd);
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
	att->s->spare.quiet = false;
	return 0;
}

static struct tsock_att *att_new(struct tsock *s, struct stack *st, const struct tcp_listen_spec *spec,
				 const struct tcp_opts *o)
{
	struct tsock_att *att = att_alloc();
	struct tsock_stack *t;
	int err = -ENOMEM;

	if (!att)
		return NULL;
	att->user.kind = TSOCK_USER_LISTENER;
	att->s = s;
	att->st = st;
	t = tsock_stack_get(st);
	if (t)
		err = tcp_listen(t->ts, spec, o, &att->user, &att->l);
	if (err) {
		log_debug("port %u on interface %d: the engine does not listen: %s", spec->port, st->ifindex, strerror(-err));
		att_free(att);
		return NULL;
	}
	stack_users(st, 1);
	att->next = s->spare.atts;
	s->spare.atts = att;
	return att;
}

/* The stack of s on an interface: the one that it is in, or its key's. NULL: none is to be had; else the caller's to put. */
static struct stack *home_get(struct tsock *s, int ifindex, const struct tcp_listen_spec *spec)
{
	struct tsock_att *att, *any = s->spare.atts;

	for (att = any; att; att = att->next) {
		if (att->home && att->st->ifindex == ifindex && atomic_load_explicit(&att->st->open, memory_order_acquire)) {
			stack_users(att->st, 1);
			return att->st;
		}
	}
	/* Who follows an interface that has come is the internal thread. */
	return stack_get(ifindex, any ? atomic_load_explicit(&any->st->key, memory_order_relaxed) : tsock_key_rx(s, &spec->local));
}

/* What attach_one() has to know. */
struct attaching {
	struct tsock *s;
	int fd, ifindex;
	const struct tcp_listen_spec *spec;
	const struct tcp_opts *o;
	struct stack *home;
};

/* Has s these rules on st and no others there. 0 or negative errno. */
static int attach_stack(const struct attaching *a, struct stack *st, const struct vma_flow_key *keys, unsigned num)
{
	struct tsock_att *att;
	int err = 0;

	lock_take(&st->lock);
	att = att_find(a->s, st);
	if (!att && num && atomic_load_explicit(&st->open, memory_order_relaxed))
		att = att_new(a->s, st, a->spec, a->o);
	if (att && att->l) {
		att->home = att->home || st == a->home;
		att->spread = stacks_several() && a->spec->reuseport && st->ring->caps.spread;
		err = set_rules(att, a->fd, keys, num);
	}
	lock_drop(&st->lock);
	return !att && num ? -ENODEV : err;
}

/*
 * The one that is to have the rule: where another listener has it already (SO_REUSEPORT), a device that cannot divide it brings the
 * packets there.
 */
static struct stack *stack_for(const struct attaching *a, const struct vma_flow_key *key)
{
	struct stack *owner = NULL;

	if (stacks_several() && !(a->spec->reuseport && a->home->ring->caps.spread))
		owner = stack_flow_owner(a->ifindex, key, a->home, UINT_MAX);
	return owner ? owner : a->home;
}

/* The rules by their stacks. 0 or negative errno. */
static int attach_parts(const struct attaching *a, const struct vma_flow_key *keys, unsigned num)
{
	struct vma_flow_key part[ADDRS_MAX];
	struct stack *st[ADDRS_MAX];
	int err = 0, one;

	for (unsigned i = 0; i < num; i++)
		st[i] = stack_for(a, &keys[i]);
	for (struct tsock_att *att = a->s->spare.atts; att; att = att->next) {
		unsigned i = 0;

		while (i < num && st[i] != att->st)
			i++;
		if (i == num && att->st->ifindex == a->ifindex && atomic_load_explicit(&att->st->open, memory_order_acquire))
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
		err = err ? err : one;
	}
	return err;
}

/* Attaches to one interface, or follows its addresses. s->lock is held. True: packets come from there. */
static bool attach_one(struct tsock *s, int fd, int ifindex, const struct tcp_listen_spec *spec, const struct tcp_opts *o)
{
	struct attaching a = { .s = s, .fd = fd, .ifindex = ifindex, .spec = spec, .o = o };
	struct vma_flow_key keys[ADDRS_MAX];
	unsigned num = make_keys(s, spec, ifindex, keys);
	int err;

	if (!num) {
		for (struct tsock_att *att = s->spare.atts; att; att = att->next) {
			if (att->st->ifindex == ifindex && atomic_load_explicit(&att->st->open, memory_order_acquire))
				(void)attach_stack(&a, att->st, NULL, 0);
		}
		return false;
	}
	a.home = home_get(s, ifindex, spec);
	if (!a.home)
		return false;
	lock_take(&stack_flows_lock);
	err = attach_parts(&a, keys, num);
	lock_drop(&stack_flows_lock);
	stack_put(a.home);
	if (err)
		log_warn("fd %d, TCP port %u on interface %d: the steering rule cannot be set (%s): its connections go through the kernel",
			 fd, spec->port, ifindex, strerror(-err));
	return !err;
}

static void show(struct tsock *s, const struct tcp_listen_spec *spec, bool offloaded)
{
	struct vma_stats_socket *b = tsock_shown(s);

	if (b) {
		memcpy(b->local.byte, &spec->local, 16);
		b->local_port = spec->port;
	}
	tsock_show_offloaded(s, offloaded);
	tsock_show_state(s, TCPS_LISTEN);
}

static bool attach_all(struct tsock *s, int fd)
{
	int links[STACKS_MAX];
	unsigned n = net_link_list(links, STACKS_MAX);
	struct tcp_listen_spec spec;
	struct tcp_opts o;
	bool any = false;

	if (!bound_to(s, fd, &spec))
		return false;
	tsock_opts_read(s, fd, &o);
	for (unsigned i = 0; i < n && i < STACKS_MAX; i++)
		any = attach_one(s, fd, links[i], &spec, &o) || any;
	show(s, &spec, any);
	return any;
}

void tsock_relisten(struct tsock *s)
{
	if (s->spare.attached)
		attach_all(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
}

void tsock_waited(struct vfd *v)
{
	struct tsock *s = tsock_of(v);
	int cancel, fd;

	if (__builtin_expect(tsock_mode(s) != TSOCK_LISTEN || s->spare.attached, 1))
		return;
	if (tsock_begin())
		return; /* the library is off in this process */
	cancel = tsock_lock(s);
	if (s->spare.attached || !atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		tsock_unlock(s, cancel);
		return;
	}
	libc_internal++;
	s->spare.attached = true;
	fd = atomic_load_explicit(&v->os_fd, memory_order_relaxed);
	if (!s->spare.no_offload && !rules_want_os(fd))
		attach_all(s, fd);
	if (!worker_fd_add(fd, EPOLLIN | EPOLLET, os_event, s))
		s->worker_fd = fd;
	/* What the kernel has queued so far. */
	atomic_fetch_or_explicit(&v->os_events, EPOLLIN, memory_order_release);
	atomic_store_explicit(&v->shadow, VFD_SHADOW_IN, memory_order_release);
	libc_internal--;
	tsock_unlock(s, cancel);
	vfd_shadow_changed(v);
}

/* False: the kernel has got a connection meanwhile. s->lock is held. */
static bool quieten(struct tsock_att *att, uint16_t port)
{
	bool none;

	/* Asked again under the lock that a connection is handed over under: the look-up would be off for that one. */
	lock_take(&att->st->lock);
	none = net_tcp_conns(port) == 0;
	if (none && atomic_load_explicit(&att->st->open, memory_order_relaxed))
		att->st->ring->ops->port_quiet(att->st->ring, port, true);
	lock_drop(&att->st->lock);
	return none;
}

void tsock_listen_tick(struct tsock *s)
{
	struct tsock_att *att;
	uint16_t port = 0;

	if (tsock_mode(s) != TSOCK_LISTEN)
		return;
	lock_take(&s->lock);
	if (s->spare.quiet || !s->spare.atts) {
		lock_drop(&s->lock);
		return;
	}
	for (att = s->spare.atts; att && !port; att = att->next)
		port = att->num_keys ? att->keys[0].local_port : 0;
	if (port && net_tcp_conns(port) == 0) {
		s->spare.quiet = true;
		for (att = s->spare.atts; att; att = att->next)
			s->spare.quiet = quieten(att, port) && s->spare.quiet;
	}
	lock_drop(&s->lock);
}

int tsock_listen(struct vfd *v, int fd, int backlog)
{
	struct tsock *s = tsock_of(v);
	int cancel, ret, err, somaxconn = 4096;
	bool renewed;

	if (tsock_mode(s) == TSOCK_CONN) {
		errno = EINVAL; /* the idle kernel socket would */
		return -1;
	}
	if (!tsock_lock_live(s, fd, &cancel))
		return libc.listen(fd, backlog);
	renewed = s->stale;
	tsock_shadow_renew(s, fd);
	ret = libc.listen(fd, backlog);
	if (ret) {
		err = errno;
		tsock_unlock(s, cancel);
		if (renewed)
			vfd_shadow_changed(v);
		errno = err;
		return ret;
	}
	s->spare.backlog = backlog < 0 || backlog > somaxconn ? somaxconn : backlog;
	for (struct tsock_att *att = s->spare.atts; att; att = att->next) {
		lock_take(&att->st->lock);
		if (att->l)
			tcp_listen_backlog(att->l, s->spare.backlog);
		lock_drop(&att->st->lock);
	}
	atomic_store_explicit(&s->mode, TSOCK_LISTEN, memory_order_release);
	tsock_show_state(s, TCPS_LISTEN);
	tsock_unlock(s, cancel);
	if (renewed)
		vfd_shadow_changed(v);
	/* Somebody waits for it already. */
	if (atomic_load_explicit(&v->watches, memory_order_relaxed))
		tsock_waited(v);
	return 0;
}

/* --- leaving */

struct leaving {
	struct stack *st;
	uint16_t port;
};

void tsock_own_rule(struct tsock *c, struct stack *st)
{
	struct vma_flow_info info = { .pid = (uint32_t)getpid(), .fd = (uint32_t)atomic_load_explicit(&c->v.os_fd, memory_order_relaxed) };
	struct vma_flow_key key;
	int err;

	tsock_key(&c->tuple, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	c->own_rule = !err;
	if (err)
		log_warn("TCP port %u: a connection has no steering rule besides its listener's: %s", c->tuple.lport, strerror(-err));
}

/* fn of tsock_each(): the listener leaves. st->lock is held. */
static void own_rule(struct tsock *c, void *arg)
{
	const struct leaving *lv = arg;

	if (params.tcp_3t_rules || atomic_load_explicit(&c->st, memory_order_relaxed) != lv->st || !c->accepted || c->own_rule || !c->c ||
	    c->tuple.lport != lv->port)
		return;
	tsock_own_rule(c, lv->st);
}

static void att_leave(struct tsock_att *att)
{
	struct stack *st = att->st;
	struct leaving lv = { .st = st };
	uint64_t now = tsock_now();

	lock_take(&st->lock);
	if (att->l) {
		tcp_listen_close(att->l, now);
		stack_users(st, -1);
	}
	att->l = NULL;
	if (atomic_load_explicit(&st->open, memory_order_relaxed)) {
		if (att->num_keys) {
			lv.port = att->keys[0].local_port;
			tsock_each(own_rule, &lv);
		}
		/* What the rules have brought so far is in the ring; without the listener it would be answered by RST, as it should. */
	}
	for (unsigned i = 0; i < att->num_keys; i++)
		stack_flow_del(st, &att->keys[i]);
	free(att->keys);
	tsock_unlock_stack(st, now);
	att_free(att);
}

void tsock_unlisten(struct tsock *s)
{
	struct tsock_att *att;

	if (s->worker_fd >= 0)
		worker_fd_del(s->worker_fd, s);
	s->worker_fd = -1;
	while ((att = s->spare.atts)) {
		s->spare.atts = att->next;
		att_leave(att);
	}
}
