/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mem/buf.h"

#include <stdatomic.h>
#include <stdlib.h>

static void heap_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	free(b);
}

static struct buf_pool heap_pool = {.free = heap_free};

struct buf *buf_heap_alloc(size_t room)
{
	struct buf *b;

	if (room > UINT32_MAX - sizeof(*b))
		return NULL;
	b = malloc(sizeof(*b) + room);
	if (!b)
		return NULL;
	*b = (struct buf){
		.data = (uint8_t *)(b + 1),
		.room = (uint32_t)room,
		.pool = &heap_pool,
		.refs = 1,
	};
	return b;
}

static _Atomic uint32_t copies;

bool buf_copy_begin(uint32_t max)
{
	uint32_t n = atomic_load_explicit(&copies, memory_order_relaxed);

	while (n < max) {
		if (atomic_compare_exchange_weak_explicit(&copies, &n, n + 1, memory_order_relaxed,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

void buf_copy_end(void)
{
	atomic_fetch_sub_explicit(&copies, 1, memory_order_relaxed);
}

uint32_t buf_copies(void)
{
	return atomic_load_explicit(&copies, memory_order_relaxed);
}

struct buf *buf_skip(struct buf *b, uint32_t n)
{
	while (b->frag && n >= b->len) {
		struct buf *frag = b->frag;

		n -= b->len;
		frag->next = b->next;
		frag->total = b->total - b->len;
		frag->time_ns = b->time_ns;
		frag->hw_ns = b->hw_ns;
		frag->flags = b->flags;
		frag->seq = b->seq;
		frag->meta = b->meta;
		frag->gso_size = b->gso_size;
		frag->gso_count = b->gso_count;
		b->frag = NULL;
		buf_free(b);
		b = frag;
	}
	b->data += n;
	b->len -= n;
	b->total -= n;
	return b;
}

void buf_cut(struct buf *b, uint32_t n)
{
	b->total = n;
	for (; b->frag && n > b->len; b = b->frag)
		n -= b->len;
	b->len = n;
	buf_free(b->frag);
	b->frag = NULL;
}
