/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VMA_INTERNAL_THREAD_ARM_CQ, VMA_TCP_CTL_THREAD=1: the internal thread is woken by each packet. */
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "runtime/runtime.h"
#include "stack/internal.h"

/* Polls of one wake-up at most: the others' packets wait meanwhile. */
#define WOKEN_POLLS 8

/*
 * A packet has come. Who has the lock may only be sending, and the next packet is told of only when
 * the ring is armed: so it is waited for.
 */
static void readable(int fd, uint32_t events, void *arg)
{
	struct stack *st = arg;
	bool more = true;

	(void)fd;
	(void)events;
	lock_take(&st->lock);
	for (int i = 0; i < WOKEN_POLLS && more; i++) {
		more = atomic_load_explicit(&st->open, memory_order_relaxed);
		if (!more)
			break;
		stack_poll(st, (unsigned)params.cq_poll_batch_max);
		more = st->ring->ops->arm(st->ring);
	}
	lock_drop(&st->lock);
}

/* The ring's fds outlive their stack's end by seconds; epoll forgets them when they are closed. */
void stack_watch(struct stack *st, const char *why)
{
	int fds[STACKS_WAIT_FDS_MAX], err = 0;
	unsigned n = st->ring->ops->wait_fds(st->ring, fds, STACKS_WAIT_FDS_MAX);

	for (unsigned i = 0; i < n && !err; i++)
		err = worker_fd_add(fds[i], EPOLLIN | EPOLLET, readable, st);
	if (err)
		log_warn("%s: the internal thread cannot watch %s: %s", why, st->ring->ifname,
			 strerror(-err));
	else
		(void)st->ring->ops->arm(st->ring);
}
