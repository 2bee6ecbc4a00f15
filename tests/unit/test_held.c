/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames in the program's hands: what names them, who may give them back, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>

#include "stack/stack.h"

static struct ring ring;
static struct stack st = {.ring = &ring};
static int owner, other, account;
static __u64 count;
static unsigned freed, backs;
static uint64_t charge_back;

static void pool_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
	freed++;
}

static struct buf_pool pool = {.free = pool_free};

static void back(const struct stack_held *h)
{
	assert_ptr_equal(h->account, &account);
	charge_back += h->charge;
	backs++;
}

static void *hold(struct buf *b, bool shown)
{
	struct stack_held h = {.b = b,
			       .st = &st,
			       .owner = &owner,
			       .back = back,
			       .account = &account,
			       .count = &count,
			       .charge = 7,
			       .shown = shown};

	b->pool = &pool;
	b->refs = 1;
	return stack_hold(&h);
}

static int setup(void **state)
{
	(void)state;
	lock_mode = 1;
	lock_class(&st.lock, "stack.lock");
	stack_held_forked();
	atomic_store(&ring.held, 0);
	freed = backs = 0;
	count = 0;
	charge_back = 0;
	return 0;
}

static void test_each_goes_back_once(void **state)
{
	struct buf a = {0}, b = {0};
	void *x = hold(&a, false), *y = hold(&b, false), *z;

	(void)state;
	assert_non_null(x);
	assert_ptr_not_equal(x, y);
	assert_int_equal(ring.held, 2);
	assert_int_equal(count, 2);
	assert_int_equal(stack_held_free(x, &other), -ENOENT);
	assert_int_equal(stack_held_free(x, NULL), -ENOENT);
	assert_int_equal(stack_held_free(NULL, &owner), -ENOENT);
	assert_int_equal(stack_held_free((char *)x + (1 << 20), &owner), -ENOENT);
	assert_int_equal(stack_held_free(x, &owner), 0);
	assert_int_equal(stack_held_free(x, &owner), -ENOENT);
	/* Its place is another's, its name is not. */
	z = hold(&a, false);
	assert_ptr_not_equal(x, z);
	assert_int_equal(stack_held_free(x, &owner), -ENOENT);
	assert_int_equal(stack_held_free(y, &owner), 0);
	assert_int_equal(stack_held_free(z, &owner), 0);
	assert_int_equal(freed, 3);
	assert_int_equal(backs, 3);
	assert_int_equal(charge_back, 21);
	assert_int_equal(ring.held, 0);
	assert_int_equal(count, 0);
}

static void test_what_a_callback_has_is_not_the_programs(void **state)
{
	struct buf a = {0}, b = {0};
	void *x = hold(&a, true), *y = hold(&b, true);

	(void)state;
	assert_int_equal(stack_held_free(x, &owner), -EBUSY);
	stack_held_keep(x);
	assert_int_equal(stack_held_free(x, &owner), 0);
	stack_held_drop(y);
	assert_int_equal(stack_held_free(y, &owner), -ENOENT);
	assert_int_equal(freed, 1); /* the other one is the caller's */
	assert_int_equal(count, 0);
	assert_int_equal(ring.held, 0);
}

static void test_of_a_closed_owner_anybody_frees(void **state)
{
	struct buf a = {0}, b = {0};
	void *x = hold(&a, false), *y = hold(&b, false);

	(void)state;
	stack_held_orphan(&other);
	assert_int_equal(stack_held_free(x, NULL), -ENOENT);
	stack_held_orphan(&owner);
	count = 4711; /* another socket's by now */
	assert_int_equal(stack_held_free(x, NULL), 0);
	assert_int_equal(stack_held_free(y, &other), 0);
	assert_int_equal(count, 4711);
}

static void test_so_many_and_no_more(void **state)
{
	static struct buf bufs[STACK_HELD_MAX + 1];
	static void *ids[STACK_HELD_MAX];

	(void)state;
	for (uint32_t i = 0; i < STACK_HELD_MAX; i++)
		assert_non_null(ids[i] = hold(&bufs[i], false));
	assert_null(hold(&bufs[STACK_HELD_MAX], false));
	assert_int_equal(stack_held_free(ids[4711], &owner), 0);
	assert_non_null(ids[4711] = hold(&bufs[STACK_HELD_MAX], false));
	for (uint32_t i = 0; i < STACK_HELD_MAX; i++)
		assert_int_equal(stack_held_free(ids[i], &owner), 0);
	assert_int_equal(ring.held, 0);
}

static void test_a_child_has_none(void **state)
{
	struct buf a = {0};
	void *x = hold(&a, false);

	(void)state;
	stack_held_forked();
	assert_int_equal(stack_held_free(x, &owner), -ENOENT);
	assert_int_equal(freed, 0);
}

