/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/stack_int.h"
#include "socket/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "net/net.h"
#include "proto/pkt.h"
#include "runtime/last_thread.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/worker.h"
#include "socket/stack_owner.h"
#include "socket/stack_right.h"
#include "socket/tcp.h"
#include "socket/udp.h"

#define BATCH_MAX 128
/* An interface that refused is asked again after this time, not for every socket. */
#define RETRY_SECONDS 5
#define UPKEEP_MSEC 50

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER; /* opening and closing */
static struct stack *_Atomic stacks[STACKS_MAX]; /* filled from the front, never emptied */
static _Atomic unsigned num_stacks;
static _Atomic uint32_t generation;
_Atomic uint64_t stack_timestamps_wanted;
static int drain_timer = -1, sync_timer = -1, upkeep_timer = -1;

static struct {
	int ifindex;
	time_t until;
} refused[STACKS_MAX]; /* open_lock */

static time_t now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

uint32_t stacks_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_acquire);
}

struct stack *stack_find(int ifindex)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (st->ifindex == ifindex && atomic_load_explicit(&st->open, memory_order_acquire))
			return st;
	}
	return NULL;
}

bool stack_wanted(int ifindex)
{
	struct net_link link;

	if (params.ring_type == RING_TYPE_NONE || net_link_get(ifindex, &link) || !link.up)
		return false;
	if (link.kind == NET_LINK_LOOPBACK)
		return params.offload_loopback;
	/* A slave's packets belong to the bond or bridge above it. */
	return link.kind != NET_LINK_OTHER && !link.master;
}

static bool refused_lately(int ifindex)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (refused[i].ifindex == ifindex && refused[i].until > now_seconds())
			return true;
	}
	return false;
}

static void remember_refusal(int ifindex)
{
	unsigned oldest = 0;

	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (refused[i].ifindex == ifindex) {
			oldest = i;
			break;
		}
		if (refused[i].until < refused[oldest].until)
			oldest = i;
	}
	refused[oldest].ifindex = ifindex;
	refused[oldest].until = now_seconds() + RETRY_SECONDS;
}

static uint64_t random_seed(void)
{
	uint64_t seed = 0;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)now_seconds() << 32;
	return seed;
}

void stack_udp_changed(struct stack *st)
{
	static _Atomic uint64_t last;

	atomic_store_explicit(&st->udp_gen, 1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed), memory_order_relaxed);
}

/* Makes a stack on an opened ring and enters it. open_lock is held. */
static struct stack *stack_new(struct ring *ring, int ifindex)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_relaxed);
	struct stack *st = NULL;
	unsigned i;

	/* The place of a closed stack is taken over: its memory stays what it was, a stack. */
	for (i = 0; i < n; i++) {
		if (!atomic_load_explicit(&stacks[i]->open, memory_order_relaxed) && !stacks[i]->leaving) {
			st = stacks[i];
			break;
		}
	}
	if (!st && n < STACKS_MAX)
		st = calloc(1, sizeof(*st));
	if (!st)
		return NULL;
	lock_take(&st->lock);
	st->ring = ring;
	st->ifindex = ifindex;
	udp_demux_init(&st->udp, random_seed());
	stack_udp_changed(st);
	st->stats = stats_ring_get();
	st->cq_stats = stats_cq_get();
	lock_drop(&st->lock);
	st->stats->ifindex = ifindex;
	memcpy(st->stats->ifname, ring->ifname, sizeof(st->stats->ifname));
	strcpy(st->stats->type, strcmp(ring->ops->name, "mlx5") ? "RING_XDP" : "RING_ETH");
	__atomic_store_n(&st->stats->enabled, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&st->cq_stats->enabled, 1, __ATOMIC_RELEASE);
	atomic_store_explicit(&st->open, true, memory_order_release);
	if (i == n) {
		atomic_store_explicit(&stacks[n], st, memory_order_relaxed);
		atomic_store_explicit(&num_stacks, n + 1, memory_order_release);
	}
	atomic_fetch_add_explicit(&generation, 1, memory_order_release);
	return st;
}

static void upkeep_all(void *arg);

/* Rings with an upkeep need a timer; where there is none the worker is not woken for it. open_lock is held. 0 or negative errno. */
static int upkeep_start(const struct ring *ring)
{
	if (ring->ops->upkeep && upkeep_timer < 0)
		upkeep_timer = worker_timer_add(UPKEEP_MSEC, upkeep_all, NULL);
	return ring->ops->upkeep && upkeep_timer < 0 ? upkeep_timer : 0;
}

struct stack *stack_get(int ifindex)
{
	struct stack *st = stack_find(ifindex);
	struct ring *ring;
	int err;

