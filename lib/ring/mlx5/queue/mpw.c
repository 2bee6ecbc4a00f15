/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bursts: frames that are posted one after the other share a WQE (enhanced multi-packet WQE): one
 * control and one Ethernet segment, then of each frame a segment that holds it, or that points to
 * it. Such a WQE does not go round the queue's end, and nobody sees it before it is closed: when it
 * is full, or with the burst.
 */
#include "ring/mlx5/queue/mpw.h"

#include <errno.h>

#define UNIT 16u
#define UNITS_MAX 63u
#define HEAD_UNITS 2u
#define OPCODE_MPW 0x29u /* enhanced; mlx5dv.h does not have it */

static uint8_t *unit_at(const struct sq *q, uint32_t unit)
{
	return q->wqes + (size_t)(q->pi & q->mask) * BB + (size_t)unit * UNIT;
}

/* A segment that holds so many bytes of a frame, behind its length. */
static uint32_t inline_units(uint32_t len)
{
	return ((uint32_t)sizeof(struct mlx5_wqe_inl_data_seg) + len + UNIT - 1) / UNIT;
}

/*
 * Begins a WQE: where it will stand is known, and how long it may become. False: there is no room.
 */
static __attribute__((noinline)) bool wqe_open(struct sq *q)
{
	struct sq_mpw *m = &q->mpw;
	uint32_t bbs;

	if (q->run * (BB / UNIT) < UNITS_MAX && !sq_room(q, 1))
		return false;
	/* As of all WQEs: none is longer than half the queue. */
	bbs = q->run < (q->mask + 1) / 2 ? q->run : (q->mask + 1) / 2;
	m->units_max = bbs * (BB / UNIT) < UNITS_MAX ? bbs * (BB / UNIT) : UNITS_MAX;
	m->units = HEAD_UNITS;
	m->frames = 0;
	m->held = NULL;
	return true;
}

/* What is in it is for sq_kick() from now on. */
static __attribute__((noinline)) void wqe_close(struct sq *q)
{
	struct mlx5_wqe_ctrl_seg *c = (struct mlx5_wqe_ctrl_seg *)unit_at(q, 0);
	struct sq_mpw *m = &q->mpw;
	uint32_t bbs = (m->units + BB / UNIT - 1) / (BB / UNIT),
		 weight = m->frames + (m->frames == 1);
	bool asks;

	m->units_max = 0;
	if (!m->units || !m->frames) {
		m->units = 0;
		return;
	}
	/*
	 * It counts for as many WQEs as it has frames: so many would be at least as long (a single
	 * one, which may take a WQEBB more than by itself, counts for two), and hold as many
	 * buffers.
	 */
	asks = q->ask_in <= weight;
	if (!asks)
		q->ask_in -= weight;
	sq_head((uint8_t *)c, q->pi, q->qpn, m->units, 0, asks);
	c->opmod_idx_opcode = htobe32((q->pi & 0xffff) << 8 | OPCODE_MPW);
	if (m->held)
		q->held[q->held_pi++ & q->mask] = m->held;
	m->held = NULL;
	m->units = 0;
	sq_publish(q, bbs, asks);
}

void sq_burst_begin(struct sq *q)
{
	if (!q->mpw.able || q->mpw.is_on || q->broken)
		return;
	/* Nothing makes a WQE of its own meanwhile: sq_slot() and sq_send() find no room. */
	q->mpw.slot_room = q->slot_room;
	q->slot_room = 0;
	q->mpw.is_on = true;
	q->mpw.units = q->mpw.units_max = 0;
}

void sq_burst_end(struct sq *q)
{
	if (!q->mpw.is_on)
		return;
	wqe_close(q);
	q->mpw.is_on = false;
	if (!q->broken)
		q->slot_room = q->mpw.slot_room;
}

uint8_t *sq_burst_add(struct sq *q, uint32_t len)
{
	uint32_t units = inline_units(len > SQ_BURST_WRITTEN ? len : SQ_BURST_WRITTEN);
	struct mlx5_wqe_inl_data_seg *in;
	struct sq_mpw *m = &q->mpw;

	if (!m->is_on || len > m->slot_room || len <= SQ_INLINE_HEADER)
		return NULL;
	if (m->units + units > m->units_max) {
		wqe_close(q);
		/* Near the queue's end a segment that points to the frame may fit. */
		if (!wqe_open(q) || m->units + units > m->units_max)
			return NULL;
	}
	in = (struct mlx5_wqe_inl_data_seg *)unit_at(q, m->units);
	in->byte_count = htobe32(len | MLX5_INLINE_SEG);
	m->units += inline_units(len);
	m->frames++;
	return (uint8_t *)(in + 1);
}

int sq_burst_post(struct sq *q, struct buf *b)
{
	struct mlx5_wqe_data_seg *d;
	struct sq_mpw *m = &q->mpw;

	if (m->units == m->units_max) {
		wqe_close(q);
		if (!wqe_open(q))
			return -ENOBUFS;
	}
	d = (struct mlx5_wqe_data_seg *)unit_at(q, m->units);
	d->byte_count = htobe32(b->len);
	d->lkey = q->lkey;
	d->addr = htobe64((uint64_t)(uintptr_t)b->data);
	/* All go with one completion: they are one chain. */
	b->frag = m->held;
	m->held = b;
	m->units++;
	m->frames++;
	return 0;
}
