/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How long the device holds an interrupt back: VMA_CQ_MODERATION_* to start with, VMA_CQ_AIM_* from
 * then on.
 */
#ifndef RING_MLX5_MODERATION_H
#define RING_MLX5_MODERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/ring.h"

struct mlx5_moderation {
	/* an interrupt after so many packets, or so long after the first; 0 and 0: at once */
	uint32_t count, usec;
	bool fixed; /* by the program: the traffic changes nothing */
	/* When it was looked at last, and what had been counted by then. */
	int64_t at_ms;
	uint64_t packets, bytes, interrupts;
};

/* What the parameters say. */
void moderation_init(struct mlx5_moderation *m, int64_t now_ms);
/* What the program says, from now on. */
void moderation_fix(struct mlx5_moderation *m, uint32_t packets, uint32_t usec);
/* Looks at what has come since, when it is time to. True: count or usec is another one. */
bool moderation_adapt(struct mlx5_moderation *m, const struct ring_counters *c, int64_t now_ms);

#endif
