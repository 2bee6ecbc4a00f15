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

#include "pool_world.h"

#define KILLS 300

/* The member that will be killed: it receives, gives back and sends for ever. */
static void doomed(struct world *w)
{
	struct xdp_ring *x = member_new(w, DOOMED);
	struct buf *pkts[16], *b;

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

/* Frames that it has not read, some in its hands, some posted once or twice: then it ends. */
static pid_t dies_with_much(struct world *w)
{
	pid_t pid = fork();

	if (!pid) {
		struct xdp_ring *x = member_new(w, DOOMED);
		struct buf *pkts[16];

		for (unsigned i = 0; i < 300; i++)
			kernel_step(w->c);
		(void)xdp_poll(&x->ring, pkts, 16);
		for (unsigned i = 0; i < 60; i++) {
			struct buf *b = xdp_tx_alloc(&x->ring, 60);

			b->len = b->total = 60;
			b->refs = 2;
			memset(b->data, 0xda, 60);
			(void)xdp_post(&x->ring, b);
			if (i % 2)
				(void)xdp_post(&x->ring, b);
			if (i % 3)
				kernel_step(w->c);
		}
		_exit(0);
	}
	return pid;
}

static void wait_for_end(pid_t pid)
{
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * The burier is killed at any time, and what is left is done by another one, while the kernel takes
 * from the fill ring.
 */
static void test_who_buries_is_killed(void **state)
{
	struct world *w = *state;

	srand(18);
	for (unsigned i = 0; i < KILLS; i++) {
		pid_t pid;

		wait_for_end(dies_with_much(w));
		pid = fork();
		if (!pid) {
			struct xdp_ring *x = member_new(w, DOOMED + 1);

			bury_by(w, x);
			_exit(0);
		}
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = rand() % 3000000},
				NULL);
		kill(pid, SIGKILL);
		wait_for_end(pid);
		bury(w);
		each_chunk_is_in_one_place(w);
	}
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return !*p && !memcmp(p, p + 1, n - 1);
}

/* What the kernel sends after the burial, too. */
static void test_nothing_of_the_dead_is_seen(void **state)
{
	struct world *w = *state;
	const struct pool *p = w->x->pool;

	wait_for_end(dies_with_much(w));
	/* the kernel has taken it all before, and says so after */
	w->c->index[6 + 4 * DOOMED + 1] = w->c->index[6 + 4 * DOOMED];
	bury_by(w, w->x);
	for (uint32_t i = POOL_RX_CHUNKS; i < POOL_CHUNKS; i++)
		for (uint32_t n = p->owner[i] & OWNER_POSTED;
		     (p->owner[i] & ~OWNER_POSTED) == OWNER_DEAD && n; n--) {
			w->c->comp[w->c->index[2] % 2048] = (uint64_t)i * UMEM_CHUNK;
			add(&w->c->index[2]);
		}
	assert_int_not_equal(w->c->index[2], w->c->index[3]);
	bury(w);
	each_chunk_is_in_one_place(w);
	for (uint32_t i = 0; i < POOL_CHUNKS; i++)
		assert_true(is_zero(w->x->umem.base + (size_t)i * UMEM_CHUNK, UMEM_CHUNK));
}

static bool sends(struct world *w, struct xdp_ring *x)
{
	struct buf *b = xdp_tx_alloc(&x->ring, 60);

	if (!b)
		return false;
	b->len = b->total = 60;
	assert_int_equal(xdp_post(&x->ring, b), 0);
	kernel_sends(w->c, x->row);
	return true;
}

/* Each sends once when it has come; then the first and the last one once more. */
static void each_can_send(struct world *w, bool rests)
{
	struct xdp_ring *x[MEMBERS] = {w->x};

	for (unsigned i = 0; i < MEMBERS; i++) {
		if (i)
			x[i] = member_new(w, i);
		w->x->pool->num_members = i + 1;
		print_message("member %u, %u free\n", i, w->x->pool->tx_num);
		assert_true(sends(w, x[i]));
		if (rests)
			xdp_arm(&x[i]->ring);
	}
	assert_true(sends(w, x[0]));
	assert_true(sends(w, x[MEMBERS - 1]));
	for (unsigned i = 1; i < MEMBERS; i++)
		member_end(x[i]);
}

static void test_more_members_than_have_64_chunks_can_send(void **state)
{
	each_can_send(*state, true);
}

static void test_so_can_members_that_never_sleep(void **state)
{
	each_can_send(*state, false);
}

