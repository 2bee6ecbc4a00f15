/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stdio reads and writes inside libc, where nothing of ours is called: a connection that a stream
 * is made of goes to the kernel. fclose() is in fd.c.
 */
#include "preload/preload.h"

#include <stdarg.h>
#include <stdio.h>

static void leave_to_libc(int fd)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(v))
		KEEPING_ERRNO(vfd_give(v, STATS_WHY(STDIO)));
}

PRELOAD FILE *fdopen(int fd, const char *mode)
{
	leave_to_libc(fd);
	return libc.fdopen(fd, mode);
}

PRELOAD int vdprintf(int fd, const char *fmt, va_list ap)
{
	leave_to_libc(fd);
	return libc.vdprintf(fd, fmt, ap);
}

PRELOAD int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = vdprintf(fd, fmt, ap);
	va_end(ap);
	return ret;
}

PRELOAD int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	leave_to_libc(fd);
	return libc.__vdprintf_chk(fd, flag, fmt, ap);
}

PRELOAD int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int ret;

	va_start(ap, fmt);
	ret = __vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return ret;
}
