/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of TCP segments: what we write, checked by a checksum of its own, and what the gate lets
 * in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "proto/pkt.h"
#include "tcp/frame.h"
#include "tcp/internal.h"

static uint8_t frame[70000], payload[66000];

static struct in6_addr addr(const char *text)
{
	struct in6_addr a;
	char mapped[64];

	snprintf(mapped, sizeof(mapped), strchr(text, ':') ? "%s" : "::ffff:%s", text);
	assert_int_equal(inet_pton(AF_INET6, mapped, &a), 1);
	return a;
}

static const char *const pairs[][2] = {{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}};

static struct tcp_frame_hdr hdr_of(const char *src, const char *dst, bool df)
{
	struct tcp_frame_spec s = {
		.smac = {2, 0, 0, 0, 0, 1},
		.dmac = {2, 0, 0, 0, 0, 2},
		.family = strchr(src, ':') ? AF_INET6 : AF_INET,
		.ttl = 64,
		.df = df,
		.src = addr(src),
		.dst = addr(dst),
	};
	struct tcp_frame_hdr h;

	tcp_frame_init(&h, &s);
	return h;
}

/*
 * A segment of len bytes from payload, its header by the engine's own writer (a time stamp: 32
 * bytes).
 */
static struct tcp_tx segment(const struct iovec *iov, int iovcnt, uint32_t len)
{
	static uint8_t hdr[TCP_HDR_MAX];
	struct tcp_hdr_spec h = {.sport = 4321,
				 .dport = 80,
				 .seq = 7,
				 .ack = 9,
				 .wnd = 1000,
				 .flags = TCPHDR_ACK | TCPHDR_PSH,
				 .ts = true,
				 .tsval = 3};
	struct tcp_tx tx = {
		.hdr = hdr, .iov = iov, .iovcnt = iovcnt, .len = len, .mss = 1448, .tos = 0x2a};

	tx.hdr_len = tcp_hdr_write(hdr, &h);
	return tx;
}

/* RFC 1071's plain definition, going on from sum. */
static uint32_t plain_sum(uint32_t sum, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* RFC 9293, 3.1: the pseudo header of the frame at p. */
static uint32_t pseudo_sum(const uint8_t *p, bool v6, uint32_t tcp_len)
{
	const uint8_t *ip = p + 14;
	uint32_t sum = v6 ? plain_sum(0, ip + 8, 32) : plain_sum(0, ip + 12, 8);

	return plain_sum(sum + 6 + (tcp_len & 0xffff) + (tcp_len >> 16), NULL, 0);
}

static uint32_t build(struct buf *b, int f, uint32_t len)
{
	struct tcp_frame_hdr h = hdr_of(pairs[f][0], pairs[f][1], true);
	struct iovec iov = {payload, len};
	struct tcp_tx tx = segment(&iov, 1, len);

	memset(b, 0, sizeof(*b));
	b->data = frame;
	b->len = b->total = tcp_frame(&h, frame, &tx);
	b->refs = 1;
	return b->len;
}

static void a_segment_to_a_groups_ethernet_address_is_dropped(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		struct buf b;

		build(&b, f, 10);
		memset(frame, 0xff, 6);
		assert_int_equal(pkt_parse(&b), PKT_OTHER);
		build(&b, f, 10);
		frame[0] |= 1;
		assert_int_equal(pkt_parse(&b), PKT_OTHER);
	}
}

static int fill(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + (i >> 8));
	return 0;
}

static const uint32_t sizes[] = {0, 1, 2, 3, 31, 64, 1447, 1448, 9000, 65483};

