/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Inside of lib/net. The tables are written by whoever holds the mirror's lock (net_start,
 * net_process, net_stop); *_input() takes one netlink message that mirror.c has received.
 */
#ifndef NET_MIRROR_H
#define NET_MIRROR_H

#include <linux/netlink.h>
#include <netlink/msg.h>
#include <netlink/socket.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "net/net.h"

/*
 * A non-blocking, close-on-exec NETLINK_ROUTE socket; NULL with errno when there is none. Call
 * inside libc_internal.
 */
struct nl_sock *mirror_sock_open(void);

/*
 * Something changed: bumps the generation (neighbours: theirs) and tells the listeners once no lock
 * is held.
 */
void mirror_changed(enum net_event ev, int ifindex);
/* Tells the listeners only. */
void mirror_tell(enum net_event ev, int ifindex);
/* The mirror may miss something (out of memory): everything will be dumped anew. */
void mirror_incomplete(const char *what);

/*
 * One message of the kernel; anything malformed or of no interest is ignored. epoch: of the dump,
 * or the last one.
 */
void link_input(struct nlmsghdr *h, uint64_t epoch);
void addr_input(struct nlmsghdr *h, uint64_t epoch);
void neigh_input(struct nlmsghdr *h, uint64_t epoch);

/*
 * The kernel's answer to q. False when it is malformed or none; *err is what a send would fail
 * with.
 */
bool route_parse(struct nlmsghdr *h, const struct net_route_query *q, struct net_route *route,
		 int *err);
/* What net_routes_by_port() says. Before the generation is bumped. */
void routes_by_port(bool yes);

/* Forgets what the dump of this epoch did not show. epoch 0: everything, telling no one. */
void link_sweep(uint64_t epoch);
void addr_sweep(uint64_t epoch);
void neigh_sweep(uint64_t epoch);
/* The interface is gone and everything on it. */
void addr_link_gone(int ifindex);
/* The interface has a link-local IPv6 address that is not tentative. */
bool addr_link_local_is_there(int ifindex);
void neigh_link_gone(int ifindex);

/* Open and close their own sockets. */
int link_start(void);
void link_stop(void);
int route_start(void);
void route_stop(void);
int neigh_start(void);
void neigh_stop(void);
int martian_start(void);
void martian_stop(void);
void group_stop(void); /* opened by the first question */

void link_forked(void);
void addr_forked(void);
void route_forked(void);
void neigh_forked(void);
void martian_forked(void);
void group_forked(void);

/* The ifindex of the loopback interface. */
int link_loopback(void);

static inline struct in6_addr v4_mapped(uint32_t be)
{
	struct in6_addr a = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	memcpy(&a.s6_addr[12], &be, 4);
	return a;
}

static inline uint32_t v4_of(const struct in6_addr *a)
{
	uint32_t be;

	memcpy(&be, &a->s6_addr[12], 4);
	return be;
}

/* The address in an attribute of the family's length; false for any other length. */
static inline bool attr_addr(int family, struct nlattr *attr, struct in6_addr *out)
{
	uint32_t be;

	if (!attr)
		return false;
	if (family == AF_INET && nla_len(attr) == 4) {
		memcpy(&be, nla_data(attr), 4);
		*out = v4_mapped(be);
		return true;
	}
	if (family == AF_INET6 && nla_len(attr) == 16) {
		memcpy(out, nla_data(attr), 16);
		return true;
	}
	return false;
}

#endif
