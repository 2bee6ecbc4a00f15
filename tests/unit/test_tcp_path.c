/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The paths of sockets: made by the first segment, given back by those that rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/lock.h"
#include "socket/tcp_int.h"

#define REST 10 /* seconds, as tcp_path.c has it */

static struct tsock_stack t;
static struct tsock socks[3];

static void pass(unsigned seconds)
{
	while (seconds--)
		tsock_ways_rest(&t);
}

static int forget(void **state)
{
	(void)state;
	tsock_ways_free(&t);
	assert_null(t.ways_first);
	for (int i = 0; i < 3; i++)
		assert_null(socks[i].way);
	return 0;
}

static void a_socket_keeps_the_path_that_it_uses(void **state)
{
	struct tsock_path *p = tsock_way(&t, &socks[0]);

	(void)state;
	assert_non_null(p);
	assert_false(p->valid);
	p->valid = true;
	for (int i = 0; i < 3 * REST; i++) {
		assert_ptr_equal(tsock_way(&t, &socks[0]), p);
		pass(1);
	}
	assert_true(p->valid);
}

static void one_that_rests_gives_it_back(void **state)
{
	(void)state;
	tsock_way(&t, &socks[0])->valid = true;
	pass(REST);
	assert_non_null(socks[0].way);
	pass(1);
	assert_null(socks[0].way);
	assert_null(t.ways_first);
	assert_null(t.ways_last);
	assert_false(tsock_way(&t, &socks[0])->valid);
}

static void each_rests_by_itself(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		tsock_way(&t, &socks[i]);
	pass(REST - 1);
	tsock_way(&t, &socks[1]); /* out of the middle of the list */
	pass(2);
	assert_null(socks[0].way);
	assert_non_null(socks[1].way);
	assert_null(socks[2].way);
	pass(REST);
	assert_null(socks[1].way);
}

static void a_connection_that_is_over_has_none(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		tsock_way(&t, &socks[i]);
	tsock_way_drop(&t, &socks[1]);
	tsock_way_drop(&t, &socks[1]);
	assert_null(socks[1].way);
	assert_ptr_equal(t.ways_first, socks[2].way);
	assert_ptr_equal(t.ways_first->next, socks[0].way);
	assert_ptr_equal(t.ways_last, socks[0].way);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_socket_keeps_the_path_that_it_uses, forget),
		cmocka_unit_test_teardown(one_that_rests_gives_it_back, forget),
		cmocka_unit_test_teardown(each_rests_by_itself, forget),
		cmocka_unit_test_teardown(a_connection_that_is_over_has_none, forget),
	};

	lock_mode = 0;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
