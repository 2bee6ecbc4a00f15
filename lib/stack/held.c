/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/internal.h"

#include <errno.h>
#include <stdlib.h>

#define INDEX_BITS 16
_Static_assert(STACK_HELD_MAX < 1u << INDEX_BITS, "an index and 1 fit");

/* Taken last; calls nothing. */
static struct lock held_lock;
/* held_lock. Never freed; places from num_places on were never used. */
static struct stack_held *places;
static uint32_t num_places, first_free = STACK_HELD_MAX;

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

static struct stack_held *place_new(void)
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

static void place_free(struct stack_held *h)
{
	h->b = NULL;
	h->next_free = first_free;
	first_free = (uint32_t)(h - places);
}

void *stack_hold(const struct stack_held *frame)
{
	struct stack_held *h;
	void *id = NULL;
	uint32_t gen;

	lock_take(&held_lock);
	h = place_new();
	if (h) {
		gen = h->gen + 1;
		*h = *frame;
		h->gen = gen;
		h->ring = frame->st->ring;
		id = id_of(h);
		atomic_fetch_add_explicit(&h->ring->held, 1, memory_order_relaxed);
	}
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

int stack_held_free(void *id, const void *owner)
{
	struct stack_held h;
	int err = take(id, owner, &h);

	if (err)
		return err;
	lock_take(&h.st->lock);
	h.back(&h);
	buf_free(h.b);
	lock_drop(&h.st->lock);
	/* release: the ring's memory goes when nobody has any of it */
	atomic_fetch_sub_explicit(&h.ring->held, 1, memory_order_release);
	return 0;
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
	places = NULL;
	num_places = 0;
	first_free = STACK_HELD_MAX;
}
