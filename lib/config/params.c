/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "config/params.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "config/params_table.h"

struct params params = {
#define PARAM_INT(field, var, label, def, ...) .field = def,
#define PARAM_BOOL(field, var, label, def, ...) .field = def,
#define PARAM_ENUM(field, var, label, def, ...) .field = def,
#define PARAM_STR(field, var, label, def, ...) .field = def,
#include "config/parameters.def"
};

/*
 * A slot for each row: strings are copied out of the environment, which the program may change or
 * free.
 */
enum {
#define PARAM_INT(field, ...) ROW_##field,
#define PARAM_BOOL(field, ...) ROW_##field,
#define PARAM_ENUM(field, ...) ROW_##field,
#define PARAM_STR(field, ...) ROW_##field,
#include "config/parameters.def"
	ROWS
};

enum {
#define PARAM_STR(field, ...) TEXT_##field,
#include "config/parameters.def"
	TEXTS
};

static char texts[TEXTS][PATH_MAX];
static char with_pid[TEXTS][PATH_MAX]; /* as read, where the process's number is a part; else "" */
static bool from_env[ROWS];
static bool warnings;
static pid_t loaded_by;

bool params_unasked;

#define warn(...)                                                                                  \
	do {                                                                                       \
		if (warnings)                                                                      \
			log_warn(__VA_ARGS__);                                                     \
	} while (0)

/* The value of a variable, or NULL. envp may be NULL. */
static const char *env_find(char *const *envp, const char *variable)
{
	size_t len = strlen(variable);

	for (; envp && *envp; envp++)
		if (!strncmp(*envp, variable, len) && (*envp)[len] == '=')
			return *envp + len + 1;
	return NULL;
}

/*
 * Reads a decimal number with blanks around it, saturated to what an int holds with one to spare. 0
 * or -EINVAL.
 */
static int number_read(const char *text, long long *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	if (end == text)
		return -EINVAL;
	end += strspn(end, " \t\r\n");
	return *end ? -EINVAL : 0;
}

/* What the banner shows can be given, too. */
static bool word_read(const struct param_row *row, const char *text, int *field)
{
	for (const struct param_word *w = row->words; w->name; w++) {
		if (strcasecmp(w->name, text))
			continue;
		*field = w->value;
		return true;
	}
	return false;
}

static void int_read(const struct param_row *row, const char *text)
{
	int *field = param_int(&params, row);
	long long n;

	if (word_read(row, text, field))
		return;
	if (number_read(text, &n)) {
		if (*field == POLL_ADAPTIVE)
			warn("%s=\"%.100s\" is neither a number nor \"adaptive\", which is used",
			     row->variable, text);
		else
			warn("%s=\"%.100s\" is not a number; %d is used", row->variable, text,
			     *field);
		return;
	}
	if (row->form & MODE) {
		if (n < row->min || n > row->max || !param_word_of(row, (int)n))
			warn("%s=%.100s is not one of its values; %d is used", row->variable, text,
			     *field);
		else
			*field = (int)n;
		return;
	}
	if (n >= row->min && n <= row->max) {
		*field = (int)n;
		return;
	}
	/* Any number but 0 has always meant "on". */
	*field = row->type == TYPE_BOOL || n > row->max ? row->max : row->min;
	if (row->max == INT_MAX)
		warn("%s=%.100s is outside its range (%d and more); %d is used", row->variable,
		     text, row->min, *field);
	else
		warn("%s=%.100s is outside its range (%d to %d); %d is used", row->variable, text,
		     row->min, row->max, *field);
}

static void enum_read(const struct param_row *row, const char *text)
{
	int *field = param_int(&params, row);

	if (!word_read(row, text, field))
		warn("%s=\"%.100s\" is not one of its values; %s is used", row->variable, text,
		     param_word_of(row, *field));
}

/*
 * Copies text into slot, the first %d replaced by the process id where asked. 0 or -ENAMETOOLONG.
 */
