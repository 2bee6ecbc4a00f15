/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The receive queue. */
#include "device.h"

#define LIST_END 0x100u

static const u8 *wqe(const struct mdev_rq *q, u32 index)
{
	return q->wqes + (size_t)(index & (q->cnt - 1)) * q->stride;
}

/* Its first data segment: behind what links it, in a striding queue. */
static const u8 *data_segment(const struct mdev_rq *q, u32 index)
{
	return wqe(q, index) + (q->parts ? 16 : 0);
}

/* The memory of the WQE at index must not be that of another that the device has. */
static void check_owner(struct mdev_rq *q, u32 index)
{
	u64 addr = get64(data_segment(q, index) + 8), len = get32(data_segment(q, index));

	for (u32 i = q->ci; i != index; i++) {
		u64 other = q->posted[i & (q->cnt - 1)];
		u64 other_len = get32(data_segment(q, i));

		if (addr < other + other_len && other < addr + len)
			mdev_complain(q->dev,
				      "a receive buffer is posted that the device still has", index,
				      i);
	}
	q->posted[index & (q->cnt - 1)] = addr;
	if (q->parts && len != (u64)q->parts * q->part)
		mdev_complain(q->dev, "a striding WQE is not as long as its strides", index,
			      (u32)len);
}

/* What is given to the device is no user's any more: who still looks at a frame there sees it. */
static void spoil(struct mdev_rq *q, u32 index)
{
	const u8 *seg = data_segment(q, index);
	u8 *memory =
		q->dev->ops->memory(q->dev, get32(seg + 4), get64(seg + 8), q->parts * q->part);

	for (u32 i = 0; memory && i < q->parts; i++)
		memset(memory + (size_t)i * q->part, 0xdd, 64);
}

void mdev_rq_fetch(struct mdev_rq *q)
{
	u16 ahead = (u16)(get32_once(q->dbrec) - q->pi);
	u32 end = q->pi + ahead;

	/* The WQEs were written before the record. */
	device_rmb();
	if (end - q->ci > q->cnt) {
		mdev_complain(q->dev, "the receive doorbell is beyond the queue", end, q->ci);
		return;
	}
	for (; q->pi != end; q->pi++) {
		if (q->posted)
			check_owner(q, q->pi);
		if (q->posted && q->parts)
			spoil(q, q->pi);
	}
}

static void put_error(struct mdev_rq *q, u8 syndrome)
{
	u8 cqe[64] = {0};

	put32(cqe + 56, q->qpn);
	put16(cqe + 60, (u16)q->ci);
	cqe[55] = syndrome;
	q->error = true;
	q->ci++;
	(void)mdev_cq_put(q->cq, cqe, MDEV_CQE_RESP_ERR);
}

void mdev_rq_abort(struct mdev_rq *q)
{
	mdev_rq_fetch(q);
	while (q->ci != q->pi)
		put_error(q, MDEV_FLUSHED);
}

/* Scatters the frame over the WQE at ci. 0 or a syndrome. */
static u8 scatter(struct mdev_rq *q, const u8 *frame, u32 len)
{
	const u8 *seg = wqe(q, q->ci), *end = seg + q->stride;

	if (q->posted && q->posted[q->ci & (q->cnt - 1)] != get64(seg + 8))
		mdev_complain(q->dev, "a receive WQE changed after the doorbell", q->ci, 0);
	for (; len && seg < end; seg += 16) {
		u32 lkey = get32(seg + 4), room = get32(seg), n = room < len ? room : len;
		u8 *to;

		if (lkey == LIST_END)
			break;
		to = q->dev->ops->memory(q->dev, lkey, get64(seg + 8), room);
		if (!to)
			return MDEV_PROTECTION_ERROR;
		memcpy(to, frame, n);
		frame += n;
		len -= n;
	}
	return len ? MDEV_LENGTH_ERROR : 0;
}

/* The frame goes to the next strides of the WQE at ci, in which there is room. 0 or a syndrome. */
static u8 stride(struct mdev_rq *q, const u8 *frame, u32 len)
{
	const u8 *seg = data_segment(q, q->ci);
	u8 *to;

	if (q->posted && q->posted[q->ci & (q->cnt - 1)] != get64(seg + 8))
		mdev_complain(q->dev, "a receive WQE changed after the doorbell", q->ci, 0);
	to = q->dev->ops->memory(q->dev, get32(seg + 4), get64(seg + 8) + (u64)q->at * q->part,
				 len);
	if (!to)
		return MDEV_PROTECTION_ERROR;
	memcpy(to, frame, len);
	return 0;
}

