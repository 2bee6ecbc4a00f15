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
	struct listener_look look;
	uint32_t gen; /* another one: it has been closed */
};

/* False: none is under way any more, or this kernel takes none. */
static bool goes_on(const struct listener_look *l)
{
	struct tcp_sock *s = l->s;
	struct implant *im;
	int err;

	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != ((const struct late *)l)->gen)
		return false;
	if (tcp_sock_first_client(s)) {
		err = implant_open(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), &im);
		if (err)
			return err == -EBUSY; /* the next look is soon enough */
		(void)listener_give_queued(s, im);
		implant_close(im);
	}
	return tcp_sock_clients(s) != 0;
}

static void end(struct listener_look *l)
{
	free(l);
}

static struct listener_looks lates = {.goes_on = goes_on, .end = end};

bool listener_late_any(void)
{
	return listener_looks_any(&lates);
}

void listener_late_begin(struct tcp_sock *s)
{
	struct late *l = tcp_sock_clients(s) ? malloc(sizeof(*l)) : NULL;

	if (!l)
		return;
	l->look.s = s;
	l->gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	listener_looks_add(&lates, &l->look);
}

void listener_late_look(void)
{
	(void)listener_looks_look(&lates);
}

void listener_late_forked(void)
{
	(void)listener_looks_forked(&lates);
}
