/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the internal thread does for the stacks: drains them, publishes their counters, follows
 * their interfaces; and their end.
 */
#include "stack/internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/owner.h"
#include "stack/port_claim.h"

#define UPKEEP_MSEC 50

static bool has_ticks, has_upkeep; /* the stacks' mutex, and the child of a fork() */

/*
 * The progress engine: a stack that no thread has polled since the last tick is drained, so that
 * its device queue does not overflow.
 */
static void drain(void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		unsigned left = (unsigned)params.progress_engine_wce_max, got;

		if (!lock_try(&st->lock))
			continue;
		if (atomic_load_explicit(&st->open, memory_order_relaxed) &&
		    st->polls == st->polls_seen) {
			do {
				got = stack_poll(st,
						 left < STACK_BATCH_MAX ? left : STACK_BATCH_MAX);
				left -= got;
				if (got > st->cq_stats->drained_max)
					stats_set(&st->cq_stats->drained_max, got);
			} while (got == STACK_BATCH_MAX && left);
		}
		st->polls_seen = st->polls;
		lock_drop(&st->lock);
	}
}

/*
 * Rings of vanished interfaces. A thread may still be inside kick(), which holds no lock: their
 * memory is given back when two seconds have passed, far beyond any such call.
 */
#define RETIRED_TICKS 20
static struct {
	struct ring *ring;
	unsigned ticks;
	bool has_left; /* its interface; the memory stays until the process has ended */
} retired[STACKS_MAX]; /* worker only; a child of a fork() before it has one, exit() after it */

static void retire(struct ring *ring)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (!retired[i].ring) {
			retired[i].ring = ring;
			retired[i].ticks = RETIRED_TICKS;
			retired[i].has_left = false;
			return;
		}
	}
	log_warn("%s: too many interfaces vanish at once; the memory of this ring is kept",
		 ring->ifname);
}

/* True: one more has its time to come. */
static bool retired_tick(void)
{
	bool more = false;

	for (unsigned i = 0; i < STACKS_MAX; i++) {
		struct ring *ring = retired[i].ring;

		if (ring && retired[i].ticks && --retired[i].ticks)
			more = true;
		if (!ring || retired[i].ticks)
			continue;
		/* acquire: the program has done with what it had of its memory */
		if (atomic_load_explicit(&ring->held, memory_order_acquire))
			continue;
		/* First: who forks meanwhile shall not close it in the child a second time. */
		retired[i].ring = NULL;
		ring_close(ring);
	}
	return more;
}

void stacks_retired_end(void)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		struct ring *ring = retired[i].ring;

		retired[i].ticks = 1;
		/* The program still has frames of its memory. */
		if (ring && atomic_load_explicit(&ring->held, memory_order_acquire)) {
			retired[i].has_left = true;
			ring->ops->leave(ring);
		}
	}
	(void)retired_tick();
}

/* The process ends: what its time has not come for yet is taken off its interface all the same. */
static void retired_leave(void)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		struct ring *ring = retired[i].ring;

		if (ring && !retired[i].has_left) {
			retired[i].has_left = true;
			ring->ops->leave(ring);
		}
	}
}

/* Closing has no side effects on the parent: what is left is our copies. */
static void retired_forked(void)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		struct ring *ring = retired[i].ring;

		retired[i].ring = NULL;
		if (ring)
			ring_close(ring);
	}
}

/*
 * Without the lock; NULL: st is closed. A ring outlives its stack's end by seconds, so it is asked
 * for when the stack was seen open: that of a stack which has closed long ago is gone.
 */
static struct ring *open_ring(const struct stack *st)
{
	return atomic_load_explicit(&st->open, memory_order_acquire) ? stack_ring(st) : NULL;
}

/* Without the lock: while the kernel sends for another thread it lets nobody ask. */
static uint64_t missed(const struct ring *ring)
{
	return ring && ring_ops(ring)->missed ? ring_ops(ring)->missed(ring) : 0;
}

