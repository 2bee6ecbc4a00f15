/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pthread_atfork() for the rooms of the library, which preload also runs around a clone() that
 * copies the process: libc calls nobody's handlers there.
 */
#ifndef RUNTIME_ATFORK_H
#define RUNTIME_ATFORK_H

/* As pthread_atfork(3), any of them NULL. Each room once; at most ATFORK_MAX rooms. Any thread. */
#define ATFORK_MAX 8
void atfork_add(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/* In the order of pthread_atfork(): the last that came is prepared first. */
void atfork_prepare(void);
void atfork_parent(void);
void atfork_child(void);

#endif
