/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segments that a connection must not believe: RFC 9293 3.10.7.4, RFC 5961, RFC 7323's PAWS; and
 * opening and closing.
 */
#include <arpa/inet.h>

#include "tcp_peer.h"

static void connecting(void)
{
	struct tcp_tuple u = tuple_of(RPORT);

	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_flush(t.ts, t.now);
}

static void test_active_open(void **state)
{
	(void)state;
	const struct seg *s;

	setup();
	start();
	connecting();
	s = sent_is(TCPHDR_SYN, 0, 0);
	assert_int_equal(s->mss, 1460);
	assert_true(s->sack_ok && s->ts && s->wscale);
	assert_int_equal(s->wnd, 64240);
	assert_int_equal(s->shift, 7);
	assert_int_equal(tcp_ready(t.c), 0);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 1, .mss = 1400, .ts = true, .tsecr = s->tsval,
	     .wscale = true, .shift = 3);
	sent_is(TCPHDR_ACK, 1, 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	assert_int_equal(t.events, TCP_EV_CONNECTED | TCP_EV_OUT);
	assert_int_equal(tcp_ready(t.c), TCP_EV_OUT);
	assert_int_equal(t.c->mss, 1400 - 12);
	assert_int_equal(t.c->snd_wnd, 10000);
	end();
}

static void test_full_queue_sends_later(void **state)
{
	(void)state;
	setup();
	start();
	t.output_err = -ENOBUFS;
	connecting();
	t.output_err = 0;
	tcp_flush(t.ts, t.now);
	silent();
	tcp_tx_ready(t.ts, t.now);
	sent_is(TCPHDR_SYN, 0, 0);
	tcp_tx_ready(t.ts, t.now);
	silent();
	end();
}

static uint32_t path_mtu, path_gso;

static void path_is(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso)
{
	(void)ctx;
	(void)tuple;
	*mtu = path_mtu;
	*max_gso = path_gso;
}

/* Nothing is known of the path before the SYN is let go. */
static void test_a_held_syn(void **state)
{
	(void)state;
	struct tcp_tuple u = tuple_of(RPORT);
	const struct seg *s;

	setup();
	t.env.path = path_is;
	path_mtu = 9000;
	path_gso = 0;
	start();
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_hold_syn(t.c);
	tcp_flush(t.ts, t.now);
	pass(200 * SEC);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_SYN_SENT);
	assert_int_equal(tcp_ready(t.c), 0);
	assert_int_equal(tcp_next_timer(t.ts), WHEEL_NEVER);
	/* What Fast Open's calls say does not count. */
	tcp_fast_open_go(t.c);
	tcp_flush(t.ts, t.now);
	silent();

	path_mtu = 1500;
	path_gso = 60000;
	tcp_let_syn_go(t.c);
	tcp_flush(t.ts, t.now);
	s = sent_is(TCPHDR_SYN, 0, 0);
	assert_int_equal(s->mss, 1460);
	silent();
	/* Its time begins now. */
	pass(900 * MS);
	silent();
	pass(200 * MS);
	sent_is(TCPHDR_SYN, 0, 0);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 1, .mss = 1460);
	sent_is(TCPHDR_ACK, 1, 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	assert_true(t.c->gso_len > 50000);
	end();
}

static void test_a_held_syn_is_given_up(void **state)
{
	(void)state;
	struct tcp_tuple u = tuple_of(RPORT);

	setup();
	start();
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_hold_syn(t.c);
	tcp_flush(t.ts, t.now);
	user_close();
	silent();
	assert_int_equal(t.gone, 1);
	end();
}