static void sync_stats(void)
{
	struct stack_pools sums = {0};
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		struct ring *ring = open_ring(st);
		uint64_t now = missed(ring);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed)) {
			if (st->ring == ring && now > ring->counters->rx_missed)
				ring->counters->rx_missed = now;
			stack_publish(st);
			stack_publish_gauges(st, &sums);
		}
		lock_drop(&st->lock);
	}
	if (n)
		stack_publish_pools(&sums);
	stack_timed_ops->figures();
}

/* Without the lock, for which packets wait. A ring outlives its stack's end by seconds. */
static void guard_rings(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		struct ring *ring = open_ring(st);

		if (ring && ring_ops(ring)->guard)
			ring_ops(ring)->guard(ring, stack_tcp_ops->strays);
	}
}

/* vma_stats captures, or no more. */
static void capture(void)
{
	bool on = stats_capture_follow();
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		const struct ring *ring = open_ring(st);

		if (!ring || ring_captured(ring) == on)
			continue;
		lock_take(&st->lock);
		if (on)
			ring_capture_begin(st->ring);
		else
			ring_capture_end(st->ring);
		lock_drop(&st->lock);
	}
	stats_capture_show();
}

/*
 * What is for a process without a ring as well. While there is one, ten times a second, with the
 * tick that is there for it.
 */
static void control(void)
{
	guard_rings();
	stats_control(NULL);
	capture();
	last_thread_look();
	stacks_follow();
}

static void second(void *arg)
{
	bool rests = stacks_rest_on();

	(void)arg;
	/* First: what a tool asks for is of now. */
	if (rests || !atomic_load_explicit(&num_stacks, memory_order_acquire))
		sync_stats();
	control();
	if (rests)
		(void)retired_tick();
}

static void sync_tick(void *arg)
{
	(void)arg;
	sync_stats();
	control();
	if (!retired_tick())
		stacks_rest_look();
}

/*
 * Ends the use of an open stack, its lock held; the caller disposes of the ring that is returned
 * (NULL: it was not open).
 */
static struct ring *stack_shut(struct stack *st)
{
	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return NULL;
	stack_publish(st);
	atomic_store_explicit(&st->open, false, memory_order_release);
	stack_udp_changed(st);
	atomic_fetch_add_explicit(&stacks_changes, 1, memory_order_release);
	return st->ring;
}

void stack_vanished(struct stack *st)
{
	struct ring *ring;

	stacks_rest_end(); /* what it watches goes */
	/*
	 * Shut first: nothing can be attached behind our back whose buffers would go with the ring.
	 */
	pthread_mutex_lock(&stacks_mutex);
	lock_take(&st->lock);
	ring = stack_shut(st);
	if (ring) {
		stats_ring_put(st->stats);
		stats_cq_put(st->cq_stats);
		/* the mutex is held: a fork() finds it here or in its stack */
		if (ring != &st->no_ring)
			retire(ring);
	}
	st->leaving = true;
	lock_drop(&st->lock);
	pthread_mutex_unlock(&stacks_mutex);
	stack_udp_ops->gone(st);
	stack_tcp_ops->gone(st);
	pthread_mutex_lock(&stacks_mutex);
	st->leaving = false;
	pthread_mutex_unlock(&stacks_mutex);
}

/* True: the ring's device is gone, the stack with it. The worker only. */
static bool upkeep(struct stack *st)
{
	bool gone = false;

	/*
	 * Without the lock, which is in the way of packets: a ring outlives its stack's end by
	 * seconds.
	 */
	if (!atomic_load_explicit(&st->open, memory_order_acquire) ||
	    !ring_ops(stack_ring(st))->upkeep)
		return false;
	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed) && st->ring->ops->upkeep)
		gone = st->ring->ops->upkeep(st->ring) == -ENODEV;
	lock_drop(&st->lock);
	if (gone)
		stack_vanished(st);
	return gone;
}

