/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mlx5 queues under any sequence of posts, doorbells, frames, polls and completions. Either the
 * device is the checker, and it must have nothing to complain of; or it writes any bytes into the
 * completion queues, and the driver must neither leave its memory nor hand out a buffer twice.
 */
#include <stdlib.h>
#include <string.h>

#include "../mlx5_device/complete.c"
#include "../mlx5_device/frame.c"
#include "../mlx5_device/receive.c"
#include "../mlx5_device/send.c"
#include "../mlx5_device/soft.c"
#include "ring/mlx5/queue/mpw.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/strides.h"

#define CHUNK 2048u
#define PART 500u /* of several to a descriptor: most frames need some */
#define CHUNKS 96u
#define LARGE_MAX (14u + 65535u) /* what the ring lets a large frame be, headers included */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p;
	size_t left;
};

static struct world {
	struct mlx5_memory memory;
	struct sq sq;
	struct rq rq;
	struct slabs slabs; /* of a striding queue */
	struct buf *out[CHUNKS]; /* received, not yet given back */
	unsigned num_out;
	bool hostile;
} w;

static uint32_t next(struct input *in, unsigned bytes)
{
	uint32_t v = 0;

	for (; bytes && in->left; bytes--, in->left--)
		v = v << 8 | *in->p++;
	return v;
}

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void world_open(struct input *in)
{
	static const uint32_t headers[] = {0, 18}, bfs[] = {0, 64, 256, 256};
	uint32_t first = next(in, 1), second = next(in, 1);
	struct mlx5_want want = {.strides = second & 0x80 ? 4u << (second >> 4 & 3) : 0,
				 .stride = CHUNK,
				 .max_inline = 884,
				 .ask_every = 1 + first % 64,
				 .rx_segs = 1 + second % 4,
				 .dm_bytes = first & 0x40 ? 4096 : 0};
	struct sq_config config = {
		.ask_every = want.ask_every, .max_inline = next(in, 2) % 900, .mpw = first & 0x80};
	uint32_t shape = next(in, 2);
	struct mlx5_objects *o;

	memset(&w, 0, sizeof(w));
	w.hostile = shape & 1;
	soft_config = (struct soft_config){
		.sq_bbs = 4u << (shape >> 1) % 6,
		.rq_cnt = 1u << (shape >> 4) % 7,
		.cqe_size = shape & 0x80 ? 128 : 64,
		.min_inline = headers[shape >> 8 & 1],
		.bf_size = bfs[shape >> 9 & 3],
		.max_frame = 1514,
		.max_tso = 65536,
		.mpw = config.mpw,
		.dm_bytes = want.dm_bytes,
		.quiet = w.hostile,
	};
	if (soft_config.cqe_size == 64 && shape & 0x800)
		soft_config.zip_max = 1 + (shape >> 12) % soft_config.rq_cnt;
	check(!memory_init(&w.memory, PAGES_ANON, CHUNK, CHUNKS, CHUNKS));
	want.base = w.memory.base;
	want.bytes = w.memory.bytes;
	want.compress = !want.strides;
	check(!want.strides || !slabs_init(&w.slabs, &w.memory, want.strides));
	check(!mlx5_objects_open(NULL, &o) && !o->ops->start(o, &want));
	config.qpn = o->qpn;
	config.lkey = o->lkey;
	config.min_inline = o->min_inline;
	config.dm = o->dm;
	config.dm_bytes = o->dm_bytes;
	config.dm_lkey = o->dm_lkey;
	check(!sq_init(&w.sq, &o->qp, &o->tx_cq, &config));
	if (want.strides)
		check(!strq_init(&w.rq, &o->rwq, &o->rx_cq, o->lkey, &w.slabs));
	else
		check(!rq_init(&w.rq, &o->qp, &o->rx_cq, o->lkey, want.rx_segs, NULL));
}

static void give_back(unsigned n)
{
	for (; n && w.num_out; n--) {
		struct buf *b = w.out[--w.num_out];

		/* As it was sent, however long it was kept. */
		check(w.hostile || (b->data[0] == (uint8_t)b->total &&
				    (b->frag || b->data[b->len - 1] == b->data[0])));
		buf_free(b);
	}
}

