/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The congestion controls against the formulas of RFC 5681 and RFC 9438. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tcp/internal.h"

#define SECOND UINT64_C(1000000)

static const struct tcp_cc_ops *const reno = &tcp_cc_newreno, *const cubic = &tcp_cc_cubic;

static struct tcp_cc_state fresh(const struct tcp_cc_ops *ops)
{
	struct tcp_cc_state s = {0};

	ops->init(&s);
	return s;
}

/* A loss as the recovery code does it. */
static void lose(const struct tcp_cc_ops *ops, struct tcp_cc_state *s, uint64_t now)
{
	s->prior_cwnd = s->cwnd;
	s->prior_ssthresh = s->ssthresh;
	s->ssthresh = ops->ssthresh(s, now);
	s->cwnd = s->ssthresh;
}

static void the_table_has_linux_s_names(void **state)
{
	(void)state;
	assert_string_equal(tcp_cc_ops[TCP_CC_NEWRENO]->name, "reno");
	assert_string_equal(tcp_cc_ops[TCP_CC_CUBIC]->name, "cubic");
	assert_string_equal(tcp_cc_ops[TCP_CC_NONE]->name, "none");
}

/* RFC 6928 */
static void the_first_window_is_ten(void **state)
{
	(void)state;
	assert_int_equal(fresh(reno).cwnd, 10);
	assert_int_equal(fresh(cubic).cwnd, 10);
	assert_true(fresh(cubic).ssthresh >= INT32_MAX);
}

static void a_change_of_algorithm_keeps_the_window(void **state)
{
	struct tcp_cc_state s = fresh(reno);

	(void)state;
	s.cwnd = 77;
	s.ssthresh = 55;
	cubic->init(&s);
	assert_int_equal(s.cwnd, 77);
	assert_int_equal(s.ssthresh, 55);
	tcp_cc_none.init(&s);
	assert_true(s.cwnd > 100000);
	reno->init(&s);
	assert_int_equal(s.cwnd, 10);
}

/* RFC 5681, 3.1 */
static void slow_start_doubles_and_stops_at_ssthresh(void **state)
{
	static const struct tcp_cc_ops *const all[] = {&tcp_cc_newreno, &tcp_cc_cubic};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct tcp_cc_state s = fresh(all[i]);

		all[i]->acked(&s, 10, 10000, SECOND);
		assert_int_equal(s.cwnd, 20);
		all[i]->acked(&s, 1, 10000, SECOND);
		assert_int_equal(s.cwnd, 21);
		s.ssthresh = 30;
		all[i]->acked(&s, 20, 10000, SECOND);
		assert_in_range(s.cwnd, 30, 31);
	}
}

/* RFC 5681, (3): one segment for each window. What slow start did not use counts. */
static void reno_grows_by_one_a_window(void **state)
{
	struct tcp_cc_state s = fresh(reno);

	(void)state;
	s.cwnd = s.ssthresh = 20;
	for (int i = 0; i < 19; i++)
		reno->acked(&s, 1, 10000, SECOND);
	assert_int_equal(s.cwnd, 20);
	reno->acked(&s, 1, 10000, SECOND);
	assert_int_equal(s.cwnd, 21);
	reno->acked(&s, 21 + 22 + 5, 10000, SECOND);
	assert_int_equal(s.cwnd, 23);
	reno->acked(&s, 18, 10000, SECOND);
	assert_int_equal(s.cwnd, 24);
}

/* RFC 5681, (4) */
static void reno_halves_but_not_below_two(void **state)
{
	struct tcp_cc_state s = fresh(reno);

	(void)state;
	s.cwnd = 51;
	assert_int_equal(reno->ssthresh(&s, 0), 25);
	s.cwnd = 3;
	assert_int_equal(reno->ssthresh(&s, 0), 2);
	s.cwnd = 1;
	assert_int_equal(reno->ssthresh(&s, 0), 2);
}

static void undo_brings_the_old_window_back(void **state)
{
	static const struct tcp_cc_ops *const all[] = {&tcp_cc_newreno, &tcp_cc_cubic};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct tcp_cc_state s = fresh(all[i]);

		s.cwnd = 100;
		lose(all[i], &s, SECOND);
		assert_true(s.cwnd < 100);
		assert_int_equal(all[i]->undo(&s), 100);
		s.cwnd = 130;
		assert_int_equal(all[i]->undo(&s), 130);
	}
}

