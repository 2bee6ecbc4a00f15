/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Recoveries that were needless, and how they are found out: F-RTO, D-SACK, time stamps. Every case
 * begins at byte 0, mss 1000.
 */
#include "tcp_fake.h"

static void frto_finds_a_timeout_spurious(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint32_t cwnd;

	(void)state;
	c->cc.ssthresh = 50;
	c->tlp_out = true; /* no probe in this one */
	fake_send(30000);
	expect_run(0, 10);
	c->tlp_out = false;
	cwnd = c->cc.cwnd;
	tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
	fake_pass(tcp_rto(c));
	expect_run(0, 1);
	assert_int_equal(c->ca_state, TCPCA_LOSS);
	/* All were only late. The first acknowledgement brings new data out, no retransmission. */
	fake_ack(1000);
	expect_run(10000, 2);
	expect_quiet();
	fake_ack(2000);
	assert_int_equal(f.ts.n.spurious_rto, 1);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(c->segq.lost_out, 0);
	assert_true(c->cc.cwnd >= cwnd);
	assert_true(c->cc.ssthresh >= 37);
	fake_close();
}

static void frto_finds_a_timeout_genuine(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->tlp_out = true;
	fake_send(30000);
	expect_run(0, 10);
	c->tlp_out = false;
	tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
	fake_pass(tcp_rto(c));
	expect_run(0, 1);
	fake_pass(10 * MS);
	fake_ack(1000);
	expect_run(10000, 2);
	fake_pass(10 * MS);
	/* The new data arrive, nothing else had. */
	fake_sack(1000, 10000, 11000);
	expect_run(1000, 1);
	assert_int_equal(f.ts.n.spurious_rto, 0);
	assert_int_equal(c->ca_state, TCPCA_LOSS);
	/* That is decided: an original that comes now changes nothing. */
	fake_sack2(1000, 5000, 6000, 10000, 11000);
	assert_int_equal(f.ts.n.spurious_rto, 0);
	assert_int_equal(c->ca_state, TCPCA_LOSS);
	fake_close();
}

static void frto_without_new_data_retransmits(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->sack_ok = false;
	fake_send(5000);
	expect_run(0, 5);
	fake_pass(tcp_rto(c));
	expect_run(0, 1);
	fake_pass(10 * MS);
	fake_ack(1000);
	expect_run(1000, 2);
	fake_close();
}

static void a_dsack_for_each_retransmission_undoes_the_reduction(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->cc.ssthresh = 40;
	fake_send(10000);
	expect_run(0, 10);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 4000);
	expect_run(0, 1);
	assert_int_equal(c->cc.ssthresh, 5);
	/* The original was late. */
	fake_ack(4000);
	fake_pass(5 * MS);
	fake_sack(4000, 0, 1000);
	assert_int_equal(c->can_undo, false);
	assert_int_equal(f.ts.n.undo, 1);
	assert_true(c->cc.cwnd >= 10);
	assert_true(c->cc.ssthresh >= 30);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	fake_close();
}

static void a_dsack_of_what_was_sent_once_undoes_nothing(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(10000);
	fake_pass(10 * MS);
	fake_ack(4000);
	for (unsigned i = 0; i < 5; i++)
		fake_sack(4000, 0, 1000);
	assert_int_equal(f.ts.n.undo, 0);
	assert_int_equal(c->ca_state, TCPCA_OPEN);
	assert_int_equal(c->rack_reo_steps, 1);
	fake_close();
}

static void the_echo_of_the_original_undoes_the_reduction(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint32_t early;

	(void)state;
	c->ts_ok = true;
	c->pmtu = 1052;
	tcp_sync_mss(c);
	c->cc.ssthresh = 40;
	early = tcp_ts_now(c);
	fake_send(10000);
	expect_run(0, 10);
	fake_pass(10 * MS);
	fake_sack(0, 1000, 4000);
	expect_run(0, 1);
	fake_pass(3 * MS);
	fake_ack_full(4000, NULL, 0, fake_wnd, early);
	assert_int_equal(f.ts.n.undo, 1);
	assert_true(c->cc.cwnd >= 10);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frto_finds_a_timeout_spurious),
		cmocka_unit_test(frto_finds_a_timeout_genuine),
		cmocka_unit_test(frto_without_new_data_retransmits),
		cmocka_unit_test(a_dsack_for_each_retransmission_undoes_the_reduction),
		cmocka_unit_test(a_dsack_of_what_was_sent_once_undoes_nothing),
		cmocka_unit_test(the_echo_of_the_original_undoes_the_reduction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