static void title(u8 cqe[64], const struct mdev_rq *q, u32 len, const struct mdev_seen *seen)
{
	memset(cqe, 0, 64);
	cqe[28] = seen->ok;
	cqe[29] = seen->types;
	put32(cqe + 44, len);
	put64(cqe + 48, seen->time);
	put32(cqe + 56, seen->tag & 0xffffff);
	put16(cqe + 60, (u16)q->ci);
}

/*
 * A session of n completions that differ in length only: the title has their number for its length;
 * arrays of eight lengths stand in the places of the second and of each eighth completion. What
 * stands in the other places is left as it is.
 */
void mdev_rq_flush(struct mdev_rq *q)
{
	struct mdev_cq *cq = q->cq;
	u32 n = q->zip_num, start = cq->pi;

	q->zip_num = 0;
	if (!n)
		return;
	put32(q->zip_title + 44, n > 1 ? n : q->zip_bytes[0]);
	for (u32 i = 0; n > 1 && i < n; i++) {
		u32 place = start + (i < 8 ? 1 : i & ~7u);

		/* What has no place, the title has not, either. */
		if (((place - get32_once(cq->dbrec)) & 0xffffff) < cq->cnt)
			put32(cq->entries + (size_t)(place & (cq->cnt - 1)) * 64 + (i & 7) * 8 + 4,
			      q->zip_bytes[i]);
	}
	if (mdev_cq_put(cq, q->zip_title, n > 1 ? MDEV_CQE_COMPRESSED : MDEV_CQE_RESP_SEND))
		cq->pi = start + n;
	if (n > 1 && q->sessions)
		++*q->sessions;
}

/* Holds the completion back if it fits to those that are. */
static void zip_add(struct mdev_rq *q, const u8 cqe[64], u32 len)
{
	/* Alike but for time, length and counter. */
	if (q->zip_num && (memcmp(cqe, q->zip_title, 44) || memcmp(cqe + 56, q->zip_title + 56, 4)))
		mdev_rq_flush(q);
	if (!q->zip_num)
		memcpy(q->zip_title, cqe, 64);
	q->zip_bytes[q->zip_num++] = len;
	if (q->zip_num == q->zip_max)
		mdev_rq_flush(q);
}

/* What is left of the WQE is too little for the next frame. */
static void put_filler(struct mdev_rq *q)
{
	u8 cqe[64] = {0};

	put16(cqe + 2, (u16)q->ci);
	put32(cqe + 44, 1u << 31 | (q->parts - q->at) << 16);
	put16(cqe + 60, (u16)q->at);
	q->at = 0;
	q->ci++;
	(void)mdev_cq_put(q->cq, cqe, MDEV_CQE_RESP_SEND);
}

static void put_strides(struct mdev_rq *q, u32 len, u32 need, const struct mdev_seen *seen)
{
	u8 cqe[64];

	title(cqe, q, need << 16 | len, seen);
	put16(cqe + 2, (u16)q->ci);
	put16(cqe + 60, (u16)q->at);
	q->at += need;
	if (q->at == q->parts) {
		q->at = 0;
		q->ci++;
	}
	(void)mdev_cq_put(q->cq, cqe, MDEV_CQE_RESP_SEND);
}

static bool receive_strides(struct mdev_rq *q, const u8 *frame, u32 len,
			    const struct mdev_seen *seen)
{
	u32 need = len ? (len + q->part - 1) / q->part : 1;
	u8 err = q->fail;

	q->fail = 0;
	if (need > q->parts || len > 0xffff)
		err = MDEV_LENGTH_ERROR;
	if (!err && need > q->parts - q->at)
		put_filler(q);
	if (q->ci == q->pi) {
		q->dropped++;
		return false;
	}
	if (!err)
		err = stride(q, frame, len);
	if (err) {
		put_error(q, err);
		return false;
	}
	put_strides(q, len, need, seen);
	return true;
}

bool mdev_rq_receive(struct mdev_rq *q, const u8 *frame, u32 len, const struct mdev_seen *seen)
{
	u8 cqe[64], err;

	mdev_rq_fetch(q);
	if (q->ci == q->pi || q->error) {
		q->dropped++;
		return false;
	}
	if (q->parts)
		return receive_strides(q, frame, len, seen);
	err = q->fail ? q->fail : scatter(q, frame, len);
	q->fail = 0;
	if (err) {
		mdev_rq_flush(q);
		put_error(q, err);
		return false;
	}
	title(cqe, q, len, seen);
	q->ci++;
	if (q->zip_max)
		zip_add(q, cqe, len);
	else
		(void)mdev_cq_put(q->cq, cqe, MDEV_CQE_RESP_SEND);
	return true;
}
