/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the TCP sender lets go and when: handshake, slow start, Nagle, cork, PSH, FIN, pacing,
 * refusals.
 */
#include "tcp_fake.h"

static void a_syn_is_sent_again_as_linux_does_and_given_up(void **state)
{
	static const uint64_t at[] = {1, 2, 3, 4, 5, 7, 11, 19, 35, 67};
	struct tcp_conn *c = fake_new();
	uint64_t t0 = f.ts.now;

	(void)state;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(UINT32_MAX, 0)->flags, TCPHDR_SYN);
	fake_pass(130 * SEC);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(expect_sent(UINT32_MAX, 0)->when_us - t0, at[i] * SEC);
	expect_quiet();
	assert_int_equal(f.done, -1);
	fake_pass(2 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	expect_quiet();
	fake_close();
}

static void the_handshake_is_an_rtt_sample(void **state)
{
	struct tcp_conn *c = fake_open(30 * MS);

	(void)state;
	assert_int_equal(c->rtt.srtt_us >> 3, 30 * MS);
	assert_int_equal(c->rtt.rto_us, 30 * MS + 200 * MS);
	assert_int_equal(c->cc.cwnd, 10);
	assert_int_equal(c->pending, TCP_PENDING_NONE);
	fake_close();
}

static void a_syn_lost_twice_leaves_one_segment_of_window(void **state)
{
	struct tcp_conn *c = fake_new();

	(void)state;
	tcp_mark_dirty(c);
	fake_flush();
	fake_pass(4 * SEC);
	fake_ack(0);
	assert_int_equal(c->cc.cwnd, 1);
	fake_close();
}

static void a_small_write_is_one_segment_with_push(void **state)
{
	(void)state;
	fake_open(10 * MS);
	fake_send(5);
	assert_int_equal(expect_sent(0, 5)->flags, TCPHDR_ACK | TCPHDR_PSH);
	expect_quiet();
	fake_close();
}

static void the_initial_window_is_ten_segments_and_slow_start_doubles(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(100000);
	expect_run(0, 10);
	expect_quiet();
	fake_pass(10 * MS);
	fake_ack(2000);
	expect_run(10000, 4);
	fake_ack(10000);
	expect_run(14000, 16);
	expect_quiet();
	assert_int_equal(c->cc.cwnd, 20);
	fake_close();
}

static void push_is_set_at_the_end_and_every_half_window(void **state)
{
	(void)state;
	fake_open(10 * MS);
	f.c->max_wnd = 8000;
	fake_send(10000);
	for (unsigned i = 0; i < 10; i++) {
		/* After 4000 bytes without, and at the end. */
		uint8_t want = TCPHDR_ACK | (i == 4 || i == 9 ? TCPHDR_PSH : 0);

		assert_int_equal(expect_sent(i * 1000, 1000)->flags, want);
	}
	fake_close();
}

static void a_super_segment_is_whole_segments_but_for_the_last(void **state)
{
	struct tcp_conn *c;

	(void)state;
	c = fake_open(10 * MS);
	c->max_gso = 4999;
	tcp_sync_mss(c);
	assert_int_equal(c->gso_len, 4000);
	fake_send(9500);
	assert_int_equal(expect_sent(0, 4000)->mss, 1000);
	expect_sent(4000, 4000);
	expect_sent(8000, 1500);
	expect_quiet();
	assert_int_equal(c->segq.packets_out, 10);
	fake_close();
}

static void cwnd_cuts_a_super_segment(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->max_gso = 64000;
	tcp_sync_mss(c);
	fake_send(50000);
	expect_sent(0, 10000);
	expect_quiet();
	fake_pass(10 * MS);
	/* A part of it is acknowledged: the counts follow. */
	fake_ack(3000);
	assert_int_equal(c->segq.packets_out, 13);
	expect_sent(10000, 6000);
	assert_int_equal(c->cc.cwnd, 13);
	fake_close();
}

