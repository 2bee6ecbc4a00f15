/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * First include of every file here. The libc headers' own wrappers (fortify, 64-bit renames) are switched off: these
 * files define the functions that those wrap.
 */
#ifndef PRELOAD_PRELOAD_H
#define PRELOAD_PRELOAD_H

#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>

#include "runtime/libc.h"
#include "socket/vfd.h"

/* An entry point: visible, and named in libvma.map. */
#define PRELOAD __attribute__((visibility("default")))
/* A second name that libc exports for the entry point `name` of the same file. */
#define PRELOAD_ALIAS(alias, name)                                                                 \
	__asm__(".globl " #alias "\n\t.type " #alias ", @function\n\t.set " #alias ", " #name)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* fd.c: the kernel gave out fd just now; an entry left at that number is of a socket that was closed behind our back. */
void fd_stale(int fd);

static inline int fd_fresh(int fd)
{
	if (unlikely(fd >= 0 && vfd_get(fd)))
		fd_stale(fd);
	return fd;
}

static inline int fail(int err)
{
	errno = err;
	return -1;
}

#endif
