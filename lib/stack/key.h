/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which sockets of an interface share a ring: VMA_RING_ALLOCATION_LOGIC_RX and _TX, and what a
 * socket has said itself (SO_VMA_RING_ALLOC_LOGIC). A key names who owns a ring (a thread, a
 * processor, an address, a socket, a number of the program's); sockets of one key are in one stack.
 * 0: the interface's only one.
 */
#ifndef STACK_KEY_H
#define STACK_KEY_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum stack_logic {
	STACK_BY_IF = 0,
	STACK_BY_IP = 1,
	STACK_BY_SOCKET = 10,
	STACK_BY_USER = 11, /* by an attribute only */
	STACK_BY_THREAD = 20,
	STACK_BY_CORE = 30,
	STACK_BY_CORE_PINNED = 31,
};

/* What of a socket a key may depend on. */
struct stack_client {
	struct in6_addr local; /* :: any */
	uint64_t socket; /* its number among all sockets, UDP and TCP */
};

/*
 * The key of c, or of the calling thread, by this logic; another thread's next call may give
 * another. c is looked at by STACK_BY_IP and STACK_BY_SOCKET only. Pins the thread with
 * STACK_BY_CORE_PINNED.
 */
uint64_t stack_key_by(int logic, const struct stack_client *c);

/*
 * What a socket has said of its ring, in one word, which others may read while it changes; 0:
 * nothing.
 */
typedef uint64_t stack_ring_attr;

/* profile: 0, or below STACK_PROFILES: rings of its own; user: of STACK_BY_USER */
#define STACK_PROFILES 8u
static inline stack_ring_attr stack_ring_attr_make(enum stack_logic logic, uint8_t profile,
						   uint32_t user)
{
	return 1ull << 48 | (uint64_t)profile << 40 | (uint64_t)logic << 32 | user;
}

static inline int stack_ring_attr_logic(stack_ring_attr w, int otherwise)
{
	return w ? (int)(w >> 32 & 0xff) : otherwise;
}

/* A ring by a user id, which is its low word. */
static inline bool stack_ring_attr_by_user(stack_ring_attr w)
{
	return stack_ring_attr_logic(w, 0) == STACK_BY_USER;
}

/* As stack_key_by() of who has this attribute; `otherwise` is the logic of those who have none. */
uint64_t stack_key_by_attr(stack_ring_attr w, int otherwise, const struct stack_client *c);

/* Does the key that this logic gives depend on who calls, and on the processor? */
static inline bool stack_logic_by_core(int logic)
{
	return logic == STACK_BY_CORE || logic == STACK_BY_CORE_PINNED;
}

static inline bool stack_logic_by_caller(int logic)
{
	return logic == STACK_BY_THREAD || stack_logic_by_core(logic);
}

/*
 * Follows one socket's callers, who may race, which only blurs it: when they are others than those
 * that own its ring, and stay so, it should move.
 */
struct stack_mover {
	_Atomic uint32_t accesses; /* since the last comparison */
	_Atomic uint64_t candidate; /* who called at that time, if not the owner; 0: none */
};

/*
 * The comparisons from a candidate on are so many accesses apart: it must be the same at two of
 * them.
 */
#define STACK_MOVER_STABLE 20u
/* One more access: is it time to compare? ratio: VMA_RING_MIGRATION_RATIO_*, negative: never. */
static inline bool stack_mover_due(struct stack_mover *m, int ratio)
{
	uint32_t n = atomic_load_explicit(&m->accesses, memory_order_relaxed) + 1;
	bool due = ratio >= 0 && n >= (atomic_load_explicit(&m->candidate, memory_order_relaxed)
					       ? STACK_MOVER_STABLE
					       : (uint32_t)ratio);

	atomic_store_explicit(&m->accesses, due ? 0 : n, memory_order_relaxed);
	return due;
}

/* It is: `now` calls, `owner` has the ring. True: the socket moves to `now`. */
bool stack_mover_compare(struct stack_mover *m, uint64_t owner, uint64_t now);

/*
 * What a ring has to do for whom, to choose one that is shared: of two the one with fewer users,
 * then the older.
 */
struct stack_choice {
	uint64_t key;
	unsigned users;
};

enum stack_pick {
	STACK_PICK_NEW, /* a further ring is to be opened */
	STACK_PICK_IDLE, /* *at has no users any more: it becomes key's */
	STACK_PICK_SHARE, /* *at is shared */
};

/*
 * For a key that none of the n rings of an interface has, of which there may be `limit` (0: no
 * limit).
 */
enum stack_pick stack_pick(const struct stack_choice *rings, unsigned n, unsigned limit,
			   unsigned *at);

#endif
