/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Environments for tests of the parameters. */
#ifndef PARAMS_ENV_H
#define PARAMS_ENV_H

#include "log_capture.h"
#include "config/params_table.h"

/* Loads an environment of these variables with the log in the captured file. */
#define load(...) load_list((const char *const[]){__VA_ARGS__, NULL})

static inline void load_list(const char *const *variables)
{
	static char file[100];
	const char *env[16];
	unsigned n = 0;

	snprintf(file, sizeof(file), "VMA_LOG_FILE=%s", capture_path);
	while (*variables)
		env[n++] = *variables++;
	env[n++] = file;
	env[n++] = "HOME=/root";
	env[n] = NULL;
	capture_clear();
	params_reload((char *const *)env);
}

static inline const struct param_row *row_of(const char *variable)
{
	unsigned i;

	for (i = 0; i < param_rows_count; i++)
		if (!strcmp(param_rows[i].variable, variable))
			return &param_rows[i];
	return NULL;
}

static inline int value_of(const struct param_row *row)
{
	return *param_int(&params, row);
}

#endif
