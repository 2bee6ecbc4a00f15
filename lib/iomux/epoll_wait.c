/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* epoll_wait and its kin. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "iomux/epoll.h"
#include "iomux/iomux.h"
#include "iomux/wait_loop.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/stack.h"
#include "wait/wait.h"

/* A thread that is driven out of its sleep in the kernel is gone by then. */
#define KICK_NS 2000000000ull

struct epwait {
	struct mux mux;
	struct epset *s;
	int epfd, max;
	uint32_t generation; /* of the set when the call began */
	struct epoll_event *evs;
	struct pollfd pfd;
	struct epwaiter waiter;
};

/* libc's epoll_wait with a timespec; the millisecond forms where they say the same. */
static int kernel_wait(int epfd, struct epoll_event *evs, int max, const struct timespec *t,
		       const sigset_t *sigmask)
{
	int ms = -1;

	if (t &&
	    (!mux_timeout_valid(t) || t->tv_nsec % 1000000 || t->tv_sec > INT_MAX / 1000 - 1)) {
		if (libc.epoll_pwait2)
			return libc.epoll_pwait2(epfd, evs, max, t, sigmask);
		if (!mux_timeout_valid(t)) {
			errno = EINVAL;
			return -1;
		}
	}
	if (t && t->tv_sec > INT_MAX / 1000 - 1)
		ms = INT_MAX;
	else if (t)
		ms = (int)(t->tv_sec * 1000 + (t->tv_nsec + 999999) / 1000000);
	return sigmask ? libc.epoll_pwait(epfd, evs, max, ms, sigmask)
		       : libc.epoll_wait(epfd, evs, max, ms);
}

int epset_fold(struct epset *s, struct epoll_event *evs, int n)
{
	bool locked = false, hot = false;
	int kept = 0;

	for (int i = 0; i < n; i++) {
		struct epitem *it;

		if (!epitem_tagged(evs[i].data.u64)) {
			evs[kept++] = evs[i];
			continue;
		}
		if (!locked) {
			epset_lock(s);
			locked = true;
		}
		it = epitem_of(s, evs[i].data.u64);
		if (!it) /* removed meanwhile, or the kick */
			continue;
		it->os_pending |= evs[i].events;
		/*
		 * Before the worker has told the socket: what is reported here the next call must
		 * find.
		 */
		if (it->v)
			atomic_fetch_or_explicit(&it->v->os_events,
						 evs[i].events & (EPOLLIN | EPOLLPRI | EPOLLERR),
						 memory_order_release);
		if (it->v &&
		    atomic_load_explicit(&it->v->shadow, memory_order_relaxed) == VFD_SHADOW_NONE)
			it->os_pending = 0;
		if (it->os_pending) {
			epset_ready(s, it, ~0u);
			hot = true;
		}
	}
	if (locked)
		epset_unlock(s);
	if (hot != atomic_load_explicit(&s->shadow_hot, memory_order_relaxed))
		atomic_store_explicit(&s->shadow_hot, hot, memory_order_relaxed);
	return kept;
}

/*
 * Reports one item. Level-triggered ones stay in the ready list while user space says so. mtx held.
 */
static bool item_report(struct epset *s, struct epitem *it, struct epoll_event *ev)
{
	uint32_t user = epitem_user(it), os = epitem_peek(it) & it->os_pending, flags = it->events;

	it->os_pending = 0;
	if (!(user | os))
		return false;
	ev->events = user | os;
	ev->data = it->data;
	if (flags & EPOLLONESHOT)
		epitem_arm(s, it, flags & EP_PRIVATE);
	else if (!(flags & EPOLLET) && user)
		epset_ready(s, it, ~0u);
	return true;
}

/*
 * Fills evs from `at` with offloaded events. Returns how many, or -EBADF when the set was closed.
 */
static int scan(struct epwait *w, int at)
{
	struct epset *s = w->s;
	unsigned popped = 0, todo;
	int n = at;

	if (!atomic_load(&s->num_ready) || at >= w->max)
		return atomic_load_explicit(&s->generation, memory_order_relaxed) == w->generation
			       ? 0
			       : -EBADF;
	epset_lock(s);
	if (atomic_load_explicit(&s->generation, memory_order_relaxed) != w->generation) {
		epset_unlock(s);
		return -EBADF;
	}
	/* Each item once: those that stay ready go to the end, so all have their turn. */
	for (todo = atomic_load(&s->num_ready); popped < todo && n < w->max; popped++)
		n += item_report(s, epset_pop(s), &w->evs[n]);
	epset_popped(s, popped);
	epset_unlock(s);
	epset_wake(s); /* what is left is for the next thread */
	if (n > at)
		stats_add(&w->mux.stats->ready_offloaded, (uint64_t)(n - at));
	return n - at;
}

/*
 * How many events are the kernel's. The offloaded ones find half of the room at least if they need
 * it; where it cannot be halved they have the larger part each other time, so that a program that
 * asks for one event sees both.
 */
