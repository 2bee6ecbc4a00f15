/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls that make, copy and close file descriptors. */
#include "preload/preload.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdarg.h>
#include <unistd.h>

#include "preload/trace.h"

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

/*
 * The kernel is going to close fd, by itself. Returns what left() wants. An object whose number
 * other threads use is held: so it gets one of our own, if fd is its last, and left() closes that
 * as close() does. A socket's port is kept by it, and a listener's clients are somebody's.
 */
static struct vfd *leaving(int fd)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v))
		return NULL;
	if (v->ops->leaving)
		v->ops->leaving(v);
	if (!v->ops->renumbered || !vfd_hold(v, fd))
		v = NULL;
	vfd_park(fd);
	return v;
}

/* The table has forgotten the number. */
static void left(struct vfd *v)
{
	if (unlikely(v != NULL))
		vfd_let_go();
}

/* fd is the library's, and nobody's in the eyes of the program. */
static bool is_hidden(int fd)
{
	return unlikely(own_fd_is(fd) && !from_library());
}

/*
 * No socket of ours. Perhaps no descriptor of the program's at all: a daemon closes all numbers.
 * It can be cancelled before, as close(2), but not while numbers are barred.
 */
static int close_plain(int fd)
{
	int cancel, ret;

	pthread_testcancel();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	own_fd_bar();
	ret = libc.close(fd);
	own_fd_unbar();
	pthread_setcancelstate(cancel, NULL);
	return ret;
}

static int do_close(int fd)
{
	if (unlikely(own_fd_is(fd)))
		return from_library() ? own_fd_close(fd) : fail(EBADF);
	if (!vfd_get(fd) && !from_library())
		return close_plain(fd);
	return KEEP_ERRNO(vfd_close(fd));
}

PRELOAD int close(int fd)
{
	/* Which it was cannot be told afterwards. */
	bool said = log_enabled(LOG_DEBUG) && !from_library() && trace_concerns(fd);
	int ret = do_close(fd);

	if (unlikely(said))
		trace_line(LOG_DEBUG, ret, "close(%d)", fd);
	return ret;
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
		struct vfd *v;

		if (!vfd_get((int)fd) || own_fd_is((int)fd))
			continue;
		v = leaving((int)fd);
		vfd_forget((int)fd);
		left(v);
	}
}

/* Closes the numbers from first to last but the library's, which stay as they are meanwhile. */
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

static int close_programs(unsigned first, unsigned last, int flags)
{
	int ret;

	/* What another thread opened for the library between look and close would go, too. */
	own_fd_bar();
	own_fd_limit_lock();
	ret = close_others(first, last, flags);
	own_fd_limit_unlock();
	own_fd_unbar();
	return ret;
}

PRELOAD int close_range(unsigned first, unsigned last, int flags)
{
	/* What the kernel will refuse, and what only sets close-on-exec, closes nothing. */
	if (first > last || flags & ~CLOSE_RANGE_UNSHARE)
		return libc.close_range(first, last, flags);
	KEEPING_ERRNO(forget_range(first, last));
	return close_programs(first, last, flags);
}

PRELOAD void closefrom(int low)
{
	unsigned first = low < 0 ? 0 : (unsigned)low;

	KEEPING_ERRNO(forget_range(first, ~0u));
	/* libc's has other means where this one fails, and those know nothing of ours. */
	if (close_programs(first, ~0u, 0))
		libc.closefrom(low);
}

/* The stream's fd, if it has one, is about to be closed inside libc, where close() is not seen. */
static void stream_ends(FILE *f)
{
	int fd = fileno(f);
	struct vfd *v = leaving(fd);

	vfd_forget(fd);
	left(v);
}

PRELOAD int fclose(FILE *f)
{
	KEEPING_ERRNO(stream_ends(f));
	return libc.fclose(f);
}

/* Its fd is closed, and it has another one, or the same again, which libc opens by itself. */
PRELOAD FILE *freopen(const char *path, const char *mode, FILE *f)
{
	FILE *opened;

	KEEPING_ERRNO(stream_ends(f));
	opened = libc.freopen(path, mode, f);
	if (opened)
		fd_fresh(fileno(opened));
	return opened;
}
PRELOAD_ALIAS(freopen64, freopen);

/* libc reads and writes these by itself, and so do the programs that it starts. */
#define STDIO_FDS 3

/* fd has been made a copy of something: as a standard descriptor it is the kernel's to serve. */
static void copied(int fd)
{
	struct vfd *v = fd < STDIO_FDS ? vfd_get(fd) : NULL;

	if (unlikely(v))
		vfd_give(v, STATS_WHY(STDIO));
}

/*
 * What call, the kernel's dup(), gives. One of the numbers is in the table: the entry is made in
 * the same step, while no other thread can close the old one and get the number anew. begin begins
 * dup_ by it.
 */
#define COPY_ENTERED(begin, call)                                                                  \
	({                                                                                         \
		struct vfd_dup dup_;                                                               \
		int new_ = -1;                                                                     \
                                                                                                   \
		if (begin) {                                                                       \
			new_ = (call);                                                             \
			own_fd_lost(new_);                                                         \
			vfd_dup_end(&dup_, new_);                                                  \
		}                                                                                  \
		new_;                                                                              \
	})

