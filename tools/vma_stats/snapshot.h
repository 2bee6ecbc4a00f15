/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One consistent-enough copy of a statistics file. snapshot_take() is the gate: it reads memory
 * that another program writes, or has scribbled over; what it returns can be printed without a
 * further check.
 */
#ifndef VMA_STATS_SNAPSHOT_H
#define VMA_STATS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>

#include "vma/stats.h"

#define WHY_LEN 256

struct snapshot {
	struct vma_stats_header h; /* texts are terminated and printable */
	struct vma_stats_socket
		*sockets; /* h.max_sockets blocks, in their slots; zero where not enabled */
};

/*
 * bytes: 8-aligned. 0, or -1 with the reason in why. The base of each socket is subtracted. No
 * count of a socket that closes meanwhile is missing, nor there twice. s needs snapshot_free()
 * after 0.
 */
int snapshot_take(struct snapshot *s, const void *bytes, size_t size, char why[WHY_LEN]);
/* now := (now - before) / seconds for everything that counts; what shows a present state stays. */
void snapshot_delta(struct snapshot *now, const struct snapshot *before, unsigned seconds);
/*
 * The counters of all sockets, of those that were closed too, whatever was zeroed: they only grow.
 * The other fields are 0.
 */
void snapshot_sum(struct vma_stats_socket *sum, const struct snapshot *s);
/* 0, or -1 without memory. */
int snapshot_clone(struct snapshot *to, const struct snapshot *from);
void snapshot_free(struct snapshot *s);

/* The names of the 64-bit fields of a block, for deltas, zeroing and JSON; tcp_fields: of 32 bits.
 */
struct field {
	const char *name;
	size_t offset;
	bool counts; /* only grows */
	const char *help; /* of the metric; NULL: makes none of its own */
};

extern const struct field socket_counters[VMA_STATS_SOCKET_COUNTERS];
/* Those of struct vma_stats_waits are the last of the sockets' counters, and of the sets' fields.
 */
#define WAIT_FIELDS (3 + VMA_SLEPTS)
#define IOMUX_FIELDS (6 + WAIT_FIELDS)
extern const struct field socket_gauges[], ring_fields[], cq_fields[], pool_fields[],
	iomux_fields[IOMUX_FIELDS + 1], tcp_fields[]; /* end: name NULL */

static inline __u64 *field_of(void *block, const struct field *f)
{
	return (__u64 *)((char *)block + f->offset);
}

#endif
