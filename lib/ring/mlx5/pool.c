/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void pool_put(struct buf_pool *pool, struct buf *b)
{
	struct mlx5_pool *p = (struct mlx5_pool *)pool;

	b->next = p->free;
	p->free = b;
	p->num_free++;
}

/* Of the headers [first, first + n), with chunks of so many bytes from base on. */
static void pool_init(struct mlx5_memory *m, struct mlx5_pool *p, uint32_t first, uint32_t n,
		      uint8_t *base, uint32_t chunk)
{
	p->pool.free = pool_put;
	p->num = n;
	for (uint32_t i = first + n; i-- > first;) {
		struct buf *b = &m->bufs[i];

		*b = (struct buf){
			.addr = (uint64_t)(uintptr_t)(base + (size_t)(i - first) * chunk),
			.pool = &p->pool,
			.room = chunk,
		};
		pool_put(&p->pool, b);
	}
}

int memory_init_two(struct mlx5_memory *m, enum pages_type type, uint32_t rx_chunk, uint32_t num_rx,
		    uint32_t tx_chunk, uint32_t num_tx)
{
	size_t n = (size_t)num_rx + num_tx;

	memset(m, 0, sizeof(*m));
	m->chunk = tx_chunk;
	m->rx_chunk = rx_chunk;
	m->bytes = (size_t)num_rx * rx_chunk + (size_t)num_tx * tx_chunk + MEMORY_SPILL;
	m->base = pages_map(type, &m->bytes);
	if (!m->base)
		return -errno;
	m->spill = m->base + (size_t)num_rx * rx_chunk + (size_t)num_tx * tx_chunk;
	m->bufs = aligned_alloc(64, (n * sizeof(*m->bufs) + 63) & ~(size_t)63);
	if (!m->bufs) {
		memory_fini(m);
		return -ENOMEM;
	}
	pool_init(m, &m->rx, 0, num_rx, m->base, rx_chunk);
	pool_init(m, &m->tx, num_rx, num_tx, m->base + (size_t)num_rx * rx_chunk, tx_chunk);
	return 0;
}

void memory_fini(struct mlx5_memory *m)
{
	if (m->base)
		pages_unmap(m->base, m->bytes);
	free(m->bufs);
	memset(m, 0, sizeof(*m));
}
