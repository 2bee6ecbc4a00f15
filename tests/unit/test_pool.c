/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A member of a pool is killed at any instruction, again and again: afterwards each chunk is in one
 * place. The kernel's side of the rings is this test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring_fake.h"

#define KILLS 300
#define RING 512u
#define DOOMED 1u

/* What both processes and the kernel see of the rings. */
struct common {
	uint32_t index[12]; /* producer and consumer of fill, comp, and each one's rx and tx */
	uint64_t fill[4096], comp[2048];
	struct xdp_desc rx[2][RING], tx[2][RING];
};

struct world {
	struct common *c;
	struct xdp_ring *x; /* the survivor */
	struct ring_port port;
	int pool_fd, umem_fd;
};

static struct xdp_ring *ring_new(struct world *w, unsigned row)
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
	return x;
}

static int setup(void **state)
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

static int teardown(void **state)
{
	struct world *w = *state;

	umem_fini(&w->x->umem);
	pool_unmap(w->x->pool);
	free(w->x);
	munmap(w->c, sizeof(*w->c));
	free(w);
	return 0;
}

/* The member that will be killed: it receives, gives back and sends for ever. */
static void doomed(struct world *w)
{
	struct xdp_ring *x = ring_new(w, DOOMED);
	size_t bytes = (size_t)POOL_CHUNKS * UMEM_CHUNK;
	struct buf *pkts[16], *b;

	x->pool = pool_map(w->pool_fd);
	if (!x->pool || umem_enter(&x->umem, pages_map_fd(w->umem_fd, bytes), bytes, POOL_RX_CHUNKS,
				   POOL_CHUNKS))
		_exit(1);
	x->umem.owner = x->pool->owner;
	x->umem.me = OWNER_OF(DOOMED);
	x->joined = true;
	rx_init(x, 1000);
	for (;;) {
		for (unsigned n = xdp_poll(&x->ring, pkts, 16); n-- > 0;)
			buf_free(pkts[n]);
		b = xdp_tx_alloc(&x->ring, 60);
		if (!b)
			continue;
		b->len = b->total = 60;
		if (xdp_post(&x->ring, b))
			buf_free(b);
	}
}

static uint32_t load(const uint32_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void add(uint32_t *p)
{
	__atomic_store_n(p, *p + 1, __ATOMIC_RELEASE);
}

/* A frame comes for the member, and one of its frames leaves. */
static void kernel_step(struct common *c)
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

static void bury(struct world *w)
{
	struct xsk_ring rx, tx;
	uint32_t *index = &w->c->index[4 + 4 * DOOMED];

	fake_side(&rx, index, w->c->rx[DOOMED], RING);
	fake_side(&tx, index + 2, w->c->tx[DOOMED], RING);
	rx.map = tx.map = w->c;
	pool_bury(w->x, DOOMED, &rx, &tx);
	pool_reclaim(w->x);
	memset(index, 0, 4 * sizeof(*index));
}

static void each_chunk_is_in_one_place(struct world *w)
{
	const struct pool *p = w->x->pool;
	struct common *c = w->c;
	uint32_t seen[POOL_CHUNKS] = {0};

	for (uint32_t at = c->index[1]; at != c->index[0]; at++)
		seen[c->fill[at % 4096] / UMEM_CHUNK]++;
	for (uint32_t i = 0; i < p->tx_num; i++)
		seen[p->tx_free[i]]++;
	for (uint32_t i = 0; i < w->x->umem.tx_free.num; i++)
		seen[w->x->umem.tx_free.index[i]]++;
	for (uint32_t i = 0; i < POOL_CHUNKS; i++) {
		if (seen[i] != 1)
			print_error("chunk %u is in %u places, owner %#x\n", i, seen[i],
				    p->owner[i]);
		assert_int_equal(seen[i], 1);
	}
}

static void test_killed_at_any_instruction(void **state)
{
	struct world *w = *state;

	srand(17);
	for (unsigned i = 0; i < KILLS; i++) {
		struct timespec now, end;
		pid_t pid = fork();

		if (!pid)
			doomed(w);
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_nsec += rand() % 3000000;
		do {
			for (unsigned k = 0; k < 50; k++)
				kernel_step(w->c);
			if (rand() % 4 == 0)
				pool_reclaim(w->x);
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - end.tv_sec) * 1000000000L + now.tv_nsec < end.tv_nsec);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		bury(w);
		each_chunk_is_in_one_place(w);
	}
	assert_true(w->c->index[1] > KILLS);
	assert_true(w->c->index[2] > KILLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_killed_at_any_instruction, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
