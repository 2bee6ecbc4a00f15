/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mlx5 receive queue: descriptors and completions byte by byte, compressed sessions, and what a
 * broken device may say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/queue.h"

#define CHUNK 2048u

struct world {
	struct mlx5_memory memory;
	struct soft *s;
	struct rq rq;
};

static const struct soft_config usual = {
	.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};

static int restore(void **state)
{
	(void)state;
	/* A test that failed has left it. */
	if (soft)
		soft->o.ops->close(&soft->o);
	soft_config = usual;
	return 0;
}

static void fill(struct world *w)
{
	while (rq_room(&w->rq)) {
		struct buf *b = pool_get(&w->memory.rx, CHUNK);

		for (uint32_t i = 1; i < w->rq.segs; i++) {
			struct buf *more = pool_get(&w->memory.rx, CHUNK);

			more->frag = b;
			b = more;
		}
		if (w->rq.segs > 1)
			rq_post_chain(&w->rq, b);
		else
			rq_post(&w->rq, b);
	}
	rq_publish(&w->rq);
}

/* A queue whose WQEs are of `segs` buffers, and a spill if spill is one. */
static struct world *queue_make(uint32_t cnt, uint32_t segs, struct rq_spill *spill)
{
	struct world *w = calloc(1, sizeof(*w));
	struct mlx5_want want = {
		.tx_wre = 64,
		.rx_wre = cnt,
		.rx_segs = spill ? segs : segs - 1,
		.ask_every = 64,
		.compress = true,
	};
	struct mlx5_objects *o;

	assert_int_equal(memory_init(&w->memory, PAGES_ANON, CHUNK, cnt * segs + 64, 1), 0);
	want.base = w->memory.base;
	want.bytes = w->memory.bytes;
	assert_int_equal(mlx5_objects_open(NULL, &o), 0);
	w->s = soft;
	assert_int_equal(o->ops->start(o, &want), 0);
	if (spill)
		*spill = (struct rq_spill){w->memory.spill, MEMORY_SPILL};
	assert_int_equal(rq_init(&w->rq, &o->qp, &o->rx_cq, o->lkey, segs, spill), 0);
	fill(w);
	return w;
}

static struct world *chains_make(uint32_t cnt, uint32_t segs)
{
	return queue_make(cnt, segs, NULL);
}

static struct world *world_make(uint32_t cnt)
{
	return chains_make(cnt, 1);
}

static void world_free(struct world *w)
{
	rq_fini(&w->rq);
	assert_int_equal(w->memory.rx.num_free, w->memory.rx.num);
	w->s->o.ops->close(&w->s->o);
	memory_fini(&w->memory);
	free(w);
	soft_config = usual;
}

/* Frame bytes that tell frames apart; of no protocol. */
static void receive(struct world *w, uint32_t len, unsigned seed)
{
	uint8_t frame[2048];

	for (uint32_t i = 0; i < len; i++)
		frame[i] = (uint8_t)(seed * 31 + i);
	assert_true(soft_receive(w->s, frame, len));
}

static void take(struct world *w, uint32_t len, unsigned seed)
{
	unsigned wrong = 0;
	struct buf *b;

	assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
	assert_int_equal(b->len, len);
	assert_int_equal(b->total, len);
	for (uint32_t i = 0; i < len; i++)
		wrong += b->data[i] != (uint8_t)(seed * 31 + i);
	assert_int_equal(wrong, 0);
	buf_free(b);
	cq_publish(&w->rq.cq);
}

static void a_receive_wqe_is_one_data_segment(void **state)
{
	struct world *w = world_make(8);
	uint8_t golden[16] = {0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0xaa, 0xbb};
	uint64_t addr = htobe64((uint64_t)(uintptr_t)w->memory.base + 3 * CHUNK);

	(void)state;
	memcpy(golden + 8, &addr, 8);
	assert_memory_equal((uint8_t *)w->rq.wqes + 3 * 16, golden, 16);
	assert_int_equal(be32toh(w->s->o.qp.dbrec[MLX5_RCV_DBR]), 8);
	world_free(w);
}

