/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "config/config.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

#define POOL_MAGIC 0x6c6f6f70u
/* Free chunks for transmitting that a member keeps, and with how many it gives some back. */
#define TX_KEPT 64u
#define TX_KEPT_MAX 128u

/* ------------------------------------------------------------------ the memory */

static void lock_init(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

static void locks_name(struct pool *p)
{
	lock_class(&p->port_lock, "pool.port_lock");
	lock_class(&p->lock, "pool.lock");
	(void)p;
}

static void umem_take_all(struct xdp_ring *x)
{
	struct umem *u = &x->umem;

	for (uint32_t i = u->num_chunks; i-- > 0;) {
		if (i < u->num_rx) {
			chunk_push(&u->rx_free, i);
			chunk_owner_set(u, i, u->me);
		} else {
			x->pool->tx_free[x->pool->tx_num++] = i;
		}
	}
}

int pool_make(struct xdp_ring *x, int *pool_fd, int *umem_fd)
{
	size_t bytes = sizeof(struct pool), umem_bytes = (size_t)POOL_CHUNKS * UMEM_CHUNK;
	struct pool *p = pages_map_shared(PAGES_ANON, &bytes, pool_fd);
	void *base;
	int err;

	if (!p)
		return -errno;
	base = pages_map_shared((enum pages_type)params.mem_alloc_type, &umem_bytes, umem_fd);
	err = base ? umem_enter(&x->umem, base, umem_bytes, POOL_RX_CHUNKS, POOL_CHUNKS) : -errno;
	if (err)
		goto err_base;
	p->magic = POOL_MAGIC;
	p->size = sizeof(*p);
	p->umem_bytes = umem_bytes;
	lock_init(&p->port_lock);
	lock_init(&p->lock);
	locks_name(p);
	x->pool = p;
	x->umem.owner = p->owner;
	x->umem.me = OWNER_OF(0);
	umem_take_all(x);
	return 0;

err_base:
	if (base)
		pages_unmap(base, umem_bytes);
	if (*umem_fd >= 0)
		own_fd_close(*umem_fd);
	pages_unmap(p, sizeof(*p));
	own_fd_close(*pool_fd);
	return err;
}

struct pool *pool_map(int fd)
{
	struct pool *p;
	struct stat st;

	if (fstat(fd, &st) || st.st_size != (off_t)sizeof(*p) ||
	    !(libc.fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK))
		return NULL;
	p = pages_map_fd(fd, sizeof(*p));
	if (p && (p->magic != POOL_MAGIC || p->size != sizeof(*p))) {
		pages_unmap(p, sizeof(*p));
		p = NULL;
	}
	if (p)
		locks_name(p);
	return p;
}

void pool_unmap(struct pool *p)
{
	if (p)
		pages_unmap(p, sizeof(*p));
}

/* ------------------------------------------------------------------ locks */

/* True: who had it died with it. */
static bool take(pthread_mutex_t *m)
{
	lock_enter();
	if (pthread_mutex_lock(m) != EOWNERDEAD)
		return false;
	pthread_mutex_consistent(m);
	return true;
}

static void drop(pthread_mutex_t *m)
{
	pthread_mutex_unlock(m);
	lock_leave();
}

void pool_port_lock(struct xdp_ring *x)
{
	struct pool *p = x->pool;

	if (!take(&p->port_lock))
		return;
	for (unsigned i = 0; i < POOL_MEMBERS; i++)
		if (p->member[i].state == POOL_ENTERING)
			p->member[i].state = POOL_FREE;
	if (x->port)
		port_flows_recount(x->port);
}

void pool_port_unlock(struct xdp_ring *x)
{
	drop(&x->pool->port_lock);
}

/* ------------------------------------------------------------------ chunks; the lock is held */

static bool is_rx(const struct umem *u, uint32_t index)
{
	return index < u->num_rx;
}

static bool is_tx(const struct umem *u, uint32_t index)
{
	return index >= u->num_rx && index < u->num_chunks;
}

static unsigned member_of(uint32_t word)
{
	return (word >> OWNER_SHIFT) - 1;
}

/* One that somebody has since is not free, whatever the stack says. */
static bool tx_pop(struct xdp_ring *x, uint32_t *index)
{
	struct pool *p = x->pool;

	while (p->tx_num && p->tx_num <= POOL_TX_CHUNKS) {
		*index = p->tx_free[--p->tx_num];
		if (is_tx(&x->umem, *index) && chunk_owner(&x->umem, *index) == OWNER_NOBODY)
			return true;
	}
	return false;
}

static void tx_find_free(struct xdp_ring *x)
{
	struct pool *p = x->pool;

	p->tx_num = 0;
	for (uint32_t i = x->umem.num_rx; i < x->umem.num_chunks; i++)
		if (chunk_owner(&x->umem, i) == OWNER_NOBODY)
			p->tx_free[p->tx_num++] = i;
}

static void tx_push(struct xdp_ring *x, uint32_t index)
{
	struct pool *p = x->pool;

	chunk_owner_set(&x->umem, index, OWNER_NOBODY);
	if (p->tx_num < POOL_TX_CHUNKS)
		p->tx_free[p->tx_num++] = index;
	else
		tx_find_free(x);
}

/* The next entry of a fill ring, which the kernel does not see yet. */
static void fill_put(struct xdp_ring *x, const struct xsk *s, uint32_t index)
{
	uint32_t *head = &x->pool->fill_head[s - x->xsk];

	__atomic_store_n(&s->fill.addr[*head & s->fill.mask], (uint64_t)index << UMEM_CHUNK_SHIFT,
			 __ATOMIC_RELAXED);
	/* release: first the entry, so that fill_finish() of another finds it */
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	chunk_owner_set(&x->umem, index, OWNER_NOBODY);
}

/* Entries of a fill ring that are free. */
static uint32_t fill_begin(struct xdp_ring *x, const struct xsk *s)
{
	const struct xsk_ring *f = &s->fill;
	uint32_t head = __atomic_load_n(f->producer, __ATOMIC_RELAXED), used;

	x->pool->fill_head[s - x->xsk] = head;
	used = head - __atomic_load_n(f->consumer, __ATOMIC_ACQUIRE);
	return used < f->size ? f->size - used : 0;
}

/* Returns the producer index. */
static uint32_t fill_end(struct xdp_ring *x, const struct xsk *s)
{
	uint32_t head = x->pool->fill_head[s - x->xsk];

	/* release: the kernel must see the entries before the index that gives them to it */
	__atomic_store_n(s->fill.producer, head, __ATOMIC_RELEASE);
	return head;
}

/* What a dead one has put into a fill ring is the kernel's. */
static void fill_finish(struct xdp_ring *x, const struct xsk *s)
{
	const struct xsk_ring *f = &s->fill;
	uint32_t head = __atomic_load_n(f->producer, __ATOMIC_RELAXED);
	uint32_t n = x->pool->fill_head[s - x->xsk] - head;

	if (n > f->size)
		return;
	for (; n; n--, head++) {
		uint64_t index = f->addr[head & f->mask] >> UMEM_CHUNK_SHIFT;

		if (index < x->umem.num_rx)
			chunk_owner_set(&x->umem, (uint32_t)index, OWNER_NOBODY);
	}
	fill_end(x, s);
}

static void pool_lock(struct xdp_ring *x)
{
	if (!take(&x->pool->lock))
		return;
	for (uint32_t i = 0; i < x->num_queues; i++)
		fill_finish(x, &x->xsk[i]);
	tx_find_free(x);
}

static void pool_unlock(struct xdp_ring *x)
{
	drop(&x->pool->lock);
}

uint32_t pool_supply(struct xdp_ring *x, struct xsk *s, uint32_t n)
{
	uint32_t room, index, done = 0;

	pool_lock(x);
	room = fill_begin(x, s);
	for (; done < n && done < room && chunk_pop(&x->umem.rx_free, &index); done++)
		fill_put(x, s, index);
	s->fill.head = fill_end(x, s);
	pool_unlock(x);
	x->filled += done;
	rx_low(x);
	return done;
}

/* ------------------------------------------------------------------ what was sent */

/* The chunk at place `at` of the completion ring is the member's. */
static void back_push(struct xdp_ring *x, unsigned member, uint32_t at, uint32_t index)
{
	struct pool_back *b = &x->pool->back[member];
	uint32_t num = (uint32_t)b->state;

	/* Its finder was killed before it could say that it is through with the place. */
	if ((uint32_t)(b->state >> 32) == at + 1 || num >= POOL_BACK_MAX)
		return;
	b->index[num] = index;
	__atomic_store_n(&b->state, (uint64_t)(at + 1) << 32 | (num + 1), __ATOMIC_RELEASE);
}

/* The last one, which stays until back_drop(). */
static bool back_last(const struct pool_back *b, uint32_t *index)
{
	uint32_t num = (uint32_t)b->state;

	if (!num || num > POOL_BACK_MAX)
		return false;
	*index = b->index[num - 1];
	return true;
}

static void back_drop(struct pool_back *b)
{
	__atomic_store_n(&b->state, b->state - 1, __ATOMIC_RELEASE);
}

/* The kernel has sent a chunk that nobody has any more. */
static void dead_sent(struct xdp_ring *x, uint32_t index)
{
	chunk_sent(&x->umem, index);
	if (!(chunk_owner(&x->umem, index) & OWNER_POSTED))
		tx_push(x, index);
}

/* Whom the chunks that have been sent are given to. */
enum finder {
	FINDER_SENDS, /* the stack's lock is held: ours are free at once */
	FINDER_BURIES, /* it is not: ours wait like others' */
};

static void sent(struct xdp_ring *x, enum finder finder, uint32_t at, uint32_t index)
{
	uint32_t word = chunk_owner(&x->umem, index) & ~OWNER_POSTED;

	if (word == x->umem.me && finder == FINDER_SENDS)
		tx_done(x, (uint64_t)index << UMEM_CHUNK_SHIFT);
	else if (word == OWNER_DEAD)
		dead_sent(x, index);
	else if (word && member_of(word) < POOL_MEMBERS)
		back_push(x, member_of(word), at, index);
}

static void hand_out(struct xdp_ring *x, enum finder finder)
{
	const struct xsk_ring *c = &x->xsk[0].comp;
	/* acquire: the entries up to the producer index must be read after it */
	uint32_t end = __atomic_load_n(c->producer, __ATOMIC_ACQUIRE);
	uint32_t at = __atomic_load_n(c->consumer, __ATOMIC_RELAXED);

	if (end - at > c->size)
		return;
	while (at != end) {
		uint64_t index = c->addr[at & c->mask] >> UMEM_CHUNK_SHIFT;

		if (index < x->umem.num_chunks && is_tx(&x->umem, (uint32_t)index))
			sent(x, finder, at, (uint32_t)index);
		/* One by one: should we be killed, the next one goes on here. */
		__atomic_store_n(c->consumer, ++at, __ATOMIC_RELEASE);
	}
}

static void fetch_back(struct xdp_ring *x)
{
	struct pool_back *b = &x->pool->back[x->row];
	uint32_t index;

	for (; back_last(b, &index); back_drop(b))
		if (is_tx(&x->umem, index) &&
		    (chunk_owner(&x->umem, index) & ~OWNER_POSTED) == x->umem.me)
			tx_done(x, (uint64_t)index << UMEM_CHUNK_SHIFT);
}

/* Some to have at once; what is more is for the others. */
static void tx_balance(struct xdp_ring *x)
{
	struct chunk_stack *s = &x->umem.tx_free;
	uint32_t index;

	while (s->num < TX_KEPT && x->tx_held < UMEM_TX_CHUNKS && tx_pop(x, &index)) {
		chunk_owner_set(&x->umem, index, x->umem.me);
		chunk_push(s, index);
		x->tx_held++;
	}
	if (s->num <= TX_KEPT_MAX || !pool_others(x->pool))
		return;
	while (s->num > TX_KEPT && chunk_pop(s, &index)) {
		tx_push(x, index);
		x->tx_held--;
	}
}

void pool_reclaim(struct xdp_ring *x)
{
	pool_lock(x);
	hand_out(x, FINDER_SENDS);
	fetch_back(x);
	tx_balance(x);
	pool_unlock(x);
}

/* ------------------------------------------------------------------ what the dead had */

/* What it had not read becomes the member's, so that all of it is found in one way. */
static void unread_take(struct xdp_ring *x, uint32_t word, const struct xsk_ring *r)
{
	uint32_t at = __atomic_load_n(r->consumer, __ATOMIC_RELAXED),
		 end = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);

	for (; end - at && end - at <= r->size; at++) {
		uint64_t index = r->desc[at & r->mask].addr >> UMEM_CHUNK_SHIFT;

		if (index < x->umem.num_rx &&
		    chunk_owner(&x->umem, (uint32_t)index) == OWNER_NOBODY)
			chunk_owner_set(&x->umem, (uint32_t)index, word);
	}
}

