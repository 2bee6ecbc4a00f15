/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "capture_text.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static unsigned get16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static unsigned get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
}

/* What an IP header says. */
struct packet {
	int family;
	const uint8_t *source, *destination;
	unsigned proto;
	const uint8_t *l4; /* so many bytes of it are there, ... */
	size_t have;
	unsigned l4_len; /* ... and it was so long */
};

static void take(struct packet *p, const uint8_t *ip, size_t len, unsigned header, unsigned total)
{
	p->l4 = ip + header;
	p->have = len > header ? len - header : 0;
	p->l4_len = total > header ? total - header : 0;
}

/* 0, or -1: not an IP packet, or not enough of one. */
static int parse(struct packet *p, const uint8_t *ip, size_t len)
{
	*p = (struct packet){.family = 0};
	if (len >= 20 && ip[0] >> 4 == 4 && (ip[0] & 15) >= 5) {
		*p = (struct packet){.family = AF_INET,
				     .source = ip + 12,
				     .destination = ip + 16,
				     .proto = ip[9]};
		take(p, ip, len, (ip[0] & 15u) * 4, get16(ip + 2));
		return 0;
	}
	if (len < 40 || ip[0] >> 4 != 6)
		return -1;
	*p = (struct packet){
		.family = AF_INET6, .source = ip + 8, .destination = ip + 24, .proto = ip[6]};
	take(p, ip, len, 40, 40 + get16(ip + 4));
	return 0;
}

static void put_ends(char *text, size_t room, const struct packet *p)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];

	inet_ntop(p->family, p->source, from, sizeof(from));
	inet_ntop(p->family, p->destination, to, sizeof(to));
	if (p->have >= 4 && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP))
		snprintf(text, room, "%s.%u > %s.%u", from, get16(p->l4), to, get16(p->l4 + 2));
	else
		snprintf(text, room, "%s > %s", from, to);
}

static void put_tcp(char *text, size_t room, const char *ends, const struct packet *p)
{
	static const char letters[] = "FSRPAUEC"; /* by bit */
	char flags[sizeof(letters)];
	unsigned n = 0, header = (p->l4[12] >> 4) * 4u;

	for (unsigned bit = 0; bit < sizeof(letters) - 1; bit++)
		if (p->l4[13] >> bit & 1)
			flags[n++] = letters[bit];
	flags[n] = 0;
	snprintf(text, room, "%s: TCP %s, seq %u, ack %u, win %u, length %u", ends, flags,
		 get32(p->l4 + 4), get32(p->l4 + 8), get16(p->l4 + 14),
		 p->l4_len > header ? p->l4_len - header : 0);
}

const char *capture_text(char text[CAPTURE_TEXT], const uint8_t *frame, size_t len)
{
	char ends[2 * INET6_ADDRSTRLEN + 16];
	struct packet p;

	if (len < ETH_HLEN || parse(&p, frame + ETH_HLEN, len - ETH_HLEN)) {
		snprintf(text, CAPTURE_TEXT, "no IP packet");
		return text;
	}
	put_ends(ends, sizeof(ends), &p);
	if (p.proto == IPPROTO_TCP && p.have >= 20)
		put_tcp(text, CAPTURE_TEXT, ends, &p);
	else if (p.proto == IPPROTO_UDP && p.have >= 8)
		snprintf(text, CAPTURE_TEXT, "%s: UDP, length %u", ends,
			 p.l4_len > 8 ? p.l4_len - 8 : 0);
	else
		snprintf(text, CAPTURE_TEXT, "%s: protocol %u, length %u", ends, p.proto, p.l4_len);
	return text;
}