/* --- pieces that are lent (SocketXtreme) */

static uint32_t piece_charge(const struct buf *piece, bool first)
{
	return piece->len + (first ? 100 : 0);
}

/* A frame of n pieces of 10 bytes each. */
static bool lend(struct buf *b, unsigned n, struct vma_packet_desc_t *p)
{
	struct stack_held h = {.b = b,
			       .st = &st,
			       .owner = &owner,
			       .back = back,
			       .account = &account,
			       .count = &count};

	for (unsigned i = 0; i < n; i++) {
		b[i] = (struct buf){.pool = &pool,
				    .refs = 1,
				    .data = (uint8_t *)&b[i],
				    .len = 10,
				    .total = i ? 0 : 10 * n,
				    .frag = i + 1 < n ? &b[i + 1] : NULL};
	}
	return stack_lend(&h, piece_charge, p);
}

static void test_each_piece_goes_back_by_itself(void **state)
{
	const struct vma_buff_t *first, *second, *third, *next;
	struct vma_packet_desc_t p;
	struct buf b[3];

	(void)state;
	assert_true(lend(b, 3, &p));
	assert_int_equal(p.num_bufs, 3);
	assert_int_equal(p.total_len, 30);
	assert_int_equal(ring.held, 3);
	first = p.buff_lst;
	second = first->next;
	third = second->next;
	assert_null(third->next);
	assert_ptr_equal(second->payload, b[1].data);
	assert_int_equal(second->len, 10);
	assert_int_equal(stack_lent_ref(second), 2);
	assert_int_equal(stack_lent_next(first, &next), 0);
	assert_ptr_equal(next, second);
	assert_int_equal(stack_lent_next(second, &next), 1);
	assert_ptr_equal(next, third);
	assert_int_equal(stack_lent_unref(third), 0);
	assert_int_equal(freed, 2);
	assert_int_equal(charge_back, 120);
	assert_int_equal(stack_lent_unref(second), 0);
	assert_int_equal(freed, 3);
	assert_int_equal(charge_back, 130);
	assert_int_equal(ring.held, 0);
}

static void test_what_is_no_piece_is_found_out(void **state)
{
	struct vma_buff_t foreign = {0};
	const struct vma_buff_t *piece;
	struct vma_packet_desc_t p;
	struct buf a = {0}, b;
	void *held = hold(&a, false);

	(void)state;
	assert_int_equal(stack_lent_unref(NULL), -EINVAL);
	assert_int_equal(stack_lent_ref(&foreign), -EINVAL);
	assert_true(lend(&b, 1, &p));
	piece = p.buff_lst;
	assert_int_equal(stack_lent_ref((const struct vma_buff_t *)((const char *)piece + 8)),
			 -EINVAL);
	/* The place beside it has a frame that was not lent. */
	assert_int_equal(stack_lent_ref((const struct vma_buff_t *)((const char *)piece - 32)),
			 -EINVAL);
	assert_int_equal(stack_lent_unref(piece), 0);
	assert_int_equal(stack_lent_unref(piece), -EINVAL);
	assert_int_equal(stack_held_free(held, &owner), 0);
	assert_int_equal(freed, 2);
}

static void test_a_frame_is_lent_whole_or_not_at_all(void **state)
{
	static struct buf bufs[STACK_HELD_MAX];
	static void *ids[STACK_HELD_MAX];
	struct vma_packet_desc_t p;
	struct buf b[2];

	(void)state;
	for (uint32_t i = 0; i < STACK_HELD_MAX - 1; i++)
		assert_non_null(ids[i] = hold(&bufs[i], false));
	assert_false(lend(b, 2, &p));
	assert_ptr_equal(b[0].frag, &b[1]);
	assert_int_equal(b[0].total, 20);
	assert_int_equal(stack_held_free(ids[0], &owner), 0);
	assert_true(lend(b, 2, &p));
	assert_null(hold(&bufs[0], false));
	for (uint32_t i = 1; i < STACK_HELD_MAX - 1; i++)
		assert_int_equal(stack_held_free(ids[i], &owner), 0);
	assert_int_equal(ring.held, 2);
}

static int teardown(void **state)
{
	(void)state;
	stack_held_forked();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_goes_back_once, setup),
		cmocka_unit_test_setup(test_what_a_callback_has_is_not_the_programs, setup),
		cmocka_unit_test_setup(test_of_a_closed_owner_anybody_frees, setup),
		cmocka_unit_test_setup(test_so_many_and_no_more, setup),
		cmocka_unit_test_setup(test_a_child_has_none, setup),
		cmocka_unit_test_setup(test_each_piece_goes_back_by_itself, setup),
		cmocka_unit_test_setup(test_what_is_no_piece_is_found_out, setup),
		cmocka_unit_test_setup(test_a_frame_is_lent_whole_or_not_at_all, setup),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
