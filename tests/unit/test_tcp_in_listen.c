/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Listeners: which one, SYN and accept queue as Linux bounds them, cookies, TCP_DEFER_ACCEPT,
 * give-up, inheritance.
 */
#include "tcp_peer.h"

static const struct tcp_counters *n(void)
{
	return tcp_stack_counters(t.ts);
}

static void syn_from(uint16_t port)
{
	peer(.flags = TCPHDR_SYN, .mss = 1460, .rport = port);
}

static void connect_from(uint16_t port)
{
	syn_from(port);
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = port);
}

static void test_accept_queue_holds_backlog_and_one(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(2);
	for (uint16_t port = 1; port <= 3; port++) {
		connect_from(port);
		assert_int_equal(tcp_accept_queued(t.l), port);
	}
	assert_int_equal(t.lev, TCP_EV_IN);
	silent();
	/* Full: a SYN is not answered. */
	syn_from(4);
	silent();
	assert_int_equal(n()->listen_overflows, 1);
	assert_int_equal(n()->listen_drops, 1);
	assert_non_null(tcp_accept(t.l));
	syn_from(4);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	end();
}

static void test_overflow_leaves_the_connection_embryonic(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(1);
	syn_from(9);
	sent();
	uint32_t iss = t.iss;
	/* Meanwhile others fill the accept queue by cookies, since the SYN queue is full. */
	connect_from(1);
	connect_from(2);
	t.iss = iss;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 9);
	silent();
	assert_int_equal(tcp_accept_queued(t.l), 2);
	assert_int_equal(n()->listen_overflows, 1);
	assert_non_null(tcp_accept(t.l));
	/* The SYN|ACK again; this time there is room. */
	pass(SEC + MS);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .wnd = 77, .rport = 9);
	assert_int_equal(tcp_accept_queued(t.l), 2);
	end();
}

/* net.ipv4.tcp_abort_on_overflow */
static void test_overflow_resets_where_the_host_says_so(void **state)
{
	(void)state;
	setup();
	t.cfg.abort_on_overflow = true;
	start();
	listen_on(1);
	syn_from(9);
	sent();
	uint32_t iss = t.iss;
	connect_from(1);
	connect_from(2);
	silent();
	t.iss = iss;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 9);
	sent_is(TCPHDR_RST, 1, 0);
	assert_int_equal(n()->listen_overflows, 1);
	assert_int_equal(tcp_listen_requests(t.l), 0);
	/* Nothing is left of it. */
	assert_non_null(tcp_accept(t.l));
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 9);
	sent_is(TCPHDR_RST, 1, 0);
	assert_int_equal(tcp_accept_queued(t.l), 1);
	end();
}

/* net.ipv4.tcp_syncookies is 0: what the SYN queue does not hold is not answered. */
static void test_without_cookies_a_full_queue_is_silent(void **state)
{
	(void)state;
	setup();
	t.cfg.syncookies = 0;
	start();
	listen_on(1);
	syn_from(1);
	syn_from(2);
	sent();
	sent();
	for (uint16_t port = 3; port < 10; port++)
		syn_from(port);
	silent();
	assert_int_equal(n()->syn_cookies_sent, 0);
	assert_int_equal(n()->listen_drops, 7);
	assert_int_equal(tcp_listen_requests(t.l), 2);
	end();
}

/* It is 2: no SYN is kept. */
static void test_cookies_for_each_syn(void **state)
{
	(void)state;
	setup();
	t.cfg.syncookies = 2;
	start();
	listen_on(8);
	connect_from(1);
	assert_int_equal(n()->syn_cookies_sent, 1);
	assert_int_equal(n()->syn_cookies_recv, 1);
	assert_int_equal(tcp_accept_queued(t.l), 1);
	syn_from(2);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	assert_int_equal(tcp_listen_requests(t.l), 0);
	end();
}

static void test_answers_have_the_listeners_class_and_limit(void **state)
{
	const struct seg *s;

	(void)state;
	setup();
	t.o.tos = 0x10;
	t.o.ttl = 33;
	t.o.tos6 = 0xb8;
	t.o.ttl6 = 7;
	start();
	listen_on(0);
	for (uint16_t port = 1; port <= 2; port++) { /* the second one by a cookie */
		syn_from(port);
		s = sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
		assert_int_equal(s->tos, 0x10);
		assert_int_equal(s->ttl, 33);
	}
	end();
}

