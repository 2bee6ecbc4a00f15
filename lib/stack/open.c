/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which stacks there are: found by interface and key, opened, shared. */
#include "stack/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "stack/owner.h"

/* An interface that refused is asked again after this time, not for every socket. */
#define RETRY_SECONDS 5
/* Of so many; of more the longest ago is asked sooner. */
#define REFUSALS_MAX 1024

pthread_mutex_t stacks_opening = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t stacks_mutex = PTHREAD_MUTEX_INITIALIZER;
_Atomic uint32_t stacks_changes;
struct lock stack_flows_lock;

static struct {
	int ifindex;
	int err; /* why */
	bool further; /* it has a ring, another one was refused */
	time_t until;
} refused[REFUSALS_MAX]; /* from the front; stacks_mutex */
static unsigned num_refused; /* places that are taken; stacks_mutex */

/* What refused interfaces were refused for: said once, until one is taken. stacks_opening */
static struct log_told refusals_told;

static time_t now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

uint32_t stacks_generation(void)
{
	return atomic_load_explicit(&stacks_changes, memory_order_acquire);
}

/* Sockets may have it; what is refused is about to go. */
static bool is_open(const struct stack *st)
{
	return atomic_load_explicit(&st->open, memory_order_acquire) && !stack_refused(st);
}

static bool has_ring(const struct stack *st)
{
	enum stack_ring state = stack_ring_state(st);

	return state == STACK_RING_THERE || state == STACK_RING_CAME;
}

/* The open stacks of an interface. Returns how many. */
static unsigned stacks_on(int ifindex, struct stack *on[STACKS_MAX])
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire), found = 0;

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (is_open(st) && st->ifindex == ifindex)
			on[found++] = st;
	}
	return found;
}

struct stack *stack_any(int ifindex)
{
	struct stack *on[STACKS_MAX];

	return stacks_on(ifindex, on) ? on[0] : NULL;
}

static struct stack *stack_find(int ifindex, uint64_t key)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (is_open(st) && st->ifindex == ifindex &&
		    atomic_load_explicit(&st->key, memory_order_relaxed) == key)
			return st;
	}
	return NULL;
}

struct stack *stack_flow_owner(int ifindex, const struct vma_flow_key *key,
			       const struct stack *mine, unsigned fewer)
{
	struct stack *on[STACKS_MAX];
	unsigned n = stacks_on(ifindex, on), users;

	for (unsigned i = 0; i < n; i++) {
		lock_take(&on[i]->lock);
		users = atomic_load_explicit(&on[i]->open, memory_order_relaxed)
				? stack_flow_users(on[i], key)
				: 0;
		lock_drop(&on[i]->lock);
		if (users > (on[i] == mine ? fewer : 0))
			return on[i];
	}
	return NULL;
}

bool stacks_any_on(int ifindex, bool (*fn)(struct stack *st, void *arg), void *arg)
{
	struct stack *on[STACKS_MAX];
	unsigned n = stacks_on(ifindex, on);
	bool yes = false;

	for (unsigned i = 0; i < n && !yes; i++) {
		lock_take(&on[i]->lock);
		yes = atomic_load_explicit(&on[i]->open, memory_order_relaxed) && fn(on[i], arg);
		lock_drop(&on[i]->lock);
	}
	return yes;
}

struct stack *stack_groups_owner(int ifindex)
{
	struct stack *on[STACKS_MAX];
	unsigned n = stacks_on(ifindex, on), flows;

