/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/stack/round.c: sends of one round leave together, and none stays behind. The ring counts its
 * kicks. A thread's clock is stopped where a test is not about time: it may be off its processor
 * for as long as it likes.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "round_env.h"

#define LONG_NS 3600000000000ull
#define HALF_AN_HOUR_US 1800000000

struct one {
	struct stack st;
	struct ring ring;
	_Atomic unsigned kicks;
	_Atomic unsigned said, said_before_kick; /* how often; kicks then */
};

static struct one a, b;
static sem_t kicked;

static int count_kick(struct ring *r)
{
	struct one *o = (struct one *)((char *)r - offsetof(struct one, ring));

	o->kicks++;
	sem_post(&kicked);
	return 0;
}

static const struct ring_ops ops = {.kick = count_kick};

static void count_say(struct stack *st)
{
	struct one *o = (struct one *)((char *)st - offsetof(struct one, st));

	o->said++;
	o->said_before_kick = o->kicks;
}

static const struct stack_timed_ops timed_ops = {.say = count_say};

static int setup(void **state)
{
	(void)state;
	sem_init(&kicked, 0, 0);
	return rounds_begin(&timed_ops);
}

static void reset(struct one *o)
{
	o->ring.ops = &ops;
	o->st.ring = &o->ring;
	lock_class(&o->st.lock, "stack.lock");
	/* The internal thread may be about to end its look at it. */
	atomic_store(&o->st.open, true);
	atomic_store(&o->st.unkicked_since_ns, 0);
	atomic_store(&o->st.has_rounds, false);
	atomic_store(&o->st.has_unsaid, false);
	atomic_store(&o->kicks, 0);
	atomic_store(&o->said, 0);
}

/* Nothing is left of the test before; the internal thread sees no stack. */
static int begin_test(void **state)
{
	(void)state;
	num_stacks = 0;
	stack_round = (struct stack_round){0};
	reset(&a);
	reset(&b);
	return 0;
}

static void posted_ago(int32_t us)
{
	stack_round.since_us = (uint32_t)(clock_monotonic_ns() / 1000) - (uint32_t)us;
}

static void sent(struct one *o)
{
	stack_round_sent(&o->st, &o->ring);
	posted_ago(-HALF_AN_HOUR_US); /* not late, however slow we are */
}

/* As TCP's calls do, under the lock, before the round learns of it. */
static void left_unsaid(struct one *o)
{
	atomic_store(&o->st.has_unsaid, true);
	stack_round_also(&o->st);
	posted_ago(-HALF_AN_HOUR_US);
}

static void a_few_events_make_no_round(void **state)
{
	(void)state;
	for (unsigned events = 0; events < STACK_ROUND_LEAST; events++) {
		stack_round_begin(events);
		sent(&a);
		assert_int_equal(a.kicks, events + 1);
		stack_round_end();
		assert_int_equal(a.kicks, events + 1);
	}
}

static const char sockets[2][64]; /* as different as two objects of the heap */

/* An answer in so many parts, the first at now_us, each gap_us after the one before. */
static void answers(unsigned parts, unsigned gap_us, uint64_t now_us)
{
	for (unsigned i = 0; i < parts; i++)
		stack_round_says(sockets[0], now_us + (uint64_t)i * gap_us);
	stack_round_end();
}

static void have_habit(unsigned parts)
{
	for (unsigned i = 0; i < STACK_ROUND_HABIT_MOST + 1; i++)
		answers(parts, 1, i);
	assert_true(stack_round_in_parts());
}

/* A part of an answer on that socket, as TCP's calls have it. True: it was held. */
static bool part_is_held(struct one *o, int socket, bool first)
{
	bool holds;

	assert_int_equal(stack_round_says(sockets[socket], 1), !first);
	holds = stack_round_holds(&o->st);
	if (holds && !first)
		left_unsaid(o); /* the rest of an answer is not counted */
	else
		sent(o);
	return holds;
}

static void the_last_part_of_the_last_answer_takes_all_with_it(void **state)
{
	(void)state;
	have_habit(3);
	stack_round_begin(2);
	for (int i = 0; i < 3; i++)
		assert_true(part_is_held(&a, 0, !i));
	assert_true(part_is_held(&a, 1, true));
	assert_true(part_is_held(&a, 1, false));
	assert_int_equal(a.kicks, 0);
	assert_false(part_is_held(&a, 1, false));
	assert_int_equal(a.kicks, 1);
	/* What comes beyond it leaves at once. */
	assert_false(part_is_held(&a, 1, false));
	assert_int_equal(a.kicks, 2);
}

