/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lock in each mode: one holder at a time, nobody sleeps for ever, and signals wait as long as
 * it is held. A watchdog says what it saw when a thread hangs.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/libc.h"
#include "runtime/lock.h"

#define THREADS 4
#define ROUNDS 3000
/* Of seconds without a single round: not how long it may take. */
#define STUCK_S 10

static struct lock lock;
static unsigned held; /* by the lock */
static _Atomic unsigned turns;

static void *taker(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		lock_take(&lock);
		if (held++)
			abort();
		/* Long enough that others run out of patience and sleep. */
		for (int n = rand_r(&seed) % 3; n; n--)
			sched_yield();
		held--;
		lock_drop(&lock);
		atomic_fetch_add(&turns, 1);
		if (rand_r(&seed) % 8 == 0)
			sched_yield();
	}
	return NULL;
}

static void watch_over(unsigned want)
{
	unsigned seen = 0;

	for (int still = 0; (seen = atomic_load(&turns)) < want;) {
		usleep(10000);
		still = atomic_load(&turns) == seen ? still + 1 : 0;
		if (still > STUCK_S * 100)
			fail_msg("stuck after %u of %u turns: the lock's word is %#x", seen, want,
				 (unsigned)lock.owner);
	}
}

static void everybody_has_a_turn(void **state)
{
	static const int modes[] = {1, 2, 3};

	(void)state;
	for (unsigned m = 0; m < 3; m++) {
		pthread_t threads[THREADS];

		lock_mode = modes[m];
		atomic_store(&turns, 0);
		for (uintptr_t i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, taker, (void *)(i + 1)),
					 0);
		watch_over(THREADS * ROUNDS);
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(lock.owner, 0);
		print_message("    mode %d: %u turns\n", modes[m], THREADS * ROUNDS);
	}
	lock_mode = 1;
}

static void *waiter(void *arg)
{
	lock_take(&lock);
	lock_drop(&lock);
	return arg;
}

static bool somebody_sleeps(void)
{
	return atomic_load(&lock.owner) & LOCK_WAITERS;
}

/* Until a waiter has spun for long enough. */
static void wait_for_sleeper(void)
{
	for (unsigned ms = 0; ms < STUCK_S * 1000 && !somebody_sleeps(); ms++)
		usleep(1000);
	assert_true(somebody_sleeps());
}

static void wait_for_end(pthread_t thread)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STUCK_S;
	assert_int_equal(pthread_timedjoin_np(thread, NULL, &until), 0);
}

/* And is woken: the time limit is far away. */
static void who_waits_for_long_sleeps(void **state)
{
	const struct timespec most = lock_sleep_most;

	(void)state;
	lock_sleep_most = (struct timespec){1000 * STUCK_S, 0};
	for (int mode = 1; mode <= 3; mode++) {
		pthread_t thread;

		lock_mode = mode;
		lock_take(&lock);
		assert_int_equal(pthread_create(&thread, NULL, waiter, NULL), 0);
		wait_for_sleeper();
		usleep(1000); /* it may be on its way to sleep: the mark keeps it awake then */
		lock_drop(&lock);
		wait_for_end(thread);
		assert_int_equal(lock.owner, 0);
		print_message("    mode %d: sleeps, and is woken\n", mode);
	}
	lock_mode = 1;
	lock_sleep_most = most;
}

/* The store of lock_drop() between whose look and itself somebody marks the word. */
static void a_mark_that_was_missed_holds_nobody(void **state)
{
	pthread_t thread;

	(void)state;
	lock_take(&lock);
	assert_int_equal(pthread_create(&thread, NULL, waiter, NULL), 0);
	wait_for_sleeper();
	usleep(1000); /* it may be on its way to sleep: either way it comes back */
	lock_dropped(&lock);
	atomic_store(&lock.owner, 0);
	lock_leave();
	wait_for_end(thread);
	assert_int_equal(lock.owner, 0);
}

static void *tryer(void *arg)
{
	*(bool *)arg = lock_try(&lock);
	return NULL;
}

static void what_is_held_is_refused(void **state)
{
	pthread_t thread;
	bool got = true;

	(void)state;
	lock_take(&lock);
	assert_true(lock_mine(&lock));
	assert_int_equal(pthread_create(&thread, NULL, tryer, &got), 0);
	pthread_join(thread, NULL);
	assert_false(got);
	/* A handler that interrupted the holder. */
	assert_false(lock_get(&lock));
	assert_int_equal(lock_thread.depth, 1);
	lock_drop(&lock);
	assert_int_equal(lock_thread.depth, 0);
	assert_false(lock_mine(&lock));
	assert_true(lock_get(&lock));
	lock_drop(&lock);
	assert_int_equal(lock_thread.depth, 0);
}

