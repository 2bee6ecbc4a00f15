/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 1122, 4.2: Nagle, delayed ACKs, silly windows, probes, keepalive; RFC 3168: ECN. */
#include <errno.h>

#include "script.h"

static void rfc1122_4_2_3_4_nagle_holds_a_small_segment(void)
{
	established();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(sending(10, 0), 10);
	equal(sending(10, 0), 10);
	nothing();
	in("A", 1, 11, 0);
	out("PA", 11, 1, 20);
}

static void rfc1122_4_2_3_4_nagle_lets_a_full_segment_go(void)
{
	established();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(sending(1000, 0), 1000);
	out("*A", 11, 1, 1000);
}

static void rfc1122_4_2_3_4_minshall_small_behind_full(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("*A", 1, 1, 1000);
	/* Only full segments are in flight. */
	equal(sending(10, 0), 10);
	out("PA", 1001, 1, 10);
	equal(sending(10, 0), 10);
	nothing();
}

static void rfc1122_4_2_3_4_nodelay(void)
{
	opts()->nodelay = true;
	established();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(sending(10, 0), 10);
	out("PA", 11, 1, 10);
}

static void rfc1122_4_2_3_4_nodelay_set_later_lets_go(void)
{
	established();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(sending(10, 0), 10);
	nothing();
	opts()->nodelay = true;
	changed_opts();
	out("PA", 11, 1, 10);
}

static void cork_holds_until_it_is_drawn(void)
{
	opts()->cork = true;
	established();
	equal(sending(10, 0), 10);
	equal(sending(10, 0), 10);
	nothing();
	opts()->cork = false;
	changed_opts();
	out("PA", 1, 1, 20);
}

static void cork_lets_full_segments_go(void)
{
	opts()->cork = true;
	established();
	equal(sending(1500, 0), 1500);
	out("*A", 1, 1, 1000);
	nothing();
}

static void cork_lets_go_after_200_ms(void)
{
	opts()->cork = true;
	established();
	equal(sending(10, 0), 10);
	wait_ms(100);
	nothing();
	wait_ms(200);
	out("*A", 1, 1, 10);
}

static void msg_more_is_followed(void)
{
	established();
	equal(sending(10, MSG_MORE), 10);
	nothing();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 20);
}

static void rfc1122_4_2_3_4_a_fin_takes_the_held_data(void)
{
	established();
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
	equal(sending(10, 0), 10);
	nothing();
	closing();
	out("FPA", 11, 1, 10);
}

static void rfc1122_4_2_3_2_the_first_acks_are_quick(void)
{
	established();
	for (unsigned i = 0; i < 4; i++) {
		in("PA", 1 + i * 10, 1, 10);
		out("A", 1, 11 + i * 10, 0);
	}
}

static void rfc1122_4_2_3_2_an_ack_is_delayed_in_a_dialogue(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	equal(receiving(100, 0), 10);
	equal(sending(10, 0), 10);
	out("PA", 1, 11, 10);
	in("PA", 11, 11, 10);
	nothing();
	out_by(60, "A", 11, 21, 0);
}

static void rfc1122_4_2_3_2_the_answer_carries_the_ack(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	equal(receiving(100, 0), 10);
	equal(sending(10, 0), 10);
	out("PA", 1, 11, 10);
	in("PA", 11, 11, 10);
	equal(receiving(100, 0), 10);
	equal(sending(10, 0), 10);
	out("PA", 11, 21, 10);
	wait_ms(100);
	drain();
}

static void rfc1122_4_2_3_2_every_second_full_segment_is_acknowledged(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	equal(receiving(100, 0), 10);
	equal(sending(10, 0), 10);
	out("PA", 1, 11, 10);
	in("A", 11, 11, 1000);
	equal(receiving(1000, 0), 1000);
	in("A", 1011, 11, 1000);
	equal(receiving(1000, 0), 1000);
	equal(out("A", 11, 2011, 0)->len, 0);
}

static void rfc1122_4_2_2_17_a_closed_window_is_probed(void)
{
	peer()->wnd = 0;
	established();
	equal(sending(1000, 0), 1000);
	nothing();
	/* Linux probes with a number that is old. */
	out_after(220, "A", 0, 1, 0);
	in("A", 1, 1, 0);
	out_after(440, "A", 0, 1, 0);
	in("A", 1, 1, 0);
	out_after(880, "A", 0, 1, 0);
	peer()->wnd = 10000;
	in("A", 1, 1, 0);
	out("PA", 1, 1, 1000);
}