static void test_refused(void **state)
{
	(void)state;
	setup();
	start();
	connecting();
	sent();
	/* Not without an ACK, not of what was never sent. */
	peer(.flags = TCPHDR_RST);
	peer(.flags = TCPHDR_RST | TCPHDR_ACK, .ack = 7);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_SYN_SENT);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 7);
	sent_is(TCPHDR_RST, 7, 0);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 0);
	sent_is(TCPHDR_RST, 0, 0);
	assert_int_equal(tcp_conn_state(t.c), TCPS_SYN_SENT);
	peer(.flags = TCPHDR_RST | TCPHDR_ACK, .ack = 1);
	assert_int_equal(t.events, TCP_EV_ERR | TCP_EV_HUP | TCP_EV_IN | TCP_EV_OUT | TCP_EV_RDHUP);
	assert_int_equal(tcp_error(t.c), ECONNREFUSED);
	assert_int_equal(t.gone, 0);
	user_close();
	assert_int_equal(t.gone, 1);
	silent();
	end();
}

static void test_simultaneous_open(void **state)
{
	(void)state;
	setup();
	start();
	connecting();
	sent();
	peer(.flags = TCPHDR_SYN, .mss = 1460, .sack_ok = true);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_SYN_RECV);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 1, .mss = 1460, .sack_ok = true);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	sent_is(TCPHDR_ACK, 1, 1);
	peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "hello");
	sent_is(TCPHDR_ACK, 1, 6);
	reads("hello");
	end();
}

/* As Linux has it: refused is what only a SYN was answered with. */
static void test_simultaneous_open_reset(void **state)
{
	(void)state;
	setup();
	start();
	connecting();
	sent();
	peer(.flags = TCPHDR_SYN, .mss = 1460);
	sent();
	peer(.flags = TCPHDR_RST, .seq = 1);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), ECONNRESET);
	end();
}

static void test_simultaneous_open_closed_before(void **state)
{
	(void)state;
	setup();
	start();
	connecting();
	sent();
	peer(.flags = TCPHDR_SYN, .mss = 1460);
	sent();
	user_close();
	silent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1);
	sent_is(TCPHDR_FIN | TCPHDR_ACK, 1, 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_FIN_WAIT1);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
	assert_int_equal(t.ts->num_tw, 1);
	end();
}

static void test_rst_exact_only(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_RST, .seq = 2);
	sent_is(TCPHDR_ACK, 1, 1); /* RFC 5961, 3.2: challenge */
	peer(.flags = TCPHDR_RST, .seq = 0);
	peer(.flags = TCPHDR_RST, .seq = 1 + 64240 + 1);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	peer(.flags = TCPHDR_RST, .seq = 3);
	silent(); /* 500 ms have not passed */
	t.now += 501 * MS;
	peer(.flags = TCPHDR_RST, .seq = 1 + 64240 + 1);
	silent(); /* not even in the window */
	assert_int_equal(tcp_stack_counters(t.ts)->rst_ignored, 5);
	peer(.flags = TCPHDR_RST, .seq = 3);
	sent_is(TCPHDR_ACK, 1, 1);
	peer(.flags = TCPHDR_RST, .seq = 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), ECONNRESET);
	assert_int_equal(user_recv((char[1]){0}, 1, 0), 0);
	end();
}

/* The peer's FIN has come; ours is on its way if it is closed. */
static void fin_came(bool closed)
{
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1);
	if (closed)
		tcp_shutdown(t.c, SHUT_WR, t.now);
	tcp_flush(t.ts, t.now);
	t.taken = t.n;
}

/* Linux: tcp_reset_check(). Before the FIN is acknowledged its number is in the window, then not.
 */
static void test_rst_with_the_fins_number(void **state)
{
	(void)state;
	fin_came(false);
	peer(.flags = TCPHDR_RST, .seq = 1);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), EPIPE);
	end();
	fin_came(false);
	pass(SEC);
	sent_is(TCPHDR_ACK, 1, 2);
	peer(.flags = TCPHDR_RST, .seq = 0);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSE_WAIT);
	peer(.flags = TCPHDR_RST, .seq = 1);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), EPIPE);
	end();
	fin_came(true);
	assert_int_equal(tcp_conn_state(t.c), TCPS_LAST_ACK);
	peer(.flags = TCPHDR_RST, .seq = 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), ECONNRESET);
	end();
}

