/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The retransmission queue and scoreboard: two orders and four counts that always agree with a
 * recount.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tcp/internal.h"
#include "tcp_test_env.h"

static struct memory m;
static struct tcp_env env;
static struct tcp_segq q;

static void begin(void)
{
	m = (struct memory){0};
	env = test_env(&m);
	q = (struct tcp_segq){0};
}

static void end(void)
{
	tcp_segq_clear(&q, &env);
	assert_null(q.head);
	assert_null(q.tail);
	assert_null(q.thead);
	assert_null(q.ttail);
	assert_int_equal(q.packets_out | q.sacked_out | q.lost_out | q.retrans_out, 0);
	assert_int_equal(m.blocks, 0);
}

static uint32_t wire(const struct tcp_seg *s)
{
	uint32_t payload = s->end_seq - s->seq;

	payload -= s->flags & SEG_SYN ? 1 : 0;
	payload -= s->flags & SEG_FIN ? 1 : 0;
	return payload ? (payload + s->mss - 1) / s->mss : 1;
}

/* Everything that must hold at any time. */
static void recount(void)
{
	struct tcp_segq n = {0};
	unsigned in_time = 0;

	for (struct tcp_seg *s = q.head; s; s = s->next) {
		assert_int_equal(s->pcount, wire(s));
		assert_true(seq_before(s->seq, s->end_seq));
		if (!s->next)
			assert_ptr_equal(q.tail, s);
		if (s->next)
			assert_int_equal(s->end_seq, s->next->seq);
		n.packets_out += s->pcount;
		n.sacked_out += s->flags & SEG_SACKED ? s->pcount : 0;
		n.lost_out += s->flags & SEG_LOST ? s->pcount : 0;
		n.retrans_out += s->flags & SEG_RETRANS ? s->pcount : 0;
		in_time += !(s->flags & SEG_SACKED) &&
			   (s->flags & (SEG_LOST | SEG_RETRANS)) != SEG_LOST;
	}
	assert_int_equal(q.packets_out, n.packets_out);
	assert_int_equal(q.sacked_out, n.sacked_out);
	assert_int_equal(q.lost_out, n.lost_out);
	assert_int_equal(q.retrans_out, n.retrans_out);
	assert_int_equal(!q.head, !q.tail);
	assert_int_equal(!q.thead, !q.ttail);
	for (struct tcp_seg *s = q.thead; s; s = s->tnext) {
		assert_false(s->flags & SEG_SACKED);
		assert_true((s->flags & (SEG_LOST | SEG_RETRANS)) != SEG_LOST);
		assert_ptr_equal(s->tnext ? s->tnext->tprev : q.ttail, s);
		if (s->tnext)
			assert_true(s->sent_us <= s->tnext->sent_us);
		in_time--;
	}
	assert_int_equal(in_time, 0);
}

static void a_super_segment_counts_as_what_it_is_cut_into(void **state)
{
	(void)state;
	begin();
	assert_int_equal(tcp_segq_add(&q, &env, 0, 1, 1000, SEG_SYN, 0)->pcount, 1);
	assert_int_equal(tcp_segq_add(&q, &env, 1, 1001, 1000, 0, 0)->pcount, 1);
	assert_int_equal(tcp_segq_add(&q, &env, 1001, 2002, 1000, 0, 0)->pcount, 2);
	assert_int_equal(tcp_segq_add(&q, &env, 2002, 12003, 1000, SEG_FIN, 0)->pcount, 10);
	assert_int_equal(tcp_segq_add(&q, &env, 12003, 12004, 1000, SEG_FIN, 0)->pcount, 1);
	assert_int_equal(q.packets_out, 15);
	recount();
	end();
}

