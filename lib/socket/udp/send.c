/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/send.h"

#define GSO_SEGMENTS_MAX 64u /* UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT */

#define TX_BURST 64u /* messages posted under one hold of the lock */
/*
 * So many datagrams of one size make a burst. Measured on a veth: a burst of any length costs what
 * two single frames cost (2.4 us to 1.3 us), so three are the first that gain.
 */
#define BURST_MIN 3u

/*
 * How a full ring is waited for: so often at once, then with a pause each. A queue that stands
 * still for a second or two is no queue: the kernel sends then.
 */
#define ROOM_TRIES 64u
#define ROOM_PAUSES 20000u
#define ROOM_PAUSE_NS 50000u

_Atomic uint32_t udp_tick;
_Atomic uint32_t udp_kernel_sends;

enum tx_result {
	TX_DONE, /* posted; the stack is to be kicked */
	TX_SENT, /* transmitted, nothing to kick */
	TX_KERNEL, /* the kernel socket must send it */
	TX_AGAIN, /* dropped: the ring is full, and the program wants to be told */
	TX_RESOLVE, /* no remembered destination fits */
};

/* A call that waits for room, as in the kernel for room in the socket's buffer. */
static bool may_sleep(const struct udp_sock *s, const struct udp_tx *t)
{
	return !(t->flags & MSG_DONTWAIT) &&
	       !atomic_load_explicit(&s->o.nonblock, memory_order_relaxed);
}

/*
 * The ring was full, as in so many tries before: the device is made to work. The lock is held,
 * given up meanwhile. False: no more tries, or the stack has another ring or none.
 */
static bool make_room(const struct udp_sock *s, struct stack *st, const struct udp_tx *t,
		      unsigned tries)
{
	bool sleeps = tries >= ROOM_TRIES, lost;
	struct ring *r = st->ring;

	if (sleeps && (tries >= ROOM_TRIES + ROOM_PAUSES || !may_sleep(s, t)))
		return false;
	lock_drop(&st->lock);
	/* What is in the ring of an interface that is down does not leave. */
	lost = ring_kick(r) && sleeps;
	if (sleeps && !lost)
		clock_sleep_ns(ROOM_PAUSE_NS);
	lock_take(&st->lock);
	return !lost && atomic_load_explicit(&st->open, memory_order_relaxed) && st->ring == r;
}

/* A transmit buffer when all are in flight. As make_room(). */
static struct buf *tx_buf_wait(const struct udp_sock *s, struct stack *st, const struct udp_tx *t,
			       uint32_t room)
{
	struct buf *b = NULL;

	ring_burst_end(st->ring);
	for (unsigned tries = 0; !b && make_room(s, st, t, tries); tries++)
		b = ring_tx_alloc(st->ring, room);
	return b;
}

/* This one the kernel sends, and why. */
static __attribute__((noinline, cold)) enum tx_result by_kernel_why(struct udp_sock *s,
								    enum vma_why reason)
{
	udp_why(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), VMA_WHY_TX, reason);
	return TX_KERNEL;
}

/*
 * The ring stays full. In its place the kernel sends; VMA_TX_NONBLOCKED_EAGAINS has a program that
 * does not wait try again itself.
 */
static __attribute__((noinline, cold)) enum tx_result
ring_full(struct udp_sock *s, struct stack *st, const struct udp_tx *t)
{
	if (params.tx_nonblocked_eagains && !may_sleep(s, t)) {
		atomic_store_explicit(&s->refused_by, st, memory_order_relaxed);
		return TX_AGAIN;
	}
	return by_kernel_why(s, VMA_WHY_RING_FULL);
}

/* The lock is held and d is good. */
static inline __attribute__((always_inline)) enum tx_result
post(struct udp_sock *s, struct stack *st, struct udp_dst *d, const struct udp_tx *t)
{
	uint32_t room = d->hdr.len + (uint32_t)t->len;
	struct buf *b;

	if (t->len > d->max_payload)
		return by_kernel_why(s, VMA_WHY_FRAGMENT); /* it fragments, or says EMSGSIZE */
	b = ring_tx_alloc(st->ring, room);
	if (__builtin_expect(!b, 0)) {
		b = tx_buf_wait(s, st, t, room);
		/* Another thread may have put another destination in d's place meanwhile. */
		if (b && (atomic_load_explicit(&d->st, memory_order_relaxed) != st ||
			  !udp_dst_good(s, d, t))) {
			buf_free(b);
			return TX_RESOLVE;
		}
	}
	/* Header and payload: the ring lets 64 bytes be written in any case. */
	if (!b)
		return ring_full(s, st, t);
	if (b->room < room) {
		buf_free(b);
		return by_kernel_why(s, VMA_WHY_FRAGMENT);
	}
	b->len = b->total =
		udp_frame_for(st->ring, &d->hdr, b->data, t->iov, t->iovcnt, (uint32_t)t->len);
	if (ring_post(st->ring, b)) {
		buf_free(b);
		return ring_full(s, st, t);
	}
	return TX_DONE;
}