static void nagle_holds_a_small_segment_behind_another(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.nodelay = false;
	fake_send(100);
	expect_sent(0, 100);
	fake_send(100);
	expect_quiet();
	fake_send(1100);
	/* Full ones go. */
	expect_sent(100, 1000);
	expect_quiet();
	fake_pass(10 * MS);
	fake_ack(1100);
	expect_sent(1100, 200);
	fake_close();
}

static void minshall_lets_a_small_segment_follow_full_ones(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.nodelay = false;
	fake_send(2100);
	expect_sent(0, 1000);
	expect_sent(1000, 1000);
	expect_sent(2000, 100);
	expect_quiet();
	fake_close();
}

/* The last small segment lies 3 GiB back: by number it is 1 GiB ahead. */
static void a_small_segment_of_long_ago_holds_none(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.nodelay = false;
	fake_send(100);
	expect_sent(0, 100);
	fake_pass(10 * MS);
	fake_ack(100);
	fake_went(3u << 30);
	fake_send(1000);
	expect_sent(100 + (3u << 30), 1000);
	fake_send(100);
	expect_sent(1100 + (3u << 30), 100);
	fake_close();
}

/* Of the stream's first 4 GiB the last byte has the number that the SYN had. */
static void the_number_of_the_syn_comes_again(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = c->cc.ssthresh = 50;
	fake_went(c->iss - 3000);
	fake_send(5000);
	expect_run(c->iss - 3000, 5);
	fake_pass(10 * MS);
	fake_ack(c->iss);
	assert_int_equal(c->snd_una, c->iss);
	fake_ack(c->iss + 1000);
	assert_int_equal(c->cc.cwnd, 50);
	fake_close();
}

static void what_is_sent_up_to_the_number_of_the_syn_is_sent(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_went(c->iss - 3000);
	fake_send(3000);
	expect_run(c->iss - 3000, 3);
	assert_int_equal(c->snd_nxt, c->iss);
	assert_int_equal(tcp_outq(c), 3000);
	assert_int_equal(tcp_outq_unsent(c), 0);
	fake_close();
}

static void nagle_holds_the_rest_of_a_super_segment(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.nodelay = false;
	c->max_gso = 8000;
	tcp_sync_mss(c);
	fake_send(10);
	expect_sent(0, 10);
	fake_send(2500);
	expect_sent(10, 2000);
	expect_quiet();
	fake_close();
}

static void cork_waits_for_a_full_segment_or_200_ms(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t t0 = f.ts.now;

	(void)state;
	c->o.cork = true;
	fake_send(600);
	expect_quiet();
	fake_send(600);
	expect_sent(0, 1000);
	fake_pass(10 * MS);
	fake_ack(1000);
	expect_quiet();
	fake_pass(SEC);
	t0 = expect_sent(1000, 200)->when_us - t0;
	assert_true(t0 >= 200 * MS && t0 <= 250 * MS);
	fake_close();
}

static void uncorking_sends(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct tcp_opts o;

	(void)state;
	c->o.cork = true;
	fake_send(600);
	o = c->o;
	o.cork = false;
	tcp_set_opts(c, &o, f.ts.now);
	fake_flush();
	expect_sent(0, 600);
	fake_close();
}

static void msg_more_holds_until_a_send_without_it(void **state)
{
	(void)state;
	fake_open(10 * MS);
	assert_int_equal(fake_send_flags(10, MSG_MORE), 10);
	expect_quiet();
	fake_send(10);
	expect_sent(0, 20);
	fake_close();
}

static void a_fin_goes_with_the_last_data(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.nodelay = false;
	fake_send(10);
	expect_sent(0, 10);
	fake_send(10);
	expect_quiet();
	c->shut_wr = c->fin_queued = true;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(10, 10)->flags, TCPHDR_ACK | TCPHDR_PSH | TCPHDR_FIN);
	assert_true(c->fin_sent);
	fake_pass(10 * MS);
	fake_ack(20);
	assert_false(c->fin_acked);
	fake_ack(21);
	assert_true(c->fin_acked);
	assert_int_equal(c->segq.packets_out, 0);
	assert_int_equal(fake_send_flags(1, 0), -EPIPE);
	fake_close();
}

