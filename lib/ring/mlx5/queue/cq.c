/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "ring/mlx5/queue/queue.h"

int cq_init(struct cq *q, const struct mlx5dv_cq *dv)
{
	if (!dv->buf || !dv->dbrec || !dv->cqe_cnt || (dv->cqe_cnt & (dv->cqe_cnt - 1)) ||
	    (dv->cqe_size != 64 && dv->cqe_size != 128))
		return -EINVAL;
	*q = (struct cq){
		/* Of 128 bytes the second half is what the 64 are otherwise. */
		.cqes = (uint8_t *)dv->buf + dv->cqe_size - 64,
		.dbrec = dv->dbrec,
		.cnt = dv->cqe_cnt,
		.shift = dv->cqe_size == 64 ? 6 : 7,
	};
	return 0;
}

void cq_mute(struct cq *q)
{
	static uint8_t nothing[64] = {[63] = MLX5_CQE_INVALID << 4};
	static __be32 dbrec[2];

	*q = (struct cq){.cqes = nothing, .dbrec = dbrec, .cnt = 1, .shift = 6};
}