static void test_rst_with_the_fins_number_in_closing(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	tcp_shutdown(t.c, SHUT_WR, t.now);
	tcp_flush(t.ts, t.now);
	sent();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1);
	sent_is(TCPHDR_ACK, 2, 2);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSING);
	peer(.flags = TCPHDR_RST, .seq = 1);
	silent();
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	assert_int_equal(tcp_error(t.c), ECONNRESET);
	end();
}

static void test_data_before_rst_is_read(void **state)
{
	(void)state;
	char c[8];

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "abc");
	peer(.flags = TCPHDR_RST, .seq = 4);
	reads("abc");
	assert_int_equal(user_recv(c, sizeof(c), 0), -ECONNRESET);
	assert_int_equal(user_recv(c, sizeof(c), 0), 0);
	end();
}

static void test_syn_in_connection_challenged(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_SYN, .seq = 1);
	sent_is(TCPHDR_ACK, 1, 1);
	t.now += SEC;
	peer(.flags = TCPHDR_SYN, .seq = 100000000);
	sent_is(TCPHDR_ACK, 1, 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	assert_int_equal(tcp_stack_counters(t.ts)->syn_challenge, 2);
	end();
}

/* What comes past the ring is the connection's only if its peer may have sent it. */
static void test_numbers_that_the_peer_may_give(void **state)
{
	(void)state;
	uint32_t window;

	setup();
	start();
	connecting();
	sent();
	assert_true(tcp_seq_likely(t.c, 0) && tcp_seq_likely(t.c, 0x80000000u));
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .ack = 1);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	window = tcp_rcv_window(t.c);
	assert_true(window > 10000);
	/* The next byte, a keep-alive's number, the last one, the longest that is sent again. */
	assert_true(tcp_seq_likely(t.c, PEER_ISN + 1));
	assert_true(tcp_seq_likely(t.c, PEER_ISN));
	assert_true(tcp_seq_likely(t.c, PEER_ISN + 1 + window));
	assert_true(tcp_seq_likely(t.c, PEER_ISN + 1 - UINT16_MAX));
	assert_false(tcp_seq_likely(t.c, PEER_ISN + 2 + window));
	assert_false(tcp_seq_likely(t.c, PEER_ISN - UINT16_MAX));
	assert_false(tcp_seq_likely(t.c, PEER_ISN + 0x80000000u));
	end();
}

static void test_ack_range(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2, .data = "no"); /* of what was not sent */
	sent_is(TCPHDR_ACK, 1, 1);
	t.now += SEC;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1u - 2000,
	     .data = "no"); /* older than a window */
	sent_is(TCPHDR_ACK, 1, 1);
	t.now += SEC;
	peer(.flags = 0, .seq = 1, .data = "no"); /* without ACK */
	silent();
	assert_int_equal(tcp_inq(t.c), 0);
	end();
}

static void test_out_of_window_answered(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	/* A keepalive or window probe: no payload, before the window. Limited in rate. */
	peer(.flags = TCPHDR_ACK, .seq = 0, .ack = 1);
	sent_is(TCPHDR_ACK, 1, 1);
	peer(.flags = TCPHDR_ACK, .seq = 0, .ack = 1);
	silent();
	t.now += 501 * MS;
	peer(.flags = TCPHDR_ACK, .seq = 0, .ack = 1);
	sent_is(TCPHDR_ACK, 1, 1);
	/* Data are always answered. */
	peer(.flags = TCPHDR_ACK, .seq = 1 + 70000, .ack = 1, .data = "far");
	sent_is(TCPHDR_ACK, 1, 1);
	peer(.flags = TCPHDR_ACK, .seq = 1 + 70000, .ack = 1, .data = "far");
	sent_is(TCPHDR_ACK, 1, 1);
	end();
}

static void accepted_ts(void)
{
	accepted((struct seg){.mss = 1460, .sack_ok = true, .ts = true, .tsval = 100});
	t.c->quick = 0;
	t.c->ato_us = 40000;
}