static void a_fin_alone_needs_no_cwnd_but_a_window(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(10000);
	expect_run(0, 10);
	c->fin_queued = true;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(10000, 0)->flags, TCPHDR_ACK | TCPHDR_FIN);
	fake_close();

	c = fake_open(10 * MS);
	c->snd_wnd = 1000;
	fake_send(1000);
	c->fin_queued = true;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(0, 1000)->flags & TCPHDR_FIN, 0);
	expect_quiet();
	fake_close();
}

static void a_full_queue_loses_nothing(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	f.output_err = -ENOBUFS;
	fake_send(3000);
	expect_quiet();
	assert_int_equal(c->snd_nxt, 0);
	assert_int_equal(c->segq.packets_out, 0);
	f.output_err = 0;
	fake_pass(2 * MS);
	expect_run(0, 3);
	fake_close();
}

static void without_memory_nothing_is_sent_until_there_is_some(void **state)
{
	ssize_t more;

	(void)state;
	fake_open(10 * MS);
	/* The bytes are taken, then there is no memory for the record. */
	f.output_err = -ENOBUFS;
	fake_send(3000);
	f.output_err = 0;
	f.alloc_fail = 1;
	fake_pass(10 * MS);
	expect_quiet();
	/* What room there is already is used. */
	more = fake_send_flags(100000, 0);
	assert_true(more > 0 && more < 100000);
	assert_int_equal(fake_send_flags(100000, 0), -EAGAIN);
	f.alloc_fail = 0;
	fake_pass(2 * MS);
	expect_run(0, (unsigned)(3000 + more) / 1000);
	expect_sent((uint32_t)(3000 + more) / 1000 * 1000, (uint32_t)(3000 + more) % 1000);
	fake_close();
}

static void a_refused_syn_is_sent_a_moment_later(void **state)
{
	struct tcp_conn *c = fake_new();

	(void)state;
	f.output_err = -ENOBUFS;
	tcp_mark_dirty(c);
	fake_flush();
	expect_quiet();
	f.output_err = 0;
	fake_pass(2 * MS);
	assert_int_equal(expect_sent(UINT32_MAX, 0)->flags, TCPHDR_SYN);
	fake_close();
}

