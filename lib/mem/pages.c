/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "mem/pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kmod/kmod.h"
#include "mem/allocator.h"
#include "runtime/runtime.h"

#define HUGE_PAGE (2ul << 20)

/*
 * Shared, so that a fork() copies no page on write: the kernel keeps writing to the pages that it
 * pinned, and whichever process got the copy would see nothing of it.
 */
static void *map(size_t bytes, int flags, int fd)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	return p;
}

static void *map_file(size_t bytes, unsigned flags, int *fd)
{
	void *p;

	*fd = own_fd_memory("vma-port", bytes, flags);
	if (*fd < 0)
		return NULL;
	p = map(bytes, 0, *fd);
	if (!p) {
		own_fd_close(*fd);
		*fd = -1;
	}
	return p;
}

/* Of ordinary pages; fd as get()'s. */
static void *map_plain(size_t bytes, int *fd)
{
	return fd ? map_file(bytes, 0, fd) : map(bytes, MAP_ANONYMOUS, -1);
}

static void *map_huge(size_t *bytes, int *fd)
{
	size_t rounded = (*bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	void *p = fd ? map_file(rounded, MFD_HUGETLB, fd)
		     : map(rounded, MAP_ANONYMOUS | MAP_HUGETLB, -1);

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

/* As the manual has it, with the numbers of this machine. */
static void warn_no_huge(size_t bytes)
{
	size_t needed = (bytes + HUGE_PAGE - 1) / HUGE_PAGE;
	char have[2][16];

	text_file_read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", have[0], 16);
	text_file_read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", have[1], 16);
	for (unsigned i = 0; i < 2; i++)
		have[i][strcspn(have[i], "\n")] = '\0';
	log_box("NO IMMEDIATE ACTION NEEDED!\n"
		"Not enough hugepage resources for VMA memory allocation.\n"
		"VMA will continue working with regular memory allocation.\n"
		"%zu pages of 2 MiB are needed; %s of the %s there are free.\n"
		"Optional: 1. Switch to a different memory allocation type\n"
		"             (VMA_MEM_ALLOC_TYPE= 0 or 1)\n"
		"          2. Restart process after increasing the number of hugepages:\n"
		"             \"cat /proc/meminfo | grep -i HugePage\"\n"
		"             \"echo %zu > /proc/sys/vm/nr_hugepages\"",
		needed, *have[0] ? have[0] : "none", *have[1] ? have[1] : "0",
		(size_t)strtoul(have[1], NULL, 10) + needed);
}

/* who has mapped last: a child closes what it inherits before it opens anything */
static _Atomic uint64_t owner; /* process_mark() */

/* The kernel module's is so by itself, and rdma-core does it to what it registers. */
static void keep_from_children(void *p, size_t bytes)
{
	atomic_store(&owner, process_mark());
	if (p && madvise(p, bytes, MADV_DONTFORK))
		log_debug("%zu MiB go along with a fork(): %s", bytes >> 20, strerror(errno));
}

/* fd: where the descriptor goes; NULL: none is wanted. */
static void *get(enum pages_type type, size_t *bytes, int *fd)
{
	void *p = NULL;

	if (type == PAGES_HUGE)
		p = map_huge(bytes, fd);
	if (!p && type != PAGES_ANON)
		p = map_pinned(type == PAGES_HUGE ? VMA_KMOD_MEM_HUGE : VMA_KMOD_MEM_CONTIG, bytes);
	if (!p && type == PAGES_CONTIG)
		p = map_huge(bytes, fd);
	if (!p && type == PAGES_HUGE)
		warn_no_huge(*bytes);
	if (!p)
		p = map_plain(*bytes, fd);
	keep_from_children(p, *bytes);
	return p;
}

void *pages_map(enum pages_type type, size_t *bytes)
{
	void *p;

	if (!allocator_is_there())
		return get(type, bytes, NULL);
	p = allocator_map(bytes);
	keep_from_children(p, *bytes);
	return p;
}

void *pages_map_shared(enum pages_type type, size_t *bytes, int *fd)
{
	*fd = -1;
	return get(type, bytes, fd);
}

void *pages_map_fd(int fd, size_t bytes)
{
	void *p = map(bytes, 0, fd);

	keep_from_children(p, bytes);
	return p;
}

void pages_unmap(void *p, size_t bytes)
{
	if (atomic_load(&owner) == process_mark() && !allocator_unmap(p))
		munmap(p, bytes);
}

int pages_replace(void *p, size_t bytes, void *with)
{
	void *got = with ? mremap(with, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p)
			 : mmap(p, bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (got == MAP_FAILED)
		return -errno;
	keep_from_children(p, bytes);
	return 0;
}
