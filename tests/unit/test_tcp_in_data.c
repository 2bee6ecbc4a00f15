/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The receive queues: order, SACK and D-SACK, the window and memory, when to acknowledge, ECN,
 * urgent data.
 */
#include "tcp_peer.h"

static void data(uint32_t seq, const char *what)
{
	peer(.flags = TCPHDR_ACK, .seq = seq, .ack = 1, .data = what);
}

static const struct seg *sacked(const struct seg *s, unsigned i, uint32_t start, uint32_t end)
{
	assert_true(i < s->num_sacks);
	assert_int_equal(s->sack[i].start, start);
	assert_int_equal(s->sack[i].end, end);
	return s;
}

static void test_out_of_order(void **state)
{
	(void)state;
	const struct seg *s;

	setup();
	start();
	accepted_plain();
	data(11, "klmno");
	s = sacked(sent_is(TCPHDR_ACK, 1, 1), 0, 11, 16);
	assert_int_equal(s->num_sacks, 1);
	data(21, "uvwxy");
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 0, 21, 26); /* the latest first (RFC 2018, 4) */
	sacked(s, 1, 11, 16);
	data(6, "fghij");
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 0, 6, 16);
	sacked(s, 1, 21, 26);
	assert_int_equal(t.events & TCP_EV_IN, 0);
	data(1, "abcde");
	s = sent_is(TCPHDR_ACK, 1, 16); /* at once: a gap was filled */
	sacked(s, 0, 21, 26);
	assert_int_equal(s->num_sacks, 1);
	data(16, "pqrst");
	s = sent_is(TCPHDR_ACK, 1, 26);
	assert_int_equal(s->num_sacks, 0);
	reads("abcdefghijklmnopqrstuvwxy");
	assert_int_equal(t.c->rcvq.charge, 0);
	assert_int_equal(t.c->ofo_charge, 0);
	end();
}

static void test_overlaps_are_cut(void **state)
{
	(void)state;
	const struct seg *s;

	setup();
	start();
	accepted_plain();
	data(6, "fgh");
	sent();
	data(11, "kl");
	sent();
	/* Covers the one, begins in the other's gap, ends in it: D-SACK of what it repeats. */
	data(4, "defghijk");
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 1, 4, 13);
	data(7, "ghij"); /* all of it there */
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 0, 7, 11);
	sacked(s, 1, 4, 13);
	data(12, "lmn"); /* its front is there */
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 0, 12, 13);
	sacked(s, 1, 4, 15);
	data(1, "abcdef");
	s = sent_is(TCPHDR_ACK, 1, 15);
	sacked(s, 0, 4, 7);
	reads("abcdefghijklmn");
	end();
}

static void test_duplicate_tells_where_it_lies(void **state)
{
	(void)state;
	const struct seg *s;

	setup();
	start();
	accepted_plain();
	data(6, "fgh");
	data(16, "pq");
	t.taken = t.n;
	data(6, "fgh");
	s = sent_is(TCPHDR_ACK, 1, 1);
	sacked(s, 0, 6, 9);
	sacked(s, 1, 6, 9); /* RFC 2883, 4: the block that it lies in comes next */
	sacked(s, 2, 16, 18);
	end();
}

static void test_nothing_replaces_the_fin(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 4, .ack = 1, .data = "def");
	data(2, "bcdefghijk");
	data(1, "a");
	t.taken = t.n;
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSE_WAIT);
	reads("abcdef");
	end();
}

static void test_fragments_are_cut(void **state)
{
	(void)state;
	struct seg s = {.flags = TCPHDR_ACK,
			.seq = 3,
			.ack = 1,
			.wnd = 1000,
			.data = "cdefghijklmnop",
			.len = 14};

	setup();
	start();
	accepted_plain();
	data(10, "jk");
	tcp_input(t.ts, frame(&s, 3), t.now); /* replaces it */
	assert_int_equal(t.bufs, 5);
	data(21, "uv");
	s.seq = 15;
	s.data = "opqrstuvw";
	s.len = 9;
	tcp_input(t.ts, frame(&s, 2),
		  t.now); /* loses both ends: "v" and "o", which are there; replaces the middle */
	data(1, "ab");
	reads("abcdefghijklmnopqrstuvw");
	end();
}

