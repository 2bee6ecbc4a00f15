/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef PROTO_PKT_PLAIN_H
#define PROTO_PKT_PLAIN_H

#include <stdint.h>

#define PKT_PLAIN_ROOM 14u

/*
 * Makes an IP packet that the kernel has taken in (len bytes from its IP header on) the frame that
 * a ring would have given: an Ethernet header in front, IPv4 options and IPv6 extension headers
 * taken out, for pkt_parse() to read. frame has room for len + PKT_PLAIN_ROOM bytes. Returns the
 * frame's length; 0: malformed, a fragment, or a header that is not known.
 */
uint32_t pkt_plain(uint8_t *frame, const uint8_t *packet, uint32_t len);

#endif
