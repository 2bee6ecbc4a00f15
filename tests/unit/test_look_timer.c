/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* lib/runtime/worker.c, look timers: one looks while there is something, stops, and goes on when
 * told. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/timerfd.h>

#include <cmocka.h>

#include "runtime/runtime.h"

#define IN_VAIN 5
#define GRID_NS 1000000u
#define SLACK_NS 1000u

static _Atomic int to_find;
static _Atomic unsigned looks;
static sem_t looked;

static bool look(void)
{
	bool found = atomic_load(&to_find) > 0;

	if (found)
		atomic_fetch_sub(&to_find, 1);
	atomic_fetch_add(&looks, 1);
	sem_post(&looked);
	return found;
}

static struct look_timer timer = LOOK_TIMER(look, "the test", 1, IN_VAIN);

static int setup(void **state)
{
	(void)state;
	libc_load();
	sem_init(&looked, 0, 0);
	assert_int_equal(worker_start(NULL, 1), 0);
	return look_timer_start(&timer);
}

static int teardown(void **state)
{
	(void)state;
	worker_stop();
	look_timer_forked(&timer);
	return 0;
}

static void nothing(void *arg)
{
	(void)arg;
}

/* Returns when the timer has stopped, how many looks that took. */
static unsigned looks_until_it_stops(void)
{
	unsigned before = atomic_load(&looks);

	look_timer_go(&timer);
	do {
		sem_wait(&looked);
		assert_int_equal(worker_run(nothing, NULL), 0); /* the look has ended */
	} while (atomic_load(&timer.armed));
	while (!sem_trywait(&looked))
		;
	return atomic_load(&looks) - before;
}

static void it_stops_when_there_is_nothing(void **state)
{
	(void)state;
	/* The last one is for what came while it stopped. */
	assert_int_equal(looks_until_it_stops(), IN_VAIN + 1);
	assert_int_equal(looks_until_it_stops(), IN_VAIN + 1);
}

static void it_goes_on_while_there_is_something(void **state)
{
	(void)state;
	atomic_store(&to_find, 20);
	assert_int_equal(looks_until_it_stops(), 20 + IN_VAIN + 1);
	assert_int_equal(atomic_load(&to_find), 0);
}

/* Timers of one process wake its thread once, not one after the other: they stand on one grid. */
static void it_goes_off_with_the_other_timers(void **state)
{
	struct itimerspec its;
	uint64_t before, after, left;

	(void)state;
	look_timer_go(&timer);
	do {
		before = clock_monotonic_ns();
		assert_int_equal(timerfd_gettime(timer.fd, &its), 0);
		after = clock_monotonic_ns();
		left = (uint64_t)its.it_value.tv_nsec;
		assert_true(left);
	} while (after - before > GRID_NS / 4); /* somebody else had the processor */
	/* It goes off in between, which is not a whole period from now. */
	assert_int_equal((before + left - SLACK_NS) / GRID_NS + 1,
			 (after + left + SLACK_NS) / GRID_NS);
	looks_until_it_stops();
}

static void a_second_start_changes_nothing(void **state)
{
	int fd = timer.fd;

	(void)state;
	assert_int_equal(look_timer_start(&timer), 0);
	assert_int_equal(timer.fd, fd);
}

static void a_child_has_none(void **state)
{
	struct look_timer other = LOOK_TIMER(look, "none", 1, IN_VAIN);

	(void)state;
	assert_false(look_timer_runs(&other));
	look_timer_go(&other);
	assert_false(other.armed);
	assert_true(look_timer_runs(&timer));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_stops_when_there_is_nothing),
		cmocka_unit_test(it_goes_on_while_there_is_something),
		cmocka_unit_test(it_goes_off_with_the_other_timers),
		cmocka_unit_test(a_second_start_changes_nothing),
		cmocka_unit_test(a_child_has_none),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
