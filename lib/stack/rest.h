/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rest of the internal thread. Its ticks are there for rings that nobody looks at: frames that
 * come while the program computes, timers that it has armed before it does. When nothing has come
 * and nothing has left for STACK_REST_AFTER_MS, the ticks stand still. Not earlier: the frame that
 * ends a rest wakes two threads where it would wake one, which can cost its reader 20 us. What ends
 * the rest:
 *
 * - a frame: the rings are armed as for any sleeper, and their descriptors watched;
 * - a thread of the program that takes a frame in, sends, or changes what TCP has to do
 *   (stacks_used());
 * - a TCP timer, which is exact anyway, when something is sent by it;
 * - a link or a ring that comes, changes or goes.
 *
 * Then the ticks go on until it is quiet again. Nothing is asked of who sends or receives but one
 * look at a word that hardly ever changes. A look once a second besides finds what was overlooked.
 */
#ifndef STACK_REST_H
#define STACK_REST_H

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/runtime.h"

#define STACK_REST_AFTER_MS 1000
#define STACK_REST_LOOK_MS 100

/*
 * The ticks stand still, or are about to. Set by the internal thread, before it looks at each stack
 * under its lock: whoever holds that lock later sees it; what was done under it before, it sees.
 * Cleared by the first who uses a stack, who wakes it.
 */
extern _Atomic bool stacks_resting __attribute__((visibility("hidden")));
void stacks_used_resting(void) __attribute__((visibility("hidden")));

/* Something has been done with a stack that may leave the ticks something to do. Any thread. */
static inline void stacks_used(void)
{
	if (__builtin_expect(atomic_load_explicit(&stacks_resting, memory_order_relaxed), 0))
		stacks_used_resting();
}

/*
 * A timer of the internal thread, as worker_timer_add(), that stands still meanwhile. By whoever
 * opens a ring. 0 or negative errno.
 */
int stack_tick_add(unsigned msec, worker_timer_fn fn, void *arg);
/* What the rest needs, with the first ring. 0 or negative errno. */
int stacks_rest_start(void);

/* The internal thread's. No lock held. Each STACK_REST_LOOK_MS: is it time to rest? */
void stacks_rest_look(void);
/* Each second: true while it rests, and nothing was overlooked. */
bool stacks_rest_on(void);
/* It is over. */
void stacks_rest_end(void);
/* The child of a fork(): no ticks, nothing is watched. */
void stacks_rest_forked(void);

#endif
