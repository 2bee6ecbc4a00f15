/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The TCP header and its options: what is read, what is written, and that foreign lengths lead
 * nowhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tcp/internal.h"
#include "tcp_test_env.h"

/* A segment in exact memory, so that AddressSanitizer sees a step outside. */
struct segment {
	struct buf b;
	uint8_t *mem;
};

/* Header with these options (padded with zeros to a multiple of four) and payload. */
static void make(struct segment *s, uint8_t flags, const uint8_t *opt, size_t opt_len,
		 size_t payload)
{
	size_t hdr = 20 + (opt_len + 3) / 4 * 4;

	s->mem = calloc(1, hdr + payload);
	assert_non_null(s->mem);
	memcpy(s->mem, "\x12\x34\x00\x50\x01\x02\x03\x04\x0a\x0b\x0c\x0d", 12);
	s->mem[12] = (uint8_t)(hdr / 4 << 4);
	s->mem[13] = flags;
	memcpy(s->mem + 14, "\xfe\xdc\xaa\xbb\x00\x09", 6);
	if (opt_len)
		memcpy(s->mem + 20, opt, opt_len);
	s->b = (struct buf){.data = s->mem,
			    .len = (uint32_t)(hdr + payload),
			    .total = (uint32_t)(hdr + payload),
			    .refs = 1};
}

static struct tcp_rx parse(uint8_t flags, const void *opt, size_t opt_len)
{
	struct segment s;
	struct tcp_rx rx;

	memset(&rx, 0xaa, sizeof(rx));
	make(&s, flags, opt, opt_len, 0);
	assert_true(tcp_rx_parse(&s.b, &rx));
	free(s.mem);
	return rx;
}

static void the_fields_of_the_header_are_read(void **state)
{
	struct segment s;
	struct tcp_rx rx;

	(void)state;
	make(&s, TCPHDR_ACK | TCPHDR_PSH, NULL, 0, 100);
	s.b.meta.tos = 0x2b;
	assert_true(tcp_rx_parse(&s.b, &rx));
	assert_int_equal(rx.seq, 0x01020304);
	assert_int_equal(rx.ack, 0x0a0b0c0d);
	assert_int_equal(rx.wnd, 0xfedc);
	assert_int_equal(rx.urg, 9);
	assert_int_equal(rx.flags, TCPHDR_ACK | TCPHDR_PSH);
	assert_int_equal(rx.ecn, 3);
	assert_int_equal(rx.len, 100);
	assert_int_equal(rx.end_seq, 0x01020304 + 100);
	assert_false(rx.has_ts || rx.has_mss || rx.has_wscale || rx.sack_ok || rx.num_sacks);
	assert_ptr_equal(rx.b, &s.b);
	assert_ptr_equal(s.b.data, s.mem + 20);
	assert_int_equal(s.b.len, 100);
	assert_int_equal(s.b.total, 100);
	free(s.mem);
}

static void syn_and_fin_take_a_number_each(void **state)
{
	static const uint8_t flags[] = {0, TCPHDR_SYN, TCPHDR_FIN, TCPHDR_SYN | TCPHDR_FIN};
	static const uint32_t takes[] = {0, 1, 1, 2};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct tcp_rx rx = parse(flags[i], NULL, 0);

		assert_int_equal(rx.end_seq - rx.seq, takes[i]);
	}
}

static void a_chain_of_fragments_is_counted_whole(void **state)
{
	struct segment s;
	struct buf more = {.len = 5000};
	struct tcp_rx rx;

	(void)state;
	make(&s, TCPHDR_ACK, NULL, 0, 10);
	s.b.frag = &more;
	s.b.total += 5000;
	assert_true(tcp_rx_parse(&s.b, &rx));
	assert_int_equal(rx.len, 5010);
	assert_int_equal(s.b.len, 10);
	assert_int_equal(s.b.total, 5010);
	free(s.mem);
}

static void a_header_length_that_cannot_be_is_malformed(void **state)
{
	(void)state;
	for (uint32_t len = 0; len < 70; len++) {
		for (unsigned words = 0; words < 16; words++) {
			uint8_t *mem = calloc(1, len + 1);
			uint8_t *at = mem + 1; /* odd: nothing may rely on alignment */
			struct buf b = {.data = at, .len = len, .total = len};
			struct tcp_rx rx;
			bool fits = len >= 20 && words >= 5 && words * 4 <= len;

			assert_non_null(mem);
			if (len > 12)
				at[12] = (uint8_t)(words << 4);
			assert_int_equal(tcp_rx_parse(&b, &rx), fits);
			if (fits)
				assert_int_equal(rx.len, len - words * 4);
			else
				assert_ptr_equal(b.data, at);
			free(mem);
		}
	}
}

