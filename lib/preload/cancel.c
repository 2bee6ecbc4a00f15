/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Cancellation points. What the library does below the border is none (runtime/libc.h), so a call
 * that need not wait would never end a thread that is cancelled: the entry points look by
 * themselves, once a program has cancelled a thread.
 */
#include "preload/preload.h"

#include <pthread.h>

bool preload_cancels;

PRELOAD int pthread_cancel(pthread_t thread)
{
	/* Before the request: the thread looks for it from now on. */
	__atomic_store_n(&preload_cancels, true, __ATOMIC_SEQ_CST);
	return libc.pthread_cancel(thread);
}
