/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the TCP sender lets go and when: handshake, windows, Nagle, cork, PSH, FIN, pacing, probes, keepalive, MTU, buffers. */
#include "tcp_fake.h"

static void a_syn_is_sent_again_as_linux_does_and_given_up(void **state)
{
	static const unsigned at[] = {1, 2, 3, 4, 5, 7, 11, 19, 35, 67};
	struct tcp_conn *c = fake_new();
	uint64_t t0 = f.ts.now;

	(void)state;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(UINT32_MAX, 0)->flags, TH_SYN);
	fake_pass(130 * SEC);
	/* Four times without back-off, then with. */
	for (unsigned i = 0; i < sizeof(at) / sizeof(*at); i++)
		assert_int_equal(expect_sent(UINT32_MAX, 0)->when - t0, at[i] * SEC);
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
	assert_int_equal(expect_sent(0, 5)->flags, TH_ACK | TH_PSH);
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
		uint8_t want = TH_ACK | (i == 4 || i == 9 ? TH_PSH : 0);

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
	t0 = expect_sent(1000, 200)->when - t0;
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
	assert_int_equal(expect_sent(10, 10)->flags, TH_ACK | TH_PSH | TH_FIN);
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
	assert_int_equal(expect_sent(10000, 0)->flags, TH_ACK | TH_FIN);
	fake_close();

	c = fake_open(10 * MS);
	c->snd_wnd = 1000;
	fake_send(1000);
	c->fin_queued = true;
	tcp_mark_dirty(c);
	fake_flush();
	assert_int_equal(expect_sent(0, 1000)->flags & TH_FIN, 0);
	expect_quiet();
	fake_close();
}

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