static void test_flood_costs_no_memory(void **state)
{
	(void)state;
	long before;

	setup();
	start();
	listen_on(2);
	syn_from(1);
	syn_from(2);
	syn_from(3); /* one more than the backlog, as in Linux */
	before = t.allocs;
	for (uint16_t port = 4; port < 100; port++)
		syn_from(port);
	assert_int_equal(t.allocs, before);
	assert_int_equal(n()->syn_cookies_sent, 96);
	t.n = t.taken = 0;
	end();
}

/* Options come back from the cookie's time stamp; without time stamps there are none. */
static void cookie(bool ts)
{
	const struct seg *s;
	uint32_t iss, tsval;

	setup();
	t.o.ecn = true;
	start();
	listen_on(0); /* after one, every SYN is one too many */
	syn_from(RPORT + 1);
	t.n = t.taken = 0;
	peer(.flags = TCPHDR_SYN | TCPHDR_ECE | TCPHDR_CWR, .mss = 1400, .sack_ok = true,
	     .wscale = true, .shift = 9, .ts = ts, .tsval = 7);
	s = sent();
	tsval = s->tsval;
	assert_int_equal(s->flags, TCPHDR_SYN | TCPHDR_ACK | (ts ? TCPHDR_ECE : 0));
	assert_int_equal(s->ts, ts);
	assert_int_equal(s->wscale, ts);
	assert_int_equal(s->sack_ok, ts);
	assert_int_equal(n()->syn_cookies_sent, 1);
	assert_int_equal(t.ts->table.count, 1);
	/* A wrong one is a stranger's. */
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 0x1000001, .ts = ts, .tsval = 8,
	     .tsecr = s->tsval);
	sent_is(TCPHDR_RST, 0x1000001, 0);
	iss = t.iss; /* the first SYN's answer is repeated meanwhile */
	pass(60 * SEC);
	t.iss = iss;
	t.n = t.taken = 0;
	peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .ts = ts, .tsval = 60008,
	     .tsecr = tsval, .wnd = 100, .data = "hello");
	assert_int_equal(n()->syn_cookies_recv, 1);
	t.c = tcp_accept(t.l);
	assert_non_null(t.c);
	assert_int_equal(t.c->ts_ok, ts);
	assert_int_equal(t.c->sack_ok, ts);
	assert_int_equal(t.c->ecn_ok, ts);
	assert_int_equal(t.c->snd_wscale, ts ? 9 : 0);
	assert_int_equal(t.c->snd_wnd, ts ? 100 << 9 : 100);
	assert_int_equal(t.c->peer_mss, 1300);
	reads("hello");
	end();
}

static void test_cookie_with_time_stamps(void **state)
{
	(void)state;
	cookie(true);
}

static void test_cookie_without_time_stamps(void **state)
{
	(void)state;
	cookie(false);
}

static void test_cookie_too_old(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(0);
	syn_from(60);
	t.n = t.taken = 0;
	syn_from(RPORT);
	sent();
	syn_from(2); /* others are still being sent */
	uint32_t iss = t.iss;
	pass(100 * SEC);
	syn_from(61); /* the first one was given up */
	syn_from(3);
	t.iss = iss;
	pass(30 * SEC);
	t.taken = t.n;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 2);
	assert_int_equal(sent()->flags, TCPHDR_RST);
	assert_int_equal(n()->syn_cookies_failed, 1);
	end();
}

static void test_synack_repeated_and_given_up(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	syn_from(1);
	sent();
	for (int i = 0; i < 5; i++) {
		pass((SEC << i) - 1);
		silent();
		pass(1);
		sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	}
	pass(32 * SEC);
	silent();
	assert_int_equal(t.ts->table.count, 0);
	assert_int_equal(n()->attempt_fails, 1);
	/* The ACK that comes too late. */
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 1);
	sent_is(TCPHDR_RST, 1, 0);
	end();
}

/*
 * A TCP_SYNCNT as large as can be: the interval stays two minutes, however often the SYN|ACK goes.
 */
static void test_embryo_backs_off_to_two_minutes(void **state)
{
	(void)state;
	setup();
	t.o.syn_retries = 127;
	start();
	listen_on(8);
	syn_from(1);
	sent();
	pass(127 * SEC); /* 1, 2, 4 ... 64 */
	for (unsigned i = 0; i < 100; i++) {
		t.n = t.taken = 0;
		pass(120 * SEC);
		assert_int_equal(t.n, 1);
	}
	t.n = t.taken = 0;
	end();
}

