/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The program's own functions, by which it wants the memory of rings (vma_extra(3), ioctl()). */
#ifndef MEM_ALLOCATOR_H
#define MEM_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

struct allocator {
	void *(*alloc)(size_t bytes);
	void (*free)(void *p);
};

/*
 * Before the program's first socket, and not while another thread makes that. 0; -EINVAL: it is too
 * late.
 */
int allocator_set(const struct allocator *a);
/* The program has a socket: from now on there is that allocator, or none. Any thread. */
void allocator_settle(void);
bool allocator_is_there(void);
/*
 * As pages_map(), by the one that is there: called in any thread, the internal one too. NULL and
 * errno, which is logged.
 */
void *allocator_map(size_t *bytes);
/* Gives p back if allocator_map() has given it; false: it has not. */
bool allocator_unmap(void *p);

#endif
