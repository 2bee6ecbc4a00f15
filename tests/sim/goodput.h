/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_GOODPUT_H
#define SIM_GOODPUT_H

#include "tcp/tcp.h"

/*
 * Prints goodput by loss and round-trip time for each congestion control; 0, or 1 when a run
 * failed.
 */
int goodput_table(void);
/*
 * A plan for world_measure(): one stream from client to server, 1 Gbit/s, frames of 1500 bytes,
 * loss towards the server.
 */
struct plan;
void goodput_plan(struct plan *p, uint32_t loss_ppm, uint32_t rtt_us, enum tcp_cc cc,
		  uint64_t seed);
/* bottleneck.c: prints each scene and holds it to its limits; 0, or 1 when one failed. */
int bottleneck_check(void);

#endif
