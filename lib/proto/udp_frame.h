/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers of outgoing datagrams: made once for a destination, patched for each packet. */
#ifndef PROTO_UDP_FRAME_H
#define PROTO_UDP_FRAME_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#define UDP_HDR_MAX (14 + 40 + 8)

struct udp_hdr_spec {
	uint8_t smac[6], dmac[6];
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t ttl, tos;
	bool df; /* IPv4: don't fragment */
	struct in6_addr src, dst; /* v4-mapped for AF_INET */
	uint16_t sport, dport; /* host order */
};

struct udp_hdr {
	uint8_t bytes[64]; /* UDP_HDR_MAX, rounded up so that a copy is two fixed moves */
	uint8_t len; /* link + network + UDP header */
	uint8_t family;
	bool df;
	uint16_t ip_id; /* next identification when DF is off (RFC 6864) */
	uint64_t ip_sum; /* IPv4 header sum with length, id and checksum zero */
	uint64_t pseudo; /* pseudo header and UDP header sum with length and checksum zero */
};

void udp_hdr_init(struct udp_hdr *h, const struct udp_hdr_spec *spec);
/*
 * Writes headers (h->len bytes; room for 64 must be there) for a payload of len bytes at `frame`,
 * then the payload from iov (len is its total), checksums complete. Returns the frame's length.
 */
uint32_t udp_frame(struct udp_hdr *h, uint8_t *frame, const struct iovec *iov, int iovcnt,
		   uint32_t len);
/* Makes h->bytes the headers of a payload of len bytes, but for the checksums. IPv4 only. */
static inline void udp_hdr_v4(struct udp_hdr *h, uint32_t len)
{
	uint16_t ip_len = htons((uint16_t)(len + 28)), udp_len = htons((uint16_t)(len + 8)), id;

	memcpy(h->bytes + 16, &ip_len, 2);
	memcpy(h->bytes + 38, &udp_len, 2);
	if (__builtin_expect(!h->df, 0)) {
		id = htons(h->ip_id++);
		memcpy(h->bytes + 18, &id, 2);
	}
}
/*
 * The headers that udp_hdr_v4() made last have not been used: the next ones take their
 * identification.
 */
static inline void udp_hdr_v4_unused(struct udp_hdr *h)
{
	if (!h->df)
		h->ip_id--;
}
/* As udp_frame(), for a device that writes the checksums. */
uint32_t udp_frame_unsummed(struct udp_hdr *h, uint8_t *frame, const struct iovec *iov, int iovcnt,
			    uint32_t len);
/*
 * Headers only, for a GSO frame of len payload bytes: the UDP checksum field holds the
 * pseudo-header sum.
 */
void udp_frame_gso(struct udp_hdr *h, uint8_t *frame, uint32_t len);

#endif
