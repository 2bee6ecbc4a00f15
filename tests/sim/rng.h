/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A seeded source of numbers (SplitMix64): the same seed gives the same run, on every machine. */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t s;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* 0 .. n-1; n > 0. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

/* low .. high. */
static inline uint32_t rng_range(struct rng *r, uint32_t low, uint32_t high)
{
	return low + rng_below(r, high - low + 1);
}

/* True ppm times in a million. */
static inline bool rng_chance(struct rng *r, uint32_t ppm)
{
	return rng_below(r, 1000000) < ppm;
}

/* low .. high (low > 0), every power of two as likely as the next. */
static inline uint32_t rng_log(struct rng *r, uint32_t low, uint32_t high)
{
	unsigned powers = 0;
	uint64_t base;

	while ((uint64_t)low << (powers + 1) <= high)
		powers++;
	base = (uint64_t)low << rng_below(r, powers + 1);
	return rng_range(r, (uint32_t)base, base * 2 > high ? high : (uint32_t)base * 2);
}

#endif