static void test_tail_of_fragments_is_cut(void **state)
{
	(void)state;
	struct seg s = {
		.flags = TCPHDR_ACK, .seq = 3, .ack = 1, .wnd = 1000, .data = "cdefghij", .len = 8};

	setup();
	start();
	accepted_plain();
	data(6, "fghijklm");
	tcp_input(t.ts, frame(&s, 2), t.now);
	assert_int_equal(t.bufs, 3);
	data(1, "ab");
	reads("abcdefghijklm");
	end();
}

/* The user made the buffer smaller than what was on its way. */
static void test_empty_queue_takes_one(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	t.c->o.rcvbuf = t.c->o.rcvbuf_max = 50;
	data(1, "abc");
	assert_int_equal(tcp_inq(t.c), 3);
	data(4, "def");
	assert_int_equal(tcp_inq(t.c), 3);
	reads("abc");
	data(4, "def");
	reads("def");
	end();
}

static void test_dsack_of_what_was_acknowledged(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	data(1, "abcdef");
	pass(SEC);
	sent_is(TCPHDR_ACK, 1, 7);
	data(1, "abcdef");
	sacked(sent_is(TCPHDR_ACK, 1, 7), 0, 1, 7);
	data(4, "defghi"); /* half old: the new half counts */
	sacked(sent_is(TCPHDR_ACK, 1, 10), 0, 4, 7);
	reads("abcdefghi");
	end();
}

static void test_fin_out_of_order(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 4, .ack = 1, .data = "def");
	sacked(sent_is(TCPHDR_ACK, 1, 1), 0, 4, 8);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	data(8, "beyond"); /* behind the end of the stream: never */
	sent();
	data(1, "abc");
	sent_is(TCPHDR_ACK, 1, 8);
	assert_int_equal(tcp_conn_state(t.c), TCPS_CLOSE_WAIT);
	reads("abcdef");
	assert_int_equal(user_recv((char[1]){0}, 1, 0), 0);
	end();
}

static void test_what_lies_behind_a_fin_is_dropped(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	data(11, "beyond");
	sent();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 1, .ack = 1, .data = "abc");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, 5)->num_sacks, 0);
	assert_int_equal(t.bufs, 1);
	end();
}

/*
 * Data that came before the FIN that they lie behind: the FIN's number must not become a byte of
 * the stream.
 */
static void test_what_touches_a_fin_is_dropped(void **state)
{
	(void)state;

	setup();
	start();
	accepted_plain();
	data(8, "hij");
	sent();
	data(15, "op");
	sent();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 4, .ack = 1, .data = "def");
	sent();
	assert_int_equal(t.c->ofo_count, 1);
	assert_true(t.c->ofo->fin);
	data(1, "abc");
	sent_is(TCPHDR_ACK, 1, 8);
	assert_int_equal(tcp_inq(t.c), 6);
	reads("abcdef");
	assert_int_equal(t.c->state, TCPS_CLOSE_WAIT);
	end();
}

static void test_bare_fin_behind_gap(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = 4, .ack = 1);
	sacked(sent_is(TCPHDR_ACK, 1, 1), 0, 4, 5);
	data(1, "abc");
	sent_is(TCPHDR_ACK, 1, 5);
	reads("abc");
	end();
}

