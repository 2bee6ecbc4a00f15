/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Netlink messages as lib/net takes them: links, addresses, neighbours and answers to route
 * questions.
 */
#include <linux/rtnetlink.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/mirror.h"
#include "net/hash.h"
#include "runtime/libc.h"

static void ask_everything(const struct nlmsghdr *h)
{
	struct net_link_walk links = {.num = 0};
	int ifindex = 0, first;
	struct in6_addr addr = {0}, addrs[4];
	struct net_link link;
	struct net_neigh neigh;

	if (h->nlmsg_len >= NLMSG_HDRLEN + 8)
		memcpy(&ifindex, (const uint8_t *)h + NLMSG_HDRLEN + 4, 4);
	if (!net_link_get(ifindex, &link) &&
	    (strnlen(link.name, sizeof(link.name)) == sizeof(link.name) ||
	     strnlen(link.driver, sizeof(link.driver)) == sizeof(link.driver)))
		abort();
	first = net_link_next(&links);
	if (first && net_link_get(first, &link))
		abort();
	if (net_addr_list(0, addrs, 4)) {
		addr = addrs[0];
		if (!net_addr_is_local(&addr, 0) || !net_addr_ifindex(&addr))
			abort();
	}
	net_addr_is_broadcast(&addr);
	net_neigh_get(ifindex, &addr, &neigh);
}

static void one_message(struct nlmsghdr *h)
{
	struct net_route_query q = {
		.dst = {.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}}};
	struct net_route route = {0};
	int err;

	switch (h->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		link_input(h, 1);
		break;
	case RTM_NEWADDR:
	case RTM_DELADDR:
		addr_input(h, 1);
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		neigh_input(h, 1);
		break;
	case RTM_NEWROUTE:
		if (route_parse(h, &q, &route, &err) && err > 0)
			abort();
		break;
	}
	ask_everything(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t types[] = {RTM_NEWLINK,  RTM_DELLINK,  RTM_NEWADDR, RTM_DELADDR,
					 RTM_NEWNEIGH, RTM_DELNEIGH, RTM_NEWROUTE};
	struct nlmsghdr *h;

	libc_load();
	net_table_seed();
	/* A message: its type's number, its length in units of four bytes, and its body. */
	while (size >= 2) {
		size_t body = 4 * (size_t)data[1];

		if (body > size - 2)
			body = size - 2;
		/* Exactly as long as it says, so that a read beyond its end is seen. */
		h = calloc(1, NLMSG_HDRLEN + body);
		if (!h)
			return 0;
		h->nlmsg_type = types[data[0] % (sizeof(types) / sizeof(types[0]))];
		h->nlmsg_len = (uint32_t)(NLMSG_HDRLEN + body);
		memcpy(NLMSG_DATA(h), data + 2, body);
		one_message(h);
		free(h);
		data += 2 + body;
		size -= 2 + body;
	}
	/* The next input finds an empty mirror. */
	link_sweep(0);
	addr_sweep(0);
	neigh_sweep(0);
	return 0;
}
