/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a connection's frames go: the kernel's route and neighbour made into a prebuilt header. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

/* After so many seconds without a segment a socket's path is given back; the next one makes it again. */
#define WAY_REST 10u

int tsock_route(const struct tsock *s, const struct in6_addr *src, const struct in6_addr *dst, int oif, struct net_route *r)
{
	struct net_route_query q = { .dst = *dst, .src = *src, .oif = oif ? oif : s->bound_if, .mark = s->mark };

	return net_route_get(&q, r);
}

/* The MAC that frames for dst go to. -EAGAIN: the kernel has been asked to find it. */
static int find_mac(struct tsock_path *p, const struct net_route *r, const struct in6_addr *dst, const struct net_link *link,
		    uint8_t mac[6])
{
	struct net_neigh neigh;

	if (link->kind == NET_LINK_LOOPBACK) {
		memset(mac, 0, 6);
		return 0;
	}
	p->next_hop = IN6_IS_ADDR_UNSPECIFIED(&r->gateway) ? *dst : r->gateway;
	if (net_neigh_get(link->ifindex, &p->next_hop, &neigh)) {
		net_neigh_resolve(link->ifindex, &p->next_hop);
		return -EAGAIN;
	}
	memcpy(mac, neigh.mac, 6);
	p->stale = neigh.stale;
	return 0;
}

int tsock_path_make(struct stack *st, const struct tcp_tuple *t, uint32_t mark, uint8_t ttl, struct tsock_path *p)
{
	struct net_route_query q = { .dst = t->remote, .src = t->local, .oif = st->ifindex, .mark = mark };
	struct tcp_frame_spec spec = { .family = t->family, .ttl = ttl ? ttl : 64, .df = true, .src = t->local, .dst = t->remote };
	struct net_route r;
	struct net_link link;
	int err;

	p->valid = false;
	p->stale = false;
	p->net_gen = net_generation();
	p->neigh_gen = net_neigh_generation();
	libc_internal++;
	err = net_route_get(&q, &r);
	if (!err && (r.type == NET_ROUTE_LOCAL ? !params.offload_loopback : r.type != NET_ROUTE_UNICAST))
		err = -EHOSTUNREACH;
	if (!err && (r.oif != st->ifindex || net_link_get(r.oif, &link)))
		err = -ENETUNREACH;
	if (!err) {
		p->mtu = r.mtu && r.mtu < link.mtu ? r.mtu : link.mtu;
		if (params.mtu > 0 && (uint32_t)params.mtu < p->mtu)
			p->mtu = (uint32_t)params.mtu;
		err = find_mac(p, &r, &t->remote, &link, spec.dmac);
	}
	libc_internal--;
	if (err)
		return err;
	memcpy(spec.smac, link.mac, 6);
	tcp_frame_init(&p->hdr, &spec);
	p->valid = true;
	return 0;
}

/* --- the paths of sockets */

static void way_unlink(struct tsock_stack *t, struct tsock_way *w)
{
	*(w->prev ? &w->prev->next : &t->ways_first) = w->next;
	*(w->next ? &w->next->prev : &t->ways_last) = w->prev;
}

static void way_link(struct tsock_stack *t, struct tsock_way *w)
{
	w->prev = NULL;
	w->next = t->ways_first;
	*(w->next ? &w->next->prev : &t->ways_last) = w;
	t->ways_first = w;
	w->used = t->seconds;
}

struct tsock_path *tsock_way_slow(struct tsock_stack *t, struct tsock *s)
{
	struct tsock_way *w = s->way;

	if (w) {
		way_unlink(t, w);
	} else {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->s = s;
		s->way = w;
	}
	way_link(t, w);
	return &w->path;
}

void tsock_way_renew(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);

	if (!st)
		return;
	if (s->way)
		s->way->path.valid = false;
	lock_drop(&st->lock);
}

void tsock_way_drop(struct tsock_stack *t, struct tsock *s)
{
	struct tsock_way *w = s->way;

	if (!w)
		return;
	s->way = NULL;
	way_unlink(t, w);
	free(w);
}

void tsock_ways_rest(struct tsock_stack *t)
{
	t->seconds++;
	while (t->ways_last && t->seconds - t->ways_last->used > WAY_REST)
		tsock_way_drop(t, t->ways_last->s);
}

void tsock_ways_free(struct tsock_stack *t)
{
	while (t->ways_last)
		tsock_way_drop(t, t->ways_last->s);
}
