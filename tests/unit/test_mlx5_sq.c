/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mlx5 send queue: its descriptors byte by byte, its doorbells, and every length and size
 * through the descriptor checker.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/wqe.h"

#define CHUNK 2048u

/* A send queue on the device in software, and what came out of it. */
struct world {
	struct mlx5_memory memory;
	struct soft *s;
	struct sq sq;
	uint8_t frame[2048];
	uint32_t frame_len;
	unsigned frames;
};

static void sent(struct soft *s, const uint8_t *frame, uint32_t len)
{
	struct world *w = s->arg;

	memcpy(w->frame, frame, len);
	w->frame_len = len;
	w->frames++;
}

static struct world *world_make(uint32_t bbs, uint32_t max_inline, uint32_t ask_every)
{
	struct world *w = calloc(1, sizeof(*w));
	struct mlx5_want want = {
		.tx_wre = 64, .rx_wre = 64, .max_inline = max_inline, .ask_every = ask_every};
	struct sq_config config = {.max_inline = max_inline, .ask_every = ask_every};
	struct mlx5_objects *o;

	assert_int_equal(memory_init(&w->memory, PAGES_ANON, CHUNK, 1, 256), 0);
	want.base = w->memory.base;
	want.bytes = w->memory.bytes;
	soft_config.sq_bbs = bbs;
	assert_int_equal(mlx5_objects_open(NULL, &o), 0);
	w->s = soft;
	w->s->sent = sent;
	w->s->arg = w;
	assert_int_equal(o->ops->start(o, &want), 0);
	config.qpn = o->qpn;
	config.lkey = o->lkey;
	config.min_inline = o->min_inline;
	assert_int_equal(sq_init(&w->sq, &o->qp, &o->tx_cq, &config), 0);
	return w;
}

static void world_free(struct world *w)
{
	sq_fini(&w->sq);
	assert_int_equal(w->memory.tx.num_free, w->memory.tx.num);
	w->s->o.ops->close(&w->s->o);
	memory_fini(&w->memory);
	free(w);
	soft_config = (struct soft_config){
		.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};
}

/* A frame of len bytes that differs from others in every byte, of no protocol. */
static void frame_fill(struct buf *b, uint32_t len, unsigned seed)
{
	for (uint32_t i = 0; i < len; i++)
		b->data[i] = (uint8_t)(seed * 37 + i * 11 + (i >> 8));
	b->len = b->total = len;
}

static struct buf *frame_make(struct world *w, uint32_t len, unsigned seed)
{
	struct buf *b = pool_get(&w->memory.tx, CHUNK);

	assert_non_null(b);
	frame_fill(b, len, seed);
	return b;
}

/* The same, in the next WQE if it has place there. NULL: no buffer. */
static struct buf *frame_make_short(struct world *w, uint32_t len, unsigned seed)
{
	struct buf *b = sq_slot(&w->sq, len);

	if (!b && w->memory.tx.free)
		return frame_make(w, len, seed);
	if (b)
		frame_fill(b, len, seed);
	return b;
}

static void frame_check(const struct world *w, uint32_t len, unsigned seed)
{
	unsigned wrong = 0;

	assert_int_equal(w->frame_len, len);
	for (uint32_t i = 0; i < len; i++)
		wrong += w->frame[i] != (uint8_t)(seed * 37 + i * 11 + (i >> 8));
	assert_int_equal(wrong, 0);
}

static int restore(void **state)
{
	(void)state;
	/* A test that failed has left it. */
	if (soft)
		soft->o.ops->close(&soft->o);
	soft_config = (struct soft_config){
		.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};
	return 0;
}

/*
 * A frame of bytes 0, 1, 2 ..., so that they can be read in the dump; in the WQE if it has place
 * there.
 */
static void post_counting(struct world *w, uint32_t len)
{
	struct buf *b = sq_slot(&w->sq, len);

	if (!b)
		b = pool_get(&w->memory.tx, CHUNK);
	for (uint32_t i = 0; i < len; i++)
		b->data[i] = (uint8_t)i;
	b->len = b->total = len;
	assert_int_equal(sq_post(&w->sq, b), 0);
}

