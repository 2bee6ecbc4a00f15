/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bursts on the mlx5 send queue: several frames in a WQE, byte by byte, at every place of every
 * queue, and when it is full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/mlx5.h"
#include "ring/mlx5/queue/mpw.h"
#include "ring/mlx5/pool.h"
#include "runtime/libc.h"
#include "config/params.h"

#define CHUNK 2048u

/* What is in flight, in its order, and what came out of it. */
static struct {
	uint32_t len[65536];
	unsigned posted, done, wrong;
} flight;

static uint8_t frame_byte(uint32_t at, unsigned seed)
{
	return (uint8_t)(seed * 37 + at * 11 + (at >> 8));
}

static void sent(struct soft *s, const uint8_t *frame, uint32_t len)
{
	unsigned seed = flight.done++;

	(void)s;
	flight.wrong += seed >= flight.posted || len != flight.len[seed % 65536];
	for (uint32_t i = 0; i < len; i++)
		flight.wrong += frame[i] != frame_byte(i, seed);
}

struct world {
	struct mlx5_memory memory;
	struct sq sq;
};

static const struct soft_config plain = {
	.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514, .mpw = true};

static int setup(void **state)
{
	(void)state;
	/* A test that failed has left it. */
	if (soft)
		soft->o.ops->close(&soft->o);
	soft_config = plain;
	memset(&flight, 0, sizeof(flight));
	return 0;
}

static struct world *world_make(uint32_t bbs, uint32_t max_inline, uint32_t ask_every)
{
	struct world *w = calloc(1, sizeof(*w));
	struct mlx5_want want = {
		.tx_wre = 64, .rx_wre = 64, .max_inline = max_inline, .ask_every = ask_every};
	struct sq_config config = {
		.max_inline = max_inline, .ask_every = ask_every, .mpw = soft_config.mpw};
	struct mlx5_objects *o;

	assert_int_equal(memory_init(&w->memory, PAGES_ANON, CHUNK, 1, 256), 0);
	want.base = w->memory.base;
	want.bytes = w->memory.bytes;
	soft_config.sq_bbs = bbs;
	assert_int_equal(mlx5_objects_open(NULL, &o), 0);
	soft->sent = sent;
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
	soft->o.ops->close(&soft->o);
	memory_fini(&w->memory);
	free(w);
}

/*
 * A frame as the others expect it; in the descriptor, or else in a buffer. False: there is neither
 * room nor buffer.
 */
static bool post(struct world *w, uint32_t len)
{
	unsigned seed = flight.posted;
	uint8_t *at = sq_burst_add(&w->sq, len);
	struct buf *b = NULL;

	if (!at) {
		b = pool_get(&w->memory.tx, CHUNK);
		if (!b)
			return false;
		at = b->data;
		b->len = b->total = len;
	} else {
		/* as a caller may that copies its headers in one go */
		memset(at, 0xdd, SQ_BURST_WRITTEN);
	}
	for (uint32_t i = 0; i < len; i++)
		at[i] = frame_byte(i, seed);
	if (b && sq_post(&w->sq, b)) {
		buf_free(b);
		return false;
	}
	flight.len[seed % 65536] = len;
	flight.posted++;
	return true;
}

