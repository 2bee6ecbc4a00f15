/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames to send in the mlx5 device's own memory: the descriptor byte by byte, every length, and
 * when it is full or not there.
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
#include "ring/mlx5/dm.h"
#include "ring/mlx5/mlx5.h"
#include "runtime/libc.h"
#include "config/params.h"

static uint8_t last[2048];
static uint32_t last_len;
static unsigned frames, wrong;

static uint8_t frame_byte(uint32_t at, unsigned seed)
{
	return (uint8_t)(seed * 37 + at * 11 + (at >> 8));
}

/* Frames come in the order of their seeds. */
static void sent(struct soft *s, const uint8_t *frame, uint32_t len)
{
	(void)s;
	for (uint32_t i = 0; i < len; i++)
		wrong += frame[i] != frame_byte(i, frames);
	memcpy(last, frame, len < sizeof(last) ? len : sizeof(last));
	last_len = len;
	frames++;
}

static struct ring *ring_make(uint32_t dm_bytes, uint32_t the_device_has)
{
	static const uint8_t mac[6];
	struct ring *r;

	libc_load();
	params.rx_wre = params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 100;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	params.ring_dev_mem_tx = (int)dm_bytes;
	soft_config.dm_bytes = the_device_has;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	r->ops->link_changed(r, 1500, mac);
	soft->sent = sent;
	return r;
}

static int setup(void **state)
{
	(void)state;
	if (soft)
		soft->o.ops->close(&soft->o);
	soft_config = (struct soft_config){
		.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};
	frames = wrong = 0;
	return 0;
}

static int post(struct ring *r, uint32_t len, unsigned seed)
{
	struct buf *b = ring_tx_alloc(r, len);
	int err;

	assert_non_null(b);
	for (uint32_t i = 0; i < len; i++)
		b->data[i] = frame_byte(i, seed);
	b->len = b->total = len;
	err = ring_post(r, b);
	if (err)
		buf_free(b);
	return err;
}

static uint32_t free_buffers(struct ring *r)
{
	struct ring_gauges g;

	r->ops->gauges(r, &g);
	return g.tx_free;
}

