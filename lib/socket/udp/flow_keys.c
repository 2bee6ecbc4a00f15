/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/udp/flow_keys.h"

#include <string.h>

#include "net/net.h"
#include "config/config.h"
#include "stack/stack.h"

static void add(struct udp_keys *keys, const struct udp_sock *s, const struct in6_addr *local,
		const struct in6_addr *remote, uint16_t rport)
{
	struct vma_flow_key *k = &keys->key[keys->num];

	if (keys->num == UDP_KEYS_MAX)
		return; /* the kernel serves what has no rule */
	memset(k, 0, sizeof(*k));
	memcpy(k->local.byte, local, 16);
	if (remote)
		memcpy(k->remote.byte, remote, 16);
	k->local_port = s->lport;
	k->remote_port = rport;
	k->proto = IPPROTO_UDP;
	keys->num++;
}

static bool family_fits(const struct udp_sock *s, const struct in6_addr *addr)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(addr);

	return s->domain == AF_INET ? v4 : !(v4 && s->o.v6only);
}

/*
 * VMA_UDP_3T_RULES, where rules are dear: what a bind() has set serves whatever peer a connect()
 * names, and the demultiplexer drops the others' datagrams. Not on a port that can be another
 * socket's, too.
 */
static bool of_any_peer(const struct udp_sock *s, int ifindex)
{
	const struct stack *st =
		params.udp_3t_rules && !udp_can_share(s) ? stack_any(ifindex) : NULL;

	return st && stack_ring(st)->caps.port_blocks;
}

/* The way to the peer of connect(). VMA_WHY_NONE, or why there is none. */
static enum vma_why peer_route(const struct udp_sock *s, struct in6_addr *peer, uint16_t *rport,
			       struct net_route *route)
{
	struct net_route_query q = {.mark = s->o.mark,
				    .oif = s->o.bound_if,
				    .src = s->local,
				    .proto = IPPROTO_UDP,
				    .sport = s->lport};
	union udp_addr a;
	socklen_t len = udp_peer_get(s, &a);
	uint32_t scope;

	if (!sock_addr_get(&a.sa, len, peer, rport, &scope) || sock_addr_is_multicast(peer))
		return VMA_WHY_ADDRESS;
	if (sock_addr_is_multicast(&s->local))
		return VMA_WHY_GROUP_CONNECTED;
	q.dst = *peer;
	q.dport = *rport;
	if (scope && IN6_IS_ADDR_LINKLOCAL(peer))
		q.oif = (int)scope;
	return net_route_get(&q, route) ? VMA_WHY_ROUTE : VMA_WHY_NONE;
}

/*
 * Packets of the peer come in where the route to it goes out; elsewhere the kernel takes them. But
 * where the port may be another socket's, too, which is bound and not connected, its rule would
 * bring them on any interface of the address, and to it.
 */
static bool comes_by(const struct udp_sock *s, const struct net_route *route, int ifindex,
		     bool loopback)
{
	if (route->type == NET_ROUTE_LOCAL)
		return loopback;
	if (route->type != NET_ROUTE_UNICAST)
		return false;
	return route->oif == ifindex || (!loopback && udp_can_share(s) && stack_any(ifindex) &&
					 stack_has_address(ifindex, &s->local));
}

static void connected_keys(const struct udp_sock *s, int ifindex, bool loopback,
			   struct udp_keys *keys)
{
	struct net_route route;
	struct in6_addr peer;
	uint16_t rport;

	if (peer_route(s, &peer, &rport, &route) || !comes_by(s, &route, ifindex, loopback))
		return;
	if (of_any_peer(s, ifindex))
		add(keys, s, &s->local, NULL, 0);
	else
		add(keys, s, &s->local, &peer, rport);
}

static void address_keys(const struct udp_sock *s, int ifindex, struct udp_keys *keys)
{
	struct in6_addr addrs[STACK_ADDRS_MAX];
	unsigned n = stack_addrs(ifindex, addrs, STACK_ADDRS_MAX);
	bool any = IN6_IS_ADDR_UNSPECIFIED(&s->local);

	for (unsigned i = 0; i < n; i++) {
		if (any ? family_fits(s, &addrs[i]) : !memcmp(&addrs[i], &s->local, 16))
			add(keys, s, &addrs[i], NULL, 0);
	}
}

static void group_keys(const struct udp_sock *s, int ifindex, struct udp_keys *keys)
{
	for (unsigned i = 0; i < s->num_groups; i++) {
		const struct udp_group *g = &s->groups[i];

		if (g->ifindex == ifindex &&
		    (IN6_IS_ADDR_UNSPECIFIED(&s->local) || !memcmp(&s->local, &g->group, 16)))
			add(keys, s, &g->group, NULL, 0);
	}
}

void udp_keys_make(const struct udp_sock *s, int ifindex, struct udp_keys *keys)
{
	struct net_link link;

	keys->num = 0;
	if ((s->o.bound_if && s->o.bound_if != ifindex) || !stack_wanted(ifindex) ||
	    net_link_get(ifindex, &link))
		return;
	if (s->connected) {
		connected_keys(s, ifindex, link.kind == NET_LINK_LOOPBACK, keys);
		return;
	}
	if (!sock_addr_is_multicast(&s->local))
		address_keys(s, ifindex, keys);
	group_keys(s, ifindex, keys);
}

static struct vma_stats_why why_not_peer(const struct udp_sock *s)
{
	struct vma_stats_why why = {0};
	struct net_route route;
	struct in6_addr peer;
	uint16_t rport;

	why.reason = peer_route(s, &peer, &rport, &route);
	if (why.reason)
		return why;
	if (route.type == NET_ROUTE_LOCAL)
		return STATS_WHY(LOCAL);
	return route.type == NET_ROUTE_UNICAST ? stack_why_not(route.oif) : STATS_WHY(ROUTE);
}

struct vma_stats_why udp_keys_why_none(const struct udp_sock *s)
{
	if (s->connected)
		return why_not_peer(s);
	if (!sock_addr_is_multicast(&s->local))
		return stack_why_unserved(&s->local, s->o.bound_if);
	for (unsigned i = 0; i < s->num_groups; i++) {
		if (!stack_any(s->groups[i].ifindex))
			return stack_why_not(s->groups[i].ifindex);
	}
	return STATS_WHY(NONE);
}
