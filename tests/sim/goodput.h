/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SIM_GOODPUT_H
#define SIM_GOODPUT_H

/* Prints goodput by loss and round-trip time for each congestion control; 0, or 1 when a run failed. */
int goodput_table(void);

#endif