static void test_paws(void **state)
{
	(void)state;
	setup();
	start();
	accepted_ts();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .ts = true, .tsval = 90, .data = "old");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, 1)->tsecr, 100);
	assert_int_equal(tcp_inq(t.c), 0);
	assert_int_equal(tcp_stack_counters(t.ts)->paws, 1);
	/* A RST is exempt (RFC 7323, 5.2). */
	peer(.flags = TCPHDR_RST, .seq = 1, .ts = true, .tsval = 90);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSED);
	end();
}

static void test_paws_after_24_days(void **state)
{
	(void)state;
	setup();
	start();
	accepted_ts();
	t.now += 25ull * 24 * 3600 * SEC;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .ts = true, .tsval = 90, .data = "new");
	reads("new");
	end();
}

static void test_ts_recent_of_left_edge(void **state)
{
	(void)state;
	setup();
	start();
	accepted_ts();
	/* RFC 7323, 4.3 (B): not from a segment behind a hole. */
	peer(.flags = TCPHDR_ACK, .seq = 11, .ack = 1, .ts = true, .tsval = 120, .data = "later");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, 1)->tsecr, 100);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .ts = true, .tsval = 110,
	     .data = "0123456789");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, 16)->tsecr, 110);
	end();
}

static void test_half_close_and_time_wait(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	assert_int_equal(tcp_shutdown(t.c, SHUT_WR, t.now), 0);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_FIN | TCPHDR_ACK, 1, 1);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
	assert_int_equal(tcp_conn_state(t.c), TCPS_FIN_WAIT2);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2, .data = "still");
	pass(SEC);
	sent_is(TCPHDR_ACK, 2, 6);
	reads("still");
	t.events = 0;
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 6, .ack = 2);
	sent_is(TCPHDR_ACK, 2, 7);
	assert_true(t.events & TCP_EV_HUP);
	assert_int_equal(tcp_ready(t.c) & TCP_EV_ERR, 0);
	user_close();
	assert_int_equal(t.gone, 0); /* TIME_WAIT has the user now */
	/* The FIN again: answered, waits anew. */
	pass(30 * SEC);
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 6, .ack = 2);
	sent_is(TCPHDR_ACK, 2, 7);
	pass(59 * SEC);
	assert_int_equal(t.gone, 0);
	pass(2 * SEC);
	assert_int_equal(t.gone, 1);
	assert_int_equal(t.ts->num_tw, 0);
	end();
}

/* Our FIN is on its way. */
static void closed_by_us(void)
{
	setup();
	start();
	accepted_plain();
	user_close();
	sent_is(TCPHDR_FIN | TCPHDR_ACK, 1, 1);
}

static void test_simultaneous_close(void **state)
{
	(void)state;
	closed_by_us();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1);
	sent_is(TCPHDR_ACK, 2, 2);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSING);
	peer(.flags = TCPHDR_ACK, .seq = 2, .ack = 2);
	assert_int_equal(t.ts->num_tw, 1);
	assert_int_equal(tcp_stack_conns(t.ts), 0);
	end();
}

/*
 * The FIN and the ACK of ours in one batch, before the flush: its ACK is not lost with the
 * connection. (It was, and a busy host's peers stood in CLOSING until their FIN's time was out.)
 */
static void test_simultaneous_close_in_one_batch(void **state)
{
	(void)state;
	closed_by_us();
	peer_batch((struct seg){.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1});
	peer(.flags = TCPHDR_ACK, .seq = 2, .ack = 2);
	sent_is(TCPHDR_ACK, 2, 2);
	silent();
	assert_int_equal(t.ts->num_tw, 1);
	assert_int_equal(tcp_stack_conns(t.ts), 0);
	end();
}

