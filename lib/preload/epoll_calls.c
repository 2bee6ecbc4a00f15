/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoll. A set of the application is an object of ours from its making, because sockets may join it
 * later.
 */
#include "preload/preload.h"

#include <signal.h>
#include <sys/epoll.h>

#include "iomux/iomux.h"
#include "preload/start.h"
#include "preload/memory.h"
#include "preload/poll_calls.h"
#include "preload/trace.h"

/*
 * Returns epfd; when user space cannot follow the set, only the kernel serves it, and it sees
 * nothing but shadow sockets.
 */
static int epoll_new(int epfd)
{
	if (epfd >= 0 && !libc_internal && !library_has_left()) {
		library_configure();
		KEEPING_ERRNO(iomux_epoll_created(epfd));
	}
	return epfd;
}

static int do_epoll_create(int size)
{
	return epoll_new(SOCKET_NEW(libc.epoll_create(size)));
}

PRELOAD int epoll_create(int size)
{
	int ret = do_epoll_create(size);

	TRACE(ret, "epoll_create(%d)", size);
	return ret;
}

static int do_epoll_create1(int flags)
{
	return epoll_new(SOCKET_NEW(libc.epoll_create1(flags)));
}

PRELOAD int epoll_create1(int flags)
{
	int ret = do_epoll_create1(flags);

	TRACE(ret, "epoll_create1(0x%x)", (unsigned)flags);
	return ret;
}

static const char *op_name(int op)
{
	return op == EPOLL_CTL_ADD   ? "EPOLL_CTL_ADD"
	       : op == EPOLL_CTL_MOD ? "EPOLL_CTL_MOD"
	       : op == EPOLL_CTL_DEL ? "EPOLL_CTL_DEL"
				     : "?";
}

/* Also where only the kernel is going to look. */
static bool event_fits(int op, const struct epoll_event *ev)
{
	return op == EPOLL_CTL_DEL || !memory_touchable() || memory_ends(ev, sizeof(*ev));
}

static int do_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(v && v->ops->touch))
		v->ops->touch(v);
	if (v)
		memory_touch_begin();
	if (likely(!vfd_get(epfd)) || !event_fits(op, ev))
		return libc.epoll_ctl(epfd, op, fd, ev);
	return KEEP_ERRNO(iomux_epoll_ctl(epfd, op, fd, ev));
}

PRELOAD int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	int ret = do_epoll_ctl(epfd, op, fd, ev);

	TRACE(ret, "epoll_ctl(%d, %s, %d, events 0x%x)", epfd, op_name(op), fd,
	      op != EPOLL_CTL_DEL && memory_touchable() && event_fits(op, ev) ? ev->events : 0);
	return ret;
}

/* EFAULT is said at once, also of a wait in which nothing would come. */
static inline bool events_fit(const struct epoll_event *evs, int max)
{
	return max <= 0 || !memory_touchable() || memory_byte(evs);
}

static inline bool mask_fits(const sigset_t *mask)
{
	return !memory_touchable() || memory_optional(mask, _NSIG / 8);
}

PACKETS_BODY int do_epoll_wait(int fd, struct epoll_event *evs, int max, int msec)
{
	struct timespec ts;

	if (likely(!vfd_get(fd)))
		return libc.epoll_wait(fd, evs, max, msec);
	if (unlikely(!events_fit(evs, max)))
		return fail(EFAULT);
	return CANCELLABLE(iomux_epoll_wait(fd, evs, max, msec_timeout(msec, &ts), NULL));
}

PRELOAD_PACKETS(int, epoll_wait, (int fd, struct epoll_event *evs, int max, int msec),
		(fd, evs, max, msec), "epoll_wait(%d, at most %d, %d ms)", fd, max, msec)

PACKETS_BODY int do_epoll_pwait(int fd, struct epoll_event *evs, int max, int msec,
				const sigset_t *mask)
{
	struct timespec ts;

	if (likely(!vfd_get(fd)))
		return libc.epoll_pwait(fd, evs, max, msec, mask);
	if (unlikely(!events_fit(evs, max) || !mask_fits(mask)))
		return fail(EFAULT);
	return CANCELLABLE(iomux_epoll_wait(fd, evs, max, msec_timeout(msec, &ts), mask));
}

PRELOAD_PACKETS(int, epoll_pwait,
		(int fd, struct epoll_event *evs, int max, int msec, const sigset_t *mask),
		(fd, evs, max, msec, mask), "epoll_pwait(%d, at most %d, %d ms)", fd, max, msec)

PACKETS_BODY int do_epoll_pwait2(int fd, struct epoll_event *evs, int max,
				 const struct timespec *ts, const sigset_t *mask)
{
	if (likely(!vfd_get(fd)))
		return libc.epoll_pwait2(fd, evs, max, ts, mask);
	if (ts)
		memory_touch_begin();
	if (unlikely(!events_fit(evs, max) || !mask_fits(mask) ||
		     !memory_optional(ts, sizeof(*ts))))
		return fail(EFAULT);
	return CANCELLABLE(iomux_epoll_wait(fd, evs, max, ts, mask));
}

PRELOAD_PACKETS(int, epoll_pwait2,
		(int fd, struct epoll_event *evs, int max, const struct timespec *ts,
		 const sigset_t *mask),
		(fd, evs, max, ts, mask), "epoll_pwait2(%d, at most %d, %s)", fd, max,
		TRACE_TIMESPEC(ts))