static void test_embryo_believes_no_stranger(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	syn_from(1);
	sent();
	syn_from(1); /* again: answered again */
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	t.now += SEC / 2;
	peer(.flags = TCPHDR_RST, .seq = 2, .rport = 1);
	sent_is(TCPHDR_ACK, 1, 1); /* RFC 5961, 3.2 */
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2, .rport = 1);
	sent_is(TCPHDR_RST, 2, 0);
	peer(.flags = TCPHDR_ACK, .seq = 100000, .ack = 1, .rport = 1);
	silent(); /* an answer was given just now */
	peer(.flags = 0, .seq = 1, .rport = 1);
	silent();
	assert_int_equal(t.l->num_reqs, 1);
	peer(.flags = TCPHDR_RST, .seq = 1, .rport = 1);
	assert_int_equal(t.l->num_reqs, 0);
	silent();
	end();
}

/* RFC 9293, 3.10.7.4, fourth: of a passive open, it returns to LISTEN. */
static void test_embryo_ends_with_another_syn(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	syn_from(1);
	sent();
	peer(.flags = TCPHDR_SYN, .seq = 1, .rport = 1);
	assert_int_equal(sent()->flags, TCPHDR_RST | TCPHDR_ACK);
	assert_int_equal(t.l->num_reqs, 0);
	peer(.flags = TCPHDR_SYN, .seq = 1, .rport = 1);
	assert_int_equal(sent()->flags, TCPHDR_SYN | TCPHDR_ACK);
	end();
}

static void test_data_with_the_final_ack(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	syn_from(RPORT);
	sent();
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 1, .data = "all of it");
	t.c = tcp_accept(t.l);
	assert_non_null(t.c);
	pass(SEC);
	sent_is(TCPHDR_ACK, 1, 11);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSE_WAIT);
	reads("all of it");
	end();
}

static void test_defer_accept(void **state)
{
	(void)state;
	setup();
	t.o.defer_accept_s = 5; /* three SYN|ACKs: after 1, 3, 7 s */
	start();
	listen_on(8);
	syn_from(RPORT);
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1);
	assert_int_equal(tcp_accept_queued(t.l), 0);
	pass(2 * SEC);
	silent(); /* nor is the SYN|ACK repeated: it was acknowledged */
	peer(.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "GET");
	assert_int_equal(tcp_accept_queued(t.l), 1);
	t.taken = t.n;
	/* Without data it is taken at the end. */
	syn_from(2);
	sent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 2);
	pass(8 * SEC);
	assert_int_equal(sent()->flags, TCPHDR_SYN | TCPHDR_ACK);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 2);
	assert_int_equal(tcp_accept_queued(t.l), 2);
	end();
}

static void test_syn_rate(void **state)
{
	(void)state;
	setup();
	t.cfg.max_syn_rate = 2;
	start();
	listen_on(100);
	for (uint16_t port = 1; port <= 4; port++)
		syn_from(port);
	sent();
	sent();
	silent();
	assert_int_equal(n()->syn_rate_limited, 2);
	/* Each listener's own. */
	tcp_listen_close(t.l, t.now);
	listen_on(100);
	syn_from(7);
	sent();
	t.now += SEC;
	syn_from(5);
	sent();
	end();
}

static void test_inheritance(void **state)
{
	(void)state;
	setup();
	t.o.nodelay = true;
	t.o.keepidle_s = 17;
	t.o.rcvbuf = t.o.rcvbuf_max = 30000;
	t.o.maxseg = 700;
	start();
	listen_on(8);
	peer(.flags = TCPHDR_SYN, .mss = 1460);
	assert_int_equal(sent()->mss, 700);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1);
	t.c = tcp_accept(t.l);
	assert_true(tcp_get_opts(t.c)->nodelay);
	assert_int_equal(tcp_get_opts(t.c)->keepidle_s, 17);
	assert_int_equal(tcp_get_opts(t.c)->rcvbuf, 30000);
	assert_int_equal(tcp_mss(t.c), 700);
	end();
}

