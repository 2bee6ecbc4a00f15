/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RACK-TLP (RFC 8985): loss by time, reordering, lost retransmissions, the probe of the tail. Every
 * case begins at byte 0, mss 1000.
 */
#include "tcp_fake.h"

/*
 * RFC 8985, 9.1's small reordering: two duplicates are no loss when the hole fills within a quarter
 * of the round trip.
 */
static void reordering_within_the_window_is_no_loss(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);

	(void)state;
	fake_send(3000);
	expect_run(0, 3);
	fake_pass(40 * MS);
	fake_sack(0, 1000, 3000);
	assert_int_equal(c->pending, TCP_PENDING_REO);
	fake_pass(4 * MS);
	expect_quiet();
	fake_ack(3000);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(f.ts.n.retrans_segs, 0);
	fake_close();
}

static void what_does_not_come_within_the_window_is_lost(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);
	uint64_t t0;

	(void)state;
	fake_send(3000);
	expect_run(0, 3);
	fake_pass(40 * MS);
	fake_sack(0, 1000, 3000);
	t0 = f.ts.now;
	fake_pass(40 * MS);
	/* A quarter of the least round-trip time later. */
	assert_in_range(expect_sent(0, 1000)->when_us - t0, 9 * MS, 11 * MS);
	assert_int_equal(c->ca_state, TCPCA_RECOVERY);
	assert_int_equal(f.ts.n.timeouts, 0);
	fake_close();
}

static void three_sacked_segments_are_loss_at_once(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);

	(void)state;
	fake_send(5000);
	expect_run(0, 5);
	fake_pass(40 * MS);
	fake_sack(0, 1000, 4000);
	expect_run(0, 1);
	assert_int_equal(c->ca_state, TCPCA_RECOVERY);
	fake_close();
}

static void seen_reordering_makes_three_sacked_segments_wait(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);

	(void)state;
	fake_send(5000);
	expect_run(0, 5);
	fake_pass(40 * MS);
	/* 2000 comes after 3000: they are reordered. */
	fake_sack(1000, 3000, 4000);
	fake_sack(1000, 2000, 4000);
	assert_true(c->rack_reord);
	fake_sack(1000, 2000, 5000);
	expect_quiet();
	fake_pass(4 * MS);
	fake_ack(5000);
	expect_quiet();
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	fake_close();
}

/*
 * Seen in the simulator: the first SACK came with an advance, and what that acknowledged counted as
 * late.
 */
static void an_advance_with_the_first_sack_is_no_reordering(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);

	(void)state;
	fake_send(10000);
	fake_pass(40 * MS);
	fake_sack(1000, 2000, 3000);
	assert_false(c->rack_reord);
	assert_int_equal(c->reord_seen, 0);
	fake_close();
}

static void a_lost_retransmission_is_found_by_time(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);

	(void)state;
	c->cc.cwnd = 10;
	fake_send(40000);
	expect_run(0, 10);
	fake_pass(20 * MS);
	fake_sack(0, 1000, 10000);
	expect_run(0, 1);
	f.seen = f.n;
	fake_pass(20 * MS);
	/* New data sent after the retransmission arrive, it does not. */
	assert_true(c->snd_nxt > 10000);
	fake_sack(0, 1000, c->snd_nxt);
	fake_pass(10 * MS);
	assert_int_equal(f.ts.n.lost_retrans, 1);
	expect_run(0, 1);
	assert_int_equal(f.ts.n.timeouts, 0);
	fake_close();
}

/* RFC 8985, 9.2: the tail is lost; the probe's SACK reveals the rest. */
static void a_lost_tail_is_repaired_after_a_probe(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);
	uint64_t t0 = f.ts.now;

	(void)state;
	fake_send(5000);
	expect_run(0, 5);
	fake_pass(20 * MS);
	fake_ack(2000);
	fake_pass(45 * MS);
	/* Two round trips after the last acknowledgement; the last segment. */
	t0 = expect_sent(4000, 1000)->when_us - t0;
	assert_in_range(t0, 60 * MS, 64 * MS);
	expect_quiet();
	assert_int_equal(f.ts.n.tlp_probes, 1);
	fake_pass(20 * MS);
	fake_sack(2000, 4000, 5000);
	expect_run(2000, 1);
	fake_pass(20 * MS);
	fake_sack(3000, 4000, 5000);
	fake_pass(20 * MS);
	fake_ack(5000);
	assert_int_equal(f.ts.n.timeouts, 0);
	assert_int_equal(c->segq.packets_out, 0);
	assert_true(c->cc.cwnd <= 6);
	fake_close();
}

static void a_probe_that_repairs_the_loss_reduces_the_window(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);

	(void)state;
	fake_send(5000);
	expect_run(0, 5);
	fake_pass(20 * MS);
	fake_ack(4000);
	/*
	 * One in flight: the peer's delayed ACK is waited for, but not longer than the timeout
	 * would.
	 */
	fake_pass(190 * MS);
	expect_quiet();
	fake_pass(15 * MS);
	expect_run(4000, 1);
	fake_pass(20 * MS);
	fake_ack(5000);
	/* Neither a D-SACK nor a duplicate: not until something later is acknowledged. */
	fake_send(1000);
	fake_pass(20 * MS);
	fake_ack(6000);
	assert_int_equal(f.ts.n.tlp_recovery, 1);
	assert_int_equal(c->cc.cwnd, 5);
	fake_close();
}

