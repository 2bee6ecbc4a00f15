/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The protocol core: checksums, the gate for frames, the headers that we write, who gets a
 * datagram.
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

#include "proto/csum.h"
#include "proto/pkt.h"
#include "proto/udp_demux.h"
#include "proto/udp_frame.h"

static struct in6_addr addr(const char *text)
{
	struct in6_addr a;
	char mapped[64];

	snprintf(mapped, sizeof(mapped), strchr(text, ':') ? "%s" : "::ffff:%s", text);
	assert_int_equal(inet_pton(AF_INET6, mapped, &a), 1);
	return a;
}

static struct udp_hdr_spec spec(const char *src, const char *dst)
{
	struct udp_hdr_spec s = {
		.smac = {2, 0, 0, 0, 0, 1},
		.dmac = {2, 0, 0, 0, 0, 2},
		.family = strchr(src, ':') ? AF_INET6 : AF_INET,
		.ttl = 64,
		.tos = 0x28,
		.df = true,
		.src = addr(src),
		.dst = addr(dst),
		.sport = 4321,
		.dport = 1234,
	};

	return s;
}

static uint8_t frame[70000], payload[66000];

/* Builds a frame and wraps it into b. */
static void build(struct buf *b, const char *src, const char *dst, uint32_t len)
{
	struct udp_hdr_spec s = spec(src, dst);
	struct iovec iov = {payload, len};
	struct udp_hdr h;

	udp_hdr_init(&h, &s);
	memset(b, 0, sizeof(*b));
	b->data = frame;
	b->len = b->total = udp_frame(&h, frame, &iov, 1, len);
	b->refs = 1;
}

/* RFC 1071's plain definition. */
static uint16_t reference_sum(const uint8_t *p, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (len & 1)
		sum += (uint32_t)p[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Completes an IPv4 header whose checksum field is zero. */
static void reference_fix(uint8_t *ip)
{
	uint16_t sum = htons((uint16_t)~reference_sum(ip, 20));

	memcpy(ip + 10, &sum, 2);
}

static void the_sum_is_rfc_1071s_at_every_length_and_alignment(void **state)
{
	uint8_t data[300], copy[300];

	(void)state;
	srand(1);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rand();
	for (size_t off = 0; off < 8; off++) {
		for (size_t len = 0; len + off < 280; len++) {
			uint16_t want = htons(reference_sum(data + off, len));

			assert_int_equal(csum_fold(csum_add(0, data + off, len)), want);
			assert_int_equal(csum_fold(csum_copy(0, copy, data + off, len)), want);
			assert_memory_equal(copy, data + off, len);
		}
	}
}

static void what_we_write_passes_our_own_gate(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 31, 64, 1471, 1472, 9000, 65507};
	static const char *const pairs[][2] = {{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}};
	struct buf b;

	(void)state;
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + (i >> 8));
	for (int f = 0; f < 2; f++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			build(&b, pairs[f][0], pairs[f][1], sizes[i]);
			assert_int_equal(pkt_parse(&b), PKT_UDP);
			assert_int_equal(b.total, sizes[i]);
			assert_int_equal(b.len, sizes[i]);
			assert_memory_equal(b.data, payload, sizes[i]);
			assert_int_equal(b.meta.sport, 4321);
			assert_int_equal(b.meta.dport, 1234);
			assert_int_equal(b.meta.ttl, 64);
			assert_int_equal(b.meta.tos, 0x28);
			assert_int_equal(b.meta.family, f ? AF_INET6 : AF_INET);
			assert_int_equal(b.meta.multicast, 0);
		}
	}
}

static void a_datagram_of_several_vectors_is_summed_across_odd_borders(void **state)
{
	struct udp_hdr_spec s = spec("10.0.0.1", "10.0.0.2");
	struct iovec iov[4] = {{payload, 3}, {NULL, 0}, {payload + 3, 8}, {payload + 11, 90}};
	struct udp_hdr h;
	struct buf b = {.data = frame, .refs = 1};

	(void)state;
	udp_hdr_init(&h, &s);
	b.len = b.total = udp_frame(&h, frame, iov, 4, 101);
	assert_int_equal(pkt_parse(&b), PKT_UDP);
	assert_memory_equal(b.data, payload, 101);
}

