/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Transmission through the XSK of queue 0. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

/*
 * Buffers between two looks at the completion ring: few enough that the chunks in use stay in the
 * cache.
 */
#define RECLAIM_EVERY 32
/* System calls that one kick() makes at most: the kernel sends 32 frames in each. */
#define KICK_MAX 256

void tx_done(struct xdp_ring *x, uint64_t addr)
{
	struct buf *b = umem_desc_buf(&x->umem, addr, 0);

	if (!b || !b->refs)
		return;
	chunk_sent(&x->umem, (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT));
	if (b->refs > 1) { /* somebody keeps it to send it again */
		b->refs--;
		return;
	}
	b->refs = 0;
	umem_chunk_free(&x->umem, (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT));
}

void tx_reclaim(struct xdp_ring *x)
{
	struct xsk_ring *c = &x->xsk[0].comp;
	uint32_t end;

	x->tx_credit = RECLAIM_EVERY;
	if (__builtin_expect(x->share != NULL, 0)) {
		share_reclaim(x);
		return;
	}
	if (x->pool) {
		pool_reclaim(x);
		return;
	}
	/* acquire: the entries up to the producer index must be read after it */
	end = __atomic_load_n(c->producer, __ATOMIC_ACQUIRE);
	for (; c->head != end; c->head++)
		tx_done(x, c->addr[c->head & c->mask]);
	/*
	 * release: the kernel may overwrite the entries once it sees them consumed; they must have
	 * been read by then
	 */
	__atomic_store_n(c->consumer, c->head, __ATOMIC_RELEASE);
}

struct buf *xdp_tx_alloc(struct ring *r, uint32_t room)
{
	struct xdp_ring *x = xdp_ring(r);
	struct buf *b;
	uint32_t index;

	(void)room; /* all are of one size */
	if (__builtin_expect(x->tx_credit-- == 0, 0))
		tx_reclaim(x);
	if (__builtin_expect(!chunk_pop(&x->umem.tx_free, &index), 0)) {
		/* All are posted: have some sent, their chunks come back with that. */
		xdp_kick(r);
		tx_reclaim(x);
		if (!chunk_pop(&x->umem.tx_free, &index)) {
			stat_add(&x->counters.tx_full, 1);
			return NULL;
		}
	}
	b = &x->umem.bufs[index];
	umem_buf_take(&x->umem, b, (uint64_t)index << UMEM_CHUNK_SHIFT);
	b->frag = NULL;
	b->data = x->umem.base + b->addr;
	b->len = 0;
	b->total = 0;
	b->room = UMEM_CHUNK;
	b->refs = 1;
	b->flags = 0;
	return b;
}

bool xdp_tx_full(struct ring *r)
{
	struct xsk_ring *t = &xdp_ring(r)->xsk[0].tx;

	return t->head - __atomic_load_n(t->consumer, __ATOMIC_ACQUIRE) == t->size;
}

/* The offset of b's bytes in the UMEM; false when they do not lie in b's own chunk. */
static inline bool piece_ok(const struct xdp_ring *x, const struct buf *b, uint64_t *addr)
{
	*addr = (uint64_t)(b->data - x->umem.base);
	return b->pool == &x->umem.pool && b->len && umem_desc_buf(&x->umem, *addr, b->len) == b;
}

/* Descriptors that b needs, 0 when it cannot be posted at all. *bytes: the frame's length. */
static uint32_t chain_check(const struct xdp_ring *x, const struct buf *b, uint32_t *bytes)
{
	uint32_t n = 0;
	uint64_t addr;

	*bytes = 0;
	for (; b; b = b->frag, n++) {
		if (!piece_ok(x, b, &addr))
			return 0;
		*bytes += b->len;
	}
	return n == 1 || x->sg ? n : 0;
}

/*
 * 0, or -ENOBUFS when the transmit ring has no room for n descriptors even when the kernel's index
 * is read anew.
 */
static int tx_room(struct xdp_ring *x, struct xsk_ring *t, uint32_t n)
{
	/*
	 * acquire: a descriptor may be written only after the kernel has been seen to have read its
	 * last use
	 */
	t->seen = __atomic_load_n(t->consumer, __ATOMIC_ACQUIRE);
	if (t->size - (t->head - t->seen) >= n)
		return 0;
	stat_add(&x->counters.tx_full, 1);
	return -ENOBUFS;
}

/*
 * Notes that b waits to be sent. Only when it is in the ring: what a killed process has counted and
 * not entered nobody would ever find.
 */
static inline void chunk_posted(struct xdp_ring *x, const struct buf *b)
{
	uint32_t index = (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT);

	chunk_owner_set(&x->umem, index, chunk_owner(&x->umem, index) + 1);
}

/* Others may come: then b is in one piece. The next index belongs to the descriptor of it. */
static inline void posting_begin(struct xdp_ring *x, const struct xsk_ring *t, const struct buf *b)
{
	uint32_t index = (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT);

	__atomic_store_n(x->posting,
			 POSTING(t->head, chunk_owner(&x->umem, index) & OWNER_POSTED, index),
			 __ATOMIC_RELAXED);
}

