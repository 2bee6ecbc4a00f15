/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sends of one round leave together (VMA_TX_COALESCE). A round is what a thread does between two
 * waits: a wait that returned several events is followed by as many answers, and a system call for
 * each of them costs more than the rest of a send. The frames are posted at once; the kick waits
 * for the last answer, for STACK_ROUND_FRAMES of them, for STACK_ROUND_US, or for the next wait of
 * the thread, whichever comes first. A wait that returned less than STACK_ROUND_LEAST events makes
 * no round: who has so little to do is not late with a kick each.
 *
 * What TCP has to say is not even made a segment before the kick (stack.has_unsaid): an answer and
 * the FIN of the close() behind it are one then, and so are the head and the body of an answer.
 *
 * A thread that does something else with frames unkicked is served by the internal thread, after
 * STACK_ROUND_TICK_MS at most, and when that is its habit it makes no rounds for a while.
 */
#ifndef STACK_ROUND_H
#define STACK_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/ring.h"
#include "stack/rest.h"

struct stack;

#define STACK_ROUND_LEAST 4u
#define STACK_ROUND_FRAMES 16u
#define STACK_ROUND_US 25
#define STACK_ROUND_TICK_MS 1

/* Small: a library that is loaded with dlopen() finds little room for thread storage. */
struct stack_round {
	struct stack *st; /* has unkicked frames of this thread; NULL: none has */
	uint32_t since_us; /* when the first of them was posted: the clock's low 32 bits */
	/* It was late too often: no rounds for rest_ms (0: not yet), until then. */
	uint32_t rest_until_ms;
	uint16_t rest_ms;
	uint16_t left; /* sends of this round that need no kick; 0: there is no round */
	uint16_t kicks;
	uint8_t late; /* of these kicks */
	uint8_t frames; /* unkicked */
};

#pragma GCC visibility push(hidden)
extern __thread struct stack_round stack_round __attribute__((tls_model("initial-exec")));
/* Out of the way of what has no round. */
void stack_round_begin_busy(unsigned events);
void stack_round_post(struct stack *st, struct ring *ring);
void stack_round_put_off(struct stack *st);
void stack_round_put_beside(struct stack *st);
void stack_round_mark(struct stack *st);
void stack_round_kick(void);
void stack_round_look_late(void);
#pragma GCC visibility pop

/* A wait of this thread has returned so many events. */
static inline void stack_round_begin(unsigned events)
{
	if (events >= STACK_ROUND_LEAST)
		stack_round_begin_busy(events);
}

/* What this thread has posted leaves: before a wait, and before what must not overtake it. */
static inline void stack_round_flush(void)
{
	if (__builtin_expect(stack_round.st != NULL, 0))
		stack_round_kick();
}

/* The thread is about to wait: its round is over. */
static inline void stack_round_end(void)
{
	stack_round.left = 0;
	stack_round_flush();
}

/* What this thread has to say on st may wait: it is in a round, and none of another stack's. */
static inline bool stack_round_holds(const struct stack *st)
{
	return __builtin_expect(stack_round.left, 0) && (!stack_round.st || stack_round.st == st);
}

/*
 * stack_round_holds(): this thread has posted to st's ring, or left something unsaid, and it is not
 * one of the answers that are counted (a FIN, a SYN, an ACK). The lock is given back.
 */
static inline void stack_round_also(struct stack *st)
{
	stack_round_put_beside(st);
	stacks_used();
}

/* A call that does not send: what was posted long ago leaves. */
static inline void stack_round_look(void)
{
	if (__builtin_expect(stack_round.st != NULL, 0))
		stack_round_look_late();
}

/*
 * This thread has posted to st's ring, whose lock it has given back: kicked now, or later in this
 * round. (A ring outlives its stack's end by seconds.)
 */
static inline void stack_round_sent(struct stack *st, struct ring *ring)
{
	if (__builtin_expect(stack_round.left || stack_round.st, 0))
		stack_round_post(st, ring);
	else
		ring_kick(ring);
	stacks_used();
}

/* What any thread has left unkicked leaves: the process ends, or becomes another one. */
void stack_rounds_flush(void);
/* Once there is a ring: the internal thread's part. 0 or negative errno. */
int stack_rounds_start(void);
/* The child of a fork(): no round, nothing posted, no timer. */
void stack_rounds_forked(void);

#endif
