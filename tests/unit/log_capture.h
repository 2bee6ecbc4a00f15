/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The log of a test in a temporary file, so that a test can look at what was said. */
#ifndef LOG_CAPTURE_H
#define LOG_CAPTURE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"

static char capture_path[] = "/tmp/vma_test_log.XXXXXX";
static char capture_text[1 << 20];

static inline void capture_open(void)
{
	int fd = mkstemp(capture_path);

	if (fd < 0)
		abort();
	close(fd);
}

/* From here on everything up to level is captured. */
static inline void capture_at(int level)
{
	struct log_config c = {.level = level, .file = capture_path};

	if (truncate(capture_path, 0))
		abort();
	log_setup(&c);
}

static inline void capture_clear(void)
{
	if (truncate(capture_path, 0))
		abort();
}

/* What was logged since the last clear. */
static inline const char *captured(void)
{
	int fd = open(capture_path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, capture_text, sizeof(capture_text) - 1);

	if (fd < 0 || n < 0)
		abort();
	close(fd);
	capture_text[n] = '\0';
	return capture_text;
}

static inline unsigned captured_lines(void)
{
	unsigned n = 0;
	const char *s;

	for (s = captured(); (s = strchr(s, '\n')); s++)
		n++;
	return n;
}

static inline bool captured_has(const char *text)
{
	bool found = strstr(captured(), text) != NULL;

	if (!found)
		printf("    not found: %s\n    in: %s\n", text, capture_text);
	return found;
}

static inline void capture_close(void)
{
	unlink(capture_path);
}

/* For cmocka_run_group_tests(). */
static inline int capture_setup(void **state)
{
	(void)state;
	libc_load();
	capture_open();
	return 0;
}

static inline int capture_teardown(void **state)
{
	(void)state;
	capture_close();
	return 0;
}

#endif