/* RFC 9438, 4.6 */
static void cubic_keeps_seven_tenths(void **state)
{
	struct tcp_cc_state s = fresh(cubic);

	(void)state;
	s.cwnd = 100;
	assert_int_equal(cubic->ssthresh(&s, 0), 70);
	s.cwnd = 2;
	assert_int_equal(cubic->ssthresh(&s, 0), 2);
	s.cwnd = 1;
	assert_int_equal(cubic->ssthresh(&s, 0), 2);
}

/* RFC 9438, 4.7: W_max = cwnd (1 + beta) / 2 for who has not come back to it. */
static void a_flow_that_lost_again_early_leaves_room(void **state)
{
	struct tcp_cc_state s = fresh(cubic);

	(void)state;
	s.cwnd = 1000;
	lose(cubic, &s, 0);
	assert_true(fabs(s.cubic.w_max - 1000) < 1e-9);
	lose(cubic, &s, 0); /* at 700 */
	assert_true(fabs(s.cubic.w_max - 700 * 0.85) < 1e-9);
	s.cwnd = 800;
	lose(cubic, &s, 0);
	assert_true(fabs(s.cubic.w_max - 800) < 1e-9);
}

/* One window's acknowledgements, spread over the round trip. */
static void round_trip(struct tcp_cc_state *s, uint64_t *now, uint32_t rtt_us)
{
	uint32_t cwnd = s->cwnd;
	uint64_t end = *now + rtt_us;

	for (uint32_t i = 0; i < cwnd; i++) {
		*now += rtt_us / cwnd;
		cubic->acked(s, 1, rtt_us, *now);
	}
	*now = end;
}

/* RFC 9438, (1) and (2): W(t) = C (t - K)^3 + W_max, K = cbrt((W_max - cwnd_epoch) / C). */
static void the_window_follows_the_cubic_curve(void **state)
{
	static const uint32_t rtts[] = {20000, 100000, 300000};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct tcp_cc_state s = fresh(cubic);
		uint64_t now = 100 * SECOND, start;
		double k = cbrt((10000 - 7000) / 0.4);

		s.cwnd = 10000;
		lose(cubic, &s, now);
		start = now;
		cubic->acked(&s, 1, rtts[i], now);
		assert_true(fabs(s.cubic.k_s - k) < 1e-6);
		while (now < start + 30 * SECOND) {
			double t, want;

			round_trip(&s, &now, rtts[i]);
			t = (double)(now - start) / 1e6;
			want = 0.4 * pow(t - k, 3) + 10000;
			assert_true(fabs(s.cwnd - want) < 0.02 * want);
		}
		/* Past K: above the old maximum, and growing faster. */
		assert_true(s.cwnd > 10000);
	}
}

static void at_the_old_maximum_the_window_is_flat(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = SECOND, start = now;
	double k = cbrt(300 / 0.4);

	(void)state;
	s.cwnd = 1000;
	lose(cubic, &s, now);
	while (now < start + (uint64_t)(k * 1e6) - 200000)
		round_trip(&s, &now, 100000);
	assert_in_range(s.cwnd, 995, 1001);
}

/*
 * RFC 9438, 4.3: on short paths as fast as Reno with beta 0.7 would be: alpha 9/17 a round trip,
 * then 1.
 */
static void on_a_short_path_it_is_as_fast_as_reno(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = SECOND;
	double w_est;

	(void)state;
	s.cwnd = 20;
	lose(cubic, &s, now);
	w_est = s.cwnd;
	for (int i = 0; i < 200; i++) {
		uint32_t cwnd = s.cwnd;

		round_trip(&s, &now, 1000);
		for (uint32_t n = 0; n < cwnd; n++)
			w_est += (w_est < 20 ? 9.0 / 17 : 1) / w_est;
		assert_true(fabs(s.cwnd - w_est) <= 1);
	}
	assert_true(s.cwnd > 190);
}

/* RFC 9438, 4.4: the target is at most half above the window. */
static void no_round_trip_grows_by_more_than_half(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = SECOND;

	(void)state;
	s.cwnd = 100;
	lose(cubic, &s, now);
	for (int i = 0; i < 60; i++) {
		uint32_t before = s.cwnd;

		round_trip(&s, &now, 2000000);
		assert_true(s.cwnd <= before + before / 2 + before / 8 + 1);
	}
}

/* RFC 9438, 4.8: K is 0 and the curve begins at the window of the time. */
static void after_a_timeout_the_curve_begins_anew(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = 50 * SECOND;

	(void)state;
	s.cwnd = 1000;
	lose(cubic, &s, now);
	cubic->reset(&s);
	s.cwnd = 1;
	while (s.cwnd < s.ssthresh)
		cubic->acked(&s, 1, 100000, now += 1000);
	cubic->acked(&s, 1, 100000, now);
	assert_true(fabs(s.cubic.k_s) < 1e-9);
	assert_true(fabs(s.cubic.w_max - 700) < 2);
}

