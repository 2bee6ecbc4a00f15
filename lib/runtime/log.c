/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/libc.h"
#include "runtime/log_syslog.h"
#include "runtime/own_fd.h"

#define LINE_MAX_BYTES 2048

int log_level_now = LOG_INFO;
int log_details_now;

enum log_dest { DEST_STDERR, DEST_FILE, DEST_SYSLOG };

/* Written by log_setup() and the log_to functions, read by all. */
static enum log_dest dest = DEST_STDERR;
static bool colors_wanted = true;
static bool colors;
static char file_path[PATH_MAX];
static _Atomic int file_fd = -1;
static atomic_flag reopening = ATOMIC_FLAG_INIT;
static uint64_t start_ns;
/*
 * What stood behind the file's descriptor when it was opened, so that a program which reuses the
 * number gets no log lines into it. Whoever sees a half-changed pair opens the file once too often.
 */
static _Atomic dev_t known_dev;
static _Atomic ino_t known_ino;
/* Number 2 as it was when the library was loaded, by log_stderr_note(). */
static struct {
	bool is_open;
	dev_t dev;
	ino_t ino;
} at_load;

static const char *const level_names[] = {"PANIC", "ERROR", "WARNING", "INFO", "DETAILS",
					  "DEBUG", "FINE",  "FINER",   "ALL"};

static void remember(int fd)
{
	struct stat st;

	known_dev = 0;
	known_ino = 0;
	if (!fstat(fd, &st)) {
		known_dev = st.st_dev;
		known_ino = st.st_ino;
	}
}

/* Opens path for appending. Descriptor or negative errno. */
static int file_open(const char *path)
{
	int fd = OWN_FD(raw.open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));

	return fd < 0 ? -errno : fd;
}

static void colors_choose(void)
{
	colors = colors_wanted && (dest == DEST_STDERR ? isatty(STDERR_FILENO)
						       : dest == DEST_FILE && isatty(file_fd));
}

static void dest_set(enum log_dest to)
{
	dest = to;
	colors_choose();
}

int log_to_file(const char *path)
{
	int fd, old;

	if (strlen(path) >= sizeof(file_path))
		return -ENAMETOOLONG;
	fd = file_open(path);
	if (fd < 0)
		return fd;
	old = atomic_exchange(&file_fd, fd);
	if (old >= 0)
		own_fd_close(old);
	strcpy(file_path, path);
	remember(fd);
	dest_set(DEST_FILE);
	return 0;
}

void log_to_stderr(void)
{
	dest_set(DEST_STDERR);
}

void log_to_syslog(void)
{
	log_syslog_open();
	dest_set(DEST_SYSLOG);
}

void log_setup(const struct log_config *c)
{
	int err = 0, saved = errno;

	if (!start_ns)
		start_ns = clock_monotonic_ns();
	__atomic_store_n(&log_level_now, c->level, __ATOMIC_RELAXED);
	__atomic_store_n(&log_details_now, c->details, __ATOMIC_RELAXED);
	colors_wanted = c->colors;
	if (*c->file)
		err = log_to_file(c->file);
	if (!*c->file || err)
		log_to_stderr();
	if (err)
		log_warn("VMA_LOG_FILE: cannot append to %s: %s; the log goes to standard error",
			 c->file, strerror(-err));
	errno = saved;
}

__attribute__((constructor)) void log_stderr_note(void)
{
	struct stat st;

	at_load.is_open = !fstat(STDERR_FILENO, &st);
	if (at_load.is_open) {
		at_load.dev = st.st_dev;
		at_load.ino = st.st_ino;
	}
}

/*
 * What has come to number 2 since then is a redirection, not what the program keeps its data in: a
 * terminal, /dev/null, a file that is appended to, or a pipe, if it is no number that was free.
 */
