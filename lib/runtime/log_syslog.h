/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef RUNTIME_LOG_SYSLOG_H
#define RUNTIME_LOG_SYSLOG_H

/* Where syslogd listens. */
extern const char *log_syslog_path;

/* Before the first line. */
void log_syslog_open(void);
/* level: enum log_level. Any lock may be held. */
void log_syslog_write(int level, const char *text);

#endif