	for (unsigned i = 0; i < n; i++) {
		lock_take(&on[i]->lock);
		flows = atomic_load_explicit(&on[i]->open, memory_order_relaxed)
				? on[i]->group_flows
				: 0;
		lock_drop(&on[i]->lock);
		if (flows)
			return on[i];
	}
	return NULL;
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

static _Atomic bool no_more;

void stacks_no_more(void)
{
	/* None is being opened afterwards. */
	atomic_store(&no_more, true);
	pthread_mutex_lock(&stacks_opening);
	pthread_mutex_unlock(&stacks_opening);
}

bool stack_wanted(int ifindex)
{
	struct net_link link;

	if (params.ring_type == RING_TYPE_NONE || atomic_load(&no_more) ||
	    net_link_get(ifindex, &link) || !link.up)
		return false;
	if (link.kind == NET_LINK_LOOPBACK)
		return params.offload_loopback;
	/* A slave's packets belong to the bond or bridge above it. */
	return link.kind != NET_LINK_OTHER && !link.master;
}

void stacks_set_ring_attr(void)
{
	ring_several_begin();
	atomic_store_explicit(&stacks_have_ring_attr, true, memory_order_release);
}

static bool refused_lately(int ifindex, bool further)
{
	for (unsigned i = 0; i < num_refused; i++) {
		if (refused[i].ifindex == ifindex && refused[i].further == further &&
		    refused[i].until > now_seconds())
			return true;
	}
	return false;
}

static void remember_refusal(int ifindex, bool further, int err)
{
	unsigned at = 0, oldest = 0;

	for (; at < num_refused; at++) {
		if (refused[at].ifindex == ifindex && refused[at].further == further)
			break;
		if (refused[at].until < refused[oldest].until)
			oldest = at;
	}
	if (at == REFUSALS_MAX)
		at = oldest;
	else if (at == num_refused)
		num_refused++;
	refused[at].ifindex = ifindex;
	refused[at].further = further;
	refused[at].err = err;
	refused[at].until = now_seconds() + RETRY_SECONDS;
}

int stack_last_refusal(int ifindex)
{
	int err = 0;

	pthread_mutex_lock(&stacks_mutex);
	for (unsigned i = 0; i < num_refused; i++) {
		if (refused[i].ifindex == ifindex && !refused[i].further)
			err = refused[i].err;
	}
	pthread_mutex_unlock(&stacks_mutex);
	return err;
}

void stacks_forgive(int ifindex)
{
	pthread_mutex_lock(&stacks_mutex);
	for (unsigned i = 0; i < num_refused; i++) {
		if (refused[i].ifindex == ifindex)
			refused[i].until = 0;
	}
	pthread_mutex_unlock(&stacks_mutex);
}

void stacks_refuse(int ifindex, int err)
{
	pthread_mutex_lock(&stacks_mutex);
	remember_refusal(ifindex, false, err);
	pthread_mutex_unlock(&stacks_mutex);
}

static uint64_t random_seed(void)
{
	uint64_t seed = 0;

	if (libc_raw(SYS_getrandom, (long)(uintptr_t)&seed, sizeof(seed), GRND_NONBLOCK, 0, 0, 0) !=
	    (long)sizeof(seed))
		seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)now_seconds() << 32;
	return seed;
}

void stack_udp_changed(struct stack *st)
{
	static _Atomic uint64_t last;

	atomic_store_explicit(&st->udp_gen,
			      1 + atomic_fetch_add_explicit(&last, 1, memory_order_relaxed),
			      memory_order_relaxed);
}

/* What vma_stats says of the ring. */
static void show_ring(struct stack *st)
{
	memcpy(st->stats->ifname, st->ring->ifname, sizeof(st->stats->ifname));
	snprintf(st->stats->mode, sizeof(st->stats->mode), "%s",
		 st->ring->mode ? st->ring->mode : "");
	strcpy(st->stats->type, strcmp(st->ring->ops->name, "mlx5") ? "RING_XDP" : "RING_ETH");
}

/*
 * Makes a stack on an opened ring, or (NULL) one whose ring is to come, and enters it. stacks_mutex
 * is held.
 */
static struct stack *stack_new(struct ring *ring, int ifindex, uint64_t key)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_relaxed);
	struct stack *st = NULL;
	uint64_t seed = random_seed();
	unsigned i;

	/* The place of a closed stack is taken over: its memory stays what it was, a stack. */
	for (i = 0; i < n; i++) {
		if (!atomic_load_explicit(&stacks[i]->open, memory_order_relaxed) &&
		    !stacks[i]->leaving) {
			st = stacks[i];
			break;
		}
	}
	if (!st && n < STACKS_MAX)
		st = calloc(1, sizeof(*st));
	if (!st)
		return NULL;
	if (!ring)
		ring = stack_no_ring(st, ifindex);
	lock_class(&st->lock, "stack.lock");
	lock_take(&st->lock);
	if (stack_sources_init(st, ifindex, (uint32_t)(seed >> 32))) {
		lock_drop(&st->lock);
		return NULL;
	}
	st->ifindex = ifindex;
	__atomic_store_n(&st->ring, ring, __ATOMIC_RELEASE);
	atomic_store_explicit(&st->ring_state,
			      ring == &st->no_ring ? STACK_RING_COMES : STACK_RING_THERE,
			      memory_order_relaxed);
	atomic_store_explicit(&st->key, key, memory_order_relaxed);
	/* Its former users leave by themselves. */
	if (atomic_exchange_explicit(&st->sends, false, memory_order_relaxed))
		stack_users(st, -1);
	udp_demux_init(&st->udp, seed);
	stack_udp_changed(st);
	st->stats = stats_ring_get();
	st->cq_stats = stats_cq_get();
	atomic_store_explicit(&st->named, 0, memory_order_relaxed);
	lock_drop(&st->lock);
	st->stats->ifindex = ifindex;
	show_ring(st);
	__atomic_store_n(&st->stats->enabled, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&st->cq_stats->enabled, 1, __ATOMIC_RELEASE);
	atomic_store_explicit(&st->open, true, memory_order_release);
	if (i == n) {
		atomic_store_explicit(&stacks[n], st, memory_order_relaxed);
		atomic_store_explicit(&num_stacks, n + 1, memory_order_release);
	}
	atomic_fetch_add_explicit(&stacks_changes, 1, memory_order_release);
	return st;
}

