/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The descriptor by which the program names a ring (the Extra API). */
#include "stack/internal.h"

int stack_ring_fd(struct stack *st)
{
	int fd = -1;

	lock_take(&st->lock);
	if (!atomic_load_explicit(&st->open, memory_order_relaxed) ||
	    !st->ring->ops->wait_fds(st->ring, &fd, 1))
		fd = -1;
	/* 0 is none. */
	atomic_store_explicit(&st->named, fd + 1, memory_order_relaxed);
	lock_drop(&st->lock);
	return fd;
}

struct stack *stack_of_ring_fd(int fd)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; fd >= 0 && i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (atomic_load_explicit(&st->named, memory_order_relaxed) == fd + 1)
			return st;
	}
	return NULL;
}
