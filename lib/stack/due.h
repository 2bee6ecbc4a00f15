/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SocketXtreme: what a stack has to tell the program by completions. Sockets that have something
 * stand in a list of their stack; what they have stays where it is, bounded by their own buffers,
 * until somebody asks. Part of stack/stack.h. st->lock is held for all of these.
 */
#ifndef STACK_DUE_H
#define STACK_DUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mellanox/vma_extra.h"

struct stack;

/* One look of the program's. */
struct stack_completions {
	struct vma_completion_t *at; /* where the next completion goes */
	/*
	 * Not NULL: it is to be called, no lock held, before anything else is told. object's memory
	 * is type-stable. False: there is no more in this look.
	 */
	bool (*first)(void *object, uint32_t gen);
	void *object;
	uint32_t gen;
};

/* What became of one whose turn it was. It was taken out of the list, and has put itself back. */
enum stack_tells {
	STACK_TELLS_NOTHING,
	STACK_TELLS, /* told->at is filled */
	STACK_TELLS_NOT_NOW, /* the program holds all that it can */
};

struct stack_due {
	struct stack_due *next, **pprev;
	struct stack *_Atomic st; /* in whose list it is; NULL: none. Changes under its lock */
	enum stack_tells (*tell)(struct stack *st, struct stack_due *d,
				 struct stack_completions *told);
};

/* d, which may be there already, has something to tell. */
void stack_due_add(struct stack *st, struct stack_due *d);
/* It has not, if it was in st's list. */
void stack_due_del(struct stack *st, struct stack_due *d);
/* Has those that are due tell at most max completions; how many they were. */
unsigned stack_tell(struct stack *st, struct vma_completion_t *to, unsigned max,
		    struct stack_completions *told);

#endif
