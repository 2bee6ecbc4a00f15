/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose packet it is, for capture.c. */
#ifndef STATS_CAPTURE_FD_H
#define STATS_CAPTURE_FD_H

#include "stats/stats.h"

/*
 * The descriptor of the socket that a frame belongs to, by its addresses and ports; a listener's
 * for a connection that nobody has accepted. -1: none that has statistics, or no frame of TCP or
 * UDP. Any thread, no lock.
 */
int stats_capture_fd(const struct stats_frame *f);

#endif
