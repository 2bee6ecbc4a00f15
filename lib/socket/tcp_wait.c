/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a blocking call waits: spins by VMA_RX_POLL, then sleeps. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>

#include "runtime/params.h"
#include "runtime/signals.h"
#include "socket/tcp_int.h"
#include "socket/wait.h"

/* Empty polls between two looks at the clock, and between two polls of a ring that shows nothing. */
#define POLLS_PER_CLOCK 64u

void tsock_wait_init(const struct tsock *s, struct tsock_wait *w, uint32_t want, uint64_t timeout_ns)
{
	w->want = want;
	w->handled = signals_handled;
	w->interrupting = signals_interrupting;
	w->gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	w->deadline = timeout_ns ? wait_now_ns() + timeout_ns : 0;
	w->polls_left = params.rx_poll;
	w->polls = 0;
	w->behind = 0;
}

/* Has a signal ended the call? (signal(7): with a timeout any handler does, else those without SA_RESTART.) */
static bool interrupted(const struct tsock_wait *w)
{
	return signals_interrupting != w->interrupting || (w->deadline && signals_handled != w->handled);
}

/* For a call that has peeked at what is there. */
static bool more_is_there(struct tsock *s, const struct tsock_wait *w)
{
	struct stack *st = tsock_conn_lock(s);
	bool yes;

	if (!st)
		return true;
	yes = tcp_inq(s->c) > w->behind || tcp_at_mark(s->c) || (tcp_ready(s->c) & (TCP_EV_RDHUP | TCP_EV_HUP | TCP_EV_ERR));
	lock_drop(&st->lock);
	return yes;
}

static bool has_come(struct tsock *s, const struct tsock_wait *w)
{
	uint32_t come = atomic_load_explicit(&s->hint, memory_order_acquire);

	if (__builtin_expect(w->behind, 0))
		return more_is_there(s, w);
	if (tsock_mode(s) == TSOCK_LISTEN)
		come |= atomic_load_explicit(&s->v.os_events, memory_order_relaxed);
	return come & w->want;
}

struct sleeper {
	struct tsock *s;
	struct wait_watch watch;
	sigset_t mask;
};

/* Back to where sleep_once() began; also for a thread that is cancelled in ppoll(). */
static void sleep_end(void *arg)
{
	struct sleeper *sl = arg;

	wait_watch_del(&sl->s->v, &sl->watch);
	pthread_sigmask(SIG_SETMASK, &sl->mask, NULL);
	lock_leave();
}

/* Watched and signals blocked: looks once more, then sleeps. As wait_sleep(). */
static int look_and_sleep(struct sleeper *sl, int fd, struct tsock_wait *w)
{
	struct tsock *s = sl->s;
	/* Only a listener's kernel socket can have something of interest. */
	struct pollfd os = { .fd = tsock_mode(s) == TSOCK_LISTEN ? fd : -1, .events = POLLIN };

	if (interrupted(w))
		return -EINTR;
	if (atomic_load_explicit(&s->gen, memory_order_acquire) != w->gen)
		return 0;
	if (stacks_arm() || has_come(s, w))
		return 0;
	return wait_sleep(&os, 1, w->deadline, &sl->mask);
}

/* One ppoll on everything that could bring something. 0: look again, or negative errno. */
static int sleep_once(struct tsock *s, int fd, struct tsock_wait *w)
{
	struct sleeper sl = { .s = s };
	sigset_t all;
	int err;

	/* A handler that runs between the test and the sleep would be missed: none may until ppoll lets it. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &sl.mask);
	/* A handler that ppoll() lets in runs when the watch is gone: it may never come back here (siglongjmp). */
	lock_enter();
	pthread_cleanup_push(sleep_end, &sl);
	(void)wait_watch_add(&s->v, &sl.watch);
	err = look_and_sleep(&sl, fd, w);
	pthread_cleanup_pop(1);
	if (err > 0) {
		atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release);
		err = 0;
	}
	/* ppoll is ended by every signal; the call that it stands for only by some. */
	if (err == -EINTR && !interrupted(w) && signals_handled != w->handled)
		err = 0;
	return err == -ETIMEDOUT ? -EAGAIN : err;
}

/* Polls the stack of a connection, or all of them, when a ring shows something. */
static void poll_once(struct tsock *s, const struct tsock_wait *w)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);

	if (!st) {
		stacks_poll();
		return;
	}
	if (!atomic_load_explicit(&st->open, memory_order_acquire))
		return;
	/* A ring outlives its stack's end by seconds, so this look needs no lock. */
	if (w->polls % POLLS_PER_CLOCK && !st->ring->ops->pending(st->ring))
		return;
	if (!lock_try(&st->lock))
		return; /* whoever holds it polls */
	stack_poll_called(st);
	lock_drop(&st->lock);
}

int tsock_wait_more(struct tsock *s, int fd, struct tsock_wait *w)
{
	int err;

	for (;;) {
		if (atomic_load_explicit(&s->gen, memory_order_relaxed) != w->gen)
			return -EBADF;
		if (has_come(s, w))
			return 0;
		if (interrupted(w))
			return -EINTR;
		poll_once(s, w);
		if (has_come(s, w))
			return 0;
		w->polls++;
		if (w->polls % POLLS_PER_CLOCK == 0) {
			pthread_testcancel(); /* no lock is held here */
			if (w->deadline && wait_now_ns() >= w->deadline)
				return -EAGAIN;
		}
		if (params.rx_poll_yield && w->polls % (uint32_t)params.rx_poll_yield == 0)
			sched_yield();
		if (w->polls_left < 0)
			continue;
		if (w->polls_left > 0) {
			w->polls_left--;
			continue;
		}
		err = sleep_once(s, fd, w);
		if (err)
			return err;
	}
}
