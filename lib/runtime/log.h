/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The log: " VMA <LEVEL>: text", the form of the original library. */
#ifndef RUNTIME_LOG_H
#define RUNTIME_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_NONE = -1,
	LOG_PANIC = 0,
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DETAILS,
	LOG_DEBUG,
	LOG_FINE,
	LOG_FINER,
	LOG_ALL,
};

/*
 * The live level and details (0-3); vma_stats may change them (runtime/stats). Written by that,
 * read by all, relaxed.
 */
extern int log_level_now;
extern int log_details_now;

struct log_config {
	int level;
	int details; /* 0 nothing, 1 thread, 2 process and thread, 3 time as well */
	bool colors; /* only ever on a terminal */
	const char *file; /* "": standard error. Appended to */
};

/*
 * At the start and in a forked child, while no other thread logs. A file that cannot be opened:
 * standard error, and said so.
 */
void log_setup(const struct log_config *c);
/*
 * What stands at number 2 now is standard error. What the program opens there later may be its
 * data: of that only a redirection gets lines. Called when the library is loaded.
 */
void log_stderr_note(void);
/* The child of a fork(): the log is its parent's. */
void log_forked(void);
/* Later changes of mind (libvma.conf). 0 or negative errno, then nothing has changed. */
int log_to_file(const char *path);
void log_to_stderr(void);
void log_to_syslog(void);

/*
 * One line, whatever the level, in one write. Callable from any thread and from signal handlers;
 * keeps errno; never raises SIGPIPE. Control characters become '?', the end of a line over 2,000
 * bytes "...".
 */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_vwrite(enum log_level level, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

/*
 * The manual's frame around a warning: an asterisk before each line, and a line of asterisks around
 * them all. The lines are separated by newlines.
 */
void log_box(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The level is one that costs time (LOG_DEBUG and above): a box. */
void log_high_level(void);

/* Lines that have been said. All 0: none. */
struct log_told {
	uint32_t lines[32];
	unsigned num;
};

/*
 * For what is tried again and again: from begin to end a line of this thread's that told has is
 * written at LOG_DEBUG only, and the others are entered there. The oldest are forgotten. told is
 * the caller's, used by one thread at a time.
 */
void log_news_begin(struct log_told *told);
void log_news_end(void);

/*
 * What must never be: says so at LOG_PANIC and ends the process with SIGABRT. For mistakes of the
 * library's own with which going on would do harm, not for what the system refuses.
 */
_Noreturn void log_panic(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define log_enabled(level)                                                                         \
	__builtin_expect((int)(level) <= __atomic_load_n(&log_level_now, __ATOMIC_RELAXED), 0)
#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (log_enabled(level))                                                            \
			log_write(level, __VA_ARGS__);                                             \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_details(...) log_at(LOG_DETAILS, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
