/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Epoll sets and their items: memory, tags, the fd index and the ready list. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "iomux/epoll.h"

/*
 * A tag is 0xe5a7 | generation (24 bits) | index (24 bits); no canonical address begins like that.
 */
#define TAG_MAGIC 0xe5a7ull
#define TAG_BITS 24
#define TAG_MASK ((1u << TAG_BITS) - 1)

#define CHUNK 128
#define CHUNKS_MAX 8192

static struct lock item_lock; /* the free list and num_chunks */
static struct epitem *_Atomic chunks[CHUNKS_MAX];
static unsigned num_chunks;
/*
 * A forked child shares kernel epolls with its parent: its new tags must differ from the parent's
 * new tags.
 */
static uint32_t generation_salt;
static struct epitem *free_items;

static struct lock set_list_lock;
static struct epset *_Atomic all_sets;
static struct epset *free_sets;

static bool chunk_new(void)
{
	struct epitem *c = num_chunks < CHUNKS_MAX ? calloc(CHUNK, sizeof(*c)) : NULL;

	if (!c)
		return false;
	for (unsigned i = CHUNK; i-- > 0;) {
		c[i].index = num_chunks * CHUNK + i;
		c[i].next = free_items;
		free_items = &c[i];
	}
	atomic_store_explicit(&chunks[num_chunks++], c, memory_order_release);
	return true;
}

struct epitem *epitem_new(void)
{
	struct epitem *it = NULL;

	lock_take(&item_lock);
	if (free_items || chunk_new()) {
		it = free_items;
		free_items = it->next;
		it->next = NULL;
		it->generation = (it->generation + generation_salt) & TAG_MASK;
	}
	lock_drop(&item_lock);
	return it;
}

void epitem_free(struct epitem *it)
{
	lock_take(&item_lock);
	it->generation = (it->generation + 1) & TAG_MASK;
	__atomic_store_n(&it->set, NULL, __ATOMIC_RELAXED);
	it->v = NULL;
	it->next = free_items;
	free_items = it;
	lock_drop(&item_lock);
}

uint64_t epitem_tag(const struct epitem *it)
{
	return TAG_MAGIC << 48 | (uint64_t)it->generation << TAG_BITS | it->index;
}

bool epitem_tagged(uint64_t data)
{
	return __builtin_expect(data >> 48 == TAG_MAGIC, 0);
}

struct epitem *epitem_of(struct epset *s, uint64_t data)
{
	uint32_t index = data & TAG_MASK, generation = data >> TAG_BITS & TAG_MASK;

	struct epitem *c, *it;

	if (index / CHUNK >= CHUNKS_MAX)
		return NULL;
	c = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
	it = c ? &c[index % CHUNK] : NULL;
	/* Once it is known to belong to s it stays so: items of s are freed under its mtx. */
	if (!it || __atomic_load_n(&it->set, __ATOMIC_ACQUIRE) != s || it->generation != generation)
		return NULL;
	return it;
}

struct epset *epset_first(void)
{
	return atomic_load_explicit(&all_sets, memory_order_acquire);
}

struct epset *epset_new(void)
{
	struct epset *s;

	lock_take(&set_list_lock);
	s = free_sets;
	if (s) {
		free_sets = s->free;
	} else {
		s = calloc(1, sizeof(*s));
		if (s) {
			lock_class(&s->lock, "epoll_set.lock");
			lock_class(&s->vfd.watch_lock, "epoll_set.watch_lock");
			atomic_store_explicit(&s->kick_fd, -1, memory_order_relaxed);
			s->all = atomic_load_explicit(&all_sets, memory_order_relaxed);
			atomic_store_explicit(&all_sets, s, memory_order_release);
		}
	}
	lock_drop(&set_list_lock);
	if (s) {
		atomic_store_explicit(&s->inherited, false, memory_order_relaxed);
		atomic_store_explicit(&s->spin.seen, 0, memory_order_relaxed);
	}
	return s;
}

void epset_free(struct epset *s)
{
	lock_take(&set_list_lock);
	s->free = free_sets;
	free_sets = s;
	lock_drop(&set_list_lock);
}

/*
 * A socket's events() may ask the kernel, and that is a cancellation point: nobody must die holding
 * a set.
 */
void epset_lock(struct epset *s)
{
	int state = lock_quiet_begin();

	lock_take(&s->mtx);
	s->cancel_state = state;
	lock_leave();
}

/* mtx held. Items of objects that have no fd left. */
static void reap(struct epset *s)
{
	struct epitem *it, *next;

	for (it = s->items; it; it = next) {
		next = it->next;
		if (it->v && !it->v->nfds)
			epset_remove(s, it);
	}
}