static int text_copy(char slot[PATH_MAX], const char *text, bool expand)
{
	const char *at = expand ? strstr(text, "%d") : NULL;
	int len = (int)strlen(text);

	if (at)
		len = snprintf(slot, PATH_MAX, "%.*s%d%s", (int)(at - text), text, (int)getpid(),
			       at + 2);
	else if (len < PATH_MAX)
		memcpy(slot, text, (size_t)len + 1);
	return len >= 0 && len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static void str_read(const struct param_row *row, unsigned slot, const char *text)
{
	const char **field = param_str(&params, row);
	cpu_set_t set;

	if (row->form == STR_CPUS && strcmp(text, "-1") && params_cpus(text, &set)) {
		warn("%s=\"%.100s\" is neither a mask (0x3) nor a list of processors (0,2-3); %s "
		     "is used",
		     row->variable, text, *field);
		return;
	}
	/* An expanded name may be too long only after the previous value is gone: measure first. */
	if (strlen(text) >= PATH_MAX - 16) {
		warn("%s is longer than %d bytes; \"%s\" is used", row->variable, PATH_MAX - 16,
		     *field);
		return;
	}
	text_copy(texts[slot], text, row->form == STR_FILE);
	strcpy(with_pid[slot], row->form == STR_FILE && strstr(text, "%d") ? text : "");
	*field = texts[slot];
}

static void row_read(const struct param_row *row, char *const *envp, unsigned slot)
{
	const char *text = env_find(envp, row->variable);

	if (!text)
		return;
	from_env[row - param_rows] = true;
	switch (row->type) {
	case TYPE_INT:
	case TYPE_BOOL:
		int_read(row, text);
		return;
	case TYPE_ENUM:
		enum_read(row, text);
		return;
	case TYPE_STR:
		str_read(row, slot, text);
		return;
	}
}

static const struct param_row *row_named(const char *variable)
{
	const struct param_row *row;

	for (row = param_rows; row < param_rows + param_rows_count; row++)
		if (!strcmp(row->variable, variable))
			return row;
	return NULL;
}

/* What the parameter of today gets for an old one's value. */
static const char *value_today(const struct param_obsolete *o, const char *text)
{
	long long n;

	if (!o->on || number_read(text, &n))
		return text;
	return n ? o->on : o->off;
}

/* Old names first, so that the name of today wins when both are set. */
static void obsoletes_read(char *const *envp)
{
	const struct param_obsolete *o;
	const char *text;

	for (o = param_obsoletes; o < param_obsoletes + param_obsoletes_count; o++) {
		text = env_find(envp, o->variable);
		if (!text)
			continue;
		warn("%s is obsolete: %s", o->variable, o->instead);
		if (o->takes)
			int_read(row_named(o->takes), value_today(o, text));
	}
}

/* Sets a parameter to what another one demands. Says so only to who asked for something else. */
static void demand(unsigned row, int value, const char *why)
{
	int *field = param_int(&params, &param_rows[row]);

	if (*field == value)
		return;
	if (from_env[row])
		warn("%s=%d %s; %d is used", param_rows[row].variable, *field, why, value);
	*field = value;
}

static void at_least(unsigned row, int floor, const char *why)
{
	if (*param_int(&params, &param_rows[row]) < floor)
		demand(row, floor, why);
}

static void at_most(unsigned row, int ceiling, const char *why)
{
	if (*param_int(&params, &param_rows[row]) > ceiling)
		demand(row, ceiling, why);
}

/*
 * The longest send queue of a ConnectX with this much inline data: 64-byte blocks, 16K of them, two
 * queues' worth.
 */
static int tx_wre_max(int max_inline)
{
	int head = max_inline > 12 ? (max_inline - 12 + 63) / 64 * 64 : 0;
	int wqe = (head + 12 + 63) / 64 * 64;

	return 2 * 16384 * 64 / wqe;
}

#define RX_WRE_MAX 32768 /* what a ConnectX takes */

/* What parameters demand of one another. */
static void settle(void)
{
	/* These two are the meaning of their values, not corrections. */
	if (params.rx_poll == 0)
		params.rx_poll = 1;
	if (params.tracelevel >= LOG_DEBUG && params.log_details < 2)
		params.log_details = 2;
	if (params.select_poll_os_force) {
		if (!from_env[ROW_select_poll_os_ratio])
			params.select_poll_os_ratio = 1;
		if (!from_env[ROW_select_skip_os])
			params.select_skip_os = 1;
	}
	if (params.rx_prefetch_bytes_before_poll > 0)
		at_least(ROW_rx_prefetch_bytes_before_poll, 32, "is neither 0 nor at least 32");
	at_least(ROW_tx_wre, 2 * params.tx_wre_batching, "is below twice VMA_TX_WRE_BATCHING");
	at_most(ROW_tx_wre, tx_wre_max(params.tx_max_inline),
		"is more than VMA_TX_MAX_INLINE leaves room for");
	at_least(ROW_rx_wre, 2 * params.rx_wre_batching, "is below twice VMA_RX_WRE_BATCHING");
	at_most(ROW_rx_wre, RX_WRE_MAX, "is more than a receive queue holds");
	at_most(ROW_cq_moderation_count, params.rx_wre / 2, "is above half of VMA_RX_WRE");
	at_most(ROW_cq_aim_max_count, params.rx_wre / 2, "is above half of VMA_RX_WRE");
	at_least(ROW_qp_compensation_level, params.rx_wre_batching, "is below VMA_RX_WRE_BATCHING");
	at_least(ROW_tcp_timer_resolution_msec, params.timer_resolution_msec,
		 "is below VMA_TIMER_RESOLUTION_MSEC");
	if (params.rx_poll == -1 || params.select_poll == -1) {
		demand(ROW_cq_moderation_enable, 0, "cannot be with endless polling");
		demand(ROW_cq_aim_interval_msec, 0, "cannot be with endless polling");
	}
	if (params.socketxtreme)
		demand(ROW_progress_engine_interval, 0, "cannot be with VMA_SOCKETXTREME");
}

static int min3(int a, int b, int c)
{
	a = a < b ? a : b;
	return a < c ? a : c;
}

/* Insertions, deletions and replacements between a and b; both are cut at 63 bytes. */
static int edit_distance(const char *a, size_t alen, const char *b)
{
	int row[64], diagonal, above;
	size_t blen = strnlen(b, 63), i, j;

	if (alen > 63)
		alen = 63;
	for (j = 0; j <= blen; j++)
		row[j] = (int)j;
	for (i = 1; i <= alen; i++) {
		diagonal = row[0];
		row[0] = (int)i;
		for (j = 1; j <= blen; j++) {
			above = row[j];
			row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[blen];
}

static const char *nearest_name(const char *name, size_t len)
{
	const char *best = param_rows[0].variable;
	int distance, least = INT_MAX;
	unsigned i;

	for (i = 0; i < param_rows_count; i++) {
		distance = edit_distance(name, len, param_rows[i].variable);
		if (distance < least) {
			least = distance;
			best = param_rows[i].variable;
		}
	}
	return best;
}

static bool name_known(const char *name, size_t len)
{
	unsigned i;

	for (i = 0; i < param_rows_count; i++)
		if (strlen(param_rows[i].variable) == len &&
		    !memcmp(param_rows[i].variable, name, len))
			return true;
	for (i = 0; i < param_obsoletes_count; i++)
		if (strlen(param_obsoletes[i].variable) == len &&
		    !memcmp(param_obsoletes[i].variable, name, len))
			return true;
	return false;
}

static void unknown_names(char *const *envp)
{
	size_t len;

	for (; envp && *envp; envp++) {
		if (strncmp(*envp, "VMA_", 4))
			continue;
		len = strcspn(*envp, "=");
		if (!name_known(*envp, len))
			warn("%.*s is not a parameter of this library; the nearest is %s",
			     len > 100 ? 100 : (int)len, *envp, nearest_name(*envp, len));
	}
}

static void defaults_set(void)
{
	const struct param_row *row;

	for (row = param_rows; row < param_rows + param_rows_count; row++) {
		if (row->type == TYPE_STR)
			*param_str(&params, row) = row->def_str;
		else
			*param_int(&params, row) = row->def;
	}
	memset(from_env, 0, sizeof(from_env));
	for (unsigned i = 0; i < TEXTS; i++)
		with_pid[i][0] = '\0';
}

/* One pass over everything, in the order that decides who wins. */
static void pass(char *const *envp, bool with_warnings)
{
	unsigned i, slot = 0;

	warnings = with_warnings;
	defaults_set();
	row_read(&param_rows[ROW_socketxtreme], envp, 0);
	if (params.socketxtreme) {
		params.rx_wre = 1024;
		params.gro_streams_max = 0;
		params.progress_engine_interval = 0;
	}
	row_read(&param_rows[ROW_spec], envp, 0);
	if (params_unasked)
		params.tracelevel = LOG_ERROR;
	spec_apply(params.spec, &params);
	obsoletes_read(envp);
	for (i = 0; i < param_rows_count; i++) {
		if (i != ROW_socketxtreme && i != ROW_spec)
			row_read(&param_rows[i], envp, slot);
		slot += param_rows[i].type == TYPE_STR;
	}
	settle();
	if (with_warnings)
		unknown_names(envp);
}

/* Two passes: where warnings go, and whether at all, is itself a matter of parameters. */
static void load(char *const *envp, bool with_warnings)
{
	struct log_config log;

	pass(envp, false);
	log = (struct log_config){
		.level = params.tracelevel,
		.details = params.log_details,
		.colors = params.log_colors,
		.file = params.log_file,
	};
	log_setup(&log);
	if (with_warnings)
		pass(envp, true);
}

bool params_given(const void *field)
{
	size_t offset = (size_t)((const char *)field - (const char *)&params);

	for (unsigned i = 0; i < param_rows_count; i++)
		if (param_rows[i].offset == offset)
			return from_env[i];
	return false;
}

void params_reload(char *const *envp)
{
	loaded_by = getpid();
	load(envp, true);
}

/*
 * A forked child: what its parent has read holds, the log's level and place among it. Names that
 * have the process's number in them are made anew.
 */
static void loaded_by_parent(void)
{
	int err;

	for (unsigned i = 0; i < TEXTS; i++) {
		if (with_pid[i][0])
			text_copy(texts[i], with_pid[i], true);
	}
	if (!with_pid[TEXT_log_file][0])
		return;
	err = log_to_file(params.log_file);
	if (err)
		log_warn("VMA_LOG_FILE: cannot append to %s: %s", params.log_file, strerror(-err));
}

void params_load(char *const *envp)
{
	pid_t pid = getpid();

	if (loaded_by == pid)
		return;
	if (loaded_by)
		loaded_by_parent();
	else
		load(envp, true);
	loaded_by = pid;
}

static int cpus_mask(const char *hex, cpu_set_t *set)
{
	size_t len = strlen(hex), i;
	int digit, bit;

	for (i = 0; i < len; i++) {
		if (hex[i] >= '0' && hex[i] <= '9')
			digit = hex[i] - '0';
		else if ((hex[i] | 32) >= 'a' && (hex[i] | 32) <= 'f')
			digit = (hex[i] | 32) - 'a' + 10;
		else
			return -EINVAL;
		for (bit = 0; bit < 4; bit++) {
			if (!(digit >> bit & 1))
				continue;
			if ((len - 1 - i) * 4 + bit >= CPU_SETSIZE)
				return -EINVAL;
			CPU_SET((len - 1 - i) * 4 + bit, set);
		}
	}
	return CPU_COUNT(set) ? 0 : -EINVAL;
}

static int cpus_list(const char *text, cpu_set_t *set)
{
	unsigned long from, to;
	char *end;

	for (;; text = end + 1) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		from = to = strtoul(text, &end, 10);
		if (*end == '-') {
			if (end[1] < '0' || end[1] > '9')
				return -EINVAL;
			to = strtoul(end + 1, &end, 10);
		}
		if (from > to || to >= CPU_SETSIZE)
			return -EINVAL;
		for (; from <= to; from++)
			CPU_SET(from, set);
		if (!*end)
			return 0;
		if (*end != ',')
			return -EINVAL;
	}
}

int params_cpus(const char *text, cpu_set_t *set)
{
	CPU_ZERO(set);
	if (text[0] == '0' && (text[1] | 32) == 'x')
		return cpus_mask(text + 2, set);
	return cpus_list(text, set);
}
