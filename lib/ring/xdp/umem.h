/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The UMEM: chunks of 4 KiB that the kernel's and our descriptors name by offset, one struct buf
 * for each, and two stacks of free chunks (receive, transmit). Everything here needs the lock of
 * the stack that owns the ring.
 */
#ifndef RING_XDP_UMEM_H
#define RING_XDP_UMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"

#define UMEM_CHUNK_SHIFT 12
#define UMEM_CHUNK (1u << UMEM_CHUNK_SHIFT)
#define UMEM_RX_CHUNKS 2048u
/*
 * Of more than eight queues each has so many of its own. A card sorts packets by their flow, so a
 * burst of one comes by one queue, and what stands in the fill rings of the others is of no use to
 * it.
 */
#define UMEM_RX_QUEUE 256u
#define UMEM_TX_CHUNKS 1024u
#define UMEM_CHUNKS (UMEM_RX_CHUNKS + UMEM_TX_CHUNKS)

/* Of the first ring of an interface. */
static inline uint32_t umem_rx_chunks(unsigned queues)
{
	uint32_t n = queues * UMEM_RX_QUEUE;

	return n > UMEM_RX_CHUNKS ? n : UMEM_RX_CHUNKS;
}

/* Free chunks, the one freed last first: its lines are still in the cache. */
struct chunk_stack {
	uint32_t num;
	uint32_t max;
	uint32_t *index;
};

/* With the n chunks from `first` on, and room for max of them. 0 or -ENOMEM. */
int chunk_stack_init(struct chunk_stack *s, uint32_t first, uint32_t n, uint32_t max);

/* What each ring after the first adds to the chunks of a UMEM that several share. */
#define UMEM_RX_MORE 1024u
#define UMEM_TX_MORE 256u

struct xdp_umem {
	struct buf_pool pool; /* first: pool->free finds the umem */
	uint8_t *base;
	/*
	 * [num_chunks]; each ring has its own for all of them, and uses those of the chunks that it
	 * has. All of one is zero until the chunk is used for the first time.
	 */
	struct buf *bufs;
	/* chunks [0, num_rx) are for receiving, the others for transmitting */
	uint32_t num_rx, num_chunks;
	struct chunk_stack rx_free, tx_free;
	size_t bytes; /* of the mapping; 0: it is another ring's */
	/*
	 * [num_chunks]: whose a chunk is (OWNER_*), and how often it is posted and not yet sent. Of
	 * a chunk of ours we alone write it. In a pool's memory, where others read it when we die;
	 * of a share all rings' is the first one's.
	 */
	uint32_t *owner;
	/* our OWNER_OF(); 0: neither a pool's nor a share's, and owner matters to nobody */
	uint32_t me;
	uint32_t num_rx_first; /* of num_rx the first ring's, where several share the chunks */
	void *own_words; /* owner's memory where it is ours */
};

/* For receiving: the kernel's. For transmitting: free in the pool. */
#define OWNER_NOBODY 0u
#define OWNER_SHIFT 16
#define OWNER_POSTED 0xffffu
#define OWNER_OF(member) (((member) + 1u) << OWNER_SHIFT)
/* The dead one's: it is free when the kernel has sent it. */
#define OWNER_DEAD (0xffffu << OWNER_SHIFT)

static inline uint32_t chunk_owner(const struct xdp_umem *u, uint32_t index)
{
	return __atomic_load_n(&u->owner[index], __ATOMIC_RELAXED);
}

/* release: what was done to the chunk before counts when we are killed after it */
static inline void chunk_owner_set(struct xdp_umem *u, uint32_t index, uint32_t word)
{
	__atomic_store_n(&u->owner[index], word, __ATOMIC_RELEASE);
}

/* A chunk that is nobody's becomes that owner's. False: somebody has it. */
static inline bool chunk_owner_take(struct xdp_umem *u, uint32_t index, uint32_t word)
{
	uint32_t nobody = OWNER_NOBODY;

	return __atomic_compare_exchange_n(&u->owner[index], &nobody, word, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

/* One of the posts of a chunk is over. */
static inline void chunk_sent(struct xdp_umem *u, uint32_t index)
{
	uint32_t word = chunk_owner(u, index);

	if (word & OWNER_POSTED)
		chunk_owner_set(u, index, word - 1);
}

/* A UMEM for so many rings of so many queues; u is the first one's. 0 or negative errno. */
int umem_init(struct xdp_umem *u, enum pages_type type, unsigned rings, unsigned queues);
/*
 * Ring number k, above 0, on the first one's memory, with the chunks that are its part. 0 or
 * negative errno.
 */
int umem_join(struct xdp_umem *u, const struct xdp_umem *first, unsigned k);
/*
 * The UMEM that `base` is, for a pool's member: with none of its chunks. The owner words are the
 * pool's. 0 or negative errno, then base is the caller's.
 */
int umem_enter(struct xdp_umem *u, void *base, size_t bytes, uint32_t num_rx, uint32_t num_chunks);
/* The buffer of a chunk that we have now. */
static inline void umem_buf_take(struct xdp_umem *u, struct buf *b, uint64_t chunk)
{
	b->pool = &u->pool;
	b->addr = chunk & ~(uint64_t)(UMEM_CHUNK - 1);
}

/* The ring that transmits with chunk `index`. */
static inline unsigned umem_tx_owner(const struct xdp_umem *u, uint32_t index)
{
	uint32_t i = index - u->num_rx;

	return i < UMEM_TX_CHUNKS ? 0 : 1 + (i - UMEM_TX_CHUNKS) / UMEM_TX_MORE;
}

/*
 * The memory is others' no more: in its place is a copy of the chunks that u has, or, with a line
 * in the log, zeroes. 0; negative errno: it is still there.
 */
int umem_part(struct xdp_umem *u);
void umem_fini(struct xdp_umem *u);

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

static inline void umem_chunk_free(struct xdp_umem *u, uint32_t index)
{
	chunk_push(index < u->num_rx ? &u->rx_free : &u->tx_free, index);
}

/*
 * The buffer that a descriptor of the kernel names, or NULL when [addr, addr + len) does not lie in
 * one chunk of ours.
 */
static inline struct buf *umem_desc_buf(const struct xdp_umem *u, uint64_t addr, uint32_t len)
{
	uint64_t index = addr >> UMEM_CHUNK_SHIFT;

	if (__builtin_expect(index >= u->num_chunks || (addr & (UMEM_CHUNK - 1)) + len > UMEM_CHUNK,
			     0))
		return NULL;
	return &u->bufs[index];
}

#endif
