/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include "mem/mem.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/cmsg.h"
#include "socket/udp/internal.h"
#include "wait/wait.h"

/*
 * The worker's epoll tells when the kernel socket has something (vfd.os_events), so that looking at
 * it is a load. Should the worker get no CPU, a system call looks each VMA_RX_UDP_POLL_OS_RATIO
 * times so many empty polls.
 */
#define OS_LOOK_SPAN 64u

/* While what is queued goes to the kernel socket, which takes microseconds for each datagram. */
#define GIVING_LOOK_NS 20000
#define GIVING_LOOKS_MOST 5000

/* Of the timeout of recvmmsg(): a hundred years. */
#define FOR_EVER_S 3155760000

/* --- out of the queue --- */

/* True when att has something to be read; its stack is locked then. Polls the stack once. */
static inline bool att_ready(struct udp_sock *s, struct udp_att *att)
{
	struct stack *st = udp_att_stack(att);

	if (!lock_get(&st->lock))
		/* a signal handler in the middle of a call: the kernel socket must do */
		return false;
	if (__builtin_expect(atomic_load_explicit(&att->s, memory_order_acquire) == s &&
				     atomic_load_explicit(&att->st, memory_order_relaxed) == st,
			     1)) {
		if (!att->head || stack_drain_due(st))
			stack_poll_called(st);
		if (att->head)
			return true;
	} /* else closed meanwhile */
	lock_drop(&st->lock);
	return false;
}

/*
 * The attachment whose head is to be read, its stack locked; polls the stacks once. NULL: nothing
 * is there.
 */
static inline struct udp_att *find_ready(struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire), i = 0;

	if (__builtin_expect(n > 1, 0))
		i = atomic_load_explicit(&s->att_turn, memory_order_relaxed);
	for (unsigned left = n; left; left--, i++) {
		struct udp_att *att;

		if (i >= n)
			i = 0;
		/* once: another thread may have s move to another ring */
		att = udp_att(s, i);
		if (att_ready(s, att)) {
			/* A turn is over when the datagram is taken: att_taken(). */
			if (__builtin_expect(n > 1, 0))
				atomic_store_explicit(&s->att_turn, (uint8_t)i,
						      memory_order_relaxed);
			return att;
		}
	}
	return NULL;
}

/* The next ring's turn: one that gets more than is read would starve the others. */
static inline void att_taken(struct udp_sock *s)
{
	if (__builtin_expect(atomic_load_explicit(&s->natt, memory_order_relaxed) > 1, 0))
		atomic_fetch_add_explicit(&s->att_turn, 1, memory_order_relaxed);
}

/*
 * Who has just given a datagram leaves the turn to the other; who has shown one keeps it, so that
 * the next call gets what this one has told of.
 */
static void turn_after(struct udp_sock *s, bool by_kernel, int flags)
{
	atomic_store_explicit(&s->os_turn, by_kernel == !!(flags & MSG_PEEK), memory_order_relaxed);
}

/* Copies the first `left` bytes of b's payload into iov; returns the bytes copied. */
static size_t copy_out(const struct buf *b, size_t left, const struct iovec *iov, size_t iovlen)
{
	size_t done = 0, off = 0, in_iov = 0;

	while (b && left && iovlen) {
		size_t n = b->len - off, room = iov->iov_len - in_iov;

		if (n > room)
			n = room;
		if (n > left)
			n = left;
		if (n)
			memcpy((uint8_t *)iov->iov_base + in_iov, b->data + off, n);
		done += n;
		left -= n;
		off += n;
		in_iov += n;
		if (off == b->len) {
			b = b->frag;
			off = 0;
		}
		if (in_iov == iov->iov_len) {
			iov++;
			iovlen--;
			in_iov = 0;
		}
	}
	return done;
}

