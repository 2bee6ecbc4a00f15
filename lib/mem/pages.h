/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the memory that a device writes to comes from. */
#ifndef MEM_PAGES_H
#define MEM_PAGES_H

#include <stddef.h>

/* VMA_MEM_ALLOC_TYPE */
enum pages_type { PAGES_ANON, PAGES_CONTIG, PAGES_HUGE };

/*
 * At least *bytes of zeroed memory, page-aligned, of a type if there is such memory, else of the next best (the log says
 * which). A fork() makes no copies of it. The caller's to munmap(), *bytes of it. NULL and errno.
 */
void *pages_map(enum pages_type type, size_t *bytes);

#endif
