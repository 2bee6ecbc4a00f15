// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Completion queues and queue pairs: made of user memory, executed by run.c and flow.c. */
#include <linux/log2.h>
#include <linux/mm.h>
#include <rdma/mlx5-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "card.h"

#define DBREC_BYTES 8
/* Up to here each posted buffer is compared with all that the device has. */
#define OWNER_CHECK_MAX 512u

static struct card_cq *cq_of(struct ib_cq *ib)
{
	return container_of(ib, struct card_cq, ib);
}

static struct card_qp *qp_of(struct ib_qp *ib)
{
	return container_of(ib, struct card_qp, ib);
}

int queues_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct ib_udata *udata)
{
	struct card *card = card_of(ibcq->device);
	struct card_cq *cq = cq_of(ibcq);
	struct mlx5_ib_create_cq_resp answer = {};
	struct mlx5_ib_create_cq want = {};
	u32 entries;
	int err;

	if (attr->cqe < 1 || attr->cqe >= CARD_MAX_CQE)
		return -EINVAL;
	entries = roundup_pow_of_two(attr->cqe + 1);
	err = ib_copy_from_udata(&want, udata, min(udata->inlen, sizeof(want)));
	if (err)
		return err;
	if ((want.cqe_size != 64 && want.cqe_size != 128) ||
	    !(want.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX))
		return -EINVAL;
	if (want.cqe_comp_en &&
	    (want.cqe_comp_res_format != MLX5_IB_CQE_RES_FORMAT_HASH || want.cqe_size != 64))
		return -EOPNOTSUPP;
	err = pin_get(&cq->buf, ibcq->device, want.buf_addr, (u64)entries * want.cqe_size);
	if (err)
		return err;
	err = pin_get(&cq->dbrec, ibcq->device, want.db_addr, DBREC_BYTES);
	if (err)
		goto err_buf;
	cq->q = (struct mdev_cq){
		.dev = &card->dev,
		.entries = cq->buf.at,
		.dbrec = cq->dbrec.at,
		.cnt = entries,
		.size = want.cqe_size,
	};
	cq->compressed = want.cqe_comp_en;
	cq->vector = attr->comp_vector;
	ibcq->cqe = entries - 1;

	spin_lock_bh(&card->lock);
	cq->q.cqn = card->next_cqn++;
	list_add_tail(&cq->of_card, &card->cqs);
	spin_unlock_bh(&card->lock);
	answer.cqn = cq->q.cqn;
	err = ib_copy_to_udata(udata, &answer, min(udata->outlen, sizeof(answer)));
	if (!err)
		return 0;
	queues_destroy_cq(ibcq, udata);
	return err;

err_buf:
	pin_put(&cq->buf);
	return err;
}

int queues_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct card *card = card_of(ibcq->device);
	struct card_cq *cq = cq_of(ibcq);

	spin_lock_bh(&card->lock);
	cq->count = count;
	cq->period = period;
	spin_unlock_bh(&card->lock);
	return 0;
}

int queues_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct card *card = card_of(ibcq->device);
	struct card_cq *cq = cq_of(ibcq);

	spin_lock_bh(&card->lock);
	list_del(&cq->of_card);
	run_forget_cq(card, cq->q.cqn);
	spin_unlock_bh(&card->lock);
	pin_put(&cq->dbrec);
	pin_put(&cq->buf);
	return 0;
}

static void qp_free(struct card_qp *qp)
{
	pin_put(&qp->dbrec);
	pin_put(&qp->rq_buf);
	pin_put(&qp->sq_buf);
	kvfree(qp->sq.sums);
	kvfree(qp->rq.posted);
}

static int sq_make(struct card_qp *qp, struct card *card, const struct mlx5_ib_create_qp *want,
		   struct ib_cq *cq)
{
	u32 cnt = want->sq_wqe_count;
	int err;

	if (!cnt)
		return 0;
	if (!is_power_of_2(cnt) || cnt > CARD_MAX_WQEBB)
		return -EINVAL;
	err = pin_get(&qp->sq_buf, qp->ib.device, want->sq_buf_addr, (u64)cnt * MDEV_BB);
	if (err)
		return err;
	qp->sq = (struct mdev_sq){
		.dev = &card->dev,
		.cq = &cq_of(cq)->q,
		.wqes = qp->sq_buf.at,
		.dbrec = qp->dbrec.at,
		.cnt = cnt,
		.sums = kvcalloc(cnt, sizeof(u64), GFP_KERNEL),
	};
	return qp->sq.sums ? 0 : -ENOMEM;
}

