/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The device's time stamps: what is made of them (VMA_HW_TS_CONVERSION), and which frames have one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <time.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/hw_clock.h"
#include "ring/mlx5/mlx5.h"
#include "runtime/libc.h"
#include "config/params.h"

#define KHZ 156250u /* 6.4 ns each */
#define SECOND 1000000000ull

/* A device that is nothing but its clocks. */
static uint64_t counter, step;
static int read_err, ptp_err;
static struct mlx5dv_clock_info ptp;
static struct mlx5_objects device;

static int clock_read(struct mlx5_objects *o, uint64_t *cycles)
{
	(void)o;
	*cycles = counter;
	counter += step;
	return read_err;
}

static int clock_ptp(struct mlx5_objects *o, struct mlx5dv_clock_info *info)
{
	(void)o;
	if (!ptp_err)
		*info = ptp;
	return ptp_err;
}

static const struct mlx5_object_ops ops = {.clock_read = clock_read, .clock_ptp = clock_ptp};

static int setup_clock(void **state)
{
	(void)state;
	counter = 1000000;
	step = 0;
	read_err = ptp_err = 0;
	ptp = (struct mlx5dv_clock_info){.nsec = 77 * SECOND,
					 .last_cycles = 1000000,
					 .mult = 2,
					 .shift = 0,
					 .mask = UINT64_MAX};
	device = (struct mlx5_objects){.ops = &ops, .clock_khz = KHZ};
	return 0;
}

static uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static enum clock_kind kind(int conversion)
{
	struct mlx5_clock c;

	clock_init(&c, &device, conversion);
	return c.kind;
}

/* The manual's words for the five. */
static void a_conversion_is_what_the_device_can(void **state)
{
	(void)state;
	assert_int_equal(kind(0), CLOCK_NONE);
	assert_int_equal(kind(1), CLOCK_RAW);
	assert_int_equal(kind(2), CLOCK_SYSTEM);
	assert_int_equal(kind(3), CLOCK_SYSTEM);
	assert_int_equal(kind(4), CLOCK_PTP);
	ptp_err = -EOPNOTSUPP;
	assert_int_equal(kind(4), CLOCK_SYSTEM);
	read_err = -EOPNOTSUPP; /* its frequency is known, but it cannot be read */
	assert_int_equal(kind(1), CLOCK_RAW);
	assert_int_equal(kind(2), CLOCK_RAW);
	assert_int_equal(kind(3), CLOCK_NONE);
	assert_int_equal(kind(4), CLOCK_NONE);
	device.clock_khz = 0;
	for (int i = 0; i <= 4; i++)
		assert_int_equal(kind(i), CLOCK_NONE);
}

static void raw_time_is_cycles_in_nanoseconds(void **state)
{
	struct mlx5_clock c;

	(void)state;
	clock_init(&c, &device, 1);
	clock_run(&c, &device);
	assert_int_equal(clock_ns(&c, 0), 0);
	assert_int_equal(clock_ns(&c, 5), 32);
	assert_int_equal(clock_ns(&c, (uint64_t)KHZ * 1000), SECOND);
	/* A year, exactly. */
	assert_int_equal(clock_ns(&c, (uint64_t)KHZ * 1000 * 31536000 + 5), 31536000 * SECOND + 32);
}

static void system_time_is_counted_from_when_both_were_seen(void **state)
{
	uint64_t before, after, now;
	struct mlx5_clock c;

	(void)state;
	clock_init(&c, &device, 3);
	before = real_ns();
	clock_run(&c, &device);
	after = real_ns();
	now = clock_ns(&c, 1000000);
	assert_in_range(now, before, after);
	/* Ahead and behind. */
	assert_int_equal(clock_ns(&c, 1000000 + 5 * 1000), now + 32 * 1000);
	assert_int_equal(clock_ns(&c, 1000000 - 5 * 1000), now - 32 * 1000);
}

static void the_counter_wraps_at_its_mask(void **state)
{
	struct mlx5_clock c;
	uint64_t now;

	(void)state;
	device.clock_mask = 0xffffffffffff;
	counter = 0xfffffffffffe;
	clock_init(&c, &device, 3);
	clock_run(&c, &device);
	now = clock_ns(&c, 0xfffffffffffe);
	assert_int_equal(clock_ns(&c, 8), now + 64);
	assert_int_equal(clock_ns(&c, 0xfffffffffff9), now - 32);
}

/*
 * How fast the device's clock really goes is what lies between two looks; a step of the system's
 * clock is not.
 */
