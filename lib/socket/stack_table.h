/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of the stacks, for stack*.c. */
#ifndef SOCKET_STACK_TABLE_H
#define SOCKET_STACK_TABLE_H

#include <pthread.h>
#include <stdatomic.h>

#include "socket/stack_int.h"

#define STACK_BATCH_MAX 128u

#pragma GCC visibility push(hidden)
extern pthread_mutex_t stacks_mutex; /* opening and closing */
extern struct stack *_Atomic stacks[STACKS_MAX]; /* filled from the front, emptied by fork() only. Written under the mutex */
extern _Atomic unsigned num_stacks;
extern _Atomic uint32_t stacks_changes; /* stacks_generation() */
#pragma GCC visibility pop

/* Rings with an upkeep need a timer; where there is none the worker is not woken for it. The mutex is held. 0 or negative errno. */
int stacks_upkeep_start(const struct ring *ring);
/* An interface that has refused is asked again by the next who wants it. */
void stacks_forgive(int ifindex);
/* The child of a fork() begins without any stack. */
void stacks_table_forked(void);

#endif