/* Nearly always: one piece into one piece. */
static inline size_t copy_one(const struct buf *b, void *to, size_t room)
{
	struct iovec iov = {.iov_base = to, .iov_len = room};
	size_t n = b->len < room ? b->len : room;

	if (__builtin_expect(b->frag != NULL, 0))
		return copy_out(b, b->total, &iov, 1);
	if (__builtin_expect(n >= 16 && n <= 64, 1))
		copy_short(to, b->data, n);
	else if (n)
		memcpy(to, b->data, n);
	return n;
}

/* The sender's address, cut to *len bytes; *len becomes its whole length. */
static inline void put_name(const struct udp_sock *s, const struct buf_meta *m, void *name,
			    socklen_t *len)
{
	struct sockaddr_storage ss;
	socklen_t full;

	if (__builtin_expect(s->domain == AF_INET && *len >= sizeof(struct sockaddr_in), 1)) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(m->sport)};

		memcpy(&in.sin_addr, &m->src.s6_addr[12], 4);
		memcpy(name, &in, sizeof(in));
		*len = sizeof(in);
		return;
	}
	full = sock_addr_put(s->domain, &m->src, m->sport, m->ifindex, &ss);
	memcpy(name, &ss, *len < full ? *len : full);
	*len = full;
}

/*
 * For SIOCGSTAMP. Who has asked for times as ancillary data is told there, and only there (Linux:
 * sock_recv_timestamp()).
 */
static inline void note_time(struct udp_sock *s, const struct buf *b)
{
	if (__builtin_expect(s->o.any_cmsg, 0) &&
	    (s->o.timestamp || s->o.timestamp_ns || s->o.timestamping))
		return;
	atomic_store_explicit(&s->last_time_ns, b->time_ns ? b->time_ns : UDP_UNSTAMPED,
			      memory_order_relaxed);
}

void udp_put_name(const struct udp_sock *s, const struct buf_meta *m, void *name, socklen_t *len)
{
	put_name(s, m, name, len);
}

void udp_note_time(struct udp_sock *s, const struct buf *b)
{
	note_time(s, b);
}

/* The datagram b has left the queue and been copied to the user. */
static inline void delivered(struct udp_sock *s, struct buf *b)
{
	note_time(s, b);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, b->total);
	buf_free(b);
	att_taken(s);
}

/* As udp_deliver(), for a burst: its first datagram, or with UDP_GRO all of it. */
static __attribute__((noinline)) ssize_t deliver_burst(struct udp_sock *s, struct udp_att *att,
						       struct msghdr *msg, int flags)
{
	struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);
	struct buf *b = att->head;
	bool whole = s->o.gro;
	size_t total = whole ? b->total : b->gso_size;
	size_t n = copy_out(b, total, msg->msg_iov, msg->msg_iovlen);

	msg->msg_flags = (n < total ? MSG_TRUNC : 0) | (flags & MSG_CMSG_CLOEXEC);
	if (msg->msg_name)
		put_name(s, &b->meta, msg->msg_name, &msg->msg_namelen);
	udp_cmsg_put(s, b, msg);
	note_time(s, b);
	if (!(flags & MSG_PEEK)) {
		stats_add(&s->stats->rx.packets, whole ? udp_count(b) : 1);
		stats_add(&s->stats->rx.bytes, total);
		if (whole)
			buf_free(udp_dequeue(s, att));
		else
			udp_burst_step(s, att);
		att_taken(s);
	} else {
		turn_after(s, false, flags);
	}
	lock_drop(&st->lock);
	return (ssize_t)(flags & MSG_TRUNC ? total : n);
}

ssize_t udp_deliver(struct udp_sock *s, struct udp_att *att, struct msghdr *msg, int flags)
{
	struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);
	struct buf *b = att->head;
	size_t total = b->total, n;

	if (__builtin_expect(b->gso_size, 0))
		return deliver_burst(s, att, msg, flags);
	if (!(flags & MSG_PEEK))
		udp_dequeue(s, att);
	n = msg->msg_iovlen == 1 ? copy_one(b, msg->msg_iov->iov_base, msg->msg_iov->iov_len)
				 : copy_out(b, total, msg->msg_iov, msg->msg_iovlen);
	msg->msg_flags = (n < total ? MSG_TRUNC : 0) | (flags & MSG_CMSG_CLOEXEC);
	if (msg->msg_name)
		put_name(s, &b->meta, msg->msg_name, &msg->msg_namelen);
	udp_cmsg_put(s, b, msg);
	if (flags & MSG_PEEK) {
		note_time(s, b);
		turn_after(s, false, flags);
	} else {
		delivered(s, b);
	}
	lock_drop(&st->lock);
	return (ssize_t)(flags & MSG_TRUNC ? total : n);
}

