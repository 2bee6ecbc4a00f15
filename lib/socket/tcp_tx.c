/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writing to a connection. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "runtime/libc.h"
#include "runtime/params.h"
#include "socket/tcp_int.h"

#define TX_EVENTS (EPOLLOUT | EPOLLERR | EPOLLHUP)
#define ENGINE_FLAGS (MSG_MORE | MSG_OOB)

/* Nothing can be sent: an earlier connection's error, once, else EPIPE. */
static ssize_t left_error(struct tsock *s)
{
	int err = tsock_left_error(s);

	return err ? -err : -EPIPE;
}

/* Puts what there is room for into the send buffer and sends what may go. As tcp_send(). */
static ssize_t put(struct tsock *s, const struct iovec *iov, int iovcnt, int flags)
{
	struct stack *st = tsock_conn_lock(s);
	uint64_t now;
	ssize_t n;

	if (!st)
		return left_error(s);
	tsock_hint_clear(s, EPOLLOUT | EPOLLWRNORM);
	now = tsock_now();
	/* Acknowledgements that wait open the window; a sender that never reads would not see them. */
	if (atomic_load_explicit(&st->open, memory_order_relaxed) &&
	    (params.rx_poll_on_tx_tcp || st->ring->ops->pending(st->ring))) {
		st->polls++;
		stack_poll(st, (unsigned)params.cq_poll_batch_max);
	}
	n = s->c ? tcp_send(s->c, iov, iovcnt, flags & ENGINE_FLAGS, now) : -EPIPE;
	/* Another writer may find room, too. */
	if (n > 0)
		atomic_fetch_or_explicit(&s->hint, EPOLLOUT, memory_order_relaxed);
	tsock_unlock_stack(st, now);
	return n;
}

static void iov_skip(struct iovec **iov, int *iovcnt, size_t n)
{
	while (*iovcnt && n >= (*iov)->iov_len) {
		n -= (*iov)->iov_len;
		(*iov)++;
		(*iovcnt)--;
	}
	if (*iovcnt) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + n;
		(*iov)->iov_len -= n;
	}
}

/* The connection has gone to the kernel in the middle of a call of which `done` bytes were in. Negative errno as tcp_send(). */
static ssize_t send_home(int fd, struct iovec *iov, int cnt, size_t done, int flags)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)cnt };
	ssize_t n = libc.sendmsg(fd, &msg, flags | MSG_NOSIGNAL);

	if (n < 0)
		return done ? (ssize_t)done : -errno;
	return (ssize_t)done + n;
}

/* The rest of a blocking call of which `done` of len bytes are in. */
static ssize_t send_slow(struct tsock *s, int fd, const struct iovec *from, int cnt, size_t len, size_t done, int flags)
{
	struct iovec room[IOV_MAX], *iov = room;
	struct tsock_wait w;
	ssize_t n;
	int err;

	memcpy(room, from, (size_t)cnt * sizeof(*from));
	iov_skip(&iov, &cnt, done);
	tsock_wait_init(s, &w, TX_EVENTS, s->sndtimeo_ns);
	for (;;) {
		n = put(s, iov, cnt, flags);
		if (n < 0 && tsock_mode(s) != TSOCK_CONN)
			return send_home(fd, iov, cnt, done, flags);
		if (n < 0 && n != -EAGAIN)
			return done ? (ssize_t)done : n;
		if (n > 0) {
			done += (size_t)n;
			if (done >= len)
				return (ssize_t)done;
			iov_skip(&iov, &cnt, (size_t)n);
			continue;
		}
		err = tsock_wait_more(s, fd, &w);
		if (err)
			return done ? (ssize_t)done : err;
	}
}

static ssize_t transmit(struct tsock *s, int fd, const struct iovec *iov, int cnt, size_t len, int flags)
{
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	ssize_t n;

	if (__builtin_expect(__atomic_load_n(&s->stats->tx_tid, __ATOMIC_RELAXED) != lock_self(), 0))
		__atomic_store_n(&s->stats->tx_tid, lock_self(), __ATOMIC_RELAXED);
	n = put(s, iov, cnt, flags);
	if (__builtin_expect(n < 0 && tsock_mode(s) != TSOCK_CONN, 0))
		n = send_home(fd, (struct iovec *)(uintptr_t)iov, cnt, 0, flags);
	else if (__builtin_expect((n == -EAGAIN || (n >= 0 && (size_t)n < len)) && wait, 0))
		n = send_slow(s, fd, iov, cnt, len, n > 0 ? (size_t)n : 0, flags);
	if (__builtin_expect(n < 0, 0)) {
		stats_add(n == -EAGAIN ? &s->stats->tx.eagain : &s->stats->tx.errors, 1);
		if (n == -EPIPE && !(flags & MSG_NOSIGNAL))
			raise(SIGPIPE); /* to this thread, as the kernel does */
		errno = (int)-n;
		return -1;
	}
	stats_add(&s->stats->tx.packets, 1);
	stats_add(&s->stats->tx.bytes, (uint64_t)n);
	return n;
}

/* The same with MSG_ZEROCOPY, which changes nothing but that its end is told. A socket that went home meanwhile is told by the kernel. */
static ssize_t transmit_told(struct tsock *s, int fd, const struct iovec *iov, int cnt, size_t len, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	ssize_t n = transmit(s, fd, iov, cnt, len, flags);

	if (n > 0)
		tsock_zerocopy_done(s, gen);
	return n;
}

/* No connection of ours: an earlier one's error, else 0: the call is libc's. */
static ssize_t unconnected(struct tsock *s)
{
	int err = tsock_left_error(s);

	if (!err)
		return 0;
	stats_add(&s->stats->tx.errors, 1);
	errno = err;
	return -1;
}

ssize_t tsock_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	struct tsock *s = tsock_of(v);
	size_t len = 0;

	if (tsock_mode(s) != TSOCK_CONN || msg->msg_iovlen > IOV_MAX)
		return msg->msg_iovlen <= IOV_MAX && unconnected(s) ? -1 : libc.sendmsg(fd, msg, flags);
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	if (__builtin_expect(flags & MSG_ZEROCOPY, 0))
		return transmit_told(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, flags);
	return transmit(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, flags);
}

ssize_t tsock_sendto(struct vfd *v, int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		     socklen_t alen)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len };
	struct tsock *s = tsock_of(v);

	/* An address is ignored on a connected stream. */
	if (tsock_mode(s) != TSOCK_CONN)
		return unconnected(s) ? -1 : libc.sendto(fd, buf, len, flags, addr, alen);
	if (__builtin_expect(flags & MSG_ZEROCOPY, 0))
		return transmit_told(s, fd, &iov, 1, len, flags);
	return transmit(s, fd, &iov, 1, len, flags);
}
