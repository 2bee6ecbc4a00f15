/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Writing to a connection. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

#define TX_EVENTS (EPOLLOUT | EPOLLERR | EPOLLHUP)
#define ENGINE_FLAGS (MSG_MORE | MSG_EOR | MSG_OOB)

/* Nothing can be sent: an earlier connection's error, once, else EPIPE. */
static ssize_t left_error(struct tcp_sock *s)
{
	int err = tcp_sock_pending_error_take(s);

	return err ? -err : -EPIPE;
}

/*
 * The first n bytes of a connection are in its SYN, for which it had waited (TCP_FASTOPEN_CONNECT).
 * A blocking call waits until it stands, as connect() would have.
 */
static ssize_t opened(struct tcp_sock *s, ssize_t n, int flags)
{
	int fd, err = -EINPROGRESS, cancel = tcp_sock_lock_fd(s, &fd);

	/* From here on connect() tells how far it is, as in the kernel. */
	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		s->connected = false;
	tcp_sock_unlock(s, cancel);
	if (!s->nonblock && !(flags & MSG_DONTWAIT))
		err = tcp_sock_connect_rest(s, fd);
	if (err == -EINPROGRESS && n)
		return n;
	return err ? err : n;
}

/*
 * Puts what there is room for into the send buffer and sends what may go. As tcp_send(); an error
 * that comes when `done` bytes of the call are in ends it (-EPIPE), but is left for the next call.
 */
static ssize_t put(struct tcp_sock *s, const struct iovec *iov, int iovcnt, int flags, size_t done)
{
	bool opening = false, goes_on;
	struct stack *st;
	uint64_t now;
	ssize_t n;

	stack_round_turns_to(s);
	st = tcp_sock_conn_lock(s);
	if (!st)
		return done ? -EPIPE : left_error(s);
	now = tcp_sock_now_us();
	/*
	 * The rest of an answer that waits for the end of the round, which has counted it. Not what
	 * an acknowledgement makes room for only now.
	 */
	goes_on = tcp_waits_for_flush(s->c);
	/*
	 * Acknowledgements that wait open the window; a sender that never reads would not see them.
	 */
	if (params.rx_poll_on_tx_tcp || stack_pending(st))
		stack_poll_called(st);
	if (!s->c || (done && (tcp_ready(s->c) & TCP_EV_ERR)))
		n = -EPIPE;
	else
		n = tcp_send(s->c, iov, iovcnt, flags & ENGINE_FLAGS, now);
	/* Another writer may find room, too: who found none clears, nobody else. */
	if (n == -EAGAIN)
		tcp_sock_hint_clear(s, EPOLLOUT | EPOLLWRNORM);
	if (n > 0) {
		atomic_fetch_or_explicit(&s->hint, EPOLLOUT, memory_order_relaxed);
		goes_on |= stack_round_says(s, now);
	}
	if (n >= 0 && __builtin_expect(tcp_conn_state(s->c) == TCPS_SYN_SENT, 0)) {
		opening = true;
		tcp_fast_open_go(s->c);
	}
	if (goes_on)
		tcp_sock_unlock_stack_in_round(st, now);
	else
		tcp_sock_unlock_stack_answered(st, now);
	return opening ? opened(s, n, flags) : n;
}

/*
 * What put() is to be told of vectors that are not the last: more follows, and the urgent byte and
 * the end of a record are the last of all.
 */
static int part_flags(int flags, bool last)
{
	return last ? flags : (flags & ~(MSG_OOB | MSG_EOR)) | MSG_MORE;
}

/*
 * The connection has gone to the kernel in the middle of a call of which `done` of len bytes were
 * in. As sendmsg(), with a negative errno.
 */
static ssize_t send_by_kernel(int fd, const struct iovec *iov, int cnt, size_t len, size_t done,
			      int flags)
{
	struct iovec part[TCP_SOCK_IOVS];
	struct msghdr msg = {.msg_iov = part};
	size_t here;
	ssize_t n;

	/* There is a connection: the kernel would refuse to begin one. */
	flags &= ~MSG_FASTOPEN;
	do {
		msg.msg_iovlen = (size_t)tcp_sock_iov_part(iov, cnt, done, part);
		here = tcp_sock_iov_len(part, msg.msg_iovlen);
		n = libc.sendmsg(fd, &msg, part_flags(flags, done + here >= len) | MSG_NOSIGNAL);
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		done += (size_t)n;
	} while (done < len && (size_t)n == here);
	return (ssize_t)done;
}

