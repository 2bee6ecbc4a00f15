/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* poll and select in all their forms. With an empty fd table they are libc's. */
#include "preload/preload.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "iomux/iomux.h"
#include "preload/memory.h"
#include "preload/poll_calls.h"
#include "preload/start.h"
#include "preload/trace.h"

/* The kernel refuses what it cannot read, and so much before it reads any. */
static inline bool poll_readable(const struct pollfd *fds, nfds_t n)
{
	return n <= VFD_MAX && memory_touchable() && memory_ends(fds, n * sizeof(*fds));
}

static inline bool times_readable(const struct timespec *ts, const sigset_t *mask)
{
	return memory_optional(ts, sizeof(*ts)) && memory_optional(mask, _NSIG / 8);
}

/* One of them is a socket, or another object of ours. */
static bool poll_concerns(const struct pollfd *fds, nfds_t n)
{
	if (!poll_readable(fds, n))
		return false;
	for (nfds_t i = 0; i < n; i++)
		if (trace_concerns(fds[i].fd))
			return true;
	return false;
}

PACKETS_BODY int do_poll(struct pollfd *fds, nfds_t n, int msec)
{
	struct timespec ts;

	if (likely(table_empty()) || !poll_readable(fds, n) ||
	    (library_has_left() && !poll_concerns(fds, n)))
		return libc.poll(fds, n, msec);
	return CANCELLABLE(iomux_poll(fds, n, msec_timeout(msec, &ts), NULL));
}

PRELOAD_WAIT(poll, (struct pollfd * fds, nfds_t n, int msec), (fds, n, msec), poll_concerns(fds, n),
	     "poll(%lu descriptors, %d ms)", n, msec)
PRELOAD_ALIAS(__poll, poll);

PRELOAD int __poll_chk(struct pollfd *fds, nfds_t n, int msec, size_t room)
{
	if (room / sizeof(*fds) < n)
		return libc.__poll_chk(fds, n, msec, room); /* aborts */
	return poll(fds, n, msec);
}

PACKETS_BODY int do_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts,
			  const sigset_t *mask)
{
	if (likely(table_empty()) || !poll_readable(fds, n) || !times_readable(ts, mask))
		return libc.ppoll(fds, n, ts, mask);
	return CANCELLABLE(iomux_poll(fds, n, ts, mask));
}

PRELOAD_WAIT(ppoll,
	     (struct pollfd * fds, nfds_t n, const struct timespec *ts, const sigset_t *mask),
	     (fds, n, ts, mask), poll_concerns(fds, n), "ppoll(%lu descriptors, %s)", n,
	     TRACE_TIMESPEC(ts))

PRELOAD int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *ts,
			const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n)
		return libc.__ppoll_chk(fds, n, ts, mask, room); /* aborts */
	return ppoll(fds, n, ts, mask);
}

/* One more than the highest descriptor that the program has; -1: cannot be told. */
static int program_fds_end(void)
{
	int dir = OWN_FD((int)libc_raw(SYS_openat, AT_FDCWD, (long)(uintptr_t) "/proc/self/fd",
				       O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0));
	_Alignas(struct dirent64) char room[4096];
	int end = 0;
	long got = -1;

	while (dir >= 0 && (got = libc_raw(SYS_getdents64, dir, (long)(uintptr_t)room, sizeof(room),
					   0, 0, 0)) > 0) {
		for (long at = 0; at < got;) {
			const struct dirent64 *e = (const void *)(room + at);
			int fd = atoi(e->d_name);

			if (fd >= end && !own_fd_is(fd))
				end = fd + 1;
			at += e->d_reclen;
		}
	}
	if (dir >= 0)
		own_fd_close(dir);
	return got < 0 ? -1 : end;
}

static bool has_fd(int fd)
{
	return libc_raw(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) >= 0;
}

/* The same where there is no /proc, as far as it lies above FD_SETSIZE and below most. */
static int fds_end_asked(int most)
{
	/* As a rule what was found last still holds, and one look tells. */
	static _Atomic int last;
	int was = atomic_load_explicit(&last, memory_order_relaxed);

	if (was && was <= most && has_fd(was - 1) && (was == most || !has_fd(was)))
		return was;
	while (most > FD_SETSIZE && !has_fd(most - 1))
		most--;
	atomic_store_explicit(&last, most, memory_order_relaxed);
	return most;
}

