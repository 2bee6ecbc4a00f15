/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/queue/wq.h"

#include <errno.h>

/* What the hash wants for a key. It chooses among one. */
#define HASH_KEY_BYTES 40u

int wq_caps(struct ibv_context *context, struct mlx5dv_striding_rq_caps *caps)
{
	struct mlx5dv_context device = {.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ};

	if (!ibv.mlx5dv_create_wq || ibv.mlx5dv_query_device(context, &device) ||
	    !(device.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) ||
	    !(device.striding_rq_caps.supported_qpts & 1u << IBV_QPT_RAW_PACKET))
		return -EOPNOTSUPP;
	*caps = device.striding_rq_caps;
	return 0;
}

/* The queue pair in front of the table: it hashes nothing. NULL and errno. */
static struct ibv_qp *qp_make(struct ibv_pd *pd, struct ibv_rwq_ind_table *table)
{
	static uint8_t key[HASH_KEY_BYTES];
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf =
			{
				.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				.rx_hash_key_len = HASH_KEY_BYTES,
				.rx_hash_key = key,
			},
	};

	return ibv_create_qp_ex(pd->context, &attr);
}

/* 0 or a positive errno. */
static int ready(struct ibv_wq *wq)
{
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};

	return ibv_modify_wq(wq, &attr);
}

int wq_make(struct wq *w, struct ibv_pd *pd, struct ibv_cq *cq, const struct mlx5_want *want,
	    const char **what)
{
	struct ibv_wq_init_attr attr = {
		.wq_type = IBV_WQT_RQ, .max_wr = want->rx_wre, .max_sge = 1, .pd = pd, .cq = cq};
	struct mlx5dv_wq_init_attr more = {
		.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = {.single_stride_log_num_of_bytes =
					      (uint32_t)__builtin_ctz(want->stride),
				      .single_wqe_log_num_of_strides =
					      (uint32_t)__builtin_ctz(want->strides)},
	};
	struct ibv_rwq_ind_table_init_attr table = {.log_ind_tbl_size = 0, .ind_tbl = &w->wq};
	int err;

	*w = (struct wq){0};
	*what = "make the striding work queue";
	w->wq = ibv.mlx5dv_create_wq(pd->context, &attr, &more);
	if (!w->wq)
		return errno ? errno : EOPNOTSUPP;
	*what = "have the striding work queue receive";
	err = ready(w->wq);
	if (err)
		goto err_wq;
	*what = "make the table of the striding work queue";
	w->table = ibv_create_rwq_ind_table(pd->context, &table);
	err = errno ? errno : EOPNOTSUPP;
	if (!w->table)
		goto err_wq;
	*what = "make the queue pair of the striding work queue";
	w->qp = qp_make(pd, w->table);
	err = errno ? errno : EOPNOTSUPP;
	if (!w->qp)
		goto err_wq;
	return 0;

err_wq:
	wq_destroy(w);
	return err;
}

void wq_destroy(struct wq *w)
{
	if (w->qp)
		ibv.ibv_destroy_qp(w->qp);
	if (w->table)
		ibv_destroy_rwq_ind_table(w->table);
	if (w->wq)
		ibv_destroy_wq(w->wq);
	*w = (struct wq){0};
}
