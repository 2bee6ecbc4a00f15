/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the memory that a device writes to comes from. */
#ifndef MEM_PAGES_H
#define MEM_PAGES_H

#include <stddef.h>

/* VMA_MEM_ALLOC_TYPE */
enum pages_type { PAGES_ANON, PAGES_CONTIG, PAGES_HUGE };

/*
 * At least *bytes of zeroed memory, page-aligned: the program's allocator's (allocator.h) if there
 * is one; else of a type if there is such memory, else of the next best (the log says which). A
 * child of fork() does not have it. NULL and errno.
 */
void *pages_map(enum pages_type type, size_t *bytes);
/*
 * As pages_map() without an allocator, memory that another process can map by *fd, which is the
 * caller's to close. -1: it is the kernel module's, and nobody else can.
 */
void *pages_map_shared(enum pages_type type, size_t *bytes, int *fd);
/* The whole of such memory, of `bytes`, by its fd. NULL and errno. */
void *pages_map_fd(int fd, size_t bytes);
/*
 * All of what these gave. Nothing in a child, where something else may be at its place by
 * now.
 */
void pages_unmap(void *p, size_t bytes);
/*
 * Puts `with` (NULL: zeroes), memory of the program's own, in the place of what pages_map_shared()
 * or pages_map_fd() gave: another thread may be reading there. `with` is gone then. 0 or negative
 * errno.
 */
int pages_replace(void *p, size_t bytes, void *with);

#endif
