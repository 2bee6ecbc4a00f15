/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring on ConnectX: raw-packet queues that we drive ourselves. Only backends.c calls what is
 * here; the rest goes by struct ring_ops.
 *
 * Every packet: rx.c, tx.c, pool.c, dm.c, queue/. When rings and rules come and go: ring.c,
 * device.c, ibv.c, verbs.c, objects.h, rule.c, group.c, vlan.c. Rare: hw_clock.c, moderation.c,
 * recover.c, extra_api.c.
 */
#ifndef RING_MLX5_MLX5_H
#define RING_MLX5_MLX5_H

#include "ring/ring.h"

/* 0 or the errors of ring_open(); -EOPNOTSUPP: not such a card, or not usable. */
int mlx5_ring_open(int ifindex, struct ring **out);
/* Such a card is there, as far as can be told before its queues are made. */
bool mlx5_ring_likely(int ifindex);
/* As ring_open_more(): queues, memory and rules of its own. */
int mlx5_ring_more(const struct ring *first, struct ring **out);

#endif