/* Nothing is lost and nothing is there twice. */
static void world_close(void)
{
	give_back(CHUNKS);
	rq_fini(&w.rq);
	sq_fini(&w.sq);
	check(w.memory.rx.num_free == CHUNKS && w.memory.tx.num_free == CHUNKS);
	check(w.hostile || !soft->dev.complaints);
	soft->o.ops->close(&soft->o);
	slabs_fini(&w.slabs);
	memory_fini(&w.memory);
}

static void post_large(struct input *in)
{
	static const uint8_t header[54] = {2, 0,    0, 0, 0, 2, 2, 0, 0, 0,  0, 1,	    8,
					   0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, [46] = 0x50};
	struct buf *first = NULL, **at = &first, *b;
	uint32_t n = next(in, 1) % 40, left = LARGE_MAX - sizeof(header);

	for (uint32_t i = 0; i < n && left && (b = pool_get(&w.memory.tx, CHUNK));
	     i++, at = &b->frag) {
		uint32_t len = 1 + next(in, 2) % CHUNK;

		*at = b;
		b->len = len < left ? len : left;
		left -= b->len;
	}
	if (!w.sq.lso ||
	    sq_post_lso(&w.sq, header, sizeof(header), 1 + next(in, 2) % 1400, first, NULL))
		buf_free(first);
}

static void post(uint32_t len)
{
	struct buf *b = sq_slot(&w.sq, len);

	if (!b)
		b = pool_get(&w.memory.tx, CHUNK);
	if (!b)
		return;
	check(len <= b->room);
	memset(b->data, (int)len, len);
	b->len = b->total = len;
	if (sq_post(&w.sq, b))
		buf_free(b);
}

/* Of up to n frames; now and then a doorbell, as another thread would ring it. */
static void burst(struct input *in, uint32_t n)
{
	struct buf *b;
	uint8_t *at;

	sq_burst_begin(&w.sq);
	while (n--) {
		uint32_t len = next(in, 2) % 1515;

		at = sq_burst_add(&w.sq, len);
		if (at) {
			memset(at, (int)len, len > SQ_BURST_WRITTEN ? len : SQ_BURST_WRITTEN);
		} else if ((b = pool_get(&w.memory.tx, CHUNK))) {
			memset(b->data, (int)len, len);
			b->len = b->total = len;
			if (sq_post(&w.sq, b))
				buf_free(b);
		}
		if (!(len & 63) && w.hostile)
			sq_kick(&w.sq);
	}
	sq_burst_end(&w.sq);
}

static void post_nothing(uint32_t len)
{
	struct buf *b = sq_slot(&w.sq, len);

	if (!b)
		b = pool_get(&w.memory.tx, CHUNK);
	if (!b)
		return;
	memset(b->data, (int)len, len);
	b->len = b->total = len;
	if (sq_post_nop(&w.sq, b))
		buf_free(b);
}

static void send_at_once(uint32_t len)
{
	static const uint8_t header[64];
	uint8_t *exact = malloc(len ? len : 1);

	memset(exact, (int)len, len);
	sq_send(&w.sq, header, exact, len);
	free(exact);
}

static void refill(uint32_t n)
{
	if (w.rq.slabs && !w.rq.broken)
		strq_refill(&w.rq);
	for (; !w.rq.slabs && n && rq_room(&w.rq) && w.memory.rx.num_free >= w.rq.segs; n--) {
		struct buf *b = NULL;

		if (w.rq.segs == 1) {
			rq_post(&w.rq, pool_get(&w.memory.rx, CHUNK));
			continue;
		}
		for (uint32_t i = 0; i < w.rq.segs; i++) {
			struct buf *more = b;

			b = pool_get(&w.memory.rx, PART);
			b->frag = more;
		}
		rq_post_chain(&w.rq, b);
	}
	if (!w.rq.broken)
		rq_publish(&w.rq);
}

static enum rx_result take(struct buf **b, bool generic)
{
	return w.rq.slabs && !generic ? strq_take(&w.rq, b) : rq_take(&w.rq, b);
}