/* RFC 9438, 4.9 */
static void a_spurious_loss_leaves_the_curve_where_it_was(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = 50 * SECOND;

	(void)state;
	s.cwnd = 1000;
	lose(cubic, &s, now);
	for (int i = 0; i < 10; i++)
		round_trip(&s, &now, 100000);
	assert_true(s.cwnd < 1000);
	lose(cubic, &s, now);
	s.cwnd = cubic->undo(&s);
	s.ssthresh = s.prior_ssthresh;
	cubic->acked(&s, 1, 100000, now);
	assert_true(fabs(s.cubic.w_max - 1000) < 1e-9);
	assert_true(s.cubic.k_s > 0);
}

/* RFC 9438, 5.8: while the sender had nothing to send, time stood still for the curve. */
static void an_idle_minute_does_not_grow_the_window(void **state)
{
	struct tcp_cc_state s = fresh(cubic);
	uint64_t now = SECOND;
	uint32_t before;

	(void)state;
	s.cwnd = 1000;
	lose(cubic, &s, now);
	for (int i = 0; i < 10; i++)
		round_trip(&s, &now, 100000);
	before = s.cwnd;
	now += 60 * SECOND;
	round_trip(&s, &now, 100000);
	assert_true(s.cwnd <= before + 60);
}

/* --- HyStart: paths of 40 ms; times in microseconds */

#define PATH_US 40000u

struct ramp {
	struct tcp_cc_state s;
	uint64_t now;
	uint32_t una, nxt;
};

static struct ramp ramp_at(uint32_t cwnd)
{
	struct ramp r = {.s = fresh(cubic), .now = SECOND};

	r.s.cwnd = r.nxt = cwnd;
	return r;
}

/*
 * A round in slow start: each segment of the window is acknowledged gap_us after the one before and
 * took rtt_us; nothing comes for the rest of the path.
 */
static void ramp_round(struct ramp *r, uint32_t gap_us, uint32_t rtt_us, bool paced)
{
	uint32_t end = r->nxt;
	uint64_t until = r->now + PATH_US;

	while (r->una != end && r->s.cwnd < r->s.ssthresh) {
		struct tcp_cc_rtt rtt = {.now = r->now += gap_us,
					 .us = rtt_us,
					 .min_us = PATH_US,
					 .snd_una = ++r->una,
					 .snd_nxt = r->nxt,
					 .paced = paced};

		cubic->rtt(&r->s, &rtt);
		cubic->acked(&r->s, 1, PATH_US, r->now);
		r->nxt += 2;
	}
	if (r->now < until)
		r->now = until;
}

static void a_train_of_acknowledgements_as_long_as_half_the_path_ends_slow_start(void **state)
{
	struct ramp r = ramp_at(16), paced = ramp_at(16);

	(void)state;
	/* 0.25 ms apart: 80 of them are 20 ms. The rounds of 16, 32 and 64 are shorter. */
	for (int i = 0; i < 3; i++)
		ramp_round(&r, 250, PATH_US, false);
	assert_int_equal(r.s.cwnd, 128);
	ramp_round(&r, 250, PATH_US, false);
	assert_in_range(r.s.cwnd, 128 + 79, 128 + 82);
	assert_int_equal(r.s.ssthresh, r.s.cwnd);
	/* A paced sender's acknowledgements come spread over the round: the whole path. */
	for (int i = 0; i < 4; i++)
		ramp_round(&paced, 250, PATH_US, true);
	assert_int_equal(paced.s.ssthresh, TCP_SSTHRESH_INFINITE);
}

static void a_gap_in_the_train_ends_it_not_slow_start(void **state)
{
	struct ramp r = ramp_at(16);

	(void)state;
	for (int i = 0; i < 4; i++)
		ramp_round(&r, 2500, PATH_US, false);
	assert_int_equal(r.s.ssthresh, TCP_SSTHRESH_INFINITE);
}

/* An eighth of the path is 5 ms. */
static void a_queue_ends_slow_start(void **state)
{
	struct ramp r = ramp_at(16);

	(void)state;
	ramp_round(&r, 10, PATH_US + 4900, false);
	assert_int_equal(r.s.ssthresh, TCP_SSTHRESH_INFINITE);
	ramp_round(&r, 10, PATH_US + 5100, false);
	assert_in_range(r.s.cwnd, 32 + 8, 32 + 10);
	assert_int_equal(r.s.ssthresh, r.s.cwnd);
	/* No reduction has been: the curve begins here. */
	cubic->acked(&r.s, 1, PATH_US, r.now);
	assert_true(fabs(r.s.cubic.w_max - r.s.ssthresh) < 1e-9);
}

