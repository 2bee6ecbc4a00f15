/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Apart from log.c because <syslog.h> has its own LOG_INFO and friends. */
#include "runtime/log_syslog.h"

#include <syslog.h>

#include "runtime/libc.h"

void log_syslog_write(int level, const char *text)
{
	/* By our levels: panic, error, warning, info, details; everything finer is debug. */
	static const int priority[] = {LOG_CRIT, LOG_ERR, LOG_WARNING, LOG_INFO, LOG_INFO};

	libc_internal_begin(); /* a line is written with any lock held */
	syslog(LOG_USER | (level >= 0 && level < 5 ? priority[level] : LOG_DEBUG), "%s", text);
	libc_internal_end();
}
