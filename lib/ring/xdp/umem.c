/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/umem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void umem_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct umem *u = (struct umem *)pool;

	umem_chunk_free(u, (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT));
}

int chunk_stack_init(struct chunk_stack *s, uint32_t first, uint32_t n, uint32_t max)
{
	s->index = malloc(max * sizeof(*s->index));
	if (!s->index)
		return -ENOMEM;
	s->max = max;
	for (uint32_t i = n; i-- > 0;)
		chunk_push(s, first + i);
	return 0;
}

/*
 * Of a pool's chunks a member may never have most: the memory of their buffers is not touched
 * before.
 */
static int bufs_init(struct umem *u)
{
	size_t bytes = u->num_chunks * sizeof(*u->bufs);

	u->pool.free = umem_buf_free;
	u->bufs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (u->bufs == MAP_FAILED) {
		u->bufs = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int own_words_init(struct umem *u)
{
	u->own_words = calloc(u->num_chunks, sizeof(*u->owner));
	u->owner = u->own_words;
	return u->owner ? 0 : -ENOMEM;
}

int umem_init(struct umem *u, enum pages_type type, unsigned rings)
{
	memset(u, 0, sizeof(*u));
	u->num_rx = UMEM_RX_CHUNKS + (rings - 1) * UMEM_RX_MORE;
	u->num_chunks = u->num_rx + UMEM_TX_CHUNKS + (rings - 1) * UMEM_TX_MORE;
	u->bytes = (size_t)u->num_chunks * UMEM_CHUNK;
	u->base = pages_map(type, &u->bytes);
	if (!u->base)
		return -errno;
	if (own_words_init(u) || bufs_init(u) ||
	    chunk_stack_init(&u->rx_free, 0, UMEM_RX_CHUNKS, u->num_rx) ||
	    chunk_stack_init(&u->tx_free, u->num_rx, UMEM_TX_CHUNKS, UMEM_TX_CHUNKS)) {
		umem_fini(u);
		return -ENOMEM;
	}
	return 0;
}

int umem_join(struct umem *u, const struct umem *first, unsigned k)
{
	uint32_t rx = UMEM_RX_CHUNKS + (k - 1) * UMEM_RX_MORE,
		 tx = first->num_rx + UMEM_TX_CHUNKS + (k - 1) * UMEM_TX_MORE;

	memset(u, 0, sizeof(*u));
	u->base = first->base;
	u->num_rx = first->num_rx;
	u->num_chunks = first->num_chunks;
	if (own_words_init(u) || bufs_init(u) ||
	    chunk_stack_init(&u->rx_free, rx, UMEM_RX_MORE, u->num_rx) ||
	    chunk_stack_init(&u->tx_free, tx, UMEM_TX_MORE, UMEM_TX_MORE)) {
		umem_fini(u);
		return -ENOMEM;
	}
	return 0;
}

int umem_enter(struct umem *u, void *base, size_t bytes, uint32_t num_rx, uint32_t num_chunks)
{
	memset(u, 0, sizeof(*u));
	u->base = base;
	u->num_rx = num_rx;
	u->num_chunks = num_chunks;
	if (bufs_init(u) || chunk_stack_init(&u->rx_free, 0, 0, num_rx) ||
	    chunk_stack_init(&u->tx_free, 0, 0, num_chunks - num_rx)) {
		umem_fini(u);
		return -ENOMEM;
	}
	u->bytes = bytes;
	return 0;
}

void umem_fini(struct umem *u)
{
	if (u->bytes)
		pages_unmap(u->base, u->bytes);
	if (u->bufs)
		munmap(u->bufs, u->num_chunks * sizeof(*u->bufs));
	free(u->own_words);
	free(u->rx_free.index);
	free(u->tx_free.index);
	memset(u, 0, sizeof(*u));
}
