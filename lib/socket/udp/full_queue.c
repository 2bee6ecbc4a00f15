/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sockets whose program was told (EAGAIN) that the send queue of their ring is full: until there is
 * room they cannot be written to, and who waits for that is woken, as with the kernel's sockets.
 * The internal thread looks.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "runtime/runtime.h"
#include "socket/udp/internal.h"

/* By refused_next. Objects are type-stable: who is closed meanwhile is looked at once more. */
static struct udp_sock *_Atomic refused;

/* Stacks that one look has found full: the device of each is made to work once. */
struct full {
	unsigned num;
	const struct stack *st[STACKS_MAX];
};

/* s->tx_refused is the caller's doing: nobody else enters s. */
static void enter(struct udp_sock *s)
{
	struct udp_sock *first = atomic_load(&refused);

	do {
		s->refused_next = first;
	} while (!atomic_compare_exchange_weak(&refused, &first, s));
}

/*
 * The device is made to work. True, too, where there is no ring to wait for any more. (What has
 * room for a frame may have none for a burst: who sends one tries again each time.)
 */
static bool make_room(struct stack *st)
{
	struct ring *ring = NULL;
	struct buf *b = NULL;

	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed)) {
		ring = st->ring;
		b = ring->ops->tx_full(ring) ? NULL : ring_tx_alloc(ring, ring->caps.max_frame);
	}
	if (b)
		buf_free(b);
	lock_drop(&st->lock);
	if (!ring || b)
		return true;
	/* Nothing leaves by an interface that is down: the next send is told. */
	return ring_kick(ring) == -ENETDOWN;
}

static bool has_room(const struct udp_sock *s, struct full *full)
{
	struct stack *st = atomic_load_explicit(&s->refused_by, memory_order_relaxed);

	if (!st || atomic_load_explicit(&s->in_kernel, memory_order_relaxed))
		return true;
	for (unsigned i = 0; i < full->num; i++) {
		if (full->st[i] == st)
			return false;
	}
	if (make_room(st))
		return true;
	if (full->num < STACKS_MAX)
		full->st[full->num++] = st;
	return false;
}

/* struct look_timer.look */
static bool look(void)
{
	struct udp_sock *s = atomic_exchange(&refused, NULL), *next;
	struct full full = {.num = 0};
	bool more = false;

	for (; s; s = next) {
		next = s->refused_next;
		if (!has_room(s, &full)) {
			enter(s);
			more = true;
			continue;
		}
		/* Out of the list before the flag is: from then on it may be entered again. */
		atomic_store(&s->tx_refused, false);
		vfd_notify(&s->v, EPOLLOUT | EPOLLWRNORM);
	}
	return more;
}

static struct look_timer timer = LOOK_TIMER(look, "full send queues", 1, 1);

void udp_tx_refused(struct udp_sock *s)
{
	/* Else nobody would look. */
	if (!look_timer_runs(&timer))
		return;
	/* A handler in between might wait for what is not entered yet, or never return. */
	lock_enter();
	if (!atomic_exchange(&s->tx_refused, true)) {
		enter(s);
		look_timer_go(&timer);
	}
	lock_leave();
}

void udp_full_queues_start(void)
{
	int err = look_timer_start(&timer);

	if (err)
		log_warn("a full send queue cannot be waited for: %s", strerror(-err));
}

void udp_full_queues_forked(void)
{
	look_timer_forked(&timer);
	atomic_store(&refused, NULL);
}
