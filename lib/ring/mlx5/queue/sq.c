/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The send queue. A short frame is made in its WQE, whole, as an inline header; a longer one the
 * device reads from its buffer. No WQE of theirs goes round the queue's end: the former are not
 * made there, the latter are one WQEBB (lso.c has others).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/mlx5/dm.h"
#include "ring/mlx5/queue/mpw.h"

/* The slot is a part of the queue: there is nothing to give back. */
static void slot_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
}

static struct buf_pool slot_pool = {.free = slot_free};

int sq_init(struct sq *q, const struct mlx5dv_qp *qp, const struct mlx5dv_cq *cq,
	    const struct sq_config *config)
{
	uint32_t cnt = qp->sq.wqe_cnt, most, least;
	int err;

	memset(q, 0, sizeof(*q));
	/*
	 * The index in a WQE has 16 bits; of 32768 and less an index names one place among those in
	 * flight.
	 */
	if (!qp->sq.buf || (uintptr_t)qp->sq.buf % BB || !qp->dbrec || !qp->bf.reg ||
	    qp->sq.stride != BB || cnt < 4 || cnt > 32768 || (cnt & (cnt - 1)) ||
	    qp->bf.size % BB || !config->ask_every)
		return -EINVAL;
	if (config->min_inline && config->min_inline != SQ_INLINE_HEADER)
		return -EINVAL;
	err = cq_init(&q->cq, cq);
	if (err)
		return err;
	q->wqes = qp->sq.buf;
	q->mask = cnt - 1;
	q->run = cnt;
	q->qpn = config->qpn << 8;
	q->lkey = htobe32(config->lkey);
	q->min_inline = config->min_inline;
	q->dbrec = qp->dbrec;
	q->bf = qp->bf.reg;
	q->bf_size = qp->bf.size;
	/*
	 * WQEs that nobody asked a completion for never fill half the queue, and no WQE is longer
	 * than the other half: a full queue always has a completion to come.
	 */
	q->slot_room = config->max_inline < SQ_SLOT_MAX ? config->max_inline : SQ_SLOT_MAX;
	if (q->slot_room > cnt / 2 * BB - SQ_FRAME_AT)
		q->slot_room = cnt / 2 * BB - SQ_FRAME_AT;
	most = cnt / 2 / slot_bbs(q->slot_room);
	/* A place for each completion that can be asked for at once. */
	least = (cnt + q->cq.cnt - 1) / q->cq.cnt;
	if (least > most)
		return -EINVAL;
	q->ask_every = config->ask_every < most ? config->ask_every : most;
	if (q->ask_every < least)
		q->ask_every = least;
	q->ask_in = q->ask_every;
	/* One that asks for a completion each: of two WQEBBs at least. */
	q->lso = q->cq.cnt >= cnt / 2;
	/* Of one WQEBB at least. */
	q->mpw.able = config->mpw && q->cq.cnt >= cnt;
	if (config->dm && !((uintptr_t)config->dm % 8))
		q->dm = (struct sq_dm){.map = config->dm,
				       .size = config->dm_bytes & ~7u,
				       .lkey = htobe32(config->dm_lkey)};
	q->slot.pool = &slot_pool;
	q->held = calloc(cnt, sizeof(*q->held));
	q->marks = calloc(cnt, sizeof(*q->marks));
	if (q->held && q->marks)
		return 0;
	sq_fini(q);
	return -ENOMEM;
}

void sq_fini(struct sq *q)
{
	for (; q->held && q->held_ci != q->held_pi; q->held_ci++)
		buf_free(q->held[q->held_ci & q->mask]);
	if (q->mpw.is_on)
		buf_free(q->mpw.held);
	free(q->held);
	free(q->marks);
	q->held = NULL;
	q->marks = NULL;
	/* Nothing can be posted, nothing is left to be kicked. */
	q->slot_room = q->run = 0;
	q->broken = true;
	q->mpw.is_on = false;
	cq_mute(&q->cq);
	__atomic_store_n(&q->state.whole, 0, __ATOMIC_RELAXED);
}

/* --- completions */

void sq_stop(struct sq *q)
{
	q->broken = true;
	q->slot_room = 0;
}

/* The completion c does not move the queue on. */
static __attribute__((noinline)) void sq_break(struct sq *q, const struct mlx5_cqe64 *c,
					       uint8_t op_own)
{
	const struct mlx5_err_cqe *e = (const struct mlx5_err_cqe *)c;

	sq_stop(q);
	if (op_own >> 4 == MLX5_CQE_REQ_ERR || op_own >> 4 == MLX5_CQE_RESP_ERR) {
		q->syndrome = e->syndrome;
		q->vendor_syndrome = e->vendor_err_synd;
	}
}

void sq_reclaim(struct sq *q)
{
	uint32_t first = q->cq.ci;

	while (!q->broken) {
		const struct mlx5_cqe64 *c = cq_at(&q->cq, q->cq.ci);
		uint8_t op_own = cqe_op_own(c);
		struct sq_mark m;

		if (!cq_ours(&q->cq, q->cq.ci, op_own))
			break;
		/* The rest of the completion after the byte that says that it is there. */
		dev_rmb();
		m = q->marks[be16toh(c->wqe_counter) & q->mask];
		if (op_own >> 4 != MLX5_CQE_REQ || m.end - q->ci - 1 >= q->pi - q->ci) {
			sq_break(q, c, op_own);
			break;
		}
		/*
		 * Somebody is still copying the WQE to the UAR page (kick): its place is not free
		 * yet.
		 */
		if ((int16_t)(m.end - __atomic_load_n(&q->state.rung, __ATOMIC_ACQUIRE)) > 0)
			break;
		while (q->held_ci != m.held)
			buf_free(q->held[q->held_ci++ & q->mask]);
		q->ci = m.end;
		q->dm.ci = m.dm;
		q->cq.ci++;
	}
	if (q->cq.ci != first)
		cq_publish(&q->cq);
}