/* As udp_deliver(), for recvfrom() without MSG_PEEK and MSG_TRUNC. */
static inline ssize_t deliver_plain(struct udp_sock *s, struct udp_att *att, void *to, size_t room,
				    struct sockaddr *addr, socklen_t *alen)
{
	struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);
	struct buf *b = att->head;
	size_t n;

	if (__builtin_expect(b->gso_size, 0)) {
		struct iovec iov = {.iov_base = to, .iov_len = room};
		struct msghdr msg = {.msg_name = alen ? addr : NULL,
				     .msg_namelen = addr && alen ? *alen : 0,
				     .msg_iov = &iov,
				     .msg_iovlen = 1};
		ssize_t got = deliver_burst(s, att, &msg, 0);

		if (addr && alen)
			*alen = msg.msg_namelen;
		return got;
	}
	udp_dequeue(s, att);
	n = copy_one(b, to, room);
	if (addr && alen)
		put_name(s, &b->meta, addr, alen);
	delivered(s, b);
	lock_drop(&st->lock);
	return (ssize_t)n;
}

/* --- the kernel socket as one more source --- */

static ssize_t os_recv(struct udp_sock *s, int fd, struct msghdr *msg, int flags)
{
	struct msghdr copy = *msg; /* recvmsg() writes to it even when it fails */
	uint32_t givings = atomic_load(&s->givings);
	ssize_t n;

	/* The flag goes first: what arrives after it was read sets it again. */
	atomic_store_explicit(&s->v.os_events, 0, memory_order_release);
	atomic_store_explicit(&s->sends_seen,
			      atomic_load_explicit(&udp_kernel_sends, memory_order_acquire),
			      memory_order_relaxed);
	n = libc.recvmsg(fd, &copy, flags);
	if (n >= 0) {
		turn_after(s, true, flags);
		*msg = copy;
		atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN,
					 memory_order_release); /* there may be more */
		stats_add(&s->stats->rx.os_packets, 1);
		stats_add(&s->stats->rx.os_bytes, (uint64_t)n);
		stats_add(&s->stats->rx_poll_os_hit, 1);
	} else if (errno != EAGAIN) {
		stats_add(&s->stats->rx.os_errors, 1);
		/* Datagrams may wait behind an error. */
		atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release);
	} else if (s->kernel_has_older && !(givings & 1) && givings == atomic_load(&s->givings)) {
		/* Not what the kernel gets while this looks. */
		atomic_store_explicit(&s->kernel_has_older, false, memory_order_relaxed);
	}
	return n;
}

/* The kernel socket has something: is it its turn? */
static bool os_first(struct udp_sock *s)
{
	uint32_t events = atomic_load_explicit(&s->v.os_events, memory_order_relaxed);

	if (__builtin_expect(!events, 1))
		return false;
	if (atomic_load_explicit(&s->kernel_has_older, memory_order_relaxed))
		return true;
	/* What came before the kernel got the socket is older; an error does not queue. */
	if (atomic_load_explicit(&s->in_kernel, memory_order_relaxed))
		return events & EPOLLERR;
	return atomic_load_explicit(&s->os_turn, memory_order_relaxed) || (events & EPOLLERR);
}

/* Is it time to look at the kernel socket? */
static bool os_due(struct udp_sock *s)
{
	uint32_t left = atomic_load_explicit(&s->os_countdown, memory_order_relaxed);

	if (atomic_load_explicit(&s->v.os_events, memory_order_relaxed))
		return true;
	if (left > 1) {
		atomic_store_explicit(&s->os_countdown, left - 1, memory_order_relaxed);
		return false;
	}
	atomic_store_explicit(&s->os_countdown,
			      (uint32_t)params.rx_udp_poll_os_ratio * OS_LOOK_SPAN,
			      memory_order_relaxed);
	return left == 1;
}

