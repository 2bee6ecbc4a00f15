// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fallback ring. The kernel keeps its own position and reads one word of the process's, the
 * consumed one: a value that cannot be makes the ring look full, no more.
 */
#include <linux/skbuff.h>

#include "vma.h"

int vma_ring_init(struct vma_ring *r, u32 size)
{
	BUILD_BUG_ON(sizeof(struct vma_kmod_ring) > VMA_KMOD_RING_DATA);
	spin_lock_init(&r->lock);
	init_waitqueue_head(&r->wait);
	if (!size)
		return 0;
	r->size = size;
	return vma_area_init(&r->area, (size_t)VMA_KMOD_RING_DATA + size);
}

/* Nobody puts anything any more. */
void vma_ring_fini(struct vma_ring *r)
{
	vma_area_fini(&r->area);
	r->size = 0;
}

static struct vma_kmod_ring *ring_head(const struct vma_ring *r)
{
	return r->area.at;
}

/* Bytes that the process has not read; r->size when its word makes no sense. */
static u32 ring_used(const struct vma_ring *r)
{
	/* Pairs with the process's release: it has read what we write over. */
	u32 consumed = smp_load_acquire(&ring_head(r)->consumed);

	return min(r->produced - consumed, r->size);
}

/* Is there something to read? Any context; a guess, as for every poll(). */
bool vma_ring_ready(const struct vma_ring *r)
{
	return r->size && READ_ONCE(r->produced) != READ_ONCE(ring_head(r)->consumed);
}

/*
 * Where `need` bytes in a row fit, now taken; NULL: full. *to is the position behind them. Lock
 * held.
 */
static struct vma_kmod_record *ring_take(struct vma_ring *r, u32 need, u32 *to)
{
	u32 at = r->produced & (r->size - 1), left = r->size - at;
	void *data = r->area.at + VMA_KMOD_RING_DATA;
	u32 skip = left < need ? left : 0;
	struct vma_kmod_record *pad;

	if (need > r->size || skip + need > r->size - ring_used(r))
		return NULL;
	*to = r->produced + skip + need;
	if (!skip)
		return data + at;
	/* Records are multiples of 8: the length's word is always there. */
	pad = data + at;
	pad->len = VMA_KMOD_RECORD_SKIP;
	return data;
}

/* Segments are told apart only where there is one size of them. */
static u16 segment_size(const struct sk_buff *skb)
{
	return skb_is_gso(skb) ? skb_shinfo(skb)->gso_size : 0;
}

static int ring_write(struct vma_ring *r, u32 slot, const struct sk_buff *skb)
{
	u32 need = ALIGN(sizeof(struct vma_kmod_record) + skb->len, 8), to;
	struct vma_kmod_record *rec = ring_take(r, need, &to);
	u16 flags = 0;

	if (!rec)
		return -ENOBUFS;
	if (skb->ip_summed == CHECKSUM_UNNECESSARY || skb->ip_summed == CHECKSUM_PARTIAL)
		flags |= VMA_KMOD_RECORD_CSUM_OK;
	*rec = (struct vma_kmod_record){
		.len = skb->len,
		.slot = slot,
		.ifindex = skb->skb_iif,
		.gso_size = segment_size(skb),
		.flags = flags,
	};
	if (skb_copy_bits(skb, 0, rec + 1, skb->len))
		return -EFAULT;
	WRITE_ONCE(r->produced, to);
	/* Pairs with the reader's acquire: the record is whole when the position is seen. */
	smp_store_release(&ring_head(r)->produced, to);
	return 0;
}

/**
 * vma_ring_put - a copy of a packet for the process
 * @r: its ring
 * @slot: of the registration
 * @skb: begins with the IP header; stays the caller's
 *
 * Context: softirq or process.
 * Return: 0, or -ENOBUFS: full (counted), -EFAULT: a packet that is not what it says.
 */
int vma_ring_put(struct vma_ring *r, u32 slot, struct sk_buff *skb)
{
	int err;

	if (!r->size)
		return -ENOBUFS;
	spin_lock_bh(&r->lock);
	err = ring_write(r, slot, skb);
	if (err)
		WRITE_ONCE(ring_head(r)->dropped, ++r->dropped);
	else
		WRITE_ONCE(ring_head(r)->packets, ++r->packets);
	spin_unlock_bh(&r->lock);
	if (!err)
		wake_up_interruptible_poll(&r->wait, EPOLLIN | EPOLLRDNORM);
	return err;
}
