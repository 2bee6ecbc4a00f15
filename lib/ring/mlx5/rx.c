/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the ring receives. */
#include "ring/mlx5/internal.h"

#include <stddef.h>
#include <string.h>

#include "config/config.h"

/* Where a WQE is of several buffers. */
static void refill_chains(struct mlx5_ring *m)
{
	for (uint32_t room = rq_room(&m->rq); room && m->memory.rx.num_free >= m->rq.segs; room--) {
		struct buf *b = NULL, *next;

		for (uint32_t i = 0; i < m->rq.segs; i++) {
			next = b;
			b = pool_get_rx(&m->memory.rx);
			b->frag = next;
		}
		rq_post_chain(&m->rq, b);
	}
}

/* Where a WQE is not of one buffer. */
static __attribute__((noinline)) void refill_odd(struct mlx5_ring *m)
{
	if (m->rq.slabs)
		strq_refill(&m->rq);
	else
		refill_chains(m);
}

void mlx5_refill(struct mlx5_ring *m)
{
	uint32_t room = rq_room(&m->rq);
	struct buf *b;

	/* The queue may be gone, and with it the memory of its index. */
	if (__builtin_expect(m->rq.broken, 0))
		return;
	if (__builtin_expect(m->rq.segs != 1, 0)) {
		refill_odd(m);
		room = 0;
	}
	while (room && (b = pool_get_rx(&m->memory.rx)) != NULL) {
		rq_post(&m->rq, b);
		room--;
	}
	rq_publish(&m->rq);
	m->rx_short = mlx5_rx_ours(m) < m->rx_low;
	m->slow |= m->rx_short;
	m->refill_ci = m->rq.pi - m->rq.cnt + m->refill_at;
}

void mlx5_heap_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct mlx5_ring *m =
		(struct mlx5_ring *)((char *)pool - offsetof(struct mlx5_ring, heap_pool));

	buf_copy_end();
	m->heap_origin->free(m->heap_origin, b);
}

/*
 * When users hold so many chunks that the receive queue could run dry, the frame moves to the heap.
 * Returns the frame to hand out, NULL when it had to be dropped.
 */
static __attribute__((noinline)) struct buf *move_to_heap(struct mlx5_ring *m, struct buf *b)
{
	bool may = buf_copy_begin(m->heap_bufs_max);
	struct buf *c = may ? buf_heap_alloc(b->total) : NULL;
	uint32_t at = 0;

	if (may && !c)
		buf_copy_end();

	if (c) {
		for (const struct buf *f = b; f; at += f->len, f = f->frag)
			memcpy(c->data + at, f->data, f->len);
		c->len = c->total = b->total;
		c->flags = b->flags;
		c->hw_ns = b->hw_ns;
		m->heap_origin = c->pool;
		c->pool = &m->heap_pool;
	} else if (mlx5_rx_ours(m) >= m->rx_reserve || !params.cq_keep_qp_full) {
		return b;
	} else {
		mlx5_stat_add(&m->counters.rx_drop_no_buf, 1);
	}
	buf_free(b);
	return c;
}

/*
 * The device's time of b, which was taken just now: of its completion, which is still there, if it
 * had one of its own.
 */
static void stamp(const struct mlx5_ring *m, struct buf *b)
{
	const struct mlx5_cqe64 *c = cq_at(&m->rq.cq, m->rq.cq.ci - 1);

	if (cqe_op_own(c) >> 4 != MLX5_CQE_RESP_SEND)
		return;
	b->hw_ns = clock_ns(&m->clock, be64toh(c->timestamp));
	if (b->hw_ns)
		b->flags |= BUF_HW_TIME;
}

/* What a frame is in need of that was taken just now. Returns the one to hand out, or NULL. */
static struct buf *take_care(struct mlx5_ring *m, struct buf *b)
{
	if (m->stamping)
		stamp(m, b);
	if (m->tagged && !mlx5_vlan_untag(m, b)) {
		mlx5_stat_add(&m->counters.rx_drop_invalid, 1);
		buf_free(b);
		return NULL;
	}
	return m->rx_short ? move_to_heap(m, b) : b;
}

/* What else there is to do once frames have been taken, or not. */
static void poll_end(struct mlx5_ring *m, unsigned got, enum rx_result res)
{
	if (got && m->armed) {
		m->armed = false;
		mlx5_stat_add(&m->counters.interrupts_received, 1);
	}
	if ((int32_t)(m->rq.ci - m->refill_ci) >= 0)
		mlx5_refill(m);
	if (res == RX_BROKEN || m->sq.broken)
		mlx5_recover(m);
	m->slow = m->armed || m->rx_short || m->tagged;
}

/* A frame was longer than its buffers. True. */
static __attribute__((noinline)) bool count_long(struct mlx5_ring *m, unsigned *got)
{
	++*got;
	mlx5_stat_add(&m->counters.rx_drop_invalid, 1);
	return true;
}

/* Of the buffer that the device writes to next. */
static __attribute__((noinline)) void prefetch_next(const struct rq *rq)
{
	const struct buf *b =
		rq->slabs || rq->ci == rq->pi ? NULL : rq->bufs[rq->ci & (rq->cnt - 1)];

	if (b)
		prefetch_bytes(b->data, params.rx_prefetch_bytes_before_poll);
}

/* Nearly always there is nothing else. */
static inline bool poll_more(const struct mlx5_ring *m)
{
	return (int32_t)(m->rq.ci - m->refill_ci) >= 0 || m->slow;
}

