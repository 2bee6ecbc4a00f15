/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BBR's model by the round: a path of 12.5 MB/s and 40 ms, which holds 500 segments of 1,000 bytes.
 * Goodput and drops on a wire are in sim --bottleneck.
 */
#include "tcp_fake.h"

#define RTT_US 40000u
#define BW UINT64_C(12500000)
#define SEGMENT 1000u
#define CONTENT ((uint32_t)(BW * RTT_US / 1000000 / SEGMENT))

static const struct tcp_cc_ops *const bbr = &tcp_cc_bbr;

#define ON_THE_WAY 4096u

/* What left in one millisecond. */
struct batch {
	uint32_t n, delivered; /* delivered: when it left */
	uint64_t sent_us, due_us, delivered_us;
};

struct path {
	struct tcp_cc_state s;
	struct tcp_bbr b;
	uint64_t bw, now, busy_until, credit, delivered_us;
	uint32_t delivered, flight, lose;
	uint32_t offered; /* segments that the program has each millisecond, 0: always more */
	uint8_t ca;
	bool probing; /* what control() said last */
	struct batch way[ON_THE_WAY];
	uint32_t head, tail;
};

static struct path path;

static struct path *path_open(void)
{
	struct path *p = &path;

	memset(p, 0, sizeof(*p));
	p->s.bbr = &p->b;
	p->bw = BW;
	p->now = p->delivered_us = 100 * SEC;
	bbr->init(&p->s);
	return p;
}

static void arrive(struct path *p)
{
	uint32_t before = p->flight, n = 0, lost;
	const struct batch *last = NULL;
	struct tcp_cc_ack a;

	while (p->tail != p->head && p->way[p->tail % ON_THE_WAY].due_us <= p->now) {
		last = &p->way[p->tail++ % ON_THE_WAY];
		n += last->n;
	}
	if (!last)
		return;
	lost = p->lose < n ? p->lose : n - 1;
	p->lose = 0;
	p->flight -= n;
	p->delivered += n - lost;
	p->delivered_us = p->now;
	a = (struct tcp_cc_ack){.now = p->now,
				.srtt_us = RTT_US,
				.mss = SEGMENT,
				.app_limited = p->offered != 0 || p->probing,
				.ca_state = p->ca,
				.delivered = p->delivered,
				.acked = n - lost,
				.lost = lost,
				.flight = p->flight,
				.prior_flight = before,
				.gso_segs = 40,
				.rtt_us = (uint32_t)(p->now - last->sent_us),
				.sample = p->delivered - last->delivered,
				.interval_us = (uint32_t)(p->now - last->delivered_us),
				.prior_delivered = last->delivered};
	p->probing = bbr->control(&p->s, &a);
}

static void leave(struct path *p)
{
	uint64_t n;
	uint32_t room = p->s.cwnd > p->flight ? p->s.cwnd - p->flight : 0;

	p->credit += p->b.pacing_rate / 1000;
	n = p->credit / SEGMENT;
	p->credit -= n * SEGMENT;
	n = n < room ? n : room;
	if (p->offered && n > p->offered)
		n = p->offered;
	if (!n)
		return;
	if (!p->flight)
		p->delivered_us = p->now;
	if (p->busy_until < p->now)
		p->busy_until = p->now;
	p->busy_until += n * SEGMENT * 1000000 / p->bw;
	p->flight += (uint32_t)n;
	p->way[p->head++ % ON_THE_WAY] = (struct batch){.n = (uint32_t)n,
							.delivered = p->delivered,
							.sent_us = p->now,
							.due_us = p->busy_until + RTT_US,
							.delivered_us = p->delivered_us};
}

static void rounds(struct path *p, unsigned n)
{
	for (n *= RTT_US / 1000; n; n--) {
		p->now += 1000;
		arrive(p);
		leave(p);
	}
}

/* The path is known: a second has gone by. */
static struct path *path_known(void)
{
	struct path *p = path_open();

	rounds(p, 40);
	assert_true(p->b.filled);
	return p;
}

static void it_starts_with_the_first_window_in_a_round_trip(void **state)
{
	struct path *p;
	struct tcp_cc_ack a = {.now = 100 * SEC, .srtt_us = RTT_US, .mss = SEGMENT};

	(void)state;
	p = path_open();
	bbr->restart(&p->s, &a);
	/* 2/ln 2 times ten segments in 40 ms. */
	assert_in_range(p->b.pacing_rate, 720000, 722000);
	assert_int_equal(p->s.cwnd, 10);
}

