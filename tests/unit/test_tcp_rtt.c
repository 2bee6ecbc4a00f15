/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The round-trip time estimator, as Linux's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tcp/internal.h"

#define MIN_RTO 200000u

static struct tcp_rtt r;

/* A sample of which each is a window of data of its own. */
static void sample(uint32_t us)
{
	static uint32_t seq;

	seq += 1000;
	tcp_rtt_sample(&r, us, seq, seq + 500, MIN_RTO, seq);
}

static void without_samples_the_timeout_is_one_second(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	assert_int_equal(r.rto_us, 1000000);
	assert_int_equal(r.srtt_us, 0);
	assert_true(r.min_us == UINT32_MAX);
}

/* RFC 6298, 2.2: RTTVAR = R/2, RTO = SRTT + 4 RTTVAR; the floor is on the variance. */
static void the_first_sample_is_the_mean_and_twice_it_the_variance(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	sample(300000);
	assert_int_equal(r.srtt_us >> 3, 300000);
	assert_int_equal(r.mdev_us, 600000);
	assert_int_equal(r.rto_us, 900000);
	tcp_rtt_init(&r, MIN_RTO);
	sample(100);
	assert_int_equal(r.rto_us, 200100);
}

/* RFC 6298, 2.3 in exact arithmetic beside ours. */
static void the_mean_moves_by_an_eighth_and_the_deviation_by_a_quarter(void **state)
{
	static const uint32_t samples[] = {100000, 140000, 130000, 180000, 200000, 260000, 261000};
	double srtt = samples[0], mdev = samples[0] / 2.0;

	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	sample(samples[0]);
	for (size_t i = 1; i < sizeof(samples) / sizeof(samples[0]); i++) {
		double error = samples[i] - srtt;

		sample(samples[i]);
		srtt += error / 8;
		/* A sample below the mean by more than the deviation counts an eighth of that. */
		if (error < 0 && -error > mdev)
			mdev += (-error - mdev) / 4 / 8;
		else
			mdev += ((error < 0 ? -error : error) - mdev) / 4;
		assert_in_range(r.srtt_us, (uint32_t)(srtt * 8) - 20, (uint32_t)(srtt * 8) + 20);
		assert_in_range(r.mdev_us, (uint32_t)(mdev * 4) - 40, (uint32_t)(mdev * 4) + 40);
	}
}

static void a_time_that_falls_does_not_raise_the_timeout(void **state)
{
	uint32_t before;

	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	for (int i = 0; i < 100; i++)
		sample(1000000);
	before = r.rto_us;
	sample(100000);
	assert_true(r.rto_us <= before);
}

static void a_steady_path_ends_at_the_floor_above_the_mean(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	sample(1000000);
	for (int i = 0; i < 200; i++)
		sample(50000);
	assert_in_range(r.srtt_us >> 3, 50000, 50001);
	assert_in_range(r.rttvar_us, MIN_RTO, MIN_RTO + 3); /* a quarter of 3 is nothing */
	assert_int_equal(r.rto_us, (r.srtt_us >> 3) + r.rttvar_us);
}

/* Within one window of data the largest deviation counts; only its end lets the variance down. */
static void the_variance_is_let_down_once_a_window(void **state)
{
	uint32_t var;

	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	tcp_rtt_sample(&r, 400000, 0, 10000, MIN_RTO, 1);
	var = r.rttvar_us;
	assert_int_equal(var, 800000);
	/* The first window's greatest deviation is the first sample's: nothing to let down. */
	tcp_rtt_sample(&r, 400000, 10001, 20000, MIN_RTO, 2);
	assert_int_equal(r.rttvar_us, var);
	for (uint32_t una = 10001; una <= 20000; una += 100)
		tcp_rtt_sample(&r, 400000, una, 20000, MIN_RTO, 3);
	assert_int_equal(r.rttvar_us, var);
	tcp_rtt_sample(&r, 400000, 20001, 30000, MIN_RTO, 4);
	assert_true(r.rttvar_us < var);
	assert_true(r.rttvar_us >= var - var / 4);
}

static void a_delay_spike_raises_the_timeout_at_once(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	for (int i = 0; i < 100; i++)
		sample(10000);
	sample(2000000);
	assert_true(r.rto_us > 500000);
}

static void the_timeout_has_a_ceiling(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	for (int i = 0; i < 100; i++) {
		sample(i & 1 ? UINT32_MAX : 1);
		assert_in_range(r.rto_us, MIN_RTO, TCP_RTO_MAX_US);
	}
	assert_int_equal(r.rto_us, TCP_RTO_MAX_US);
}

static void a_path_faster_than_the_clock_has_a_time_all_the_same(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	for (int i = 0; i < 100; i++)
		sample(0);
	assert_int_not_equal(r.srtt_us, 0);
	assert_int_equal(r.min_us, 1);
}

static void the_minimum_is_of_the_last_five_minutes(void **state)
{
	(void)state;
	tcp_rtt_init(&r, MIN_RTO);
	tcp_rtt_sample(&r, 500, 1, 2, MIN_RTO, 1000);
	tcp_rtt_sample(&r, 700, 2, 3, MIN_RTO, 2000);
	assert_int_equal(r.min_us, 500);
	tcp_rtt_sample(&r, 400, 2, 3, MIN_RTO, 3000);
	assert_int_equal(r.min_us, 400);
	tcp_rtt_sample(&r, 900, 2, 3, MIN_RTO, 300003000);
	assert_int_equal(r.min_us, 400);
	tcp_rtt_sample(&r, 900, 2, 3, MIN_RTO, 300003001);
	assert_int_equal(r.min_us, 900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_samples_the_timeout_is_one_second),
		cmocka_unit_test(the_first_sample_is_the_mean_and_twice_it_the_variance),
		cmocka_unit_test(the_mean_moves_by_an_eighth_and_the_deviation_by_a_quarter),
		cmocka_unit_test(a_time_that_falls_does_not_raise_the_timeout),
		cmocka_unit_test(a_steady_path_ends_at_the_floor_above_the_mean),
		cmocka_unit_test(the_variance_is_let_down_once_a_window),
		cmocka_unit_test(a_delay_spike_raises_the_timeout_at_once),
		cmocka_unit_test(the_timeout_has_a_ceiling),
		cmocka_unit_test(a_path_faster_than_the_clock_has_a_time_all_the_same),
		cmocka_unit_test(the_minimum_is_of_the_last_five_minutes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
