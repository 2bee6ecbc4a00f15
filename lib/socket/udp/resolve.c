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

/* The route's answer for this socket's options, or why the kernel socket must send. */
static enum vma_why find_route(struct udp_sock *s, struct net_route_query *q, uint32_t scope,
			       bool v4, struct net_route *r)
{
	bool multicast = sock_addr_is_multicast(&q->dst);

	q->src = s->local;
	q->mark = s->o.mark;
	q->tos = v4 ? s->o.tos : 0;
	q->oif = s->o.bound_if;
	if (scope && (IN6_IS_ADDR_LINKLOCAL(&q->dst) || IN6_IS_ADDR_MC_LINKLOCAL(&q->dst)))
		q->oif = (int)scope;
	if (multicast && !q->oif)
		q->oif = v4 ? s->o.mc_if : s->o.mc_if6;
	if (multicast && (v4 ? s->o.mc_loop : s->o.mc_loop6))
		/* who listens on this host is the kernel's knowledge: it makes the copies */
		return VMA_WHY_MULTICAST_LOOP;
	if (v4 && net_addr_is_broadcast(&q->dst))
		return VMA_WHY_BROADCAST;
	if (net_route_get(q, r))
		return VMA_WHY_ROUTE;
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
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);

	if (s->connected && t->addr == (const struct sockaddr *)&s->peer)
		return libc.getsockname(s->v.os_fd, (struct sockaddr *)&local, &len) ||
		       rules_match(RULE_UDP_CONNECT, t->addr, (struct sockaddr *)&local) == RULE_OS;
	return rules_match(RULE_UDP_SENDER, t->addr, NULL) == RULE_OS;
}

/* Fills d (but for st); returns the stack, or NULL when the kernel must send, and why. */
static struct stack *resolve(struct udp_sock *s, const struct udp_tx *t, struct udp_dst *d,
			     struct vma_stats_why *why)
{
	struct net_route_query q = {.oif = 0};
	struct udp_hdr_spec spec = {.family = AF_INET};
	struct net_route r;
	struct net_link link;
	struct stack *st;
	uint32_t scope, mtu;
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
	if (IN6_IS_ADDR_UNSPECIFIED(&q.dst))
		return NULL;
	why->reason = rules_want_os(s, t) ? VMA_WHY_RULE : find_route(s, &q, scope, v4, &r);
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
	spec.src = IN6_IS_ADDR_UNSPECIFIED(&s->local) || sock_addr_is_multicast(&s->local)
			   ? r.prefsrc
			   : s->local;
	if (IN6_IS_ADDR_UNSPECIFIED(&spec.src) || IN6_IS_ADDR_V4MAPPED(&spec.src) != v4)
		return NULL;
	if (sock_addr_is_multicast(&q.dst) && v4 && !IN6_IS_ADDR_UNSPECIFIED(&s->o.mc_if_addr) &&
	    IN6_IS_ADDR_UNSPECIFIED(&s->local))
		spec.src = s->o.mc_if_addr;
	spec.dst = q.dst;
	spec.sport = s->lport;
	spec.df = s->o.df;
	if (sock_addr_is_multicast(&q.dst))
		spec.ttl = v4 ? s->o.mc_ttl : s->o.mc_hops6;
	else
		spec.ttl = v4 ? s->o.ttl : s->o.hops6;
	spec.tos = v4 ? s->o.tos : s->o.tclass6;
	udp_hdr_init(&d->hdr, &spec);
	mtu = r.mtu && r.mtu < link.mtu ? r.mtu : link.mtu;
	if (params.mtu > 0 && (uint32_t)params.mtu < mtu)
		mtu = (uint32_t)params.mtu;
	why->reason = VMA_WHY_MTU;
	if (mtu + 14u < d->hdr.len)
		return NULL;
	d->max_payload = mtu + 14u - d->hdr.len;
	if (d->max_payload > UDP_PAYLOAD_MAX)
		d->max_payload = UDP_PAYLOAD_MAX;
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

bool udp_resolve(struct udp_sock *s, int fd, const struct udp_tx *t)
{
	struct vma_stats_why why = STATS_WHY(ADDRESS);
	struct udp_dst d = {.stale = false};
	struct udp_dst *dsts;
	struct stack *st = NULL;
	int cancel;

	if (lock_mine(&s->lock))
		return false;
	udp_begin(s, fd);
	cancel = udp_lock(s);
	if (!atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		udp_unlock(s, cancel);
		/* closed by another thread: the kernel says what there is to say about fd */
		return false;
	}
	libc_internal_begin();
	dsts = atomic_load_explicit(&s->dsts, memory_order_relaxed);
	if (!dsts) {
		dsts = calloc(UDP_DST_WAYS, sizeof(*dsts));
		atomic_store_explicit(&s->dsts, dsts, memory_order_release);
	}
	if (dsts && !udp_autobind(s, fd))
		st = resolve(s, t, &d, &why);
	if (st) {
		publish(s, udp_dst_slot(dsts, t->addr, t->alen), &d, st);
		why = STATS_WHY(NONE);
	}
	stats_why(s->stats, fd, VMA_WHY_TX, why);
	libc_internal_end();
	udp_unlock(s, cancel);
	return st != NULL;
}