static int kernel_room(struct epwait *w)
{
	bool larger = atomic_load_explicit(&w->s->kernel_turn, memory_order_relaxed);
	unsigned ready = atomic_load(&w->s->num_ready), half = ((unsigned)w->max + !larger) / 2;

	if (ready)
		atomic_store_explicit(&w->s->kernel_turn, !larger, memory_order_relaxed);
	return w->max - (int)(ready < half ? ready : half);
}

/*
 * Who was to be driven out has been for long. One that never says so has left its wait by
 * siglongjmp() of a handler: nobody would sleep in this set any more.
 */
static void kick_given_up(struct epwait *w)
{
	struct epset *s = w->s;

	if (atomic_load(&s->kick_fd) < 0 ||
	    clock_monotonic_ns() - atomic_load(&s->kicked_ns) < KICK_NS)
		return;
	epset_plain_anew(s);
	epset_unkick(s, w->epfd);
}

/* The kernel's events, then the offloaded ones. */
static int look_both(struct epwait *w)
{
	struct epset *s = w->s;
	int room = kernel_room(w), found, r, user;

	if (!room) {
		user = scan(w, 0);
		if (user)
			return user;
		room = w->max;
	}
	atomic_store_explicit(&s->hits_since_kernel, 0, memory_order_relaxed);
	atomic_store_explicit(&s->zeros_since_kernel, 0, memory_order_relaxed);
	found = raw.epoll_wait(w->epfd, w->evs, room, 0);
	if (found < 0)
		return -errno;
	r = epset_fold(s, w->evs, found);
	if (found && !r)
		kick_given_up(w);
	if (r)
		stats_add(&w->mux.stats->ready_os, (uint64_t)r);
	user = scan(w, r);
	return user < 0 && !r ? user : r + (user > 0 ? user : 0);
}

/* mux_may_skip() for what threads share; one that is lost in a race is one more look. */
static bool may_skip(_Atomic int *calls, int limit)
{
	int n = atomic_load_explicit(calls, memory_order_relaxed);
	bool skip = mux_may_skip(&n, limit);

	atomic_store_explicit(calls, n, memory_order_relaxed);
	return skip;
}

static int epwait_look(struct mux *m, enum mux_look how)
{
	struct epwait *w = (struct epwait *)m;
	struct epset *s = w->s;
	bool kernel_fds = epset_has_kernel_fds(s);

	/* Nothing in the set is the kernel's business: it is not asked. */
	if (how == LOOK_USER ||
	    (!kernel_fds && !atomic_load_explicit(&s->num_in_kernel, memory_order_relaxed)))
		return scan(w, 0);
	if (how == LOOK_FIRST && atomic_load(&s->num_ready) &&
	    may_skip(&s->hits_since_kernel, mux_skip_os(kernel_fds))) {
		int n = scan(w, 0);

		if (n)
			return n;
	}
	/*
	 * The sleep asks for the shadow sockets. A program that polls with zero timeouts pays for
	 * them only now and then.
	 */
	if (how == LOOK_FIRST && !kernel_fds &&
	    !atomic_load_explicit(&s->shadow_hot, memory_order_relaxed) &&
	    !atomic_load(&s->num_ready) &&
	    (!m->zero || may_skip(&s->zeros_since_kernel, params.select_poll_os_ratio)))
		return 0;
	return look_both(w);
}

static void epwait_watch(struct mux *m)
{
	struct epwait *w = (struct epwait *)m;

	epset_waiter_add(w->s, &w->waiter);
}

static void epwait_unwatch(struct mux *m, bool look_follows)
{
	struct epwait *w = (struct epwait *)m;

	epset_waiter_del(w->s, &w->waiter);
	/* What came after its last look, or is more than it takes, is for another thread. */
	if (!look_follows)
		epset_wake(w->s);
}

static int epwait_woken(struct mux *m)
{
	return look_both((struct epwait *)m);
}

/* And of sets in this one: they may have such. */
static bool epwait_kernel_serves(const struct mux *m)
{
	const struct epwait *w = (const struct epwait *)m;

	return atomic_load_explicit(&w->s->num_served, memory_order_relaxed);
}

static const struct mux_ops epwait_ops = {
	.kernel_serves = epwait_kernel_serves,
	.look = epwait_look,
	.watch = epwait_watch,
	.unwatch = epwait_unwatch,
	.woken = epwait_woken,
};

/* handled: signals_handled when the call began. */
static int wait_ours(struct epset *s, int epfd, struct epoll_event *evs, int max,
		     const struct timespec *timeout, const sigset_t *sigmask, uint32_t handled)
{
	struct epwait w = {
		.mux = {.ops = &epwait_ops,
			.handled = handled,
			.npfds = 1,
			.stats = atomic_load(&s->stats),
			.polling = &s->polling,
			.memory = &s->spin},
		.s = s,
		.epfd = epfd,
		.max = max,
		.generation = atomic_load(&s->generation),
		.evs = evs,
		.pfd = {.fd = epfd, .events = POLLIN},
	};
	int r;

	if (!w.mux.stats) { /* closed by another thread a moment ago */
		errno = EBADF;
		return -1;
	}
	w.mux.pfds = &w.pfd;
	w.mux.spin = epoll_spins(&s->vfd);
	r = mux_run(&w.mux, timeout, sigmask);
	if (r < 0) {
		errno = -r;
		return -1;
	}
	return r;
}