void epset_unlock(struct epset *s)
{
	int state = s->cancel_state;

	lock_enter();
	lock_drop(&s->mtx);
	while (__builtin_expect(atomic_load_explicit(&s->reap, memory_order_relaxed), 0)) {
		lock_take(&s->mtx);
		atomic_store_explicit(&s->reap, false, memory_order_relaxed);
		reap(s);
		lock_drop(&s->mtx);
	}
	lock_quiet_end(state);
}

/* Makes by_fd reach fd. */
static int index_grow(struct epset *s, int fd)
{
	unsigned size = s->by_fd_size ? s->by_fd_size : 16;
	struct epitem **grown;

	if ((unsigned)fd < s->by_fd_size)
		return 0;
	while (size <= (unsigned)fd)
		size *= 2;
	grown = realloc(s->by_fd, size * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	for (unsigned i = s->by_fd_size; i < size; i++)
		grown[i] = NULL;
	s->by_fd = grown;
	s->by_fd_size = size;
	return 0;
}

void epitem_served(struct epset *s, struct epitem *it)
{
	bool served =
		it->in_kernel &&
		(it->nested || !it->v ||
		 atomic_load_explicit(&it->v->shadow, memory_order_relaxed) == VFD_SHADOW_ALL);

	if (it->served != served)
		atomic_fetch_add_explicit(&s->num_served, served ? 1u : -1u, memory_order_relaxed);
	it->served = served;
}

int epset_insert(struct epset *s, struct epitem *it)
{
	int r = index_grow(s, it->fd);

	if (r)
		return r;
	it->same_fd = s->by_fd[it->fd];
	s->by_fd[it->fd] = it;
	it->next = s->items;
	it->pprev = &s->items;
	if (it->next)
		it->next->pprev = &it->next;
	s->items = it;
	if (it->nested)
		s->num_nested++;
	else
		s->num_sockets++;
	__atomic_store_n(&it->set, s, __ATOMIC_RELEASE);
	atomic_fetch_add(&s->num_items, 1);
	return 0;
}

struct epitem *epset_find(struct epset *s, int fd, const struct vfd *v)
{
	struct epitem *it = (unsigned)fd < s->by_fd_size ? s->by_fd[fd] : NULL;

	while (it && it->v != v)
		it = it->same_fd;
	return it;
}

/* Out of the list; num_ready is the caller's business. */
static void ready_unlink(struct epset *s, struct epitem *it)
{
	if (it->ready_prev)
		it->ready_prev->ready_next = it->ready_next;
	else
		s->ready_first = it->ready_next;
	if (it->ready_next)
		it->ready_next->ready_prev = it->ready_prev;
	else
		s->ready_last = it->ready_prev;
	it->ready = false;
}

/* What the item asks for; nothing once ONESHOT has fired. */
static uint32_t wanted(const struct epitem *it)
{
	return it->events & ~EP_PRIVATE;
}

uint32_t epitem_user(const struct epitem *it)
{
	uint32_t mask = wanted(it);

	return mask && it->v ? it->v->ops->events(it->v) & mask : 0;
}

uint32_t epitem_peek(const struct epitem *it)
{
	return epitem_user(it) | (it->os_pending & wanted(it));
}

void epitem_arm(struct epset *s, struct epitem *it, uint32_t events)
{
	lock_take(&s->lock);
	it->events = events;
	lock_drop(&s->lock);
}

void epset_ready(struct epset *s, struct epitem *it, uint32_t events)
{
	lock_take(&s->lock);
	if (!it->ready && wanted(it) & events) {
		it->ready = true;
		it->ready_next = NULL;
		it->ready_prev = s->ready_last;
		if (s->ready_last)
			s->ready_last->ready_next = it;
		else
			s->ready_first = it;
		s->ready_last = it;
		atomic_fetch_add(&s->num_ready, 1);
	}
	lock_drop(&s->lock);
}

struct epitem *epset_pop(struct epset *s)
{
	struct epitem *it;

	lock_take(&s->lock);
	it = s->ready_first;
	if (it)
		ready_unlink(s, it);
	lock_drop(&s->lock);
	return it;
}

void epset_popped(struct epset *s, unsigned n)
{
	atomic_fetch_sub(&s->num_ready, n);
}

void epset_wake(struct epset *s)
{
	struct epwaiter *w;

	if (!atomic_load(&s->num_waiters) || !atomic_load(&s->num_ready))
		return;
	lock_take(&s->lock);
	w = s->waiters;
	while (w && w->woken)
		w = w->next;
	/*
	 * This thread itself, between watch and unwatch, is awake: it looks before it sleeps, and
	 * wakes the next when it leaves.
	 */
	if (w && w->thread != wait_thread_self()) {
		w->woken = true;
		wait_wake(w->thread);
	}
	lock_drop(&s->lock);
}

void epset_wake_all(struct epset *s)
{
	lock_take(&s->lock);
	for (struct epwaiter *w = s->waiters; w; w = w->next)
		wait_wake(w->thread);
	lock_drop(&s->lock);
}

void epset_notify(struct epset *s)
{
	epset_wake(s);
	vfd_notify(&s->vfd, EPOLLIN);
}

void epset_waiter_add(struct epset *s, struct epwaiter *w)
{
	w->woken = false;
	w->thread = wait_thread_self();
	if (!w->thread) /* wait_sleep() looks again by itself */
		return;
	lock_take(&s->lock);
	w->next = s->waiters;
	w->pprev = &s->waiters;
	if (w->next)
		w->next->pprev = &w->next;
	s->waiters = w;
	atomic_fetch_add(&s->num_waiters, 1);
	lock_drop(&s->lock);
}

void epset_waiter_del(struct epset *s, struct epwaiter *w)
{
	if (!w->thread)
		return;
	lock_take(&s->lock);
	*w->pprev = w->next;
	if (w->next)
		w->next->pprev = w->pprev;
	atomic_fetch_sub(&s->num_waiters, 1);
	lock_drop(&s->lock);
	w->thread = NULL;
}

void epset_remove(struct epset *s, struct epitem *it)
{
	struct epitem **p = &s->by_fd[it->fd];

	while (*p != it)
		p = &(*p)->same_fd;
	*p = it->same_fd;
	*it->pprev = it->next;
	if (it->next)
		it->next->pprev = it->pprev;
	epitem_in_kernel(s, it, false);
	epitem_served(s, it);
	if (it->nested)
		s->num_nested--;
	else if (it->v)
		s->num_sockets--;
	/* From here on nobody puts it into the ready list any more. */
	if (it->v)
		vfd_watch_del(it->v, &it->watch);
	lock_take(&s->lock);
	if (it->ready) {
		ready_unlink(s, it);
		atomic_fetch_sub(&s->num_ready, 1);
	}
	lock_drop(&s->lock);
	atomic_fetch_sub(&s->num_items, 1);
	epitem_free(it);
}

void epset_orphan(struct epset *s, struct epitem *it)
{
	struct epitem *before = epset_find(s, it->fd, NULL);

	/* Its number has been closed, and nobody has seen that. */
	if (before)
		epset_remove(s, before);
	vfd_watch_del(it->v, &it->watch);
	it->v = NULL;
	if (it->nested)
		s->num_nested--;
	else
		s->num_sockets--;
	it->nested = false;
	epitem_in_kernel(s, it, true);
	epitem_served(s, it);
}

static void set_forked(struct epset *s)
{
	struct epitem *it;

	atomic_store(&s->mtx.owner, 0);
	atomic_store(&s->lock.owner, 0);
	atomic_store(&s->vfd.watch_lock.owner, 0);
	atomic_store(&s->vfd.watches, NULL);
	epset_plain_anew(s);
	atomic_store(&s->inherited, true);
	s->waiters = NULL;
	atomic_store(&s->num_waiters, 0);
	/*
	 * Not taken apart item by item: another thread may have been changing the list at the
	 * fork().
	 */
	s->ready_first = s->ready_last = NULL;
	atomic_store(&s->num_ready, 0);
	for (it = s->items; it; it = it->next) {
		it->ready = false;
		if (!it->nested || !it->v || !it->v->nfds)
			it->v = NULL;
		epitem_served(s, it);
	}
	atomic_store(&s->num_sockets, 0);
}

/* The sets in s are the child's as s is: what becomes ready in them is told to s. */
static void watch_nested(struct epset *s)
{
	for (struct epitem *it = s->items; it; it = it->next)
		if (it->v)
			vfd_watch_add(it->v, &it->watch);
}

void epset_forked(void)
{
	atomic_store(&item_lock.owner, 0);
	atomic_store(&set_list_lock.owner, 0);
	generation_salt = (uint32_t)getpid() * 2654435761u & TAG_MASK;
	for (struct epset *s = epset_first(); s; s = s->all)
		set_forked(s);
	/* After all of them: each has lost its watches. */
	for (struct epset *s = epset_first(); s; s = s->all)
		watch_nested(s);
}
