/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which processes the options choose. */
#ifndef VMA_STATS_CHOICE_H
#define VMA_STATS_CHOICE_H

#include "options.h"

/* Their pids, *pids the caller's to free. Their number, or -1 after a line. */
int choice_pids(const struct options *o, int **pids);
/* The line that it is not known which one. Returns 1, the exit status. */
int choice_none(void);
/* Exactly one process; 0 after a line. */
int choice_one(const struct options *o);

#endif
