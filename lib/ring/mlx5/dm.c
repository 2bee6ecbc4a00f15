/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/dm.h"

#define WORD 8u

/* Under the stack lock; the statistics read it. */
static void stat_step(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, *c + n, __ATOMIC_RELAXED);
}

/* So many bytes in one piece; false: there are not so many. */
static bool take(struct sq_dm *m, uint32_t bytes)
{
	uint32_t skip;

	/* Nothing is there: a frame that fits at all has its place. */
	if (m->pi == m->ci)
		m->at = 0;
	skip = m->size - m->at < bytes ? m->size - m->at : 0;
	if (bytes > m->size || m->size - (m->pi - m->ci) < bytes + skip)
		return false;
	if (skip)
		m->at = 0;
	m->pi += skip + bytes;
	return true;
}

bool dm_put(struct sq_dm *m, const uint8_t *data, uint32_t len, uint32_t *offset)
{
	uint32_t bytes = (len + WORD - 1) & ~(WORD - 1);

	if (!take(m, bytes)) {
		stat_step(&m->oob, 1);
		return false;
	}
	stat_step(&m->packets, 1);
	stat_step(&m->bytes, len);
	*offset = m->at;
	/* In whole words, as the bus takes them. */
	for (uint32_t i = 0; i < bytes; i += WORD) {
		uint64_t word;

		memcpy(&word, data + i, sizeof(word));
		*(volatile uint64_t *)(void *)(m->map + m->at + i) = word;
	}
	m->at += bytes;
	if (m->at == m->size)
		m->at = 0;
	/*
	 * Out of this processor's write-combining buffer before anybody sees the WQE: another
	 * thread may ring for it (sq_kick()).
	 */
	dev_wc_wmb();
	return true;
}