static void the_rate_is_measured(void **state)
{
	struct mlx5_clock c;
	uint64_t nominal;

	(void)state;
	clock_init(&c, &device, 3);
	clock_run(&c, &device);
	nominal = c.rate;
	assert_int_equal(nominal, (1000000ull << 32) / KHZ);
	/*
	 * Ten thousand seconds ago, by the system's clock, so that what passes meanwhile on a busy
	 * machine is nothing; 100 ppm fewer cycles than that.
	 */
	c.ns -= 10000 * SECOND;
	counter = c.cycles + 10000ull * KHZ * 1000 / 10000 * 9999;
	for (unsigned i = 0; i < 20; i++)
		clock_upkeep(&c, &device);
	assert_in_range(c.rate, nominal + nominal / 10000 - nominal / 100000,
			nominal + nominal / 10000 + nominal / 100000);
	/* Somebody sets the system's clock by an hour. */
	c.ns -= 3600 * SECOND;
	counter = c.cycles + KHZ * 1000;
	for (unsigned i = 0; i < 20; i++)
		clock_upkeep(&c, &device);
	assert_int_equal(c.rate, nominal);
	assert_int_equal(c.cycles, counter);
}

static void ptp_time_follows_the_devices_clock(void **state)
{
	struct mlx5_clock c;

	(void)state;
	clock_init(&c, &device, 4);
	clock_run(&c, &device);
	assert_int_equal(clock_ns(&c, 1000000), 77 * SECOND);
	assert_int_equal(clock_ns(&c, 1000010), 77 * SECOND + 20);
	assert_int_equal(clock_ns(&c, 999990), 77 * SECOND - 20);
	/* Set anew; the next look sees it, and one that cannot be had changes nothing. */
	ptp.nsec = 99 * SECOND;
	for (unsigned i = 0; i < 20; i++)
		clock_upkeep(&c, &device);
	assert_int_equal(clock_ns(&c, 1000000), 99 * SECOND);
	ptp_err = -EBUSY;
	for (unsigned i = 0; i < 20; i++)
		clock_upkeep(&c, &device);
	assert_int_equal(clock_ns(&c, 1000000), 99 * SECOND);
}

static void real_time_stamps_are_taken_as_they_are(void **state)
{
	struct mlx5_clock c;

	(void)state;
	for (int i = 1; i <= 4; i++) {
		clock_init(&c, &device, i);
		clock_run(&c, &device);
		assert_int_equal(clock_ns(&c, 1700000000ull << 32 | 123456789),
				 1700000000 * SECOND + 123456789);
	}
}

/* --- the ring */

static int open_ring(void **state, int conversion)
{
	struct ring *r;

	libc_load();
	params.rx_wre = params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 204;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	params.cq_keep_qp_full = 1;
	params.hw_ts_conversion = conversion;
	soft_config = (struct soft_config){.cqe_size = 64,
					   .min_inline = 18,
					   .bf_size = 256,
					   .max_frame = 1514,
					   .clock_khz = KHZ,
					   .zip_max = 8};
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	*state = r;
	return 0;
}

static int setup_raw(void **state)
{
	return open_ring(state, 1);
}

static int setup_off(void **state)
{
	return open_ring(state, 0);
}

static int setup_system(void **state)
{
	return open_ring(state, 3);
}

static int setup_zip(void **state)
{
	params.cqe_compression = true;
	return open_ring(state, 1);
}

static int teardown(void **state)
{
	struct ring *r = *state;

	r->ops->close(r);
	params.hw_ts_conversion = 3;
	params.cqe_compression = false;
	return 0;
}

static void receive(uint64_t cycles)
{
	uint8_t frame[64] = {0};

	soft->cycles = cycles;
	assert_true(soft_receive(soft, frame, sizeof(frame)));
}

static void frames_have_the_time_of_their_completion(void **state)
{
	struct ring *r = *state;
	struct buf *b[8];

	assert_true(r->caps.rx_stamp);
	for (unsigned i = 1; i <= 40; i++) {
		receive(5 * i);
		receive(5 * i + 1000);
		assert_int_equal(r->ops->poll_stamped(r, b, 8), 2);
		assert_true(b[0]->flags & b[1]->flags & BUF_HW_TIME);
		assert_int_equal(b[0]->hw_ns, 32 * i);
		assert_int_equal(b[1]->hw_ns, 32 * i + 6400);
		buf_free(b[0]);
		buf_free(b[1]);
		/* Nobody wants one now. */
		receive(7);
		assert_int_equal(ring_poll(r, b, i & 1 ? 8 : 1), 1);
		assert_false(b[0]->flags & BUF_HW_TIME);
		buf_free(b[0]);
	}
}

