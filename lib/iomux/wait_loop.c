/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "iomux/wait_loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/stack.h"
#include "wait/wait.h"

/*
 * While spinning, signals that only the caller's mask lets through are asked for this often; and
 * the kernel, where the parameters say never, for what has gone to it.
 */
#define SPIN_ASK_NS 100000ull

/* How long those that pfds lacks are not asked while the thread sleeps. */
#define MUTED_NS 10000000ull

static const struct timespec no_time;

static struct vma_stats_iomux *_Atomic poll_stats, *_Atomic select_stats;
static struct mux_polling poll_polling, select_polling;
/* What a thread polls and selects is the same again, as a rule. */
static __thread struct wait_spin_memory poll_memory, select_memory;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* The child has statistics pages of its own. */
static void forked_child(void)
{
	atomic_store(&poll_stats, NULL);
	atomic_store(&select_stats, NULL);
}

static void fork_register(void)
{
	atfork_add(NULL, NULL, forked_child);
}

void mux_stats(struct mux *m, int which)
{
	struct vma_stats_iomux *_Atomic *slot = which == STATS_POLL ? &poll_stats : &select_stats;

	m->polling = which == STATS_POLL ? &poll_polling : &select_polling;
	m->memory = which == STATS_POLL ? &poll_memory : &select_memory;
	m->stats = atomic_load_explicit(slot, memory_order_acquire);
	if (__builtin_expect(!m->stats, 0)) {
		pthread_once(&fork_once, fork_register);
		lock_enter(); /* no handler while the statistics' mutex is held */
		m->stats = stats_iomux_get(which);
		lock_leave();
		atomic_store_explicit(slot, m->stats, memory_order_release);
	}
}

int mux_skip_os(bool kernel_fds)
{
	int limit = params.select_skip_os;

	return kernel_fds || !limit || limit > MUX_SHADOW_LOOK ? limit : MUX_SHADOW_LOOK;
}

/*
 * The share of the time that went into polling, in percent, after each second or more. Threads may
 * add up to more than one.
 */
static void polling_note(struct mux *m, uint64_t from, uint64_t to)
{
	struct mux_polling *p = m->polling;
	uint64_t since = atomic_load_explicit(&p->since_ns, memory_order_relaxed), percent;
	uint64_t spent = atomic_fetch_add_explicit(&p->spent_ns, to - from, memory_order_relaxed) +
			 (to - from);

	if (to < since + 1000000000ull || !atomic_compare_exchange_strong(&p->since_ns, &since, to))
		return;
	atomic_store_explicit(&p->spent_ns, 0, memory_order_relaxed);
	percent = spent * 100 / (to - since);
	__atomic_store_n(&m->stats->polling_cpu, percent < 100 ? (uint32_t)percent : 100,
			 __ATOMIC_RELAXED);
}

/* The thread that called last. */
static void note_tid(struct vma_stats_iomux *stats)
{
	uint32_t me = lock_self();

	if (__builtin_expect(__atomic_load_n(&stats->tid, __ATOMIC_RELAXED) != me, 0))
		__atomic_store_n(&stats->tid, me, __ATOMIC_RELAXED);
}

/*
 * -EINTR when a handler ran since the call began, or when one is pending that the caller's mask
 * lets through (it runs now).
 */
static int signals_look(uint32_t handled, const sigset_t *sigmask)
{
	if (signals_handled != handled)
		return -EINTR;
	if (sigmask && raw.ppoll(NULL, 0, &no_time, sigmask) < 0)
		return -errno;
	return 0;
}

uint64_t mux_deadline(const struct timespec *t, uint64_t now)
{
	if (!t || (uint64_t)t->tv_sec >= (UINT64_MAX - now) / 1000000000ull - 1)
		return 0;
	return now + (uint64_t)t->tv_sec * 1000000000ull + (uint64_t)t->tv_nsec;
}

static uint64_t spin_until(uint64_t start, uint64_t deadline_ns)
{
	uint64_t end =
		params.select_poll < 0 ? UINT64_MAX : start + (uint64_t)params.select_poll * 1000;

	return deadline_ns && deadline_ns < end ? deadline_ns : end;
}

/*
 * Polls in user space until something is ready or it has been long enough (0). sp: NULL when
 * VMA_SELECT_POLL says how long that is.
 */