/*
 * A call that does not wait must see what this process itself has sent before, by the kernel's
 * loopback: the worker, which would tell, may not have run yet. The same where nothing comes but by
 * the kernel.
 */
static bool os_unseen(const struct udp_sock *s)
{
	return !atomic_load_explicit(&s->natt, memory_order_acquire) ||
	       atomic_load_explicit(&s->in_kernel, memory_order_relaxed) ||
	       atomic_load_explicit(&s->sends_seen, memory_order_relaxed) !=
		       atomic_load_explicit(&udp_kernel_sends, memory_order_acquire);
}

/* --- waiting --- */

static bool has_come(void *arg)
{
	struct udp_sock *s = arg;

	return udp_events(&s->v) & (EPOLLIN | EPOLLERR | EPOLLRDHUP);
}

/*
 * Nothing was there: spin a little longer, sleep, or end the call. 0: look again, or negative
 * errno.
 */
static int wait_more(struct udp_sock *s, int fd, struct wait_call *w)
{
	int err;

	if (wait_call_closed(w))
		return -EBADF;
	if (wait_call_interrupted(w))
		return -EINTR;
	err = wait_call_spun(w);
	if (err <= 0)
		return err;
	err = wait_call_sleep(w, &s->v, fd, has_come, s);
	if (err > 0) {
		atomic_store_explicit(&s->os_countdown, 1, memory_order_relaxed);
		err = 0;
	}
	return err;
}

static ssize_t fail(struct udp_sock *s, int err)
{
	stats_add(err == EAGAIN ? &s->stats->rx.eagain : &s->stats->rx.errors, 1);
	errno = err;
	return -1;
}

/*
 * A reader that spins looks at what moves before it takes a lock: its own queue, the rings' hint,
 * the worker's word. Each WAIT_POLLS_PER_CLOCK times it polls all the same, for the ring's upkeep.
 * False: nothing to be had.
 */
static bool worth_polling(const struct udp_sock *s, const struct wait_call *w)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire);

	if (w->polls % WAIT_POLLS_PER_CLOCK == 0 ||
	    atomic_load_explicit(&s->v.os_events, memory_order_relaxed))
		return true;
	for (unsigned i = 0; i < n; i++) {
		const struct stack *st =
			atomic_load_explicit(&udp_att(s, i)->st, memory_order_relaxed);

		if (atomic_load_explicit(&udp_att(s, i)->queued, memory_order_relaxed))
			return true;
		/* A ring outlives its stack's end by seconds, so this look needs no lock. */
		if (atomic_load_explicit(&st->open, memory_order_acquire) &&
		    ring_ops(st->ring)->pending(st->ring))
			return true;
	}
	return false;
}

/* A call that slept has missed, whatever ended it; one that never waited counts as neither. */
static void count_wait(struct udp_sock *s, const struct wait_call *w, bool came)
{
	if (w->slept)
		stats_add(&s->stats->rx_poll_miss, 1);
	else
		stats_add(&s->stats->rx_poll_hit, came && w->polls);
	wait_call_count(w, came, &s->stats->waits);
}

