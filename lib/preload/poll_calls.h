/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by poll_calls.c and epoll_calls.c. */
#ifndef PRELOAD_POLL_CALLS_H
#define PRELOAD_POLL_CALLS_H

#include <time.h>

#include "fd/fd.h"

/* Nothing in this process is ours. */
static inline bool table_empty(void)
{
	return atomic_load_explicit(&vfd_count, memory_order_relaxed) == 0;
}

/* What is left of `wanted`, of a call that began at start (CLOCK_MONOTONIC). */
static inline struct timespec time_not_slept(const struct timespec *start,
					     const struct timespec *wanted)
{
	struct timespec now, left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left.tv_sec = wanted->tv_sec - (now.tv_sec - start->tv_sec);
	left.tv_nsec = wanted->tv_nsec - (now.tv_nsec - start->tv_nsec);
	if (left.tv_nsec < 0) {
		left.tv_sec--;
		left.tv_nsec += 1000000000;
	} else if (left.tv_nsec >= 1000000000) {
		left.tv_sec++;
		left.tv_nsec -= 1000000000;
	}
	if (left.tv_sec < 0)
		left.tv_sec = left.tv_nsec = 0;
	return left;
}

/* poll()'s milliseconds: below 0 is for ever, and then NULL. */
static inline const struct timespec *msec_timeout(int msec, struct timespec *ts)
{
	if (msec < 0)
		return NULL;
	*ts = (struct timespec){msec / 1000, (msec % 1000) * 1000000L};
	return ts;
}

#endif
