/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Handshakes that are under way when a program asks for SIGIO of a listener: new clients are the
 * kernel's, and these end in the engine. Who comes of them enters the kernel's queue, for which the
 * kernel signals. Who cannot is accepted from here, without a signal.
 */
#include <errno.h>
#include <stdlib.h>

#include "handover/listener.h"

struct late {
	struct late *next;
	struct tcp_sock *s;
	uint32_t gen; /* another one: it has been closed */
};

static struct late *lates;
static struct lock lates_lock;
static _Atomic unsigned num_lates;

bool listener_late_any(void)
{
	return atomic_load_explicit(&num_lates, memory_order_relaxed) != 0;
}

void listener_late_begin(struct tcp_sock *s)
{
	struct late *l = tcp_sock_clients(s) ? malloc(sizeof(*l)) : NULL;

	if (!l)
		return;
	l->s = s;
	l->gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	lock_take(&lates_lock);
	l->next = lates;
	lates = l;
	lock_drop(&lates_lock);
	atomic_fetch_add(&num_lates, 1);
	stacks_used();
}

/* False: none is under way any more, or this kernel takes none. */
static bool goes_on(const struct late *l)
{
	struct implant *im;
	int err;

	if (atomic_load_explicit(&l->s->gen, memory_order_relaxed) != l->gen)
		return false;
	if (tcp_sock_first_client(l->s)) {
		err = implant_open(atomic_load_explicit(&l->s->v.os_fd, memory_order_relaxed), &im);
		if (err)
			return err == -EBUSY; /* the next look is soon enough */
		(void)listener_give_queued(l->s, im);
		implant_close(im);
	}
	return tcp_sock_clients(l->s) != 0;
}

/* The first one that is over, taken out of the list. NULL: none is. */
static struct late *take_over(void)
{
	struct late **at = &lates, *l;

	/* Others add at the head only. */
	lock_take(&lates_lock);
	l = *at;
	lock_drop(&lates_lock);
	while (l && goes_on(l))
		l = l->next;
	if (!l)
		return NULL;
	lock_take(&lates_lock);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	lock_drop(&lates_lock);
	return l;
}

void listener_late_look(void)
{
	struct late *l;

	while (listener_late_any() && (l = take_over())) {
		free(l);
		atomic_fetch_sub(&num_lates, 1);
	}
}

void listener_late_forked(void)
{
	atomic_store(&lates_lock.owner, 0);
	atomic_store(&num_lates, 0);
	lates = NULL;
}
