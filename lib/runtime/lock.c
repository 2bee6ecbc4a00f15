/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/libc.h"

/* Tries before the holder is assumed to be off its CPU. */
#define SPINS_BEFORE_SLEEP 200

__thread struct lock_thread lock_thread;

static void nothing(void)
{
}

void (*lock_deferred_fn)(void) = nothing;
void (*lock_after_fn)(void) = nothing;
_Atomic int lock_mode = 1;
/* The spinning modes give a lock back without looking and writing at once: a mark may be missed. */
struct timespec lock_sleep_most = {0, 200000};

uint32_t lock_tid_init(void)
{
	lock_thread.tid = (uint32_t)libc_raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
	return lock_thread.tid;
}

void lock_thread_forked(void)
{
	lock_tid_init();
}

/*
 * Marks the word, so that the holder wakes us, and sleeps while it stays as it is. sched_yield()
 * would let all others run first that wait for this processor, the holder among the last; one of a
 * real-time class would have none of the others run at all.
 */
static void sleep_on(struct lock *l, uint32_t seen)
{
	uint32_t marked = seen | LOCK_WAITERS;

	if (seen == marked ||
	    atomic_compare_exchange_strong_explicit(&l->owner, &seen, marked, memory_order_relaxed,
						    memory_order_relaxed))
		libc_raw(SYS_futex, (long)(uintptr_t)&l->owner, FUTEX_WAIT_PRIVATE, marked,
			 atomic_load_explicit(&lock_mode, memory_order_relaxed) == 2
				 ? 0
				 : (long)(uintptr_t)&lock_sleep_most,
			 0, 0);
	lock_thread.sleeps++;
}

void lock_slow(struct lock *l, uint32_t me)
{
	unsigned spins = 0;
	bool slept = false;

	for (;;) {
		uint32_t seen = atomic_load_explicit(&l->owner, memory_order_relaxed);

		if (!seen) {
			/*
			 * Having slept, others may sleep too: keep the mark, one wake-up too many
			 * does no harm.
			 */
			uint32_t mine = slept ? me | LOCK_WAITERS : me;

			if (atomic_compare_exchange_weak_explicit(&l->owner, &seen, mine,
								  memory_order_acquire,
								  memory_order_relaxed))
				return;
			continue;
		}
		if (++spins < SPINS_BEFORE_SLEEP) {
			cpu_relax();
			continue;
		}
		sleep_on(l, seen);
		slept = true;
		spins = 0; /* who takes it again and again may have it already */
	}
}

static void lock_wake(struct lock *l)
{
	libc_raw(SYS_futex, (long)(uintptr_t)&l->owner, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

bool lock_get_slow(struct lock *l, uint32_t me)
{
	if (lock_mine(l)) {
		lock_leave();
		return false;
	}
	lock_slow(l, me);
	return true;
}

void lock_after(struct lock *l)
{
	lock_thread.put_off = false;
	atomic_fetch_or_explicit(&l->owner, LOCK_AFTER, memory_order_relaxed);
}

void lock_drop_slow(struct lock *l)
{
	uint32_t was = atomic_exchange_explicit(&l->owner, 0, memory_order_release);

	if (was & LOCK_WAITERS)
		lock_wake(l);
	if (was & LOCK_AFTER)
		lock_after_fn();
}

#define EXIT_TRIES 100

bool lock_at_exit(struct lock *l)
{
	for (int i = 0; i < EXIT_TRIES && !lock_mine(l); i++) {
		if (lock_try(l))
			return true;
		clock_sleep_ns(1000000);
	}
	return false;
}
