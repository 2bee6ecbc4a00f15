/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A container's share of the processors (cpu.max; cpu.cfs_quota_us of cgroup v1). Who uses it up
 * stands still for the rest of the kernel's period, up to 100 ms: a spin that saves microseconds
 * must not bring that. So half of it is for spins and work together, the other half for work alone.
 */
#ifndef WAIT_QUOTA_H
#define WAIT_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct wait_quota {
	uint64_t cpu_ns; /* of all threads, in each period; 0: no limit */
	uint64_t period_ns;
};

/*
 * The narrowest limit over this process, below the folder root ("" for the machine's own /proc and
 * /sys). A limit that the ncpus processors cannot use up is none.
 */
struct wait_quota quota_read(const char *root, unsigned ncpus);
/* From now on, for all threads. Before the first wait: nothing is locked. */
void quota_set(struct wait_quota q);
/* At now_ns (CLOCK_MONOTONIC) half of what the period allows is used: no spin until it is over. */
bool quota_near(uint64_t now_ns);

#endif
