/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/internal.h"

void stack_due_add(struct stack *st, struct stack_due *d)
{
	if (atomic_load_explicit(&d->st, memory_order_relaxed))
		return;
	if (!st->due)
		st->due_tail = &st->due;
	d->next = NULL;
	d->pprev = st->due_tail;
	*st->due_tail = d;
	st->due_tail = &d->next;
	atomic_store_explicit(&d->st, st, memory_order_relaxed);
}

void stack_due_del(struct stack *st, struct stack_due *d)
{
	if (atomic_load_explicit(&d->st, memory_order_relaxed) != st)
		return;
	*d->pprev = d->next;
	if (d->next)
		d->next->pprev = d->pprev;
	else
		st->due_tail = d->pprev;
	atomic_store_explicit(&d->st, NULL, memory_order_relaxed);
}

unsigned stack_tell(struct stack *st, struct vma_completion_t *to, unsigned max,
		    struct stack_completions *told)
{
	unsigned n = 0;

	told->first = NULL;
	while (n < max && st->due && !told->first) {
		struct stack_due *d = st->due;
		enum stack_tells what;

		stack_due_del(st, d);
		told->at = &to[n];
		what = d->tell(st, d, told);
		if (what == STACK_TELLS_NOT_NOW)
			break;
		n += what == STACK_TELLS;
	}
	return n;
}