static void a_syns_options_are_read(void **state)
{
	struct tcp_rx rx = parse(TCPHDR_SYN, "\2\4\5\xb4\4\2\x8\xa\1\2\3\4\5\6\7\x8\1\3\3\7", 20);

	(void)state;
	assert_true(rx.has_mss && rx.mss == 1460);
	assert_true(rx.sack_ok);
	assert_true(rx.has_ts && rx.tsval == 0x01020304 && rx.tsecr == 0x05060708);
	assert_true(rx.has_wscale && rx.wscale == 7);
}

static void an_mss_below_48_is_raised_and_zero_is_none(void **state)
{
	(void)state;
	assert_int_equal(parse(TCPHDR_SYN, "\2\4\0\1", 4).mss, 48);
	assert_int_equal(parse(TCPHDR_SYN, "\2\4\0\x2f", 4).mss, 48);
	assert_int_equal(parse(TCPHDR_SYN, "\2\4\0\x31", 4).mss, 49);
	assert_false(parse(TCPHDR_SYN, "\2\4\0\0", 4).has_mss);
}

static void a_window_scale_above_14_is_14(void **state)
{
	(void)state;
	assert_int_equal(parse(TCPHDR_SYN, "\3\3\xe\0", 4).wscale, 14);
	assert_int_equal(parse(TCPHDR_SYN, "\3\3\xf\0", 4).wscale, 14);
	assert_int_equal(parse(TCPHDR_SYN, "\3\3\xff\0", 4).wscale, 14);
}

static void without_syn_its_options_do_not_count(void **state)
{
	struct tcp_rx rx = parse(TCPHDR_ACK, "\2\4\5\xb4\4\2\1\1\1\3\3\7", 12);

	(void)state;
	assert_false(rx.has_mss || rx.sack_ok || rx.has_wscale);
}

static void sack_blocks_are_read_with_and_without_time_stamp(void **state)
{
	static const uint8_t three[] = {1, 1,  8, 10, 0, 0,  0, 1,  0, 0,  0, 2, 1, 1,
					5, 26, 0, 0,  0, 10, 0, 0,  0, 20, 0, 0, 0, 30,
					0, 0,  0, 40, 0, 0,  0, 50, 0, 0,  0, 60};
	static const uint8_t four[36] = {1, 1, 5, 34, [7] = 1, [11] = 2, [35] = 9};
	struct tcp_rx rx = parse(TCPHDR_ACK, three, sizeof(three));

	(void)state;
	assert_int_equal(rx.num_sacks, 3);
	assert_true(rx.has_ts && rx.tsecr == 2);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rx.sack[i].start, 10 + 20 * i);
		assert_int_equal(rx.sack[i].end, 20 + 20 * i);
	}
	rx = parse(TCPHDR_ACK, four, sizeof(four));
	assert_int_equal(rx.num_sacks, 4);
	assert_int_equal(rx.sack[0].start, 1);
	assert_int_equal(rx.sack[0].end, 2);
	assert_int_equal(rx.sack[3].end, 9);
	assert_int_equal(parse(TCPHDR_SYN, four, sizeof(four)).num_sacks, 0);
}

/* RFC 9293, 3.1; what Linux does with each. */
static void odd_options_are_skipped_or_end_the_list(void **state)
{
	(void)state;
	/* Unknown: skipped. */
	assert_int_equal(parse(TCPHDR_SYN, "\xfd\4\2\4\2\4\5\xb4", 8).mss, 1460);
	/* Known kind, not its length: skipped. */
	assert_int_equal(parse(TCPHDR_SYN, "\3\4\7\7\2\4\5\xb4", 8).mss, 1460);
	assert_false(parse(TCPHDR_SYN, "\3\4\7\7\2\4\5\xb4", 8).has_wscale);
	assert_false(parse(TCPHDR_ACK, "\x8\x9\1\1\1\1\1\1\1\1\1\1", 12).has_ts);
	assert_int_equal(parse(TCPHDR_ACK, "\5\x9\1\1\1\1\1\1\1\0\0\0", 12).num_sacks, 0);
	assert_int_equal(parse(TCPHDR_ACK, "\5\xb\1\1\1\1\1\1\1\1\1\0", 12).num_sacks, 0);
	assert_int_equal(parse(TCPHDR_ACK, "\5\2\1\1", 4).num_sacks, 0);
	/* A length of 0 or 1, or beyond the header: the end. */
	assert_false(parse(TCPHDR_SYN, "\xfd\0\1\1\2\4\5\xb4", 8).has_mss);
	assert_false(parse(TCPHDR_SYN, "\xfd\1\1\1\2\4\5\xb4", 8).has_mss);
	assert_false(parse(TCPHDR_SYN, "\xfd\x9\1\1\2\4\5\xb4", 8).has_mss);
	/* The end of the list is its end. */
	assert_false(parse(TCPHDR_SYN, "\0\1\1\1\2\4\5\xb4", 8).has_mss);
	/* A kind without room for its length. */
	assert_false(parse(TCPHDR_SYN, "\1\1\1\2", 4).has_mss);
}