	if (st || !stack_wanted(ifindex))
		return st;
	pthread_mutex_lock(&open_lock);
	libc_internal++;
	st = stack_find(ifindex);
	if (!st && !refused_lately(ifindex)) {
		err = ring_open(ifindex, &ring);
		if (err) {
			remember_refusal(ifindex);
			if (err == -EBUSY)
				stack_owner_wait(ifindex);
		} else {
			st = upkeep_start(ring) ? NULL : stack_new(ring, ifindex);
			if (!st)
				ring->ops->close(ring);
		}
	}
	libc_internal--;
	pthread_mutex_unlock(&open_lock);
	return st;
}

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
	uint64_t now = wait_now_ns();

	if (now - st->drained_ns < (uint64_t)params.rx_cq_drain_rate_nsec)
		return false;
	st->drained_ns = now;
	return true;
}

/* b, as the ring gave it, goes to whom it is for. */
static inline void input(struct stack *st, struct buf *b, uint64_t now, uint64_t *mono_us)
{
	enum pkt_result res;

	b->time_ns = now;
	b->meta.ifindex = (uint32_t)st->ifindex;
	res = pkt_parse(b);
	if (__builtin_expect(res == PKT_UDP, 1))
		udp_input(st, b);
	else if (res == PKT_TCP)
		tsock_input(st, b, mono_us);
	else
		drop(st, b, res);
}

void stack_input(struct stack *st, struct buf *b)
{
	uint64_t mono_us = 0;

	input(st, b, 0, &mono_us);
	tsock_polled(st, 1, mono_us);
}

/* As ring_poll(), for sockets that want time stamps; *now: software's, 0: nobody wants one of them. */
static __attribute__((noinline)) unsigned poll_stamped(struct ring *r, struct buf **pkts, unsigned max, uint64_t wanted,
						       uint64_t *now)
{
	bool device = wanted >= STACK_STAMP_DEVICE && r->caps.rx_stamp;
	unsigned n = device ? r->ops->poll_stamped(r, pkts, max) : ring_poll(r, pkts, max);

	if (n && wanted % STACK_STAMP_DEVICE)
		*now = realtime_ns();
	return n;
}

unsigned stack_poll(struct stack *st, unsigned max)
{
	uint64_t now = 0, mono_us = 0, wanted = atomic_load_explicit(&stack_timestamps_wanted, memory_order_relaxed);
	struct buf *pkts[BATCH_MAX];
	unsigned n;

	if (max > BATCH_MAX)
		max = BATCH_MAX;
	if (__builtin_expect(!wanted, 1))
		n = ring_poll(st->ring, pkts, max);
	else
		n = poll_stamped(st->ring, pkts, max, wanted, &now);
	for (unsigned i = 0; i < n; i++)
		input(st, pkts[i], now, &mono_us);
	tsock_polled(st, n, mono_us);
	return n;
}

void stacks_each(void (*fn)(struct stack *st, void *arg), void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (lock_mine(&st->lock))
			continue;
		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed))
			fn(st, arg);
		lock_drop(&st->lock);
	}
}

unsigned stacks_poll(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire), got = 0;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

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
			if (stack_poll(st, (unsigned)params.cq_poll_batch_max) || tsock_blocked(st))
				again = true;
			else if (st->ring->ops->arm(st->ring))
				again = true;
		}
		lock_drop(&st->lock);
	}
	if (!again)
		tsock_sleep_hint();
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

/* The progress engine: a stack that no thread has polled since the last tick is drained, so that its device queue does not overflow. */
static void drain(void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);
		unsigned left = (unsigned)params.progress_engine_wce_max, got;

		if (!lock_try(&st->lock))
			continue;
		if (atomic_load_explicit(&st->open, memory_order_relaxed) && st->polls == st->polls_seen) {
			do {
				got = stack_poll(st, left < BATCH_MAX ? left : BATCH_MAX);
				left -= got;
				if (got > st->cq_stats->drained_max)
					stats_set(&st->cq_stats->drained_max, got);
			} while (got == BATCH_MAX && left);
		}
		st->polls_seen = st->polls;
		lock_drop(&st->lock);
	}
}

/*
 * Rings of vanished interfaces. A thread may still be inside kick(), which holds no lock: their memory
 * is given back when two seconds have passed, far beyond any such call.
 */
#define RETIRED_TICKS 20
static struct {
	struct ring *ring;
	unsigned ticks;
} retired[STACKS_MAX]; /* worker only */

static void retire(struct ring *ring)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (!retired[i].ring) {
			retired[i].ring = ring;
			retired[i].ticks = RETIRED_TICKS;
			return;
		}
	}
	log_warn("%s: too many interfaces vanish at once; the memory of this ring is kept", ring->ifname);
}

static void retired_tick(void)
{
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (retired[i].ring && --retired[i].ticks == 0) {
			retired[i].ring->ops->close(retired[i].ring);
			retired[i].ring = NULL;
		}
	}
}

static void sync_stats(void *arg)
{
	struct stack_pools sums = { 0 };
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		lock_take(&st->lock);
		if (atomic_load_explicit(&st->open, memory_order_relaxed)) {
			stack_publish(st);
			stack_publish_gauges(st, &sums);
		}
		lock_drop(&st->lock);
	}
	if (n)
		stack_publish_pools(&sums);
	retired_tick();
	stats_control(NULL);
	last_thread_look(); /* here, as a tick of its own would be one more for nearly nobody */
}

