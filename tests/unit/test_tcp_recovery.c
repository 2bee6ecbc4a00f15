/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loss recovery of the TCP sender: RTO, fast recovery with and without SACK, PRR. Every case begins
 * at byte 0, mss 1000.
 */
#include "tcp_fake.h"

static void the_timeout_backs_off_to_two_minutes_and_gives_up_after_retries2(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t rto = c->rtt.rto_us, last, first;

	(void)state;
	c->sack_ok = false;
	fake_send(500);
	last = expect_sent(0, 500)->when_us;
	fake_pass(5000 * SEC);
	first = f.s[1].when_us;
	for (unsigned i = 0; f.seen < f.n; i++) {
		uint64_t want = rto << i < 120 * SEC ? rto << i : 120 * SEC;
		struct sent *s = expect_sent(0, 500);

		assert_int_equal(s->when_us - last, want);
		last = s->when_us;
	}
	assert_int_equal(f.done, ETIMEDOUT);
	/* Linux: 924.6 s with a floor of 200 ms, counted from the first retransmission. */
	assert_true(last - first >= 800 * SEC && last - first <= 925 * SEC);
	assert_int_equal(f.ts.n.timeouts, f.n - 1);
	fake_close();
}

static void the_user_timeout_bounds_retransmissions(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t t0 = f.ts.now;

	(void)state;
	c->o.user_timeout_ms = 3000;
	fake_send(1000);
	fake_pass(3 * SEC + 199 * MS);
	assert_int_equal(f.done, -1);
	fake_pass(SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	assert_true(f.s[f.n - 1].when_us < t0 + 3400 * MS);
	fake_close();
}

static void back_off_ends_with_the_next_sample(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	fake_send(1000);
	fake_pass(SEC);
	assert_int_equal(c->backoff, 2);
	/* The answer to a retransmission is no sample (Karn), without time stamps. */
	fake_ack(1000);
	assert_int_equal(c->backoff, 2);
	fake_send(1000);
	fake_pass(10 * MS);
	fake_ack(2000);
	assert_int_equal(c->backoff, 0);
	assert_int_equal(c->retries, 0);
	fake_close();
}

static void an_answer_to_old_and_new_is_no_sample(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint32_t srtt = c->rtt.srtt_us;

	(void)state;
	c->sack_ok = false;
	fake_send(2000);
	fake_pass(c->rtt.rto_us);
	/* The first segment left twice, the second once: it may have waited for the first. */
	assert_int_equal(c->backoff, 1);
	fake_ack(2000);
	assert_int_equal(c->segq.packets_out, 0);
	assert_int_equal(c->backoff, 1);
	assert_int_equal(c->rtt.srtt_us, srtt);
	fake_close();
}

/* RFC 2018, 8; of what was never sent nothing can have come. */
static void a_block_beyond_what_was_sent_is_not_believed(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(4000);
	for (uint32_t over = 1; over < 5000; over = over * 3) {
		fake_sack(0, 2000, 4000 + over);
		assert_int_equal(c->segq.sacked_out, 0);
	}
	fake_sack(0, 2000, 4000);
	assert_int_equal(c->segq.sacked_out, 2);
	fake_close();
}

static void time_stamps_give_a_sample_of_a_retransmission(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->ts_ok = true;
	tcp_sync_mss(c);
	fake_send(100);
	fake_pass(SEC);
	fake_ack_full(100, NULL, 0, fake_wnd, tcp_ts_now(c) - 20);
	assert_int_equal(c->backoff, 0);
	assert_int_equal(c->segq.packets_out, 0);
	fake_close();
}

static void after_a_timeout_without_sack_all_is_sent_again_in_slow_start(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	fake_send(8000);
	expect_run(0, 8);
	fake_pass(c->rtt.rto_us);
	expect_run(0, 1);
	expect_quiet();
	assert_int_equal(c->ca_state, TCPCA_LOSS);
	assert_int_equal(c->cc.ssthresh, 5);
	fake_pass(10 * MS);
	fake_ack(1000);
	expect_run(1000, 2);
	expect_quiet();
	fake_ack(3000);
	expect_run(3000, 4);
	fake_ack(8000);
	assert_int_equal(c->ca_state,
			 TCPCA_LOSS); /* until something above is acknowledged (RFC 6582) */
	fake_send(1000);
	fake_pass(10 * MS);
	fake_ack(9000);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(c->segq.packets_out, 0);
	fake_close();
}

static void newreno_repairs_one_hole_a_round_trip(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	fake_send(10000);
	expect_run(0, 10);
	fake_pass(10 * MS);
	/* 0 and 4000 are lost. */
	fake_ack(0);
	fake_ack(0);
	expect_quiet();
	assert_int_equal(c->ca_state, TCPCA_DISORDER);
	fake_ack(0);
	expect_run(0, 1);
	assert_int_equal(c->ca_state, TCPCA_RECOVERY);
	assert_int_equal(c->cc.ssthresh, 5);
	for (unsigned i = 0; i < 5; i++)
		fake_ack(0);
	expect_quiet();
	fake_pass(10 * MS);
	fake_ack(4000);
	expect_run(4000, 1);
	expect_quiet();
	fake_pass(10 * MS);
	fake_ack(10000);
	fake_send(1000);
	fake_pass(10 * MS);
	fake_ack(11000);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(c->cc.cwnd, 5);
	assert_int_equal(f.ts.n.timeouts, 0);
	fake_close();
}

static void limited_transmit_sends_new_data_for_the_first_duplicates(void **state)
{
	(void)state;
	fake_open(10 * MS);
	fake_send(20000);
	expect_run(0, 10);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 2000);
	expect_run(10000, 1);
	fake_sack(0, 1000, 3000);
	expect_run(11000, 1);
	expect_quiet();
	fake_close();
}

