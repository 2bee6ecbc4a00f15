/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The mlx5 ring with a striding receive queue: slabs that go round, frames that users keep, and
 * what a broken device may say.
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
#include "ring/mlx5/internal.h"
#include "runtime/libc.h"
#include "config/params.h"

#define STRIDES 64u
#define SLABS 6u /* four that the device has, one for VMA_QP_COMPENSATION_LEVEL, one more */

static struct ring *open_ring(void)
{
	struct ring *r;

	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	return r;
}

static int setup(void **state)
{
	libc_load();
	params.strq = 1;
	params.rx_wre = 32;
	params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 204;
	params.qp_compensation_level = 16;
	params.rx_bufs = 100;
	params.cq_keep_qp_full = 1;
	soft_config = (struct soft_config){.cqe_size = 64,
					   .min_inline = 18,
					   .bf_size = 256,
					   .max_frame = 1514,
					   .strides_log = 6};
	*state = open_ring();
	assert_true(mlx5_ring(*state)->rq.slabs);
	return 0;
}

/* Nothing is lost, nothing held, and the device never complained. */
static int teardown(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);

	assert_int_equal(soft->dev.complaints, 0);
	assert_int_equal(m->memory.rx.num_free, m->memory.rx.num);
	assert_int_equal(buf_copies(), 0);
	r->ops->close(r);
	assert_null(soft);
	return 0;
}

