/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lists of listeners that the internal thread looks at until they are over. */
#include "handover/listener.h"

bool listener_looks_any(const struct listener_looks *list)
{
	return atomic_load_explicit(&list->num, memory_order_relaxed) != 0;
}

void listener_looks_add(struct listener_looks *list, struct listener_look *l)
{
	lock_class(&list->lock, "listener_looks.lock");
	lock_take(&list->lock);
	l->next = list->first;
	list->first = l;
	lock_drop(&list->lock);
	atomic_fetch_add(&list->num, 1);
	stacks_used();
}

/* The first one that is over, taken out of the list. NULL: none is. */
static struct listener_look *take_over(struct listener_looks *list)
{
	struct listener_look **at = &list->first, *l;

	/* Others add at the head only. */
	lock_take(&list->lock);
	l = *at;
	lock_drop(&list->lock);
	while (l && list->goes_on(l))
		l = l->next;
	if (!l)
		return NULL;
	lock_take(&list->lock);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	lock_drop(&list->lock);
	return l;
}

bool listener_looks_look(struct listener_looks *list)
{
	struct listener_look *l;

	while (listener_looks_any(list) && (l = take_over(list))) {
		list->end(l);
		atomic_fetch_sub(&list->num, 1);
	}
	return listener_looks_any(list);
}

struct listener_look *listener_looks_forked(struct listener_looks *list)
{
	struct listener_look *first = list->first;

	atomic_store(&list->lock.owner, 0);
	atomic_store(&list->num, 0);
	list->first = NULL;
	return first;
}
