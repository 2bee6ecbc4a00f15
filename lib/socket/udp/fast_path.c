/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The shortest ways of a datagram: to where the one before it went, and from the device straight to
 * the reader.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "mem/mem.h"
#include "proto/proto.h"
#include "socket/udp/send.h"

static inline bool same_key(const uint8_t *key, const struct sockaddr *addr)
{
	uint64_t a[2], b[2];

	memcpy(a, key, sizeof(a));
	memcpy(b, addr, sizeof(b));
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

/* Is d still what st sends so many bytes to addr by? st's lock is held. */
static inline bool good(const struct udp_sock *s, const struct udp_dst *d, const struct stack *st,
			const struct sockaddr *addr, size_t len)
{
	return atomic_load_explicit(&d->st, memory_order_relaxed) == st &&
	       atomic_load_explicit(&st->open, memory_order_relaxed) && len - 1 < d->fast_max &&
	       same_key(d->key, addr) && d->gens == net_generations() &&
	       d->opt_gen == atomic_load_explicit(&s->opt_gen, memory_order_relaxed);
}

/* Something about the socket that keeps its datagrams out of user space, or makes them special. */
static inline bool special(const struct udp_sock *s)
{
	return atomic_load_explicit(&s->special, memory_order_relaxed) ||
	       /* An error of the kernel socket's is this call's to report. */
	       (atomic_load_explicit(&s->v.os_events, memory_order_relaxed) & EPOLLERR);
}

/* A good destination, the lock held; by a buffer. */
static __attribute__((noinline)) bool post(struct stack *st, struct udp_dst *d, const void *data,
					   size_t len)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	uint32_t room = d->hdr.len + (uint32_t)len;
	struct buf *b = ring_tx_alloc(st->ring, room);

	if (__builtin_expect(!b, 0))
		return false;
	/* As in send.c: 64 bytes may be written in any case. */
	if (__builtin_expect(b->room >= room, 1)) {
		b->len = b->total =
			udp_frame_for(st->ring, &d->hdr, b->data, &iov, 1, (uint32_t)len);
		if (__builtin_expect(!ring_post(st->ring, b), 1))
			return true;
	}
	buf_free(b);
	return false;
}

/* By a buffer, the lock held, which it gives back. False: nothing was sent. */
static __attribute__((noinline)) bool post_and_kick(struct stack *st, struct udp_dst *d,
						    const void *data, size_t len)
{
	struct ring *r = st->ring;
	bool sent = post(st, d, data, len);

	lock_drop(&st->lock);
	if (sent)
		stack_round_sent(st, r);
	return sent;
}

/* What is not of the usual kind. */
static __attribute__((noinline)) ssize_t send_any(struct udp_sock *s, const void *buf, size_t len,
						  uint64_t call, const struct sockaddr *addr,
						  socklen_t alen)
{
	return udp_sendto_any(s, vfd_call_fd(call), buf, len, vfd_call_flags(call), addr, alen);
}

/* After lock_get_now(): the lock is taken. */
static __attribute__((noinline)) ssize_t send_contended(struct udp_sock *s, const void *buf,
							size_t len, uint64_t call,
							const struct sockaddr *addr)
{
	lock_leave();
	return send_any(s, buf, len, call, addr, sizeof(struct sockaddr_in));
}

/* The destination is not good any more; st is locked. */
static __attribute__((noinline)) ssize_t send_changed(struct udp_sock *s, const void *buf,
						      size_t len, uint64_t call,
						      const struct sockaddr *addr, struct stack *st)
{
	lock_drop(&st->lock);
	return send_any(s, buf, len, call, addr, sizeof(struct sockaddr_in));
}

/*
 * The destination is good, its stack st is locked, but the ring has no shorter way, or not for this
 * one now.
 */
static __attribute__((noinline)) ssize_t send_by_buffer(struct udp_sock *s, const void *buf,
							size_t len, uint64_t call,
							struct udp_dst *d, struct stack *st)
{
	struct sockaddr_in to;

	memcpy(&to, d->key, sizeof(to));
	if (!post_and_kick(st, d, buf, len))
		return send_any(s, buf, len, call, (struct sockaddr *)&to, sizeof(to));
	udp_count_sent(s, len);
	return (ssize_t)len;
}

/* As send_by_buffer(), with headers made that the ring did not take. */
static __attribute__((noinline)) ssize_t send_refused(struct udp_sock *s, const void *buf,
						      size_t len, uint64_t call, struct udp_dst *d,
						      struct stack *st)
{
	udp_hdr_v4_unused(&d->hdr);
	return send_by_buffer(s, buf, len, call, d, st);
}

