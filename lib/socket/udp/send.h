/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What send.c and resolve.c share. */
#ifndef SOCKET_UDP_SEND_H
#define SOCKET_UDP_SEND_H

#include <string.h>

#include "net/net.h"
#include "socket/udp/cmsg.h"
#include "socket/udp/internal.h"

/* What one datagram is; gathered once, read by every step. */
struct udp_tx {
	const struct iovec *iov;
	int iovcnt;
	size_t len;
	const struct sockaddr *addr; /* NULL: the connected peer, to be read */
	socklen_t alen;
	bool to_peer; /* addr is peer */
	uint32_t gso_size;
	int flags; /* of the call */
	uint32_t peer_gen; /* opt_gen before peer was read */
	union udp_addr peer;
};

/* Reads the connected peer into t; its length. */
static inline socklen_t udp_tx_peer(const struct udp_sock *s, struct udp_tx *t)
{
	t->peer_gen = atomic_load_explicit(&s->opt_gen, memory_order_acquire);
	return udp_peer_get(s, &t->peer);
}

/* Flags that change nothing for a datagram that leaves at once. */
#define UDP_TX_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_CONFIRM | MSG_EOR)
/*
 * Payloads above this, and such as were too large when it was asked for, ask for the path's MTU
 * again each second: an ICMP "too big" tells only the kernel. Few paths have no room for less, and
 * none of IPv6: the internal thread looks for such a message of IPv4 (net_path_mtu_changes()).
 */
#define SMALL_PAYLOAD 1200u

/* After a change of key_len, stale or max_payload; UDP_SEGMENT bumps opt_gen. */
static inline void udp_dst_fast_path(struct udp_dst *d, const struct udp_sock *s)
{
	d->fast_max = d->max_payload < SMALL_PAYLOAD ? d->max_payload : SMALL_PAYLOAD;
	/*
	 * A thread that goes from processor to processor is noticed by the longer way only (another
	 * thread by both).
	 */
	if (d->key_len != sizeof(struct sockaddr_in) || d->stale || s->o.gso_size ||
	    (atomic_load_explicit(&udp_moves_tx, memory_order_relaxed) &&
	     stack_logic_by_core(udp_logic_tx(s))))
		d->fast_max = 0;
}

/* Where a destination is remembered. */
static inline struct udp_dst *udp_dst_slot(struct udp_dst *dsts, const struct sockaddr *addr,
					   socklen_t alen)
{
	const uint8_t *b = (const uint8_t *)addr;
	uint32_t h = 0, word;
	uint16_t port;

	/* Port and the last word of either family's address. */
	if (alen >= 8) {
		memcpy(&port, b + 2, sizeof(port));
		memcpy(&word, b + 4, sizeof(word));
		h = port ^ word;
	}
	if (alen >= 24) {
		memcpy(&word, b + 20, sizeof(word));
		h ^= word;
	}
	h ^= h >> 16;
	h ^= h >> 8;
	return &dsts[(h ^ h >> 3) & (UDP_DST_WAYS - 1)];
}

/* An IPv4 sockaddr, the usual case, without a call. */
static inline bool same_bytes(const void *a, const void *b, size_t len)
{
	uint64_t x[2], y[2];

	if (len != sizeof(x))
		return !memcmp(a, b, len);
	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return x[0] == y[0] && x[1] == y[1];
}

static inline bool udp_dst_good(const struct udp_sock *s, const struct udp_dst *d,
				const struct udp_tx *t)
{
	return d->key_len == t->alen && same_bytes(d->key, t->addr, t->alen) &&
	       d->gens == net_generations() &&
	       d->opt_gen == atomic_load_explicit(&s->opt_gen, memory_order_relaxed) &&
	       (!t->to_peer || d->opt_gen == t->peer_gen) &&
	       ((t->len <= SMALL_PAYLOAD && t->len <= d->max_payload) ||
		d->tick == atomic_load_explicit(&udp_tick, memory_order_relaxed));
}

/* Writes the frame of len bytes for a destination, as the ring wants it; returns its length. */
static inline uint32_t udp_frame_for(const struct ring *r, struct udp_hdr *h, uint8_t *frame,
				     const struct iovec *iov, int iovcnt, uint32_t len)
{
	return r->caps.tx_csum ? udp_frame_unsummed(h, frame, iov, iovcnt, len)
			       : udp_frame(h, frame, iov, iovcnt, len);
}

static inline void udp_count_sent(struct udp_sock *s, size_t len)
{
	struct vma_stats_socket *stats = s->stats;

	stats_add(&stats->tx.packets, 1);
	stats_add(&stats->tx.bytes, len);
}

/* sendto() that is not of the usual kind (fast_path.c). */
ssize_t udp_sendto_any(struct udp_sock *s, int fd, const void *buf, size_t len, int flags,
		       const struct sockaddr *addr, socklen_t alen);

#define UDP_BURST_IOV 128 /* parts that one large frame is made of */

/*
 * Leading messages that can leave as one frame, which is cut into their datagrams again behind the
 * ring.
 */
struct udp_burst {
	unsigned count;
	size_t len;
	int iovcnt;
	struct iovec iov[UDP_BURST_IOV];
};

/*
 * gso_burst.c: gathers of n messages those like the first, which is t, from the first on; a shorter
 * one is the last.
 */
void udp_burst_gather(struct udp_burst *tr, const struct mmsghdr *msgs, unsigned n,
		      const struct udp_tx *t);

/*
 * send.c: the remembered destination of t, its stack locked; t is completed. NULL: it is not for
 * user space, or nowhere to go; no lock is held.
 */
struct udp_dst *udp_tx_lock(struct udp_sock *s, int fd, struct udp_tx *t, int flags);
/*
 * dummy_send.c: a send with VMA_SND_FLAGS_DUMMY, which nothing leaves by. The bytes, or -1 and
 * EAGAIN.
 */
ssize_t udp_send_dummy(struct udp_sock *s, int fd, struct udp_tx *t, int flags);

/* Finds out where t goes and remembers it. False: the kernel socket must send. No lock held. */
bool udp_resolve(struct udp_sock *s, int fd, struct udp_tx *t);
/* It goes to a group that sockets of this host may hear, too. */
bool udp_is_looped(const struct udp_sock *s, const struct udp_tx *t);
/*
 * The same for a datagram that wants what c says: d is for it alone and the caller's, d->st the
 * stack.
 */
bool udp_resolve_once(struct udp_sock *s, int fd, struct udp_tx *t, const struct udp_ctl *c,
		      struct udp_dst *d);

#endif
