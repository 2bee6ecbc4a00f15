/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sends of one round leave together (VMA_TX_COALESCE). A round is what a thread does between two
 * waits: a wait that returned several events is followed by as many answers, and a system call for
 * each of them costs more than the rest of a send. The frames are posted at once; the kick waits
 * for the last answer, for STACK_ROUND_FRAMES of them, for STACK_ROUND_US, or for the next wait of
 * the thread, whichever comes first. A wait that returned fewer than STACK_ROUND_LEAST events makes
 * no round: who has so little to do is not late with a kick each. But a thread whose answers have
 * several parts, always as many (head and body; the last words and a FIN), has one from two events
 * on, and all wait for the last part of the last answer. After a wait with one event nothing waits.
 *
 * What TCP has to say is not even made a segment before the kick (stack.has_unsaid): an answer and
 * the FIN of the close() behind it are one then, and so are the head and the body of an answer.
 * What packets are owed that come meanwhile is said with it, too: each call of the program may poll
 * the ring, and would end the round.
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
/* It includes the kick of the part before, while parts still leave one by one. */
#define STACK_ROUND_PART_US 200

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
	/*
	 * How its answers come: each that has as many parts as usual counts one, any other halves
	 * that. A part follows the one before within STACK_ROUND_PART_US.
	 */
	uint8_t habit;
	uint8_t usual : 3;
	uint8_t parts : 3; /* of the answer that it has said last; 0: none yet */
	bool several : 1; /* its last wait has returned several events */
	uint16_t said_on; /* which socket that was */
	uint32_t said_us; /* when the last of them was said: the clock's low 32 bits */
};

#define STACK_ROUND_HABIT 8u
#define STACK_ROUND_HABIT_MOST 16u
/* More parts are no answer, but a stream. */
#define STACK_ROUND_PARTS_MOST 4u

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

/* Answers of this thread come in parts. */
static inline bool stack_round_in_parts(void)
{
	return stack_round.habit >= STACK_ROUND_HABIT && stack_round.usual > 1 &&
	       stack_round.usual <= STACK_ROUND_PARTS_MOST;
}

/* So many events make a round. */
static inline bool stack_round_of(unsigned events)
{
	return events >= STACK_ROUND_LEAST || (events > 1 && stack_round_in_parts());
}

/* A wait of this thread has returned so many events. */
static inline void stack_round_begin(unsigned events)
{
	stack_round.several = events > 1;
	if (stack_round_of(events))
		stack_round_begin_busy(events);
}

/*
 * A wait is about to look once. Of a thread whose answers have parts what the packets that it takes
 * in have to say (an acknowledgement, a SYN|ACK) leaves with the answers, if there is a round then.
 * Not of one that finds one event at a time: it has no rounds.
 */
static inline void stack_round_look_begin(void)
{
	if (stack_round.several && stack_round_in_parts())
		stack_round_begin_busy(2);
}

/*
 * It has found so many events, with which stack_round_begin() follows. True: what it had to say has
 * left only now.
 */
static inline bool stack_round_look_end(unsigned events)
{
	bool leaves = stack_round.st && !stack_round_of(events);

	stack_round.left = 0;
	if (leaves)
		stack_round_kick();
	return leaves;
}

/* The last answer had no more parts. */
static inline void stack_round_answered(void)
{
	if (stack_round.parts != stack_round.usual)
		stack_round.habit /= 2;
	else if (stack_round.habit < STACK_ROUND_HABIT_MOST)
		stack_round.habit++;
	if (!stack_round.habit)
		stack_round.usual = stack_round.parts;
	stack_round.parts = 0;
}

/* One part more. The last one of the round's last answer takes all with it. */
static inline void stack_round_part(void)
{
	if (stack_round.parts <= STACK_ROUND_PARTS_MOST)
		stack_round.parts++;
	if (__builtin_expect(stack_round.left == 1, 0) && stack_round_in_parts() &&
	    stack_round.parts == stack_round.usual)
		stack_round.left = 0;
}

/* Which socket it is; two are hardly ever mixed up. */
static inline uint16_t stack_round_socket(const void *sock)
{
	return (uint16_t)((uintptr_t)sock / 64);
}

/* A call that does not send: what was posted long ago leaves. */
static inline void stack_round_look(void)
{
	if (__builtin_expect(stack_round.st != NULL, 0))
		stack_round_look_late();
}

/*
 * The program is about to say something on a socket; no lock is held. What other answers have left
 * unsaid for long leaves now: with the first part of this one it would leave as well, and the other
 * parts would be a segment of their own.
 */
static inline void stack_round_turns_to(const void *sock)
{
	if (stack_round.said_on != stack_round_socket(sock))
		stack_round_look();
}

/* What is said on that socket now belongs to the answer that was said last. */
static inline bool stack_round_goes_on(const void *sock, uint64_t now_us)
{
	return stack_round.parts && stack_round.said_on == stack_round_socket(sock) &&
	       (uint32_t)now_us - stack_round.said_us <= STACK_ROUND_PART_US;
}

/* The program ends what it says on a socket. */
static inline void stack_round_says_last(const void *sock, uint64_t now_us)
{
	if (stack_round_goes_on(sock, now_us))
		stack_round_part();
}

/* The program says something on a socket. True: it goes on with the answer that it has begun. */
static inline bool stack_round_says(const void *sock, uint64_t now_us)
{
	bool goes_on = stack_round_goes_on(sock, now_us);

	if (stack_round.parts && !goes_on)
		stack_round_answered();
	stack_round_part();
	stack_round.said_on = stack_round_socket(sock);
	stack_round.said_us = (uint32_t)now_us;
	return goes_on;
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
	if (stack_round.parts)
		stack_round_answered();
	else if (stack_round.st && stack_round.frames)
		stack_round.habit /= 2; /* datagrams, as a rule: they have no parts */
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
