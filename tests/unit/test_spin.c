/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/wait/spin.c: when a wait spins. The time that it is given may lie behind the clock's: a wait
 * that began a second ago has lasted a second, and a yield from then comes back late. Each test is
 * a thread of its own, which knows nothing yet.
 */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "runtime/runtime.h"
#include "wait/spin.h"

#define US 1000ull
#define MS 1000000ull
#define WINDOW_NS (205 * US)

/* Says what does not hold, and ends the thread with it. */
#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x))                                                                          \
			pthread_exit((void *)(uintptr_t) #x);                                      \
	} while (0)

static struct wait_spin_memory memory;

/* A wait that began so long ago and slept to its end. False: it would not have spun; *why. */
static bool long_wait(uint64_t ago_ns, enum vma_slept *why)
{
	struct wait_spin sp;
	uint64_t began = clock_monotonic_ns() - ago_ns;
	bool spins = spin_begin(&sp, &memory, began);

	*why = sp.why;

	sp.stopped = true;
	spin_end(&sp, true);
	return spins;
}

/* A wait whose event came soon after it slept. False: another program had the processor meanwhile.
 */
static bool short_wait(void)
{
	uint64_t before = clock_monotonic_ns();
	struct wait_spin sp;

	(void)spin_begin(&sp, &memory, before);
	sp.stopped = true;
	spin_end(&sp, true);
	return clock_monotonic_ns() - before <= WINDOW_NS;
}

/* So many of them, one after the other, from level on. */
static void short_waits(unsigned level, unsigned num)
{
	unsigned n = 0;

	while (n < num) {
		if (!n)
			memory.seen = level;
		n = short_wait() ? n + 1 : 0;
	}
}

static void *long_waits(void *arg)
{
	enum vma_slept why;
	unsigned n = 0;

	(void)arg;
	while (memory.seen != 1) {
		long_wait(1000 * MS, &why);
		CHECK(++n < 10);
	}
	CHECK(!long_wait(1000 * MS, &why));
	CHECK(why == VMA_SLEPT_LONG);
	print_message("    no spin after %u waits of a second\n", n);
	short_waits(memory.seen, 3);
	CHECK(memory.seen == 4);
	print_message("    three short ones: it spins again\n");
	return NULL;
}

/* Spins to the end of its window, in steps in which nobody took the processor; *why it ends. */
static bool vain_spin(uint64_t *now, enum vma_slept *why)
{
	struct wait_spin sp;
	bool spins = spin_begin(&sp, &memory, *now);

	memory.seen = 3; /* 13 us */
	while (!sp.stopped) {
		*now += 5 * US;
		sp.yield_ns = UINT64_MAX;
		(void)spin_goes_on(&sp, *now);
	}
	*why = sp.why;
	spin_end(&sp, false);
	memory.seen = 3;
	return spins;
}

static void *budget(void *arg)
{
	uint64_t now = clock_monotonic_ns() - 1000 * MS, began = now;
	enum vma_slept why;
	unsigned spins = 0;

	(void)arg;
	memory.seen = 3;
	while (vain_spin(&now, &why)) {
		CHECK(why == VMA_SLEPT_WINDOW);
		spins++;
		CHECK(spins < 1000);
	}
	print_message("    %u spins in vain, %llu us, then none\n", spins,
		      (unsigned long long)((now - began) / US));
	CHECK(spins >= 20);
	CHECK(why == VMA_SLEPT_BUDGET);
	/* 1/32 of the time: after 10 ms there are 300 us, too little to begin; after 20 enough. */
	now += 10 * MS;
	CHECK(!vain_spin(&now, &why));
	now += 10 * MS;
	CHECK(vain_spin(&now, &why));
	return NULL;
}