static void every_flipped_bit_is_noticed(void **state)
{
	unsigned accepted = 0;
	struct buf b;

	(void)state;
	build(&b, "10.0.0.1", "10.0.0.2", 20);
	for (uint32_t bit = 14 * 8; bit < (14 + 20 + 8 + 20) * 8; bit++) {
		build(&b, "10.0.0.1", "10.0.0.2", 20);
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (pkt_parse(&b) == PKT_UDP)
			accepted++;
	}
	assert_int_equal(accepted, 0);
}

static void a_missing_checksum_is_fine_in_ipv4_and_an_error_in_ipv6(void **state)
{
	struct buf b;

	(void)state;
	build(&b, "10.0.0.1", "10.0.0.2", 20);
	memset(frame + 14 + 20 + 6, 0, 2);
	assert_int_equal(pkt_parse(&b), PKT_UDP);
	build(&b, "fd00::1", "fd00::2", 20);
	memset(frame + 14 + 40 + 6, 0, 2);
	assert_int_equal(pkt_parse(&b), PKT_BAD_CHECKSUM);
}

static void a_partial_checksum_counts_on_virtual_devices_only(void **state)
{
	struct udp_hdr_spec s = spec("10.0.0.1", "10.0.0.2");
	struct udp_hdr h;
	struct buf b;

	(void)state;
	for (int allowed = 0; allowed < 2; allowed++) {
		build(&b, "10.0.0.1", "10.0.0.2", 33);
		udp_hdr_init(&h, &s);
		udp_frame_gso(&h, frame, 33); /* writes the pseudo-header sum only */
		b.flags = allowed ? BUF_CSUM_PARTIAL_OK : 0;
		assert_int_equal(pkt_parse(&b), allowed ? PKT_UDP : PKT_BAD_CHECKSUM);
	}
	/* A vouched-for frame is not summed at all. */
	build(&b, "10.0.0.1", "10.0.0.2", 33);
	frame[14 + 20 + 6] ^= 1;
	b.flags = BUF_CSUM_OK;
	assert_int_equal(pkt_parse(&b), PKT_UDP);
}

static void a_frame_in_fragments_reads_like_one_piece(void **state)
{
	struct buf b, f[3];

	(void)state;
	for (uint32_t first = 42; first < 120; first++) {
		build(&b, "10.0.0.1", "10.0.0.2", 400);
		memset(f, 0, sizeof(f));
		f[0] = b;
		f[0].len = first;
		f[0].frag = &f[1];
		f[1].data = frame + first;
		f[1].len = 101;
		f[1].frag = &f[2];
		f[2].data = frame + first + 101;
		f[2].len = b.total - first - 101;
		assert_int_equal(pkt_parse(&f[0]), PKT_UDP);
		assert_int_equal(f[0].total, 400);
		assert_int_equal(f[0].len + f[1].len + f[2].len, 400);
	}
}

