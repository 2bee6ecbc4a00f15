/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the statistics are: with the kernel module in /sys/kernel/vma/process/<pid>/pages, which is
 * read and written as a file, else in the files <directory>/vmastat.<pid>, which are mapped:
 * finding, cleaning, reading.
 */
#ifndef VMA_STATS_SOURCE_H
#define VMA_STATS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot.h"

struct source {
	int fd, pid;
	/* the file, read-only unless opened writable; of sysfs a copy, made anew at each reading */
	void *map;
	size_t size;
	bool is_sysfs;
	bool is_cut; /* it could not be written any more, which has been said */
};

#define SOURCE_DEFAULT_DIR "/tmp/"

/*
 * dir is that of the files, and then nothing else is looked at; NULL: sysfs, then the usual
 * directory.
 *
 * The pids of the live processes that have statistics, ascending; *pids is the caller's to free.
 * With clean the files of dead ones are unlinked. Number of pids or negative errno.
 */
int source_find(const char *dir, bool clean, int **pids);
/*
 * 0, or -1 with a line in why. A file that is not the user's, root's or (for root) the process's is
 * refused.
 */
int source_open(struct source *s, const char *dir, int pid, bool writable, char why[WHY_LEN]);
/*
 * A snapshot of what is there now. 0, or -1 with a line in why, also when the file shrinks
 * meanwhile.
 */
int source_read(struct source *s, struct snapshot *out, char why[WHY_LEN]);
/*
 * Writes a word of the pages of a source that was opened writable, after those written before. A
 * line where that fails, also because the file shrinks meanwhile.
 */
void source_put32(struct source *s, size_t offset, __u32 value);
void source_put64(struct source *s, size_t offset, __u64 value);
/* A word of them as it is now, of sysfs as it was read; 0 where the file has shrunk. */
__u64 source_get64(struct source *s, size_t offset);
void source_close(struct source *s);

#endif