/*
 * Its packets reach the kernel's sockets now, which know of no connection and answer with resets:
 * no time is to be lost.
 */
static void stack_cut_off(struct stack *st, int err)
{
	stacks_refuse(st->ifindex, err);
	stack_tcp_ops->cut_off(st);
	stack_udp_ops->cut_off(st);
	stack_vanished(st);
}

unsigned stacks_cut_off(int err)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire), were_open = 0;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (!atomic_load_explicit(&st->open, memory_order_acquire))
			continue;
		stack_cut_off(st, err);
		were_open++;
	}
	return were_open;
}

void stacks_leave(void)
{
	stacks_no_more();
	(void)stacks_cut_off(-ENETDOWN);
}

void stacks_user_to_be(uid_t uid)
{
	ring_user_to_be(uid);
	pthread_mutex_lock(&stacks_opening);
	pthread_mutex_unlock(&stacks_opening);
}

bool stacks_user_matters(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (atomic_load_explicit(&st->open, memory_order_acquire) &&
		    stack_ring(st)->ops->user_changes)
			return true;
	}
	return false;
}

void stacks_user_changes(uid_t uid)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		struct ring *ring = open_ring(st);

		if (!ring || !ring->ops->user_changes || !ring->ops->user_changes(ring, uid))
			continue;
		log_warn("%s: other processes of this user share the queues, and the process "
			 "becomes user %u: its sockets go to the kernel",
			 ring->ifname, (unsigned)uid);
		stack_cut_off(st, -ENETDOWN);
		ring->ops->part(ring);
	}
	stacks_follow();
}

static void follow_link(struct stack *st)
{
	struct net_link link;
	bool open;
	int err = 0;

	if (net_link_get(st->ifindex, &link) == -ENODEV) {
		stack_vanished(st);
		return;
	}
	lock_take(&st->lock);
	open = atomic_load_explicit(&st->open, memory_order_relaxed);
	if (open)
		st->ring->ops->link_changed(st->ring, link.mtu, link.mac);
	lock_drop(&st->lock);
	if (open && st->ring->ops->queues_changed)
		st->ring->ops->queues_changed(st->ring, link.num_rx_queues);
	/* Without the lock, for which packets wait: another thread may have libbpf for long. */
	if (open && st->ring->ops->program_changed)
		err = st->ring->ops->program_changed(st->ring, link.xdp_prog);
	if (err == -ENODEV)
		stack_vanished(st);
	else if (err)
		stack_cut_off(st, -ENETDOWN);
}

/* Sockets are to look for rings, connections for their paths. Worker only. */
static bool attach_anew, paths_anew;

static void all_anew(void)
{
	attach_anew = paths_anew = true;
}

void stack_link_see(struct stack *st)
{
	if (!atomic_exchange_explicit(&st->link_unseen, false, memory_order_relaxed) ||
	    !atomic_load_explicit(&st->open, memory_order_acquire))
		return;
	stacks_rest_end();
	follow_link(st);
	all_anew();
}

/* As net_changed(). */
static void links_changed(int ifindex)
{
	unsigned n;

	stacks_rest_end();
	/* Who enters a stack after this sees the new generation: see look_later(). */
	pthread_mutex_lock(&stacks_mutex);
	n = atomic_load_explicit(&num_stacks, memory_order_relaxed);
	pthread_mutex_unlock(&stacks_mutex);
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (atomic_load_explicit(&st->open, memory_order_acquire) &&
		    (!ifindex || st->ifindex == ifindex))
			follow_link(st);
	}
}

/* ifindex 0: too much has changed to be told one by one. */
static void net_changed(enum net_event ev, int ifindex, void *arg)
{
	(void)arg;
	if (ev == NET_EVENT_LINK)
		links_changed(ifindex);
	if (ev == NET_EVENT_LINK || ev == NET_EVENT_ADDR)
		all_anew();
	if (ev == NET_EVENT_NEIGH)
		stack_timed_ops->neighbours_changed();
}