/* The frame in one piece takes the gate's fast path, in two pieces the general one. */
static void damaged_frames_are_judged_alike_in_one_piece_and_in_two(void **state)
{
	enum { HEADERS = 14 + 20 + 8, FIRST = 70, LEN = HEADERS + 60 };
	unsigned count[PKT_OTHER + 1] = {0};

	(void)state;
	srand(2);
	for (unsigned n = 0; n < 200000; n++) {
		enum pkt_result one, two;
		struct buf b, f[2] = {0};

		build(&b, "10.0.0.1", n % 16 ? "10.0.0.2" : "239.1.2.3", 60);
		b.flags = (uint8_t)(n % 4);
		for (int i = rand() % 3; i > 0; i--)
			frame[12 + rand() % (HEADERS - 12)] = (uint8_t)rand();
		/* Most of what was damaged would only fail the header's sum. */
		memset(frame + 14 + 10, 0, 2);
		reference_fix(frame + 14);
		if (n % 8 == 0)
			b.len = b.total = (uint32_t)(FIRST + rand() % (LEN - FIRST + 20));
		f[0] = b;
		f[0].len = FIRST;
		f[0].frag = &f[1];
		f[1].data = frame + FIRST;
		f[1].len = b.len - FIRST;
		one = pkt_parse(&b);
		two = pkt_parse(&f[0]);
		assert_int_equal(one, two);
		count[one]++;
		if (one != PKT_UDP)
			continue;
		assert_int_equal(b.total, f[0].total);
		assert_int_equal(b.len, b.total);
		assert_ptr_equal(b.data, f[0].data);
		assert_memory_equal(&b.meta, &f[0].meta, sizeof(b.meta));
	}
	print_message("datagrams %u, malformed %u, bad sum %u, other %u\n", count[PKT_UDP],
		      count[PKT_MALFORMED], count[PKT_BAD_CHECKSUM], count[PKT_OTHER]);
	assert_int_not_equal(count[PKT_UDP], 0);
	assert_int_not_equal(count[PKT_MALFORMED], 0);
	assert_int_not_equal(count[PKT_BAD_CHECKSUM], 0);
	assert_int_not_equal(count[PKT_OTHER], 0);
}

/* The frame of b gets a tag, IEEE 802.1Q's of that type and content. */
static void tag(struct buf *b, uint16_t type, uint16_t content)
{
	uint16_t words[2] = {htons(type), htons(content)};

	memmove(frame + 16, frame + 12, b->len - 12);
	memcpy(frame + 12, words, sizeof(words));
	b->len += 4;
	b->total += 4;
}

static void a_priority_tag_is_stepped_over(void **state)
{
	static const char *const pairs[][2] = {
		{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}, {"10.0.0.1", "239.1.2.3"}};
	static const uint16_t types[] = {0x8100, 0x88a8};
	struct buf b;

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		build(&b, pairs[i % 3][0], pairs[i % 3][1], 100);
		tag(&b, types[i / 3], 5 << 13 | 1 << 12);
		assert_int_equal(pkt_parse(&b), PKT_UDP);
		assert_int_equal(b.total, 100);
		assert_memory_equal(b.data, payload, 100);
		assert_int_equal(b.meta.dport, 1234);
	}
}

static void a_tag_of_a_vlan_is_not(void **state)
{
	const uint16_t vlans[] = {1, 5, 0xfff, 3 << 13 | 7};
	struct buf b;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		build(&b, "10.0.0.1", "10.0.0.2", 100);
		tag(&b, 0x8100, vlans[i]);
		assert_int_equal(pkt_parse(&b), PKT_OTHER);
	}
	/* Refused frames are as they were, and none is read behind its end. */
	build(&b, "10.0.0.1", "10.0.0.2", 100);
	frame[14] = 0x55;
	tag(&b, 0x8100, 0);
	assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	assert_ptr_equal(b.data, frame);
	assert_int_equal(b.len, 14 + 4 + 20 + 8 + 100);
	assert_int_equal(b.total, b.len);
	for (uint32_t len = 0; len < 46; len++) {
		b.len = b.total = len;
		assert_int_not_equal(pkt_parse(&b), PKT_UDP);
	}
}

static void padding_of_the_link_is_cut_off(void **state)
{
	struct buf b;

	(void)state;
	build(&b, "10.0.0.1", "10.0.0.2", 1);
	memset(frame + b.len, 0xee, 17);
	b.len = b.total = 60;
	assert_int_equal(pkt_parse(&b), PKT_UDP);
	assert_int_equal(b.total, 1);
	assert_int_equal(b.len, 1);
}