static void frames_stand_in_their_wqe(void **state)
{
	/*
	 * Control: index 0, enhanced multi-packet; queue pair 0x1234, 9 units of 16 bytes; no
	 * completion. Ethernet: checksums, no header. Then 40 bytes behind their length, in 3
	 * units, and 60 in 4.
	 */
	uint8_t golden[144] = {
		0x00, 0x00, 0x00, 0x29, 0x00, 0x12, 0x34, 0x09, 0,	     0,	   0,	 0x00, 0, 0,
		0,    0,    0,	  0,	0,    0,    0xc0, 0,	0,	     0,	   0,	 0,    0, 0,
		0,    0,    0,	  0,	0x80, 0x00, 0x00, 0x28, [80] = 0x80, 0x00, 0x00, 0x3c,
	};
	struct world *w = world_make(64, 204, 64);

	(void)state;
	memset(w->sq.wqes, 0, 16 * BB);
	sq_burst_begin(&w->sq);
	assert_true(post(w, 40));
	assert_true(post(w, 60));
	/* Nobody sees it yet, whoever rings. */
	sq_kick(&w->sq);
	assert_int_equal(be32toh(soft->o.qp.dbrec[MLX5_SND_DBR]), 0);
	sq_burst_end(&w->sq);
	for (unsigned i = 0; i < 40; i++)
		golden[36 + i] = frame_byte(i, 0);
	for (unsigned i = 0; i < 60; i++)
		golden[84 + i] = frame_byte(i, 1);
	/* What pads the first one is anything. */
	memset(w->sq.wqes + 76, 0, 4);
	assert_memory_equal(w->sq.wqes, golden, sizeof(golden));
	assert_int_equal(w->sq.pi, 3);
	sq_kick(&w->sq);
	assert_int_equal(be32toh(soft->o.qp.dbrec[MLX5_SND_DBR]), 3);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(flight.done, 2);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void frames_are_pointed_to_by_one_wqe(void **state)
{
	/* The seventh frame asks for the completion of all; the key is that of the memory. */
	uint8_t golden[144] = {
		0x00, 0x00, 0x00, 0x29, 0x00, 0x12, 0x34, 0x09, 0, 0, 0, 0x08, 0, 0, 0, 0,
		0,    0,    0,	  0,	0xc0, 0,    0,	  0,	0, 0, 0, 0,    0, 0, 0, 0,
	};
	struct world *w = world_make(64, 204, 7);

	(void)state;
	sq_burst_begin(&w->sq);
	for (unsigned i = 0; i < 7; i++) {
		put32(golden + 32 + i * 16, 1000 + i);
		put32(golden + 36 + i * 16, 0xaabb);
		put64(golden + 40 + i * 16, w->memory.tx.free->addr);
		assert_true(post(w, 1000 + i));
	}
	sq_burst_end(&w->sq);
	assert_memory_equal(w->sq.wqes, golden, sizeof(golden));
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(flight.done, 7);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->tx_cq.pi, 1);
	assert_int_equal(w->memory.tx.num_free, 249);
	sq_reclaim(&w->sq);
	assert_int_equal(w->memory.tx.num_free, 256);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void a_wqe_that_is_full_is_followed_by_another(void **state)
{
	struct world *w = world_make(64, 204, 64);

	(void)state;
	sq_burst_begin(&w->sq);
	/* 8 of 7 units, behind 2, are 58 of 63; then 61 of one. */
	for (unsigned i = 0; i < 9; i++)
		assert_true(post(w, 106));
	assert_int_equal(w->sq.pi, 15);
	assert_int_equal(w->sq.wqes[7], 58);
	sq_burst_end(&w->sq);
	assert_int_equal(w->sq.pi, 15 + 3);
	sq_burst_begin(&w->sq);
	for (unsigned i = 0; i < 62; i++)
		assert_true(post(w, 300));
	assert_int_equal(w->sq.wqes[18 * BB + 7], 63);
	sq_burst_end(&w->sq);
	assert_int_equal(w->sq.pi, 18 + 16 + 1);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 99), 4);
	assert_int_equal(flight.done, 71);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void every_length_arrives(void **state)
{
	static const uint32_t inlines[] = {0, 60, 204, 884};

	for (unsigned i = 0; i < 4; i++) {
		struct world *w;

		setup(state);
		w = world_make(256, inlines[i], 4);
		for (uint32_t len = SQ_INLINE_HEADER + 1; len <= 1514;) {
			sq_burst_begin(&w->sq);
			for (unsigned n = len % 20 + 1; n && len <= 1514; n--, len++)
				assert_true(post(w, len));
			sq_burst_end(&w->sq);
			sq_kick(&w->sq);
			soft_run(soft, 99);
		}
		assert_int_equal(flight.done, 1514 - SQ_INLINE_HEADER);
		assert_int_equal(flight.wrong, 0);
		assert_int_equal(soft->dev.complaints, 0);
		world_free(w);
	}
}

/* A frame outside of any burst. */
static void post_alone(struct world *w, uint32_t len)
{
	struct buf *b = sq_slot(&w->sq, len);

	if (!b)
		b = pool_get(&w->memory.tx, CHUNK);
	if (!b)
		return;
	for (uint32_t i = 0; i < len; i++)
		b->data[i] = frame_byte(i, flight.posted);
	b->len = b->total = len;
	if (sq_post(&w->sq, b)) {
		buf_free(b);
		return;
	}
	flight.len[flight.posted++ % 65536] = len;
}

