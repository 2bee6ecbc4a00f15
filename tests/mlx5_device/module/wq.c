// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Work queues, striding ones only, the tables of one that lead to them, and the queue pairs that
 * receive by such a table.
 */
#include <linux/log2.h>
#include <rdma/mlx5-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "card.h"

#define DBREC_BYTES 8
#define WQE_SHIFT 5 /* a link and a data segment */
#define HASH_KEY_BYTES 40

static struct card_wq *wq_of(struct ib_wq *ib)
{
	return container_of(ib, struct card_wq, ib);
}

static struct card_table *table_of(struct ib_rwq_ind_table *ib)
{
	return container_of(ib, struct card_table, ib);
}

static void wq_free(struct card_wq *wq)
{
	pin_put(&wq->dbrec);
	pin_put(&wq->buf);
	kvfree(wq->rq.posted);
	kfree(wq);
}

static bool wq_fits(const struct mlx5_ib_create_wq *want)
{
	return want->comp_mask == MLX5_IB_CREATE_WQ_STRIDING_RQ && !want->two_byte_shift_en &&
	       !want->flags && is_power_of_2(want->rq_wqe_count) &&
	       want->rq_wqe_count <= CARD_MAX_RQ && want->rq_wqe_shift == WQE_SHIFT &&
	       want->single_stride_log_num_of_bytes >= CARD_STRIDE_LOG_MIN &&
	       want->single_stride_log_num_of_bytes <= CARD_STRIDE_LOG_MAX &&
	       want->single_wqe_log_num_of_strides >= CARD_STRIDES_LOG_MIN &&
	       want->single_wqe_log_num_of_strides <= CARD_STRIDES_LOG_MAX;
}

struct ib_wq *wq_create(struct ib_pd *pd, struct ib_wq_init_attr *attr, struct ib_udata *udata)
{
	struct mlx5_ib_create_wq_resp answer = {};
	struct mlx5_ib_create_wq want = {};
	struct card *card = card_of(pd->device);
	struct card_wq *wq;
	u32 cnt;
	int err;

	if (card->faults.no_wq || attr->wq_type != IB_WQT_RQ || attr->create_flags)
		return ERR_PTR(-EOPNOTSUPP);
	err = ib_copy_from_udata(&want, udata, min(udata->inlen, sizeof(want)));
	if (err)
		return ERR_PTR(err);
	if (!wq_fits(&want))
		return ERR_PTR(-EINVAL);
	wq = kzalloc(sizeof(*wq), GFP_KERNEL);
	if (!wq)
		return ERR_PTR(-ENOMEM);
	cnt = want.rq_wqe_count;
	err = pin_get(&wq->buf, pd->device, want.buf_addr, (u64)cnt << want.rq_wqe_shift);
	if (!err)
		err = pin_get(&wq->dbrec, pd->device, want.db_addr, DBREC_BYTES);
	if (err)
		goto err_wq;
	wq->rq = (struct mdev_rq){
		.dev = &card->dev,
		.cq = &container_of(attr->cq, struct card_cq, ib)->q,
		.wqes = wq->buf.at,
		.dbrec = wq->dbrec.at,
		.cnt = cnt,
		.stride = 1u << want.rq_wqe_shift,
		.parts = 1u << want.single_wqe_log_num_of_strides,
		.part = 1u << want.single_stride_log_num_of_bytes,
		.posted = kvcalloc(cnt, sizeof(u64), GFP_KERNEL),
	};
	err = -ENOMEM;
	if (!wq->rq.posted)
		goto err_wq;
	spin_lock_bh(&card->lock);
	wq->ib.wq_num = card->next_qpn++;
	wq->rq.qpn = wq->ib.wq_num;
	list_add_tail(&wq->of_card, &card->wqs);
	card->counts.wqs++;
	spin_unlock_bh(&card->lock);
	answer.response_length = min(udata->outlen, sizeof(answer));
	err = ib_copy_to_udata(udata, &answer, answer.response_length);
	if (!err)
		return &wq->ib;
	spin_lock_bh(&card->lock);
	list_del(&wq->of_card);
	card->counts.wqs--;
	spin_unlock_bh(&card->lock);
err_wq:
	wq_free(wq);
	return ERR_PTR(err);
}

int wq_modify(struct ib_wq *ib, struct ib_wq_attr *attr, u32 mask, struct ib_udata *udata)
{
	struct card *card = card_of(ib->device);
	struct card_wq *wq = wq_of(ib);

	if (mask & ~(IB_WQ_STATE | IB_WQ_CUR_STATE))
		return -EOPNOTSUPP;
	if (mask & IB_WQ_STATE) {
		spin_lock_bh(&card->lock);
		ib->state = attr->wq_state;
		wq->rq.error = ib->state == IB_WQS_ERR;
		spin_unlock_bh(&card->lock);
	}
	return 0;
}

int wq_destroy(struct ib_wq *ib, struct ib_udata *udata)
{
	struct card *card = card_of(ib->device);

	spin_lock_bh(&card->lock);
	list_del(&wq_of(ib)->of_card);
	card->counts.wqs--;
	spin_unlock_bh(&card->lock);
	wq_free(wq_of(ib));
	return 0;
}

int wq_table_create(struct ib_rwq_ind_table *ib, struct ib_rwq_ind_table_init_attr *attr,
		    struct ib_udata *udata)
{
	struct mlx5_ib_create_rwq_ind_tbl_resp answer = {};

	if (attr->log_ind_tbl_size)
		return -EOPNOTSUPP;
	table_of(ib)->wq = wq_of(attr->ind_tbl[0]);
	answer.response_length = min(udata->outlen, sizeof(answer));
	return ib_copy_to_udata(udata, &answer, answer.response_length);
}

int wq_table_destroy(struct ib_rwq_ind_table *ib)
{
	return 0;
}

/* What `attr` says of a queue pair that has nothing but a table. */
int wq_qp_make(struct card_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct mlx5_ib_create_qp_resp answer = {};
	struct mlx5_ib_create_qp_rss want = {};
	struct card *card = card_of(qp->ib.device);
	int err;

	err = ib_copy_from_udata(&want, udata, min(udata->inlen, sizeof(want)));
	if (err)
		return err;
	/* A table of one needs no field for its hash, but the key. */
	if (attr->cap.max_send_wr || want.rx_hash_fields_mask || want.comp_mask || want.flags ||
	    want.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ ||
	    want.rx_key_len != HASH_KEY_BYTES)
		return -EINVAL;
	qp->wq = table_of(attr->rwq_ind_tbl)->wq;
	qp->state = IB_QPS_RESET;
	err = ib_copy_to_udata(udata, &answer, min(udata->outlen, sizeof(answer)));
	if (err)
		return err;
	spin_lock_bh(&card->lock);
	qp->ib.qp_num = card->next_qpn++;
	list_add_tail(&qp->of_card, &card->qps);
	card->counts.qps++;
	spin_unlock_bh(&card->lock);
	wake_up(&card->wait);
	return 0;
}
