/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The loop that poll, select and epoll_wait share: look, spin by VMA_SELECT_POLL, then sleep. What
 * is looked at is the business of the three.
 */
#ifndef IOMUX_WAIT_LOOP_H
#define IOMUX_WAIT_LOOP_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "stats/stats.h"
#include "wait/wait.h"

enum mux_look {
	LOOK_USER, /* offloaded fds only: no system call */
	/* offloaded fds; the kernel too unless that answers the call, or the sleep asks it */
	LOOK_FIRST,
	LOOK_KERNEL, /* both */
};

struct mux;

struct mux_ops {
	/*
	 * Returns how many are ready (the result of the call), 0, or negative errno. No lock held.
	 */
	int (*look)(struct mux *m, enum mux_look how);
	/*
	 * Registers with everything offloaded, so that this thread is woken; unwatch undoes it,
	 * also when nothing was done. With look_follows the caller looks once more after it: a
	 * wake-up meant for this thread is not lost.
	 */
	void (*watch)(struct mux *m);
	void (*unwatch)(struct mux *m, bool look_follows);
	/* wait_sleep() over m->pfds said that some are ready. Returns as look(). */
	int (*woken)(struct mux *m);
	/* The kernel serves one that was offloaded, or may: only LOOK_KERNEL finds it ready. */
	bool (*kernel_serves)(const struct mux *m);
	/* It waits alone, and in a crowd. True: the kernel serves the connection now. */
	bool (*leaves)(struct mux *m);
};

/*
 * What calls on one thing have spent polling in user space since the last figure, ns.
 * VMA_CPU_USAGE_STATS
 */
struct mux_polling {
	_Atomic uint64_t since_ns, spent_ns;
};

struct mux {
	const struct mux_ops *ops;
	struct pollfd *pfds; /* the kernel's share of the sleep */
	unsigned npfds;
	bool spin; /* something here can become ready in user space only */
	/* pfds lacks some that would end each sleep for nothing: LOOK_KERNEL asks for them, too */
	bool muted;
	bool zero; /* zero timeout: set by mux_run() before the first look */
	/* signals_handled when the call began: a ring that it opens puts handlers off */
	uint32_t handled;
	/*
	 * poll and select look for signals under the caller's mask even with a zero timeout,
	 * epoll_pwait does not.
	 */
	bool zero_signals;
	struct vma_stats_iomux *stats;
	struct mux_polling *polling;
	struct wait_spin_memory *memory;
	bool alone; /* it waits for one connection, whose the memory is */
	const sigset_t *sigmask; /* the caller's, NULL: none */
	sigset_t mask; /* the thread's own, while it sleeps by the caller's */
	int bell, cancel_state; /* the thread's, while it sleeps */
	void *heap; /* freed when the thread is cancelled */
};

/* The kernel is looked at after so many calls at least, even when the parameters say never. */
#define MUX_KERNEL_LOOK_MAX 1024
/*
 * Where the kernel has nothing but the sockets under offloaded ones: the internal thread tells when
 * they have something, so this is only for those that it could not watch.
 */
#define MUX_SHADOW_LOOK 4

/* VMA_SELECT_SKIP_OS: in so many calls that find an offloaded one ready the kernel is asked once.
 */
int mux_skip_os(bool kernel_fds);

/*
 * Counts one more call that leaves the kernel out. False: it is the one in `limit` (0: in a large
 * number) that asks; who asks sets it to 0.
 */
static inline bool mux_may_skip(int *calls, int limit)
{
	return ++*calls < (limit ? limit : MUX_KERNEL_LOOK_MAX);
}

/*
 * The timeout is valid or NULL. Returns the result of the call, 0 at the timeout, or negative
 * errno. -EAGAIN: no time has passed, and what m waits for is the kernel's alone now.
 */
int mux_run(struct mux *m, const struct timespec *timeout, const sigset_t *sigmask);

/* Sets the counters of STATS_POLL or STATS_SELECT, and what the thread remembers of its spins. */
void mux_stats(struct mux *m, int which);

static inline bool mux_timeout_valid(const struct timespec *t)
{
	return !t || (t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000l);
}

/* When the wait ends, 0: never. A timeout beyond the clock's range is for ever. */
uint64_t mux_deadline(const struct timespec *timeout, uint64_t now_ns);

#endif
