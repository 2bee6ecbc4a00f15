/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/round.h"

#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/internal.h"

/*
 * Frames that are unkicked for so long are late. A round ends far before it; who lost its processor
 * in one, or computes for long, does not. The first happens to everybody, now and then: one kick in
 * so many may be late.
 */
#define LATE_US 100
/* So long an answer in parts may take before it is cut in two. */
#define PARTS_US 50
#define LATE_ONE_IN 16u
#define KICKS_REMEMBERED 256u
/* For so long who is late more often makes no rounds; doubled while that goes on. */
#define REST_FIRST_MS 10u
#define REST_MOST_MS 1000u
/* After so many ticks without a round the timer stops: arming it costs more than some sends. */
#define IDLE_TICKS 10

__thread struct stack_round stack_round;

static void kick_posted(struct stack *st)
{
	/* Open: its ring stays for seconds. */
	if (atomic_load_explicit(&st->open, memory_order_acquire))
		ring_kick(st->ring);
}

/* What waits is said. The lock is held, and given back. */
static void say_and_drop(struct stack *st)
{
	atomic_store_explicit(&st->has_unsaid, false, memory_order_relaxed);
	if (atomic_load_explicit(&st->open, memory_order_relaxed))
		stack_timed_ops->say(st);
	lock_drop(&st->lock);
}

/*
 * False: this thread has the lock, in a call that a handler has interrupted, and the mark is to
 * stay.
 */
static bool say(struct stack *st)
{
	if (!atomic_load_explicit(&st->has_unsaid, memory_order_acquire))
		return true;
	if (lock_mine(&st->lock))
		return false;
	lock_take(&st->lock);
	say_and_drop(st);
	return true;
}

/*
 * First the mark, then the frames: who posts sets it after them, so what comes too late for this
 * kick is marked anew.
 */
static void kick(struct stack *st)
{
	uint64_t since = atomic_exchange(&st->unkicked_since_ns, 0), none = 0;

	if (!say(st))
		atomic_compare_exchange_strong(&st->unkicked_since_ns, &none, since);
	kick_posted(st);
}

void stack_rounds_flush(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (!atomic_exchange(&st->unkicked_since_ns, 0))
			continue;
		/* Who has the lock may never give it back. */
		if (lock_at_exit(&st->lock))
			say_and_drop(st);
		kick_posted(st);
	}
}

/* What is late leaves. True: there were rounds since the last look. */
static bool look(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);
	uint64_t now = clock_monotonic_ns();
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		uint64_t since = atomic_load(&st->unkicked_since_ns);

		if (atomic_exchange_explicit(&st->has_rounds, false, memory_order_relaxed))
			any = true;
		if (since && now > since + LATE_US * 1000ull)
			kick(st);
		any |= since != 0;
	}
	return any;
}

static struct look_timer timer = LOOK_TIMER(look, "the rounds", STACK_ROUND_TICK_MS, IDLE_TICKS);

int stack_rounds_start(void)
{
	return params.tx_coalesce ? look_timer_start(&timer) : 0;
}

void stack_rounds_forked(void)
{
	stack_round = (struct stack_round){0};
	look_timer_forked(&timer);
}

static uint32_t now_ms(void)
{
	return (uint32_t)(clock_monotonic_ns() / 1000000);
}

/* What is long past looks like the far future. */
static bool rests(void)
{
	return stack_round.rest_until_ms - now_ms() - 1 < REST_MOST_MS;
}

void stack_round_begin_busy(unsigned events)
{
	if (!params.tx_coalesce || !look_timer_runs(&timer))
		return;
	if (stack_round.rest_ms && rests())
		return;
	if (events >= UINT16_MAX)
		events = UINT16_MAX - 1;
	/* The last answer kicks; or its last part does (stack_round_part()). */
	stack_round.left = (uint16_t)(stack_round_in_parts() ? events + 1 : events - 1);
}

/* It is late too often: one that rested a moment ago rests for longer. */
static void rest(void)
{
	uint32_t now = now_ms(), ms = stack_round.rest_ms;

	ms = ms && now - stack_round.rest_until_ms < 4 * ms ? 2 * ms : REST_FIRST_MS;
	stack_round.rest_ms = (uint16_t)(ms < REST_MOST_MS ? ms : REST_MOST_MS);
	stack_round.rest_until_ms = now + stack_round.rest_ms;
	stack_round.left = 0;
	stack_round.kicks = stack_round.late = 0;
}

static void remember(bool late)
{
	if (stack_round.kicks == KICKS_REMEMBERED) {
		stack_round.kicks /= 2;
		stack_round.late /= 2;
	}
	stack_round.kicks++;
	stack_round.late += late;
	if (late && stack_round.late * LATE_ONE_IN > stack_round.kicks + LATE_ONE_IN)
		rest();
}

static int32_t posted_for_us(void)
{
	return (int32_t)((uint32_t)(clock_monotonic_ns() / 1000) - stack_round.since_us);
}

void stack_round_kick(void)
{
	struct stack *st = stack_round.st;

	if (!st)
		return; /* a handler of this thread was faster */
	remember(posted_for_us() > LATE_US);
	stack_round.st = NULL;
	kick(st);
}

void stack_round_look_late(void)
{
	if (posted_for_us() > STACK_ROUND_US)
		stack_round_kick();
}

/* The first one that is not kicked. */
static void begin(struct stack *st)
{
	uint64_t now = clock_monotonic_ns();

	stack_round.since_us = (uint32_t)(now / 1000);
	stack_round.frames = 1;
	stack_round.st = st;
	/* Whatever mark is there: one of before the frame was posted does not stand for it. */
	atomic_store(&st->unkicked_since_ns, now);
	atomic_store_explicit(&st->has_rounds, true, memory_order_relaxed);
	look_timer_go(&timer);
}

/*
 * Another thread's kick, or the internal one's, has taken the mark and what stood before it: what
 * was posted since then has a mark of its own. Not a plain load, which could be done before that.
 */
static bool is_marked(struct stack *st)
{
	return stack_round.st && atomic_fetch_or(&st->unkicked_since_ns, 0);
}

/*
 * Before the lock is given back: that is where a handler runs which came in between, and its wait
 * is to find what is unsaid.
 */
void stack_round_mark(struct stack *st)
{
	if (is_marked(st))
		return;
	begin(st);
	stack_round.frames = 0;
}

/* An answer is not cut in its middle for a few microseconds. */
static bool more_parts_come(void)
{
	return stack_round_in_parts() && stack_round.parts &&
	       stack_round.parts < stack_round.usual && posted_for_us() <= PARTS_US;
}

void stack_round_put_beside(struct stack *st)
{
	if (!is_marked(st))
		begin(st);
	else if (!more_parts_come())
		stack_round_look_late();
}

void stack_round_put_off(struct stack *st)
{
	if (is_marked(st) && ++stack_round.frames >= STACK_ROUND_FRAMES)
		stack_round_kick();
	else
		stack_round_put_beside(st);
}

void stack_round_post(struct stack *st, struct ring *ring)
{
	/* Frames of another stack leave first: order is kept where it can be. */
	if (stack_round.st != st)
		stack_round_flush();
	if (stack_round.left) {
		stack_round.left--;
		stack_round_put_off(st);
	} else if (stack_round.st) {
		stack_round_kick(); /* the last one takes all with it */
	} else {
		ring_kick(ring);
	}
}