/* The ring of st, which was to come. stacks_mutex is held. */
static struct stack *stack_ring_put(struct stack *st, struct ring *ring)
{
	lock_take(&st->lock);
	__atomic_store_n(&st->ring, ring, __ATOMIC_RELEASE);
	atomic_store_explicit(&st->ring_state, STACK_RING_CAME, memory_order_release);
	show_ring(st);
	lock_drop(&st->lock);
	atomic_fetch_add_explicit(&stacks_changes, 1, memory_order_release);
	return st;
}

/* The internal thread by its packets. */
static void woken_by(struct stack *st)
{
	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed))
		stack_watch(st, "VMA_INTERNAL_THREAD_ARM_CQ=1");
	lock_drop(&st->lock);
}

/*
 * What has happened to the interface since `gen` was told while st could not be found: the internal
 * thread looks how it is now. st is open, stacks_mutex is held: see links_changed().
 */
static void look_later(struct stack *st, uint32_t gen)
{
	if (net_generation() == gen)
		return;
	atomic_store_explicit(&st->link_unseen, true, memory_order_relaxed);
	if (stack_opener_ask())
		log_debug("%s: what happened to it meanwhile is not looked at", st->ring->ifname);
}

/*
 * The stack on a ring that has just been opened, since `gen`: the one that waits for it, or a new
 * one; NULL: there is no room. stacks_mutex is held.
 */
static struct stack *stack_on_ring(struct ring *ring, int ifindex, uint64_t key, uint32_t gen)
{
	struct stack *st = stack_find(ifindex, key);

	/* Its first packets, too. */
	if (stats_capture_on())
		ring_capture_begin(ring);
	if (stacks_timers_start(ring))
		st = NULL;
	else
		st = st ? stack_ring_put(st, ring) : stack_new(ring, ifindex, key);
	if (st)
		look_later(st, gen);
	if (!st)
		ring_close(ring);
	else if (params.internal_thread_arm_cq)
		woken_by(st);
	/* It does not know of this one. */
	stacks_used_resting();
	return st;
}

/* A further ring of an interface for a key. NULL: refused. stacks_mutex is held. */
static struct stack *open_further(const struct stack *first, uint64_t key)
{
	uint32_t gen = net_generation();
	struct stack *st = NULL;
	struct ring *ring;
	int err;

	if (refused_lately(first->ifindex, true))
		return NULL;
	err = ring_open_more(first->ring, &ring);
	if (!err) {
		st = stack_on_ring(ring, first->ifindex, key, gen);
		err = st ? 0 : -ENOSPC;
	}
	if (err) {
		static _Atomic bool told;

		remember_refusal(first->ifindex, true, err);
		log_at(atomic_exchange(&told, true) ? LOG_DEBUG : LOG_WARN,
		       "%s: no further ring (%s): sockets that should have one of their own "
		       "(VMA_RING_ALLOCATION_LOGIC_*) share those that there are",
		       first->ring->ifname,
		       err == -ENOSPC ? "it has all that it can have" : strerror(-err));
	}
	return st;
}

/* For a key that has none of the n > 0 stacks of the interface. stacks_mutex is held. */
static struct stack *pick(struct stack *const on[], unsigned n, uint64_t key)
{
	struct stack_choice choice[STACKS_MAX];
	enum stack_pick how;
	struct stack *st;
	unsigned at;

	for (unsigned i = 0; i < n; i++) {
		choice[i].key = atomic_load_explicit(&on[i]->key, memory_order_relaxed);
		choice[i].users = atomic_load_explicit(&on[i]->users, memory_order_relaxed);
	}
	how = stack_pick(choice, n, (unsigned)params.ring_limit_per_interface, &at);
	if (how == STACK_PICK_IDLE)
		atomic_store(&on[at]->key, key);
	st = how == STACK_PICK_NEW ? open_further(on[0], key) : NULL;
	return st ? st : on[at];
}

/*
 * The stack for a key, if there is one with a ring, or one to share. stacks_mutex is held, and
 * stacks_opening.
 */