static void test_max_conns(void **state)
{
	(void)state;
	setup();
	t.cfg.max_conns = 1;
	start();
	listen_on(8);
	connect_from(1);
	connect_from(2);
	assert_int_equal(tcp_accept_queued(t.l), 1);
	assert_int_equal(tcp_stack_conns(t.ts), 1);
	end();
}

static void test_no_memory(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	t.fail_after = 0;
	syn_from(1);
	silent();
	t.fail_after = -1;
	syn_from(1);
	sent();
	t.fail_after = 0;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 1);
	assert_int_equal(tcp_accept_queued(t.l), 0);
	t.fail_after = -1;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 1);
	assert_int_equal(tcp_accept_queued(t.l), 1);
	end();
}

static void test_close_resets_what_waits(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	connect_from(1);
	syn_from(2);
	sent();
	tcp_listen_close(t.l, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(sent()->flags, TCPHDR_RST | TCPHDR_ACK);
	silent();
	assert_int_equal(tcp_stack_conns(t.ts), 0);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 2);
	sent_is(TCPHDR_RST, 1, 0);
	end();
}

static void test_reset_before_accept(void **state)
{
	(void)state;
	setup();
	start();
	listen_on(8);
	connect_from(RPORT);
	peer(.flags = TCPHDR_RST, .seq = 1);
	t.c = tcp_accept(t.l);
	assert_non_null(t.c);
	tcp_conn_set_user(t.c, &t.user);
	assert_int_equal(user_recv((char[1]){0}, 1, 0), -ECONNRESET);
	user_close();
	assert_int_equal(t.gone, 1);
	end();
}

static struct tcp_listener *listener(const char *addr, uint8_t family, bool v6only, bool reuseport,
				     int want)
{
	struct tcp_listen_spec spec = {.port = LPORT,
				       .family = family,
				       .v6only = v6only,
				       .reuseport = reuseport,
				       .backlog = 8};
	struct tcp_listener *l = NULL;

	inet_pton(AF_INET6, addr, &spec.local);
	assert_int_equal(tcp_listen(t.ts, &spec, &t.o, &t.luser, &l), want);
	return l;
}

static void test_which_listener(void **state)
{
	(void)state;
	struct tcp_listener *any6, *any4, *exact, *a, *b;
	struct tcp_tuple u = tuple_of(1);
	unsigned of_a = 0;

	setup();
	start();
	any6 = listener("::", AF_INET6, true, false, 0);
	assert_null(tcp_listener_find(t.ts, &u));
	tcp_listen_close(any6, t.now);
	any6 = listener("::", AF_INET6, false, false, 0);
	assert_ptr_equal(tcp_listener_find(t.ts, &u), any6);
	any4 = listener("::ffff:0.0.0.0", AF_INET, false, false, 0);
	assert_ptr_equal(tcp_listener_find(t.ts, &u), any4);
	exact = listener("::ffff:10.0.0.1", AF_INET, false, false, 0);
	assert_ptr_equal(tcp_listener_find(t.ts, &u), exact);
	listener("::ffff:10.0.0.1", AF_INET, false, true, -EADDRINUSE);
	u.lport++;
	assert_null(tcp_listener_find(t.ts, &u));
	u.lport--;
	tcp_listen_close(exact, t.now);
	a = listener("::ffff:10.0.0.1", AF_INET, false, true, 0);
	b = listener("::ffff:10.0.0.1", AF_INET, false, true, 0);
	for (u.rport = 1; u.rport <= 1000; u.rport++) {
		struct tcp_listener *l = tcp_listener_find(t.ts, &u);

		assert_true(l == a || l == b);
		assert_ptr_equal(l, tcp_listener_find(t.ts, &u));
		of_a += l == a;
	}
	assert_in_range(of_a, 400, 600);
	end();
}

static struct tcp_conn *queued[4];
static unsigned num_queued;

static void note_queued(void *ctx, void *listener, struct tcp_conn *c)
{
	(void)ctx;
	assert_ptr_equal(listener, &t.luser);
	/* First of all that is said of it. */
	assert_int_equal(t.lev, 0);
	assert_int_equal(tcp_inq(c), 0);
	tcp_conn_set_user(c, &t.user);
	queued[num_queued++] = c;
}

