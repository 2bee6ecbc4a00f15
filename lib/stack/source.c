/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which packets the kernel would not take in because of their addresses (martians): nobody on the
 * wire may pose as this host, nor the card. For IPv4 the kernel is asked once for each pair of
 * addresses; for IPv6 it only looks at the addresses themselves.
 */
#include "stack/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "net/net.h"
#include "runtime/runtime.h"

#define REFUSED_SECONDS 1

int stack_sources_init(struct stack *st, int ifindex, uint32_t seed)
{
	struct net_link link;

	/* Not an array of the struct's: what is never used is never touched. */
	if (!st->sources)
		st->sources = calloc(1u << STACK_SOURCE_BITS, sizeof(*st->sources));
	else
		memset(st->sources, 0, sizeof(*st->sources) << STACK_SOURCE_BITS);
	if (!st->sources) {
		log_error("out of memory for the sources seen on interface %d", ifindex);
		return -ENOMEM;
	}
	st->source_seed = seed | 1;
	st->is_loopback = !net_link_get(ifindex, &link) && link.kind == NET_LINK_LOOPBACK;
	return 0;
}

/* The kernel's ip6_rcv_core(). What loops back has passed its routes when it was sent. */
static bool ok_v6(const struct stack *st, const struct buf_meta *m)
{
	unsigned scope = m->dst.s6_addr[1] & 0xf;

	if (IN6_IS_ADDR_MULTICAST(&m->src) || (IN6_IS_ADDR_MULTICAST(&m->dst) && scope == 0))
		return false;
	if (st->is_loopback)
		return true;
	return !IN6_IS_ADDR_LOOPBACK(&m->src) && !IN6_IS_ADDR_LOOPBACK(&m->dst) &&
	       !(IN6_IS_ADDR_MULTICAST(&m->dst) && scope == 1);
}

/*
 * A datagram to a group that this host has sent: the kernel has given it to members here, if it
 * was to be looped. A card whose device two programs have open loops it once more (mlx5_ib,
 * local loop-back).
 */
static bool is_echo(const struct stack *st, const struct buf_meta *m)
{
	return m->multicast && st->ring->caps.hears_itself &&
	       net_addr_is_local(&m->src, st->ifindex);
}

static uint32_t now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint32_t)ts.tv_sec;
}

bool stack_source_ok_slow(struct stack *st, const struct buf_meta *m)
{
	uint32_t gen = net_generation(), src, dst;
	struct stack_source *e;
	int martian;

	if (is_echo(st, m))
		return false;
	if (m->family != AF_INET)
		return ok_v6(st, m);
	memcpy(&src, &m->src.s6_addr[12], sizeof(src));
	memcpy(&dst, &m->dst.s6_addr[12], sizeof(dst));
	e = stack_source(st, src, dst);
	if (e->src == src && e->dst == dst && e->gen == gen && e->refused_until > now_seconds())
		return false;
	martian = st->is_loopback ? 0 : net_is_martian(st->ifindex, src, dst);
	/*
	 * Of a group the kernel knows members and their sources, too, which change without an
	 * event: what it refuses is asked each time. What it was not asked is as before.
	 */
	if (martian < 0 || (martian && m->multicast))
		return martian < 0;
	*e = (struct stack_source){
		.src = src,
		.dst = dst,
		.gen = gen,
		.refused_until = martian ? now_seconds() + REFUSED_SECONDS : 0,
	};
	return !martian;
}
