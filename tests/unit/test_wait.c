/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One blocking call's sleep as a model: a producer makes something visible and then tells; the
 * consumer adds its watch, looks, and sleeps. Thousands of hand-offs, one at a time; a sleep that
 * lasts to its deadline with something there was told of nothing.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_vfd.h"
#include "wait/call.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(VMA_CHECK)
#define ROUNDS 5000
#else
#define ROUNDS 50000
#endif
#define DEADLINE_NS 10000000000ull

static struct fake target;
static _Atomic uint32_t generation;
static _Atomic int turn; /* odd: the producer's */
static unsigned slept;
static int how;

enum { BY_OBJECT, BY_RING, BY_THREAD, NUM_HOW };
static const char *const how_name[] = {"the object is told", "a ring has a packet",
				       "the thread is told"};

static struct wait_thread *consumer;

static bool there(void *arg)
{
	(void)arg;
	return atomic_load(&target.packets) > 0;
}

static void give(void)
{
	static const uint64_t one = 1;

	switch (how) {
	case BY_OBJECT:
		fake_arrive(&target);
		return;
	case BY_RING:
		assert(write(ring_fd, &one, sizeof(one)) == sizeof(one));
		return;
	default:
		atomic_fetch_add(&target.packets, 1);
		wait_wake(consumer);
	}
}

static void *producer(void *arg)
{
	unsigned seed = 11;

	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		while (!(atomic_load(&turn) & 1))
			sched_yield();
		for (int n = rand_r(&seed) % (rand_r(&seed) % 4 ? 4000 : 300); n; n--)
			__asm__ volatile("");
		atomic_fetch_add(&turn, 1);
		give();
	}
	return NULL;
}

static struct spin_memory memory;

static void take_one(int round)
{
	struct wait_call w;

	wait_call_init(&w, &generation, DEADLINE_NS, 0, &memory);
	while (!there(NULL)) {
		int err = wait_call_sleep(&w, &target.vfd, -1, there, NULL);

		slept++;
		if (err && there(NULL))
			fail_msg("%s, round %d: it was there, and nobody woke the sleeper (%d)",
				 how_name[how], round, err);
		if (err)
			fail_msg("%s, round %d: nothing came (%d)", how_name[how], round, err);
	}
	fake_take(&target);
}

static void no_wakeup_is_missed(void **state)
{
	(void)state;
	consumer = wait_thread_self();
	assert_non_null(consumer);
	for (how = 0; how < NUM_HOW; how++) {
		pthread_t thread;

		fake_open(&target);
		ring_owner = &target;
		if (how == BY_RING) {
			ring_fd = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
			atomic_fetch_add(&ring_generation, 1);
		}
		atomic_store(&turn, 0);
		slept = 0;
		assert_int_equal(pthread_create(&thread, NULL, producer, NULL), 0);
		for (int i = 0; i < ROUNDS; i++) {
			atomic_fetch_add(&turn, 1);
			take_one(i);
		}
		pthread_join(thread, NULL);
		print_message("    %s: %d hand-offs, %u sleeps\n", how_name[how], ROUNDS, slept);
		/* Without one nothing was tested. */
		assert_true(slept > 0);
		fake_shut(&target);
	}
	close(ring_fd);
	ring_fd = -1;
	atomic_fetch_add(&ring_generation, 1);
}

static void *closer(void *arg)
{
	(void)arg;
	while (!(atomic_load(&turn) & 1))
		sched_yield();
	atomic_fetch_add(&generation, 1);
	vfd_notify(&target.vfd, EPOLLHUP);
	atomic_fetch_add(&turn, 1);
	return NULL;
}

static bool nothing(void *arg)
{
	(void)arg;
	return false;
}

static void a_close_ends_the_sleep(void **state)
{
	(void)state;
	fake_open(&target);
	atomic_store(&turn, 0);
	for (int i = 0; i < 300; i++) {
		struct wait_call w;
		pthread_t thread;

		wait_call_init(&w, &generation, DEADLINE_NS, 0, &memory);
		assert_int_equal(pthread_create(&thread, NULL, closer, NULL), 0);
		atomic_fetch_add(&turn, 1);
		while (!wait_call_closed(&w))
			assert_int_equal(wait_call_sleep(&w, &target.vfd, -1, nothing, NULL), 0);
		pthread_join(thread, NULL);
	}
	fake_shut(&target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wakeup_is_missed),
		cmocka_unit_test(a_close_ends_the_sleep),
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