/* The rest of a blocking call of which `done` of len bytes are in. */
static ssize_t send_slow(struct tcp_sock *s, int fd, const struct iovec *iov, int cnt, size_t len,
			 size_t done, int flags, struct tcp_sock_wait *w)
{
	struct iovec part[TCP_SOCK_IOVS];
	size_t here;
	ssize_t n;
	int err, num;

	for (;;) {
		num = tcp_sock_iov_part(iov, cnt, done, part);
		here = tcp_sock_iov_len(part, (size_t)num);
		n = put(s, part, num, part_flags(flags, done + here >= len), done);
		if (n == -EPIPE && tcp_sock_mode(s) != TCP_SOCK_CONN)
			return send_by_kernel(vfd_held_fd(&s->v, fd), iov, cnt, len, done, flags);
		if (n < 0 && n != -EAGAIN)
			return done ? (ssize_t)done : n;
		if (n > 0) {
			done += (size_t)n;
			if (done >= len)
				return (ssize_t)done;
			continue;
		}
		err = tcp_sock_wait_more(s, w);
		if (err)
			return done ? (ssize_t)done : err;
	}
}

/* As send_slow(); close() of another thread waits for its end. */
static __attribute__((noinline)) ssize_t send_held(struct tcp_sock *s, int fd,
						   const struct iovec *iov, int cnt, size_t len,
						   size_t done, int flags)
{
	struct tcp_sock_wait w;
	ssize_t n;

	tcp_sock_wait_init(s, &w, TX_EVENTS, s->sndtimeo_ns);
	if (!vfd_hold(&s->v, fd))
		return done ? (ssize_t)done : -EBADF;
	n = send_slow(s, fd, iov, cnt, len, done, flags, &w);
	vfd_let_go();
	return n;
}

/* What a call ends with: n as send_slow() has it. As send(). */
static ssize_t result(struct tcp_sock *s, ssize_t n, int flags)
{
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

static ssize_t transmit(struct tcp_sock *s, int fd, const struct iovec *iov, int cnt, size_t len,
			int flags)
{
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	ssize_t n;

	if (__builtin_expect(__atomic_load_n(&s->stats->tx_tid, __ATOMIC_RELAXED) != lock_self(),
			     0))
		__atomic_store_n(&s->stats->tx_tid, lock_self(), __ATOMIC_RELAXED);
	n = put(s, iov, cnt, flags, 0);
	if (__builtin_expect(n == -EPIPE && tcp_sock_mode(s) != TCP_SOCK_CONN, 0))
		n = send_by_kernel(fd, iov, cnt, len, 0, flags);
	else if (__builtin_expect((n == -EAGAIN || (n >= 0 && (size_t)n < len)) && wait, 0))
		n = send_held(s, fd, iov, cnt, len, n > 0 ? (size_t)n : 0, flags);
	return result(s, n, flags);
}

/*
 * The same where flags may have MSG_ZEROCOPY, which changes nothing but that its end is told. The
 * kernel tells it of a socket that was handed over meanwhile.
 */
static ssize_t transmit_told(struct tcp_sock *s, int fd, const struct iovec *iov, int cnt,
			     size_t len, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	ssize_t n = transmit(s, fd, iov, cnt, len, flags);

	if (n > 0 && flags & MSG_ZEROCOPY)
		tcp_sock_zerocopy_done(s, gen);
	return n;
}

/* MSG_FASTOPEN on a connection: as connect(), and then the data. As send(). */
static ssize_t fast_open_again(struct tcp_sock *s, int fd, const struct msghdr *msg, int flags)
{
	const struct sockaddr *to = msg->msg_name;
	int err;

	if (to && msg->msg_namelen < sizeof(to->sa_family))
		err = -EINVAL;
	else if (to && to->sa_family == AF_UNSPEC)
		err = -EOPNOTSUPP;
	else
		err = tcp_sock_connect_again(s, fd, s->nonblock || flags & MSG_DONTWAIT);
	if (err)
		return result(s, err, flags);
	return transmit_told(s, fd, msg->msg_iov, (int)msg->msg_iovlen,
			     tcp_sock_iov_len(msg->msg_iov, msg->msg_iovlen), flags);
}

/*
 * MSG_FASTOPEN on a socket without connection, allowed by mode. As send(); *kernel: the kernel is
 * to do it.
 */
static ssize_t fast_open(struct tcp_sock *s, int fd, const struct msghdr *msg, int flags,
			 unsigned mode, bool *kernel)
{
	struct iovec nothing = {0};
	/* Without data it does not wait for any: the SYN leaves. */
	struct tcp_sock_opening o = {.fast_open = true,
				     .mode = mode,
				     .iov = msg->msg_iov ? msg->msg_iov : &nothing,
				     .iovcnt = (int)msg->msg_iovlen,
				     .flags = flags & ENGINE_FLAGS};
	size_t len = tcp_sock_iov_len(msg->msg_iov, msg->msg_iovlen);
	bool wait = !s->nonblock && !(flags & MSG_DONTWAIT);
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	int err;

	o.flags |= flags & MSG_DONTWAIT;
	err = tcp_sock_connect_with(s, fd, msg->msg_name, msg->msg_namelen, &o);
	*kernel = err > 0;
	if (*kernel)
		return -1;
	if (err == -EAGAIN)
		return fast_open_again(s, fd, msg, flags);
	if (err && !(err == -EINPROGRESS && o.taken > 0))
		return result(s, err, flags);
	if (o.taken < 0)
		o.taken = 0;
	if (!err && wait && (size_t)o.taken < len)
		o.taken = send_held(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, (size_t)o.taken,
				    flags);
	if (o.taken > 0 && flags & MSG_ZEROCOPY)
		tcp_sock_zerocopy_done(s, gen);
	return result(s, o.taken, flags);
}

/* What the kernel refuses it says itself. */
static bool is_fast_open(const struct msghdr *msg, int flags)
{
	const struct sockaddr *to = msg->msg_name;

	return __builtin_expect(flags & MSG_FASTOPEN, 0) && to &&
	       msg->msg_namelen >= sizeof(to->sa_family) && to->sa_family != AF_UNSPEC;
}

/*
 * With VMA_SND_FLAGS_DUMMY: as far as the device, which does nothing. The bytes, or -1 and EAGAIN:
 * they would not leave at once.
 */
static ssize_t dummy(struct tcp_sock *s, const struct iovec *iov, int cnt, int flags)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	ssize_t n = -EAGAIN;

	if (st) {
		if (s->c)
			n = tcp_send_dummy(s->c, iov, cnt, flags);
		tcp_sock_unlock_stack(st, tcp_sock_now_us());
	}
	if (n < 0) {
		errno = EAGAIN;
		return -1;
	}
	stats_add(&s->stats->tx_dummy, 1);
	return n;
}

