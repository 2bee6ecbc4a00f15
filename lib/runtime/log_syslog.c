/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lines for syslogd, without libc's syslog(): that has locks which a child of fork() does not get
 * renewed, waits for syslogd as long as that likes, and would open a socket among the program's.
 * Apart from log.c because <syslog.h> has its own LOG_INFO and friends.
 */
#include "runtime/log_syslog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <syslog.h>

#include "runtime/libc.h"
#include "runtime/own_fd.h"

/* How long a line may wait for room: any lock may be held. Then those are lost that find none. */
#define ROOM_US 20000

const char *log_syslog_path = "/dev/log";

static _Atomic int syslog_fd = -1;
static _Atomic bool full;

/* One that is lost was closed by means that we do not see. */
static void open_anew(int lost)
{
	struct timeval limit = {.tv_usec = ROOM_US};
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd >= 0)
		(void)libc.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (!atomic_compare_exchange_strong(&syslog_fd, &lost, fd) && fd >= 0)
		own_fd_close(fd); /* another thread was faster */
}

void log_syslog_open(void)
{
	if (atomic_load(&syslog_fd) < 0)
		open_anew(-1);
}

/* 0 or negative errno. */
static int send_line(int fd, const char *head, const char *text)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct iovec iov[] = {{(void *)head, strlen(head)}, {(void *)text, strlen(text)}};
	struct msghdr m = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = iov, .msg_iovlen = 2};

	int flags = MSG_NOSIGNAL | (atomic_load(&full) ? MSG_DONTWAIT : 0), err;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", log_syslog_path);
	do {
		err = raw.sendmsg(fd, &m, flags) < 0 ? -errno : 0;
	} while (err == -EINTR);
	atomic_store(&full, err == -EAGAIN);
	return err;
}

void log_syslog_write(int level, const char *text)
{
	/* By our levels: panic, error, warning, info, details; everything finer is debug. */
	static const int priority[] = {LOG_CRIT, LOG_ERR, LOG_WARNING, LOG_INFO, LOG_INFO};
	int fd = atomic_load(&syslog_fd), err;
	char head[64];

	/* syslogd puts its own time to a line that has none. */
	snprintf(head, sizeof(head),
		 "<%d>%.40s: ", LOG_USER | (level >= 0 && level < 5 ? priority[level] : LOG_DEBUG),
		 program_invocation_short_name);
	err = send_line(fd, head, text);
	if (err != -EBADF && err != -ENOTSOCK)
		return;
	own_fd_lost(fd);
	open_anew(fd);
	(void)send_line(atomic_load(&syslog_fd), head, text);
}
