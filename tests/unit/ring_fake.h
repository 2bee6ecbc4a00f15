/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A ring without a device. Included after cmocka.h. */
#ifndef UNIT_RING_FAKE_H
#define UNIT_RING_FAKE_H

#include <stdlib.h>

#include "ring/xdp/xdp.h"
#include "runtime/libc.h"

#define SIZE 64u /* entries of the smaller rings */

/* A ring whose other side is this test: the index words that the kernel would write are ours. */
struct fake {
	struct xdp_ring *x;
	struct xsk *s;
	uint32_t index[8]; /* producer and consumer of rx, fill, tx and comp */
	struct xdp_desc rx[SIZE], tx[SIZE];
	uint64_t fill[UMEM_RX_CHUNKS], comp[SIZE];
	struct ring_port port;
};

static inline void fake_side(struct xsk_ring *r, uint32_t *index, void *entries, uint32_t size)
{
	r->producer = index;
	r->consumer = index + 1;
	r->desc = entries;
	r->size = size;
	r->mask = size - 1;
}

/* With a fill ring of so many entries. */
static inline int fake_setup(void **state, uint32_t fill)
{
	struct fake *f = calloc(1, sizeof(*f));

	libc_load();
	f->x = calloc(1, sizeof(*f->x) + sizeof(struct xsk));
	f->s = f->x->xsk;
	f->x->num_queues = 1;
	f->x->port = &f->port;
	f->x->sg = true;
	f->x->ring.caps.max_frame = 1514;
	fake_side(&f->s->rx, &f->index[0], f->rx, SIZE);
	fake_side(&f->s->fill, &f->index[2], f->fill, fill);
	fake_side(&f->s->tx, &f->index[4], f->tx, SIZE);
	fake_side(&f->s->comp, &f->index[6], f->comp, SIZE);
	f->s->missing = f->s->supply = fill;
	f->s->refill_at = 32;
	assert_int_equal(umem_init(&f->x->umem, PAGES_ANON, 1, 1), 0);
	rx_init(f->x, 1000);
	*state = f;
	return 0;
}

static inline int fake_teardown(void **state)
{
	struct fake *f = *state;

	umem_fini(&f->x->umem);
	free(f->x);
	free(f);
	return 0;
}

#endif
