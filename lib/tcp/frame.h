/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames for the engine's segments: link and network header made once for a destination, patched
 * for each segment.
 */
#ifndef TCP_FRAME_H
#define TCP_FRAME_H

#include "tcp/engine.h"

#define TCP_FRAME_HDR_MAX (14 + 40 + 60)

struct tcp_frame_spec {
	uint8_t smac[6], dmac[6];
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t ttl; /* for segments that say 0 */
	bool df; /* IPv4: don't fragment (path MTU discovery) */
	struct in6_addr src, dst; /* v4-mapped for AF_INET */
};

struct tcp_frame_hdr {
	/* link and network header, rounded up so that a copy is two fixed moves */
	uint8_t bytes[64];
	uint8_t len; /* of both; the offset of the TCP header */
	uint8_t family;
	uint8_t ttl;
	uint16_t ip_id; /* IPv4: of the next packet */
	uint64_t ip_sum; /* IPv4 header sum with tos, length, id, ttl and checksum zero */
	uint64_t pseudo; /* pseudo header sum but for the length */
};

void tcp_frame_init(struct tcp_frame_hdr *h, const struct tcp_frame_spec *spec);
/*
 * Writes a whole frame: headers, the segment's payload, checksums complete. There must be room for
 * its bytes and for TCP_FRAME_HDR_MAX. Returns its length. tx->len must fit an IP packet and is not
 * cut.
 */
uint32_t tcp_frame(struct tcp_frame_hdr *h, uint8_t *frame, const struct tcp_tx *tx);
/*
 * Headers only, for a frame that the device or the kernel cuts every tx->mss bytes: the TCP
 * checksum field holds the pseudo-header sum, and as many identifications are used as there will be
 * packets. Room: TCP_FRAME_HDR_MAX. Returns their length.
 */
uint32_t tcp_frame_gso(struct tcp_frame_hdr *h, uint8_t *frame, const struct tcp_tx *tx);

#endif
