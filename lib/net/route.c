/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Routes are not mirrored: the kernel is asked, so that rules, marks, metrics and exceptions are
 * honoured, and the answer (errors too) is kept until the generation changes. By the ports, too,
 * while there is a rule that looks at them; else one answer serves all connections with a host.
 */
#include "net/mirror.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netlink/netlink.h>
#include <stddef.h>
#include <stdlib.h>

#include "net/hash.h"
#include "runtime/runtime.h"

#define CACHE_MAX 1024
#define REQUEST_MAX 256

struct route_rec {
	struct net_route_query q; /* its padding is 0 */
	struct net_route route;
	int32_t err;
	uint32_t unused; /* 0 */
	uint64_t gen;
};
TABLE_CHECK(struct route_rec, route);
_Static_assert(sizeof(struct net_route_query) % 8 == 0, "nothing stands between it and the route");

static struct net_table cache =
	TABLE_INIT(struct route_rec, route, offsetof(struct route_rec, route));

/* Counts net_routes_expire(): answers of an earlier epoch are asked for anew. */
static _Atomic uint32_t epoch;

static _Atomic bool by_port;

/* Under the cache's lock. */
static struct nl_sock *sock;
static struct nl_cb *callbacks;

struct answer {
	struct route_rec *r;
	uint32_t seq;
	bool done; /* r->route and r->err are filled */
};

static int route_err(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg);
static int route_valid(struct nl_msg *msg, void *arg);
/* The question under way; under the cache's lock like the socket. */
static struct answer asked;

int route_start(void)
{
	sigset_t old;
	int err = 0;

	net_table_lock(&cache, &old);
	sock = mirror_sock_open();
	if (!sock)
		err = -errno;
	callbacks = nl_cb_alloc(NL_CB_DEFAULT);
	if (!err && !callbacks)
		err = -ENOMEM;
	if (!err) {
		nl_cb_set(callbacks, NL_CB_VALID, NL_CB_CUSTOM, route_valid, NULL);
		nl_cb_err(callbacks, NL_CB_CUSTOM, route_err, NULL);
	}
	net_table_unlock(&cache, &old);
	if (err)
		log_error("net: no netlink socket for routes: %s", strerror(-err));
	return err;
}

static bool all(const void *rec, void *arg)
{
	(void)rec;
	(void)arg;
	return true;
}

void route_stop(void)
{
	sigset_t old;

	net_table_lock(&cache, &old);
	if (sock)
		nl_socket_free(sock);
	sock = NULL;
	if (callbacks)
		nl_cb_put(callbacks);
	callbacks = NULL;
	net_table_sweep(&cache, all, NULL);
	net_table_unlock(&cache, &old);
}

void route_forked(void)
{
	if (sock)
		own_fd_close(nl_socket_get_fd(sock));
	sock = NULL;
	callbacks = NULL;
	net_table_forked(&cache);
}

static int route_err(struct sockaddr_nl *from, struct nlmsgerr *e, void *arg)
{
	(void)from;
	(void)arg;
	if (e->msg.nlmsg_seq == asked.seq) {
		asked.r->err = e->error;
		asked.done = true;
	}
	return NL_STOP;
}

/* What the kernel's own send would fail with for a route of this type; 0: a usable type. */
static int type_of(uint8_t rtm_type, enum net_route_type *type)
{
	switch (rtm_type) {
	case RTN_UNICAST:
		*type = NET_ROUTE_UNICAST;
		return 0;
	case RTN_LOCAL:
	case RTN_ANYCAST:
		*type = NET_ROUTE_LOCAL;
		return 0;
	case RTN_BROADCAST:
		*type = NET_ROUTE_BROADCAST;
		return 0;
	case RTN_MULTICAST:
		*type = NET_ROUTE_MULTICAST;
		return 0;
	}
	*type = NET_ROUTE_UNREACHABLE;
	switch (rtm_type) {
	case RTN_BLACKHOLE:
		return -EINVAL;
	case RTN_PROHIBIT:
		return -EACCES;
	case RTN_UNREACHABLE:
		return -EHOSTUNREACH;
	}
	return -ENETUNREACH;
}

