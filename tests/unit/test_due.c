/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a stack tells by completions, and whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "stack/stack.h"

/* One that has something to tell so many times. */
struct teller {
	struct stack_due due; /* first */
	unsigned left;
	bool full, asks;
};

static struct stack st, other_st;
static struct teller a, b, c;
static struct vma_completion_t to[8];
static unsigned asked;

static bool ask(void *object, uint32_t gen)
{
	(void)object;
	(void)gen;
	asked++;
	return true;
}

static enum stack_tells tell(struct stack *in, struct stack_due *d, struct stack_completions *told)
{
	struct teller *t = (struct teller *)d;

	if (t->asks)
		told->first = ask;
	if (t->full) {
		stack_due_add(in, d);
		return STACK_TELLS_NOT_NOW;
	}
	if (!t->left)
		return STACK_TELLS_NOTHING;
	told->at->user_data = (uint64_t)(uintptr_t)t;
	if (--t->left)
		stack_due_add(in, d);
	return STACK_TELLS;
}

static int setup(void **state)
{
	(void)state;
	st = other_st = (struct stack){0};
	a = b = c = (struct teller){.due.tell = tell, .left = 1};
	return 0;
}

/* The completions are of these, in this order. */
static void completion_of(unsigned n, const struct teller *const want[])
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(to[i].user_data, (uintptr_t)want[i]);
}

static void test_each_in_its_turn(void **state)
{
	struct stack_completions told;

	(void)state;
	a.left = 3;
	b.left = 2;
	stack_due_add(&st, &a.due);
	stack_due_add(&st, &b.due);
	stack_due_add(&st, &a.due); /* is there already */
	stack_due_add(&st, &c.due);
	assert_int_equal(stack_tell(&st, to, 4, &told), 4);
	completion_of(4, (const struct teller *const[]){&a, &b, &c, &a});
	assert_int_equal(stack_tell(&st, to, 8, &told), 2);
	completion_of(2, (const struct teller *const[]){&b, &a});
	assert_null(st.due);
	assert_int_equal(stack_tell(&st, to, 8, &told), 0);
}

static void test_who_has_nothing_takes_no_place(void **state)
{
	struct stack_completions told;

	(void)state;
	a.left = 0;
	stack_due_add(&st, &a.due);
	stack_due_add(&st, &b.due);
	assert_int_equal(stack_tell(&st, to, 1, &told), 1);
	completion_of(1, (const struct teller *const[]){&b});
}

static void test_who_leaves_is_not_told_of(void **state)
{
	struct stack_completions told;

	(void)state;
	stack_due_add(&st, &a.due);
	stack_due_add(&st, &b.due);
	stack_due_add(&st, &c.due);
	stack_due_del(&other_st, &b.due); /* is not there */
	stack_due_del(&st, &b.due);
	stack_due_del(&st, &c.due);
	stack_due_del(&st, &c.due);
	/* The end of the list is where it should be. */
	stack_due_add(&st, &b.due);
	assert_int_equal(stack_tell(&st, to, 8, &told), 2);
	completion_of(2, (const struct teller *const[]){&a, &b});
	stack_due_add(&other_st, &c.due);
	assert_int_equal(stack_tell(&other_st, to, 8, &told), 1);
}

static void test_a_full_program_is_told_later(void **state)
{
	struct stack_completions told;

	(void)state;
	a.full = true;
	stack_due_add(&st, &a.due);
	stack_due_add(&st, &b.due);
	assert_int_equal(stack_tell(&st, to, 8, &told), 0);
	a.full = false;
	assert_int_equal(stack_tell(&st, to, 8, &told), 2);
	completion_of(2, (const struct teller *const[]){&b, &a});
}

static void test_what_needs_no_lock_comes_first(void **state)
{
	struct stack_completions told;

	(void)state;
	a.asks = true;
	stack_due_add(&st, &a.due);
	stack_due_add(&st, &b.due);
	assert_int_equal(stack_tell(&st, to, 8, &told), 1);
	assert_true(told.first(told.object, told.gen));
	assert_int_equal(asked, 1);
	assert_int_equal(stack_tell(&st, to, 8, &told), 1);
	assert_null(told.first);
	completion_of(1, (const struct teller *const[]){&b});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_in_its_turn, setup),
		cmocka_unit_test_setup(test_who_has_nothing_takes_no_place, setup),
		cmocka_unit_test_setup(test_who_leaves_is_not_told_of, setup),
		cmocka_unit_test_setup(test_a_full_program_is_told_later, setup),
		cmocka_unit_test_setup(test_what_needs_no_lock_comes_first, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
