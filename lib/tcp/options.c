/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The TCP header and its options (RFC 9293, 3.1 and 3.2; RFC 7323; RFC 2018; RFC 7413), read and
 * written.
 */
#include <netinet/in.h>
#include <string.h>

#include "tcp/internal.h"

#define HDR_LEN 20u
#define OPT_ROOM (TCP_HDR_MAX - HDR_LEN)

enum opt_kind {
	OPT_END,
	OPT_NOP,
	OPT_MSS,
	OPT_WSCALE,
	OPT_SACK_OK,
	OPT_SACK,
	OPT_TS = 8,
	OPT_FAST_OPEN = 34,
	OPT_EXP = 254
};

#define FAST_OPEN_MAGIC 0xf989u /* what Fast Open was before it had a kind of its own */

#define LEN_MSS 4u
#define LEN_WSCALE 3u
#define LEN_SACK_OK 2u
#define LEN_TS 10u
#define LEN_SACK_BLOCK 8u
#define LEN_FAST_OPEN 2u /* without the cookie */
#define LEN_EXP_FAST_OPEN 4u

static inline uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return ntohs(v);
}

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return ntohl(v);
}

static inline void put16(uint8_t *p, uint16_t v)
{
	v = htons(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put32(uint8_t *p, uint32_t v)
{
	v = htonl(v);
	memcpy(p, &v, sizeof(v));
}

/*
 * RFC 7413, 4.1.1; Linux: tcp_parse_fastopen_option(). An odd length is no option, an even one that
 * no cookie has says that the peer knows of it.
 */
static void read_fast_open(struct tcp_rx *rx, const uint8_t *cookie, unsigned len, bool exp)
{
	if (len & 1)
		return;
	rx->fast_open.exp = exp;
	rx->fast_open.len = -1;
	if (len && (len < TCP_FAST_OPEN_MIN || len > TCP_FAST_OPEN_MAX))
		return;
	rx->fast_open.len = (int8_t)len;
	memcpy(rx->fast_open.val, cookie, len);
}

/* Options that only a SYN may carry (RFC 9293, 3.2; RFC 7323, 2.2; RFC 2018, 2). */
static void read_syn_option(struct tcp_rx *rx, const uint8_t *p, unsigned len)
{
	if (p[0] == OPT_MSS && len == LEN_MSS && get16(p + 2)) {
		rx->has_mss = true;
		rx->mss = get16(p + 2);
		if (rx->mss < TCP_MSS_MIN)
			rx->mss = TCP_MSS_MIN;
	} else if (p[0] == OPT_WSCALE && len == LEN_WSCALE) {
		rx->has_wscale = true;
		rx->wscale = p[2] > TCP_WSCALE_MAX ? TCP_WSCALE_MAX : p[2];
	} else if (p[0] == OPT_SACK_OK && len == LEN_SACK_OK) {
		rx->sack_ok = true;
	} else if (p[0] == OPT_FAST_OPEN) {
		read_fast_open(rx, p + LEN_FAST_OPEN, len - LEN_FAST_OPEN, false);
	} else if (p[0] == OPT_EXP && len >= LEN_EXP_FAST_OPEN && get16(p + 2) == FAST_OPEN_MAGIC) {
		read_fast_open(rx, p + LEN_EXP_FAST_OPEN, len - LEN_EXP_FAST_OPEN, true);
	}
}

static void read_sack(struct tcp_rx *rx, const uint8_t *p, unsigned len)
{
	if (len < 2 + LEN_SACK_BLOCK || (len - 2) % LEN_SACK_BLOCK)
		return;
	rx->num_sacks = (uint8_t)((len - 2) / LEN_SACK_BLOCK); /* at most 4: 40 bytes of options */
	for (unsigned i = 0; i < rx->num_sacks; i++) {
		rx->sack[i].start = get32(p + 2 + i * LEN_SACK_BLOCK);
		rx->sack[i].end = get32(p + 6 + i * LEN_SACK_BLOCK);
	}
}

/*
 * Unknown options, and known ones whose length is not theirs, are skipped; a length that cannot be
 * ends the list.
 */
static void read_options(struct tcp_rx *rx, const uint8_t *p, unsigned left)
{
	while (left) {
		unsigned len;

		if (p[0] == OPT_END)
			return;
		if (p[0] == OPT_NOP) {
			p++;
			left--;
			continue;
		}
		if (left < 2)
			return;
		len = p[1];
		if (len < 2 || len > left)
			return;
		if (p[0] == OPT_TS && len == LEN_TS) {
			rx->has_ts = true;
			rx->tsval = get32(p + 2);
			rx->tsecr = get32(p + 6);
		} else if (rx->flags & TCPHDR_SYN) {
			read_syn_option(rx, p, len);
		} else if (p[0] == OPT_SACK) {
			read_sack(rx, p, len);
		}
		p += len;
		left -= len;
	}
}

bool tcp_rx_parse(struct buf *b, struct tcp_rx *rx)
{
	static const uint8_t only_ts[4] = {OPT_NOP, OPT_NOP, OPT_TS, LEN_TS};
	const uint8_t *p = b->data;
	uint32_t hdr_len;

	if (b->len < HDR_LEN)
		return false;
	hdr_len = (p[12] >> 4) * 4u;
	if (hdr_len < HDR_LEN || hdr_len > b->len)
		return false;
	rx->b = b;
	rx->ttl = b->meta.ttl;
	rx->tos = b->meta.tos;
	rx->seq = get32(p + 4);
	rx->ack = get32(p + 8);
	rx->flags = p[13];
	rx->wnd = get16(p + 14);
	rx->urg = get16(p + 18);
	rx->ecn = b->meta.tos & 3;
	rx->len = b->total - hdr_len;
	rx->end_seq = rx->seq + rx->len + !!(rx->flags & TCPHDR_SYN) + !!(rx->flags & TCPHDR_FIN);
	rx->has_ts = rx->has_mss = rx->has_wscale = rx->sack_ok = false;
	rx->num_sacks = 0;
	rx->fast_open.len = -1;
	rx->tsval = rx->tsecr = 0;
	if (hdr_len == HDR_LEN + 12 && !memcmp(p + HDR_LEN, only_ts, sizeof(only_ts))) {
		/* What nearly every segment of an established connection carries. */
		rx->has_ts = true;
		rx->tsval = get32(p + HDR_LEN + 4);
		rx->tsecr = get32(p + HDR_LEN + 8);
	} else {
		read_options(rx, p + HDR_LEN, hdr_len - HDR_LEN);
	}
	b->data += hdr_len;
	b->len -= hdr_len;
	b->total -= hdr_len;
	return true;
}

/* Every option is padded in front with NOPs to a multiple of four, as all stacks do. */
static uint8_t *write_ts(uint8_t *p, const struct tcp_hdr_spec *h)
{
	p[0] = h->sack_permitted ? OPT_SACK_OK : OPT_NOP;
	p[1] = h->sack_permitted ? LEN_SACK_OK : OPT_NOP;
	p[2] = OPT_TS;
	p[3] = LEN_TS;
	put32(p + 4, h->tsval);
	put32(p + 8, h->tsecr);
	return p + 12;
}

static uint8_t *write_sack(uint8_t *p, const struct tcp_hdr_spec *h, size_t room)
{
	unsigned n = h->num_sacks < TCP_SACK_MAX ? h->num_sacks : TCP_SACK_MAX;

	if (room < 4 + LEN_SACK_BLOCK)
		return p;
	if (n > (room - 4) / LEN_SACK_BLOCK)
		n = (unsigned)((room - 4) / LEN_SACK_BLOCK);
	p[0] = p[1] = OPT_NOP;
	p[2] = OPT_SACK;
	p[3] = (uint8_t)(2 + n * LEN_SACK_BLOCK);
	p += 4;
	for (unsigned i = 0; i < n; i++, p += LEN_SACK_BLOCK) {
		put32(p, h->sack[i].start);
		put32(p + 4, h->sack[i].end);
	}
	return p;
}

/* As Linux: behind all others, padded at its end. Left out where there is no room. */
static uint8_t *write_fast_open(uint8_t *p, const struct tcp_fast_open_cookie *c, size_t room)
{
	unsigned head = c->exp ? LEN_EXP_FAST_OPEN : LEN_FAST_OPEN;
	unsigned len = head + (unsigned)c->len, padded = (len + 3) & ~3u;

	if (padded > room)
		return p;
	p[0] = c->exp ? OPT_EXP : OPT_FAST_OPEN;
	p[1] = (uint8_t)len;
	if (c->exp)
		put16(p + 2, FAST_OPEN_MAGIC);
	memcpy(p + head, c->val, (unsigned)c->len);
	memset(p + len, OPT_NOP, padded - len);
	return p + padded;
}

uint8_t tcp_hdr_write(uint8_t *to, const struct tcp_hdr_spec *h)
{
	uint8_t *p = to + HDR_LEN;

	if (h->mss) {
		p[0] = OPT_MSS;
		p[1] = LEN_MSS;
		put16(p + 2, h->mss);
		p += 4;
	}
	if (h->ts) {
		p = write_ts(p, h);
	} else if (h->sack_permitted) {
		p[0] = p[1] = OPT_NOP;
		p[2] = OPT_SACK_OK;
		p[3] = LEN_SACK_OK;
		p += 4;
	}
	if (h->wscale_present) {
		p[0] = OPT_NOP;
		p[1] = OPT_WSCALE;
		p[2] = LEN_WSCALE;
		p[3] = h->wscale;
		p += 4;
	}
	if (h->num_sacks)
		p = write_sack(p, h, OPT_ROOM - (size_t)(p - to - HDR_LEN));
	if (h->fast_open && h->fast_open->len >= 0)
		p = write_fast_open(p, h->fast_open, OPT_ROOM - (size_t)(p - to - HDR_LEN));
	put16(to, h->sport);
	put16(to + 2, h->dport);
	put32(to + 4, h->seq);
	put32(to + 8, h->ack);
	to[12] = (uint8_t)((p - to) / 4 << 4);
	to[13] = h->flags;
	put16(to + 14, h->wnd);
	put16(to + 16, 0);
	put16(to + 18, h->urg);
	return (uint8_t)(p - to);
}
