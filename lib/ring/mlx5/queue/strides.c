/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/queue/strides.h"

#include <errno.h>
#include <stdlib.h>

#define STRIDES_MAX 8192u /* a completion says in 14 bits how many of them it is of */
#define COUNT_MASK 0x3fffu

static void slab_put(struct mlx5_slab *s)
{
	s->next = s->of->free;
	s->of->free = s;
	s->of->rx->num_free += s->of->strides;
}

/* A frame's last user is done. */
static void stride_free(struct buf_pool *pool, struct buf *b)
{
	struct mlx5_slab *s = (struct mlx5_slab *)pool;

	(void)b;
	if (!--s->held)
		slab_put(s);
}

int slabs_init(struct slabs *s, struct mlx5_memory *m, uint32_t strides)
{
	*s = (struct slabs){.rx = &m->rx,
			    .strides = strides,
			    .stride = m->rx_chunk,
			    .num = m->rx.num / strides};
	if (!s->num || strides > STRIDES_MAX || strides & (strides - 1) ||
	    s->stride & (s->stride - 1))
		return -EINVAL;
	s->slab = calloc(s->num, sizeof(*s->slab));
	if (!s->slab)
		return -ENOMEM;
	m->rx.free = NULL;
	m->rx.num_free = 0;
	m->rx.num = s->num * strides;
	for (uint32_t i = s->num; i--;) {
		struct mlx5_slab *slab = &s->slab[i];

		slab->pool.free = stride_free;
		slab->of = s;
		slab->bufs = &m->bufs[(size_t)i * strides];
		for (uint32_t k = 0; k < strides; k++)
			slab->bufs[k].pool = &slab->pool;
		slab_put(slab);
	}
	return 0;
}

void slabs_fini(struct slabs *s)
{
	free(s->slab);
	*s = (struct slabs){0};
}

int strq_init(struct rq *q, const struct mlx5dv_rwq *wq, const struct mlx5dv_cq *cq, uint32_t lkey,
	      struct slabs *slabs)
{
	uint32_t cnt = wq->wqe_cnt;
	int err;

	memset(q, 0, sizeof(*q));
	q->broken = q->is_odd = true;
	if (!wq->buf || !wq->dbrec || !cnt || cnt > 32768 || (cnt & (cnt - 1)) ||
	    wq->stride != sizeof(struct strq_wqe))
		return -EINVAL;
	err = cq_init(&q->cq, cq);
	if (err)
		return err;
	if (q->cq.cnt / slabs->strides < cnt)
		return -EINVAL;
	q->posted = calloc(cnt, sizeof(struct mlx5_slab *));
	if (!q->posted)
		return -ENOMEM;
	q->wqes = wq->buf;
	q->dbrec = wq->dbrec;
	q->cnt = cnt;
	q->slabs = slabs;
	q->strides = q->at = slabs->strides;
	q->broken = false;
	for (uint32_t i = 0; i < cnt; i++) {
		((struct strq_wqe *)q->wqes)[i] = (struct strq_wqe){
			.data = {.byte_count = htobe32(slabs->strides * slabs->stride),
				 .lkey = htobe32(lkey)},
		};
	}
	return 0;
}

/* The device is done with s. */
static void let_go(struct mlx5_slab *s)
{
	s->of->rx->num_free -= s->of->strides;
	stride_free(&s->pool, NULL);
}

/* The slab in use has no more strides. */
static void slab_close(struct rq *q)
{
	let_go(q->slab);
	q->ci++;
	q->slab = NULL;
	q->at = q->strides;
}

void strq_refill(struct rq *q)
{
	struct mlx5_slab *s;

	if (q->slab && q->at == q->strides)
		slab_close(q);
	while (rq_room(q) && (s = q->slabs->free) != NULL) {
		uint32_t i = q->pi++ & (q->cnt - 1);

		q->slabs->free = s->next;
		s->held = 1;
		q->posted[i] = s;
		((struct strq_wqe *)q->wqes)[i].data.addr = htobe64(s->bufs->addr);
	}
}

void strq_drop(struct rq *q)
{
	for (; q->ci != q->pi; q->ci++)
		let_go(q->posted[q->ci & (q->cnt - 1)]);
	free(q->posted);
	q->posted = NULL;
	q->slab = NULL;
	q->at = q->strides;
}

/*
 * The slab at q->ci, which has a stride left, is the one that c is of. False: it is not, or there
 * is none.
 */
static bool has_stride(struct rq *q, const struct mlx5_cqe64 *c)
{
	if (q->slab && q->at == q->strides)
		slab_close(q);
	if (!q->slab) {
		if (q->ci == q->pi)
			return false;
		q->slab = q->posted[q->ci & (q->cnt - 1)];
		q->at = 0;
	}
	return !((be16toh(c->wqe_id) ^ q->ci) & (q->cnt - 1));
}

/*
 * c is of so many strides: of a frame, *out, or of none, as the next one did not fit into what is
 * left of the slab. False: it cannot be.
 */
static bool take_strides(struct rq *q, const struct mlx5_cqe64 *c, uint32_t count, struct buf **out)
{
	uint32_t n = count >> 16 & COUNT_MASK, len = count & 0xffff;

	*out = NULL;
	if (!has_stride(q, c) || !n || n > q->strides - q->at)
		return false;
	/* What else a filler says nobody looks at. */
	if (!(count & STRQ_FILLER)) {
		if (be16toh(c->wqe_counter) != q->at || len > n * q->slabs->stride)
			return false;
		*out = strq_frame(q, c, len);
		(*out)->room = n * q->slabs->stride;
	}
	q->at += n;
	q->cq.ci++;
	return true;
}

enum rx_result strq_take_odd(struct rq *q, const struct mlx5_cqe64 *c, struct buf **out)
{
	do {
		if (!take_strides(q, c, strq_count(c), out))
			return rq_break(q);
		if (*out)
			return RX_FRAME;
		/* Nearly always the frame that did not fit. */
		c = cq_at(&q->cq, q->cq.ci);
		if ((cqe_op_own(c) ^ cq_owner(&q->cq, q->cq.ci)) != MLX5_CQE_RESP_SEND << 4)
			return rq_take_odd(q, out);
		/* The rest of the completion after the byte that says that it is there. */
		dev_rmb();
	} while (true);
}
