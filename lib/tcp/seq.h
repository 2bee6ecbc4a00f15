/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Comparison of sequence numbers modulo 2^32 (RFC 9293, 3.4). Valid for distances below 2^31. */
#ifndef TCP_SEQ_H
#define TCP_SEQ_H

#include <stdbool.h>
#include <stdint.h>

static inline bool seq_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static inline bool seq_after(uint32_t a, uint32_t b)
{
	return seq_before(b, a);
}

static inline bool seq_leq(uint32_t a, uint32_t b)
{
	return !seq_before(b, a);
}

static inline bool seq_geq(uint32_t a, uint32_t b)
{
	return !seq_before(a, b);
}

/* low <= s <= high, all on the circle. */
static inline bool seq_between(uint32_t s, uint32_t low, uint32_t high)
{
	return high - low >= s - low;
}

static inline uint32_t seq_max(uint32_t a, uint32_t b)
{
	return seq_before(a, b) ? b : a;
}

static inline uint32_t seq_min(uint32_t a, uint32_t b)
{
	return seq_before(a, b) ? a : b;
}

#endif
