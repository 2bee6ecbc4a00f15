/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A line for the person. */
#ifndef VMA_STATS_SAY_H
#define VMA_STATS_SAY_H

#include "options.h"

/* On standard output, unless that is a program's (--json). */
void say(const struct options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What went wrong. Returns 1, the exit status. */
int complain(const char *why);

#endif
