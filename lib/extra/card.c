/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a program asks of a ring's device: its queues, its memory, its interrupts. */
#include "extra/internal.h"
#include "stack/stack.h"

/* The open ring that fd names, locked; NULL: none. */
static struct stack *ring_lock(int fd)
{
	struct stack *st = stack_of_ring_fd(fd);

	if (!st)
		return NULL;
	lock_take(&st->lock);
	if (atomic_load_explicit(&st->open, memory_order_relaxed))
		return st;
	lock_drop(&st->lock);
	return NULL;
}

int extra_descriptors(int fd, struct vma_mlx_hw_device_data *data)
{
	struct stack *st;
	bool can;

	if (!data)
		return extra_fail(EINVAL);
	st = ring_lock(fd);
	if (!st)
		return extra_fail(EBADFD);
	can = st->ring->ops->describe;
	if (can)
		st->ring->ops->describe(st->ring, data);
	lock_drop(&st->lock);
	return can ? 0 : extra_fail(EOPNOTSUPP);
}

int extra_register_memory(int fd, void *addr, size_t len, uint32_t *key)
{
	struct stack *st;
	int err = -EOPNOTSUPP;

	if (!addr || !len || !key)
		return extra_fail(EINVAL);
	st = ring_lock(fd);
	if (!st)
		return extra_fail(EBADFD);
	libc_internal_begin();
	if (st->ring->ops->memory_add)
		err = st->ring->ops->memory_add(st->ring, addr, len, key);
	libc_internal_end();
	lock_drop(&st->lock);
	return extra_result(err);
}

int extra_deregister_memory(int fd, void *addr, size_t len)
{
	struct stack *st = ring_lock(fd);
	int err = -EOPNOTSUPP;

	if (!st)
		return extra_fail(EBADFD);
	libc_internal_begin();
	if (st->ring->ops->memory_del)
		err = st->ring->ops->memory_del(st->ring, addr, len);
	libc_internal_end();
	lock_drop(&st->lock);
	return extra_result(err);
}

static int moderate(struct ring *r, const struct vma_cq_moderation_attr *to)
{
	return r->ops->moderate
		       ? r->ops->moderate(r, to->cq_moderation_count, to->cq_moderation_period_usec)
		       : -EOPNOTSUPP;
}

#define MODIFY_MASK (VMA_MODIFY_RING_CQ_MODERATION | VMA_MODIFY_RING_CQ_ARM)

/* 1: something waits already, and was not armed for. */
int extra_modify_ring(struct vma_modify_ring_attr *attr)
{
	struct stack *st;
	int err = 0;

	if (!attr || !attr->comp_bit_mask || attr->comp_bit_mask & ~(uint32_t)MODIFY_MASK)
		return extra_fail(EINVAL);
	st = ring_lock(attr->ring_fd);
	if (!st)
		return extra_fail(EBADFD);
	libc_internal_begin();
	if (attr->comp_bit_mask & VMA_MODIFY_RING_CQ_MODERATION)
		err = moderate(st->ring, &attr->cq_moderation);
	if (!err && attr->comp_bit_mask & VMA_MODIFY_RING_CQ_ARM)
		err = st->due || st->ring->ops->arm(st->ring);
	libc_internal_end();
	lock_drop(&st->lock);
	return extra_result(err);
}
