/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RFC 8985 (RACK-TLP), 6298 (time-out), 5682 (F-RTO), 6937 (PRR), 5681/6928/9438 (windows). */
#include <errno.h>

#include "script.h"

static void in_flight(uint32_t n)
{
	equal(sending(n * 1000, 0), n * 1000);
	equal(waiting(), n);
	drain();
}

static void rfc8985_7_a_probe_comes_after_two_round_trips(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	/* One segment in flight: the peer's delayed ACK is waited for too. */
	wait_ms(20);
	nothing();
	wait_ms(400);
	equal(drain()->seq, 1);
}

static void rfc8985_7_a_probe_of_several_is_the_last_segment(void)
{
	const struct seg *s;

	established();
	in_flight(3);
	s = out_by(120, "*A", 2001, 1, 1000);
	equal(s->len, 1000);
	/* The probe is no reason for a smaller window. */
	equal(info().tcpi_ca_state, TCP_CA_Open);
	equal(info().tcpi_snd_cwnd, 10);
}

static void rfc8985_7_a_probe_is_new_data_when_there_is_some(void)
{
	peer()->wnd = 4000;
	established();
	equal(sending(4500, 0), 4500);
	equal(waiting(), 4);
	drain();
	out_by(120, "*A", 3001, 1, 1000);
}

static void rfc8985_7_no_probe_after_the_answer(void)
{
	established();
	in_flight(3);
	wait_ms(20);
	in("A", 1, 3001, 0);
	wait_ms(500);
	nothing();
}

static void rfc8985_7_4_a_probe_that_repairs_the_loss_costs_a_window(void)
{
	established();
	in_flight(4);
	out_by(120, "*A", 3001, 1, 1000);
	equal(sending(1000, 0), 1000);
	drain();
	wait_ms(20);
	/* No D-SACK for the probe, and more acknowledged than it: it repaired a loss. */
	in("A", 1, 4001, 0);
	in("A", 1, 5001, 0);
	must(info().tcpi_snd_cwnd < 10);
}

static void rfc8985_7_4_a_needless_probe_costs_nothing(void)
{
	struct seg s;

	established();
	in_flight(4);
	out_by(120, "*A", 3001, 1, 1000);
	wait_ms(10);
	in("A", 1, 4001, 0);
	s = prepared("A", 1, 4001, 0);
	s.nsack = 1;
	s.sack[0][0] = 3001;
	s.sack[0][1] = 4001;
	inject(s);
	equal(sending(1000, 0), 1000);
	out("PA", 4001, 1, 1000);
}

static void rfc8985_7_2_the_probe_then_brings_recovery(void)
{
	established();
	in_flight(4);
	out_by(120, "*A", 3001, 1, 1000);
	wait_ms(20);
	in_sack(1, 1, 3001, 4001);
	out_by(150, "*A", 1, 1, 1000);
	equal(info().tcpi_ca_state, TCP_CA_Recovery);
}

static void rfc8985_6_one_late_segment_is_lost_by_time(void)
{
	established();
	in_flight(2);
	wait_ms(20);
	/* One SACK only: three duplicates never come. */
	in_sack(1, 1, 1001, 2001);
	nothing();
	out_by(30, "*A", 1, 1, 1000);
}

static void rfc8985_6_reordering_within_the_window_is_no_loss(void)
{
	established();
	in_flight(2);
	wait_ms(20);
	in_sack(1, 1, 1001, 2001);
	nothing();
	in("A", 1, 2001, 0);
	wait_ms(300);
	nothing();
	equal(info().tcpi_total_retrans, 0);
}

static void rfc8985_6_a_lost_retransmission_is_found(void)
{
	established();
	in_flight(10);
	wait_ms(20);
	in_sack(1, 1, 1001, 4001);
	out("*A", 1, 1, 1000);
	wait_ms(20);
	/* What was sent after the retransmission arrives; it does not. */
	in_sack(1, 1, 1001, 10001);
	drain();
	equal(sending(3000, 0), 3000);
	drain();
	wait_ms(21);
	in_sack(1, 1, 1001, 13001);
	wait_ms(10);
	must(info().tcpi_total_retrans >= 2);
}

