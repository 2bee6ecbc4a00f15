/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* epoll. A set of the application is an object of ours from its making, because sockets may join it later. */
#include "preload/preload.h"

#include <sys/epoll.h>

#include "iomux/iomux.h"
#include "preload/start.h"
#include "preload/wait.h"

/* Returns epfd; when user space cannot follow the set it is the kernel's alone, and sees only shadow sockets. */
static int epoll_new(int epfd)
{
	int err = errno;

	fd_fresh(epfd);
	if (epfd >= 0 && !libc_internal && library_start() == 0)
		iomux_epoll_created(epfd);
	errno = err;
	return epfd;
}

PRELOAD int epoll_create(int size)
{
	return epoll_new(libc.epoll_create(size));
}

PRELOAD int epoll_create1(int flags)
{
	return epoll_new(libc.epoll_create1(flags));
}

PRELOAD int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct vfd *v = vfd_get(fd);

	if (unlikely(v && v->ops->touch))
		v->ops->touch(v);
	if (likely(!vfd_get(epfd)))
		return libc.epoll_ctl(epfd, op, fd, ev);
	return iomux_epoll_ctl(epfd, op, fd, ev);
}

PRELOAD int epoll_wait(int epfd, struct epoll_event *evs, int max, int msec)
{
	struct timespec ts;

	if (likely(!vfd_get(epfd)))
		return libc.epoll_wait(epfd, evs, max, msec);
	return iomux_epoll_wait(epfd, evs, max, msec_timeout(msec, &ts), NULL);
}

PRELOAD int epoll_pwait(int epfd, struct epoll_event *evs, int max, int msec, const sigset_t *mask)
{
	struct timespec ts;

	if (likely(!vfd_get(epfd)))
		return libc.epoll_pwait(epfd, evs, max, msec, mask);
	return iomux_epoll_wait(epfd, evs, max, msec_timeout(msec, &ts), mask);
}

PRELOAD int epoll_pwait2(int epfd, struct epoll_event *evs, int max, const struct timespec *ts,
			 const sigset_t *mask)
{
	if (likely(!vfd_get(epfd)))
		return libc.epoll_pwait2(epfd, evs, max, ts, mask);
	return iomux_epoll_wait(epfd, evs, max, ts, mask);
}
