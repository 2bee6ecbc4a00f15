/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The shortest ways of a datagram: to where the one before it went, and from the device straight to the reader. */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "mem/copy.h"
#include "proto/pkt_udp4.h"
#include "socket/tcp.h"
#include "socket/udp_tx_int.h"

static inline bool same_key(const uint8_t *key, const struct sockaddr *addr)
{
	uint64_t a[2], b[2];

	memcpy(a, key, sizeof(a));
	memcpy(b, addr, sizeof(b));
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

/* Is d still what st sends to addr by? st's lock is held. */
static inline bool good(const struct udp_sock *s, const struct udp_dst *d, const struct stack *st,
			const struct sockaddr *addr, size_t len)
{
	return atomic_load_explicit(&d->st, memory_order_relaxed) == st &&
	       atomic_load_explicit(&st->open, memory_order_relaxed) && d->key_len == sizeof(struct sockaddr_in) &&
	       same_key(d->key, addr) && d->net_gen == net_generation() &&
	       d->neigh_gen == net_neigh_generation() &&
	       d->opt_gen == atomic_load_explicit(&s->opt_gen, memory_order_relaxed) && !d->stale &&
	       len <= d->max_payload;
}

/* Something about the socket that keeps its datagrams out of user space, or makes them special. */
static inline bool special(const struct udp_sock *s)
{
	return atomic_load_explicit(&s->special, memory_order_relaxed) || s->o.gso_size ||
	       /* An error of the kernel socket's is this call's to report. */
	       (atomic_load_explicit(&s->v.os_events, memory_order_relaxed) & EPOLLERR);
}

/* A good destination, the lock held; by a buffer. */
static __attribute__((noinline)) bool post(struct stack *st, struct udp_dst *d, const void *data, size_t len)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct buf *b = ring_tx_alloc(st->ring, d->hdr.len + (uint32_t)len);

	if (__builtin_expect(!b, 0))
		return false;
	if (__builtin_expect(b->room >= sizeof(d->hdr.bytes) + len, 1)) {
		b->len = b->total = udp_frame_for(st->ring, &d->hdr, b->data, &iov, 1, (uint32_t)len);
		if (__builtin_expect(!ring_post(st->ring, b), 1))
			return true;
	}
	buf_free(b);
	return false;
}

/* By a buffer, the lock held, which it gives back. False: nothing was sent. */
static __attribute__((noinline)) bool post_and_kick(struct stack *st, struct udp_dst *d, const void *data, size_t len)
{
	struct ring *r = st->ring;
	bool sent = post(st, d, data, len);

	lock_drop(&st->lock);
	if (sent)
		ring_kick(r);
	return sent;
}

/* st, which is d's, is locked, and gets unlocked. */
static __attribute__((noinline)) ssize_t send_locked(struct udp_sock *s, const void *data, size_t len, struct udp_dst *d,
						     struct stack *st, uint64_t fd_flags)
{
	struct ring *r = st->ring;
	struct sockaddr_in to;

	if (__builtin_expect(r->caps.tx_csum, 1)) {
		udp_hdr_v4(&d->hdr, (uint32_t)len);
		if (__builtin_expect(r->ops->send_short(r, d->hdr.bytes, d->hdr.len, data, (uint32_t)len), 1)) {
			lock_drop(&st->lock);
			udp_count_sent(s, len);
			return (ssize_t)len;
		}
	}
	memcpy(&to, d->key, sizeof(to));
	if (post_and_kick(st, d, data, len)) {
		udp_count_sent(s, len);
		return (ssize_t)len;
	}
	return udp_sendto_any(s, (int)(uint32_t)fd_flags, data, len, (int)(fd_flags >> 32), (struct sockaddr *)&to,
			      sizeof(to));
}

