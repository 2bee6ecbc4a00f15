/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The environment: lines of the input are its variables. A line that begins with a byte below 0x80
 * and '=' is "the parameter of that number = the rest", so that values are reached without guessing
 * names. Whatever comes in, each value is one that its row allows.
 */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "config/params_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VARIABLES 32

static char *variable(const char *line, size_t len)
{
	char *out;
	unsigned row;

	if (len >= 2 && (uint8_t)line[0] < 0x80 && line[1] == '=') {
		row = (uint8_t)line[0] % param_rows_count;
		if (!strcmp(param_rows[row].variable, "VMA_LOG_FILE"))
			return NULL; /* would write where the input says */
		return asprintf(&out, "%s=%.*s", param_rows[row].variable, (int)len - 2, line + 2) <
				       0
			       ? NULL
			       : out;
	}
	if (len >= 12 && !memcmp(line, "VMA_LOG_FILE", 12))
		return NULL;
	return strndup(line, len);
}

static void check_row(const struct param_row *row)
{
	int value;

	if (row->type == TYPE_STR) {
		if (!*param_str(&params, row))
			abort();
		return;
	}
	value = *param_int(&params, row);
	if (row->form & MODE ? !param_word_of(row, value) : value < row->min || value > row->max) {
		fprintf(stderr, "%s is %d\n", row->variable, value);
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size, *newline;
	char *env[VARIABLES + 1], text[PATH_MAX + 64];
	unsigned n = 1, i;

	env[0] = strdup("VMA_LOG_FILE=/dev/null"); /* warnings are made, but not read */
	for (; at < end && n < VARIABLES; at = newline + 1) {
		newline = memchr(at, '\n', (size_t)(end - at));
		if (!newline)
			newline = end;
		env[n] = variable(at, (size_t)(newline - at));
		n += env[n] != NULL;
	}
	env[n] = NULL;
	params_reload(env);
	for (i = 0; i < param_rows_count; i++) {
		check_row(&param_rows[i]);
		param_format(&param_rows[i], &params, text, sizeof(text));
	}
	for (i = 0; i < n; i++)
		free(env[i]);
	return 0;
}
