/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a connection's frames go: the kernel's route and neighbour made into a prebuilt header. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

/*
 * After so many seconds without a segment a socket's path is given back; the next one makes it
 * again.
 */
#define PATH_IDLE_S 10u

int tcp_sock_route(const struct tcp_sock *s, struct net_route_query *q, struct net_route *r)
{
	q->proto = IPPROTO_TCP;
	q->mark = s->mark;
	if (!q->oif)
		q->oif = s->bound_if;
	return net_route_get(q, r);
}

/* The MAC that frames for dst go to. -EAGAIN: the kernel has been asked to find it. */
static int find_mac(struct tcp_sock_path *p, const struct net_route *r, const struct in6_addr *dst,
		    const struct net_link *link, uint8_t mac[6])
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

/*
 * The kernel's route, by the stack's interface where there is one: of several that are as good, it
 * is the one that the peer came by. If there is none, the segment leaves where any would.
 */
static int route_of(struct net_route_query *q, bool is_bound, struct net_route *r)
{
	struct net_route any;
	int err = net_route_get(q, r);

	if (is_bound || IN6_IS_ADDR_LINKLOCAL(&q->dst) || (!err && !r->is_assumed))
		return err;
	q->oif = 0;
	if (!net_route_get(q, &any) && any.type == NET_ROUTE_UNICAST) {
		*r = any;
		err = 0;
	}
	return err;
}

int tcp_sock_path_make(struct stack *st, const struct tcp_tuple *t, int bound_if, uint32_t mark,
		       uint8_t ttl, struct tcp_sock_path *p)
{
	struct net_route_query q = {
		.dst = t->remote,
		.src = t->local,
		.oif = st->ifindex,
		.mark = mark,
		.proto = IPPROTO_TCP,
		.sport = t->lport,
		.dport = t->rport,
	};
	struct tcp_frame_spec spec = {.family = t->family,
				      .ttl = ttl ? ttl : 64,
				      .df = true,
				      .src = t->local,
				      .dst = t->remote};
	struct net_route r;
	struct net_link link;
	int err;

	p->valid = p->stale = p->by_another = false;
	p->net_gen = net_generation();
	p->neigh_gen = net_neigh_generation();
	libc_internal_begin();
	err = route_of(&q, bound_if, &r);
	if (!err &&
	    (r.type == NET_ROUTE_LOCAL ? !params.offload_loopback : r.type != NET_ROUTE_UNICAST))
		err = -EHOSTUNREACH;
	if (!err && net_link_get(r.oif, &link))
		err = -ENETUNREACH;
	p->by_another = !err && r.oif != st->ifindex;
	p->oif = r.oif;
	if (!err) {
		spec.df = !r.metrics.mtu_locked;
		p->mtu = r.mtu && r.mtu < link.mtu ? r.mtu : link.mtu;
		if (params.mtu > 0 && (uint32_t)params.mtu < p->mtu)
			p->mtu = (uint32_t)params.mtu;
		if (!p->by_another)
			err = find_mac(p, &r, &t->remote, &link, spec.dmac);
	}
	libc_internal_end();
	if (err)
		return err;
	memcpy(spec.smac, link.mac, 6);
	tcp_frame_init(&p->hdr, &spec);
	p->valid = true;
	return 0;
}

/* --- the paths of sockets */

static void path_unlink(struct tcp_sock_stack *t, struct tcp_sock_path_cache *w)
{
	*(w->prev ? &w->prev->next : &t->paths_first) = w->next;
	*(w->next ? &w->next->prev : &t->paths_last) = w->prev;
}

static void path_link(struct tcp_sock_stack *t, struct tcp_sock_path_cache *w)
{
	w->prev = NULL;
	w->next = t->paths_first;
	*(w->next ? &w->next->prev : &t->paths_last) = w;
	t->paths_first = w;
	w->used = t->seconds;
}

struct tcp_sock_path *tcp_sock_path_get_slow(struct tcp_sock_stack *t, struct tcp_sock *s)
{
	struct tcp_sock_path_cache *w = s->path_cache;

	if (w) {
		path_unlink(t, w);
	} else {
		w = calloc(1, sizeof(*w));
		if (!w)
			return NULL;
		w->s = s;
		s->path_cache = w;
	}
	path_link(t, w);
	return &w->path;
}

void tcp_sock_path_renew(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);

	if (!st)
		return;
	if (s->path_cache)
		s->path_cache->path.valid = false;
	lock_drop(&st->lock);
}

void tcp_sock_path_drop(struct tcp_sock_stack *t, struct tcp_sock *s)
{
	struct tcp_sock_path_cache *w = s->path_cache;

	if (!w)
		return;
	s->path_cache = NULL;
	path_unlink(t, w);
	free(w);
}

void tcp_sock_paths_expire(struct tcp_sock_stack *t)
{
	t->seconds++;
	while (t->paths_last && t->seconds - t->paths_last->used > PATH_IDLE_S)
		tcp_sock_path_drop(t, t->paths_last->s);
}

void tcp_sock_paths_free(struct tcp_sock_stack *t)
{
	while (t->paths_last)
		tcp_sock_path_drop(t, t->paths_last->s);
}
