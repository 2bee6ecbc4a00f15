/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "control.h"

#include <stddef.h>

#include "say.h"
#include "source.h"

/* The base of each chosen socket becomes what it has counted so far. */
static void zero(const struct options *o, struct source *src, const struct snapshot *snap)
{
	for (unsigned i = 0; i < snap->h.max_sockets; i++) {
		const size_t socket = sizeof(snap->h) + i * sizeof(struct vma_stats_socket),
			     base = socket + offsetof(struct vma_stats_socket, base);
		__u32 generation = snap->sockets[i].generation;

		if (!snap->sockets[i].enabled || !options_fd(o, snap->sockets[i].fd))
			continue;
		/*
		 * No generation while the counters change: a reader takes all of the new base or
		 * none.
		 */
		source_put32(src, base + offsetof(struct vma_stats_base, generation),
			     generation - 1);
		/* As they are now: the snapshot has subtracted the last base. */
		for (unsigned c = 0; c < VMA_STATS_SOCKET_COUNTERS; c++)
			source_put64(src,
				     base + offsetof(struct vma_stats_base, counter) +
					     c * sizeof(__u64),
				     source_get64(src, socket + socket_counters[c].offset));
		source_put32(src, base + offsetof(struct vma_stats_base, generation), generation);
	}
}

bool control_asked(const struct options *o)
{
	return o->zero || o->log_level != UNSET || o->log_details != UNSET || o->dump_fd != UNSET;
}

/*
 * For writing, and read once: nothing is written to a file that is not understood. 0, or -1 with
 * why.
 */
static int open_known(struct source *src, struct snapshot *snap, const struct options *o, int pid,
		      char why[WHY_LEN])
{
	if (source_open(src, o->dir, pid, true, why))
		return -1;
	if (!source_read(src, snap, why))
		return 0;
	source_close(src);
	return -1;
}

int control_zero(const struct options *o, int pid, char why[WHY_LEN])
{
	struct snapshot snap;
	struct source src;

	if (open_known(&src, &snap, o, pid, why))
		return -1;
	zero(o, &src, &snap);
	snapshot_free(&snap);
	source_close(&src);
	return 0;
}

int control(const struct options *o, int pid)
{
	struct snapshot snap;
	struct source src;
	char why[WHY_LEN];

	if (open_known(&src, &snap, o, pid, why))
		return complain(why);
	if (o->zero) {
		say(o, "Zero counters...");
		zero(o, &src, &snap);
	}
	if (o->log_level != UNSET)
		source_put32(&src, offsetof(struct vma_stats_header, log_level),
			     (__u32)o->log_level);
	if (o->log_details != UNSET)
		source_put32(&src, offsetof(struct vma_stats_header, log_details),
			     (__u32)o->log_details);
	if (o->dump_fd != UNSET) {
		if (o->dump_fd)
			say(o, "Dumping Fd %d to VMA using log level = %s...", o->dump_fd,
			    options_level_name(o->dump_level));
		else
			say(o, "Dumping all Fd's to VMA using log level = %s...",
			    options_level_name(o->dump_level));
		source_put32(&src, offsetof(struct vma_stats_header, dump_fd_level),
			     (__u32)o->dump_level);
		/* The level is there before the library sees the number. */
		source_put32(&src, offsetof(struct vma_stats_header, dump_fd), (__u32)o->dump_fd);
	}
	snapshot_free(&snap);
	source_close(&src);
	return 0;
}
