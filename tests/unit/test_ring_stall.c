/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Going to sleep with frames that the device has not taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ring_fake.h"

/* What transmits: a socket pair, which takes nothing once its queue is full. */
static int device[2];

static int setup(void **state)
{
	struct fake *f;

	fake_setup(state, UMEM_RX_CHUNKS);
	f = *state;
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, device))
		return -1;
	while (send(device[0], "", 0, MSG_DONTWAIT) == 0)
		;
	f->s->fd = device[0];
	return errno != EAGAIN;
}

static int teardown(void **state)
{
	close(device[0]);
	close(device[1]);
	return fake_teardown(state);
}

static void post(struct fake *f)
{
	struct buf *b = xdp_tx_alloc(&f->x->ring, 60);

	assert_non_null(b);
	b->len = b->total = 60;
	assert_int_equal(xdp_post(&f->x->ring, b), 0);
}

/* The device has sent a frame that it had. */
static void sent(struct fake *f)
{
	f->index[6]++;
}

static void test_nobody_waits_awake_for_a_device_that_stands_still(void **state)
{
	struct fake *f = *state;

	post(f);
	assert_false(xdp_arm(&f->x->ring));
	assert_true(f->x->stalled);
	assert_false(xdp_arm(&f->x->ring));
}

static void test_nobody_sleeps_while_the_device_sends(void **state)
{
	struct fake *f = *state;

	post(f);
	assert_false(xdp_arm(&f->x->ring));
	for (unsigned i = 0; i < 3; i++) {
		sent(f);
		assert_true(xdp_arm(&f->x->ring));
	}
	assert_false(xdp_arm(&f->x->ring));
}

static void test_what_has_left_is_not_waited_for(void **state)
{
	struct fake *f = *state;
	char byte;

	post(f);
	assert_false(xdp_arm(&f->x->ring));
	while (recv(device[1], &byte, 1, MSG_DONTWAIT) == 0)
		;
	f->index[5] = f->index[4];
	sent(f);
	assert_false(xdp_arm(&f->x->ring));
	assert_false(f->x->stalled);
}

/*
 * Any other error has TCP count the segment as sent, and UDP send it by the kernel, ahead of the
 * posted ones.
 */
static void test_a_large_frame_behind_unsent_ones_is_to_be_tried_again(void **state)
{
	uint8_t frame[42 + 3000] = {0};
	struct iovec v = {frame, sizeof(frame)};
	const struct ring_gso g = {.hdr_len = 42, .gso_size = 1000};
	struct fake *f = *state;

	f->x->ring.caps.max_gso = 65535;
	f->x->gso_fd = device[1];
	post(f);
	/* Another thread has taken the kick over, and is not through yet. */
	f->x->unsent = 0;
	assert_int_equal(xdp_send_gso(&f->x->ring, &v, 1, &g), -EAGAIN);
	assert_int_equal(f->x->counters.tx_gso_frames, 0);
	f->index[5] = f->index[4];
	assert_int_equal(xdp_send_gso(&f->x->ring, &v, 1, &g), 0);
	assert_int_equal(f->x->counters.tx_gso_frames, 1);
	/* One that does not get better soon is an error: nobody shall wait awake for it. */
	post(f);
	f->s->fd = -1;
	assert_int_equal(xdp_send_gso(&f->x->ring, &v, 1, &g), -EBADF);
}

/* Its transmit ring's index says what has left only then. */
static void test_what_a_dead_process_posted_is_sent_first(void **state)
{
	char byte;

	(void)state;
	assert_false(xsk_flush_other(device[0]));
	assert_false(xsk_flush_other(-1));
	assert_int_equal(recv(device[1], &byte, 1, MSG_DONTWAIT), 0);
	assert_true(xsk_flush_other(device[0]));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nobody_waits_awake_for_a_device_that_stands_still),
		TEST(nobody_sleeps_while_the_device_sends),
		TEST(what_has_left_is_not_waited_for),
		TEST(a_large_frame_behind_unsent_ones_is_to_be_tried_again),
		TEST(what_a_dead_process_posted_is_sent_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