static void rfc6298_5_7_without_a_sample_three_seconds(void)
{
	/* The handshake's SYN was repeated: it gives no sample (Karn). */
	connecting();
	out("S", 0, ANY, 0);
	out_after(1000, "S", 0, ANY, 0);
	wait_ms(10);
	in("SA", 0, 1, 0);
	out("A", 1, 1, 0);
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	equal(info().tcpi_rto, 3000000);
}

static void rfc6298_2_4_the_floor(void)
{
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	must(info().tcpi_rto >= 200000);
	must(info().tcpi_rto < 400000);
}

static void rfc6298_5_5_the_timer_backs_off(void)
{
	peer()->sack = false;
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	out_after(220, "PA", 1, 1, 1000);
	out_after(440, "PA", 1, 1, 1000);
	out_after(880, "PA", 1, 1, 1000);
	equal(info().tcpi_backoff, 3);
}

static void rfc6298_5_7_the_backoff_stays_until_a_sample(void)
{
	peer()->sack = false;
	established();
	equal(sending(1000, 0), 1000);
	out("PA", 1, 1, 1000);
	out_after(220, "PA", 1, 1, 1000);
	out_after(440, "PA", 1, 1, 1000);
	/* Karn: which transmission is acknowledged cannot be told. */
	in("A", 1, 1001, 0);
	must(info().tcpi_rto > 600000);
	equal(sending(1000, 0), 1000);
	out("PA", 1001, 1, 1000);
	wait_ms(20);
	in("A", 1, 2001, 0);
	must(info().tcpi_rto < 400000);
}

static void rfc6298_5_3_an_ack_restarts_the_timer(void)
{
	peer()->sack = false;
	established();
	in_flight(2);
	wait_ms(150);
	in("A", 1, 1001, 0);
	wait_ms(150);
	nothing();
	wait_ms(300);
	must(drain() != NULL);
}

static void rfc5681_3_1_a_timeout_leaves_one_segment(void)
{
	peer()->sack = false;
	established();
	in_flight(10);
	wait_ms(300);
	equal(drain()->seq, 1);
	equal(info().tcpi_ca_state, TCP_CA_Loss);
	equal(info().tcpi_snd_cwnd, 1);
	must(info().tcpi_snd_ssthresh >= 5 && info().tcpi_snd_ssthresh <= 7);
}

static void rfc5681_3_1_after_a_timeout_slow_start(void)
{
	peer()->sack = false;
	established();
	in_flight(10);
	wait_ms(300);
	equal(drain()->seq, 1);
	in("A", 1, 1001, 0);
	equal(waiting(), 2);
}

static void rfc5682_2_a_spurious_timeout_is_undone(void)
{
	peer()->ts = true;
	established();
	equal(sending(9880, 0), 9880);
	equal(waiting(), 10);
	drain();
	wait_ms(300);
	must(drain() != NULL);
	equal(info().tcpi_ca_state, TCP_CA_Loss);
	{
		/*
		 * It acknowledges the original transmission: the echo is older than the
		 * retransmission (Eifel).
		 */
		struct seg s = prepared("A", 1, 9881, 0);

		s.tsecr -= 290;
		inject(s);
	}
	must(info().tcpi_snd_cwnd >= 10);
	equal(info().tcpi_ca_state, TCP_CA_Open);
}

static void rfc6928_2_the_initial_window_is_ten(void)
{
	established();
	equal(sending(20000, 0) > 10000, 1);
	equal(waiting(), 10);
}

static void rfc5681_3_1_slow_start_doubles(void)
{
	opts()->sndbuf = opts()->sndbuf_max = 400000;
	established();
	must(sending(100000, 0) > 50000);
	equal(waiting(), 10);
	drain();
	wait_ms(20);
	in("A", 1, 10001, 0);
	equal(waiting(), 20);
	equal(info().tcpi_snd_cwnd, 20);
}

static void rfc5681_3_1_a_window_that_is_not_used_does_not_grow(void)
{
	established();
	for (unsigned i = 0; i < 20; i++) {
		equal(sending(1000, 0), 1000);
		drain();
		in("A", 1, 1001 + i * 1000, 0);
	}
	equal(info().tcpi_snd_cwnd, 10);
}

static void rfc9438_4_6_cubic_keeps_seven_tenths(void)
{
	established();
	in_flight(10);
	wait_ms(20);
	in_sack(1, 1, 1001, 5001);
	drain();
	equal(info().tcpi_snd_ssthresh, 7);
}