/* As a blocking recvmsg() that a handler may have interrupted already. */
static ssize_t recv_interrupted(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = raw.recvmsg(fd, msg, flags | MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		errno = EINTR;
	return n;
}

/*
 * When the first look found nothing, or something unusual: the attachment whose head is to be
 * delivered, its stack locked; or NULL, and *n is what recvmsg() returns, msg filled by the kernel
 * socket. gen: of s, before the caller held it, if it does.
 */
static __attribute__((noinline)) struct udp_att *
wait_ready(struct udp_sock *s, int fd, uint32_t gen, struct msghdr *msg, int flags, ssize_t *n)
{
	bool nonblock = udp_is_nonblock(s, flags), holds = vfd_holds(&s->v);
	struct wait_signals begin = wait_signals_now();
	struct wait_call w;
	int err;

	if (holds)
		fd = vfd_held_fd(&s->v, fd);
	udp_begin(s, fd);
	if (!atomic_load_explicit(&s->natt, memory_order_acquire) &&
	    (s->in_kernel || s->kernel_rx)) {
		/* Nothing can come but by the kernel, and its own blocking is the best there is. */
		udp_claim(s);
		*n = nonblock || signals_interrupting == begin.interrupting
			     ? libc.recvmsg(fd, msg, flags)
			     : recv_interrupted(fd, msg, flags);
		return NULL;
	}
	wait_call_init(&w, &s->gen, s->o.rcvtimeo_ns,
		       atomic_load_explicit(&s->natt, memory_order_relaxed) ? params.rx_poll
									    : params.rx_poll_init,
		       &s->spin);
	wait_call_since(&w, &begin);
	/* Closed since the caller found it: from here on another s would be taken for it. */
	w.gen = gen;
	if (wait_call_closed(&w) || (!holds && vfd_get(fd) != &s->v)) {
		*n = fail(s, EBADF);
		return NULL;
	}
	for (;;) {
		struct udp_att *att;

		if (holds)
			fd = vfd_held_fd(&s->v, fd);
		/*
		 * An error goes before the data, as in the kernel. Data of the two ways takes
		 * turns: neither starves the other.
		 */
		if (os_first(s)) {
			*n = os_recv(s, fd, msg, flags | MSG_DONTWAIT);
			if (*n >= 0 || errno != EAGAIN)
				break;
		}
		att = worth_polling(s, &w) ? find_ready(s) : NULL;
		if (!att && stacks_show_due()) {
			if (!stacks_show()) {
				*n = fail(s, EINTR);
				break;
			}
			att = find_ready(s);
		}
		if (att) {
			turn_after(s, false, flags);
			count_wait(s, &w, true);
			wait_call_end(&w, true);
			return att;
		}
		if (os_due(s) || (nonblock && os_unseen(s))) {
			*n = os_recv(s, fd, msg, flags | MSG_DONTWAIT);
			if (*n >= 0 || errno != EAGAIN)
				break;
		}
		if (atomic_load_explicit(&s->shut_rd, memory_order_acquire)) {
			*n = libc.recvmsg(fd, msg, flags);
			break;
		}
		err = nonblock ? -EAGAIN : wait_more(s, fd, &w);
		if (err) {
			*n = fail(s, -err);
			break;
		}
	}
	count_wait(s, &w, *n >= 0);
	wait_call_end(&w, *n >= 0);
	return NULL;
}

/* A first look, before anything that waiting needs is made. As find_ready(). */
static inline struct udp_att *first_look(struct udp_sock *s)
{
	udp_receiving(s);
	if (__builtin_expect(atomic_load_explicit(&s->v.os_events, memory_order_relaxed), 0))
		return NULL;
	return find_ready(s);
}

struct udp_att *udp_ready(struct udp_sock *s, int fd, uint32_t gen, struct msghdr *msg, int flags,
			  ssize_t *n)
{
	struct udp_att *att = first_look(s);

	return att ? att : wait_ready(s, fd, gen, msg, flags, n);
}

/*
 * The rest of udp_recvmsg() when the first look found nothing; close() of another thread waits for
 * the end of a call that waits.
 */
static __attribute__((noinline)) ssize_t recvmsg_slow(struct udp_sock *s, int fd,
						      struct msghdr *msg, int flags)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	bool holds = !udp_is_nonblock(s, flags);
	struct udp_att *att;
	ssize_t n;

	if (holds && !vfd_hold(&s->v, fd))
		return fail(s, EBADF);
	att = wait_ready(s, fd, gen, msg, flags, &n);
	if (att)
		n = udp_deliver(s, att, msg, flags);
	if (holds)
		vfd_let_go();
	return n;
}

