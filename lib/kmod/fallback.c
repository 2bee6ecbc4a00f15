/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kmod/fallback.h"

static uint32_t align8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

/*
 * The record at our position, with left bytes up to the kernel's: bytes that it takes, 0: that
 * cannot be.
 */
static uint32_t record(const struct kmod_ring *r, uint32_t left,
		       void (*fn)(const struct kmod_packet *p))
{
	const uint8_t *data = (const uint8_t *)r->head + VMA_KMOD_RING_DATA;
	uint32_t at = r->consumed & (r->size - 1), to_end = r->size - at, need;
	const struct vma_kmod_record *rec = (const struct vma_kmod_record *)(data + at);
	struct kmod_packet p;
	uint32_t len = __atomic_load_n(&rec->len, __ATOMIC_RELAXED);

	if (len == VMA_KMOD_RECORD_SKIP)
		return to_end <= left ? to_end : 0;
	if (to_end < sizeof(*rec) || len > to_end - sizeof(*rec))
		return 0;
	need = align8((uint32_t)sizeof(*rec) + len);
	if (need > left)
		return 0;
	p = (struct kmod_packet){
		.data = (const uint8_t *)(rec + 1),
		.len = len,
		.ifindex = rec->ifindex,
		.slot = rec->slot,
		.csum_ok = rec->flags & VMA_KMOD_RECORD_CSUM_OK,
	};
	fn(&p);
	return need;
}

bool kmod_ring_drain(struct kmod_ring *r, void (*fn)(const struct kmod_packet *p))
{
	/* Pairs with the kernel's release: the records in front of it are whole. */
	uint32_t produced = __atomic_load_n(&r->head->produced, __ATOMIC_ACQUIRE);
	bool ok = produced - r->consumed <= r->size && !(produced & 7u);

	while (ok && r->consumed != produced) {
		uint32_t used = record(r, produced - r->consumed, fn);

		ok = used != 0;
		r->consumed += used;
	}
	r->consumed = produced;
	/* After the last look at a record: the kernel may write over it now. */
	__atomic_store_n(&r->head->consumed, produced, __ATOMIC_RELEASE);
	return ok;
}
