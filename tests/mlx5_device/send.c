/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The send queue. */
#include "device.h"

#define OPCODE_NOP 0x00
#define OPCODE_SEND 0x0a
#define OPCODE_TSO 0x0e
#define OPCODE_MPW 0x29
#define FLAG_COMPLETE 0x08
#define INLINE 0x80000000u

static const u8 *bb(const struct mdev_sq *q, u32 index)
{
	return q->wqes + (size_t)(index & (q->cnt - 1)) * MDEV_BB;
}

/* The WQE at index, in one piece, in dev->wqe. Its number of 16-byte units, 0: it is none. */
static u32 load(struct mdev_sq *q, u32 index, u32 end)
{
	struct mdev *d = q->dev;
	const u8 *ctrl = bb(q, index);
	u32 units = ctrl[7] & 0x3f, bbs = (units + 3) / 4;

	if ((get32(ctrl) >> 8 & 0xffff) != (index & 0xffff)) {
		mdev_complain(d, "the counter in a WQE is not its place", get32(ctrl) >> 8, index);
		return 0;
	}
	if (get32(ctrl + 4) >> 8 != q->qpn) {
		mdev_complain(d, "a WQE names another queue pair", get32(ctrl + 4) >> 8, q->qpn);
		return 0;
	}
	if (!units || end - index < bbs) {
		mdev_complain(d, "a WQE is empty, or reaches beyond the producer index", index,
			      units);
		return 0;
	}
	for (u32 i = 0; i < bbs; i++)
		memcpy(d->wqe + i * MDEV_BB, bb(q, index + i), MDEV_BB);
	return units;
}

static u64 sum_add(u64 sum, const u8 *p, u32 len)
{
	for (u32 i = 0; i < len; i++)
		sum = (sum ^ p[i]) * 0x100000001b3ull;
	return sum;
}

/* Where the data segments start, 0: the Ethernet segment is not right. */
static u32 data_start(struct mdev_sq *q, u32 bytes)
{
	struct mdev *d = q->dev;
	u32 header;

	if (bytes < 32) {
		mdev_complain(d, "a WQE ends before its Ethernet segment", q->ci, bytes);
		return 0;
	}
	header = get16(d->wqe + 28) & 0x3ff;
	if (header < d->min_inline) {
		mdev_complain(d, "the inline header is too short", header, d->min_inline);
		return 0;
	}
	/* Two bytes of it stand in the segment, the others behind, in whole units. */
	header = header <= 2 ? 32 : 32 + (header - 2 + 15) / 16 * 16;
	if (header > bytes) {
		mdev_complain(d, "the inline header reaches beyond its WQE", header, bytes);
		return 0;
	}
	return header;
}

/*
 * One segment at `at` of the WQE. *data and *len: what it names, *next: where the following one
 * starts. 0 or a syndrome.
 */
static u8 segment(struct mdev_sq *q, u32 at, u32 bytes, const u8 **data, u32 *len, u32 *next)
{
	struct mdev *d = q->dev;
	u32 word = get32(d->wqe + at);

	*next = at + 16;
	if (word & INLINE) {
		*len = word & 0x3ff;
		*next = at + (4 + *len + 15) / 16 * 16;
		*data = d->wqe + at + 4;
		if (*len && *next <= bytes)
			return 0;
		mdev_complain(d, "an inline segment is empty or reaches beyond its WQE", *len, at);
		return MDEV_QP_ERROR;
	}
	*len = word;
	if (!word || word > MDEV_FRAME_MAX) {
		mdev_complain(d, "a data segment has no length, or too much", word, at);
		return MDEV_LENGTH_ERROR;
	}
	*data = d->ops->memory(d, get32(d->wqe + at + 4), get64(d->wqe + at + 8), word);
	return *data ? 0 : MDEV_PROTECTION_ERROR;
}

/* Puts the frame of the WQE in hand together, of at most `max` bytes. 0 or a syndrome. */
static u8 gather(struct mdev_sq *q, u32 units, u32 max, u32 *frame_len)
{
	struct mdev *d = q->dev;
	u32 bytes = units * 16, at = data_start(q, bytes), header, len;
	const u8 *data;
	u8 err;

	if (!at)
		return MDEV_QP_ERROR;
	header = get16(d->wqe + 28) & 0x3ff;
	memcpy(d->frame, d->wqe + 30, header);
	for (*frame_len = header; at < bytes; *frame_len += len) {
		err = segment(q, at, bytes, &data, &len, &at);
		if (err)
			return err;
		if (*frame_len + len > max) {
			mdev_complain(d, "a frame is too long", *frame_len + len, max);
			return MDEV_LENGTH_ERROR;
		}
		memcpy(d->frame + *frame_len, data, len);
	}
	if (*frame_len >= 14)
		return 0;
	mdev_complain(d, "a frame is too short", *frame_len, q->ci);
	return MDEV_LENGTH_ERROR;
}

