/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What comes back from the kernel by the module's fallback ring: the ring, and the packet's way to
 * the gate.
 */
#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/csum.h"
#include "proto/pkt.h"
#include "proto/pkt_plain.h"
#include "kmod/fallback.h"

#define SIZE VMA_KMOD_RING_MIN

static struct kmod_ring ring;
static unsigned got;
static uint32_t last_len, last_slot;
static uint8_t last_byte;

static void take(const struct kmod_packet *p)
{
	const uint8_t *end = (uint8_t *)ring.head + VMA_KMOD_RING_DATA + SIZE;

	assert_true(p->data + p->len <= end);
	got++;
	last_len = p->len;
	last_slot = p->slot;
	last_byte = p->len ? p->data[p->len - 1] : 0;
}

static int make(void **state)
{
	(void)state;
	ring = (struct kmod_ring){.head = calloc(1, VMA_KMOD_RING_DATA + SIZE), .size = SIZE};
	got = 0;
	return ring.head ? 0 : -1;
}

static int unmake(void **state)
{
	(void)state;
	free(ring.head);
	return 0;
}

static struct vma_kmod_record *record_at(uint32_t pos)
{
	return (struct vma_kmod_record *)((uint8_t *)ring.head + VMA_KMOD_RING_DATA + pos % SIZE);
}

/* As the kernel does it. */
static void put(uint32_t len, uint32_t slot, uint8_t fill)
{
	uint32_t need = ((uint32_t)sizeof(struct vma_kmod_record) + len + 7) & ~7u,
		 at = ring.head->produced % SIZE;

	if (SIZE - at < need) {
		record_at(at)->len = VMA_KMOD_RECORD_SKIP;
		ring.head->produced += SIZE - at;
	}
	*record_at(ring.head->produced) = (struct vma_kmod_record){.len = len, .slot = slot};
	memset(record_at(ring.head->produced) + 1, fill, len);
	ring.head->produced += need;
}

static void packets_come_in_order_and_over_the_end(void **state)
{
	uint32_t lens[] = {1, 40, 1500, 0, 9000, 65536 / 2 - 100};

	(void)state;
	/* positions wrap, too */
	ring.head->produced = ring.head->consumed = ring.consumed = 0u - 64u;
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t len = lens[i % 6];

		put(len, i, (uint8_t)i);
		assert_true(kmod_ring_drain(&ring, take));
		assert_int_equal(got, i + 1);
		assert_int_equal(last_len, len);
		assert_int_equal(last_slot, i);
		assert_int_equal(last_byte, len ? (uint8_t)i : 0);
		assert_int_equal(ring.head->consumed, ring.head->produced);
	}
	for (unsigned i = 0; i < 10; i++)
		put(100, i, 0);
	assert_true(kmod_ring_drain(&ring, take));
	assert_int_equal(got, 1010);
	assert_true(kmod_ring_drain(&ring, take));
	assert_int_equal(got, 1010);
}

/* Enough has been produced, but the record would have to go on at the ring's beginning. */
static void a_record_does_not_reach_over_the_end(void **state)
{
	(void)state;
	ring.head->produced = ring.head->consumed = ring.consumed = SIZE - 64;
	for (uint32_t len = 64; len <= 4096; len *= 2) {
		*record_at(SIZE - 64) = (struct vma_kmod_record){.len = len, .slot = 1};
		ring.head->produced = SIZE - 64 + 8192;
		ring.consumed = SIZE - 64;
		got = 0;
		assert_false(kmod_ring_drain(&ring, take));
		assert_int_equal(got, 0);
	}
}

static void a_ring_that_cannot_be_is_skipped(void **state)
{
	static const uint32_t lens[] = {
		SIZE, SIZE - 8, VMA_KMOD_RECORD_SKIP, VMA_KMOD_RECORD_SKIP - 1, 0x80000000u, 200};

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		put(100, 1, 0);
		record_at(ring.consumed)->len = lens[i];
		got = 0;
		assert_false(kmod_ring_drain(&ring, take));
		assert_int_equal(got, 0);
		assert_int_equal(ring.head->consumed, ring.head->produced);
		/* And goes on. */
		put(100, 2, 0);
		assert_true(kmod_ring_drain(&ring, take));
		assert_int_equal(got, 1);
	}
	ring.head->produced += SIZE + 8;
	assert_false(kmod_ring_drain(&ring, take));
	ring.head->produced += 4;
	assert_false(kmod_ring_drain(&ring, take));
}