static void the_rate_doubles_until_the_path_is_full_and_the_queue_is_drained(void **state)
{
	struct path *p;

	(void)state;
	p = path_open();
	/* From ten segments to 500: 5.6 doublings, and a round trip for each to be seen. */
	rounds(p, 8);
	assert_in_range(p->b.bw.max, BW * 8 / 10, BW * 101 / 100);
	rounds(p, 20);
	assert_true(p->b.filled);
	assert_in_range(p->b.bw.max, BW * 97 / 100, BW * 103 / 100);
	assert_in_range(p->b.min_us, RTT_US, RTT_US + 1000);
	/* Twice what the path holds, and room for three bursts. */
	assert_in_range(p->s.cwnd, 2 * CONTENT, 2 * CONTENT + 200);
}

/* Eight phases: one a quarter faster, one a quarter slower, six as fast as the path. */
static void it_asks_for_more_once_in_eight_round_trips(void **state)
{
	struct path *p;
	unsigned fast = 0, slow = 0, even = 0;

	(void)state;
	p = path_known();
	for (unsigned i = 0; i < 80; i++) {
		rounds(p, 1);
		if (p->b.pacing_rate > BW * 11 / 10)
			fast++;
		else if (p->b.pacing_rate < BW * 9 / 10)
			slow++;
		else
			even++;
	}
	print_message("of 80 rounds %u faster, %u slower, %u even\n", fast, slow, even);
	assert_in_range(fast, 4, 20);
	assert_in_range(slow, 4, 20);
	assert_in_range(even, 40, 70);
}

static void a_slower_path_is_noticed_after_ten_rounds(void **state)
{
	struct path *p;

	(void)state;
	p = path_known();
	p->bw = BW / 4;
	rounds(p, 4);
	assert_true(p->b.bw.max > BW / 2);
	/* Each round waits for the queue, which is longer than the path now. */
	rounds(p, 100);
	assert_in_range(p->b.bw.max, BW * 23 / 100, BW * 27 / 100);
}

static void a_faster_path_is_noticed_by_asking(void **state)
{
	struct path *p;

	(void)state;
	p = path_known();
	p->bw = BW * 2;
	rounds(p, 60);
	assert_true(p->b.bw.max > BW * 18 / 10);
}

/* One segment in a hundred is lost, over and over. */
static void a_loss_changes_neither_rate_nor_window_beyond_its_repair(void **state)
{
	struct path *p;
	uint32_t cwnd;
	uint64_t bw;

	(void)state;
	p = path_known();
	cwnd = p->s.cwnd;
	bw = p->b.bw.max;
	for (unsigned i = 0; i < 30; i++) {
		bbr->ssthresh(&p->s, p->now);
		p->ca = TCPCA_RECOVERY;
		p->lose = 5;
		while (p->lose) {
			p->now += 1000;
			leave(p);
			arrive(p);
		}
		assert_true(p->b.conserving);
		assert_true(p->s.cwnd >= p->flight);
		rounds(p, 2);
		assert_false(p->b.conserving);
		p->ca = TCPCA_OPEN;
		rounds(p, 1);
		assert_true(p->s.cwnd >= cwnd * 9 / 10);
	}
	assert_in_range(p->b.bw.max, bw * 95 / 100, bw * 105 / 100);
	assert_int_equal(p->s.ssthresh, TCP_SSTHRESH_INFINITE);
}

static void after_a_timeout_the_window_comes_back(void **state)
{
	struct path *p;
	uint32_t cwnd;

	(void)state;
	p = path_known();
	cwnd = p->s.cwnd;
	bbr->ssthresh(&p->s, p->now);
	bbr->reset(&p->s);
	p->s.cwnd = 1;
	p->ca = TCPCA_LOSS;
	p->now += 1000;
	arrive(p);
	assert_true(p->s.cwnd < cwnd / 4);
	p->ca = TCPCA_OPEN;
	rounds(p, 1);
	assert_true(p->s.cwnd >= cwnd);
}

/* A queue of somebody else's stands, so that no shorter time comes by itself. */
static void every_ten_seconds_the_path_is_emptied_for_a_look_at_its_length(void **state)
{
	struct path *p;
	uint64_t begun = 0, spent = 0;
	uint32_t cwnd;

	(void)state;
	p = path_known();
	cwnd = p->s.cwnd;
	p->b.min_us = RTT_US - 1000;
	while (p->now < 125 * SEC) {
		uint64_t before = p->now;

		rounds(p, 1);
		if (!p->probing)
			continue;
		assert_true(p->s.cwnd <= 4);
		if (!begun)
			begun = p->now;
		spent += p->now - before;
	}
	assert_in_range(begun, 110 * SEC, 112 * SEC);
	print_message("%llu ms of 25 s at four segments\n", (unsigned long long)spent / 1000);
	assert_in_range(spent, 2 * 200 * MS, 2 * 400 * MS);
	assert_in_range(p->s.cwnd, cwnd * 9 / 10, cwnd * 11 / 10);
}

