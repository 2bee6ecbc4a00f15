/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mem/allocator.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/runtime.h"

#define PAGE 4096ul

static struct allocator theirs; /* who has set it is the one that reads it, until `settled` */
static _Atomic bool settled;

int allocator_set(const struct allocator *a)
{
	if (atomic_load(&settled))
		return -EINVAL;
	theirs = *a;
	return 0;
}

void allocator_settle(void)
{
	/* Each socket comes by: a load is nothing, a store would take the line from the others. */
	if (!atomic_load_explicit(&settled, memory_order_relaxed))
		atomic_store_explicit(&settled, true, memory_order_release);
}

bool allocator_is_there(void)
{
	return atomic_load_explicit(&settled, memory_order_acquire) && theirs.alloc;
}

/* Begins with a page, as a device wants it. */
struct piece {
	struct piece *next;
	void *given; /* what alloc() gave, and free() is to have */
	void *begin;
	size_t bytes;
};

static pthread_mutex_t pieces_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct piece *pieces;
static uint64_t owner; /* process_mark(): whose they are */

/* Those of a parent are not ours, and another thread of it may have been at them at fork(). */
static void pieces_after_fork(void)
{
	if (owner == process_mark())
		return;
	owner = process_mark();
	for (struct piece *p = pieces, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	pieces = NULL;
	pthread_mutex_init(&pieces_mutex, NULL);
}

static void piece_add(struct piece *p)
{
	pthread_mutex_lock(&pieces_mutex);
	p->next = pieces;
	pieces = p;
	pthread_mutex_unlock(&pieces_mutex);
}

/* It is in the list no more. */
static struct piece *piece_take(void *begin)
{
	struct piece **at, *p;

	pthread_mutex_lock(&pieces_mutex);
	for (at = &pieces; *at && (*at)->begin != begin; at = &(*at)->next)
		;
	p = *at;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&pieces_mutex);
	return p;
}

/* What the program opens there, a file of huge pages, is the program's (own_fd.h). */
static void *their_memory(size_t bytes)
{
	int inside = libc_internal;
	void *given;

	libc_internal = 0;
	given = theirs.alloc(bytes);
	libc_internal = inside;
	return given;
}

static void their_free(void *given)
{
	int inside = libc_internal;

	libc_internal = 0;
	theirs.free(given);
	libc_internal = inside;
}

/* Only one thread opens a ring at a time, so there is no other one before the first piece. */
void *allocator_map(size_t *bytes)
{
	size_t rounded = (*bytes + PAGE - 1) & ~(PAGE - 1);
	struct piece *p = malloc(sizeof(*p));
	void *given = p ? their_memory(rounded + PAGE) : NULL;
	uintptr_t begin = ((uintptr_t)given + PAGE - 1) & ~(PAGE - 1);

	if (!given) {
		free(p);
		log_warn("the program's allocator (vma_extra(3), ioctl()) has no %zu KiB: sockets "
			 "stay with the kernel where a ring needs them",
			 rounded >> 10);
		errno = ENOMEM;
		return NULL;
	}
	log_debug("%zu KiB of memory from the program's allocator", rounded >> 10);
	*p = (struct piece){.given = given, .begin = (void *)begin, .bytes = rounded};
	memset(p->begin, 0, rounded);
	pieces_after_fork();
	piece_add(p);
	*bytes = rounded;
	return p->begin;
}

bool allocator_unmap(void *begin)
{
	struct piece *p = allocator_is_there() ? piece_take(begin) : NULL;

	if (!p)
		return false;
	/* What the program does with it next a child of that time is to have. */
	if (madvise(p->begin, p->bytes, MADV_DOFORK))
		log_debug("%zu KiB stay away from a fork(): %s", p->bytes >> 10, strerror(errno));
	their_free(p->given);
	free(p);
	return true;
}
