/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where each field of what we send stands: read back by a parser of this file's own, which knows
 * the RFCs' numbers and none of the library's; and a field that changes, changes its bytes only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/socket.h>

#include "proto/udp_frame.h"
#include "tcp/frame.h"
#include "tcp/internal.h"

static uint32_t be(const uint8_t *p, unsigned bytes)
{
	uint32_t v = 0;

	while (bytes--)
		v = v << 8 | *p++;
	return v;
}

/* --- TCP's options */

/* What a segment's header says, by RFC 9293, 3.1; RFC 7323, 2.2 and 3.2; RFC 2018, 2 and 3. */
struct seen {
	bool mss, wscale, sack_ok, ts;
	uint32_t mss_value, wscale_value, tsval, tsecr;
	unsigned num_sacks;
	uint32_t sack[4][2];
};

/* One option at offset `at` of the header. Its values stand where a 32-bit load is aligned. */
static void see_option(struct seen *s, const uint8_t *p, unsigned at)
{
	unsigned len = p[1];

	switch (p[0]) {
	case 2:
		assert_true(!s->mss && len == 4 && at % 4 == 0);
		s->mss = true;
		s->mss_value = be(p + 2, 2);
		return;
	case 3:
		assert_true(!s->wscale && len == 3);
		s->wscale = true;
		s->wscale_value = p[2];
		return;
	case 4:
		assert_true(!s->sack_ok && len == 2);
		s->sack_ok = true;
		return;
	case 5:
		assert_true(!s->num_sacks && len > 2 && len % 8 == 2 && at % 4 == 2);
		s->num_sacks = (len - 2) / 8;
		for (unsigned i = 0; i < s->num_sacks; i++) {
			s->sack[i][0] = be(p + 2 + 8 * i, 4);
			s->sack[i][1] = be(p + 6 + 8 * i, 4);
		}
		return;
	case 8:
		assert_true(!s->ts && len == 10 && at % 4 == 2);
		s->ts = true;
		s->tsval = be(p + 2, 4);
		s->tsecr = be(p + 6, 4);
		return;
	default:
		fail_msg("option %u at %u", p[0], at);
	}
}

/* All bytes up to the data offset are options or NOPs, at most three NOPs in a row. */
static struct seen see_options(const uint8_t *th)
{
	unsigned at = 20, end = (th[12] >> 4) * 4u, nops = 0;
	struct seen s = {0};

	while (at < end) {
		if (th[at] == 1) {
			assert_true(++nops < 4);
			at++;
			continue;
		}
		nops = 0;
		assert_true(at + 2 <= end && th[at + 1] >= 2 && at + th[at + 1] <= end);
		see_option(&s, th + at, at);
		at += th[at + 1];
	}
	assert_int_equal(at, end);
	return s;
}

/* One of all combinations, by its number. */
static struct tcp_hdr_spec combination(unsigned n)
{
	struct tcp_hdr_spec h = {.sport = 0x1234,
				 .dport = 0x5678,
				 .seq = 0x9abcdef0,
				 .ack = 0x0fedcba9,
				 .wnd = 0x8765,
				 .urg = 0x4321,
				 .flags = (uint8_t)(n * 37)};

	h.mss = n & 1 ? 0x05b4 : 0;
	h.ts = n >> 1 & 1;
	h.sack_permitted = n >> 2 & 1;
	h.wscale_present = n >> 3 & 1;
	h.wscale = (uint8_t)(n % 15);
	h.num_sacks = (uint8_t)((n >> 4) % 5);
	h.tsval = 0x01020304 + n;
	h.tsecr = 0xf5f6f7f8 - n;
	for (unsigned i = 0; i < 4; i++)
		h.sack[i] = (struct tcp_sack_block){0x10203040 + 0x01010101 * i + n,
						    0x50607080 + 0x01010101 * i + n};
	return h;
}