static void test_what_waits_has_a_user_already(void **state)
{
	int other;

	(void)state;
	setup();
	t.env.queued = note_queued;
	num_queued = 0;
	start();
	listen_on(2);
	syn_from(1);
	sent();
	assert_int_equal(num_queued, 0);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "abc", .len = 3, .rport = 1);
	assert_int_equal(num_queued, 1);
	assert_int_equal(tcp_inq(queued[0]), 3);
	t.lev = 0;
	connect_from(2);
	t.lev = 0;
	connect_from(3);
	assert_int_equal(num_queued, 3);
	/*
	 * Accepted: the user is another, and what becomes of the two that wait is said to theirs.
	 */
	assert_ptr_equal(tcp_accept(t.l), queued[0]);
	assert_ptr_equal(tcp_conn_user(queued[0]), &t.user);
	tcp_conn_set_user(queued[0], &other);
	peer(.flags = TCPHDR_RST, .seq = 1, .rport = 2);
	assert_int_equal(t.gone, 0);
	tcp_listen_close(t.l, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(t.gone, 2);
	end();
}

static bool others(void *ctx, const struct tcp_tuple *tuple, bool opens)
{
	(void)ctx;
	return tuple->lport == LPORT && (!opens || tuple->rport == 2);
}

/* A port that somebody else has connections of, too. What has begun here goes on. */
static void test_what_is_others_is_not_answered(void **state)
{
	(void)state;
	setup();
	t.env.is_others = others;
	start();
	listen_on(2);
	syn_from(1);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	syn_from(2);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 3, .data = "hello");
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 6, .ack = 1, .rport = 3);
	silent();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 1);
	assert_int_equal(tcp_accept_queued(t.l), 1);
	end();
}

/* Which clients' handshakes have begun and not ended, by their ports. */
static uint32_t begun;

static int note_begins(void *ctx, void *listener, const struct tcp_tuple *tuple)
{
	(void)ctx;
	assert_ptr_equal(listener, &t.luser);
	assert_false(begun & 1u << tuple->rport);
	if (tuple->rport == 9)
		return -ENOSPC;
	if (tuple->rport == 8)
		return 0;
	begun |= 1u << tuple->rport;
	return 1;
}

static void note_ended(void *ctx, const struct tcp_tuple *tuple)
{
	(void)ctx;
	assert_true(begun & 1u << tuple->rport);
	begun &= ~(1u << tuple->rport);
}

static bool note_later(const struct tcp_tuple *tuple, void *arg)
{
	*(unsigned *)arg += tuple->rport;
	begun |= 1u << tuple->rport;
	return true;
}

static void start_noting(int backlog)
{
	setup();
	t.env.begins = note_begins;
	t.env.ended = note_ended;
	begun = 0;
	start();
	listen_on(backlog);
}

static void test_a_handshake_that_may_not_begin_is_not_answered(void **state)
{
	(void)state;
	start_noting(4);
	syn_from(9);
	silent();
	assert_int_equal(n()->listen_drops, 1);
	assert_int_equal(tcp_listen_requests(t.l), 0);
	/* Nor by a cookie's answer. */
	tcp_listen_backlog(t.l, 0);
	syn_from(1);
	sent();
	syn_from(9);
	sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 9);
	silent();
	assert_int_equal(tcp_accept_queued(t.l), 0);
	end();
}

/* Told once for each, at once, whichever way it ends, and not of what is accepted. */
static void test_the_end_of_what_has_begun_is_told(void **state)
{
	struct tcp_conn *c;

	(void)state;
	start_noting(8);
	for (uint16_t port = 1; port <= 5; port++) {
		syn_from(port);
		sent();
		assert_int_equal(begun, (1u << (port + 1)) - 2);
		if (port >= 3)
			peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = port);
	}
	peer(.flags = TCPHDR_RST, .seq = 1, .rport = 1);
	assert_int_equal(begun, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5);
	c = tcp_accept(t.l);
	assert_true(tcp_ended_taken(c));
	assert_false(tcp_ended_taken(c));
	tcp_abort(c, t.now);
	tcp_flush(t.ts, t.now);
	assert_true(begun & 1u << 3);
	/* Reset before it is accepted. */
	peer(.flags = TCPHDR_RST, .seq = 1, .rport = 4);
	assert_int_equal(begun, 1u << 2 | 1u << 3 | 1u << 5);
	tcp_listen_close(t.l, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(begun, 1u << 3);
	end();
}