static uint32_t metric(struct nlattr **tb, int which)
{
	return tb[which] ? nla_get_u32(tb[which]) : 0;
}

static uint16_t as_u16(uint32_t v)
{
	return v < UINT16_MAX ? (uint16_t)v : UINT16_MAX;
}

static void metrics_fill(struct nlattr *metrics, struct net_route *route)
{
	static const struct nla_policy policy[RTAX_MAX + 1] = {
		[RTAX_LOCK] = {.type = NLA_U32},       [RTAX_MTU] = {.type = NLA_U32},
		[RTAX_WINDOW] = {.type = NLA_U32},     [RTAX_ADVMSS] = {.type = NLA_U32},
		[RTAX_INITCWND] = {.type = NLA_U32},   [RTAX_RTO_MIN] = {.type = NLA_U32},
		[RTAX_INITRWND] = {.type = NLA_U32},   [RTAX_QUICKACK] = {.type = NLA_U32},
		[RTAX_CC_ALGO] = {.type = NLA_STRING},
	};
	struct net_metrics *m = &route->metrics;
	struct nlattr *tb[RTAX_MAX + 1];
	uint32_t lock;

	if (!metrics || nla_parse_nested(tb, RTAX_MAX, metrics, policy))
		return;
	lock = metric(tb, RTAX_LOCK);
	route->mtu = metric(tb, RTAX_MTU);
	m->window = metric(tb, RTAX_WINDOW);
	m->advmss = as_u16(metric(tb, RTAX_ADVMSS));
	m->initcwnd = as_u16(metric(tb, RTAX_INITCWND));
	m->initrwnd = as_u16(metric(tb, RTAX_INITRWND));
	m->quickack = metric(tb, RTAX_QUICKACK) != 0;
	m->mtu_locked = lock & 1u << RTAX_MTU;
	/* The kernel's TCP looks at it only where it is locked; ip(8) locks it. */
	if (lock & 1u << RTAX_RTO_MIN)
		m->rto_min_ms = metric(tb, RTAX_RTO_MIN);
	if (tb[RTAX_CC_ALGO])
		nla_strlcpy(m->congctl, tb[RTAX_CC_ALGO], sizeof(m->congctl));
}

/* An IPv4 route may have an IPv6 gateway (RFC 5549): RTA_VIA. */
static void gateway_of(int family, struct nlattr **tb, struct in6_addr *out)
{
	const struct rtvia *via;

	if (attr_addr(family, tb[RTA_GATEWAY], out) || !tb[RTA_VIA])
		return;
	via = nla_data(tb[RTA_VIA]);
	if (nla_len(tb[RTA_VIA]) == (int)(sizeof(*via) + 16) && via->rtvia_family == AF_INET6)
		memcpy(out, via->rtvia_addr, 16);
}

static void route_fill(const struct rtmsg *rtm, struct nlattr **tb, const struct net_route_query *q,
		       struct net_route *route, int *err)
{
	const struct rta_cacheinfo *info;

	*err = type_of(rtm->rtm_type, &route->type);
	if (*err && tb[RTA_CACHEINFO]) {
		/* IPv6 answers with a route that carries the error. */
		info = nla_data(tb[RTA_CACHEINFO]);
		if (info->rta_error)
			*err = -abs((int)info->rta_error);
	}
	if (tb[RTA_OIF])
		route->oif = (int)nla_get_u32(tb[RTA_OIF]);
	if (IN6_IS_ADDR_MULTICAST(&q->dst))
		route->type = NET_ROUTE_MULTICAST;
	if (route->type == NET_ROUTE_UNICAST)
		gateway_of(rtm->rtm_family, tb, &route->gateway);
	/*
	 * Some kernels give the destination itself as the gateway of a host route that is on link.
	 */
	if (!memcmp(&route->gateway, &q->dst, sizeof(route->gateway)))
		memset(&route->gateway, 0, sizeof(route->gateway));
	route->prefsrc = q->src;
	if (IN6_IS_ADDR_UNSPECIFIED(&q->src))
		attr_addr(rtm->rtm_family, tb[RTA_PREFSRC], &route->prefsrc);
	metrics_fill(tb[RTA_METRICS], route);
}