static void test_passive_close(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1, .data = "bye");
	pass(SEC); /* the ACK may wait for our FIN */
	sent_is(TCPHDR_ACK, 1, 5);
	assert_int_equal(t.events, TCP_EV_IN | TCP_EV_RDHUP);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSE_WAIT);
	assert_int_equal(tcp_inq(t.c), 3);
	/* Behind the end of the stream: nothing. */
	peer(.flags = TCPHDR_ACK, .seq = 5, .ack = 1, .data = "more");
	silent();
	reads("bye");
	assert_int_equal(user_recv((char[1]){0}, 1, 0), 0);
	user_close();
	sent_is(TCPHDR_FIN | TCPHDR_ACK, 1, 5);
	assert_int_equal(t.gone, 0);
	peer(.flags = TCPHDR_ACK, .seq = 5, .ack = 2);
	assert_int_equal(t.gone, 1);
	assert_int_equal(t.ts->num_orphans, 0);
	end();
}

static void test_close_with_unread_data_resets(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "unread");
	user_close();
	sent_is(TCPHDR_RST | TCPHDR_ACK, 1, 7);
	assert_int_equal(t.gone, 1);
	assert_int_equal(tcp_stack_counters(t.ts)->abort_on_close, 1);
	/* What comes then belongs to nothing; the listener answers. */
	peer(.flags = TCPHDR_ACK, .seq = 7, .ack = 1);
	sent_is(TCPHDR_RST, 1, 0);
	end();
}

/* The urgent byte was taken out of line: nothing is unread. */
static void test_close_after_urgent_byte(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_URG | TCPHDR_FIN, .seq = 1, .ack = 1, .data = "X",
	     .urg = 1);
	pass(SEC);
	sent_is(TCPHDR_ACK, 1, 3);
	assert_int_equal(user_recv((char[1]){0}, 1, MSG_OOB), 1);
	user_close();
	sent_is(TCPHDR_FIN | TCPHDR_ACK, 1, 3);
	end();
}

static void test_unread_data_reset_in_closing(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	tcp_shutdown(t.c, SHUT_WR, t.now);
	tcp_flush(t.ts, t.now);
	sent();
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 1, .data = "unread");
	sent_is(TCPHDR_ACK, 2, 8);
	user_close();
	sent_is(TCPHDR_RST | TCPHDR_ACK, 2, 8);
	end();
}

static void test_data_for_orphan_resets(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	user_close();
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "late");
	sent_is(TCPHDR_RST, 1, 0);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_orphan_fin_wait2_ends(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	user_close();
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
	assert_int_equal(tcp_stack_conns(t.ts), 0); /* a small object answers for it */
	peer(.flags = TCPHDR_ACK, .seq = 0, .ack = 2);
	sent_is(TCPHDR_ACK, 2, 1);
	pass(59 * SEC);
	assert_int_equal(t.gone, 0);
	pass(2 * SEC);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_orphan_fin_wait2_data_and_fin(void **state)
{
	(void)state;
	for (int data = 0; data < 2; data++) {
		setup();
		t.o.linger2_ms = 10000; /* FIN_WAIT2's; TIME_WAIT has its own */
		start();
		accepted_plain();
		user_close();
		sent();
		peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
		if (data) {
			peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2, .data = "late");
			sent_is(TCPHDR_RST, 2, 0);
			assert_int_equal(t.gone, 1);
		} else {
			peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 2);
			sent_is(TCPHDR_ACK, 2, 2);
			pass(59 * SEC);
			assert_int_equal(t.gone, 0);
			pass(2 * SEC);
			assert_int_equal(t.gone, 1);
		}
		end();
	}
}

static void test_linger2_zero(void **state)
{
	(void)state;
	setup();
	t.o.linger2_ms = 0;
	start();
	accepted_plain();
	user_close();
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
	sent_is(TCPHDR_RST | TCPHDR_ACK, 2, 1);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_abort(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	tcp_abort(t.c, t.now);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_RST | TCPHDR_ACK, 1, 1);
	assert_int_equal(t.gone, 1);
	end();
}

static void user_writes(const char *text)
{
	struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), iov.iov_len);
}