bool sq_room(struct sq *q, uint32_t bbs)
{
	uint32_t to_end, free;

	if (q->broken)
		return false;
	sq_reclaim(q);
	to_end = q->mask + 1 - (q->pi & q->mask);
	free = q->mask + 1 - (q->pi - q->ci);
	q->run = free < to_end ? free : to_end;
	return q->run >= bbs;
}

/* --- posting */

/* The frame is in its WQE, and there is room: nothing was posted since sq_slot(). */
static inline int post_slot(struct sq *q, uint32_t len)
{
	bool asks = sq_ask(q);

	sq_head(q->wqes + (size_t)(q->pi & q->mask) * BB, q->pi, q->qpn,
		(SQ_FRAME_AT + len + 15) / 16, len, asks);
	sq_publish(q, slot_bbs(len), asks);
	return 0;
}

/*
 * The device reads the frame from where it is, or from its own memory, but for the header bytes
 * that it wants in the WQE.
 */
static __attribute__((noinline)) int post_pointer(struct sq *q, struct buf *b)
{
	uint32_t header = q->min_inline;
	uint32_t offset, len = b->len - header;
	struct mlx5_wqe_data_seg *d;
	uint8_t *wqe;
	bool asks;

	if (q->mpw.is_on)
		return sq_burst_post(q, b);
	if (!q->run && !sq_room(q, 1))
		return -ENOBUFS;
	asks = sq_ask(q);
	wqe = q->wqes + (size_t)(q->pi & q->mask) * BB;
	sq_head(wqe, q->pi, q->qpn, header ? 4 : 3, header, asks);
	if (header)
		memcpy(wqe + SQ_FRAME_AT, b->data, SQ_INLINE_HEADER);
	d = (struct mlx5_wqe_data_seg *)(wqe + (header ? 48 : 32));
	d->byte_count = htobe32(len);
	if (q->dm.size && dm_put(&q->dm, b->data + header, len, &offset)) {
		d->lkey = q->dm.lkey;
		d->addr = htobe64(offset);
		buf_free(b);
	} else {
		d->lkey = q->lkey;
		d->addr = htobe64((uint64_t)(uintptr_t)b->data + header);
		q->held[q->held_pi++ & q->mask] = b;
	}
	sq_publish(q, 1, asks);
	return 0;
}

bool sq_send_odd(struct sq *q, const void *hdr, const void *data, uint32_t len)
{
	bool asks = q->ask_in == 1;

	if (len < 16)
		return false;
	if (!asks)
		sq_send_as(q, hdr, data, len, false, false);
	else
		sq_send_as(q, hdr, data, len, true, false);
	if (asks)
		sq_reclaim(q);
	return true;
}

int sq_post(struct sq *q, struct buf *b)
{
	if (__builtin_expect(q->broken || b->len <= SQ_INLINE_HEADER, 0))
		return q->broken ? -ENOBUFS : -EINVAL;
	return b == &q->slot ? post_slot(q, b->len) : post_pointer(q, b);
}

int sq_post_nop(struct sq *q, struct buf *b)
{
	struct mlx5_wqe_ctrl_seg *c;
	bool asks, slot = b == &q->slot;
	uint32_t len = slot ? b->len : SQ_INLINE_HEADER;

	if (q->broken || b->len <= SQ_INLINE_HEADER)
		return q->broken ? -ENOBUFS : -EINVAL;
	if (!slot) {
		sq_burst_end(q);
		if (!q->run && !sq_room(q, 1))
			return -ENOBUFS;
	}
	asks = sq_ask(q);
	c = (struct mlx5_wqe_ctrl_seg *)(q->wqes + (size_t)(q->pi & q->mask) * BB);
	sq_head((uint8_t *)c, q->pi, q->qpn, (SQ_FRAME_AT + len + 15) / 16, len, asks);
	c->opmod_idx_opcode = htobe32((q->pi & 0xffff) << 8 | MLX5_OPCODE_NOP);
	sq_publish(q, slot_bbs(len), asks);
	if (!slot)
		buf_free(b);
	return 0;
}

/* --- the doorbell */

/*
 * One thread rings at a time; what others posted meanwhile it rings for, too, so that nobody waits:
 * who does not get the word posted before the holder, having given it back, looks once more (the
 * exchanges are sequentially consistent).
 */
void sq_kick(struct sq *q)
{
	union sq_state s = sq_state_of(q);

	while (!sq_quiet(s) && !__atomic_exchange_n(&q->ringing, 1, __ATOMIC_SEQ_CST)) {
		uint32_t bbs, last;

		s = sq_state_of(q);
		bbs = s.post >> 16;
		last = s.post - bbs;
		if (!sq_quiet(s)) {
			/* One that goes round the end is not copied. */
			sq_doorbell(q, q->wqes + (size_t)(last & q->mask) * BB, bbs, 16,
				    (uint16_t)last == (uint16_t)s.rung &&
					    (last & q->mask) + bbs <= q->mask + 1,
				    s.post);
			/* release: sq_reclaim() may let the place of the WQE be overwritten now */
			__atomic_store_n(&q->state.rung, s.post & 0xffff, __ATOMIC_RELEASE);
		}
		__atomic_exchange_n(&q->ringing, 0, __ATOMIC_SEQ_CST);
		s = sq_state_of(q);
	}
}