static bool is_redirection(const struct stat *st)
{
	int saved = errno;
	bool is = false;

	if (S_ISCHR(st->st_mode))
		is = st->st_rdev == makedev(1, 3) || isatty(STDERR_FILENO);
	else if (S_ISREG(st->st_mode))
		is = libc_raw(SYS_fcntl, STDERR_FILENO, F_GETFL, 0, 0, 0, 0) & O_APPEND;
	else if (S_ISFIFO(st->st_mode))
		is = at_load.is_open;
	errno = saved;
	return is;
}

/* The descriptor to write to, or -1. */
static int stderr_fd(mode_t *mode)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st))
		return -1;
	if (!(at_load.is_open && st.st_dev == at_load.dev && st.st_ino == at_load.ino) &&
	    !is_redirection(&st))
		return -1;
	*mode = st.st_mode;
	return STDERR_FILENO;
}

/* Opens the file again when the program closed our descriptor by means that we do not see. */
static int log_file_fd(mode_t *mode)
{
	int fd = file_fd;
	struct stat st;

	if (!fstat(fd, &st) && st.st_dev == known_dev && st.st_ino == known_ino) {
		*mode = st.st_mode;
		return fd;
	}
	if (atomic_flag_test_and_set(&reopening))
		/* another thread does, or we interrupted one that does: the line is lost */
		return -1;
	own_fd_lost(fd);
	fd = file_open(file_path);
	file_fd = fd < 0 ? -1 : fd;
	if (fd >= 0) {
		remember(fd);
		*mode = S_IFREG;
	}
	atomic_flag_clear(&reopening);
	return fd < 0 ? -1 : fd;
}

void log_forked(void)
{
	/* Another thread of the parent may have been at it. */
	atomic_flag_clear(&reopening);
}

