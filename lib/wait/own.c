/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wait/own.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "runtime/runtime.h"

static struct wait_own common;
static pthread_key_t key;
static bool key_valid;
__thread struct wait_own *wait_own_now;

/* The thread ends. What it waits for in other keys' destructors makes another one. */
static void give_back(void *own)
{
	wait_own_now = NULL;
	TSAN_RELEASE(own); /* the memory is a new page when another thread gets it */
	libc_raw(SYS_munmap, (long)(uintptr_t)own, sizeof(struct wait_own), 0, 0, 0, 0);
}

/*
 * At the start, so that the key is one of the first 32: glibc has a thread's place for those at
 * hand, and calls calloc() for others, which a signal handler that waits may have interrupted. In a
 * process that loads the library late, with that many keys before, it stays so.
 */
__attribute__((constructor)) static void key_make(void)
{
	key_valid = pthread_key_create(&key, give_back) == 0;
}

struct wait_own *wait_own_make(void)
{
	int err = errno;
	long p = libc_raw(SYS_mmap, 0, sizeof(struct wait_own), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct wait_own *own = (struct wait_own *)(uintptr_t)p;

	errno = err;
	if ((void *)own == MAP_FAILED)
		return &common;
	TSAN_ACQUIRE(own);
	/* A handler of this thread may have been here since it looked. */
	if (wait_own_now) {
		libc_raw(SYS_munmap, p, sizeof(*own), 0, 0, 0, 0);
		return wait_own_now;
	}
	wait_own_now = own;
	if (key_valid)
		pthread_setspecific(key, own);
	return own;
}

bool wait_own_is(const struct wait_own *own)
{
	return own != &common;
}
