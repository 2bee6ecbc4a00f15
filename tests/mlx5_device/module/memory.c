// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* User memory that the device reads and writes. */
#include <linux/vmalloc.h>

#include "card.h"

/* The low byte of a key is its own; a key that is not whole must not be found. */
#define KEY_LOW 0x5a

/* The caller may sleep. 0 or negative errno. */
int pin_get(struct pin *pin, struct ib_device *ib, u64 addr, u64 length)
{
	struct sg_page_iter iter;
	struct page **pages;
	size_t count, n = 0;
	int err = -ENOMEM;

	if (!length || length > CARD_MAX_MR)
		return -EINVAL;
	pin->umem = ib_umem_get(ib, addr, length, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(pin->umem)) {
		err = PTR_ERR(pin->umem);
		pin->umem = NULL;
		return err;
	}
	count = (ib_umem_offset(pin->umem) + length + PAGE_SIZE - 1) >> PAGE_SHIFT;
	pages = kvcalloc(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		goto err_umem;
	for_each_sgtable_page(&pin->umem->sgt_append.sgt, &iter, 0) {
		if (n < count)
			pages[n++] = sg_page_iter_page(&iter);
	}
	pin->map = n == count ? vmap(pages, count, VM_MAP, PAGE_KERNEL) : NULL;
	kvfree(pages);
	if (!pin->map)
		goto err_umem;
	pin->at = (u8 *)pin->map + ib_umem_offset(pin->umem);
	return 0;

err_umem:
	ib_umem_release(pin->umem);
	pin->umem = NULL;
	return err;
}

/* Nobody looks at it any more. */
void pin_put(struct pin *pin)
{
	if (!pin->umem)
		return;
	vunmap(pin->map);
	ib_umem_release(pin->umem);
	pin->umem = NULL;
}

/* The card's lock is held. */
u8 *memory_find(struct mdev *dev, u32 lkey, u64 addr, u32 len)
{
	struct card *card = container_of(dev, struct card, dev);
	struct card_mr *mr = (lkey & 0xff) == KEY_LOW ? xa_load(&card->mrs, lkey >> 8) : NULL;

	if (!mr || mr->ib.pd != card->pd || addr < mr->start || addr - mr->start > mr->length ||
	    len > mr->length - (addr - mr->start))
		return NULL;
	card->counts.dm_reads += !mr->pin.umem;
	return mr->pin.at + (addr - mr->start);
}

/* Gives mr a key. 0 or negative errno. */
static int key_make(struct card_mr *mr, struct ib_pd *pd)
{
	u32 index;
	int err;

	mr->ib.pd = pd;
	err = xa_alloc_bh(&card_of(pd->device)->mrs, &index, mr, XA_LIMIT(1, 0xfffff), GFP_KERNEL);
	if (err)
		return err;
	mr->ib.lkey = index << 8 | KEY_LOW;
	mr->ib.rkey = mr->ib.lkey;
	return 0;
}

/* Memory of the device's own, by offsets from `at`. */
struct ib_mr *memory_add(struct ib_pd *pd, u8 *at, u64 length)
{
	struct card_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	int err;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->pin.at = at; /* nothing is pinned */
	mr->length = length;
	err = key_make(mr, pd);
	if (!err)
		return &mr->ib;
	kfree(mr);
	return ERR_PTR(err);
}

struct ib_mr *memory_reg(struct ib_pd *pd, u64 start, u64 length, u64 virt, int access,
			 struct ib_udata *udata)
{
	struct card_mr *mr;
	int err;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = pin_get(&mr->pin, pd->device, start, length);
	if (err)
		goto err_mr;
	mr->start = virt;
	mr->length = length;
	err = key_make(mr, pd);
	if (err)
		goto err_pin;
	return &mr->ib;

err_pin:
	pin_put(&mr->pin);
err_mr:
	kfree(mr);
	return ERR_PTR(err);
}

/* For kernel users, which a device without kernel verbs has none of. */
struct ib_mr *memory_dma(struct ib_pd *pd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

int memory_dereg(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct card_mr *mr = container_of(ibmr, struct card_mr, ib);
	struct card *card = card_of(ibmr->device);

	xa_erase_bh(&card->mrs, ibmr->lkey >> 8);
	/* Whoever has found it holds the lock. */
	spin_lock_bh(&card->lock);
	spin_unlock_bh(&card->lock);
	pin_put(&mr->pin);
	kfree(mr);
	return 0;
}