static void rfc5681_3_1_newreno_keeps_a_half(void)
{
	opts()->cc = TCP_CC_NEWRENO;
	established();
	in_flight(10);
	wait_ms(20);
	in_sack(1, 1, 1001, 5001);
	drain();
	equal(info().tcpi_snd_ssthresh, 5);
}

static void rfc6937_3_the_window_comes_down_in_steps(void)
{
	unsigned sent = 0;

	opts()->sndbuf = opts()->sndbuf_max = 400000;
	opts()->cc = TCP_CC_NEWRENO;
	established();
	must(sending(40000, 0) > 20000);
	equal(waiting(), 10);
	drain();
	wait_ms(20);
	for (unsigned i = 2; i <= 10; i++) {
		in_sack(1, 1, 1001, i * 1000 + 1);
		while (waiting()) {
			sent += waiting();
			drain();
		}
	}
	/*
	 * Of nine that left the network about half are replaced, the retransmission and limited
	 * transmit with them.
	 */
	must(sent >= 4 && sent <= 7);
	equal(info().tcpi_ca_state, TCP_CA_Recovery);
	equal(info().tcpi_snd_ssthresh, 5);
}

static void rfc5681_4_1_idle_restart(void)
{
	opts()->sndbuf = opts()->sndbuf_max = 400000;
	established();
	must(sending(60000, 0) > 30000);
	equal(waiting(), 10);
	drain();
	wait_ms(20);
	in("A", 1, 10001, 0);
	equal(waiting(), 20);
	drain();
	wait_ms(20);
	in("A", 1, 30001, 0);
	drain();
	wait_ms(20);
	in("A", 1, 60001, 0);
	must(info().tcpi_snd_cwnd > 20);
	wait_ms(5000);
	must(sending(60000, 0) > 30000);
	equal(waiting(), 10);
}

static void rfc1122_4_2_3_5_the_connection_is_given_up(void)
{
	engine_only();
	established();
	equal(sending(1000, 0), 1000);
	wait_ms(1000000);
	drain();
	equal(pending_error(), ETIMEDOUT);
}

static void rfc5482_user_timeout(void)
{
	opts()->user_timeout_ms = 2000;
	established();
	equal(sending(1000, 0), 1000);
	wait_ms(3500);
	drain();
	equal(pending_error(), ETIMEDOUT);
	equal(state(), TCPS_CLOSED);
}

const struct conform_case cases_rfc8985[] = {
	CASE(rfc8985_7_a_probe_comes_after_two_round_trips),
	CASE(rfc8985_7_a_probe_of_several_is_the_last_segment),
	CASE(rfc8985_7_a_probe_is_new_data_when_there_is_some),
	CASE(rfc8985_7_no_probe_after_the_answer),
	CASE(rfc8985_7_4_a_probe_that_repairs_the_loss_costs_a_window),
	CASE(rfc8985_7_4_a_needless_probe_costs_nothing),
	CASE(rfc8985_7_2_the_probe_then_brings_recovery),
	CASE(rfc8985_6_one_late_segment_is_lost_by_time),
	CASE(rfc8985_6_reordering_within_the_window_is_no_loss),
	CASE(rfc8985_6_a_lost_retransmission_is_found),
	CASE(rfc6298_5_7_without_a_sample_three_seconds),
	CASE(rfc6298_2_4_the_floor),
	CASE(rfc6298_5_5_the_timer_backs_off),
	CASE(rfc6298_5_7_the_backoff_stays_until_a_sample),
	CASE(rfc6298_5_3_an_ack_restarts_the_timer),
	CASE(rfc5681_3_1_a_timeout_leaves_one_segment),
	CASE(rfc5681_3_1_after_a_timeout_slow_start),
	CASE(rfc5682_2_a_spurious_timeout_is_undone),
	CASE(rfc6928_2_the_initial_window_is_ten),
	CASE(rfc5681_3_1_slow_start_doubles),
	CASE(rfc5681_3_1_a_window_that_is_not_used_does_not_grow),
	CASE(rfc9438_4_6_cubic_keeps_seven_tenths),
	CASE(rfc5681_3_1_newreno_keeps_a_half),
	CASE(rfc6937_3_the_window_comes_down_in_steps),
	CASE(rfc5681_4_1_idle_restart),
	CASE(rfc1122_4_2_3_5_the_connection_is_given_up),
	CASE(rfc5482_user_timeout),
	{0},
};