static void a_short_frame_is_in_its_wqe(void **state)
{
	/*
	 * Control: index 0, SEND; queue pair 0x1234, 5 units of 16 bytes; no completion. Ethernet:
	 * checksums of both layers; 40 header bytes, which are the frame.
	 */
	static const uint8_t golden[80] = {
		0x00, 0x00, 0x00, 0x0a, 0x00, 0x12, 0x34, 0x05, 0,    0,    0,	0x00, 0,  0,
		0,    0,    0,	  0,	0,    0,    0xc0, 0,	0,    0,    0,	0,    0,  0,
		0x00, 0x28, 0,	  1,	2,    3,    4,	  5,	6,    7,    8,	9,    10, 11,
		12,   13,   14,	  15,	16,   17,   18,	  19,	20,   21,   22, 23,   24, 25,
		26,   27,   28,	  29,	30,   31,   32,	  33,	34,   35,   36, 37,   38, 39,
		0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55,
	};
	struct world *w = world_make(16, 204, 64);

	(void)state;
	memset(w->sq.wqes, 0x55, 16 * BB);
	post_counting(w, 40);
	assert_memory_equal(w->sq.wqes, golden, sizeof(golden));
	assert_int_equal(w->sq.pi, 2);
	world_free(w);
}

static void a_wqe_that_points_to_the_frame(void **state)
{
	/* The third WQE, in WQEBB 2, asks for a completion. */
	uint8_t golden[64] = {
		0x00, 0x00, 0x02, 0x0a, 0x00, 0x12, 0x34, 0x04, 0,  0,	  0,	0x08, 0,
		0,    0,    0,	  0,	0,    0,    0,	  0xc0, 0,  0,	  0,	0,    0,
		0,    0,    0x00, 0x12, 0,    1,    2,	  3,	4,  5,	  6,	7,    8,
		9,    10,   11,	  12,	13,   14,   15,	  16,	17, 0x00, 0x00, 0x03, 0xd6,
		0x00, 0x00, 0xaa, 0xbb, 0,    0,    0,	  0,	0,  0,	  0,	0,
	};
	struct world *w = world_make(16, 0, 3);
	uint64_t addr;

	(void)state;
	post_counting(w, 1000);
	post_counting(w, 1000);
	addr = htobe64(w->memory.tx.free->addr + 18);
	memcpy(golden + 56, &addr, sizeof(addr));
	post_counting(w, 1000);
	assert_memory_equal(w->sq.wqes + 2 * BB, golden, sizeof(golden));
	assert_int_equal(w->sq.wqes[11], 0);
	assert_int_equal(w->sq.wqes[BB + 11], 0);
	world_free(w);
}

static void a_device_that_wants_no_header_gets_a_pointer_only(void **state)
{
	uint8_t golden[48] = {
		0x00, 0x00, 0x00, 0x0a, 0x00, 0x12, 0x34, 0x03, 0, 0, 0, 0x08, 0,    0,	   0, 0,
		0,    0,    0,	  0,	0xc0, 0,    0,	  0,	0, 0, 0, 0,    0x00, 0x00, 0, 0,
		0x00, 0x00, 0x00, 0x3c, 0x00, 0x00, 0xaa, 0xbb, 0, 0, 0, 0,    0,    0,	   0, 0,
	};
	struct world *w;
	uint64_t addr;

	(void)state;
	soft_config.min_inline = 0;
	w = world_make(16, 0, 1);
	addr = htobe64(w->memory.tx.free->addr);
	memcpy(golden + 40, &addr, sizeof(addr));
	post_counting(w, 60);
	assert_memory_equal(w->sq.wqes, golden, sizeof(golden));
	world_free(w);
}

