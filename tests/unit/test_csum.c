/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every checksum that the library writes or believes, against the plain definition: all ones, all
 * zeros, odd lengths, unaligned starts, sums whose fold carries once more.
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
#include <sys/socket.h>

#include "proto/csum.h"
#include "proto/pkt.h"
#include "proto/udp_frame.h"
#include "tcp/frame.h"
#include "tcp/internal.h"

#define LEN_MAX 140
#define ETH 14

/*
 * RFC 1071, 1: big endian words added one by one, each carry at once. Nothing of csum.h is in it.
 */
static uint16_t plain(uint16_t start, const uint8_t *p, size_t len)
{
	uint32_t sum = start;

	for (size_t i = 0; i < len; i += 2) {
		sum += (uint32_t)(p[i] << 8 | (i + 1 < len ? p[i + 1] : 0));
		if (sum > 0xffff)
			sum -= 0xffff;
	}
	return (uint16_t)sum;
}

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* Bytes of which sums are extreme. */
static const char *const pattern_name[] = {"zeros", "ones",	     "ff00", "00ff",
					   "8000",  "ones but last", "mixed"};

#define PATTERNS (sizeof(pattern_name) / sizeof(pattern_name[0]))

static void fill(uint8_t *p, size_t len, size_t pattern)
{
	static const uint8_t even[] = {0, 0xff, 0xff, 0, 0x80, 0xff},
			     odd[] = {0, 0xff, 0, 0xff, 0, 0xff};

	for (size_t i = 0; i < len; i++) {
		if (pattern < sizeof(even))
			p[i] = i & 1 ? odd[pattern] : even[pattern];
		else
			p[i] = (uint8_t)(i * 167 + (i >> 3) * 29 + 91);
	}
	if (pattern == 5 && len)
		p[len - 1] = 0xfe;
}

static void sums_are_those_of_the_definition(void **state)
{
	static const uint16_t starts[] = {0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff};
	uint8_t bytes[LEN_MAX + 8], copy[LEN_MAX + 8];
	unsigned checks = 0;

	(void)state;
	for (size_t pattern = 0; pattern < PATTERNS; pattern++)
		for (size_t off = 0; off < 8; off++)
			for (size_t len = 0; len <= LEN_MAX; len++)
				for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
					uint16_t want, got, copied;

					fill(bytes + off, len, pattern);
					want = plain(starts[s], bytes + off, len);
					got = ntohs(csum_fold(
						csum_add(htons(starts[s]), bytes + off, len)));
					copied = ntohs(csum_fold(csum_copy(htons(starts[s]), copy,
									   bytes + off, len)));
					if (got != want || copied != want)
						fail_msg("%s, %zu bytes from %zu, start %#x: %#x "
							 "and %#x, not %#x",
							 pattern_name[pattern], len, off, starts[s],
							 got, copied, want);
					assert_memory_equal(copy, bytes + off, len);
					checks++;
				}
	print_message("    %u sums\n", checks);
}

/* A sum is cut anywhere, also after an odd byte, and comes to the same. */
static void parts_sum_to_the_whole(void **state)
{
	uint8_t bytes[64], copy[64];

	(void)state;
	for (size_t pattern = 0; pattern < PATTERNS; pattern++) {
		fill(bytes, sizeof(bytes), pattern);
		for (size_t a = 0; a <= 20; a++)
			for (size_t b = a; b <= 41; b++) {
				struct iovec iov[4] = {{bytes, a},
						       {NULL, 0},
						       {bytes + a, b - a},
						       {bytes + b, 41 - b}};
				uint16_t got = ntohs(csum_fold(csum_copy_iov(0, copy, iov, 4)));

				assert_int_equal(got, plain(0, bytes, 41));
				assert_memory_equal(copy, bytes, 41);
			}
	}
}

static uint16_t plain_fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum >> 16) + (sum & 0xffff);
	return (uint16_t)sum;
}

static void a_fold_carries_as_often_as_it_must(void **state)
{
	static const uint64_t edges[] = {0,
					 1,
					 0xffff,
					 0x10000,
					 0x1ffff,
					 0xffff0000,
					 0xffff0001,
					 0xffffffff,
					 0x100000000,
					 0x1fffffffe,
					 0x1ffffffff,
					 0xfffeffff,
					 0xffff8000,
					 0x80008000,
					 0x17fff8000,
					 0xffffffff0000,
					 ~0ull,
					 ~0ull - 1,
					 0xffffffff00000001,
					 0xffff0000ffff0001};
	uint64_t r = 88172645463325252ull;

	(void)state;
	for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
		assert_int_equal(csum_fold(edges[i]), plain_fold(edges[i]));
	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t sum;

		r ^= r << 13;
		r ^= r >> 7;
		r ^= r << 17;
		sum = r >> (i % 48);
		/* Words that are nearly full carry once more than others. */
		if (i & 1)
			sum |= 0xfffe0000fffe0000ull;
		if (csum_fold(sum) != plain_fold(sum))
			fail_msg("%#llx folds to %#x, not %#x", (unsigned long long)sum,
				 csum_fold(sum), plain_fold(sum));
	}
}

