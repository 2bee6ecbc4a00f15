/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the log begins with: version, process, machine, and the parameters that are not at their
 * default.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "config/params_table.h"
#include "vma/version.h"

#define DASHES "---------------------------------------------------------------------------"

/* The command line with blanks between its words, cut to size. */
static void cmd_line(char *out, size_t size)
{
	FILE *f = own_fopen("/proc/self/cmdline", "re");
	size_t len = 0, i;

	if (f) {
		len = fread(out, 1, size - 1, f);
		own_fclose(f);
	}
	if (!len) {
		snprintf(out, size, "%s", program_invocation_name);
		return;
	}
	while (len && !out[len - 1])
		len--;
	for (i = 0; i < len; i++)
		if (!out[i])
			out[i] = ' ';
	out[len] = '\0';
}

static void header(void)
{
	char text[1024], when[64] = "";
	time_t now = time(NULL);
	struct utsname uts;
	struct tm tm;

	log_info(DASHES);
	log_info("VMA_VERSION: %s Release built on %s %s", VMA_LIBRARY_VERSION, __DATE__, __TIME__);
#ifdef VMA_GIT_HASH
	log_info("Git: %s", VMA_GIT_HASH);
#endif
	cmd_line(text, sizeof(text));
	log_info("Cmd Line: %s", text);
	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", &tm);
	log_info("Current Time: %s", when);
	log_info("Pid: %5u", (unsigned)getpid());
	if (!uname(&uts)) {
		log_debug("System: %s", uts.release);
		log_info("Architecture: %s", uts.machine);
		log_info("Node: %s", uts.nodename);
	}
	log_info(DASHES);
}

static bool is_default(const struct param_row *row)
{
	if (row->type == TYPE_STR)
		return !strcmp(*param_str(&params, row), row->def_str);
	return *param_int(&params, row) == row->def;
}

static void row_show(const struct param_row *row)
{
	const char *effect = param_effect_text(row);
	enum log_level level =
		!is_default(row) || row->offset == offsetof(struct params, tracelevel)
			? LOG_INFO
			: LOG_DETAILS;
	char value[PATH_MAX];
	int label = (int)strlen(row->label);

	param_format(row, &params, value, sizeof(value));
	/* A unit in brackets means nothing beside a word. */
	if (row->type == TYPE_INT && row->form == SHOW_WORD &&
	    param_word_of(row, *param_int(&params, row)))
		label = (int)strcspn(row->label, "(") - (strchr(row->label, '(') != NULL);
	if (*effect && !is_default(row))
		log_at(level, "%-30.*s %-26s [%s] (%s)", label, row->label, value, row->variable,
		       effect);
	else
		log_at(level, "%-30.*s %-26s [%s]", label, row->label, value, row->variable);
}

void params_banner(void)
{
	unsigned i;

	if (!log_enabled(LOG_INFO))
		return;
	header();
	for (i = 0; i < param_rows_count; i++)
		row_show(&param_rows[i]);
	log_info(DASHES);
}
