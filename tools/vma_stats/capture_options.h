/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The command line of `vma_stats capture`. */
#ifndef VMA_STATS_CAPTURE_OPTIONS_H
#define VMA_STATS_CAPTURE_OPTIONS_H

#include <stdint.h>

#include "capture_process.h"

#define CAPTURE_FILTER 1024

struct capture_options {
	int pid; /* 0: all */
	struct capture_wanted wanted;
	const char *interface; /* NULL: all */
	const char *file; /* NULL: text; "-": standard output */
	uint64_t count; /* 0: until it is stopped */
	uint8_t direction; /* VMA_CAPTURE_VOID: both */
	char filter[CAPTURE_FILTER]; /* "": all packets */
};

/* Prints and exits on -h and mistakes. */
void capture_options_parse(struct capture_options *o, int argc, char **argv);

#endif
