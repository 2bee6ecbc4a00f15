/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All chosen processes at one moment. */
#ifndef VMA_STATS_PROCESSES_H
#define VMA_STATS_PROCESSES_H

#include "options.h"
#include "snapshot.h"

struct process {
	int pid;
	bool readable;
	struct snapshot snap; /* readable */
	struct vma_stats_socket sum; /* its counters: of all sockets, open and closed */
	char why[WHY_LEN]; /* not readable: the reason */
};

struct processes {
	struct process *process; /* by pid, ascending */
	unsigned n;
};

/*
 * Reads them. One that cannot be read is among them, unless it has ended, or -n asks for a name.
 * 0, or negative errno of the directory; processes_free() after 0.
 */
int processes_take(struct processes *all, const struct options *o);
void processes_free(struct processes *all);

#endif
