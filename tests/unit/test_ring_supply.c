/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How much of a fill ring is filled: all of it, or half of it under a stream of merged segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "ring_fake.h"

#define HALF (UMEM_RX_CHUNKS / 2)
#define PIECE 3840u /* a chunk without the kernel's headroom */
#define LARGEST 17u /* pieces of a frame of 64 KiB */

static int setup(void **state)
{
	return fake_setup(state, UMEM_RX_CHUNKS);
}

static int setup_small(void **state)
{
	return fake_setup(state, HALF);
}

/* One frame of so many pieces arrives, is polled and given back. */
static void frame(struct fake *f, uint32_t pieces, uint32_t burst)
{
	struct buf *b;

	for (uint32_t i = 0; i < pieces; i++) {
		uint64_t addr = f->fill[f->index[3]++ & f->s->fill.mask] + XDP_HEADROOM;

		if (!i && burst)
			((struct vma_gso_burst *)(f->x->umem.base + addr))[-1] =
				(struct vma_gso_burst){.magic = VMA_GSO_BURST_MAGIC,
						       .size = (uint16_t)(pieces * PIECE / burst),
						       .count = (uint16_t)burst};
		f->rx[f->index[0]++ & f->s->rx.mask] =
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
	assert_int_equal(f->index[2] - f->index[3], f->x->filled);
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

static void test_bursts_of_datagrams_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	f->x->gso_bursts = true;
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
	consumer = f->index[3];
	f->index[3] = f->index[2] - 100;
	rx_refill(f->x, f->s);
	f->index[3] = consumer;
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
						setup, fake_teardown),
		cmocka_unit_test_setup_teardown(test_other_frames_have_the_whole_ring, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_bursts_of_datagrams_have_the_whole_ring, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_the_ring_is_filled_again_behind_the_stream,
						setup, fake_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_kernel_that_runs_dry_gets_everything_for_a_while, setup,
			fake_teardown),
		cmocka_unit_test_setup_teardown(test_a_small_ring_is_always_full, setup_small,
						fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
