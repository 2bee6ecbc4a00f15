/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The internal thread: one epoll loop that runs callbacks for fds and periodic timers. All signals
 * are blocked in it. It starts with the first worker_start().
 */
#ifndef RUNTIME_WORKER_H
#define RUNTIME_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef void (*worker_fd_fn)(int fd, uint32_t epoll_events, void *arg);
typedef void (*worker_timer_fn)(void *arg);

/*
 * begin is the first that runs on the new thread (NULL: nothing). Timers go off at multiples of
 * step_ms (at least 1). 0 or negative errno. Idempotent.
 */
int worker_start(void (*begin)(void), unsigned step_ms);
/* Stops and joins; forgets every fd and timer. Not from the worker itself. */
void worker_stop(void);
/*
 * Around fork(): no list is met half changed in the child, and no lock that a callback takes
 * (malloc's among them) is left taken there. worker_pause() first, with no lock held: it waits for
 * the callback under way, 200 ms at most.
 */
void worker_pause(void);
void worker_fork_prepare(void);
void worker_fork_parent(void);
/* Follows worker_fork_prepare() in the child. */
void worker_fork_child(void);
/* The child of a fork() has no worker; a later worker_start() makes a new one. */
void worker_forked(void);
/* Thread-safe. events as for epoll_ctl. 0 or negative errno. */
int worker_fd_add(int fd, uint32_t events, worker_fd_fn fn, void *arg);
/*
 * After it returns fn runs no more with arg (it waits for a callback under way, unless called from
 * the worker). The caller closes fd itself, before or after.
 */
void worker_fd_del(int fd, void *arg);
/*
 * Has fn run on the worker, and waits until it has. Not from the worker, and with no lock held that
 * a callback takes. -ESRCH when there is no worker, or another negative errno: fn has not run.
 */
int worker_run(void (*fn)(void *arg), void *arg);
/* Periodic, every msec (at least 1). Returns an id for worker_timer_del() or negative errno. */
int worker_timer_add(unsigned msec, worker_timer_fn fn, void *arg);
void worker_timer_del(int id);
/* It goes off no more (but once, if the thread has already been woken for it), until ... */
void worker_timer_stop(int id);
/* ... it goes on, as worker_timer_add() had made it, from within one period on. */
void worker_timer_go(int id, unsigned msec);

/*
 * A look on the internal thread each few milliseconds, as long as there is something to find: it is
 * set off by what is to be found, and stops after so many looks in vain. Not armed for each of
 * those: where the host programs a timer that costs 9 us (Linux 6.18 in a virtual machine; 0.5 us
 * for one that is far away).
 */
struct look_timer {
	/* On the internal thread. True: there was something, or there is. */
	bool (*look)(void);
	const char *name; /* in the log */
	unsigned ms, looks_in_vain;
	_Atomic int fd; /* -1: it does not run */
	_Atomic bool armed;
	unsigned vain; /* looks so far; the internal thread's */
};
#define LOOK_TIMER(look_, name_, ms_, looks_in_vain_)                                              \
	{                                                                                          \
		.look = (look_), .name = (name_), .ms = (ms_), .looks_in_vain = (looks_in_vain_),  \
		.fd = -1                                                                           \
	}

/* Any thread's; idempotent. 0 or negative errno. */
int look_timer_start(struct look_timer *t);
void look_timer_arm(struct look_timer *t);
/* In the child of a fork(): it has none. */
void look_timer_forked(struct look_timer *t);

static inline bool look_timer_runs(const struct look_timer *t)
{
	return atomic_load_explicit(&t->fd, memory_order_relaxed) >= 0;
}

/* What is to be found is there; it takes no lock. */
static inline void look_timer_go(struct look_timer *t)
{
	if (!atomic_load(&t->armed) && look_timer_runs(t) && !atomic_exchange(&t->armed, true))
		look_timer_arm(t);
}

#endif