static void a_round_of_less_ends_with_the_wait(void **state)
{
	(void)state;
	have_habit(2);
	stack_round_begin(2);
	assert_true(part_is_held(&a, 0, true));
	assert_true(part_is_held(&a, 0, false));
	assert_int_equal(a.kicks, 0);
	stack_round_end();
	assert_int_equal(a.kicks, 1);
	/* Who waits for a lone answer has its first part at once. */
	stack_round_begin(1);
	assert_false(part_is_held(&a, 0, true));
	assert_int_equal(a.kicks, 2);
}

/*
 * What the packets that a wait takes in have to say, and then its events. True: that was held till
 * then, and no longer.
 */
static bool look_finds(unsigned events)
{
	bool left;

	stack_round_look_begin();
	if (stack_round_holds(&a.st)) {
		atomic_store(&a.st.has_unsaid, true);
		stack_round_mark(&a.st);
		posted_ago(-HALF_AN_HOUR_US);
	} else {
		ring_kick(&a.ring);
	}
	left = stack_round_look_end(events);
	if (events)
		stack_round_begin(events);
	return left;
}

static void what_a_wait_has_to_say_leaves_with_the_answers(void **state)
{
	(void)state;
	have_habit(2);
	stack_round.several = true;
	assert_false(look_finds(2));
	assert_int_equal(a.kicks, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(part_is_held(&a, i / 2, i % 2 == 0), i < 3);
	assert_int_equal(a.kicks, 1);
	assert_int_equal(a.said, 1);
}

static void where_it_finds_no_round_it_says_so_at_once(void **state)
{
	(void)state;
	look_finds(2);
	assert_int_equal(a.kicks, 1);
	have_habit(2);
	for (unsigned events = 0; events < 2; events++) {
		stack_round.several = true;
		assert_true(look_finds(events));
		assert_int_equal(a.kicks, 2 + events);
		assert_int_equal(a.said, 1 + events);
		assert_false(stack_round_holds(&a.st));
	}
	/* Nobody who finds one event at a time pays for rounds. */
	assert_false(look_finds(1));
	assert_int_equal(a.kicks, 4);
	assert_int_equal(a.said, 2);
}

/* Packets alone are no datagrams. */
static void a_round_without_answers_leaves_the_habit(void **state)
{
	(void)state;
	have_habit(2);
	for (int i = 0; i < 8; i++) {
		stack_round.several = true;
		look_finds(2);
		stack_round_end();
	}
	assert_int_equal(a.kicks, 8);
	assert_true(stack_round_in_parts());
}

static void the_habit_goes_faster_than_it_has_come(void **state)
{
	(void)state;
	for (unsigned i = 0; i < STACK_ROUND_HABIT + 1; i++) {
		assert_false(stack_round_in_parts());
		answers(2, STACK_ROUND_PART_US, i);
	}
	have_habit(2);
	assert_int_equal(stack_round.habit, STACK_ROUND_HABIT_MOST);
	answers(3, 1, 0);
	assert_true(stack_round_in_parts());
	answers(1, 1, 0);
	assert_false(stack_round_in_parts());
	/* A stream has no last part. */
	for (unsigned i = 0; i < 100; i++)
		answers(STACK_ROUND_PARTS_MOST + 1 + i % 2, 1, i);
	assert_false(stack_round_in_parts());
}

/* Its second part of three comes when the first one has waited for so long. True: both wait on. */
static bool waits_on(int32_t us)
{
	stack_round_begin(2);
	(void)part_is_held(&a, 0, true);
	stack_round_says(sockets[0], 1);
	posted_ago(us);
	stack_round_also(&a.st);
	return stack_round.st;
}

/* Whoever runs this may lose the processor: then it waits no more, but not each time. */
static void an_answer_is_not_cut_in_its_middle(void **state)
{
	bool waited = false;

	(void)state;
	for (int i = 0; i < 1000 && !waited; i++) {
		stack_round_end();
		have_habit(3);
		waited = waits_on(STACK_ROUND_US + 1);
	}
	assert_true(waited);
	stack_round_end();
	have_habit(3);
	assert_false(waits_on(1000));
}

static void datagrams_end_the_habit(void **state)
{
	(void)state;
	have_habit(2);
	for (int i = 0; i < 2; i++) {
		stack_round_begin(2);
		sent(&a);
		sent(&a);
		stack_round_end();
	}
	assert_false(stack_round_in_parts());
}

static void what_comes_later_is_no_part(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++)
		answers(2, STACK_ROUND_PART_US + 1, i * 1000);
	assert_false(stack_round_in_parts());
}

