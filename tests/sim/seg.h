/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP segments as the tests read and write them. Written from RFC 9293 and RFC 7323 without a look
 * at the engine's own parser, so that an error there does not hide here.
 */
#ifndef SIM_SEG_H
#define SIM_SEG_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define F_FIN 0x01
#define F_SYN 0x02
#define F_RST 0x04
#define F_PSH 0x08
#define F_ACK 0x10
#define F_URG 0x20
#define F_ECE 0x40
#define F_CWR 0x80

#define SEG_HDR_MAX 60u

struct seg {
	uint64_t when; /* us */
	uint32_t seq, ack;
	uint32_t len; /* payload bytes */
	uint16_t wnd, urg;
	uint8_t flags, tos;
	uint8_t hdr_len;
	uint16_t mss; /* 0: no option */
	int wscale; /* -1: no option */
	bool sackok, ts;
	uint32_t tsval, tsecr;
	unsigned nsack;
	uint32_t sack[4][2];
	bool fo, fo_exp; /* the Fast Open option (RFC 7413), in its experimental form */
	uint8_t fo_len, fo_cookie[16];
	unsigned raw_len; /* seg_build(): option bytes of the test's own, instead of all above */
	uint8_t raw[40];
};

/* Reads a TCP header with n bytes behind p (header and payload). False: it is none. */
bool seg_parse(struct seg *s, const uint8_t *p, size_t n);
/* Writes the header with its options, checksum zero, room SEG_HDR_MAX; returns its length. */
unsigned seg_build(uint8_t *to, const struct seg *s);
/* SYN, SYN|ACK ... "SPAF seq:end(len) ack win options" into text; numbers relative to the bases. */
const char *seg_text(char *text, size_t size, const struct seg *s, uint32_t seq_base,
		     uint32_t ack_base);

/*
 * An IP packet around a TCP segment of n bytes (header and payload at to + the value returned).
 * v4-mapped for IPv4.
 */
unsigned ip_header(uint8_t *to, int family, const struct in6_addr *src, const struct in6_addr *dst,
		   uint8_t tos, size_t n);
unsigned ip_header_len(int family);
/* The checksum of the n bytes at tcp, to be stored as it is; 0 when the stored one is right. */
uint16_t tcp_sum(int family, const struct in6_addr *src, const struct in6_addr *dst,
		 const uint8_t *tcp, size_t n);

struct ip_info {
	struct in6_addr src, dst;
	int family;
	uint8_t tos, ttl, proto;
	unsigned hdr_len;
};

/* The gate: an IP packet of n bytes whose lengths and checksums are right and which holds TCP. */
bool ip_parse(struct ip_info *ip, const uint8_t *p, size_t n);

#endif
