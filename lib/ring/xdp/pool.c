/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "ring/xdp/member.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

#define POOL_MAGIC 0x6c6f6f70u
/* Free chunks for transmitting that a member keeps at most. */
#define TX_KEPT 64u
#define TX_KEPT_MIN 4u
/* Chunks whose owner has died are wiped, so many of them with the lock held: 256 KiB. */
#define BURY_BATCH 64u

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
	struct xdp_umem *u = &x->umem;

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
	uint32_t num_rx = pool_rx_chunks(x->num_queues), num = pool_chunks(x->num_queues);
	size_t bytes = sizeof(struct pool), umem_bytes = (size_t)num * UMEM_CHUNK;
	struct pool *p = pages_map_shared(PAGES_ANON, &bytes, pool_fd);
	void *base;
	int err;

	if (!p)
		return -errno;
	base = pages_map_shared((enum pages_type)params.mem_alloc_type, &umem_bytes, umem_fd);
	err = base ? umem_enter(&x->umem, base, umem_bytes, num_rx, num) : -errno;
	if (err)
		goto err_base;
	p->magic = POOL_MAGIC;
	p->layout = POOL_LAYOUT;
	p->size = sizeof(*p);
	p->umem_bytes = umem_bytes;
	p->uid = member_user();
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

	if (fstat(fd, &st) || st.st_size != (off_t)sizeof(*p) || !own_fd_memory_is(fd))
		return NULL;
	p = pages_map_fd(fd, sizeof(*p));
	if (p && (p->magic != POOL_MAGIC || p->layout != POOL_LAYOUT || p->size != sizeof(*p))) {
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

/* One that was killed while it came or went has changed its state and not this, or not yet. */
static void members_recount(struct pool *p)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < POOL_MEMBERS; i++)
		n += p->member[i].state == POOL_MEMBER;
	__atomic_store_n(&p->num_members, n, __ATOMIC_RELAXED);
}

void pool_port_lock(struct xdp_ring *x)
{
	struct pool *p = x->pool;

	if (take(&p->port_lock)) {
		for (unsigned i = 0; i < POOL_MEMBERS; i++)
			if (p->member[i].state == POOL_ENTERING)
				p->member[i].state = POOL_FREE;
		members_recount(p);
	}
	/* Who was told of the death may not have had the port: one that comes, or goes. */
	if (x->port)
		port_flows_recount(x->port);
}

void pool_port_unlock(struct xdp_ring *x)
{
	drop(&x->pool->port_lock);
}

/* ------------------------------------------------------------------ chunks; the lock is held */

static bool is_rx(const struct xdp_umem *u, uint32_t index)
{
	return index < u->num_rx;
}

static bool is_tx(const struct xdp_umem *u, uint32_t index)
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

/* The chunk that a POSTING() is of. False: there is none. */
static bool posting_chunk(const struct xdp_ring *x, uint64_t posting, uint32_t *index)
{
	*index = (uint32_t)(posting & 0xffff) - 1;
	return posting & 0xffff && is_tx(&x->umem, *index);
}

static uint32_t chunk_posts(const struct xdp_ring *x, uint32_t index)
{
	return chunk_owner(&x->umem, index) & OWNER_POSTED;
}

/*
 * One post of the chunk is about to be taken off, which is told at that place. Should we be killed
 * before we have moved on from there, who comes next would take off another one, and the chunk be
 * free too early. Of the last post there is no other.
 */
static void posts_note(struct xdp_ring *x, uint64_t *word, uint32_t at, uint32_t index)
{
	uint32_t posted = chunk_posts(x, index);

	if (posted > 1)
		__atomic_store_n(word, POSTING(at, posted, index), __ATOMIC_RELAXED);
}

/* Its writer was killed after it had taken the post off. */
static bool posts_are_less(const struct xdp_ring *x, uint64_t posting, uint32_t at)
{
	uint32_t index;

	return posting_chunk(x, posting, &index) &&
	       posting == POSTING(at, chunk_posts(x, index) + 1, index);
}

/* It has done with the place in the completion ring at which it was. */
static void hand_out_finish(struct xdp_ring *x)
{
	const struct xsk_ring *c = &x->xsk[0].comp;
	uint32_t at = __atomic_load_n(c->consumer, __ATOMIC_RELAXED);

	if (posts_are_less(x, x->pool->handing, at))
		__atomic_store_n(c->consumer, at + 1, __ATOMIC_RELEASE);
}

static void pool_lock(struct xdp_ring *x)
{
	if (!take(&x->pool->lock))
		return;
	hand_out_finish(x);
	for (uint32_t i = 0; i < x->num_queues; i++)
		fill_finish(x, &x->xsk[i]);
	tx_find_free(x);
}