/* Users hold so many chunks that frames move to the heap: with their stamps. */
static void a_frame_that_moves_keeps_its_time(void **state)
{
	struct ring *r = *state;
	struct buf *b[80];

	for (unsigned i = 0; i < 80; i++) {
		receive(5 * (i + 1));
		assert_int_equal(r->ops->poll_stamped(r, &b[i], 1), 1);
		assert_true(b[i]->flags & BUF_HW_TIME);
		assert_int_equal(b[i]->hw_ns, 32 * (i + 1));
	}
	for (unsigned i = 0; i < 80; i++)
		buf_free(b[i]);
}

/* A mini completion carries none; what its place says is of the lap before. */
static void a_compressed_session_has_no_times(void **state)
{
	struct ring *r = *state;
	struct buf *b[64];

	/* Even so: who makes the queues anew has not heard. */
	assert_int_equal(r->ops->poll_stamped(r, b, 1), 0);
	soft->rq.zip_max = 8;
	for (unsigned lap = 0; lap < 5; lap++) {
		for (unsigned i = 0; i < 16; i++)
			receive(50000 + i);
		mdev_rq_flush(&soft->rq);
		assert_int_equal(r->ops->poll_stamped(r, b, 64), 16);
		for (unsigned i = 0; i < 16; i++) {
			assert_false(b[i]->flags & BUF_HW_TIME);
			buf_free(b[i]);
		}
	}
}

/*
 * Who wants times gets queues without compression: once, and all that comes from then on has its
 * own.
 */
static void times_end_the_compression(void **state)
{
	struct ring *r = *state;
	struct buf *b[8];
	uint32_t sessions = 0;

	soft->rq.sessions = &sessions;
	for (unsigned i = 0; i < 8; i++)
		receive(5);
	assert_int_equal(sessions, 1);
	assert_int_equal(ring_poll(r, b, 8), 8);
	for (unsigned i = 0; i < 8; i++)
		buf_free(b[i]);
	assert_int_equal(soft->renewals, 0);
	for (unsigned lap = 0; lap < 10; lap++) {
		assert_int_equal(r->ops->poll_stamped(r, b, 8), 0);
		assert_int_equal(soft->renewals, 1);
		for (unsigned i = 0; i < 8; i++)
			receive(5 * (i + 1));
		assert_int_equal(r->ops->poll_stamped(r, b, 8), 8);
		for (unsigned i = 0; i < 8; i++) {
			assert_true(b[i]->flags & BUF_HW_TIME);
			assert_int_equal(b[i]->hw_ns, 32 * (i + 1));
			buf_free(b[i]);
		}
	}
}

static void a_clock_that_nobody_wants_is_not_read(void **state)
{
	struct ring *r = *state;
	unsigned reads = soft->clock_reads;
	struct buf *b;

	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->clock_reads, reads);
	assert_int_equal(r->ops->poll_stamped(r, &b, 1), 0);
	assert_true(soft->clock_reads > reads);
	reads = soft->clock_reads;
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->clock_reads, reads + 30);
}

static void without_a_conversion_there_is_none(void **state)
{
	struct ring *r = *state;

	assert_false(r->caps.rx_stamp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_conversion_is_what_the_device_can, setup_clock),
		cmocka_unit_test_setup(raw_time_is_cycles_in_nanoseconds, setup_clock),
		cmocka_unit_test_setup(system_time_is_counted_from_when_both_were_seen,
				       setup_clock),
		cmocka_unit_test_setup(the_counter_wraps_at_its_mask, setup_clock),
		cmocka_unit_test_setup(the_rate_is_measured, setup_clock),
		cmocka_unit_test_setup(ptp_time_follows_the_devices_clock, setup_clock),
		cmocka_unit_test_setup(real_time_stamps_are_taken_as_they_are, setup_clock),
		cmocka_unit_test_setup_teardown(frames_have_the_time_of_their_completion, setup_raw,
						teardown),
		cmocka_unit_test_setup_teardown(a_frame_that_moves_keeps_its_time, setup_raw,
						teardown),
		cmocka_unit_test_setup_teardown(a_compressed_session_has_no_times, setup_zip,
						teardown),
		cmocka_unit_test_setup_teardown(times_end_the_compression, setup_zip, teardown),
		cmocka_unit_test_setup_teardown(a_clock_that_nobody_wants_is_not_read, setup_system,
						teardown),
		cmocka_unit_test_setup_teardown(without_a_conversion_there_is_none, setup_off,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
