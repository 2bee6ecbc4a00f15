/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The send buffer: whatever is put in comes out at its sequence number, until it is acknowledged.
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
static struct tcp_sndq q;

static void begin(uint32_t seq)
{
	m = (struct memory){0};
	env = test_env(&m);
	tcp_sndq_init(&q, seq);
}

/* The stream: what stands at this sequence number. */
static uint8_t byte_at(uint32_t seq)
{
	return (uint8_t)(seq * 31 + (seq >> 8) * 7 + (seq >> 16));
}

static uint8_t input[1 << 20];

/* Puts the next len bytes of the stream. */
static uint32_t put(uint32_t len)
{
	struct iovec iov = {input, len};

	for (uint32_t i = 0; i < len; i++)
		input[i] = byte_at(q.seq + q.len + i);
	return tcp_sndq_put(&q, &env, &iov, 1, 0, len, 1 << 20);
}

/* [seq, seq + len) is there and right; returns how much of it max vectors showed. */
static uint32_t check(uint32_t seq, uint32_t len, int max)
{
	struct iovec iov[64];
	uint32_t got = len, done = 0;
	int n = tcp_sndq_iov(&q, seq, &got, iov, max);

	assert_in_range(n, 0, max);
	assert_true(got <= len);
	for (int i = 0; i < n; i++) {
		assert_int_not_equal(iov[i].iov_len, 0);
		for (size_t k = 0; k < iov[i].iov_len; k++, done++)
			assert_int_equal(((uint8_t *)iov[i].iov_base)[k], byte_at(seq + done));
	}
	assert_int_equal(done, got);
	assert_true(got == len || n == max);
	return got;
}

static void an_empty_buffer_takes_no_memory(void **state)
{
	(void)state;
	begin(5);
	assert_int_equal(m.bytes, 0);
	assert_int_equal(check(5, 0, 4), 0);
	put(1000);
	tcp_sndq_ack(&q, &env, 1005);
	assert_int_equal(q.len, 0);
	assert_int_equal(q.seq, 1005);
	assert_int_equal(q.charge, 0);
	assert_int_equal(m.blocks, 0);
}

static void bytes_come_out_where_they_were_put_across_the_wrap_of_numbers(void **state)
{
	(void)state;
	begin(UINT32_MAX - 50000);
	assert_int_equal(put(100000), 100000);
	assert_int_equal(check(q.seq, 100000, 64), 100000);
	assert_int_equal(check(UINT32_MAX - 10, 20, 64), 20);
	tcp_sndq_ack(&q, &env, 10);
	assert_int_equal(q.len, 100000 - 50011);
	assert_int_equal(check(10, q.len, 64), q.len);
	tcp_sndq_clear(&q, &env);
	assert_int_equal(m.blocks, 0);
	assert_int_equal(q.charge, 0);
}

static void few_vectors_show_a_part_and_say_how_much(void **state)
{
	uint32_t got;

	(void)state;
	begin(0);
	assert_int_equal(put(200000), 200000);
	got = check(1, 199999, 2);
	assert_in_range(got, 1, 199998);
	assert_int_equal(check(1 + got, 199999 - got, 64), 199999 - got);
	tcp_sndq_clear(&q, &env);
}

static void a_small_message_takes_a_small_block_and_a_stream_large_ones(void **state)
{
	(void)state;
	begin(0);
	put(1);
	assert_in_range(q.charge, 1, 256);
	put(100);
	assert_in_range(q.charge, 1, 256);
	assert_int_equal(m.blocks, 1);
	tcp_sndq_clear(&q, &env);
	begin(0);
	put(1 << 20);
	assert_in_range(m.blocks, 32, 34);
	tcp_sndq_clear(&q, &env);
	/* Byte by byte: the blocks grow with what is held. */
	begin(0);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(put(1), 1);
	assert_in_range(m.blocks, 3, 14);
	assert_in_range(q.charge, 100000, 140000);
	assert_int_equal(q.charge, m.bytes);
	tcp_sndq_clear(&q, &env);
}

