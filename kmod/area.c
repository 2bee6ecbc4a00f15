// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that the kernel reads and one process has mapped: statistics pages, slots, the fallback
 * ring.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "vma.h"

/**
 * vma_area_init - zeroed pages, charged to the caller's memory cgroup
 * @a: to be filled
 * @bytes: rounded up to whole pages; 0 makes an empty area
 *
 * Return: 0 or -ENOMEM.
 */
int vma_area_init(struct vma_area *a, size_t bytes)
{
	a->bytes = PAGE_ALIGN(bytes);
	a->at = a->bytes ? __vmalloc(a->bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO) : NULL;
	if (a->bytes && !a->at) {
		a->bytes = 0;
		return -ENOMEM;
	}
	return 0;
}

/**
 * vma_area_fini - gives the pages back; those still mapped live on until they are not
 * @a: of vma_area_init(), or zeroed
 */
void vma_area_fini(struct vma_area *a)
{
	vfree(a->at);
	a->at = NULL;
	a->bytes = 0;
}

/**
 * vma_area_map - the area from its beginning at the mapping's
 * @a: the area
 * @vma: of mmap(), with the mmap lock held for writing
 *
 * Shared mappings only: what a private one counts nobody sees. A forked child has no part in it,
 * nor has a core dump.
 *
 * Return: 0, -EINVAL or what vm_insert_page() says.
 */
int vma_area_map(const struct vma_area *a, struct vm_area_struct *vma)
{
	unsigned long bytes = vma->vm_end - vma->vm_start, i;
	int err = 0;

	if (bytes > a->bytes || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTDUMP | VM_DONTEXPAND);
	for (i = 0; i < bytes && !err; i += PAGE_SIZE)
		err = vm_insert_page(vma, vma->vm_start + i, vmalloc_to_page(a->at + i));
	return err;
}
