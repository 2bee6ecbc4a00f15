/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* socket/tcp/env.c: packets that come while a thread answers in a round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tcp_peer.h"

#include "round_env.h"
#include "socket/tcp/internal.h"

static struct stack st;
static struct tcp_sock_stack sk;
static struct ring ring;
static unsigned kicks;

static int count_kick(struct ring *r)
{
	(void)r;
	kicks++;
	return 0;
}

static const struct ring_ops ops = {.kick = count_kick};
static const struct stack_timed_ops timed_ops = {.say = tcp_sock_say};

/* As a socket's output() does. */
static int output(void *ctx, const struct tcp_tx *tx)
{
	sk.posted = true;
	return peer_output(ctx, tx);
}

static int begin(void **state)
{
	(void)state;
	setup();
	t.now = tcp_sock_now_us(); /* tcp_sock_say() looks at that clock */
	t.env.output = output;
	start();
	memset(&st, 0, sizeof(st));
	memset(&sk, 0, sizeof(sk));
	ring.ops = &ops;
	st.ring = &ring;
	st.tcp = &sk;
	lock_class(&st.lock, "stack.lock");
	atomic_store(&st.open, true);
	sk.ts = t.ts;
	sk.st = &st;
	accepted_plain();
	sk.posted = false;
	stack_round = (struct stack_round){0};
	kicks = 0;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	end();
	return 0;
}

/* A request comes, which is acknowledged at once, and the thread takes in what is there. */
static void request_comes(void)
{
	t.c->quick = 4;
	peer_batch(
		(struct seg){.flags = TCPHDR_ACK | TCPHDR_PSH, .seq = 1, .ack = 1, .data = "more"});
	lock_take(&st.lock);
	tcp_sock_polled(&st, t.now);
	lock_drop(&st.lock);
}

static void a_packet_is_answered_at_once(void **state)
{
	(void)state;
	request_comes();
	sent_is(TCPHDR_ACK, 1, 5);
	assert_int_equal(kicks, 1);
}

/* Nor does it say what others have left unsaid. */
static void amid_a_round_it_is_answered_with_the_others(void **state)
{
	struct iovec iov = {"answer", 6};

	(void)state;
	stack_round_begin(STACK_ROUND_LEAST);
	assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 6);
	request_comes();
	silent();
	assert_int_equal(kicks, 0);
	assert_true(atomic_load(&st.has_unsaid));
	stack_round_end();
	assert_int_equal(sent_is(TCPHDR_ACK | TCPHDR_PSH, 1, 5)->len, 6);
	silent();
	assert_int_equal(kicks, 1);
}

/* What has left already, a retransmission perhaps, is kicked with the rest. */
static void frames_amid_a_round_are_kicked_with_the_others(void **state)
{
	(void)state;
	stack_round_begin(STACK_ROUND_LEAST);
	sk.posted = true;
	lock_take(&st.lock);
	tcp_sock_polled(&st, t.now);
	lock_drop(&st.lock);
	assert_int_equal(kicks, 0);
	stack_round_end();
	assert_int_equal(kicks, 1);
}

static int begin_all(void **state)
{
	(void)state;
	return rounds_begin(&timed_ops);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
	const struct CMUnitTest tests[] = {
		TEST(a_packet_is_answered_at_once),
		TEST(amid_a_round_it_is_answered_with_the_others),
		TEST(frames_amid_a_round_are_kicked_with_the_others),
	};

	return cmocka_run_group_tests(tests, begin_all, rounds_end);
}
