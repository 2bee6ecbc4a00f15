/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The timer wheel: never early, never lost, and as fast with a million timers as with one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/wheel.h"
#include "tcp_test_env.h"

static struct wheel w;

static void an_empty_wheel_has_nothing_to_say(void **state)
{
	(void)state;
	wheel_init(&w, 5);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
	assert_null(wheel_expire(&w, 1000000));
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

/* Distances on each level, at and around its borders. */
static void a_timer_fires_at_its_microsecond_and_not_one_before(void **state)
{
	static const uint64_t starts[] = {0,
					  1,
					  63,
					  64,
					  4095,
					  1000000007,
					  (UINT64_C(1) << 36) - 1,
					  UINT64_C(1) << 36,
					  UINT64_C(0x123456789abcde)};

	(void)state;
	for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
		for (unsigned bit = 0; bit < 42; bit++) {
			for (int off = -1; off <= 1; off++) {
				uint64_t when =
					starts[s] + (UINT64_C(1) << bit) + (uint64_t)(int64_t)off;
				struct wheel_timer t = {0};

				wheel_init(&w, starts[s]);
				wheel_arm(&w, &t, when);
				assert_true(wheel_armed(&t));
				assert_true(wheel_next(&w) <= when);
				if (when > starts[s])
					assert_null(wheel_expire(&w, when - 1));
				assert_ptr_equal(wheel_expire(&w, when), &t);
				assert_false(wheel_armed(&t));
				assert_null(wheel_expire(&w, when));
				assert_true(wheel_next(&w) == WHEEL_NEVER);
				assert_int_equal(w.armed, 0);
			}
		}
	}
}

/* Who sleeps until wheel_next() and runs then meets the deadline after few wake-ups. */
static void sleeping_until_next_leads_to_the_deadline(void **state)
{
	uint64_t now = 999983;

	(void)state;
	for (unsigned bit = 0; bit < 36; bit++) {
		struct wheel_timer t = {0};
		uint64_t when = now + (UINT64_C(1) << bit) + 12345 % (UINT64_C(1) << bit);
		struct wheel_timer *got;
		unsigned wakes = 0;

		wheel_init(&w, now);
		wheel_arm(&w, &t, when);
		do {
			uint64_t next = wheel_next(&w);

			assert_true(next <= when);
			got = wheel_expire(&w, next);
			assert_true(!got || next == when);
			assert_in_range(++wakes, 1, WHEEL_LEVELS + 1);
		} while (!got);
	}
}

static void a_deadline_in_the_past_fires_at_the_next_run(void **state)
{
	struct wheel_timer t = {0};

	(void)state;
	wheel_init(&w, 1000);
	wheel_arm(&w, &t, 10);
	assert_true(wheel_next(&w) <= 1000);
	assert_ptr_equal(wheel_expire(&w, 1000), &t);
}

static void a_timer_armed_by_a_handler_for_now_comes_out_in_the_same_loop(void **state)
{
	struct wheel_timer a = {0}, b = {0}, c = {0};

	(void)state;
	wheel_init(&w, 0);
	wheel_arm(&w, &a, 100);
	wheel_arm(&w, &c, 100000);
	assert_ptr_equal(wheel_expire(&w, 5000), &a);
	wheel_arm(&w, &b, 5000);
	wheel_arm(&w, &a, 5001);
	assert_ptr_equal(wheel_expire(&w, 5000), &b);
	assert_null(wheel_expire(&w, 5000));
	assert_ptr_equal(wheel_expire(&w, 5001), &a);
	wheel_cancel(&w, &c);
	assert_true(wheel_next(&w) == WHEEL_NEVER);
}

static void a_handler_may_cancel_a_timer_that_is_due_too(void **state)
{
	struct wheel_timer t[3] = {0};
	struct wheel_timer *first;

	(void)state;
	wheel_init(&w, 0);
	for (int i = 0; i < 3; i++)
		wheel_arm(&w, &t[i], 77);
	first = wheel_expire(&w, 77);
	assert_non_null(first);
	for (int i = 0; i < 3; i++)
		wheel_cancel(&w, &t[i]);
	assert_null(wheel_expire(&w, 77));
	assert_int_equal(w.armed, 0);
}

static void cancelling_twice_does_nothing(void **state)
{
	struct wheel_timer t = {0};

	(void)state;
	wheel_init(&w, 0);
	wheel_cancel(&w, &t);
	wheel_arm(&w, &t, 9);
	wheel_cancel(&w, &t);
	wheel_cancel(&w, &t);
	assert_int_equal(w.armed, 0);
	assert_null(wheel_expire(&w, 100));
}

static void never_is_beyond_all_time(void **state)
{
	struct wheel_timer t = {0};
	uint64_t now = 0;

	(void)state;
	wheel_init(&w, 0);
	wheel_arm(&w, &t, WHEEL_NEVER - 1);
	for (int i = 0; i < 40; i++) {
		now += UINT64_C(1) << 37;
		assert_null(wheel_expire(&w, now));
		assert_true(wheel_armed(&t));
	}
}

