/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/rest.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "stack/internal.h"

#define QUIET_LOOKS (STACK_REST_AFTER_MS / STACK_REST_LOOK_MS)
#define TICKS_MAX 8

_Atomic bool stacks_resting;

/* Written with the stacks' mutex held, entries before their number. */
static struct tick {
	int id;
	unsigned msec;
	worker_timer_fn fn;
	void *arg;
} ticks[TICKS_MAX];
static _Atomic unsigned num_ticks;

/* Of both the internal thread is told by its own epoll set, where they stay. -1: there is none. */
static int called_fd = -1; /* written to by stacks_used() */
static int frames_fd = -1; /* an epoll set, of what is watched while it rests */

/* The internal thread's: */
static bool rests;
static bool wakes; /* one tick goes on, the others are to follow */
static unsigned quiet; /* looks in a row at which nothing had happened */
static uint64_t seen; /* traffic() of the last one */
static int watched[STACKS_WAIT_FDS_MAX];
static unsigned num_watched;

static void ticks_stop(void)
{
	unsigned n = atomic_load_explicit(&num_ticks, memory_order_acquire);

	wakes = false;
	for (unsigned i = 0; i < n; i++)
		worker_timer_stop(ticks[i].id);
}

/*
 * Only the one that comes first, which has the others follow. To set a timer takes microseconds
 * where the host does it, and whose frame it is that ends the rest may wait for this processor.
 */
static void ticks_wake(void)
{
	unsigned n = atomic_load_explicit(&num_ticks, memory_order_acquire), first = 0;

	for (unsigned i = 1; i < n; i++) {
		if (ticks[i].msec < ticks[first].msec)
			first = i;
	}
	wakes = true;
	worker_timer_go(ticks[first].id, ticks[first].msec);
}

static void ticks_follow(const struct tick *first)
{
	unsigned n = atomic_load_explicit(&num_ticks, memory_order_acquire);

	wakes = false;
	for (unsigned i = 0; i < n; i++) {
		if (&ticks[i] != first)
			worker_timer_go(ticks[i].id, ticks[i].msec);
	}
}

static void ticked(void *arg)
{
	const struct tick *t = arg;

	if (wakes)
		ticks_follow(t);
	t->fn(t->arg);
}

int stack_tick_add(unsigned msec, worker_timer_fn fn, void *arg)
{
	unsigned n = atomic_load_explicit(&num_ticks, memory_order_relaxed);
	struct tick *t = &ticks[n];

	if (n == TICKS_MAX)
		return -ENOSPC;
	*t = (struct tick){.msec = msec, .fn = fn, .arg = arg};
	t->id = worker_timer_add(msec, ticked, t);
	if (t->id < 0)
		return t->id;
	atomic_store_explicit(&num_ticks, n + 1, memory_order_release);
	return 0;
}

/* Grows with each frame that comes or leaves. */
static uint64_t traffic(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		const struct ring_counters *c;

		lock_take(&st->lock);
		c = atomic_load_explicit(&st->open, memory_order_relaxed) ? st->ring->counters
									  : NULL;
		if (c)
			sum += c->rx_packets + c->rx_drop_invalid + c->rx_drop_no_buf +
			       c->tx_packets + c->tx_full +
			       __atomic_load_n(&c->tx_gso_frames, __ATOMIC_RELAXED);
		lock_drop(&st->lock);
	}
	return sum;
}

/* Nothing would wake the internal thread but a tick; st is open and locked. */
static bool needs_ticks(struct stack *st, int *news_fd)
{
	const struct ring_ops *ops = st->ring->ops;

	*news_fd = -1;
	return !stack_timed_ops->rests(st) || (ops->rests && !ops->rests(st->ring, news_fd)) ||
	       ops->pending(st->ring);
}

/* st is armed, and what is to be watched of it is noted. False: it needs the ticks. */
static bool stack_rests(struct stack *st)
{
	const struct ring_ops *ops = st->ring->ops;
	unsigned room = STACKS_WAIT_FDS_MAX - 1 - num_watched;
	int news_fd;

	/* Frames that wait are a tick's, or by VMA_PROGRESS_ENGINE_INTERVAL nobody's. */
	if (needs_ticks(st, &news_fd))
		return false;
	if (ops->arm(st->ring)) {
		/* To ask may have taken the event from a thread that sleeps on the ring. */
		stack_poll(st, (unsigned)params.cq_poll_batch_max);
		return false;
	}
	if (ops->pending(st->ring))
		return false;
	num_watched += ops->wait_fds(st->ring, watched + num_watched, room);
	if (news_fd >= 0)
		watched[num_watched++] = news_fd;
	return num_watched < STACKS_WAIT_FDS_MAX - 1;
}

