/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guard behind a port's steering program (bpf/guard.bpf.c): it keeps from the kernel what has
 * come past that of TCP flows in user space. It hangs on a descriptor (tcx, Linux 6.6), else it is
 * a filter of the interface's clsact queueing discipline. The filter of a process that was killed
 * stays: it lets everything pass, and the next owner's takes its place.
 */
#ifndef RING_XDP_GUARD_H
#define RING_XDP_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "vma/flow.h"

struct ring_buffer;

typedef void (*guard_stray_fn)(const struct vma_stray *stray);

/* Descriptors of the steering program's maps, and which flows are ours: those of this row. */
struct xdp_guard_maps {
	int flows, ports, xsks, counters;
	uint32_t row; /* VMA_ROWS_ALL: no other process has any */
};

struct xdp_guard {
	bool tried; /* guard_open() was called */
	int link_fd; /* -1: none */
	int filter_on; /* ifindex; 0: no filter */
	uint32_t handle; /* of the filter */
	bool own_qdisc; /* the interface had no clsact before */
	struct ring_buffer *strays; /* NULL: none */
	guard_stray_fn fn; /* during guard_strays() */
};

#define GUARD_NONE ((struct xdp_guard){.link_fd = -1})

/*
 * Puts the guard in front of the kernel, on the interface of an attached steering program. Each
 * process that has flows there has a guard of its own, for these. libbpf is entered. Once; without
 * it everything is as before, and the log says so.
 */
void guard_open(struct xdp_guard *g, int ifindex, const char *ifname,
		const struct xdp_guard_maps *maps);
/* Names the flows of which it has held back segments again and again, since the last call. */
void guard_strays(struct xdp_guard *g, guard_stray_fn fn);
/* Takes it away. libbpf is entered. */
void guard_close(struct xdp_guard *g);
/* A forked child's copy of the descriptor. */
void guard_forked(struct xdp_guard *g);

#endif
