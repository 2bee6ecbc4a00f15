/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A listener for which nobody had waited before the fork(): each process that waits for it has a
 * part of the clients (AF_XDP), or the first one has all. Who finds it busy goes to the kernel's
 * queue, where the others wait: after AWAY_US, or after LATE_US where it waits for the listener and
 * does not accept. In the first case it has its part by turns from then on (enum tcp_sock_part),
 * until it seems to come back soon.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "handover/listener.h"

/* A client that has waited so long for this process goes to whoever accepts first. */
#define LATE_US 200000
/* ... of one that is in no call for it. */
#define AWAY_US 10000
/* ... where a set has it: an event loop comes back, and serves many until then. */
#define AWAY_SET_US 100000
/* Clients after which a process that has its part by turns is trusted again; then 4 times as many.
 */
#define TURNS 64u
#define TURNS_MAX (1u << 20)
#define RETRY_US 1000000
#define LOOK_MS 4
/* Programming the timer anew costs more than so many looks. */
#define LOOKS_IN_VAIN 50
#define LOOKS_MAX 64

void listener_enlist(const struct claim_ref *r)
{
	uint64_t self = (uint64_t)r->gen << 32 | (uint32_t)getpid();

	for (unsigned i = 0; i < CLAIM_WAITERS; i++) {
		_Atomic uint64_t *at = &r->claims->waiters[r->id][i];
		uint64_t w = atomic_load(at);

		if (w == self)
			return;
		if (claim_gen(w) == r->gen && (int32_t)w && !claim_has_ended((int32_t)w))
			continue;
		if (atomic_compare_exchange_strong(at, &w, self))
			return;
	}
}

static bool others_wait(const struct claim_ref *r)
{
	for (unsigned i = 0; i < CLAIM_WAITERS; i++) {
		uint64_t w = atomic_load(&r->claims->waiters[r->id][i]);

		if (claim_gen(w) == r->gen && (int32_t)w && (int32_t)w != getpid() &&
		    !claim_has_ended((int32_t)w))
			return true;
	}
	return false;
}

/* While clients wait: the internal thread's ticks are too far apart for one whose process is busy.
 */
static struct look_timer timer =
	LOOK_TIMER(tcp_sock_listeners_look, "clients that wait", LOOK_MS, LOOKS_IN_VAIN);

static void start_looking(void)
{
	int err = look_timer_start(&timer);

	if (err)
		log_error("no timer for clients that wait for accept(), who wait longer "
			  "therefore: %s",
			  strerror(-err));
}

void listener_parts_forked(void)
{
	look_timer_forked(&timer);
}

void tcp_sock_listener_waits(struct tcp_sock *s)
{
	struct inherited_listener *l;
	struct claim_ref own;
	int cancel = tcp_sock_lock(s);
	/* Who has forked before it waited: its children may wait, too. */
	bool forked = !s->unconn.inherited && tcp_sock_own_claim(s, &own);

	if (!listener_listens(s)) {
		tcp_sock_unlock(s, cancel);
		return;
	}
	lock_take(&listeners_lock);
	l = forked ? listener_entry(s) : *listener_find(s);
	if (l && forked)
		l->shared = own;
	if (l && l->shared.claims && !l->waits) {
		listener_enlist(&l->shared);
		l->waits = s->unconn.is_joint = true;
		atomic_fetch_add(&listeners_shared, 1);
	}
	lock_drop(&listeners_lock);
	tcp_sock_unlock(s, cancel);
	if (atomic_load_explicit(&listeners_shared, memory_order_relaxed))
		start_looking();
}

/* As long as the kernel takes them: what it does not waits for this process. */
static void give_late(struct tcp_sock *s, struct implant *im)
{
	int fds[GIVEN_MAX], err = 0;
	unsigned n = 0;

	while (n < GIVEN_MAX && err != -EAGAIN && err != -ECONNABORTED &&
	       listener_kernel_has_room(s))
		err = listener_take_first(s, im, fds, &n);
	listener_keep(s, fds, n);
}

/* What waits for accept() waits for all who have s. False: it cannot be done soon. */
static bool hand_out(struct tcp_sock *s)
{
	struct implant *im;
	int err;

	if (!listener_kernel_has_room(s))
		return false;
	err = implant_open(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), &im);
	if (err)
		return err == -EBUSY; /* the next look is soon enough */
	give_late(s, im);
	implant_close(im);
	return true;
}

/*
 * LOOKS_MAX at most of those that wait, after the first *at of them, which becomes where it ends:
 * how many.
 */
static unsigned some_that_wait(struct tcp_sock *some[], unsigned *at)
{
	unsigned n = 0, from = *at;

	*at = 0;
	if (!atomic_load_explicit(&listeners_shared, memory_order_relaxed))
		return 0;
	lock_take(&listeners_lock);
	for (const struct inherited_listener *l = listeners; l && n < LOOKS_MAX; l = l->next) {
		if (l->waits && (*at)++ >= from)
			some[n++] = l->s;
	}
	lock_drop(&listeners_lock);
	return n;
}

/* True: a listener of this process is away, and one of its sets may have it. */
static bool step_in_by_set(struct vfd *set)
{
	struct tcp_sock *some[LOOKS_MAX];
	unsigned at = 0, n = some_that_wait(some, &at);
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		if (tcp_sock_part(some[i]) != TCP_SOCK_PART_NONE)
			continue;
		any = true;
		if (set && vfd_is_in_set(&some[i]->v, set))
			some[i]->v.ops->waited(&some[i]->v);
	}
	return any;
}