static uint8_t byte_at(uint32_t seed, uint32_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

/* False: the device had no place for it. */
static bool send_in(uint32_t len, uint32_t seed)
{
	static uint8_t frame[65536];

	for (uint32_t i = 0; i < len; i++)
		frame[i] = byte_at(seed, i);
	return soft_receive(soft, frame, len);
}

static bool is(const struct buf *b, uint32_t len, uint32_t seed)
{
	uint32_t wrong = b->len != len || b->total != len || b->frag;

	for (uint32_t i = 0; i < b->len; i++)
		wrong += b->data[i] != byte_at(seed, i);
	return !wrong;
}

static struct buf *take(struct ring *r)
{
	struct buf *b = NULL;

	return ring_poll(r, &b, 1) ? b : NULL;
}

/* One frame all the way. */
static struct buf *pass(struct ring *r, uint32_t len, uint32_t seed)
{
	struct buf *b;

	assert_true(send_in(len, seed));
	b = take(r);
	assert_non_null(b);
	assert_true(is(b, len, seed));
	return b;
}

static bool in_ring(const struct ring *r, const struct buf *b)
{
	const struct mlx5_memory *memory = &((const struct mlx5_ring *)r)->memory;

	return b->data >= memory->base && b->data < memory->base + memory->bytes;
}

static void a_striding_wqe_is_two_segments(void **state)
{
	struct mlx5_ring *m = mlx5_ring(*state);
	/* 64 * 2048 = 0x20000 */
	uint8_t golden[32] = {[17] = 0x02, [21] = 0x00, [22] = 0xaa, [23] = 0xbb};
	uint64_t addr = htobe64(m->rq.posted[2]->bufs->addr);

	memcpy(golden + 24, &addr, 8);
	assert_int_equal(m->rq.cnt, 4);
	assert_int_equal(m->slabs.num, SLABS);
	assert_memory_equal((uint8_t *)m->rq.wqes + 64, golden, 32);
	assert_int_equal(be32toh(soft->o.rwq.dbrec[MLX5_RCV_DBR]), 4);
	assert_null(soft->o.qp.rq.buf);
}

static void frames_of_all_lengths_go_round(void **state)
{
	struct ring *r = *state;

	/*
	 * Some forty laps, in which the end of a slab meets all lengths up to five strides, and the
	 * records' 16 bits do not.
	 */
	for (uint32_t len = 14; len < 10000; len += len < 3000 ? 1 : 7)
		buf_free(pass(r, len, len));
	assert_int_equal(soft->renewals, 0);
	assert_int_equal(soft->rq.dropped, 0);
	assert_int_equal(r->counters->rx_packets, 2986 + 1000);
}

static void the_doorbell_record_goes_round(void **state)
{
	struct ring *r = *state;

	for (uint32_t i = 0; i < 70000; i++) {
		buf_free(pass(r, 14, i));
		/* Neither side looks at most of it. */
		soft->rq.at = mlx5_ring(r)->rq.at = STRIDES - 1;
		buf_free(pass(r, 15, i));
	}
	assert_int_equal(soft->rq.ci, 70000);
}

static void many_at_once(void **state)
{
	struct ring *r = *state;
	struct buf *b[32];
	uint32_t seed = 0, seen = 0;

	for (unsigned lap = 0; lap < 100; lap++) {
		for (unsigned i = 0; i < 32; i++, seed++)
			assert_true(send_in(60 + seed % 4000, seed));
		assert_int_equal(ring_poll(r, b, 32), 32);
		for (unsigned i = 0; i < 32; i++, seen++) {
			assert_true(is(b[i], 60 + seen % 4000, seen));
			buf_free(b[i]);
		}
	}
}

/* 64 strides are 21 frames of three, and one that is left out. */
static void what_does_not_fit_is_in_the_next_slab(void **state)
{
	struct ring *r = *state;

	for (uint32_t i = 0; i < 200; i++) {
		struct buf *b = pass(r, 5000, i);

		assert_int_equal((b->data - mlx5_ring(r)->memory.base) / 2048 % STRIDES,
				 i % 21 * 3);
		assert_int_equal(b->room, 3 * 2048);
		buf_free(b);
	}
	assert_int_equal(soft->rx_cq.pi, 200 + 9); /* the fillers */
}

static void a_filler_alone_is_no_frame(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	uint8_t filler[64] = {0};

	for (uint32_t i = 0; i < 21; i++)
		buf_free(pass(r, 5000, i));
	filler[44] = 0x80, filler[47] = 0, filler[45] = 1, filler[61] = 63;
	assert_true(mdev_cq_put(&soft->rx_cq, filler, MDEV_CQE_RESP_SEND));
	soft->rq.at = 0, soft->rq.ci++;
	assert_true(r->ops->pending(r));
	assert_null(take(r));
	assert_int_equal(m->rq.at, STRIDES);
	assert_false(r->ops->pending(r));
	assert_false(r->ops->arm(r));
	soft_run(soft, 1);
	buf_free(pass(r, 5000, 1));
	assert_int_equal(soft->renewals, 0);
}

/*
 * One datagram of each lap is kept. Its slab is not the device's meanwhile, whatever comes; and it
 * needs no copy at once.
 */
static void kept_frames_stay_as_they_are(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *kept[4];
	uint32_t seed = 0;

	for (unsigned n = 0; n < 2; n++) {
		kept[n] = pass(r, 100 + n, 1000 + n);
		assert_true(in_ring(r, kept[n]));
		for (unsigned i = 0; i < 3 * SLABS * STRIDES; i++, seed++)
			buf_free(pass(r, 60 + seed % 1454, seed));
	}
	assert_true(is(kept[0], 100, 1000));
	assert_true(is(kept[1], 101, 1001));
	assert_int_equal(m->memory.rx.num_free, (SLABS - 2) * STRIDES);
	buf_free(kept[0]);
	assert_int_equal(m->memory.rx.num_free, (SLABS - 1) * STRIDES);
	for (unsigned i = 0; i < 3 * SLABS * STRIDES; i++, seed++)
		buf_free(pass(r, 60 + seed % 1454, seed));
	assert_true(is(kept[1], 101, 1001));
	buf_free(kept[1]);
}

/*
 * Users who keep one frame of each slab: the others move to the heap, as many as VMA_RX_BUFS, and
 * then they are dropped.
 */
static void few_slabs_left_and_frames_move_to_the_heap(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	unsigned n = 0, kept = 0, heap = 0;
	uint32_t first = 0;
	static struct buf *all[2000];
	static uint32_t seeds[2000];

	for (uint32_t seed = 0; seed < 4000; seed++) {
		struct buf *b;

		assert_true(send_in(200, seed));
		b = take(r);
		if (!b)
			continue;
		assert_true(is(b, 200, seed));
		/* Of those in the ring's memory a few; of the copies all. */
		if (in_ring(r, b) && seed % STRIDES) {
			buf_free(b);
			continue;
		}
		kept += in_ring(r, b);
		if (!in_ring(r, b) && !heap++)
			first = mlx5_rx_ours(m);
		seeds[n] = seed;
		all[n++] = b;
	}
	assert_int_equal(heap, 100);
	/* The device has two when copies begin, and one when they end. */
	assert_int_equal(first, 2 * STRIDES);
	assert_int_equal(kept, SLABS - 1);
	assert_true(r->counters->rx_drop_no_buf > 1000);
	/* The device always had a slab. */
	assert_int_equal(soft->rq.dropped, 0);
	assert_true(mlx5_rx_ours(m) >= STRIDES);
	for (unsigned i = 0; i < n; i++) {
		assert_true(is(all[i], 200, seeds[i]));
		buf_free(all[i]);
	}
	for (unsigned i = 0; i < 2 * SLABS * STRIDES; i++) {
		struct buf *b = pass(r, 200, i);

		assert_true(i < STRIDES * SLABS || in_ring(r, b));
		buf_free(b);
	}
}

/*
 * Without VMA_CQ_KEEP_QP_FULL all of it may be kept, and the device has nothing; once it is given
 * back all goes on.
 */
static void no_slab_left_and_it_goes_on(void **state)
{
	struct ring *r = *state;
	struct buf *all[SLABS * STRIDES];
	unsigned n = 0;

	params.cq_keep_qp_full = 0;
	params.rx_bufs = 0;
	mlx5_ring(r)->heap_bufs_max = 0;
	while (send_in(1514, n)) {
		assert_true(n < SLABS * STRIDES);
		all[n] = take(r);
		assert_true(is(all[n], 1514, n));
		n++;
	}
	assert_int_equal(n, SLABS * STRIDES);
	assert_null(take(r));
	/* The last one of a slab sets it free, not the others. */
	for (unsigned i = 1; i < STRIDES; i++)
		buf_free(all[i]);
	assert_null(take(r));
	assert_false(send_in(60, 1));
	buf_free(all[0]);
	assert_null(take(r));
	for (unsigned i = 0; i < STRIDES; i++)
		buf_free(pass(r, 60, i));
	for (unsigned i = STRIDES; i < n; i++) {
		assert_true(is(all[i], 1514, i));
		buf_free(all[i]);
	}
	assert_null(take(r));
	buf_free(pass(r, 60, 3));
	params.rx_bufs = 100;
	params.cq_keep_qp_full = 1;
}

static void queues_anew_at_each_stride(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *kept = NULL;

	for (uint32_t i = 0; i < 3 * STRIDES; i++) {
		uint32_t lost = i % 3;

		for (uint32_t k = 0; k < i; k++)
			buf_free(pass(r, 60 + k, k));
		if (kept) {
			assert_true(is(kept, 1500, i - 1));
			buf_free(kept);
		}
		kept = pass(r, 1500, i);
		for (uint32_t k = 0; k < lost; k++)
			assert_true(send_in(70, k)); /* with the old queue */
		if (i & 1) {
			soft->news = MLX5_QUEUES_FAILED;
			assert_int_equal(r->ops->upkeep(r), 0);
		} else {
			soft->rq.fail = MDEV_PROTECTION_ERROR;
			assert_false(send_in(60, 1));
			for (uint32_t k = 0; k < lost; k++)
				buf_free(take(r));
			assert_null(take(r));
			assert_null(take(r));
		}
		assert_int_equal(soft->renewals, i + 1);
		/* All but the slab of what is kept. */
		assert_int_equal(m->memory.rx.num_free, (SLABS - 1) * STRIDES);
		for (unsigned k = 0; k < 41; k++)
			assert_int_equal(r->ops->upkeep(r), 0);
	}
	assert_int_equal(r->counters->rx_drop_invalid, (3 * STRIDES + 1) / 2);
	buf_free(kept);
}

static const struct mlx5_object_ops *device_ops;

static int renew_fails(struct mlx5_objects *o, const struct mlx5_want *want, void **old)
{
	int err = device_ops->renew(o, want, old);

	o->failed = "make the striding work queue";
	return err ? err : -ENOMEM;
}

/*
 * No new ones are had: what is kept is still there, its slab comes back to no queue, and when there
 * is one again to that.
 */
static void queues_that_cannot_be_had_anew(void **state)
{
	struct ring *r = *state;
	struct mlx5_object_ops broken = *soft->o.ops;
	struct buf *kept[2] = {pass(r, 100, 1), pass(r, 5000, 2)};

	device_ops = soft->o.ops;
	broken.renew = renew_fails;
	soft->o.ops = &broken;
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	soft->o.ops = device_ops;
	assert_true(is(kept[0], 100, 1) && is(kept[1], 5000, 2));
	buf_free(kept[0]);
	assert_null(take(r));
	assert_false(r->ops->pending(r));
	buf_free(kept[1]);
	while (soft->renewals < 2)
		assert_null(take(r));
	for (uint32_t i = 0; i < 2 * SLABS * STRIDES; i++)
		buf_free(pass(r, 1000, i));
}

static void an_mtu_that_grows_needs_no_other_queue(void **state)
{
	struct ring *r = *state;
	static const uint8_t mac[6];

	r->ops->link_changed(r, 1500, mac);
	r->ops->link_changed(r, 9000, mac);
	assert_true(r->caps.max_rx_frame >= 9014);
	for (uint32_t i = 0; i < 300; i++)
		buf_free(pass(r, 9014 - i, i));
	assert_int_equal(soft->renewals, 0);
}

static void who_sleeps_is_woken(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	for (uint32_t i = 0; i < 300; i++) {
		assert_false(r->ops->arm(r));
		soft_run(soft, 1);
		assert_true(send_in(60, i));
		assert_true(r->ops->arm(r));
		b = take(r);
		assert_true(is(b, 60, i));
		buf_free(b);
	}
	assert_int_equal(soft->rx_cq.events, 300);
}

static void a_frame_has_its_time(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	/* The first one comes behind a filler. */
	for (uint32_t i = 0; i < 21; i++)
		buf_free(pass(r, 5000, i));
	mlx5_ring(r)->clock.kind = CLOCK_RAW;
	mlx5_ring(r)->clock.khz = 1000000;
	for (uint32_t i = 1; i < 200; i++) {
		soft->cycles = 1000 + i;
		assert_true(send_in(5000, i));
		soft->cycles = 0;
		assert_int_equal(r->ops->poll_stamped(r, &b, 1), 1);
		assert_true(is(b, 5000, i));
		assert_true(b->flags & BUF_HW_TIME);
		buf_free(b);
	}
}

static void a_vlans_tag_is_taken_off(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	uint8_t frame[100] = {[12] = 0x81, [15] = 5, [16] = 8, [18] = 0x77};
	struct buf *b;

	m->want.vlan = 5;
	m->tagged = m->slow = true;
	for (unsigned i = 0; i < 2 * STRIDES; i++) {
		frame[15] = i % 2 ? 5 : 6;
		assert_true(soft_receive(soft, frame, sizeof(frame)));
		b = take(r);
		assert_int_equal(b != NULL, i % 2);
		if (!b)
			continue;
		assert_int_equal(b->len, 96);
		assert_int_equal(b->total, 96);
		assert_int_equal(b->data[14], 0x77);
		buf_free(b);
	}
	assert_int_equal(r->counters->rx_drop_invalid, STRIDES);
	m->want.vlan = 0;
	m->tagged = false;
}

static void its_completions_are_not_compressed(void **state)
{
	struct ring *r = *state;

	r->ops->close(r);
	params.cqe_compression = true;
	soft_config.zip_max = 8;
	r = *state = open_ring();
	params.cqe_compression = false;
	assert_non_null(mlx5_ring(r)->rq.slabs);
	assert_false(soft->want.compress);
	for (uint32_t i = 0; i < 100; i++)
		buf_free(pass(r, 60, i));
}

/* A card of before ConnectX-6 takes no fewer than 512 strides. */
static void a_device_that_wants_more_strides(void **state)
{
	struct ring *r = *state;

	r->ops->close(r);
	soft_config.strides_log = 9;
	r = *state = open_ring();
	assert_int_equal(mlx5_ring(r)->slabs.strides, 512);
	for (uint32_t i = 0; i < 6000; i++)
		buf_free(pass(r, 60 + i % 1400, i));
}

static void usual(struct ring **r)
{
	assert_null(mlx5_ring(*r)->rq.slabs);
	for (uint32_t i = 0; i < 200; i++)
		buf_free(pass(*r, 1000, i));
	/* The teardown's sums are of a striding one. */
	(*r)->ops->close(*r);
	soft_config.strides_log = 6;
	soft_config.no_wq = false;
	*r = open_ring();
}

static void a_device_without_has_a_plain_queue(void **state)
{
	struct ring **r = (struct ring **)state;

	(*r)->ops->close(*r);
	soft_config.strides_log = 0;
	*r = open_ring();
	usual(r);
	(*r)->ops->close(*r);
	soft_config.strides_log = 13; /* slabs of 16 MiB */
	*r = open_ring();
	usual(r);
}

static void a_device_that_refuses_has_a_plain_queue(void **state)
{
	struct ring **r = (struct ring **)state;

	(*r)->ops->close(*r);
	soft_config.no_wq = true;
	*r = open_ring();
	assert_int_equal(soft->want.strides, 0);
	assert_int_equal(mlx5_ring(*r)->memory.rx.num, 32 + 16);
	usual(r);
}

/* A completion as the device would not write it; the queue had `before` frames. */
struct lie {
	uint16_t wqe, count, len, stride;
	unsigned before;
};

static void lies_break_the_queue(void **state)
{
	static const struct lie lies[] = {
		{0, 1, 60, 1, 0}, /* another stride */
		{0, 1, 60, 0, 1}, /* one that was used */
		{1, 1, 60, 0, 0}, /* another WQE */
		{0, 0, 60, 0, 0}, /* of no stride */
		{0, 1, 2049, 0, 0}, /* longer than its strides */
		{0, STRIDES + 1, 60, 0, 0}, /* longer than the slab */
		{0, 2, 60, STRIDES - 1, STRIDES - 1},
		{0, 0x3fff, 60, 0, 0},
		{0, 0x8000, 0, 0, 0}, /* fillers of no stride, of too many, and of another WQE */
		{0, 0x8000 | (STRIDES + 1), 0, 0, 0},
		{0, 0xbfff, 0, 0, 5},
		{1, 0x8000 | STRIDES, 0, 0, 0},
		{1, 1, 60, STRIDES, STRIDES}, /* behind the last one */
		/* of the slab behind the last one, after which there is none */
		{4, 1, 60, 0, 4 * STRIDES + 2},
	};
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);

	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		const struct lie *l = &lies[i];
		uint8_t cqe[64] = {0};

		for (unsigned k = 0; k < l->before; k++)
			buf_free(pass(r, 60, k));
		put16(cqe + 2, l->wqe);
		put16(cqe + 44, l->count);
		put16(cqe + 46, l->len);
		put16(cqe + 60, l->stride);
		assert_true(mdev_cq_put(&soft->rx_cq, cqe, MDEV_CQE_RESP_SEND));
		assert_null(take(r));
		assert_int_equal(soft->renewals, i + 1);
		assert_int_equal(m->memory.rx.num_free, m->memory.rx.num);
		for (unsigned k = 0; k < 41; k++)
			assert_int_equal(r->ops->upkeep(r), 0);
		buf_free(pass(r, 60, i));
		soft->news = MLX5_QUEUES_FAILED;
		soft->renewals--;
		assert_int_equal(r->ops->upkeep(r), 0);
		for (unsigned k = 0; k < 41; k++)
			assert_int_equal(r->ops->upkeep(r), 0);
	}
}