static void what_is_no_part(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * STACK_ROUND_HABIT; i++) {
		answers(3, STACK_ROUND_PART_US + 1, i * 1000);
		/* an answer for each of two sockets */
		stack_round_says(sockets[0], 1);
		stack_round_says(sockets[1], 1);
		stack_round_end();
		/* a wait in between */
		answers(1, 0, 7);
		answers(1, 0, 7);
		/* an end of what nothing was said on, or not now */
		stack_round_says_last(sockets[0], 7);
		stack_round_end();
		stack_round_says(sockets[0], 7);
		stack_round_says_last(sockets[1], 7);
		stack_round_says_last(sockets[0], 8 + STACK_ROUND_PART_US);
		stack_round_end();
	}
	assert_false(stack_round_in_parts());
}

static void an_end_is_a_part(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		stack_round_says(sockets[0], 1);
		stack_round_says_last(sockets[0], 1);
		stack_round_end();
	}
	assert_true(stack_round_in_parts());
}

static void the_last_answer_takes_all_with_it(void **state)
{
	(void)state;
	stack_round_begin(6);
	for (unsigned i = 0; i < 5; i++) {
		sent(&a);
		assert_int_equal(a.kicks, 0);
	}
	sent(&a);
	assert_int_equal(a.kicks, 1);
	assert_int_equal(a.st.unkicked_since_ns, 0);
	/* More answers than there were events: each for itself. */
	sent(&a);
	assert_int_equal(a.kicks, 2);
	stack_round_end();
	assert_int_equal(a.kicks, 2);
}

static void the_next_wait_takes_all_with_it(void **state)
{
	(void)state;
	stack_round_begin(10);
	sent(&a);
	sent(&a);
	assert_int_equal(a.kicks, 0);
	stack_round_end();
	assert_int_equal(a.kicks, 1);
	stack_round_end();
	sent(&a);
	assert_int_equal(a.kicks, 2);
}

static void a_long_round_leaves_in_parts(void **state)
{
	(void)state;
	stack_round_begin(1000);
	for (unsigned i = 1; i <= 3 * STACK_ROUND_FRAMES; i++) {
		sent(&a);
		assert_int_equal(a.kicks, i / STACK_ROUND_FRAMES);
	}
	stack_round_end();
	assert_int_equal(a.kicks, 3);
}

static void frames_of_another_stack_leave_first(void **state)
{
	(void)state;
	stack_round_begin(1000);
	sent(&a);
	sent(&b);
	assert_int_equal(a.kicks, 1);
	assert_int_equal(b.kicks, 0);
	sent(&a);
	assert_int_equal(b.kicks, 1);
	stack_round_flush();
	assert_int_equal(a.kicks, 2);
	assert_int_equal(b.kicks, 1);
	/* The round goes on. */
	sent(&b);
	assert_int_equal(b.kicks, 1);
}

/* Its mark is gone with the frames before; the next one stands for itself. */
static void another_threads_kick_leaves_no_frame_without_a_mark(void **state)
{
	(void)state;
	stack_round_begin(1000);
	sent(&a);
	assert_int_not_equal(a.st.unkicked_since_ns, 0);
	a.st.unkicked_since_ns = 0;
	sent(&a);
	assert_int_not_equal(a.st.unkicked_since_ns, 0);
	assert_int_equal(a.kicks, 0);
	stack_round_end();
	assert_int_equal(a.kicks, 1);
}

static void time_ends_a_round(void **state)
{
	(void)state;
	stack_round_begin(1000);
	sent(&a);
	stack_round_look();
	assert_int_equal(a.kicks, 0);
	posted_ago(STACK_ROUND_US + 1);
	stack_round_look();
	assert_int_equal(a.kicks, 1);
	sent(&a);
	posted_ago(STACK_ROUND_US + 1);
	sent(&a);
	assert_true(a.kicks >= 2);
}

/* A round of one answer, which is late; false: it left at once. */
static bool late_round(void)
{
	unsigned before = a.kicks;
	bool deferred;

	stack_round_begin(1000);
	sent(&a);
	deferred = a.kicks == before;
	posted_ago(1000);
	stack_round_end();
	return deferred;
}

