/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The command line. */
#ifndef VMA_STATS_OPTIONS_H
#define VMA_STATS_OPTIONS_H

#include <stdbool.h>

#define FD_RANGES 64
#define UNSET (-100)

enum view { VIEW_BASIC = 1, VIEW_MEDIUM, VIEW_FULL, VIEW_GROUPS, VIEW_NETSTAT, VIEW_MEMBERS };

struct fd_range {
	int first, last;
};

struct options {
	int pid; /* 0: find it */
	const char *dir, *name; /* dir NULL: the kernel module's sysfs, then the usual directory */
	bool forbid_clean, zero, json, prometheus, live;
	const char *listen; /* NULL, or where: address and port */
	bool deltas;
	bool shows; /* a view was asked for: not only control words */
	unsigned interval, cycles;
	enum view view;
	int log_level, log_details, dump_fd, dump_level; /* UNSET */
	struct fd_range ranges[FD_RANGES];
	unsigned num_ranges; /* 0: all sockets */
};

/* Prints and exits on -h, -V and mistakes. */
void options_parse(struct options *o, int argc, char **argv);
bool options_fd(const struct options *o, int fd);
const char *options_level_name(int level);

#endif