static struct stack *stack_there(int ifindex, uint64_t key)
{
	struct stack *on[STACKS_MAX], *st = stack_find(ifindex, key);
	unsigned n;

	if (st)
		return has_ring(st) ? st : NULL;
	n = stacks_on(ifindex, on);
	return n ? pick(on, n, key) : NULL;
}

/*
 * No stack has a place any more: the ring would be opened for nothing, and again for the next
 * socket. stacks_mutex is held.
 */
static bool is_full(int ifindex, uint64_t key)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_relaxed);
	static _Atomic bool told;

	if (n < STACKS_MAX || stack_find(ifindex, key))
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (!atomic_load_explicit(&stacks[i]->open, memory_order_relaxed) &&
		    !stacks[i]->leaving)
			return false;
	}
	remember_refusal(ifindex, false, -ENOSPC);
	if (!atomic_exchange(&told, true))
		log_warn("interface %d: the process has %d rings already: sockets of further "
			 "interfaces stay with the kernel",
			 ifindex, STACKS_MAX);
	return true;
}

/* stacks_opening is held: connect()s that do not wait go on meanwhile. */
static struct stack *stack_open(int ifindex, uint64_t key)
{
	uint32_t gen = net_generation();
	struct ring *ring;
	struct stack *st;
	bool refused;
	int err;

	pthread_mutex_lock(&stacks_mutex);
	st = stack_there(ifindex, key);
	refused = !st && (refused_lately(ifindex, false) || is_full(ifindex, key));
	pthread_mutex_unlock(&stacks_mutex);
	if (st || refused)
		return st;
	log_news_begin(&refusals_told);
	err = stack_ipsec_is_used() ? STACK_IPSEC : ring_open(ifindex, &ring);
	log_news_end();
	if (!err)
		refusals_told = (struct log_told){0};
	pthread_mutex_lock(&stacks_mutex);
	if (err)
		remember_refusal(ifindex, false, err);
	else
		st = stack_on_ring(ring, ifindex, key, gen);
	pthread_mutex_unlock(&stacks_mutex);
	if (err == -EBUSY)
		stack_owner_wait(ifindex);
	return st;
}

/* The stack for a key that is there, and has a ring or need not, used once more. NULL: none is. */
static struct stack *use(int ifindex, uint64_t key, bool (*fits)(const struct stack *st))
{
	struct stack *st = stack_find(ifindex, key);

	if (!st || !fits(st))
		return NULL;
	/* First a user, then the look: pick() does it the other way round. */
	stack_users(st, 1);
	if (stack_find(ifindex, key) == st)
		return st;
	stack_put(st);
	return NULL;
}

struct stack *stack_get(int ifindex, uint64_t key)
{
	struct stack *st = use(ifindex, key, has_ring);

	if (st || !stack_wanted(ifindex))
		return st;
	pthread_mutex_lock(&stacks_opening);
	libc_internal_begin();
	st = atomic_load(&no_more) ? NULL : stack_open(ifindex, key);
	if (st)
		stack_users(st, 1);
	libc_internal_end();
	pthread_mutex_unlock(&stacks_opening);
	return st;
}

struct stack *stack_get_soon(int ifindex, uint64_t key)
{
	struct stack *st;

	/* Who shares whose ring is known when it is open. */
	if (stacks_several())
		return stack_get(ifindex, key);
	st = use(ifindex, key, is_open);
	if (st || !stack_wanted(ifindex))
		return st;
	pthread_mutex_lock(&stacks_mutex);
	libc_internal_begin();
	st = stack_find(ifindex, key);
	if (!st && !refused_lately(ifindex, false) && !is_full(ifindex, key) && !stack_opener_ask())
		st = stack_new(NULL, ifindex, key);
	if (st)
		stack_users(st, 1);
	libc_internal_end();
	pthread_mutex_unlock(&stacks_mutex);
	return st;
}

struct stack *stack_get_sender(int ifindex, uint64_t key)
{
	struct stack *st = stack_get(ifindex, key);

	/* Nobody tells when the last sender has gone: the ring stays theirs. */
	if (st && atomic_exchange_explicit(&st->sends, true, memory_order_relaxed))
		stack_put(st);
	return st;
}

void stacks_table_forked(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_relaxed);

	atomic_store(&no_more, false);
	pthread_mutex_init(&stacks_opening, NULL);
	pthread_mutex_init(&stacks_mutex, NULL);
	atomic_store(&stack_flows_lock.owner, 0);
	for (unsigned i = 0; i < n; i++)
		stacks[i] = NULL;
	num_stacks = 0;
	num_refused = 0;
	atomic_fetch_add_explicit(&stacks_changes, 1, memory_order_release);
}