static void *neighbour(void *arg)
{
	uint64_t now = clock_monotonic_ns() - 5000 * MS, for_ns = MS;
	struct wait_spin sp;

	(void)arg;
	for (int i = 0; i < 5; i++, for_ns *= 2) {
		memory.seen = 0;
		CHECK(spin_begin(&sp, &memory, now));
		CHECK(spin_goes_on(&sp, now + 1 * US));
		CHECK(!spin_goes_on(&sp, now + 3 * MS)); /* somebody's slice */
		CHECK(sp.why == VMA_SLEPT_SHARED);
		spin_end(&sp, true);
		now += 3 * MS;
		memory.seen = 0;
		CHECK(!spin_begin(&sp, &memory, now + for_ns - 1 * US));
		CHECK(sp.why == VMA_SLEPT_SHARED);
		now += for_ns;
		print_message("    the processor lost for 3 ms: no spin for %llu ms\n",
			      (unsigned long long)(for_ns / MS));
	}
	/* Alone for long, then 0.3 ms lost: that is no neighbour. */
	now += 1000 * MS;
	memory.seen = 0;
	CHECK(spin_begin(&sp, &memory, now));
	CHECK(!spin_goes_on(&sp, now + 300 * US));
	spin_end(&sp, true);
	memory.seen = 0;
	CHECK(spin_begin(&sp, &memory, now + 301 * US));
	return NULL;
}

/* Whatever the processor does meanwhile. */
static void *sleep_for_a_lock(void *arg)
{
	uint64_t now = clock_monotonic_ns() - 5000 * MS;
	struct wait_spin sp;

	(void)arg;
	memory.seen = 0; /* 51 us */
	CHECK(spin_begin(&sp, &memory, now));
	sp.yield_ns = UINT64_MAX;
	lock_thread.sleeps++;
	CHECK(spin_goes_on(&sp, now + 40 * US));
	CHECK(!spin_goes_on(&sp, now + 80 * US));
	CHECK(sp.why == VMA_SLEPT_SHARED);
	spin_end(&sp, true);
	return NULL;
}

static void *late_yield(void *arg)
{
	uint64_t now = clock_monotonic_ns() - 3 * MS;
	struct wait_spin sp;
	uint64_t back;

	(void)arg;
	memory.seen = 0;
	CHECK(spin_begin(&sp, &memory, now));
	CHECK(spin_goes_on(&sp, now + 9 * US));
	/* sched_yield() comes back 3 ms later, after this moment. */
	back = clock_monotonic_ns();
	CHECK(!spin_goes_on(&sp, now + 11 * US));
	CHECK(sp.why == VMA_SLEPT_SHARED);
	memory.seen = 0;
	CHECK(!spin_begin(&sp, &memory, back + 1 * MS - 1));
	CHECK(sp.why == VMA_SLEPT_SHARED);
	CHECK(spin_begin(&sp, &memory, clock_monotonic_ns() + 1 * MS));
	return NULL;
}

/* Somebody who looks for a place at this time. */
struct spinner {
	uint64_t now;
	bool found;
};

/*
 * Of a thread that has not spun yet: does it find a place when it spins longer? Whether its yield
 * is late is another question, and the machine's.
 */
static void *look_for_place(void *arg)
{
	struct wait_spin_memory own = {0};
	struct spinner *s = arg;
	struct wait_spin sp;

	if (!spin_begin(&sp, &own, s->now))
		return NULL;
	sp.yield_ns = s->now;
	(void)spin_goes_on(&sp, s->now);
	s->found = sp.why != VMA_SLEPT_CROWD;
	return NULL;
}

static bool finds_place(uint64_t now)
{
	struct spinner s = {.now = now};
	pthread_t t;

	pthread_create(&t, NULL, look_for_place, &s);
	pthread_join(t, NULL);
	return s.found;
}

static void *places(void *arg)
{
	uint64_t now = clock_monotonic_ns();
	cpu_set_t two;

	(void)arg;
	sched_getaffinity(0, sizeof(two), &two);
	if (CPU_COUNT(&two) > 2)
		return NULL; /* a place for each of these two */
	CHECK(finds_place(now));
	print_message("    the only place is taken for 50 us\n");
	CHECK(!finds_place(now + 1));
	CHECK(!finds_place(now + 50 * US - 1));
	/* Its thread has ended, and gave nothing back. */
	CHECK(finds_place(now + 50 * US));
	return NULL;
}