static void test_what_has_begun_untold_can_be_told_later(void **state)
{
	unsigned sum = 0;

	(void)state;
	start_noting(8);
	connect_from(8);
	t.env.begins = NULL;
	syn_from(3);
	tcp_each_unaccepted(t.ts, note_later, &sum);
	assert_int_equal(sum, 8);
	tcp_each_unaccepted(t.ts, note_later, &sum);
	assert_int_equal(sum, 8);
	tcp_listen_close(t.l, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(begun, 0);
	end();
}

/* Another process has answered the SYN: its ACK is for whoever has the port now. */
static void test_a_cookie_of_another_stack(void **state)
{
	uint32_t iss;

	(void)state;
	setup();
	start();
	listen_on(0);
	syn_from(1);
	syn_from(2);
	iss = t.iss;
	end();
	for (unsigned joint = 0; joint < 2; joint++) {
		struct tcp_listen_spec spec = {
			.family = AF_INET, .port = LPORT, .backlog = 1, .joint = joint != 0};

		setup();
		start();
		assert_int_equal(tcp_listen(t.ts, &spec, &t.o, &t.luser, &t.l), 0);
		t.iss = iss;
		peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .rport = 2);
		assert_int_equal(tcp_accept_queued(t.l), joint);
		end();
	}
}

/* Its port is another one's at once; with nobody else there what comes is dropped. */
static void test_a_stopped_listener_stands_in_nobodys_way(void **state)
{
	struct tcp_listener *old;

	(void)state;
	for (unsigned reuseport = 0; reuseport < 2; reuseport++) {
		struct tcp_listen_spec spec = {.local = tuple_of(0).local,
					       .family = AF_INET,
					       .port = LPORT,
					       .backlog = 8,
					       .reuseport = reuseport != 0};

		setup();
		start();
		assert_int_equal(tcp_listen(t.ts, &spec, &t.o, &t.luser, &old), 0);
		t.l = old;
		syn_from(1);
		sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
		tcp_listen_stop(old);
		syn_from(2);
		silent();
		assert_int_equal(tcp_listen(t.ts, &spec, &t.o, &t.luser, &t.l), 0);
		for (uint16_t port = 10; port < 15; port++) {
			syn_from(port);
			sent_is(TCPHDR_SYN | TCPHDR_ACK, 0, 1);
		}
		assert_int_equal(tcp_listen_requests(t.l), 5);
		assert_int_equal(tcp_listen_requests(old), 1);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accept_queue_holds_backlog_and_one),
		cmocka_unit_test(test_overflow_leaves_the_connection_embryonic),
		cmocka_unit_test(test_overflow_resets_where_the_host_says_so),
		cmocka_unit_test(test_without_cookies_a_full_queue_is_silent),
		cmocka_unit_test(test_cookies_for_each_syn),
		cmocka_unit_test(test_answers_have_the_listeners_class_and_limit),
		cmocka_unit_test(test_flood_costs_no_memory),
		cmocka_unit_test(test_cookie_with_time_stamps),
		cmocka_unit_test(test_cookie_without_time_stamps),
		cmocka_unit_test(test_cookie_too_old),
		cmocka_unit_test(test_synack_repeated_and_given_up),
		cmocka_unit_test(test_embryo_backs_off_to_two_minutes),
		cmocka_unit_test(test_embryo_believes_no_stranger),
		cmocka_unit_test(test_embryo_ends_with_another_syn),
		cmocka_unit_test(test_data_with_the_final_ack),
		cmocka_unit_test(test_defer_accept),
		cmocka_unit_test(test_syn_rate),
		cmocka_unit_test(test_inheritance),
		cmocka_unit_test(test_max_conns),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_close_resets_what_waits),
		cmocka_unit_test(test_reset_before_accept),
		cmocka_unit_test(test_which_listener),
		cmocka_unit_test(test_what_waits_has_a_user_already),
		cmocka_unit_test(test_what_is_others_is_not_answered),
		cmocka_unit_test(test_a_handshake_that_may_not_begin_is_not_answered),
		cmocka_unit_test(test_the_end_of_what_has_begun_is_told),
		cmocka_unit_test(test_what_has_begun_untold_can_be_told_later),
		cmocka_unit_test(test_a_cookie_of_another_stack),
		cmocka_unit_test(test_a_stopped_listener_stands_in_nobodys_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
