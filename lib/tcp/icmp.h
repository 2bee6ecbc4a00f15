/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate for ICMP errors about TCP segments of ours (RFC 792, RFC 1191, RFC 4443). */
#ifndef TCP_ICMP_H
#define TCP_ICMP_H

#include <stdbool.h>
#include <stddef.h>

#include "tcp/engine.h"

struct icmp_tcp {
	struct tcp_tuple tuple; /* the quoted segment's, as the host sees it that sent it */
	uint32_t seq;
	enum tcp_icmp kind;
	uint32_t mtu; /* TCP_ICMP_FRAG_NEEDED: what the message says, 0: nothing */
};

/*
 * An ICMP message as a raw socket gives it: AF_INET with its IP header, checksum not yet looked at;
 * AF_INET6 from the ICMPv6 header on, which the kernel has checked. False: no error about a TCP
 * segment, or malformed.
 */
bool icmp_tcp_parse(const uint8_t *p, size_t len, int family, struct icmp_tcp *out);

#endif
