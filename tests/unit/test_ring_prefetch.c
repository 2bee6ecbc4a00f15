/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the AF_XDP ring has fetched into the cache ahead. Nothing of it can be seen from outside, so
 * the ring is built in here once more, with another function for the instruction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void fetched(const void *at);
#define __builtin_prefetch(at, ...) fetched(at)
#include "../../lib/ring/xdp/rx.c"

#include "ring_fake.h"

static const uint8_t *chunk; /* what is looked at */
static unsigned lines;
static uintptr_t first, last;

/* Of what is behind the chunk's headroom; a mark of GSO is in front of it. */
static void fetched(const void *at)
{
	uintptr_t from = (uintptr_t)chunk + XDP_HEADROOM;

	if ((uintptr_t)at < from || (uintptr_t)at >= (uintptr_t)chunk + UMEM_CHUNK)
		return;
	if (!lines++)
		first = (uintptr_t)at - from;
	last = (uintptr_t)at - from;
}

static void look_at(struct fake *f, uint32_t position)
{
	chunk = f->x->umem.base + f->fill[position];
	lines = 0;
}

static void assert_lines(unsigned n)
{
	assert_int_equal(lines, n);
	assert_int_equal(n ? first : 0, 0);
	assert_int_equal(n ? last : 0, n ? 64 * (n - 1) : 0);
}

static int setup(void **state)
{
	return fake_setup(state, UMEM_RX_CHUNKS);
}

static void a_frame_that_has_come_as_far_as_set(void **state)
{
	static const struct {
		int set;
		unsigned lines;
	} cases[] = {{32, 1}, {64, 1}, {65, 2}, {256, 4}, {2044, 32}};
	struct fake *f = *state;

	look_at(f, 0);
	assert_false(xdp_pending(&f->x->ring));
	assert_lines(0);
	f->rx[f->index[0]++] = (struct xdp_desc){f->fill[0] + XDP_HEADROOM, 100, 0};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		params.rx_prefetch_bytes = cases[i].set;
		look_at(f, 0);
		assert_true(xdp_pending(&f->x->ring));
		assert_lines(cases[i].lines);
	}
}

static void the_next_buffer_when_a_poll_finds_nothing(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	params.rx_prefetch_bytes = 256;
	for (unsigned i = 0; i < 8; i++) {
		params.rx_prefetch_bytes_before_poll = i & 1 ? 64 * (int)i : 0;
		look_at(f, i);
		assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
		assert_lines(i & 1 ? i : 0);
		/* Not when it finds something. */
		f->rx[f->index[0]++] = (struct xdp_desc){f->fill[i] + XDP_HEADROOM, 100, 0};
		look_at(f, i + 1);
		assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
		assert_lines(0);
		buf_free(b);
	}
	params.rx_prefetch_bytes_before_poll = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_frame_that_has_come_as_far_as_set, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(the_next_buffer_when_a_poll_finds_nothing, setup,
						fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
