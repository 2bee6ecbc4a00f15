/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program's calls in the log: those about sockets at DEBUG, those that a packet or a wait takes
 * at FINE. Off, each costs a load and a branch. A line is a call as strace(1) writes it.
 */
#ifndef PRELOAD_TRACE_H
#define PRELOAD_TRACE_H

#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "preload/preload.h"

/* Behind a call: its result, then its name and arguments as for printf(). Keeps errno. */
#define TRACE(ret, ...) TRACE_AT(LOG_DEBUG, ret, __VA_ARGS__)
#define TRACE_AT(level, ret, ...)                                                                  \
	do {                                                                                       \
		if (log_enabled(level) && !from_library())                                         \
			trace_line(level, ret, __VA_ARGS__);                                       \
	} while (0)
/* The same where fd may be a file, of which nothing is said. */
#define TRACE_FD(fd, ret, ...)                                                                     \
	do {                                                                                       \
		if (log_enabled(LOG_DEBUG) && !from_library() && trace_concerns(fd))               \
			trace_line(LOG_DEBUG, ret, __VA_ARGS__);                                   \
	} while (0)
void trace_line(enum log_level level, long ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/*
 * The entry point `name` around do_<name>(), with a line at FINE for fd when it is a socket: the
 * first arguments are the call's type, name, parameters and arguments in brackets, then its text.
 * The other way is one of its own, so that the usual one keeps nothing for it.
 */
#define PRELOAD_PACKETS(type, name, parameters, arguments, ...)                                    \
	static __attribute__((noinline, cold)) type name##_traced parameters                       \
	{                                                                                          \
		type ret = do_##name arguments;                                                    \
                                                                                                   \
		if (!from_library() && trace_concerns(fd))                                         \
			trace_line(LOG_FINE, ret, __VA_ARGS__);                                    \
		return ret;                                                                        \
	}                                                                                          \
	PRELOAD type name parameters                                                               \
	{                                                                                          \
		if (log_enabled(LOG_FINE))                                                         \
			return name##_traced arguments;                                            \
		return do_##name arguments;                                                        \
	}
/*
 * The same of a call that waits for several descriptors and returns int: `about` tells before the
 * call, which may write over its arguments, whether one of them is a socket.
 */
#define PRELOAD_WAIT(name, parameters, arguments, about, ...)                                      \
	static __attribute__((noinline, cold)) int name##_traced parameters                        \
	{                                                                                          \
		bool told = !from_library() && (about);                                            \
		char call[TRACE_CALL];                                                             \
		int ret;                                                                           \
                                                                                                   \
		if (told)                                                                          \
			KEEPING_ERRNO(snprintf(call, sizeof(call), __VA_ARGS__));                  \
		ret = do_##name arguments;                                                         \
		if (told)                                                                          \
			trace_line(LOG_FINE, ret, "%s", call);                                     \
		return ret;                                                                        \
	}                                                                                          \
	PRELOAD int name parameters                                                                \
	{                                                                                          \
		if (log_enabled(LOG_FINE))                                                         \
			return name##_traced arguments;                                            \
		return do_##name arguments;                                                        \
	}
#define PACKETS_BODY static inline __attribute__((always_inline))

/* A socket, or another object of ours. Keeps errno. */
bool trace_concerns(int fd);
#define TRACE_TEXT 64
#define TRACE_CALL 128 /* of a call that waits */
/* An address that the program gives; "?" where it cannot be read. Returns text. */
const char *trace_addr(char text[TRACE_TEXT], const struct sockaddr *addr, socklen_t len);
/* One that a call with this result has given; "" where it has not. */
const char *trace_got(char text[TRACE_TEXT], long ret, const struct sockaddr *addr,
		      const socklen_t *len);
/* An option's value: as a number where it is one, else how long it is. */
const char *trace_value(char text[TRACE_TEXT], const void *val, socklen_t len);
/* What getsockopt() with this result has given; "" where it has not. */
const char *trace_got_value(char text[TRACE_TEXT], long ret, const void *val, const socklen_t *len);
/* The arguments of socket(). */
const char *trace_kind(char text[TRACE_TEXT], int domain, int type);
/* How long a call may wait, in seconds; NULL is for ever. "?" where it cannot be read. */
const char *trace_timespec(char text[TRACE_TEXT], const struct timespec *ts);
const char *trace_timeval(char text[TRACE_TEXT], const struct timeval *tv);
#define TRACE_ADDR(addr, len) trace_addr((char[TRACE_TEXT]){0}, addr, len)
#define TRACE_GOT(ret, addr, len) trace_got((char[TRACE_TEXT]){0}, ret, addr, len)
#define TRACE_VALUE(val, len) trace_value((char[TRACE_TEXT]){0}, val, len)
#define TRACE_GOT_VALUE(ret, val, len) trace_got_value((char[TRACE_TEXT]){0}, ret, val, len)
#define TRACE_TIMESPEC(ts) trace_timespec((char[TRACE_TEXT]){0}, ts)
#define TRACE_TIMEVAL(tv) trace_timeval((char[TRACE_TEXT]){0}, tv)
#define TRACE_KIND(domain, type) trace_kind((char[TRACE_TEXT]){0}, domain, type)
#define TRACE_OPTION(level, opt) sockopt_name((char[SOCKOPT_NAME]){0}, level, opt)

#endif
