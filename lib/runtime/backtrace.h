/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a thread is, through the log. */
#ifndef RUNTIME_BACKTRACE_H
#define RUNTIME_BACKTRACE_H

#include <signal.h>

#include "runtime/log.h"

/* Once, before a signal's handler may ask: what finds a thread's frames is loaded. */
void backtrace_prepare(void);
/*
 * A line for each frame of this thread, outermost last: file, offset in it, address. From the frame
 * on that was interrupted when context, of a signal's handler, is not NULL. Takes no lock and no
 * memory: callable from the handler of a fault.
 */
void backtrace_log(enum log_level level, const void *context);

#endif
