/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What syscall() has of clone.c: the calls' raw forms. */
#ifndef PRELOAD_CLONE_H
#define PRELOAD_CLONE_H

#include <stdbool.h>

/* As syscall(SYS_clone, flags, stack, ...) and syscall(SYS_clone3, args, size), the others in rest.
 */
long clone_raw(unsigned long flags, long stack, const long rest[3]);
long clone3_raw(const void *args, unsigned long size);

/* False: the new socket fd is of another network namespace than the library. */
bool netns_is_ours(int fd);

#endif