/* --- frames */

static uint8_t frame[ETH + 40 + 60 + LEN_MAX + 64], payload[LEN_MAX + 8];

/* Addresses of whose sums the upper words are full, empty and neither. */
static const uint8_t hosts[][16] = {
	{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1},
	{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0},
	{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	 0xff},
	{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
};
#define HOSTS_V4 3u
#define HOSTS (sizeof(hosts) / sizeof(hosts[0]))

/* Of the transport part of `frame`, with the pseudo header of its addresses: 0xffff when right. */
static uint16_t transport_sum(bool v6, uint8_t proto, size_t frame_len)
{
	size_t l4 = ETH + (v6 ? 40 : 20), len = frame_len - l4;
	uint8_t pseudo[4] = {0, proto, (uint8_t)(len >> 8), (uint8_t)len};
	uint16_t sum = plain(0, frame + ETH + (v6 ? 8 : 12), v6 ? 32 : 8);

	return plain(plain(sum, pseudo, 4), frame + l4, len);
}

static uint16_t header_sum(void)
{
	return plain(0, frame + ETH, 20);
}

static struct buf received(size_t len)
{
	return (struct buf){.data = frame, .len = (uint32_t)len, .total = (uint32_t)len, .refs = 1};
}

static struct udp_hdr udp_header(size_t src, size_t dst, uint16_t port, uint16_t id)
{
	struct udp_hdr_spec spec = {.family = src < HOSTS_V4 ? AF_INET : AF_INET6,
				    .ttl = 255,
				    .tos = 0xff,
				    .sport = port,
				    .dport = 0xffff};
	struct udp_hdr h;

	memcpy(&spec.src, hosts[src], 16);
	memcpy(&spec.dst, hosts[dst], 16);
	udp_hdr_init(&h, &spec);
	h.ip_id = id;
	return h;
}

/* Both families, all addresses of one with each other. */
static bool same_family(size_t a, size_t b)
{
	return (a < HOSTS_V4) == (b < HOSTS_V4);
}

static void datagrams_have_the_sums_of_the_definition(void **state)
{
	unsigned checks = 0;

	(void)state;
	for (size_t n = 0; n < HOSTS * HOSTS * PATTERNS; n++) {
		size_t src = n % HOSTS, dst = n / HOSTS % HOSTS, pattern = n / HOSTS / HOSTS;

		if (!same_family(src, dst))
			continue;
		for (size_t len = 0; len <= LEN_MAX; len++) {
			struct udp_hdr h = udp_header(src, dst, (uint16_t)(n * 7919),
						      (uint16_t)(0xfff0 + len));
			struct iovec iov = {payload + len % 8, len};
			uint32_t got;

			fill(payload + len % 8, len, pattern);
			got = udp_frame(&h, frame, &iov, 1, (uint32_t)len);
			assert_int_equal(transport_sum(src >= HOSTS_V4, IPPROTO_UDP, got), 0xffff);
			assert_int_not_equal(get16(frame + h.len - 2), 0);
			if (src < HOSTS_V4)
				assert_int_equal(header_sum(), 0xffff);
			checks++;
		}
	}
	print_message("    %u datagrams\n", checks);
}

/* RFC 768: a checksum that comes out as zero is sent as all ones. */
static void a_datagrams_checksum_is_never_zero(void **state)
{
	(void)state;
	for (size_t host = 0; host < HOSTS; host += HOSTS_V4)
		for (unsigned port = 1; port < 3000; port += 7) {
			struct udp_hdr h = udp_header(host, host, (uint16_t)port, 1);
			uint8_t word[2] = {0, 0};
			struct iovec iov = {word, 2};
			uint32_t len = udp_frame(&h, frame, &iov, 1, 2);
			uint16_t check = get16(frame + h.len - 2);
			struct buf b;

			/* This payload makes the sum of all else full. */
			word[0] = (uint8_t)(check >> 8);
			word[1] = (uint8_t)check;
			h = udp_header(host, host, (uint16_t)port, 1);
			assert_int_equal(udp_frame(&h, frame, &iov, 1, 2), len);
			assert_int_equal(get16(frame + h.len - 2), 0xffff);
			b = received(len);
			assert_int_equal(pkt_parse(&b), PKT_UDP);
		}
}

static size_t make_segment(size_t src, size_t dst, const struct iovec *iov, uint16_t id, bool gso)
{
	static uint8_t hdr[TCP_HDR_MAX];
	struct tcp_hdr_spec spec = {.sport = 0xffff,
				    .dport = (uint16_t)(id ^ 0xff00),
				    .seq = 0xffffffff,
				    .ack = id,
				    .wnd = 0xffff,
				    .flags = TCPHDR_ACK,
				    .ts = id & 1,
				    .tsval = 0xffffffff};
	struct tcp_frame_spec to = {.family = src < HOSTS_V4 ? AF_INET : AF_INET6, .ttl = 255};
	struct tcp_tx tx = {.hdr = hdr,
			    .iov = iov,
			    .iovcnt = 1,
			    .len = (uint32_t)iov->iov_len,
			    .mss = 50,
			    .tos = 0xff};
	struct tcp_frame_hdr h;

	memcpy(&to.src, hosts[src], 16);
	memcpy(&to.dst, hosts[dst], 16);
	tcp_frame_init(&h, &to);
	h.ip_id = id;
	tx.hdr_len = tcp_hdr_write(hdr, &spec);
	return gso ? tcp_frame_gso(&h, frame, &tx) : tcp_frame(&h, frame, &tx);
}

static void segments_have_the_sums_of_the_definition(void **state)
{
	unsigned checks = 0;

	(void)state;
	for (size_t n = 0; n < HOSTS * HOSTS * PATTERNS; n++) {
		size_t src = n % HOSTS, dst = n / HOSTS % HOSTS, pattern = n / HOSTS / HOSTS;

		if (!same_family(src, dst))
			continue;
		for (size_t len = 0; len <= LEN_MAX; len++) {
			struct iovec iov = {payload + len % 8, len};
			size_t got;

			fill(payload + len % 8, len, pattern);
			got = make_segment(src, dst, &iov, (uint16_t)(0xfff0 + len), false);
			assert_int_equal(transport_sum(src >= HOSTS_V4, IPPROTO_TCP, got), 0xffff);
			if (src < HOSTS_V4)
				assert_int_equal(header_sum(), 0xffff);
			checks++;
		}
	}
	print_message("    %u segments\n", checks);
}

/* What the device completes: the field holds the pseudo header's sum, not inverted. */
static void a_partial_sum_is_the_pseudo_headers(void **state)
{
	(void)state;
	for (size_t src = 0; src < HOSTS; src++)
		for (size_t len = 0; len <= LEN_MAX; len++) {
			bool v6 = src >= HOSTS_V4;
			struct iovec iov = {payload, len};
			size_t headers = make_segment(src, src, &iov, 7, true),
			       l4 = ETH + (v6 ? 40 : 20);
			size_t l4_len = headers - l4 + len;
			uint8_t pseudo[4] = {0, IPPROTO_TCP, (uint8_t)(l4_len >> 8),
					     (uint8_t)l4_len};
			uint16_t want = plain(plain(0, frame + ETH + (v6 ? 8 : 12), v6 ? 32 : 8),
					      pseudo, 4);
			struct udp_hdr h = udp_header(src, src, 9, 1);

			assert_int_equal(get16(frame + l4 + 16), want);
			udp_frame_gso(&h, frame, (uint32_t)len);
			pseudo[1] = IPPROTO_UDP;
			pseudo[3] = (uint8_t)(len + 8);
			pseudo[2] = (uint8_t)((len + 8) >> 8);
			want = plain(plain(0, frame + ETH + (v6 ? 8 : 12), v6 ? 32 : 8), pseudo, 4);
			assert_int_equal(get16(frame + l4 + 6), want);
		}
}

/* The gate: a right frame comes in, one with any other bit turned does not. */
static void the_gate_sees_every_turned_bit(void **state)
{
	unsigned turned = 0;

	(void)state;
	for (size_t src = 0; src < HOSTS; src++)
		for (size_t pattern = 0; pattern < PATTERNS; pattern++)
			for (size_t len = 0; len < 40; len += 13) {
				struct iovec iov = {payload, len};
				size_t total, from = ETH + (src >= HOSTS_V4 ? 40 : 20);
				struct buf b;

				/* All ones is no host's address. */
				if (src == 1 || src == 2)
					continue;
				fill(payload, len, pattern);
				total = make_segment(src, src, &iov, 3, false);
				b = received(total);
				assert_int_equal(pkt_parse(&b), PKT_TCP);
				for (size_t bit = from * 8; bit < total * 8; bit++) {
					enum pkt_result r;

					frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
					b = received(total);
					r = pkt_parse(&b);
					/* The header's length may be what cannot be. */
					if (r != PKT_BAD_CHECKSUM &&
					    !(bit / 8 == from + 12 && r == PKT_MALFORMED))
						fail_msg("bit %zu of %zu bytes: %d", bit, total, r);
					frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
					turned++;
				}
			}
	print_message("    %u bits\n", turned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_those_of_the_definition),
		cmocka_unit_test(parts_sum_to_the_whole),
		cmocka_unit_test(a_fold_carries_as_often_as_it_must),
		cmocka_unit_test(datagrams_have_the_sums_of_the_definition),
		cmocka_unit_test(a_datagrams_checksum_is_never_zero),
		cmocka_unit_test(segments_have_the_sums_of_the_definition),
		cmocka_unit_test(a_partial_sum_is_the_pseudo_headers),
		cmocka_unit_test(the_gate_sees_every_turned_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
