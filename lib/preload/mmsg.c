/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* recvmmsg and sendmmsg; message by message for an object that has no such operation. */
#include "preload/preload.h"

#include <limits.h>
#include <sys/socket.h>
#include <time.h>

#include "preload/memory.h"
#include "preload/message.h"
#include "preload/poll_calls.h"
#include "preload/trace.h"

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

/* When so much time has gone by from now on; no later than can be said. */
static struct timespec end_of(const struct timespec *timeout)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += timeout->tv_nsec;
	if (end.tv_nsec >= 1000000000L) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000L;
	}
	if (__builtin_add_overflow(end.tv_sec, timeout->tv_sec, &end.tv_sec))
		end.tv_sec = LONG_MAX;
	return end;
}

/* An error that is known waits for the next call, which has nothing else to give. */
static bool error_waits(struct vfd *v)
{
	return v->ops->events && v->ops->events(v) & EPOLLERR;
}

/* recvmmsg(2), its known flaw included: the timeout is looked at only after each message. */
static int recv_many(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
		     struct timespec *timeout)
{
	struct timespec end = {0, 0};
	unsigned got = 0;

	if (timeout) {
		if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000L)
			return fail(EINVAL);
		end = end_of(timeout);
	}
	while (got < n) {
		ssize_t len = message_recv_checked(v, vfd_holds(v) ? vfd_held_fd(v, fd) : fd,
						   &msgs[got].msg_hdr, flags & ~MSG_WAITFORONE);

		if (len < 0)
			return got ? (int)got : -1;
		msgs[got++].msg_len = (unsigned)len;
		if (error_waits(v))
			break;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (timeout && !time_left(timeout, &end))
			break;
		if (msgs[got - 1].msg_hdr.msg_flags & MSG_OOB)
			break;
	}
	return (int)got;
}

/*
 * As recv_many(). One that waits for each message is one call: close() of another thread waits for
 * its end, between two messages, too.
 */
static int recv_many_held(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
			  struct timespec *timeout)
{
	int got;

	if (n == 1 || (flags & (MSG_DONTWAIT | MSG_WAITFORONE)))
		return recv_many(v, fd, msgs, n, flags, timeout);
	if (!vfd_hold(v, fd))
		return fail(EBADF);
	got = recv_many(v, fd, msgs, n, flags, timeout);
	vfd_let_go();
	return got;
}

static size_t bytes_of(const struct msghdr *msg)
{
	size_t n = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		n += msg->msg_iov[i].iov_len;
	return n;
}

/*
 * What comes after a message of which a part was sent would stand in its place: only the last one
 * may be short.
 */
static int send_many(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned sent;

	for (sent = 0; sent < n && sent < IOV_MAX; sent++) {
		ssize_t len = message_send_checked(v, fd, &msgs[sent].msg_hdr, flags);

		if (len < 0)
			return sent ? (int)sent : -1;
		msgs[sent].msg_len = (unsigned)len;
		if ((size_t)len < bytes_of(&msgs[sent].msg_hdr))
			return (int)sent + 1;
	}
	return (int)sent;
}

/* How many messages from the first on have only pointers that can be used. */
static unsigned usable(const struct mmsghdr *msgs, unsigned n,
		       int (*vector)(const struct msghdr *msg))
{
	unsigned i;

	for (i = 0; i < n && memory_ends(&msgs[i], sizeof(msgs[i])); i++) {
		const struct msghdr *m = &msgs[i].msg_hdr;
		int good = vector(m);

		if (good < 0 || (m->msg_iovlen <= IOV_MAX && (size_t)good < m->msg_iovlen))
			break;
		if (vector == memory_recv_vector &&
		    (!memory_optional(m->msg_name, m->msg_namelen ? 1 : 0) ||
		     !memory_optional(m->msg_control, m->msg_controllen)))
			break;
	}
	return i;
}

/* As recvmmsg() and sendmmsg(), whose first message has a bad pointer. */
static int first_bad(struct vfd *v, int fd, struct mmsghdr *msgs, int flags,
		     ssize_t (*one)(struct vfd *v, int fd, struct msghdr *msg, int flags))
{
	ssize_t n = memory_ends(msgs, sizeof(*msgs))
			    ? one(v, fd, &msgs->msg_hdr, flags & ~MSG_WAITFORONE)
			    : fail(EFAULT);

	if (n < 0)
		return -1;
	msgs->msg_len = (unsigned)n;
	return 1;
}

static ssize_t send_one(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	return message_send_checked(v, fd, msg, flags);
}

PACKETS_BODY int do_recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags,
			     struct timespec *timeout)
{
	struct vfd *v = vfd_get(fd);

	/* An empty vector receives nothing: the shadow socket says what the kernel says to that. */
	if (likely(!v) || !v->ops->recvmsg || n == 0)
		return libc.recvmmsg(fd, msgs, n, flags, timeout);
	if (unlikely(!memory_optional(timeout, sizeof(*timeout))))
		return fail(EFAULT);
	n = usable(msgs, n < IOV_MAX ? n : IOV_MAX, memory_recv_vector);
	if (unlikely(!n))
		return CANCELLABLE(first_bad(v, fd, msgs, flags, message_recv_checked));
	if (v->ops->recvmmsg)
		return CANCELLABLE(v->ops->recvmmsg(v, fd, msgs, n, flags, timeout));
	return CANCELLABLE(recv_many_held(v, fd, msgs, n, flags, timeout));
}

PRELOAD_PACKETS(int, recvmmsg,
		(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout),
		(fd, msgs, n, flags, timeout), "recvmmsg(%d, %u messages, flags 0x%x)", fd, n,
		(unsigned)flags)

PACKETS_BODY int do_sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg) {
		for (unsigned i = 0; !table_empty() && msgs && i < n && i < IOV_MAX; i++)
			message_give_rights(&msgs[i].msg_hdr);
		return message_is_dummy(flags) ? -1 : libc.sendmmsg(fd, msgs, n, flags);
	}
	if (n) {
		n = usable(msgs, n < IOV_MAX ? n : IOV_MAX, memory_send_vector);
		if (unlikely(!n))
			return CANCELLABLE(first_bad(v, fd, msgs, flags, send_one));
	}
	if (v->ops->sendmmsg)
		return CANCELLABLE(v->ops->sendmmsg(v, fd, msgs, n, flags));
	return CANCELLABLE(send_many(v, fd, msgs, n, flags));
}

PRELOAD_PACKETS(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags),
		(fd, msgs, n, flags), "sendmmsg(%d, %u messages, flags 0x%x)", fd, n,
		(unsigned)flags)