static void sack_repairs_all_holes_in_one_recovery(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 20;
	fake_send(20000);
	expect_run(0, 20);
	fake_pass(10 * MS);
	/* 0, 5000 and 10000 are lost. */
	fake_sack(0, 1000, 5000);
	expect_run(0, 1);
	fake_sack2(0, 6000, 10000, 1000, 5000);
	expect_sent(5000, 1000);
	fake_sack2(0, 11000, 20000, 6000, 10000);
	expect_sent(10000, 1000);
	expect_quiet();
	assert_int_equal(c->segq.sacked_out, 17);
	assert_int_equal(c->segq.lost_out, 3);
	assert_int_equal(c->segq.retrans_out, 3);
	fake_pass(10 * MS);
	fake_ack(20000);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(c->cc.cwnd, 10);
	assert_int_equal(f.ts.n.timeouts, 0);
	assert_int_equal(f.ts.n.retrans_segs, 3);
	fake_close();
}

static void sack_splits_a_super_segment(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->max_gso = 10000;
	tcp_sync_mss(c);
	fake_send(9500);
	expect_sent(0, 9500);
	fake_pass(10 * MS);
	/* Wire segment 3 is lost, and half of one is a lie. */
	fake_sack2(0, 4000, 9500, 500, 3000);
	assert_int_equal(c->segq.packets_out, 10);
	assert_int_equal(c->segq.sacked_out, 8);
	expect_sent(0, 1000);
	fake_pass(10 * MS);
	fake_ack(3000);
	expect_sent(3000, 1000);
	fake_ack(9500);
	assert_int_equal(c->segq.packets_out, 0);
	fake_close();
}

/* A block that ended within a segment, and has grown over the rest of it. */
static void a_block_that_grows_covers_the_segment_that_it_ended_in(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(5000);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 1500);
	assert_int_equal(c->segq.sacked_out, 0);
	fake_sack(0, 1000, 3000);
	assert_int_equal(c->segq.sacked_out, 2);
	fake_close();
}

/* 4 GiB later: what an ACK had said then says nothing of the same numbers. */
static void blocks_of_long_ago_are_forgotten(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(5000);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 3000);
	assert_int_equal(c->segq.sacked_out, 2);
	fake_ack(5000);
	fake_went(0u - 5000);
	fake_send(5000);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 3000);
	assert_int_equal(c->segq.sacked_out, 2);
	fake_close();
}

static void blocks_that_cannot_be_are_ignored(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(10000);
	fake_pass(10 * MS);
	fake_ack(2000);
	fake_sack(2000, 5000, 50000);
	fake_sack(2000, 9000, 3000);
	fake_sack(2000, 4000, 4000);
	fake_sack(2000, 12000, 13000);
	/* What begins at snd_una would have been acknowledged. */
	fake_sack(2000, 2000, 4000);
	assert_int_equal(c->segq.sacked_out, 0);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	fake_close();
}