static void no_option_reads_past_the_header(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint8_t opt[40];
		size_t len = test_random(&seed) % 11 * 4;
		struct segment s;
		struct tcp_rx rx;

		for (size_t k = 0; k < len; k++)
			opt[k] = (uint8_t)(test_random(&seed) % 4 ? test_random(&seed) % 12
								  : test_random(&seed));
		make(&s, (uint8_t)test_random(&seed), opt, len, 0);
		assert_true(tcp_rx_parse(&s.b, &rx));
		assert_in_range(rx.num_sacks, 0, TCP_SACK_MAX);
		if (rx.has_mss)
			assert_in_range(rx.mss, TCP_MSS_MIN, 65535);
		free(s.mem);
	}
}

static void what_is_written_reads_back(void **state)
{
	uint64_t seed = 11;
	unsigned cookies = 0;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint8_t *mem = malloc(TCP_HDR_MAX);
		struct buf b = {.data = mem};
		struct tcp_fast_open_cookie cookie = {.len = -1};
		struct tcp_hdr_spec h;
		struct tcp_rx rx;
		uint8_t len;
		unsigned room;

		assert_non_null(mem);
		memset(mem, 0xee, TCP_HDR_MAX);
		for (size_t k = 0; k < sizeof(h) / 4; k++)
			((uint32_t *)&h)[k] = test_random(&seed);
		cookie.len = (int8_t)(test_random(&seed) % 8 * 2 + 2);
		cookie.len = cookie.len == 2 ? 0 : cookie.len;
		cookie.exp = test_random(&seed) & 1;
		h.fast_open = test_random(&seed) & 1 ? &cookie : NULL;
		h.ts = test_random(&seed) & 1;
		h.sack_permitted = test_random(&seed) & 1;
		h.wscale_present = test_random(&seed) & 1;
		h.wscale %= TCP_WSCALE_MAX + 1;
		h.num_sacks = (uint8_t)(test_random(&seed) % 6);
		h.mss = test_random(&seed) & 1 ? 0 : (uint16_t)(h.mss | 64);
		h.flags |= TCPHDR_SYN;
		if (test_random(&seed) & 1) {
			h.flags &= (uint8_t)~TCPHDR_SYN;
			h.mss = 0;
			h.wscale_present = h.sack_permitted = false;
		}
		len = tcp_hdr_write(mem, &h);
		assert_true(len >= 20 && len <= TCP_HDR_MAX && len % 4 == 0);
		b.len = b.total = len;
		assert_true(tcp_rx_parse(&b, &rx));
		assert_int_equal(rx.len, 0);
		assert_int_equal(mem[0] << 8 | mem[1], h.sport);
		assert_int_equal(mem[2] << 8 | mem[3], h.dport);
		assert_int_equal(mem[16] << 8 | mem[17], 0);
		assert_int_equal(rx.seq, h.seq);
		assert_int_equal(rx.ack, h.ack);
		assert_int_equal(rx.wnd, h.wnd);
		assert_int_equal(rx.urg, h.urg);
		assert_int_equal(rx.flags, h.flags);
		assert_int_equal(rx.has_ts, h.ts);
		if (h.ts)
			assert_true(rx.tsval == h.tsval && rx.tsecr == h.tsecr);
		assert_int_equal(rx.has_mss, h.mss != 0);
		if (h.mss)
			assert_int_equal(rx.mss, h.mss);
		assert_int_equal(rx.has_wscale, h.wscale_present);
		if (h.wscale_present)
			assert_int_equal(rx.wscale, h.wscale);
		assert_int_equal(rx.sack_ok, h.sack_permitted);
		if (!(h.flags & TCPHDR_SYN)) {
			room = h.ts ? 3 : 4;
			assert_int_equal(rx.num_sacks, h.num_sacks < room ? h.num_sacks : room);
			assert_memory_equal(rx.sack, h.sack, rx.num_sacks * sizeof(h.sack[0]));
		}
		if (rx.fast_open.len >= 0) {
			assert_true(h.fast_open && h.flags & TCPHDR_SYN);
			assert_int_equal(rx.fast_open.len, cookie.len);
			assert_int_equal(rx.fast_open.exp, cookie.exp);
			assert_memory_equal(rx.fast_open.val, cookie.val, (size_t)cookie.len);
			cookies++;
		}
		free(mem);
	}
	assert_true(cookies > 2000);
}