/* The same in a burst. */
static inline enum tx_result post_in_burst(struct udp_sock *s, struct stack *st, struct udp_dst *d,
					   const struct udp_tx *t)
{
	struct ring *r = st->ring;
	uint8_t *at = r->ops->burst_add && t->len <= d->max_payload && ring_frames_unlogged()
			      ? r->ops->burst_add(r, d->hdr.len + (uint32_t)t->len)
			      : NULL;

	if (!at)
		return post(s, st, d, t);
	udp_frame_for(r, &d->hdr, at, t->iov, t->iovcnt, (uint32_t)t->len);
	return TX_DONE;
}

/*
 * UDP_SEGMENT: one frame that is cut behind the ring. The lock is held, and given up where that is
 * a system call. TX_AGAIN: the ring stays full.
 */
static enum tx_result send_gso(const struct udp_sock *s, struct stack *st, struct udp_dst *d,
			       const struct udp_tx *t)
{
	struct iovec iov[UDP_BURST_IOV + 1];
	struct ring_gso g = {
		.hdr_len = d->hdr.len,
		.l4_off = (uint16_t)(d->hdr.len - 8),
		.csum_off = 6,
		.gso_size = (uint16_t)t->gso_size,
		.proto = IPPROTO_UDP,
		.family = d->hdr.family,
	};
	struct ring *ring = st->ring;
	uint8_t hdr[64];
	int err;

	if (t->gso_size > d->max_payload || t->len + d->hdr.len > ring->caps.max_gso ||
	    t->len > UDP_PAYLOAD_MAX || t->len > (size_t)t->gso_size * GSO_SEGMENTS_MAX ||
	    t->iovcnt > UDP_BURST_IOV)
		return TX_KERNEL;
	udp_frame_gso(&d->hdr, hdr, (uint32_t)t->len);
	/* The segments get consecutive identifications, where the header has any. */
	d->hdr.ip_id += (uint16_t)((t->len - 1) / t->gso_size);
	iov[0] = (struct iovec){.iov_base = hdr, .iov_len = d->hdr.len};
	memcpy(iov + 1, t->iov, (size_t)t->iovcnt * sizeof(*iov));
	for (unsigned tries = 0;; tries++) {
		if (!ring->caps.gso_locked)
			lock_drop(&st->lock);
		err = ring_send_gso(ring, iov, t->iovcnt + 1, &g);
		if (!ring->caps.gso_locked)
			lock_take(&st->lock);
		if (err != -EAGAIN || st->ring != ring || !make_room(s, st, t, tries))
			break;
	}
	if (err == -EAGAIN)
		return TX_AGAIN;
	return err ? TX_KERNEL : TX_SENT;
}

/*
 * The remembered destination of t, its stack locked. TX_DONE: *out is it; TX_RESOLVE: there is none
 * that is good; TX_KERNEL: a signal handler in the middle of a call.
 */
static inline __attribute__((always_inline)) enum tx_result
dst_lock(struct udp_sock *s, const struct udp_tx *t, struct udp_dst **out)
{
	struct udp_dst *dsts = atomic_load_explicit(&s->dsts, memory_order_acquire), *d;
	struct stack *st;

	if (!dsts)
		return TX_RESOLVE;
	d = udp_dst_slot(dsts, t->addr, t->alen);
	st = atomic_load_explicit(&d->st, memory_order_acquire);
	if (!st)
		return TX_RESOLVE;
	if (!lock_get(&st->lock))
		return TX_KERNEL;
	if (atomic_load_explicit(&d->st, memory_order_relaxed) != st ||
	    !atomic_load_explicit(&st->open, memory_order_relaxed) || !udp_dst_good(s, d, t)) {
		lock_drop(&st->lock);
		return TX_RESOLVE;
	}
	if (__builtin_expect(d->stale, 0)) {
		d->stale = !net_neigh_confirm(d->ifindex, &d->next_hop);
		udp_dst_fast_path(d, s);
	}
	atomic_store_explicit(&s->dst_last, d, memory_order_release);
	*out = d;
	return TX_DONE;
}