static int mux_spin(struct mux *m, struct wait_spin *sp, uint64_t start, uint64_t deadline_ns,
		    uint32_t handled)
{
	uint64_t end = spin_until(start, deadline_ns), now = start, asked = start;
	int ratio = params.select_poll_os_ratio, to_kernel = ratio, r;

	while (now < end && (!sp || spin_goes_on(sp, now))) {
		for (unsigned i = 0; i < SPIN_POLLS_PER_LOOK; i++) {
			enum mux_look how = LOOK_USER;

			if (sp)
				cpu_relax();
			stacks_poll();
			if (!stacks_show())
				return -EINTR;
			if (ratio && --to_kernel <= 0) {
				how = LOOK_KERNEL;
				to_kernel = ratio;
			}
			r = m->ops->look(m, how);
			if (r)
				return r;
			if (__builtin_expect(signals_handled != handled, 0))
				return -EINTR;
		}
		now = clock_monotonic_ns();
		if (now - asked < SPIN_ASK_NS)
			continue;
		asked = now;
		/* As in the kernel's wait, which is one: without a limit nothing else may come. */
		pthread_testcancel();
		r = !ratio && m->ops->kernel_serves(m) ? m->ops->look(m, LOOK_KERNEL) : 0;
		if (!r)
			r = signals_look(handled, m->sigmask);
		if (r)
			return r;
	}
	return 0;
}

/*
 * The program's handlers run no more until handlers_let(), and a signal ends the sleep. What the
 * caller's mask blocks must not do so: with one, ppoll() lets signals in, and nothing else.
 */
static void handlers_hold(struct mux *m)
{
	sigset_t all;

	if (m->sigmask) {
		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &m->mask);
	}
	m->bell = wait_signals_hold();
}

static void handlers_let(struct mux *m)
{
	bool put_off = lock_thread.deferred;

	wait_signals_let(m->bell);
	if (!m->sigmask)
		return;
	/* Inside ppoll(): the thread's own mask may block what the caller's lets through. */
	if (put_off)
		(void)raw.ppoll(NULL, 0, &no_time, m->sigmask);
	pthread_sigmask(SIG_SETMASK, &m->mask, NULL);
}

static void cancelled_asleep(void *arg)
{
	struct mux *m = arg;

	m->ops->unwatch(m, false);
	handlers_let(m);
}

/* wait_sleep(), as long as the deadline and what pfds lacks allow. */
static int sleep_once(struct mux *m, uint64_t deadline_ns)
{
	uint64_t until = deadline_ns;
	int r;

	if (__builtin_expect(m->muted, 0)) {
		until = clock_monotonic_ns() + MUTED_NS;
		until = deadline_ns && deadline_ns < until ? deadline_ns : until;
	}
	pthread_setcancelstate(m->cancel_state, NULL);
	r = m->alone ? wait_sleep_alone(m->pfds, m->npfds, until, m->sigmask)
		     : wait_sleep(m->pfds, m->npfds, until, m->sigmask);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	if (r > 0) {
		r = m->ops->woken(m);
		/* What the kernel has may be nothing for the program, and stay: it ends all the
		 * same. */
		return r || !deadline_ns || clock_monotonic_ns() < deadline_ns ? r : -ETIMEDOUT;
	}
	if (r != -ETIMEDOUT || !m->muted)
		return r;
	r = m->ops->look(m, LOOK_KERNEL);
	return r || until != deadline_ns ? r : -ETIMEDOUT;
}

/* Watched, handlers held: looks once more, then sleeps. Returns as mux_sleep(). */
static int look_and_sleep(struct mux *m, uint64_t deadline_ns, uint32_t handled)
{
	bool arrived = stacks_arm();
	int r = m->ops->look(m, LOOK_USER);

	if (r)
		return r;
	if (signals_handled != handled)
		return -EINTR;
	if (arrived && !(deadline_ns && clock_monotonic_ns() >= deadline_ns))
		return 0;
	return sleep_once(m, deadline_ns);
}

/*
 * After these ends of a sleep mux_wait() looks once more: an event wins over the timeout and over
 * the signal.
 */
static bool looks_again(int r)
{
	return r == 0 || r == -ETIMEDOUT || r == -EINTR;
}

/*
 * One sleep with everything watched: the watches come first, so what arrives after the look wakes
 * us. So does a signal: handlers are held, and one that came between the test and the sleep would
 * be missed otherwise. Returns > 0: ready, 0: look again, or negative errno (-ETIMEDOUT: the
 * deadline).
 */
