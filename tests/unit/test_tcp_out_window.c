/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What bounds the sender from outside: the peer's window, closed or small, and the send buffer. */
#include "tcp_fake.h"

static void a_window_smaller_than_a_segment_is_not_used_in_pieces(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_wnd = 2500;
	fake_ack(0);
	c->snd_wnd = 2500;
	fake_send(5000);
	expect_run(0, 2);
	expect_quiet();
	fake_pass(10 * MS);
	fake_wnd = 500;
	fake_ack(2000);
	expect_quiet();
	/* The probe timer overrides. */
	fake_pass(500 * MS);
	expect_sent(2000, 500);
	fake_close();
}

static void a_peer_that_never_has_more_than_half_a_segment_gets_that(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->max_wnd = c->snd_wnd = 600;
	fake_send(5000);
	expect_sent(0, 600);
	expect_quiet();
	fake_close();
}

/* A segment fills half of the largest window at most, and of the largest until now. */
static void a_small_first_window_does_not_keep_segments_small(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->max_wnd = c->snd_wnd = 800;
	tcp_sync_mss(c);
	assert_int_equal(c->mss, 400);
	fake_send(400);
	expect_sent(0, 400);
	fake_pass(10 * MS);
	fake_wnd = 1400;
	fake_ack(400);
	assert_int_equal(c->mss, 700);
	fake_wnd = 60000;
	fake_send(700);
	expect_sent(400, 700);
	fake_pass(10 * MS);
	fake_ack(1100);
	fake_send(2000);
	expect_sent(1100, 1000);
	expect_sent(2100, 1000);
	fake_close();
}

/* 1,000 bytes are sent; their acknowledgement takes the window away. */
static void close_window(void)
{
	fake_send(1000);
	expect_sent(0, 1000);
	fake_pass(10 * MS);
	fake_wnd = 0;
	fake_ack(1000);
}

static void a_closed_window_is_probed_with_back_off(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t last = f.ts.now;

	(void)state;
	close_window();
	last = f.ts.now;
	fake_send(1000);
	expect_quiet();
	for (unsigned i = 0; i < 5; i++) {
		struct sent *s;

		/* Never longer than two minutes; the early ones come several times. */
		fake_pass(121 * SEC);
		s = expect_sent(999, 0);
		assert_true(s->when_us - last >= c->rtt.rto_us);
		f.n = f.seen;
		fake_ack(1000);
		last = f.ts.now;
	}
	assert_int_equal(f.done, -1);
	fake_wnd = 60000;
	fake_ack(1000);
	expect_sent(1000, 1000);
	assert_int_equal(c->backoff, 0);
	fake_close();
}

static void probes_back_off_exponentially(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t last, rto;

	(void)state;
	close_window();
	last = f.ts.now;
	rto = c->rtt.rto_us;
	fake_send(1000);
	fake_pass(200 * SEC);
	for (unsigned i = 0; i < 8; i++) {
		struct sent *s = expect_sent(999, 0);

		assert_int_equal(s->when_us - last, rto << i);
		last = s->when_us;
	}
	fake_close();
}

static void a_window_closed_on_data_in_flight_is_asked_after(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint32_t rto;

	(void)state;
	fake_send(1000);
	fake_ack(1000);
	fake_send(1000);
	expect_sent(0, 1000);
	expect_sent(1000, 1000);
	fake_wnd = 0;
	fake_ack(1000);
	rto = c->rtt.rto_us;
	/* A tail loss probe, then the timeouts: the data itself asks. */
	fake_pass(rto);
	expect_sent(1000, 1000);
	fake_pass(2 * rto);
	expect_sent(1000, 1000);
	expect_quiet();
	/*
	 * The path may be too narrow for it: a segment without data brings an answer all the same.
	 */
	fake_pass(2 * rto);
	expect_sent(1000, 1000);
	expect_sent(999, 0);
	expect_quiet();
	fake_close();
}