/* A thread in wait_plain(). */
struct plain {
	struct epset *s;
	int epfd;
	uint32_t generation;
};

static void plain_enter(struct plain *p)
{
	p->generation = (uint32_t)(atomic_fetch_add(&p->s->plain, 1) >> 32);
}

/* Also of a thread that is cancelled asleep. */
static void plain_leave(void *arg)
{
	const struct plain *p = arg;
	uint64_t was = atomic_load(&p->s->plain);

	do {
		if ((uint32_t)(was >> 32) != p->generation || !(uint32_t)was)
			return; /* closed meanwhile, or given up by look_both() */
	} while (!atomic_compare_exchange_weak(&p->s->plain, &was, was - 1));
	if ((uint32_t)was == 1)
		epset_unkick(p->s, p->epfd);
}

/*
 * Nothing but tags of items that are not here: they are on their way into the set, or a parent's,
 * whose socket stays ready for as long as it likes. -1 and EINTR: a signal ends the wait.
 */
static int nap(struct plain *p, const sigset_t *sigmask)
{
	static const struct timespec ms = {.tv_nsec = 1000000};
	int r;

	pthread_cleanup_push(plain_leave, p);
	r = libc.ppoll(NULL, 0, &ms, sigmask);
	pthread_cleanup_pop(0);
	return r;
}

static int plain_sleep(struct plain *p, struct epoll_event *evs, int max,
		       const struct timespec *timeout, const sigset_t *sigmask)
{
	int r;

	pthread_cleanup_push(plain_leave, p);
	r = kernel_wait(p->epfd, evs, max, timeout, sigmask);
	pthread_cleanup_pop(0);
	return r;
}

/*
 * libc waits: the set has no fds of ours, as far as can be seen. Returns false when there was
 * nothing for the program, and the wait has to go on: an offloaded fd has come into the set.
 */
static bool wait_plain(struct epset *s, uint32_t generation, int epfd, struct epoll_event *evs,
		       int max, const struct timespec *timeout, const sigset_t *sigmask,
		       int *result)
{
	struct plain plain = {.s = s, .epfd = epfd};
	bool done = true;
	int r = 0, err;

	plain_enter(&plain);
	if (atomic_load(&s->num_items)) {
		plain_leave(&plain);
		return false;
	}
	r = plain_sleep(&plain, evs, max, timeout, sigmask);
	err = errno;
	/*
	 * Whatever num_items says: the kernel knows a tag before the set has its item, and after
	 * another thread closed the set.
	 */
	if (r > 0 && (atomic_load(&s->tagged) || atomic_load(&s->generation) != generation)) {
		r = epset_fold(s, evs, r);
		done = r > 0;
		if (!done && !atomic_load(&s->num_items) && nap(&plain, sigmask) < 0) {
			err = errno;
			r = -1;
			done = true;
		}
	}
	plain_leave(&plain);
	errno = err;
	*result = r;
	return done;
}

static struct timespec time_left(uint64_t deadline_ns)
{
	uint64_t now = clock_monotonic_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;

	return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

int iomux_epoll_wait(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout,
		     const sigset_t *sigmask)
{
	struct epset *s = epset_of(epfd);
	struct timespec left;
	/* Read before the number is known to be open: a close from then on changes it. */
	uint32_t generation = s ? atomic_load(&s->generation) : 0;
	uint32_t handled = signals_handled;
	uint64_t deadline_ns = 0;
	int r;

	stack_round_end();
	if (vfd_is_closing(vfd_get(epfd))) {
		errno = EBADF;
		return -1;
	}
	if (!s || max <= 0 || !mux_timeout_valid(timeout))
		return kernel_wait(epfd, evs, max, timeout, sigmask);
	epset_wait_begins(s);
	if (lock_mine(&s->mtx)) {
		errno = EINTR; /* a signal handler inside this thread's own epoll call */
		return -1;
	}
	if (atomic_load(&s->num_items))
		return wait_ours(s, epfd, evs, max, timeout, sigmask, handled);
	if (timeout && (timeout->tv_sec || timeout->tv_nsec))
		deadline_ns = mux_deadline(timeout, clock_monotonic_ns());
	while (!wait_plain(s, generation, epfd, evs, max, timeout, sigmask, &r)) {
		if (deadline_ns) {
			left = time_left(deadline_ns);
			timeout = &left;
		}
		if (atomic_load(&s->num_items))
			return wait_ours(s, epfd, evs, max, timeout, sigmask, handled);
		/* Tags that stay ready must not keep the call beyond its time. */
		if (timeout && !timeout->tv_sec && !timeout->tv_nsec)
			return 0;
	}
	return r;
}
