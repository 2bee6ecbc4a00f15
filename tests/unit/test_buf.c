/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of several buffers, cut and skipped anywhere: what is left is what the model has, each
 * length agrees with the others, and what is not used any more is given back once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mem/buf.h"
#include "tcp/internal.h"
#include "tcp_test_env.h"

#define PARTS 4
#define PART_MAX 40

static unsigned alive;

static void give_back(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	alive--;
	free(b);
}

static struct buf_pool pool = {.free = give_back};

/* A chain of n parts of 2 to PART_MAX bytes that count up from 0. */
static struct buf *chain(uint64_t *seed, unsigned n)
{
	struct buf *first = NULL, **at = &first;
	uint32_t total = 0;

	for (unsigned i = 0; i < n; i++) {
		struct buf *b = calloc(1, sizeof(*b) + PART_MAX);

		assert_non_null(b);
		b->data = (uint8_t *)(b + 1);
		b->room = PART_MAX;
		b->len = 2 + test_random(seed) % (PART_MAX - 1);
		b->refs = 1;
		b->pool = &pool;
		for (uint32_t k = 0; k < b->len; k++)
			b->data[k] = (uint8_t)(total + k);
		total += b->len;
		*at = b;
		at = &b->frag;
		alive++;
	}
	first->total = total;
	return first;
}

/* The chain holds len bytes that count up from `from`. */
static void holds(const struct buf *b, uint32_t from, uint32_t len)
{
	uint32_t seen = 0;

	assert_int_equal(b->total, len);
	for (; b; b = b->frag)
		for (uint32_t k = 0; k < b->len; k++, seen++)
			assert_int_equal(b->data[k], (uint8_t)(from + seen));
	assert_int_equal(seen, len);
}

enum { SKIP, CUT, TRIM_FRONT, TRIM_TAIL, NUM_HOW };

static void what_is_left_is_what_was_asked_for(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (unsigned i = 0; i < 40000; i++) {
		struct buf *b = chain(&seed, 1 + test_random(&seed) % PARTS);
		uint32_t total = b->total, n = test_random(&seed) % (total - 1) + 1;

		b->seq = 1000;
		switch (i % NUM_HOW) {
		case SKIP:
			b = buf_skip(b, n);
			holds(b, n, total - n);
			break;
		case CUT:
			buf_cut(b, n);
			holds(b, 0, n);
			break;
		case TRIM_FRONT:
			b = tcp_buf_trim_front(b, n);
			holds(b, n, total - n);
			assert_int_equal(b->seq, 1000 + n);
			break;
		default:
			tcp_buf_trim_tail(b, n);
			holds(b, 0, n);
		}
		buf_free(b);
		assert_int_equal(alive, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_left_is_what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