static inline __attribute__((always_inline)) unsigned
poll_by(struct mlx5_ring *m, struct buf **pkts, unsigned max,
	enum rx_result (*take)(struct rq *, struct buf **))
{
	enum rx_result res = RX_NONE;
	unsigned n = 0, got = 0;
	uint64_t bytes = 0;
	struct buf *b;

	do {
		while (got < max && (res = take(&m->rq, &b)) == RX_FRAME) {
			prefetch_bytes(b->data, params.rx_prefetch_bytes);
			got++;
			bytes += b->total;
			if (__builtin_expect(m->care, 0))
				b = take_care(m, b);
			pkts[n] = b;
			n += b != NULL;
		}
	} while (__builtin_expect(got < max && res == RX_LONG, 0) && count_long(m, &got));
	if (got) {
		cq_publish(&m->rq.cq);
		mlx5_stat_add(&m->counters.rx_packets, got);
		mlx5_stat_add(&m->counters.rx_bytes, bytes);
	}
	if (__builtin_expect(!got && params.rx_prefetch_bytes_before_poll, 0))
		prefetch_next(&m->rq);
	if (__builtin_expect(res == RX_BROKEN || m->sq.broken || poll_more(m), 0))
		poll_end(m, got, res);
	return n;
}

static __attribute__((noinline)) unsigned poll_many(struct mlx5_ring *m, struct buf **pkts,
						    unsigned max)
{
	return poll_by(m, pkts, max, rq_take);
}

static __attribute__((noinline)) unsigned poll_strides_many(struct mlx5_ring *m, struct buf **pkts,
							    unsigned max)
{
	return poll_by(m, pkts, max, strq_take);
}

unsigned mlx5_poll(struct ring *r, struct buf **pkts, unsigned max)
{
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *b;

	/* One who waits for one. */
	if (__builtin_expect(max > 1 || poll_more(m), 0))
		return poll_many(m, pkts, max);
	b = rq_take_usual(&m->rq);
	if (__builtin_expect(!b, 0))
		return poll_many(m, pkts, max);
	cq_publish(&m->rq.cq);
	mlx5_stat_add(&m->counters.rx_packets, 1);
	mlx5_stat_add(&m->counters.rx_bytes, b->len);
	pkts[0] = b;
	return 1;
}

unsigned mlx5_poll_strides(struct ring *r, struct buf **pkts, unsigned max)
{
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *b;

	if (__builtin_expect(max > 1 || poll_more(m), 0))
		return poll_strides_many(m, pkts, max);
	b = strq_take_usual(&m->rq);
	if (__builtin_expect(!b, 0))
		return poll_strides_many(m, pkts, max);
	cq_publish(&m->rq.cq);
	mlx5_stat_add(&m->counters.rx_packets, 1);
	mlx5_stat_add(&m->counters.rx_bytes, b->len);
	pkts[0] = b;
	return 1;
}

unsigned mlx5_poll_stamped(struct ring *r, struct buf **pkts, unsigned max)
{
	struct mlx5_ring *m = mlx5_ring(r);
	unsigned n;

	if (__builtin_expect(m->want.compress, 0))
		mlx5_uncompress(m);
	clock_run(&m->clock, m->objects);
	m->stamping = true;
	n = poll_many(m, pkts, max);
	m->stamping = false;
	return n;
}

bool mlx5_pending(const struct ring *r)
{
	const struct mlx5_ring *m = (const struct mlx5_ring *)r;
	const struct cq *q = &__atomic_load_n(&m->view, __ATOMIC_ACQUIRE)->cq;
	uint32_t ci = __atomic_load_n(&m->rq.cq.ci, __ATOMIC_RELAXED);

	/*
	 * In the middle of a compressed session this looks at what the device left there, in
	 * mlx5_recover() at one queue with the other's index: a wrong hint at worst.
	 */
	return cq_ours(q, ci, cqe_op_own(cq_at(q, ci))) ||
	       __atomic_load_n(&m->rq.zip_left, __ATOMIC_RELAXED);
}

unsigned mlx5_wait_fds(struct ring *r, int *fds, unsigned max)
{
	if (!max)
		return 0;
	fds[0] = mlx5_ring(r)->objects->event_fd;
	return 1;
}

void mlx5_request_event(struct mlx5_ring *m)
{
	const struct mlx5dv_cq *cq = &m->objects->rx_cq;
	uint32_t word = (m->arm_sn & 3) << 28 | MLX5_CQ_DB_REQ_NOT | (m->rq.cq.ci & CQ_CI_MASK);

	m->rq.cq.dbrec[1] = htobe32(word);
	/* The record before the doorbell that has the device look at it. */
	dev_wc_wmb();
	dev_write64((uint8_t *)cq->cq_uar + MLX5_CQ_DOORBELL,
		    htobe64((uint64_t)word << 32 | cq->cqn));
	dev_wc_wmb();
}

bool mlx5_arm(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel;

	/* Whoever sleeps cannot refill. */
	if (m->rq.broken)
		return false;
	if (rq_room(&m->rq))
		mlx5_refill(m);
	cancel = mlx5_begin();
	m->arm_sn += m->objects->ops->take_events(m->objects);
	mlx5_end(cancel);
	if (mlx5_pending(r))
		return true;
	mlx5_request_event(m);
	m->armed = m->slow = true;
	mlx5_stat_add(&m->counters.interrupts_requested, 1);
	return false;
}