/*
 * Most of its length are questions whose answer is yes; nothing is saved for those that are not
 * asked to the end.
 */
ssize_t udp_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call,
		   const struct sockaddr *addr, socklen_t alen)
{
	struct udp_sock *s = udp_of(v);
	struct udp_dst *d = atomic_load_explicit(&s->dst_last, memory_order_acquire);
	uint32_t me = lock_thread.tid;
	struct stack *st;
	struct ring *r;
	/* Wanted after the call of the ring only when it has failed: not worth a register each. */
	const void *volatile kept_buf = buf;
	volatile uint64_t kept_call = call;
	struct udp_dst *volatile kept_d = d;

	/*
	 * Of reused memory dst_last may be a former socket's while tx_tid is 0 again, and so is
	 * `me` of a thread that has not asked for its number yet: by 0 it would take the lock
	 * without having it.
	 */
	if (!d || !addr || (vfd_call_flags(call) & ~UDP_TX_FLAGS) ||
	    alen != sizeof(struct sockaddr_in) ||
	    __atomic_load_n(&s->stats->tx_tid, __ATOMIC_RELAXED) != me || !me || special(s))
		return send_any(s, buf, len, call, addr, alen);
	st = atomic_load_explicit(&d->st, memory_order_acquire);
	if (!st)
		return send_any(s, buf, len, call, addr, alen);
	if (__builtin_expect(!lock_get_now(&st->lock, me), 0))
		return send_contended(s, buf, len, call, addr);
	if (__builtin_expect(!good(s, d, st, addr, len), 0))
		return send_changed(s, buf, len, call, addr, st);
	r = st->ring;
	if (__builtin_expect(!r->ops->send_short || !ring_frames_unlogged(), 0))
		return send_by_buffer(s, buf, len, call, d, st);
	udp_hdr_v4(&d->hdr, (uint32_t)len);
	if (__builtin_expect(!r->ops->send_short(r, d->hdr.bytes, buf, (uint32_t)len), 0))
		return send_refused(s, kept_buf, len, kept_call, kept_d, st);
	lock_drop(&st->lock);
	udp_count_sent(s, len);
	return (ssize_t)len;
}

/* --- receiving */

/* Is the datagram for att, whose fast_gen is good, and for no group? */
static inline bool for_us(const struct udp_att *att, const struct pkt_udp4 *u)
{
	if (u->dport != att->fast_port)
		return false;
	if (__builtin_expect(att->fast_any, 0))
		return !IN_MULTICAST(ntohl(u->dst)) && u->dst != INADDR_BROADCAST;
	return u->dst == att->fast_dst;
}

/*
 * Notes when what the ring brings for att is told by port and address alone. st is att's, its lock
 * is held.
 */
static void fast_path_update(struct udp_att *att, const struct stack *st)
{
	const struct udp_bind *b = &att->bind;
	uint32_t local;

	memcpy(&local, &b->local.s6_addr[12], 4);
	/* As in udp_dst_fast_path(). */
	if (atomic_load_explicit(&udp_moves_rx, memory_order_relaxed) &&
	    stack_logic_by_core(udp_logic_rx(atomic_load_explicit(&att->s, memory_order_relaxed))))
		return;
	if (!atomic_load_explicit(&st->open, memory_order_relaxed) || !st->ring->caps.rx_csum ||
	    !att->listed || att->queues_unshown || b->family != AF_INET || b->bound_if ||
	    IN_MULTICAST(ntohl(local)) || !udp_demux_sole(&st->udp, b))
		return;
	att->fast_any = b->local_any;
	att->fast_port = htons(b->lport);
	att->fast_dst = local;
	atomic_store_explicit(&att->fast_gen,
			      atomic_load_explicit(&st->udp_gen, memory_order_relaxed),
			      memory_order_relaxed);
}

/*
 * Without checksums by the device the fast path gains nothing. (A ring outlives its stack's end by
 * seconds.)
 */
static inline bool summed(const struct stack *st)
{
	return atomic_load_explicit(&st->open, memory_order_acquire) && st->ring->caps.rx_csum;
}

static inline bool fast_path_valid(const struct udp_att *att, const struct stack *st)
{
	return atomic_load_explicit(&att->fast_gen, memory_order_relaxed) ==
	       atomic_load_explicit(&st->udp_gen, memory_order_relaxed);
}

