/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets from the rings to their sockets, and the sleep until there are some. */
#include "stack/internal.h"

#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "proto/proto.h"
#include "runtime/runtime.h"
#include "config/config.h"

_Atomic uint64_t stack_timestamps_wanted;

static __attribute__((noinline)) void drop(struct stack *st, struct buf *b, enum pkt_result why)
{
	switch (why) {
	case PKT_MALFORMED:
		stats_add(&st->stats->drop_malformed, 1);
		break;
	case PKT_BAD_CHECKSUM:
		stats_add(&st->stats->drop_checksum, 1);
		break;
	default:
		stats_add(&st->stats->drop_other, 1);
	}
	buf_free(b);
}

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool stack_drain_due_slow(struct stack *st)
{
	uint64_t now = clock_monotonic_ns();

	if (now - st->drained_ns < (uint64_t)params.rx_cq_drain_rate_nsec)
		return false;
	st->drained_ns = now;
	return true;
}

/* As stack_source_ok_slow(). */
static inline bool source_ok(struct stack *st, const struct buf_meta *m)
{
	uint32_t src, dst;

	memcpy(&src, &m->src.s6_addr[12], sizeof(src));
	memcpy(&dst, &m->dst.s6_addr[12], sizeof(dst));
	return (__builtin_expect(m->family == AF_INET, 1) && stack_source_known(st, src, dst)) ||
	       stack_source_ok_slow(st, m);
}

/* b, as the ring gave it, goes to whom it is for. */
static inline void input(struct stack *st, struct buf *b, uint64_t now, uint64_t *mono_us)
{
	enum pkt_result res;

	b->time_ns = now;
	b->meta.ifindex = (uint32_t)st->ifindex;
	res = pkt_parse(b);
	if (__builtin_expect(res != PKT_UDP && res != PKT_TCP, 0))
		drop(st, b, res);
	else if (__builtin_expect(!source_ok(st, &b->meta), 0))
		drop(st, b, PKT_OTHER);
	else if (__builtin_expect(res == PKT_UDP, 1))
		stack_udp_ops->input(st, b, mono_us);
	else
		stack_tcp_ops->input(st, b, mono_us);
}

void stack_input(struct stack *st, struct buf *b)
{
	uint64_t mono_us = 0;

	lock_busy_begin();
	input(st, b, 0, &mono_us);
	stack_polled(st, mono_us);
	lock_busy_end(&st->lock);
}

/*
 * As ring_poll(), for sockets that want time stamps; *now: software's, 0: nobody wants one of them.
 */
static __attribute__((noinline)) unsigned poll_stamped(struct ring *r, struct buf **pkts,
						       unsigned max, uint64_t wanted, uint64_t *now)
{
	bool device = wanted >= STACK_STAMP_DEVICE && r->caps.rx_stamp;
	unsigned n = device ? ring_poll_stamped(r, pkts, max) : ring_poll(r, pkts, max);

	if (n && wanted % STACK_STAMP_DEVICE)
		*now = realtime_ns();
	return n;
}

unsigned stack_poll(struct stack *st, unsigned max)
{
	uint64_t now = 0, mono_us = 0,
		 wanted = atomic_load_explicit(&stack_timestamps_wanted, memory_order_relaxed);
	struct buf *pkts[STACK_BATCH_MAX];
	unsigned n;

	if (max > STACK_BATCH_MAX)
		max = STACK_BATCH_MAX;
	if (__builtin_expect(!wanted, 1))
		n = ring_poll(st->ring, pkts, max);
	else
		n = poll_stamped(st->ring, pkts, max, wanted, &now);
	/* Whom the packets are for is woken when the lock is free. */
	lock_busy_begin();
	for (unsigned i = 0; i < n; i++)
		input(st, pkts[i], now, &mono_us);
	stack_polled(st, mono_us);
	lock_busy_end(&st->lock);
	if (n)
		stacks_used();
	return n;
}

/*
 * Stacks of other threads are polled now and then only: their own threads do, and would find the
 * lock taken. Needed all the same: a thread may wait for a socket that is in another's stack.
 */
#define FOREIGN_EVERY 16u

static inline bool leave_to_owner(const struct stack *st, unsigned turn)
{
	return turn % FOREIGN_EVERY && params.ring_allocation_logic_rx == STACK_BY_THREAD &&
	       atomic_load_explicit(&st->key, memory_order_relaxed) !=
		       stack_key_by(STACK_BY_THREAD, NULL);
}

unsigned stacks_poll(void)
{
	static __thread unsigned turn;
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire), got = 0;

	turn++;
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (n > 1 && leave_to_owner(st, turn))
			continue;
		if (!lock_try(&st->lock))
			continue;
		got += stack_poll_called(st);
		lock_drop(&st->lock);
	}
	return got;
}

unsigned stacks_wait_fds(int *fds, unsigned max)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire), got = 0;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed))
			got += st->ring->ops->wait_fds(st->ring, fds + got, max - got);
		lock_drop(&st->lock);
	}
	if (got == max)
		log_debug("%u and more queues to sleep on: what comes in the others may wait for "
			  "the internal thread",
			  max);
	return got;
}

bool stacks_arm(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);
	bool again = false;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed)) {
			if (stack_poll(st, (unsigned)params.cq_poll_batch_max) ||
			    stack_timed_ops->is_blocked(st))
				again = true;
			else if (st->ring->ops->arm(st->ring))
				again = true;
		}
		lock_drop(&st->lock);
	}
	/* What another thread has taken off a ring may be this one's to show. */
	if (stacks_show_due())
		again = true;
	/* Before there is one, another thread may be registering who has timers. */
	if (!again && n)
		stack_timed_ops->sleep_hint();
	return again;
}

void stack_timestamps(uint64_t delta)
{
	atomic_fetch_add_explicit(&stack_timestamps_wanted, delta, memory_order_relaxed);
}

bool stack_stamps(struct stack *st)
{
	bool stamps;

	lock_take(&st->lock);
	stamps = !atomic_load_explicit(&st->open, memory_order_relaxed) || st->ring->caps.rx_stamp;
	lock_drop(&st->lock);
	return stamps;
}