/* An IPv4 packet with `options` bytes of options and 24 of TCP. */
static uint32_t ip4(uint8_t *p, uint32_t options)
{
	struct iphdr ip = {.version = 4,
			   .ihl = (uint8_t)(5 + options / 4),
			   .ttl = 9,
			   .protocol = IPPROTO_TCP,
			   .saddr = htonl(0x0a000001),
			   .daddr = htonl(0x0a000002)};
	uint32_t len = 20 + options + 24;

	ip.tot_len = htons((uint16_t)len);
	memset(p, 1, len); /* options: no operation */
	memcpy(p, &ip, sizeof(ip));
	memset(p + 20 + options, 0x50, 24);
	return len;
}

static struct buf gate(uint8_t *frame, uint32_t len, enum pkt_result *result)
{
	struct buf b = {.data = frame, .len = len, .total = len, .flags = BUF_CSUM_OK};

	*result = pkt_parse(&b);
	return b;
}

static void ip_options_are_taken_out(void **state)
{
	(void)state;
	for (uint32_t options = 4; options <= 40; options += 4) {
		uint8_t packet[128], frame[128 + PKT_PLAIN_ROOM];
		uint32_t len = ip4(packet, options), made = pkt_plain(frame, packet, len);
		enum pkt_result result;
		struct buf b = gate(frame, made, &result);

		assert_int_equal(made, 14 + 20 + 24);
		assert_int_equal(result, PKT_TCP);
		assert_int_equal(b.total, 24);
		assert_int_equal(b.meta.sport, 0x5050);
		assert_int_equal(b.meta.ttl, 9);
	}
}

static void extension_headers_are_taken_out(void **state)
{
	struct ip6_hdr ip = {.ip6_nxt = IPPROTO_HOPOPTS, .ip6_hlim = 7};
	uint8_t packet[128] = {0}, frame[128 + PKT_PLAIN_ROOM];
	enum pkt_result result;
	struct buf b;
	uint32_t len = 40 + 8 + 16 + 24;

	(void)state;
	ip.ip6_flow = htonl(6u << 28);
	ip.ip6_plen = htons((uint16_t)(len - 40));
	ip.ip6_src.s6_addr[0] = ip.ip6_dst.s6_addr[0] = 0xfd;
	memset(packet, 0x50, sizeof(packet));
	memcpy(packet, &ip, sizeof(ip));
	packet[40] = IPPROTO_DSTOPTS, packet[41] = 0;
	packet[48] = IPPROTO_TCP, packet[49] = 1;
	b = gate(frame, pkt_plain(frame, packet, len), &result);
	assert_int_equal(result, PKT_TCP);
	assert_int_equal(b.total, 24);
	/* One that says to be longer than the packet. */
	packet[49] = 5;
	assert_int_equal(pkt_plain(frame, packet, len), 0);
	packet[40] = IPPROTO_FRAGMENT, packet[49] = 1;
	assert_int_equal(pkt_plain(frame, packet, len), 0);
}

static void what_is_cut_short_or_a_fragment_is_nothing(void **state)
{
	uint8_t packet[128], frame[128 + PKT_PLAIN_ROOM];
	uint32_t len = ip4(packet, 8);

	(void)state;
	for (uint32_t n = 0; n < len; n++)
		assert_int_equal(pkt_plain(frame, packet, n), 0);
	assert_int_not_equal(pkt_plain(frame, packet, len), 0);
	/* Behind the packet something may stand. */
	assert_int_equal(pkt_plain(frame, packet, len + 9), len - 8 + 14);
	packet[6] = 0x20;
	assert_int_equal(pkt_plain(frame, packet, len), 0);
	packet[6] = 0, packet[0] = 0x44;
	assert_int_equal(pkt_plain(frame, packet, len), 0);
	packet[0] = 0x55;
	assert_int_equal(pkt_plain(frame, packet, len), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(packets_come_in_order_and_over_the_end, make,
						unmake),
		cmocka_unit_test_setup_teardown(a_ring_that_cannot_be_is_skipped, make, unmake),
		cmocka_unit_test_setup_teardown(a_record_does_not_reach_over_the_end, make, unmake),
		cmocka_unit_test(ip_options_are_taken_out),
		cmocka_unit_test(extension_headers_are_taken_out),
		cmocka_unit_test(what_is_cut_short_or_a_fragment_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
