/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a datagram goes: route, neighbour, rules and options made into a prebuilt header. s->lock
 * is held throughout.
 */
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/send.h"

/* The packet info that counts for a destination of this family; NULL: none was given. */
static const struct udp_pktinfo *info_of(const struct udp_sock *s, const struct udp_ctl *c, bool v4)
{
	if (!c)
		return NULL;
	if (v4 && c->info4.given)
		return &c->info4;
	return c->info6.given && (!v4 || s->domain == AF_INET6) ? &c->info6 : NULL;
}

/*
 * What is asked of the routes; c: NULL, or what ancillary data says. False: the kernel would refuse
 * that, or should decide.
 */
static bool make_query(const struct udp_sock *s, const struct udp_ctl *c, uint32_t scope, bool v4,
		       struct net_route_query *q)
{
	const struct udp_pktinfo *info = info_of(s, c, v4);
	static const struct in6_addr any4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
	struct net_link link;

	q->src = s->local;
	q->proto = IPPROTO_UDP;
	q->sport = s->lport;
	q->mark = s->o.mark;
	if (v4)
		q->tos = c && c->tos >= 0 ? (uint8_t)c->tos : s->o.tos;
	q->oif = s->o.bound_if;
	if (scope && (IN6_IS_ADDR_LINKLOCAL(&q->dst) || IN6_IS_ADDR_MC_LINKLOCAL(&q->dst)))
		q->oif = (int)scope;
	if (!info)
		return true;
	if (info->ifindex && q->oif && q->oif != info->ifindex)
		return false;
	/* Of one that is not there IPv6's routes know nothing. */
	if (info->ifindex && net_link_get(info->ifindex, &link))
		return false;
	if (info->ifindex)
		q->oif = info->ifindex;
	if (v4 && !memcmp(&info->src, &any4, sizeof(any4))) {
		/* Also of a bound socket: by route. */
		q->src = in6addr_any;
		return true;
	}
	if (!v4 && IN6_IS_ADDR_UNSPECIFIED(&info->src))
		return true;
	q->src = info->src;
	return IN6_IS_ADDR_V4MAPPED(&q->src) == v4 && !IN6_IS_ADDR_LOOPBACK(&q->src) &&
	       (q->oif || !IN6_IS_ADDR_LINKLOCAL(&q->src)) && net_addr_is_local(&q->src, q->oif);
}

/* An IPv6 socket's own option counts, whatever the family of the group. */
static bool is_looped(const struct udp_sock *s, const struct in6_addr *dst)
{
	return sock_addr_is_multicast(dst) &&
	       (s->domain == AF_INET6 ? s->o.mc_loop6 : s->o.mc_loop);
}

bool udp_is_looped(const struct udp_sock *s, const struct udp_tx *t)
{
	struct in6_addr dst;
	uint32_t scope;
	uint16_t port;

	return sock_addr_get(t->addr, t->alen, &dst, &port, &scope) && is_looped(s, &dst);
}

/*
 * May not leave the host, as its TTL or the group's scope (RFC 4291, 2.7) has it: the kernel keeps
 * it.
 */
static bool stays(const struct udp_sock *s, const struct udp_ctl *c, const struct in6_addr *group,
		  bool v4)
{
	if (!v4)
		return (group->s6_addr[1] & 15) <= 1;
	return (c && c->ttl >= 0 ? c->ttl : s->o.mc_ttl) == 0;
}

/*
 * The route's answer, or why the kernel socket must send; c as of resolve(). Copies for members of
 * a group on this host the kernel makes. That there are none holds for one datagram only.
 */
static enum vma_why find_route(struct udp_sock *s, const struct udp_ctl *c,
			       struct net_route_query *q, bool v4, struct net_route *r)
{
	bool multicast = sock_addr_is_multicast(&q->dst), looped = is_looped(s, &q->dst);

