/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between kernel versions, and nothing else. */
#ifndef VMA_COMPAT_H
#define VMA_COMPAT_H

#include <linux/gfp.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
/* Mapping's owner holds its mmap lock for writing. */
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}
#endif

/* struct kobj_type.get_ownership() has this. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define vma_owned_kobject struct kobject
#else
#define vma_owned_kobject const struct kobject
#endif

/* The largest order that the page allocator knows. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
#define VMA_ORDER_MAX (MAX_ORDER - 1)
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define VMA_ORDER_MAX MAX_ORDER
#else
#define VMA_ORDER_MAX MAX_PAGE_ORDER
#endif

/* The pages [pfn, end), emptied of what can be moved, a reference each; 0 or negative errno. */
static inline int vma_alloc_contig(unsigned long pfn, unsigned long end)
{
#ifdef CONFIG_CONTIG_ALLOC
	return alloc_contig_range(pfn, end, MIGRATE_MOVABLE, GFP_KERNEL | __GFP_NOWARN);
#else
	return -EOPNOTSUPP;
#endif
}

/* A TCP port's sockets, some of them in TIME_WAIT. Not to be left by break. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define vma_for_each_bound(sk, tb) sk_for_each_bound(sk, &(tb)->owners)
#else
/* clang-format off */
#define vma_next_bind2(node) hlist_entry_safe(node, struct inet_bind2_bucket, bhash_node)
#define vma_for_each_bound(sk, tb) \
	for (struct inet_bind2_bucket *tb2 = vma_next_bind2((tb)->bhash2.first); tb2; \
	     tb2 = vma_next_bind2(tb2->bhash_node.next)) \
		sk_for_each_bound(sk, &tb2->owners)
/* clang-format on */
#endif

#endif
