/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Blocks of send buffers stay with the stack, as many as were needed of late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/lock.h"
#include "socket/tcp/internal.h"
#include "stack/stack.h"

#define LARGE 32768u
#define MOST (4u << 20) /* bytes that stay, as socket/tcp/engine_memory.c has it */
#define MANY 200u

static struct tcp_sock_stack t;
static struct stack st = {.tcp = &t};

static int begin(void **state)
{
	(void)state;
	lock_take(&st.lock);
	return 0;
}

static int end(void **state)
{
	(void)state;
	tcp_sock_pieces_free(&t);
	t = (struct tcp_sock_stack){0};
	lock_drop(&st.lock);
	return 0;
}

/* n blocks come and go. */
static void use(unsigned n, size_t size)
{
	void *b[MANY];

	for (unsigned i = 0; i < n; i++) {
		b[i] = tcp_sock_mem_raw(&st, size);
		assert_non_null(b[i]);
		*(volatile char *)b[i] = 1;
		((volatile char *)b[i])[size - 1] = 1;
	}
	for (unsigned i = 0; i < n; i++)
		tcp_sock_mem_free(&st, b[i], size);
}

#if !defined(__SANITIZE_ADDRESS__) /* where nothing stays */

static void who_came_last_goes_first(void **state)
{
	void *a = tcp_sock_mem_raw(&st, LARGE), *b = tcp_sock_mem_raw(&st, LARGE), *c;

	(void)state;
	tcp_sock_mem_free(&st, a, LARGE);
	tcp_sock_mem_free(&st, b, LARGE);
	assert_int_equal(t.blocks_bytes, 2 * LARGE);
	c = tcp_sock_mem_raw(&st, LARGE / 2);
	assert_true(c != a && c != b);
	assert_ptr_equal(tcp_sock_mem_raw(&st, LARGE), b);
	assert_ptr_equal(tcp_sock_mem_raw(&st, LARGE), a);
	assert_int_equal(t.blocks_bytes, 0);
	tcp_sock_mem_free(&st, a, LARGE);
	tcp_sock_mem_free(&st, b, LARGE);
	tcp_sock_mem_free(&st, c, LARGE / 2);
}

static void what_stays_is_bounded(void **state)
{
	(void)state;
	for (size_t size = LARGE; size >= 1024; size /= 2)
		use(MANY, size);
	assert_true(t.blocks_bytes > MOST - LARGE && t.blocks_bytes <= MOST);
}

static void what_nobody_needs_goes_back(void **state)
{
	(void)state;
	use(8, LARGE);
	tcp_sock_pieces_expire(&t); /* they were needed in this second */
	assert_int_equal(t.blocks_bytes, 8 * LARGE);
	use(3, LARGE);
	tcp_sock_pieces_expire(&t);
	assert_int_equal(t.blocks_bytes, 3 * LARGE);
	tcp_sock_pieces_expire(&t);
	assert_int_equal(t.blocks_bytes, 0);
	assert_null(t.blocks[5].first);
}

#endif

static void nothing_stays_without_the_lock_or_of_other_sizes(void **state)
{
	(void)state;
	use(4, LARGE + 64);
	use(4, 2 * LARGE);
	use(4, LARGE - 64);
	lock_drop(&st.lock);
	use(4, LARGE);
	lock_take(&st.lock);
	assert_int_equal(t.blocks_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#if !defined(__SANITIZE_ADDRESS__)
		cmocka_unit_test_setup_teardown(who_came_last_goes_first, begin, end),
		cmocka_unit_test_setup_teardown(what_stays_is_bounded, begin, end),
		cmocka_unit_test_setup_teardown(what_nobody_needs_goes_back, begin, end),
#endif
		cmocka_unit_test_setup_teardown(nothing_stays_without_the_lock_or_of_other_sizes,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
