/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process whose main thread has called pthread_exit() ends with its last thread, as if by exit(0)
 * (pthread_exit(3)). The internal thread is one that the program does not know of: when no other is
 * left it ends the process.
 */
#ifndef RUNTIME_LAST_THREAD_H
#define RUNTIME_LAST_THREAD_H

#include <stdbool.h>

/* The worker calls it now and then: so late the process may end. */
void last_thread_look(void);
/* The program has one thread, as far as can be seen, and there is the internal one. */
bool last_thread_is_only_one(void);
/* The child of a fork(), whose only thread is its main thread and which has no worker. */
void last_thread_forked(void);

#endif