/* Ends the use of an open stack, its lock held; the caller disposes of the ring that is returned (NULL: it was not open). */
static struct ring *stack_shut(struct stack *st)
{
	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return NULL;
	stack_publish(st);
	atomic_store_explicit(&st->open, false, memory_order_release);
	stack_udp_changed(st);
	atomic_fetch_add_explicit(&generation, 1, memory_order_release);
	return st->ring;
}

static void stack_vanished(struct stack *st)
{
	struct ring *ring;

	/* Shut first: nothing can be attached behind our back whose buffers would go with the ring. */
	pthread_mutex_lock(&open_lock);
	lock_take(&st->lock);
	ring = stack_shut(st);
	if (ring) {
		stats_ring_put(st->stats);
		stats_cq_put(st->cq_stats);
	}
	st->leaving = true;
	lock_drop(&st->lock);
	pthread_mutex_unlock(&open_lock);
	udp_stack_gone(st);
	tsock_stack_gone(st);
	pthread_mutex_lock(&open_lock);
	st->leaving = false;
	pthread_mutex_unlock(&open_lock);
	if (ring)
		retire(ring);
}

/* True: the ring's device is gone, the stack with it. The worker only. */
static bool upkeep(struct stack *st)
{
	bool gone = false;

	/* Without the lock, which is in the way of packets: a ring outlives its stack's end by seconds. */
	if (!atomic_load_explicit(&st->open, memory_order_acquire) || !st->ring->ops->upkeep)
		return false;
	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed) && st->ring->ops->upkeep)
		gone = st->ring->ops->upkeep(st->ring) == -ENODEV;
	lock_drop(&st->lock);
	if (gone)
		stack_vanished(st);
	return gone;
}

static void follow_link(struct stack *st)
{
	struct net_link link;

	if (net_link_get(st->ifindex, &link) == -ENODEV) {
		stack_vanished(st);
		return;
	}
	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed))
		st->ring->ops->link_changed(st->ring, link.mtu, link.mac);
	lock_drop(&st->lock);
}

static bool attach_anew; /* worker only */

/* ifindex 0: too much has changed to be told one by one. */
static void net_changed(enum net_event ev, int ifindex, void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n && ev == NET_EVENT_LINK; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (atomic_load_explicit(&st->open, memory_order_acquire) && (!ifindex || st->ifindex == ifindex))
			follow_link(st);
	}
	if (ev == NET_EVENT_LINK || ev == NET_EVENT_ADDR)
		attach_anew = true;
	if (ev == NET_EVENT_NEIGH)
		tsock_neighbours_changed();
}

/* A device that failed is not always an interface that vanishes: the sockets look for another ring on it. */
static void upkeep_all(void *arg)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	(void)arg;
	for (unsigned i = 0; i < n; i++) {
		if (upkeep(atomic_load_explicit(&stacks[i], memory_order_relaxed)))
			attach_anew = true;
	}
	stacks_follow();
}

void stacks_follow(void)
{
	if (!attach_anew)
		return;
	attach_anew = false;
	udp_addresses_changed();
	tsock_addresses_changed();
}

void stack_freed(int ifindex)
{
	pthread_mutex_lock(&open_lock);
	for (unsigned i = 0; i < STACKS_MAX; i++) {
		if (refused[i].ifindex == ifindex)
			refused[i].until = 0;
	}
	pthread_mutex_unlock(&open_lock);
	attach_anew = true;
	stacks_follow();
}

int stacks_start(void)
{
	int err = net_listen(net_changed, NULL);

	if (err)
		return err;
	if (params.progress_engine_interval > 0)
		drain_timer = worker_timer_add((unsigned)params.progress_engine_interval, drain, NULL);
	sync_timer = worker_timer_add(100, sync_stats, NULL);
	return sync_timer < 0 ? sync_timer : 0;
}

/*
 * exit() may be called anywhere, in a signal handler that interrupted the holder of a lock too: it is waited for
 * in bounded time, then the steering goes all the same.
 */
#define EXIT_TRIES 100

static bool lock_at_exit(struct lock *l)
{
	for (int i = 0; i < EXIT_TRIES && !lock_mine(l); i++) {
		if (lock_try(l))
			return true;
		usleep(1000);
	}
	return false;
}

void stacks_stop(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = stacks[i];
		bool locked = lock_at_exit(&st->lock);
		/* Its counters stay: they are part of what the process leaves in the module's sums. */
		struct ring *ring = stack_shut(st);

		if (ring)
			ring->ops->leave(ring);
		if (locked)
			lock_drop(&st->lock);
	}
}

void stacks_forked(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	pthread_mutex_init(&open_lock, NULL);
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = stacks[i];

		/* Its queues are the parent's; our references would keep them alive when the parent has died. */
		if (st->open)
			st->ring->ops->close(st->ring);
		stacks[i] = NULL;
	}
	num_stacks = 0;
	drain_timer = sync_timer = upkeep_timer = -1;
	memset(refused, 0, sizeof(refused));
	stack_owners_forked();
	stack_rights_forked();
	atomic_fetch_add_explicit(&generation, 1, memory_order_release);
}