static void marks_are_counted_and_what_is_sacked_leaves_the_order_of_time(void **state)
{
	struct tcp_seg *a, *b, *c;

	(void)state;
	begin();
	a = tcp_segq_add(&q, &env, 0, 1000, 1000, 0, 1);
	b = tcp_segq_add(&q, &env, 1000, 4000, 1000, 0, 2);
	c = tcp_segq_add(&q, &env, 4000, 5000, 1000, 0, 3);
	tcp_segq_mark(&q, b, SEG_SACKED, 0);
	assert_int_equal(q.sacked_out, 3);
	assert_ptr_equal(a->tnext, c);
	tcp_segq_mark(&q, b, SEG_SACKED, 0);
	assert_int_equal(q.sacked_out, 3);
	tcp_segq_mark(&q, a, SEG_LOST, 0);
	tcp_segq_mark(&q, a, SEG_RETRANS | SEG_EVER_RETRANS, 0);
	assert_int_equal(q.lost_out, 1);
	assert_int_equal(q.retrans_out, 1);
	tcp_segq_mark(&q, a, SEG_SACKED, SEG_LOST | SEG_RETRANS);
	assert_int_equal(q.lost_out + q.retrans_out, 0);
	assert_true(a->flags & SEG_EVER_RETRANS);
	recount();
	/* The peer has reneged: back to their places. */
	tcp_segq_unmark(&q, SEG_SACKED);
	assert_ptr_equal(q.thead, a);
	assert_ptr_equal(a->tnext, b);
	assert_ptr_equal(b->tnext, c);
	recount();
	/* Lost: out of it, until it is sent again. */
	tcp_segq_mark(&q, a, SEG_LOST, 0);
	assert_ptr_equal(q.thead, b);
	recount();
	tcp_segq_sent(&q, a, 9);
	tcp_segq_mark(&q, a, SEG_RETRANS, 0);
	assert_ptr_equal(q.ttail, a);
	recount();
	end();
}

static void what_is_sent_again_is_the_youngest(void **state)
{
	struct tcp_seg *a, *b;

	(void)state;
	begin();
	a = tcp_segq_add(&q, &env, 0, 1000, 1000, 0, 1);
	b = tcp_segq_add(&q, &env, 1000, 2000, 1000, 0, 1);
	tcp_segq_sent(&q, a, 9);
	assert_ptr_equal(q.thead, b);
	assert_ptr_equal(q.ttail, a);
	assert_int_equal(a->tries, 1);
	assert_int_equal(a->sent_us, 9);
	assert_ptr_equal(q.head, a);
	for (int i = 0; i < 300; i++)
		tcp_segq_sent(&q, a, 10);
	assert_int_equal(a->tries, 255);
	recount();
	end();
}

static void a_split_keeps_marks_and_gives_the_fin_to_the_second_half(void **state)
{
	struct tcp_seg *s, *half;

	(void)state;
	begin();
	tcp_segq_add(&q, &env, 0, 1, 1000, SEG_SYN, 1);
	s = tcp_segq_add(&q, &env, 1, 10002, 1000, SEG_FIN | SEG_PSH, 2);
	tcp_segq_add(&q, &env, 10002, 10003, 1000, SEG_FIN, 3);
	tcp_segq_mark(&q, s, SEG_LOST | SEG_RETRANS, 0);
	half = tcp_segq_split(&q, &env, s, 2001);
	assert_non_null(half);
	assert_int_equal(s->flags, SEG_LOST | SEG_RETRANS);
	assert_int_equal(half->flags, SEG_LOST | SEG_RETRANS | SEG_FIN | SEG_PSH);
	assert_int_equal(s->pcount, 2);
	assert_int_equal(half->pcount, 8);
	assert_int_equal(half->seq, 2001);
	assert_int_equal(half->end_seq, 10002);
	assert_int_equal(s->end_seq, 2001);
	assert_ptr_equal(s->tnext, half);
	recount();
	/* Not at a border of the wire segments: they are one more from now on. */
	assert_non_null(tcp_segq_split(&q, &env, half, 2501));
	assert_int_equal(q.lost_out, 11);
	recount();
	/* A FIN alone. */
	s = tcp_segq_find(&q, 10001);
	half = tcp_segq_split(&q, &env, s, 10001);
	assert_int_equal(half->pcount, 1);
	assert_int_equal(half->flags, SEG_LOST | SEG_RETRANS | SEG_FIN | SEG_PSH);
	recount();
	end();
}

static void a_syn_with_data_is_split_behind_the_syn(void **state)
{
	struct tcp_seg *s, *half;

	(void)state;
	begin();
	s = tcp_segq_add(&q, &env, 5, 506, 500, SEG_SYN, 1);
	half = tcp_segq_split(&q, &env, s, 6);
	assert_int_equal(s->flags, SEG_SYN);
	assert_int_equal(half->flags, 0);
	assert_int_equal(half->pcount, 1);
	recount();
	end();
}

