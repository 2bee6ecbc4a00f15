/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A striding receive queue: each descriptor is of a slab, memory for many frames, which the device
 * fills one behind the other. A frame takes as many strides as it needs, and the buffer of the
 * first one. A slab goes back to the device when none of its frames is held.
 */
#ifndef RING_MLX5_QUEUE_STRIDES_H
#define RING_MLX5_QUEUE_STRIDES_H

#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/queue.h"

/* of a completion's byte count: no frame, the rest of the slab is left out */
#define STRQ_FILLER 0x80000000u

/* What a descriptor starts with, which a ring of them has no use for, and what counts. */
struct strq_wqe {
	struct mlx5_wqe_srq_next_seg next;
	struct mlx5_wqe_data_seg data;
};

_Static_assert(sizeof(struct strq_wqe) == 32, "as the device reads it");

struct mlx5_slab {
	struct buf_pool pool; /* first: its frames' */
	struct slabs *of;
	struct mlx5_slab *next; /* that is free */
	struct buf *bufs; /* of its strides */
	uint32_t held; /* frames that somebody has; one more while the device has the slab */
};

/*
 * The receive chunks of a ring's memory, cut into slabs. rx.num_free counts the chunks of those
 * that no user holds a frame of.
 */
struct slabs {
	struct mlx5_slab *slab; /* [num] */
	struct mlx5_slab *free;
	struct mlx5_pool *rx;
	uint32_t num, strides; /* slabs; strides of each, a power of two */
	uint32_t stride; /* bytes, a power of two */
};

/* Takes over the chunks of m->rx, of `strides` to a slab. 0, -EINVAL, -ENOMEM. */
int slabs_init(struct slabs *s, struct mlx5_memory *m, uint32_t strides);
void slabs_fini(struct slabs *s);

/* As rq_init(), of a striding work queue. rq_fini() is its end. */
int strq_init(struct rq *q, const struct mlx5dv_rwq *wq, const struct mlx5dv_cq *cq, uint32_t lkey,
	      struct slabs *slabs);
/* Gives the device what slabs are free, as far as there are places. rq_publish() tells it. */
void strq_refill(struct rq *q);
/* Gives back what the device had. */
void strq_drop(struct rq *q);
/* Takes c, any completion of a frame, or of none. */
enum rx_result strq_take_odd(struct rq *q, const struct mlx5_cqe64 *c, struct buf **out);

/* What a completion has for a length: that in the lower half, the number of strides above it. */
static inline uint32_t strq_count(const struct mlx5_cqe64 *c)
{
	return be32toh(__atomic_load_n(&c->byte_cnt, __ATOMIC_RELAXED));
}

/* The frame of c, of so many bytes in the stride at q->at, which there is. */
static inline struct buf *strq_frame(struct rq *q, const struct mlx5_cqe64 *c, uint32_t len)
{
	struct buf *b = &q->slab->bufs[q->at];

	q->slab->held++;
	b->frag = NULL;
	b->data = (uint8_t *)(uintptr_t)b->addr;
	b->refs = 1;
	b->len = len;
	b->total = len;
	b->flags = cqe_flags(c);
	return b;
}

/* As rq_take_usual(): a frame in one stride, which is not the first one of a slab. */
static inline struct buf *strq_take_usual(struct rq *q)
{
	const struct mlx5_cqe64 *c = cq_at(&q->cq, q->cq.ci);
	struct buf *b;
	uint32_t len;

	if (__builtin_expect((cqe_op_own(c) ^ cq_owner(&q->cq, q->cq.ci)) != MLX5_CQE_RESP_SEND
										     << 4 ||
				     q->broken,
			     0))
		return NULL;
	/*
	 * The rest of the completion, and the frame, after the byte that says that they are there.
	 */
	dev_rmb();
	len = strq_count(c) - (1u << 16);
	/*
	 * Strides are used in their order. More than one, none, or a filler: so long is no stride.
	 */
	if (__builtin_expect(len > q->slabs->stride || be16toh(c->wqe_counter) != q->at ||
				     q->at >= q->strides,
			     0))
		return NULL;
	b = strq_frame(q, c, len);
	b->room = q->slabs->stride;
	q->at++;
	q->cq.ci++;
	return b;
}

/* As rq_take(). */
static inline enum rx_result strq_take(struct rq *q, struct buf **out)
{
	*out = strq_take_usual(q);
	return __builtin_expect(*out != NULL, 1) ? RX_FRAME : rq_take_odd(q, out);
}

#endif
