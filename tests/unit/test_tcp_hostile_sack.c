/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A peer that means ill with its SACKs: many tiny segments in flight, and what it may say of them.
 */
#include "tcp_hostile.h"

/*
 * A connection with n segments of the least size in flight, so many microseconds apart; 0: four in
 * one.
 */
static void in_flight(unsigned n, bool ts, uint32_t apart)
{
	static uint8_t mem[MSS];
	struct iovec iov = {mem, 0};

	begin();
	listen_with(8);
	h.c = accept_peer(0, ts);
	iov.iov_len = tcp_mss(h.c);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(tcp_send(h.c, &iov, 1, 0, h.now), iov.iov_len);
		flush();
		h.now += apart ? apart : i % 4 == 0;
	}
	assert_int_equal(h.c->segq.packets_out, n);
	h.now += 10000;
}

static void ack(uint32_t upto, const struct tcp_sack_block *sack, unsigned num)
{
	struct tcp_hdr_spec s = {.flags = TCPHDR_ACK, .seq = 1, .ack = 1 + upto, .wnd = 65535};

	s.num_sacks = (uint8_t)num;
	for (unsigned i = 0; i < num; i++)
		s.sack[i] = (struct tcp_sack_block){1 + sack[i].start, 1 + sack[i].end};
	peer(0, s, 0);
	flush();
}

/* Segments [from, to). */
static struct tcp_sack_block segs(uint32_t from, uint32_t to)
{
	return (struct tcp_sack_block){from * MSS, to * MSS};
}

/*
 * Reordering is believed in: what a SACK leaves behind is not lost yet, so only the search is
 * counted.
 */
static void nothing_is_late(void)
{
	h.c->rack_reord = true;
	h.c->rtt.min_us = 4000000;
	h.c->rtt.srtt_us = 8000000u << 3;
}

/* Single segments, by turns at either end of the queue. */
static uint64_t sack_at_both_ends(unsigned n)
{
	uint64_t begun;

	in_flight(n, false, 0);
	nothing_is_late();
	ack(0, (struct tcp_sack_block[]){segs(n / 2, n / 2 + 1)}, 1);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++) {
		struct tcp_sack_block b =
			i & 1 ? segs(n - 2 * i, n - 2 * i + 1) : segs(2 + 2 * i, 3 + 2 * i);

		ack(0, &b, 1);
	}
	begun = blocks - begun;
	end();
	return begun / 64;
}

/* All that was SACKed is told anew, after a block that makes us forget that it was told. */
static uint64_t sack_the_same_again(unsigned n)
{
	struct tcp_sack_block all = segs(4, n), one = segs(2, 3);
	uint64_t begun;

	in_flight(n, false, 0);
	ack(0, &all, 1);
	ack(0, &one, 1);
	ack(0, &all, 1);
	begun = blocks;
	for (unsigned i = 0; i < 64; i++)
		ack(0, i & 1 ? &all : &one, 1);
	begun = blocks - begun;
	end();
	return begun / 64;
}

/*
 * One SACK after the other, the last segment first: what was sent before it is looked at each time.
 */
static uint64_t sack_backwards(unsigned n)
{
	struct tcp_sack_block b = segs(n - 1, n);
	uint64_t begun;

	in_flight(n, false, 0);
	nothing_is_late();
	ack(0, &b, 1);
	begun = blocks;
	for (unsigned i = 2; i < 66; i++) {
		b = segs(n - i, n - i + 1);
		ack(0, &b, 1);
	}
	begun = blocks - begun;
	assert_int_equal(h.c->segq.lost_out, 0);
	end();
	return begun / 64;
}

/*
 * What was lost is not, after all: each goes back to its place in the order of time. One go for all
 * of the queue.
 */
static uint64_t undo_a_timeout(unsigned n)
{
	struct tcp_hdr_spec s = {
		.flags = TCPHDR_ACK, .seq = 1, .wnd = 65535, .ts = true, .tsval = 2};
	uint64_t begun;

	in_flight(n, true, 3);
	h.c->o.cc = TCP_CC_NEWRENO;
	s.tsecr = tcp_ts_now(h.c) - 5;
	h.now += 3000000;
	tcp_run_timers(h.ts, h.now);
	h.now += 3000000;
	tcp_run_timers(h.ts, h.now);
	assert_true(h.c->segq.lost_out > n / 2);
	s.ack = 1 + tcp_mss(h.c);
	begun = blocks;
	peer(0, s, 0);
	begun = blocks - begun;
	assert_int_equal(h.c->segq.lost_out, 0);
	end();
	return begun;
}

/* What was SACKed is thrown away by the peer. */
static uint64_t renege(unsigned n)
{
	struct tcp_sack_block b;
	uint64_t begun;

	in_flight(n, false, 3);
	for (unsigned i = 0; i < 32; i++) {
		b = segs(n - 1 - i * 2, n - i * 2);
		ack(0, &b, 1);
	}
	b = segs(1, n);
	ack(0, &b, 1);
	ack(MSS, NULL, 0);
	h.now += 100000;
	begun = blocks;
	tcp_run_timers(h.ts, h.now);
	begun = blocks - begun;
	assert_int_equal(h.ts->n.sack_reneging, 1);
	assert_int_equal(h.c->segq.sacked_out, 0);
	end();
	return begun;
}

static void sack_costs_the_same_however_much_is_in_flight(void **state)
{
	(void)state;
	flat("SACK at both ends", sack_at_both_ends, 1000, 1);
	flat("SACK of the same again", sack_the_same_again, 1000, 1);
	flat("SACK backwards", sack_backwards, 1000, 1);
}

static void what_returns_to_the_order_of_time_is_sorted_once(void **state)
{
	(void)state;
	flat("undo of a timeout", undo_a_timeout, 1000, 4);
	flat("reneging", renege, 1000, 4);
}

/* CVE-2019-11478's kin: SACKs cut a large transmission into ever more records. */
static void sack_cuts_no_queue_into_more_records_than_its_buffer_allows(void **state)
{
	static uint8_t mem[1 << 20];
	struct iovec iov = {mem, sizeof(mem)};
	unsigned count = 0;

	(void)state;
	begin();
	h.gso = 65536;
	h.o.sndbuf = h.o.sndbuf_max = 1u << 20;
	listen_with(8);
	h.c = accept_peer(0, false);
	assert_int_equal(tcp_send(h.c, &iov, 1, 0, h.now), sizeof(mem));
	flush();
	h.now += 1000;
	for (unsigned i = 1; i < sizeof(mem) / MSS; i += 2) {
		struct tcp_sack_block b = segs(i, i + 1);

		ack(0, &b, 1);
	}
	for (const struct tcp_seg *s = h.c->segq.head; s; s = s->next)
		count++;
	assert_int_equal(count, h.c->segq.count);
	assert_true(count <= 2 * ((1u << 20) / 1024 + 256) + 2);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sack_costs_the_same_however_much_is_in_flight),
		cmocka_unit_test(what_returns_to_the_order_of_time_is_sorted_once),
		cmocka_unit_test(sack_cuts_no_queue_into_more_records_than_its_buffer_allows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