/* vfd_set_waits */
static void set_waits(struct vfd *set)
{
	if (step_in_by_set(set))
		return;
	atomic_store(&vfd_set_waits, NULL);
	/* One that has stepped out before that. */
	if (step_in_by_set(NULL))
		atomic_store(&vfd_set_waits, set_waits);
}

static void step_out(struct tcp_sock *s)
{
	tcp_sock_listener_step_out(s);
	if (tcp_sock_part(s) == TCP_SOCK_PART_NONE)
		atomic_store(&vfd_set_waits, set_waits);
}

enum lateness { NOT_LATE, LATE, AWAY };

/* No thread of the program is in a call that waits for l->s, nor was one since l->called_us. */
static bool is_away(struct inherited_listener *l, uint64_t now_us)
{
	uint32_t calls = atomic_load_explicit(&l->s->unconn.calls, memory_order_relaxed);
	bool waits = vfd_is_waited_for(&l->s->v, &calls);

	if (calls == l->calls && !waits)
		return true;
	l->calls = calls;
	l->called_us = now_us;
	return false;
}

/* l->first waits since l->first_us; first_us may be to come, after a vain attempt. */
static enum lateness lateness(struct inherited_listener *l, uint64_t now_us)
{
	bool away = is_away(l, now_us);
	bool in_set = atomic_load_explicit(&l->s->v.watches, memory_order_relaxed) != NULL;
	int64_t waits = (int64_t)(now_us - l->first_us), limit = in_set ? AWAY_SET_US : AWAY_US;

	if (waits < 0 || !others_wait(&l->shared))
		return NOT_LATE;
	if (away &&
	    atomic_load_explicit(&l->s->unconn.part, memory_order_relaxed) == TCP_SOCK_PART_NONE)
		return AWAY;
	if (away && waits >= limit && (int64_t)(now_us - l->called_us) >= limit)
		return AWAY;
	return waits >= LATE_US ? LATE : NOT_LATE;
}

/* Whether first has waited for too long, and there is somebody else who may take it. */
static enum lateness how_late(const struct tcp_sock *s, const void *first, uint64_t now_us)
{
	struct inherited_listener *l;
	enum lateness late = NOT_LATE;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l && l->first != first) {
		l->first = first;
		l->first_us = now_us;
	}
	if (l && first)
		late = lateness(l, now_us);
	lock_drop(&listeners_lock);
	return late;
}

/* A client of s waited in vain: s has its part by turns, for longer each time. */
static void note_away(const struct tcp_sock *s)
{
	struct inherited_listener *l;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l && !l->turns_left) {
		l->turns = !l->turns ? TURNS : l->turns < TURNS_MAX ? 4 * l->turns : l->turns;
		l->turns_left = l->turns;
	}
	lock_drop(&listeners_lock);
}

static void note_tried(const struct tcp_sock *s, bool done, uint64_t now_us)
{
	struct inherited_listener *l;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	if (l && done)
		l->first = NULL; /* the next one may have its memory */
	else if (l)
		l->first_us = now_us + RETRY_US;
	lock_drop(&listeners_lock);
}

/* True: a client waits. */
static bool look_for_late(struct tcp_sock *s)
{
	uint64_t now = tcp_sock_now_us();
	enum lateness late;
	const void *first;

	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN)
		return false;
	first = tcp_sock_first_client(s);
	late = how_late(s, first, now);
	if (late == AWAY) {
		note_away(s);
		step_out(s);
	}
	if (late != NOT_LATE)
		note_tried(s, hand_out(s), now);
	return first != NULL;
}

bool tcp_sock_listeners_look(void)
{
	static unsigned at; /* where the last look ended; the internal thread's */
	struct tcp_sock *some[LOOKS_MAX];
	unsigned n = some_that_wait(some, &at);
	bool any = n == LOOKS_MAX;

	if (n < LOOKS_MAX)
		at = 0;
	for (unsigned i = 0; i < n; i++)
		any |= look_for_late(some[i]);
	return any;
}

void tcp_sock_listeners_tick(void)
{
	(void)tcp_sock_listeners_look();
	(void)listener_last_look();
	listener_late_look();
}

void tcp_sock_listeners_client(void)
{
	if (atomic_load_explicit(&listeners_shared, memory_order_relaxed))
		look_timer_go(&timer); /* no lock of handovers is taken */
}

/* True: it seems to come back soon enough to have its part always. */
static bool turn_ends(const struct tcp_sock *s)
{
	struct inherited_listener *l;
	bool stays;

	lock_take(&listeners_lock);
	l = *listener_find(s);
	stays = !l || !l->turns_left || !--l->turns_left;
	lock_drop(&listeners_lock);
	return stays;
}

void tcp_sock_listener_accepted(struct tcp_sock *s)
{
	struct tcp_sock *some[LOOKS_MAX];
	unsigned at = 0, n = some_that_wait(some, &at);

	if (turn_ends(s))
		tcp_sock_listener_stay(s);
	/* It serves its client now, and waits at no other one either. */
	for (unsigned i = 0; i < n; i++) {
		if (tcp_sock_part(some[i]) == TCP_SOCK_PART_NOW)
			step_out(some[i]);
	}
}

bool tcp_sock_listeners_rest(void)
{
	struct tcp_sock *some[LOOKS_MAX];
	unsigned at = 0, n = some_that_wait(some, &at);

	for (unsigned i = 0; i < n && n < LOOKS_MAX; i++) {
		if (tcp_sock_first_client(some[i]))
			return false;
	}
	return n < LOOKS_MAX && !listener_last_any() && !listener_late_any();
}
