/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VMA_EXCEPTION_HANDLING: an option that only the kernel can do. */
#include "config/exception.h"

#include <errno.h>
#include <stdlib.h>

#include "config/params.h"
#include "runtime/runtime.h"

static void restore(int fd, int level, int opt, int64_t was)
{
	int value = (int)was;

	if (was != OPTION_UNKNOWN)
		(void)libc.setsockopt(fd, level, opt, &value, sizeof(value));
}

bool exception_refuses(int fd, int level, int opt, int64_t was)
{
	if (params.exception_handling < EXCEPTION_SAID)
		return false;
	log_error("fd %d: option %d of level %d is not done here (VMA_EXCEPTION_HANDLING=%d)", fd,
		  opt, level, params.exception_handling);
	if (params.exception_handling == EXCEPTION_SAID)
		return false;
	if (params.exception_handling == EXCEPTION_ABORTS)
		abort();
	restore(fd, level, opt, was);
	errno = EINVAL;
	return true;
}

int64_t exception_value(int fd, int level, int opt)
{
	int value = 0, err = errno;
	socklen_t len = sizeof(value);
	int64_t is = OPTION_UNKNOWN;

	/* One has SO_GET_FILTER's number, which counts in instructions; one is not told whole. */
	if (level == SOL_SOCKET && (opt == SO_ATTACH_FILTER || opt == SO_MAX_PACING_RATE))
		return is;
	if (!libc.getsockopt(fd, level, opt, &value, &len) && len == sizeof(value))
		is = value;
	errno = err;
	return is;
}