static void without_memory_nothing_changes(void **state)
{
	struct tcp_seg *s;

	(void)state;
	begin();
	m.fail_at = 1;
	assert_null(tcp_segq_add(&q, &env, 0, 1000, 1000, 0, 1));
	assert_null(q.head);
	s = tcp_segq_add(&q, &env, 0, 5000, 1000, SEG_FIN, 1);
	m.fail_at = 3;
	assert_null(tcp_segq_split(&q, &env, s, 2000));
	assert_int_equal(s->end_seq, 5000);
	assert_int_equal(s->flags, SEG_FIN);
	assert_int_equal(q.packets_out, 5);
	recount();
	end();
}

static struct tcp_seg *pick(uint64_t *seed, unsigned count)
{
	struct tcp_seg *s = q.head;

	for (unsigned i = count ? test_random(seed) % count : 0; i && s->next; i--)
		s = s->next;
	return s;
}

/* The tree and the leaps over what is SACKED find what a walk finds. */
static void look_up(uint64_t *seed)
{
	uint32_t seq = q.head->seq + test_random(seed) % (q.tail->end_seq - q.head->seq);
	struct tcp_seg *s = q.head;

	while (seq_leq(s->end_seq, seq))
		s = s->next;
	assert_ptr_equal(tcp_segq_find(&q, seq), s);
	assert_ptr_equal(tcp_segq_find(&q, q.tail->end_seq + 5), q.tail);
	assert_null(tcp_segq_find(&q, q.head->seq - 1));
	for (struct tcp_seg *from = s; s && (s->flags & SEG_SACKED); s = s->next)
		assert_ptr_not_equal(tcp_segq_unsacked(&q, from), from);
	assert_ptr_equal(tcp_segq_unsacked(&q, tcp_segq_find(&q, seq)), s);
}

static void random_use_agrees_with_a_recount(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 60; round++) {
		uint64_t seed = round, now = 1;
		uint32_t seq = test_random(&seed) | 0xfff00000;
		unsigned count = 0;

		print_message("seed %llu\n", (unsigned long long)round);
		begin();
		for (int step = 0; step < 3000; step++) {
			uint32_t what = test_random(&seed) % 8;
			struct tcp_seg *s = pick(&seed, count), *half;

			now += test_random(&seed) % 3;
			m.fail_at = test_random(&seed) % 10 ? 0 : m.calls + 1;
			if (what < 2 && count < 100) {
				uint32_t len = 1 + test_random(&seed) %
							   (test_random(&seed) % 3 ? 1460 : 65000);

				if (tcp_segq_add(&q, &env, seq, seq + len,
						 (uint16_t)(1 + test_random(&seed) % 1460),
						 test_random(&seed) % 16 ? 0 : SEG_FIN, now)) {
					seq += len;
					count++;
				}
			} else if (!s) {
				continue;
			} else if (what == 2 && s->end_seq - s->seq > 1) {
				half = tcp_segq_split(&q, &env, s,
						      s->seq + 1 +
							      test_random(&seed) %
								      (s->end_seq - s->seq - 1));
				count += half != NULL;
			} else if (what == 3) {
				tcp_segq_sent(&q, s, now);
			} else if (what == 4) {
				tcp_segq_pop(&q, &env);
				count--;
			} else if (what == 5) {
				look_up(&seed);
			} else if (what == 6 && !(test_random(&seed) % 8)) {
				tcp_segq_unmark(&q, test_random(&seed) & 1 ? SEG_SACKED : SEG_LOST);
			} else {
				const uint8_t marks =
					SEG_SACKED | SEG_LOST | SEG_RETRANS | SEG_EVER_RETRANS;

				tcp_segq_mark(&q, s, (uint8_t)(test_random(&seed) & marks),
					      (uint8_t)(test_random(&seed) & marks & ~SEG_SACKED));
			}
			recount();
		}
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_super_segment_counts_as_what_it_is_cut_into),
		cmocka_unit_test(marks_are_counted_and_what_is_sacked_leaves_the_order_of_time),
		cmocka_unit_test(what_is_sent_again_is_the_youngest),
		cmocka_unit_test(a_split_keeps_marks_and_gives_the_fin_to_the_second_half),
		cmocka_unit_test(a_syn_with_data_is_split_behind_the_syn),
		cmocka_unit_test(without_memory_nothing_changes),
		cmocka_unit_test(random_use_agrees_with_a_recount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