/*
 * RFC 6937, 4: 20 in flight, the first is lost, ssthresh 10. One new segment for every other ACK.
 */
static void prr_spreads_the_reduction_over_the_round_trip(void **state)
{
	static const unsigned pipe[] = {20, 20, 18, 17, 17, 16, 16, 15, 15, 14,
					14, 13, 13, 12, 12, 11, 11, 10, 10};
	struct tcp_conn *c = fake_open(10 * MS);
	unsigned sent = 0;

	(void)state;
	c->cc.cwnd = 20;
	fake_send(60000);
	expect_run(0, 20);
	fake_pass(10 * MS);
	for (unsigned ack = 1; ack < 20; ack++) {
		fake_sack(0, 1000, 1000 + ack * 1000);
		if (ack == 3)
			assert_int_equal(c->cc.ssthresh, 10);
		if (ack >= 3)
			assert_in_range(tcp_in_flight(c), pipe[ack - 1] - 1, pipe[ack - 1] + 1);
	}
	sent = f.n - f.seen;
	/* Two by limited transmit, the retransmission and eight or nine more. */
	assert_in_range(sent, 10, 12);
	assert_int_equal(c->prr_delivered, 17);
	assert_in_range(tcp_in_flight(c), 9, 10);
	fake_pass(10 * MS);
	fake_ack(22000);
	assert_int_equal(c->cc.cwnd, 10);
	fake_close();
}

/*
 * RFC 6937, 4, the second: the first 15 of 20 are lost: pipe falls below ssthresh, and slow start
 * brings it back.
 */
static void prr_grows_back_after_heavy_losses(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 20;
	fake_send(60000);
	expect_run(0, 20);
	fake_pass(10 * MS);
	fake_sack(0, 15000, 16000);
	fake_sack(0, 15000, 17000);
	fake_sack(0, 15000, 18000);
	assert_int_equal(c->segq.lost_out, 15);
	assert_true(tcp_in_flight(c) <= 6);
	fake_pass(10 * MS);
	/* Each delivery of a retransmission brings out up to two more. */
	f.seen = f.n;
	fake_ack(1000);
	assert_in_range(f.n - f.seen, 1, 3);
	assert_true(tcp_in_flight(c) <= c->cc.ssthresh);
	for (uint32_t ack = 2000; c->snd_una < 15000; ack += 1000) {
		fake_pass(2 * MS);
		fake_ack(ack);
		assert_true(tcp_in_flight(c) <= c->cc.ssthresh);
	}
	assert_int_equal(f.ts.n.timeouts, 0);
	fake_close();
}

static void a_peer_that_reneges_gets_all_again(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(10000);
	expect_run(0, 10);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 9000);
	expect_run(0, 1);
	fake_pass(10 * MS);
	/* It had 1000 to 9000, it said; now only 1000. */
	fake_ack(1000);
	fake_pass(20 * MS);
	assert_int_equal(f.ts.n.sack_reneging, 1);
	assert_int_equal(c->segq.sacked_out, 0);
	for (uint32_t ack = 2000; ack <= 10000; ack += 1000) {
		fake_pass(10 * MS);
		fake_ack(ack);
	}
	assert_int_equal(c->segq.packets_out, 0);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	fake_close();
}

