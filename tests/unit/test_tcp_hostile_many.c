/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Peers that mean ill by numbers: holes in the stream, connections that wait, SYNs. */
#include "tcp_hostile.h"

/* --- out of order */

static void hole(uint32_t i)
{
	peer(0,
	     (struct tcp_hdr_spec){.flags = TCPHDR_ACK, .seq = 11 + 20 * i, .ack = 1, .wnd = 65535},
	     1);
	flush();
}

/* n holes; then more of them, by turns before the last ones and among the first. */
static uint64_t holes(unsigned n)
{
	uint64_t begun;

	begin();
	listen_with(8);
	h.c = accept_peer(0, false);
	h.c->rcv_wnd = 1u << 30;
	for (unsigned i = 0; i < n; i++)
		hole(2 * i);
	assert_int_equal(h.c->ofo_count, n);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++)
		hole(i & 1 ? 2 * (n - 1 - i) + 1 : 2 * i + 1);
	begun = blocks - begun;
	assert_int_equal(h.c->ofo_count, n + 64);
	end();
	return begun / 64;
}

/* More holes than are kept, each before all others: the last one is dropped each time. */
static uint64_t holes_too_many(unsigned n)
{
	uint64_t begun;
	unsigned i = 3 * TCP_OFO_MAX;

	begin();
	listen_with(8);
	h.c = accept_peer(0, false);
	h.c->rcv_wnd = 1u << 30;
	while (i > 3 * TCP_OFO_MAX - TCP_OFO_MAX)
		hole(--i);
	begun = blocks;
	for (unsigned k = 0; k < n; k++)
		hole(--i);
	begun = blocks - begun;
	assert_int_equal(h.c->ofo_count, TCP_OFO_MAX);
	end();
	return begun / n;
}

/* Resets that miss, with n holes. */
static uint64_t resets(unsigned n)
{
	uint64_t begun;

	begin();
	listen_with(8);
	h.c = accept_peer(0, false);
	h.c->rcv_wnd = 1u << 30;
	for (unsigned i = 0; i < n; i++)
		hole(i);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++)
		peer(0, (struct tcp_hdr_spec){.flags = TCPHDR_RST, .seq = 5 + i}, 0);
	begun = blocks - begun;
	assert_int_equal(h.c->state, TCPS_ESTABLISHED);
	end();
	return begun / 64;
}

static void data_out_of_order_costs_the_same_however_many_holes(void **state)
{
	(void)state;
	flat("holes", holes, 200, 1);
	flat("holes too many", holes_too_many, 200, 1);
	flat("resets between holes", resets, 200, 1);
}

/* --- many connections */

/* One connection of n was refused by the full transmit queue. */
static uint64_t one_of_many_waits(unsigned n)
{
	struct iovec iov = {"x", 1};
	uint64_t begun;

	begin();
	listen_with(8);
	for (unsigned i = 0; i < n; i++)
		h.c = accept_peer(i, false);
	h.room = 0;
	assert_int_equal(tcp_send(h.c, &iov, 1, 0, h.now), 1);
	flush();
	h.room = 1;
	begun = blocks;
	tcp_tx_ready(h.ts, h.now);
	begun = blocks - begun;
	assert_int_equal(h.room, 0);
	h.room = UINT32_MAX;
	end();
	return begun;
}

/* All of n wait, and the queue has room for one at a time. */
static uint64_t all_of_many_wait(unsigned n)
{
	struct iovec iov = {"x", 1};
	uint64_t begun;

	begin();
	listen_with(8);
	for (unsigned i = 0; i < n; i++) {
		h.room = UINT32_MAX;
		h.c = accept_peer(i, false);
		h.room = 0;
		assert_int_equal(tcp_send(h.c, &iov, 1, 0, h.now), 1);
		flush();
	}
	begun = blocks;
	for (unsigned i = 0; i < 64; i++) {
		h.room = 1;
		tcp_tx_ready(h.ts, h.now);
		assert_int_equal(h.room, 0);
	}
	begun = blocks - begun;
	for (unsigned i = 64; i < n; i++) {
		h.room = 1;
		tcp_tx_ready(h.ts, h.now);
		assert_int_equal(h.room, 0);
	}
	h.room = 1;
	tcp_tx_ready(h.ts, h.now);
	assert_int_equal(h.room, 1); /* each has had its turn, once */
	h.room = UINT32_MAX;
	end();
	return begun / 64;
}

static void a_transmit_queue_with_room_again_asks_only_who_waits(void **state)
{
	(void)state;
	flat("one of many waits", one_of_many_waits, 200, 1);
	flat("all of many wait", all_of_many_wait, 200, 1);
}

/* n embryonic connections; then more SYNs, the old ones again, bad ACKs. */
static uint64_t embryos(unsigned n)
{
	uint64_t begun;

	begin();
	listen_with((int)n + 1000);
	for (unsigned i = 0; i < n; i++)
		peer(i, (struct tcp_hdr_spec){.flags = TCPHDR_SYN, .wnd = 1000, .mss = 100}, 0);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++) {
		peer(n + i, (struct tcp_hdr_spec){.flags = TCPHDR_SYN, .wnd = 1000, .mss = 100}, 0);
		peer(7 * i, (struct tcp_hdr_spec){.flags = TCPHDR_SYN, .wnd = 1000, .mss = 100}, 0);
		peer(5 * i,
		     (struct tcp_hdr_spec){
			     .flags = TCPHDR_ACK, .seq = 1, .ack = i * 77777, .wnd = 9},
		     0);
		peer(3 * i, (struct tcp_hdr_spec){.flags = TCPHDR_RST, .seq = 1}, 0);
	}
	begun = blocks - begun;
	end();
	return begun / 64;
}

/* A backlog of n that is full: cookies. */
static uint64_t cookies(unsigned n)
{
	uint64_t begun;

	begin();
	listen_with((int)n);
	for (unsigned i = 0; i < n + 1; i++)
		peer(i, (struct tcp_hdr_spec){.flags = TCPHDR_SYN, .wnd = 1000, .mss = 100}, 0);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++) {
		peer(n + 1 + i, (struct tcp_hdr_spec){.flags = TCPHDR_SYN, .wnd = 1000, .mss = 100},
		     0);
		peer(n + 1 + i,
		     (struct tcp_hdr_spec){.flags = TCPHDR_ACK, .seq = 1, .ack = i, .wnd = 9}, 0);
	}
	begun = blocks - begun;
	assert_int_equal(h.ts->n.syn_cookies_sent, 64);
	end();
	return begun / 64;
}

static void a_flood_of_syns_costs_the_same_however_long(void **state)
{
	(void)state;
	flat("embryonic connections", embryos, 700, 1);
	flat("SYN cookies", cookies, 700, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_out_of_order_costs_the_same_however_many_holes),
		cmocka_unit_test(a_transmit_queue_with_room_again_asks_only_who_waits),
		cmocka_unit_test(a_flood_of_syns_costs_the_same_however_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