	if (multicast && !q->oif)
		q->oif = v4 ? s->o.mc_if : s->o.mc_if6;
	if ((looped && !c) || (multicast && stays(s, c, &q->dst, v4)))
		return VMA_WHY_MULTICAST_LOOP;
	if (v4 && net_addr_is_broadcast(&q->dst))
		return VMA_WHY_BROADCAST;
	if (net_route_get(q, r))
		return VMA_WHY_ROUTE;
	if (looped && !net_group_is_quiet(r->oif, &q->dst))
		return VMA_WHY_MULTICAST_LOOP;
	if (r->type == NET_ROUTE_LOCAL)
		return params.offload_loopback ? VMA_WHY_NONE : VMA_WHY_LOCAL;
	if (r->type == NET_ROUTE_UNICAST || (multicast && r->type == NET_ROUTE_MULTICAST))
		return VMA_WHY_NONE;
	return VMA_WHY_ROUTE;
}

/* The MAC that frames for dst go to; false when only the kernel can find out. */
static bool find_mac(struct udp_dst *d, const struct net_route *r, const struct in6_addr *dst,
		     const struct net_link *link, uint8_t mac[6])
{
	struct net_neigh neigh;

	if (link->kind == NET_LINK_LOOPBACK) {
		memset(mac, 0, 6);
		return true;
	}
	if (sock_addr_is_multicast(dst)) {
		net_multicast_mac(dst, mac);
		return true;
	}
	d->next_hop = IN6_IS_ADDR_UNSPECIFIED(&r->gateway) ? *dst : r->gateway;
	if (net_neigh_get(link->ifindex, &d->next_hop, &neigh))
		return false;
	memcpy(mac, neigh.mac, 6);
	d->stale = neigh.stale;
	return true;
}

static bool rules_want_os(const struct udp_sock *s, const struct udp_tx *t)
{
	struct sockaddr_in6 local = {
		.sin6_family = AF_INET6, .sin6_port = htons(s->lport), .sin6_addr = s->local};

	if (t->to_peer)
		return rules_match(RULE_UDP_CONNECT, t->addr, (struct sockaddr *)&local) == RULE_OS;
	return rules_match(RULE_UDP_SENDER, t->addr, NULL) == RULE_OS;
}

/* The addresses of d's headers. False: none that the datagram could come from. */
static bool find_source(const struct udp_sock *s, const struct net_route_query *q,
			const struct net_route *r, bool v4, struct udp_hdr_spec *spec)
{
	bool chosen = IN6_IS_ADDR_UNSPECIFIED(&q->src) || sock_addr_is_multicast(&q->src);

	spec->src = chosen ? r->prefsrc : q->src;
	if (IN6_IS_ADDR_UNSPECIFIED(&spec->src) || IN6_IS_ADDR_V4MAPPED(&spec->src) != v4)
		return false;
	if (sock_addr_is_multicast(&q->dst) && v4 && !IN6_IS_ADDR_UNSPECIFIED(&s->o.mc_if_addr) &&
	    IN6_IS_ADDR_UNSPECIFIED(&q->src))
		spec->src = s->o.mc_if_addr;
	spec->dst = q->dst;
	return true;
}

/* TTL and TOS of the socket's options, or of c. */
static void find_fields(const struct udp_sock *s, const struct udp_ctl *c, bool v4,
			struct udp_hdr_spec *spec)
{
	int ttl = !c ? -1 : v4 ? c->ttl : c->hops6, tos = !c ? -1 : v4 ? c->tos : c->tclass6;

	if (ttl >= 0)
		spec->ttl = (uint8_t)ttl;
	else if (sock_addr_is_multicast(&spec->dst))
		spec->ttl = v4 ? s->o.mc_ttl : s->o.mc_hops6;
	else
		spec->ttl = v4 ? s->o.ttl : s->o.hops6;
	if (tos >= 0)
		spec->tos = (uint8_t)tos;
	else
		spec->tos = v4 ? s->o.tos : s->o.tclass6;
}

