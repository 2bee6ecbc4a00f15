/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The live view: processes, their sockets, what each of them does, on the whole screen. */
#ifndef VMA_STATS_LIVE_H
#define VMA_STATS_LIVE_H

#include "options.h"

/* Until q, a signal, or the end of the terminal. 0, or -1: the terminal cannot do it. */
int live_run(const struct options *o);

#endif