/* The interface takes nothing, for ever: no flight, so no retransmission timer. */
static void data_refused_for_ever_reaches_the_user_timeout(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.user_timeout_ms = 3000;
	f.output_err = -ENOBUFS;
	fake_send(1000);
	fake_pass(2900 * MS);
	assert_int_equal(f.done, -1);
	fake_pass(1200 * MS);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

static void data_refused_for_a_while_is_sent(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.user_timeout_ms = 3000;
	f.output_err = -ENOBUFS;
	fake_send(1000);
	fake_pass(2500 * MS);
	f.output_err = 0;
	fake_pass(2 * MS);
	expect_sent(0, 1000);
	fake_ack(1000);
	fake_pass(20 * SEC);
	assert_int_equal(f.done, -1);
	assert_int_equal(c->pending, TCP_PENDING_NONE);
	fake_close();
}

static void a_syn_refused_for_ever_reaches_the_user_timeout(void **state)
{
	struct tcp_conn *c = fake_new();

	(void)state;
	c->o.user_timeout_ms = 3000;
	f.output_err = -ENOBUFS;
	tcp_mark_dirty(c);
	fake_flush();
	fake_pass(2900 * MS);
	assert_int_equal(f.done, -1);
	fake_pass(1200 * MS);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

/* As many times as one that leaves and is not answered. */
static void a_syn_refused_for_ever_is_given_up(void **state)
{
	struct tcp_conn *c = fake_new();

	(void)state;
	c->o.syn_retries = 1;
	f.output_err = -ENOBUFS;
	tcp_mark_dirty(c);
	fake_flush();
	fake_pass(60 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

static struct tcp_tx dummy_tx;
static uint32_t dummy_seq;
static int dummy_err;

static int dummy_output(void *ctx, const struct tcp_tx *tx)
{
	(void)ctx;
	dummy_tx = *tx;
	dummy_seq = (uint32_t)tx->hdr[4] << 24 | (uint32_t)tx->hdr[5] << 16 |
		    (uint32_t)tx->hdr[6] << 8 | tx->hdr[7];
	return dummy_err;
}

static void a_dummy_send_is_the_next_segment_and_changes_nothing(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS), before;
	struct iovec iov[2] = {{"hello", 5}, {" world", 6}}, large = {calloc(1, 1001), 1001};

	(void)state;
	f.ts.env.output_dummy = dummy_output;
	fake_send(100);
	expect_sent(0, 100);
	before = *c;
	assert_int_equal(tcp_send_dummy(c, iov, 2, 0), 11);
	assert_int_equal(dummy_seq, 100);
	assert_int_equal(dummy_tx.len, 11);
	assert_int_equal(dummy_tx.iovcnt, 2);
	dummy_err = -ENOBUFS;
	assert_int_equal(tcp_send_dummy(c, iov, 2, 0), -EAGAIN);
	dummy_err = 0;
	/* What would not leave at once, in one piece, is refused. */
	dummy_tx.len = 0;
	assert_int_equal(tcp_send_dummy(c, iov, 0, 0), -EAGAIN);
	assert_int_equal(tcp_send_dummy(c, iov, 1, MSG_MORE), -EAGAIN);
	assert_int_equal(tcp_send_dummy(c, &large, 1, 0), -EAGAIN);
	assert_memory_equal(&before, c, sizeof(before));
	c->cc.cwnd = 1;
	assert_int_equal(tcp_send_dummy(c, iov, 1, 0), -EAGAIN);
	c->cc.cwnd = before.cc.cwnd;
	c->snd_wnd = 104;
	assert_int_equal(tcp_send_dummy(c, iov, 1, 0), -EAGAIN);
	c->snd_wnd = 105;
	assert_int_equal(tcp_send_dummy(c, iov, 1, 0), 5);
	c->snd_wnd = before.snd_wnd;
	dummy_tx.len = 0;
	c->o.cork = true;
	fake_send(7);
	assert_int_equal(tcp_send_dummy(c, iov, 1, 0), -EAGAIN);
	assert_int_equal(dummy_tx.len, 0);
	expect_quiet();
	free(large.iov_base);
	fake_close();
}

static void pacing_spreads_segments(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t t0 = f.ts.now;

	(void)state;
	c->o.pacing_rate = 100000; /* 10 ms a segment */
	fake_send(10000);
	expect_sent(0, 1000);
	expect_quiet();
	fake_pass(95 * MS);
	for (unsigned i = 1; i < 10; i++)
		assert_int_equal(expect_sent(i * 1000, 1000)->when_us - t0, i * 10 * MS);
	expect_quiet();
	fake_close();
}

/* The clock jumps, as it does for a process that waited for a processor; only then timers run. */
static void awake_late(uint64_t us)
{
	f.ts.now += us;
	fake_pass(0);
}

static void pacing_that_woke_late_catches_up(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 100;
	c->o.pacing_rate = 1000000; /* 1 ms a segment */
	fake_send(40000);
	expect_run(0, 1);
	expect_quiet();
	awake_late(6 * MS);
	/* Due after 1 ms: six by now. */
	expect_run(1000, 6);
	expect_quiet();
	awake_late(52 * MS);
	/* No more than 5 ms are made good. */
	expect_run(7000, 6);
	expect_quiet();
	fake_close();
}

static void what_had_nothing_to_send_is_not_caught_up(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 100;
	c->o.pacing_rate = 1000000;
	fake_send(4000);
	fake_pass(20 * MS);
	expect_run(0, 4);
	fake_send(10000);
	expect_run(4000, 1);
	expect_quiet();
	fake_close();
}

static void idle_restart_halves_the_window_for_each_rto(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.cwnd = 100;
	fake_send(100);
	fake_pass(10 * MS);
	fake_ack(100);
	fake_pass(3 * (uint64_t)c->rtt.rto_us);
	fake_send(100);
	/* Three and a bit: 50, 25, 12. */
	assert_int_equal(c->cc.cwnd, 12);
	fake_pass(10 * MS);
	fake_ack(200);
	fake_pass(100 * SEC);
	fake_send(100);
	assert_int_equal(c->cc.cwnd, 10);
	fake_close();
}

/* Linux's tcp_slow_start_after_idle is 0. */
static void a_pause_costs_nothing_where_the_host_says_so(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	f.ts.cfg.keep_cwnd = true;
	c->cc.cwnd = 100;
	for (unsigned i = 0; i < 5; i++) {
		fake_send(100);
		fake_pass(10 * MS);
		fake_ack(c->snd_nxt);
		fake_pass(30 * (uint64_t)c->rtt.rto_us);
	}
	assert_int_equal(c->cc.cwnd, 100);
	fake_close();
}

static void a_window_that_is_not_used_does_not_grow(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		fake_send(1000);
		fake_pass(10 * MS);
		fake_ack(c->snd_nxt);
	}
	assert_int_equal(c->cc.cwnd, 10);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_syn_is_sent_again_as_linux_does_and_given_up),
		cmocka_unit_test(the_handshake_is_an_rtt_sample),
		cmocka_unit_test(a_syn_lost_twice_leaves_one_segment_of_window),
		cmocka_unit_test(a_small_write_is_one_segment_with_push),
		cmocka_unit_test(the_initial_window_is_ten_segments_and_slow_start_doubles),
		cmocka_unit_test(push_is_set_at_the_end_and_every_half_window),
		cmocka_unit_test(a_super_segment_is_whole_segments_but_for_the_last),
		cmocka_unit_test(cwnd_cuts_a_super_segment),
		cmocka_unit_test(nagle_holds_a_small_segment_behind_another),
		cmocka_unit_test(minshall_lets_a_small_segment_follow_full_ones),
		cmocka_unit_test(a_small_segment_of_long_ago_holds_none),
		cmocka_unit_test(the_number_of_the_syn_comes_again),
		cmocka_unit_test(what_is_sent_up_to_the_number_of_the_syn_is_sent),
		cmocka_unit_test(nagle_holds_the_rest_of_a_super_segment),
		cmocka_unit_test(cork_waits_for_a_full_segment_or_200_ms),
		cmocka_unit_test(uncorking_sends),
		cmocka_unit_test(msg_more_holds_until_a_send_without_it),
		cmocka_unit_test(a_fin_goes_with_the_last_data),
		cmocka_unit_test(a_fin_alone_needs_no_cwnd_but_a_window),
		cmocka_unit_test(a_full_queue_loses_nothing),
		cmocka_unit_test(without_memory_nothing_is_sent_until_there_is_some),
		cmocka_unit_test(a_refused_syn_is_sent_a_moment_later),
		cmocka_unit_test(data_refused_for_ever_reaches_the_user_timeout),
		cmocka_unit_test(data_refused_for_a_while_is_sent),
		cmocka_unit_test(a_syn_refused_for_ever_reaches_the_user_timeout),
		cmocka_unit_test(a_syn_refused_for_ever_is_given_up),
		cmocka_unit_test(a_dummy_send_is_the_next_segment_and_changes_nothing),
		cmocka_unit_test(pacing_spreads_segments),
		cmocka_unit_test(pacing_that_woke_late_catches_up),
		cmocka_unit_test(what_had_nothing_to_send_is_not_caught_up),
		cmocka_unit_test(idle_restart_halves_the_window_for_each_rto),
		cmocka_unit_test(a_pause_costs_nothing_where_the_host_says_so),
		cmocka_unit_test(a_window_that_is_not_used_does_not_grow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
