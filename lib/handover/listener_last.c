/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Handshakes that are under way when a process closes a listener that others have, too. close()
 * does not wait for them: they go on at a listener that no program has, and who comes of them
 * enters the kernel's queue, where the others accept. The end of the process waits for them, for a
 * while.
 */
#include <stdlib.h>

#include "handover/listener.h"

/* Our SYN|ACK has been sent again after one second by then, and the answer has had two. */
#define END_US 3000000u

struct last {
	struct last *next;
	struct tcp_sock *s;
	uint64_t end_us;
};

static struct last *lasts;
static struct lock lasts_lock;
static _Atomic unsigned num_lasts;

bool listener_last_any(void)
{
	return atomic_load_explicit(&num_lasts, memory_order_relaxed) != 0;
}

void listener_last_begin(struct tcp_sock *s)
{
	struct last *l;
	struct tcp_sock *own;

	if (!tcp_sock_clients(s))
		return;
	l = malloc(sizeof(*l));
	own = l ? tcp_sock_listener_split(s) : NULL;
	if (!own) {
		free(l);
		return;
	}
	l->s = own;
	l->end_us = tcp_sock_now_us() + END_US;
	lock_take(&lasts_lock);
	l->next = lasts;
	lasts = l;
	lock_drop(&lasts_lock);
	atomic_fetch_add(&num_lasts, 1);
	stacks_used();
}

/* False: it is over. The kernel takes its clients no more: nobody listens, or the queue is full. */
static bool goes_on(struct tcp_sock *s, uint64_t end_us)
{
	struct implant *im;
	unsigned left = 0;

	if (tcp_sock_first_client(s) &&
	    !implant_open(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), &im)) {
		left = listener_give_queued(s, im);
		implant_close(im);
	}
	return !left && tcp_sock_clients(s) && tcp_sock_now_us() < end_us;
}

/* The first one that is over, taken out of the list. NULL: none is. */
static struct last *take_over(void)
{
	struct last **at = &lasts, *l;

	/* Others add at the head only. */
	lock_take(&lasts_lock);
	l = *at;
	lock_drop(&lasts_lock);
	while (l && goes_on(l->s, l->end_us))
		l = l->next;
	if (!l)
		return NULL;
	lock_take(&lasts_lock);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	lock_drop(&lasts_lock);
	return l;
}

bool listener_last_look(void)
{
	struct last *l;

	while (listener_last_any() && (l = take_over())) {
		tcp_sock_claim_over(l->s);
		tcp_sock_listener_end(l->s);
		free(l);
		atomic_fetch_sub(&num_lasts, 1);
	}
	return listener_last_any();
}

void listener_last_forked(void)
{
	atomic_store(&lasts_lock.owner, 0);
	atomic_store(&num_lasts, 0);
	for (struct last *l = lasts; l; l = l->next)
		own_fd_close(atomic_load_explicit(&l->s->v.os_fd, memory_order_relaxed));
	lasts = NULL;
}
