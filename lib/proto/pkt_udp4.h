/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate (pkt.h) for the frame that is usual where the device has looked at the checksums:
 * nothing is kept of it but this.
 */
#ifndef PROTO_PKT_UDP4_H
#define PROTO_PKT_UDP4_H

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/if_ether.h>
#include <stdbool.h>
#include <string.h>

#include "mem/mem.h"

#define PKT_UDP4_HEADERS (ETH_HLEN + 20 + 8u)
/*
 * The first eight bytes of an IPv4 header: version, length without options, neither "more
 * fragments" nor an offset.
 */
#define PKT_PLAIN_MASK 0xff00000000003fffull
#define PKT_PLAIN_WORD 0x4500000000000000ull

struct pkt_udp4 {
	uint32_t src, dst; /* network order */
	uint16_t sport, dport; /* network order */
	uint32_t len; /* of the payload, which starts PKT_UDP4_HEADERS into the frame */
};

/*
 * True: b is one piece, an IPv4 datagram without options, not a fragment, its lengths right, its
 * sums by the device.
 */
static inline bool pkt_udp4(const struct buf *b, struct pkt_udp4 *u)
{
	const uint8_t *ip = b->data + ETH_HLEN;
	uint16_t type, total, ulen;
	uint64_t word;

	if (b->len < PKT_UDP4_HEADERS || b->frag || b->gso_size || !(b->flags & BUF_CSUM_OK))
		return false;
	memcpy(&type, ip - 2, 2);
	memcpy(&word, ip, 8);
	if (type != htons(ETHERTYPE_IP) ||
	    (word & htobe64(PKT_PLAIN_MASK)) != htobe64(PKT_PLAIN_WORD) || ip[9] != IPPROTO_UDP)
		return false;
	memcpy(&total, ip + 2, 2);
	memcpy(&ulen, ip + 24, 2);
	total = ntohs(total);
	ulen = ntohs(ulen);
	if (total > b->len - ETH_HLEN || ulen + 20 > total || ulen < 8)
		return false;
	memcpy(&u->src, ip + 12, 4);
	memcpy(&u->dst, ip + 16, 4);
	memcpy(&u->sport, ip + 20, 2);
	memcpy(&u->dport, ip + 22, 2);
	u->len = ulen - 8u;
	return true;
}

#endif
