/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "seg.h"

#include <stdio.h>
#include <string.h>

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static void parse_option(struct seg *s, uint8_t kind, const uint8_t *p, unsigned len)
{
	if (kind == 2 && len == 2)
		s->mss = get16(p);
	if (kind == 3 && len == 1)
		s->wscale = p[0];
	if (kind == 4 && len == 0)
		s->sackok = true;
	if (kind == 8 && len == 8) {
		s->ts = true;
		s->tsval = get32(p);
		s->tsecr = get32(p + 4);
	}
	if (kind == 34 || (kind == 254 && len >= 2 && get16(p) == 0xf989)) {
		unsigned skip = kind == 254 ? 2 : 0;

		s->fo = true;
		s->fo_exp = kind == 254;
		s->fo_len = (uint8_t)(len - skip < 16 ? len - skip : 16);
		memcpy(s->fo_cookie, p + skip, s->fo_len);
	}
	for (unsigned i = 0; kind == 5 && i + 8 <= len && s->nsack < 4; i += 8, s->nsack++) {
		s->sack[s->nsack][0] = get32(p + i);
		s->sack[s->nsack][1] = get32(p + i + 4);
	}
}

bool seg_parse(struct seg *s, const uint8_t *p, size_t n)
{
	unsigned at = 20;

	if (n < 20 || (p[12] >> 4) * 4u < 20 || (p[12] >> 4) * 4u > n)
		return false;
	memset(s, 0, sizeof(*s));
	s->hdr_len = (uint8_t)((p[12] >> 4) * 4);
	s->seq = get32(p + 4);
	s->ack = get32(p + 8);
	s->flags = p[13];
	s->wnd = get16(p + 14);
	s->urg = get16(p + 18);
	s->len = (uint32_t)(n - s->hdr_len);
	s->wscale = -1;
	while (at < s->hdr_len && p[at] != 0) {
		if (p[at] == 1) {
			at++;
			continue;
		}
		if (at + 2 > s->hdr_len || p[at + 1] < 2 || at + p[at + 1] > s->hdr_len)
			break;
		parse_option(s, p[at], p + at + 2, p[at + 1] - 2u);
		at += p[at + 1];
	}
	return true;
}

static unsigned build_options(uint8_t *o, const struct seg *s)
{
	unsigned n = 0;

	if (s->mss) {
		o[n] = 2, o[n + 1] = 4;
		put16(o + n + 2, s->mss);
		n += 4;
	}
	if (s->sackok) {
		o[n] = 4, o[n + 1] = 2;
		n += 2;
	}
	if (s->ts) {
		o[n] = 8, o[n + 1] = 10;
		put32(o + n + 2, s->tsval);
		put32(o + n + 6, s->tsecr);
		n += 10;
	}
	if (s->wscale >= 0) {
		o[n] = 3, o[n + 1] = 3, o[n + 2] = (uint8_t)s->wscale;
		n += 3;
	}
	if (s->fo) {
		unsigned skip = s->fo_exp ? 4 : 2;

		o[n] = s->fo_exp ? 254 : 34, o[n + 1] = (uint8_t)(skip + s->fo_len);
		if (s->fo_exp)
			put16(o + n + 2, 0xf989);
		memcpy(o + n + skip, s->fo_cookie, s->fo_len);
		n += skip + s->fo_len;
	}
	if (s->nsack) {
		o[n] = 5, o[n + 1] = (uint8_t)(2 + 8 * s->nsack);
		n += 2;
		for (unsigned i = 0; i < s->nsack; i++, n += 8) {
			put32(o + n, s->sack[i][0]);
			put32(o + n + 4, s->sack[i][1]);
		}
	}
	return n;
}

unsigned seg_build(uint8_t *to, const struct seg *s)
{
	unsigned n;

	memset(to, 0, SEG_HDR_MAX);
	put32(to + 4, s->seq);
	put32(to + 8, s->ack);
	to[13] = s->flags;
	put16(to + 14, s->wnd);
	put16(to + 18, s->urg);
	if (s->raw_len) {
		memcpy(to + 20, s->raw, s->raw_len);
		n = s->raw_len;
	} else {
		n = build_options(to + 20, s);
	}
	while (n % 4)
		to[20 + n++] = 1;
	to[12] = (uint8_t)((20 + n) / 4 << 4);
	return 20 + n;
}

