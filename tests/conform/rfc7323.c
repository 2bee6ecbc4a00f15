/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 7323: window scale, time stamps, PAWS. */
#include <errno.h>

#include "script.h"

static void rfc7323_2_scale_is_offered_and_taken(void)
{
	const struct seg *s;

	peer()->wscale = 3;
	listening();
	in("S", 0, 0, 0);
	s = out("SA", 0, 1, 0);
	must(s->wscale >= 0);
	/* The window of a SYN is never scaled. */
	must(s->wnd > 10000);
}

static void rfc7323_2_no_scale_without_offer(void)
{
	const struct seg *s;

	listening();
	in("S", 0, 0, 0);
	s = out("SA", 0, 1, 0);
	equal(s->wscale, -1);
}

static void rfc7323_2_no_scale_when_switched_off(void)
{
	opts()->wscale = false;
	peer()->wscale = 3;
	listening();
	in("S", 0, 0, 0);
	equal(out("SA", 0, 1, 0)->wscale, -1);
}

static void rfc7323_2_the_peers_window_is_scaled(void)
{
	peer()->wscale = 8;
	peer()->wnd = 2560;
	established();
	equal(sending(5000, 0), 5000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	nothing();
}

static void rfc7323_2_2_the_window_of_the_syn_is_not_scaled(void)
{
	peer()->wscale = 8;
	peer()->wnd = 3000;
	connecting();
	out("S", 0, ANY, 0);
	wait_ms(20);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(sending(10000, 0), 10000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	out("*A", 2001, 1, 1000);
	nothing();
}

static void rfc7323_2_3_a_scale_above_14_is_14(void)
{
	struct seg s;

	peer()->wscale = 15;
	established();
	s = prepared("A", 1, 1, 0);
	s.wnd = 0;
	inject(s);
	equal(sending(100000, 0) > 30000, 1);
	nothing();
	s.wnd = 1;
	inject(s);
	/* 1 << 14 = 16384 bytes and no more, cwnd 10. */
	equal(waiting(), 10);
	drain();
	in("A", 1, 10001, 0);
	drain();
}

static void rfc7323_3_time_stamps_are_agreed(void)
{
	const struct seg *s;

	peer()->ts = true;
	listening();
	in("S", 0, 0, 0);
	s = out("SA", 0, 1, 0);
	must(s->ts);
	must(s->tsecr - 5000 < 100);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	in("PA", 1, 1, 100);
	must(out("A", 1, 101, 0)->ts);
}

static void rfc7323_3_no_time_stamps_without_offer(void)
{
	listening();
	in("S", 0, 0, 0);
	must(!out("SA", 0, 1, 0)->ts);
	in("A", 1, 1, 0);
	equal(accepting(), 0);
	in("PA", 1, 1, 100);
	must(!out("A", 1, 101, 0)->ts);
}

static void rfc7323_3_no_time_stamps_when_switched_off(void)
{
	opts()->timestamps = false;
	peer()->ts = true;
	listening();
	in("S", 0, 0, 0);
	must(!out("SA", 0, 1, 0)->ts);
}

static void rfc7323_3_2_the_option_takes_room(void)
{
	peer()->ts = true;
	established();
	equal(sending(2000, 0), 2000);
	out("*A", 1, 1, 988);
	out("*A", 989, 1, 988);
	out_by(300, "PA", 1977, 1, 24);
}

static void rfc7323_4_3_the_echo_is_of_the_segment_at_the_edge(void)
{
	struct seg s;

	peer()->ts = true;
	established();
	s = prepared("PA", 101, 1, 100);
	s.tsval = 6000;
	inject(s);
	must(out("A", 1, 1, 0)->tsecr < 6000);
	s = prepared("PA", 1, 1, 100);
	s.tsval = 6100;
	inject(s);
	equal(out("A", 1, 201, 0)->tsecr, 6100);
}

static void rfc7323_4_3_a_duplicate_does_not_move_the_echo_back(void)
{
	struct seg s;

	peer()->ts = true;
	established();
	s = prepared("PA", 1, 1, 100);
	s.tsval = 7000;
	inject(s);
	equal(out("A", 1, 101, 0)->tsecr, 7000);
	s = prepared("PA", 101, 1, 100);
	s.tsval = 7000;
	inject(s);
	equal(out("A", 1, 201, 0)->tsecr, 7000);
}

static void rfc7323_5_3_paws_drops_and_acknowledges(void)
{
	struct seg s;

	peer()->ts = true;
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	s = prepared("PA", 101, 1, 100);
	s.tsval = 3000;
	inject(s);
	out("A", 1, 101, 0);
	equal(receiving(1000, 0), 100);
}

static void rfc7323_5_3_paws_lets_a_rst_pass(void)
{
	struct seg s;

	peer()->ts = true;
	established();
	s = prepared("R", 1, 0, 0);
	s.tsval = 3000;
	s.ts = true;
	inject(s);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc7323_5_3_an_old_ack_alone_is_not_answered(void)
{
	struct seg s;

	peer()->ts = true;
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	/*
	 * Linux: reordered pure ACKs within a time-out are dropped without a word
	 * (tcp_disordered_ack).
	 */
	s = prepared("A", 101, 1, 0);
	s.tsval -= 1;
	inject(s);
	drain();
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc7323_3_2_a_segment_without_time_stamp_is_taken(void)
{
	/* The RFC says SHOULD drop; Linux takes it. */
	peer()->ts = true;
	established();
	in_bare("PA", 1, 1, 100);
	out_by(60, "A", 1, 101, 0);
	equal(receiving(1000, 0), 100);
}

static void rfc7323_5_5_paws_forgets_after_24_days(void)
{
	struct seg s;

	engine_only();
	peer()->ts = true;
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	wait_us(25ull * 24 * 3600 * 1000000);
	s = prepared("PA", 101, 1, 100);
	s.tsval = 3000;
	inject(s);
	out_by(60, "A", 1, 201, 0);
	equal(receiving(1000, 0), 200);
}

static void rfc7323_5_4_offsets_differ_between_connections(void)
{
	const struct seg *s;
	uint32_t first;

	engine_only();
	peer()->ts = true;
	listening();
	in("S", 0, 0, 0);
	s = out("SA", 0, 1, 0);
	first = s->tsval;
	in("R", 1, 0, 0);
	/* The clock alone would say 1000000. */
	must(first != 1000000);
}

const struct conform_case cases_rfc7323[] = {
	CASE(rfc7323_2_scale_is_offered_and_taken),
	CASE(rfc7323_2_no_scale_without_offer),
	CASE(rfc7323_2_no_scale_when_switched_off),
	CASE(rfc7323_2_the_peers_window_is_scaled),
	CASE(rfc7323_2_2_the_window_of_the_syn_is_not_scaled),
	CASE(rfc7323_2_3_a_scale_above_14_is_14),
	CASE(rfc7323_3_time_stamps_are_agreed),
	CASE(rfc7323_3_no_time_stamps_without_offer),
	CASE(rfc7323_3_no_time_stamps_when_switched_off),
	CASE(rfc7323_3_2_the_option_takes_room),
	CASE(rfc7323_4_3_the_echo_is_of_the_segment_at_the_edge),
	CASE(rfc7323_4_3_a_duplicate_does_not_move_the_echo_back),
	CASE(rfc7323_5_3_paws_drops_and_acknowledges),
	CASE(rfc7323_5_3_paws_lets_a_rst_pass),
	CASE(rfc7323_5_3_an_old_ack_alone_is_not_answered),
	CASE(rfc7323_3_2_a_segment_without_time_stamp_is_taken),
	CASE(rfc7323_5_5_paws_forgets_after_24_days),
	CASE(rfc7323_5_4_offsets_differ_between_connections),
	{0},
};
