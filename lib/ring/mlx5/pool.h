/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring's buffers: two pools of chunks in one region that the device may read and write. The
 * stack's lock is needed.
 */
#ifndef RING_MLX5_POOL_H
#define RING_MLX5_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"

struct mlx5_pool {
	struct buf_pool pool; /* first: pool->free finds us */
	struct buf *free; /* the one freed last first: its lines are still in the cache */
	uint32_t num_free, num;
};

#define MEMORY_SPILL 16384u /* more than the MTU of any card's port */

struct mlx5_memory {
	uint8_t *base;
	uint8_t *spill; /* MEMORY_SPILL bytes behind all chunks (queue.h) */
	size_t bytes;
	struct buf *bufs;
	uint32_t chunk, rx_chunk; /* bytes of each of the two */
	struct mlx5_pool rx, tx;
};

/*
 * So many chunks of so many bytes (multiples of 64). Behind the last one 64 more bytes may be read.
 * The receive chunks are one behind the other. 0 or negative errno.
 */
int memory_init_two(struct mlx5_memory *m, enum pages_type type, uint32_t rx_chunk, uint32_t num_rx,
		    uint32_t tx_chunk, uint32_t num_tx);
void memory_fini(struct mlx5_memory *m);

/* The same where all are alike. */
static inline int memory_init(struct mlx5_memory *m, enum pages_type type, uint32_t chunk,
			      uint32_t num_rx, uint32_t num_tx)
{
	return memory_init_two(m, type, chunk, num_rx, chunk, num_tx);
}

/*
 * A buffer with one reference and its chunk empty, or NULL. Its data is where the chunk starts:
 * buf.addr.
 */
static inline struct buf *pool_get(struct mlx5_pool *p, uint32_t room)
{
	struct buf *b = p->free;

	if (__builtin_expect(!b, 0))
		return NULL;
	p->free = b->next;
	p->num_free--;
	b->frag = NULL;
	b->data = (uint8_t *)(uintptr_t)b->addr;
	b->room = room;
	b->refs = 1;
	b->flags = 0;
	b->gso_size = 0;
	b->gso_count = 0;
	return b;
}

/*
 * The same for receiving: room, and what is 0, no user of a received frame changes; the queue sets
 * the rest.
 */
static inline struct buf *pool_get_rx(struct mlx5_pool *p)
{
	struct buf *b = p->free;

	if (__builtin_expect(!b, 0))
		return NULL;
	p->free = b->next;
	p->num_free--;
	b->frag = NULL;
	b->data = (uint8_t *)(uintptr_t)b->addr;
	b->refs = 1;
	return b;
}

#endif