static void pool_unlock(struct xdp_ring *x)
{
	drop(&x->pool->lock);
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

/* Nothing of what it held is seen by who gets the chunk next. */
static void chunk_wipe(struct xdp_ring *x, uint32_t index)
{
	memset(x->umem.base + ((size_t)index << UMEM_CHUNK_SHIFT), 0, UMEM_CHUNK);
}

/* The kernel has sent a chunk that nobody has any more. */
static void dead_sent(struct xdp_ring *x, uint32_t index)
{
	chunk_sent(&x->umem, index);
	if (chunk_owner(&x->umem, index) & OWNER_POSTED)
		return;
	chunk_wipe(x, index);
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

	posts_note(x, &x->pool->handing, at, index);
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

	for (; back_last(b, &index); back_drop(b)) {
		if (!is_tx(&x->umem, index) ||
		    (chunk_owner(&x->umem, index) & ~OWNER_POSTED) != x->umem.me)
			continue;
		posts_note(x, &b->fetching, (uint32_t)b->state, index);
		tx_done(x, (uint64_t)index << UMEM_CHUNK_SHIFT);
	}
	__atomic_store_n(&b->fetching, 0, __ATOMIC_RELEASE);
}

/*
 * Free chunks that one of so many members keeps. What all of them have kept, who came when, is less
 * than POOL_TX_CHUNKS even if none gives some back.
 */
static uint32_t tx_kept(const struct pool *p)
{
	uint32_t members = __atomic_load_n(&p->num_members, __ATOMIC_RELAXED), n = TX_KEPT;

	while (n > TX_KEPT_MIN && n * members > POOL_TX_CHUNKS / 4)
		n /= 2;
	return n;
}

static void tx_give_back(struct xdp_ring *x, uint32_t kept)
{
	uint32_t index;

	while (x->umem.tx_free.num > kept && chunk_pop(&x->umem.tx_free, &index)) {
		tx_push(x, index);
		x->tx_held--;
	}
}

/* Is more free than is kept, and others may need it? Not for a few. */
static void tx_surplus(struct xdp_ring *x, uint32_t kept)
{
	if (x->umem.tx_free.num > 2 * kept && pool_others(x->pool))
		tx_give_back(x, kept);
}

/* Some to have at once; what is more is for the others. */
static void tx_balance(struct xdp_ring *x)
{
	struct chunk_stack *s = &x->umem.tx_free;
	uint32_t index, kept = tx_kept(x->pool);

	while (s->num < kept && x->tx_held < UMEM_TX_CHUNKS && tx_pop(x, &index)) {
		chunk_owner_set(&x->umem, index, x->umem.me);
		chunk_push(s, index);
		x->tx_held++;
	}
	tx_surplus(x, kept);
}

void pool_reclaim(struct xdp_ring *x)
{
	pool_lock(x);
	hand_out(x, FINDER_SENDS);
	fetch_back(x);
	tx_balance(x);
	pool_unlock(x);
}

void pool_fetch(struct xdp_ring *x)
{
	pool_lock(x);
	hand_out(x, FINDER_BURIES);
	pool_unlock(x);
}

void pool_rest(struct xdp_ring *x)
{
	if (x->tx_held <= POOL_TX_RESTING || !pool_others(x->pool))
		return;
	pool_lock(x);
	hand_out(x, FINDER_SENDS);
	fetch_back(x);
	tx_give_back(x, POOL_TX_RESTING);
	pool_unlock(x);
}

uint32_t pool_supply(struct xdp_ring *x, struct xsk *s, uint32_t n)
{
	uint32_t room, index, done = 0;

	pool_lock(x);
	room = fill_begin(x, s);
	for (; done < n && done < room && chunk_pop(&x->umem.rx_free, &index); done++)
		fill_put(x, s, index);
	s->fill.head = fill_end(x, s);
	/* who only receives does not come by tx_balance() */
	tx_surplus(x, tx_kept(x->pool));
	pool_unlock(x);
	x->filled += done;
	rx_low(x);
	return done;
}

/* ------------------------------------------------------------------ what the dead had */

/*
 * What it had not read becomes the member's, so that all of it is found in one way. Place by place:
 * should we be killed, who comes next takes none that another has by then.
 */
static void unread_take(struct xdp_ring *x, uint32_t word, const struct xsk_ring *r)
{
	uint32_t at = __atomic_load_n(r->consumer, __ATOMIC_RELAXED),
		 end = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);

	if (end - at > r->size)
		return;
	while (at != end) {
		uint64_t index = r->desc[at & r->mask].addr >> UMEM_CHUNK_SHIFT;

		/* Another may just take it: see rx_contended(). */
		if (index < x->umem.num_rx)
			(void)chunk_owner_take(&x->umem, (uint32_t)index, word);
		__atomic_store_n(r->consumer, ++at, __ATOMIC_RELEASE);
	}
}

