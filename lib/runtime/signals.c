/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The words of signals.h. Written by preload/signal.c in the thread that the handler interrupts.
 */
#include "runtime/signals.h"

#include <errno.h>
#include <sys/syscall.h>

#include "runtime/libc.h"

__thread volatile uint32_t signals_handled;
__thread volatile uint32_t signals_interrupting;
__thread volatile int signals_bell;

void signals_bell_ring(void)
{
	static const uint64_t one = 1;
	int fd = signals_bell, err = errno;

	signals_bell = -fd;
	/* When the program has closed it the sleep ends by that. */
	libc_raw(SYS_write, fd, (long)(uintptr_t)&one, sizeof(one), 0, 0, 0);
	errno = err;
}