static void what_sends_in_one_go_writes_the_same(void **state)
{
	struct world *w = world_make(64, 204, 2);
	uint8_t whole[204], first[6 * BB];

	(void)state;
	for (unsigned i = 0; i < sizeof(whole); i++)
		whole[i] = (uint8_t)i;
	for (uint32_t len = 42 + 16; len <= 204; len++) {
		uint32_t at = w->sq.pi & w->sq.mask, bytes = slot_bbs(len) * BB;
		struct sq before;
		uint8_t reg[256];

		sq_room(&w->sq, 1);
		before = w->sq;
		post_counting(w, len);
		if (slot_bbs(len) > before.run) /* at the queue's end it is a pointer */
			goto next;
		memcpy(first, w->sq.wqes + (size_t)at * BB, bytes);
		memset(w->sq.wqes + (size_t)at * BB, 0, bytes);
		w->sq = before;
		assert_true(sq_send(&w->sq, whole, whole + 42, len - 42));
		assert_memory_equal(first, w->sq.wqes + (size_t)at * BB, SQ_FRAME_AT + len);
		/* BlueFlame, too, and nothing is left to be rung for. */
		memcpy(reg, w->s->uar + 0x800 + (w->sq.bf_offset ^ w->sq.bf_size), sizeof(reg));
		assert_memory_equal(reg, first, SQ_FRAME_AT + len);
		assert_int_equal((uint16_t)w->sq.state.rung, (uint16_t)w->sq.pi);
next:
		sq_kick(&w->sq);
		assert_int_equal(soft_run(w->s, 9), 1);
		assert_int_equal(w->frame_len, len);
		assert_memory_equal(w->frame, whole, len);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void what_cannot_go_in_one_go_is_left(void **state)
{
	struct world *w = world_make(8, 204, 64);
	static const uint8_t data[1500];

	(void)state;
	assert_false(sq_send(&w->sq, data, data, 15));
	assert_false(sq_send(&w->sq, data, data, 163));
	assert_false(sq_send(&w->sq, data, data, 0xffffffff));
	post_counting(w, 60); /* not yet rung for */
	assert_false(sq_send(&w->sq, data, data, 16));
	sq_kick(&w->sq);
	assert_true(sq_send(&w->sq, data, data, 16));
	assert_true(sq_send(&w->sq, data, data, 64));
	assert_false(sq_send(&w->sq, data, data, 16)); /* one WQEBB is left */
	w->s->sent = NULL;
	soft_run(w->s, 9);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void at_the_end_of_the_queue_a_frame_is_pointed_to(void **state)
{
	struct world *w = world_make(16, 204, 64);

	(void)state;
	for (unsigned i = 0; i < 15; i++) {
		struct buf *b = frame_make(w, 300, i);

		assert_int_equal(sq_post(&w->sq, b), 0);
		sq_kick(&w->sq);
		soft_run(w->s, 1);
	}
	post_counting(w, 95);
	assert_int_equal(w->sq.pi, 16);
	assert_int_equal(w->sq.wqes[15 * BB + 7], 4);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 1), 1);
	assert_int_equal(w->frame_len, 95);
	for (unsigned i = 0; i < 95; i++)
		assert_int_equal(w->frame[i], i);
	/* And from the start on as before. */
	post_counting(w, 95);
	assert_int_equal(w->sq.pi, 18);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void every_length_arrives(void **state)
{
	static const uint32_t headers[] = {0, 18}, inlines[] = {0, 60, 204, 884};

	(void)state;
	for (unsigned h = 0; h < 2; h++) {
		for (unsigned i = 0; i < 4; i++) {
			struct world *w;

			soft_config.min_inline = headers[h];
			w = world_make(256, inlines[i], 4);
			for (uint32_t len = SQ_INLINE_HEADER + 1; len <= 1514; len++) {
				assert_int_equal(sq_post(&w->sq, frame_make_short(w, len, len)), 0);
				sq_kick(&w->sq);
				assert_int_equal(soft_run(w->s, 2), 1);
				frame_check(w, len, len);
			}
			assert_int_equal(w->s->dev.complaints, 0);
			world_free(w);
			restore(NULL);
		}
	}
}

/*
 * Bursts of frames of changing lengths, many laps of the 16-bit counter's low part, with the device
 * behind by a few.
 */
static void laps(uint32_t bbs, uint32_t ask_every, uint32_t bf_size, uint32_t cqe_size)
{
	struct world *w;
	unsigned posted = 0, done = 0;
	uint32_t rng = bbs * 7919 + ask_every;

	soft_config.bf_size = bf_size;
	soft_config.cqe_size = cqe_size;
	w = world_make(bbs, 884, ask_every);
	while (done < (bbs < 4096 ? 20 : 2) * bbs + 100) {
		rng = rng * 1664525 + 1013904223;
		for (unsigned n = rng >> 28; n; n--) {
			uint32_t len = 60 + (posted * 29) % (posted & 1 ? 1400 : 400);
			struct buf *b;

			b = frame_make_short(w, len, posted);
			if (!b)
				break;
			if (sq_post(&w->sq, b)) {
				buf_free(b);
				break;
			}
			posted++;
		}
		sq_kick(&w->sq);
		soft_run(w->s, 0); /* a register is not written to twice unseen */
		/* One at a time, so that each frame is looked at. */
		for (unsigned n = rng >> 24 & 15; n && soft_run(w->s, 1); n--, done++)
			frame_check(w, 60 + (done * 29) % (done & 1 ? 1400 : 400), done);
		if (!w->memory.tx.free)
			sq_reclaim(&w->sq);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	assert_false(w->sq.broken);
	world_free(w);
	restore(NULL);
}

static void every_queue_size_goes_round(void **state)
{
	static const uint32_t every[] = {1, 4, 64};

	(void)state;
	for (uint32_t bbs = 4; bbs <= 32768; bbs *= 2) {
		for (unsigned i = 0; i < (bbs > 1024 ? 1 : 3); i++) {
			laps(bbs, every[i], bbs & 0x15554 ? 256 : 0, i == 1 ? 128 : 64);
		}
	}
}

static void a_wqe_that_does_nothing(void **state)
{
	/*
	 * As that of the frame, but for the opcode; the second asks for a completion and is of one
	 * WQEBB.
	 */
	static const uint8_t first[32] = {0,	0, 0, 0x00, 0x00, 0x12, 0x34, 0x05, 0, 0,    0,
					  0x00, 0, 0, 0,    0,	  0,	0,    0,    0, 0xc0, 0,
					  0,	0, 0, 0,    0,	  0,	0x00, 0x28, 0, 1};
	static const uint8_t second[16] = {0, 0, 2, 0x00, 0x00, 0x12, 0x34, 0x03,
					   0, 0, 0, 0x08, 0,	0,    0,    0};
	struct world *w = world_make(16, 204, 2);
	struct buf *b = sq_slot(&w->sq, 40);

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		b->data[i] = (uint8_t)i;
	b->len = b->total = 40;
	assert_int_equal(sq_post_nop(&w->sq, b), 0);
	assert_memory_equal(w->sq.wqes, first, sizeof(first));
	assert_int_equal(w->sq.pi, 2);
	assert_int_equal(sq_post_nop(&w->sq, frame_make(w, 1000, 1)), 0);
	assert_memory_equal(w->sq.wqes + 2 * BB, second, sizeof(second));
	/* Nobody reads the buffer: it is back. */
	assert_int_equal(w->memory.tx.num_free, w->memory.tx.num);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 9), 2);
	assert_int_equal(w->frames, 0);
	assert_int_equal(w->s->tx_cq.pi, 1);
	/* Frames between them leave, round the queue many times. */
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(sq_post_nop(&w->sq, frame_make_short(w, 20 + i % 300, i)), 0);
		post_counting(w, 60);
		sq_kick(&w->sq);
		assert_int_equal(soft_run(w->s, 9), 2);
		assert_int_equal(w->frames, i + 1);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void a_queue_full_of_nothing_refuses_and_goes_on(void **state)
{
	struct world *w = world_make(8, 0, 4);
	struct buf *b = frame_make(w, 500, 0);

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(sq_post_nop(&w->sq, frame_make(w, 500, i)), 0);
	assert_int_equal(sq_post_nop(&w->sq, b), -ENOBUFS);
	assert_int_equal(sq_post(&w->sq, b), -ENOBUFS);
	assert_int_equal(b->refs, 1);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 4), 4);
	assert_int_equal(sq_post_nop(&w->sq, b), 0);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 9), 5);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void a_full_queue_refuses_and_goes_on(void **state)
{
	struct world *w = world_make(8, 0, 64);
	struct buf *b;

	(void)state;
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(sq_post(&w->sq, frame_make(w, 500, i)), 0);
	b = frame_make(w, 500, 8);
	assert_int_equal(sq_post(&w->sq, b), -ENOBUFS);
	/* The buffer is still ours, and the device sees nothing of it. */
	assert_int_equal(b->refs, 1);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 3), 3);
	assert_int_equal(sq_post(&w->sq, b), -ENOBUFS); /* the completion is behind the fourth */
	assert_int_equal(soft_run(w->s, 1), 1);
	assert_int_equal(sq_post(&w->sq, b), 0);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(w->s, 99), 5);
	frame_check(w, 500, 8);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void a_queue_full_of_short_frames_has_no_place_and_goes_on(void **state)
{
	static const uint8_t data[64];
	struct world *w = world_make(8, 60, 2);

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		post_counting(w, 60);
	assert_null(sq_slot(&w->sq, 60));
	assert_false(sq_send(&w->sq, data, data, 16));
	sq_kick(&w->sq);
	assert_false(sq_send(&w->sq, data, data, 16));
	assert_int_equal(soft_run(w->s, 1), 1);
	assert_null(sq_slot(&w->sq, 60)); /* the completion is behind the second */
	assert_int_equal(soft_run(w->s, 1), 1);
	assert_non_null(sq_slot(&w->sq, 60));
	assert_true(sq_send(&w->sq, data, data, 18));
	assert_true(sq_send(&w->sq, data, data, 18));
	assert_false(sq_send(&w->sq, data, data, 18));
	assert_int_equal(soft_run(w->s, 9), 4);
	assert_int_equal(w->frames, 6);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void one_completion_frees_the_batch(void **state)
{
	struct world *w = world_make(256, 0, 64);

	(void)state;
	for (unsigned i = 0; i < 63; i++)
		assert_int_equal(sq_post(&w->sq, frame_make(w, 100, i)), 0);
	sq_kick(&w->sq);
	soft_run(w->s, 99);
	sq_reclaim(&w->sq);
	assert_int_equal(w->memory.tx.num_free, 256 - 63);
	assert_int_equal(w->s->tx_cq.pi, 0);
	assert_int_equal(sq_post(&w->sq, frame_make(w, 100, 63)), 0);
	sq_kick(&w->sq);
	soft_run(w->s, 99);
	assert_int_equal(w->s->tx_cq.pi, 1);
	sq_reclaim(&w->sq);
	assert_int_equal(w->memory.tx.num_free, 256);
	assert_int_equal(be32toh(w->sq.cq.dbrec[0]), 1);
	world_free(w);
}

static void a_single_wqe_goes_through_blueflame_and_a_burst_by_a_doorbell(void **state)
{
	struct world *w = world_make(64, 204, 64);
	const uint8_t *reg = w->s->uar + 0x800;

	(void)state;
	post_counting(w, 200); /* 4 WQEBBs */
	sq_kick(&w->sq);
	assert_memory_equal(reg, w->sq.wqes, 256);
	assert_int_equal(be32toh(w->s->o.qp.dbrec[MLX5_SND_DBR]), 4);
	soft_run(w->s, 9);
	/* The other register, its first word only. */
	post_counting(w, 40);
	post_counting(w, 40);
	sq_kick(&w->sq);
	assert_memory_equal(reg + 256, w->sq.wqes + 6 * BB, 8);
	assert_int_equal(reg[256 + 8], 0xee);
	assert_int_equal(get64(reg), 0);
	soft_run(w->s, 9);
	/* The first again, and longer than a register: its first word. */
	world_free(w);

	soft_config.bf_size = 128;
	w = world_make(64, 204, 64);
	post_counting(w, 200);
	sq_kick(&w->sq);
	assert_memory_equal(w->s->uar + 0x800, w->sq.wqes, 8);
	assert_int_equal(w->s->uar[0x808], 0xee);
	/* Nothing new: no doorbell. */
	soft_run(w->s, 9);
	sq_kick(&w->sq);
	assert_int_equal(get64(w->s->uar + 0x880), 0);
	assert_int_equal(w->frames, 1);
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void without_blueflame_there_is_one_register(void **state)
{
	struct world *w;

	(void)state;
	soft_config.bf_size = 0;
	w = world_make(64, 204, 64);
	for (unsigned i = 0; i < 5; i++) {
		post_counting(w, 60);
		sq_kick(&w->sq);
		assert_memory_equal(w->s->uar + 0x800, w->sq.wqes + (size_t)i * 2 * BB, 8);
		assert_int_equal(w->s->uar[0x808], 0xee);
		assert_int_equal(soft_run(w->s, 9), 1);
	}
	assert_int_equal(w->s->dev.complaints, 0);
	world_free(w);
}

static void a_wrong_key_breaks_the_queue_with_its_syndrome(void **state)
{
	struct world *w = world_make(16, 0, 64);

	(void)state;
	w->sq.lkey = htobe32(0x999);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(sq_post(&w->sq, frame_make(w, 100, i)), 0);
	sq_kick(&w->sq);
	soft_run(w->s, 9);
	sq_reclaim(&w->sq);
	assert_true(w->sq.broken);
	assert_int_equal(w->sq.syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	assert_int_equal(w->frames, 0);
	/* The others were flushed, and nothing moves any more. */
	assert_int_equal(w->s->tx_cq.pi, 3);
	assert_int_equal(sq_post(&w->sq, NULL), -ENOBUFS);
	world_free(w);
}

/* Puts a completion of the device's into the queue. */
static void put_cqe(struct world *w, uint16_t counter, uint8_t op)
{
	uint8_t cqe[64] = {0};

	put16(cqe + 60, counter);
	assert_true(mdev_cq_put(&w->s->tx_cq, cqe, op));
}

static void completions_of_what_was_not_posted_break_the_queue(void **state)
{
	static const uint16_t counters[] = {2, 1, 7, 0xffff};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct world *w = world_make(8, 0, 64);

		/* Only index 3 asks. */
		for (unsigned k = 0; k < 4; k++)
			assert_int_equal(sq_post(&w->sq, frame_make(w, 500, k)), 0);
		sq_kick(&w->sq);
		put_cqe(w, counters[i], MDEV_CQE_REQ);
		sq_reclaim(&w->sq);
		assert_true(w->sq.broken);
		assert_int_equal(w->sq.syndrome, 0);
		world_free(w);
	}
}

static void a_completion_twice_breaks_the_queue(void **state)
{
	struct world *w = world_make(8, 0, 64);

	(void)state;
	for (unsigned k = 0; k < 4; k++)
		assert_int_equal(sq_post(&w->sq, frame_make(w, 500, k)), 0);
	sq_kick(&w->sq);
	put_cqe(w, 3, MDEV_CQE_REQ);
	put_cqe(w, 3, MDEV_CQE_REQ);
	sq_reclaim(&w->sq);
	assert_true(w->sq.broken);
	assert_int_equal(w->memory.tx.num_free, 256);
	world_free(w);
}

static void a_wqe_keeps_its_place_until_it_was_rung_for(void **state)
{
	struct world *w = world_make(8, 0, 1);

	(void)state;
	assert_int_equal(sq_post(&w->sq, frame_make(w, 500, 0)), 0);
	put_cqe(w, 0, MDEV_CQE_REQ);
	sq_reclaim(&w->sq);
	assert_int_equal(w->sq.ci, 0);
	sq_kick(&w->sq);
	sq_reclaim(&w->sq);
	assert_int_equal(w->sq.ci, 1);
	assert_false(w->sq.broken);
	world_free(w);
}

/* What sq_init() must not take: each line breaks one thing. */
static void queues_that_cannot_be_driven_are_refused(void **state)
{
	struct world *w = world_make(16, 204, 64);
	struct sq_config good = {.qpn = 1, .lkey = 1, .max_inline = 204, .ask_every = 4}, c;
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
	struct sq sq;

	(void)state;
	for (unsigned i = 0; i < 12; i++) {
		qp = w->s->o.qp;
		cq = w->s->o.tx_cq;
		c = good;
		switch (i) {
		case 0:
			qp.sq.wqe_cnt = 12;
			break;
		case 1:
			qp.sq.wqe_cnt = 65536;
			break;
		case 2:
			qp.sq.wqe_cnt = 2;
			break;
		case 3:
			qp.sq.stride = 16;
			break;
		case 4:
			qp.sq.buf = NULL;
			break;
		case 5:
			qp.bf.reg = NULL;
			break;
		case 6:
			qp.dbrec = NULL;
			break;
		case 7:
			cq.cqe_size = 32;
			break;
		case 8:
			cq.cqe_cnt = 4;
			break;
		case 9:
			cq.cqe_cnt = 12;
			break;
		case 10:
			c.ask_every = 0;
			break;
		default:
			c.min_inline = 14;
			break;
		}
		assert_int_equal(sq_init(&sq, &qp, &cq, &c), -EINVAL);
	}
	world_free(w);
}

/*
 * VMA_TX_WRE_BATCHING=1 and long inline data: more descriptors of one unit than completions. They
 * are asked for less often.
 */
static void a_small_completion_queue_is_asked_for_fewer(void **state)
{
	struct world *w = world_make(64, 204, 1);
	struct sq_config c = {.qpn = 1, .lkey = 1, .max_inline = 204, .ask_every = 1};
	struct mlx5dv_cq cq = w->s->o.tx_cq;
	struct sq sq;

	(void)state;
	assert_int_equal(w->sq.ask_every, 1);
	cq.cqe_cnt = 16;
	assert_int_equal(sq_init(&sq, &w->s->o.qp, &cq, &c), 0);
	assert_int_equal(sq.ask_every, 4);
	sq_fini(&sq);
	world_free(w);
}

/* --- threads that kick at once */

struct racer {
	struct world *w;
	_Atomic bool stop;
};

static void *racing_kick(void *arg)
{
	struct racer *r = arg;

	while (!r->stop)
		sq_kick(&r->w->sq);
	return NULL;
}

static void doorbells_of_several_threads_never_go_back(void **state)
{
	struct world *w = world_make(32768, 0, 64);
	struct racer r = {.w = w};
	pthread_t t[2];
	uint16_t seen = 0;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, racing_kick, &r), 0);
	for (unsigned i = 0; i < 20000; i++) {
		uint16_t now;

		/* No device runs: the buffers' only use is their address. */
		struct buf *b = frame_make(w, 300, i);

		assert_int_equal(sq_post(&w->sq, b), 0);
		w->sq.held_pi--;
		buf_free(b);
		sq_kick(&w->sq);
		now = (uint16_t)be32toh(
			__atomic_load_n(&w->s->o.qp.dbrec[MLX5_SND_DBR], __ATOMIC_RELAXED));
		assert_true((int16_t)(now - seen) >= 0);
		seen = now;
	}
	r.stop = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	sq_kick(&w->sq);
	/* Whoever was refused the register has been rung for. */
	assert_int_equal(w->sq.state.rung, w->sq.pi);
	assert_int_equal(be32toh(w->s->o.qp.dbrec[MLX5_SND_DBR]), 20000);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_short_frame_is_in_its_wqe, restore),
		cmocka_unit_test_teardown(a_wqe_that_points_to_the_frame, restore),
		cmocka_unit_test_teardown(a_device_that_wants_no_header_gets_a_pointer_only,
					  restore),
		cmocka_unit_test_teardown(what_sends_in_one_go_writes_the_same, restore),
		cmocka_unit_test_teardown(what_cannot_go_in_one_go_is_left, restore),
		cmocka_unit_test_teardown(at_the_end_of_the_queue_a_frame_is_pointed_to, restore),
		cmocka_unit_test_teardown(every_length_arrives, restore),
		cmocka_unit_test_teardown(every_queue_size_goes_round, restore),
		cmocka_unit_test_teardown(a_wqe_that_does_nothing, restore),
		cmocka_unit_test_teardown(a_queue_full_of_nothing_refuses_and_goes_on, restore),
		cmocka_unit_test_teardown(a_full_queue_refuses_and_goes_on, restore),
		cmocka_unit_test_teardown(a_queue_full_of_short_frames_has_no_place_and_goes_on,
					  restore),
		cmocka_unit_test_teardown(one_completion_frees_the_batch, restore),
		cmocka_unit_test_teardown(
			a_single_wqe_goes_through_blueflame_and_a_burst_by_a_doorbell, restore),
		cmocka_unit_test_teardown(without_blueflame_there_is_one_register, restore),
		cmocka_unit_test_teardown(a_wrong_key_breaks_the_queue_with_its_syndrome, restore),
		cmocka_unit_test_teardown(completions_of_what_was_not_posted_break_the_queue,
					  restore),
		cmocka_unit_test_teardown(a_completion_twice_breaks_the_queue, restore),
		cmocka_unit_test_teardown(a_wqe_keeps_its_place_until_it_was_rung_for, restore),
		cmocka_unit_test_teardown(queues_that_cannot_be_driven_are_refused, restore),
		cmocka_unit_test_teardown(a_small_completion_queue_is_asked_for_fewer, restore),
		cmocka_unit_test_teardown(doorbells_of_several_threads_never_go_back, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
