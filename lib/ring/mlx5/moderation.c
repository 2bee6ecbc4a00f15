/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/moderation.h"

#include "config/config.h"

/*
 * Fewer packets a second than this, and short ones, are questions and answers: what is held back is
 * waited for.
 */
#define BULK_RATE 450000u
#define BULK_BYTES 1024u

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* Half the receive queue at most, lest it runs full before anybody is told. */
static uint32_t count_of(uint64_t packets)
{
	return least(packets, (uint64_t)params.rx_wre / 2);
}

static void configured(struct mlx5_moderation *m)
{
	m->count = params.cq_moderation_enable ? count_of((uint64_t)params.cq_moderation_count) : 0;
	m->usec = params.cq_moderation_enable ? (uint32_t)params.cq_moderation_period_usec : 0;
}

/* So many packets a second, with as many interrupts a second as are wanted. */
static void throughput(struct mlx5_moderation *m, uint64_t rate)
{
	uint64_t wanted = params.cq_aim_interrupts_rate_per_sec > 0
				  ? (uint64_t)params.cq_aim_interrupts_rate_per_sec
				  : 1;
	uint64_t apart = 1000000 / wanted, gap = 1000000 / (rate > wanted ? rate : wanted);

	m->count = count_of(least(rate / wanted, (uint64_t)params.cq_aim_max_count));
	m->usec = least(apart - gap, (uint64_t)params.cq_aim_max_period_usec);
}

void moderation_init(struct mlx5_moderation *m, int64_t now_ms)
{
	*m = (struct mlx5_moderation){.at_ms = now_ms};
	configured(m);
}

void moderation_fix(struct mlx5_moderation *m, uint32_t packets, uint32_t usec)
{
	m->count = count_of(packets);
	m->usec = usec;
	m->fixed = true;
}

bool moderation_adapt(struct mlx5_moderation *m, const struct ring_counters *c, int64_t now_ms)
{
	uint64_t ms = (uint64_t)(now_ms - m->at_ms), packets = c->rx_packets - m->packets,
		 bytes = c->rx_bytes - m->bytes;
	uint64_t interrupts = c->interrupts_received - m->interrupts;
	uint32_t count = m->count, usec = m->usec;

	if (m->fixed || !params.cq_moderation_enable || params.cq_aim_interval_msec <= 0 || !ms ||
	    ms < (uint64_t)params.cq_aim_interval_msec)
		return false;
	m->at_ms = now_ms;
	m->packets = c->rx_packets;
	m->bytes = c->rx_bytes;
	m->interrupts = c->interrupts_received;
	/* Who polls is not interrupted. */
	if (!interrupts || !packets)
		return false;
	if (packets * 1000 / ms < BULK_RATE && bytes / packets < BULK_BYTES)
		configured(m);
	else
		throughput(m, packets * 1000 / ms);
	return m->count != count || m->usec != usec;
}