static void every_option_is_read_back(void **state)
{
	unsigned blocks = 0, n;

	(void)state;
	for (n = 0; n < 16 * 5 * 8; n++) {
		struct tcp_hdr_spec h = combination(n);
		uint8_t th[TCP_HDR_MAX + 8];
		struct seen s;
		uint8_t len;

		memset(th, 0xee, sizeof(th));
		len = tcp_hdr_write(th, &h);
		assert_true(len <= 60);
		assert_int_equal(len, (th[12] >> 4) * 4);
		for (size_t i = len; i < sizeof(th); i++)
			assert_int_equal(th[i], 0xee);
		s = see_options(th);
		assert_int_equal(s.mss, h.mss != 0);
		assert_int_equal(s.mss_value, h.mss);
		assert_int_equal(s.ts, h.ts);
		assert_true(!h.ts || (s.tsval == h.tsval && s.tsecr == h.tsecr));
		assert_int_equal(s.sack_ok, h.sack_permitted);
		assert_int_equal(s.wscale, h.wscale_present);
		assert_true(!h.wscale_present || s.wscale_value == h.wscale);
		/* As many as there is room for in 40 bytes beside the others. */
		assert_true(s.num_sacks == h.num_sacks ||
			    (s.num_sacks < h.num_sacks && len + 8 > 60));
		for (unsigned i = 0; i < s.num_sacks; i++) {
			assert_int_equal(s.sack[i][0], h.sack[i].start);
			assert_int_equal(s.sack[i][1], h.sack[i].end);
			blocks++;
		}
	}
	print_message("    %u headers with %u SACK blocks\n", n, blocks);
}

/* --- fields at their places */

struct field {
	const char *name;
	unsigned off, bytes, shift, bits; /* big endian at off; the field is those bits of it */
};

#define ETH 14u

static const struct field tcp_fields[] = {
	{"source port", 0, 2, 0, 16}, {"destination port", 2, 2, 0, 16},
	{"seq", 4, 4, 0, 32},	      {"ack", 8, 4, 0, 32},
	{"flags", 13, 1, 0, 8},	      {"window", 14, 2, 0, 16},
	{"urg", 18, 2, 0, 16},
};

static uint32_t field_get(const uint8_t *at, const struct field *f)
{
	uint32_t v = be(at + f->off, f->bytes) >> f->shift;

	return f->bits == 32 ? v : v & ((1u << f->bits) - 1);
}

/* The two differ in no bit but f's. */
static void only_differs(const uint8_t *a, const uint8_t *b, size_t len, const struct field *f,
			 unsigned base)
{
	for (size_t i = 0; i < len; i++) {
		uint32_t mask = 0;

		if (i >= base + f->off && i < base + f->off + f->bytes)
			mask = (f->bits == 32 ? ~0u : ((1u << f->bits) - 1) << f->shift) >>
			       8 * (base + f->off + f->bytes - 1 - i);
		if ((a[i] ^ b[i]) & ~mask & 0xff)
			fail_msg("%s: byte %zu is %02x, was %02x", f->name, i, b[i], a[i]);
	}
}

static void set_tcp(struct tcp_hdr_spec *h, size_t field, uint32_t v)
{
	switch (field) {
	case 0:
		h->sport = (uint16_t)v;
		break;
	case 1:
		h->dport = (uint16_t)v;
		break;
	case 2:
		h->seq = v;
		break;
	case 3:
		h->ack = v;
		break;
	case 4:
		h->flags = (uint8_t)v;
		break;
	case 5:
		h->wnd = (uint16_t)v;
		break;
	case 6:
		h->urg = (uint16_t)v;
		break;
	}
}

static void every_field_of_the_tcp_header_is_at_its_place(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(tcp_fields) / sizeof(tcp_fields[0]); i++) {
		const struct field *f = &tcp_fields[i];
		struct tcp_hdr_spec h = combination(0x5f);
		uint8_t before[TCP_HDR_MAX], after[TCP_HDR_MAX];
		uint8_t len = tcp_hdr_write(before, &h);

		for (unsigned bit = 0; bit < f->bits; bit++) {
			set_tcp(&h, i, 1u << bit);
			assert_int_equal(tcp_hdr_write(after, &h), len);
			assert_int_equal(field_get(after, f), 1u << bit);
			only_differs(before, after, len, f, 0);
		}
	}
}

/* What a frame of either protocol is made of. */
struct made_of {
	uint32_t tos, ttl, id, df, sport, dport, len;
	bool v6;
};

