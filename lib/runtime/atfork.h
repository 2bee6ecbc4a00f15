/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pthread_atfork() for the rooms of the library, which preload also runs around a clone() that
 * copies the process: libc calls nobody's handlers there.
 */
#ifndef RUNTIME_ATFORK_H
#define RUNTIME_ATFORK_H

#include <stdbool.h>

/* As pthread_atfork(3), any of them NULL. Each room once; at most ATFORK_MAX rooms. Any thread. */
#define ATFORK_MAX 8
void atfork_add(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * As atfork_add(), once, by a constructor: as soon as the allocator has registered its own, if it
 * has any. An allocator's hold its locks from the parent's preparation to what follows: ours, which
 * may ask for memory, are to be registered after them. The program's are to be registered after
 * ours: they see sockets that work.
 */
void atfork_add_behind_allocator(void (*prepare)(void), void (*parent)(void), void (*child)(void));
/* Not later than now. */
void atfork_settle(void);
/* Somebody registers fn: ours wait for that, as it belongs to the object that has malloc(). */
bool atfork_is_allocators(void (*fn)(void));
/* He has done so. */
void atfork_allocator_registered(void);

/* In the order of pthread_atfork(): the last that came is prepared first. */
void atfork_prepare(void);
void atfork_parent(void);
void atfork_child(void);

#endif