static int mux_sleep(struct mux *m, uint64_t deadline_ns, uint32_t handled)
{
	int r;

	handlers_hold(m);
	/* Only the sleep itself may be cancelled: not half of watch or unwatch. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m->cancel_state);
	pthread_cleanup_push(cancelled_asleep, m);
	m->ops->watch(m);
	r = look_and_sleep(m, deadline_ns, handled);
	m->ops->unwatch(m, looks_again(r));
	pthread_cleanup_pop(0);
	pthread_setcancelstate(m->cancel_state, NULL);
	handlers_let(m);
	return r;
}

/* Before the first sleep. */
static int first_spin(struct mux *m, struct wait_spin *sp, uint64_t start, uint64_t deadline_ns,
		      uint32_t handled)
{
	bool adaptive = params.select_poll == POLL_ADAPTIVE;
	int r;

	if (adaptive ? !spin_begin(sp, m->memory, start) : !params.select_poll)
		return 0;
	r = mux_spin(m, adaptive ? sp : NULL, start, deadline_ns, handled);
	if (params.cpu_usage_stats)
		polling_note(m, start, clock_monotonic_ns());
	return r;
}

/* A wait that began with `first`, which spinning found, and ended with r. */
static void count(struct mux *m, const struct wait_spin *sp, int first, int r)
{
	bool adaptive = params.select_poll == POLL_ADAPTIVE;
	bool spun = m->spin && (adaptive ? sp->until_ns > sp->began_ns : params.select_poll);
	enum vma_slept why = adaptive ? sp->why : VMA_SLEPT_SETTING;

	wait_count(&m->stats->waits, spun, !first, r > 0, m->spin ? why : VMA_SLEPT_KERNEL);
}

static int poll_and_look(struct mux *m, enum mux_look how)
{
	int r;

	stack_round_look_begin();
	stacks_poll();
	r = stacks_show() ? m->ops->look(m, how) : -EINTR;
	/* What has been said only now may have made room to write (TCP_NOTSENT_LOWAT). */
	if (stack_round_look_end(r > 0 ? (unsigned)r : 0) && !r)
		r = m->ops->look(m, how);
	return r;
}

static int mux_wait(struct mux *m, const struct timespec *timeout, uint32_t handled)
{
	uint64_t start = clock_monotonic_ns(), deadline_ns = mux_deadline(timeout, start);
	struct wait_spin sp = {.memory = NULL};
	int first = 0, r;

	if (m->spin)
		first = first_spin(m, &sp, start, deadline_ns, handled);
	r = first;
	stats_add(r ? &m->stats->poll_hit : &m->stats->poll_miss, 1);
	while (!r) {
		r = mux_sleep(m, deadline_ns, handled);
		if (looks_again(r)) {
			int late = poll_and_look(m, LOOK_USER);

			r = late ? late : r;
		}
	}
	count(m, &sp, first, r);
	spin_end(&sp, r > 0);
	wait_over();
	return r;
}

static void cancelled(void *arg)
{
	struct mux *m = arg;

	free(m->heap);
}

/* As mux_wait(), and nothing is leaked when the thread is cancelled in it. */
static int mux_wait_or_free(struct mux *m, const struct timespec *timeout, uint32_t handled)
{
	int r;

	pthread_cleanup_push(cancelled, m);
	r = mux_wait(m, timeout, handled);
	pthread_cleanup_pop(0);
	return r;
}

static bool leaves(struct mux *m)
{
	bool left = m->ops->leaves(m);

	wait_crowd_left(m->memory, left);
	return left;
}

int mux_run(struct mux *m, const struct timespec *timeout, const sigset_t *sigmask)
{
	uint32_t handled = m->handled;
	int r;

	m->sigmask = sigmask;
	note_tid(m->stats);
	m->zero = timeout && !timeout->tv_sec && !timeout->tv_nsec;
	r = poll_and_look(m, LOOK_FIRST);
	if (!r && m->alone && !m->zero && wait_is_crowded(m->memory) && leaves(m)) {
		/* A handler that came meanwhile ends the call. */
		if (signals_handled == handled)
			return -EAGAIN;
		r = -EINTR;
	}
	if (r > 0)
		stats_add(&m->stats->poll_hit, 1);
	else if (!r && m->zero)
		r = m->zero_signals ? signals_look(handled, sigmask) : 0;
	else if (!r)
		r = mux_wait_or_free(m, timeout, handled);
	if (r > 0)
		stack_round_begin((unsigned)r);
	if (r == -ETIMEDOUT)
		r = 0;
	if (!r)
		stats_add(&m->stats->timeouts, 1);
	else if (r < 0)
		stats_add(&m->stats->errors, 1);
	return r;
}