bool route_parse(struct nlmsghdr *h, const struct net_route_query *q, struct net_route *route,
		 int *err)
{
	static const struct nla_policy policy[RTA_MAX + 1] = {
		[RTA_OIF] = {.type = NLA_U32},
		[RTA_METRICS] = {.type = NLA_NESTED},
		[RTA_CACHEINFO] = {.minlen = sizeof(struct rta_cacheinfo)},
		[RTA_VIA] = {.minlen = sizeof(struct rtvia)},
	};
	struct nlattr *tb[RTA_MAX + 1];

	if (h->nlmsg_type != RTM_NEWROUTE ||
	    nlmsg_parse(h, sizeof(struct rtmsg), tb, RTA_MAX, policy))
		return false;
	route_fill(nlmsg_data(h), tb, q, route, err);
	route->multipath = tb[RTA_MULTIPATH] != NULL;
	return true;
}

static int route_valid(struct nl_msg *msg, void *arg)
{
	struct nlmsghdr *h = nlmsg_hdr(msg);

	(void)arg;
	/* A late answer to an earlier question is not it. */
	if (h->nlmsg_seq != asked.seq ||
	    !route_parse(h, &asked.r->q, &asked.r->route, &asked.r->err))
		return NL_SKIP;
	asked.done = true;
	return NL_OK;
}

static bool put_addr(struct nl_msg *msg, int type, int family, const struct in6_addr *a)
{
	if (family == AF_INET)
		return nla_put(msg, type, 4, &a->s6_addr[12]) == 0;
	return nla_put(msg, type, 16, a) == 0;
}

static struct nl_msg *request(const struct net_route_query *q, uint32_t flags)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(&q->dst), src = !IN6_IS_ADDR_UNSPECIFIED(&q->src);
	int family = v4 ? AF_INET : AF_INET6;
	struct rtmsg rtm = {
		.rtm_family = (uint8_t)family,
		.rtm_dst_len = v4 ? 32 : 128,
		.rtm_src_len = !src ? 0
			       : v4 ? 32
				    : 128,
		.rtm_tos = q->tos,
		.rtm_flags = flags,
	};
	struct nl_msg *msg = nlmsg_alloc_size(REQUEST_MAX);

	if (!msg)
		return NULL;
	if (!nlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, RTM_GETROUTE, 0, NLM_F_REQUEST) ||
	    nlmsg_append(msg, &rtm, sizeof(rtm), NLMSG_ALIGNTO) ||
	    !put_addr(msg, RTA_DST, family, &q->dst) ||
	    (src && !put_addr(msg, RTA_SRC, family, &q->src)) ||
	    (q->oif && nla_put_u32(msg, RTA_OIF, (uint32_t)q->oif)) ||
	    (q->mark && nla_put_u32(msg, RTA_MARK, q->mark)) ||
	    (q->proto && nla_put_u8(msg, RTA_IP_PROTO, q->proto)) ||
	    (q->sport && nla_put_u16(msg, RTA_SPORT, htons(q->sport))) ||
	    (q->dport && nla_put_u16(msg, RTA_DPORT, htons(q->dport)))) {
		nlmsg_free(msg);
		return NULL;
	}
	return msg;
}

/*
 * One question; the kernel has answered when send returns. 0 when r is filled. fib: asks for the
 * entry of the table, with all its next hops, instead of for what is to be done with a packet.
 * Cache's lock held.
 */