static void a_needless_probe_reduces_nothing(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);

	(void)state;
	fake_send(2000);
	expect_run(0, 2);
	fake_pass(50 * MS);
	expect_run(1000, 1);
	fake_pass(10 * MS);
	fake_ack(2000);
	/* With news of the window it is no mere duplicate: the D-SACK alone tells. */
	fake_wnd++;
	fake_sack(2000, 1000, 2000);
	assert_false(c->tlp_out);
	fake_send(1000);
	fake_pass(20 * MS);
	fake_ack(3000);
	assert_int_equal(f.ts.n.tlp_recovery, 0);
	assert_int_equal(c->cc.cwnd, 10);
	fake_close();
}

static void a_probe_is_new_data_when_there_are_any(void **state)
{
	(void)state;
	fake_open(20 * MS);
	fake_send(20000);
	expect_run(0, 10);
	fake_pass(50 * MS);
	expect_run(10000, 1);
	expect_quiet();
	fake_close();
}

static void a_probe_of_a_super_segment_is_its_last_segment(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);

	(void)state;
	c->max_gso = 10000;
	tcp_sync_mss(c);
	fake_send(4500);
	expect_sent(0, 4500);
	fake_pass(50 * MS);
	expect_sent(4000, 500);
	assert_int_equal(c->segq.packets_out, 5);
	fake_close();
}

static void only_one_probe_then_the_timeout(void **state)
{
	struct tcp_conn *c = fake_open(20 * MS);
	uint64_t t0 = f.ts.now, probe;

	(void)state;
	fake_send(2000);
	expect_run(0, 2);
	fake_pass(500 * MS);
	probe = expect_sent(1000, 1000)->when_us;
	assert_int_equal(probe - t0, 42 * MS);
	assert_int_equal(expect_sent(0, 1000)->when_us, probe + c->rtt.rto_us);
	assert_int_equal(f.ts.n.timeouts, 1);
	fake_close();
}

/* RFC 8985, 6.2, step 4. */
static void dsacks_widen_the_window_and_sixteen_recoveries_narrow_it(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);
	uint32_t at = 0;

	(void)state;
	fake_send(5000);
	fake_pass(40 * MS);
	fake_sack(0, 1000, 4000);
	/* The retransmission was needless. */
	fake_ack(5000);
	fake_pass(5 * MS);
	fake_sack(5000, 0, 1000);
	assert_int_equal(c->rack_reo_steps, 2);
	at = 5000;
	for (unsigned i = 0; i < 17; i++) {
		c->cc.cwnd = 10;
		fake_send(5000);
		fake_pass(40 * MS);
		fake_sack(at, at + 1000, at + 5000);
		fake_pass(40 * MS);
		at += 5000;
		fake_ack(at);
		assert_int_equal(c->ca_state, TCPCA_OPEN);
		assert_true(i >= 14 || c->rack_reo_steps == 2);
	}
	assert_int_equal(c->rack_persist, 0);
	fake_send(2000);
	fake_pass(40 * MS);
	fake_sack(at, at + 1000, at + 2000);
	assert_int_equal(c->rack_reo_steps, 1);
	fake_close();
}

/* A segment comes late, behind four others, and its retransmission was needless. */
static void reordered_once(struct tcp_conn *c)
{
	uint32_t at = c->snd_una;

	fake_send(5000);
	fake_pass(40 * MS);
	fake_sack(at, at + 1000, at + 5000);
	fake_pass(40 * MS);
	fake_ack(at + 5000);
	fake_pass(5 * MS);
	fake_sack(at + 5000, at, at + 1000);
}

static void a_dsack_widens_the_window_3_gib_after_another(void **state)
{
	struct tcp_conn *c = fake_open(40 * MS);

	(void)state;
	reordered_once(c);
	assert_int_equal(c->rack_reo_steps, 2);
	fake_went(3u << 30);
	reordered_once(c);
	assert_int_equal(c->rack_reo_steps, 3);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reordering_within_the_window_is_no_loss),
		cmocka_unit_test(what_does_not_come_within_the_window_is_lost),
		cmocka_unit_test(three_sacked_segments_are_loss_at_once),
		cmocka_unit_test(seen_reordering_makes_three_sacked_segments_wait),
		cmocka_unit_test(an_advance_with_the_first_sack_is_no_reordering),
		cmocka_unit_test(a_lost_retransmission_is_found_by_time),
		cmocka_unit_test(a_lost_tail_is_repaired_after_a_probe),
		cmocka_unit_test(a_probe_that_repairs_the_loss_reduces_the_window),
		cmocka_unit_test(a_needless_probe_reduces_nothing),
		cmocka_unit_test(a_probe_is_new_data_when_there_are_any),
		cmocka_unit_test(a_probe_of_a_super_segment_is_its_last_segment),
		cmocka_unit_test(only_one_probe_then_the_timeout),
		cmocka_unit_test(dsacks_widen_the_window_and_sixteen_recoveries_narrow_it),
		cmocka_unit_test(a_dsack_widens_the_window_3_gib_after_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