/* The lock is held and d is good. */
static inline __attribute__((always_inline)) enum tx_result
transmit(struct udp_sock *s, struct stack *st, struct udp_dst *d, const struct udp_tx *t)
{
	enum tx_result res;

	if (!t->gso_size || t->len <= t->gso_size)
		return post(s, st, d, t);
	res = send_gso(s, st, d, t);
	if (res == TX_AGAIN)
		return ring_full(s, st, t);
	return res == TX_KERNEL ? by_kernel_why(s, VMA_WHY_SEGMENTS) : res;
}

/*
 * The fast path: a remembered destination and a free buffer. On TX_DONE *out is the stack to kick.
 */
static inline __attribute__((always_inline)) enum tx_result
try_send(struct udp_sock *s, const struct udp_tx *t, struct stack **out)
{
	struct udp_dst *d;
	enum tx_result res = dst_lock(s, t, &d);
	struct stack *st;

	if (res != TX_DONE)
		return res;
	st = atomic_load_explicit(&d->st, memory_order_relaxed);
	res = transmit(s, st, d, t);
	lock_drop(&st->lock);
	*out = st;
	return res;
}

/* As send_one(), for a datagram whose ancillary data says c: its destination is not remembered. */
static __attribute__((noinline)) enum tx_result
send_once(struct udp_sock *s, int fd, struct udp_tx *t, const struct udp_ctl *c, struct stack **out)
{
	enum tx_result res = TX_RESOLVE;

	/* Twice, as in send_resolved(). */
	for (int i = 0; res == TX_RESOLVE && i < 2; i++) {
		struct udp_dst d = {.stale = false};
		struct stack *st;

		if (!udp_resolve_once(s, fd, t, c, &d))
			return TX_KERNEL;
		st = atomic_load_explicit(&d.st, memory_order_relaxed);
		if (!lock_get(&st->lock))
			return TX_KERNEL;
		if (atomic_load_explicit(&st->open, memory_order_relaxed) && udp_dst_good(s, &d, t))
			res = transmit(s, st, &d, t);
		lock_drop(&st->lock);
		*out = st;
	}
	return res == TX_RESOLVE ? TX_KERNEL : res;
}

/* When no remembered destination fits. As send_one(). */
static __attribute__((noinline)) enum tx_result send_resolved(struct udp_sock *s, int fd,
							      struct udp_tx *t, struct stack **out)
{
	static const struct udp_ctl none = UDP_CTL_NONE;
	enum tx_result res = TX_RESOLVE;

	if (udp_is_looped(s, t))
		return send_once(s, fd, t, &none, out);
	/*
	 * Twice: the world may change between resolving and sending; after that the kernel decides.
	 */
	for (int i = 0; res == TX_RESOLVE && i < 2; i++) {
		if (!udp_resolve(s, fd, t))
			return TX_KERNEL;
		res = try_send(s, t, out);
	}
	return res == TX_RESOLVE ? TX_KERNEL : res;
}

/* Sends one datagram in user space if that is possible. TX_DONE: *out wants a kick. */
static inline __attribute__((always_inline)) enum tx_result
send_one(struct udp_sock *s, int fd, struct udp_tx *t, struct stack **out)
{
	enum tx_result res = try_send(s, t, out);

	return __builtin_expect(res == TX_RESOLVE, 0) ? send_resolved(s, fd, t, out) : res;
}

/* What the kernel reads of an address of so many bytes: what is behind its family's may be
 * anything.
 */
static inline socklen_t own_len(const struct sockaddr *addr, socklen_t len)
{
	socklen_t own = sizeof(struct sockaddr_in6);

	if (len >= sizeof(struct sockaddr_in) && addr->sa_family == AF_INET)
		own = sizeof(struct sockaddr_in);
	return len < own ? len : own;
}