static void vectors_are_read_behind_what_was_skipped(void **state)
{
	struct iovec iov[5] = {
		{input, 10}, {NULL, 0}, {input + 10, 5}, {input + 15, 0}, {input + 15, 85}};

	(void)state;
	for (uint32_t skip = 0; skip <= 100; skip++) {
		for (uint32_t len = 0; len <= 110; len += 11) {
			uint32_t want = len < 100 - skip ? len : 100 - skip;

			begin(1000 + skip);
			for (uint32_t i = 0; i < 100; i++)
				input[i] = byte_at(1000 + i);
			assert_int_equal(tcp_sndq_put(&q, &env, iov, 5, skip, len, 1 << 20), want);
			assert_int_equal(q.len, want);
			assert_int_equal(check(1000 + skip, want, 64), want);
			tcp_sndq_clear(&q, &env);
			assert_int_equal(m.blocks, 0);
		}
	}
}

static void an_old_or_far_acknowledgement_does_no_harm(void **state)
{
	(void)state;
	begin(100);
	put(50);
	tcp_sndq_ack(&q, &env, 100);
	tcp_sndq_ack(&q, &env, 90);
	assert_int_equal(q.len, 50);
	tcp_sndq_ack(&q, &env, 120);
	tcp_sndq_ack(&q, &env, 110);
	assert_int_equal(q.len, 30);
	assert_int_equal(check(120, 30, 4), 30);
	tcp_sndq_ack(&q, &env, 151); /* the FIN's number too */
	assert_int_equal(q.len, 0);
	assert_int_equal(q.seq, 150);
	assert_int_equal(m.blocks, 0);
}

static void without_memory_what_fits_is_taken_and_nothing_is_lost(void **state)
{
	(void)state;
	for (unsigned fail = 1; fail < 40; fail++) {
		uint32_t done = 0;

		begin(7);
		m.fail_at = fail;
		while (done < 300000) {
			uint32_t n = put(300000 - done < 70000 ? 300000 - done : 70000);

			done += n;
			assert_int_equal(q.len, done);
			assert_int_equal(q.charge, m.bytes);
		}
		assert_int_equal(check(7, 300000, 64), 300000);
		tcp_sndq_clear(&q, &env);
		assert_int_equal(m.blocks, 0);
	}
	begin(7);
	m.fail_above = 1;
	assert_int_equal(put(1000), 0);
	m.fail_above = 2048; /* large blocks are not to be had, small ones are */
	assert_int_equal(put(10000), 10000);
	assert_int_equal(check(7, 10000, 64), 10000);
	tcp_sndq_clear(&q, &env);
}

static void random_use_agrees_with_the_stream(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 40; round++) {
		uint64_t seed = round;

		print_message("seed %llu\n", (unsigned long long)seed);
		begin(test_random(&seed));
		for (int step = 0; step < 3000; step++) {
			uint32_t what = test_random(&seed) % 4, len = q.len, before = q.seq + q.len;

			if (what == 0 && q.len < 500000) {
				uint32_t n = test_random(&seed) %
					     (test_random(&seed) % 4 ? 300 : 100000);

				m.fail_at = test_random(&seed) % 8 ? 0 : m.calls + 1;
				len += put(n);
				assert_int_equal(q.len, len);
				assert_int_equal(q.seq + q.len, before + (len - (before - q.seq)));
			} else if (what == 1) {
				uint32_t n = test_random(&seed) % (q.len + 1);

				if (test_random(&seed) & 1)
					n %= 1500;
				tcp_sndq_ack(&q, &env, q.seq + n);
				assert_int_equal(q.len, len - n);
				assert_int_equal(q.seq + q.len, before);
			} else if (q.len) {
				uint32_t off = test_random(&seed) % q.len;
				uint32_t n = test_random(&seed) % (q.len - off + 1);

				check(q.seq + off, n < 3000 ? n : n % 3000,
				      1 + (int)(test_random(&seed) % 8));
			}
			assert_int_equal(q.charge, m.bytes);
			assert_true(q.len || !m.blocks || q.tail);
		}
		tcp_sndq_clear(&q, &env);
		assert_int_equal(m.blocks, 0);
		assert_int_equal(m.bytes, 0);
	}
}