static void good_rounds(unsigned n)
{
	while (n--) {
		stack_round_begin(1000);
		sent(&a);
		stack_round_end();
	}
}

static uint32_t now_ms(void)
{
	return (uint32_t)(clock_monotonic_ns() / 1000000);
}

static void who_is_late_too_often_makes_no_rounds_for_a_while(void **state)
{
	(void)state;
	assert_true(late_round());
	assert_int_equal(stack_round.rest_ms, 0);
	assert_true(late_round());
	assert_int_equal(stack_round.rest_ms, 10);
	/* It rests for a while, and for no more than that. */
	stack_round.rest_until_ms = now_ms() + 900;
	assert_false(late_round());
	stack_round.rest_until_ms = now_ms() - 10;
	stack_round.rest_ms = 1000; /* the last time; that was a moment ago, however slow we are */
	assert_true(late_round());
	assert_true(late_round());
	assert_int_equal(stack_round.rest_ms, 1000);
	stack_round.rest_until_ms = now_ms() - 1000000000u;
	assert_true(late_round());
	assert_true(late_round());
	assert_int_equal(stack_round.rest_ms, 10);
}

static void who_is_late_now_and_then_goes_on(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		assert_true(late_round());
		good_rounds(40);
	}
	assert_int_equal(stack_round.rest_ms, 0);
}

static void a_stack_that_has_ended_is_not_kicked(void **state)
{
	(void)state;
	stack_round_begin(1000);
	sent(&a);
	a.st.open = false;
	stack_round_end();
	assert_int_equal(a.kicks, 0);
	assert_null(stack_round.st);
}

static void it_can_be_turned_off(void **state)
{
	(void)state;
	params.tx_coalesce = 0;
	stack_round_begin(1000);
	sent(&a);
	assert_int_equal(a.kicks, 1);
	params.tx_coalesce = 1;
}

/* Each time the timer has stopped for want of rounds, or not: it must go off either way. */
static void what_is_left_behind_the_internal_thread_sends(void **state)
{
	static struct one
		left; /* the internal thread may look at it for longer than the test takes */

	(void)state;
	reset(&left);
	while (!sem_trywait(&kicked))
		;
	stacks[0] = &left.st;
	num_stacks = 1;
	for (unsigned i = 0; i < 40; i++) {
		stack_round = (struct stack_round){0};
		stack_round_begin(1000);
		stack_round_sent(&left.st, &left.ring);
		while (sem_wait(&kicked))
			;
		assert_int_equal(left.st.unkicked_since_ns, 0);
		clock_sleep_ns(i % 20 * 1000000ull);
	}
	num_stacks = 0;
}

static void what_others_have_left_leaves_at_the_end(void **state)
{
	(void)state;
	stack_round_begin(1000);
	sent(&a);
	stack_round = (struct stack_round){0}; /* another thread's */
	stacks[0] = &a.st;
	a.st.unkicked_since_ns = clock_monotonic_ns() + LONG_NS;
	num_stacks = 1;
	stack_rounds_flush();
	num_stacks = 0;
	assert_int_equal(a.kicks, 1);
	assert_int_equal(a.st.unkicked_since_ns, 0);
}

static void what_is_unsaid_is_said_before_the_kick(void **state)
{
	(void)state;
	stack_round_begin(6);
	assert_true(stack_round_holds(&a.st));
	left_unsaid(&a);
	assert_false(stack_round_holds(&b.st)); /* that would have to wait for two */
	sent(&a);
	assert_int_equal(stack_round.left,
			 4); /* the answer counts, what comes beside it does not */
	assert_int_equal(a.said, 0);
	stack_round_end();
	assert_int_equal(a.said, 1);
	assert_int_equal(a.said_before_kick, 0);
	assert_int_equal(a.kicks, 1);
	assert_false(stack_round_holds(&a.st));
	/* Only posted: the lock is not taken for it. */
	stack_round_begin(6);
	sent(&a);
	stack_round_end();
	assert_int_equal(a.said, 1);
	assert_int_equal(a.kicks, 2);
}

/* A handler runs, and waits, when the lock is given back: before the call has told the round of it.
 */
