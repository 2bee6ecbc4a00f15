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

/*
 * Reads the ancillary data of a sendmsg(). True when it is UDP_SEGMENT only or empty: *gso_size is
 * set then if it was given. False: something that the kernel socket should do.
 */
bool udp_cmsg_tx(const struct msghdr *msg, uint32_t *gso_size);

#endif