static inline void put_sender(const struct pkt_udp4 *u, struct sockaddr *addr, socklen_t *alen)
{
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = u->sport, .sin_addr.s_addr = u->src};

	memcpy(addr, &in, sizeof(in));
	*alen = sizeof(in);
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
	if (addr)
		put_sender(u, addr, alen);
	return (ssize_t)n;
}

/* What is not of the usual kind. */
static __attribute__((noinline)) ssize_t receive_any(struct udp_sock *s, void *buf, size_t len,
						     uint64_t call, struct sockaddr *addr,
						     socklen_t *alen)
{
	return udp_recvfrom_any(s, vfd_call_fd(call), buf, len, vfd_call_flags(call), addr, alen);
}

/*
 * The stack is locked, and b is not what receive_locked() hands out: it goes its way, and the call
 * another.
 */
static __attribute__((noinline)) void give_away(struct stack *st, struct buf *b)
{
	if (b)
		stack_input(st, b);
	else if (st->tcp)
		stack_polled(st, 0);
	lock_drop(&st->lock);
}

/*
 * The one attachment's stack is locked and nothing is queued: takes a frame off the ring. If it is
 * for us, and nothing but an address is wanted with it, it is handed out. The lock is given back.
 */
static __attribute__((noinline)) ssize_t receive_locked(struct udp_sock *s, void *buf, size_t len,
							uint64_t call, struct sockaddr *addr,
							socklen_t *alen)
{
	struct udp_att *att = udp_att(s, 0);
	struct stack *st = udp_att_stack(att);
	struct buf *b = NULL;
	struct vma_stats_socket *stats;
	struct pkt_udp4 u;
	ssize_t n;

	st->polls++;
	if (!ring_poll(st->ring, &b, 1) || !pkt_udp4(b, &u) || !for_us(att, &u) ||
	    !stack_source_known(st, u.src, u.dst)) {
		give_away(st, b);
		return receive_any(s, buf, len, call, addr, alen);
	}
	n = hand_out(b->data + PKT_UDP4_HEADERS, &u, buf, len, addr, alen);
	atomic_store_explicit(&s->last_time_ns, UDP_UNSTAMPED, memory_order_relaxed);
	stats = s->stats;
	stats_add(&stats->rx.packets, 1);
	stats_add(&stats->rx.bytes, u.len);
	/* One piece, and nobody else has it. */
	b->pool->free(b->pool, b);
	if (st->tcp)
		stack_polled(st, 0);
	lock_drop(&st->lock);
	return n;
}

/* Nothing about socket and call is special, and nobody else wants to know of what is there. */
static inline bool plain_reader(const struct udp_sock *s, int flags, const struct sockaddr *addr,
				const socklen_t *alen, uint32_t me)
{
	return !(flags & ~UDP_RX_FLAGS) &&
	       !atomic_load_explicit(&s->v.os_events, memory_order_relaxed) &&
	       !atomic_load_explicit(&s->v.watches, memory_order_relaxed) &&
	       __atomic_load_n(&s->stats->rx_tid, __ATOMIC_RELAXED) == me && me &&
	       (!addr || (alen && *alen >= sizeof(struct sockaddr_in))) &&
	       !atomic_load_explicit(&stack_timestamps_wanted, memory_order_relaxed);
}

/*
 * The one attachment's stack is locked and nothing is queued: takes a frame off the ring. If it is
 * for us and the receive buffer has room, it is the program's. The lock is given back.
 */
static bool give_locked(struct udp_sock *s, struct udp_att *att, struct stack *st,
			const struct zcopy *z, ssize_t *n)
{
	struct buf *b = NULL;
	struct pkt_udp4 u;
	void *id;

	st->polls++;
	if (!ring_poll(st->ring, &b, 1) || !pkt_udp4(b, &u) || !for_us(att, &u) ||
	    !stack_source_known(st, u.src, u.dst) ||
	    att->charge + u.len + UDP_CHARGE > s->o.rcvbuf) {
		give_away(st, b);
		return false;
	}
	b->data += PKT_UDP4_HEADERS;
	b->len = b->total = u.len;
	b->next = NULL;
	id = udp_hold(s, att, st, b, false);
	if (__builtin_expect(!id, 0)) {
		b->data -= PKT_UDP4_HEADERS;
		b->len = b->total = u.len + PKT_UDP4_HEADERS;
		give_away(st, b);
		return false;
	}
	att->charge += u.len + UDP_CHARGE;
	zcopy_put(z, b, id);
	if (z->from)
		put_sender(&u, z->from, z->fromlen);
	*n = u.len;
	atomic_store_explicit(&s->last_time_ns, UDP_UNSTAMPED, memory_order_relaxed);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, u.len);
	if (st->tcp)
		stack_polled(st, 0);
	lock_drop(&st->lock);
	return true;
}