static void a_handler_finds_what_is_unsaid(void **state)
{
	(void)state;
	stack_round_begin(6);
	lock_take(&a.st.lock);
	atomic_store(&a.st.has_unsaid, true);
	stack_round_mark(&a.st);
	lock_drop(&a.st.lock);
	stack_round_end(); /* the handler's */
	assert_int_equal(a.said, 1);
	assert_int_equal(a.kicks, 1);
	stack_round_sent(&a.st, &a.ring);
	assert_int_equal(a.kicks, 2);
}

/* A handler that waits has interrupted a call that has the lock. */
static void what_cannot_be_said_here_keeps_its_mark(void **state)
{
	(void)state;
	stack_round_begin(6);
	left_unsaid(&a);
	lock_take(&a.st.lock);
	stack_round_end();
	lock_drop(&a.st.lock);
	assert_int_equal(a.said, 0);
	assert_true(a.st.has_unsaid);
	assert_int_not_equal(a.st.unkicked_since_ns, 0);
}

static void the_internal_thread_says_it(void **state)
{
	static struct one left;

	(void)state;
	reset(&left);
	while (!sem_trywait(&kicked))
		;
	stacks[0] = &left.st;
	num_stacks = 1;
	stack_round_begin(6);
	atomic_store(&left.st.has_unsaid, true);
	stack_round_also(&left.st);
	while (sem_wait(&kicked))
		;
	num_stacks = 0;
	assert_int_equal(left.said, 1);
	assert_false(left.st.has_unsaid);
}

static void at_the_end_it_is_said_unless_somebody_has_the_lock(void **state)
{
	(void)state;
	stacks[0] = &a.st;
	for (int locked = 0; locked < 2; locked++) {
		stack_round_begin(6);
		left_unsaid(&a);
		stack_round = (struct stack_round){0}; /* another thread's */
		a.st.unkicked_since_ns = clock_monotonic_ns() + LONG_NS;
		if (locked)
			lock_take(&a.st.lock);
		num_stacks = 1;
		stack_rounds_flush();
		num_stacks = 0;
		if (locked)
			lock_drop(&a.st.lock);
		assert_int_equal(a.said, 1);
		assert_int_equal(a.kicks, locked + 1);
	}
}

int main(void)
{
#define ROUND_TEST(f) cmocka_unit_test_setup(f, begin_test)
	const struct CMUnitTest tests[] = {
		ROUND_TEST(a_few_events_make_no_round),
		ROUND_TEST(the_last_part_of_the_last_answer_takes_all_with_it),
		ROUND_TEST(a_round_of_less_ends_with_the_wait),
		ROUND_TEST(what_a_wait_has_to_say_leaves_with_the_answers),
		ROUND_TEST(where_it_finds_no_round_it_says_so_at_once),
		ROUND_TEST(a_round_without_answers_leaves_the_habit),
		ROUND_TEST(the_habit_goes_faster_than_it_has_come),
		ROUND_TEST(an_answer_is_not_cut_in_its_middle),
		ROUND_TEST(datagrams_end_the_habit),
		ROUND_TEST(what_comes_later_is_no_part),
		ROUND_TEST(what_is_no_part),
		ROUND_TEST(an_end_is_a_part),
		ROUND_TEST(the_last_answer_takes_all_with_it),
		ROUND_TEST(the_next_wait_takes_all_with_it),
		ROUND_TEST(a_long_round_leaves_in_parts),
		ROUND_TEST(frames_of_another_stack_leave_first),
		ROUND_TEST(another_threads_kick_leaves_no_frame_without_a_mark),
		ROUND_TEST(time_ends_a_round),
		ROUND_TEST(who_is_late_too_often_makes_no_rounds_for_a_while),
		ROUND_TEST(who_is_late_now_and_then_goes_on),
		ROUND_TEST(a_stack_that_has_ended_is_not_kicked),
		ROUND_TEST(it_can_be_turned_off),
		ROUND_TEST(what_is_left_behind_the_internal_thread_sends),
		ROUND_TEST(what_others_have_left_leaves_at_the_end),
		ROUND_TEST(what_is_unsaid_is_said_before_the_kick),
		ROUND_TEST(a_handler_finds_what_is_unsaid),
		ROUND_TEST(what_cannot_be_said_here_keeps_its_mark),
		ROUND_TEST(the_internal_thread_says_it),
		ROUND_TEST(at_the_end_it_is_said_unless_somebody_has_the_lock),
	};

	return cmocka_run_group_tests(tests, setup, rounds_end);
}