static void every_sum_is_right_by_the_plain_definition(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		uint32_t l4 = f ? 54 : 34;

		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct buf b;
			uint32_t len = build(&b, f, sizes[i]), tcp_len = 32 + sizes[i];

			assert_int_equal(len, l4 + tcp_len);
			assert_int_equal(
				plain_sum(pseudo_sum(frame, f, tcp_len), frame + l4, tcp_len),
				0xffff);
			assert_memory_equal(frame + l4 + 32, payload, sizes[i]);
			assert_memory_equal(frame, "\2\0\0\0\0\2\2\0\0\0\0\1", 12);
			if (f) {
				assert_int_equal(frame[18] << 8 | frame[19], tcp_len);
				assert_memory_equal(frame + 14, "\x62\xa0\0\0", 4);
				assert_int_equal(frame[21], 64);
			} else {
				assert_int_equal(plain_sum(0, frame + 14, 20), 0xffff);
				assert_int_equal(frame[16] << 8 | frame[17], 20 + tcp_len);
				assert_int_equal(frame[15], 0x2a);
				assert_int_equal(frame[20], 0x40); /* DF */
				assert_int_equal(frame[22], 64);
			}
		}
	}
}

static void the_gate_takes_what_we_write(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct tcp_rx rx;
			struct buf b;

			build(&b, f, sizes[i]);
			assert_int_equal(pkt_parse(&b), PKT_TCP);
			assert_ptr_equal(b.data, frame + (f ? 54 : 34));
			assert_int_equal(b.total, 32 + sizes[i]);
			assert_int_equal(b.len, 32 + sizes[i]);
			assert_int_equal(b.meta.sport, 4321);
			assert_int_equal(b.meta.dport, 80);
			assert_int_equal(b.meta.ttl, 64);
			assert_int_equal(b.meta.tos, 0x2a);
			assert_int_equal(b.meta.family, f ? AF_INET6 : AF_INET);
			assert_int_equal(b.meta.multicast, 0);
			assert_true(tcp_rx_parse(&b, &rx));
			assert_int_equal(rx.len, sizes[i]);
			assert_int_equal(rx.seq, 7);
			assert_int_equal(rx.ecn, 2);
			assert_memory_equal(b.data, payload, sizes[i]);
		}
	}
}

static void vectors_are_summed_across_odd_borders(void **state)
{
	struct iovec iov[5] = {
		{payload, 3}, {NULL, 0}, {payload + 3, 8}, {payload + 11, 89}, {payload + 100, 1}};
	struct tcp_frame_hdr h = hdr_of("10.0.0.1", "10.0.0.2", true);
	struct tcp_tx tx = segment(iov, 5, 101);
	struct buf b = {.data = frame, .refs = 1};

	(void)state;
	b.len = b.total = tcp_frame(&h, frame, &tx);
	assert_int_equal(pkt_parse(&b), PKT_TCP);
	assert_memory_equal(b.data + 32, payload, 101);
}

static void the_segment_s_own_ttl_wins(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		struct tcp_frame_hdr h = hdr_of(pairs[f][0], pairs[f][1], true);
		struct tcp_tx tx = segment(NULL, 0, 0);
		struct buf b = {.data = frame, .refs = 1};

		tx.ttl = 255;
		b.len = b.total = tcp_frame(&h, frame, &tx);
		assert_int_equal(pkt_parse(&b), PKT_TCP);
		assert_int_equal(b.meta.ttl, 255);
	}
}

static void identification_counts_every_packet_on_the_wire(void **state)
{
	struct tcp_frame_hdr h = hdr_of("10.0.0.1", "10.0.0.2", false);
	struct iovec iov = {payload, 14480};
	struct tcp_tx one = segment(&iov, 1, 1448), ten = segment(&iov, 1, 14480),
		      none = segment(NULL, 0, 0);

	(void)state;
	tcp_frame(&h, frame, &one);
	assert_int_equal(frame[18] << 8 | frame[19], 0);
	assert_int_equal(frame[20], 0);
	tcp_frame_gso(&h, frame, &ten);
	assert_int_equal(frame[18] << 8 | frame[19], 1);
	tcp_frame_gso(&h, frame, &none);
	assert_int_equal(frame[18] << 8 | frame[19], 11);
	h.ip_id = 65535;
	tcp_frame(&h, frame, &one);
	tcp_frame(&h, frame, &one);
	assert_int_equal(frame[18] << 8 | frame[19], 0);
	assert_int_equal(plain_sum(0, frame + 14, 20), 0xffff);
}