/* What the kernel has not taken from it for sending will not be sent. */
static void unsent_forget(struct xdp_ring *x, uint32_t word, const struct xsk_ring *r)
{
	uint32_t at = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE),
		 end = __atomic_load_n(r->producer, __ATOMIC_RELAXED);

	for (; end - at && end - at <= r->size; at++) {
		uint64_t index = r->desc[at & r->mask].addr >> UMEM_CHUNK_SHIFT;

		if (index < x->umem.num_chunks &&
		    (chunk_owner(&x->umem, (uint32_t)index) & ~OWNER_POSTED) == word)
			chunk_sent(&x->umem, (uint32_t)index);
	}
}

static void rx_return(struct xdp_ring *x, uint32_t index)
{
	for (uint32_t i = 0; i < x->num_queues; i++) {
		const struct xsk *s = &x->xsk[i];

		if (!fill_begin(x, s))
			continue;
		fill_put(x, s, index);
		fill_end(x, s);
		return;
	}
}

/* Nothing of what it held is seen by who gets the chunk next. */
static void chunk_wipe(struct xdp_ring *x, uint32_t index)
{
	memset(x->umem.base + ((size_t)index << UMEM_CHUNK_SHIFT), 0, UMEM_CHUNK);
}

static void chunk_bury(struct xdp_ring *x, uint32_t index, uint32_t word)
{
	uint32_t is = chunk_owner(&x->umem, index);

	if ((is & ~OWNER_POSTED) != word)
		return;
	if (is_tx(&x->umem, index) && is & OWNER_POSTED) {
		chunk_owner_set(&x->umem, index, OWNER_DEAD | (is & OWNER_POSTED));
		return;
	}
	chunk_wipe(x, index);
	if (is_rx(&x->umem, index))
		rx_return(x, index);
	else
		tx_push(x, index);
}

void pool_bury(struct xdp_ring *x, unsigned member, const struct xsk_ring *rx,
	       const struct xsk_ring *tx)
{
	struct pool_back *b = &x->pool->back[member];
	uint32_t index, word = OWNER_OF(member);

	pool_lock(x);
	for (uint32_t i = 0; i < x->num_queues; i++)
		if (rx[i].map)
			unread_take(x, word, &rx[i]);
	if (tx->map)
		unsent_forget(x, word, tx);
	for (; back_last(b, &index); back_drop(b))
		if (is_tx(&x->umem, index) &&
		    (chunk_owner(&x->umem, index) & ~OWNER_POSTED) == word)
			chunk_sent(&x->umem, index);
	for (index = 0; index < x->umem.num_chunks; index++)
		chunk_bury(x, index, word);
	hand_out(x, FINDER_BURIES);
	pool_unlock(x);
}
