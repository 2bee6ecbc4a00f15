/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a WQE is written and rung for: what sq.c does one after the other, sq_send() does in one go. */
#ifndef RING_MLX5_SEND_H
#define RING_MLX5_SEND_H

#include <string.h>

#include "mem/copy.h"
#include "ring/mlx5/queue.h"

/* Is a completion to be asked for with the next WQE? */
static inline bool sq_ask(struct sq *q)
{
	return --q->ask_in == 0;
}

/*
 * Control and Ethernet segment of the WQE at index pi, of so many 16-byte units, with so many header bytes, which are in place or
 * will be put there. The device is to write the checksums of IP, TCP and UDP (ring.caps.tx_csum).
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
	q->marks[start] = (struct sq_mark){.end = q->pi, .held = q->held_pi};
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
 * Tells the device of all up to WQEBB `end`; the last WQE is wqe. `alone`: it is the only new one, of so many bytes. Who calls is
 * the only one that rings.
 */
static inline __attribute__((always_inline)) void
sq_doorbell(struct sq *q, const uint8_t *wqe, uint32_t bytes, bool alone, uint32_t end)
{
	uint8_t *uar = q->bf + q->bf_offset;
	uint64_t word;

	memcpy(&word, wqe, sizeof(word));
	/* The WQEs before the record that says how far they go, that before the doorbell that has the device look. */
	dev_wmb();
	q->dbrec[MLX5_SND_DBR] = htobe32(end & 0xffff);
	dev_wc_wmb();
	if (alone && bytes <= q->bf_size) {
		/* The WQE itself, so that the device need not fetch it. It does not go round the queue's end. */
		const uint8_t *to = wqe + bytes;

		do {
			dev_wc_copy64(uar, wqe);
			wqe += BB;
			uar += BB;
		} while (wqe != to);
	} else {
		dev_write64(uar, word);
	}
	/* Out of the write-combining buffer now, and before the next doorbell, which takes the other register. */
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
 * Posts a frame that is hdr_len bytes at hdr, where 64 can be read, and len bytes at data, and rings the doorbell. False: it has no
 * place in a WQE of its own, or the queue is full or broken.
 */
static inline __attribute__((always_inline)) bool
sq_send(struct sq *q, const void *hdr, uint32_t hdr_len, const void *data, uint32_t len)
{
	uint32_t frame = hdr_len + len, bbs = slot_bbs(frame), pi = q->pi, end = pi + bbs,
		 qpn = q->qpn;
	uint8_t *wqe = q->wqes + (size_t)(pi & q->mask) * BB, *to = wqe + SQ_FRAME_AT;
	union sq_state s = sq_state_of(q);
	bool asks;

	if (__builtin_expect(len - 16 > SQ_SLOT_MAX, 0) ||
	    __builtin_expect(frame > q->slot_room, 0) || __builtin_expect(bbs > q->run, 0) ||
	    __builtin_expect(!sq_quiet(s), 0))
		return false;
	asks = sq_ask(q);
	sq_advance(q, bbs, asks);
	memcpy(to, hdr, 64);
	sq_head(wqe, pi, qpn, (SQ_FRAME_AT + frame + 15) / 16, frame, asks);
	if (__builtin_expect(len <= 64, 1))
		copy_short(to + hdr_len, data, len);
	else
		memcpy(to + hdr_len, data, len);
	/* All was rung for, and nobody else can have posted: nobody rings now, nor will before the state says so. */
	sq_doorbell(q, wqe, bbs * BB, true, end);
	s.post = (end & 0xffff) | bbs << 16;
	s.rung = end & 0xffff;
	__atomic_store_n(&q->state.whole, s.whole, __ATOMIC_RELEASE);
	if (__builtin_expect(asks, 0))
		sq_reclaim(q);
	return true;
}

#endif
