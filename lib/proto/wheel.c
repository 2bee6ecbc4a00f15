/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Level l has 64 slots of 64^l microseconds. A timer stands on the level of the highest digit (base
 * 64) in which its deadline differs from `now`, in the slot of its deadline's digit there; digits
 * above agree. So the slots in use on a level are all ahead of `now`, every slot of a level begins
 * before any slot in use of the next, and the lowest level in use tells what comes first. The
 * highest level is a circle: what lies further ahead than it reaches waits in its furthest slot and
 * is placed anew from there.
 */
#include "proto/wheel.h"

#define DIGIT 6u
#define TOP (WHEEL_LEVELS - 1)

_Static_assert(WHEEL_SLOTS == 1u << DIGIT, "a slot is a digit");

void wheel_init(struct wheel *w, uint64_t now)
{
	*w = (struct wheel){.now_us = now};
}

static void place(struct wheel *w, struct wheel_timer *t)
{
	uint64_t when = t->when_us < w->now_us ? w->now_us : t->when_us, differ = when ^ w->now_us;
	unsigned level = differ ? (63u - (unsigned)__builtin_clzll(differ)) / DIGIT : 0;
	unsigned slot;
	struct wheel_timer **head;

	if (level >= TOP) {
		uint64_t here = w->now_us >> (TOP * DIGIT), there = when >> (TOP * DIGIT);

		level = TOP;
		if (there - here >= WHEEL_SLOTS)
			there = here + WHEEL_SLOTS - 1;
		slot = there % WHEEL_SLOTS;
	} else {
		slot = (when >> (level * DIGIT)) % WHEEL_SLOTS;
	}
	head = &w->slot[level][slot];
	t->next = *head;
	if (t->next)
		t->next->pprev = &t->next;
	t->pprev = head;
	*head = t;
	w->busy[level] |= UINT64_C(1) << slot;
}

/* Off its slot; pprev stays for the caller to clear. */
static void unlink_timer(struct wheel *w, struct wheel_timer *t)
{
	uintptr_t at = (uintptr_t)t->pprev, first = (uintptr_t)&w->slot[0][0];

	*t->pprev = t->next;
	if (t->next) {
		t->next->pprev = t->pprev;
	} else if (at >= first && at < first + sizeof(w->slot)) {
		/* It was the first and the last of its slot. */
		size_t slot = (at - first) / sizeof(w->slot[0][0]);

		w->busy[slot / WHEEL_SLOTS] &= ~(UINT64_C(1) << slot % WHEEL_SLOTS);
	}
}

void wheel_cancel(struct wheel *w, struct wheel_timer *t)
{
	if (!t->pprev)
		return;
	unlink_timer(w, t);
	t->pprev = NULL;
	w->armed--;
}

void wheel_arm(struct wheel *w, struct wheel_timer *t, uint64_t when)
{
	if (t->pprev)
		unlink_timer(w, t);
	else
		w->armed++;
	t->when_us = when < WHEEL_LAST ? when : WHEEL_LAST;
	place(w, t);
}

/* The slot in use that begins first: its time; *level and *slot say which. WHEEL_NEVER: none. */
static uint64_t first_slot(const struct wheel *w, unsigned *level, unsigned *slot)
{
	for (unsigned l = 0; l < TOP; l++) {
		uint64_t above = ~((UINT64_C(1) << ((l + 1) * DIGIT)) - 1);

		if (!w->busy[l])
			continue;
		*level = l;
		*slot = (unsigned)__builtin_ctzll(w->busy[l]);
		return (w->now_us & above) | (uint64_t)*slot << (l * DIGIT);
	}
	if (w->busy[TOP]) {
		uint64_t here = w->now_us >> (TOP * DIGIT), busy = w->busy[TOP];
		unsigned turn = here % WHEEL_SLOTS, ahead;

		/* The circle turned so that the present slot, never in use, is bit 0. */
		busy = busy >> turn | busy << (-turn % WHEEL_SLOTS);
		ahead = (unsigned)__builtin_ctzll(busy);
		*level = TOP;
		*slot = (turn + ahead) % WHEEL_SLOTS;
		return (here + ahead) << (TOP * DIGIT);
	}
	return WHEEL_NEVER;
}

/*
 * Places the timers of a slot that now begins anew: all go to lower levels (or wait on, far ahead).
 */
static void cascade(struct wheel *w, unsigned level, unsigned slot)
{
	struct wheel_timer *t = w->slot[level][slot];

	w->slot[level][slot] = NULL;
	w->busy[level] &= ~(UINT64_C(1) << slot);
	while (t) {
		struct wheel_timer *next = t->next;

		place(w, t);
		t = next;
	}
}

struct wheel_timer *wheel_expire(struct wheel *w, uint64_t now)
{
	for (;;) {
		unsigned level, slot;
		uint64_t begin = first_slot(w, &level, &slot);

		if (begin > now || begin == WHEEL_NEVER)
			break;
		w->now_us = begin;
		if (level == 0) {
			struct wheel_timer *t = w->slot[0][slot];

			wheel_cancel(w, t);
			return t;
		}
		cascade(w, level, slot);
	}
	if (w->now_us < now)
		w->now_us = now;
	return NULL;
}

uint64_t wheel_next(const struct wheel *w)
{
	unsigned level, slot;

	return first_slot(w, &level, &slot);
}
