/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program asks of the card itself, through the Extra API. */
#include <errno.h>

#include "mellanox/vma_extra.h"
#include "ring/mlx5/internal.h"

int mlx5_moderate_by(struct ring *r, uint32_t packets, uint32_t usec)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel;

	if (!m->moderated)
		return -EOPNOTSUPP;
	cancel = mlx5_begin();
	moderation_fix(&m->moderation, packets, usec);
	mlx5_moderate(m);
	mlx5_end(cancel);
	return m->moderated ? 0 : -EOPNOTSUPP;
}

int mlx5_memory_add(struct ring *r, void *addr, size_t len, uint32_t *key)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel = mlx5_begin();
	int err = m->objects->ops->memory_add(m->objects, addr, len, key);

	mlx5_end(cancel);
	return err;
}

int mlx5_memory_del(struct ring *r, void *addr, size_t len)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel = mlx5_begin();
	int err = m->objects->ops->memory_del(m->objects, addr, len);

	mlx5_end(cancel);
	return err;
}

static struct hw_cq_data cq_data(const struct mlx5dv_cq *dv, struct cq *q)
{
	return (struct hw_cq_data){
		.buf = dv->buf,
		.dbrec = (volatile uint32_t *)dv->dbrec,
		.cq_size = dv->cqe_cnt,
		.cqe_size = dv->cqe_size,
		.cqn = dv->cqn,
		.uar = dv->cq_uar,
		.cons_idx = &q->ci,
	};
}

static void describe_rq(struct mlx5_ring *m, struct hw_rq_data *to)
{
	const struct mlx5_objects *o = m->objects;
	bool strides = m->rq.slabs != NULL;

	to->wq_data.buf = strides ? o->rwq.buf : o->qp.rq.buf;
	to->wq_data.wqe_cnt = strides ? o->rwq.wqe_cnt : o->qp.rq.wqe_cnt;
	to->wq_data.stride = strides ? o->rwq.stride : o->qp.rq.stride;
	to->wq_data.dbrec = (volatile uint32_t *)(strides ? o->rwq.dbrec : o->qp.dbrec);
	to->wq_data.cq_data = cq_data(&o->rx_cq, &m->rq.cq);
	to->head = &m->rq.pi;
	to->tail = &m->rq.ci;
}

static void describe_sq(struct mlx5_ring *m, struct hw_sq_data *to)
{
	const struct mlx5_objects *o = m->objects;

	to->wq_data.buf = o->qp.sq.buf;
	to->wq_data.wqe_cnt = o->qp.sq.wqe_cnt;
	to->wq_data.stride = o->qp.sq.stride;
	to->wq_data.dbrec = (volatile uint32_t *)o->qp.dbrec;
	to->wq_data.cq_data = cq_data(&o->tx_cq, &m->sq.cq);
	to->sq_num = o->qpn;
	to->bf.reg = o->qp.bf.reg;
	to->bf.size = o->qp.bf.size;
	to->bf.offset = m->sq.bf_offset;
}

void mlx5_describe(struct ring *r, struct vma_mlx_hw_device_data *to)
{
	struct mlx5_ring *m = mlx5_ring(r);

	*to = (struct vma_mlx_hw_device_data){.valid_mask = DATA_VALID_DEV};
	to->dev_data.vendor_id = m->objects->vendor_id;
	to->dev_data.vendor_part_id = m->objects->part_id;
	if (m->retry)
		return;
	describe_sq(m, &to->sq_data);
	describe_rq(m, &to->rq_data);
	to->valid_mask |= DATA_VALID_SQ | DATA_VALID_RQ;
}