/*
 * What the WQE at index and the memory that it names are just now. Silent: what is wrong with it is
 * told when it is executed.
 */
static u64 fingerprint(struct mdev_sq *q, u32 units)
{
	struct mdev *d = q->dev;
	u64 sum = sum_add(0xcbf29ce484222325ull, d->wqe, units * 16);
	u32 at, header = get16(d->wqe + 28) & 0x3ff;

	if ((d->wqe[3] != OPCODE_SEND && d->wqe[3] != OPCODE_TSO && d->wqe[3] != OPCODE_MPW) ||
	    units < 2)
		return sum;
	at = header <= 2 ? 32 : 32 + (header - 2 + 15) / 16 * 16;
	for (; at + 16 <= units * 16; at += 16) {
		u32 word = get32(d->wqe + at);
		const u8 *data;

		if (word & INLINE) {
			at += (4 + (word & 0x3ff) + 15) / 16 * 16 - 16;
			continue;
		}
		data = word && word <= MDEV_FRAME_MAX ? d->ops->memory(d, get32(d->wqe + at + 4),
								       get64(d->wqe + at + 8), word)
						      : NULL;
		if (data)
			sum = sum_add(sum, data, word);
	}
	return sum;
}

static void complete(struct mdev_sq *q, u32 index, u32 end, u8 op, u8 syndrome)
{
	u8 cqe[64] = {0};

	/* The queue pair, which an error has, too, and the opcode of the WQE above it. */
	put32(cqe + 56, (u32)bb(q, index)[3] << 24 | q->qpn);
	put16(cqe + 60, (u16)index);
	cqe[55] = syndrome;
	q->freed = end;
	(void)mdev_cq_put(q->cq, cqe, op);
}

void mdev_sq_doorbell(struct mdev_sq *q, const u8 *reg, bool whole)
{
	struct mdev *d = q->dev;
	u16 ahead = (u16)(get32_once(q->dbrec + 4) - q->pi), at = (u16)((get32(reg) >> 8) - q->pi);
	u32 index, units, bytes;

	if (get32(reg + 4) >> 8 != q->qpn) {
		mdev_complain(d, "a doorbell names another queue pair", get32(reg + 4) >> 8,
			      q->qpn);
		return;
	}
	if (d->racing && at >= 0x8000)
		return; /* one behind it was seen before */
	if (at >= ahead) {
		mdev_complain(d, "a doorbell names a WQE that its record does not reach",
			      get32(reg) >> 8, q->pi + ahead);
		return;
	}
	index = q->pi + at;
	if (memcmp(reg, bb(q, index), 8))
		mdev_complain(d, "a doorbell is not the head of the WQE that it names", index, 0);
	units = reg[7] & 0x3f;
	for (u32 i = 0; whole && i * MDEV_BB < units * 16; i++) {
		bytes = units * 16 - i * MDEV_BB;
		if (memcmp(reg + (size_t)i * MDEV_BB, bb(q, index + i),
			   bytes < MDEV_BB ? bytes : MDEV_BB))
			mdev_complain(d, "what was written through BlueFlame is not the WQE", index,
				      i);
	}
	if (!q->has_rung || at > (u16)(q->rung - q->pi))
		q->rung = index;
	q->has_rung = true;
}

void mdev_sq_fetch(struct mdev_sq *q)
{
	struct mdev *d = q->dev;
	u16 ahead = (u16)(get32_once(q->dbrec + 4) - q->pi);
	u32 end = q->pi + ahead, index, units, last = q->pi;

	if (!q->has_rung)
		return;
	q->has_rung = false;
	if (d->racing)
		end = q->rung + ((bb(q, q->rung)[7] & 0x3f) + 3) / 4;
	/* The WQEs were written before the record. */
	device_rmb();
	if (end - q->freed > q->cnt) {
		mdev_complain(d, "the doorbell is beyond the queue: WQEs were written over", end,
			      q->freed);
		return;
	}
	for (index = q->pi; index != end; index += (units + 3) / 4) {
		units = load(q, index, end);
		if (!units)
			return; /* nothing behind it can be found */
		if (q->sums)
			q->sums[index & (q->cnt - 1)] = fingerprint(q, units);
		last = index;
		q->pi = index + (units + 3) / 4;
	}
	if (last != q->rung)
		mdev_complain(d, "the last doorbell does not name the last WQE", q->rung, last);
}