/* The model: an array of deadlines, looked through whole. */
#define MODEL 300

struct modelled {
	struct wheel_timer t; /* first */
	bool armed;
};

static uint64_t random_when(uint64_t *seed, uint64_t now)
{
	unsigned bits = test_random(seed) % 40;
	uint64_t far = ((uint64_t)test_random(seed) << 32 | test_random(seed)) &
		       ((UINT64_C(1) << bits) - 1);

	return test_random(seed) % 50 ? now + far : now - far % (now + 1);
}

static void run_model(struct modelled *m, uint64_t now, uint64_t *seed)
{
	struct wheel_timer *t;

	while ((t = wheel_expire(&w, now))) {
		struct modelled *x = (struct modelled *)t;

		assert_true(x->armed);
		assert_true(t->when_us <= now);
		assert_false(wheel_armed(t));
		x->armed = false;
		if (test_random(seed) % 4 == 0) {
			struct modelled *y = &m[test_random(seed) % MODEL];

			wheel_cancel(&w, &y->t);
			y->armed = false;
		}
	}
	for (int i = 0; i < MODEL; i++)
		assert_true(!m[i].armed || m[i].t.when_us > now);
}

static void it_agrees_with_a_plain_array_under_random_use(void **state)
{
	static struct modelled m[MODEL];

	(void)state;
	for (uint64_t round = 1; round <= 30; round++) {
		uint64_t seed = round * 7919,
			 now = round % 3 ? test_random(&seed) : (UINT64_C(1) << 36) - 5000;

		print_message("round %d\n", (int)round);
		memset(m, 0, sizeof(m));
		wheel_init(&w, now);
		for (int step = 0; step < 20000; step++) {
			struct modelled *x = &m[test_random(&seed) % MODEL];
			uint32_t what = test_random(&seed) % 10;

			if (what < 6) {
				wheel_arm(&w, &x->t, random_when(&seed, now));
				x->armed = true;
			} else if (what < 8) {
				wheel_cancel(&w, &x->t);
				x->armed = false;
			} else {
				uint64_t first = WHEEL_NEVER;
				unsigned armed = 0;

				for (int i = 0; i < MODEL; i++) {
					armed += m[i].armed;
					if (m[i].armed && m[i].t.when_us < first)
						first = m[i].t.when_us;
				}
				assert_int_equal(w.armed, armed);
				if (first <= now)
					assert_true(wheel_next(&w) <= now);
				else
					assert_true(wheel_next(&w) <= first &&
						    (!armed || wheel_next(&w) != WHEEL_NEVER));
				now += test_random(&seed) % 3 ? test_random(&seed) % 300
							      : random_when(&seed, 0);
				run_model(m, now, &seed);
			}
		}
	}
}

/* Not timed: two million timers over an hour end at all only because no step looks through them. */
static void two_million_timers_each_fire_once_and_in_order(void **state)
{
	const unsigned count = 2000000;
	struct wheel_timer *t = calloc(count, sizeof(*t)), *got;
	uint64_t seed = 42, now = 12345, last = 0;
	unsigned fired = 0;

	(void)state;
	assert_non_null(t);
	wheel_init(&w, now);
	for (unsigned i = 0; i < count; i++)
		wheel_arm(&w, &t[i], now + test_random(&seed) % UINT64_C(3600000000));
	for (unsigned i = 0; i < count; i += 2)
		wheel_arm(&w, &t[i], now + test_random(&seed) % UINT64_C(3600000000));
	for (unsigned i = 0; i < count; i += 5)
		wheel_cancel(&w, &t[i]);
	assert_int_equal(w.armed, count - count / 5);
	for (; now < UINT64_C(3700000000); now += 100000) {
		while ((got = wheel_expire(&w, now))) {
			assert_true(got->when_us >= last && got->when_us <= now);
			last = got->when_us;
			fired++;
		}
	}
	assert_int_equal(fired, count - count / 5);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_wheel_has_nothing_to_say),
		cmocka_unit_test(a_timer_fires_at_its_microsecond_and_not_one_before),
		cmocka_unit_test(sleeping_until_next_leads_to_the_deadline),
		cmocka_unit_test(a_deadline_in_the_past_fires_at_the_next_run),
		cmocka_unit_test(a_timer_armed_by_a_handler_for_now_comes_out_in_the_same_loop),
		cmocka_unit_test(a_handler_may_cancel_a_timer_that_is_due_too),
		cmocka_unit_test(cancelling_twice_does_nothing),
		cmocka_unit_test(never_is_beyond_all_time),
		cmocka_unit_test(it_agrees_with_a_plain_array_under_random_use),
		cmocka_unit_test(two_million_timers_each_fire_once_and_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
