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

static bool is_leap(int year)
{
	return !(year % 4) && (year % 100 || !(year % 400));
}

/* The day that is so many after 1970-01-01; tm_mday, tm_mon, tm_year. */
static void day_of(int days, struct tm *tm)
{
	static const int of_month[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year = 1970, month = 0, n;

	for (; days >= (n = 365 + is_leap(year)); year++)
		days -= n;
	for (; days >= (n = of_month[month] + (month == 1 && is_leap(year))); month++)
		days -= n;
	tm->tm_mday = days + 1;
	tm->tm_mon = month;
	tm->tm_year = year - 1900;
}

/*
 * The time of day as a line: local time, or in a copy of a process UTC. libc's lock of the time
 * zone, which gmtime_r() takes as well, is not renewed by fork().
 */
static void clock_line(char out[96])
{
	static const char day[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char month[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	time_t now = time(NULL);
	bool utc = process_is_copy();
	struct tm tm = {.tm_hour = (int)(now / 3600 % 24),
			.tm_min = (int)(now / 60 % 60),
			.tm_sec = (int)(now % 60),
			.tm_wday = (int)((now / 86400 + 4) % 7)};

	if (utc)
		day_of((int)(now / 86400), &tm);
	else if (!localtime_r(&now, &tm))
		tm = (struct tm){.tm_mday = 1, .tm_year = 70, .tm_wday = 4};
	snprintf(out, 96, "%s %s %2d %02d:%02d:%02d %d%s", day[tm.tm_wday], month[tm.tm_mon],
		 tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_year + 1900,
		 utc ? " UTC" : "");
}

static void header(void)
{
	char text[1024], when[96];
	struct utsname uts;

	log_info(DASHES);
	/* One literal: strings(1) and grep find it in the file. */
	log_info("VMA_VERSION: " VMA_LIBRARY_VERSION " Release built on " __DATE__ " " __TIME__);
#ifdef VMA_GIT_HASH
	log_info("Git: %s", VMA_GIT_HASH);
#endif
	cmd_line(text, sizeof(text));
	log_info("Cmd Line: %s", text);
	clock_line(when);
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
	if (log_enabled(LOG_DEBUG))
		log_high_level();
}
