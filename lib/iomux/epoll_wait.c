/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* epoll_wait and its kin. */
#include <errno.h>
#include <limits.h>

#include "iomux/epoll.h"
#include "iomux/iomux.h"
#include "iomux/mux.h"
#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/wait.h"

/* The kernel is looked at after so many calls at least, even when the parameters say never. */
#define KERNEL_LOOK_MAX 1024

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
		/* Before the worker has told the socket: what is reported here the next call must find. */
		if (it->v)
			atomic_fetch_or_explicit(&it->v->os_events, evs[i].events & (EPOLLIN | EPOLLPRI | EPOLLERR),
						 memory_order_release);
		if (it->v && atomic_load_explicit(&it->v->shadow, memory_order_relaxed) == VFD_SHADOW_NONE)
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

/* Reports one item. Level-triggered ones stay in the ready list while user space says so. mtx held. */
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

/* Fills evs from `at` with offloaded events. Returns how many, or -EBADF when the set was closed. */
static int scan(struct epwait *w, int at)
{
	struct epset *s = w->s;
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
	for (unsigned todo = atomic_load(&s->num_ready); todo && n < w->max; todo--) {
		struct epitem *it = epset_pop(s);

		if (!it)
			break;
		n += item_report(s, it, &w->evs[n]);
	}
	epset_unlock(s);
	epset_wake(s); /* what is left is for the next thread */
	if (n > at)
		stats_add(&w->mux.stats->ready_offloaded, (uint64_t)(n - at));
	return n - at;
}

/* The kernel's events, then the offloaded ones, which find half of the room at least if they need it. */
static int look_both(struct epwait *w)
{
	struct epset *s = w->s;
	unsigned ready = atomic_load(&s->num_ready), half = (unsigned)w->max / 2;
	int room = w->max - (int)(ready < half ? ready : half), r, user;

	atomic_store_explicit(&s->hits_since_kernel, 0, memory_order_relaxed);
	atomic_store_explicit(&s->zeros_since_kernel, 0, memory_order_relaxed);
	r = libc.epoll_wait(w->epfd, w->evs, room, 0);
	if (r < 0)
		return -errno;
	r = epset_fold(s, w->evs, r);
	if (r)
		stats_add(&w->mux.stats->ready_os, (uint64_t)r);
	user = scan(w, r);
	return user < 0 && !r ? user : r + (user > 0 ? user : 0);
}

/* Counts one more call that left the kernel out. True while the limit (0: a large one) is not reached. */
static bool may_skip(_Atomic int *calls, int limit)
{
	int n = atomic_load_explicit(calls, memory_order_relaxed);

	atomic_store_explicit(calls, n + 1, memory_order_relaxed);
	return n < (limit ? limit : KERNEL_LOOK_MAX);
}

static int epwait_look(struct mux *m, enum mux_look how)
{
	struct epwait *w = (struct epwait *)m;
	struct epset *s = w->s;

	/* Nothing in the set is the kernel's business: it is not asked. */
	if (how == LOOK_USER || (!atomic_load_explicit(&s->kernel_fds, memory_order_relaxed) &&
				 !atomic_load_explicit(&s->num_in_kernel, memory_order_relaxed)))
		return scan(w, 0);
	if (how == LOOK_FIRST && atomic_load(&s->num_ready) &&
	    may_skip(&s->hits_since_kernel, params.select_skip_os)) {
		int n = scan(w, 0);

		if (n)
			return n;
	}
	/* A program that polls with zero timeouts pays for the shadow sockets only now and then. */
	if (how == LOOK_FIRST && m->zero &&
	    !atomic_load_explicit(&s->kernel_fds, memory_order_relaxed) &&
	    !atomic_load_explicit(&s->shadow_hot, memory_order_relaxed) &&
	    !atomic_load(&s->num_ready) &&
	    may_skip(&s->zeros_since_kernel, params.select_poll_os_ratio))
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

static const struct mux_ops epwait_ops = {
	.look = epwait_look,
	.watch = epwait_watch,
	.unwatch = epwait_unwatch,
	.woken = epwait_woken,
};

static int wait_ours(struct epset *s, int epfd, struct epoll_event *evs, int max,
		     const struct timespec *timeout, const sigset_t *sigmask)
{
	struct epwait w = {
		.mux = {.ops = &epwait_ops, .npfds = 1, .stats = atomic_load(&s->stats), .polling = &s->polling},
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

static void plain_leave(struct epset *s, int epfd)
{
	if (atomic_fetch_sub(&s->num_plain, 1) == 1)
		epset_unkick(s, epfd);
}

/*
 * The set is the kernel's alone: libc waits. Returns false when an offloaded fd came into it meanwhile and the wait
 * has to go on with it.
 */
static bool wait_plain(struct epset *s, int epfd, struct epoll_event *evs, int max,
		       const struct timespec *timeout, const sigset_t *sigmask, int *result)
{
	bool again = false;
	int r = 0, err;

	atomic_fetch_add(&s->num_plain, 1);
	if (atomic_load(&s->num_items)) {
		plain_leave(s, epfd);
		return false;
	}
	r = kernel_wait(epfd, evs, max, timeout, sigmask);
	err = errno;
	if (r > 0 && (atomic_load(&s->num_items) || atomic_load(&s->kick_fd) >= 0)) {
		r = epset_fold(s, evs, r);
		again = r == 0;
	}
	plain_leave(s, epfd);
	errno = err;
	*result = r;
	return !again;
}

int iomux_epoll_wait(int epfd, struct epoll_event *evs, int max, const struct timespec *timeout,
		     const sigset_t *sigmask)
{
	struct epset *s = epset_of(epfd);
	struct timespec left;
	uint64_t deadline = 0, now;
	int r;

	if (vfd_is_closing(vfd_get(epfd))) {
		errno = EBADF;
		return -1;
	}
	if (!s || max <= 0 || !mux_timeout_valid(timeout))
		return kernel_wait(epfd, evs, max, timeout, sigmask);
	epset_use(s);
	if (lock_mine(&s->mtx)) {
		errno = EINTR; /* a signal handler inside this thread's own epoll call */
		return -1;
	}
	if (atomic_load(&s->num_items))
		return wait_ours(s, epfd, evs, max, timeout, sigmask);
	if (timeout && !timeout->tv_sec && !timeout->tv_nsec)
		return kernel_wait(epfd, evs, max, timeout, sigmask);
	if (timeout)
		deadline = mux_deadline(timeout, wait_now_ns());
	if (wait_plain(s, epfd, evs, max, timeout, sigmask, &r))
		return r;
	if (deadline) {
		now = wait_now_ns();
		deadline = deadline > now ? deadline - now : 0;
		left = (struct timespec){(time_t)(deadline / 1000000000),
					 (long)(deadline % 1000000000)};
		timeout = &left;
	}
	return atomic_load(&s->num_items) ? wait_ours(s, epfd, evs, max, timeout, sigmask)
					  : kernel_wait(epfd, evs, max, timeout, sigmask);
}
