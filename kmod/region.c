// SPDX-License-Identifier: GPL-2.0-only
/* Pinned memory in physically contiguous blocks, counted against RLIMIT_MEMLOCK as AF_XDP's is. */
#include <linux/bits.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "compat.h"
#include "vma.h"

#define HUGE_ORDER (21 - PAGE_SHIFT) /* 2 MiB */
#define BYTES_MAX BIT_ULL(36) /* what one region's place in the device's offsets holds */

/**
 * vma_region_charge - counts pages as locked by a user
 * @user: whose
 * @pages: how many
 * @limit: of pages, RLIMIT_MEMLOCK
 *
 * Return: 0; -EPERM: the limit is 0; -ENOMEM: over it. Then nothing is counted.
 */
int vma_region_charge(struct user_struct *user, unsigned long pages, unsigned long limit)
{
	long old = atomic_long_read(&user->locked_vm);

	do {
		if (!limit)
			return -EPERM;
		if (old + pages > limit)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &old, old + pages));
	return 0;
}

static int charge(struct vma_region *r)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	int err;

	if (capable(CAP_IPC_LOCK))
		return 0;
	r->cred = get_current_cred();
	err = vma_region_charge(r->cred->user, vma_region_pages(r), limit);
	if (err) {
		put_cred(r->cred);
		r->cred = NULL;
	}
	return err;
}

static void uncharge(struct vma_region *r)
{
	if (!r->cred)
		return;
	atomic_long_sub(vma_region_pages(r), &r->cred->user->locked_vm);
	put_cred(r->cred);
	r->cred = NULL;
}

static struct page *block_alloc(unsigned int order, int node)
{
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;

	if (order == VMA_GIGA_ORDER)
		return vma_giga_alloc(node);
	/* A block of one page needs no compound head, and no luck either. */
	if (order)
		gfp |= __GFP_COMP | __GFP_RETRY_MAYFAIL;
	if (node != NUMA_NO_NODE)
		gfp |= __GFP_THISNODE;
	return alloc_pages_node(node, gfp, order);
}

static void block_free(struct page *block, unsigned int order)
{
	if (order == VMA_GIGA_ORDER)
		vma_giga_free(block);
	else
		put_page(block);
}

/* Mapped ones go with their last page table entry. */
static void blocks_free(struct vma_region *r)
{
	unsigned long i;

	for (i = 0; i < r->num && r->blocks[i]; i++)
		block_free(r->blocks[i], r->order);
	kvfree(r->blocks);
}

/* All blocks, zeroed; 0, -ENOMEM, -EINTR. */
static int blocks_alloc(struct vma_region *r, int node)
{
	unsigned long i;
	int err = 0;

	r->blocks = kvcalloc(r->num, sizeof(*r->blocks), GFP_KERNEL_ACCOUNT);
	if (!r->blocks)
		return -ENOMEM;
	for (i = 0; i < r->num && !err; i++) {
		r->blocks[i] = block_alloc(r->order, node);
		if (fatal_signal_pending(current))
			err = -EINTR;
		else if (!r->blocks[i])
			err = -ENOMEM;
		cond_resched();
	}
	if (err)
		blocks_free(r);
	return err;
}

static int try_order(struct vma_region *r, u64 bytes, unsigned int order, int node)
{
	u64 block = (u64)PAGE_SIZE << order;
	int err;

	r->order = order;
	r->num = (bytes + block - 1) / block;
	err = charge(r);
	if (err)
		return err;
	err = blocks_alloc(r, node);
	if (err)
		uncharge(r);
	return err;
}

/* Is this something that can be asked for? */
static bool arg_ok(const struct vma_kmod_region *arg)
{
	if (!arg->bytes || arg->bytes > BYTES_MAX || arg->reserved || arg->offset || arg->block)
		return false;
	if (arg->kind < VMA_KMOD_MEM_CONTIG || arg->kind > VMA_KMOD_MEM_GIGA)
		return false;
	return arg->node == NUMA_NO_NODE ||
	       (arg->node >= 0 && arg->node < MAX_NUMNODES && node_online(arg->node));
}

/**
 * vma_region_alloc - pinned, zeroed memory, not mapped yet
 * @arg: what the process asks for; bytes and block become what it gets
 *
 * Contiguous memory is taken in the largest blocks that there are, huge pages in their size or not
 * at all.
 *
 * Return: the region, or -EINVAL, -EPERM, -ENOMEM, -EINTR.
 */
struct vma_region *vma_region_alloc(struct vma_kmod_region *arg)
{
	unsigned int order = HUGE_ORDER, least = HUGE_ORDER;
	struct vma_region *r;
	int err;

	if (!arg_ok(arg))
		return ERR_PTR(-EINVAL);
	/* Not to empty the whole system first. */
	if (arg->bytes >> PAGE_SHIFT > totalram_pages())
		return ERR_PTR(-ENOMEM);
	r = kzalloc(sizeof(*r), GFP_KERNEL_ACCOUNT);
	if (!r)
		return ERR_PTR(-ENOMEM);
	if (arg->kind == VMA_KMOD_MEM_CONTIG) {
		order = min_t(unsigned int, get_order(arg->bytes), VMA_ORDER_MAX);
		least = min_t(unsigned int, order, PAGE_ALLOC_COSTLY_ORDER);
	} else if (arg->kind == VMA_KMOD_MEM_GIGA) {
		order = VMA_GIGA_ORDER;
		least = VMA_GIGA_ORDER;
	}
	do
		err = try_order(r, arg->bytes, order, arg->node);
	while (err == -ENOMEM && order-- > least);
	if (err) {
		kfree(r);
		return ERR_PTR(err);
	}
	arg->bytes = (u64)vma_region_pages(r) << PAGE_SHIFT;
	arg->block = (u64)PAGE_SIZE << r->order;
	vma_total_add(VMA_TOTAL_REGIONS, 1);
	vma_total_add(VMA_TOTAL_REGION_BYTES, arg->bytes);
	return r;
}

/* No mapping is left. */
void vma_region_free(struct vma_region *r)
{
	vma_total_add(VMA_TOTAL_REGIONS, -1);
	vma_total_add(VMA_TOTAL_REGION_BYTES, -(s64)((u64)vma_region_pages(r) << PAGE_SHIFT));
	uncharge(r);
	blocks_free(r);
	kfree(r);
}

/**
 * vma_region_map - the region from its beginning at the mapping's
 * @r: the region
 * @vma: of mmap(), with the mmap lock held for writing
 *
 * Shared mappings only, none for a forked child: the pages are the device's as much as the
 * process's. They are ordinary pages with a reference each, so that AF_XDP and RDMA can pin them.
 *
 * Return: 0, -EINVAL or what vm_insert_page() says.
 */
int vma_region_map(const struct vma_region *r, struct vm_area_struct *vma)
{
	unsigned long pages = vma_pages(vma), mask = (1ul << r->order) - 1, i;
	int err = 0;

	if (pages > vma_region_pages(r) || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTDUMP | VM_DONTEXPAND);
	for (i = 0; i < pages && !err; i++) {
		err = vm_insert_page(vma, vma->vm_start + i * PAGE_SIZE,
				     r->blocks[i >> r->order] + (i & mask));
		if (IS_ALIGNED(i, BIT(HUGE_ORDER)))
			cond_resched();
	}
	return err;
}