static const struct field v4_fields[] = {
	{"tos", 1, 1, 0, 8},
	{"ttl", 8, 1, 0, 8},
	{"id", 4, 2, 0, 16},
	{"DF", 6, 2, 14, 1},
};
static const struct field v6_fields[] = {{"traffic class", 0, 4, 20, 8}, {"hop limit", 7, 1, 0, 8}};

static void addresses(struct in6_addr *src, struct in6_addr *dst, bool v6)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	for (unsigned i = 0; i < 16; i++) {
		src->s6_addr[i] = (uint8_t)(0x20 + i);
		dst->s6_addr[i] = (uint8_t)(0x30 + i);
	}
	if (v6)
		return;
	memcpy(src, mapped, sizeof(mapped));
	memcpy(dst, mapped, sizeof(mapped));
}

static const uint8_t smac[6] = {2, 0x11, 0x12, 0x13, 0x14, 0x15},
		     dmac[6] = {2, 0x21, 0x22, 0x23, 0x24, 0x25};
static uint8_t data[600];

static size_t make_udp(uint8_t *frame, const struct made_of *m, int how)
{
	struct udp_hdr_spec s = {.family = m->v6 ? AF_INET6 : AF_INET,
				 .ttl = (uint8_t)m->ttl,
				 .tos = (uint8_t)m->tos,
				 .df = m->df,
				 .sport = (uint16_t)m->sport,
				 .dport = (uint16_t)m->dport};
	struct iovec iov = {data, m->len};
	struct udp_hdr h;

	memcpy(s.smac, smac, 6);
	memcpy(s.dmac, dmac, 6);
	addresses(&s.src, &s.dst, m->v6);
	udp_hdr_init(&h, &s);
	h.ip_id = (uint16_t)m->id;
	if (how == 0)
		return udp_frame(&h, frame, &iov, 1, m->len);
	if (how == 1)
		return udp_frame_unsummed(&h, frame, &iov, 1, m->len);
	udp_frame_gso(&h, frame, m->len);
	memcpy(frame + h.len, data, m->len);
	return h.len + m->len;
}

static size_t make_tcp(uint8_t *frame, const struct made_of *m, int how)
{
	struct tcp_hdr_spec spec = combination(0x1);
	struct tcp_frame_spec to = {
		.family = m->v6 ? AF_INET6 : AF_INET, .ttl = (uint8_t)m->ttl, .df = m->df};
	uint8_t hdr[TCP_HDR_MAX];
	struct iovec iov = {data, m->len};
	struct tcp_tx tx = {
		.hdr = hdr, .iov = &iov, .iovcnt = 1, .len = m->len, .tos = (uint8_t)m->tos};
	struct tcp_frame_hdr h;
	uint32_t len;

	memcpy(to.smac, smac, 6);
	memcpy(to.dmac, dmac, 6);
	addresses(&to.src, &to.dst, m->v6);
	spec.sport = (uint16_t)m->sport;
	spec.dport = (uint16_t)m->dport;
	tcp_frame_init(&h, &to);
	h.ip_id = (uint16_t)m->id;
	/* A segment's own TTL is taken before the destination's. */
	if (how == 1) {
		h.ttl = 99;
		tx.ttl = (uint8_t)m->ttl;
	}
	tx.hdr_len = tcp_hdr_write(hdr, &spec);
	if (how < 2)
		return tcp_frame(&h, frame, &tx);
	len = tcp_frame_gso(&h, frame, &tx);
	memcpy(frame + len, data, m->len);
	return len + m->len;
}

