/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 9293, 3.10.7.4 in ESTABLISHED: sequence numbers, acknowledgements, text; windows (3.8.6). */
#include <errno.h>

#include "script.h"

static void rfc9293_3_10_7_4_text_in_order(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(inq(), 100);
	equal(ready(), TCP_EV_IN | TCP_EV_OUT);
	equal(receiving(1000, 0), 100);
	equal(receiving(1000, 0), -EAGAIN);
}

static void rfc9293_3_10_7_4_text_is_read_in_pieces_and_peeked_at(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(receiving(30, 0), 30);
	equal(receiving(1000, MSG_PEEK), 70);
	equal(receiving(1000, 0), 70);
}

static void rfc9293_3_10_7_4_text_out_of_order_waits(void)
{
	established();
	in("PA", 101, 1, 100);
	out("A", 1, 1, 0);
	equal(receiving(1000, 0), -EAGAIN);
	in("PA", 1, 1, 100);
	out("A", 1, 201, 0);
	equal(receiving(1000, 0), 200);
}

static void rfc9293_3_10_7_4_old_text_is_acknowledged(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(inq(), 100);
}

static void rfc9293_3_10_7_4_the_new_part_of_text_is_taken(void)
{
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 51, 1, 100);
	out("A", 1, 151, 0);
	equal(receiving(1000, 0), 150);
}

static void rfc9293_3_10_7_4_text_that_overlaps_what_waits(void)
{
	established();
	in("PA", 101, 1, 100);
	out("A", 1, 1, 0);
	in("PA", 1, 1, 150);
	out("A", 1, 201, 0);
	equal(receiving(1000, 0), 200);
}

static void rfc9293_3_10_7_4_text_that_covers_what_waits(void)
{
	established();
	in("PA", 101, 1, 50);
	out("A", 1, 1, 0);
	in("PA", 51, 1, 200);
	out("A", 1, 1, 0);
	in("PA", 1, 1, 50);
	out("A", 1, 251, 0);
	equal(receiving(1000, 0), 250);
}

static void rfc9293_3_10_7_4_text_beyond_the_window_is_refused(void)
{
	opts()->rcvbuf = opts()->rcvbuf_max = 20000;
	established();
	in("PA", 100001, 1, 100);
	out("A", 1, 1, 0);
	equal(receiving(1000, 0), -EAGAIN);
}

static void rfc9293_3_10_7_4_no_ack_flag_no_text(void)
{
	established();
	in("P", 1, 0, 100);
	nothing();
	equal(receiving(1000, 0), -EAGAIN);
}

static void rfc9293_3_10_7_4_ack_of_what_was_never_sent(void)
{
	established();
	in("PA", 1, 100, 100);
	out("A", 1, 1, 0);
	equal(receiving(1000, 0), -EAGAIN);
}

static void rfc9293_3_10_7_4_old_ack_is_ignored(void)
{
	established();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	in("A", 1, 101, 0);
	in("A", 1, 1, 0);
	nothing();
	in("PA", 1, 1, 10);
	out("A", 101, 11, 0);
	equal(receiving(100, 0), 10);
}

static void rfc9293_3_4_sequence_numbers_wrap(void)
{
	peer()->iss = 0xffffffc0;
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 201, 1, 100);
	out("A", 1, 101, 0);
	in("PA", 101, 1, 100);
	out("A", 1, 301, 0);
	equal(receiving(1000, 0), 300);
}

static void rfc9293_3_4_the_syn_number_wraps(void)
{
	peer()->iss = 0xffffffff;
	established();
	in("FPA", 1, 1, 100);
	out_by(60, "A", 1, 102, 0);
	equal(receiving(1000, 0), 100);
	equal(receiving(1000, 0), 0);
}

