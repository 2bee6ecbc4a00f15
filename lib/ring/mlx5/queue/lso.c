/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Large frames: one WQE, which the device cuts into segments. The headers stand in it, the payload
 * the device reads from buffers. Such a WQE may go round the queue's end.
 */
#include <errno.h>
#include <string.h>

#include "ring/mlx5/queue/mpw.h"

#define UNIT 16u
#define UNITS_MAX 63u
#define UNITS_BB (BB / UNIT)

/* Units of 16 bytes in front of the data segments. */
static uint32_t head_units(uint32_t hdr_len)
{
	/* Control and Ethernet segment; the latter ends with the first two bytes of the headers. */
	return 2 + (hdr_len - 2 + UNIT - 1) / UNIT;
}

uint32_t sq_lso_segments(uint32_t hdr_len)
{
	return UNITS_MAX - head_units(hdr_len);
}

/* The unit so many behind the start of the next WQE. */
static uint8_t *unit_at(const struct sq *q, uint32_t unit)
{
	size_t at = (size_t)(q->pi & q->mask) * BB + (size_t)unit * UNIT;

	return q->wqes + (at & (((size_t)q->mask + 1) * BB - 1));
}

static void put_header(struct sq *q, const uint8_t *hdr, uint32_t hdr_len)
{
	uint32_t unit = 2;

	memcpy(unit_at(q, 0) + SQ_FRAME_AT, hdr, 2);
	for (uint32_t at = 2; at < hdr_len; at += UNIT)
		memcpy(unit_at(q, unit++), hdr + at, hdr_len - at < UNIT ? hdr_len - at : UNIT);
}

/* Are so many WQEBBs free, round the end if need be? */
static bool room_round(struct sq *q, uint32_t bbs)
{
	if (q->broken || q->mask + 1 - (q->pi - q->ci) >= bbs)
		return !q->broken;
	sq_reclaim(q);
	return !q->broken && q->mask + 1 - (q->pi - q->ci) >= bbs;
}

int sq_post_lso(struct sq *q, const void *hdr, uint32_t hdr_len, uint32_t mss, struct buf *payload,
		struct buf *last)
{
	uint32_t unit, bbs, n = 0;
	struct mlx5_wqe_ctrl_seg *c;
	struct mlx5_wqe_eth_seg *e;

	for (struct buf *b = payload; b; b = b->frag)
		n++;
	if (hdr_len < SQ_INLINE_HEADER || !n || !mss || mss > UINT16_MAX ||
	    hdr_len > SQ_LSO_HEADER_MAX || n > sq_lso_segments(hdr_len))
		return -EINVAL;
	sq_burst_end(q);
	unit = head_units(hdr_len);
	bbs = (unit + n + UNITS_BB - 1) / UNITS_BB;
	if (!room_round(q, last ? bbs + 1 : bbs))
		return -ENOBUFS;
	c = (struct mlx5_wqe_ctrl_seg *)unit_at(q, 0);
	e = (struct mlx5_wqe_eth_seg *)(c + 1);
	/* It always asks: its buffers are many. */
	sq_head((uint8_t *)c, q->pi, q->qpn, unit + n, hdr_len, true);
	c->opmod_idx_opcode = htobe32((q->pi & 0xffff) << 8 | MLX5_OPCODE_TSO);
	e->mss = htobe16((uint16_t)mss);
	put_header(q, hdr, hdr_len);
	for (struct buf *b = payload; b; b = b->frag, unit++) {
		struct mlx5_wqe_data_seg *d = (struct mlx5_wqe_data_seg *)unit_at(q, unit);

		d->byte_count = htobe32(b->len);
		d->lkey = q->lkey;
		d->addr = htobe64((uint64_t)(uintptr_t)b->data);
	}
	q->held[q->held_pi++ & q->mask] = payload;
	sq_publish(q, bbs, true);
	sq_room(q, 0);
	/* There is room: if not, the queue has broken just now, and all of it is lost. */
	if (last && sq_post(q, last))
		buf_free(last);
	return 0;
}