/* newfd, if it is not -1, is a copy of a socket. Returns newfd. */
static int dup_done(int newfd)
{
	if (newfd >= 0)
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

/* As F_DUPFD and F_DUPFD_CLOEXEC: from least on. */
static int dupfd_lowest(int fd, int cmd, long least)
{
	return vfd_get(fd) ? PROGRAM_FD_FROM(libc.fcntl64(fd, cmd, least), (int)least)
			   : libc.fcntl64(fd, cmd, least);
}

static int do_dup(int fd)
{
	const struct vfd *v = vfd_get(fd);

	if (is_closed(fd))
		return fail(EBADF);
	copying(fd);
	if (likely(!v) || from_library())
		return FD_NEW(libc.dup(fd));
	return dup_done(COPY_ENTERED(vfd_dup_begin(&dup_, fd), dup_lowest(fd)));
}

PRELOAD int dup(int fd)
{
	int ret = do_dup(fd);

	TRACE_FD(fd, ret, "dup(%d)", fd);
	return ret;
}

/* Before dup2(): what newfd names is closed by it. Returns what left() wants. */
static struct vfd *replacing(int oldfd, int newfd)
{
	struct vfd *v = NULL;

	copying(oldfd);
	if (oldfd != newfd)
		KEEPING_ERRNO(v = leaving(newfd));
	return v;
}

/*
 * newfd may be free, and the library's for a moment: the kernel would say EBUSY, or replace that
 * one and see the copy moved away instead.
 */
static int barred_dup2(int oldfd, int newfd)
{
	int ret;

	own_fd_bar();
	ret = libc.dup2(oldfd, newfd);
	own_fd_unbar();
	return ret;
}

static int barred_dup3(int oldfd, int newfd, int flags)
{
	int ret;

	own_fd_bar();
	ret = libc.dup3(oldfd, newfd, flags);
	own_fd_unbar();
	return ret;
}

/* newfd was not in the table; what has come there meanwhile goes. Returns ret, dup2()'s. */
static int dup_plain(int newfd, int ret)
{
	if (ret >= 0)
		KEEPING_ERRNO(vfd_forget(newfd));
	return ret;
}

/* dup2() or dup3(), call. */
#define COPIED_ONTO(oldfd, newfd, call)                                                            \
	({                                                                                         \
		bool ours_ = vfd_get(oldfd) || vfd_get(newfd);                                     \
		struct vfd *left_ = replacing(oldfd, newfd);                                       \
		int onto_ = unlikely(ours_)                                                        \
				    ? COPY_ENTERED(vfd_dup_onto(&dup_, oldfd, newfd), call)        \
				    : dup_plain(newfd, call);                                      \
                                                                                                   \
		KEEPING_ERRNO(left(left_));                                                        \
		dup_done(onto_);                                                                   \
	})

static int do_dup2(int oldfd, int newfd)
{
	if (is_closed(oldfd) || is_hidden(newfd))
		return fail(EBADF);
	return COPIED_ONTO(oldfd, newfd, barred_dup2(oldfd, newfd));
}

PRELOAD int dup2(int oldfd, int newfd)
{
	int ret = do_dup2(oldfd, newfd);

	TRACE_FD(oldfd, ret, "dup2(%d, %d)", oldfd, newfd);
	return ret;
}
PRELOAD_ALIAS(__dup2, dup2);

static int do_dup3(int oldfd, int newfd, int flags)
{
	if (from_library())
		return own_fd_dup3(oldfd, newfd, flags); /* in the place of one of ours */
	if (is_closed(oldfd) || is_hidden(newfd))
		return fail(EBADF);
	return COPIED_ONTO(oldfd, newfd, barred_dup3(oldfd, newfd, flags));
}

PRELOAD int dup3(int oldfd, int newfd, int flags)
{
	int ret = do_dup3(oldfd, newfd, flags);

	TRACE_FD(oldfd, ret, "dup3(%d, %d, 0x%x)", oldfd, newfd, (unsigned)flags);
	return ret;
}

static int do_dupfd(int fd, int cmd, long arg)
{
	const struct vfd *v = vfd_get(fd);

	copying(fd);
	if (likely(!v) || from_library())
		return FD_NEW(libc.fcntl64(fd, cmd, arg));
	return dup_done(COPY_ENTERED(vfd_dup_begin(&dup_, fd), dupfd_lowest(fd, cmd, arg)));
}

static int do_fcntl(int fd, int cmd, long arg)
{
	struct vfd *v = vfd_get(fd);

	if (is_hidden(fd))
		return fail(EBADF);
	if ((cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && !is_closed(fd))
		return do_dupfd(fd, cmd, arg);
	if (likely(!v) || !v->ops->fcntl)
		return libc.fcntl64(fd, cmd, arg);
	return KEEP_ERRNO(v->ops->fcntl(v, fd, cmd, arg));
}

PRELOAD int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;
	int ret;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	ret = do_fcntl(fd, cmd, arg);
	TRACE_FD(fd, ret, "fcntl(%d, %d, 0x%lx)", fd, cmd, (unsigned long)arg);
	return ret;
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
		fds[0] = own_fd_lowest(fds[0], 0);
		fds[1] = own_fd_lowest(fds[1], 0);
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

static int do_socketpair(int domain, int type, int proto, int sv[2])
{
	return PAIR_NEW(libc.socketpair(domain, type, proto, sv), sv);
}

PRELOAD int socketpair(int domain, int type, int proto, int sv[2])
{
	int ret = do_socketpair(domain, type, proto, sv);

	TRACE(ret, "socketpair(%s, %d)", TRACE_KIND(domain, type), proto);
	return ret;
}
