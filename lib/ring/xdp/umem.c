/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/umem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/runtime.h"

static void umem_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct xdp_umem *u = (struct xdp_umem *)pool;

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
static int bufs_init(struct xdp_umem *u)
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

static int own_words_init(struct xdp_umem *u)
{
	u->own_words = calloc(u->num_chunks, sizeof(*u->owner));
	u->owner = u->own_words;
	return u->owner ? 0 : -ENOMEM;
}

int umem_init(struct xdp_umem *u, enum pages_type type, unsigned rings, unsigned queues)
{
	memset(u, 0, sizeof(*u));
	u->num_rx_first = umem_rx_chunks(queues);
	u->num_rx = u->num_rx_first + (rings - 1) * UMEM_RX_MORE;
	u->num_chunks = u->num_rx + UMEM_TX_CHUNKS + (rings - 1) * UMEM_TX_MORE;
	u->bytes = (size_t)u->num_chunks * UMEM_CHUNK;
	u->me = rings > 1 ? OWNER_OF(0) : OWNER_NOBODY;
	u->base = pages_map(type, &u->bytes);
	if (!u->base)
		return -errno;
	if (own_words_init(u) || bufs_init(u) ||
	    chunk_stack_init(&u->rx_free, 0, u->num_rx_first, u->num_rx) ||
	    chunk_stack_init(&u->tx_free, u->num_rx, UMEM_TX_CHUNKS, UMEM_TX_CHUNKS)) {
		umem_fini(u);
		return -ENOMEM;
	}
	return 0;
}

int umem_join(struct xdp_umem *u, const struct xdp_umem *first, unsigned k)
{
	uint32_t rx = first->num_rx_first + (k - 1) * UMEM_RX_MORE,
		 tx = first->num_rx + UMEM_TX_CHUNKS + (k - 1) * UMEM_TX_MORE;

	memset(u, 0, sizeof(*u));
	u->base = first->base;
	u->num_rx = first->num_rx;
	u->num_chunks = first->num_chunks;
	u->owner = first->owner;
	u->me = OWNER_OF(k);
	if (bufs_init(u) || chunk_stack_init(&u->rx_free, rx, UMEM_RX_MORE, u->num_rx) ||
	    chunk_stack_init(&u->tx_free, tx, UMEM_TX_MORE, UMEM_TX_MORE)) {
		umem_fini(u);
		return -ENOMEM;
	}
	return 0;
}

int umem_enter(struct xdp_umem *u, void *base, size_t bytes, uint32_t num_rx, uint32_t num_chunks)
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

/* Puts memory of the process's own, with what is in u's chunks, in place of the shared one. */
static int keep_own_chunks(struct xdp_umem *u)
{
	uint8_t *copy =
		mmap(NULL, u->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (copy == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; i < u->num_chunks; i++)
		if ((chunk_owner(u, i) & ~OWNER_POSTED) == u->me)
			memcpy(copy + ((size_t)i << UMEM_CHUNK_SHIFT),
			       u->base + ((size_t)i << UMEM_CHUNK_SHIFT), UMEM_CHUNK);
	err = pages_replace(u->base, u->bytes, copy);
	if (err)
		munmap(copy, u->bytes);
	return err;
}

int umem_part(struct xdp_umem *u)
{
	int err = keep_own_chunks(u);

	if (!err)
		return 0;
	log_error("ring/xdp: no copy of the packets that the program has (%s): they are zeroes now",
		  strerror(-err));
	return pages_replace(u->base, u->bytes, NULL);
}

void umem_fini(struct xdp_umem *u)
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
