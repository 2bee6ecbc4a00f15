/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the user takes off the receive queue without a copy, and what it is shown before it reads.
 */
#include "tcp_peer.h"

static void data(uint32_t seq, const char *what)
{
	peer(.flags = TCPHDR_ACK, .seq = seq, .ack = 1, .data = what);
}

static void begin(void)
{
	setup();
	start();
	accepted_plain();
}

/* b holds exactly this. */
static void holds(const struct buf *b, const char *want)
{
	assert_non_null(b);
	assert_int_equal(b->total, strlen(want));
	for (; b; b = b->frag) {
		assert_memory_equal(b->data, want, b->len);
		want += b->len;
	}
}

static void test_frames_are_taken_together(void **state)
{
	struct buf *b;
	uint32_t charge, space;

	(void)state;
	begin();
	space = tcp_rcv_free(t.c);
	data(1, "abcde");
	data(6, "fghij");
	data(11, "klm");
	charge = t.c->rcvq.charge;
	b = tcp_take(t.c, 2);
	holds(b, "abcdefghij");
	tcp_taken(t.c, t.now);
	assert_int_equal(tcp_inq(t.c), 3);
	/* It occupies what it did. */
	assert_int_equal(t.c->rcvq.charge + t.c->ofo_charge, charge);
	assert_true(tcp_rcv_free(t.c) < space);
	reads("klm");
	tcp_give_back(t.c, tcp_buf_charge(b), t.now);
	buf_free(b);
	assert_int_equal(t.c->ofo_charge, 0);
	assert_int_equal(tcp_rcv_free(t.c), space);
	assert_null(tcp_take(t.c, 64));
	end();
}

static void test_what_is_put_back_is_read(void **state)
{
	struct buf *b;

	(void)state;
	begin();
	data(1, "abcde");
	data(6, "fghij");
	b = tcp_take(t.c, 1);
	holds(b, "abcde");
	data(11, "klm");
	tcp_put_back(t.c, b);
	assert_int_equal(t.c->ofo_charge, 0);
	reads("abcdefghijklm");
	/* The queue was empty meanwhile. */
	data(14, "nop");
	b = tcp_take(t.c, 1);
	tcp_put_back(t.c, b);
	data(17, "qrs");
	reads("nopqrs");
	end();
}

static void test_nothing_is_read_before_it_is_shown(void **state)
{
	struct buf *b;

	(void)state;
	begin();
	data(1, "before");
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	data(7, "first");
	data(12, "second");
	/* What had come by then may be read, and comes first. */
	assert_false(tcp_unshown(t.c));
	assert_true(tcp_is_held_back(t.c));
	assert_null(tcp_take_unshown(t.c, 64));
	assert_int_equal(tcp_inq(t.c), 6);
	reads("before");
	assert_true(tcp_unshown(t.c));
	assert_int_equal(tcp_inq(t.c), 0);
	assert_false(tcp_ready(t.c) & TCP_EV_IN);
	b = tcp_take_unshown(t.c, 64);
	holds(b, "first");
	assert_true(tcp_is_showing(t.c));
	assert_int_equal(tcp_recv(t.c, NULL, 0, 0, t.now), -EAGAIN);
	tcp_put_back(t.c, b);
	assert_false(tcp_is_showing(t.c));
	assert_int_equal(tcp_inq(t.c), 5);
	assert_null(tcp_take_unshown(t.c, 64));
	reads("first");
	b = tcp_take_unshown(t.c, 64);
	holds(b, "second");
	tcp_taken(t.c, t.now);
	tcp_give_back(t.c, tcp_buf_charge(b), t.now);
	buf_free(b);
	assert_false(tcp_unshown(t.c));
	assert_false(tcp_is_held_back(t.c));
	assert_int_equal(t.c->ofo_charge, 0);
	/* The end comes behind what is to be shown. */
	data(18, "last");
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 22, .ack = 1);
	assert_int_equal(tcp_recv(t.c, NULL, 0, 0, t.now), -EAGAIN);
	assert_false(tcp_ready(t.c) & TCP_EV_RDHUP);
	tcp_set_shows(t.c, false);
	assert_true(tcp_ready(t.c) & TCP_EV_RDHUP);
	reads("last");
	assert_int_equal(tcp_recv(t.c, NULL, 0, 0, t.now), 0);
	end();
}

