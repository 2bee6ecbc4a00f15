/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mem/buf.h"

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