static int rq_make(struct card_qp *qp, struct card *card, const struct mlx5_ib_create_qp *want,
		   struct ib_cq *cq)
{
	u32 cnt = want->rq_wqe_count;
	int err;

	if (!cnt)
		return 0;
	if (!is_power_of_2(cnt) || cnt > CARD_MAX_RQ || want->rq_wqe_shift < 4 ||
	    want->rq_wqe_shift > 9)
		return -EINVAL;
	err = pin_get(&qp->rq_buf, qp->ib.device, want->buf_addr, (u64)cnt << want->rq_wqe_shift);
	if (err)
		return err;
	qp->rq = (struct mdev_rq){
		.dev = &card->dev,
		.cq = &cq_of(cq)->q,
		.wqes = qp->rq_buf.at,
		.dbrec = qp->dbrec.at,
		.cnt = cnt,
		.stride = 1u << want->rq_wqe_shift,
		.sessions = &card->counts.sessions,
		.zip_max = cq_of(cq)->compressed ? min(card->faults.compress, 64u) : 0,
		.posted = cnt <= OWNER_CHECK_MAX ? kvcalloc(cnt, sizeof(u64), GFP_KERNEL) : NULL,
	};
	return cnt > OWNER_CHECK_MAX || qp->rq.posted ? 0 : -ENOMEM;
}

int queues_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct card *card = card_of(ibqp->device);
	struct mlx5_ib_create_qp_resp answer = {};
	struct mlx5_ib_create_qp want = {};
	struct card_qp *qp = qp_of(ibqp);
	int err;

	if (attr->qp_type != IB_QPT_RAW_PACKET || attr->srq)
		return -EOPNOTSUPP;
	if (attr->rwq_ind_tbl)
		return wq_qp_make(qp, attr, udata);
	err = ib_copy_from_udata(&want, udata, min(udata->inlen, sizeof(want)));
	if (err)
		return err;
	if (!(want.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX))
		return -EINVAL;
	err = pin_get(&qp->dbrec, ibqp->device, want.db_addr, DBREC_BYTES);
	if (!err)
		err = sq_make(qp, card, &want, attr->send_cq);
	if (!err)
		err = rq_make(qp, card, &want, attr->recv_cq);
	if (err) {
		qp_free(qp);
		return err;
	}
	qp->uar = want.bfreg_index;
	qp->state = IB_QPS_RESET;
	qp->cap = attr->cap;

	spin_lock_bh(&card->lock);
	ibqp->qp_num = card->next_qpn++;
	qp->sq.qpn = ibqp->qp_num;
	qp->rq.qpn = ibqp->qp_num;
	list_add_tail(&qp->of_card, &card->qps);
	card->counts.qps++;
	spin_unlock_bh(&card->lock);
	wake_up(&card->wait);
	answer.bfreg_index = want.bfreg_index;
	err = ib_copy_to_udata(udata, &answer, min(udata->outlen, sizeof(answer)));
	if (err)
		queues_destroy_qp(ibqp, udata);
	return err;
}

int queues_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct card *card = card_of(ibqp->device);
	struct card_qp *qp = qp_of(ibqp);

	if (!(mask & IB_QP_STATE))
		return 0;
	spin_lock_bh(&card->lock);
	qp->state = attr->qp_state;
	/* What was posted, and will be, comes back with an error. */
	qp->sq.error = qp->state == IB_QPS_ERR;
	qp->rq.error = qp->state == IB_QPS_ERR;
	spin_unlock_bh(&card->lock);
	return 0;
}

int queues_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	struct card_qp *qp = qp_of(ibqp);

	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->port_num = 1;
	attr->cap = qp->cap;
	init->cap = qp->cap;
	return 0;
}

int queues_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct card *card = card_of(ibqp->device);
	struct card_qp *qp = qp_of(ibqp);

	spin_lock_bh(&card->lock);
	list_del(&qp->of_card);
	run_forget_qp(card, ibqp->qp_num);
	card->counts.qps--;
	spin_unlock_bh(&card->lock);
	qp_free(qp);
	return 0;
}
