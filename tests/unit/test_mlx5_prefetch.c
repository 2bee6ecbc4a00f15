/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* As test_ring_prefetch.c, of a card's receive queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <net/if.h>

void fetched(const void *at);
#define __builtin_prefetch(at, ...) fetched(at)
#include "../../lib/ring/mlx5/rx.c"

#include "../mlx5_device/soft.h"
#include "ring/mlx5/mlx5.h"

static const uint8_t *chunk; /* what is looked at */
static unsigned lines;

void fetched(const void *at)
{
	if (chunk && at == chunk + 64 * (size_t)lines)
		lines++;
}

/* The buffer of the frame that comes after so many more. */
static void look_at(const struct ring *r, uint32_t more)
{
	const struct rq *q = &((const struct mlx5_ring *)r)->rq;

	chunk = q->bufs[(q->ci + more) & (q->cnt - 1)]->data;
	lines = 0;
}

static int setup(void **state)
{
	struct ring *r;

	libc_load();
	params.rx_wre = params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	params.cq_keep_qp_full = 1;
	chunk = NULL;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct ring *r = *state;

	r->ops->close(r);
	return 0;
}

/* Of two that have come the second, too. */
static void frames_that_have_come_as_far_as_set(void **state)
{
	static const int set[] = {32, 64, 65, 256, 2044};
	static const unsigned is[] = {1, 1, 2, 4, 32};
	static const uint8_t frame[100];
	struct ring *r = *state;

	for (unsigned i = 0; i < 5; i++) {
		struct buf *b[3];

		params.rx_prefetch_bytes = set[i];
		assert_true(soft_receive(soft, frame, sizeof(frame)));
		assert_true(soft_receive(soft, frame, sizeof(frame)));
		look_at(r, 1);
		assert_int_equal(ring_poll(r, b, 3), 2);
		assert_int_equal(lines, is[i]);
		buf_free(b[0]);
		buf_free(b[1]);
	}
}

static void the_next_buffer_when_a_poll_finds_nothing(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	for (int i = 0; i < 8; i++) {
		params.rx_prefetch_bytes_before_poll = 64 * i;
		look_at(r, 0);
		assert_int_equal(ring_poll(r, &b, 1), 0);
		assert_int_equal(lines, i);
	}
	params.rx_prefetch_bytes_before_poll = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(frames_that_have_come_as_far_as_set, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_next_buffer_when_a_poll_finds_nothing, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
