/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The receive queue: a ring of single buffers, and what is not an ordinary completion. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/mlx5/queue/strides.h"

int rq_init(struct rq *q, const struct mlx5dv_qp *qp, const struct mlx5dv_cq *cq, uint32_t lkey,
	    uint32_t segs, const struct rq_spill *spill)
{
	const uint32_t seg = sizeof(struct mlx5_wqe_data_seg);
	uint32_t cnt = qp->rq.wqe_cnt, all = segs + (spill != NULL);
	int err;

	memset(q, 0, sizeof(*q));
	/* Of 32768 and less a 16-bit counter names one place among those posted. */
	if (!qp->rq.buf || !qp->dbrec || !cnt || cnt > 32768 || (cnt & (cnt - 1)) || !segs ||
	    qp->rq.stride < seg * all || qp->rq.stride % seg)
		return -EINVAL;
	err = cq_init(&q->cq, cq);
	if (err)
		return err;
	if (q->cq.cnt < cnt)
		return -EINVAL;
	q->wqes = qp->rq.buf;
	q->cnt = cnt;
	q->stride = qp->rq.stride / seg;
	q->segs = segs;
	q->spill = spill ? spill->len : 0;
	q->is_odd = segs > 1;
	q->dbrec = qp->dbrec;
	q->bufs = calloc(cnt, sizeof(*q->bufs));
	if (!q->bufs)
		return -ENOMEM;
	for (uint32_t i = 0; i < cnt; i++) {
		struct mlx5_wqe_data_seg *d = &q->wqes[(size_t)i * q->stride];

		for (uint32_t k = 0; k < segs; k++)
			d[k].lkey = htobe32(lkey);
		if (spill)
			d[segs] = (struct mlx5_wqe_data_seg){
				.byte_count = htobe32(spill->len),
				.lkey = htobe32(lkey),
				.addr = htobe64((uint64_t)(uintptr_t)spill->at)};
		if (q->stride > all) /* the list ends behind them */
			d[all] = (struct mlx5_wqe_data_seg){.lkey = htobe32(MLX5_INVALID_LKEY)};
	}
	return 0;
}

void rq_fini(struct rq *q)
{
	if (q->slabs)
		strq_drop(q);
	for (; q->ci != q->pi; q->ci++)
		buf_free(q->bufs[q->ci & (q->cnt - 1)]);
	free(q->bufs);
	q->bufs = NULL;
	q->cnt = q->pi = q->ci = q->zip_left = 0;
	q->broken = q->is_odd = true;
	cq_mute(&q->cq);
}

void rq_post_chain(struct rq *q, struct buf *b)
{
	uint32_t i = q->pi++ & (q->cnt - 1);
	struct mlx5_wqe_data_seg *d = &q->wqes[(size_t)i * q->stride];

	q->bufs[i] = b;
	for (; b; b = b->frag, d++) {
		d->byte_count = htobe32(b->room);
		d->addr = htobe64((uint64_t)(uintptr_t)b->data);
	}
}

/* As rq_pop(), where a WQE is of several buffers: those that the frame did not come to go back. */
static struct buf *pop_chain(struct rq *q, uint16_t counter, uint32_t len, uint8_t flags)
{
	struct buf *b = q->bufs[q->ci & (q->cnt - 1)], *last = b;
	uint32_t left = len;

	if (counter != (uint16_t)q->ci || q->ci == q->pi || len > b->room * q->segs)
		return NULL;
	q->ci++;
	b->total = len;
	b->flags = flags;
	for (; left > last->room; last = last->frag) {
		last->len = last->room;
		left -= last->room;
	}
	last->len = left;
	buf_free(last->frag);
	last->frag = NULL;
	return b;
}

static struct buf *pop(struct rq *q, uint16_t counter, uint32_t len, uint8_t flags)
{
	return q->segs == 1 ? rq_pop(q, counter, len, flags) : pop_chain(q, counter, len, flags);
}

enum rx_result rq_break(struct rq *q)
{
	q->broken = q->is_odd = true;
	return RX_BROKEN;
}

/* The next WQE's frame spilled: its buffers go back. False: it had room, or cannot be. */
static bool pop_long(struct rq *q, uint16_t counter, uint32_t len)
{
	struct buf *b = q->bufs[q->ci & (q->cnt - 1)];

	if (counter != (uint16_t)q->ci || q->ci == q->pi || len <= b->room * q->segs ||
	    len - b->room * q->segs > q->spill)
		return false;
	q->ci++;
	buf_free(b);
	return true;
}