static void a_program_that_sends_little_does_not_lower_the_rate(void **state)
{
	struct path *p;

	(void)state;
	p = path_known();
	p->offered = 1;
	rounds(p, 8);
	assert_true(p->b.bw.max > BW * 9 / 10);
}

/* Its samples do not stand for the path: the pipe is not found full by them. */
static void a_program_that_sends_little_does_not_end_the_start(void **state)
{
	struct path *p;

	(void)state;
	p = path_open();
	p->offered = 1;
	rounds(p, 30);
	assert_false(p->b.filled);
}

/* Acknowledgements are held back for 20 ms and come together: half of the path again. */
static void the_window_has_room_for_acknowledgements_that_come_together(void **state)
{
	struct path *p;

	(void)state;
	p = path_known();
	for (unsigned i = 0; i < 20 * 6; i++) {
		for (unsigned ms = 0; ms < 20; ms++) {
			p->now += 1000;
			leave(p);
		}
		arrive(p);
	}
	assert_true(p->b.extra.max > 0);
	assert_true(p->s.cwnd > 2 * CONTENT);
	assert_true(p->s.cwnd < 4 * CONTENT);
}

static struct tcp_conn *open_bbr(uint64_t rtt_us)
{
	struct tcp_conn *c = fake_open(rtt_us);
	struct tcp_opts o = *tcp_get_opts(c);

	o.cc = TCP_CC_BBR;
	tcp_set_opts(c, &o, f.ts.now);
	fake_flush();
	return c;
}

static void its_segments_are_paced(void **state)
{
	struct tcp_conn *c = open_bbr(100 * MS);
	uint64_t begun = f.ts.now;

	(void)state;
	assert_int_equal(c->o.cc, TCP_CC_BBR);
	fake_send(10000);
	fake_pass(90 * MS);
	/* Ten of 1,000 bytes by 2.885 windows in a round trip: in some 30 ms. */
	expect_run(0, 9);
	assert_in_range(expect_sent(9000, 1000)->when_us - begun, 20 * MS, 40 * MS);
	expect_quiet();
	tcp_cc_drop(c);
	fake_close();
}

static void without_memory_it_is_cubic(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);

	(void)state;
	f.alloc_fail = true;
	tcp_cc_set(c, TCP_CC_BBR);
	f.alloc_fail = false;
	assert_int_equal(c->o.cc, TCP_CC_CUBIC);
	assert_int_equal(f.ts.n.no_memory, 1);
	fake_close();
}

static void to_and_fro_nothing_is_left(void **state)
{
	struct tcp_conn *c = fake_open(10 * MS);
	unsigned before = f.allocs;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		tcp_cc_set(c, (uint8_t)(i % TCP_CC_COUNT));
		assert_in_range(c->cc.cwnd, 4, TCP_CWND_UNLIMITED);
	}
	tcp_cc_set(c, TCP_CC_NEWRENO);
	assert_int_equal(f.allocs, before);
	assert_int_equal(tcp_pacing_rate(c), UINT64_MAX);
	fake_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_starts_with_the_first_window_in_a_round_trip),
		cmocka_unit_test(the_rate_doubles_until_the_path_is_full_and_the_queue_is_drained),
		cmocka_unit_test(it_asks_for_more_once_in_eight_round_trips),
		cmocka_unit_test(a_slower_path_is_noticed_after_ten_rounds),
		cmocka_unit_test(a_faster_path_is_noticed_by_asking),
		cmocka_unit_test(a_loss_changes_neither_rate_nor_window_beyond_its_repair),
		cmocka_unit_test(after_a_timeout_the_window_comes_back),
		cmocka_unit_test(every_ten_seconds_the_path_is_emptied_for_a_look_at_its_length),
		cmocka_unit_test(a_program_that_sends_little_does_not_lower_the_rate),
		cmocka_unit_test(a_program_that_sends_little_does_not_end_the_start),
		cmocka_unit_test(the_window_has_room_for_acknowledgements_that_come_together),
		cmocka_unit_test(its_segments_are_paced),
		cmocka_unit_test(without_memory_it_is_cubic),
		cmocka_unit_test(to_and_fro_nothing_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
