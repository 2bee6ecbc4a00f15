/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The TCP header and its options (RFC 9293, 3.1; RFC 7323; RFC 2018), written. */
#ifndef TCP_OPTIONS_H
#define TCP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Flags of the header's 14th byte. */
#define TCPHDR_FIN 0x01u
#define TCPHDR_SYN 0x02u
#define TCPHDR_RST 0x04u
#define TCPHDR_PSH 0x08u
#define TCPHDR_ACK 0x10u
#define TCPHDR_URG 0x20u
#define TCPHDR_ECE 0x40u
#define TCPHDR_CWR 0x80u

#define TCP_SACK_MAX 4u

/* RFC 7413, 4.1.1: lengths of a cookie. */
#define TCP_FAST_OPEN_MIN 4u
#define TCP_FAST_OPEN_MAX 16u

/* The Fast Open option of a SYN or SYN|ACK. */
struct tcp_fast_open_cookie {
	int8_t len; /* bytes; 0: asks for a cookie; -1: no option */
	bool exp; /* in the experimental option's form (RFC 6994) */
	uint8_t val[TCP_FAST_OPEN_MAX];
};

struct tcp_sack_block {
	uint32_t start, end; /* [start, end) */
};

/* What a header to be built carries. */
struct tcp_hdr_spec {
	uint16_t sport, dport;
	uint32_t seq, ack;
	uint16_t wnd; /* scaled already */
	uint16_t urg;
	uint8_t flags;
	bool ts, sack_permitted, wscale_present;
	uint8_t wscale, num_sacks;
	uint16_t mss; /* 0: no option */
	uint32_t tsval, tsecr;
	struct tcp_sack_block sack[TCP_SACK_MAX];
	const struct tcp_fast_open_cookie *fast_open; /* NULL: no option */
};

/*
 * Writes header and options, checksum zero; room TCP_HDR_MAX. As many SACK blocks as fit. Returns
 * the length.
 */
uint8_t tcp_hdr_write(uint8_t *to, const struct tcp_hdr_spec *h);

#endif
