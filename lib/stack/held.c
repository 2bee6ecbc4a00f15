/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define INDEX_BITS 16
_Static_assert(STACK_HELD_MAX < 1u << INDEX_BITS, "an index and 1 fit");

/* Taken last; calls nothing. */
static struct lock held_lock;
/* held_lock. Never freed; places from num_places on were never used. */
static struct stack_held *places;
static uint32_t num_places, first_free = STACK_HELD_MAX;

/* SocketXtreme: what the program sees of a place that is lent. */
struct lent {
	struct vma_buff_t buff;
	uint32_t refs; /* 0: its place is not lent */
};
/* As places, and by the same index; NULL: nothing was ever lent. */
static struct lent *lents;

static void *id_of(const struct stack_held *h)
{
	return (void *)((uintptr_t)h->gen << INDEX_BITS | (uintptr_t)(h - places + 1));
}

/* NULL: nothing has this name now. held_lock is held. */
static struct stack_held *find(const void *id)
{
	uintptr_t index = ((uintptr_t)id & ((1u << INDEX_BITS) - 1)) - 1;

	if (index >= num_places || !places[index].b || id_of(&places[index]) != id)
		return NULL;
	return &places[index];
}

/* A place that was free. NULL: there is none. */
static struct stack_held *place_find(void)
{
	struct stack_held *h = NULL;

	if (first_free < STACK_HELD_MAX) {
		h = &places[first_free];
		first_free = h->next_free;
		return h;
	}
	/* Pages of it that nobody has touched cost nothing. */
	if (!places)
		places = calloc(STACK_HELD_MAX, sizeof(*places));
	if (places && num_places < STACK_HELD_MAX)
		h = &places[num_places++];
	return h;
}

/* A place with the frame in it. NULL: there is none. */
static inline __attribute__((always_inline)) struct stack_held *
place_new(const struct stack_held *frame)
{
	struct stack_held *h = place_find();
	uint32_t gen;

	if (!h)
		return NULL;
	gen = h->gen + 1;
	*h = *frame;
	h->gen = gen;
	h->ring = frame->st->ring;
	stats_add(h->count, 1);
	atomic_fetch_add_explicit(&h->ring->held, 1, memory_order_relaxed);
	return h;
}

static void place_free(struct stack_held *h)
{
	if (h->owner)
		stats_add(h->count, -1ull);
	h->b = NULL;
	h->next_free = first_free;
	first_free = (uint32_t)(h - places);
}

void *stack_hold(const struct stack_held *frame)
{
	struct stack_held *h;
	void *id;

	lock_take(&held_lock);
	h = place_new(frame);
	id = h ? id_of(h) : NULL;
	lock_drop(&held_lock);
	return id;
}

void stack_held_keep(void *id)
{
	struct stack_held *h;

	lock_take(&held_lock);
	h = find(id);
	if (h)
		h->shown = false;
	lock_drop(&held_lock);
}

void stack_held_drop(void *id)
{
	struct ring *ring = NULL;
	struct stack_held *h;

	lock_take(&held_lock);
	h = find(id);
	if (h) {
		ring = h->ring;
		place_free(h);
	}
	lock_drop(&held_lock);
	if (ring)
		atomic_fetch_sub_explicit(&ring->held, 1, memory_order_release);
}

/* Takes the frame out of the table into *out. As stack_held_free(). */
static int take(const void *id, const void *owner, struct stack_held *out)
{
	struct stack_held *h;
	int err = 0;

	lock_take(&held_lock);
	h = find(id);
	if (!h || (h->owner && h->owner != owner))
		err = -ENOENT;
	else if (h->shown)
		err = -EBUSY;
	if (!err) {
		*out = *h;
		place_free(h);
	}
	lock_drop(&held_lock);
	return err;
}

/* What was taken out of the table is memory again. */
static inline __attribute__((always_inline)) void give_back(const struct stack_held *h)
{
	lock_take(&h->st->lock);
	h->back(h);
	buf_free(h->b);
	lock_drop(&h->st->lock);
	/* release: the ring's memory goes when nobody has any of it */
	atomic_fetch_sub_explicit(&h->ring->held, 1, memory_order_release);
}

