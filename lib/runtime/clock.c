/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/clock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/libc.h"

uint64_t clock_monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
	int err = errno;

	libc_raw(SYS_nanosleep, (long)(uintptr_t)&ts, 0, 0, 0, 0, 0);
	errno = err;
}