/*
 * Several buffers for a WQE, golden: each has its segment, and the list ends behind the last one
 * where there is room.
 */
static void a_receive_wqe_of_three_buffers(void **state)
{
	uint8_t golden[64] = {0}, part[16] = {0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0xaa, 0xbb};
	struct world *w = chains_make(4, 3);
	struct buf *b = w->rq.bufs[2];

	(void)state;
	for (unsigned i = 0; i < 3; i++, b = b->frag) {
		uint64_t addr = htobe64((uint64_t)(uintptr_t)b->data);

		memcpy(golden + 16 * i, part, 16);
		memcpy(golden + 16 * i + 8, &addr, 8);
	}
	assert_null(b);
	golden[48 + 6] = 1; /* the key 0x100 */
	assert_memory_equal((uint8_t *)w->rq.wqes + 2 * 64, golden, 64);
	world_free(w);
}

/* Every length around each buffer's end, in queues that turn round; nothing is lost of the pool. */
static void a_long_frame_fills_one_buffer_after_the_other(void **state)
{
	static uint8_t frame[8 * CHUNK];
	(void)state;

	for (uint32_t segs = 2; segs <= 8; segs++) {
		struct world *w = chains_make(4, segs);

		for (unsigned i = 0; i < segs * 21 * 3; i++) {
			uint32_t len = 60 + i % (segs * 21) * (segs * CHUNK - 60) / (segs * 21 - 1),
				 got = 0, pieces = 0;
			struct buf *b;

			for (uint32_t k = 0; k < len; k++)
				frame[k] = (uint8_t)(i * 31 + k * 7 + (k >> 8));
			assert_true(soft_receive(w->s, frame, len));
			mdev_rq_flush(&w->s->rq);
			assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
			assert_int_equal(b->total, len);
			for (struct buf *f = b; f; f = f->frag, pieces++) {
				assert_true(f->len && got + f->len <= len);
				assert_memory_equal(f->data, frame + got, f->len);
				got += f->len;
			}
			assert_int_equal(got, len);
			assert_int_equal(pieces, (len + CHUNK - 1) / CHUNK);
			assert_null(rq_take_usual(&w->rq));
			buf_free(b);
			cq_publish(&w->rq.cq);
			fill(w);
		}
		assert_int_equal(w->s->dev.complaints, 0);
		world_free(w);
	}
}

/* The device names more bytes than there is room for. */
static void a_frame_longer_than_its_buffers_breaks_the_queue(void **state)
{
	struct world *w = chains_make(4, 2);
	uint8_t frame[60] = {0};
	struct mlx5_cqe64 *c = cq_at(&w->rq.cq, 0);
	struct buf *b;

	(void)state;
	assert_true(soft_receive(w->s, frame, 60));
	c->byte_cnt = htobe32(2 * CHUNK + 1);
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	world_free(w);
}

/* Alone, and in sessions; the frames before and behind it are whole. */
static void a_frame_that_spills_costs_itself_alone(void **state)
{
	static uint8_t frame[2 * CHUNK + MEMORY_SPILL];
	struct rq_spill spill;
	struct buf *b;

	(void)state;
	for (unsigned i = 0; i < 12; i++) {
		uint32_t segs = 1 + i % 2, room = segs * CHUNK;
		uint32_t len = i % 3 ? room + 1 + i : room + MEMORY_SPILL;
		struct world *w;

		soft_config.zip_max = i / 2 % 2 ? 5 : 0;
		w = queue_make(16, segs, &spill);
		for (unsigned n = 0; n < 100; n++) {
			assert_true(soft_receive(w->s, frame, 60 + n));
			assert_true(soft_receive(w->s, frame, len));
			assert_true(soft_receive(w->s, frame, room));
			mdev_rq_flush(&w->s->rq);
			assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
			assert_int_equal(b->total, 60 + n);
			buf_free(b);
			assert_int_equal(rq_take(&w->rq, &b), RX_LONG);
			assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
			assert_int_equal(b->total, room);
			buf_free(b);
			assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
			cq_publish(&w->rq.cq);
			fill(w);
		}
		assert_int_equal(w->s->dev.complaints, 0);
		world_free(w);
	}
}

