/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which addresses an interface brings packets for. Asked when a socket attaches. */
#include "stack/internal.h"

#include <string.h>

#include "net/net.h"

static bool is_among(const struct in6_addr *addr, const struct in6_addr *addrs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!memcmp(&addrs[i], addr, sizeof(*addr)))
			return true;
	}
	return false;
}

static unsigned at_most(unsigned n, unsigned max)
{
	return n < max ? n : max;
}

unsigned stack_addrs(int ifindex, struct in6_addr *addrs, unsigned max)
{
	struct in6_addr service[STACK_ADDRS_MAX];
	struct net_link link;
	unsigned n, more;

	if (net_link_get(ifindex, &link))
		return 0;
	if (link.kind == NET_LINK_LOOPBACK)
		return at_most(net_addr_list(0, addrs, max), max);
	n = at_most(net_addr_list(ifindex, addrs, max), max);
	more = at_most(net_addr_service_list(service, STACK_ADDRS_MAX), STACK_ADDRS_MAX);
	for (unsigned i = 0; i < more && n < max; i++) {
		if (!is_among(&service[i], addrs, n))
			addrs[n++] = service[i];
	}
	return n;
}

bool stack_has_address(int ifindex, const struct in6_addr *addr)
{
	struct in6_addr addrs[STACK_ADDRS_MAX];

	return is_among(addr, addrs, stack_addrs(ifindex, addrs, STACK_ADDRS_MAX));
}

/*
 * Packets come by it, or will when its cable is back: routers change their minds then, and the
 * connections that were made meanwhile are still there. Of a dummy interface nothing comes.
 */
static bool brings(int ifindex)
{
	struct net_link link;

	if (net_link_get(ifindex, &link) || link.master || !strcmp(link.driver, "dummy"))
		return false;
	return link.kind != NET_LINK_OTHER && link.kind != NET_LINK_LOOPBACK &&
	       (link.up || net_addr_list(ifindex, NULL, 0));
}

/* By how many interfaces other than this (0: none) packets come from elsewhere: 0, 1 or more. */
static unsigned others(int ifindex)
{
	struct net_link_walk links = {.num = 0};
	unsigned num = 0;
	int other;

	while (num < 2 && (other = net_link_next(&links)))
		num += other != ifindex && brings(other);
	return num;
}

unsigned stack_addrs_lasting(int ifindex, struct in6_addr *addrs, unsigned max)
{
	struct net_link link;

	if (net_link_get(ifindex, &link))
		return 0;
	if (link.kind == NET_LINK_LOOPBACK || !others(ifindex))
		return stack_addrs(ifindex, addrs, max);
	return at_most(net_addr_list(ifindex, addrs, max), max);
}

bool stack_by_several_ways(const struct in6_addr *local)
{
	struct in6_addr service[STACK_ADDRS_MAX];
	unsigned n = at_most(net_addr_service_list(service, STACK_ADDRS_MAX), STACK_ADDRS_MAX);

	return is_among(local, service, n) && others(0) > 1;
}
