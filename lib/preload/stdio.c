/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stdio and aio(7) read and write inside libc, where nothing of ours is called: a connection that a
 * stream is made of, or that a request names, goes to the kernel. fclose() and freopen() are in
 * fd.c.
 */
#include "preload/preload.h"

#include <aio.h>
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

PRELOAD int aio_read(struct aiocb *request)
{
	leave_to_libc(request->aio_fildes);
	return libc.aio_read(request);
}
PRELOAD_ALIAS(aio_read64, aio_read);

PRELOAD int aio_write(struct aiocb *request)
{
	leave_to_libc(request->aio_fildes);
	return libc.aio_write(request);
}
PRELOAD_ALIAS(aio_write64, aio_write);

PRELOAD int lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *when_done)
{
	for (int i = 0; i < n; i++) {
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
			leave_to_libc(list[i]->aio_fildes);
	}
	return libc.lio_listio(mode, list, n, when_done);
}
PRELOAD_ALIAS(lio_listio64, lio_listio);