/* Of the posts of each chunk for transmitting, how many are over; -1: one was not counted. */
struct posts {
	int16_t over[POOL_TX_CHUNKS];
};

static void post_over(const struct xdp_ring *x, struct posts *posts, uint64_t index)
{
	if (index < x->umem.num_chunks && is_tx(&x->umem, (uint32_t)index))
		posts->over[index - x->umem.num_rx]++;
}

/* What the kernel has not taken from it for sending will not be sent. */
static void posts_unsent(const struct xdp_ring *x, struct posts *posts, const struct xsk_ring *r)
{
	uint32_t at = __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE),
		 end = __atomic_load_n(r->producer, __ATOMIC_RELAXED);

	for (; end - at && end - at <= r->size; at++)
		post_over(x, posts, r->desc[at & r->mask].addr >> UMEM_CHUNK_SHIFT);
}

/* It was killed between giving a frame to the driver and counting it. */
static void post_uncounted(const struct xdp_ring *x, struct posts *posts, uint64_t posting,
			   const struct xsk_ring *r)
{
	uint32_t head = __atomic_load_n(r->producer, __ATOMIC_RELAXED), index;

	if (posting_chunk(x, posting, &index) &&
	    posting == POSTING(head, chunk_posts(x, index), index))
		posts->over[index - x->umem.num_rx]--;
}

/* What has been sent, and it had not fetched. */
static void posts_back(const struct xdp_ring *x, struct posts *posts, const struct pool_back *b)
{
	uint32_t num = (uint32_t)b->state;

	num -= posts_are_less(x, b->fetching, num);
	for (uint32_t i = 0; i < num && num <= POOL_BACK_MAX; i++)
		post_over(x, posts, b->index[i]);
}

/*
 * Each chunk for transmitting becomes a dead one's with what the kernel still has to send, in one
 * store: who buries once more counts the same, for what is left.
 */
static void tx_orphan(struct xdp_ring *x, uint32_t word, const struct posts *posts)
{
	for (uint32_t i = x->umem.num_rx; i < x->umem.num_chunks; i++) {
		uint32_t is = chunk_owner(&x->umem, i);
		int32_t left = (int32_t)(is & OWNER_POSTED) - posts->over[i - x->umem.num_rx];

		if ((is & ~OWNER_POSTED) == word)
			chunk_owner_set(&x->umem, i, OWNER_DEAD | (left > 0 ? (uint32_t)left : 0));
	}
}

/* To the queue that has the least: none shall run dry while the dead's chunks come to another. */
static void rx_return(struct xdp_ring *x, uint32_t index)
{
	const struct xsk *to = NULL;
	uint32_t most = 0, room;

	for (uint32_t i = 0; i < x->num_queues; i++) {
		room = fill_begin(x, &x->xsk[i]);
		if (room <= most)
			continue;
		most = room;
		to = &x->xsk[i];
	}
	if (!to)
		return;
	fill_put(x, to, index);
	fill_end(x, to);
}

/* Those of a few chunks that the dead had, or that the kernel has sent. */
static void chunks_bury(struct xdp_ring *x, uint32_t first, uint32_t word)
{
	for (uint32_t i = first; i < first + BURY_BATCH && i < x->umem.num_chunks; i++) {
		uint32_t is = chunk_owner(&x->umem, i);

		if (is != (is_rx(&x->umem, i) ? word : OWNER_DEAD))
			continue;
		chunk_wipe(x, i);
		if (is_rx(&x->umem, i))
			rx_return(x, i);
		else
			tx_push(x, i);
	}
}

void pool_bury(struct xdp_ring *x, unsigned member, const struct xsk_ring *rx,
	       const struct xsk_ring *tx)
{
	struct pool_back *b = &x->pool->back[member];
	uint32_t word = OWNER_OF(member);
	struct posts posts = {0};

	pool_lock(x);
	hand_out(x, FINDER_BURIES);
	for (uint32_t i = 0; i < x->num_queues; i++)
		if (rx[i].map)
			unread_take(x, word, &rx[i]);
	if (tx->map && x->zerocopy)
		post_uncounted(x, &posts, x->pool->member[member].posting, tx);
	else if (tx->map)
		posts_unsent(x, &posts, tx);
	posts_back(x, &posts, b);
	tx_orphan(x, word, &posts);
	__atomic_store_n(&b->state, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&b->fetching, 0, __ATOMIC_RELEASE);
	pool_unlock(x);
	for (uint32_t i = 0; i < x->umem.num_chunks; i += BURY_BATCH) {
		pool_lock(x);
		chunks_bury(x, i, word);
		pool_unlock(x);
	}
}