/*
 * No connection of ours: an earlier one's error, or the beginning of one; else the call is libc's
 * (*kernel).
 */
static ssize_t unconnected(struct tcp_sock *s, int fd, const struct msghdr *msg, int flags,
			   bool *kernel)
{
	int err = tcp_sock_pending_error_take(s);
	unsigned mode = 0;

	*kernel = false;
	if (err)
		return result(s, -err, flags | MSG_NOSIGNAL);
	if (is_fast_open(msg, flags) && tcp_sock_mode(s) == TCP_SOCK_KERNEL)
		mode = tcp_sock_fast_open_allowed();
	if (mode)
		return fast_open(s, fd, msg, flags, mode, kernel);
	*kernel = true;
	return -1;
}

size_t tcp_sock_room(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct stack *st =
		s->nonblock && tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	size_t room;

	if (!st)
		return SIZE_MAX;
	room = tcp_send_room(s->c);
	lock_drop(&st->lock);
	return room;
}

ssize_t tcp_sock_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	struct tcp_sock *s = tcp_sock_of(v);
	bool kernel = true;
	ssize_t n = -1;
	size_t len;

	if (__builtin_expect(flags & VMA_SND_FLAGS_DUMMY, 0))
		return dummy(s, msg->msg_iov,
			     msg->msg_iovlen <= TCP_SOCK_IOVS ? (int)msg->msg_iovlen : 0, flags);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN || msg->msg_iovlen > IOV_MAX) {
		if (msg->msg_iovlen <= IOV_MAX)
			n = unconnected(s, fd, msg, flags, &kernel);
		return kernel ? libc.sendmsg(fd, msg, flags) : n;
	}
	len = tcp_sock_iov_len(msg->msg_iov, msg->msg_iovlen);
	if (__builtin_expect(flags & (MSG_ZEROCOPY | MSG_FASTOPEN), 0))
		return flags & MSG_FASTOPEN ? fast_open_again(s, fd, msg, flags)
					    : transmit_told(s, fd, msg->msg_iov,
							    (int)msg->msg_iovlen, len, flags);
	return transmit(s, fd, msg->msg_iov, (int)msg->msg_iovlen, len, flags);
}

/* What sendto() hardly ever meets: no connection, MSG_FASTOPEN, MSG_ZEROCOPY. As sendto(). */
static ssize_t sendto_slow(struct tcp_sock *s, int fd, struct iovec *iov, int flags,
			   const struct sockaddr *addr, socklen_t alen)
{
	struct msghdr msg = {.msg_name = (void *)(uintptr_t)addr,
			     .msg_namelen = alen,
			     .msg_iov = iov,
			     .msg_iovlen = 1};
	bool kernel;
	ssize_t n;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN)
		return flags & MSG_FASTOPEN ? fast_open_again(s, fd, &msg, flags)
					    : transmit_told(s, fd, iov, 1, iov->iov_len, flags);
	n = unconnected(s, fd, &msg, flags, &kernel);
	return kernel ? libc.sendto(fd, iov->iov_base, iov->iov_len, flags, addr, alen) : n;
}

ssize_t tcp_sock_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call,
			const struct sockaddr *addr, socklen_t alen)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	int fd = vfd_call_fd(call), flags = vfd_call_flags(call);
	struct tcp_sock *s = tcp_sock_of(v);

	if (__builtin_expect(flags & VMA_SND_FLAGS_DUMMY, 0))
		return dummy(s, &iov, 1, flags);
	/* An address is ignored on a connected stream. */
	if (__builtin_expect(
		    tcp_sock_mode(s) != TCP_SOCK_CONN || flags & (MSG_ZEROCOPY | MSG_FASTOPEN), 0))
		return sendto_slow(s, fd, &iov, flags, addr, alen);
	return transmit(s, fd, &iov, 1, len, flags);
}