/* A frame that is to leave in segments. 0 or a syndrome. */
static u8 execute_tso(struct mdev_sq *q, u32 units)
{
	struct mdev *d = q->dev;
	u32 header = get16(d->wqe + 28) & 0x3ff, mss = get16(d->wqe + 22), len, l3, l4, at, n = 0;
	u8 err;

	if (!d->max_tso || d->wqe[0]) {
		mdev_complain(d, "a frame is to be cut, which the device cannot", q->ci, 0);
		return MDEV_QP_ERROR;
	}
	err = gather(q, units, MDEV_FRAME_MAX, &len);
	if (err)
		return err;
	if (!mss || mdev_cut_point(d->frame, header, &l3, &l4) != header || len == header ||
	    len - header > d->max_tso || (d->wqe[20] & 0xc0) != 0xc0) {
		mdev_complain(d, "a frame to be cut has no header, size or checksums that fit",
			      header, mss);
		return MDEV_QP_ERROR;
	}
	if (header + mss > d->max_frame || header + mss > MDEV_SEGMENT_MAX) {
		mdev_complain(d, "the segments of a frame are too long", header + mss,
			      d->max_frame);
		return MDEV_LENGTH_ERROR;
	}
	for (at = 0; at < len - header; at += mss, n++) {
		u32 part = len - header - at < mss ? len - header - at : mss;

		memcpy(d->segment, d->frame, header);
		memcpy(d->segment + header, d->frame + header + at, part);
		mdev_cut_header(d->segment, l3, l4, n, at, part, at + part == len - header);
		mdev_checksum(d->segment, header + part, d->wqe[20]);
		d->ops->transmit(d, d->segment, header + part);
	}
	return 0;
}

/* Each segment is a frame. 0 or a syndrome. */
static u8 execute_mpw(struct mdev_sq *q, u32 units)
{
	struct mdev *d = q->dev;
	u32 at = 32, bytes = units * 16, len;
	const u8 *data;
	u8 err;

	/* With an opcode modifier it would be the older kind. */
	if (!d->mpw || d->wqe[0]) {
		mdev_complain(d, "several frames in a WQE, which the device does not know", q->ci,
			      0);
		return MDEV_QP_ERROR;
	}
	if (bytes <= at || get16(d->wqe + 28) || get16(d->wqe + 22)) {
		mdev_complain(d, "a WQE of several frames has none, or a header, or a size", units,
			      get16(d->wqe + 28));
		return MDEV_QP_ERROR;
	}
	while (at < bytes) {
		err = segment(q, at, bytes, &data, &len, &at);
		if (err)
			return err;
		if (len < 14 || len > d->max_frame) {
			mdev_complain(d, "a frame is too short or too long", len, d->max_frame);
			return MDEV_LENGTH_ERROR;
		}
		memcpy(d->frame, data, len);
		mdev_checksum(d->frame, len, d->wqe[20]);
		d->ops->transmit(d, d->frame, len);
	}
	return 0;
}

/* Executes the WQE in hand. 0 or a syndrome. */
static u8 execute(struct mdev_sq *q, u32 units)
{
	struct mdev *d = q->dev;
	u8 opcode = d->wqe[3], err;
	u32 len;

	if (q->sums && q->sums[q->ci & (q->cnt - 1)] != fingerprint(q, units))
		mdev_complain(d, "a WQE or its data changed after the doorbell", q->ci, 0);
	if (q->error)
		return MDEV_FLUSHED;
	if (q->fail) {
		err = q->fail;
		q->fail = 0;
		return err;
	}
	if (opcode == OPCODE_NOP)
		return 0;
	if (opcode == OPCODE_TSO)
		return execute_tso(q, units);
	if (opcode == OPCODE_MPW)
		return execute_mpw(q, units);
	if (opcode != OPCODE_SEND || d->wqe[0]) {
		mdev_complain(d, "a WQE has an unknown opcode", opcode, q->ci);
		return MDEV_QP_ERROR;
	}
	err = gather(q, units, d->max_frame, &len);
	if (err)
		return err;
	mdev_checksum(d->frame, len, d->wqe[20]);
	d->ops->transmit(d, d->frame, len);
	return 0;
}

u32 mdev_sq_run(struct mdev_sq *q, u32 max)
{
	u32 done = 0, units, start;
	u8 err;

	for (; done < max && q->ci != q->pi; done++) {
		start = q->ci;
		units = load(q, start, q->pi);
		if (!units) {
			q->ci = q->pi;
			q->error = true;
			break;
		}
		err = execute(q, units);
		q->ci = start + (units + 3) / 4;
		if (err) {
			q->error = true;
			complete(q, start, q->ci, MDEV_CQE_REQ_ERR, err);
		} else if (q->dev->wqe[11] & FLAG_COMPLETE) {
			complete(q, start, q->ci, MDEV_CQE_REQ, 0);
		}
	}
	return done;
}