static void test_fragments(void **state)
{
	(void)state;
	struct seg s = {.flags = TCPHDR_ACK,
			.seq = 1,
			.ack = 1,
			.wnd = 1000,
			.data = "abcdefghijklmnop",
			.len = 16};
	char c[8];

	setup();
	start();
	accepted_plain();
	tcp_input(t.ts, frame(&s, 3), t.now);
	assert_int_equal(user_recv(c, 2, MSG_PEEK), 2);
	assert_int_equal(user_recv(c, 4, 0), 4);
	assert_memory_equal(c, "abcd", 4);
	assert_int_equal(user_recv(c, 2, MSG_TRUNC), 2);
	assert_int_equal(t.bufs, 4); /* the read fragments are given back */
	/* The same again with more behind it: cut in the middle of a fragment. */
	s.data = "abcdefghijklmnopqrst";
	s.len = 20;
	tcp_input(t.ts, frame(&s, 3), t.now);
	reads("ghijklmnopqrst");
	end();
}

/* Data that came at that time, in fragments of `piece`. */
static void data_at(uint64_t ns, uint32_t seq, const char *what, uint32_t piece)
{
	struct seg s = {.flags = TCPHDR_ACK,
			.seq = seq,
			.ack = 1,
			.wnd = 1000,
			.data = what,
			.len = (uint32_t)strlen(what)};
	struct buf *b = frame(&s, piece);

	b->time_ns = ns;
	tcp_input(t.ts, b, t.now);
	tcp_flush(t.ts, t.now);
}

/* The user reads exactly this, whose last byte came at that time. */
static void reads_of(const char *want, uint64_t ns)
{
	char got[64];

	assert_int_equal(user_recv(got, strlen(want), TCP_RECV_TIME), strlen(want));
	assert_memory_equal(got, want, strlen(want));
	assert_int_equal(tcp_read_time(t.c), ns);
}

/* A frame of several fragments, read in pieces: those behind the first have its time. */
static void test_time_of_fragments(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	data_at(111, 1, "abcdefghi", 3);
	reads_of("ab", 111);
	reads_of("cd", 111);
	reads_of("efg", 111);
	data_at(222, 10, "jk", 3);
	reads_of("h", 111);
	reads_of("ij", 222);
	end();
}

/* What is copied together, in order and behind a hole, for want of room. */
static void test_time_of_copies(void **state)
{
	(void)state;
	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 16384; /* a fragment counts for 4,096 bytes */
	start();
	accepted_plain();
	data_at(111, 1, "a", 9);
	data_at(222, 2, "b", 9);
	data_at(333, 3, "c", 9);
	assert_true(tcp_stack_counters(t.ts)->rcv_collapsed > 0);
	reads_of("abc", 333);
	end();
	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 16384;
	start();
	accepted_plain();
	data_at(111, 3, "c", 9);
	data_at(222, 5, "e", 9);
	assert_true(tcp_stack_counters(t.ts)->rcv_collapsed > 0);
	data_at(333, 1, "ab", 9);
	data_at(444, 4, "d", 9);
	reads_of("ab", 333);
	reads_of("c", 111);
	reads_of("d", 444);
	reads_of("e", 222);
	end();
}

static void test_window_edge(void **state)
{
	(void)state;
	char c[8192];
	uint32_t right = 1, wnd;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 4096;
	start();
	accepted_plain();
	assert_int_equal(tcp_rcv_window(t.c), 1460);
	/* Of each segment what the window has room for is taken, the rest and its FIN are not. */
	while ((wnd = tcp_rcv_window(t.c))) {
		right = t.c->rcv_nxt - PEER_ISN + wnd;
		peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = right - wnd, .ack = 1,
		     .len = wnd + 10);
		pass(SEC);
		sent_is(TCPHDR_ACK, 1, right);
		assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	}
	assert_true(right > 2048 && right < 4096);
	/* A probe of the closed window, with data and without. */
	peer(.flags = TCPHDR_ACK, .seq = right, .ack = 1, .data = "b");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, right)->wnd, 0);
	t.now += SEC;
	peer(.flags = TCPHDR_ACK, .seq = right - 1, .ack = 1);
	assert_int_equal(sent_is(TCPHDR_ACK, 1, right)->wnd, 0);
	silent();
	/* A FIN alone needs no room. */
	peer(.flags = TCPHDR_FIN | TCPHDR_ACK, .seq = right, .ack = 1);
	pass(SEC);
	sent_is(TCPHDR_ACK, 1, right + 1);
	assert_int_equal(user_recv(c, sizeof(c), 0), right - 1);
	end();
}

