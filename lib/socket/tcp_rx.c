/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading from a connection. */
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

#define RX_EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)
/* Flags that the engine takes. */
#define ENGINE_FLAGS (MSG_PEEK | MSG_TRUNC | MSG_OOB)

/* The connection has gone to the kernel meanwhile, and nothing was read before: the call is libc's. */
#define GONE_HOME (-2)

static ssize_t fail(struct tsock *s, int err)
{
	stats_add(err == EAGAIN ? &s->stats->rx.eagain : &s->stats->rx.errors, 1);
	errno = err;
	return -1;
}

/* One look at the connection; polls its stack when nothing is there. As tcp_recv(). */
static ssize_t take(struct tsock *s, const struct iovec *iov, int iovcnt, int flags)
{
	struct stack *st = tsock_conn_lock(s);
	uint64_t now;
	ssize_t n;

	if (!st)
		return tsock_mode(s) != TSOCK_CONN ? -ENOTCONN : flags & MSG_OOB ? -EINVAL : -tsock_left_error(s);
	tsock_hint_clear(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI);
	now = tsock_now();
	if (stack_drain_due(st))
		stack_poll_called(st);
	n = s->c ? tcp_recv(s->c, iov, iovcnt, flags & ENGINE_FLAGS, now) : -ENOTCONN;
	if (n == -EAGAIN && stack_pending(st)) {
		stack_poll_called(st);
		n = s->c ? tcp_recv(s->c, iov, iovcnt, flags & ENGINE_FLAGS, now) : -ENOTCONN;
	}
	/* What is left is for another reader, and so is the end. */
	if (n >= 0 && s->c && (!n || tcp_inq(s->c)))
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed);
	tsock_unlock_stack(st, now);
	return n;
}

/*
 * A look that goes on where others have ended, iov for what lies behind the `seen` bytes that the queue still has (of a peeking
 * call). 0: the end, an error or the urgent mark comes next; the call is over, and the next one is told.
 */
static ssize_t take_more(struct tsock *s, const struct iovec *iov, int iovcnt, int flags, size_t seen)
{
	struct stack *st = tsock_conn_lock(s);
	uint64_t now;
	ssize_t n;

	if (!st)
		return 0;
	tsock_hint_clear(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI);
	now = tsock_now();
	if (stack_pending(st))
		stack_poll_called(st);
	if (!s->c || tcp_at_mark(s->c))
		n = 0;
	else if (tcp_inq(s->c) > seen)
		n = tcp_recv(s->c, iov, iovcnt, flags & ENGINE_FLAGS, now);
	else
		n = tcp_ready(s->c) & (TCP_EV_RDHUP | TCP_EV_HUP | TCP_EV_ERR) ? 0 : -EAGAIN;
	if (n >= 0 && s->c && (!n || tcp_inq(s->c)))
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed);
	tsock_unlock_stack(st, now);
	return n;
}

/* How many bytes the call waits for: one, SO_RCVLOWAT, or all (MSG_WAITALL). */
static size_t low_water(const struct tsock *s, size_t len, int flags)
{
	size_t low = flags & MSG_WAITALL ? len : s->rcvlowat;

	return low > len ? len : low ? low : 1;
}

/*
 * The rest of a call whose first look brought `got` bytes, less than it waits for. A peeking one starts over each time,
 * as more arrives behind what was seen.
 */
static ssize_t recv_slow(struct tsock *s, int fd, const struct iovec *iov, int cnt, size_t low, size_t got, int flags)
{
	bool peek = flags & MSG_PEEK;
	struct iovec part[TSOCK_IOVS];
	struct tsock_wait w;
	ssize_t n;
	int err;

	tsock_wait_init(s, &w, RX_EVENTS, s->rcvtimeo_ns);
	for (;;) {
		if (!got)
			n = take(s, iov, cnt, flags);
		else if (peek)
			n = take_more(s, iov, cnt, flags, got);
		else
			n = take_more(s, part, tsock_iov_part(iov, cnt, got, part), flags, 0);
		if (n == -EAGAIN) {
			w.behind = peek ? (uint32_t)got : 0;
			err = tsock_wait_more(s, fd, &w);
			if (err)
				return got ? (ssize_t)got : err;
			continue;
		}
		if (n <= 0)
			return got ? (ssize_t)got : n;
		got = peek ? (size_t)n : got + (size_t)n;
		if (got >= low)
			return (ssize_t)got;
	}
}