/* As spin.c has it: the spin's level below, how crowded it was above. */
#define SEEN(crowded) ((crowded) << 3 | 3u)
#define LASTS (10000 * MS)

static void *crowd(void *arg)
{
	uint64_t after;

	(void)arg;
	memory.seen = SEEN(30u);
	CHECK(!wait_is_crowded(&memory));
	memory.seen = SEEN(31u);
	CHECK(wait_is_crowded(&memory));
	wait_crowd_left(&memory, false);
	CHECK(memory.seen == SEEN(0u));
	CHECK(!wait_crowd_lasts(clock_monotonic_ns()));
	memory.seen = SEEN(31u);
	wait_crowd_left(&memory, true);
	after = clock_monotonic_ns();
	CHECK(wait_crowd_lasts(after));
	CHECK(!wait_crowd_lasts(after + LASTS));
	print_message("    one of a crowd went: for ten seconds others go sooner\n");
	memory.seen = SEEN(7u);
	CHECK(!wait_is_crowded(&memory));
	memory.seen = SEEN(8u);
	CHECK(wait_is_crowded(&memory));
	/* That makes it last no longer. */
	wait_crowd_left(&memory, true);
	CHECK(!wait_crowd_lasts(after + LASTS));
	return NULL;
}

static void *counts(void *arg)
{
	struct vma_stats_waits w = {0};

	(void)arg;
	wait_count(&w, true, false, true, VMA_SLEPT_WINDOW);
	CHECK(w.spun == 1 && !w.spun_in_vain && !w.slept && !w.why[VMA_SLEPT_WINDOW]);
	wait_count(&w, true, true, true, VMA_SLEPT_WINDOW);
	CHECK(w.spun == 1 && w.spun_in_vain == 1 && w.slept == 1 && w.why[VMA_SLEPT_WINDOW] == 1);
	wait_count(&w, false, true, true, VMA_SLEPT_QUOTA);
	CHECK(w.spun_in_vain == 1 && w.slept == 2 && w.why[VMA_SLEPT_QUOTA] == 1);
	/* A signal or a deadline while it spun. */
	wait_count(&w, true, false, false, VMA_SLEPT_WINDOW);
	CHECK(w.spun == 1 && w.spun_in_vain == 2 && w.slept == 2);
	return NULL;
}

static void alone(void **state)
{
	void *(*const *test)(void *) = (void *(*const *)(void *)) * state;
	void *wrong;
	pthread_t t;

	memory.seen = 0;
	assert_int_equal(pthread_create(&t, NULL, *test, NULL), 0);
	pthread_join(t, &wrong);
	if (wrong)
		fail_msg("%s", (const char *)wrong);
}

int main(void)
{
	static void *(*fns[])(void *) = {long_waits, budget, neighbour, sleep_for_a_lock,
					 late_yield, places, counts,	crowd};
	const struct CMUnitTest tests[] = {
		{"waits that last lower the spin to none, short ones raise it", alone, NULL, NULL,
		 &fns[0]},
		{"a budget bounds what is spun in vain", alone, NULL, NULL, &fns[1]},
		{"who shares its processor spins more and more rarely", alone, NULL, NULL, &fns[2]},
		{"a sleep for a lock is no neighbour", alone, NULL, NULL, &fns[3]},
		{"a late yield is a neighbour", alone, NULL, NULL, &fns[4]},
		{"fewer threads spin than there are processors", alone, NULL, NULL, &fns[5]},
		{"what a wait did is counted", alone, NULL, NULL, &fns[6]},
		{"a crowd lasts as long as it is one", alone, NULL, NULL, &fns[7]},
	};

	libc_load();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
