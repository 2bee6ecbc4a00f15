/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The files <directory>/vmastat.<pid>: finding, cleaning, mapping. */
#ifndef VMA_STATS_SOURCE_H
#define VMA_STATS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot.h"

struct source {
	int fd, pid;
	void *map; /* read-only unless opened writable */
	size_t size;
};

/*
 * The pids of the live processes that have a file in dir, ascending; *pids is the caller's to free. With clean the
 * files of dead ones are unlinked. Number of pids or negative errno.
 */
int source_find(const char *dir, bool clean, int **pids);
/* 0, or -1 with a line in why. A file that is not the user's, root's or (for root) the process's is refused. */
int source_open(struct source *s, const char *dir, int pid, bool writable, char why[WHY_LEN]);
/* A snapshot of what is there now. 0, or -1 with a line in why, also when the file shrinks meanwhile. */
int source_read(struct source *s, struct snapshot *out, char why[WHY_LEN]);
void source_close(struct source *s);

#endif