/* A completion for a slab when there is none. */
static void a_frame_from_nowhere_breaks_the_queue(void **state)
{
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *all[SLABS * STRIDES];
	uint8_t cqe[64] = {0};
	unsigned n = 0;

	params.cq_keep_qp_full = 0;
	m->heap_bufs_max = 0;
	for (; n < SLABS * STRIDES; n++)
		all[n] = pass(r, 60, n);
	put16(cqe + 2, (uint16_t)m->rq.ci);
	put16(cqe + 44, 1);
	put16(cqe + 46, 60);
	assert_true(mdev_cq_put(&soft->rx_cq, cqe, MDEV_CQE_RESP_SEND));
	assert_null(take(r));
	assert_int_equal(soft->renewals, 1);
	assert_int_equal(m->memory.rx.num_free, 0);
	for (; n; n--) {
		assert_true(is(all[n - 1], 60, n - 1));
		buf_free(all[n - 1]);
	}
	assert_null(take(r));
	buf_free(pass(r, 60, 7));
	params.cq_keep_qp_full = 1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_striding_wqe_is_two_segments),
		TEST(frames_of_all_lengths_go_round),
		TEST(the_doorbell_record_goes_round),
		TEST(many_at_once),
		TEST(what_does_not_fit_is_in_the_next_slab),
		TEST(a_filler_alone_is_no_frame),
		TEST(kept_frames_stay_as_they_are),
		TEST(few_slabs_left_and_frames_move_to_the_heap),
		TEST(no_slab_left_and_it_goes_on),
		TEST(queues_anew_at_each_stride),
		TEST(queues_that_cannot_be_had_anew),
		TEST(an_mtu_that_grows_needs_no_other_queue),
		TEST(who_sleeps_is_woken),
		TEST(a_frame_has_its_time),
		TEST(a_vlans_tag_is_taken_off),
		TEST(its_completions_are_not_compressed),
		TEST(a_device_that_wants_more_strides),
		TEST(a_device_without_has_a_plain_queue),
		TEST(a_device_that_refuses_has_a_plain_queue),
		TEST(lies_break_the_queue),
		TEST(a_frame_from_nowhere_breaks_the_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
