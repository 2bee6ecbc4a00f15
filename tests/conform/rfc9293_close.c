/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 9293: how connections end (3.6, 3.10.4, 3.10.7.4), and what the states after ESTABLISHED
 * take.
 */
#include <errno.h>

#include "script.h"

static void rfc9293_3_6_active_close(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	equal(state(), TCPS_FIN_WAIT1);
	in("A", 1, 2, 0);
	nothing();
	equal(state(), TCPS_FIN_WAIT2);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_6_active_close_with_data(void)
{
	established();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	closing();
	out("FA", 101, 1, 0);
	in("A", 1, 102, 0);
	equal(state(), TCPS_FIN_WAIT2);
}

static void rfc9293_3_6_passive_close(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	equal(state(), TCPS_CLOSE_WAIT);
	equal(ready(), TCP_EV_IN | TCP_EV_OUT | TCP_EV_RDHUP);
	equal(receiving(10, 0), 0);
	closing();
	out("FA", 1, 2, 0);
	equal(state(), TCPS_LAST_ACK);
	in("A", 2, 2, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_6_passive_close_still_sends(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	equal(sending(100, 0), 100);
	out("PA", 1, 2, 100);
	in("A", 2, 101, 0);
	equal(sending(100, 0), 100);
	out("PA", 101, 2, 100);
}

static void rfc9293_3_6_simultaneous_close(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 1, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_CLOSING);
	in("A", 2, 2, 0);
	nothing();
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_6_fin_that_acknowledges_ours(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_6_half_close_still_receives(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	in("A", 1, 2, 0);
	in("PA", 1, 2, 500);
	out("A", 2, 501, 0);
	equal(receiving(1000, 0), 500);
	in("FA", 501, 2, 0);
	out("A", 2, 502, 0);
	equal(receiving(1000, 0), 0);
	equal(ready(), TCP_EV_IN | TCP_EV_OUT | TCP_EV_RDHUP | TCP_EV_HUP);
}

static void rfc9293_3_6_half_close_refuses_to_send(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	equal(sending(10, 0), -EPIPE);
	nothing();
}

static void rfc9293_3_6_half_close_before_the_data_is_sent(void)
{
	peer()->wnd = 2000;
	established();
	equal(sending(2500, 0), 2500);
	out("*A", 1, 1, 1000);
	out("*A", 1001, 1, 1000);
	equal(shutting(SHUT_WR), 0);
	nothing();
	in("A", 1, 2001, 0);
	out("FPA", 2001, 1, 500);
	equal(state(), TCPS_FIN_WAIT1);
}

static void rfc9293_3_10_7_4_fin_with_data(void)
{
	established();
	in("FPA", 1, 1, 100);
	out_by(60, "A", 1, 102, 0);
	equal(receiving(1000, 0), 100);
	equal(receiving(1000, 0), 0);
	equal(receiving(1000, 0), 0);
}

static void rfc9293_3_10_7_4_fin_out_of_order(void)
{
	established();
	in("FA", 101, 1, 0);
	out("A", 1, 1, 0);
	equal(state(), TCPS_ESTABLISHED);
	in("PA", 1, 1, 100);
	out("A", 1, 102, 0);
	equal(state(), TCPS_CLOSE_WAIT);
}

static void rfc9293_3_10_7_4_fin_with_data_out_of_order(void)
{
	established();
	in("FPA", 101, 1, 100);
	out("A", 1, 1, 0);
	in("PA", 1, 1, 100);
	out("A", 1, 202, 0);
	equal(receiving(1000, 0), 200);
	equal(receiving(1000, 0), 0);
}

static void rfc9293_3_10_7_4_fin_again_is_acknowledged(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	equal(state(), TCPS_CLOSE_WAIT);
}

static void rfc9293_3_10_7_4_fin_again_in_time_wait_is_acknowledged(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_10_7_4_old_data_in_time_wait_is_acknowledged(void)
{
	established();
	in("PA", 1, 1, 10);
	out("A", 1, 11, 0);
	equal(receiving(100, 0), 10);
	closing();
	out("FA", 1, 11, 0);
	in("FA", 11, 2, 0);
	out("A", 2, 12, 0);
	in("PA", 1, 2, 10);
	out("A", 2, 12, 0);
}

static void rfc9293_3_10_7_4_rst_ends_time_wait(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	in("R", 2, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_7_4_time_wait_lasts_a_minute(void)
{
	engine_only();
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	wait_ms(59000);
	equal(state(), TCPS_TIME_WAIT);
	wait_ms(1100);
	equal(state(), TCPS_CLOSED);
	nothing();
}

static void rfc9293_3_10_7_4_a_fin_again_restarts_time_wait(void)
{
	engine_only();
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	wait_ms(40000);
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	wait_ms(40000);
	equal(state(), TCPS_TIME_WAIT);
}

static void rfc9293_3_6_closed_fin_wait2_ends_after_linger2(void)
{
	engine_only();
	established();
	closing();
	out("FA", 1, 1, 0);
	in("A", 1, 2, 0);
	wait_ms(59000);
	equal(state(), TCPS_FIN_WAIT2);
	wait_ms(2000);
	equal(state(), TCPS_CLOSED);
	in("FA", 1, 2, 0);
	out("R", 2, ANY, 0);
}

static void rfc9293_3_6_fin_wait2_of_an_open_socket_has_no_end(void)
{
	engine_only();
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	in("A", 1, 2, 0);
	wait_ms(3600000);
	equal(state(), TCPS_FIN_WAIT2);
	in("PA", 1, 2, 10);
	out("A", 2, 11, 0);
}

static void rfc9293_3_8_1_fin_is_repeated(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	/* A tail loss probe may come first. */
	wait_ms(1500);
	must(drain() != NULL);
	in("A", 1, 2, 0);
	equal(state(), TCPS_FIN_WAIT2);
}

static void rfc9293_3_10_7_4_last_ack_repeats_its_fin(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	closing();
	out("FA", 1, 2, 0);
	wait_ms(700);
	must(drain() != NULL);
	in("FA", 1, 1, 0);
	out("A", 2, 2, 0);
	in("A", 2, 2, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_7_4_text_after_the_fin_is_ignored(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	in("PA", 2, 1, 100);
	drain();
	equal(receiving(100, 0), 0);
	equal(state(), TCPS_CLOSE_WAIT);
}

static void rfc9293_3_10_7_4_rst_in_established(void)
{
	established();
	in("R", 1, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
	equal(ready(), TCP_EV_IN | TCP_EV_OUT | TCP_EV_ERR | TCP_EV_HUP | TCP_EV_RDHUP);
	equal(receiving(100, 0), -ECONNRESET);
	equal(receiving(100, 0), 0);
}

static void rfc9293_3_10_7_4_data_before_the_rst_is_read(void)
{
	established();
	in("PA", 1, 1, 50);
	out("A", 1, 51, 0);
	in("R", 51, 0, 0);
	equal(receiving(100, 0), 50);
	equal(receiving(100, 0), -ECONNRESET);
}

static void rfc9293_3_10_7_4_rst_fails_the_next_send(void)
{
	established();
	in("R", 1, 0, 0);
	equal(sending(10, 0), -ECONNRESET);
	equal(sending(10, 0), -EPIPE);
}

static void rfc9293_3_10_7_4_rst_in_close_wait(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	in("R", 2, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), EPIPE);
}

static void rfc9293_3_10_7_4_rst_in_fin_wait1(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	in("R", 1, 0, 0);
	equal(state(), TCPS_CLOSED);
	equal(pending_error(), ECONNRESET);
}

static void rfc9293_3_10_7_4_rst_in_last_ack(void)
{
	established();
	in("FA", 1, 1, 0);
	out_by(60, "A", 1, 2, 0);
	closing();
	out("FA", 1, 2, 0);
	in("R", 2, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_7_4_rst_in_closing(void)
{
	established();
	closing();
	out("FA", 1, 1, 0);
	in("FA", 1, 1, 0);
	out("A", 2, 2, 0);
	in("R", 2, 0, 0);
	nothing();
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_5_abort_sends_rst(void)
{
	established();
	aborting();
	out("RA", 1, 1, 0);
	equal(state(), TCPS_CLOSED);
	in("PA", 1, 1, 10);
	out("R", 1, ANY, 0);
}

static void rfc9293_3_10_5_abort_with_data_in_flight(void)
{
	established();
	equal(sending(100, 0), 100);
	out("PA", 1, 1, 100);
	aborting();
	out("RA", 101, 1, 0);
	equal(state(), TCPS_CLOSED);
}

static void rfc9293_3_10_4_shutdown_of_both_sides(void)
{
	established();
	equal(shutting(SHUT_RDWR), 0);
	out("FA", 1, 1, 0);
	equal(receiving(10, 0), 0);
	equal(sending(10, 0), -EPIPE);
}

static void rfc9293_3_10_4_shutdown_of_reading_sends_nothing(void)
{
	established();
	equal(shutting(SHUT_RD), 0);
	nothing();
	equal(receiving(10, 0), 0);
	equal(sending(10, 0), 10);
	out("PA", 1, 1, 10);
}

static void rfc9293_3_10_4_shutdown_twice(void)
{
	established();
	equal(shutting(SHUT_WR), 0);
	out("FA", 1, 1, 0);
	equal(shutting(SHUT_WR), 0);
	nothing();
	in("FA", 1, 2, 0);
	out("A", 2, 2, 0);
	equal(shutting(SHUT_WR), -ENOTCONN);
}

const struct conform_case cases_rfc9293_close[] = {
	CASE(rfc9293_3_6_active_close),
	CASE(rfc9293_3_6_active_close_with_data),
	CASE(rfc9293_3_6_passive_close),
	CASE(rfc9293_3_6_passive_close_still_sends),
	CASE(rfc9293_3_6_simultaneous_close),
	CASE(rfc9293_3_6_fin_that_acknowledges_ours),
	CASE(rfc9293_3_6_half_close_still_receives),
	CASE(rfc9293_3_6_half_close_refuses_to_send),
	CASE(rfc9293_3_6_half_close_before_the_data_is_sent),
	CASE(rfc9293_3_10_7_4_fin_with_data),
	CASE(rfc9293_3_10_7_4_fin_out_of_order),
	CASE(rfc9293_3_10_7_4_fin_with_data_out_of_order),
	CASE(rfc9293_3_10_7_4_fin_again_is_acknowledged),
	CASE(rfc9293_3_10_7_4_fin_again_in_time_wait_is_acknowledged),
	CASE(rfc9293_3_10_7_4_old_data_in_time_wait_is_acknowledged),
	CASE(rfc9293_3_10_7_4_rst_ends_time_wait),
	CASE(rfc9293_3_10_7_4_time_wait_lasts_a_minute),
	CASE(rfc9293_3_10_7_4_a_fin_again_restarts_time_wait),
	CASE(rfc9293_3_6_closed_fin_wait2_ends_after_linger2),
	CASE(rfc9293_3_6_fin_wait2_of_an_open_socket_has_no_end),
	CASE(rfc9293_3_8_1_fin_is_repeated),
	CASE(rfc9293_3_10_7_4_last_ack_repeats_its_fin),
	CASE(rfc9293_3_10_7_4_text_after_the_fin_is_ignored),
	CASE(rfc9293_3_10_7_4_rst_in_established),
	CASE(rfc9293_3_10_7_4_data_before_the_rst_is_read),
	CASE(rfc9293_3_10_7_4_rst_fails_the_next_send),
	CASE(rfc9293_3_10_7_4_rst_in_close_wait),
	CASE(rfc9293_3_10_7_4_rst_in_fin_wait1),
	CASE(rfc9293_3_10_7_4_rst_in_last_ack),
	CASE(rfc9293_3_10_7_4_rst_in_closing),
	CASE(rfc9293_3_10_5_abort_sends_rst),
	CASE(rfc9293_3_10_5_abort_with_data_in_flight),
	CASE(rfc9293_3_10_4_shutdown_of_both_sides),
	CASE(rfc9293_3_10_4_shutdown_of_reading_sends_nothing),
	CASE(rfc9293_3_10_4_shutdown_twice),
	{0},
};