static void records_end_where_they_were_ended(void **state)
{
	(void)state;
	begin(UINT32_MAX - 99);
	assert_int_equal(put(100), 100);
	tcp_sndq_end_record(&q);
	tcp_sndq_end_record(&q); /* of nothing more */
	assert_int_equal(put(50), 50);
	assert_int_equal(put(50), 50);
	tcp_sndq_end_record(&q);
	assert_int_equal(put(10), 10);
	assert_int_equal(q.records, 2);
	assert_int_equal(tcp_sndq_record(&q, UINT32_MAX - 99, 210), 100);
	assert_int_equal(tcp_sndq_record(&q, UINT32_MAX - 99, 30), 30);
	assert_int_equal(tcp_sndq_record(&q, UINT32_MAX, 111), 1);
	assert_int_equal(tcp_sndq_record(&q, 0, 110), 100);
	assert_int_equal(tcp_sndq_record(&q, 100, 10), 10);
	check(UINT32_MAX - 99, 210, 64);
	tcp_sndq_ack(&q, &env, 1);
	assert_int_equal(q.records, 1);
	assert_int_equal(tcp_sndq_record(&q, 1, 109), 99);
	tcp_sndq_clear(&q, &env);
	assert_int_equal(q.records, 0);
}

/* As a file is read: some of what was asked for comes, and some of that finds room. */
static void pieces_that_were_filled_outside_are_put_in(void **state)
{
	struct tcp_pieces p;

	(void)state;
	begin(UINT32_MAX - 50000);
	put(100);
	for (unsigned turn = 0; turn < 40; turn++) {
		uint32_t want = 1 + turn * 2500, came = want - want / 3, room = came - came / 5;
		uint32_t seq = q.seq + q.len, asked = 0, at = seq;

		tcp_sndq_pieces(&env, want, 1 << 20, &p);
		assert_in_range(p.n, 1, TCP_PIECES);
		for (int i = 0; i < p.n; i++) {
			for (size_t k = 0; k < p.iov[i].iov_len; k++)
				((uint8_t *)p.iov[i].iov_base)[k] = byte_at(at++);
			asked += (uint32_t)p.iov[i].iov_len;
		}
		assert_int_equal(asked, want);
		assert_int_equal(tcp_sndq_take(&q, &p, room), room);
		tcp_pieces_free(&env, &p);
		assert_int_equal(q.seq + q.len, seq + room);
		put(turn % 7);
		check(seq, room + turn % 7, 64);
		tcp_sndq_ack(&q, &env, seq);
		assert_int_equal(m.bytes, q.charge);
	}
	tcp_sndq_ack(&q, &env, q.seq + q.len);
	assert_int_equal(m.bytes, 0);
}

static void without_memory_there_are_fewer_pieces(void **state)
{
	struct tcp_pieces p;

	(void)state;
	begin(1);
	m.fail_above = 300;
	tcp_sndq_pieces(&env, 100000, 1 << 20, &p);
	assert_int_equal(p.n, TCP_PIECES);
	assert_in_range(p.iov[0].iov_len, 1, 300);
	tcp_pieces_free(&env, &p);
	m.fail_above = 1;
	tcp_sndq_pieces(&env, 100000, 1 << 20, &p);
	assert_int_equal(p.n, 0);
	assert_int_equal(m.bytes, 0);
	assert_int_equal(q.charge, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_end_where_they_were_ended),
		cmocka_unit_test(an_empty_buffer_takes_no_memory),
		cmocka_unit_test(bytes_come_out_where_they_were_put_across_the_wrap_of_numbers),
		cmocka_unit_test(few_vectors_show_a_part_and_say_how_much),
		cmocka_unit_test(a_small_message_takes_a_small_block_and_a_stream_large_ones),
		cmocka_unit_test(vectors_are_read_behind_what_was_skipped),
		cmocka_unit_test(an_old_or_far_acknowledgement_does_no_harm),
		cmocka_unit_test(without_memory_what_fits_is_taken_and_nothing_is_lost),
		cmocka_unit_test(random_use_agrees_with_the_stream),
		cmocka_unit_test(pieces_that_were_filled_outside_are_put_in),
		cmocka_unit_test(without_memory_there_are_fewer_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
