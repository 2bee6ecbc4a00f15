/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The device's own memory as a ring of frames (VMA_RING_DEV_MEM_TX): what was copied there the
 * device need not fetch. A frame's place is free again with the completion that frees its WQE.
 */
#ifndef RING_MLX5_DM_H
#define RING_MLX5_DM_H

#include "ring/mlx5/queue/queue.h"

/*
 * Copies len bytes; 8 more may be read. False: there is no place now. *offset: where they are,
 * counted from the memory's start.
 */
bool dm_put(struct sq_dm *m, const uint8_t *data, uint32_t len, uint32_t *offset);

#endif
