/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dummy sends: a datagram goes the whole way but for the wire, so that the next one finds
 * everything in the caches.
 */
#include <errno.h>

#include "socket/udp/send.h"

/* d is good, its stack st is locked. */
static bool post(struct udp_sock *s, struct stack *st, struct udp_dst *d, const struct udp_tx *t)
{
	uint32_t room = d->hdr.len + (uint32_t)t->len;
	struct ring *r = st->ring;
	struct buf *b;

	if (t->len > d->max_payload)
		return false;
	b = ring_tx_alloc(r, room);
	if (!b || b->room < room) {
		buf_free(b);
		return false;
	}
	b->len = b->total = udp_frame_for(r, &d->hdr, b->data, t->iov, t->iovcnt, (uint32_t)t->len);
	/* A ring that has no such descriptor is as far as it goes. */
	if (r->ops->dummy(r, b))
		buf_free(b);
	stats_add(&s->stats->tx_dummy, 1);
	return true;
}

ssize_t udp_send_dummy(struct udp_sock *s, int fd, struct udp_tx *t, int flags)
{
	struct udp_dst *d = udp_tx_lock(s, fd, t, flags & ~VMA_SND_FLAGS_DUMMY);
	struct stack *st;
	struct ring *r;
	bool done;

	if (d) {
		st = atomic_load_explicit(&d->st, memory_order_relaxed);
		r = st->ring;
		done = post(s, st, d, t);
		lock_drop(&st->lock);
		ring_kick(r);
		if (done)
			return (ssize_t)t->len;
	}
	/* The kernel would send it. */
	errno = EAGAIN;
	return -1;
}