ssize_t udp_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	struct udp_sock *s = udp_of(v);
	struct udp_att *att;

	/*
	 * The error queue is the kernel socket's, as are the errors; flags unknown to UDP are
	 * ignored, as there.
	 */
	if (__builtin_expect((flags & MSG_ERRQUEUE) || msg->msg_iovlen > UIO_MAXIOV, 0)) {
		udp_note_tid(&s->stats->rx_tid);
		return libc.recvmsg(fd, msg, flags);
	}
	att = first_look(s);
	return att ? udp_deliver(s, att, msg, flags) : recvmsg_slow(s, fd, msg, flags);
}

/*
 * recvfrom() by way of a msghdr: *att is what to deliver plainly, or NULL and the result is
 * returned.
 */
static ssize_t recvfrom_msg(struct udp_sock *s, int fd, uint32_t gen, struct iovec *iov, int flags,
			    struct sockaddr *addr, socklen_t *alen, struct udp_att **att)
{
	struct msghdr msg = {
		.msg_name = addr,
		.msg_namelen = addr && alen ? *alen : 0,
		.msg_iov = iov,
		.msg_iovlen = 1,
	};
	ssize_t n;

	*att = NULL;
	if (flags & ~UDP_RX_FLAGS)
		n = udp_recvmsg(&s->v, fd, &msg, flags);
	else
		*att = wait_ready(s, fd, gen, &msg, flags, &n);
	if (!*att && n >= 0 && addr && alen)
		*alen = msg.msg_namelen;
	return n;
}

/* As recvmsg_slow(), of recvfrom(). */
static __attribute__((noinline)) ssize_t recvfrom_slow(struct udp_sock *s, int fd,
						       struct iovec *iov, int flags,
						       struct sockaddr *addr, socklen_t *alen)
{
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_acquire);
	bool holds = !udp_is_nonblock(s, flags);
	struct udp_att *att;
	ssize_t n;

	if (holds && !vfd_hold(&s->v, fd))
		return fail(s, EBADF);
	n = recvfrom_msg(s, fd, gen, iov, flags, addr, alen, &att);
	if (att)
		n = deliver_plain(s, att, iov->iov_base, iov->iov_len, addr, alen);
	if (holds)
		vfd_let_go();
	return n;
}

ssize_t udp_recvfrom_any(struct udp_sock *s, int fd, void *buf, size_t len, int flags,
			 struct sockaddr *addr, socklen_t *alen)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct udp_att *att = NULL;

	if (__builtin_expect(!(flags & ~UDP_RX_FLAGS), 1))
		att = first_look(s);
	return att ? deliver_plain(s, att, buf, len, addr, alen)
		   : recvfrom_slow(s, fd, &iov, flags, addr, alen);
}

static int recv_several(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
			struct timespec *timeout)
{
	uint64_t end = 0;
	unsigned got;

	if (timeout) {
		if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999) {
			errno = EINVAL;
			return -1;
		}
		end = clock_monotonic_ns() +
		      (uint64_t)(timeout->tv_sec < FOR_EVER_S ? timeout->tv_sec : FOR_EVER_S) *
			      1000000000u +
		      (uint64_t)timeout->tv_nsec;
	}
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	for (got = 0; got < n; got++) {
		ssize_t len = udp_recvmsg(v, vfd_holds(v) ? vfd_held_fd(v, fd) : fd,
					  &msgs[got].msg_hdr, flags & ~MSG_WAITFORONE);

		if (len < 0)
			break;
		msgs[got].msg_len = (unsigned)len;
		/* An error waits for the next call: this one has something to give. */
		if (atomic_load_explicit(&v->os_events, memory_order_relaxed) & EPOLLERR) {
			got++;
			break;
		}
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		/*
		 * As in the kernel, the timeout is looked at after each datagram only (recvmmsg(2),
		 * BUGS).
		 */
		if (end) {
			uint64_t now = clock_monotonic_ns(), left = now < end ? end - now : 0;

			timeout->tv_sec = (time_t)(left / 1000000000u);
			timeout->tv_nsec = (long)(left % 1000000000u);
			if (!left) {
				got++;
				break;
			}
		}
	}
	return got || !n ? (int)got : -1;
}

