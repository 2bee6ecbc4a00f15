/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef RUNTIME_LOG_SYSLOG_H
#define RUNTIME_LOG_SYSLOG_H

/* level: enum log_level. Not for signal handlers. */
void log_syslog_write(int level, const char *text);

#endif
