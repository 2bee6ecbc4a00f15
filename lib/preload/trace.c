/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preload/trace.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "preload/memory.h"

void trace_line(enum log_level level, long ret, const char *fmt, ...)
{
	int err = errno;
	char call[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	if (ret < 0)
		log_write(level, "%s = %ld %s (%s)", call, ret, strerrorname_np(err) ?: "?",
			  strerrordesc_np(err) ?: "?");
	else
		log_write(level, "%s = %ld", call, ret);
	errno = err;
}

bool trace_concerns(int fd)
{
	int err = errno;
	struct stat st;
	bool is = vfd_get(fd) || (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode));

	errno = err;
	return is;
}

static void inet_text(char text[TRACE_TEXT], const struct sockaddr *addr)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *four = (const struct sockaddr_in *)addr;
	char host[INET6_ADDRSTRLEN];
	bool is_six = addr->sa_family == AF_INET6;

	if (!inet_ntop(addr->sa_family,
		       is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr, host,
		       sizeof(host)))
		host[0] = '\0';
	snprintf(text, TRACE_TEXT, is_six ? "[%s]:%u" : "%s:%u", host,
		 ntohs(is_six ? six->sin6_port : four->sin_port));
}

const char *trace_addr(char text[TRACE_TEXT], const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage a = {0};

	if (!addr || !len)
		return "NULL";
	if (!memory_touchable() || !memory_addr(addr, len))
		return "?";
	memcpy(&a, addr, len);
	if ((a.ss_family == AF_INET && len >= sizeof(struct sockaddr_in)) ||
	    (a.ss_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)))
		inet_text(text, (struct sockaddr *)&a);
	else
		snprintf(text, TRACE_TEXT, "family %d", a.ss_family);
	return text;
}

const char *trace_got(char text[TRACE_TEXT], long ret, const struct sockaddr *addr,
		      const socklen_t *len)
{
	char at[TRACE_TEXT];

	if (ret < 0 || !addr || !len || !*len)
		return "";
	snprintf(text, TRACE_TEXT, ", %s",
		 trace_addr(at, addr, *len < MEMORY_ADDR_MAX ? *len : (socklen_t)MEMORY_ADDR_MAX));
	return text;
}

const char *trace_value(char text[TRACE_TEXT], const void *val, socklen_t len)
{
	int n;

	if (len != sizeof(n))
		snprintf(text, TRACE_TEXT, "%u bytes", len);
	else if (!memory_touchable() || !memory_ends(val, len))
		return "?";
	else
		snprintf(text, TRACE_TEXT, "%d", (memcpy(&n, val, sizeof(n)), n));
	return text;
}

const char *trace_got_value(char text[TRACE_TEXT], long ret, const void *val, const socklen_t *len)
{
	char value[TRACE_TEXT];

	if (ret < 0 || !val || !len)
		return "";
	snprintf(text, TRACE_TEXT, ", %.60s", trace_value(value, val, *len));
	return text;
}

const char *trace_kind(char text[TRACE_TEXT], int domain, int type)
{
	const char *family = domain == AF_INET	  ? "AF_INET"
			     : domain == AF_INET6 ? "AF_INET6"
			     : domain == AF_UNIX  ? "AF_UNIX"
						  : NULL;
	const char *kind = (type & 0xf) == SOCK_STREAM	? "SOCK_STREAM"
			   : (type & 0xf) == SOCK_DGRAM ? "SOCK_DGRAM"
			   : (type & 0xf) == SOCK_RAW	? "SOCK_RAW"
							: NULL;
	char number[2][16];

	snprintf(number[0], sizeof(number[0]), "%d", domain);
	snprintf(number[1], sizeof(number[1]), "%d", type & 0xf);
	snprintf(text, TRACE_TEXT, "%s, %s%s%s", family ?: number[0], kind ?: number[1],
		 type & SOCK_NONBLOCK ? "|SOCK_NONBLOCK" : "",
		 type & SOCK_CLOEXEC ? "|SOCK_CLOEXEC" : "");
	return text;
}

const char *trace_timespec(char text[TRACE_TEXT], const struct timespec *ts)
{
	if (!ts)
		return "NULL";
	if (!memory_touchable() || !memory_ends(ts, sizeof(*ts)))
		return "?";
	snprintf(text, TRACE_TEXT, "%ld.%09ld s", ts->tv_sec, ts->tv_nsec);
	return text;
}

const char *trace_timeval(char text[TRACE_TEXT], const struct timeval *tv)
{
	if (!tv)
		return "NULL";
	if (!memory_touchable() || !memory_ends(tv, sizeof(*tv)))
		return "?";
	snprintf(text, TRACE_TEXT, "%ld.%06ld s", tv->tv_sec, tv->tv_usec);
	return text;
}
