/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long a wait spins before it sleeps, when VMA_RX_POLL and VMA_SELECT_POLL leave that to us
 * (POLL_ADAPTIVE). A spin saves a sleep and a wake-up, and takes the processor from whoever else
 * wants it. So it is tried where it has paid before, and given up at once where it costs:
 *
 * - each socket or set remembers how long its waits last: a wait that spinning would have caught
 *   makes the next spin longer, one beyond any spin makes it shorter, down to none;
 * - each thread has a budget that spinning uses up, and that an event caught by spinning and the
 *   passing of time fill;
 * - a thread that loses its processor while it spins, or gets it back late from sched_yield(),
 *   shares it: it sleeps at once, and tries again later, more and more rarely;
 * - of a process's threads fewer than it has processors spin for longer than a moment;
 * - where a control group bounds the processor time, spins end while half of it is left (quota.h).
 *
 * spin.c is on the way of each wait that does not find what it waits for at once.
 */
#ifndef WAIT_SPIN_H
#define WAIT_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vma/stats.h"

/*
 * Of one socket or set, zeroed at its beginning. Threads that wait for it at the same time may lose
 * each other's lessons, no more.
 */
struct wait_spin_memory {
	/* How long the next spin is, and how crowded waits were (spin.c); 0: nothing known. */
	_Atomic uint8_t seen;
};

/* One wait. */
struct wait_spin {
	struct wait_spin_memory *memory; /* NULL: the wait has not begun */
	uint64_t began_ns, until_ns;
	uint64_t looked_ns; /* when it was seen running last */
	uint64_t yield_ns; /* when it looks whether somebody wants the processor */
	uint32_t lock_sleeps; /* lock_thread.sleeps then */
	bool stopped; /* it sleeps, or should */
	enum vma_slept why; /* it does, if it does */
};

/* Empty polls between two calls of spin_goes_on(): about a microsecond. */
#define SPIN_POLLS_PER_LOOK 16u

/* A wait that found nothing begins at now_ns (CLOCK_MONOTONIC). False: sleep at once. */
bool spin_begin(struct wait_spin *sp, struct wait_spin_memory *memory, uint64_t now_ns);
/* After each few empty polls, the clock just read: false when it is time to sleep. */
bool spin_goes_on(struct wait_spin *sp, uint64_t now_ns);
/*
 * The wait has ended: what it waited for came, or it did not (a timeout, a signal, an error).
 * Nothing when it had not begun.
 */
void spin_end(struct wait_spin *sp, bool came);
/* The processors that the process may run on; UINT_MAX: more than can be told. */
unsigned wait_processors(void);
/* Of its last waits more than four in five slept in a crowd (wait_crowded()). */
bool wait_is_crowded(const struct wait_spin_memory *memory);
/*
 * Where that was so: the kernel serves the socket now, or (went false) cannot. It is counted anew;
 * and where one of a full crowd went, fewer waits are enough for others for a while.
 */
void wait_crowd_left(struct wait_spin_memory *memory, bool went);
/* Such a while. */
bool wait_crowd_lasts(uint64_t now_ns);
/*
 * For vma_stats: a wait that found nothing at once has spun, or slept (why), or both; what it
 * waited for came, or did not.
 */
void wait_count(struct vma_stats_waits *to, bool spun, bool slept, bool came, enum vma_slept why);

#endif
