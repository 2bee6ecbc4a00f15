/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* recvmmsg and sendmmsg; message by message for an object that has no such operation. */
#include "preload/preload.h"

#include <limits.h>
#include <sys/socket.h>
#include <time.h>

#include "preload/message.h"
#include "preload/wait.h"

/* Takes what was slept since start from *left. False when nothing remains; *left is zero then. */
static bool time_left(struct timespec *left, const struct timespec *end)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left->tv_sec = end->tv_sec - now.tv_sec;
	left->tv_nsec = end->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_sec--;
		left->tv_nsec += 1000000000L;
	}
	if (left->tv_sec < 0)
		*left = (struct timespec){0, 0};
	return left->tv_sec || left->tv_nsec;
}

/*
 * recvmmsg(2), its known flaw included: the timeout is looked at only after each message. An error that comes after
 * the first message is not lost: the object reports it at the next call.
 */
static int recv_many(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
		     struct timespec *timeout)
{
	struct timespec end = {0, 0};
	unsigned got = 0;

	if (timeout) {
		if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000L)
			return fail(EINVAL);
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_sec += timeout->tv_sec;
		end.tv_nsec += timeout->tv_nsec;
		if (end.tv_nsec >= 1000000000L) {
			end.tv_sec++;
			end.tv_nsec -= 1000000000L;
		}
	}
	while (got < n) {
		ssize_t len = v->ops->recvmsg(v, fd, &msgs[got].msg_hdr, flags & ~MSG_WAITFORONE);

		if (len < 0)
			return got ? (int)got : -1;
		msgs[got++].msg_len = (unsigned)len;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (timeout && !time_left(timeout, &end))
			break;
		if (msgs[got - 1].msg_hdr.msg_flags & MSG_OOB)
			break;
	}
	return (int)got;
}

static int send_many(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned sent;

	for (sent = 0; sent < n && sent < IOV_MAX; sent++) {
		ssize_t len = v->ops->sendmsg(v, fd, &msgs[sent].msg_hdr, flags);

		if (len < 0)
			return sent ? (int)sent : -1;
		msgs[sent].msg_len = (unsigned)len;
	}
	return (int)sent;
}

PRELOAD int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	struct vfd *v = vfd_get(fd);

	/* An empty vector receives nothing: the shadow socket says what the kernel says to that. */
	if (likely(!v) || !v->ops->recvmsg || n == 0)
		return libc.recvmmsg(fd, msgs, n, flags, timeout);
	if (v->ops->recvmmsg)
		return v->ops->recvmmsg(v, fd, msgs, n, flags, timeout);
	return recv_many(v, fd, msgs, n, flags, timeout);
}

PRELOAD int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg) {
		for (unsigned i = 0; !table_empty() && msgs && i < n && i < IOV_MAX; i++)
			message_give_rights(&msgs[i].msg_hdr);
		return message_is_dummy(flags) ? -1 : libc.sendmmsg(fd, msgs, n, flags);
	}
	if (v->ops->sendmmsg)
		return v->ops->sendmmsg(v, fd, msgs, n, flags);
	return send_many(v, fd, msgs, n, flags);
}
