/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The verbs objects of a striding receive queue: a work queue, a table of one that leads to it, and
 * a queue pair that receives by the table and that steering rules name. As the rest of verbs.c:
 * system calls, and the lock of the stack that owns the ring.
 */
#ifndef RING_MLX5_QUEUE_WQ_H
#define RING_MLX5_QUEUE_WQ_H

#include "ring/mlx5/ibv.h"
#include "ring/mlx5/objects.h"

struct wq {
	struct ibv_wq *wq;
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp; /* NULL: there is nothing */
};

/* What the device can have of it. 0; -EOPNOTSUPP: nothing, or rdma-core is too old. */
int wq_caps(struct ibv_context *context, struct mlx5dv_striding_rq_caps *caps);
/*
 * As `want` says, with completions in cq; it receives. 0, or a positive errno, *what could not be
 * done, and nothing is there.
 */
int wq_make(struct wq *w, struct ibv_pd *pd, struct ibv_cq *cq, const struct mlx5_want *want,
	    const char **what);
/* Rules have gone before. */
void wq_destroy(struct wq *w);

#endif