static int ask(struct route_rec *r, bool fib)
{
	struct nl_msg *msg = request(&r->q, fib ? RTM_F_FIB_MATCH : 0);
	int err;

	if (!msg)
		return -ENOMEM;
	nl_complete_msg(sock, msg);
	asked = (struct answer){.r = r, .seq = nlmsg_hdr(msg)->nlmsg_seq};
	err = nl_send(sock, msg);
	nlmsg_free(msg);
	/* Late answers of questions that were given up come first. */
	while (err >= 0 && !asked.done)
		err = nl_recvmsgs(sock, callbacks);
	if (asked.done)
		return 0;
	log_debug("net: RTM_GETROUTE: %s", nl_geterror(err));
	return err == -NLE_NOMEM ? -ENOMEM : -EIO;
}

/* Fills r from the kernel's answer. 0 when the answer, which may be an error, can be kept. */
static int route_fetch(struct route_rec *r)
{
	struct net_link link;
	struct route_rec fib;
	int err;

	if (!sock)
		return -ENETDOWN;
	err = ask(r, false);
	if (err)
		return err;
	if (r->err) {
		r->route.type = NET_ROUTE_UNREACHABLE;
		return 0;
	}
	err = net_link_get(r->route.oif, &link);
	if (err)
		return err; /* the event that tells of the link is still to come */
	/* A metric above what the link takes does not make it take more. */
	if (!r->route.mtu || r->route.mtu > link.mtu)
		r->route.mtu = link.mtu;
	if (r->route.type == NET_ROUTE_UNICAST) {
		fib = *r;
		err = ask(&fib, true);
		if (!err && !fib.err)
			r->route.multipath = fib.route.multipath;
		r->route.is_assumed = !err && fib.err && r->q.oif;
	}
	return 0;
}

/* Keeps an answer. Cache's lock held. Out of memory: it is asked again next time. */
static void route_keep(const struct route_rec *r)
{
	if (cache.used >= CACHE_MAX)
		net_table_evict(&cache);
	if (net_table_put(&cache, r) < 0)
		log_debug("net: out of memory: a route is not cached");
}

void net_routes_expire(void)
{
	atomic_fetch_add_explicit(&epoch, 1, memory_order_relaxed);
}

bool net_routes_by_port(void)
{
	return atomic_load_explicit(&by_port, memory_order_acquire);
}

void routes_by_port(bool yes)
{
	atomic_store_explicit(&by_port, yes, memory_order_release);
}

int net_route_get(const struct net_route_query *q, struct net_route *out)
{
	uint64_t gen = (uint64_t)atomic_load_explicit(&epoch, memory_order_relaxed) << 32 |
		       net_generation();
	struct route_rec r, hit;
	sigset_t old;
	int err;

	memset(&r, 0, sizeof(r));
	r.q.dst = q->dst;
	/* 0.0.0.0 leaves the source open in IPv4. */
	if (!IN6_IS_ADDR_V4MAPPED(&q->src) || v4_of(&q->src))
		r.q.src = q->src;
	r.q.oif = q->oif;
	r.q.mark = q->mark;
	r.q.tos = q->tos & 0xfc; /* ECN does not route */
	/* After the generation: such a rule is known before its own. */
	if (net_routes_by_port()) {
		r.q.proto = q->proto;
		r.q.sport = q->sport;
		r.q.dport = q->dport;
	}
	if (!IN6_IS_ADDR_UNSPECIFIED(&r.q.src) &&
	    IN6_IS_ADDR_V4MAPPED(&r.q.src) != IN6_IS_ADDR_V4MAPPED(&r.q.dst))
		return -EINVAL;
	if (net_table_find(&cache, &r, NULL, NULL, &hit) && hit.gen == gen) {
		*out = hit.route;
		return hit.err;
	}
	net_table_lock(&cache, &old);
	libc_internal_begin();
	r.gen = gen;
	err = route_fetch(&r);
	if (!err)
		route_keep(&r);
	libc_internal_end();
	net_table_unlock(&cache, &old);
	if (err)
		return err;
	*out = r.route;
	return r.err;
}