static void test_window_opens(void **state)
{
	(void)state;
	char c[8192];
	uint32_t wnd;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 4096;
	start();
	accepted_plain();
	while ((wnd = tcp_rcv_window(t.c))) {
		peer(.flags = TCPHDR_ACK, .seq = t.c->rcv_nxt - PEER_ISN, .ack = 1, .len = wnd);
		pass(SEC);
	}
	t.taken = t.n;
	/* Not for a little (RFC 9293, 3.8.6.2.2), but for half of the buffer. */
	assert_int_equal(user_recv(c, 10, 0), 10);
	silent();
	assert_true(user_recv(c, sizeof(c), 0) > 0);
	assert_in_range(sent_is(TCPHDR_ACK, 1, t.c->rcv_nxt - PEER_ISN)->wnd, 1000, 2048);
	end();
}

/*
 * A segment fills the buffer: what is left of a window that was not quite filled must not stay all
 * there is.
 */
static void test_window_of_one_segment_opens(void **state)
{
	(void)state;
	char c[8192];

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 2800;
	start();
	accepted_plain();
	for (unsigned len = 1400; len >= 1399; len--) {
		assert_int_equal(tcp_rcv_window(t.c), 1400);
		peer(.flags = TCPHDR_ACK, .seq = t.c->rcv_nxt - PEER_ISN, .ack = 1, .len = len);
		pass(SEC);
		t.taken = t.n;
		assert_int_equal(user_recv(c, sizeof(c), 0), len);
		assert_int_equal(sent_is(TCPHDR_ACK, 1, t.c->rcv_nxt - PEER_ISN)->wnd, 1400);
	}
	end();
}

static void test_window_never_shrinks(void **state)
{
	(void)state;
	static char one[1001];
	uint32_t right = 0;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 32768;
	start();
	accepted_plain();
	memset(one, 'a', 1000);
	for (uint32_t seq = 1; seq < 12000; seq += 1000) {
		data(seq, one);
		while (t.taken < t.n) {
			const struct seg *s = sent();

			assert_true(s->ack + s->wnd >= right);
			right = s->ack + s->wnd;
		}
	}
	assert_int_equal(tcp_inq(t.c), 12000);
	end();
}

/* Whatever is told is taken, however badly the bufs are filled; and rcvbuf bounds memory. */
static void test_window_holds_with_tiny_segments(void **state)
{
	(void)state;
	uint32_t n = 0;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 65536;
	start();
	accepted_plain();
	for (uint32_t seq = 1; tcp_rcv_window(t.c) > 0; seq += 10) {
		uint32_t len = tcp_rcv_window(t.c) < 10 ? tcp_rcv_window(t.c) : 10;

		peer(.flags = TCPHDR_ACK, .seq = seq, .ack = 1, .len = len);
		t.n = t.taken = 0;
		n += len;
		assert_int_equal(tcp_inq(t.c), n);
	}
	assert_true(n > 16384);
	assert_true(t.bufs < 40);
	assert_true(t.c->rcvq.charge <= t.o.rcvbuf);
	end();
}

static void test_ofo_bounded_and_pruned(void **state)
{
	(void)state;
	uint32_t seq;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 16384;
	start();
	accepted_plain();
	for (seq = 7001; seq > 10; seq -= 3) {
		data(seq, "x");
		t.n = t.taken = 0;
		assert_true(t.c->ofo_charge + t.c->rcvq.charge <= t.o.rcvbuf);
	}
	assert_true(tcp_stack_counters(t.ts)->ofo_drop > 0);
	/* What is in order finds room at their cost. */
	data(1, "abc");
	assert_int_equal(tcp_inq(t.c), 3);
	assert_true(t.c->ofo_charge + t.c->rcvq.charge <= t.o.rcvbuf);
	end();
}

