/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by poll.c and epoll.c. */
#ifndef PRELOAD_WAIT_H
#define PRELOAD_WAIT_H

#include <time.h>

#include "socket/vfd.h"

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
