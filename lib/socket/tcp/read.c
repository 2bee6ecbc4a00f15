/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading from a connection. */
#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"

#define RX_EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)
/* Flags that the engine takes. */
#define ENGINE_FLAGS (MSG_PEEK | MSG_TRUNC | MSG_OOB)

/*
 * The connection has gone to the kernel meanwhile, and nothing was read before: the call is libc's.
 * No errno of a connection.
 */
#define GONE_TO_KERNEL (-ENOENT)

static ssize_t fail(struct tcp_sock *s, int err)
{
	stats_add(err == EAGAIN ? &s->stats->rx.eagain : &s->stats->rx.errors, 1);
	errno = err;
	return -1;
}

/*
 * After a look that brought n, st->lock held: what is left is for another reader, and so is the
 * end. Only who found nothing clears: between a clearing before the look and the word after it
 * another reader would go to sleep.
 */
static void hint_after(struct tcp_sock *s, ssize_t n)
{
	if (n == -EAGAIN)
		tcp_sock_hint_clear(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI);
	else if (n >= 0 && s->c && (!n || tcp_inq(s->c)))
		atomic_fetch_or_explicit(&s->hint, EPOLLIN, memory_order_relaxed);
}

/* When the last byte came that this thread's last look has brought; for sockets that tell it. */
static _Thread_local uint64_t read_time_ns;

static bool tells_time(const struct tcp_sock *s)
{
	return s->tells & (TCP_SOCK_TELL_US | TCP_SOCK_TELL_NS);
}

/* The flags of a look for the engine. */
static int engine_flags(const struct tcp_sock *s, int flags)
{
	return (flags & ENGINE_FLAGS) |
	       (__builtin_expect(s->tells, 0) && tells_time(s) ? TCP_RECV_TIME : 0);
}

/* Ancillary data of a call that brought n bytes, as Linux's tcp_recvmsg() gives it. */
static void tell(struct tcp_sock *s, struct msghdr *msg, size_t room)
{
	uint8_t tells = s->tells;
	struct tcp_sock_cmsgs m = {.at = msg->msg_control, .left = msg->msg_control ? room : 0};
	bool is_new = tells & TCP_SOCK_TELL_NEW;
	struct timespec ts = {.tv_sec = (time_t)(read_time_ns / 1000000000u),
			      .tv_nsec = (long)(read_time_ns % 1000000000u)};
	struct stack *st;
	int inq = 0;

	if (tells_time(s) && read_time_ns && (tells & TCP_SOCK_TELL_NS)) {
		tcp_sock_cmsg_put(&m, SOL_SOCKET, is_new ? SO_TIMESTAMPNS_NEW : SO_TIMESTAMPNS_OLD,
				  &ts, sizeof(ts));
	} else if (tells_time(s) && read_time_ns) {
		ts.tv_nsec /= 1000; /* a timeval, which looks the same */
		tcp_sock_cmsg_put(&m, SOL_SOCKET, is_new ? SO_TIMESTAMP_NEW : SO_TIMESTAMP_OLD, &ts,
				  sizeof(ts));
	}
	if (tells & TCP_SOCK_TELL_INQ) {
		st = tcp_sock_conn_lock(s);
		if (st) {
			inq = (int)tcp_unread(s->c);
			lock_drop(&st->lock);
		}
		tcp_sock_cmsg_put(&m, IPPROTO_TCP, TCP_CM_INQ, &inq, sizeof(inq));
	}
	msg->msg_controllen = msg->msg_control ? (size_t)(m.at - (uint8_t *)msg->msg_control) : 0;
	if (m.cut)
		msg->msg_flags |= MSG_CTRUNC;
}

/* What has come, its stack locked. A queue is longest before it is read. */
static ssize_t recv_queued(struct tcp_sock *s, const struct iovec *iov, int iovcnt, int flags,
			   uint64_t now)
{
	if (!s->c)
		return -ENOTCONN;
	tcp_sock_figures_peak(s);
	return tcp_recv(s->c, iov, iovcnt, engine_flags(s, flags), now);
}

/* One look at the connection; polls its stack when nothing is there. As tcp_recv(). */
static ssize_t take(struct tcp_sock *s, const struct iovec *iov, int iovcnt, int flags)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint64_t now;
	ssize_t n;

	if (!st)
		return tcp_sock_mode(s) != TCP_SOCK_CONN ? -ENOTCONN
		       : flags & MSG_OOB		 ? -EINVAL
							 : -tcp_sock_pending_error_take(s);
	now = tcp_sock_now_us();
	if (stack_drain_due(st))
		stack_poll_called(st);
	n = recv_queued(s, iov, iovcnt, flags, now);
	if (n == -EAGAIN && (st->ring->caps.looks_itself || stack_pending(st))) {
		stack_poll_called(st);
		n = recv_queued(s, iov, iovcnt, flags, now);
	}
	if (__builtin_expect(s->tells, 0))
		read_time_ns = n > 0 && !(flags & MSG_OOB) && tells_time(s) && s->c
				       ? tcp_read_time(s->c)
				       : 0;
	if (__builtin_expect(s->tells & TCP_SOCK_TELLS_EXTRA, 0))
		tcp_sock_unshown(s);
	/* No urgent byte: there may be others. */
	if (!(flags & MSG_OOB))
		hint_after(s, n);
	tcp_sock_unlock_stack_in_round(st, now);
	return n;
}

