/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One line of libvma.conf, turned into a statement. Knows nothing of files, programs or the log. */
#ifndef CONFIG_RULE_LINE_H
#define CONFIG_RULE_LINE_H

#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/rules.h"

#define RULE_NAME_MAX 128

/* A side of a flow. IPv4 is kept v4-mapped, `prefix` counts from the first of the 128 bits. */
struct rule_side {
	bool any; /* "*": every address of both families */
	bool v4; /* written for IPv4; [::]/0 holds ::ffff:0:0/96, but does not mean it */
	uint8_t prefix;
	uint16_t port_min, port_max;
	struct in6_addr addr;
};

struct rule {
	struct rule *next;
	enum rule_role role;
	enum rule_target target;
	bool two_sides;
	struct rule_side first, second;
};

enum rule_log { RULE_LOG_STDERR = 1, RULE_LOG_SYSLOG, RULE_LOG_FILE };

enum rule_statement_kind { RULE_NOTHING, RULE_APPLICATION, RULE_USE, RULE_LOG };

struct rule_statement {
	enum rule_statement_kind kind;
	/* RULE_APPLICATION */
	char program[RULE_NAME_MAX], id[RULE_NAME_MAX];
	/*
	 * RULE_USE; next is not set. transport is set when it is one that does not exist here
	 * ("sdp", "sa").
	 */
	struct rule rule;
	const char *transport;
	/* RULE_LOG; 0: not said. */
	enum rule_log log;
	int min_level; /* 1 everything ... 9 errors only */
	char file[PATH_MAX];
};

/* Reads len bytes without a newline. 0, or -EINVAL and why it cannot be read in words. */
int rule_line_read(const char *line, size_t len, struct rule_statement *st, char *why,
		   size_t why_size);
/* * any run, ? any one byte; linear in practice, whatever the pattern. */
bool rule_glob(const char *pattern, const char *name);

#endif
