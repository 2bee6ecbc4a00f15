/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/umem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/log.h"

#define HUGE_PAGE (2ul << 20)

static void umem_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct umem *u = (struct umem *)pool;

	umem_chunk_free(u, (uint32_t)(b->addr >> UMEM_CHUNK_SHIFT));
}

/*
 * Shared, so that a fork() copies no page on write: the kernel keeps writing to the pages that it pinned, and
 * whichever process got the copy would see nothing of it.
 */
static int pages_map(struct umem *u, bool want_huge)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;

	u->bytes = (size_t)UMEM_CHUNKS * UMEM_CHUNK;
	if (want_huge) {
		size_t rounded = (u->bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);

		u->base = mmap(NULL, rounded, prot, flags | MAP_HUGETLB, -1, 0);
		if (u->base != MAP_FAILED) {
			u->bytes = rounded;
			u->huge = true;
			return 0;
		}
		log_info("ring/xdp: no %zu MiB of huge pages (%s): ordinary pages are used; see "
			 "/proc/sys/vm/nr_hugepages",
			 rounded >> 20, strerror(errno));
	}
	u->base = mmap(NULL, u->bytes, prot, flags, -1, 0);
	if (u->base == MAP_FAILED) {
		u->base = NULL;
		return -errno;
	}
	return 0;
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

int umem_init(struct umem *u, bool want_huge)
{
	int err;

	memset(u, 0, sizeof(*u));
	u->pool.free = umem_buf_free;
	err = pages_map(u, want_huge);
	if (err)
		return err;
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
		munmap(u->base, u->bytes);
	free(u->bufs);
	free(u->rx_free.index);
	free(u->tx_free.index);
	memset(u, 0, sizeof(*u));
}
