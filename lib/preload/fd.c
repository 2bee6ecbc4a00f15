/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that make, copy and close file descriptors. */
#include "preload/preload.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <stdarg.h>
#include <unistd.h>

/* The argument after flags, which open() and its kin have with these flags only; 0 without. */
#define MODE_AFTER(flags)                                                                          \
	({                                                                                         \
		mode_t mode_ = 0;                                                                  \
                                                                                                   \
		if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                       \
			va_list ap_;                                                               \
                                                                                                   \
			va_start(ap_, flags);                                                      \
			mode_ = va_arg(ap_, mode_t);                                               \
			va_end(ap_);                                                               \
		}                                                                                  \
		mode_;                                                                             \
	})

void fd_stale(int fd)
{
	own_fd_lost(fd);
	KEEPING_ERRNO(vfd_forget(fd));
}

/* fd is going to be copied: the copy is the kernel's doing. */
static void copying(int fd)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(v && v->ops->touch))
		KEEPING_ERRNO(v->ops->touch(v));
}

/* The kernel is going to close fd, by itself. */
static void leaving(int fd)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(v && v->ops->leaving))
		v->ops->leaving(v);
	if (unlikely(v))
		vfd_park(fd);
}

/* fd is the library's, and nobody's in the eyes of the program. */
static bool is_hidden(int fd)
{
	return unlikely(own_fd_is(fd) && !from_library());
}

PRELOAD int close(int fd)
{
	if (unlikely(own_fd_is(fd)))
		return from_library() ? own_fd_close(fd) : fail(EBADF);
	return KEEP_ERRNO(vfd_close(fd));
}
PRELOAD_ALIAS(__close, close);

/* Forgets [first, last]. */
static void forget_range(unsigned first, unsigned last)
{
	int limit = vfd_limit();

	if (limit && last >= (unsigned)limit)
		last = (unsigned)limit - 1;
	if (!limit)
		return;
	for (unsigned fd = first; fd <= last; fd++) {
		if (!vfd_get((int)fd) || own_fd_is((int)fd))
			continue;
		leaving((int)fd);
		vfd_forget((int)fd);
	}
}

/* Closes the numbers from first to last that are not the library's. */
static int close_others(unsigned first, unsigned last, int flags)
{
	unsigned own = own_fd_next(first);
	int ret = 0;

	while (!ret && own < OWN_FD_MAX && own <= last) {
		if (own > first) {
			ret = libc.close_range(first, own - 1, flags);
			flags = 0; /* the table of descriptors is the thread's own by now */
		}
		first = own + 1;
		own = own_fd_next(first);
	}
	return ret || first > last ? ret : libc.close_range(first, last, flags);
}

PRELOAD int close_range(unsigned first, unsigned last, int flags)
{
	/* What the kernel will refuse, and what only sets close-on-exec, closes nothing. */
	if (first > last || flags & ~CLOSE_RANGE_UNSHARE)
		return libc.close_range(first, last, flags);
	KEEPING_ERRNO(forget_range(first, last));
	return close_others(first, last, flags);
}

PRELOAD void closefrom(int low)
{
	unsigned first = low < 0 ? 0 : (unsigned)low;

	KEEPING_ERRNO(forget_range(first, ~0u));
	/* libc's has other means where this one fails, and those know nothing of ours. */
	if (close_others(first, ~0u, 0))
		libc.closefrom(low);
}

/* The stream's fd, if it has one, is about to be closed inside libc, where close() is not seen. */
static void stream_ends(FILE *f)
{
	int fd = fileno(f);

	leaving(fd);
	vfd_forget(fd);
}

PRELOAD int fclose(FILE *f)
{
	KEEPING_ERRNO(stream_ends(f));
	return libc.fclose(f);
}

/* libc reads and writes these by itself, and so do the programs that it starts. */
#define STDIO_FDS 3

/* fd has been made a copy of something: as a standard descriptor it is the kernel's to serve. */
static void copied(int fd)
{
	struct vfd *v = fd < STDIO_FDS ? vfd_get(fd) : NULL;

	if (unlikely(v && v->ops->share))
		v->ops->share(v, STATS_WHY(STDIO));
}

/* newfd is the kernel's copy of oldfd. Returns newfd. */
static int dup_done(int oldfd, int newfd)
{
	if (newfd < 0)
		return newfd;
	fd_fresh(newfd);
	KEEPING_ERRNO(vfd_dup(oldfd, newfd));
	KEEPING_ERRNO(copied(newfd));
	return newfd;
}

/*
 * What the kernel has under such a number could be copied: one that is being closed, or the
 * library's. For the program there is none.
 */
static bool is_closed(int fd)
{
	return unlikely(vfd_is_closing(vfd_get(fd))) || is_hidden(fd);
}

/*
 * A socket's copy has the lowest number, as it. Of a file not: where the library had that one for a
 * moment the copy would be closed, and with it the process's record locks would go.
 */
static int dup_lowest(int fd)
{
	return vfd_get(fd) ? PROGRAM_FD(libc.dup(fd)) : libc.dup(fd);
}

PRELOAD int dup(int fd)
{
	if (is_closed(fd))
		return fail(EBADF);
	copying(fd);
	return from_library() ? OWN_FD(libc.dup(fd)) : dup_done(fd, dup_lowest(fd));
}

