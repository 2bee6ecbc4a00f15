/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Around the TCP sender's data: urgent pointer, keepalive, MTU and ICMP, the window told, ACKs,
 * RST, ECN, TCP_INFO.
 */
#include "tcp_fake.h"

static void urgent_data_point_behind_their_byte(void **state)
{
	struct sent *s;

	(void)state;
	fake_open(10 * MS);
	assert_int_equal(fake_send_flags(10, MSG_OOB), 10);
	s = expect_sent(0, 10);
	assert_true(s->flags & TCPHDR_URG);
	assert_int_equal(s->urg, 10);
	fake_pass(10 * MS);
	fake_ack(10);
	fake_send(10);
	assert_false(expect_sent(10, 10)->flags & TCPHDR_URG);
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
	assert_int_equal(expect_sent(UINT32_MAX, 0)->when_us - t0, 60 * SEC);
	/* An answer: all begins anew. */
	fake_ack(0);
	t0 = f.ts.now;
	fake_pass(59 * SEC);
	expect_quiet();
	fake_pass(30 * SEC);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(expect_sent(UINT32_MAX, 0)->when_us - t0, (60 + 10 * i) * SEC);
	assert_int_equal(f.done, -1);
	fake_pass(10 * SEC);
	assert_true(expect_sent(0, 0)->flags & TCPHDR_RST);
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

static void a_tiny_maxseg_leaves_room_for_options(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->ts_ok = true;
	for (c->o.maxseg = 1; c->o.maxseg <= 14; c->o.maxseg++) {
		tcp_sync_mss(c);
		assert_int_equal(c->mss, TCP_MSS_MIN - 12);
	}
	fake_close();
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

/* Any address or link that changes on the host has the interface's MTU told once more. */
static void the_interfaces_mtu_does_not_undo_what_a_router_said(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->pmtu = 1500;
	tcp_sync_mss(c);
	fake_send(2920);
	expect_sent(0, 1460);
	expect_sent(1460, 1460);
	icmp(0, TCP_ICMP_FRAG_NEEDED, 1400);
	assert_int_equal(c->mss, 1360);
	tcp_mtu(c, 1500, f.ts.now);
	assert_int_equal(c->mss, 1360);
	/* A smaller one counts. */
	tcp_mtu(c, 1300, f.ts.now);
	assert_int_equal(c->mss, 1260);
	/* And may grow again, since no router has said it. */
	tcp_mtu(c, 1500, f.ts.now);
	assert_int_equal(c->mss, 1460);
	close_with_table();
}

static void a_larger_buffer_is_for_a_larger_window(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct tcp_opts o = *tcp_get_opts(c);

	(void)state;
	o.rcvbuf = o.rcvbuf_max = 4 << 20;
	tcp_set_opts(c, &o, f.ts.now);
	assert_int_equal(tcp_window_clamp(c), 2 << 20);
	/* What was told stays told. */
	o.rcvbuf = o.rcvbuf_max = 1 << 20;
	tcp_set_opts(c, &o, f.ts.now);
	assert_int_equal(tcp_window_clamp(c), 2 << 20);
	/* TCP_WINDOW_CLAMP is the user's. */
	o.window_clamp = 100000;
	tcp_set_opts(c, &o, f.ts.now);
	o.rcvbuf = o.rcvbuf_max = 8 << 20;
	tcp_set_opts(c, &o, f.ts.now);
	assert_int_equal(tcp_window_clamp(c), 100000);
	fake_close();
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
	assert_int_equal(c->mss, 1024);
	assert_int_equal(f.s[f.n - 1].len, 1024);
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

/* RFC 5961, 7: the limit of all connections, which is another one in each second. */
static void the_limit_of_challenges_cannot_be_counted(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	uint64_t sum = 0, before;
	uint32_t first = 0, others = 0;

	(void)state;
	for (unsigned s = 0; s < 50; s++) {
		fake_pass(SEC);
		before = f.ts.n.challenge_ack;
		for (unsigned i = 0; i < 2000; i++) {
			f.n = 0;
			c->oow_ack = 0; /* as if each were another connection's */
			tcp_challenge_ack(c);
		}
		sum += f.ts.n.challenge_ack - before;
		first = s ? first : (uint32_t)sum;
		others += f.ts.n.challenge_ack - before != first;
		assert_in_range(f.ts.n.challenge_ack - before, 500, 1499);
	}
	assert_in_range(others, 40, 49);
	assert_in_range(sum / 50, 800, 1200);
	fake_close();
}

/* A scaled window is a whole number of units: its edge moves back by less than one. */
static void an_ack_lies_where_the_peer_takes_it(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	c->snd_wscale = 7;
	c->snd_wnd = 2000;
	fake_send(2000);
	expect_run(0, 2);
	c->snd_wnd = 2000 - 127;
	tcp_send_ack(c);
	expect_sent(2000, 0);
	tcp_send_rst(c);
	assert_true(expect_sent(2000, 0)->flags & TCPHDR_RST);
	/* This is no rounding: what lies beyond it the peer does not take. */
	c->snd_wnd = 2000 - 128;
	tcp_send_ack(c);
	expect_sent(2000 - 128, 0);
	tcp_send_rst(c);
	assert_true(expect_sent(2000 - 128, 0)->flags & TCPHDR_RST);
	c->snd_wscale = 0;
	c->snd_wnd = 1999;
	tcp_send_ack(c);
	expect_sent(1999, 0);
	fake_close();
}

static void a_reset_answers_by_the_rules(void **state)
{
	struct tcp_tuple t = {.family = AF_INET};
	struct tcp_rx rx = {.flags = TCPHDR_SYN, .seq = 100, .end_seq = 101};
	struct sent *s;

	(void)state;
	fake_new();
	tcp_reply_rst(&f.ts, &t, &rx);
	s = expect_sent(0, 0);
	assert_int_equal(s->flags, TCPHDR_RST | TCPHDR_ACK);
	assert_int_equal(s->ack, 101);
	rx.flags = TCPHDR_ACK;
	rx.ack = 77;
	tcp_reply_rst(&f.ts, &t, &rx);
	assert_int_equal(expect_sent(77, 0)->flags, TCPHDR_RST);
	rx.flags = TCPHDR_RST;
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
	fake_ack_full(1000, NULL, TCPHDR_ECE, fake_wnd, 0);
	fake_ack_full(2000, NULL, TCPHDR_ECE, fake_wnd, 0);
	assert_int_equal(c->ca_state, TCPCA_CWR);
	assert_int_equal(c->cc.ssthresh, 5);
	for (uint32_t ack = 3000; ack <= 10000; ack += 1000)
		fake_ack_full(ack, NULL, TCPHDR_ECE, fake_wnd, 0);
	assert_true(f.seen < f.n);
	s = expect_sent(10000, 1000);
	assert_true(s->flags & TCPHDR_CWR);
	while (f.seen < f.n)
		assert_false(f.s[f.seen++].flags & TCPHDR_CWR);
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

/* An IPv6 socket has IP_TOS and IP_TTL, too: for IPv4. */
static void each_family_has_its_own_class_and_limit(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	struct sent *s;

	(void)state;
	c->o.tos = 0x10;
	c->o.ttl = 33;
	c->o.tos6 = 0xb8;
	c->o.ttl6 = 7;
	for (unsigned i = 0; i < 2; i++) {
		c->node.tuple.family = i ? AF_INET6 : AF_INET;
		fake_send(10);
		s = expect_sent(i * 10, 10);
		assert_int_equal(s->tos, i ? 0xb8 : 0x10);
		assert_int_equal(s->ttl, i ? 7 : 33);
		tcp_send_rst(c);
		s = expect_sent((i + 1) * 10, 0);
		assert_int_equal(s->tos, i ? 0xb8 : 0x10);
		assert_int_equal(s->ttl, i ? 7 : 33);
	}
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urgent_data_point_behind_their_byte),
		cmocka_unit_test(keepalive_probes_an_idle_peer_and_gives_up),
		cmocka_unit_test(the_user_timeout_takes_the_place_of_keepcnt),
		cmocka_unit_test(fragmentation_needed_shrinks_segments_and_sends_again),
		cmocka_unit_test(a_tiny_maxseg_leaves_room_for_options),
		cmocka_unit_test(icmp_of_what_is_not_in_flight_is_ignored),
		cmocka_unit_test(unreachable_ends_a_handshake_but_not_a_connection),
		cmocka_unit_test(the_interfaces_mtu_does_not_undo_what_a_router_said),
		cmocka_unit_test(a_larger_buffer_is_for_a_larger_window),
		cmocka_unit_test(a_black_hole_is_found_by_smaller_segments),
		cmocka_unit_test(the_window_told_never_shrinks),
		cmocka_unit_test(reading_tells_a_window_that_opened),
		cmocka_unit_test(challenge_acks_are_limited),
		cmocka_unit_test(the_limit_of_challenges_cannot_be_counted),
		cmocka_unit_test(an_ack_lies_where_the_peer_takes_it),
		cmocka_unit_test(a_reset_answers_by_the_rules),
		cmocka_unit_test(a_delayed_ack_goes_by_timer_and_data_carry_it),
		cmocka_unit_test(ecn_reduces_once_a_window_and_says_so),
		cmocka_unit_test(tcp_info_says_what_is),
		cmocka_unit_test(each_family_has_its_own_class_and_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