enum rx_result rq_take_long(struct rq *q, const struct mlx5_cqe64 *c)
{
	if (!pop_long(q, be16toh(c->wqe_counter),
		      be32toh(__atomic_load_n(&c->byte_cnt, __ATOMIC_RELAXED))))
		return rq_break(q);
	q->cq.ci++;
	return RX_LONG;
}

/*
 * Starts a session: the completions of several frames that differ in length only, in the places
 * that they would have had.
 */
static bool zip_open(struct rq *q, const struct mlx5_cqe64 *title)
{
	uint32_t n = be32toh(__atomic_load_n(&title->byte_cnt, __ATOMIC_RELAXED));

	/* The first array stands in the place of the second completion. */
	if (n < 2 || n > q->pi - q->ci || q->cq.shift != 6 || q->slabs ||
	    be16toh(title->wqe_counter) != (uint16_t)q->ci)
		return false;
	memcpy(q->minis, cq_at(&q->cq, q->cq.ci + 1), sizeof(q->minis));
	q->zip_left = n;
	q->zip_at = 0;
	q->zip_flags = cqe_flags(title);
	return true;
}

/* The next frame of the session. */
static enum rx_result zip_next(struct rq *q, struct buf **out)
{
	struct mlx5_cqe64 *place = cq_at(&q->cq, q->cq.ci);
	uint32_t len;

	/* The other arrays stand in the places of their own first ones. */
	if (q->zip_at && q->zip_at % MINI_CQES == 0)
		memcpy(q->minis, place, sizeof(q->minis));
	len = be32toh(q->minis[q->zip_at % MINI_CQES].byte_cnt);
	*out = pop(q, (uint16_t)q->ci, len, q->zip_flags);
	if (!*out && !pop_long(q, (uint16_t)q->ci, len))
		return rq_break(q);
	/*
	 * The device has left what it wrote in the lap before, or an array: neither may look like a
	 * completion in the next lap.
	 */
	__atomic_store_n(&place->op_own, MLX5_CQE_INVALID << 4, __ATOMIC_RELAXED);
	q->cq.ci++;
	q->zip_at++;
	q->zip_left--;
	q->is_odd = q->zip_left || q->segs > 1;
	return *out ? RX_FRAME : RX_LONG;
}

/*
 * As rq_take_plain(), of one buffer, several, or strides; what is behind the completion's last byte
 * has been waited for.
 */
static enum rx_result take_one(struct rq *q, const struct mlx5_cqe64 *c, struct buf **out)
{
	if (q->slabs)
		return strq_take_odd(q, c, out);
	*out = pop(q, be16toh(c->wqe_counter),
		   be32toh(__atomic_load_n(&c->byte_cnt, __ATOMIC_RELAXED)), cqe_flags(c));
	if (!*out)
		return rq_take_long(q, c);
	q->cq.ci++;
	return RX_FRAME;
}

enum rx_result rq_take_odd(struct rq *q, struct buf **out)
{
	const struct mlx5_cqe64 *c = cq_at(&q->cq, q->cq.ci);
	const struct mlx5_err_cqe *e = (const struct mlx5_err_cqe *)c;
	uint8_t op_own = cqe_op_own(c);

	if (q->broken)
		return RX_BROKEN;
	if (q->zip_left)
		return zip_next(q, out);
	if (!cq_ours(&q->cq, q->cq.ci, op_own))
		return RX_NONE;
	/* The rest of the completion after the byte that says that it is there. */
	dev_rmb();
	switch (op_own & ~MLX5_CQE_OWNER_MASK) {
	case MLX5_CQE_RESP_SEND << 4 | CQE_COMPRESSED << 2:
		return zip_open(q, c) ? zip_next(q, out) : rq_break(q);
	case MLX5_CQE_RESP_SEND << 4: /* came since rq_take() looked */
	case MLX5_CQE_RESP_SEND << 4 | CQE_SOLICITED:
		return take_one(q, c, out);
	}
	if (op_own >> 4 == MLX5_CQE_RESP_ERR || op_own >> 4 == MLX5_CQE_REQ_ERR) {
		q->syndrome = e->syndrome;
		q->vendor_syndrome = e->vendor_err_synd;
	}
	return rq_break(q);
}