/* What fits into one frame, the headers of d made. False: nothing. */
static bool find_room(struct udp_dst *d, const struct net_route *r, const struct net_link *link)
{
	uint32_t mtu = r->mtu && r->mtu < link->mtu ? r->mtu : link->mtu;

	if (params.mtu > 0 && (uint32_t)params.mtu < mtu)
		mtu = (uint32_t)params.mtu;
	if (mtu + 14u < d->hdr.len)
		return false;
	d->max_payload = mtu + 14u - d->hdr.len;
	if (d->max_payload > UDP_PAYLOAD_MAX)
		d->max_payload = UDP_PAYLOAD_MAX;
	return true;
}

/*
 * Fills d (but for st); c: NULL, or what ancillary data says. Returns the stack, or NULL when the
 * kernel must send, and why.
 */
static struct stack *resolve(struct udp_sock *s, const struct udp_tx *t, const struct udp_ctl *c,
			     struct udp_dst *d, struct vma_stats_why *why)
{
	struct net_route_query q = {.oif = 0};
	struct udp_hdr_spec spec = {.family = AF_INET};
	struct net_route r;
	struct net_link link;
	struct stack *st;
	uint32_t scope;
	bool v4;

	d->net_gen = net_generation();
	d->neigh_gen = net_neigh_generation();
	d->opt_gen = atomic_load_explicit(&s->opt_gen, memory_order_relaxed);
	d->tick = atomic_load_explicit(&udp_tick, memory_order_relaxed);
	if (!sock_addr_get(t->addr, t->alen, &q.dst, &spec.dport, &scope) || !spec.dport)
		return NULL;
	v4 = IN6_IS_ADDR_V4MAPPED(&q.dst);
	if (v4 ? s->domain == AF_INET6 && s->o.v6only : s->domain == AF_INET)
		return NULL;
	q.dport = spec.dport;
	if (IN6_IS_ADDR_UNSPECIFIED(&q.dst) || !make_query(s, c, scope, v4, &q))
		return NULL;
	why->reason = rules_want_os(s, t) ? VMA_WHY_RULE : find_route(s, c, &q, v4, &r);
	if (why->reason)
		return NULL;
	if (net_link_get(r.oif, &link) || !(st = udp_sender(s, r.oif))) {
		*why = stack_why_not(r.oif);
		return NULL;
	}
	why->reason = VMA_WHY_NEIGHBOUR;
	if (!find_mac(d, &r, &q.dst, &link, spec.dmac))
		return NULL;
	why->reason = VMA_WHY_ADDRESS;
	memcpy(spec.smac, link.mac, 6);
	spec.family = v4 ? AF_INET : AF_INET6;
	if (!find_source(s, &q, &r, v4, &spec))
		return NULL;
	spec.sport = s->lport;
	spec.df = s->o.df_always || (s->o.df && !r.metrics.mtu_locked);
	find_fields(s, c, v4, &spec);
	udp_hdr_init(&d->hdr, &spec);
	why->reason = VMA_WHY_MTU;
	if (!find_room(d, &r, &link))
		return NULL;
	d->ifindex = link.ifindex;
	memcpy(d->key, t->addr, t->alen);
	d->key_len = (uint8_t)t->alen;
	return st;
}

/* Enters a resolved destination where try_send() looks. */
static void publish(const struct udp_sock *s, struct udp_dst *to, const struct udp_dst *d,
		    struct stack *st)
{
	struct stack *old = atomic_load_explicit(&to->st, memory_order_relaxed);
	uint16_t ip_id;

	if (old) {
		lock_take(&old->lock);
		atomic_store_explicit(&to->st, NULL, memory_order_relaxed);
		lock_drop(&old->lock);
	}
	lock_take(&st->lock);
	to->net_gen = d->net_gen;
	to->neigh_gen = d->neigh_gen;
	to->tick = d->tick;
	to->opt_gen = d->opt_gen;
	to->max_payload = d->max_payload;
	to->key_len = d->key_len;
	memcpy(to->key, d->key, sizeof(to->key));
	to->ifindex = d->ifindex;
	to->stale = d->stale;
	udp_dst_fast_path(to, s);
	to->next_hop = d->next_hop;
	/* RFC 6864, 4.3: a route that is looked up again does not repeat identifications. */
	ip_id = to->hdr.ip_id;
	to->hdr = d->hdr;
	to->hdr.ip_id = ip_id;
	atomic_store_explicit(&to->st, st, memory_order_release);
	lock_drop(&st->lock);
}