/* RFC 7413, 4.1.1; what is none, and what says that there is none, as Linux. */
static void fast_open_is_read(void **state)
{
	struct tcp_fast_open_cookie c;

	(void)state;
	assert_int_equal(parse(TCPHDR_SYN, "\2\4\5\xb4", 4).fast_open.len, -1);
	c = parse(TCPHDR_SYN, "\x22\2\1\1", 4).fast_open;
	assert_true(!c.len && !c.exp);
	c = parse(TCPHDR_SYN, "\x22\xa\1\2\3\4\5\6\7\x8\1\1", 12).fast_open;
	assert_true(c.len == 8 && !c.exp);
	assert_memory_equal(c.val, "\1\2\3\4\5\6\7\x8", 8);
	c = parse(TCPHDR_SYN, "\xfe\x8\xf9\x89\1\2\3\4", 8).fast_open;
	assert_true(c.len == 4 && c.exp);
	assert_memory_equal(c.val, "\1\2\3\4", 4);
	/* Another experiment; its length without a magic. */
	assert_int_equal(parse(TCPHDR_SYN, "\xfe\x8\xf9\x88\1\2\3\4", 8).fast_open.len, -1);
	assert_int_equal(parse(TCPHDR_SYN, "\xfe\3\xf9\1", 4).fast_open.len, -1);
	/* Too short, odd, too long. */
	assert_int_equal(parse(TCPHDR_SYN, "\x22\4\1\2", 4).fast_open.len, -1);
	assert_int_equal(parse(TCPHDR_SYN, "\x22\x7\1\2\3\4\5\1", 8).fast_open.len, -1);
	assert_int_equal(parse(TCPHDR_SYN, "\x22\x14\1\2\3\4\5\6\7\x8\1\2\3\4\5\6\7\x8\1\2", 20)
				 .fast_open.len,
			 -1);
	/* Not in a SYN. */
	assert_int_equal(parse(TCPHDR_ACK, "\x22\xa\1\2\3\4\5\6\7\x8\1\1", 12).fast_open.len, -1);
}

/* Linux's SYN, byte by byte: other stacks' fast paths know this order. */
static void a_syn_looks_like_linux_s(void **state)
{
	static const uint8_t want[] = {2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0,
				       0, 1, 0, 0,    0, 2, 1, 3,  3, 7};
	struct tcp_hdr_spec h = {.flags = TCPHDR_SYN,
				 .mss = 1460,
				 .ts = true,
				 .sack_permitted = true,
				 .wscale_present = true,
				 .wscale = 7,
				 .tsval = 1,
				 .tsecr = 2};
	uint8_t mem[TCP_HDR_MAX];

	(void)state;
	assert_int_equal(tcp_hdr_write(mem, &h), 40);
	assert_memory_equal(mem + 20, want, sizeof(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_fields_of_the_header_are_read),
		cmocka_unit_test(syn_and_fin_take_a_number_each),
		cmocka_unit_test(a_chain_of_fragments_is_counted_whole),
		cmocka_unit_test(a_header_length_that_cannot_be_is_malformed),
		cmocka_unit_test(a_syns_options_are_read),
		cmocka_unit_test(an_mss_below_48_is_raised_and_zero_is_none),
		cmocka_unit_test(a_window_scale_above_14_is_14),
		cmocka_unit_test(without_syn_its_options_do_not_count),
		cmocka_unit_test(sack_blocks_are_read_with_and_without_time_stamp),
		cmocka_unit_test(odd_options_are_skipped_or_end_the_list),
		cmocka_unit_test(no_option_reads_past_the_header),
		cmocka_unit_test(what_is_written_reads_back),
		cmocka_unit_test(fast_open_is_read),
		cmocka_unit_test(a_syn_looks_like_linux_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