static void rfc1122_4_2_2_17_a_window_that_closes_in_flight(void)
{
	peer()->wnd = 2000;
	established();
	equal(sending(5000, 0), 5000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	peer()->wnd = 0;
	in("A", 1, 2001, 0);
	nothing();
	wait_ms(700);
	must(drain() != NULL);
	equal(state(), TCPS_ESTABLISHED);
	peer()->wnd = 5000;
	in("A", 1, 2001, 0);
	out("*A", 2001, 1, 1000);
}

static void rfc1122_4_2_2_17_probes_go_on_as_long_as_they_are_answered(void)
{
	engine_only();
	peer()->wnd = 0;
	established();
	equal(sending(1000, 0), 1000);
	for (unsigned i = 0; i < 100; i++) {
		wait_ms(121000);
		drain();
		in("A", 1, 1, 0);
	}
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc9293_3_8_6_1_our_closed_window_answers_probes(void)
{
	uint32_t seq = 1, wnd = 1000;

	opts()->rcvbuf = opts()->rcvbuf_max = 10000;
	established();
	for (unsigned i = 0; i < 100 && wnd; i++) {
		const struct seg *s;

		in("A", seq, 1, wnd < 1000 ? wnd : 1000);
		wait_ms(50);
		s = drain();
		seq = s->ack;
		wnd = s->wnd;
	}
	equal(wnd, 0);
	wait_ms(600);
	in("A", seq - 1, 1, 0);
	equal(out("A", 1, seq, 0)->wnd, 0);
}

static void rfc1122_4_2_3_4_sender_avoids_silly_windows(void)
{
	peer()->wnd = 4000;
	established();
	equal(sending(8000, 0), 8000);
	equal(waiting(), 4);
	drain();
	/* A window of 100 bytes is not worth a segment. */
	peer()->wnd = 100;
	in("A", 1, 4001, 0);
	nothing();
	peer()->wnd = 4000;
	in("A", 1, 4001, 0);
	equal(waiting(), 4);
}

static void keepalive_on(void)
{
	opts()->keepalive = true;
	opts()->keepidle_s = 1;
	opts()->keepintvl_s = 1;
	opts()->keepcnt = 3;
}

static void rfc1122_4_2_3_6_keepalive_probes(void)
{
	keepalive_on();
	established();
	out_after(1000, "A", 0, 1, 0);
	in("A", 1, 1, 0);
	out_after(1000, "A", 0, 1, 0);
	in("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc1122_4_2_3_6_keepalive_gives_up(void)
{
	keepalive_on();
	established();
	out_after(1000, "A", 0, 1, 0);
	out_after(1000, "A", 0, 1, 0);
	out_after(1000, "A", 0, 1, 0);
	out_after(1000, "RA", 1, 1, 0);
	equal(pending_error(), ETIMEDOUT);
}

static void rfc1122_4_2_3_6_a_keepalive_probe_is_answered(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	in("A", 10, 1, 0);
	out("A", 1, 11, 0);
}

static void rfc1122_4_2_3_6_a_keepalive_probe_with_a_byte_is_answered(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	in("A", 10, 1, 1);
	out("A", 1, 11, 0);
	equal(inq(), 10);
}

static void rfc1122_4_2_3_6_no_keepalive_unless_asked_for(void)
{
	engine_only();
	established();
	wait_us(100ull * 3600 * 1000000);
	nothing();
	equal(state(), TCPS_ESTABLISHED);
}

static void rfc1122_4_2_3_6_keepalive_after_two_hours(void)
{
	engine_only();
	opts()->keepalive = true;
	established();
	wait_ms(7199000);
	nothing();
	wait_ms(2000);
	out("A", 0, 1, 0);
}

/* --- RFC 3168 */

static void rfc3168_6_1_1_ecn_is_agreed_passively(void)
{
	opts()->ecn = true;
	peer()->syn_ecn = true;
	established();
	equal(sending(1000, 0), 1000);
	equal(out("PA", 1, 1, 1000)->tos & 3, 2);
}

static void rfc3168_6_1_1_ecn_is_agreed_actively(void)
{
	opts()->ecn = true;
	peer()->syn_ecn = true;
	established_active();
	equal(sending(1000, 0), 1000);
	equal(out("PA", 1, 1, 1000)->tos & 3, 2);
}

static void rfc3168_6_1_1_no_ecn_when_the_peer_does_not_answer(void)
{
	opts()->ecn = true;
	established_active();
	equal(sending(1000, 0), 1000);
	equal(out("PA", 1, 1, 1000)->tos & 3, 0);
}

static void rfc3168_6_1_1_syn_and_syn_ack_are_not_ect(void)
{
	opts()->ecn = true;
	listening();
	in("SEC", 0, 0, 0);
	equal(out("SAE", 0, 1, 0)->tos & 3, 0);
}

static void rfc3168_6_1_3_ce_is_echoed_until_cwr(void)
{
	struct seg s;

	opts()->ecn = true;
	peer()->syn_ecn = true;
	established();
	s = prepared("PA", 1, 1, 100);
	s.tos = 3;
	inject(s);
	out("AE", 1, 101, 0);
	s = prepared("PA", 101, 1, 100);
	s.tos = 2;
	inject(s);
	out_by(60, "AE", 1, 201, 0);
	s = prepared("PAC", 201, 1, 100);
	s.tos = 2;
	inject(s);
	out_by(60, "A", 1, 301, 0);
}

static void rfc3168_6_1_2_ece_halves_once_and_cwr_tells(void)
{
	opts()->ecn = true;
	opts()->cc = TCP_CC_NEWRENO;
	opts()->sndbuf = opts()->sndbuf_max = 400000;
	peer()->syn_ecn = true;
	established();
	must(sending(40000, 0) > 30000);
	equal(waiting(), 10);
	drain();
	wait_ms(20);
	in("AE", 1, 1001, 0);
	equal(info().tcpi_ca_state, TCP_CA_CWR);
	equal(info().tcpi_snd_ssthresh, 5);
	drain();
	for (unsigned i = 2; i <= 10; i++) {
		in("AE", 1, i * 1000 + 1, 0);
		drain();
	}
	equal(info().tcpi_snd_ssthresh, 5);
}

static void rfc3168_6_1_5_a_retransmission_is_not_ect(void)
{
	opts()->ecn = true;
	peer()->syn_ecn = true;
	established();
	equal(sending(10000, 0), 10000);
	equal(waiting(), 10);
	drain();
	wait_ms(20);
	in_sack(1, 1, 1001, 5001);
	equal(drain()->tos & 3, 0);
}

const struct conform_case cases_rfc1122[] = {
	CASE(rfc1122_4_2_3_4_nagle_holds_a_small_segment),
	CASE(rfc1122_4_2_3_4_nagle_lets_a_full_segment_go),
	CASE(rfc1122_4_2_3_4_minshall_small_behind_full),
	CASE(rfc1122_4_2_3_4_nodelay),
	CASE(rfc1122_4_2_3_4_nodelay_set_later_lets_go),
	CASE(cork_holds_until_it_is_drawn),
	CASE(cork_lets_full_segments_go),
	CASE(cork_lets_go_after_200_ms),
	CASE(msg_more_is_followed),
	CASE(rfc1122_4_2_3_4_a_fin_takes_the_held_data),
	CASE(rfc1122_4_2_3_2_the_first_acks_are_quick),
	CASE(rfc1122_4_2_3_2_an_ack_is_delayed_in_a_dialogue),
	CASE(rfc1122_4_2_3_2_the_answer_carries_the_ack),
	CASE(rfc1122_4_2_3_2_every_second_full_segment_is_acknowledged),
	CASE(rfc1122_4_2_2_17_a_closed_window_is_probed),
	CASE(rfc1122_4_2_2_17_a_window_that_closes_in_flight),
	CASE(rfc1122_4_2_2_17_probes_go_on_as_long_as_they_are_answered),
	CASE(rfc9293_3_8_6_1_our_closed_window_answers_probes),
	CASE(rfc1122_4_2_3_4_sender_avoids_silly_windows),
	CASE(rfc1122_4_2_3_6_keepalive_probes),
	CASE(rfc1122_4_2_3_6_keepalive_gives_up),
	CASE(rfc1122_4_2_3_6_a_keepalive_probe_is_answered),
	CASE(rfc1122_4_2_3_6_a_keepalive_probe_with_a_byte_is_answered),
	CASE(rfc1122_4_2_3_6_no_keepalive_unless_asked_for),
	CASE(rfc1122_4_2_3_6_keepalive_after_two_hours),
	CASE(rfc3168_6_1_1_ecn_is_agreed_passively),
	CASE(rfc3168_6_1_1_ecn_is_agreed_actively),
	CASE(rfc3168_6_1_1_no_ecn_when_the_peer_does_not_answer),
	CASE(rfc3168_6_1_1_syn_and_syn_ack_are_not_ect),
	CASE(rfc3168_6_1_3_ce_is_echoed_until_cwr),
	CASE(rfc3168_6_1_2_ece_halves_once_and_cwr_tells),
	CASE(rfc3168_6_1_5_a_retransmission_is_not_ect),
	{0},
};
