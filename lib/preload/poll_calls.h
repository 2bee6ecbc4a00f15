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

/* poll()'s milliseconds: below 0 is for ever, and then NULL. */
static inline const struct timespec *msec_timeout(int msec, struct timespec *ts)
{
	if (msec < 0)
		return NULL;
	*ts = (struct timespec){msec / 1000, (msec % 1000) * 1000000L};
	return ts;
}

#endif
