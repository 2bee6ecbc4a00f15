/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which process this is. Its pid does not tell: a child in another PID namespace can have its
 * parent's number (both are 1 there), and what the parent has opened is not its own to take apart.
 */
#ifndef RUNTIME_PROCESS_MARK_H
#define RUNTIME_PROCESS_MARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Not 0, and of a child another one than its parent's, however it was made. */
uint64_t process_mark(void);
/*
 * This process was made by fork() or clone(), not by exec(): locks of libc's that it does not renew
 * in a child (that of the time zone) may be held for ever by a thread of the parent.
 */
bool process_is_copy(void);
/* The pid of the process that has loaded the library, of which this one may be a copy. For
 * constructors. */
pid_t process_loaded_by(void);
/* The child of a fork(), before any room looks. */
void process_mark_forked(void);

#endif
