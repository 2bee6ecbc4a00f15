/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of waiting: how a thread spins, sleeps and is woken. call.h is how one blocking call of
 * a socket waits, and what iomux waits by is below. Used by sockets and iomux; it polls the stacks.
 *
 * Sleeping misses no wake-up. A waiter has an eventfd (one per thread, made lazily, kept) that the
 * notify() of its watches writes to. Of several that sleep one does so on the rings, and wakes the
 * others (sleep.c). The order is always: watches added; stacks_arm(); readiness
 * looked at again; then wait_sleep() on {the eventfd, the stacks' fds, the shadow sockets' fds}.
 *
 * A call that finds data at once is never here. One that waits: call.c, spin.c (for how long it
 * spins), quota.c (what the process may have of the processors), own.c (what the thread keeps); one
 * that sleeps: sleep.c.
 */
#ifndef WAIT_WAIT_H
#define WAIT_WAIT_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

#include "fd/fd.h"
#include "wait/call.h"

/* Learns what bounds the process's use of the processors. Once, before the first wait. */
void wait_start(void);

/* A watch that wakes the thread which made it. */
struct wait_thread;
struct wait_watch {
	struct vfd_watch watch;
	struct wait_thread *thread; /* who is woken; lives as long as the watch is registered */
};

/* This thread's eventfd (-errno if there can be none). Drained by wait_sleep(). */
int wait_evfd(void);
/* Prepares w for this thread and adds it to v. wait_watch_del() before w goes out of scope. */
int wait_watch_add(struct vfd *v, struct wait_watch *w);
void wait_watch_del(struct vfd *v, struct wait_watch *w);
/* The calling thread, for wait_wake(); NULL when it can have no eventfd. */
struct wait_thread *wait_thread_self(void);
/*
 * Ends t's wait_sleep(), this one or its next; under a busy lock (lock_busy_begin()) when that is
 * dropped. The caller knows that the thread has not ended, and it does not before that.
 */
void wait_wake(struct wait_thread *t);
/*
 * The wait in which this thread slept is over: another one sleeps on the rings for all. To be
 * called after the last wait_sleep() of each wait; a thread that ends does it by itself.
 */
void wait_over(void);
/*
 * Around watches, the last look and wait_sleep(): the program's handlers are put off, and a signal
 * ends the sleep, this one or the coming one. What hold returned is given back by let, which runs
 * them.
 */
int wait_signals_hold(void);
void wait_signals_let(int before);
/*
 * One ppoll over user[0..n) (revents are filled in), this thread's eventfd and the stacks' fds,
 * until something happens or the deadline (CLOCK_MONOTONIC ns, 0: for ever) passes. Returns the
 * number of user entries that are ready (0: woken by the stacks or the eventfd: look again),
 * -ETIMEDOUT, -EINTR or another negative errno. sigmask as for ppoll, may be NULL.
 */
int wait_sleep(struct pollfd *user, unsigned n, uint64_t deadline_ns, const sigset_t *sigmask);
/* The same of a thread that waits for one TCP connection and nothing else. */
int wait_sleep_alone(struct pollfd *user, unsigned n, uint64_t deadline_ns,
		     const sigset_t *sigmask);
/*
 * In this wait, which is not over, the thread slept in a crowd: its last sleep was a
 * wait_sleep_alone(), more threads were in theirs than there are processors, or a few seconds ago,
 * and another thread slept on the rings for it.
 */
bool wait_crowded(void);

#endif
