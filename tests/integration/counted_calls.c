/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the library calls of libc, by count: a library that is preloaded behind it. A program's own
 * copies are not counted as long as they are of another size.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/socket.h>

unsigned long counted_recvmsg; /* calls */
unsigned long counted_copies; /* of counted_bytes */
size_t counted_bytes;

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) =
		(ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");

	counted_recvmsg++;
	return next(fd, msg, flags);
}

/* Byte by byte, and volatile, lest the compiler make a call of memcpy() of it. */
static void *copy(void *to, const void *from, size_t n, int backwards)
{
	volatile unsigned char *t = to;
	const unsigned char *f = from;

	counted_copies += n == counted_bytes;
	for (size_t i = 0; i < n; i++)
		t[backwards ? n - 1 - i : i] = f[backwards ? n - 1 - i : i];
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	return copy(to, from, n, 0);
}

void *memmove(void *to, const void *from, size_t n)
{
	return copy(to, from, n, to > from);
}
