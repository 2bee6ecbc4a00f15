/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 2018 and 2883: what we SACK. RFC 6675: what we do with the peer's SACKs; RFC 5681 and 6582
 * without them.
 */
#include <errno.h>

#include "script.h"

/* The segment's blocks are exactly these (pairs). */
static void blocks_are(const struct seg *s, unsigned n, const uint32_t (*b)[2])
{
	must(s != NULL);
	equal(s->nsack, n);
	for (unsigned i = 0; i < n; i++) {
		equal(s->sack[i][0], b[i][0]);
		equal(s->sack[i][1], b[i][1]);
	}
}

static void rfc2018_2_sack_is_agreed(void)
{
	listening();
	in("S", 0, 0, 0);
	must(out("SA", 0, 1, 0)->sackok);
}

static void rfc2018_2_no_sack_without_offer(void)
{
	peer()->sack = false;
	established();
	in("PA", 101, 1, 100);
	equal(out("A", 1, 1, 0)->nsack, 0);
}

static void rfc2018_2_no_sack_when_switched_off(void)
{
	opts()->sack = false;
	listening();
	in("S", 0, 0, 0);
	must(!out("SA", 0, 1, 0)->sackok);
	in("A", 1, 1, 0);
	in("PA", 101, 1, 100);
	equal(out("A", 1, 1, 0)->nsack, 0);
}

static void rfc2018_4_one_block(void)
{
	const uint32_t b[][2] = {{101, 201}};

	established();
	in("PA", 101, 1, 100);
	blocks_are(out("A", 1, 1, 0), 1, b);
}

static void rfc2018_4_a_block_grows(void)
{
	const uint32_t b[][2] = {{101, 401}};

	established();
	in("PA", 101, 1, 100);
	in("PA", 201, 1, 100);
	in("PA", 301, 1, 100);
	blocks_are(drain(), 1, b);
}

static void rfc2018_4_the_latest_block_is_first(void)
{
	const uint32_t b[][2] = {{501, 601}, {301, 401}, {101, 201}};

	established();
	in("PA", 101, 1, 100);
	in("PA", 301, 1, 100);
	in("PA", 501, 1, 100);
	blocks_are(drain(), 3, b);
}

static void rfc2018_4_blocks_that_meet_are_one(void)
{
	const uint32_t b[][2] = {{101, 401}};

	established();
	in("PA", 101, 1, 100);
	in("PA", 301, 1, 100);
	in("PA", 201, 1, 100);
	blocks_are(drain(), 1, b);
}

static void rfc2018_4_an_older_block_that_grows_is_first_again(void)
{
	const uint32_t b[][2] = {{101, 251}, {301, 401}};

	established();
	in("PA", 101, 1, 100);
	in("PA", 301, 1, 100);
	in("PA", 201, 1, 50);
	blocks_are(drain(), 2, b);
}

static void rfc2018_3_four_blocks_fit(void)
{
	established();
	for (unsigned i = 0; i < 6; i++)
		in("PA", 101 + i * 200, 1, 100);
	equal(drain()->nsack, 4);
}

static void rfc2018_3_three_blocks_fit_beside_time_stamps(void)
{
	peer()->ts = true;
	established();
	for (unsigned i = 0; i < 6; i++)
		in("PA", 101 + i * 200, 1, 100);
	equal(drain()->nsack, 3);
}

static void rfc2018_4_no_block_when_the_hole_is_filled(void)
{
	established();
	in("PA", 101, 1, 100);
	must(drain()->nsack == 1);
	in("PA", 1, 1, 100);
	equal(out("A", 1, 201, 0)->nsack, 0);
}

static void rfc2883_4_1_a_duplicate_is_told(void)
{
	const uint32_t b[][2] = {{1, 101}};

	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 1, 1, 100);
	blocks_are(out("A", 1, 101, 0), 1, b);
}

static void rfc2883_4_1_a_duplicate_is_told_once(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 101, 1, 100);
	equal(out_by(60, "A", 1, 201, 0)->nsack, 0);
}

static void rfc2883_4_2_a_duplicate_beside_a_hole(void)
{
	const uint32_t b[][2] = {{1, 101}, {201, 301}};

	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 201, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 1, 1, 100);
	blocks_are(out("A", 1, 101, 0), 2, b);
}

static void rfc2883_4_1_a_duplicate_of_what_waits(void)
{
	const uint32_t b[][2] = {{201, 301}, {201, 301}};

	established();
	in("PA", 201, 1, 100);
	out("A", 1, 1, 0);
	in("PA", 201, 1, 100);
	blocks_are(out("A", 1, 1, 0), 2, b);
}

static void rfc2883_4_3_an_old_part_is_told(void)
{
	const uint32_t b[][2] = {{51, 101}};

	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 51, 1, 100);
	blocks_are(out_by(60, "A", 1, 151, 0), 1, b);
}

/* --- the sender */

static void ten_in_flight(void)
{
	equal(sending(10000, 0), 10000);
	equal(waiting(), 10);
	drain();
}

static void rfc6675_5_three_sacked_segments_bring_a_retransmission(void)
{
	established();
	ten_in_flight();
	wait_ms(20);
	in_sack(1, 1, 1001, 2001);
	drain();
	in_sack(1, 1, 1001, 3001);
	drain();
	in_sack(1, 1, 1001, 4001);
	out("*A", 1, 1, 1000);
	equal(info().tcpi_ca_state, TCP_CA_Recovery);
}

