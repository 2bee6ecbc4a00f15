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
	struct listener_look look;
	uint64_t end_us;
};

/* False: it is over. The kernel takes its clients no more: nobody listens, or the queue is full. */
static bool goes_on(const struct listener_look *l)
{
	struct tcp_sock *s = l->s;
	struct implant *im;
	unsigned left = 0;

	if (tcp_sock_first_client(s) &&
	    !implant_open(atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), &im)) {
		left = listener_give_queued(s, im);
		implant_close(im);
	}
	return !left && tcp_sock_clients(s) && tcp_sock_now_us() < ((const struct last *)l)->end_us;
}

static void end(struct listener_look *l)
{
	tcp_sock_claim_over(l->s);
	tcp_sock_listener_end(l->s);
	free(l);
}

static struct listener_looks lasts = {.goes_on = goes_on, .end = end};

bool listener_last_any(void)
{
	return listener_looks_any(&lasts);
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
	l->look.s = own;
	l->end_us = tcp_sock_now_us() + END_US;
	listener_looks_add(&lasts, &l->look);
}

bool listener_last_look(void)
{
	return listener_looks_look(&lasts);
}

void listener_last_forked(void)
{
	for (const struct listener_look *l = listener_looks_forked(&lasts); l; l = l->next)
		own_fd_close(atomic_load_explicit(&l->s->v.os_fd, memory_order_relaxed));
}
