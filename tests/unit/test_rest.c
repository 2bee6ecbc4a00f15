/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/stack/rest.c: when the internal thread's ticks stand still, and what has them go on. The ring
 * is what a test says; a tick counts. What is asked of the rest runs on the internal thread, as in
 * the library.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "runtime/runtime.h"
#include "stack/internal.h"

static struct {
	struct stack st;
	struct ring ring;
	struct ring_counters counters;
	int frames, news; /* eventfds */
	bool waiting; /* frames, when it is armed */
	bool pending, busy;
	bool blocked; /* TCP */
	bool wanted; /* beside the stacks */
	unsigned polls, hints;
} one;
static _Atomic unsigned ticks, slow_ticks;

static unsigned ring_polls(struct ring *r, struct buf **pkts, unsigned max)
{
	(void)r;
	(void)pkts;
	(void)max;
	one.polls++;
	return 0;
}

static bool ring_pending(const struct ring *r)
{
	(void)r;
	return one.pending;
}

static bool ring_arm(struct ring *r)
{
	(void)r;
	return one.waiting;
}

static unsigned ring_fds(struct ring *r, int *fds, unsigned max)
{
	(void)r;
	assert_true(max > 0);
	fds[0] = one.frames;
	return 1;
}

static bool ring_rests(const struct ring *r, int *news_fd)
{
	(void)r;
	*news_fd = one.news;
	return !one.busy;
}

static const struct ring_ops ops = {
	.poll = ring_polls,
	.pending = ring_pending,
	.arm = ring_arm,
	.wait_fds = ring_fds,
	.rests = ring_rests,
};

static bool timed_rests(struct stack *st)
{
	(void)st;
	return !one.blocked;
}

static bool timed_may_rest(void)
{
	return !one.wanted;
}

static void timed_hint(void)
{
	one.hints++;
}

static const struct stack_timed_ops timed = {
	.rests = timed_rests,
	.may_rest = timed_may_rest,
	.sleep_hint = timed_hint,
};