static void test_what_waits_for_the_flush_leaves_together(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	assert_false(tcp_flush_later(t.ts, t.now));
	user_writes("head");
	assert_true(tcp_flush_later(t.ts, t.now));
	user_writes("body");
	assert_true(tcp_flush_later(t.ts, t.now));
	tcp_close(t.c, t.now);
	assert_true(tcp_flush_later(t.ts, t.now));
	silent();
	tcp_flush(t.ts, t.now);
	assert_int_equal(sent_is(TCPHDR_PSH | TCPHDR_FIN | TCPHDR_ACK, 1, 1)->len, 8);
	silent();
	assert_false(tcp_flush_later(t.ts, t.now));
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 10);
	sent_is(TCPHDR_ACK, 10, 2);
	end();
}

/* A reset, for whatever reason, is not faster than what was written before it. */
static void test_what_was_written_is_not_lost_by_a_reset(void **state)
{
	(void)state;
	for (int unread = 0; unread < 2; unread++) {
		setup();
		start();
		accepted_plain();
		if (unread)
			peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "x");
		user_writes("answer");
		assert_true(tcp_flush_later(t.ts, t.now));
		if (unread)
			tcp_close(t.c, t.now);
		else
			tcp_abort(t.c, t.now);
		assert_false(tcp_flush_later(t.ts, t.now));
		assert_int_equal(sent_is(TCPHDR_PSH | TCPHDR_ACK, 1, unread ? 2 : 1)->len, 6);
		sent_is(TCPHDR_RST | TCPHDR_ACK, 7, unread ? 2 : 1);
		silent();
		assert_int_equal(t.gone, 1);
		end();
	}
}

/* The same by the peer's data, which nobody reads any more. */
static void test_what_was_written_is_not_lost_by_data_for_an_orphan(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	user_writes("answer");
	tcp_close(t.c, t.now);
	assert_true(tcp_flush_later(t.ts, t.now));
	silent();
	peer_batch(
		(struct seg){.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "more"});
	assert_int_equal(sent_is(TCPHDR_PSH | TCPHDR_FIN | TCPHDR_ACK, 1, 1)->len, 6);
	sent_is(TCPHDR_RST, 1, 0);
	tcp_flush(t.ts, t.now);
	assert_int_equal(t.gone, 1);
	end();
}

/* MSG_MORE and a cork hold back what follows, not what waits for the flush. */
static void test_what_was_written_is_not_held_by_what_follows(void **state)
{
	struct iovec next = {"next", 4};

	(void)state;
	for (int cork = 0; cork < 2; cork++) {
		struct tcp_opts o;

		setup();
		start();
		accepted_plain();
		user_writes("first");
		assert_true(tcp_flush_later(t.ts, t.now));
		if (cork) {
			o = *tcp_get_opts(t.c);
			o.cork = true;
			tcp_set_opts(t.c, &o, t.now);
		}
		assert_int_equal(tcp_send(t.c, &next, 1, cork ? 0 : MSG_MORE, t.now), 4);
		tcp_flush(t.ts, t.now);
		assert_int_equal(sent()->len, 5);
		silent();
		end();
	}
}

/* TCP_NOTSENT_LOWAT bounds what the windows hold back, not what waits for the flush. */
static void test_notsent_lowat_and_the_flush(void **state)
{
	(void)state;
	setup();
	t.o.notsent_lowat = 4;
	start();
	accepted_plain();
	user_writes("a byte and some");
	assert_true(tcp_flush_later(t.ts, t.now));
	user_writes("and some more");
	tcp_flush(t.ts, t.now);
	assert_int_equal(sent()->len, 28);
	end();
}

static void test_too_many_orphans(void **state)
{
	(void)state;
	setup();
	t.cfg.max_orphans = 0;
	start();
	accepted_plain();
	user_close();
	sent_is(TCPHDR_RST | TCPHDR_ACK, 1, 1);
	assert_int_equal(t.gone, 1);
	end();
}

static void into_time_wait(struct seg syn)
{
	setup();
	start();
	accepted(syn);
	user_close();
	sent();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 2, .ts = syn.ts, .tsval = 200);
	sent();
	assert_int_equal(t.ts->num_tw, 1);
}