/* Before dup2(): what newfd names is closed by it. */
static void replacing(int oldfd, int newfd)
{
	copying(oldfd);
	if (oldfd != newfd)
		KEEPING_ERRNO(leaving(newfd));
}

/*
 * The kernel has put oldfd's file under newfd in one step, so that number was never free: the table
 * follows. Returns newfd, or ret when the kernel refused.
 */
static int dup_onto(int oldfd, int newfd, int ret)
{
	if (ret < 0)
		return ret;
	KEEPING_ERRNO(vfd_dup(oldfd, newfd));
	KEEPING_ERRNO(copied(newfd));
	return ret;
}

PRELOAD int dup2(int oldfd, int newfd)
{
	if (is_closed(oldfd) || is_hidden(newfd))
		return fail(EBADF);
	replacing(oldfd, newfd);
	return dup_onto(oldfd, newfd, libc.dup2(oldfd, newfd));
}
PRELOAD_ALIAS(__dup2, dup2);

/*
 * A library under us puts one of ours in another's place. Where ours stand, above the program's
 * limit, the kernel takes no number.
 */
static int dup3_own(int oldfd, int newfd, int flags)
{
	int ret = libc.dup3(oldfd, newfd, flags);

	if (ret < 0 && errno == EBADF && own_fd_room_begin()) {
		ret = libc.dup3(oldfd, newfd, flags);
		own_fd_room_end();
	}
	return ret;
}

PRELOAD int dup3(int oldfd, int newfd, int flags)
{
	if (from_library())
		return dup3_own(oldfd, newfd, flags);
	if (is_closed(oldfd) || is_hidden(newfd))
		return fail(EBADF);
	replacing(oldfd, newfd);
	return dup_onto(oldfd, newfd, libc.dup3(oldfd, newfd, flags));
}

PRELOAD int fcntl(int fd, int cmd, ...)
{
	struct vfd *v = vfd_get(fd);
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (is_hidden(fd))
		return fail(EBADF);
	if ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && !is_closed(fd)) {
		copying(fd);
		return from_library() ? OWN_FD(libc.fcntl64(fd, cmd, arg))
				      : dup_done(fd, libc.fcntl64(fd, cmd, arg));
	}
	if (likely(!v) || !v->ops->fcntl)
		return libc.fcntl64(fd, cmd, arg);
	return KEEP_ERRNO(v->ops->fcntl(v, fd, cmd, arg));
}
PRELOAD_ALIAS(fcntl64, fcntl);
PRELOAD_ALIAS(__fcntl, fcntl);

PRELOAD int open(const char *path, int flags, ...)
{
	return FD_NEW(libc.open(path, flags, MODE_AFTER(flags)));
}
PRELOAD_ALIAS(__open, open);

PRELOAD int open64(const char *path, int flags, ...)
{
	return FD_NEW(libc.open64(path, flags, MODE_AFTER(flags)));
}
PRELOAD_ALIAS(__open64, open64);

PRELOAD int openat(int dir, const char *path, int flags, ...)
{
	return FD_NEW(libc.openat(dir, path, flags, MODE_AFTER(flags)));
}

PRELOAD int openat64(int dir, const char *path, int flags, ...)
{
	return FD_NEW(libc.openat64(dir, path, flags, MODE_AFTER(flags)));
}

/* What fortified programs call instead: two arguments, libc aborts when a mode was needed. */
PRELOAD int __open_2(const char *path, int flags)
{
	return FD_NEW(libc.__open_2(path, flags));
}

PRELOAD int __open64_2(const char *path, int flags)
{
	return FD_NEW(libc.__open64_2(path, flags));
}

PRELOAD int __openat_2(int dir, const char *path, int flags)
{
	return FD_NEW(libc.__openat_2(dir, path, flags));
}

PRELOAD int __openat64_2(int dir, const char *path, int flags)
{
	return FD_NEW(libc.__openat64_2(dir, path, flags));
}

PRELOAD int creat(const char *path, mode_t mode)
{
	return FD_NEW(libc.creat(path, mode));
}

PRELOAD int creat64(const char *path, mode_t mode)
{
	return FD_NEW(libc.creat64(path, mode));
}

/* over: own_fd_over before they were made. They have the lowest numbers, as of PROGRAM_FD(). */
static int fresh_pair(int ret, int *fds, uint32_t over)
{
	if (ret)
		return ret;
	if (unlikely(atomic_load(&own_fd_begun) != over)) {
		fds[0] = own_fd_lowest(fds[0]);
		fds[1] = own_fd_lowest(fds[1]);
	}
	fd_fresh(fds[0]);
	fd_fresh(fds[1]);
	return 0;
}

/* FD_NEW() of a call that makes two, in fds. */
#define PAIR_NEW(call, fds)                                                                        \
	({                                                                                         \
		uint32_t over_ = atomic_load(&own_fd_over);                                        \
                                                                                                   \
		from_library() ? (OWN_FD_PAIR(call, fds) ? 0 : -1) : fresh_pair(call, fds, over_); \
	})

PRELOAD int pipe(int fds[2])
{
	return PAIR_NEW(libc.pipe(fds), fds);
}
PRELOAD_ALIAS(__pipe, pipe);

PRELOAD int pipe2(int fds[2], int flags)
{
	return PAIR_NEW(libc.pipe2(fds, flags), fds);
}

PRELOAD int socketpair(int domain, int type, int proto, int sv[2])
{
	return PAIR_NEW(libc.socketpair(domain, type, proto, sv), sv);
}
