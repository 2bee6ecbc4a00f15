/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the tool writes: the control words, and the bases that -z makes. */
#ifndef VMA_STATS_CONTROL_H
#define VMA_STATS_CONTROL_H

#include "options.h"
#include "snapshot.h"

/* Do the options ask for any of it? */
bool control_asked(const struct options *o);
/* Does what they ask for. 0, or 1 after a line. */
int control(const struct options *o, int pid);
/* Zeroes the counters of the sockets that the options choose. 0, or -1 with why. */
int control_zero(const struct options *o, int pid, char why[WHY_LEN]);

#endif