static void test_who_rests_keeps_little_of_what_it_had(void **state)
{
	struct world *w = *state;
	struct xdp_ring *x = w->x;
	uint32_t held;

	for (unsigned i = 0; i < RING; i++) {
		struct buf *b = xdp_tx_alloc(&x->ring, 60);

		b->len = b->total = 60;
		assert_int_equal(xdp_post(&x->ring, b), 0);
	}
	held = x->tx_held;
	kernel_sends(w->c, x->row);
	xdp_arm(&x->ring);
	print_message("%u of %u chunks kept\n", x->tx_held, held);
	assert_true(held >= RING);
	assert_int_equal(x->tx_held, POOL_TX_RESTING);
	assert_int_equal(x->pool->tx_num + x->umem.tx_free.num, POOL_TX_CHUNKS);
}

/* A frame for that member, in the chunk that stands at place `at` of the fill ring. */
static void deliver(struct world *w, unsigned row, uint32_t at)
{
	uint32_t *rx = &w->c->index[4 + 4 * row];

	w->c->rx[row][rx[0] % RING] = (struct xdp_desc){.addr = w->c->fill[at] + 256, .len = 100};
	add(&rx[0]);
}

/* As the kernel before 6.15 may do it in generic mode, on two processors. */
static void test_a_chunk_that_two_members_are_given_has_one_of_them(void **state)
{
	struct world *w = *state;
	struct xdp_ring *second = member_new(w, 1);
	struct buf *b, *none;

	deliver(w, 0, 0);
	deliver(w, 1, 0);
	deliver(w, 1, 1);
	w->c->index[1] = 2;
	assert_int_equal(xdp_poll(&w->x->ring, &b, 1), 1);
	assert_int_equal(w->x->umem.owner[w->c->fill[0] / UMEM_CHUNK], OWNER_OF(0));
	assert_int_equal(xdp_poll(&second->ring, &none, 1), 1);
	assert_ptr_equal(none->data, second->umem.base + w->c->fill[1] + 256);
	assert_int_equal(second->counters.rx_drop_invalid, 1);
	assert_int_equal(w->x->umem.owner[w->c->fill[0] / UMEM_CHUNK], OWNER_OF(0));
	buf_free(none);
	buf_free(b);
	member_end(second);
}

static struct xdp_ring *ring_of_share(struct world *w, struct xdp_share *sh, unsigned index)
{
	struct xdp_ring *x = ring_new(w, index);

	x->share = sh;
	x->index = index;
	sh->ring[index] = x;
	assert_int_equal(index ? umem_join(&x->umem, &sh->ring[0]->umem, index)
			       : umem_init(&x->umem, PAGES_ANON, 2, 1),
			 0);
	x->xsk->missing = x->xsk->supply = 1024;
	rx_init(x, 1000);
	return x;
}

static void test_a_chunk_that_two_rings_of_a_process_are_given_has_one_of_them(void **state)
{
	struct world *w = *state;
	struct xdp_share sh = {.max = 2, .num = 2};
	struct xdp_ring *first, *second;
	struct buf *b, *other;

	memset(w->c->index, 0, sizeof(w->c->index));
	first = ring_of_share(w, &sh, 0);
	second = ring_of_share(w, &sh, 1);
	deliver(w, 0, 0);
	deliver(w, 1, 0);
	assert_int_equal(xdp_poll(&first->ring, &b, 1), 1);
	assert_int_equal(xdp_poll(&second->ring, &other, 1), 0);
	assert_int_equal(second->counters.rx_drop_invalid, 1);
	/* It goes round. */
	buf_free(b);
	rx_refill(first, first->xsk);
	deliver(w, 1, w->c->index[0] - 1);
	assert_int_equal(xdp_poll(&second->ring, &other, 1), 1);
	buf_free(other);
	umem_fini(&second->umem);
	umem_fini(&first->umem);
	free(second);
	free(first);
}

#define QUEUES 4u
#define BURIALS 100u

/* The survivor, with several queues. */
static struct xdp_ring *with_queues(struct world *w, uint32_t index[QUEUES][2])
{
	struct xdp_ring *x = calloc(1, sizeof(*x) + QUEUES * sizeof(struct xsk));