static void impossible_lengths_are_malformed(void **state)
{
	struct buf b;

	(void)state;
	for (uint32_t len = 0; len < 14 + 20 + 8; len++) {
		build(&b, "10.0.0.1", "10.0.0.2", 0);
		b.len = b.total = len;
		assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	}
	for (uint32_t len = 14; len < 14 + 40 + 8; len++) {
		build(&b, "fd00::1", "fd00::2", 0);
		b.len = b.total = len;
		assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	}
	build(&b, "10.0.0.1", "10.0.0.2", 50);
	frame[14 + 20 + 4] = 0xff; /* UDP length above the IP length */
	assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	build(&b, "10.0.0.1", "10.0.0.2", 50);
	frame[14 + 20 + 4] = 0;
	frame[14 + 20 + 5] = 7; /* below its own header */
	assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
}

/* Merged segments as BIG TCP has them: a payload of so many bytes, the checksum complete. */
static void build_big_tcp(struct buf *b, uint32_t len)
{
	const uint32_t l4_len = 20 + len;
	uint32_t be = htonl(l4_len);
	uint8_t *ip = frame + 14, *tcp = ip + 20;
	uint16_t sum;

	build(b, "10.0.0.1", "10.0.0.2", 0);
	memset(ip + 2, 0, 2);
	memset(ip + 10, 0, 2);
	ip[9] = IPPROTO_TCP;
	reference_fix(ip);
	memset(tcp, 0, 20);
	memcpy(tcp, (uint8_t[]){0x10, 0xe1, 0x04, 0xd2}, 4);
	tcp[12] = 5 << 4;
	tcp[13] = 0x10;
	memcpy(tcp + 20, payload, len);
	sum = csum_fold(
		csum_add(csum_add(csum_add(htons(IPPROTO_TCP), ip + 12, 8), &be, 4), tcp, l4_len));
	sum = (uint16_t)~sum;
	memcpy(tcp + 16, &sum, 2);
	b->len = b->total = 14 + 20 + l4_len;
}

static void merged_segments_may_be_longer_than_the_header_can_say(void **state)
{
	struct buf b;

	(void)state;
	for (uint32_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t len = 65496; len < 65500; len++) {
		build_big_tcp(&b, len);
		assert_int_equal(pkt_parse(&b), PKT_TCP);
		assert_int_equal(b.total, 20 + len);
		assert_int_equal(b.meta.dport, 1234);
		assert_memory_equal(b.data + 20, payload, len);
	}
	build_big_tcp(&b, 65600);
	frame[14 + 40 + 65599] ^= 1;
	assert_int_equal(pkt_parse(&b), PKT_BAD_CHECKSUM);
	/* The header could have said the length of this one. */
	build_big_tcp(&b, 65495);
	assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	build_big_tcp(&b, 65600);
	frame[14 + 9] = IPPROTO_UDP;
	assert_int_equal(pkt_parse(&b), PKT_MALFORMED);
	memset(payload, 0, sizeof(payload));
}

static void the_checksum_zero_is_sent_as_ffff(void **state)
{
	struct udp_hdr_spec s = spec("10.0.0.1", "10.0.0.2");
	struct udp_hdr h;
	bool seen = false;

	(void)state;
	udp_hdr_init(&h, &s);
	for (uint32_t word = 0; word < 65536; word++) {
		uint16_t data = (uint16_t)word, check;
		struct iovec iov = {&data, 2};

		udp_frame(&h, frame, &iov, 1, 2);
		memcpy(&check, frame + 14 + 20 + 6, 2);
		assert_int_not_equal(check, 0);
		seen = seen || check == 0xffff;
	}
	assert_true(seen);
}

static void identification_counts_only_without_df(void **state)
{
	struct udp_hdr_spec s = spec("10.0.0.1", "10.0.0.2");
	struct iovec iov = {payload, 1};
	struct udp_hdr h;
	uint16_t id[2];

	(void)state;
	for (int df = 0; df < 2; df++) {
		s.df = df;
		udp_hdr_init(&h, &s);
		for (int i = 0; i < 2; i++) {
			udp_frame(&h, frame, &iov, 1, 1);
			memcpy(&id[i], frame + 14 + 4, 2);
			assert_int_equal(reference_sum(frame + 14, 20), 0xffff);
		}
		assert_int_equal(ntohs(id[1]) - ntohs(id[0]), df ? 0 : 1);
	}
}