static void a_closed_window_is_probed_with_back_off(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t last = f.ts.now;

	(void)state;
	fake_send(1000);
	expect_sent(0, 1000);
	fake_pass(10 * MS);
	fake_wnd = 0;
	fake_ack(1000);
	last = f.ts.now;
	fake_send(1000);
	expect_quiet();
	for (unsigned i = 0; i < 5; i++) {
		struct sent *s;

		/* Never longer than two minutes; the early ones come several times. */
		fake_pass(121 * SEC);
		s = expect_sent(999, 0);
		assert_true(s->when - last >= c->rtt.rto_us);
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
	fake_send(1000);
	expect_sent(0, 1000);
	fake_pass(10 * MS);
	fake_wnd = 0;
	fake_ack(1000);
	last = f.ts.now;
	rto = c->rtt.rto_us;
	fake_send(1000);
	fake_pass(200 * SEC);
	for (unsigned i = 0; i < 8; i++) {
		struct sent *s = expect_sent(999, 0);

		assert_int_equal(s->when - last, rto << i);
		last = s->when;
	}
	fake_close();
}

static void unanswered_probes_end_the_connection(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->o.retries2 = 3;
	fake_send(1000);
	fake_pass(10 * MS);
	fake_wnd = 0;
	fake_ack(1000);
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
	fake_send(1000);
	fake_pass(10 * MS);
	fake_wnd = 0;
	fake_ack(1000);
	fake_send(1000);
	fake_pass(4 * SEC);
	assert_int_equal(f.done, -1);
	fake_pass(2 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
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
	assert_int_equal(expect_sent(UINT32_MAX, 0)->flags, TH_SYN);
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
		assert_int_equal(expect_sent(i * 1000, 1000)->when - t0, i * 10 * MS);
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

static void urgent_data_point_behind_their_byte(void **state)
{
	struct sent *s;

	(void)state;
	fake_open(10 * MS);
	assert_int_equal(fake_send_flags(10, MSG_OOB), 10);
	s = expect_sent(0, 10);
	assert_true(s->flags & TH_URG);
	assert_int_equal(s->urg, 10);
	fake_pass(10 * MS);
	fake_ack(10);
	fake_send(10);
	assert_false(expect_sent(10, 10)->flags & TH_URG);
	fake_close();
}

static void keepalive_probes_an_idle_peer_and_gives_up(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct tcp_opts o = c->o;
	uint64_t t0 = f.ts.now;

	(void)state;
	o.keepalive = true;
	o.keepidle_s = 60;
	o.keepintvl_s = 10;
	o.keepcnt = 3;
	tcp_set_opts(c, &o, f.ts.now);
	fake_flush();
	fake_pass(65 * SEC);
	assert_int_equal(expect_sent(UINT32_MAX, 0)->when - t0, 60 * SEC);
	/* An answer: all begins anew. */
	fake_ack(0);
	t0 = f.ts.now;
	fake_pass(59 * SEC);
	expect_quiet();
	fake_pass(30 * SEC);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(expect_sent(UINT32_MAX, 0)->when - t0, (60 + 10 * i) * SEC);
	assert_int_equal(f.done, -1);
	fake_pass(10 * SEC);
	assert_true(expect_sent(0, 0)->flags & TH_RST);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

static void the_user_timeout_takes_the_place_of_keepcnt(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct tcp_opts o = c->o;

	(void)state;
	o.keepalive = true;
	o.keepidle_s = 10;
	o.keepintvl_s = 5;
	o.keepcnt = 1;
	o.user_timeout_ms = 22000;
	tcp_set_opts(c, &o, f.ts.now);
	fake_pass(22 * SEC);
	assert_int_equal(f.done, -1);
	fake_pass(4 * SEC);
	assert_int_equal(f.done, ETIMEDOUT);
	fake_close();
}

static void icmp(uint32_t seq, enum tcp_icmp kind, uint32_t mtu)
{
	if (!f.ts.table.bucket) {
		const uint64_t key[2] = {1, 2};

		assert_int_equal(tcp_table_init(&f.ts.table, &f.ts.env, key), 0);
		tcp_table_add(&f.ts.table, &f.ts.env, &f.c->node);
	}
	tcp_icmp(&f.ts, &f.c->node.tuple, seq, kind, mtu, f.ts.now);
	fake_flush();
}

static void close_with_table(void)
{
	if (f.ts.table.bucket)
		tcp_table_fini(&f.ts.table, &f.ts.env);
	fake_close();
}

static void fragmentation_needed_shrinks_segments_and_sends_again(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(3000);
	expect_run(0, 3);
	icmp(0, TCP_ICMP_FRAG_NEEDED, 840);
	assert_int_equal(c->mss, 800);
	expect_sent(0, 800);
	expect_sent(800, 200);
	/* Not congestion. */
	assert_true(c->cc.cwnd >= 10);
	close_with_table();
}

static void icmp_of_what_is_not_in_flight_is_ignored(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	fake_send(1000);
	expect_sent(0, 1000);
	icmp(5000, TCP_ICMP_FRAG_NEEDED, 600);
	icmp(5000, TCP_ICMP_UNREACH_HOST, 0);
	assert_int_equal(c->mss, 1000);
	assert_int_equal(c->soft_error, 0);
	/* Larger than now, or absurd. */
	icmp(0, TCP_ICMP_FRAG_NEEDED, 9000);
	assert_int_equal(c->mss, 1000);
	icmp(0, TCP_ICMP_FRAG_NEEDED, 1);
	assert_int_equal(c->mss, 512);
	close_with_table();
}

static void unreachable_ends_a_handshake_but_not_a_connection(void **state)
{
	struct tcp_conn *c = fake_new();

	(void)state;
	tcp_mark_dirty(c);
	fake_flush();
	icmp(UINT32_MAX, TCP_ICMP_UNREACH_PORT, 0);
	assert_int_equal(f.done, ECONNREFUSED);
	close_with_table();

	c = fake_open(10 * MS);
	c->o.retries2 = 2;
	fake_send(10);
	icmp(0, TCP_ICMP_UNREACH_HOST, 0);
	assert_int_equal(f.done, -1);
	fake_pass(20 * SEC);
	assert_int_equal(f.done, EHOSTUNREACH);
	close_with_table();
}

static void a_black_hole_is_found_by_smaller_segments(void **state)
{
	struct tcp_conn *c;

	(void)state;
	c = fake_open(10 * MS);
	c->pmtu = 1500;
	tcp_sync_mss(c);
	assert_int_equal(c->mss, 1460);
	fake_send(1460);
	expect_sent(0, 1460);
	fake_pass(10 * SEC);
	assert_int_equal(f.ts.n.mtu_black_holes, 1);
	assert_int_equal(c->mss, 1240);
	assert_int_equal(f.s[f.n - 1].len, 1240);
	fake_close();
}

static void the_window_told_never_shrinks(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	f.space = 60000;
	assert_int_equal(tcp_select_window(c), 60000);
	f.space = 100;
	assert_int_equal(tcp_select_window(c), 60000);
	c->rcv_nxt += 10000;
	assert_int_equal(tcp_select_window(c), 50000);
	/* Less than a segment, and all that was told is used up: none. */
	c->rcv_nxt = c->rcv_wup + c->rcv_wnd;
	assert_int_equal(tcp_select_window(c), 0);
	fake_close();
}

static void reading_tells_a_window_that_opened(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->window_clamp = 65535;
	f.space = 0;
	c->rcv_nxt = c->rcv_wup + c->rcv_wnd;
	tcp_send_ack(c);
	assert_int_equal(expect_sent(0, 0)->wnd, 0);
	f.space = 400;
	tcp_window_update(c);
	fake_flush();
	expect_quiet();
	f.space = 30000;
	tcp_window_update(c);
	fake_flush();
	assert_true(expect_sent(0, 0)->wnd > 29000);
	/* Not again for a little more. */
	f.space = 33000;
	tcp_window_update(c);
	fake_flush();
	expect_quiet();
	fake_close();
}

static void challenge_acks_are_limited(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		tcp_challenge_ack(c);
	expect_sent(0, 0);
	expect_quiet();
	fake_pass(SEC);
	tcp_challenge_ack(c);
	expect_sent(0, 0);
	fake_close();
}

static void a_reset_answers_by_the_rules(void **state)
{
	struct tcp_tuple t = {.family = AF_INET};
	struct tcp_rx rx = {.flags = TH_SYN, .seq = 100, .end_seq = 101};
	struct sent *s;

	(void)state;
	fake_new();
	tcp_reply_rst(&f.ts, &t, &rx);
	s = expect_sent(0, 0);
	assert_int_equal(s->flags, TH_RST | TH_ACK);
	assert_int_equal(s->ack, 101);
	rx.flags = TH_ACK;
	rx.ack = 77;
	tcp_reply_rst(&f.ts, &t, &rx);
	assert_int_equal(expect_sent(77, 0)->flags, TH_RST);
	rx.flags = TH_RST;
	tcp_reply_rst(&f.ts, &t, &rx);
	expect_quiet();
	fake_close();
}

static void a_delayed_ack_goes_by_timer_and_data_carry_it(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->ack_needed = 1;
	c->ato_us = 40 * MS;
	wheel_arm(&f.ts.wheel, &c->delack, f.ts.now + 40 * MS);
	fake_pass(41 * MS);
	expect_sent(0, 0);
	assert_int_equal(c->ack_needed, 0);
	c->ack_needed = 1;
	wheel_arm(&f.ts.wheel, &c->delack, f.ts.now + 40 * MS);
	fake_send(10);
	expect_sent(0, 10);
	assert_false(wheel_armed(&c->delack));
	assert_int_equal(c->ack_needed, 0);
	fake_close();
}

static void ecn_reduces_once_a_window_and_says_so(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct sent *s;

	(void)state;
	c->ecn_ok = true;
	fake_send(60000);
	assert_int_equal(f.s[0].tos & 3, 2);
	expect_run(0, 10);
	fake_pass(10 * MS);
	fake_ack_full(1000, NULL, TH_ECE, fake_wnd, 0);
	fake_ack_full(2000, NULL, TH_ECE, fake_wnd, 0);
	assert_int_equal(c->ca_state, TCPCA_CWR);
	assert_int_equal(c->cc.ssthresh, 5);
	for (uint32_t ack = 3000; ack <= 10000; ack += 1000)
		fake_ack_full(ack, NULL, TH_ECE, fake_wnd, 0);
	assert_true(f.seen < f.n);
	s = expect_sent(10000, 1000);
	assert_true(s->flags & TH_CWR);
	while (f.seen < f.n)
		assert_false(f.s[f.seen++].flags & TH_CWR);
	assert_int_equal(f.ts.n.ecn_reductions, 1);
	assert_true(c->cc.cwnd <= 6);
	fake_close();
}

static void tcp_info_says_what_is(void **state)
{
	struct tcp_conn *c = fake_open(30 * MS);
	uint8_t info[512];
	size_t n;

	(void)state;
	fake_send(3000);
	memset(info, 0xff, sizeof(info));
	n = tcp_fill_info(c, info, sizeof(info), f.ts.now);
	assert_true(n >= 192 && n < sizeof(info));
	assert_int_equal(info[0], TCPS_ESTABLISHED);
	assert_int_equal(((uint32_t *)info)[2], 230000); /* tcpi_rto */
	assert_int_equal(((uint32_t *)info)[4], 1000); /* tcpi_snd_mss */
	assert_int_equal(((uint32_t *)info)[6], 3); /* tcpi_unacked */
	assert_int_equal(tcp_fill_info(c, info, 5, f.ts.now), 5);
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
		cmocka_unit_test(nagle_holds_the_rest_of_a_super_segment),
		cmocka_unit_test(cork_waits_for_a_full_segment_or_200_ms),
		cmocka_unit_test(uncorking_sends),
		cmocka_unit_test(msg_more_holds_until_a_send_without_it),
		cmocka_unit_test(a_fin_goes_with_the_last_data),
		cmocka_unit_test(a_fin_alone_needs_no_cwnd_but_a_window),
		cmocka_unit_test(a_window_smaller_than_a_segment_is_not_used_in_pieces),
		cmocka_unit_test(a_peer_that_never_has_more_than_half_a_segment_gets_that),
		cmocka_unit_test(a_closed_window_is_probed_with_back_off),
		cmocka_unit_test(probes_back_off_exponentially),
		cmocka_unit_test(unanswered_probes_end_the_connection),
		cmocka_unit_test(the_user_timeout_ends_a_connection_that_probes),
		cmocka_unit_test(a_full_queue_loses_nothing),
		cmocka_unit_test(without_memory_nothing_is_sent_until_there_is_some),
		cmocka_unit_test(a_refused_syn_is_sent_a_moment_later),
		cmocka_unit_test(the_send_buffer_is_bounded_and_tells_when_a_third_is_free),
		cmocka_unit_test(the_send_buffer_grows_with_the_window),
		cmocka_unit_test(notsent_lowat_limits_what_is_not_sent),
		cmocka_unit_test(pacing_spreads_segments),
		cmocka_unit_test(idle_restart_halves_the_window_for_each_rto),
		cmocka_unit_test(a_window_that_is_not_used_does_not_grow),
		cmocka_unit_test(urgent_data_point_behind_their_byte),
		cmocka_unit_test(keepalive_probes_an_idle_peer_and_gives_up),
		cmocka_unit_test(the_user_timeout_takes_the_place_of_keepcnt),
		cmocka_unit_test(fragmentation_needed_shrinks_segments_and_sends_again),
		cmocka_unit_test(icmp_of_what_is_not_in_flight_is_ignored),
		cmocka_unit_test(unreachable_ends_a_handshake_but_not_a_connection),
		cmocka_unit_test(a_black_hole_is_found_by_smaller_segments),
		cmocka_unit_test(the_window_told_never_shrinks),
		cmocka_unit_test(reading_tells_a_window_that_opened),
		cmocka_unit_test(challenge_acks_are_limited),
		cmocka_unit_test(a_reset_answers_by_the_rules),
		cmocka_unit_test(a_delayed_ack_goes_by_timer_and_data_carry_it),
		cmocka_unit_test(ecn_reduces_once_a_window_and_says_so),
		cmocka_unit_test(tcp_info_says_what_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
