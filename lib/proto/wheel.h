/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hierarchical timer wheel with microsecond deadlines. No clock: time comes with each call and
 * never goes back. Arming, re-arming and cancelling are O(1). A timer never fires before its
 * deadline and fires in the first wheel_run() whose time is at or after it.
 */
#ifndef PROTO_WHEEL_H
#define PROTO_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WHEEL_NEVER UINT64_MAX
#define WHEEL_LAST ((UINT64_C(1) << 56) - 1) /* no deadline is later: 2,283 years */
#define WHEEL_LEVELS 6u
#define WHEEL_SLOTS 64u

/*
 * Zeroed: not armed. Lives inside the object that it times; must be cancelled before that is freed.
 */
struct wheel_timer {
	struct wheel_timer *next, **pprev; /* pprev is NULL while not armed */
	uint64_t when_us : 56;
	/* the user's: which object the timer is part of; the wheel does not look at it */
	uint64_t kind : 8;
};

struct wheel {
	uint64_t now_us; /* of the last run */
	uint64_t busy[WHEEL_LEVELS]; /* bit per slot that holds a timer */
	struct wheel_timer *slot[WHEEL_LEVELS][WHEEL_SLOTS];
	uint64_t armed; /* how many timers */
};

static inline bool wheel_armed(const struct wheel_timer *t)
{
	return t->pprev != NULL;
}

void wheel_init(struct wheel *w, uint64_t now_us);
/* (Re)arms t for `when_us`; a time in the past fires at the next run. */
void wheel_arm(struct wheel *w, struct wheel_timer *t, uint64_t when_us);
void wheel_cancel(struct wheel *w, struct wheel_timer *t);
/*
 * Takes one timer that is due at `now_us` off the wheel; NULL when there is none. The caller loops;
 * handlers may arm and cancel any timer in between (also ones that are due), and one armed for
 * `now_us` or earlier comes out in the same loop.
 */
struct wheel_timer *wheel_expire(struct wheel *w, uint64_t now_us);
/*
 * A time at or before the earliest deadline (exact on the lowest level), WHEEL_NEVER when nothing
 * is armed. O(1).
 */
uint64_t wheel_next(const struct wheel *w);

#endif