static void test_time_wait_reuse_by_isn(void **state)
{
	(void)state;
	uint32_t old;

	into_time_wait((struct seg){.mss = 1460});
	old = t.iss;
	/* Not a lower number: the TIME_WAIT answers. */
	peer(.flags = TCPHDR_SYN, .seq = 0u - 5000);
	sent_is(TCPHDR_ACK, 2, 2);
	peer(.flags = TCPHDR_SYN, .seq = 5000, .mss = 1460);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 5001);
	assert_int_equal(t.iss, old + 2 + 65537); /* beyond the old connection's */
	assert_int_equal(t.ts->num_tw, 0);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_time_wait_reuse_by_time_stamp(void **state)
{
	(void)state;
	into_time_wait((struct seg){.mss = 1460, .ts = true, .tsval = 100});
	peer(.flags = TCPHDR_SYN, .seq = 0u - 5000, .ts = true, .tsval = 199);
	sent_is(TCPHDR_ACK, 2, 2);
	t.now += SEC;
	peer(.flags = TCPHDR_SYN, .seq = 0u - 5000, .ts = true, .tsval = 200);
	sent_is(TCPHDR_ACK, 2, 2);
	peer(.flags = TCPHDR_SYN, .seq = 0u - 5000, .ts = true, .tsval = 201);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 0u - 4999);
	end();
}

static void test_time_wait_rst_and_active_reuse(void **state)
{
	(void)state;
	struct tcp_tuple u = tuple_of(RPORT);
	uint32_t old;

	into_time_wait((struct seg){.mss = 1460, .ts = true, .tsval = 100});
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), -EADDRNOTAVAIL);
	t.now += 2 * SEC;
	old = t.iss;
	t.fail_after = 0;
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), -ENOMEM);
	assert_int_equal(t.ts->num_tw, 1);
	t.fail_after = -1;
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_SYN, 0, 0);
	assert_int_equal(t.iss, old + 2 + 65537);
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), -EADDRNOTAVAIL);
	end();
	into_time_wait((struct seg){.mss = 1460});
	peer(.flags = TCPHDR_RST, .seq = 3);
	assert_int_equal(t.ts->num_tw, 1);
	peer(.flags = TCPHDR_RST, .seq = 2);
	assert_int_equal(t.ts->num_tw, 0);
	silent();
	end();
}

static bool may_be_others(void *ctx, void *user)
{
	assert_null(ctx);
	assert_ptr_equal(user, &t.user);
	return t.lev;
}

static void test_time_wait_and_a_handshake_of_others(void **state)
{
	(void)state;
	into_time_wait((struct seg){.mss = 1460, .ts = true, .tsval = 100});
	t.ts->env.may_be_others = may_be_others;
	t.lev = false;
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .seq = 7000, .ack = 900, .ts = true, .tsval = 300);
	sent_is(TCPHDR_ACK, 2, 2);
	t.lev = true;
	/* A RST of whatever kind is none, nor is a FIN that comes again. */
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST, .seq = 7000, .ack = 900);
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 2, .ts = true, .tsval = 300);
	sent_is(TCPHDR_ACK, 2, 2);
	assert_int_equal(t.ts->num_tw, 1);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .seq = 7000, .ack = 900, .ts = true, .tsval = 300);
	silent();
	assert_int_equal(t.ts->num_tw, 0);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_time_wait_bounded(void **state)
{
	(void)state;
	setup();
	t.cfg.max_tw = 1;
	start();
	listen_on(8);
	for (uint16_t port = 1; port <= 2; port++) {
		peer(.flags = TCPHDR_SYN, .rport = port);
		peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = port);
		t.c = tcp_accept(t.l);
		tcp_conn_set_user(t.c, &t.user);
		user_close();
		peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 2, .rport = port);
	}
	assert_int_equal(t.ts->num_tw, 1);
	assert_int_equal(t.gone, 1);
	end();
}

