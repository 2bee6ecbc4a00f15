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
	assert_int_equal(stack_held_free(x, NULL), 0);
	assert_int_equal(stack_held_free(y, &other), 0);
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
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