/*
 * A look that goes on where others have ended, iov for what lies behind the `seen` bytes that the
 * queue still has (of a peeking call). 0: the end, an error or the urgent mark comes next, or what
 * the receive callback is shown when the seen bytes have been read; the call is over, and the next
 * one is told.
 */
static ssize_t take_more(struct tcp_sock *s, const struct iovec *iov, int iovcnt, int flags,
			 size_t seen)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint64_t now;
	ssize_t n;

	if (!st)
		return 0;
	now = tcp_sock_now_us();
	if (stack_pending(st))
		stack_poll_called(st);
	if (!s->c || tcp_at_mark(s->c))
		n = 0;
	else if (tcp_inq(s->c) > seen)
		n = tcp_recv(s->c, iov, iovcnt, engine_flags(s, flags), now);
	else
		n = (!tcp_unshown(s->c) &&
		     (tcp_ready(s->c) & (TCP_EV_RDHUP | TCP_EV_HUP | TCP_EV_ERR))) ||
				    (seen && tcp_is_held_back(s->c))
			    ? 0
			    : -EAGAIN;
	if (n > 0 && __builtin_expect(s->tells, 0) && tells_time(s))
		read_time_ns = tcp_read_time(s->c);
	if (__builtin_expect(s->tells & TCP_SOCK_TELLS_EXTRA, 0))
		tcp_sock_unshown(s);
	/* What a peeking call has seen waits for a reader; it does not wait by the hint itself. */
	if (!seen)
		hint_after(s, n);
	tcp_sock_unlock_stack_in_round(st, now);
	return n;
}

/* How many bytes the call waits for: one, SO_RCVLOWAT, or all (MSG_WAITALL). 0: it wants none. */
static size_t low_water(const struct tcp_sock *s, size_t len, int flags)
{
	size_t low = flags & MSG_WAITALL ? len : s->rcvlowat;

	return low > len || !len ? len : low ? low : 1;
}

/*
 * The rest of a call whose first look brought `got` bytes, less than it waits for. A peeking one
 * starts over each time, as more arrives behind what was seen.
 */
static ssize_t recv_slow(struct tcp_sock *s, const struct iovec *iov, int cnt, size_t low,
			 size_t got, int flags, struct tcp_sock_wait *w)
{
	bool peek = flags & MSG_PEEK;
	struct iovec part[TCP_SOCK_IOVS];
	ssize_t n;
	int err;

	for (;;) {
		if (!got)
			n = take(s, iov, cnt, flags);
		else if (peek)
			n = take_more(s, iov, cnt, flags, got);
		else
			n = take_more(s, part, tcp_sock_iov_part(iov, cnt, got, part), flags, 0);
		if (n == -EAGAIN) {
			w->behind = peek ? (uint32_t)got : 0;
			err = tcp_sock_wait_more(s, w);
			/* Who wants none has waited once, whatever for (tcp_recvmsg_locked()). */
			if (err)
				return got || !low ? (ssize_t)got : err;
			continue;
		}
		if (n <= 0)
			return got ? (ssize_t)got : n;
		got = peek ? (size_t)n : got + (size_t)n;
		if (got >= low)
			return (ssize_t)got;
	}
}

/* n, or what it means that s is the kernel's by now. */
static ssize_t told(const struct tcp_sock *s, ssize_t n)
{
	return n < 0 && tcp_sock_mode(s) != TCP_SOCK_CONN ? GONE_TO_KERNEL : n;
}

/* Its wait is one of a crowd. 0: it goes on here; GONE_TO_KERNEL, or another negative errno. */
static ssize_t leave_crowd(struct tcp_sock *s, const struct tcp_sock_wait *w)
{
	bool left;

	stack_round_end();
	left = tcp_sock_handover_crowded(s);
	wait_crowd_left(&s->spin, left);
	if (!left)
		return 0;
	return wait_call_interrupted(&w->call) ? -EINTR : GONE_TO_KERNEL;
}

/* As recv_slow(); close() of another thread waits for its end. */
static __attribute__((noinline)) ssize_t recv_held(struct tcp_sock *s, int fd,
						   const struct iovec *iov, int cnt, size_t low,
						   size_t got, int flags)
{
	struct tcp_sock_wait w;
	ssize_t n;

	tcp_sock_wait_init(s, &w, RX_EVENTS, s->rcvtimeo_ns);
	if (!vfd_hold(&s->v, fd))
		return got ? (ssize_t)got : -EBADF;
	n = !got && wait_is_crowded(&s->spin) ? leave_crowd(s, &w) : 0;
	if (!n)
		n = told(s, recv_slow(s, iov, cnt, low, got, flags, &w));
	/* The number may be another socket's by now. */
	if (n == GONE_TO_KERNEL && vfd_get(fd) != &s->v)
		n = -EBADF;
	vfd_let_go();
	return n;
}