/* After lock_enter(): the lock is taken, or d is not good any more; then it is to be dropped. The other ways take care of the rest. */
static __attribute__((noinline)) ssize_t send_contended(struct udp_sock *s, int fd, const void *buf, size_t len, int flags,
							const struct sockaddr *addr, socklen_t alen)
{
	lock_leave();
	return udp_sendto_any(s, fd, buf, len, flags, addr, alen);
}

static __attribute__((noinline)) ssize_t send_changed(struct udp_sock *s, int fd, const void *buf, size_t len, int flags,
						      const struct sockaddr *addr, struct stack *st)
{
	lock_drop(&st->lock);
	return udp_sendto_any(s, fd, buf, len, flags, addr, sizeof(struct sockaddr_in));
}

/* Calls nothing but what its end is: so it has nothing to save. */
ssize_t udp_sendto(struct vfd *v, int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
		   socklen_t alen)
{
	struct udp_sock *s = udp_of(v);
	struct udp_dst *d = atomic_load_explicit(&s->dst_last, memory_order_acquire);
	uint32_t me = lock_thread.tid;
	struct stack *st;

	/* With dst_last there is a tx_tid, so a thread that does not know its own yet is another. */
	if (!d || !addr || (flags & ~UDP_TX_FLAGS) || len - 1 >= SMALL_PAYLOAD || alen != sizeof(struct sockaddr_in) ||
	    __atomic_load_n(&s->stats->tx_tid, __ATOMIC_RELAXED) != me || special(s))
		return udp_sendto_any(s, fd, buf, len, flags, addr, alen);
	st = atomic_load_explicit(&d->st, memory_order_acquire);
	if (!st)
		return udp_sendto_any(s, fd, buf, len, flags, addr, alen);
	if (__builtin_expect(!lock_get_now(&st->lock, me), 0))
		return send_contended(s, fd, buf, len, flags, addr, alen);
	if (__builtin_expect(!good(s, d, st, addr, len), 0))
		return send_changed(s, fd, buf, len, flags, addr, st);
	return send_locked(s, buf, len, d, st, (uint64_t)(uint32_t)flags << 32 | (uint32_t)fd);
}

/* --- receiving */

/* Is the datagram for b, the only one that has its port, and for no group? */
static inline bool for_us(const struct udp_bind *b, const struct pkt_udp4 *u)
{
	uint32_t local;

	memcpy(&local, &b->local.s6_addr[12], 4);
	if (u->dport != htons(b->lport) || b->family != AF_INET || b->bound_if)
		return false;
	if (b->local_any)
		return !IN_MULTICAST(ntohl(u->dst)) && u->dst != INADDR_BROADCAST;
	return u->dst == local && !IN_MULTICAST(ntohl(u->dst));
}

/* The payload and its sender go to the user. Returns the bytes copied. */
static inline ssize_t hand_out(const uint8_t *from, const struct pkt_udp4 *u, void *to, size_t room,
			       struct sockaddr *addr, socklen_t *alen)
{
	size_t n = u->len < room ? u->len : room;

	if (__builtin_expect(n >= 16 && n <= 64, 1))
		copy_short(to, from, n);
	else if (n)
		memcpy(to, from, n);
	if (addr) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = u->sport, .sin_addr.s_addr = u->src};

		memcpy(addr, &in, sizeof(in));
		*alen = sizeof(in);
	}
	return (ssize_t)n;
}

/* The stack is locked, and b is not what receive_locked() hands out: it goes its way, and the call another. */
static __attribute__((noinline)) void give_away(struct stack *st, struct buf *b)
{
	if (b)
		stack_input(st, b);
	else if (st->tcp)
		tsock_polled(st, 0, 0);
	lock_drop(&st->lock);
}

/*
 * The one attachment's stack is locked and nothing is queued: takes a frame off the ring. If it is for us, and nothing but an address
 * is wanted with it, it is handed out. The lock is given back.
 */