static void unanswered_probes_end_the_connection(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.retries2 = 3;
	close_window();
	fake_send(1000);
	fake_pass(60 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	assert_int_equal(f.ts.n.window_probes, 3);
	fake_close();
}

static void the_user_timeout_ends_a_connection_that_probes(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.user_timeout_ms = 5000;
	close_window();
	fake_send(1000);
	fake_pass(4 * SEC);
	assert_int_equal(f.done, -1);
	fake_pass(2 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

static void the_send_buffer_is_bounded_and_tells_when_a_third_is_free(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	ssize_t n, total = 0;

	(void)state;
	c->o.sndbuf = c->o.sndbuf_max = 30000;
	while ((n = fake_send_flags(1000, 0)) > 0)
		total += n;
	assert_int_equal(n, -EAGAIN);
	assert_true(total > 15000 && total <= 30000);
	assert_true(c->sndq.charge <= 2 * 30000);
	assert_false(tcp_writable(c));
	fake_pass(10 * MS);
	f.events = 0;
	fake_ack(1000);
	assert_false(f.events & TCP_EV_OUT);
	fake_pass(10 * MS);
	while (c->snd_una != c->write_seq) {
		fake_ack(c->snd_nxt);
		fake_pass(10 * MS);
	}
	assert_true(f.events & TCP_EV_OUT);
	assert_true(tcp_writable(c));
	assert_int_equal(tcp_outq(c), 0);
	fake_close();
}

static void writable_is_a_third_free(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(50000);
	c->o.sndbuf = c->sndq.charge + c->sndq.charge / 2 + 1;
	assert_true(tcp_writable(c));
	c->o.sndbuf = c->sndq.charge + c->sndq.charge / 2 - 1;
	assert_false(tcp_writable(c));
	fake_close();
}

/*
 * A buffer that was filled is writable long before its last byte is sent: its blocks are small
 * against it.
 */
static void a_small_send_buffer_does_not_run_empty(void **state)
{
	static const uint32_t sizes[] = {10000, 16384, 39200, 100000};

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct tcp_conn *c = fake_open(10 * MS);

		c->o.sndbuf = c->o.sndbuf_max = sizes[i];
		while (fake_send_flags(16384, 0) > 0)
			;
		assert_in_range(c->sndq.charge, sizes[i], sizes[i] + sizes[i] / 4);
		f.events = 0;
		while (!(f.events & TCP_EV_OUT)) {
			fake_pass(MS);
			fake_ack(seq_min(c->snd_una + 500, c->snd_nxt));
			f.n = f.seen = 0;
		}
		assert_true(tcp_outq(c) >= sizes[i] * 3 / 8);
		fake_close();
	}
}

static void the_peers_window_is_scaled_but_not_in_a_syn(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->snd_wscale = 3;
	fake_send(1000);
	fake_ack(1000);
	assert_int_equal(c->snd_wnd, 60000 << 3);
	fake_send(1000);
	fake_ack_full(2000, NULL, TCPHDR_SYN, 50000, 0);
	assert_int_equal(c->snd_wnd, 50000);
	fake_close();
}

static void the_send_buffer_grows_with_the_window(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.sndbuf = 16384;
	c->o.sndbuf_max = 4194304;
	for (unsigned i = 0; i < 200; i++) {
		while (fake_send_flags(10000, 0) > 0)
			;
		fake_pass(MS);
		fake_ack(c->snd_nxt);
		f.n = f.seen = 0;
	}
	assert_true(c->o.sndbuf > 40000);
	fake_close();
}

static void notsent_lowat_limits_what_is_not_sent(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.notsent_lowat = 4000;
	fake_send(14000);
	assert_int_equal(tcp_outq_unsent(c), 4000);
	assert_int_equal(fake_send_flags(100, 0), -EAGAIN);
	assert_false(tcp_writable(c));
	fake_pass(10 * MS);
	fake_ack(2000);
	assert_true(tcp_writable(c));
	assert_true(f.events & TCP_EV_OUT);
	fake_close();
}

/* net.ipv4.tcp_notsent_lowat, until the user says another one. */
static void the_hosts_lowat_limits_who_has_set_none(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	f.ts.cfg.notsent_lowat = 4000;
	fake_send(14000);
	assert_int_equal(tcp_outq_unsent(c), 4000);
	assert_int_equal(fake_send_flags(100, 0), -EAGAIN);
	assert_false(tcp_writable(c));
	c->o.notsent_lowat = 9000;
	assert_true(tcp_writable(c));
	assert_int_equal(fake_send_flags(9000, 0), 5000);
	c->o.notsent_lowat = UINT32_MAX;
	assert_false(tcp_writable(c));
	f.ts.cfg.notsent_lowat = UINT32_MAX;
	assert_true(tcp_writable(c));
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_smaller_than_a_segment_is_not_used_in_pieces),
		cmocka_unit_test(a_peer_that_never_has_more_than_half_a_segment_gets_that),
		cmocka_unit_test(a_small_first_window_does_not_keep_segments_small),
		cmocka_unit_test(a_closed_window_is_probed_with_back_off),
		cmocka_unit_test(probes_back_off_exponentially),
		cmocka_unit_test(a_window_closed_on_data_in_flight_is_asked_after),
		cmocka_unit_test(unanswered_probes_end_the_connection),
		cmocka_unit_test(the_user_timeout_ends_a_connection_that_probes),
		cmocka_unit_test(the_send_buffer_is_bounded_and_tells_when_a_third_is_free),
		cmocka_unit_test(writable_is_a_third_free),
		cmocka_unit_test(a_small_send_buffer_does_not_run_empty),
		cmocka_unit_test(the_peers_window_is_scaled_but_not_in_a_syn),
		cmocka_unit_test(the_send_buffer_grows_with_the_window),
		cmocka_unit_test(notsent_lowat_limits_what_is_not_sent),
		cmocka_unit_test(the_hosts_lowat_limits_who_has_set_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
