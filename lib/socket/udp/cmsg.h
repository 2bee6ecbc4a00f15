/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ancillary data: what recvmsg() gives and sendmsg() takes (cmsg(3), ip(7), ipv6(7), udp(7)). */
#ifndef SOCKET_UDP_CMSG_H
#define SOCKET_UDP_CMSG_H

#include "socket/udp/internal.h"

/* Writes what s asked for into msg's control buffer; sets msg_controllen and MSG_CTRUNC. */
void udp_cmsg_write(struct udp_sock *s, const struct buf *b, struct msghdr *msg);

static inline void udp_cmsg_put(struct udp_sock *s, const struct buf *b, struct msghdr *msg)
{
	if (__builtin_expect(s->o.any_cmsg, 0))
		udp_cmsg_write(s, b, msg);
	else
		msg->msg_controllen = 0;
}

/* IP_PKTINFO or IPV6_PKTINFO of a datagram to be sent. */
struct udp_pktinfo {
	bool given;
	int ifindex; /* 0: by route */
	struct in6_addr src; /* v4-mapped for IP_PKTINFO; 0.0.0.0, ::: by route or as bound */
};

/* What ancillary data says of one datagram, in place of the socket's options. -1: nothing. */
struct udp_ctl {
	bool given; /* any of the following */
	int ttl, tos, hops6, tclass6;
	struct udp_pktinfo info4, info6;
};

/* Nothing. */
#define UDP_CTL_NONE                                                                               \
	{                                                                                          \
		.ttl = -1, .tos = -1, .hops6 = -1, .tclass6 = -1                                   \
	}

/*
 * Reads the ancillary data of a sendmsg() into c; *gso_size is set if it was given. False:
 * something that the kernel socket should do, or refuse; nothing that is wrong passes.
 */
bool udp_cmsg_tx(const struct msghdr *msg, struct udp_ctl *c, uint32_t *gso_size);

#endif