static void test_no_memory_loses_nothing(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	t.fail_after = 0;
	data(4, "def");
	assert_int_equal(sent_is(TCPHDR_ACK, 1, 1)->num_sacks, 0);
	data(1, "abc");
	t.fail_after = -1;
	data(4, "def");
	reads("abcdef");
	end();
}

static void test_delayed_ack(void **state)
{
	(void)state;
	static char full[1461];

	setup();
	start();
	accepted_plain();
	data(1, "a");
	silent();
	assert_true(t.events & TCP_EV_IN);
	pass(39 * MS);
	silent();
	pass(200 * MS);
	sent_is(TCPHDR_ACK, 1, 2);
	/* The second full segment is acknowledged at once. */
	memset(full, 'b', 1460);
	t.c->rcv_mss = 1460;
	t.c->rcv_ssthresh = t.c->window_clamp; /* a window that grows is told at once */
	reads("a");
	data(2, full);
	silent();
	data(1462, full);
	sent_is(TCPHDR_ACK, 1, 2922);
	end();
}

static void test_quickack_at_start(void **state)
{
	(void)state;
	setup();
	start();
	accepted((struct seg){.mss = 1460, .sack_ok = true});
	data(1, "a");
	sent_is(TCPHDR_ACK, 1, 2);
	data(2, "b");
	sent_is(TCPHDR_ACK, 1, 3);
	end();
}

/* A server that answers: its data carry the ACKs, and from then on a request waits for them. */
static void test_pingpong(void **state)
{
	(void)state;
	struct iovec iov = {(char[]){"pong"}, 4};

	setup();
	start();
	accepted((struct seg){.mss = 1460, .sack_ok = true});
	peer_batch((struct seg){.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "ping"});
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 4);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_ACK | TCPHDR_PSH, 1, 5);
	silent();
	t.now += MS;
	peer(.flags = TCPHDR_ACK, .seq = 5, .ack = 5, .data = "ping");
	silent();
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 4);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_ACK | TCPHDR_PSH, 5, 9);
	pass(100 * MS);
	t.taken = t.n; /* the probe of the tail's loss */
	end();
}

static void test_batch_is_one_answer(void **state)
{
	(void)state;
	static char full[1461];

	setup();
	start();
	accepted_plain();
	memset(full, 'b', 1460);
	for (int i = 0; i < 8; i++)
		peer_batch((struct seg){
			.flags = TCPHDR_ACK, .seq = 1 + 1460 * i, .ack = 1, .data = full});
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_ACK, 1, 1 + 8 * 1460);
	silent();
	end();
}

static void test_dup_acks_without_sack(void **state)
{
	(void)state;
	setup();
	start();
	accepted((struct seg){.mss = 1460});
	for (int i = 0; i < 3; i++)
		peer_batch((struct seg){
			.flags = TCPHDR_ACK, .seq = 11 + 5 * i, .ack = 1, .data = "abcde"});
	for (int i = 0; i < 3; i++)
		sent_is(TCPHDR_ACK, 1, 1); /* one each: the sender counts them */
	tcp_flush(t.ts, t.now);
	silent();
	end();
}

static void test_ecn(void **state)
{
	(void)state;
	setup();
	t.o.ecn = true;
	start();
	listen_on(8);
	peer(.flags = TCPHDR_SYN | TCPHDR_ECE | TCPHDR_CWR, .mss = 1460);
	assert_int_equal(sent()->flags, TCPHDR_SYN | TCPHDR_ACK | TCPHDR_ECE);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1);
	t.c = tcp_accept(t.l);
	tcp_conn_set_user(t.c, &t.user);
	t.c->quick = 0;
	t.c->ato_us = 40000;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "a", .ecn = 3);
	sent_is(TCPHDR_ACK | TCPHDR_ECE, 1, 2);
	peer(.flags = TCPHDR_ACK, .seq = 2, .ack = 1, .data = "b", .ecn = 2);
	sent_is(TCPHDR_ACK | TCPHDR_ECE, 1, 3);
	peer(.flags = TCPHDR_ACK | TCPHDR_CWR, .seq = 3, .ack = 1, .data = "c", .ecn = 2);
	sent_is(TCPHDR_ACK, 1, 4);
	end();
}