static void a_frame_to_be_cut_carries_the_pseudo_header_sum(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		struct tcp_frame_hdr h = hdr_of(pairs[f][0], pairs[f][1], true);
		struct iovec iov = {payload, 60000};
		struct tcp_tx tx = segment(&iov, 1, 60000);
		uint32_t l4 = f ? 54 : 34;

		memset(frame, 0xee, 200);
		assert_int_equal(tcp_frame_gso(&h, frame, &tx), l4 + 32);
		assert_int_equal(frame[l4 + 16] << 8 | frame[l4 + 17], pseudo_sum(frame, f, 60032));
		assert_int_equal(frame[l4 + 32], 0xee);
		if (!f)
			assert_int_equal(plain_sum(0, frame + 14, 20), 0xffff);
	}
}

/* --- the gate --- */

static void every_flipped_bit_is_noticed(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		struct buf b;
		uint32_t len = build(&b, f, 20);

		for (uint32_t bit = 14 * 8; bit < len * 8; bit++) {
			/* IPv6 sums neither traffic class, flow label nor hop limit. */
			if (f && (bit / 8 < 18 || bit / 8 == 21))
				continue;
			build(&b, f, 20);
			frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_not_equal(pkt_parse(&b), PKT_TCP);
		}
	}
}

static void a_partial_checksum_counts_on_virtual_devices_only(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		for (int allowed = 0; allowed < 2; allowed++) {
			struct tcp_frame_hdr h = hdr_of(pairs[f][0], pairs[f][1], true);
			struct iovec iov = {payload, 60000};
			struct tcp_tx tx = segment(&iov, 1, 60000);
			struct buf b;

			build(&b, f, 60000);
			tcp_frame_gso(&h, frame, &tx);
			b.flags = allowed ? BUF_CSUM_PARTIAL_OK : 0;
			assert_int_equal(pkt_parse(&b), allowed ? PKT_TCP : PKT_BAD_CHECKSUM);
			build(&b, f, 60000);
			frame[60000] ^= 1;
			b.flags = allowed ? BUF_CSUM_OK : BUF_CSUM_PARTIAL_OK;
			assert_int_equal(pkt_parse(&b), allowed ? PKT_TCP : PKT_BAD_CHECKSUM);
		}
	}
}

/* Fragments of 101 bytes behind a first one of any size that holds the headers. */
static void a_frame_in_fragments_reads_like_one_piece(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		uint32_t hdrs = (f ? 54 : 34) + 32;

		for (uint32_t first = hdrs - 40; first < hdrs + 70; first++) {
			struct buf part[3], whole;

			build(&whole, f, 400);
			memset(part, 0, sizeof(part));
			part[0] = whole;
			part[0].len = first;
			part[0].frag = &part[1];
			part[1].data = frame + first;
			part[1].len = 101;
			part[1].frag = &part[2];
			part[2].data = frame + first + 101;
			part[2].len = whole.total - first - 101;
			if (first < hdrs) {
				assert_int_equal(pkt_parse(&part[0]), PKT_MALFORMED);
				continue;
			}
			assert_int_equal(pkt_parse(&part[0]), PKT_TCP);
			assert_int_equal(part[0].total, 432);
			assert_int_equal(part[0].len + part[1].len + part[2].len, 432);
		}
	}
}

static void padding_of_the_link_is_cut_off(void **state)
{
	struct buf b, pad = {.data = payload, .len = 9};

	(void)state;
	build(&b, 0, 1);
	memset(frame + b.len, 0xee, 17);
	b.len = b.total += 17;
	assert_int_equal(pkt_parse(&b), PKT_TCP);
	assert_int_equal(b.total, 33);
	assert_int_equal(b.len, 33);
	build(&b, 0, 1);
	b.total += 9;
	b.frag = &pad;
	assert_int_equal(pkt_parse(&b), PKT_TCP);
	assert_int_equal(b.total, 33);
	assert_int_equal(b.len, 33);
	assert_int_equal(pad.len, 0);
}

