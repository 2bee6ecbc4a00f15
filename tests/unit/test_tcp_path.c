/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The paths of sockets: made by the first segment, given back by those that rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "socket/tcp/internal.h"

#define REST 10 /* seconds, as socket/tcp/path.c has it */

static struct tcp_sock_stack t;
static struct tcp_sock socks[3];

static void pass(unsigned seconds)
{
	while (seconds--)
		tcp_sock_paths_expire(&t);
}

static int forget(void **state)
{
	(void)state;
	tcp_sock_paths_free(&t);
	assert_null(t.paths_first);
	for (int i = 0; i < 3; i++)
		assert_null(socks[i].path_cache);
	return 0;
}

static void a_socket_keeps_the_path_that_it_uses(void **state)
{
	struct tcp_sock_path *p = tcp_sock_path_get(&t, &socks[0]);

	(void)state;
	assert_non_null(p);
	assert_false(p->valid);
	p->valid = true;
	for (int i = 0; i < 3 * REST; i++) {
		assert_ptr_equal(tcp_sock_path_get(&t, &socks[0]), p);
		pass(1);
	}
	assert_true(p->valid);
}

static void one_that_rests_gives_it_back(void **state)
{
	(void)state;
	tcp_sock_path_get(&t, &socks[0])->valid = true;
	pass(REST);
	assert_non_null(socks[0].path_cache);
	pass(1);
	assert_null(socks[0].path_cache);
	assert_null(t.paths_first);
	assert_null(t.paths_last);
	assert_false(tcp_sock_path_get(&t, &socks[0])->valid);
}

static void each_rests_by_itself(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		tcp_sock_path_get(&t, &socks[i]);
	pass(REST - 1);
	tcp_sock_path_get(&t, &socks[1]); /* out of the middle of the list */
	pass(2);
	assert_null(socks[0].path_cache);
	assert_non_null(socks[1].path_cache);
	assert_null(socks[2].path_cache);
	pass(REST);
	assert_null(socks[1].path_cache);
}

static void a_connection_that_is_over_has_none(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		tcp_sock_path_get(&t, &socks[i]);
	tcp_sock_path_drop(&t, &socks[1]);
	tcp_sock_path_drop(&t, &socks[1]);
	assert_null(socks[1].path_cache);
	assert_ptr_equal(t.paths_first, socks[2].path_cache);
	assert_ptr_equal(t.paths_first->next, socks[0].path_cache);
	assert_ptr_equal(t.paths_last, socks[0].path_cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_socket_keeps_the_path_that_it_uses, forget),
		cmocka_unit_test_teardown(one_that_rests_gives_it_back, forget),
		cmocka_unit_test_teardown(each_rests_by_itself, forget),
		cmocka_unit_test_teardown(a_connection_that_is_over_has_none, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
