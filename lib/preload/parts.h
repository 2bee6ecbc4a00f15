/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What begins and ends with the library, in this order; no call of a program's is needed for it.
 * The service vmad, which has no sockets, has these, too.
 */
#ifndef PRELOAD_PARTS_H
#define PRELOAD_PARTS_H

/*
 * Everything that may fail, after params_load(); what has been started stays (it is idle) and is
 * ended by parts_stop(). begin: the same for a listener that has no library yet. 0 or negative
 * errno.
 */
int parts_start(int (*begin)(void));
/* Connections go to the kernel; steering, the internal thread and the statistics end. Once. */
void parts_stop(void);

#endif