int stack_held_free(void *id, const void *owner)
{
	struct stack_held h;
	int err = take(id, owner, &h);

	if (!err)
		give_back(&h);
	return err;
}

/* --- pieces that are lent */

/* So many places are free; held_lock is held. */
static bool have_room(unsigned n)
{
	uint32_t never_used = STACK_HELD_MAX - num_places;

	if (!lents)
		lents = calloc(STACK_HELD_MAX, sizeof(*lents));
	for (uint32_t i = first_free; n > never_used && i < STACK_HELD_MAX; i = places[i].next_free)
		n--;
	return lents && n <= never_used;
}

static unsigned pieces_of(const struct buf *b)
{
	unsigned n = 0;

	for (; b; b = b->frag)
		n++;
	return n;
}

/* NULL: no memory for the table. */
static struct vma_buff_t *lend_piece(const struct stack_held *h, struct buf *piece, uint32_t charge)
{
	struct stack_held one = *h, *place;
	struct lent *l;

	one.b = piece;
	one.charge = charge;
	place = place_new(&one);
	if (!place)
		return NULL;
	l = &lents[place - places];
	l->refs = 1;
	l->buff = (struct vma_buff_t){.payload = piece->data, .len = (uint16_t)piece->len};
	piece->frag = NULL;
	piece->total = piece->len;
	return &l->buff;
}

bool stack_lend(const struct stack_held *h, uint32_t (*charge)(const struct buf *piece, bool first),
		struct vma_packet_desc_t *p)
{
	struct vma_buff_t **tail = &p->buff_lst;
	struct buf *next, *b = h->b;
	bool done = false;

	p->num_bufs = pieces_of(b);
	p->total_len = (uint16_t)b->total;
	lock_take(&held_lock);
	if (have_room((unsigned)p->num_bufs)) {
		do {
			next = b->frag;
			*tail = lend_piece(h, b, charge(b, b == h->b));
			done = *tail != NULL;
			if (done)
				tail = &(*tail)->next;
			b = next;
		} while (done && b);
	}
	lock_drop(&held_lock);
	return done;
}

/* NULL: it is none. held_lock is held. */
static struct lent *lent_of(const struct vma_buff_t *piece)
{
	size_t at = (uintptr_t)piece - (uintptr_t)lents;

	if (!lents || at >= num_places * sizeof(*lents) || at % sizeof(*lents) ||
	    !places[at / sizeof(*lents)].b || !lents[at / sizeof(*lents)].refs)
		return NULL;
	return &lents[at / sizeof(*lents)];
}

int stack_lent_ref(const struct vma_buff_t *piece)
{
	struct lent *l;
	int refs = -EINVAL;

	lock_take(&held_lock);
	l = lent_of(piece);
	if (l && l->refs < INT_MAX)
		refs = (int)++l->refs;
	lock_drop(&held_lock);
	return refs;
}

int stack_lent_next(const struct vma_buff_t *piece, const struct vma_buff_t **next)
{
	struct stack_held h, *place;
	struct lent *l;
	int refs = -EINVAL;

	lock_take(&held_lock);
	l = lent_of(piece);
	*next = l ? l->buff.next : NULL;
	if (l)
		refs = (int)--l->refs;
	if (!refs) {
		place = &places[l - lents];
		h = *place;
		place_free(place);
	}
	lock_drop(&held_lock);
	if (!refs)
		give_back(&h);
	return refs;
}

int stack_lent_unref(const struct vma_buff_t *piece)
{
	const struct vma_buff_t *next;

	return stack_lent_next(piece, &next);
}

void stack_held_orphan(const void *owner)
{
	lock_take(&held_lock);
	for (uint32_t i = 0; i < num_places; i++) {
		if (places[i].b && places[i].owner == owner)
			places[i].owner = NULL;
	}
	lock_drop(&held_lock);
}

void stack_held_forked(void)
{
	atomic_store(&held_lock.owner, 0);
	free(places);
	free(lents);
	places = NULL;
	lents = NULL;
	num_places = 0;
	first_free = STACK_HELD_MAX;
}