static bool all_rest(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);
	bool all = true;

	num_watched = 0;
	for (unsigned i = 0; i < n && all; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed))
			all = stack_rests(st);
		lock_drop(&st->lock);
	}
	return all;
}

static void unwatch(void)
{
	for (unsigned i = 0; i < num_watched; i++)
		(void)raw.epoll_ctl(frames_fd, EPOLL_CTL_DEL, watched[i], NULL);
	num_watched = 0;
}

/* What has come since the ring was armed is told of at once. */
static bool watch(void)
{
	unsigned n = num_watched;

	for (num_watched = 0; num_watched < n; num_watched++) {
		/* Exclusive: behind all that sleep on it otherwise, who are woken first. */
		struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE};

		if (raw.epoll_ctl(frames_fd, EPOLL_CTL_ADD, watched[num_watched], &ev)) {
			log_debug("epoll_ctl(%d) for the rest of the internal thread: %s",
				  watched[num_watched], strerror(errno));
			unwatch();
			return false;
		}
	}
	return true;
}

static void rest_begin(void)
{
	atomic_store(&stacks_resting, true);
	if (!all_rest() || !watch()) {
		num_watched = 0;
		atomic_store(&stacks_resting, false);
		return;
	}
	stack_timed_ops->sleep_hint();
	ticks_stop();
	rests = true;
}

void stacks_rest_look(void)
{
	uint64_t now;

	/* A tick that was under way when it began. */
	if (rests)
		return;
	now = traffic();
	quiet = now == seen ? quiet + 1 : 0;
	seen = now;
	if (quiet >= QUIET_LOOKS && stack_timed_ops->may_rest())
		rest_begin();
}

void stacks_rest_end(void)
{
	atomic_store(&stacks_resting, false);
	quiet = 0;
	if (!rests)
		return;
	rests = false;
	unwatch();
	ticks_wake();
}

static bool overlooked(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);
	bool any = traffic() != seen;
	int news_fd;

	for (unsigned i = 0; i < n && !any; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed))
			any = needs_ticks(st, &news_fd);
		lock_drop(&st->lock);
	}
	return any;
}

bool stacks_rest_on(void)
{
	if (!rests)
		return false;
	if (overlooked())
		stacks_rest_end();
	else
		stack_timed_ops->sleep_hint();
	return rests;
}

/* Not libc's write(): that is a cancellation point, and locks are held here. */
__attribute__((noinline)) void stacks_used_resting(void)
{
	uint64_t one = 1;

	if (atomic_exchange(&stacks_resting, false) &&
	    raw.write(called_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("write(eventfd %d) to the internal thread: %s", called_fd,
			  strerror(errno));
}

static void called(int fd, uint32_t events, void *arg)
{
	uint64_t count;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &count, sizeof(count));
	stacks_rest_end();
}

/*
 * Whoever sleeps on the ring has been woken, too, and should have the frame: it is taken off by the
 * first tick, if nobody has until then.
 */
static void frame_came(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	(void)arg;
	stacks_rest_end();
}

static void close_both(void)
{
	if (called_fd >= 0)
		own_fd_close(called_fd);
	if (frames_fd >= 0)
		own_fd_close(frames_fd);
	called_fd = frames_fd = -1;
}

int stacks_rest_start(void)
{
	int err;

	if (frames_fd >= 0)
		return 0;
	called_fd = own_eventfd(0);
	if (called_fd >= 0)
		frames_fd = OWN_FD(libc.epoll_create1(EPOLL_CLOEXEC));
	err = frames_fd < 0 ? -errno : worker_fd_add(called_fd, EPOLLIN, called, NULL);
	if (!err) {
		err = worker_fd_add(frames_fd, EPOLLIN, frame_came, NULL);
		if (err)
			worker_fd_del(called_fd, NULL);
	}
	if (err)
		close_both();
	return err;
}

void stacks_rest_forked(void)
{
	close_both();
	atomic_store(&num_ticks, 0);
	atomic_store(&stacks_resting, false);
	rests = wakes = false;
	quiet = num_watched = 0;
}
