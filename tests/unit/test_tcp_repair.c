/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A connection leaves for another stack: what the picture says of it, and that nobody hears of the
 * leaving.
 */
#include "tcp_peer.h"

static void test_queues_and_numbers(void **state)
{
	(void)state;
	struct tcp_image im;
	struct iovec iov = {.iov_base = "answer", .iov_len = 6};
	char to[32] = "";

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "abcde");
	peer(.flags = TCPHDR_ACK, .seq = 6, .ack = 1, .data = "fghij");
	iov.iov_base = to;
	iov.iov_len = 3;
	assert_int_equal(tcp_recv(t.c, &iov, 1, 0, t.now), 3);
	peer(.flags = TCPHDR_ACK, .seq = 21, .ack = 1, .data = "later");
	iov = (struct iovec){.iov_base = "answer", .iov_len = 6};
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 6);
	tcp_flush(t.ts, t.now);

	assert_int_equal(tcp_export(t.c, &im), 0);
	assert_int_equal(im.state, TCPS_ESTABLISHED);
	assert_int_equal(im.rcv_nxt - PEER_ISN, 11); /* what came out of order is left out */
	assert_int_equal(im.copied_seq - PEER_ISN, 4);
	assert_int_equal(im.snd_una - t.iss, 1);
	assert_int_equal(im.snd_nxt - t.iss, 7);
	assert_int_equal(im.write_seq - t.iss, 7);
	assert_false(im.fin_rcvd || im.fin_queued);
	assert_int_equal(tcp_export_received(t.c, im.copied_seq, to, 7), 7);
	assert_memory_equal(to, "defghij", 7);
	/* no more is there */
	assert_int_equal(tcp_export_received(t.c, im.copied_seq + 3, to, 7), 4);
	assert_int_equal(tcp_export_unacked(t.c, im.snd_una + 2, to, 4), 4);
	assert_memory_equal(to, "swer", 4);
	assert_int_equal(tcp_export_unacked(t.c, im.snd_una + 2, to, 5), 0);
	end();
}

static void test_what_an_ended_one_has_left(void **state)
{
	(void)state;
	struct tcp_image im;
	struct iovec iov = {.iov_base = "answer", .iov_len = 6};
	char to[32] = "";

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .data = "unread");
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 6);
	tcp_flush(t.ts, t.now);
	assert_int_equal(tcp_export_ended(t.c, &im), -EOPNOTSUPP); /* it lives */
	peer(.flags = TCPHDR_RST, .seq = 7);

	assert_int_equal(tcp_export(t.c, &im), -EOPNOTSUPP);
	assert_int_equal(tcp_export_ended(t.c, &im), 0);
	assert_int_equal(im.so_error, ECONNRESET);
	assert_int_equal(im.rcv_nxt - PEER_ISN, 7);
	assert_int_equal(im.copied_seq - PEER_ISN, 1);
	assert_int_equal(im.snd_una - t.iss, 7); /* what was not acknowledged is gone */
	assert_int_equal(im.write_seq - t.iss, 7);
	assert_int_equal(tcp_export_received(t.c, im.copied_seq, to, 6), 6);
	assert_memory_equal(to, "unread", 6);
	assert_int_equal(tcp_error(t.c), ECONNRESET);
	assert_int_equal(tcp_export_ended(t.c, &im), 0);
	assert_int_equal(im.so_error, 0);
	end();
}

static void test_fins_are_not_counted(void **state)
{
	(void)state;
	struct tcp_image im;

	setup();
	start();
	accepted_plain();
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 1, .data = "end");
	assert_int_equal(tcp_export(t.c, &im), 0);
	assert_int_equal(im.state, TCPS_CLOSE_WAIT);
	assert_true(im.fin_rcvd);
	assert_int_equal(im.rcv_nxt - PEER_ISN, 4);
	assert_false(seq_after(im.rcv_wup, im.rcv_nxt)); /* or the kernel refuses it */
	tcp_shutdown(t.c, SHUT_WR, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(tcp_export(t.c, &im), 0);
	assert_true(im.fin_queued);
	assert_int_equal(im.snd_una - t.iss, 1);
	assert_int_equal(im.snd_nxt - t.iss, 1);
	assert_int_equal(im.write_seq - t.iss, 1);
	end();
}

static void leaves_in_silence(uint32_t max_tw)
{
	struct iovec iov = {.iov_base = "unacked", .iov_len = 7};

	setup();
	start();
	t.ts->cfg.max_tw = max_tw;
	accepted_plain();
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 7);
	tcp_flush(t.ts, t.now);
	t.taken = t.n;
	tcp_forget(t.c, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(t.gone, 1);
	t.c = NULL;
	/* What was on its way is dropped: a RST would end the connection that goes on elsewhere. */
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 8, .data = "x");
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 2, .ack = 8);
	peer(.flags = TCPHDR_RST, .seq = 3);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 8);
	assert_int_equal(t.n, t.taken);
	t.now += TCP_FORGET_US + 1;
	tcp_run_timers(t.ts, t.now);
	assert_int_equal(tcp_stack_conns(t.ts), 0);
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 8);
	assert_int_equal(t.n, t.taken + 1); /* now it is nobody's, and a stranger's is answered */
	t.taken = t.n;
	end();
}