const char *seg_text(char *text, size_t size, const struct seg *s, uint32_t seq_base,
		     uint32_t ack_base)
{
	static const char names[] = "FSRPAUEC";
	char flags[9] = "", options[200] = "";
	size_t n = 0;

	for (unsigned i = 0; i < 8; i++)
		if (s->flags & 1u << i)
			flags[n++] = names[i];
	flags[n] = 0;
	n = 0;
#define OPTION(...) n += (size_t)snprintf(options + n, sizeof(options) - n, __VA_ARGS__)
	if (s->mss)
		OPTION(" mss %u", s->mss);
	if (s->wscale >= 0)
		OPTION(" wscale %d", s->wscale);
	if (s->sackok)
		OPTION(" sackOK");
	if (s->ts)
		OPTION(" ts %u/%u", s->tsval, s->tsecr);
	if (s->fo)
		OPTION(" fo%s %u", s->fo_exp ? " exp" : "", s->fo_len);
	for (unsigned i = 0; i < s->nsack; i++)
		OPTION("%s%u-%u", i ? "," : " sack ", s->sack[i][0] - ack_base,
		       s->sack[i][1] - ack_base);
	if (s->flags & F_URG)
		OPTION(" urg %u", s->urg);
	if (s->tos & 3)
		OPTION(" ecn %u", s->tos & 3u);
#undef OPTION
	if (s->flags & F_ACK)
		snprintf(text, size, "%-3s %u:%u(%u) ack %u win %u%s", flags, s->seq - seq_base,
			 s->seq - seq_base + s->len, s->len, s->ack - ack_base, s->wnd, options);
	else
		snprintf(text, size, "%-3s %u:%u(%u) win %u%s", flags, s->seq - seq_base,
			 s->seq - seq_base + s->len, s->len, s->wnd, options);
	return text;
}

static uint64_t sum_bytes(uint64_t sum, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		sum += get16(p + i);
	if (n & 1)
		sum += (uint32_t)p[n - 1] << 8;
	return sum;
}

static uint16_t sum_end(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

unsigned ip_header_len(int family)
{
	return family == AF_INET ? 20 : 40;
}

unsigned ip_header(uint8_t *to, int family, const struct in6_addr *src, const struct in6_addr *dst,
		   uint8_t tos, size_t n)
{
	memset(to, 0, ip_header_len(family));
	if (family == AF_INET6) {
		to[0] = (uint8_t)(0x60 | tos >> 4);
		to[1] = (uint8_t)(tos << 4);
		put16(to + 4, (uint32_t)n);
		to[6] = IPPROTO_TCP;
		to[7] = 64;
		memcpy(to + 8, src, 16);
		memcpy(to + 24, dst, 16);
		return 40;
	}
	to[0] = 0x45;
	to[1] = tos;
	put16(to + 2, (uint32_t)n + 20);
	put16(to + 6, 0x4000);
	to[8] = 64;
	to[9] = IPPROTO_TCP;
	memcpy(to + 12, (const uint8_t *)src + 12, 4);
	memcpy(to + 16, (const uint8_t *)dst + 12, 4);
	put16(to + 10, sum_end(sum_bytes(0, to, 20)));
	return 20;
}

uint16_t tcp_sum(int family, const struct in6_addr *src, const struct in6_addr *dst,
		 const uint8_t *tcp, size_t n)
{
	size_t skip = family == AF_INET ? 12 : 0;
	uint64_t sum = IPPROTO_TCP + n;

	sum = sum_bytes(sum, (const uint8_t *)src + skip, 16 - skip);
	sum = sum_bytes(sum, (const uint8_t *)dst + skip, 16 - skip);
	return sum_end(sum_bytes(sum, tcp, n));
}

static void mapped(struct in6_addr *a, const uint8_t *v4)
{
	memset(a, 0, sizeof(*a));
	a->s6_addr[10] = a->s6_addr[11] = 0xff;
	memcpy(a->s6_addr + 12, v4, 4);
}

bool ip_parse(struct ip_info *ip, const uint8_t *p, size_t n)
{
	memset(ip, 0, sizeof(*ip));
	if (n >= 40 && p[0] >> 4 == 6 && get16(p + 4) == n - 40) {
		ip->family = AF_INET6;
		ip->hdr_len = 40;
		ip->tos = (uint8_t)(p[0] << 4 | p[1] >> 4);
		ip->proto = p[6];
		ip->ttl = p[7];
		memcpy(&ip->src, p + 8, 16);
		memcpy(&ip->dst, p + 24, 16);
	} else if (n >= 20 && p[0] == 0x45 && get16(p + 2) == n &&
		   sum_end(sum_bytes(0, p, 20)) == 0) {
		ip->family = AF_INET;
		ip->hdr_len = 20;
		ip->tos = p[1];
		ip->ttl = p[8];
		ip->proto = p[9];
		mapped(&ip->src, p + 12);
		mapped(&ip->dst, p + 16);
	} else {
		return false;
	}
	return ip->proto == IPPROTO_TCP &&
	       tcp_sum(ip->family, &ip->src, &ip->dst, p + ip->hdr_len, n - ip->hdr_len) == 0;
}