/* SocketXtreme: of a connection that has just been accepted nothing is let through. */
static void test_what_had_come_is_shown_too(void **state)
{
	struct buf *b;

	(void)state;
	begin();
	data(1, "before");
	tcp_show_unread(t.c); /* nothing is shown at all */
	assert_int_equal(tcp_inq(t.c), 6);
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	assert_false(tcp_unshown(t.c));
	tcp_show_unread(t.c);
	assert_true(tcp_unshown(t.c));
	assert_int_equal(tcp_inq(t.c), 0);
	b = tcp_take_unshown(t.c, 64);
	holds(b, "before");
	/* The program has no room for it now. */
	tcp_put_back(t.c, b);
	assert_int_equal(tcp_inq(t.c), 6);
	tcp_show_unread(t.c);
	assert_int_equal(tcp_inq(t.c), 0);
	b = tcp_take_unshown(t.c, 64);
	holds(b, "before");
	tcp_taken(t.c, t.now);
	tcp_give_back(t.c, tcp_buf_charge(b), t.now);
	buf_free(b);
	end();
}

static void shown(const char *want)
{
	struct buf *b = tcp_take_unshown(t.c, 64);

	holds(b, want);
	assert_ptr_not_equal(b->pool, &t.ts->pool); /* it may be kept for longer than the stack */
	tcp_taken(t.c, t.now);
	tcp_give_back(t.c, tcp_buf_charge(b), t.now);
	buf_free(b);
}

/* What would occupy too much was copied together: it is shown like the rest, not let through. */
static void test_what_was_copied_together_is_shown(void **state)
{
	uint32_t rcvbuf;

	(void)state;
	begin();
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	rcvbuf = t.c->o.rcvbuf;
	data(1, "first");
	/* Room for the bytes, not for a frame of its own. */
	t.c->o.rcvbuf = t.c->rcvq.charge + 6 + sizeof(struct buf);
	data(6, "second");
	t.c->o.rcvbuf = rcvbuf;
	data(12, "third");
	assert_true(t.ts->n.rcv_collapsed > 0);
	shown("first");
	shown("second");
	assert_true(tcp_unshown(t.c));
	assert_int_equal(tcp_inq(t.c), 0);
	shown("third");
	assert_false(tcp_unshown(t.c));
	assert_int_equal(t.c->ofo_charge, 0);
	assert_int_equal(t.c->rcvq.charge, 0);
	end();
}

/* A callback that is there before the connection: nothing is readable before it came. */
static void test_what_a_connection_in_the_making_shows(void **state)
{
	struct tcp_tuple u = tuple_of(RPORT);
	struct buf *b;

	(void)state;
	setup();
	start();
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_flush(t.ts, t.now);
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .seq = 0, .ack = 1, .mss = 1460);
	assert_int_equal(tcp_conn_state(t.c), TCPS_ESTABLISHED);
	assert_int_equal(tcp_inq(t.c), 0);
	assert_false(tcp_ready(t.c) & TCP_EV_IN);
	assert_int_equal(user_recv((char[8]){0}, 8, 0), -EAGAIN);
	data(1, "first");
	assert_int_equal(user_recv((char[8]){0}, 8, 0), -EAGAIN);
	b = tcp_take_unshown(t.c, 64);
	holds(b, "first");
	tcp_put_back(t.c, b);
	reads("first");
	end();
}