static void write_all(int fd, const char *line, size_t len)
{
	ssize_t n;

	while (len) {
		n = raw.write(fd, line, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* there is nowhere to say it */
		line += n;
		len -= (size_t)n;
	}
}

/* A reader of the log that went away must not kill the program by SIGPIPE. */
static void write_pipe(int fd, const char *line, size_t len)
{
	sigset_t pipe_set, old, pending;
	static const struct timespec none;
	bool was_pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	was_pending = sigismember(&pending, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	errno = 0;
	write_all(fd, line, len);
	if (errno == EPIPE && !was_pending)
		while (libc_raw(SYS_rt_sigtimedwait, (long)(uintptr_t)&pipe_set, 0,
				(long)(uintptr_t)&none, _NSIG / 8, 0, 0) < 0 &&
		       errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void line_emit(const char *line, size_t len)
{
	mode_t mode = 0;
	int fd = dest == DEST_FILE ? log_file_fd(&mode) : stderr_fd(&mode);

	if (fd < 0)
		return;
	if (S_ISREG(mode) || S_ISCHR(mode))
		write_all(fd, line, len);
	else
		write_pipe(fd, line, len);
}

static const char *color_of(int level)
{
	if (level <= LOG_ERROR)
		return "\033[0;31m";
	if (level == LOG_WARN)
		return "\033[0;35m";
	if (level >= LOG_FINE)
		return "\033[0;90m";
	return NULL;
}

/* " Time: ... Pid: ... Tid: ... VMA LEVEL: ". Returns its length. */
static size_t prefix_put(char *out, size_t size, int level)
{
	int details = __atomic_load_n(&log_details_now, __ATOMIC_RELAXED);
	size_t len = 0;
	uint64_t us;

	if (details >= 3) {
		us = start_ns ? (clock_monotonic_ns() - start_ns) / 1000 : 0;
		len += (size_t)snprintf(out + len, size - len, " Time: %5lu.%03lu",
					(unsigned long)(us / 1000), (unsigned long)(us % 1000));
	}
	if (details >= 2)
		len += (size_t)snprintf(out + len, size - len, " Pid: %5u", (unsigned)getpid());
	if (details >= 1)
		len += (size_t)snprintf(out + len, size - len, " Tid: %5u", (unsigned)gettid());
	len += (size_t)snprintf(out + len, size - len, " VMA %s: ",
				level_names[level < LOG_PANIC ? LOG_PANIC
					    : level > LOG_ALL ? LOG_ALL
							      : level]);
	return len;
}

static void line_write(enum log_level level, const char *fmt, va_list ap)
{
	char line[LINE_MAX_BYTES];
	/* Room for "...", the end of a colour and the newline. */
	const size_t room = sizeof(line) - 16;
	const char *color = colors ? color_of(level) : NULL;
	size_t len = 0, from, i;
	int saved = errno, n;

	if (color)
		len = (size_t)snprintf(line, room, "%s", color);
	from = len += prefix_put(line + len, room - len, level);
	n = vsnprintf(line + len, room - len, fmt, ap);
	if (n < 0)
		n = 0;
	len = (size_t)n < room - len ? len + (size_t)n : room - 1;
	while (len > from && line[len - 1] == '\n')
		len--;
	for (i = from; i < len; i++)
		if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
			line[i] = '?';
	if (from + (size_t)n >= room) {
		memcpy(line + len, "...", 3);
		len += 3;
	}
	if (dest == DEST_SYSLOG) {
		line[len] = '\0';
		log_syslog_write(level, line);
	} else {
		if (color) {
			memcpy(line + len, "\033[0m", 4);
			len += 4;
		}
		line[len++] = '\n';
		line_emit(line, len);
	}
	errno = saved;
}

/* Of this thread, between log_news_begin() and log_news_end(). */
static __thread struct log_told *told;

void log_news_begin(struct log_told *t)
{
	told = t;
}

void log_news_end(void)
{
	told = NULL;
}

/* FNV-1a. Two lines with one hash: the second one is not said. */
static uint32_t hash_of(const char *text)
{
	uint32_t hash = 2166136261u;

	while (*text)
		hash = (hash ^ (unsigned char)*text++) * 16777619u;
	return hash;
}

static bool was_told(const char *line)
{
	const unsigned most = sizeof(told->lines) / sizeof(told->lines[0]);
	uint32_t hash = hash_of(line);

	for (unsigned i = 0; i < told->num && i < most; i++)
		if (told->lines[i] == hash)
			return true;
	told->lines[told->num++ % most] = hash;
	return false;
}

/* The level of a line that may have been said. */
static enum log_level news_level(enum log_level level, const char *fmt, va_list ap)
{
	char line[LINE_MAX_BYTES];
	int err = errno;
	va_list copy;

	if (level == LOG_PANIC || level >= LOG_DEBUG)
		return level;
	va_copy(copy, ap);
	vsnprintf(line, sizeof(line), fmt, copy);
	va_end(copy);
	errno = err;
	return was_told(line) ? LOG_DEBUG : level;
}

void log_vwrite(enum log_level level, const char *fmt, va_list ap)
{
	if (told)
		level = news_level(level, fmt, ap);
	if (log_enabled(level) || !told)
		line_write(level, fmt, ap);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_vwrite(level, fmt, ap);
	va_end(ap);
}

void log_panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (log_enabled(LOG_PANIC))
		log_vwrite(LOG_PANIC, fmt, ap);
	va_end(ap);
	abort();
}

#define BOX "*****************************************************************************"

void log_box(const char *fmt, ...)
{
	char text[LINE_MAX_BYTES], *at = text, *line;
	struct log_told *news = told;
	va_list ap;

	if (!log_enabled(LOG_WARN))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (told && was_told(text))
		return;
	told = NULL; /* its lines belong together */
	log_write(LOG_WARN, BOX);
	while ((line = strsep(&at, "\n")))
		log_write(LOG_WARN, "* %s", line);
	log_write(LOG_WARN, BOX);
	told = news;
}

void log_high_level(void)
{
	log_box("VMA is currently configured with high log level\n"
		"Application performance will decrease in this log level!\n"
		"This log level is recommended for debugging purposes only");
}
