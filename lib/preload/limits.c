/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls that read or set RLIMIT_NOFILE of this process, which the library raises for a moment when
 * it makes a descriptor of its own (runtime/own_fd.h): they come before that or after it.
 */
#include "preload/preload.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

NO_SANITIZERS static int limit_call(pid_t pid, __rlimit_resource_t what, const struct rlimit *new,
				    struct rlimit *old)
{
	return (int)libc_raw(SYS_prlimit64, pid, (long)what, (long)(uintptr_t) new,
			     (long)(uintptr_t)old, 0, 0);
}

/* Of RLIMIT_NOFILE of this process. */
static int limit_call_alone(const struct rlimit *new, struct rlimit *old)
{
	int ret, err;

	own_fd_limit_lock();
	ret = limit_call(0, RLIMIT_NOFILE, new, old);
	err = errno;
	own_fd_limit_unlock();
	errno = err;
	return ret;
}

NO_SANITIZERS PRELOAD int prlimit(pid_t pid, __rlimit_resource_t what, const struct rlimit *new,
				  struct rlimit *old)
{
	if (what == RLIMIT_NOFILE && (!pid || pid == getpid()))
		return limit_call_alone(new, old);
	return limit_call(pid, what, new, old);
}
PRELOAD_ALIAS(prlimit64, prlimit);

NO_SANITIZERS PRELOAD int getrlimit(__rlimit_resource_t what, struct rlimit *limit)
{
	return prlimit(0, what, NULL, limit);
}
PRELOAD_ALIAS(getrlimit64, getrlimit);

NO_SANITIZERS PRELOAD int setrlimit(__rlimit_resource_t what, const struct rlimit *limit)
{
	return prlimit(0, what, limit, NULL);
}
PRELOAD_ALIAS(setrlimit64, setrlimit);