static ssize_t receive(struct tcp_sock *s, int fd, const struct iovec *iov, int cnt, size_t len,
		       int flags)
{
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	size_t low;
	ssize_t n;

	if (__builtin_expect(__atomic_load_n(&s->stats->rx_tid, __ATOMIC_RELAXED) != lock_self(),
			     0))
		__atomic_store_n(&s->stats->rx_tid, lock_self(), __ATOMIC_RELAXED);
	n = take(s, iov, cnt, flags);
	if (__builtin_expect(n == -EAGAIN, 0) && stacks_show_due()) {
		if (!stacks_show())
			return fail(s, EINTR);
		n = take(s, iov, cnt, flags);
	}
	low = low_water(s, len, flags);
	if (__builtin_expect(
		    (n == -EAGAIN || (n > 0 && (size_t)n < low)) && wait && !(flags & MSG_OOB), 0))
		n = recv_held(s, fd, iov, cnt, low, n > 0 ? (size_t)n : 0, flags);
	else
		n = told(s, n);
	if (n < 0)
		return n == GONE_TO_KERNEL ? n : fail(s, (int)-n);
	if (!(flags & MSG_PEEK)) {
		stats_add(&s->stats->rx.packets, 1);
		stats_add(&s->stats->rx.bytes, (uint64_t)n);
	}
	return n;
}

/* No connection of ours: an earlier one's error, else 0: the call is libc's. */
static ssize_t unconnected(struct tcp_sock *s, int flags)
{
	int err = flags & MSG_OOB ? 0 : tcp_sock_pending_error_take(s);

	return err ? fail(s, err) : 0;
}

ssize_t tcp_sock_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	struct tcp_sock *s = tcp_sock_of(v);
	size_t len;
	ssize_t n;

	if (__builtin_expect(flags & MSG_ERRQUEUE, 0))
		return tcp_sock_recv_err(s, fd, msg, flags);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN || msg->msg_iovlen > IOV_MAX)
		return msg->msg_iovlen <= IOV_MAX && unconnected(s, flags)
			       ? -1
			       : libc.recvmsg(fd, msg, flags);
	len = tcp_sock_iov_len(msg->msg_iov, msg->msg_iovlen);
	n = receive(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, flags);
	if (n == GONE_TO_KERNEL)
		return libc.recvmsg(fd, msg, flags);
	if (n >= 0) {
		size_t room = msg->msg_controllen;

		msg->msg_namelen = 0;
		msg->msg_controllen = 0;
		msg->msg_flags =
			(flags & MSG_CMSG_CLOEXEC) | (n && (flags & MSG_OOB) ? MSG_OOB : 0);
		if (__builtin_expect(s->tells, 0))
			tell(s, msg, room);
	}
	return n;
}

/* The error queue's short form: what it says does not fit into it. */
static ssize_t recv_err(struct tcp_sock *s, int fd, struct iovec *iov, int flags,
			struct sockaddr *addr, socklen_t *alen)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};
	ssize_t n;

	msg.msg_name = alen ? addr : NULL;
	msg.msg_namelen = alen ? *alen : 0;
	n = tcp_sock_recv_err(s, fd, &msg, flags);
	if (n >= 0 && addr && alen)
		*alen = msg.msg_namelen;
	return n;
}

/* Where recvfrom() is to put none; what was read is gone, as in the kernel. */
static ssize_t no_address(ssize_t n, struct sockaddr *addr, socklen_t *alen)
{
	const struct sockaddr_storage none = {0};
	int err = sock_addr_give(&none, 0, addr, alen);

	if (!err)
		return n;
	errno = -err;
	return -1;
}

ssize_t tcp_sock_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call,
			  struct sockaddr *addr, socklen_t *alen)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	int fd = vfd_call_fd(call), flags = vfd_call_flags(call);
	struct tcp_sock *s = tcp_sock_of(v);
	ssize_t n;

	if (__builtin_expect(flags & MSG_ERRQUEUE, 0))
		return recv_err(s, fd, &iov, flags, addr, alen);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN)
		return unconnected(s, flags) ? -1 : libc.recvfrom(fd, buf, len, flags, addr, alen);
	n = receive(s, fd, &iov, 1, len, flags);
	if (n == GONE_TO_KERNEL)
		return libc.recvfrom(fd, buf, len, flags, addr, alen);
	/* A stream tells no address: recvfrom() of Linux leaves it and says 0. */
	if (n >= 0 && addr)
		return no_address(n, addr, alen);
	return n;
}