static unsigned told;

static void tell(void)
{
	told++;
	lock_thread.deferred = false;
}

static void what_waits_is_told_at_the_last_leave_only(void **state)
{
	void (*before)(void) = lock_deferred_fn;

	(void)state;
	lock_deferred_fn = tell;
	lock_take(&lock);
	lock_enter();
	lock_thread.deferred = true;
	lock_leave();
	assert_int_equal(told, 0);
	lock_drop(&lock);
	assert_int_equal(told, 1);
	lock_deferred_fn = before;
}

#ifdef VMA_CHECK
/* --- the checker: what it must see ends the process and says what it was */

static struct lock stack_lock, other_stack_lock, sock_lock, watch, one, two;

static void in_both_orders(void)
{
	lock_take(&one);
	lock_take(&two);
	lock_drop(&two);
	lock_drop(&one);
	lock_take(&two);
	lock_take(&one);
}

static void against_the_documentation(void)
{
	lock_take(&watch);
	lock_take(&sock_lock);
}

static void two_of_a_class(void)
{
	lock_class(&one, "a");
	lock_class(&two, "a");
	lock_take(&one);
	lock_take(&two);
}

static void stacks_downwards(void)
{
	struct lock *low = &stack_lock < &other_stack_lock ? &stack_lock : &other_stack_lock;
	struct lock *high = low == &stack_lock ? &other_stack_lock : &stack_lock;

	lock_take(high);
	lock_take(low);
}

static void twice(void)
{
	lock_take(&one);
	lock_take(&one);
}

static void given_back_unheld(void)
{
	lock_drop(&one);
}

static void kept_by_a_callback(void)
{
	lock_take(&one);
	lock_check_none("a callback");
}

static void cancellable_with_a_lock(void)
{
	lock_take(&one);
	libc.close(-1);
}

static const struct {
	void (*what)(void);
	const char *says;
} wrongs[] = {
	{in_both_orders, "a circle: two"},
	{against_the_documentation, "against the documented order: watch_lock"},
	{two_of_a_class, "two of one class: a"},
	{stacks_downwards, "two of one class: stack.lock"},
	{twice, "it would wait for itself"},
	{given_back_unheld, "by a thread that does not have it"},
	{kept_by_a_callback, "a callback ends with 1 locks held"},
	{cancellable_with_a_lock,
	 "close() is called, where a thread can be cancelled, with 1 locks"},
};

/* What a child that does it says before it ends by SIGABRT. */
static void report_of(void (*what)(void), char *text, size_t room)
{
	int fds[2], status;
	ssize_t n, len = 0;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		dup2(fds[1], 2);
		what();
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], text + len, room - 1 - (size_t)len)) > 0)
		len += n;
	text[len] = 0;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void the_checker_ends_what_is_wrong(void **state)
{
	char text[65536];

	(void)state;
	lock_class(&stack_lock, "stack.lock");
	lock_class(&other_stack_lock, "stack.lock");
	lock_class(&sock_lock, "udp_sock.lock");
	lock_class(&watch, "watch_lock");
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		report_of(wrongs[i].what, text, sizeof(text));
		if (!strstr(text, wrongs[i].says))
			fail_msg("\"%s\" is not in:\n%s", wrongs[i].says, text);
		assert_non_null(strstr(text, "LOCK_CHECK_SEED="));
		assert_non_null(strstr(text, "test_lock(+0x"));
	}
}

static void the_checker_lets_pass_what_is_right(void **state)
{
	struct lock *low = &stack_lock < &other_stack_lock ? &stack_lock : &other_stack_lock;
	struct lock *high = low == &stack_lock ? &other_stack_lock : &stack_lock;

	(void)state;
	lock_take(&sock_lock);
	lock_take(low);
	lock_take(high);
	lock_take(&watch);
	raw.close(-1);
	libc_internal_begin();
	libc.close(-1);
	libc_internal_end();
	/* In any order. */
	lock_drop(low);
	lock_drop(&watch);
	lock_drop(high);
	lock_drop(&sock_lock);
	lock_check_none("the test");
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_has_a_turn),
		cmocka_unit_test(who_waits_for_long_sleeps),
		cmocka_unit_test(a_mark_that_was_missed_holds_nobody),
		cmocka_unit_test(what_is_held_is_refused),
		cmocka_unit_test(what_waits_is_told_at_the_last_leave_only),
#ifdef VMA_CHECK
		cmocka_unit_test(the_checker_ends_what_is_wrong),
		cmocka_unit_test(the_checker_lets_pass_what_is_right),
#endif
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