static void poll(uint32_t n)
{
	struct buf *b;

	while (n-- && w.num_out < CHUNKS && take(&b, n == 5) == RX_FRAME) {
		uint32_t total = 0;

		for (const struct buf *f = b; f; total += f->len, f = f->frag)
			check(f->refs == 1 && f->len <= f->room && (f == b || f->len));
		check(b->total == total);
		check(!w.rq.slabs || (uint32_t)(b->data - w.memory.base) / CHUNK % w.rq.strides +
						     b->room / CHUNK <=
					     w.rq.strides);
		for (unsigned i = 0; i < w.num_out; i++)
			check(w.out[i]->data + w.out[i]->room <= b->data ||
			      b->data + b->room <= w.out[i]->data);
		w.out[w.num_out++] = b;
	}
	cq_publish(&w.rq.cq);
}

static void frame(uint32_t len)
{
	static uint8_t bytes[4 * CHUNK];

	memset(bytes, (int)len, len);
	soft_receive(soft, bytes, len);
}

/*
 * Any bytes in any place, with an owner that makes them seen, or any, and the counter that is
 * expected, or any.
 */
static void forge(struct input *in, const struct mlx5dv_cq *dv, uint32_t ci, uint32_t counter)
{
	uint32_t where = next(in, 1), at = where & 1 ? ci : ci + (where >> 1);
	uint8_t *c = (uint8_t *)dv->buf + (size_t)(at & (dv->cqe_cnt - 1)) * dv->cqe_size +
		     dv->cqe_size - 64;

	for (unsigned i = 0; i < 64; i += 4)
		put32(c + i, next(in, where & 0x80 ? 4 : i >= 44 ? 1 : 0));
	if (where & 0x20)
		put32(c + 44, next(in, 2));
	put16(c + 60, (uint16_t)(where & 0x20 ? counter : next(in, 2)));
	if (w.rq.slabs && where & 0x20) {
		/* A slab is closed when the next one is begun. */
		put16(c + 2, (uint16_t)(w.rq.ci + (w.rq.slab && w.rq.at == w.rq.strides)));
		put32(c + 44, (next(in, 1) % 6 << 16 | next(in, 2) % 2500) ^ (where & 8) << 28);
	}
	c[63] = (uint8_t)next(in, 1);
	if (w.rq.slabs && where & 4)
		c[63] = MLX5_CQE_RESP_SEND << 4;
	if (where & 0x40)
		c[63] = (uint8_t)((c[63] & 0xfe) | !!(at & dv->cqe_cnt));
}

static void step(struct input *in)
{
	uint32_t op = next(in, 1);

	switch (op & 15) {
	case 0:
	case 1:
		post(next(in, 2) % 1515);
		break;
	case 2:
		send_at_once(next(in, 2) % 1500);
		break;
	case 3:
		sq_kick(&w.sq);
		if (!w.hostile)
			soft_run(soft, 0); /* a register is not written to twice unseen */
		break;
	case 4:
		soft_run(soft, op >> 4);
		break;
	case 5:
		sq_reclaim(&w.sq);
		break;
	case 6:
	case 7:
		refill(1 + (op >> 4));
		break;
	case 8:
		poll(1 + (op >> 4));
		break;
	case 9:
		give_back(1 + (op >> 4));
		break;
	case 10:
	case 11:
		if (!w.hostile)
			frame(14 + next(in, 2) % (w.rq.slabs ? 7000
						  : w.rq.segs > 1 && w.rq.segs < 4
							  ? w.rq.segs * PART - 13
							  : 1500));
		else
			forge(in, &soft->o.rx_cq, w.rq.cq.ci,
			      w.rq.slabs ? w.rq.at % w.rq.strides : w.rq.ci);
		break;
	case 12:
		if (!w.hostile)
			mdev_rq_flush(&soft->rq);
		else
			forge(in, &soft->o.tx_cq, w.sq.cq.ci, w.sq.pi - 1 - (op >> 4));
		break;
	case 13:
		post_large(in);
		break;
	case 14:
		burst(in, op >> 4);
		break;
	case 15:
		post_nothing(next(in, 2) % 1515);
		break;
	}
	/* sq_send() rings by itself. */
	if ((op & 15) == 2 && !w.hostile)
		soft_run(soft, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	world_open(&in);
	while (in.left)
		step(&in);
	world_close();
	return 0;
}
