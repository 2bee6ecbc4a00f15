/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What members of a pool do, one instruction after the other: at each of them the member is dead
 * for a copy of this process, which buries it and counts the chunks. (test_pool.c kills at random.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/futex.h>

#include "pool_world.h"
#include "steps.h"

/* In what one member finds before: frames to read, some sent, some on their way. */
static void busy(struct world *w, struct xdp_ring *x)
{
	struct buf *b;

	for (unsigned i = 0; i < 40; i++) {
		if (i % 3 == 0 && (b = xdp_tx_alloc(&x->ring, 60))) {
			b->len = b->total = 60;
			b->refs = 1 + i % 2;
			for (unsigned n = b->refs; n-- > 0;)
				(void)xdp_post(&x->ring, b);
		}
		kernel_step(w->c);
	}
}

static void receives(struct world *w, struct xdp_ring *x)
{
	struct buf *pkts[16];

	(void)w;
	for (unsigned n = xdp_poll(&x->ring, pkts, 16); n-- > 0;)
		buf_free(pkts[n]);
	rx_refill(x, x->xsk);
}

static void sends(struct world *w, struct xdp_ring *x)
{
	struct buf *b = xdp_tx_alloc(&x->ring, 60);

	(void)w;
	if (!b)
		return;
	b->len = b->total = 60;
	b->refs = 2;
	(void)xdp_post(&x->ring, b);
	(void)xdp_post(&x->ring, b);
}

static void reclaims(struct world *w, struct xdp_ring *x)
{
	(void)w;
	pool_reclaim(x);
}

static void rests(struct world *w, struct xdp_ring *x)
{
	(void)w;
	pool_rest(x);
}

/* Of one act: the rest of a burial is the same for each chunk. */
#define INSTRUCTIONS 40000u

struct act {
	const char *name;
	void (*does)(struct world *w, struct xdp_ring *x);
	unsigned row; /* who does it */
	unsigned each; /* so many instructions are one step: where there are very many */
	bool zerocopy; /* the driver goes on to send what the dead one has posted */
};

static const struct act acts[] = {
	{"receives", receives, DOOMED, 1, false},
	{"sends", sends, DOOMED, 1, false},
	{"reclaims", reclaims, DOOMED, 1, false},
	{"rests", rests, DOOMED, 1, false},
	{"buries", bury_by, DOOMED + 1, 53, false},
	{"sends with zero-copy", sends, DOOMED, 1, true},
	{"receives with zero-copy", receives, DOOMED, 1, true},
	{"reclaims with zero-copy", reclaims, DOOMED, 1, true},
	{"buries with zero-copy", bury_by, DOOMED + 1, 53, true},
};

static void zerocopy_begin(struct xdp_ring *x, bool zerocopy)
{
	x->zerocopy = zerocopy;
	x->posting = zerocopy ? &x->pool->member[x->row].posting : NULL;
}

/* The traced one: it stops before the act and after it. */
static _Noreturn void member(struct world *w, const struct act *a)
{
	struct xdp_ring *x = member_new(w, a->row);

	zerocopy_begin(x, a->zerocopy);
	if (a->row == DOOMED)
		busy(w, x);
	traced_begin();
	a->does(w, x);
	traced_end();
}

/* As the kernel leaves the locks of who has ended (robust_list). */
static void owner_dies(pthread_mutex_t *m, pid_t pid)
{
	unsigned word = (unsigned)m->__data.__lock;

	if ((word & FUTEX_TID_MASK) == (unsigned)pid)
		m->__data.__lock = (int)((word & FUTEX_WAITERS) | FUTEX_OWNER_DIED);
}

/* What members have in common, but the frames and the totals of flows. */
#define POOL_BYTES offsetof(struct pool, flows)
struct copy {
	uint8_t pool[POOL_BYTES];
	struct common common;
};

/* False: nothing has been written since; who dies here leaves what it left before. */
static bool copy_now(struct copy *is, const struct world *w)
{
	if (!memcmp(is->pool, w->x->pool, POOL_BYTES) &&
	    !memcmp(&is->common, w->c, sizeof(is->common)))
		return false;
	memcpy(is->pool, w->x->pool, POOL_BYTES);
	memcpy(&is->common, w->c, sizeof(is->common));
	return true;
}

/* The child of a fork() has none of it. */
static void map_again(struct world *w)
{
	struct xdp_umem *u = &w->x->umem;

	w->x->pool = pool_map(w->pool_fd);
	u->base = pages_map_fd(w->umem_fd, (size_t)POOL_CHUNKS * UMEM_CHUNK);
	if (!w->x->pool || !u->base)
		_exit(2);
	u->owner = w->x->pool->owner;
}

/* Chunks of the survivor's that are sent twice. The kernel has sent all of them once. */
#define IN_FLIGHT 20u

static void send_in_advance(struct world *w)
{
	struct buf *b[IN_FLIGHT];

	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		b[i] = xdp_tx_alloc(&w->x->ring, 60);
		assert_non_null(b[i]);
		b[i]->len = b[i]->total = 60;
		b[i]->refs = 2;
		assert_int_equal(xdp_post(&w->x->ring, b[i]), 0);
	}
	kernel_sends(w->c, 0);
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		assert_int_equal(xdp_post(&w->x->ring, b[i]), 0);
}