/*
 * A device that failed is not always an interface that vanishes: the sockets look for another ring
 * on it.
 */
static void upkeep_all(void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		if (upkeep(atomic_load_explicit(&stacks[i], memory_order_relaxed)))
			all_anew();
	}
	stacks_follow();
}

/* 0 or negative errno. */
static int first_ring(void)
{
	int err = stacks_rest_start();

	if (!err && params.progress_engine_interval > 0)
		err = stack_tick_add((unsigned)params.progress_engine_interval, drain, NULL);
	if (!err)
		err = stack_timed_ops->first_ring();
	if (!err)
		err = stack_rounds_start();
	if (!err)
		err = stack_tick_add(STACK_REST_LOOK_MS, sync_tick, NULL);
	return err;
}

int stacks_timers_start(const struct ring *ring)
{
	int err = has_ticks ? 0 : first_ring();

	has_ticks |= !err;
	if (!err && ring->ops->upkeep && !has_upkeep) {
		err = stack_tick_add(UPKEEP_MSEC, upkeep_all, NULL);
		has_upkeep = !err;
	}
	if (err)
		log_error("what the internal thread needs for the rings: %s", strerror(-err));
	return err;
}

/*
 * Another thread is opening a ring. The sockets would wait for it (seconds, where a driver takes
 * the carrier away), and all timers with them.
 */
static bool ring_is_coming(void)
{
	if (pthread_mutex_trylock(&stacks_opening))
		return true;
	pthread_mutex_unlock(&stacks_opening);
	return false;
}

void stacks_follow(void)
{
	if (paths_anew) {
		paths_anew = false;
		stack_timed_ops->paths_changed();
	}
	if (!attach_anew || ring_is_coming())
		return;
	attach_anew = false;
	stack_udp_ops->addresses_changed();
	stack_tcp_ops->addresses_changed();
}

void stack_freed(int ifindex)
{
	stacks_forgive(ifindex);
	all_anew();
	stacks_follow();
}

int stacks_start(void)
{
	int err = net_listen(net_changed, NULL);

	if (!err)
		err = worker_timer_add(1000, second, NULL);
	return err < 0 ? err : 0;
}

void stacks_stop(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	stack_rounds_flush();
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = stacks[i];
		bool locked = lock_at_exit(&st->lock);
		/*
		 * Its counters stay: they are part of what the process leaves in the module's sums.
		 */
		struct ring *ring = stack_shut(st);

		if (locked)
			lock_drop(&st->lock);
		if (ring)
			ring->ops->leave(ring);
	}
	retired_leave();
	stack_ipsec_end();
}

void stacks_fork_prepare(void)
{
	stack_round_end();
	pthread_mutex_lock(&stacks_opening);
	pthread_mutex_lock(&stacks_mutex);
	ring_fork_prepare();
}

void stacks_fork_parent(void)
{
	ring_fork_end();
	pthread_mutex_unlock(&stacks_mutex);
	pthread_mutex_unlock(&stacks_opening);
}

void stacks_forked(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = stacks[i];

		/*
		 * Its queues are the parent's; our references would keep them alive when the parent
		 * has died.
		 */
		if (st->open)
			ring_close(st->ring);
	}
	retired_forked();
	ring_forked();
	stacks_table_forked();
	stack_opener_forked();
	stack_ipsec_end();
	stack_owners_forked();
	port_claims_forked();
	stack_keys_forked();
	stack_pools_forked();
	stack_rounds_forked();
	stack_held_forked();
	atomic_store(&stacks_unshown, 0);
	/* Sockets of the child that want time stamps say so anew. */
	atomic_store(&stack_timestamps_wanted, 0);
	stacks_rest_forked();
	has_ticks = has_upkeep = false;
	attach_anew = paths_anew = false;
}
