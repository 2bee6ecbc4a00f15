/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How one blocking call on a socket waits: it spins by VMA_RX_POLL (spin.h), then sleeps; signals
 * and deadlines end it as signal(7) says.
 */
#ifndef WAIT_CALL_H
#define WAIT_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fd/fd.h"
#include "wait/spin.h"

/*
 * Empty polls between two looks at the clock, and between two polls of a ring that shows nothing.
 */
#define WAIT_POLLS_PER_CLOCK 64u

/* The thread's signal counters when a call begins. */
struct wait_signals {
	uint32_t handled, interrupting;
};

struct wait_call {
	uint64_t deadline_ns; /* CLOCK_MONOTONIC ns, 0: none */
	struct wait_signals begin; /* of the call */
	/* the object's generation: closed when it is no longer gen */
	const _Atomic uint32_t *gen_now;
	uint32_t gen;
	uint32_t polls;
	bool spun, slept;
	/* before it sleeps; -1: for ever, POLL_ADAPTIVE: as spin says */
	int64_t polls_left;
	struct wait_spin_memory *memory;
	struct wait_spin spin;
};

struct wait_signals wait_signals_now(void);
/*
 * The call began then: before it opened a ring, for one, which handlers wait for. What they would
 * have ended ends.
 */
void wait_call_since(struct wait_call *w, const struct wait_signals *begin);

/* polls: of VMA_RX_POLL's kind. memory: the socket's. wait_call_end() when the wait is over. */
void wait_call_init(struct wait_call *w, const _Atomic uint32_t *gen, uint64_t timeout_ns,
		    int64_t polls, struct wait_spin_memory *memory);
/* Has a signal ended the call? (With a timeout any handler does, else those without SA_RESTART.) */
bool wait_call_interrupted(const struct wait_call *w);
/* The object of the call has been closed since it began. */
static inline bool wait_call_closed(const struct wait_call *w)
{
	return atomic_load_explicit(w->gen_now, memory_order_acquire) != w->gen;
}
/*
 * An empty poll is counted. 0: another one; 1: time to sleep; -EAGAIN: the deadline. No lock is
 * held (a cancellation point).
 */
int wait_call_spun(struct wait_call *w);
/* What came of the wait, for vma_stats: before wait_call_end(). */
void wait_call_count(const struct wait_call *w, bool came, struct vma_stats_waits *to);
/* The wait is over: what it waited for came, or not. The next poll begins another. */
void wait_call_end(struct wait_call *w, bool came);
/*
 * Sleeps until v notifies, a stack has something or os_fd (-1: none) is readable, unless look(arg)
 * finds, after the watch stands, that something has come. A cancellation point. 1: os_fd; 0: look
 * again; -EAGAIN: the deadline; -EINTR, or another negative errno.
 */
int wait_call_sleep(struct wait_call *w, struct vfd *v, int os_fd, bool (*look)(void *arg),
		    void *arg);
/* The same to receive from a TCP connection, which no kernel socket serves. */
int wait_call_sleep_alone(struct wait_call *w, struct vfd *v, bool (*look)(void *arg), void *arg);

#endif