static __attribute__((noinline)) ssize_t receive_locked(struct udp_sock *s, uint64_t fd_flags, void *buf, size_t len,
							struct sockaddr *addr, socklen_t *alen)
{
	struct udp_att *att = s->att[0];
	struct stack *st = atomic_load_explicit(&att->st, memory_order_relaxed);
	struct buf *b = NULL;
	struct pkt_udp4 u;
	ssize_t n;

	st->polls++;
	if (!ring_poll(st->ring, &b, 1) || !pkt_udp4(b, &u) || !for_us(&att->bind, &u) ||
	    !udp_demux_sole(&st->udp, &att->bind)) {
		give_away(st, b);
		return udp_recvfrom_any(s, (int)(uint32_t)fd_flags, buf, len, (int)(fd_flags >> 32), addr, alen);
	}
	n = hand_out(b->data + PKT_UDP4_HEADERS, &u, buf, len, addr, alen);
	s->last_time_ns = UDP_UNSTAMPED;
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, u.len);
	buf_free(b);
	if (st->tcp)
		tsock_polled(st, 1, 0);
	lock_drop(&st->lock);
	return n;
}

/* Nothing about socket and call is special: what is there comes from one ring, and nobody else wants to know of it. */
static inline bool plain_reader(const struct udp_sock *s, int flags, const struct sockaddr *addr, const socklen_t *alen)
{
	return !(flags & ~UDP_RX_FLAGS) && !atomic_load_explicit(&s->v.os_events, memory_order_relaxed) &&
	       atomic_load_explicit(&s->natt, memory_order_acquire) == 1 &&
	       !atomic_load_explicit(&s->v.watches, memory_order_relaxed) &&
	       __atomic_load_n(&s->stats->rx_tid, __ATOMIC_RELAXED) == lock_thread.tid && lock_thread.tid &&
	       (!addr || (alen && *alen >= sizeof(struct sockaddr_in))) &&
	       !atomic_load_explicit(&stack_timestamps_wanted, memory_order_relaxed);
}

static __attribute__((noinline)) ssize_t receive_contended(struct udp_sock *s, int fd, void *buf, size_t len, int flags,
							   struct sockaddr *addr, socklen_t *alen)
{
	lock_leave();
	return udp_recvfrom_any(s, fd, buf, len, flags, addr, alen);
}

static __attribute__((noinline)) ssize_t receive_queued(struct udp_sock *s, int fd, void *buf, size_t len, int flags,
							struct sockaddr *addr, socklen_t *alen, struct stack *st)
{
	lock_drop(&st->lock);
	return udp_recvfrom_any(s, fd, buf, len, flags, addr, alen);
}

/* Calls nothing but what its end is: so it has nothing to save. */
ssize_t udp_recvfrom(struct vfd *v, int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen)
{
	struct udp_sock *s = udp_of(v);
	struct udp_att *att;
	struct stack *st;

	if (!plain_reader(s, flags, addr, alen))
		return udp_recvfrom_any(s, fd, buf, len, flags, addr, alen);
	att = s->att[0];
	st = atomic_load_explicit(&att->st, memory_order_relaxed);
	/* Without checksums by the device it gains nothing. (A ring outlives its stack's end by seconds.) */
	if (!atomic_load_explicit(&st->open, memory_order_acquire) || !st->ring->caps.rx_csum)
		return udp_recvfrom_any(s, fd, buf, len, flags, addr, alen);
	if (!lock_get_now(&st->lock, lock_thread.tid))
		return receive_contended(s, fd, buf, len, flags, addr, alen);
	if (__builtin_expect(!att->head && atomic_load_explicit(&att->s, memory_order_relaxed) == s &&
				     atomic_load_explicit(&att->st, memory_order_relaxed) == st &&
				     atomic_load_explicit(&st->open, memory_order_relaxed),
			     1))
		return receive_locked(s, (uint64_t)(uint32_t)flags << 32 | (uint32_t)fd, buf, len, addr, alen);
	return receive_queued(s, fd, buf, len, flags, addr, alen, st);
}