/*
 * The kernel looks at no more bits than its table has entries, which are as many as the highest
 * descriptor needs. So programs may say getdtablesize() with an fd_set of FD_SETSIZE. Ours make the
 * table longer; as a rule they begin where the program's end.
 */
static int nfds_looked_at(int n)
{
	long most = FD_SETSIZE, end = -1;
	unsigned ours;

	if (likely(n <= most))
		return n;
	ours = own_fd_next(0);
	if (ours == OWN_FD_MAX)
		return n;
	if (!library_has_left())
		KEEPING_ERRNO(end = program_fds_end());
	if (end < 0)
		KEEPING_ERRNO(end = fds_end_asked(n < (int)ours ? n : (int)ours));
	while (most < end && most < n)
		most *= 2;
	return n < most ? n : (int)most;
}

static bool sets_readable(int n, const fd_set *rd, const fd_set *wr, const fd_set *ex)
{
	size_t bytes = n <= 0 ? 0 : ((size_t)n + NFDBITS - 1) / NFDBITS * sizeof(fd_mask);

	return memory_touchable() && memory_optional(rd, bytes) && memory_optional(wr, bytes) &&
	       memory_optional(ex, bytes);
}

static bool set_has(const fd_set *set, int fd)
{
	/* Not FD_ISSET(), which aborts at FD_SETSIZE: a program may have longer sets. */
	return set && ((const unsigned long *)set)[fd / NFDBITS] >> fd % NFDBITS & 1;
}

static bool select_concerns(int n, const fd_set *rd, const fd_set *wr, const fd_set *ex)
{
	if (!sets_readable(n, rd, wr, ex))
		return false;
	for (int fd = 0; fd < n && fd < (int)VFD_MAX; fd++)
		if ((set_has(rd, fd) || set_has(wr, fd) || set_has(ex, fd)) && trace_concerns(fd))
			return true;
	return false;
}

PACKETS_BODY int do_pselect(int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *ts,
			    const sigset_t *mask)
{
	n = nfds_looked_at(n);
	if (likely(table_empty()) || !sets_readable(n, rd, wr, ex) || !times_readable(ts, mask))
		return libc.pselect(n, rd, wr, ex, ts, mask);
	return CANCELLABLE(iomux_select(n, rd, wr, ex, ts, mask));
}

PRELOAD_WAIT(pselect,
	     (int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *ts,
	      const sigset_t *mask),
	     (n, rd, wr, ex, ts, mask), select_concerns(n, rd, wr, ex),
	     "pselect(descriptors below %d, %s)", n, TRACE_TIMESPEC(ts))

/* Linux's select() leaves in tv what was not slept. */
static void timeval_left(struct timeval *tv, const struct timespec *start,
			 const struct timespec *wanted)
{
	struct timespec left = time_not_slept(start, wanted);

	*tv = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
}

static int select_ours(int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *tv)
{
	struct timespec start, ts;
	int ret, err;

	if (!tv)
		return iomux_select(n, rd, wr, ex, NULL, NULL);
	if (tv->tv_sec < 0 || tv->tv_usec < 0)
		return fail(EINVAL);
	ts = (struct timespec){tv->tv_sec + tv->tv_usec / 1000000, (tv->tv_usec % 1000000) * 1000};
	clock_gettime(CLOCK_MONOTONIC, &start);
	ret = iomux_select(n, rd, wr, ex, &ts, NULL);
	err = errno;
	timeval_left(tv, &start, &ts);
	errno = err;
	return ret;
}

PACKETS_BODY int do_select(int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *tv)
{
	n = nfds_looked_at(n);
	if (likely(table_empty()) || !sets_readable(n, rd, wr, ex) ||
	    !memory_optional(tv, sizeof(*tv)))
		return libc.select(n, rd, wr, ex, tv);
	return CANCELLABLE(select_ours(n, rd, wr, ex, tv));
}

PRELOAD_WAIT(select, (int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *tv),
	     (n, rd, wr, ex, tv), select_concerns(n, rd, wr, ex),
	     "select(descriptors below %d, %s)", n, TRACE_TIMEVAL(tv))
PRELOAD_ALIAS(__select, select);