static void rfc6675_5_only_the_holes_are_sent_again(void)
{
	established();
	ten_in_flight();
	wait_ms(20);
	in_sack(1, 2, 1001, 4001, 5001, 8001);
	out("*A", 1, 1, 1000);
	in_sack(1001, 2, 1001, 4001, 5001, 8001);
	drain();
	in_sack(4001, 1, 5001, 8001);
	must(info().tcpi_unacked > 0);
}

static void rfc6675_5_the_end_of_recovery(void)
{
	established();
	ten_in_flight();
	wait_ms(20);
	in_sack(1, 1, 1001, 10001);
	out("*A", 1, 1, 1000);
	wait_ms(20);
	in("A", 1, 10001, 0);
	nothing();
	equal(info().tcpi_ca_state, TCP_CA_Open);
	equal(info().tcpi_unacked, 0);
	must(info().tcpi_snd_cwnd < 10);
}

static void rfc2018_5_impossible_blocks_are_ignored(void)
{
	established();
	ten_in_flight();
	wait_ms(20);
	in_sack(1, 1, 20001, 30001);
	in_sack(1, 1, 5001, 4001);
	in_sack(1, 1, 10001, 11001);
	nothing();
	equal(info().tcpi_sacked, 0);
	equal(info().tcpi_ca_state, TCP_CA_Open);
}

static void rfc3042_2_limited_transmit(void)
{
	established();
	ten_in_flight();
	/* Two sends, lest the kernel wait until a burst is worth it. */
	equal(sending(1000, 0), 1000);
	equal(sending(1000, 0), 1000);
	nothing();
	wait_ms(20);
	in_sack(1, 1, 1001, 2001);
	out("*A", 10001, 1, 1000);
	in_sack(1, 1, 1001, 3001);
	out("*A", 11001, 1, 1000);
}

static void rfc5681_3_2_three_duplicate_acks_without_sack(void)
{
	peer()->sack = false;
	established();
	ten_in_flight();
	wait_ms(20);
	in("A", 1, 1, 0);
	in("A", 1, 1, 0);
	nothing();
	in("A", 1, 1, 0);
	out("*A", 1, 1, 1000);
}

static void rfc5681_2_an_ack_with_text_or_another_window_is_no_duplicate(void)
{
	peer()->sack = false;
	established();
	ten_in_flight();
	wait_ms(20);
	in("PA", 1, 1, 10);
	in("PA", 11, 1, 10);
	in("PA", 21, 1, 10);
	in("PA", 31, 1, 10);
	while (waiting())
		must(drain()->len == 0);
	peer()->wnd = 60000;
	in("A", 41, 1, 0);
	peer()->wnd = 61000;
	in("A", 41, 1, 0);
	peer()->wnd = 62000;
	in("A", 41, 1, 0);
	nothing();
}

static void rfc6582_3_2_a_partial_ack_brings_the_next_retransmission(void)
{
	peer()->sack = false;
	established();
	ten_in_flight();
	wait_ms(20);
	for (unsigned i = 0; i < 3; i++)
		in("A", 1, 1, 0);
	out("*A", 1, 1, 1000);
	wait_ms(20);
	in("A", 1, 5001, 0);
	out("*A", 5001, 1, 1000);
	in("A", 1, 10001, 0);
	equal(info().tcpi_unacked, 0);
}

const struct conform_case cases_rfc2018[] = {
	CASE(rfc2018_2_sack_is_agreed),
	CASE(rfc2018_2_no_sack_without_offer),
	CASE(rfc2018_2_no_sack_when_switched_off),
	CASE(rfc2018_4_one_block),
	CASE(rfc2018_4_a_block_grows),
	CASE(rfc2018_4_the_latest_block_is_first),
	CASE(rfc2018_4_blocks_that_meet_are_one),
	CASE(rfc2018_4_an_older_block_that_grows_is_first_again),
	CASE(rfc2018_3_four_blocks_fit),
	CASE(rfc2018_3_three_blocks_fit_beside_time_stamps),
	CASE(rfc2018_4_no_block_when_the_hole_is_filled),
	CASE(rfc2883_4_1_a_duplicate_is_told),
	CASE(rfc2883_4_1_a_duplicate_is_told_once),
	CASE(rfc2883_4_2_a_duplicate_beside_a_hole),
	CASE(rfc2883_4_1_a_duplicate_of_what_waits),
	CASE(rfc2883_4_3_an_old_part_is_told),
	CASE(rfc6675_5_three_sacked_segments_bring_a_retransmission),
	CASE(rfc6675_5_only_the_holes_are_sent_again),
	CASE(rfc6675_5_the_end_of_recovery),
	CASE(rfc2018_5_impossible_blocks_are_ignored),
	CASE(rfc3042_2_limited_transmit),
	CASE(rfc5681_3_2_three_duplicate_acks_without_sack),
	CASE(rfc5681_2_an_ack_with_text_or_another_window_is_no_duplicate),
	CASE(rfc6582_3_2_a_partial_ack_brings_the_next_retransmission),
	{0},
};
