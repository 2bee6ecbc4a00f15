/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program's pointers. Where the kernel says EFAULT we may not die, least of all with a lock
 * held: so the entry points touch what they are given before anything of the library begins. A
 * touch that faults goes on at another place (signal.c, memory_recover()); one that does not costs
 * a load.
 *
 * What a touch cannot see stands in docs/limits.md: it looks at the ends, not at what lies between,
 * and only for reading.
 */
#ifndef PRELOAD_MEMORY_H
#define PRELOAD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "fd/fd.h"
#include "preload/fatal.h"

/* With the sanitizers SIGSEGV is theirs. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__x86_64__)
#define MEMORY_TOUCH "testb $0, (%0)"
#elif defined(__aarch64__)
#define MEMORY_TOUCH "ldrb wzr, [%0]"
#endif
#endif

/* The kernel's limit for addresses. */
#define MEMORY_ADDR_MAX sizeof(struct sockaddr_storage)

/* What follows may be asked. No: libc's calls look at pointers, and nobody else. */
static inline bool memory_touchable(void)
{
	return atomic_load_explicit(&fatal_begun, memory_order_relaxed);
}

/* From here on they may, though the process may have no socket. Keeps errno. */
static inline void memory_touch_begin(void)
{
	if (__builtin_expect(!memory_touchable(), 0))
		fatal_touches_begin();
}

/* False: the byte at p cannot be read. */
static inline bool memory_byte(const void *p)
{
#ifdef MEMORY_TOUCH
	__asm__ goto("1: " MEMORY_TOUCH "\n\t"
		     ".pushsection vma_touches, \"a\"\n\t"
		     ".balign 4\n\t"
		     ".long 1b - ., %l[bad] - .\n\t"
		     ".popsection"
		     :
		     : "r"(p)
		     : "cc", "memory"
		     : bad);
	return true;
bad:
	return false;
#else
	(void)p;
	return true;
#endif
}

/* The ends of what stands at p can be read; nothing is asked of an empty range. */
static inline bool memory_ends(const void *p, size_t len)
{
	return !len ||
	       (memory_byte(p) && len <= PTRDIFF_MAX && memory_byte((const char *)p + len - 1));
}

/* The same of data: the kernel refuses its own addresses also where nothing is to be read. */
static inline bool memory_data(const void *p, size_t len)
{
	return __builtin_expect(len != 0, 1) ? memory_ends(p, len) : (intptr_t)p >= 0;
}

/* Of what may be NULL. */
static inline bool memory_optional(const void *p, size_t len)
{
	return !p || memory_ends(p, len);
}

/* An address that the program gives can be read, and is no longer than the kernel takes. */
static inline bool memory_addr(const struct sockaddr *addr, socklen_t len)
{
	return len <= MEMORY_ADDR_MAX && memory_ends(addr, len);
}

/* Where an address or an option and its length are to be written. */
static inline bool memory_out(const void *val, const socklen_t *len)
{
	return memory_ends(len, sizeof(*len)) &&
	       (*len == 0 || *len > INT32_MAX || memory_byte(val));
}

/*
 * What a call does when one of the above says no, or a vector holds more than there can be. As
 * send(2) and recv(2) of v: never with success, except for the end of a stream, and for what a
 * stream throws away (memory_untouched()).
 */
ssize_t memory_bad_send(struct vfd *v, int fd, const void *buf, size_t len, int flags,
			const struct sockaddr *addr, socklen_t alen);
ssize_t memory_bad_recv(struct vfd *v, int fd, void *buf, size_t len, int flags);
/* recv() of v with these flags does not look at its buffer (tcp(7), MSG_TRUNC). */
static inline bool memory_untouched(const struct vfd *v, int flags)
{
	return flags & MSG_TRUNC && v->kind == VFD_TCP;
}

/*
 * How many buffers of msg can be used from its first on; -1: the structure itself is bad, and the
 * kernel says so of any socket.
 */
int memory_send_vector(const struct msghdr *msg);
int memory_recv_vector(const struct msghdr *msg);

/* A touch has raised the signal whose context this is: it goes on where it says no. */
bool memory_recover(void *context);

#endif