/* All that a frame says, field by field: RFC 894, 791, 8200, 768, 9293. */
static void see_frame(const uint8_t *f, size_t len, const struct made_of *m, bool tcp)
{
	const uint8_t *ip = f + ETH, *l4 = ip + (m->v6 ? 40 : 20);
	struct in6_addr src, dst;

	addresses(&src, &dst, m->v6);
	assert_memory_equal(f, dmac, 6);
	assert_memory_equal(f + 6, smac, 6);
	assert_int_equal(be(f + 12, 2), m->v6 ? 0x86dd : 0x0800);
	if (m->v6) {
		assert_int_equal(be(ip, 4), 6u << 28 | m->tos << 20); /* flow label 0 */
		assert_int_equal(be(ip + 4, 2), len - ETH - 40);
		assert_int_equal(ip[6], tcp ? 6 : 17);
		assert_int_equal(ip[7], m->ttl);
		assert_memory_equal(ip + 8, &src, 16);
		assert_memory_equal(ip + 24, &dst, 16);
	} else {
		assert_int_equal(ip[0], 0x45);
		assert_int_equal(ip[1], m->tos);
		assert_int_equal(be(ip + 2, 2), len - ETH);
		/* RFC 6864: of what is not cut the identification says nothing. */
		assert_int_equal(be(ip + 4, 2), m->df && !tcp ? 0 : m->id);
		assert_int_equal(be(ip + 6, 2), m->df ? 0x4000 : 0);
		assert_int_equal(ip[8], m->ttl);
		assert_int_equal(ip[9], tcp ? 6 : 17);
		assert_memory_equal(ip + 12, &src.s6_addr[12], 4);
		assert_memory_equal(ip + 16, &dst.s6_addr[12], 4);
	}
	assert_int_equal(be(l4, 2), m->sport);
	assert_int_equal(be(l4 + 2, 2), m->dport);
	if (!tcp)
		assert_int_equal(be(l4 + 4, 2), m->len + 8);
	assert_int_equal(len, (size_t)(l4 - f) + (tcp ? (l4[12] >> 4) * 4u : 8u) + m->len);
	assert_memory_equal(f + len - m->len, data, m->len);
}

static void every_frame_says_what_it_was_made_of(void **state)
{
	static const uint32_t lens[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511};
	uint8_t frame[1024];
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 + 7);
	for (unsigned i = 0; i < 4096; i++) {
		struct made_of m = {.tos = i * 37 & 0xff,
				    .ttl = 1 + (i * 101 & 0xfe),
				    .id = i * 7919 & 0xffff,
				    .df = i & 1,
				    .sport = i * 331 & 0xffff,
				    .dport = ~i * 523 & 0xffff,
				    .len = lens[i % (sizeof(lens) / sizeof(lens[0]))],
				    .v6 = i >> 1 & 1};

		for (int how = 0; how < 3; how++) {
			see_frame(frame, make_udp(frame, &m, how), &m, false);
			see_frame(frame, make_tcp(frame, &m, how), &m, true);
			n += 2;
		}
	}
	print_message("    %u frames\n", n);
}

static uint32_t *member(struct made_of *m, size_t field)
{
	uint32_t *const all[] = {&m->tos, &m->ttl, &m->id, &m->df};

	return all[field];
}

/* Sums change with what they are of; the others do not. */
static void hide_sums(uint8_t *f, bool v6, bool tcp)
{
	uint8_t *ip = f + ETH;

	if (!v6)
		memset(ip + 10, 0, 2);
	memset(ip + (v6 ? 40 : 20) + (tcp ? 16 : 6), 0, 2);
}

static void a_field_changes_its_own_bits_only(void **state)
{
	uint8_t before[1024], after[1024];

	(void)state;
	for (int tcp = 0; tcp < 2; tcp++)
		for (int v6 = 0; v6 < 2; v6++)
			for (size_t i = 0; i < (v6 ? 2 : 4); i++) {
				const struct field *f = v6 ? &v6_fields[i] : &v4_fields[i];
				struct made_of m = {.ttl = 64,
						    .sport = 5,
						    .dport = 6,
						    .len = 33,
						    .v6 = v6},
					       changed;

				for (unsigned bit = 0; bit < f->bits; bit++) {
					size_t len = (tcp ? make_tcp : make_udp)(before, &m, 0);

					changed = m;
					*member(&changed, i) = 1u << bit;
					assert_int_equal(
						(tcp ? make_tcp : make_udp)(after, &changed, 0),
						len);
					assert_int_equal(field_get(after + ETH, f), 1u << bit);
					hide_sums(before, v6, tcp);
					hide_sums(after, v6, tcp);
					only_differs(before, after, len, f, ETH);
				}
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_option_is_read_back),
		cmocka_unit_test(every_field_of_the_tcp_header_is_at_its_place),
		cmocka_unit_test(every_frame_says_what_it_was_made_of),
		cmocka_unit_test(a_field_changes_its_own_bits_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