static void a_session_of_long_frames(void **state)
{
	static uint8_t frame[3 * CHUNK];
	struct world *w;
	struct buf *b;

	(void)state;
	soft_config.zip_max = 11;
	w = chains_make(16, 3);
	for (unsigned lap = 0; lap < 9; lap++) {
		for (uint32_t i = 0; i < 13; i++)
			assert_true(soft_receive(w->s, frame, 60 + i * 450));
		mdev_rq_flush(&w->s->rq);
		for (uint32_t i = 0; i < 13; i++) {
			assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
			assert_int_equal(b->total, 60 + i * 450);
			buf_free(b);
		}
		assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
		cq_publish(&w->rq.cq);
		fill(w);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void a_longer_receive_wqe_ends_its_list(void **state)
{
	struct world *w = world_make(8);
	struct mlx5dv_qp qp = w->s->o.qp;
	static uint8_t wqes[4 * 64];
	static const uint8_t end[16] = {0, 0, 0, 0, 0x00, 0x00, 0x01, 0x00};
	struct rq rq;

	(void)state;
	qp.rq.buf = wqes;
	qp.rq.stride = 64;
	qp.rq.wqe_cnt = 4;
	assert_int_equal(rq_init(&rq, &qp, &w->s->o.rx_cq, 0xaabb, 1, NULL), 0);
	rq_post(&rq, pool_get(&w->memory.rx, CHUNK));
	rq_post(&rq, pool_get(&w->memory.rx, CHUNK));
	assert_memory_equal(wqes + 64 + 16, end, 16);
	assert_int_equal(wqes[64 + 2], 0x08);
	rq_fini(&rq);
	world_free(w);
}

/* A completion by hand, of WQE 0: 100 bytes, IPv4 and UDP, both sums right, opcode 2, owner 0. */
static const uint8_t golden_cqe[64] = {
	[28] = 0x07, [29] = 0x28, [46] = 0x00, [47] = 100, [63] = 0x20};

static void put_golden(struct world *w, uint8_t op_own)
{
	uint8_t *c = w->s->rx_cq.entries;

	memcpy(c, golden_cqe, 63);
	c[63] = op_own;
}

static void a_completion_byte_by_byte(void **state)
{
	struct world *w = world_make(8);
	struct buf *b;

	(void)state;
	put_golden(w, 0x20);
	assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
	assert_ptr_equal(b->data, w->memory.base);
	assert_int_equal(b->len, 100);
	assert_int_equal(b->flags, BUF_CSUM_OK);
	buf_free(b);
	assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
	cq_publish(&w->rq.cq);
	assert_int_equal(be32toh(w->rq.cq.dbrec[0]), 1);
	world_free(w);
}

static void a_solicited_completion_is_a_completion(void **state)
{
	struct world *w = world_make(8);
	struct buf *b;

	(void)state;
	put_golden(w, 0x22);
	assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
	assert_int_equal(b->len, 100);
	buf_free(b);
	world_free(w);
}

static void the_owner_bit_and_the_invalid_opcode_hide_a_completion(void **state)
{
	struct world *w = world_make(8);
	struct buf *b;

	(void)state;
	put_golden(w, 0x21);
	assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
	put_golden(w, 0xf0);
	assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
	assert_false(w->rq.broken);
	world_free(w);
}

static void checksums_are_trusted_only_when_the_device_saw_both_headers(void **state)
{
	/* ok bits, header types, trusted */
	static const uint8_t cases[][3] = {
		{0x07, 0x28, 1}, {0x06, 0x28, 1}, {0x06, 0x24, 1}, {0x06, 0x18, 1}, {0x06, 0x38, 1},
		{0x06, 0x44, 1}, {0x03, 0x28, 0}, {0x05, 0x28, 0}, {0x01, 0x28, 0}, {0x00, 0x28, 0},
		{0x07, 0x08, 0}, {0x07, 0x20, 0}, {0x07, 0x00, 0}, {0x07, 0x2c, 0}, {0x07, 0x04, 0},
	};
	struct mlx5_cqe64 c = {.op_own = 0};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / 3; i++) {
		c.hds_ip_ext = cases[i][0];
		c.l4_hdr_type_etc = cases[i][1];
		assert_int_equal(cqe_flags(&c), cases[i][2] ? BUF_CSUM_OK : 0);
	}
}

/*
 * All that a device can say in the two bytes; the bits that are about something else change
 * nothing.
 */
static void no_other_word_of_the_device_is_trusted(void **state)
{
	struct mlx5_cqe64 c = {.op_own = 0};
	unsigned wrong = 0;

	(void)state;
	for (unsigned i = 0; i < 65536; i++) {
		unsigned l3 = i >> 2 & 3, l4 = i >> 4 & 7;
		bool seen = (l3 == 1 || l3 == 2) && l4 >= 1 && l4 <= 4, ok = (i >> 8 & 6) == 6;

		c.l4_hdr_type_etc = (uint8_t)i;
		c.hds_ip_ext = (uint8_t)(i >> 8);
		wrong += cqe_flags(&c) != (seen && ok ? BUF_CSUM_OK : 0);
	}
	assert_int_equal(wrong, 0);
}

static void of_128_bytes_the_second_half_counts(void **state)
{
	struct world *w;

	(void)state;
	soft_config.cqe_size = 128;
	w = world_make(8);
	for (unsigned i = 0; i < 100; i++) {
		receive(w, 60 + i, i);
		take(w, 60 + i, i);
		fill(w);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

/* Bursts through queues of every size, many laps, with refills in odd numbers. */
static void laps(uint32_t cnt, uint32_t zip_max)
{
	struct world *w;
	unsigned in = 0, out = 0;
	uint32_t rng = cnt * 31 + zip_max, lens = cnt < 256 ? 1400 : 99;

	soft_config.zip_max = zip_max;
	soft_config.loose = cnt > 256; /* looking for double posts is quadratic */
	w = world_make(cnt);
	while (out < (cnt < 4096 ? 10 : 3) * cnt + 200) {
		rng = rng * 1664525 + 1013904223;
		mdev_rq_fetch(&w->s->rq);
		for (unsigned n = rng >> 25; n && in - out < cnt && w->s->rq.ci != w->s->rq.pi;
		     n--, in++)
			receive(w, 60 + in % lens, in);
		mdev_rq_flush(&w->s->rq);
		for (unsigned n = rng >> 15 & 127; n && out != in; n--, out++)
			take(w, 60 + out % lens, out);
		if (rng & 1024 || out == in)
			fill(w);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	assert_false(w->rq.broken);
	world_free(w);
}

static void every_queue_size_goes_round(void **state)
{
	(void)state;
	for (uint32_t cnt = 1; cnt <= 32768; cnt *= 2)
		laps(cnt, 0);
}

static void compressed_sessions_of_every_length_go_round(void **state)
{
	(void)state;
	for (uint32_t zip = 1; zip <= 64; zip++)
		laps(zip < 33 ? 64 : 128, zip);
	/* A queue as long as a session: what is left of one lap is all that the next one sees. */
	for (uint32_t cnt = 2; cnt <= 64; cnt *= 2)
		laps(cnt, cnt);
}

static void a_compressed_session_byte_by_byte(void **state)
{
	/* Ten frames: the title says so in its length; arrays in the places 1 and 8. */
	static const uint8_t array[64] = {
		0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0,    61,
		0,    0,    0,	  0,	0, 0, 0, 62, 0, 0, 0, 0, 0, 0, 0,    63,
		0,    0,    0,	  0,	0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0,    65,
		0,    0,    0,	  0,	0, 0, 0, 66, 0, 0, 0, 0, 0, 0, 0x05, 0xdc,
	};
	struct world *w = world_make(16);
	uint8_t *c = w->s->rx_cq.entries;
	struct buf *b;

	(void)state;
	/* In the checksum format the first word of each is another, and is not looked at. */
	memcpy(c + 64, array, 64);
	memcpy(c + 8 * 64, array, 64);
	put_golden(w, 0x2c);
	c[47] = 10;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
		assert_int_equal(b->len, i == 7 ? 1500 : 60 + i % 8);
		assert_int_equal(b->flags, BUF_CSUM_OK);
		assert_ptr_equal(b->data, w->memory.base + (size_t)i * CHUNK);
		buf_free(b);
	}
	assert_int_equal(rq_take(&w->rq, &b), RX_NONE);
	assert_int_equal(w->rq.cq.ci, 10);
	/* None of them is a completion in any lap. */
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(c[i * 64 + 63] >> 4, 15);
	world_free(w);
}

static void sessions_that_cannot_be_break_the_queue(void **state)
{
	/* length of the session, wqe counter */
	static const uint32_t cases[][2] = {{0, 0}, {1, 0}, {17, 0}, {0xffffffff, 0}, {4, 1}};

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct world *w = world_make(16);
		struct buf *b;

		put_golden(w, 0x2c);
		put32(w->s->rx_cq.entries + 44, cases[i][0]);
		put16(w->s->rx_cq.entries + 60, (uint16_t)cases[i][1]);
		assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
		world_free(w);
	}
}

static void a_session_of_long_completions_breaks_the_queue(void **state)
{
	struct world *w;
	struct buf *b;

	(void)state;
	soft_config.cqe_size = 128;
	w = world_make(16);
	memcpy(w->s->rx_cq.entries + 64, golden_cqe, 63);
	w->s->rx_cq.entries[127] = 0x2c;
	w->s->rx_cq.entries[64 + 47] = 4;
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	world_free(w);
}

static void a_session_with_a_length_beyond_the_buffer_breaks_the_queue(void **state)
{
	struct world *w = world_make(16);
	struct buf *b;

	(void)state;
	put_golden(w, 0x2c);
	w->s->rx_cq.entries[47] = 4;
	memset(w->s->rx_cq.entries + 64, 0, 64);
	put32(w->s->rx_cq.entries + 64 + 4, 60);
	put32(w->s->rx_cq.entries + 64 + 12, CHUNK + 1);
	assert_int_equal(rq_take(&w->rq, &b), RX_FRAME);
	buf_free(b);
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	world_free(w);
}

static void completions_that_cannot_be_break_the_queue(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct world *w = world_make(16);
		uint8_t *c = w->s->rx_cq.entries;
		struct buf *b;

		put_golden(w, 0x20);
		switch (i) {
		case 0:
			put16(c + 60, 1);
			break; /* not the next WQE */
		case 1:
			put32(c + 44, CHUNK + 1);
			break; /* longer than its buffer */
		case 2:
			put32(c + 44, 0xffffffff);
			break;
		case 3:
			c[63] = 0x00;
			break; /* of a send queue */
		case 4:
			c[63] = 0x10;
			break; /* RDMA */
		case 5:
			c[63] = 0xc0;
			break;
		case 6:
			c[63] = 0x24;
			break; /* data in the completion, which was not asked for */
		default:
			c[63] = 0x60;
			break;
		}
		assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
		assert_int_equal(w->rq.syndrome, 0);
		assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
		world_free(w);
	}
}

static void a_completion_for_an_empty_queue_breaks_it(void **state)
{
	struct world *w = world_make(2);
	struct buf *b;

	(void)state;
	receive(w, 60, 0);
	receive(w, 60, 1);
	take(w, 60, 0);
	take(w, 60, 1);
	/* The second lap: owner 1, WQE 2, which nobody has posted. */
	put_golden(w, 0x21);
	put16(w->s->rx_cq.entries + 60, 2);
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	world_free(w);
}

static void an_error_completion_tells_its_syndrome(void **state)
{
	/* Offsets from struct mlx5_err_cqe: 54 the vendor's, 55 the syndrome. */
	static const uint8_t ops[] = {0xe0, 0xd0};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world *w = world_make(8);
		uint8_t *c = w->s->rx_cq.entries;
		struct buf *b;

		c[54] = 0x93;
		c[55] = 0x04;
		c[63] = ops[i];
		assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
		assert_int_equal(w->rq.syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
		assert_int_equal(w->rq.vendor_syndrome, 0x93);
		world_free(w);
	}
}

static void a_frame_longer_than_its_buffer_is_an_error_of_the_device(void **state)
{
	struct world *w = world_make(8);
	static const uint8_t frame[CHUNK + 1];
	struct buf *b;

	(void)state;
	assert_false(soft_receive(w->s, frame, sizeof(frame)));
	assert_int_equal(rq_take(&w->rq, &b), RX_BROKEN);
	assert_int_equal(w->rq.syndrome, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
	world_free(w);
}

static void queues_that_cannot_be_driven_are_refused(void **state)
{
	struct world *w = world_make(16);
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct rq rq;

	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		qp = w->s->o.qp;
		cq = w->s->o.rx_cq;
		switch (i) {
		case 0:
			qp.rq.wqe_cnt = 12;
			break;
		case 1:
			qp.rq.wqe_cnt = 65536;
			break;
		case 2:
			qp.rq.wqe_cnt = 0;
			break;
		case 3:
			qp.rq.stride = 8;
			break;
		case 4:
			qp.rq.stride = 24;
			break;
		case 5:
			qp.rq.buf = NULL;
			break;
		case 6:
			qp.dbrec = NULL;
			break;
		case 7:
			cq.cqe_cnt = 8;
			break;
		default:
			cq.cqe_size = 256;
			break;
		}
		assert_int_equal(rq_init(&rq, &qp, &cq, 1, 1, NULL), -EINVAL);
	}
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_receive_wqe_is_one_data_segment, restore),
		cmocka_unit_test_teardown(no_other_word_of_the_device_is_trusted, restore),
		cmocka_unit_test_teardown(a_receive_wqe_of_three_buffers, restore),
		cmocka_unit_test_teardown(a_long_frame_fills_one_buffer_after_the_other, restore),
		cmocka_unit_test_teardown(a_frame_longer_than_its_buffers_breaks_the_queue,
					  restore),
		cmocka_unit_test_teardown(a_session_of_long_frames, restore),
		cmocka_unit_test_teardown(a_frame_that_spills_costs_itself_alone, restore),
		cmocka_unit_test_teardown(a_longer_receive_wqe_ends_its_list, restore),
		cmocka_unit_test_teardown(a_completion_byte_by_byte, restore),
		cmocka_unit_test_teardown(a_solicited_completion_is_a_completion, restore),
		cmocka_unit_test_teardown(the_owner_bit_and_the_invalid_opcode_hide_a_completion,
					  restore),
		cmocka_unit_test_teardown(
			checksums_are_trusted_only_when_the_device_saw_both_headers, restore),
		cmocka_unit_test_teardown(of_128_bytes_the_second_half_counts, restore),
		cmocka_unit_test_teardown(every_queue_size_goes_round, restore),
		cmocka_unit_test_teardown(compressed_sessions_of_every_length_go_round, restore),
		cmocka_unit_test_teardown(a_compressed_session_byte_by_byte, restore),
		cmocka_unit_test_teardown(sessions_that_cannot_be_break_the_queue, restore),
		cmocka_unit_test_teardown(a_session_of_long_completions_breaks_the_queue, restore),
		cmocka_unit_test_teardown(
			a_session_with_a_length_beyond_the_buffer_breaks_the_queue, restore),
		cmocka_unit_test_teardown(completions_that_cannot_be_break_the_queue, restore),
		cmocka_unit_test_teardown(a_completion_for_an_empty_queue_breaks_it, restore),
		cmocka_unit_test_teardown(an_error_completion_tells_its_syndrome, restore),
		cmocka_unit_test_teardown(a_frame_longer_than_its_buffer_is_an_error_of_the_device,
					  restore),
		cmocka_unit_test_teardown(queues_that_cannot_be_driven_are_refused, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