static ssize_t receive(struct tsock *s, int fd, const struct iovec *iov, int cnt, size_t len, int flags)
{
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	size_t low;
	ssize_t n;

	if (__builtin_expect(__atomic_load_n(&s->stats->rx_tid, __ATOMIC_RELAXED) != lock_self(), 0))
		__atomic_store_n(&s->stats->rx_tid, lock_self(), __ATOMIC_RELAXED);
	n = take(s, iov, cnt, flags);
	low = low_water(s, len, flags);
	if (__builtin_expect((n == -EAGAIN || (n > 0 && (size_t)n < low)) && wait && !(flags & MSG_OOB), 0))
		n = recv_slow(s, fd, iov, cnt, low, n > 0 ? (size_t)n : 0, flags);
	if (n < 0 && tsock_mode(s) == TSOCK_CONN)
		return fail(s, (int)-n);
	if (n < 0)
		return GONE_HOME;
	if (!(flags & MSG_PEEK)) {
		stats_add(&s->stats->rx.packets, 1);
		stats_add(&s->stats->rx.bytes, (uint64_t)n);
	}
	return n;
}

/* No connection of ours: an earlier one's error, else 0: the call is libc's. */
static ssize_t unconnected(struct tsock *s, int flags)
{
	int err = flags & MSG_OOB ? 0 : tsock_left_error(s);

	return err ? fail(s, err) : 0;
}

ssize_t tsock_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	struct tsock *s = tsock_of(v);
	size_t len;
	ssize_t n;

	if (__builtin_expect(flags & MSG_ERRQUEUE, 0))
		return tsock_recv_err(s, fd, msg, flags);
	if (tsock_mode(s) != TSOCK_CONN || msg->msg_iovlen > IOV_MAX)
		return msg->msg_iovlen <= IOV_MAX && unconnected(s, flags) ? -1 : libc.recvmsg(fd, msg, flags);
	len = tsock_iov_len(msg->msg_iov, msg->msg_iovlen);
	n = receive(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, flags);
	if (n == GONE_HOME)
		return libc.recvmsg(fd, msg, flags);
	if (n >= 0) {
		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags = (flags & MSG_CMSG_CLOEXEC) | (n && (flags & MSG_OOB) ? MSG_OOB : 0);
	}
	return n;
}

/* The error queue's short form: what it says does not fit into it. */
static ssize_t recv_err(struct tsock *s, int fd, struct iovec *iov, int flags, struct sockaddr *addr, socklen_t *alen)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 1 };
	ssize_t n;

	msg.msg_name = alen ? addr : NULL;
	msg.msg_namelen = alen ? *alen : 0;
	n = tsock_recv_err(s, fd, &msg, flags);
	if (n >= 0 && addr && alen)
		*alen = msg.msg_namelen;
	return n;
}

ssize_t tsock_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call, struct sockaddr *addr, socklen_t *alen)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	int fd = vfd_call_fd(call), flags = vfd_call_flags(call);
	struct tsock *s = tsock_of(v);
	ssize_t n;

	if (__builtin_expect(flags & MSG_ERRQUEUE, 0))
		return recv_err(s, fd, &iov, flags, addr, alen);
	if (tsock_mode(s) != TSOCK_CONN)
		return unconnected(s, flags) ? -1 : libc.recvfrom(fd, buf, len, flags, addr, alen);
	n = receive(s, fd, &iov, 1, len, flags);
	if (n == GONE_HOME)
		return libc.recvfrom(fd, buf, len, flags, addr, alen);
	/* A stream tells no address: recvfrom() of Linux leaves it and says 0. */
	if (n >= 0 && addr && alen)
		*alen = 0;
	return n;
}
