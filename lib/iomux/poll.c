/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* poll() and ppoll() when at least one fd is ours. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "iomux/iomux.h"
#include "iomux/pollset.h"
#include "runtime/runtime.h"
#include "stack/stack.h"

/*
 * The kernel refuses more entries than RLIMIT_NOFILE. Up to this number the limit is looked up
 * once, and again when the program has set it.
 */
#define POLL_TRUSTED 256

/* So many entries are surely taken; changed with the limit held (own_fd_limit_lock()). */
static _Atomic unsigned trusted;

static unsigned count_ours(const struct pollfd *fds, nfds_t n)
{
	unsigned ours = 0;

	for (nfds_t i = 0; i < n; i++)
		ours += fds[i].fd >= 0 && vfd_get_ours(fds[i].fd) != NULL;
	return ours;
}

void iomux_limit_changed(void)
{
	atomic_store_explicit(&trusted, 0, memory_order_relaxed);
}

/* The limit as the program has it, not raised for a descriptor of ours. */
static __attribute__((noinline)) bool beyond_limit(nfds_t n)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	own_fd_limit_lock();
	if (!raw.getrlimit(RLIMIT_NOFILE, &limit))
		atomic_store_explicit(&trusted,
				      limit.rlim_cur < POLL_TRUSTED ? (unsigned)limit.rlim_cur
								    : POLL_TRUSTED,
				      memory_order_relaxed);
	own_fd_limit_unlock();
	return n > limit.rlim_cur;
}

static inline bool too_many(nfds_t n)
{
	struct rlimit limit;

	if (__builtin_expect(n <= atomic_load_explicit(&trusted, memory_order_relaxed), 1))
		return false;
	if (n <= POLL_TRUSTED)
		return beyond_limit(n);
	return n > UINT32_MAX || (raw.getrlimit(RLIMIT_NOFILE, &limit) == 0 && n > limit.rlim_cur);
}

/* handled: signals_handled when the call began. */
static int poll_ours(struct pollfd *fds, unsigned n, unsigned ours, const struct timespec *timeout,
		     const sigset_t *sigmask, uint32_t handled)
{
	struct pollset_room room;
	struct pollset s;
	int r = pollset_init(&s, &room, n, ours);

	mux_stats(&s.mux, STATS_POLL);
	s.mux.handled = handled;
	for (unsigned i = 0; !r && i < n; i++) {
		uint32_t events = (unsigned short)fds[i].events;

		/* Another thread made a socket since they were counted: count again. */
		if (!pollset_add(&s, fds[i].fd, events, events | POLLERR | POLLHUP | POLLNVAL))
			r = -EAGAIN;
	}
	if (!r)
		r = pollset_run(&s, timeout, sigmask);
	for (unsigned i = 0; r >= 0 && i < n; i++)
		fds[i].revents = (short)s.entries[i].got;
	pollset_free(&s);
	return r;
}

int iomux_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
	       const sigset_t *sigmask)
{
	uint32_t handled = signals_handled;
	int r;

	stack_round_end();
	if (!mux_timeout_valid(timeout) || too_many(n))
		return libc.ppoll(fds, n, timeout, sigmask);
	do {
		unsigned ours = count_ours(fds, n);

		if (!ours)
			return libc.ppoll(fds, n, timeout, sigmask);
		r = poll_ours(fds, (unsigned)n, ours, timeout, sigmask, handled);
	} while (r == -EAGAIN);
	if (r < 0) {
		errno = -r;
		return -1;
	}
	return r;
}
