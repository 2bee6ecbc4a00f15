// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Pages of doorbell registers. Ordinary memory, which run.c looks at: a write is seen because the
 * register is no longer zero.
 */
#include <linux/mm.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/uverbs_types.h>

#include "card.h"

#define UVERBS_MODULE_NAME mlx5_device
/* What the library maps by number is below: a command in the bits from 8 on, and its index. */
#define OFFSET_MIN 0x10000u
#include <rdma/uverbs_named_ioctl.h>

static struct uar *uar_make(struct ib_ucontext *context)
{
	static atomic_t last;
	struct card *card = card_of(context->device);
	struct uar *uar = kzalloc(sizeof(*uar), GFP_KERNEL);
	int err = -ENOMEM;

	if (!uar)
		return ERR_PTR(err);
	uar->page = (u8 *)get_zeroed_page(GFP_KERNEL);
	if (!uar->page)
		goto err_uar;
	uar->id = atomic_inc_return(&last);
	err = rdma_user_mmap_entry_insert_range(context, &uar->entry, PAGE_SIZE, OFFSET_MIN,
						U32_MAX);
	if (err)
		goto err_page;
	spin_lock_bh(&card->lock);
	list_add_tail(&uar->of_card, &card->uars);
	spin_unlock_bh(&card->lock);
	return uar;

err_page:
	free_page((unsigned long)uar->page);
err_uar:
	kfree(uar);
	return ERR_PTR(err);
}

/* The last mapping is gone, too. */
void uar_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct uar *uar = container_of(entry, struct uar, entry);
	struct card *card = card_of(entry->ucontext->device);

	if (dm_is(entry)) {
		dm_free(entry);
		return;
	}

	spin_lock_bh(&card->lock);
	list_del(&uar->of_card);
	spin_unlock_bh(&card->lock);
	free_page((unsigned long)uar->page);
	kfree(uar);
}

int uar_mmap(struct ib_ucontext *context, struct vm_area_struct *vma)
{
	unsigned long what = vma->vm_pgoff >> 8;
	struct rdma_user_mmap_entry *entry;
	phys_addr_t phys;
	int err;

	if (what == MLX5_IB_MMAP_CORE_CLOCK || what == MLX5_IB_MMAP_CLOCK_INFO)
		return clock_mmap(card_of(context->device), vma, what);
	entry = rdma_user_mmap_entry_get(context, vma);
	if (!entry)
		return -EINVAL;
	if (dm_is(entry))
		phys = dm_phys(entry);
	else
		phys = virt_to_phys(container_of(entry, struct uar, entry)->page);
	err = rdma_user_mmap_io(context, vma, phys >> PAGE_SHIFT, entry->npages * PAGE_SIZE,
				vma->vm_page_prot, entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

static int uar_destroy(struct ib_uobject *uobject, enum rdma_remove_reason why,
		       struct uverbs_attr_bundle *attrs)
{
	struct uar *uar = uobject->object;

	rdma_user_mmap_entry_remove(&uar->entry);
	return 0;
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject =
		uverbs_attr_get_uobject(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	struct ib_ucontext *context = ib_uverbs_get_ucontext(attrs);
	enum mlx5_ib_uapi_uar_alloc_type type;
	u32 length = PAGE_SIZE;
	struct uar *uar;
	u64 offset;
	int err;

	if (IS_ERR(context))
		return PTR_ERR(context);
	err = uverbs_get_const(&type, attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
	if (err)
		return err;
	uar = uar_make(context);
	if (IS_ERR(uar))
		return PTR_ERR(uar);
	uobject->object = uar;
	offset = rdma_user_mmap_get_offset(&uar->entry);
	uverbs_finalize_uobj_create(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);

	err = uverbs_copy_to(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset,
			     sizeof(offset));
	if (!err)
		err = uverbs_copy_to(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length,
				     sizeof(length));
	if (!err)
		err = uverbs_copy_to(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar->id,
				     sizeof(uar->id));
	return err;
}

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC,
			    UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR,
					    UVERBS_ACCESS_NEW, UA_MANDATORY),
			    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE,
						 enum mlx5_ib_uapi_uar_alloc_type, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET,
						UVERBS_ATTR_TYPE(u64), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
						UVERBS_ATTR_TYPE(u32), UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
						UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(MLX5_IB_METHOD_UAR_OBJ_DESTROY,
				    UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
						    MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_DESTROY,
						    UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(MLX5_IB_OBJECT_UAR, UVERBS_TYPE_ALLOC_IDR(uar_destroy),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_DESTROY));

const struct uapi_definition uar_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_UAR),
	UAPI_DEF_CHAIN(dm_defs),
	{},
};