/* As udp_recvmmsg(); close() of another thread waits for its end. */
static int recvmmsg_held(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
			 struct timespec *timeout)
{
	int got;

	if (!vfd_hold(v, fd))
		return (int)fail(udp_of(v), EBADF);
	got = recv_several(v, fd, msgs, n, flags, timeout);
	vfd_let_go();
	return got;
}

int udp_recvmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
		 struct timespec *timeout)
{
	bool waits = !udp_of(v)->o.nonblock && !(flags & (MSG_DONTWAIT | MSG_WAITFORONE));

	/* Who waits for several waits between them, too; one is held where it waits. */
	return waits && n > 1 ? recvmmsg_held(v, fd, msgs, n, flags, timeout)
			      : recv_several(v, fd, msgs, n, flags, timeout);
}

/*
 * What the kernel socket has, asked only when the worker has seen something there: poll() must not
 * promise too much.
 */
static uint32_t os_ready(struct vfd *v)
{
	struct pollfd os = {.fd = atomic_load_explicit(&v->os_fd, memory_order_relaxed),
			    .events = POLLIN | POLLRDNORM | POLLPRI};

	if (__builtin_expect(!atomic_load_explicit(&v->os_events, memory_order_acquire), 1))
		return 0;
	atomic_store_explicit(&v->os_events, 0, memory_order_release);
	/* Not libc's poll(): that is a cancellation point, and an epoll set's lock may be held. */
	if (raw.poll(&os, 1, 0) <= 0)
		return 0;
	atomic_fetch_or_explicit(&v->os_events, (uint32_t)os.revents, memory_order_release);
	return (uint32_t)os.revents & (EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLPRI);
}

static bool any_queued(const struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		if (atomic_load_explicit(&udp_att(s, i)->queued, memory_order_acquire))
			return true;
	}
	return false;
}

/*
 * Datagrams wait here. While they go to the kernel socket one of them is still here and there
 * already, where another process may have read it: the answer is given when they are there.
 */
static bool is_queued(const struct udp_sock *s)
{
	uint32_t givings;
	bool queued;

	for (unsigned looks = 0;; looks++) {
		givings = atomic_load(&s->givings);
		queued = any_queued(s);
		if (__builtin_expect(!queued, 1))
			return false;
		if (__builtin_expect(!(givings & 1) && givings == atomic_load(&s->givings), 1) ||
		    looks == GIVING_LOOKS_MOST)
			return true;
		clock_sleep_ns(GIVING_LOOK_NS); /* no cancellation point, as in os_ready() */
	}
}

uint32_t udp_events(struct vfd *v)
{
	struct udp_sock *s = udp_of(v);
	uint32_t ev;

	udp_claim(s);
	ev = is_queued(s) ? EPOLLIN | EPOLLRDNORM : 0;
	/* In this order: what was on its way there has arrived. */
	ev |= os_ready(v);
	if (!atomic_load(&s->tx_refused) ||
	    atomic_load_explicit(&s->in_kernel, memory_order_relaxed))
		ev |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	if (atomic_load_explicit(&s->shut_rd, memory_order_acquire)) {
		ev |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
		if (atomic_load_explicit(&s->shut_wr, memory_order_acquire))
			ev |= EPOLLHUP;
	}
	return ev;
}

int udp_first_len(struct udp_sock *s, int fd)
{
	struct udp_att *att;
	const struct buf *b;
	int len;

	if ((s->kernel_has_older || os_first(s)) && udp_kernel_has(fd)) {
		turn_after(s, true, MSG_PEEK);
		return -1;
	}
	att = find_ready(s);
	if (!att)
		return -1;
	turn_after(s, false, MSG_PEEK);
	b = att->head;
	len = (int)(b->gso_size && !s->o.gro ? b->gso_size : b->total);
	lock_drop(&atomic_load_explicit(&att->st, memory_order_relaxed)->lock);
	return len;
}