/* VMA_WAIT_AFTER_JOIN_MSEC: what goes to a group waits for so long since the socket's last join. */
static void wait_after_join(const struct udp_sock *s, const struct udp_tx *t)
{
	uint64_t joined = atomic_load_explicit(&s->joined_ns, memory_order_relaxed),
		 end = joined + (uint64_t)params.wait_after_join_msec * 1000000u,
		 now = clock_monotonic_ns();
	struct in6_addr dst;
	uint16_t port;
	uint32_t scope;

	if (joined && now < end && sock_addr_get(t->addr, t->alen, &dst, &port, &scope) &&
	    sock_addr_is_multicast(&dst))
		clock_sleep_ns(end - now);
}

/* Locks s for finding where t goes. False: nothing is locked, and the kernel must send. */
static bool begin(struct udp_sock *s, int fd, struct udp_tx *t, int *cancel)
{
	if (__builtin_expect(params.wait_after_join_msec, 0))
		wait_after_join(s, t);
	if (lock_mine(&s->lock))
		return false;
	udp_begin(s, fd);
	*cancel = udp_lock(s);
	if (!atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		udp_unlock(s, *cancel);
		/* closed by another thread: the kernel says what there is to say about fd */
		return false;
	}
	if (t->to_peer) /* it may have changed since */
		t->alen = udp_tx_peer(s, t);
	libc_internal_begin();
	return true;
}

static void end(struct udp_sock *s, int fd, int cancel, struct vma_stats_why why)
{
	stats_why(s->stats, fd, VMA_WHY_TX, why);
	libc_internal_end();
	udp_unlock(s, cancel);
}

bool udp_resolve(struct udp_sock *s, int fd, struct udp_tx *t)
{
	struct vma_stats_why why = STATS_WHY(ADDRESS);
	struct udp_dst d = {.stale = false};
	struct udp_dst *dsts;
	struct stack *st = NULL;
	int cancel;

	if (!begin(s, fd, t, &cancel))
		return false;
	dsts = atomic_load_explicit(&s->dsts, memory_order_relaxed);
	if (!dsts) {
		dsts = calloc(UDP_DST_WAYS, sizeof(*dsts));
		atomic_store_explicit(&s->dsts, dsts, memory_order_release);
	}
	if (dsts && !udp_autobind(s, fd))
		st = resolve(s, t, NULL, &d, &why);
	if (st) {
		publish(s, udp_dst_slot(dsts, t->addr, t->alen), &d, st);
		why = STATS_WHY(NONE);
	}
	end(s, fd, cancel, why);
	return st != NULL;
}

/*
 * RFC 6864, 4.3: identifications that do not repeat soon, of datagrams whose headers are used once.
 * Remembered destinations count from 0.
 */
static uint16_t once_ids(const struct udp_tx *t)
{
	static _Atomic uint16_t next = 0x8000;
	size_t n = t->gso_size && t->len > t->gso_size ? (t->len - 1) / t->gso_size + 1 : 1;

	return atomic_fetch_add_explicit(&next, (uint16_t)n, memory_order_relaxed);
}

bool udp_resolve_once(struct udp_sock *s, int fd, struct udp_tx *t, const struct udp_ctl *c,
		      struct udp_dst *d)
{
	struct vma_stats_why why = STATS_WHY(ADDRESS);
	struct stack *st = NULL;
	int cancel;

	if (!begin(s, fd, t, &cancel))
		return false;
	if (!udp_autobind(s, fd))
		st = resolve(s, t, c, d, &why);
	if (st) {
		why = STATS_WHY(NONE);
		d->hdr.ip_id = once_ids(t);
		if (d->stale)
			net_neigh_confirm(d->ifindex, &d->next_hop);
	}
	atomic_store_explicit(&d->st, st, memory_order_relaxed);
	end(s, fd, cancel, why);
	return st != NULL;
}