static void impossible_lengths_are_malformed(void **state)
{
	struct buf b;

	(void)state;
	for (int f = 0; f < 2; f++) {
		uint32_t l4 = f ? 54 : 34;

		for (uint32_t len = 14; len < l4 + 32; len++) {
			build(&b, f, 0);
			b.len = b.total = len;
			assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
		}
		for (unsigned words = 0; words < 16; words++) {
			build(&b, f, 12);
			frame[l4 + 12] = (uint8_t)(words << 4);
			assert_int_equal(pkt_parse(&b), words < 5 || words > 11 ? PKT_MALFORMED
							: words == 8		? PKT_TCP
										: PKT_BAD_CHECKSUM);
		}
	}
}

/* RFC 9293, 3.9.2.3 (MUST-57, MUST-63): TCP is between two hosts. */
static void groups_and_nobody_are_refused(void **state)
{
	static const char *const odd[][2] = {
		{"10.0.0.1", "224.0.0.1"}, {"10.0.0.1", "255.255.255.255"},
		{"239.1.1.1", "10.0.0.2"}, {"255.255.255.255", "10.0.0.2"},
		{"0.0.0.0", "10.0.0.2"},   {"fd00::1", "ff02::1"},
		{"ff02::1", "fd00::2"},	   {"::", "fd00::2"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct tcp_frame_hdr h = hdr_of(odd[i][0], odd[i][1], true);
		struct tcp_tx tx = segment(NULL, 0, 0);
		struct buf b = {.data = frame, .refs = 1};

		b.len = b.total = tcp_frame(&h, frame, &tx);
		assert_int_equal(pkt_parse(&b), PKT_OTHER);
	}
}

/* The kernel: tcp_v4_rcv() takes what was for this host alone, tcp_v6_conn_request() no mapped
 * source. */
static void a_frame_for_several_hosts_and_a_mapped_source_are_refused(void **state)
{
	static const uint8_t to[][6] = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
					{1, 0, 0x5e, 0, 0, 1}};
	uint8_t *src = frame + 14 + 8;
	struct buf b;

	(void)state;
	for (int f = 0; f < 2; f++) {
		for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
			build(&b, f, 12);
			memcpy(frame, to[i], 6);
			assert_int_equal(pkt_parse(&b), PKT_OTHER);
		}
	}
	build(&b, 1, 12);
	memset(src, 0, 16);
	src[10] = src[11] = 0xff;
	src[12] = 10;
	src[15] = 1;
	assert_int_equal(pkt_parse(&b), PKT_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sum_is_right_by_the_plain_definition),
		cmocka_unit_test(the_gate_takes_what_we_write),
		cmocka_unit_test(a_segment_to_a_groups_ethernet_address_is_dropped),
		cmocka_unit_test(vectors_are_summed_across_odd_borders),
		cmocka_unit_test(the_segment_s_own_ttl_wins),
		cmocka_unit_test(identification_counts_every_packet_on_the_wire),
		cmocka_unit_test(a_frame_to_be_cut_carries_the_pseudo_header_sum),
		cmocka_unit_test(every_flipped_bit_is_noticed),
		cmocka_unit_test(a_partial_checksum_counts_on_virtual_devices_only),
		cmocka_unit_test(a_frame_in_fragments_reads_like_one_piece),
		cmocka_unit_test(padding_of_the_link_is_cut_off),
		cmocka_unit_test(impossible_lengths_are_malformed),
		cmocka_unit_test(groups_and_nobody_are_refused),
		cmocka_unit_test(a_frame_for_several_hosts_and_a_mapped_source_are_refused),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