/* True when nothing about the socket or the call keeps it out of user space. Completes t. */
static inline bool eligible(struct udp_sock *s, struct udp_tx *t, int flags)
{
	if ((flags & ~UDP_TX_FLAGS) || t->len > UDP_PAYLOAD_MAX)
		return false;
	if (atomic_load_explicit(&s->in_kernel, memory_order_relaxed) ||
	    atomic_load_explicit(&s->shut_wr, memory_order_relaxed) ||
	    atomic_load_explicit(&s->corked, memory_order_relaxed))
		return false;
	/*
	 * An error that the kernel socket holds (an ICMP answer) is this call's to report:
	 * by_kernel() takes it.
	 */
	if (__builtin_expect(atomic_load_explicit(&s->v.os_events, memory_order_relaxed) & EPOLLERR,
			     0))
		return false;
	t->flags = flags;
	if (!t->addr) {
		if (!s->connected)
			return false;
		t->alen = udp_tx_peer(s, t);
		t->addr = &t->peer.sa;
		t->to_peer = true;
	} else if (__builtin_expect(t->alen != sizeof(struct sockaddr_in), 0)) {
		if (t->alen > sizeof(struct sockaddr_storage))
			return false; /* EINVAL */
		t->alen = own_len(t->addr, t->alen);
	}
	return true;
}

struct udp_dst *udp_tx_lock(struct udp_sock *s, int fd, struct udp_tx *t, int flags)
{
	enum tx_result res = TX_KERNEL;
	struct udp_dst *d;

	if (eligible(s, t, flags))
		res = dst_lock(s, t, &d);
	if (res == TX_RESOLVE && udp_resolve(s, fd, t))
		res = dst_lock(s, t, &d);
	return res == TX_DONE ? d : NULL;
}

/*
 * Before a send by the kernel socket, which reports a pending error: what comes after this sets the
 * flag again.
 */
static void by_kernel(struct udp_sock *s)
{
	stack_round_flush(); /* what was sent before leaves before */
	if (atomic_load_explicit(&s->v.os_events, memory_order_relaxed) & EPOLLERR)
		atomic_fetch_and_explicit(&s->v.os_events, ~(uint32_t)EPOLLERR,
					  memory_order_acq_rel);
}

/* What the kernel socket answered to a send with these flags. */
static void count_os(struct udp_sock *s, ssize_t n, int flags)
{
	int err = errno;

	/* MSG_MORE: the datagram is being put together there, its next part must follow. */
	atomic_store_explicit(&s->corked, n >= 0 && (flags & MSG_MORE), memory_order_relaxed);

	if (n >= 0) {
		atomic_fetch_add_explicit(&udp_kernel_sends, 1, memory_order_release);
		stats_add(&s->stats->tx.os_packets, 1);
		stats_add(&s->stats->tx.os_bytes, (uint64_t)n);
	} else if (err == EAGAIN) {
		stats_add(&s->stats->tx.os_eagain, 1);
	} else {
		stats_add(&s->stats->tx.os_errors, 1);
	}
	errno = err;
}

static inline bool has_control(const struct msghdr *msg)
{
	return msg->msg_control && msg->msg_controllen;
}

/*
 * Of a call, not of its destination (udp_resolve()) or its length: why the kernel sends it; msg:
 * NULL, or what may have ancillary data.
 */
static __attribute__((noinline)) void note_why(struct udp_sock *s, int fd, const struct msghdr *msg,
					       int flags)
{
	struct vma_stats_why why = {0};
	struct udp_ctl c;
	uint32_t gso_size;

	if (atomic_load_explicit(&s->in_kernel, memory_order_relaxed) ||
	    atomic_load_explicit(&s->shut_wr, memory_order_relaxed))
		return;
	if (atomic_load_explicit(&s->corked, memory_order_relaxed) || (flags & MSG_MORE))
		why.reason = VMA_WHY_CORKED;
	else if (flags & ~UDP_TX_FLAGS)
		why = (struct vma_stats_why){VMA_WHY_FLAGS, flags & ~UDP_TX_FLAGS};
	else if (msg && has_control(msg) && !udp_cmsg_tx(msg, &c, &gso_size))
		why.reason = VMA_WHY_ANCILLARY;
	if (why.reason)
		stats_why(s->stats, fd, VMA_WHY_TX, why);
}

/* What a call with TX_AGAIN returns. */
static __attribute__((noinline, cold)) ssize_t refused(struct udp_sock *s)
{
	stats_add(&s->stats->tx.eagain, 1);
	udp_tx_refused(s);
	errno = EAGAIN;
	return -1;
}

