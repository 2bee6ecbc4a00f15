/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The delivery rate (draft-cheng-iccrg-delivery-rate-estimation), as TCP_INFO tells it. */
#include <linux/tcp.h>

#include "tcp_fake.h"

static struct tcp_info info(void)
{
	struct tcp_info i;

	tcp_fill_info(f.c, &i, sizeof(i), f.ts.now);
	return i;
}

/* Ten segments leave at once; each is acknowledged 1 ms after the one before: a megabyte a second.
 */
static void ten_acknowledged_over_time(void)
{
	fake_send(10000);
	fake_pass(10 * MS);
	for (unsigned i = 1; i <= 10; i++) {
		fake_ack(1000 * i);
		if (i < 10)
			fake_pass(1 * MS);
	}
}

static void nothing_acknowledged_is_no_rate(void **state)
{
	(void)state;
	fake_open(10 * MS);
	fake_send(1000);
	assert_int_equal(info().tcpi_delivery_rate, 0);
	fake_close();
}

/* A flight is not faster than its round trip: ten in 19 ms. */
static void a_burst_is_as_fast_as_its_acknowledgements(void **state)
{
	(void)state;
	fake_open(10 * MS);
	ten_acknowledged_over_time();
	assert_int_equal(info().tcpi_delivery_rate, 10000 * UINT64_C(1000) / 19);
	assert_int_equal(info().tcpi_min_rtt, 10 * MS);
	fake_close();
}

/* A window is always in flight, and each acknowledgement lets the next segment go. */
static void a_stream_is_as_fast_as_the_path(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = c->cc.ssthresh = 10;
	fake_send(60000);
	fake_pass(10 * MS);
	for (unsigned i = 1; i <= 40; i++) {
		fake_ack(1000 * i);
		fake_pass(1 * MS);
	}
	assert_in_range(info().tcpi_delivery_rate, 990000, 1010000);
	fake_close();
}

/* Sent at 100,000 bytes a second, acknowledged together: the sender was the slow one. */
static void acknowledgements_that_come_together_are_not_a_fast_path(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 20;
	c->o.pacing_rate = 100000;
	fake_send(20000);
	fake_pass(50 * MS); /* six are out */
	fake_ack(1000);
	fake_pass(80 * MS);
	fake_ack(14000);
	assert_in_range(info().tcpi_delivery_rate, 50000, 104000);
	fake_close();
}

static void a_program_that_sends_little_does_not_lower_the_rate(void **state)
{
	struct tcp_info i;
	uint64_t rate;

	(void)state;
	fake_open(10 * MS);
	fake_send(10000);
	/* More than the window: it is the path that limits. */
	fake_send(30000);
	fake_pass(10 * MS);
	fake_ack(10000);
	fake_pass(10 * MS);
	fake_ack(30000);
	fake_pass(10 * MS);
	fake_ack(40000);
	i = info();
	rate = i.tcpi_delivery_rate;
	assert_true(rate >= 1000000);
	for (unsigned n = 0; n < 5; n++) {
		fake_pass(100 * MS);
		fake_send(100);
		fake_pass(10 * MS);
		fake_ack(40000 + 100 * (n + 1));
	}
	i = info();
	assert_int_equal(i.tcpi_delivery_rate, rate);
	fake_close();
}

static void what_a_program_limits_is_said(void **state)
{
	(void)state;
	fake_open(10 * MS);
	fake_send(100);
	fake_pass(10 * MS);
	fake_ack(100);
	assert_int_equal(info().tcpi_delivery_rate, 100000); /* one segment in a round trip */
	assert_true(info().tcpi_delivery_rate_app_limited);
	fake_close();
}

/* It is acknowledged right after its retransmission left: that is no path of 1 ms. */
static void an_original_that_comes_late_is_no_fast_path(void **state)
{
	struct tcp_info before;

	(void)state;
	fake_open(10 * MS);
	fake_send(10000);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 10000); /* the first is lost, and sent again */
	before = info();
	fake_pass(1 * MS);
	fake_ack(10000);
	assert_true(before.tcpi_delivery_rate > 0);
	assert_true(info().tcpi_delivery_rate <= before.tcpi_delivery_rate);
	fake_close();
}

static void what_is_sacked_counts_once(void **state)
{
	(void)state;
	fake_open(10 * MS);
	fake_send(10000);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 10000);
	assert_int_equal(info().tcpi_delivery_rate, 900000); /* nine in 10 ms */
	fake_pass(10 * MS);
	fake_ack(10000);
	/* The tenth: two round trips for ten. */
	assert_true(info().tcpi_delivery_rate <= 900000);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_acknowledged_is_no_rate),
		cmocka_unit_test(a_burst_is_as_fast_as_its_acknowledgements),
		cmocka_unit_test(a_stream_is_as_fast_as_the_path),
		cmocka_unit_test(acknowledgements_that_come_together_are_not_a_fast_path),
		cmocka_unit_test(a_program_that_sends_little_does_not_lower_the_rate),
		cmocka_unit_test(what_a_program_limits_is_said),
		cmocka_unit_test(an_original_that_comes_late_is_no_fast_path),
		cmocka_unit_test(what_is_sacked_counts_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
