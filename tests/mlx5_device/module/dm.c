// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The device's own memory: pages of the kernel, mapped by the driver, named in descriptors by a key
 * and an offset.
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
#include <rdma/uverbs_named_ioctl.h>

/* Where libmlx5 maps it, in pages: this command, and an index in the low byte. */
#define MAP_FIRST (MLX5_IB_MMAP_DEVICE_MEM << 8)
#define MAP_LAST (MAP_FIRST | 0xff)

struct card_dm {
	struct ib_dm ib; /* first */
	struct rdma_user_mmap_entry entry;
	u8 *at;
	size_t bytes;
};

static struct card_dm *dm_of(struct rdma_user_mmap_entry *entry)
{
	return container_of(entry, struct card_dm, entry);
}

bool dm_is(const struct rdma_user_mmap_entry *entry)
{
	return entry->start_pgoff >= MAP_FIRST && entry->start_pgoff <= MAP_LAST;
}

phys_addr_t dm_phys(struct rdma_user_mmap_entry *entry)
{
	return virt_to_phys(dm_of(entry)->at);
}

/* The last mapping is gone, too. */
void dm_free(struct rdma_user_mmap_entry *entry)
{
	struct card_dm *dm = dm_of(entry);

	free_pages_exact(dm->at, dm->bytes);
	kfree(dm);
}

struct ib_dm *dm_alloc(struct ib_device *ib, struct ib_ucontext *context,
		       struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct card_dm *dm;
	u64 offset = 0;
	u16 index;
	int err = -ENOMEM;

	if (!attr->length || attr->length > CARD_MAX_DM)
		return ERR_PTR(-EINVAL);
	dm = kzalloc(sizeof(*dm), GFP_KERNEL);
	if (!dm)
		return ERR_PTR(err);
	dm->bytes = PAGE_ALIGN(attr->length);
	dm->at = alloc_pages_exact(dm->bytes, GFP_KERNEL | __GFP_ZERO);
	if (!dm->at)
		goto err_dm;
	err = rdma_user_mmap_entry_insert_range(context, &dm->entry, dm->bytes, MAP_FIRST,
						MAP_LAST);
	if (err)
		goto err_pages;
	index = dm->entry.start_pgoff & 0xff;
	err = uverbs_copy_to(attrs, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &index, sizeof(index));
	if (!err)
		err = uverbs_copy_to(attrs, MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &offset,
				     sizeof(offset));
	if (!err)
		return &dm->ib;
	rdma_user_mmap_entry_remove(&dm->entry); /* and so dm */
	return ERR_PTR(err);

err_pages:
	free_pages_exact(dm->at, dm->bytes);
err_dm:
	kfree(dm);
	return ERR_PTR(err);
}

int dm_dealloc(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	rdma_user_mmap_entry_remove(&container_of(ibdm, struct card_dm, ib)->entry);
	return 0;
}

/* Its addresses begin at 0. */
struct ib_mr *dm_reg(struct ib_pd *pd, struct ib_dm *ibdm, struct ib_dm_mr_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	struct card_dm *dm = container_of(ibdm, struct card_dm, ib);

	if (!(attr->access_flags & IB_ZERO_BASED) || attr->offset > ibdm->length ||
	    attr->length > ibdm->length - attr->offset)
		return ERR_PTR(-EINVAL);
	return memory_add(pd, dm->at + attr->offset, attr->length);
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(card_dm, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC,
			     UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET,
						 UVERBS_ATTR_TYPE(u64), UA_MANDATORY),
			     UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX,
						 UVERBS_ATTR_TYPE(u16), UA_OPTIONAL),
			     UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE,
						  enum mlx5_ib_uapi_dm_type, UA_OPTIONAL));

const struct uapi_definition dm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &card_dm),
	{},
};