static void a_wqe_that_points_into_the_device(void **state)
{
	/* 18 bytes of 500 in the WQE; 482 at 0 and then at 488, by the key of that memory. */
	static const uint8_t data[16] = {0, 0, 0x01, 0xe2, 0, 0, 0xcc, 0xdd},
			     second[16] = {0, 0, 0x01, 0xe2, 0, 0, 0xcc, 0xdd, [14] = 0x01, 0xe8};
	struct ring *r = ring_make(4096, 4096);
	const uint8_t *wqe = soft->o.qp.sq.buf;

	(void)state;
	assert_int_equal(post(r, 500, 0), 0);
	assert_int_equal(post(r, 500, 1), 0);
	assert_int_equal(wqe[3], MLX5_OPCODE_SEND);
	assert_int_equal(wqe[7], 4);
	assert_memory_equal(wqe + 48, data, sizeof(data));
	assert_memory_equal(wqe + 64 + 48, second, sizeof(second));
	for (uint32_t i = 18; i < 500; i++)
		assert_int_equal(soft->dm[i - 18], frame_byte(i, 0));
	/* Their buffers are free at once. */
	assert_int_equal(free_buffers(r), 32);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 2);
	assert_int_equal(frames, 2);
	assert_int_equal(wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

/* The original's does without its memory then. */
static void a_device_without_blueflame_sends_from_its_memory(void **state)
{
	struct ring *r;

	(void)state;
	soft_config.bf_size = 0;
	r = ring_make(4096, 4096);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(post(r, 500, i), 0);
		assert_int_equal(free_buffers(r), 32);
		for (uint32_t k = 18; !i && k < 500; k++)
			assert_int_equal(soft->dm[k - 18], frame_byte(k, 0));
		ring_kick(r);
		assert_int_equal(soft_run(soft, 9), 1);
	}
	assert_int_equal(frames, 20);
	assert_int_equal(wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

static void a_full_memory_leaves_frames_where_they_are(void **state)
{
	struct ring *r = ring_make(1024, 1024);

	(void)state;
	/* Two are there, the third is not; nor is one that would never be. */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(post(r, 500, i), 0);
	assert_int_equal(free_buffers(r), 31);
	assert_int_equal(post(r, 1400, 3), 0); /* asks for a completion */
	assert_int_equal(free_buffers(r), 30);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 4);
	/* Its place is known to be free with the completion. */
	assert_int_equal(post(r, 500, 4), 0);
	assert_int_equal(free_buffers(r), 29);
	for (unsigned i = 5; i < 8; i++)
		assert_int_equal(post(r, 500, i), 0);
	assert_int_equal(free_buffers(r), 28);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 4);
	assert_int_equal(frames, 8);
	assert_int_equal(wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

/*
 * A frame that fits neither behind the place of the last one nor in front of it, which is free
 * again.
 */
static void an_empty_memory_begins_at_its_start(void **state)
{
	_Alignas(8) uint8_t map[2048], frame[1408] = {0};
	struct sq_dm m = {.map = map, .size = sizeof(map)};
	uint32_t at = 1;

	(void)state;
	assert_true(dm_put(&m, frame, 1000, &at));
	assert_int_equal(at, 0);
	assert_false(dm_put(&m, frame, 1400, &at));
	m.ci = m.pi;
	assert_true(dm_put(&m, frame, 1400, &at));
	assert_int_equal(at, 0);
	assert_true(dm_put(&m, frame, 640, &at));
	assert_int_equal(at, 1400);
	assert_false(dm_put(&m, frame, 16, &at));
}

/*
 * Any lengths, the device behind by a few: what it reads has not been written over (its checker
 * compares what it was when rung for).
 */
static void every_size_of_memory_goes_round(void **state)
{
	for (uint32_t bytes = 64; bytes <= 65536; bytes *= 2) {
		struct ring *r;
		uint32_t rng = bytes;
		unsigned n = 0;

		setup(state);
		r = ring_make(bytes + (bytes & 0x5540 ? 8 : 0), 1 << 20);
		while (n < 3000) {
			rng = rng * 1664525 + 1013904223;
			for (unsigned k = rng >> 29; k && free_buffers(r); k--, n++)
				assert_int_equal(post(r, 101 + n * 29 % 1400, n), 0);
			ring_kick(r);
			soft_run(soft, rng >> 24 & 7);
			if (!free_buffers(r))
				soft_run(soft, ~0u), buf_free(ring_tx_alloc(r, 1000));
		}
		soft_run(soft, ~0u);
		assert_int_equal(frames, n);
		assert_int_equal(wrong, 0);
		assert_int_equal(soft->dev.complaints, 0);
		r->ops->close(r);
	}
}

static void new_queues_begin_with_all_of_it(void **state)
{
	struct ring *r = ring_make(1024, 1024);

	(void)state;
	assert_int_equal(post(r, 500, 0), 0);
	assert_int_equal(post(r, 500, 1), 0);
	soft->sq.fail = MDEV_PROTECTION_ERROR;
	ring_kick(r);
	soft_run(soft, 9);
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->renewals, 1);
	frames = 0;
	assert_int_equal(post(r, 500, 0), 0);
	assert_int_equal(post(r, 500, 1), 0);
	assert_int_equal(free_buffers(r), 32);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 2);
	assert_int_equal(frames, 2);
	assert_int_equal(wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

static void a_device_that_has_none_reads_the_hosts(void **state)
{
	struct ring *r = ring_make(4096, 0);

	(void)state;
	assert_int_equal(post(r, 500, 0), 0);
	assert_int_equal(free_buffers(r), 31);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(wrong, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_wqe_that_points_into_the_device, setup),
		cmocka_unit_test_setup(a_device_without_blueflame_sends_from_its_memory, setup),
		cmocka_unit_test_setup(a_full_memory_leaves_frames_where_they_are, setup),
		cmocka_unit_test_setup(an_empty_memory_begins_at_its_start, setup),
		cmocka_unit_test_setup(every_size_of_memory_goes_round, setup),
		cmocka_unit_test_setup(new_queues_begin_with_all_of_it, setup),
		cmocka_unit_test_setup(a_device_that_has_none_reads_the_hosts, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