static void test_leaves_in_silence(void **state)
{
	(void)state;
	leaves_in_silence(64);
}

static void test_leaves_in_silence_where_there_is_no_time_wait(void **state)
{
	(void)state;
	leaves_in_silence(0);
}

/*
 * Both have closed, or we and nobody has the socket any more: there are numbers left, and FINs
 * before them.
 */
static void test_what_is_left_of_an_end(void **state)
{
	(void)state;
	struct tcp_image im;
	struct tcp_tuple tuple;

	setup();
	start();
	accepted_plain();
	tuple = *tcp_conn_tuple(t.c);
	/* it is a connection */
	assert_int_equal(tcp_export_time_wait(t.ts, &tuple, t.now, &im), -ENOENT);
	tcp_close(t.c, t.now);
	tcp_flush(t.ts, t.now);
	t.c = NULL;
	peer(.flags = TCPHDR_ACK, .seq = 1, .ack = 2);
	assert_int_equal(tcp_export_time_wait(t.ts, &tuple, t.now, &im), 0);
	assert_int_equal(im.state, TCPS_FIN_WAIT2);
	assert_true(im.fin_queued && !im.fin_rcvd);
	assert_int_equal(im.write_seq - t.iss, 1);
	assert_int_equal(im.rcv_nxt - PEER_ISN, 1);
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 2);
	t.taken = t.n;
	assert_int_equal(tcp_export_time_wait(t.ts, &tuple, t.now, &im), 0);
	assert_int_equal(im.state, TCPS_TIME_WAIT);
	assert_true(im.fin_queued && im.fin_rcvd);
	assert_int_equal(im.write_seq - t.iss, 1);
	assert_int_equal(im.rcv_nxt - PEER_ISN, 1);
	assert_int_equal(tcp_export_time_wait(t.ts, &tuple, t.now + TCP_TW_FRESH_US, &im), -ENOENT);

	tcp_forget_time_wait(t.ts, &tuple, t.now);
	assert_int_equal(tcp_export_time_wait(t.ts, &tuple, t.now, &im), -ENOENT);
	peer(.flags = TCPHDR_ACK | TCPHDR_FIN, .seq = 1, .ack = 2); /* another stack answers */
	assert_int_equal(t.n, t.taken);
	t.now += TCP_FORGET_US + 1;
	tcp_run_timers(t.ts, t.now);
	assert_int_equal(t.gone, 1);
	end();
}

/* Another stack begins the handshake anew. */
static void test_an_unanswered_syn_is_taken_back(void **state)
{
	(void)state;
	struct tcp_tuple tuple = tuple_of(RPORT);

	setup();
	start();
	assert_int_equal(tcp_connect(t.ts, &tuple, &t.o, &t.user, t.now, &t.c), 0);
	assert_true(tcp_take_back_syn(t.c, t.now)); /* it has not left */
	silent();
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_SYN, 0, 0);
	assert_true(tcp_take_back_syn(t.c, t.now));
	sent_is(TCPHDR_RST, 1, 0);
	tcp_forget(t.c, t.now);
	tcp_flush(t.ts, t.now);
	assert_int_equal(t.gone, 1);
	/* The answer to it is the other stack's matter. */
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .seq = 0, .ack = 1, .mss = 1460);
	silent();
	end();
}

static void test_what_was_answered_is_not_taken_back(void **state)
{
	(void)state;
	struct tcp_tuple tuple = tuple_of(RPORT);

	setup();
	start();
	assert_int_equal(tcp_connect(t.ts, &tuple, &t.o, &t.user, t.now, &t.c), 0);
	tcp_flush(t.ts, t.now);
	sent_is(TCPHDR_SYN, 0, 0);
	peer(.flags = TCPHDR_SYN | TCPHDR_ACK, .seq = 0, .ack = 1, .mss = 1460);
	sent_is(TCPHDR_ACK, 1, 1);
	assert_false(tcp_take_back_syn(t.c, t.now));
	silent();
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queues_and_numbers),
		cmocka_unit_test(test_what_an_ended_one_has_left),
		cmocka_unit_test(test_fins_are_not_counted),
		cmocka_unit_test(test_leaves_in_silence),
		cmocka_unit_test(test_leaves_in_silence_where_there_is_no_time_wait),
		cmocka_unit_test(test_what_is_left_of_an_end),
		cmocka_unit_test(test_an_unanswered_syn_is_taken_back),
		cmocka_unit_test(test_what_was_answered_is_not_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
