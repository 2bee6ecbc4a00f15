/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mem/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "kmod/kmod.h"
#include "runtime/runtime.h"

#define HUGE_PAGE (2ul << 20)

/*
 * Shared, so that a fork() copies no page on write: the kernel keeps writing to the pages that it
 * pinned, and whichever process got the copy would see nothing of it.
 */
static void *map(size_t bytes, int flags)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | flags, -1,
		       0);

	if (p == MAP_FAILED)
		return NULL;
	return p;
}

static void *map_huge(size_t *bytes)
{
	size_t rounded = (*bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	void *p = map(rounded, MAP_HUGETLB);

	if (p) {
		*bytes = rounded;
		log_debug("%zu MiB of huge pages", rounded >> 20);
	}
	return p;
}

/*
 * From the kernel module. Not so large for the processor's address cache as the pages of the huge
 * page pool.
 */
static void *map_pinned(enum vma_kmod_mem kind, size_t *bytes)
{
	void *p = kmod_region_map(kind, bytes);

	if (p)
		log_debug("%zu MiB of pinned memory from the kernel module", *bytes >> 20);
	else if (errno != ENODEV)
		log_info("the kernel module has no %zu MiB of pinned memory (%s)", *bytes >> 20,
			 strerror(errno));
	return p;
}

/* As the manual has it. */
static void warn_no_huge(void)
{
	log_warn("**************************************************************");
	log_warn("* NO IMMEDIATE ACTION NEEDED!                                *");
	log_warn("* Not enough hugepage resources for VMA memory allocation.   *");
	log_warn("* VMA will continue working with regular memory allocation.  *");
	log_warn("* Optional: another VMA_MEM_ALLOC_TYPE than 2, or more pages *");
	log_warn("* in /proc/sys/vm/nr_hugepages and a restart.                *");
	log_warn("**************************************************************");
}

/* who has mapped last: a child closes what it inherits before it opens anything */
static _Atomic uint64_t owner; /* process_mark() */

void *pages_map(enum pages_type type, size_t *bytes)
{
	void *p = NULL;

	if (type == PAGES_HUGE)
		p = map_huge(bytes);
	if (!p && type != PAGES_ANON)
		p = map_pinned(type == PAGES_HUGE ? VMA_KMOD_MEM_HUGE : VMA_KMOD_MEM_CONTIG, bytes);
	if (!p && type == PAGES_CONTIG)
		p = map_huge(bytes);
	if (!p && type == PAGES_HUGE)
		warn_no_huge();
	if (!p)
		p = map(*bytes, 0);
	atomic_store(&owner, process_mark());
	/*
	 * The kernel module's is so by itself, and rdma-core does it to what it registers where it
	 * has to.
	 */
	if (p && madvise(p, *bytes, MADV_DONTFORK))
		log_debug("%zu MiB go along with a fork(): %s", *bytes >> 20, strerror(errno));
	return p;
}

void pages_unmap(void *p, size_t bytes)
{
	if (atomic_load(&owner) == process_mark())
		munmap(p, bytes);
}