static void a_shut_window_on_data_in_flight_keeps_the_connection_while_answered(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.retries2 = 3;
	fake_send(500);
	fake_wnd = 0;
	fake_ack(0);
	for (unsigned i = 0; i < 30; i++) {
		fake_pass(30 * SEC);
		fake_ack(0);
	}
	assert_int_equal(f.done, -1);
	fake_pass(500 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

/* Probes two minutes apart, each answered after a round trip, and a timer that goes off later. */
static void a_shut_window_whose_timer_is_late_keeps_the_connection_while_answered(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint32_t seen;

	(void)state;
	fake_send(500);
	fake_wnd = 0;
	fake_ack(0);
	for (unsigned i = 0; i < 20; i++) {
		struct wheel_timer *t;

		seen = f.n;
		f.ts.now = c->rtx.when_us + 30 * MS;
		while ((t = wheel_expire(&f.ts.wheel, f.ts.now)))
			fake_timer(t);
		assert_int_equal(f.done, -1);
		assert_true(f.n > seen);
		f.ts.now += 10 * MS;
		fake_ack(0);
	}
	assert_true(c->rtx.when_us - f.ts.now > 119 * SEC);
	/* Taken in behind the time at which the timer was due. */
	f.ts.now = c->rtx.when_us + 300 * SEC;
	fake_ack(0);
	fake_pass(0);
	assert_int_equal(f.done, -1);
	fake_close();
}

static void no_memory_for_a_split_does_not_lose_the_count(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->max_gso = 10000;
	tcp_sync_mss(c);
	fake_send(10000);
	fake_pass(10 * MS);
	f.alloc_fail = 1;
	fake_sack(0, 3000, 7000);
	assert_int_equal(c->segq.sacked_out, 0);
	fake_pass(tcp_rto(c) * 2);
	f.alloc_fail = 0;
	fake_pass(tcp_rto(c));
	fake_ack(10000);
	assert_int_equal(c->segq.packets_out, 0);
	assert_int_equal(tcp_in_flight(c), 0);
	fake_close();
}

/*
 * Found by fuzz_tcp: more was lost and "SACKed" than was out, so cwnd became 0 at the next ACK and
 * nothing more was sent.
 */
static void no_memory_for_a_split_without_sack_counts_no_segment_twice(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	c->max_gso = 10000;
	tcp_sync_mss(c);
	fake_send(7000);
	fake_pass(10 * MS);
	f.alloc_fail = 1;
	for (unsigned i = 0; i < 6; i++) {
		fake_ack(0);
		assert_true(tcp_left_out(c) <= c->segq.packets_out);
		assert_true(c->cc.cwnd > 0);
	}
	f.alloc_fail = 0;
	fake_pass(10 * MS);
	fake_ack(7000);
	assert_int_equal(tcp_in_flight(c), 0);
	fake_close();
}

static void a_refused_retransmission_is_tried_again_without_back_off(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	fake_send(1000);
	expect_run(0, 1);
	f.output_err = -ENOBUFS;
	fake_pass(tcp_rto(c));
	assert_int_equal(c->backoff, 0);
	f.output_err = 0;
	fake_pass(500 * MS);
	expect_run(0, 1);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_timeout_backs_off_to_two_minutes_and_gives_up_after_retries2),
		cmocka_unit_test(the_user_timeout_bounds_retransmissions),
		cmocka_unit_test(back_off_ends_with_the_next_sample),
		cmocka_unit_test(an_answer_to_old_and_new_is_no_sample),
		cmocka_unit_test(a_block_beyond_what_was_sent_is_not_believed),
		cmocka_unit_test(time_stamps_give_a_sample_of_a_retransmission),
		cmocka_unit_test(after_a_timeout_without_sack_all_is_sent_again_in_slow_start),
		cmocka_unit_test(newreno_repairs_one_hole_a_round_trip),
		cmocka_unit_test(limited_transmit_sends_new_data_for_the_first_duplicates),
		cmocka_unit_test(sack_repairs_all_holes_in_one_recovery),
		cmocka_unit_test(sack_splits_a_super_segment),
		cmocka_unit_test(a_block_that_grows_covers_the_segment_that_it_ended_in),
		cmocka_unit_test(blocks_of_long_ago_are_forgotten),
		cmocka_unit_test(blocks_that_cannot_be_are_ignored),
		cmocka_unit_test(prr_spreads_the_reduction_over_the_round_trip),
		cmocka_unit_test(prr_grows_back_after_heavy_losses),
		cmocka_unit_test(a_peer_that_reneges_gets_all_again),
		cmocka_unit_test(
			a_shut_window_on_data_in_flight_keeps_the_connection_while_answered),
		cmocka_unit_test(
			a_shut_window_whose_timer_is_late_keeps_the_connection_while_answered),
		cmocka_unit_test(no_memory_for_a_split_does_not_lose_the_count),
		cmocka_unit_test(no_memory_for_a_split_without_sack_counts_no_segment_twice),
		cmocka_unit_test(a_refused_retransmission_is_tried_again_without_back_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
