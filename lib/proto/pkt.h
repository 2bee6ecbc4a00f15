/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate for received frames: Ethernet, IPv4 (RFC 791) or IPv6 (RFC 8200), UDP (RFC 768), TCP's
 * checksum and ports (RFC 9293; tcp_rx_parse() reads the rest). Whoever is behind it reads buf.meta
 * and the payload, never raw headers.
 */
#ifndef PROTO_PKT_H
#define PROTO_PKT_H

#include "mem/mem.h"

enum pkt_result {
	PKT_UDP, /* meta is filled; data/len/total are the payload */
	/* meta is filled; data is the TCP header (in the first fragment), len/total are its and the
	   payload's */
	PKT_TCP,
	PKT_MALFORMED, /* a length or a version that cannot be */
	PKT_BAD_CHECKSUM,
	/* well formed, but nothing for this stack: options, fragments, other protocols */
	PKT_OTHER,
};

/*
 * Looks at the frame in b (first fragment holds all headers, and a priority tag if it has one). On
 * anything but PKT_UDP and PKT_TCP b is unchanged but for meta.
 */
enum pkt_result pkt_parse(struct buf *b);

#endif
