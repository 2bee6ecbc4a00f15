/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Multicast membership: the kernel joins (IGMP and MLD are its), user space steers and filters by
 * source (RFC 3678).
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/udp/internal.h"

/* One membership request in one form. */
struct request {
	enum { JOIN, LEAVE, JOIN_SOURCE, LEAVE_SOURCE, BLOCK, UNBLOCK } what;
	struct in6_addr group, source;
	int ifindex; /* 0: the kernel chose by route */
	struct in6_addr if_addr; /* IPv4's other way to name it; :: none */
};

static void map_v4(struct in6_addr *to, const struct in_addr *v4)
{
	memset(to, 0, sizeof(*to));
	if (v4->s_addr == INADDR_ANY)
		return;
	to->s6_addr[10] = to->s6_addr[11] = 0xff;
	memcpy(&to->s6_addr[12], v4, 4);
}

static bool from_mreq(struct request *r, int opt, const void *val, socklen_t len)
{
	struct ip_mreqn m = {.imr_ifindex = 0};

	if (len < sizeof(struct ip_mreq))
		return false;
	memcpy(&m, val, len < sizeof(m) ? sizeof(struct ip_mreq) : sizeof(m));
	r->what = opt == IP_ADD_MEMBERSHIP ? JOIN : LEAVE;
	map_v4(&r->group, &m.imr_multiaddr);
	map_v4(&r->if_addr, &m.imr_address);
	r->ifindex = m.imr_ifindex;
	return true;
}

static bool from_mreq_source(struct request *r, int opt, const void *val, socklen_t len)
{
	struct ip_mreq_source m;

	if (len < sizeof(m))
		return false;
	memcpy(&m, val, sizeof(m));
	r->what = opt == IP_ADD_SOURCE_MEMBERSHIP    ? JOIN_SOURCE
		  : opt == IP_DROP_SOURCE_MEMBERSHIP ? LEAVE_SOURCE
		  : opt == IP_BLOCK_SOURCE	     ? BLOCK
						     : UNBLOCK;
	map_v4(&r->group, &m.imr_multiaddr);
	map_v4(&r->if_addr, &m.imr_interface);
	map_v4(&r->source, &m.imr_sourceaddr);
	return true;
}

static bool from_group_req(struct request *r, int opt, const void *val, socklen_t len)
{
	struct group_source_req m;
	uint16_t port;
	uint32_t scope;
	bool with_source = opt != MCAST_JOIN_GROUP && opt != MCAST_LEAVE_GROUP;

	memset(&m, 0, sizeof(m));
	if (len < (with_source ? sizeof(m) : sizeof(struct group_req)))
		return false;
	memcpy(&m, val, with_source ? sizeof(m) : sizeof(struct group_req));
	r->what = opt == MCAST_JOIN_GROUP	    ? JOIN
		  : opt == MCAST_LEAVE_GROUP	    ? LEAVE
		  : opt == MCAST_JOIN_SOURCE_GROUP  ? JOIN_SOURCE
		  : opt == MCAST_LEAVE_SOURCE_GROUP ? LEAVE_SOURCE
		  : opt == MCAST_BLOCK_SOURCE	    ? BLOCK
						    : UNBLOCK;
	r->ifindex = (int)m.gsr_interface;
	return sock_addr_get((struct sockaddr *)&m.gsr_group, sizeof(m.gsr_group), &r->group, &port,
			     &scope) &&
	       (!with_source || sock_addr_get((struct sockaddr *)&m.gsr_source,
					      sizeof(m.gsr_source), &r->source, &port, &scope));
}

static bool from_mreq6(struct request *r, int opt, const void *val, socklen_t len)
{
	struct ipv6_mreq m;

	if (len < sizeof(m))
		return false;
	memcpy(&m, val, sizeof(m));
	r->what = opt == IPV6_JOIN_GROUP ? JOIN : LEAVE;
	r->group = m.ipv6mr_multiaddr;
	r->ifindex = (int)m.ipv6mr_interface;
	return true;
}

static bool parse(struct request *r, int level, int opt, const void *val, socklen_t len)
{
	memset(r, 0, sizeof(*r));
	switch (opt) {
	case MCAST_JOIN_GROUP:
	case MCAST_LEAVE_GROUP:
	case MCAST_JOIN_SOURCE_GROUP:
	case MCAST_LEAVE_SOURCE_GROUP:
	case MCAST_BLOCK_SOURCE:
	case MCAST_UNBLOCK_SOURCE:
		return from_group_req(r, opt, val, len);
	default:
		break;
	}
	if (level == IPPROTO_IPV6)
		return from_mreq6(r, opt, val, len);
	return opt == IP_ADD_MEMBERSHIP || opt == IP_DROP_MEMBERSHIP
		       ? from_mreq(r, opt, val, len)
		       : from_mreq_source(r, opt, val, len);
}

/* The interface that the kernel took for a request which named none: it knows of no mark there. */
static int chosen_if(const struct request *r)
{
	struct net_route_query q = {.dst = r->group};
	struct net_route route;

	if (r->ifindex)
		return r->ifindex;
	if (!IN6_IS_ADDR_UNSPECIFIED(&r->if_addr))
		return net_addr_ifindex(&r->if_addr);
	/* It has looked just now: a change of the routes that we are yet to hear of counts. */
	net_routes_expire();
	return net_route_get(&q, &route) ? 0 : route.oif;
}

