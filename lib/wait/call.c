/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/stack.h"
#include "wait/wait.h"
#include "wait/call.h"

void wait_call_init(struct wait_call *w, const _Atomic uint32_t *gen, uint64_t timeout_ns,
		    int64_t polls, struct wait_spin_memory *memory)
{
	stack_round_look();
	w->begin = wait_signals_now();
	w->gen_now = gen;
	w->gen = atomic_load_explicit(gen, memory_order_relaxed);
	w->deadline_ns = timeout_ns ? clock_monotonic_ns() + timeout_ns : 0;
	w->polls_left = polls;
	w->polls = 0;
	w->spun = w->slept = false;
	w->memory = memory;
	w->spin.memory = NULL;
}

struct wait_signals wait_signals_now(void)
{
	return (struct wait_signals){signals_handled, signals_interrupting};
}

void wait_call_since(struct wait_call *w, const struct wait_signals *begin)
{
	w->begin = *begin;
}

bool wait_call_interrupted(const struct wait_call *w)
{
	return signals_interrupting != w->begin.interrupting ||
	       (w->deadline_ns && signals_handled != w->begin.handled);
}

/* Is it time to sleep? */
static bool spun_enough(struct wait_call *w)
{
	if (w->polls_left == POLL_ADAPTIVE) {
		if (!w->spin.memory)
			return !spin_begin(&w->spin, w->memory, clock_monotonic_ns());
		if (w->spin.stopped)
			return true;
		cpu_relax();
		return w->polls % SPIN_POLLS_PER_LOOK == 0 &&
		       !spin_goes_on(&w->spin, clock_monotonic_ns());
	}
	if (!w->polls_left)
		return true;
	if (w->polls_left > 0)
		w->polls_left--;
	return false;
}

static void cancelled(void *arg)
{
	(void)arg;
	wait_over();
}

/* A thread that slept on the rings for others may be cancelled here. */
static void testcancel(void)
{
	pthread_cleanup_push(cancelled, NULL);
	pthread_testcancel();
	pthread_cleanup_pop(0);
}

int wait_call_spun(struct wait_call *w)
{
	if (!w->polls++)
		stack_round_end();
	if (w->polls % WAIT_POLLS_PER_CLOCK == 0) {
		testcancel();
		if (w->deadline_ns && clock_monotonic_ns() >= w->deadline_ns)
			return -EAGAIN;
	}
	if (params.rx_poll_yield && w->polls % (uint32_t)params.rx_poll_yield == 0)
		sched_yield();
	if (spun_enough(w))
		return 1;
	/* One poll is none: VMA_RX_POLL=0 has it, too. */
	w->spun = w->spun || w->polls_left == POLL_ADAPTIVE || w->polls > 1;
	return 0;
}

void wait_call_count(const struct wait_call *w, bool came, struct vma_stats_waits *to)
{
	if (w->polls)
		wait_count(to, w->spun, w->slept, came,
			   w->polls_left == POLL_ADAPTIVE ? w->spin.why : VMA_SLEPT_SETTING);
}

void wait_call_end(struct wait_call *w, bool came)
{
	spin_end(&w->spin, came);
	if (w->slept)
		wait_over();
	w->spun = w->slept = false;
	w->polls = 0;
}

struct sleeper {
	struct vfd *v;
	struct wait_watch watch;
	int bell;
};

/* Back to where wait_call_sleep() began; also for a thread that is cancelled in ppoll(). */
static void sleep_end(void *arg)
{
	struct sleeper *sl = arg;

	wait_watch_del(sl->v, &sl->watch);
	wait_signals_let(sl->bell);
}

static int sleep_by(int (*sleep)(struct pollfd *, unsigned, uint64_t, const sigset_t *),
		    struct wait_call *w, struct vfd *v, int os_fd, bool (*look)(void *arg),
		    void *arg)
{
	struct pollfd os = {.fd = os_fd, .events = POLLIN};
	struct sleeper sl = {.v = v};
	int err;

	w->slept = true;
	sl.bell = wait_signals_hold();
	pthread_cleanup_push(sleep_end, &sl);
	/*
	 * Without an eventfd (no descriptor is left) there is no watch, and wait_sleep() looks
	 * again each millisecond.
	 */
	(void)wait_watch_add(v, &sl.watch);
	if (wait_call_interrupted(w))
		err = -EINTR;
	else if (wait_call_closed(w) || stacks_arm() || look(arg))
		err = 0; /* a close() before the watch stood has woken nobody */
	else
		err = sleep(&os, 1, w->deadline_ns, NULL);
	pthread_cleanup_pop(1);
	/* ppoll is ended by every signal; the call that it stands for only by some. */
	if (err == -EINTR && !wait_call_interrupted(w) && signals_handled != w->begin.handled)
		return 0;
	return err == -ETIMEDOUT ? -EAGAIN : err;
}

int wait_call_sleep(struct wait_call *w, struct vfd *v, int os_fd, bool (*look)(void *arg),
		    void *arg)
{
	return sleep_by(wait_sleep, w, v, os_fd, look, arg);
}

int wait_call_sleep_alone(struct wait_call *w, struct vfd *v, bool (*look)(void *arg), void *arg)
{
	return sleep_by(wait_sleep_alone, w, v, -1, look, arg);
}
