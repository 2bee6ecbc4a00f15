/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How much of a fill ring is filled: all of it, or half of it under a stream of merged segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "ring/xdp/xdp.h"
#include "runtime/libc.h"

#define SIZE 64u
#define HALF (UMEM_RX_CHUNKS / 2)
#define PIECE 3840u /* a chunk without the kernel's headroom */
#define LARGEST 17u /* pieces of a frame of 64 KiB */

/* A ring whose other side, the kernel, is this test. */
struct fake {
	struct xdp_ring *x;
	struct xsk *s;
	uint32_t rx_producer, rx_consumer, fill_producer, fill_consumer;
	struct xdp_desc rx[SIZE];
	uint64_t fill[UMEM_RX_CHUNKS];
	struct port port;
};

static int setup_of(void **state, uint32_t fill)
{
	struct fake *f = calloc(1, sizeof(*f));

	libc_load();
	f->x = calloc(1, sizeof(*f->x) + sizeof(struct xsk));
	f->s = f->x->xsk;
	f->x->num_queues = 1;
	f->x->port = &f->port;
	f->x->sg = true;
	f->s->rx = (struct xsk_ring){.producer = &f->rx_producer,
				     .consumer = &f->rx_consumer,
				     .size = SIZE,
				     .mask = SIZE - 1};
	f->s->rx.desc = f->rx;
	f->s->fill = (struct xsk_ring){.producer = &f->fill_producer,
				       .consumer = &f->fill_consumer,
				       .size = fill,
				       .mask = fill - 1};
	f->s->fill.addr = f->fill;
	f->s->missing = fill;
	f->s->refill_at = 32;
	assert_int_equal(umem_init(&f->x->umem, PAGES_ANON), 0);
	rx_init(f->x, 1000);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_of(state, UMEM_RX_CHUNKS);
}

static int setup_small(void **state)
{
	return setup_of(state, HALF);
}

static int teardown(void **state)
{
	struct fake *f = *state;

	umem_fini(&f->x->umem);
	free(f->x);
	free(f);
	return 0;
}

/* One frame of so many pieces arrives, is polled and given back. */
static void frame(struct fake *f, uint32_t pieces, uint32_t train)
{
	struct buf *b;

	for (uint32_t i = 0; i < pieces; i++) {
		uint64_t addr = f->fill[f->fill_consumer++ & f->s->fill.mask] + XDP_HEADROOM;

		if (!i && train)
			((struct vma_train *)(f->x->umem.base + addr))[-1] =
				(struct vma_train){.magic = VMA_TRAIN_MAGIC,
						   .size = (uint16_t)(pieces * PIECE / train),
						   .count = (uint16_t)train};
		f->rx[f->rx_producer++ & f->s->rx.mask] =
			(struct xdp_desc){addr, PIECE, i + 1 < pieces ? XDP_PKT_CONTD : 0};
	}
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->total, pieces * PIECE);
	buf_free(b);
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS);
}

static void frames(struct fake *f, uint32_t n, uint32_t pieces)
{
	while (n--)
		frame(f, pieces, 0);
}

/* What the kernel has, when nothing is on its way: the rest of the last batch is put in first. */
static uint32_t supply(struct fake *f)
{
	struct buf *b;

	f->s->refill_at = f->s->held_back;
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	f->s->refill_at += 32;
	assert_int_equal(f->fill_producer - f->fill_consumer, f->x->filled);
	return f->x->filled;
}

static void test_merged_segments_go_round_in_half_of_the_ring(void **state)
{
	struct fake *f = *state;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	frames(f, 1000, LARGEST);
	assert_int_equal(supply(f), HALF);
}

static void test_other_frames_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	frames(f, 3000, 1);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	frames(f, 1000, 3); /* MTU 9000 */
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	/* Half of the chunks: nobody's stream. */
	for (unsigned i = 0; i < 200; i++) {
		frames(f, 1, LARGEST);
		frames(f, LARGEST, 1);
	}
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_trains_of_datagrams_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	f->x->trains = true;
	for (unsigned i = 0; i < 300; i++)
		frame(f, LARGEST, 48);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_the_ring_is_filled_again_behind_the_stream(void **state)
{
	struct fake *f = *state;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	frames(f, 3000, 1);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_a_kernel_that_runs_dry_gets_everything_for_a_while(void **state)
{
	struct fake *f = *state;
	uint32_t consumer;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	/* Frames have taken nearly all chunks and wait in the receive ring. */
	consumer = f->fill_consumer;
	f->fill_consumer = f->fill_producer - 100;
	rx_refill(f->x, f->s);
	f->fill_consumer = consumer;
	assert_int_equal(f->x->filled, UMEM_RX_CHUNKS);
	frames(f, 2000, LARGEST);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	frames(f, 3000, LARGEST);
	assert_int_equal(supply(f), HALF);
}

static void test_a_small_ring_is_always_full(void **state)
{
	struct fake *f = *state;

	frames(f, 400, LARGEST);
	assert_int_equal(supply(f), HALF);
	assert_int_equal(f->s->held_back, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_merged_segments_go_round_in_half_of_the_ring,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_frames_have_the_whole_ring, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_trains_of_datagrams_have_the_whole_ring, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_ring_is_filled_again_behind_the_stream,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_kernel_that_runs_dry_gets_everything_for_a_while, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_small_ring_is_always_full, setup_small,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