ssize_t udp_sendto_any(struct udp_sock *s, int fd, const void *buf, size_t len, int flags,
		       const struct sockaddr *addr, socklen_t alen)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
	struct udp_tx t = {.iov = &iov,
			   .iovcnt = 1,
			   .len = len,
			   .addr = addr,
			   .alen = alen,
			   .gso_size = s->o.gso_size};
	struct stack *st;
	ssize_t n;

	udp_sending(s);
	if (eligible(s, &t, flags)) {
		enum tx_result res = send_one(s, fd, &t, &st);

		if (__builtin_expect(res == TX_DONE, 1))
			stack_round_sent(st, st->ring);
		if (__builtin_expect(res == TX_AGAIN, 0))
			return refused(s);
		if (res != TX_KERNEL) {
			udp_count_sent(s, len);
			return (ssize_t)len;
		}
	}
	if (__builtin_expect(flags & VMA_SND_FLAGS_DUMMY, 0))
		return udp_send_dummy(s, fd, &t, flags);
	note_why(s, fd, NULL, flags);
	by_kernel(s);
	n = libc.sendto(fd, buf, len, flags, addr, alen);
	count_os(s, n, flags);
	return n;
}

/* Prepares t from a msghdr but for ancillary data; false when the kernel should look at it. */
static bool tx_of_msg(const struct udp_sock *s, const struct msghdr *msg, struct udp_tx *t)
{
	*t = (struct udp_tx){
		.iov = msg->msg_iov,
		.iovcnt = (int)msg->msg_iovlen,
		.addr = msg->msg_name,
		.alen = msg->msg_namelen,
		.gso_size = s->o.gso_size,
	};
	if (msg->msg_iovlen > UIO_MAXIOV)
		return false;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		if (msg->msg_iov[i].iov_len > UDP_PAYLOAD_MAX)
			return false;
		t->len += msg->msg_iov[i].iov_len;
	}
	return true;
}

/* Its ancillary data. False as in tx_of_msg(). */
static bool ctl_of_msg(const struct msghdr *msg, struct udp_tx *t, struct udp_ctl *c)
{
	c->given = false;
	return !has_control(msg) || udp_cmsg_tx(msg, c, &t->gso_size);
}

/* One message; like send_one(), with the kernel's answer in *n when it had to send. */
static enum tx_result send_msg(struct udp_sock *s, int fd, const struct msghdr *msg, int flags,
			       struct stack **kick, ssize_t *n)
{
	enum tx_result res = TX_KERNEL;
	struct stack *st = NULL;
	struct udp_ctl c;
	struct udp_tx t;

	if (tx_of_msg(s, msg, &t) && ctl_of_msg(msg, &t, &c) && eligible(s, &t, flags))
		res = c.given ? send_once(s, fd, &t, &c, &st) : send_one(s, fd, &t, &st);
	if (__builtin_expect(res == TX_AGAIN, 0)) {
		*n = refused(s);
		return res;
	}
	if (res != TX_KERNEL) {
		/*
		 * Frames of another stack leave first: one kick a stack, and order is kept where it
		 * can be.
		 */
		if (res == TX_DONE && *kick && *kick != st)
			ring_kick((*kick)->ring);
		if (res == TX_DONE)
			*kick = st;
		udp_count_sent(s, t.len);
		*n = (ssize_t)t.len;
		return res;
	}
	if (*kick)
		ring_kick((*kick)->ring);
	*kick = NULL;
	if (__builtin_expect(flags & VMA_SND_FLAGS_DUMMY, 0)) {
		*n = udp_send_dummy(s, fd, &t, flags);
		return res;
	}
	note_why(s, fd, msg, flags);
	by_kernel(s);
	*n = libc.sendmsg(fd, msg, flags);
	count_os(s, *n, flags);
	return res;
}

ssize_t udp_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	struct udp_sock *s = udp_of(v);
	struct stack *kick = NULL;
	ssize_t n;

	udp_sending(s);
	send_msg(s, fd, msg, flags, &kick, &n);
	if (kick)
		stack_round_sent(kick, kick->ring);
	return n;
}

/*
 * Does the ring that t would go by send bursts in their order? A hint, without a lock: a ring
 * outlives its stack's end by seconds.
 */
static bool bursts_pay(const struct udp_sock *s, const struct udp_tx *t)
{
	struct udp_dst *dsts = atomic_load_explicit(&s->dsts, memory_order_acquire);
	struct stack *st = dsts ? atomic_load_explicit(&udp_dst_slot(dsts, t->addr, t->alen)->st,
						       memory_order_acquire)
				: NULL;

	return st && atomic_load_explicit(&st->open, memory_order_acquire) &&
	       __atomic_load_n(&st->ring->caps.gso_in_order, __ATOMIC_RELAXED);
}

/*
 * Sends the leading messages as one burst where that is worth it and keeps the order of what was
 * sent before. Returns how many went; 0: they are to be sent one by one.
 */
