/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which sockets share a ring, when one moves to another, and which ring is shared when there can be
 * no more.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "stack/key.h"

static struct stack_client client(uint8_t last, uint64_t socket)
{
	struct stack_client c = {.socket = socket};

	c.local.s6_addr[10] = c.local.s6_addr[11] = 0xff;
	c.local.s6_addr[12] = 10;
	c.local.s6_addr[15] = last;
	return c;
}

struct asked {
	int logic;
	uint64_t key;
	cpu_set_t cpus;
};

static void *ask(void *arg)
{
	struct asked *a = arg;
	struct stack_client c = client(1, 1);

	a->key = stack_key_by(a->logic, &c);
	pthread_getaffinity_np(pthread_self(), sizeof(a->cpus), &a->cpus);
	return NULL;
}

/* What another thread is given. */
static struct asked in_thread(int logic)
{
	struct asked a = {.logic = logic};
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, ask, &a), 0);
	pthread_join(t, NULL);
	return a;
}

static void without_a_logic_all_share_one(void **state)
{
	struct stack_client c = client(1, 1);

	(void)state;
	assert_int_equal(stack_key_by(STACK_BY_IF, &c), 0);
	assert_int_equal(stack_key_by(7, &c), 0);
}

static void an_address_has_one_key_and_another_address_another(void **state)
{
	struct stack_client a = client(1, 1), b = client(1, 2), c = client(2, 1),
			    any = {.socket = 1};

	(void)state;
	assert_true(stack_key_by(STACK_BY_IP, &a) == stack_key_by(STACK_BY_IP, &b));
	assert_true(stack_key_by(STACK_BY_IP, &a) != stack_key_by(STACK_BY_IP, &c));
	assert_true(stack_key_by(STACK_BY_IP, &a) != stack_key_by(STACK_BY_IP, &any));
	assert_true(stack_key_by(STACK_BY_IP, &any) != 0);
}

static void each_socket_has_its_own(void **state)
{
	struct stack_client a = client(1, 0), b = client(1, 1), tcp = client(1, 1ull << 40);

	(void)state;
	assert_true(stack_key_by(STACK_BY_SOCKET, &a) != 0);
	assert_true(stack_key_by(STACK_BY_SOCKET, &a) == stack_key_by(STACK_BY_SOCKET, &a));
	assert_true(stack_key_by(STACK_BY_SOCKET, &a) != stack_key_by(STACK_BY_SOCKET, &b));
	assert_true(stack_key_by(STACK_BY_SOCKET, &a) != stack_key_by(STACK_BY_SOCKET, &tcp));
}

static void each_thread_has_its_own_whatever_the_socket(void **state)
{
	struct stack_client a = client(1, 1), b = client(2, 2);

	(void)state;
	assert_true(stack_key_by(STACK_BY_THREAD, &a) == stack_key_by(STACK_BY_THREAD, &b));
	assert_true(stack_key_by(STACK_BY_THREAD, &a) != in_thread(STACK_BY_THREAD).key);
}

static void keys_of_different_logics_never_meet(void **state)
{
	struct stack_client a = client(1, 1);

	(void)state;
	assert_true(stack_key_by(STACK_BY_SOCKET, &a) >> 56 !=
		    stack_key_by(STACK_BY_THREAD, &a) >> 56);
	assert_true(stack_key_by(STACK_BY_CORE, &a) >> 56 !=
		    stack_key_by(STACK_BY_THREAD, &a) >> 56);
	assert_true(stack_key_by(STACK_BY_IP, &a) >> 56 != stack_key_by(STACK_BY_CORE, &a) >> 56);
}

static void a_wish_wins_and_a_profile_has_rings_of_its_own(void **state)
{
	struct stack_client a = client(1, 1), b = client(1, 2);
	stack_ring_attr user = stack_ring_attr_make(STACK_BY_USER, 0, 0),
			other = stack_ring_attr_make(STACK_BY_USER, 0, 1),
			common = stack_ring_attr_make(STACK_BY_IF, 0, 0),
			apart = stack_ring_attr_make(STACK_BY_IF, 1, 0);

	(void)state;
	assert_true(stack_key_by_attr(0, STACK_BY_IP, &a) == stack_key_by(STACK_BY_IP, &a));
	assert_int_equal(stack_key_by_attr(common, STACK_BY_IP, &a), 0);
	assert_true(stack_key_by_attr(apart, STACK_BY_IF, &a) != 0);
	assert_true(stack_key_by_attr(user, STACK_BY_IF, &a) ==
		    stack_key_by_attr(user, STACK_BY_IP, &b));
	assert_true(stack_key_by_attr(user, STACK_BY_IF, &a) !=
		    stack_key_by_attr(other, STACK_BY_IF, &a));
	assert_int_equal(stack_ring_attr_logic(user, STACK_BY_IF), STACK_BY_USER);
	assert_int_equal(stack_ring_attr_logic(0, STACK_BY_CORE), STACK_BY_CORE);
}