static void urgent(uint32_t seq, const char *what, uint16_t urg)
{
	peer(.flags = TCPHDR_ACK | TCPHDR_URG, .seq = seq, .ack = 1, .data = what, .urg = urg);
}

static void test_urgent_bytes_before_anything_was_shown(void **state)
{
	(void)state;
	begin();
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	urgent(1, "x", 1);
	urgent(2, "y", 1);
	assert_int_equal(tcp_inq(t.c), 0);
	assert_int_equal(user_recv((char[8]){0}, 8, 0), -EAGAIN);
	assert_false(t.c->rcvq.head && seq_before(t.c->rcvq.head->seq, t.c->copied_seq));
	data(3, "after");
	/* Near a mark nothing can be shown. */
	assert_null(tcp_take_unshown(t.c, 64));
	reads("after");
	end();
}

static void test_a_mark_ahead_lets_nothing_be_read(void **state)
{
	(void)state;
	begin();
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	urgent(1, "abcx", 4);
	assert_int_equal(tcp_inq(t.c), 0);
	assert_null(tcp_take(t.c, 64));
	assert_null(tcp_take_unshown(t.c, 64));
	assert_int_equal(tcp_inq(t.c), 3);
	reads("abc");
	end();
}

/* Two urgent bytes come behind a frame that the callback has: it goes back where it was. */
static void test_urgent_bytes_behind_what_is_shown(void **state)
{
	struct buf *b;

	(void)state;
	begin();
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	data(1, "first");
	b = tcp_take_unshown(t.c, 64);
	urgent(6, "x", 1);
	urgent(7, "yz", 1);
	tcp_put_back(t.c, b);
	reads("first");
	assert_null(tcp_take_unshown(t.c, 64));
	reads("x");
	reads("z");
	end();
}

static void test_no_more_callback_while_it_runs(void **state)
{
	struct buf *b;

	(void)state;
	begin();
	for (unsigned taken = 0; taken < 2; taken++) {
		uint32_t seq = 1 + 11 * taken;

		assert_int_equal(tcp_set_shows(t.c, true), 0);
		data(seq, "first");
		b = tcp_take_unshown(t.c, 64);
		holds(b, "first");
		data(seq + 5, "second");
		assert_int_equal(tcp_set_shows(t.c, false), 0);
		/* It comes behind what nobody has decided of. */
		assert_int_equal(tcp_inq(t.c), 0);
		assert_int_equal(user_recv((char[8]){0}, 8, 0), -EAGAIN);
		if (!taken) {
			tcp_put_back(t.c, b);
			reads("firstsecond");
			continue;
		}
		tcp_taken(t.c, t.now);
		tcp_give_back(t.c, tcp_buf_charge(b), t.now);
		buf_free(b);
		reads("second");
	}
	/* Another one takes its place. */
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	data(23, "third");
	b = tcp_take_unshown(t.c, 64);
	assert_int_equal(tcp_set_shows(t.c, false), 0);
	assert_int_equal(tcp_set_shows(t.c, true), 0);
	tcp_put_back(t.c, b);
	data(28, "fourth");
	reads("third");
	assert_int_equal(user_recv((char[8]){0}, 8, 0), -EAGAIN);
	assert_true(tcp_unshown(t.c));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_are_taken_together),
		cmocka_unit_test(test_what_is_put_back_is_read),
		cmocka_unit_test(test_nothing_is_read_before_it_is_shown),
		cmocka_unit_test(test_what_had_come_is_shown_too),
		cmocka_unit_test(test_what_was_copied_together_is_shown),
		cmocka_unit_test(test_what_a_connection_in_the_making_shows),
		cmocka_unit_test(test_urgent_bytes_before_anything_was_shown),
		cmocka_unit_test(test_a_mark_ahead_lets_nothing_be_read),
		cmocka_unit_test(test_urgent_bytes_behind_what_is_shown),
		cmocka_unit_test(test_no_more_callback_while_it_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
