/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Received frames that the program has in its hands (the Extra API). It names them by numbers that
 * are looked up here: one that was given back, or never was one, is found out. Part of
 * stack/stack.h.
 */
#ifndef STACK_HELD_H
#define STACK_HELD_H

#include <linux/types.h>
#include <stdint.h>

#include "mellanox/vma_extra.h"
#include "mem/mem.h"

struct stack;
struct ring;

/* So many at a time in one process; who asks for more gets copies. */
#define STACK_HELD_MAX 32768u

struct stack_held {
	struct buf *b; /* NULL: free */
	struct stack *st;
	struct ring *ring;
	const void *owner; /* the socket; NULL: it is closed, anybody may give the frame back */
	/*
	 * Whose room the frame takes up, in bytes, for as long as back() finds that account_gen is
	 * still the account's. back() has st->lock.
	 */
	void (*back)(const struct stack_held *h);
	void *account;
	__u64 *count; /* how many the owner has, among its statistics; as long as it is open */
	uint32_t account_gen;
	uint32_t charge;
	uint32_t gen; /* another one for each frame that has had this place */
	uint32_t next_free;
	bool shown; /* a callback has it just now: it is not the program's to give back */
};

/*
 * The frame in *h (b, st, owner, back, account, account_gen, count, charge, shown) goes to the
 * program: what names it there. NULL: there are too many. st->lock is held.
 */
void *stack_hold(const struct stack_held *h);
/* The callback has ended: the program keeps the frame. st->lock is held. */
void stack_held_keep(void *id);
/* The callback has ended: the frame is the caller's. st->lock is held. */
void stack_held_drop(void *id);
/*
 * The program gives a frame back. 0; -ENOENT: it is none, or not this owner's; -EBUSY: a callback
 * has it. No lock is held.
 */
int stack_held_free(void *id, const void *owner);
/*
 * SocketXtreme: the frame goes to the program piece by piece, each with a count of its users and a
 * charge of its own. *p is what the program is told of it. False: there are too many, and nothing
 * has changed. st->lock is held.
 */
bool stack_lend(const struct stack_held *h, uint32_t (*charge)(const struct buf *piece, bool first),
		struct vma_packet_desc_t *p);
/* One user of a piece more, one less: how many are left, 0: it was given back. -EINVAL: it is none.
 */
int stack_lent_ref(const struct vma_buff_t *piece);
int stack_lent_unref(const struct vma_buff_t *piece);
/* As stack_lent_unref(), and what follows in the packet: NULL, nothing. */
int stack_lent_next(const struct vma_buff_t *piece, const struct vma_buff_t **next);
/* The owner is closed: what it holds anybody may give back. Any lock may be held. */
void stack_held_orphan(const void *owner);
/* In the child of a fork(): all of them are the parent's. */
void stack_held_forked(void);

#endif
