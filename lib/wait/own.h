/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a thread that has waited keeps of its own, behind one pointer: a library that is loaded with
 * dlopen() finds little room for thread storage.
 */
#ifndef WAIT_OWN_H
#define WAIT_OWN_H

#include <stdbool.h>
#include <stdint.h>

#include "stack/stack.h"

/* spin.c: all times are CLOCK_MONOTONIC ns. */
struct wait_spins {
	uint64_t shared_until_ns, shared_for_ns;
	/* What others have had of the processor while it spun, and since when that is summed up. */
	uint64_t lost_ns, lost_since_ns;
	int64_t budget_ns;
	bool is_poor; /* used it up: it fills until there is enough for several tries in a row */
	uint64_t filled_ns; /* when time was put into the budget last */
	uint64_t stamp_ns; /* in its place among those that spin for longer */
};

/* Wake-ups that a thread may put off; further ones it does at once. */
#define WAIT_PUT_OFF_MAX 64u
struct wait_thread;

struct wait_own {
	struct wait_spins spins;
	/*
	 * sleep.c: whom this thread wakes when it has given a lock back (lock_busy_begin()), in
	 * order. One may be there twice.
	 */
	unsigned num_wakes, num_woken;
	struct wait_thread *wakes[WAIT_PUT_OFF_MAX];
	/* sleep.c: the stacks' fds as of fds_generation */
	bool fds_valid;
	uint32_t fds_generation;
	unsigned nfds;
	int fds[STACKS_WAIT_FDS_MAX];
};

extern __thread struct wait_own *wait_own_now
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
/* Not malloc(), which a signal handler may have interrupted. */
struct wait_own *wait_own_make(void);

/* This thread's; without memory one that all such threads share, whose times are blurred then. */
static inline struct wait_own *wait_own(void)
{
	return __builtin_expect(wait_own_now != NULL, 1) ? wait_own_now : wait_own_make();
}

/* The thread has one of its own. */
bool wait_own_is(const struct wait_own *own);
#endif