static void one_slow_segment_is_no_queue(void **state)
{
	struct ramp r = ramp_at(64);

	(void)state;
	for (int i = 0; i < 64; i++) {
		struct tcp_cc_rtt rtt = {.now = r.now += 10,
					 .us = i % 8 ? PATH_US + 20000 : PATH_US + 100,
					 .min_us = PATH_US,
					 .snd_una = ++r.una,
					 .snd_nxt = r.nxt};

		cubic->rtt(&r.s, &rtt);
	}
	assert_int_equal(r.s.ssthresh, TCP_SSTHRESH_INFINITE);
}

static void a_small_window_overruns_nothing(void **state)
{
	struct ramp r = ramp_at(7);

	(void)state;
	ramp_round(&r, 1900, PATH_US + 20000, false);
	assert_int_equal(r.s.cwnd, 14);
	assert_int_equal(r.s.ssthresh, TCP_SSTHRESH_INFINITE);
}

/* After a loss ssthresh is known: nothing is to be searched. */
static void only_the_first_slow_start_is_watched(void **state)
{
	struct ramp r = ramp_at(400);

	(void)state;
	lose(cubic, &r.s, r.now);
	cubic->reset(&r.s);
	r.s.cwnd = 20;
	r.una = r.nxt;
	r.nxt += 20;
	for (int i = 0; i < 6; i++)
		ramp_round(&r, 250, PATH_US + 20000, false);
	assert_int_equal(r.s.ssthresh, 280);
	assert_in_range(r.s.cwnd, 280, 281);
}

static void no_window_overflows(void **state)
{
	static const struct tcp_cc_ops *const all[] = {&tcp_cc_newreno, &tcp_cc_cubic,
						       &tcp_cc_none};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct tcp_cc_state s = fresh(all[i]);
		uint64_t now = SECOND;

		for (int n = 0; n < 100000; n++) {
			all[i]->acked(&s, s.cwnd, 50000, now += 50000);
			if (n == 20)
				lose(all[i], &s, now);
			assert_in_range(s.cwnd, 2, TCP_CWND_UNLIMITED);
		}
	}
}

static void none_never_limits(void **state)
{
	struct tcp_cc_state s = fresh(&tcp_cc_none);

	(void)state;
	assert_int_equal(s.cwnd, TCP_CWND_UNLIMITED);
	assert_int_equal(tcp_cc_none.ssthresh(&s, 0), TCP_CWND_UNLIMITED);
	s.cwnd = 1; /* as a timeout leaves it */
	tcp_cc_none.acked(&s, 1, 1000, 0);
	assert_int_equal(s.cwnd, TCP_CWND_UNLIMITED);
	assert_int_equal(tcp_cc_none.undo(&s), TCP_CWND_UNLIMITED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_has_linux_s_names),
		cmocka_unit_test(the_first_window_is_ten),
		cmocka_unit_test(a_change_of_algorithm_keeps_the_window),
		cmocka_unit_test(slow_start_doubles_and_stops_at_ssthresh),
		cmocka_unit_test(reno_grows_by_one_a_window),
		cmocka_unit_test(reno_halves_but_not_below_two),
		cmocka_unit_test(undo_brings_the_old_window_back),
		cmocka_unit_test(cubic_keeps_seven_tenths),
		cmocka_unit_test(a_flow_that_lost_again_early_leaves_room),
		cmocka_unit_test(the_window_follows_the_cubic_curve),
		cmocka_unit_test(at_the_old_maximum_the_window_is_flat),
		cmocka_unit_test(on_a_short_path_it_is_as_fast_as_reno),
		cmocka_unit_test(no_round_trip_grows_by_more_than_half),
		cmocka_unit_test(after_a_timeout_the_curve_begins_anew),
		cmocka_unit_test(a_spurious_loss_leaves_the_curve_where_it_was),
		cmocka_unit_test(an_idle_minute_does_not_grow_the_window),
		cmocka_unit_test(
			a_train_of_acknowledgements_as_long_as_half_the_path_ends_slow_start),
		cmocka_unit_test(a_gap_in_the_train_ends_it_not_slow_start),
		cmocka_unit_test(a_queue_ends_slow_start),
		cmocka_unit_test(one_slow_segment_is_no_queue),
		cmocka_unit_test(a_small_window_overruns_nothing),
		cmocka_unit_test(only_the_first_slow_start_is_watched),
		cmocka_unit_test(no_window_overflows),
		cmocka_unit_test(none_never_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