static void a_pinned_thread_has_one_processor_and_its_ring(void **state)
{
	struct asked first = in_thread(STACK_BY_CORE_PINNED),
		     second = in_thread(STACK_BY_CORE_PINNED), free;
	cpu_set_t all;

	(void)state;
	sched_getaffinity(0, sizeof(all), &all);
	assert_int_equal(CPU_COUNT(&first.cpus), 1);
	assert_int_equal(CPU_COUNT(&second.cpus), 1);
	/* The one with the fewest threads is next. */
	if (CPU_COUNT(&all) > 1)
		assert_true(first.key != second.key);
	free = in_thread(STACK_BY_CORE);
	assert_int_equal(CPU_COUNT(&free.cpus), CPU_COUNT(&all));
}

/* Accesses by `now` until the socket moves; 0: not within 1000. */
static unsigned moves_after(struct stack_mover *m, int ratio, uint64_t owner, uint64_t now)
{
	for (unsigned i = 1; i <= 1000; i++)
		if (stack_mover_due(m, ratio) && stack_mover_compare(m, owner, now))
			return i;
	return 0;
}

static void a_socket_moves_when_another_has_called_twice_in_turn(void **state)
{
	struct stack_mover m = {.accesses = 0};

	(void)state;
	assert_int_equal(moves_after(&m, 100, 1, 2), 100 + STACK_MOVER_STABLE);
	/* And again from the beginning. */
	assert_int_equal(moves_after(&m, 10, 2, 3), 10 + STACK_MOVER_STABLE);
}

static void the_owner_moves_nothing(void **state)
{
	struct stack_mover m = {.accesses = 0};

	(void)state;
	assert_int_equal(moves_after(&m, 10, 1, 1), 0);
}

static void a_ratio_of_minus_one_is_never(void **state)
{
	struct stack_mover m = {.accesses = 0};

	(void)state;
	assert_int_equal(moves_after(&m, -1, 1, 2), 0);
}

static void callers_that_change_move_nothing(void **state)
{
	struct stack_mover m = {.accesses = 0};

	(void)state;
	assert_false(stack_mover_compare(&m, 1, 2));
	assert_false(stack_mover_compare(&m, 1, 3));
	assert_false(stack_mover_compare(&m, 1, 2));
	/* the owner again: the candidate is forgotten */
	assert_false(stack_mover_compare(&m, 1, 1));
	assert_false(stack_mover_compare(&m, 1, 2));
	assert_true(stack_mover_compare(&m, 1, 2));
}

static void a_new_key_has_a_new_ring_up_to_the_limit(void **state)
{
	const struct stack_choice rings[] = {
		{.key = 11, .users = 3}, {.key = 12, .users = 1}, {.key = 13, .users = 2}};
	unsigned at = 9;

	(void)state;
	assert_int_equal(stack_pick(rings, 0, 1, &at), STACK_PICK_NEW);
	assert_int_equal(stack_pick(rings, 3, 0, &at), STACK_PICK_NEW);
	assert_int_equal(at, 1); /* should the device refuse */
	assert_int_equal(stack_pick(rings, 3, 4, &at), STACK_PICK_NEW);
	assert_int_equal(stack_pick(rings, 3, 3, &at), STACK_PICK_SHARE);
	assert_int_equal(at, 1);
	assert_int_equal(stack_pick(rings, 1, 1, &at), STACK_PICK_SHARE);
	assert_int_equal(at, 0);
}

static void a_ring_that_nobody_uses_is_the_next_ones_but_not_the_interfaces(void **state)
{
	const struct stack_choice rings[] = {
		{.key = 0, .users = 0}, {.key = 12, .users = 1}, {.key = 13, .users = 0}};
	unsigned at = 9;

	(void)state;
	assert_int_equal(stack_pick(rings, 3, 0, &at), STACK_PICK_IDLE);
	assert_int_equal(at, 2);
	assert_int_equal(stack_pick(rings, 2, 2, &at), STACK_PICK_SHARE);
	assert_int_equal(at, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_logic_all_share_one),
		cmocka_unit_test(an_address_has_one_key_and_another_address_another),
		cmocka_unit_test(each_socket_has_its_own),
		cmocka_unit_test(each_thread_has_its_own_whatever_the_socket),
		cmocka_unit_test(keys_of_different_logics_never_meet),
		cmocka_unit_test(a_wish_wins_and_a_profile_has_rings_of_its_own),
		cmocka_unit_test(a_pinned_thread_has_one_processor_and_its_ring),
		cmocka_unit_test(a_socket_moves_when_another_has_called_twice_in_turn),
		cmocka_unit_test(the_owner_moves_nothing),
		cmocka_unit_test(a_ratio_of_minus_one_is_never),
		cmocka_unit_test(callers_that_change_move_nothing),
		cmocka_unit_test(a_new_key_has_a_new_ring_up_to_the_limit),
		cmocka_unit_test(a_ring_that_nobody_uses_is_the_next_ones_but_not_the_interfaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
