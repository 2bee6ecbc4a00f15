/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The UMEM: chunks of 4 KiB that the kernel's and our descriptors name by offset, one struct buf for each, and
 * two stacks of free chunks (receive, transmit). Everything here needs the lock of the stack that owns the ring.
 */
#ifndef RING_XDP_UMEM_H
#define RING_XDP_UMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/buf.h"
#include "mem/pages.h"

#define UMEM_CHUNK_SHIFT 12
#define UMEM_CHUNK (1u << UMEM_CHUNK_SHIFT)
#define UMEM_RX_CHUNKS 2048u
#define UMEM_TX_CHUNKS 1024u
#define UMEM_CHUNKS (UMEM_RX_CHUNKS + UMEM_TX_CHUNKS)

/* Free chunks, the one freed last first: its lines are still in the cache. */
struct chunk_stack {
	uint32_t num;
	uint32_t max;
	uint32_t *index;
};

struct umem {
	struct buf_pool pool; /* first: pool->free finds the umem */
	uint8_t *base;
	struct buf *bufs; /* [UMEM_CHUNKS] */
	struct chunk_stack rx_free, tx_free;
	size_t bytes;
};

/* Chunks [0, UMEM_RX_CHUNKS) are for receiving, the others for transmitting. 0 or negative errno. */
int umem_init(struct umem *u, enum pages_type type);
void umem_fini(struct umem *u);

/* False when all chunks are there already: a chunk was given back twice. */
static inline bool chunk_push(struct chunk_stack *s, uint32_t index)
{
	if (__builtin_expect(s->num == s->max, 0))
		return false;
	s->index[s->num++] = index;
	return true;
}

static inline bool chunk_pop(struct chunk_stack *s, uint32_t *index)
{
	if (s->num == 0)
		return false;
	*index = s->index[--s->num];
	return true;
}

static inline void umem_chunk_free(struct umem *u, uint32_t index)
{
	chunk_push(index < UMEM_RX_CHUNKS ? &u->rx_free : &u->tx_free, index);
}

/* The buffer that a descriptor of the kernel names, or NULL when [addr, addr + len) does not lie in one chunk of ours. */
static inline struct buf *umem_desc_buf(const struct umem *u, uint64_t addr, uint32_t len)
{
	uint64_t index = addr >> UMEM_CHUNK_SHIFT;

	if (__builtin_expect(index >= UMEM_CHUNKS || (addr & (UMEM_CHUNK - 1)) + len > UMEM_CHUNK,
			     0))
		return NULL;
	return &u->bufs[index];
}

#endif