static void rfc9293_3_8_6_window_limits_the_sender(void)
{
	peer()->wnd = 3000;
	established();
	equal(sending(10000, 0), 10000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	out("*A", 2001, 1, 1000);
	nothing();
	in("A", 1, 1001, 0);
	out("*A", 3001, 1, 1000);
	nothing();
}

static void rfc9293_3_8_6_window_update_lets_go(void)
{
	peer()->wnd = 2000;
	established();
	equal(sending(6000, 0), 6000);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	nothing();
	peer()->wnd = 3000;
	in("A", 1, 1, 0);
	out("*A", 2001, 1, 1000);
	nothing();
}

static void rfc1122_4_2_3_4_a_segment_is_at_most_half_the_window(void)
{
	peer()->wnd = 1000;
	established();
	equal(sending(1500, 0), 1500);
	out("*A", 1, 1, 500);
	out("*A", 501, 1, 500);
	nothing();
}

static void rfc9293_3_10_7_4_an_old_segment_does_not_change_the_window(void)
{
	peer()->wnd = 2000;
	established();
	in("PA", 1, 1, 100);
	out("A", 1, 101, 0);
	equal(sending(10000, 0), 10000);
	out("*A", 1, 101, 1000);
	out("*A", 1001, 101, 1000);
	nothing();
	/* SND.WL1 is behind this one. */
	peer()->wnd = 60000;
	in("A", 50, 1, 0);
	drain();
	in("A", 1, 1, 0);
	drain();
	equal(waiting(), 0);
}

static void rfc9293_3_8_6_a_window_that_shrinks_is_respected(void)
{
	peer()->wnd = 5000;
	established();
	equal(sending(10000, 0), 10000);
	equal(waiting(), 5);
	drain();
	peer()->wnd = 1000;
	in("A", 1, 3001, 0);
	nothing();
	in("A", 1, 5001, 0);
	out("*A", 5001, 1, 1000);
	nothing();
}

static void rfc9293_3_8_6_our_window_closes_and_opens(void)
{
	uint32_t seq = 1;
	const struct seg *s;

	opts()->rcvbuf = opts()->rcvbuf_max = 20000;
	established();
	for (unsigned i = 0; i < 40; i++, seq += 1000) {
		in("A", seq, 1, 1000);
		s = drain();
		if (s && s->wnd < 1000)
			break;
	}
	must(seq > 3000 && seq < 20001);
	drain();
	while (receiving(4000, 0) > 0)
		;
	s = drain();
	must(s && s->wnd > 3000);
}

static void rfc9293_3_8_6_text_into_a_closed_window_is_refused(void)
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
	in("A", seq, 1, 1000);
	must(drain()->ack == seq);
	/* Without text it is still looked at (3.4): here a RST. */
	in("R", seq, 0, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_8_4_ack_without_text_is_not_answered(void)
{
	established();
	in("A", 1, 1, 0);
	nothing();
	in("PA", 1, 1, 0);
	nothing();
}

static void rfc9293_3_9_1_send_and_receive_before_the_connection_is(void)
{
	connecting();
	out("S", 0, ANY, 0);
	equal(sending(10, 0), -EAGAIN);
	equal(receiving(10, 0), -EAGAIN);
	equal(shutting(SHUT_WR), 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_9_1_push_marks_the_end_of_a_send(void)
{
	established();
	equal(sending(2500, 0), 2500);
	out("A", 1, 1, 1000);
	/* Linux marks the end of a burst too. */
	out("*A", 1001, 1, 1000);
	out("PA", 2001, 1, 500);
}

static void rfc9293_3_9_1_send_buffer_full(void)
{
	int n, sum = 0;

	opts()->sndbuf = opts()->sndbuf_max = 20000;
	peer()->wnd = 0;
	established();
	while ((n = sending(1000, 0)) > 0 && sum < 300000)
		sum += n;
	equal(n, -EAGAIN);
	must(sum < 300000);
	must(!(ready() & TCP_EV_OUT));
	drain();
	peer()->wnd = 60000;
	in("A", 1, 1, 0);
	for (unsigned i = 0; i < 100 && waiting(); i++) {
		const struct seg *s = drain();

		in("A", 1, s->seq + s->len, 0);
	}
	must(ready() & TCP_EV_OUT);
}

const struct conform_case cases_rfc9293_data[] = {
	CASE(rfc9293_3_10_7_4_text_in_order),
	CASE(rfc9293_3_10_7_4_text_is_read_in_pieces_and_peeked_at),
	CASE(rfc9293_3_10_7_4_text_out_of_order_waits),
	CASE(rfc9293_3_10_7_4_old_text_is_acknowledged),
	CASE(rfc9293_3_10_7_4_the_new_part_of_text_is_taken),
	CASE(rfc9293_3_10_7_4_text_that_overlaps_what_waits),
	CASE(rfc9293_3_10_7_4_text_that_covers_what_waits),
	CASE(rfc9293_3_10_7_4_text_beyond_the_window_is_refused),
	CASE(rfc9293_3_10_7_4_no_ack_flag_no_text),
	CASE(rfc9293_3_10_7_4_ack_of_what_was_never_sent),
	CASE(rfc9293_3_10_7_4_old_ack_is_ignored),
	CASE(rfc9293_3_4_sequence_numbers_wrap),
	CASE(rfc9293_3_4_the_syn_number_wraps),
	CASE(rfc9293_3_8_6_window_limits_the_sender),
	CASE(rfc9293_3_8_6_window_update_lets_go),
	CASE(rfc1122_4_2_3_4_a_segment_is_at_most_half_the_window),
	CASE(rfc9293_3_10_7_4_an_old_segment_does_not_change_the_window),
	CASE(rfc9293_3_8_6_a_window_that_shrinks_is_respected),
	CASE(rfc9293_3_8_6_our_window_closes_and_opens),
	CASE(rfc9293_3_8_6_text_into_a_closed_window_is_refused),
	CASE(rfc9293_3_8_4_ack_without_text_is_not_answered),
	CASE(rfc9293_3_9_1_send_and_receive_before_the_connection_is),
	CASE(rfc9293_3_9_1_push_marks_the_end_of_a_send),
	CASE(rfc9293_3_9_1_send_buffer_full),
	{0},
};
