/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of entry points: the functions of libc that the library stands in for. The program calls
 * them, and nothing else does; they look the descriptor up and call the object's operations, or
 * libc. This is the first include of every file here. The libc headers' own wrappers (fortify,
 * 64-bit renames) are switched off: these files define the functions that those wrap.
 *
 * Every call with data: io.c, mmsg.c, transfer.c (sendfile, splice), syscall.c; memory.c looks at
 * the pointers of the program. Every wait: poll_calls.c, epoll_calls.c. When descriptors come and
 * go: fd.c, socket.c, stdio.c, uring.c. Rare: start.c, sandbox.c and parts.c (the library
 * starts and stops), process.c, clone.c, privileges.c, signal.c, fatal.c (signals that end the
 * process), cancel.c, trace.c (calls in the log).
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

#include "runtime/runtime.h"
#include "stats/stats.h"
#include "fd/fd.h"

/* An entry point: visible, and named in libvma.map. */
#define PRELOAD __attribute__((visibility("default")))
/* A second name that libc exports for the entry point `name` of the same file. */
#define PRELOAD_ALIAS(alias, name)                                                                 \
	__asm__(".globl " #alias "\n\t.type " #alias ", @function\n\t.set " #alias ", " #name)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * The guard of the border: a call that succeeds leaves errno as it was, whatever the library has
 * tried meanwhile. Every entry point passes what is not libc's own call through it. The value is
 * the call's.
 */
#define KEEP_ERRNO(call)                                                                           \
	({                                                                                         \
		const int kept_ = *libc_errno();                                                   \
		__auto_type ret_ = (call);                                                         \
                                                                                                   \
		if (likely(ret_ >= 0))                                                             \
			*libc_errno() = kept_;                                                     \
		ret_;                                                                              \
	})
/* The same around what has no value: whether libc's call then succeeds is its own matter. */
#define KEEPING_ERRNO(statement)                                                                   \
	do {                                                                                       \
		const int kept_ = errno;                                                           \
                                                                                                   \
		statement;                                                                         \
		errno = kept_;                                                                     \
	} while (0)

/*
 * fd.c: the kernel gave out fd just now; an entry left at that number is of a socket that was
 * closed behind our back.
 */
void fd_stale(int fd);

static inline int fd_fresh(int fd)
{
	if (unlikely(fd >= 0 && (vfd_get(fd) || own_fd_is(fd))))
		fd_stale(fd);
	return fd;
}

/* cancel.c: this program cancels threads. */
extern bool preload_cancels __attribute__((visibility("hidden")));

static inline void cancellation_point(void)
{
	if (unlikely(__atomic_load_n(&preload_cancels, __ATOMIC_RELAXED)))
		pthread_testcancel();
}

/* KEEP_ERRNO() of a call that is a cancellation point, as pthreads(7) lists them. */
#define CANCELLABLE(call)                                                                          \
	({                                                                                         \
		cancellation_point();                                                              \
		KEEP_ERRNO(call);                                                                  \
	})

/* signal.c: above 0 while a handler of the program runs which has interrupted the library. */
extern __thread int handlers_inside
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* True: the caller is not the program but a library under us (libnl, libxdp, libbpf, ...). */
static inline bool from_library(void)
{
	return unlikely(libc_internal) && !handlers_inside;
}

/* What call, one of libc's, gives: the program's new fd, or one of our own. */
#define FD_NEW(call) (from_library() ? OWN_FD(call) : fd_fresh(call))
/* The same of what is no file (own_fd.h): a program may count on its number. */
#define SOCKET_NEW(call) (from_library() ? OWN_FD(call) : fd_fresh(PROGRAM_FD(call)))

static inline int fail(int err)
{
	errno = err;
	return -1;
}

#endif