/*
 * Bursts of any length, and single frames between them, the device behind by a few: round the queue
 * many times.
 */
static void laps(uint32_t bbs, uint32_t ask_every, uint32_t bf_size, uint32_t max_inline)
{
	uint32_t rng = bbs * 7919 + ask_every, turns = 0;
	struct world *w;

	setup(NULL);
	soft_config.bf_size = bf_size;
	w = world_make(bbs, max_inline, ask_every);
	for (; w->sq.pi < (bbs < 4096 ? 20 : 2) * bbs + 200 && turns < 1000000; turns++) {
		rng = rng * 1664525 + 1013904223;
		sq_burst_begin(&w->sq);
		for (unsigned n = rng >> 25; n; n--) {
			if (!post(w, 60 + (flight.posted * 29) % (rng & 0x10000 ? 1400 : 200)))
				break;
		}
		sq_burst_end(&w->sq);
		assert_false(w->sq.mpw.is_on);
		if (rng & 0x20000)
			post_alone(w, 60 + turns % 300);
		sq_kick(&w->sq);
		soft_run(soft, rng >> 8 & 63);
		if (!w->memory.tx.free)
			sq_reclaim(&w->sq);
		assert_int_equal(flight.wrong, 0);
		assert_int_equal(soft->dev.complaints, 0);
	}
	assert_true(turns < 1000000);
	soft_run(soft, ~0u);
	assert_int_equal(flight.done, flight.posted);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	assert_false(w->sq.broken);
	world_free(w);
}

static void every_queue_size_goes_round(void **state)
{
	static const uint32_t every[] = {1, 4, 64};

	(void)state;
	for (uint32_t bbs = 8; bbs <= 32768; bbs *= 2) {
		for (unsigned i = 0; i < (bbs > 1024 ? 1 : 3); i++)
			laps(bbs, every[i], bbs & 0x15554 ? 256 : 0, i == 2 ? 884 : 204);
	}
}

static void a_full_queue_refuses_a_frame_of_a_burst_and_goes_on(void **state)
{
	struct world *w = world_make(16, 0, 64);
	unsigned n = 0, before;

	(void)state;
	sq_burst_begin(&w->sq);
	while (post(w, 500))
		n++;
	/* Two WQEs of half the queue. */
	assert_int_equal(n, 2 * (8 * 4 - 2));
	before = w->memory.tx.num_free;
	assert_false(post(w, 500));
	/* the buffer came back: it is the caller's */
	assert_int_equal(w->memory.tx.num_free, before);
	sq_burst_end(&w->sq);
	sq_kick(&w->sq);
	sq_burst_begin(&w->sq);
	assert_false(post(w, 500));
	assert_int_equal(soft_run(soft, 1), 1);
	assert_true(post(w, 500));
	sq_burst_end(&w->sq);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 99), 2);
	assert_int_equal(flight.done, n + 1);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void a_device_that_cannot_gets_one_frame_a_wqe(void **state)
{
	struct world *w;

	(void)state;
	soft_config.mpw = false;
	w = world_make(64, 204, 64);
	sq_burst_begin(&w->sq);
	assert_false(w->sq.mpw.is_on);
	assert_null(sq_burst_add(&w->sq, 60));
	post_alone(w, 60);
	post_alone(w, 500);
	sq_burst_end(&w->sq);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 9), 2);
	assert_int_equal(w->sq.wqes[3], MLX5_OPCODE_SEND);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void a_completion_queue_that_is_shorter_has_no_bursts(void **state)
{
	struct sq_config config = {
		.qpn = 1, .lkey = 1, .max_inline = 60, .ask_every = 4, .mpw = true};
	struct world *w = world_make(64, 60, 4);
	struct mlx5dv_cq cq = soft->o.tx_cq;
	struct sq sq;

	(void)state;
	assert_true(w->sq.mpw.able);
	cq.cqe_cnt /= 2;
	assert_int_equal(sq_init(&sq, &soft->o.qp, &cq, &config), 0);
	assert_false(sq.mpw.able);
	sq_fini(&sq);
	world_free(w);
}

