/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The device's clock, and what is made of its time stamps (VMA_HW_TS_CONVERSION). For whoever holds
 * the lock of the stack that owns the ring.
 */
#ifndef RING_MLX5_HW_CLOCK_H
#define RING_MLX5_HW_CLOCK_H

#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stdint.h>

#include "ring/mlx5/objects.h"

enum clock_kind {
	CLOCK_NONE,
	CLOCK_RAW, /* nanoseconds since the device's counter was 0 */
	CLOCK_SYSTEM, /* CLOCK_REALTIME, from how both were seen together */
	CLOCK_PTP, /* the device's PTP clock */
};

struct mlx5_clock {
	enum clock_kind kind;
	bool running; /* stamps are wanted: it is looked at now and then */
	unsigned upkeeps;
	uint32_t khz;
	uint64_t mask; /* of a stamp's bits that count */
	/*
	 * CLOCK_SYSTEM: they were seen together; CLOCK_REALTIME, and how fast it goes: nanoseconds
	 * in a cycle << 32.
	 */
	uint64_t cycles, ns, rate;
	struct mlx5dv_clock_info ptp;
};

/* What the device of o can be used for, of what `conversion` (VMA_HW_TS_CONVERSION) asks for. */
void clock_init(struct mlx5_clock *c, struct mlx5_objects *o, int conversion);
/* Stamps are wanted from now on. */
void clock_run(struct mlx5_clock *c, struct mlx5_objects *o);
/* The worker's, at each upkeep. */
void clock_upkeep(struct mlx5_clock *c, struct mlx5_objects *o);
/* A completion's stamp in nanoseconds, 0: there is none. clock_run() has been called. */
uint64_t clock_ns(const struct mlx5_clock *c, uint64_t stamp);

#endif
