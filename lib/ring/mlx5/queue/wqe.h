/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How a WQE is written and rung for: what sq.c does one after the other, sq_send() does in one go.
 */
#ifndef RING_MLX5_QUEUE_WQE_H
#define RING_MLX5_QUEUE_WQE_H

#include <string.h>

#include "mem/mem.h"
#include "ring/mlx5/queue/queue.h"

/* Is a completion to be asked for with the next WQE? */
static inline bool sq_ask(struct sq *q)
{
	return --q->ask_in == 0;
}

/*
 * Control and Ethernet segment of the WQE at index pi, of so many 16-byte units, with so many
 * header bytes, which are in place or will be put there. The device is to write the checksums of
 * IP, TCP and UDP (ring.caps.tx_csum).
 */
static inline void sq_head(uint8_t *wqe, uint32_t pi, uint32_t qpn, uint32_t units, uint32_t header,
			   bool asks)
{
	struct mlx5_wqe_ctrl_seg *c = (struct mlx5_wqe_ctrl_seg *)wqe;
	struct mlx5_wqe_eth_seg *e = (struct mlx5_wqe_eth_seg *)(c + 1);

	c->opmod_idx_opcode = htobe32((pi & 0xffff) << 8 | MLX5_OPCODE_SEND);
	c->qpn_ds = htobe32(qpn | units);
	c->signature = 0;
	c->dci_stream_channel_id = 0;
	c->fm_ce_se = asks ? MLX5_WQE_CTRL_CQ_UPDATE : 0;
	c->imm = 0;
	e->rsvd0 = 0;
	e->cs_flags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
	e->rsvd1 = 0;
	e->mss = 0;
	e->rsvd2 = 0;
	e->inline_hdr_sz = htobe16((uint16_t)header);
}

/* The WQE of so many WQEBBs is written. */
static inline void sq_advance(struct sq *q, uint32_t bbs, bool asks)
{
	uint32_t start = q->pi & q->mask;

	q->pi += bbs;
	q->run -= bbs;
	if (__builtin_expect(!asks, 1))
		return;
	q->marks[start] = (struct sq_mark){.end = q->pi, .held = q->held_pi, .dm = q->dm.pi};
	q->ask_in = q->ask_every;
}

/* The WQE of so many WQEBBs is written, and sq_kick() may have it. */
static inline void sq_publish(struct sq *q, uint32_t bbs, bool asks)
{
	sq_advance(q, bbs, asks);
	/* release: who kicks reads the WQE */
	__atomic_store_n(&q->state.post, (q->pi & 0xffff) | bbs << 16, __ATOMIC_RELEASE);
	if (asks)
		sq_reclaim(q);
}

/*
 * Tells the device of all up to WQEBB `end`; the last WQE is wqe. `alone`: it is the only new one,
 * of so many WQEBBs, and of not more than `max` (a constant). The caller is the only one that rings
 * the doorbell.
 */
static inline __attribute__((always_inline)) void
sq_doorbell(struct sq *q, const uint8_t *wqe, uint32_t bbs, uint32_t max, bool alone, uint32_t end)
{
	uint8_t *uar = q->bf + q->bf_offset;
	uint64_t word;

	/*
	 * The WQEs before the record that says how far they go, that before the doorbell that has
	 * the device look.
	 */
	dev_wmb();
	__atomic_store_n(&q->dbrec[MLX5_SND_DBR], htobe32(end & 0xffff), __ATOMIC_RELAXED);
	dev_wc_wmb();
	if (alone && bbs * BB <= q->bf_size) {
		/*
		 * The WQE itself, so that the device need not fetch it. It does not go round the
		 * queue's end.
		 */
		dev_wc_copy64(uar, wqe);
		if (bbs > 1)
			dev_wc_copy64(uar + BB, wqe + BB);
		if (bbs > 2)
			dev_wc_copy64(uar + (size_t)2 * BB, wqe + (size_t)2 * BB);
		for (uint32_t at = 3; max > 3 && at < bbs; at++)
			dev_wc_copy64(uar + (size_t)at * BB, wqe + (size_t)at * BB);
	} else {
		memcpy(&word, wqe, sizeof(word));
		dev_write64(uar, word);
	}
	/*
	 * Out of the write-combining buffer now, and before the next doorbell, which takes the
	 * other register.
	 */
	dev_wc_wmb();
	q->bf_offset ^= q->bf_size;
}

/* Has everything that was posted been rung for? */
static inline bool sq_quiet(union sq_state s)
{
	return (uint16_t)s.post == (uint16_t)s.rung;
}

static inline union sq_state sq_state_of(const struct sq *q)
{
	return (union sq_state){.whole = __atomic_load_n(&q->state.whole, __ATOMIC_ACQUIRE)};
}

/*
 * What sq_send() does once it is known to be possible; `asks` and `tiny` (16 to 64 bytes at data)
 * are constants.
 */
static inline __attribute__((always_inline)) void
sq_send_as(struct sq *q, const void *hdr, const void *data, uint32_t len, bool asks, bool tiny)
{
	uint32_t frame = SQ_SEND_HEADER + len, bbs = slot_bbs(frame), pi = q->pi, end = pi + bbs,
		 start = pi & q->mask;
	uint8_t *wqe = q->wqes + (size_t)start * BB, *to = wqe + SQ_FRAME_AT;
	union sq_state s;

	q->pi = end;
	q->run -= bbs;
	if (asks) {
		q->marks[start] = (struct sq_mark){.end = end, .held = q->held_pi, .dm = q->dm.pi};
		q->ask_in = q->ask_every;
	} else {
		q->ask_in--;
	}
	memcpy(to, hdr, 48);
	sq_head(wqe, pi, q->qpn, (SQ_FRAME_AT + frame + 15) / 16, frame, asks);
	if (tiny)
		copy_short(to + SQ_SEND_HEADER, data, len);
	else
		memcpy(to + SQ_SEND_HEADER, data, len);
	/*
	 * All was rung for, and nobody else can have posted: nobody rings now, nor will before the
	 * state says so.
	 */
	sq_doorbell(q, wqe, bbs, tiny ? 3 : 16, true, end);
	s.post = (end & 0xffff) | bbs << 16;
	s.rung = end & 0xffff;
	__atomic_store_n(&q->state.whole, s.whole, __ATOMIC_RELEASE);
}

/*
 * Posts a frame that is SQ_SEND_HEADER bytes at hdr, where 48 can be read, and len bytes at data,
 * and rings the doorbell. False: it has no place in a WQE of its own, or the queue is full or
 * broken, or something is posted that was not rung for.
 */
static inline __attribute__((always_inline)) bool sq_send(struct sq *q, const void *hdr,
							  const void *data, uint32_t len)
{
	uint32_t frame = SQ_SEND_HEADER + len;

	/* A length near the top of its type, too, ends at one of these. */
	if (__builtin_expect(frame > q->slot_room || len > SQ_SLOT_MAX ||
				     slot_bbs(frame) > q->run || !sq_quiet(sq_state_of(q)),
			     0))
		return false;
	if (__builtin_expect(len - 16 > 48 || q->ask_in == 1, 0))
		return sq_send_odd(q, hdr, data, len);
	sq_send_as(q, hdr, data, len, false, true);
	return true;
}

#endif