static void what_a_burst_holds_is_given_back_by_a_queue_that_breaks(void **state)
{
	struct world *w = world_make(64, 0, 64);

	(void)state;
	w->sq.lkey = htobe32(0x999);
	sq_burst_begin(&w->sq);
	for (unsigned i = 0; i < 10; i++)
		assert_true(post(w, 100));
	sq_burst_end(&w->sq);
	sq_kick(&w->sq);
	soft_run(soft, 9);
	sq_burst_begin(&w->sq);
	for (unsigned i = 0; i < 10; i++)
		assert_true(post(w, 100));
	sq_reclaim(&w->sq);
	assert_true(w->sq.broken);
	assert_int_equal(w->sq.syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
	assert_false(post(w, 100));
	assert_int_equal(flight.done, 0);
	/* Nor does its end bring it back to life. */
	sq_burst_end(&w->sq);
	assert_int_equal(w->sq.slot_room, 0);
	world_free(w); /* all buffers are there */

	setup(state);
	w = world_make(64, 0, 64);
	sq_burst_begin(&w->sq);
	assert_true(post(w, 100));
	world_free(w); /* in the middle of a burst, too */
}

static void a_large_frame_ends_the_burst_before_it(void **state)
{
	static const uint8_t header[42] = {2, 0, 0,    0, 0, 2, 2, 0, 0, 0, 0,	1,
					   8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17};
	struct world *w;
	struct buf *b;

	(void)state;
	soft_config.max_tso = 65536;
	w = world_make(64, 204, 64);
	sq_burst_begin(&w->sq);
	assert_true(post(w, 100));
	b = pool_get(&w->memory.tx, CHUNK);
	memset(b->data, 0, 1000);
	b->len = 1000;
	assert_int_equal(sq_post_lso(&w->sq, header, 42, 1000, b, NULL), 0);
	assert_false(w->sq.mpw.is_on);
	assert_null(sq_burst_add(&w->sq, 60));
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 1), 1);
	assert_int_equal(flight.wrong, 0);
	assert_int_equal(soft_run(soft, 1), 1);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

/* --- the ring */

static void a_burst_through_the_ring_waits_when_it_is_full(void **state)
{
	static const uint8_t mac[6];
	struct ring *r;
	unsigned n = 0;
	struct buf *b;

	(void)state;
	libc_load();
	params.rx_wre = params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 204;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	r->ops->link_changed(r, 1500, mac);
	ring_burst_begin(r);
	assert_null(r->ops->burst_add(r, 1515)); /* above the MTU */
	/* All buffers; the last allocation has rung for them, and ended the burst. */
	while ((b = ring_tx_alloc(r, 1000))) {
		memset(b->data, 1, 1000);
		b->len = b->total = 1000;
		assert_int_equal(ring_post(r, b), 0);
		n++;
	}
	assert_int_equal(n, 32);
	assert_int_equal(r->counters->tx_full, 1);
	assert_null(r->ops->burst_add(r, 100));
	assert_int_equal(soft_run(soft, 99), 1);
	assert_int_equal(flight.done, 0);
	ring_burst_end(r);
	b = ring_tx_alloc(r, 1000);
	assert_non_null(b);
	buf_free(b);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(frames_stand_in_their_wqe, setup),
		cmocka_unit_test_setup(frames_are_pointed_to_by_one_wqe, setup),
		cmocka_unit_test_setup(a_wqe_that_is_full_is_followed_by_another, setup),
		cmocka_unit_test_setup(every_length_arrives, setup),
		cmocka_unit_test_setup(every_queue_size_goes_round, setup),
		cmocka_unit_test_setup(a_full_queue_refuses_a_frame_of_a_burst_and_goes_on, setup),
		cmocka_unit_test_setup(a_device_that_cannot_gets_one_frame_a_wqe, setup),
		cmocka_unit_test_setup(a_completion_queue_that_is_shorter_has_no_bursts, setup),
		cmocka_unit_test_setup(what_a_burst_holds_is_given_back_by_a_queue_that_breaks,
				       setup),
		cmocka_unit_test_setup(a_large_frame_ends_the_burst_before_it, setup),
		cmocka_unit_test_setup(a_burst_through_the_ring_waits_when_it_is_full, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