bool udp_give_frame(struct udp_sock *s, int flags, const struct zcopy *z, ssize_t *n)
{
	uint32_t me = lock_thread.tid;
	struct udp_att *att;
	struct stack *st;

	if (atomic_load_explicit(&s->natt, memory_order_acquire) != 1 || !zcopy_room(z) ||
	    !plain_reader(s, flags, z->from, z->fromlen, me))
		return false;
	att = udp_att(s, 0);
	st = udp_att_stack(att);
	if (!summed(st))
		return false;
	if (!lock_get_now(&st->lock, me)) {
		lock_leave();
		return false;
	}
	if (atomic_load_explicit(&att->s, memory_order_acquire) == s &&
	    atomic_load_explicit(&att->st, memory_order_relaxed) == st && !att->head) {
		if (fast_path_valid(att, st))
			return give_locked(s, att, st, z, n);
		fast_path_update(att, st);
	}
	lock_drop(&st->lock);
	return false;
}

/* After lock_get_now(): the lock is taken. */
static __attribute__((noinline)) ssize_t receive_contended(struct udp_sock *s, void *buf,
							   size_t len, uint64_t call,
							   struct sockaddr *addr, socklen_t *alen)
{
	lock_leave();
	return receive_any(s, buf, len, call, addr, alen);
}

/* The one attachment is not known to be for the fast path, or not any more. */
static __attribute__((noinline)) ssize_t receive_unsure(struct udp_sock *s, void *buf, size_t len,
							uint64_t call, struct sockaddr *addr,
							socklen_t *alen)
{
	struct udp_att *att = udp_att(s, 0);
	struct stack *st = udp_att_stack(att);

	if (plain_reader(s, vfd_call_flags(call), addr, alen, lock_thread.tid)) {
		if (!lock_get_now(&st->lock, lock_thread.tid))
			return receive_contended(s, buf, len, call, addr, alen);
		if (atomic_load_explicit(&att->s, memory_order_acquire) == s &&
		    atomic_load_explicit(&att->st, memory_order_relaxed) == st)
			fast_path_update(att, st);
		lock_drop(&st->lock);
	}
	return receive_any(s, buf, len, call, addr, alen);
}

/*
 * st is locked, but what udp_recvfrom() had seen without the lock is so no more, or a datagram is
 * queued.
 */
static __attribute__((noinline)) ssize_t receive_changed(struct udp_sock *s, void *buf, size_t len,
							 uint64_t call, struct sockaddr *addr,
							 socklen_t *alen, struct stack *st)
{
	lock_drop(&st->lock);
	return receive_any(s, buf, len, call, addr, alen);
}

/* Calls nothing but what its end is: so it has nothing to save. */
ssize_t udp_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call, struct sockaddr *addr,
		     socklen_t *alen)
{
	struct udp_sock *s = udp_of(v);
	uint32_t me = lock_thread.tid;
	struct udp_att *att;
	struct stack *st;

	/* What is there comes from one ring. */
	if (atomic_load_explicit(&s->natt, memory_order_acquire) != 1)
		return receive_any(s, buf, len, call, addr, alen);
	att = udp_att(s, 0);
	st = udp_att_stack(att);
	/* First, for where it is never good no more is asked. */
	if (!fast_path_valid(att, st))
		return summed(st) ? receive_unsure(s, buf, len, call, addr, alen)
				  : receive_any(s, buf, len, call, addr, alen);
	if (!plain_reader(s, vfd_call_flags(call), addr, alen, me))
		return receive_any(s, buf, len, call, addr, alen);
	if (!lock_get_now(&st->lock, me))
		return receive_contended(s, buf, len, call, addr, alen);
	/* Still good: att is in st's table, and st is open. */
	if (__builtin_expect(atomic_load_explicit(&att->s, memory_order_acquire) == s &&
				     !att->head && fast_path_valid(att, st),
			     1))
		return receive_locked(s, buf, len, call, addr, alen);
	return receive_changed(s, buf, len, call, addr, alen, st);
}