static void tick(void *arg)
{
	atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

static int setup(void **state)
{
	(void)state;
	libc_load();
	stack_register_tcp(stack_tcp_ops, &timed);
	params.cq_poll_batch_max = 16;
	one.frames = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	one.news = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	one.ring.ops = &ops;
	one.ring.counters = &one.counters;
	lock_class(&one.st.lock, "stack.lock");
	one.st.ring = &one.ring;
	atomic_store(&one.st.open, true);
	stacks[0] = &one.st;
	num_stacks = 1;
	assert_int_equal(worker_start(NULL, 1), 0);
	assert_int_equal(stacks_rest_start(), 0);
	assert_int_equal(stack_tick_add(3, tick, &slow_ticks), 0);
	assert_int_equal(stack_tick_add(1, tick, &ticks), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	worker_stop();
	return 0;
}

static void end(void *arg)
{
	(void)arg;
	stacks_rest_end();
}

static int begin_test(void **state)
{
	uint64_t n;

	(void)state;
	assert_int_equal(worker_run(end, NULL), 0);
	(void)!read(one.frames, &n, sizeof(n));
	(void)!read(one.news, &n, sizeof(n));
	one.waiting = one.pending = one.busy = one.blocked = one.wanted = false;
	one.polls = one.hints = 0;
	return 0;
}

static void look(void *arg)
{
	(void)arg;
	stacks_rest_look();
}

static void second_look(void *arg)
{
	*(bool *)arg = stacks_rest_on();
}

static bool rests_on(void)
{
	bool on;

	assert_int_equal(worker_run(second_look, &on), 0);
	return on;
}

/* One look more than it takes. */
static bool comes_to_rest(void)
{
	for (int i = 0; i <= STACK_REST_AFTER_MS / STACK_REST_LOOK_MS; i++)
		assert_int_equal(worker_run(look, NULL), 0);
	return atomic_load(&stacks_resting);
}

static void goes_on(_Atomic unsigned *count)
{
	unsigned before = atomic_load(count);

	for (int i = 0; i < 100000 && atomic_load(count) == before; i++)
		usleep(100);
	assert_int_not_equal(atomic_load(count), before);
}

static void ticks_go_on(void)
{
	goes_on(&ticks);
	goes_on(&slow_ticks);
	assert_false(atomic_load(&stacks_resting));
	assert_false(rests_on());
}

static void make_readable(int fd)
{
	uint64_t n = 1;

	assert_int_equal(write(fd, &n, sizeof(n)), sizeof(n));
}

static void without_traffic_the_ticks_stand_still(void **state)
{
	unsigned before;

	(void)state;
	assert_true(comes_to_rest());
	assert_true(one.hints > 0);
	assert_true(rests_on()); /* after what had gone off by then */
	before = atomic_load(&ticks) + atomic_load(&slow_ticks);
	usleep(30000);
	assert_int_equal(atomic_load(&ticks) + atomic_load(&slow_ticks), before);
	assert_true(rests_on());
}

static void with_traffic_they_do_not(void **state)
{
	(void)state;
	for (int i = 0; i < 30; i++) {
		one.counters.rx_packets += i % 2;
		one.counters.tx_packets += 1 - i % 2;
		assert_int_equal(worker_run(look, NULL), 0);
		assert_false(atomic_load(&stacks_resting));
	}
}

static void a_frame_has_them_go_on(void **state)
{
	(void)state;
	assert_true(comes_to_rest());
	make_readable(one.frames);
	ticks_go_on();
	/* The frame is the reader's, or a tick's: it is not taken off at once. */
	assert_int_equal(one.polls, 0);
}

/* It came between the last look and the watch. */
static void a_frame_of_before_has_them_go_on(void **state)
{
	(void)state;
	make_readable(one.frames);
	(void)comes_to_rest();
	ticks_go_on();
}

static void news_of_the_device_have_them_go_on(void **state)
{
	(void)state;
	assert_true(comes_to_rest());
	make_readable(one.news);
	ticks_go_on();
}

static void who_uses_a_stack_has_them_go_on(void **state)
{
	(void)state;
	assert_true(comes_to_rest());
	stacks_used();
	ticks_go_on();
	/* And again. */
	assert_true(comes_to_rest());
	stacks_used();
	ticks_go_on();
}

static void what_was_overlooked_has_them_go_on(void **state)
{
	(void)state;
	assert_true(comes_to_rest());
	one.counters.tx_packets++;
	assert_false(rests_on());
	ticks_go_on();
	assert_true(comes_to_rest());
	one.busy = true;
	assert_false(rests_on());
	ticks_go_on();
	one.busy = false;
	assert_true(comes_to_rest());
	one.pending = true;
	assert_false(rests_on());
	ticks_go_on();
}

static void who_needs_ticks_keeps_them(void **state)
{
	bool *const why[] = {&one.pending, &one.busy, &one.blocked, &one.wanted};

	(void)state;
	for (unsigned i = 0; i < sizeof(why) / sizeof(why[0]); i++) {
		*why[i] = true;
		assert_false(comes_to_rest());
		ticks_go_on();
		*why[i] = false;
		assert_true(comes_to_rest());
		assert_int_equal(worker_run(end, NULL), 0);
	}
}

/* By VMA_PROGRESS_ENGINE_INTERVAL perhaps by nobody but who reads. */
static void frames_that_wait_are_left_where_they_are(void **state)
{
	(void)state;
	one.pending = one.waiting = true;
	assert_false(comes_to_rest());
	assert_int_equal(one.polls, 0);
}

/* To arm the ring may have taken the event from a thread that sleeps on it. */
static void frames_that_came_just_now_are_handed_out(void **state)
{
	(void)state;
	one.waiting = true;
	assert_false(comes_to_rest());
	assert_true(one.polls > 0);
	ticks_go_on();
}

static void a_stack_that_has_shut_is_left_out(void **state)
{
	(void)state;
	atomic_store(&one.st.open, false);
	one.busy = true;
	assert_true(comes_to_rest());
	assert_true(rests_on());
	atomic_store(&one.st.open, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_traffic_the_ticks_stand_still, begin_test),
		cmocka_unit_test_setup(with_traffic_they_do_not, begin_test),
		cmocka_unit_test_setup(a_frame_has_them_go_on, begin_test),
		cmocka_unit_test_setup(a_frame_of_before_has_them_go_on, begin_test),
		cmocka_unit_test_setup(news_of_the_device_have_them_go_on, begin_test),
		cmocka_unit_test_setup(who_uses_a_stack_has_them_go_on, begin_test),
		cmocka_unit_test_setup(what_was_overlooked_has_them_go_on, begin_test),
		cmocka_unit_test_setup(who_needs_ticks_keeps_them, begin_test),
		cmocka_unit_test_setup(frames_that_wait_are_left_where_they_are, begin_test),
		cmocka_unit_test_setup(frames_that_came_just_now_are_handed_out, begin_test),
		cmocka_unit_test_setup(a_stack_that_has_shut_is_left_out, begin_test),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
