/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/umem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void umem_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct umem *u = (struct umem *)pool;

	umem_chunk_free(u, (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT));
}

static int chunk_stack_init(struct chunk_stack *s, uint32_t first, uint32_t n)
{
	s->index = malloc(n * sizeof(*s->index));
	if (!s->index)
		return -ENOMEM;
	s->max = n;
	for (uint32_t i = n; i-- > 0;)
		chunk_push(s, first + i);
	return 0;
}

int umem_init(struct umem *u, enum pages_type type)
{
	memset(u, 0, sizeof(*u));
	u->pool.free = umem_buf_free;
	u->bytes = (size_t)UMEM_CHUNKS * UMEM_CHUNK;
	u->base = pages_map(type, &u->bytes);
	if (!u->base)
		return -errno;
	u->bufs = aligned_alloc(64, (UMEM_CHUNKS * sizeof(*u->bufs) + 63) & ~63ul);
	if (!u->bufs || chunk_stack_init(&u->rx_free, 0, UMEM_RX_CHUNKS) ||
	    chunk_stack_init(&u->tx_free, UMEM_RX_CHUNKS, UMEM_TX_CHUNKS)) {
		umem_fini(u);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < UMEM_CHUNKS; i++)
		u->bufs[i] =
			(struct buf){.addr = (uint64_t)i << UMEM_CHUNK_SHIFT, .pool = &u->pool};
	return 0;
}

void umem_fini(struct umem *u)
{
	if (u->base)
		pages_unmap(u->base, u->bytes);
	free(u->bufs);
	free(u->rx_free.index);
	free(u->tx_free.index);
	memset(u, 0, sizeof(*u));
}
