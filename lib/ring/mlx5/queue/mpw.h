/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bursts on a send queue: the frames between begin and end share WQEs. The lock of the stack is
 * held all the time; sq_kick() of other threads sees a WQE when it is complete.
 */
#ifndef RING_MLX5_QUEUE_MPW_H
#define RING_MLX5_QUEUE_MPW_H

#include "ring/mlx5/queue/wqe.h"

/* Nothing where the device cannot, or a burst is on. */
void sq_burst_begin(struct sq *q);
/* Also when there is none. */
void sq_burst_end(struct sq *q);
#define SQ_BURST_WRITTEN 64u
/*
 * Posts a frame of len bytes, which the caller writes to where the result points before it does
 * anything else; SQ_BURST_WRITTEN bytes may be written in any case. NULL: there is no burst, or no
 * room, or it is too long (or no frame): sq_post() may take it.
 */
uint8_t *sq_burst_add(struct sq *q, uint32_t len);
/* sq_post() in a burst: b has no fragments, and nobody else holds it. */
int sq_burst_post(struct sq *q, struct buf *b);

#endif
