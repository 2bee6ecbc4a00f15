/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SO_MAX_PACING_RATE in the form of the Extra API, struct vma_rate_limit_t: kilobits a second, and
 * sizes for the device's own pacing, which nothing here asks for. Kernel and engine have bytes a
 * second.
 */
#ifndef SOCKET_PACING_H
#define SOCKET_PACING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

struct pacing_limit {
	uint32_t rate; /* 0: none */
	uint32_t max_burst_sz;
	uint16_t typical_pkt_sz;
};

#define PACING_NONE UINT64_MAX /* the kernel's word for no limit */

/* Is an option's value, of len bytes, of that form? */
static inline bool pacing_is_limit(int level, int opt, socklen_t len)
{
	return level == SOL_SOCKET && opt == SO_MAX_PACING_RATE &&
	       len == sizeof(struct pacing_limit);
}

/* The kernel's value of such a limit. */
static inline uint64_t pacing_of(const void *val)
{
	struct pacing_limit l;

	memcpy(&l, val, sizeof(l));
	return l.rate ? l.rate * (uint64_t)125 : PACING_NONE;
}

/* The limit that the kernel's value is, rounded up. */
static inline void pacing_put(void *val, uint64_t rate)
{
	struct pacing_limit l = {.rate = 0};
	uint64_t kbits = rate / 125 + (rate % 125 != 0);

	if (rate != PACING_NONE)
		l.rate = kbits < UINT32_MAX ? (uint32_t)kbits : UINT32_MAX;
	memcpy(val, &l, sizeof(l));
}

#endif
