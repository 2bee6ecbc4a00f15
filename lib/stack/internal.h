/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of the stacks, for stack*.c. */
#ifndef STACK_INTERNAL_H
#define STACK_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "stack/stack.h"

#define STACK_BATCH_MAX 128u

#pragma GCC visibility push(hidden)
/* who opens a ring; before the next, which is never held for as long as that takes */
extern pthread_mutex_t stacks_opening;
extern pthread_mutex_t stacks_mutex; /* which stacks there are, their rings, and refusals */
/* filled from the front, emptied by fork() only. Written under the mutex */
extern struct stack *_Atomic stacks[STACKS_MAX];
extern _Atomic unsigned num_stacks;
extern _Atomic uint32_t stacks_changes; /* stacks_generation() */
#pragma GCC visibility pop

/*
 * What the worker does for rings now and then, from the first one on, and for those with an upkeep:
 * a process without a ring is not woken for it. The mutex is held. 0 or negative errno.
 */
int stacks_timers_start(const struct ring *ring);
/*
 * What source.c needs of a stack that is being made, or made anew. 0 or -ENOMEM. st->lock is held.
 */
int stack_sources_init(struct stack *st, int ifindex, uint32_t seed);
/*
 * False: a packet with these addresses the kernel would drop where it comes in, so it is nobody's.
 * The stack's lock is held.
 */
bool stack_source_ok_slow(struct stack *st, const struct buf_meta *m);
/*
 * async_open.c: what stands in the place of st's ring on the interface until that is opened; what
 * is likely of it, it says. st is not open.
 */
struct ring *stack_no_ring(struct stack *st, int ifindex);
/*
 * The internal thread opens what is to come, and follows interfaces that are unseen; it looks for
 * both after stacks_mutex, which is held, is free. 0 or negative errno.
 */
int stack_opener_ask(void);
/* upkeep.c: follows st's interface if it is unseen. The worker only; then stacks_follow(). */
void stack_link_see(struct stack *st);
void stack_opener_forked(void);
/* The ring of an open stack is gone, or will never be: its users are told. The worker only. */
void stack_vanished(struct stack *st);
/* open.c: none is opened from now on. No lock held. */
void stacks_no_more(void);
/* An interface that has refused is asked again by the next who wants it. */
void stacks_forgive(int ifindex);
/* For err an interface is not asked for a ring, or for another one, for a while. */
void stacks_refuse(int ifindex, int err);
/*
 * The sockets of all rings go to the kernel, and for err no interface is asked for a while.
 * Returns how many there were. The worker only, no lock held.
 */
unsigned stacks_cut_off(int err);
/* Why an interface is refused: an errno that no ring gives. */
#define STACK_IPSEC (-ENOKEY)
/*
 * ipsec.c: the kernel has IPsec policies, and no ring is to be opened; if not, those that come
 * later end all. stacks_opening is held.
 */
bool stack_ipsec_is_used(void);
/* Nobody follows them any more: in the child of a fork(), and when the worker has ended. */
void stack_ipsec_end(void);
/* Why the last opening of a first ring there was refused, negative errno; 0: none was. */
int stack_last_refusal(int ifindex);
/* The child of a fork() begins without any stack, ... */
void stacks_table_forked(void);
/* ... with statistics of its own, */
void stack_pools_forked(void);
/* ... and no thread of it is about to be pinned. */
void stack_keys_forked(void);

#endif