	memcpy(x, w->x, sizeof(*x) + sizeof(struct xsk));
	x->num_queues = QUEUES;
	for (unsigned i = 0; i < QUEUES; i++)
		fake_side(&x->xsk[i].fill, index[i],
			  mmap(NULL, 4096 * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			  4096);
	return x;
}

static int32_t level(const uint32_t index[2])
{
	return (int32_t)(index[0] - index[1]);
}

static void test_the_chunks_of_the_dead_go_where_few_are(void **state)
{
	struct world *w = *state;
	uint32_t index[QUEUES][2] = {0};
	struct xdp_ring *x = with_queues(w, index);
	struct xsk_ring none[QUEUES] = {0};

	for (uint32_t i = 0; i < POOL_RX_CHUNKS; i++) {
		uint32_t *f = index[i % QUEUES];

		x->xsk[i % QUEUES].fill.addr[f[0]++ % 4096] = (uint64_t)i * UMEM_CHUNK;
	}
	for (unsigned n = 0; n < BURIALS; n++) {
		for (unsigned k = 0; k < 64; k++) {
			uint32_t *f = index[(n + k) % QUEUES];
			uint64_t at = x->xsk[(n + k) % QUEUES].fill.addr[f[1]++ % 4096];

			x->umem.owner[at / UMEM_CHUNK] = OWNER_OF(DOOMED);
		}
		pool_bury(x, DOOMED, none, none);
	}
	for (unsigned i = 0; i < QUEUES; i++) {
		print_message("queue %u has %d\n", i, level(index[i]));
		assert_true(level(index[i]) >= (int32_t)(POOL_RX_CHUNKS / QUEUES / 4));
	}
	for (unsigned i = 0; i < QUEUES; i++)
		munmap(x->xsk[i].fill.addr, 4096 * sizeof(uint64_t));
	free(x);
}

static void test_who_comes_or_goes_is_killed(void **state)
{
	struct world *w = *state;
	struct pool *p = w->x->pool;
	pid_t pid;

	p->member[0].state = p->member[1].state = POOL_MEMBER;
	p->member[2].state = POOL_ENTERING;
	p->num_members = 3;
	pid = fork();
	if (!pid) {
		struct xdp_ring *x = member_new(w, 2);

		pool_port_lock(x);
		_exit(0);
	}
	wait_for_end(pid);
	pool_port_lock(w->x);
	pool_port_unlock(w->x);
	assert_int_equal(p->num_members, 2);
	assert_int_equal(p->member[2].state, POOL_FREE);
}

/* It may be one that comes or goes who learns of the death: without the table, or not any more. */
static void test_a_change_half_done_waits_for_who_has_the_table(void **state)
{
	struct world *w = *state;
	struct pool *p = w->x->pool;
	pid_t pid = fork();

	if (!pid) {
		struct xdp_ring *x = member_new(w, 2);

		pool_port_lock(x);
		x->pool->flow_busy = 7001;
		_exit(0);
	}
	wait_for_end(pid);
	w->x->port = NULL;
	pool_port_lock(w->x);
	pool_port_unlock(w->x);
	assert_int_equal(p->flow_busy, 7001);
	w->x->port = &w->port;
	memset(w->port.fd, -1, sizeof(w->port.fd)); /* an empty table */
	w->port.flow_busy = &p->flow_busy;
	w->port.flows = calloc(VMA_PORT_INDEX_MAX, sizeof(*w->port.flows));
	assert_non_null(w->port.flows);
	w->port.flows[7000].num_exact = 9;
	pool_port_lock(w->x);
	pool_port_unlock(w->x);
	assert_int_equal(p->flow_busy, 0);
	assert_int_equal(w->port.flows[7000].num_exact, 0);
	free(w->port.flows);
	w->port = (struct ring_port){.flows = NULL};
}

static void test_a_pool_of_another_layout_is_not_joined(void **state)
{
	struct world *w = *state;

	w->x->pool->layout++;
	assert_null(pool_map(w->pool_fd));
	w->x->pool->layout--;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_killed_at_any_instruction, pool_setup,
						pool_teardown),
		cmocka_unit_test_setup_teardown(test_who_buries_is_killed, pool_setup,
						pool_teardown),
		cmocka_unit_test_setup_teardown(test_nothing_of_the_dead_is_seen, pool_setup,
						pool_teardown),
		cmocka_unit_test_setup_teardown(test_more_members_than_have_64_chunks_can_send,
						pool_setup, pool_teardown),
		cmocka_unit_test_setup_teardown(test_so_can_members_that_never_sleep, pool_setup,
						pool_teardown),
		cmocka_unit_test_setup_teardown(test_who_rests_keeps_little_of_what_it_had,
						pool_setup, pool_teardown),
		cmocka_unit_test_setup_teardown(test_the_chunks_of_the_dead_go_where_few_are,
						pool_setup, pool_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_chunk_that_two_members_are_given_has_one_of_them, pool_setup,
			pool_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_chunk_that_two_rings_of_a_process_are_given_has_one_of_them,
			pool_setup, pool_teardown),
		cmocka_unit_test_setup_teardown(test_who_comes_or_goes_is_killed, pool_setup,
						pool_teardown),
		cmocka_unit_test_setup_teardown(test_a_change_half_done_waits_for_who_has_the_table,
						pool_setup, pool_teardown),
		cmocka_unit_test_setup_teardown(test_a_pool_of_another_layout_is_not_joined,
						pool_setup, pool_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