/* The descriptors of b are written: the kernel gets them. */
static inline int tx_publish(struct xdp_ring *x, struct xsk_ring *t, const struct buf *b,
			     uint32_t bytes)
{
	if (__builtin_expect(x->posting != NULL, 0))
		posting_begin(x, t, b);
	/*
	 * release: the kernel must see descriptor and frame before the index that gives them to it
	 */
	__atomic_store_n(t->producer, t->head, __ATOMIC_RELEASE);
	for (; b; b = b->frag)
		chunk_posted(x, b);
	if (__builtin_expect(x->posting != NULL, 0))
		__atomic_store_n(x->posting, 0, __ATOMIC_RELEASE);
	/* release: whose kick() reads it sees the producer index, so its call takes this frame */
	atomic_store_explicit(&x->unsent, 1, memory_order_release);
	stat_add(&x->counters.tx_packets, 1);
	stat_add(&x->counters.tx_bytes, bytes);
	return 0;
}

/* A frame in several pieces, or one that is refused. */
static __attribute__((noinline)) int post_chain(struct xdp_ring *x, const struct buf *b)
{
	struct xsk_ring *t = &x->xsk[0].tx;
	uint32_t bytes, n = chain_check(x, b, &bytes);
	int err;

	if (n == 0)
		return -EINVAL;
	/* The kernel drops such a frame and reports it as sent. */
	if (bytes > x->ring.caps.max_frame) {
		stat_add(&x->counters.tx_drop_oversize, 1);
		return -EMSGSIZE;
	}
	err = tx_room(x, t, n);
	if (err)
		return err;
	for (const struct buf *p = b; p; p = p->frag) {
		t->desc[t->head++ & t->mask] = (struct xdp_desc){
			.addr = (uint64_t)(p->data - x->umem.base),
			.len = p->len,
			.options = p->frag ? XDP_PKT_CONTD : 0,
		};
	}
	return tx_publish(x, t, b, bytes);
}

int xdp_post(struct ring *r, struct buf *b)
{
	struct xdp_ring *x = xdp_ring(r);
	struct xsk_ring *t = &x->xsk[0].tx;
	uint64_t addr;

	if (__builtin_expect(b->frag || b->len > r->caps.max_frame || !piece_ok(x, b, &addr), 0))
		return post_chain(x, b);
	if (__builtin_expect(t->head - t->seen == t->size, 0) && tx_room(x, t, 1))
		return -ENOBUFS;
	t->desc[t->head++ & t->mask] = (struct xdp_desc){.addr = addr, .len = b->len};
	return tx_publish(x, t, b, b->len);
}

/* True when the kernel has read every posted descriptor. Any thread. */
static bool tx_empty(const struct xdp_ring *x)
{
	const struct xsk_ring *t = &x->xsk[0].tx;

	return __atomic_load_n(t->consumer, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(t->producer, __ATOMIC_ACQUIRE);
}

int tx_flush(struct xdp_ring *x)
{
	int err = xdp_kick(&x->ring);

	/* That is not enough: another thread that took the kick over may still be at it. */
	if (!err && !tx_empty(x))
		err = -EAGAIN;
	return err;
}

int xdp_kick(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);
	struct xsk *s = &x->xsk[0];
	unsigned calls = 0;

	if (!atomic_load_explicit(&x->unsent, memory_order_relaxed))
		return 0;
	/*
	 * Before the call, and before the device's index is read: what another thread posts from
	 * now on is that thread's to kick. acquire: what was posted until now is this call's.
	 */
	(void)atomic_exchange_explicit(&x->unsent, 0, memory_order_acq_rel);
	if (x->zerocopy) {
		/*
		 * The driver sets the flag and looks at the ring once more; so we publish, then
		 * look at the flag.
		 */
		atomic_thread_fence(memory_order_seq_cst);
		if (!(__atomic_load_n(s->tx.flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP))
			return 0;
	}
	for (;;) {
		/*
		 * Not libc's sendto(): that is a cancellation point, whose bookkeeping costs 15 ns
		 * of every packet.
		 */
		long n = libc_raw(SYS_sendto, s->fd, 0, 0, MSG_DONTWAIT, 0, 0);
		int err = n < 0 ? errno : 0;

		calls++;
		if (n >= 0 || ((err == EAGAIN || err == EBUSY || err == ENOBUFS) && tx_empty(x)))
			break;
		if (err != EAGAIN && err != EBUSY && err != ENOBUFS && err != EINTR) {
			/*
			 * They stay in the ring: the next kick() must not think that there is
			 * nothing to do.
			 */
			atomic_store_explicit(&x->unsent, 1, memory_order_relaxed);
			stat_add(&x->counters.kicks, calls);
			if (err != ENETDOWN)
				log_debug("ring/xdp: %s: sendto(xsk): %s", r->ifname,
					  strerror(err));
			return -err;
		}
		if (calls == KICK_MAX) {
			/* The receiver does not keep up. poll() tries again. */
			atomic_store_explicit(&x->unsent, 1, memory_order_relaxed);
			atomic_store_explicit(&x->stalled, 1, memory_order_relaxed);
			stat_add(&x->counters.kicks, calls);
			return 0;
		}
		if (err != EAGAIN)
			sched_yield();
	}
	stat_add(&x->counters.kicks, calls);
	if (__builtin_expect(atomic_load_explicit(&x->stalled, memory_order_relaxed), 0))
		atomic_store_explicit(&x->stalled, 0, memory_order_relaxed);
	return 0;
}
