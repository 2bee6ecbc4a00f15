/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A pool, its rings, a survivor and members that die. The kernel's side of the rings is the test.
 * Included after cmocka.h.
 */
#ifndef UNIT_POOL_WORLD_H
#define UNIT_POOL_WORLD_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring_fake.h"

#define RING 512u
#define DOOMED 1u
#define MEMBERS 24u

/* What both processes and the kernel see of the rings. */
struct common {
	uint32_t index[4 + 4 * MEMBERS]; /* producer and consumer of fill, comp, and each one's rx
					    and tx */
	uint32_t fill_flags, tx_flags; /* nobody is to be woken */
	uint64_t fill[4096], comp[2048];
	struct xdp_desc rx[MEMBERS][RING], tx[MEMBERS][RING];
};

struct world {
	struct common *c;
	struct xdp_ring *x; /* the survivor */
	struct ring_port port;
	int pool_fd, umem_fd;
};

static inline struct xdp_ring *ring_new(struct world *w, unsigned row)
{
	struct xdp_ring *x = calloc(1, sizeof(*x) + sizeof(struct xsk));
	struct common *c = w->c;
	struct xsk *s = x->xsk;

	x->num_queues = 1;
	x->port = &w->port;
	x->row = row;
	x->ring.caps.max_frame = 1514;
	s->fd = -1;
	s->refill_at = 32;
	fake_side(&s->fill, &c->index[0], c->fill, 4096);
	fake_side(&s->comp, &c->index[2], c->comp, 2048);
	fake_side(&s->rx, &c->index[4 + 4 * row], c->rx[row], RING);
	fake_side(&s->tx, &c->index[6 + 4 * row], c->tx[row], RING);
	s->fill.flags = &c->fill_flags;
	s->tx.flags = &c->tx_flags;
	return x;
}

static inline int pool_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	libc_load();
	w->c = mmap(NULL, sizeof(*w->c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(w->c, MAP_FAILED);
	w->x = ring_new(w, 0);
	assert_int_equal(pool_make(w->x, &w->pool_fd, &w->umem_fd), 0);
	w->x->pool->num_members = 2;
	w->x->xsk->missing = w->x->xsk->supply = POOL_RX_CHUNKS;
	rx_init(w->x, 1000);
	*state = w;
	return 0;
}

static inline int pool_teardown(void **state)
{
	struct world *w = *state;

	umem_fini(&w->x->umem);
	pool_unmap(w->x->pool);
	free(w->x);
	munmap(w->c, sizeof(*w->c));
	free(w);
	return 0;
}

/* A further member. */
static inline struct xdp_ring *member_new(struct world *w, unsigned row)
{
	struct xdp_ring *x = ring_new(w, row);
	size_t bytes = (size_t)POOL_CHUNKS * UMEM_CHUNK;

	x->pool = pool_map(w->pool_fd);
	if (!x->pool || umem_enter(&x->umem, pages_map_fd(w->umem_fd, bytes), bytes, POOL_RX_CHUNKS,
				   POOL_CHUNKS))
		_exit(1);
	x->umem.owner = x->pool->owner;
	x->umem.me = OWNER_OF(row);
	x->joined = true;
	rx_init(x, 1000);
	return x;
}

static inline void member_end(struct xdp_ring *x)
{
	umem_fini(&x->umem);
	pool_unmap(x->pool);
	free(x);
}

static inline uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void add(uint32_t *p)
{
	__atomic_store_n(p, *p + 1, __ATOMIC_RELEASE);
}

/* What the member has posted is sent. */
static inline void kernel_sends(struct common *c, unsigned row)
{
	uint32_t *tx = &c->index[6 + 4 * row];

	while (load(&tx[0]) != tx[1] && c->index[2] - load(&c->index[3]) < 2048) {
		c->comp[c->index[2] % 2048] = c->tx[row][tx[1] % RING].addr;
		add(&tx[1]);
		add(&c->index[2]);
	}
}

/* A frame comes for the member, and one of its frames leaves. */
static inline void kernel_step(struct common *c)
{
	uint32_t *rx = &c->index[4 + 4 * DOOMED], *tx = rx + 2;

	if (load(&c->index[0]) != c->index[1] && rx[0] - load(&rx[1]) < RING) {
		c->rx[DOOMED][rx[0] % RING] =
			(struct xdp_desc){.addr = c->fill[c->index[1] % 4096] + 256, .len = 100};
		add(&c->index[1]);
		add(&rx[0]);
	}
	if (load(&tx[0]) != tx[1] && c->index[2] - load(&c->index[3]) < 2048) {
		c->comp[c->index[2] % 2048] = c->tx[DOOMED][tx[1] % RING].addr;
		add(&tx[1]);
		add(&c->index[2]);
	}
}

/* x buries the doomed one, but does not look after what is its own then. */
static inline void bury_by(struct world *w, struct xdp_ring *x)
{
	struct xsk_ring rx, tx;
	uint32_t *index = &w->c->index[4 + 4 * DOOMED];

	fake_side(&rx, index, w->c->rx[DOOMED], RING);
	fake_side(&tx, index + 2, w->c->tx[DOOMED], RING);
	rx.map = tx.map = w->c;
	pool_bury(x, DOOMED, &rx, &tx);
}

static inline void bury(struct world *w)
{
	bury_by(w, w->x);
	pool_reclaim(w->x);
	memset(&w->c->index[4 + 4 * DOOMED], 0, 4 * sizeof(uint32_t));
}

/* In how many places each chunk is that nobody uses. */
static inline void chunk_places(const struct world *w, uint32_t seen[POOL_CHUNKS])
{
	const struct pool *p = w->x->pool;
	const struct common *c = w->c;

	memset(seen, 0, POOL_CHUNKS * sizeof(*seen));
	for (uint32_t at = c->index[1]; at != c->index[0]; at++)
		seen[c->fill[at % 4096] / UMEM_CHUNK]++;
	for (uint32_t i = 0; i < p->tx_num; i++)
		seen[p->tx_free[i]]++;
	for (uint32_t i = 0; i < w->x->umem.tx_free.num; i++)
		seen[w->x->umem.tx_free.index[i]]++;
}

/* How many are not in one. */
static inline unsigned chunks_misplaced(const struct world *w)
{
	uint32_t seen[POOL_CHUNKS];
	unsigned wrong = 0;

	chunk_places(w, seen);
	for (uint32_t i = 0; i < POOL_CHUNKS; i++) {
		if (seen[i] == 1)
			continue;
		wrong++;
		print_error("chunk %u is in %u places, owner %#x\n", i, seen[i],
			    w->x->pool->owner[i]);
	}
	return wrong;
}

static inline void each_chunk_is_in_one_place(const struct world *w)
{
	assert_int_equal(chunks_misplaced(w), 0);
}

#endif
