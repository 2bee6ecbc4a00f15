/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is printed: plain functions over a snapshot. The formats are those of the original tool. */
#ifndef VMA_STATS_VIEW_H
#define VMA_STATS_VIEW_H

#include <stdio.h>

#include "options.h"
#include "processes.h"
#include "snapshot.h"

/*
 * Views 1 and 2. *lines counts those below the last heading: 0 prints one; also when the screen is
 * full.
 */
void view_table(FILE *f, const struct snapshot *s, const struct options *o, unsigned *lines);
/* View 3. */
void view_full(FILE *f, const struct snapshot *s, const struct options *o);
/* View 4. */
void view_groups(FILE *f, const struct snapshot *s, const struct options *o);
/* View 5: the heading, and the rows of one process. */
void view_netstat_heading(FILE *f);
void view_netstat(FILE *f, const struct snapshot *s, const struct options *o);
/* View 6: of all processes. 0, or -1 without memory. */
int view_members(FILE *f, const struct processes *all);
/* One JSON object on one line. */
void view_json(FILE *f, const struct snapshot *s, const struct options *o);

/* "CLOSED" and so on, "" for none. */
const char *view_state(const struct vma_stats_socket *s);
/* True if anything was ever counted in it. */
bool view_iomux_used(const struct vma_stats_iomux *m);
double view_percent(__u64 hit, __u64 miss);

#define N(counter) ((unsigned long long)(counter))
#define KB(bytes) ((unsigned long long)(bytes) / 1024)

#endif
