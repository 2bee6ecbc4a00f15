/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/hw_clock.h"

#include <string.h>
#include <time.h>

#define SECOND 1000000000u
#define TRIES 10u /* looks at both clocks, of which the quickest counts */
#define SYNC_UPKEEPS 20u /* a second */
/* what lies between two looks whose distance says how fast the device's clock goes */
#define RATE_NS_MIN (SECOND / 2)
/* no clock is wrong by more than this part: then somebody has set the other one */
#define RATE_PART 1000u
/*
 * A device may stamp with seconds and nanoseconds of its PTP clock in 32 bits each (real-time
 * mode); rdma-core says which one can, not which one does. A counter of cycles does not come to so
 * many in its upper half, of 2001, within a century.
 */
#define REAL_TIME_SECONDS 1000000000u

/* VMA_HW_TS_CONVERSION */
enum conversion { NO_STAMPS, RAW_TIME, BEST_TIME, SYSTEM_TIME, PTP_TIME };

static uint64_t system_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static uint64_t rate_nominal(const struct mlx5_clock *c)
{
	return ((uint64_t)1000000 << 32) / c->khz;
}

/* Both clocks at one moment. False: the device's cannot be read. */
static bool look(const struct mlx5_clock *c, struct mlx5_objects *o, uint64_t *cycles, uint64_t *ns)
{
	uint64_t quickest = UINT64_MAX;

	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t before = system_ns(), read, after;

		if (o->ops->clock_read(o, &read))
			return false;
		after = system_ns();
		if (after - before >= quickest)
			continue;
		quickest = after - before;
		*cycles = read & c->mask;
		*ns = before + quickest / 2;
	}
	return quickest != UINT64_MAX;
}

static void sync_system(struct mlx5_clock *c, struct mlx5_objects *o)
{
	uint64_t cycles, ns, passed, nominal = rate_nominal(c);
	unsigned __int128 rate = nominal;

	if (!look(c, o, &cycles, &ns))
		return;
	passed = (cycles - c->cycles) & c->mask;
	if (c->rate && passed && ns > c->ns && ns - c->ns >= RATE_NS_MIN)
		rate = ((unsigned __int128)(ns - c->ns) << 32) / passed;
	if (rate > nominal + nominal / RATE_PART || rate < nominal - nominal / RATE_PART)
		rate = nominal;
	c->rate = (uint64_t)rate;
	c->cycles = cycles;
	c->ns = ns;
}

static void sync_ptp(struct mlx5_clock *c, struct mlx5_objects *o)
{
	struct mlx5dv_clock_info now;

	/* It may be being written: the one of before is as good for some time. */
	if (!o->ops->clock_ptp(o, &now))
		c->ptp = now;
}

void clock_init(struct mlx5_clock *c, struct mlx5_objects *o, int conversion)
{
	uint64_t cycles;
	bool counts;

	memset(c, 0, sizeof(*c));
	c->khz = o->clock_khz;
	c->mask = o->clock_mask ? o->clock_mask : UINT64_MAX;
	if (conversion == PTP_TIME && !o->ops->clock_ptp(o, &c->ptp)) {
		c->kind = CLOCK_PTP;
		return;
	}
	if (!c->khz || conversion == NO_STAMPS)
		return;
	counts = !o->ops->clock_read(o, &cycles);
	if (conversion >= BEST_TIME && counts)
		c->kind = CLOCK_SYSTEM;
	else if (conversion == RAW_TIME || conversion == BEST_TIME)
		c->kind = CLOCK_RAW;
}

static void clock_sync(struct mlx5_clock *c, struct mlx5_objects *o)
{
	if (c->kind == CLOCK_SYSTEM)
		sync_system(c, o);
	else if (c->kind == CLOCK_PTP)
		sync_ptp(c, o);
}

void clock_run(struct mlx5_clock *c, struct mlx5_objects *o)
{
	if (c->running)
		return;
	c->running = true;
	clock_sync(c, o);
}

void clock_upkeep(struct mlx5_clock *c, struct mlx5_objects *o)
{
	if (!c->running || ++c->upkeeps % SYNC_UPKEEPS)
		return;
	clock_sync(c, o);
}

/* Cycles that have passed since both clocks were seen together, less than 0: before. */
static int64_t since(const struct mlx5_clock *c, uint64_t stamp)
{
	uint64_t passed = (stamp - c->cycles) & c->mask;

	return passed > c->mask / 2 ? -(int64_t)((c->cycles - stamp) & c->mask) : (int64_t)passed;
}

uint64_t clock_ns(const struct mlx5_clock *c, uint64_t stamp)
{
	struct mlx5dv_clock_info ptp;

	if (!stamp || c->kind == CLOCK_NONE)
		return 0;
	if (stamp >> 32 >= REAL_TIME_SECONDS)
		return (stamp >> 32) * SECOND + (uint32_t)stamp;
	stamp &= c->mask;
	switch (c->kind) {
	case CLOCK_PTP:
		ptp = c->ptp; /* the function's argument is not const */
		return mlx5dv_ts_to_ns(&ptp, stamp);
	case CLOCK_SYSTEM:
		/* Not read since it was to run. */
		if (!c->rate)
			return 0;
		return c->ns +
		       (uint64_t)(int64_t)(((__int128)since(c, stamp) * c->rate + UINT32_MAX / 2) >>
					   32);
	default:
		return stamp / c->khz * 1000000 + stamp % c->khz * 1000000 / c->khz;
	}
}
