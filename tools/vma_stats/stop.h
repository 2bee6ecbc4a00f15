/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The signals that end the tool in an orderly way. */
#ifndef VMA_STATS_STOP_H
#define VMA_STATS_STOP_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>

/* From now on this signal only asks. */
void stop_on(int signal);
bool stop_asked(void);
/*
 * SIGINT, SIGTERM, SIGHUP and SIGWINCH come in stop_poll() only, so that none is missed between a
 * look and the wait.
 */
void stop_hold(void);
/* poll(), in which the signals come. A negative timeout has no end. */
int stop_poll(struct pollfd *fds, unsigned n, int timeout_ms);

#endif
