/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between kernel versions, and nothing else. */
#ifndef VMA_COMPAT_H
#define VMA_COMPAT_H

#include <linux/mm.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
/* Mapping's owner holds its mmap lock for writing. */
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
#endif

#endif