/* --- demultiplexer --- */

static struct udp_demux demux;

static struct udp_bind bound(const char *local, uint16_t lport, const char *remote, uint16_t rport)
{
	struct udp_bind b = {.family = AF_INET6, .lport = lport, .rport = rport};

	b.local_any = !local;
	if (local)
		b.local = addr(local);
	b.connected = remote != NULL;
	if (remote)
		b.remote = addr(remote);
	return b;
}

static struct buf_meta meta(const char *src, uint16_t sport, const char *dst, uint16_t dport)
{
	struct buf_meta m = {
		.src = addr(src), .dst = addr(dst), .sport = sport, .dport = dport, .ifindex = 3};

	m.family = strchr(src, ':') ? AF_INET6 : AF_INET;
	return m;
}

static void the_most_specific_socket_gets_the_datagram(void **state)
{
	struct udp_bind any = bound(NULL, 53, NULL, 0), one = bound("10.0.0.2", 53, NULL, 0),
			peer = bound("10.0.0.2", 53, "10.0.0.1", 99),
			other = bound("10.0.0.2", 54, NULL, 0);
	struct buf_meta from_peer = meta("10.0.0.1", 99, "10.0.0.2", 53),
			from_else = meta("10.0.0.9", 99, "10.0.0.2", 53),
			to_other = meta("10.0.0.1", 99, "10.0.0.3", 53);

	(void)state;
	udp_demux_init(&demux, 12345);
	udp_demux_add(&demux, &other);
	assert_null(udp_demux_find(&demux, &from_peer));
	udp_demux_add(&demux, &one);
	udp_demux_add(&demux, &any);
	udp_demux_add(&demux, &peer);
	assert_ptr_equal(udp_demux_find(&demux, &from_peer), &peer);
	assert_ptr_equal(udp_demux_find(&demux, &from_else), &one);
	assert_ptr_equal(udp_demux_find(&demux, &to_other), &any);
	udp_demux_remove(&demux, &peer);
	assert_ptr_equal(udp_demux_find(&demux, &from_peer), &one);
	udp_demux_remove(&demux, &one);
	assert_ptr_equal(udp_demux_find(&demux, &from_peer), &any);
	udp_demux_remove(&demux, &any);
	assert_null(udp_demux_find(&demux, &from_peer));
}

static void families_and_v6only_keep_apart(void **state)
{
	struct udp_bind six = bound(NULL, 53, NULL, 0), four = bound(NULL, 53, NULL, 0);
	struct buf_meta v4 = meta("10.0.0.1", 9, "10.0.0.2", 53),
			v6 = meta("fd00::1", 9, "fd00::2", 53);

	(void)state;
	four.family = AF_INET;
	udp_demux_init(&demux, 7);
	udp_demux_add(&demux, &six);
	assert_ptr_equal(udp_demux_find(&demux, &v4), &six);
	udp_demux_remove(&demux, &six);
	six.v6only = true;
	udp_demux_add(&demux, &six);
	assert_null(udp_demux_find(&demux, &v4));
	udp_demux_add(&demux, &four);
	assert_ptr_equal(udp_demux_find(&demux, &v4), &four);
	assert_ptr_equal(udp_demux_find(&demux, &v6), &six);
}

/* Of equals the last one bound, in whatever order they come to the table, leave it and come again.
 */
