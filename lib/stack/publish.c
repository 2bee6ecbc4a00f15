/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A stack's figures where vma_stats sees them. */
#include "stack/internal.h"

/* Frames that were dropped for want of a buffer, by us and by the kernel. */
static uint64_t without_buffer(const struct ring_counters *c)
{
	return c->rx_drop_no_buf + c->rx_missed;
}

void stack_publish(struct stack *st)
{
	const struct ring_counters *c = st->ring->counters;
	struct vma_stats_ring *s = st->stats;

	stats_set(&s->rx_packets, c->rx_packets);
	stats_set(&s->rx_bytes, c->rx_bytes);
	stats_set(&s->tx_packets,
		  c->tx_packets + __atomic_load_n(&c->tx_gso_packets, __ATOMIC_RELAXED));
	stats_set(&s->tx_bytes, c->tx_bytes + __atomic_load_n(&c->tx_gso_bytes, __ATOMIC_RELAXED));
	stats_set(&s->tx_gso_frames, __atomic_load_n(&c->tx_gso_frames, __ATOMIC_RELAXED));
	stats_set(&s->rx_drop_no_buf, without_buffer(c));
	stats_set(&s->rx_drop_invalid, c->rx_drop_invalid);
	stats_set(&s->tx_drop_oversize, c->tx_drop_oversize);
	stats_set(&s->tx_full, c->tx_full);
	stats_set(&s->kicks, __atomic_load_n(&c->kicks, __ATOMIC_RELAXED));
	stats_set(&s->interrupts_requested, c->interrupts_requested);
	stats_set(&s->interrupts_received, c->interrupts_received);
	stats_set(&s->retransmits, stack_timed_ops->retransmits(st));
}

void stack_publish_gauges(struct stack *st, struct stack_pools *sums)
{
	const struct ring_counters *c = st->ring->counters;
	struct ring_gauges g;

	st->ring->ops->gauges(st->ring, &g);
	stats_set(&st->cq_stats->drops, without_buffer(c));
	stats_set(&st->cq_stats->queue_len, g.rx_queued);
	stats_set(&st->cq_stats->pool_len, g.rx_free);
	stats_set(&st->stats->moderation_frames, g.moderation_frames);
	stats_set(&st->stats->moderation_usec, g.moderation_usec);
	stats_set(&st->stats->dev_mem_alloc, g.dev_mem_alloc);
	stats_set(&st->stats->dev_mem_packets, g.dev_mem_packets);
	stats_set(&st->stats->dev_mem_bytes, g.dev_mem_bytes);
	stats_set(&st->stats->dev_mem_oob, g.dev_mem_oob);
	sums->rx_free += g.rx_free;
	sums->tx_free += g.tx_free;
	sums->rx_missing += without_buffer(c);
	sums->tx_missing += c->tx_full;
}

static struct vma_stats_pool *pools[2]; /* worker only */

void stack_pools_forked(void)
{
	pools[0] = pools[1] = NULL;
}

static void publish_pool(bool is_rx, uint64_t size, uint64_t no_buffers)
{
	if (!pools[is_rx])
		pools[is_rx] = stats_pool_get(is_rx);
	stats_set(&pools[is_rx]->size, size);
	stats_set(&pools[is_rx]->no_buffers, no_buffers);
	__atomic_store_n(&pools[is_rx]->is_rx, is_rx, __ATOMIC_RELAXED);
	__atomic_store_n(&pools[is_rx]->enabled, 1, __ATOMIC_RELEASE);
}

void stack_publish_pools(const struct stack_pools *sums)
{
	publish_pool(true, sums->rx_free, sums->rx_missing);
	publish_pool(false, sums->tx_free, sums->tx_missing);
}