static struct udp_group *find(struct udp_sock *s, const struct in6_addr *group, int ifindex)
{
	for (unsigned i = 0; i < s->num_groups; i++) {
		if (s->groups[i].ifindex == ifindex && !memcmp(&s->groups[i].group, group, 16))
			return &s->groups[i];
	}
	return NULL;
}

static struct udp_group *group_new(struct udp_sock *s, const struct in6_addr *group, int ifindex,
				   bool exclude)
{
	struct udp_group *g = realloc(s->groups, (s->num_groups + 1) * sizeof(*g));

	if (!g)
		return NULL;
	s->groups = g;
	g = &s->groups[s->num_groups++];
	*g = (struct udp_group){.group = *group, .ifindex = ifindex, .exclude = exclude};
	return g;
}

static void group_drop(struct udp_sock *s, struct udp_group *g)
{
	free(g->sources);
	*g = s->groups[--s->num_groups];
}

static bool source_add(struct udp_group *g, const struct in6_addr *source)
{
	struct in6_addr *n = realloc(g->sources, (g->num_sources + 1) * sizeof(*n));

	if (!n)
		return false;
	g->sources = n;
	g->sources[g->num_sources++] = *source;
	return true;
}

static void source_drop(struct udp_group *g, const struct in6_addr *source)
{
	for (unsigned i = 0; i < g->num_sources; i++) {
		if (!memcmp(&g->sources[i], source, 16)) {
			g->sources[i] = g->sources[--g->num_sources];
			return;
		}
	}
}

/* The kernel has said yes to r; the list follows. */
static bool apply(struct udp_sock *s, const struct request *r, int ifindex)
{
	struct udp_group *g = find(s, &r->group, ifindex);

	switch (r->what) {
	case JOIN:
		return g || group_new(s, &r->group, ifindex, true);
	case LEAVE:
		if (g)
			group_drop(s, g);
		return true;
	case JOIN_SOURCE:
		if (!g)
			g = group_new(s, &r->group, ifindex, false);
		/* Nothing was excluded: from now on only the named ones come (ip_mc_source()). */
		if (g && g->exclude && !g->num_sources)
			g->exclude = false;
		return g && source_add(g, &r->source);
	case LEAVE_SOURCE:
		if (g)
			source_drop(g, &r->source);
		if (g && !g->exclude && !g->num_sources)
			group_drop(s, g);
		return true;
	case BLOCK:
		return g && source_add(g, &r->source);
	default:
		if (g)
			source_drop(g, &r->source);
		return true;
	}
}

static void show(struct udp_sock *s)
{
	unsigned n = s->num_groups < VMA_STATS_GROUPS ? s->num_groups : VMA_STATS_GROUPS;

	for (unsigned i = 0; i < n; i++)
		memcpy(s->stats->groups[i].byte, &s->groups[i].group, 16);
	__atomic_store_n(&s->stats->num_groups, n, __ATOMIC_RELEASE);
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (struct stack *const *)a,
		  y = (uintptr_t) * (struct stack *const *)b;

	return (x > y) - (x < y);
}

bool udp_membership(struct udp_sock *s, int level, int opt, const void *val, socklen_t len)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);
	struct stack *held[UDP_ATT_MAX];
	struct request r;
	int ifindex;
	bool ok;

	if (!parse(&r, level, opt, val, len))
		return false;
	ifindex = chosen_if(&r);
	if (!ifindex)
		return false;
	/*
	 * The packet path reads the list under its stack's lock: all of them are held, in the order
	 * that every socket has.
	 */
	for (unsigned i = 0; i < n; i++)
		held[i] = atomic_load_explicit(&udp_att(s, i)->st, memory_order_relaxed);
	qsort(held, n, sizeof(held[0]), by_address);
	for (unsigned i = 0; i < n; i++)
		lock_take(&held[i]->lock);
	ok = apply(s, &r, ifindex);
	while (n)
		lock_drop(&held[--n]->lock);
	show(s);
	if (params.wait_after_join_msec && (r.what == JOIN || r.what == JOIN_SOURCE)) {
		atomic_store_explicit(&s->joined_ns, clock_monotonic_ns(), memory_order_relaxed);
		/* The next send looks for its way anew, and there it waits. */
		atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
	}
	return ok;
}

bool udp_mc_accepts(const struct udp_sock *s, const struct buf_meta *m)
{
	for (unsigned i = 0; i < s->num_groups; i++) {
		const struct udp_group *g = &s->groups[i];
		bool listed = false;

		if (g->ifindex != (int)m->ifindex || memcmp(&g->group, &m->dst, 16) != 0)
			continue;
		for (unsigned k = 0; k < g->num_sources && !listed; k++)
			listed = !memcmp(&g->sources[k], &m->src, 16);
		return listed != g->exclude;
	}
	/* Not a member: IP_MULTICAST_ALL lets in what others on this host have joined. */
	return m->family == AF_INET ? s->o.mc_all : s->o.mc_all6;
}

void udp_groups_free(struct udp_sock *s)
{
	while (s->num_groups)
		group_drop(s, &s->groups[s->num_groups - 1]);
	free(s->groups);
	s->groups = NULL;
}