static void test_user_holds_closed_connection_over_time_wait(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	tcp_shutdown(t.c, SHUT_RDWR, t.now);
	tcp_flush(t.ts, t.now);
	sent();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 2);
	sent();
	pass(61 * SEC);
	assert_int_equal(t.gone, 0);
	user_close();
	assert_int_equal(t.gone, 1);
	end();
}

static void test_nothing_there(void **state)
{
	(void)state;
	setup();
	start();
	peer(.flags = TCPHDR_SYN, .seq = 10);
	assert_int_equal(sent()->flags, TCPHDR_RST | TCPHDR_ACK);
	peer(.flags = TCPHDR_ACK, .seq = 10, .ack = 77);
	sent_is(TCPHDR_RST, 77, 0);
	peer(.flags = TCPHDR_RST, .seq = 10);
	silent();
	end();
}

static void test_shutdown_read(void **state)
{
	(void)state;
	char c[8];

	setup();
	start();
	accepted_plain();
	assert_int_equal(tcp_shutdown(t.c, SHUT_RD, t.now), 0);
	assert_int_equal(tcp_ready(t.c), TCP_EV_IN | TCP_EV_RDHUP | TCP_EV_OUT);
	assert_int_equal(user_recv(c, sizeof(c), 0), 0);
	/* As in Linux data still come, and are read. */
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "more");
	reads("more");
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_active_open),
		cmocka_unit_test(test_full_queue_sends_later),
		cmocka_unit_test(test_a_held_syn),
		cmocka_unit_test(test_a_held_syn_is_given_up),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_simultaneous_open),
		cmocka_unit_test(test_simultaneous_open_reset),
		cmocka_unit_test(test_simultaneous_open_closed_before),
		cmocka_unit_test(test_rst_exact_only),
		cmocka_unit_test(test_rst_with_the_fins_number),
		cmocka_unit_test(test_rst_with_the_fins_number_in_closing),
		cmocka_unit_test(test_data_before_rst_is_read),
		cmocka_unit_test(test_syn_in_connection_challenged),
		cmocka_unit_test(test_numbers_that_the_peer_may_give),
		cmocka_unit_test(test_ack_range),
		cmocka_unit_test(test_out_of_window_answered),
		cmocka_unit_test(test_paws),
		cmocka_unit_test(test_paws_after_24_days),
		cmocka_unit_test(test_ts_recent_of_left_edge),
		cmocka_unit_test(test_half_close_and_time_wait),
		cmocka_unit_test(test_simultaneous_close),
		cmocka_unit_test(test_simultaneous_close_in_one_batch),
		cmocka_unit_test(test_passive_close),
		cmocka_unit_test(test_close_with_unread_data_resets),
		cmocka_unit_test(test_close_after_urgent_byte),
		cmocka_unit_test(test_unread_data_reset_in_closing),
		cmocka_unit_test(test_data_for_orphan_resets),
		cmocka_unit_test(test_orphan_fin_wait2_ends),
		cmocka_unit_test(test_orphan_fin_wait2_data_and_fin),
		cmocka_unit_test(test_linger2_zero),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_what_waits_for_the_flush_leaves_together),
		cmocka_unit_test(test_what_was_written_is_not_lost_by_a_reset),
		cmocka_unit_test(test_what_was_written_is_not_lost_by_data_for_an_orphan),
		cmocka_unit_test(test_what_was_written_is_not_held_by_what_follows),
		cmocka_unit_test(test_notsent_lowat_and_the_flush),
		cmocka_unit_test(test_too_many_orphans),
		cmocka_unit_test(test_time_wait_reuse_by_isn),
		cmocka_unit_test(test_time_wait_reuse_by_time_stamp),
		cmocka_unit_test(test_time_wait_rst_and_active_reuse),
		cmocka_unit_test(test_time_wait_and_a_handshake_of_others),
		cmocka_unit_test(test_time_wait_bounded),
		cmocka_unit_test(test_user_holds_closed_connection_over_time_wait),
		cmocka_unit_test(test_nothing_there),
		cmocka_unit_test(test_shutdown_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