static void the_last_one_bound_receives(void **state)
{
	struct buf_meta m = meta("10.0.0.1", 9, "10.0.0.2", 53);
	struct udp_bind b[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		b[i] = bound(NULL, 53, NULL, 0);
		b[i].order = (uint64_t)i;
	}
	for (int first = 0; first < 3; first++) {
		udp_demux_init(&demux, 7);
		for (int i = 0; i < 3; i++)
			udp_demux_add(&demux, &b[(first + i) % 3]);
		assert_ptr_equal(udp_demux_find(&demux, &m), &b[2]);
		udp_demux_remove(&demux, &b[0]);
		udp_demux_add(&demux, &b[0]);
		assert_ptr_equal(udp_demux_find(&demux, &m), &b[2]);
		udp_demux_remove(&demux, &b[2]);
		assert_ptr_equal(udp_demux_find(&demux, &m), &b[1]);
	}
}

static void reuseport_sockets_share_by_flow(void **state)
{
	struct udp_bind b[4];
	unsigned count[4] = {0};

	(void)state;
	udp_demux_init(&demux, 99);
	for (int i = 0; i < 4; i++) {
		b[i] = bound(NULL, 53, NULL, 0);
		b[i].reuseport = true;
		udp_demux_add(&demux, &b[i]);
	}
	for (unsigned port = 1; port <= 4000; port++) {
		struct buf_meta m = meta("10.0.0.1", (uint16_t)port, "10.0.0.2", 53);
		struct udp_bind *first = udp_demux_find(&demux, &m);

		assert_ptr_equal(udp_demux_find(&demux, &m), first);
		count[first - b]++;
	}
	for (int i = 0; i < 4; i++)
		assert_in_range(count[i], 700, 1300);
	print_message("4000 flows over 4 sockets: %u %u %u %u\n", count[0], count[1], count[2],
		      count[3]);
}

static void every_match_of_a_multicast_is_visited_once(void **state)
{
	struct udp_bind b[3] = {bound(NULL, 53, NULL, 0), bound("239.1.1.1", 53, NULL, 0),
				bound(NULL, 53, "10.0.0.1", 9)};
	struct buf_meta m = meta("10.0.0.1", 9, "239.1.1.1", 53);
	unsigned seen = 0;

	(void)state;
	for (uint64_t seed = 1; seed < 200; seed++) { /* chains may coincide or not */
		udp_demux_init(&demux, seed);
		for (int i = 0; i < 3; i++)
			udp_demux_add(&demux, &b[i]);
		seen = 0;
		for (struct udp_bind *p = NULL; (p = udp_demux_next(&demux, &m, p)) != NULL;)
			seen |= 1u << (p - b);
		assert_int_equal(seen, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sum_is_rfc_1071s_at_every_length_and_alignment),
		cmocka_unit_test(what_we_write_passes_our_own_gate),
		cmocka_unit_test(a_datagram_of_several_vectors_is_summed_across_odd_borders),
		cmocka_unit_test(every_flipped_bit_is_noticed),
		cmocka_unit_test(a_missing_checksum_is_fine_in_ipv4_and_an_error_in_ipv6),
		cmocka_unit_test(a_partial_checksum_counts_on_virtual_devices_only),
		cmocka_unit_test(a_frame_in_fragments_reads_like_one_piece),
		cmocka_unit_test(damaged_frames_are_judged_alike_in_one_piece_and_in_two),
		cmocka_unit_test(a_priority_tag_is_stepped_over),
		cmocka_unit_test(a_tag_of_a_vlan_is_not),
		cmocka_unit_test(padding_of_the_link_is_cut_off),
		cmocka_unit_test(impossible_lengths_are_malformed),
		cmocka_unit_test(merged_segments_may_be_longer_than_the_header_can_say),
		cmocka_unit_test(the_checksum_zero_is_sent_as_ffff),
		cmocka_unit_test(identification_counts_only_without_df),
		cmocka_unit_test(the_most_specific_socket_gets_the_datagram),
		cmocka_unit_test(families_and_v6only_keep_apart),
		cmocka_unit_test(the_last_one_bound_receives),
		cmocka_unit_test(reuseport_sockets_share_by_flow),
		cmocka_unit_test(every_match_of_a_multicast_is_visited_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