static unsigned chunks_used(const struct world *w)
{
	uint32_t seen[POOL_CHUNKS];
	unsigned n = 0;

	chunk_places(w, seen);
	for (uint32_t i = 0; i < POOL_CHUNKS; i++)
		n += !seen[i];
	return n;
}

/* Does nobody get a chunk that the driver will read? */
static bool posted_stay(const struct world *w)
{
	const uint32_t *tx = &w->c->index[6 + 4 * DOOMED];
	uint32_t seen[POOL_CHUNKS];

	chunk_places(w, seen);
	for (uint32_t at = tx[1]; at != tx[0]; at++)
		if (seen[w->c->tx[DOOMED][at % RING].addr / UMEM_CHUNK])
			return false;
	return true;
}

/* The driver sends what is left, and says so after the first burial. */
static bool drains(struct world *w)
{
	bool good;

	bury_by(w, w->x);
	good = posted_stay(w);
	kernel_sends(w->c, DOOMED);
	bury(w);
	return good;
}

/* True: with the member dead here, what it had is found by the survivor. */
static bool survives(struct world *w, const struct copy *is, pid_t pid)
{
	int status = -1;
	pid_t survivor = fork();

	if (!survivor) {
		signal(SIGSEGV, SIG_DFL); /* not cmocka's */
		alarm(60); /* a lock that nobody gives back */
		map_again(w);
		owner_dies(&w->x->pool->lock, pid);
		owner_dies(&w->x->pool->port_lock, pid);
		if (w->x->zerocopy && !drains(w))
			_exit(1);
		if (!w->x->zerocopy)
			bury(w);
		if (chunks_used(w) != IN_FLIGHT)
			_exit(1);
		kernel_sends(w->c, 0);
		pool_reclaim(w->x);
		_exit(chunks_misplaced(w) ? 1 : 0);
	}
	waitpid(survivor, &status, 0);
	memcpy(w->x->pool, is->pool, POOL_BYTES);
	memcpy(w->c, &is->common, sizeof(is->common));
	return status == 0;
}

/* What another one leaves that is to be buried. */
static void one_dies(struct world *w, bool zerocopy)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		struct xdp_ring *x = member_new(w, DOOMED);

		zerocopy_begin(x, zerocopy);
		busy(w, x);
		receives(w, x);
		busy(w, x);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void act_by_steps(struct world *w, const struct act *a)
{
	struct copy *is = calloc(1, sizeof(*is));
	unsigned steps = 0, states = 0;
	pid_t pid;

	assert_non_null(is);
	w->x->zerocopy = a->zerocopy;
	if (a->row != DOOMED)
		one_dies(w, a->zerocopy);
	pid = fork();
	if (!pid)
		member(w, a);
	steps_begin(pid);
	send_in_advance(w); /* others may find what has been sent */
	do {
		bool differs = copy_now(is, w);

		if (differs && !survives(w, is, pid)) {
			kill(pid, SIGKILL);
			fail_msg("%s: killed at step %u", a->name, steps);
		}
		states += differs;
		steps++;
	} while (steps * a->each < INSTRUCTIONS && step(pid, a->each));
	print_message("%s: killed at %u places, %u instructions apart, in %u states\n", a->name,
		      steps, a->each, states);
	steps_end(pid);
	free(is);
	/* It did something. */
	assert_true(states > 5);
}

static void test_killed_at_each_instruction(void **state)
{
	cpu_set_t before = stay_here();

	for (unsigned i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		assert_int_equal(pool_setup(state), 0);
		act_by_steps(*state, &acts[i]);
		assert_int_equal(pool_teardown(state), 0);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_at_each_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