/* --- urgent data */

static void test_urgent_out_of_line(void **state)
{
	(void)state;
	char c[16];

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_URG, .seq = 1, .ack = 1, .data = "abXcd", .urg = 3);
	assert_true(t.events & TCP_EV_PRI);
	assert_true(tcp_ready(t.c) & TCP_EV_PRI);
	assert_int_equal(tcp_inq(t.c), 2);
	assert_false(tcp_at_mark(t.c));
	assert_int_equal(user_recv(c, sizeof(c), 0), 2); /* stops at the mark */
	assert_memory_equal(c, "ab", 2);
	assert_true(tcp_at_mark(t.c));
	assert_int_equal(user_recv(c, 1, MSG_OOB | MSG_PEEK), 1);
	assert_int_equal(user_recv(c, sizeof(c), MSG_OOB), 1);
	assert_int_equal(c[0], 'X');
	assert_int_equal(user_recv(c, 1, MSG_OOB), -EINVAL);
	assert_int_equal(tcp_ready(t.c) & TCP_EV_PRI, 0);
	reads("cd");
	assert_false(tcp_at_mark(t.c));
	assert_int_equal(user_recv(c, 1, MSG_OOB), -EINVAL);
	end();
}

static void test_urgent_of_what_was_received(void **state)
{
	(void)state;
	setup();
	start();
	accepted_plain();
	data(1, "abcdef");
	t.events = 0;
	/* It was not urgent when it came, and it cannot become so. */
	peer(.flags = TCPHDR_ACK | TCPHDR_URG, .seq = 1, .ack = 1, .data = "abcdefg", .urg = 3);
	assert_int_equal(t.events & TCP_EV_PRI, 0);
	reads("abcdefg");
	end();
}

static void test_urgent_inline(void **state)
{
	(void)state;
	char c[16];

	setup();
	t.o.oobinline = true;
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_URG, .seq = 1, .ack = 1, .data = "abXcd", .urg = 3);
	assert_int_equal(user_recv(c, sizeof(c), 0), 2);
	assert_true(tcp_at_mark(t.c));
	assert_int_equal(user_recv(c, 1, MSG_OOB), -EINVAL);
	reads("Xcd");
	end();
}

static void test_urgent_announced_first(void **state)
{
	(void)state;
	char c[4];

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_URG, .seq = 1, .ack = 1, .urg = 3);
	assert_int_equal(user_recv(c, 1, MSG_OOB), -EAGAIN);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "abX");
	assert_int_equal(user_recv(c, 1, MSG_OOB), 1);
	assert_int_equal(c[0], 'X');
	reads("ab");
	/* Only the byte is left, and it is not of the stream. */
	assert_int_equal(tcp_ready(t.c) & TCP_EV_IN, 0);
	assert_int_equal(user_recv(c, 1, 0), -EAGAIN);
	end();
}

static void test_autotuning(void **state)
{
	(void)state;
	static char full[1461], c[65536];
	uint32_t seq = 1;

	setup();
	start();
	accepted((struct seg){.mss = 1460, .sack_ok = true, .wscale = true, .shift = 7});
	memset(full, 'b', 1460);
	for (int round = 0; round < 60; round++) {
		uint32_t wnd = tcp_rcv_window(t.c);

		for (uint32_t n = 0; n + 1460 <= wnd; n += 1460, seq += 1460)
			peer_batch((struct seg){
				.flags = TCPHDR_ACK, .seq = seq, .ack = 1, .data = full});
		tcp_flush(t.ts, t.now);
		while (user_recv(c, sizeof(c), 0) > 0)
			;
		t.n = t.taken = 0;
		pass(10 * MS);
		t.n = t.taken = 0;
	}
	assert_true(t.c->o.rcvbuf > 1000000);
	assert_true(tcp_rcv_window(t.c) > 500000);
	assert_true(t.c->o.rcvbuf <= t.o.rcvbuf_max);
	end();
}