static unsigned send_burst(struct udp_sock *s, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct udp_burst tr;
	struct udp_tx t, whole;
	struct udp_dst *d;
	struct stack *st;
	enum tx_result res = TX_KERNEL;

	if (n < BURST_MIN || has_control(&msgs[0].msg_hdr) || !tx_of_msg(s, &msgs[0].msg_hdr, &t) ||
	    t.gso_size || !eligible(s, &t, flags) || !bursts_pay(s, &t))
		return 0;
	udp_burst_gather(&tr, msgs, n < GSO_SEGMENTS_MAX ? n : GSO_SEGMENTS_MAX, &t);
	if (tr.count < BURST_MIN || dst_lock(s, &t, &d) != TX_DONE)
		return 0;
	st = atomic_load_explicit(&d->st, memory_order_relaxed);
	if (__atomic_load_n(&st->ring->caps.gso_in_order, __ATOMIC_RELAXED)) {
		whole = t;
		whole.iov = tr.iov;
		whole.iovcnt = tr.iovcnt;
		whole.len = tr.len;
		whole.gso_size = (uint32_t)t.len;
		res = send_gso(s, st, d, &whole);
	}
	lock_drop(&st->lock);
	if (res != TX_SENT)
		return 0;
	for (unsigned i = 0; i < tr.count; i++)
		msgs[i].msg_len = (unsigned)t.len;
	/* Only the last one may be shorter. */
	msgs[tr.count - 1].msg_len = (unsigned)(tr.len - t.len * (tr.count - 1));
	stats_add(&s->stats->tx.packets, tr.count);
	stats_add(&s->stats->tx.bytes, tr.len);
	return tr.count;
}

/*
 * Posts the leading messages that go where the first one goes and need nothing special, under one
 * hold of the lock. Returns how many; *kick is their stack then. 0: the first one is not for this
 * way.
 */
static unsigned post_burst(struct udp_sock *s, struct mmsghdr *msgs, unsigned n, int flags,
			   struct stack **kick)
{
	struct stack *st;
	struct udp_dst *d;
	uint64_t bytes = 0;
	unsigned sent;
	struct udp_tx t;
	union udp_addr to;
	socklen_t to_len;
	bool to_peer;

	if (has_control(&msgs[0].msg_hdr) || !tx_of_msg(s, &msgs[0].msg_hdr, &t) ||
	    !eligible(s, &t, flags) || t.gso_size || dst_lock(s, &t, &d) != TX_DONE)
		return 0;
	/* post() may wait for room without the lock, and find another destination in d's place. */
	to_peer = t.to_peer;
	to_len = d->key_len;
	memcpy(&to, d->key, to_len);
	st = atomic_load_explicit(&d->st, memory_order_relaxed);
	if (n > 1)
		ring_burst_begin(st->ring);
	for (sent = 0; sent < n; sent++) {
		const struct msghdr *m = &msgs[sent].msg_hdr;

		if (sent) {
			bool same = m->msg_name ? m->msg_namelen == to_len &&
							  !memcmp(m->msg_name, &to, to_len)
						: to_peer;

			if (!same || has_control(m) || !tx_of_msg(s, m, &t))
				break;
			t.addr = &to.sa;
			t.alen = to_len;
		}
		if (post_in_burst(s, st, d, &t) != TX_DONE)
			break;
		msgs[sent].msg_len = (unsigned)t.len;
		bytes += t.len;
	}
	ring_burst_end(st->ring);
	lock_drop(&st->lock);
	if (!sent)
		return 0;
	if (*kick && *kick != st)
		ring_kick((*kick)->ring);
	*kick = st;
	stats_add(&s->stats->tx.packets, sent);
	stats_add(&s->stats->tx.bytes, bytes);
	return sent;
}

int udp_sendmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	struct udp_sock *s = udp_of(v);
	struct stack *kick = NULL;
	unsigned sent = 0;

	udp_sending(s);
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	while (sent < n) {
		unsigned left = n - sent, k = send_burst(s, msgs + sent, left, flags);
		ssize_t len;

		if (!k)
			k = post_burst(s, msgs + sent, left < TX_BURST ? left : TX_BURST, flags,
				       &kick);
		sent += k;
		if (k)
			continue;
		send_msg(s, fd, &msgs[sent].msg_hdr, flags, &kick, &len);
		if (len < 0)
			break;
		msgs[sent++].msg_len = (unsigned)len;
	}
	if (kick)
		stack_round_sent(kick, kick->ring);
	return sent || !n ? (int)sent : -1;
}