static void test_steady_reader_needs_no_more(void **state)
{
	(void)state;
	uint32_t seq = 1;

	setup();
	start();
	accepted((struct seg){.mss = 1460, .ts = true, .tsval = 1});
	for (int round = 0; round < 100; round++, seq += 1000) {
		peer(.flags = TCPHDR_ACK, .seq = seq, .ack = 1, .len = 1000, .ts = true, .tsval = 1,
		     .tsecr = tcp_ts_now(t.c) - 10);
		user_recv((char[1000]){0}, 1000, 0);
		pass(50 * MS);
		t.n = t.taken = 0;
	}
	assert_int_equal(t.c->o.rcvbuf, 131072);
	end();
}

/* However many holes a peer makes, looking through them stays cheap. */
static void test_intervals_bounded(void **state)
{
	(void)state;
	uint32_t n = 0;

	setup();
	t.o.rcvbuf = t.o.rcvbuf_max = 4000000;
	start();
	accepted((struct seg){.mss = 1460, .sack_ok = true, .wscale = true, .shift = 7});
	for (uint32_t seq = 3; seq < 6000; seq += 2) {
		data(seq, "x");
		t.n = t.taken = 0;
	}
	for (const struct tcp_ofo *o = t.c->ofo; o; o = o->next)
		n++;
	assert_int_equal(n, TCP_OFO_MAX);
	/* What comes nearer takes the place of what is farthest. */
	data(1, "ab");
	t.n = t.taken = 0;
	assert_int_equal(tcp_inq(t.c), 3);
	data(5 + 1, "f");
	assert_int_equal(t.c->ofo->end - PEER_ISN, 8);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_overlaps_are_cut),
		cmocka_unit_test(test_duplicate_tells_where_it_lies),
		cmocka_unit_test(test_nothing_replaces_the_fin),
		cmocka_unit_test(test_fragments_are_cut),
		cmocka_unit_test(test_tail_of_fragments_is_cut),
		cmocka_unit_test(test_empty_queue_takes_one),
		cmocka_unit_test(test_dsack_of_what_was_acknowledged),
		cmocka_unit_test(test_fin_out_of_order),
		cmocka_unit_test(test_what_lies_behind_a_fin_is_dropped),
		cmocka_unit_test(test_what_touches_a_fin_is_dropped),
		cmocka_unit_test(test_bare_fin_behind_gap),
		cmocka_unit_test(test_urgent_of_what_was_received),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_time_of_fragments),
		cmocka_unit_test(test_time_of_copies),
		cmocka_unit_test(test_window_edge),
		cmocka_unit_test(test_window_opens),
		cmocka_unit_test(test_window_of_one_segment_opens),
		cmocka_unit_test(test_window_never_shrinks),
		cmocka_unit_test(test_window_holds_with_tiny_segments),
		cmocka_unit_test(test_ofo_bounded_and_pruned),
		cmocka_unit_test(test_no_memory_loses_nothing),
		cmocka_unit_test(test_delayed_ack),
		cmocka_unit_test(test_quickack_at_start),
		cmocka_unit_test(test_pingpong),
		cmocka_unit_test(test_batch_is_one_answer),
		cmocka_unit_test(test_dup_acks_without_sack),
		cmocka_unit_test(test_ecn),
		cmocka_unit_test(test_urgent_out_of_line),
		cmocka_unit_test(test_urgent_inline),
		cmocka_unit_test(test_urgent_announced_first),
		cmocka_unit_test(test_autotuning),
		cmocka_unit_test(test_steady_reader_needs_no_more),
		cmocka_unit_test(test_intervals_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
