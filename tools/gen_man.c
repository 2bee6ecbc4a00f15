/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gen_man [docs/libvma.7.in]: writes libvma.7, the hand-written head and behind it the parameters,
 * from the table that the library itself reads. It is built before the library, so it takes the
 * table's source in.
 */
#include "../lib/config/params_table.c" /* NOLINT(bugprone-suspicious-include) */
#include "../lib/config/profiles.c" /* NOLINT(bugprone-suspicious-include) */

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "vma/version.h"

/* Text in which roff must see nothing of its own. */
static void put(const char *text)
{
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\\')
			fputs("\\e", stdout);
		else
			putchar(*text);
	}
}

static void head(const char *path)
{
	FILE *f = fopen(path, "r");
	int c;

	if (!f) {
		fprintf(stderr, "gen_man: cannot read %s: %s\n", path, strerror(errno));
		exit(1);
	}
	printf(".TH LIBVMA 7 \"\" \"libvma %s\" \"Miscellaneous\"\n", VMA_LIBRARY_VERSION);
	while ((c = getc(f)) != EOF)
		putchar(c);
	fclose(f);
}

static void default_put(const struct param_row *row)
{
	const char *word;

	printf("Default: ");
	if (row->type == TYPE_STR) {
		put(*row->def_str ? row->def_str : "empty");
	} else if (row->type == TYPE_ENUM) {
		put(param_word_of(row, row->def));
	} else {
		printf("%s%d", row->def < 0 ? "\\" : "", row->def);
		word = param_word_of(row, row->def);
		if (word) {
			printf(" (");
			put(word);
			printf(")");
		}
	}
	printf(".\n");
}

/* The values that a mode or an enum takes; of several names of one value each is listed. */
static void values_put(const struct param_row *row)
{
	const struct param_word *w;

	printf("Values:");
	for (w = row->words; w->name; w++) {
		printf("%s ", w == row->words ? "" : w->value == w[-1].value ? " or" : ",");
		if (row->type == TYPE_INT) {
			printf("%s%d (", w->value < 0 ? "\\" : "", w->value);
			put(w->name);
			printf(")");
		} else {
			put(w->name);
		}
	}
	printf(".\n");
}

static void range_put(const struct param_row *row)
{
	if (row->type == TYPE_STR)
		return;
	if (row->form & MODE) {
		values_put(row);
		return;
	}
	if (row->type == TYPE_BOOL)
		printf("Values: 0, 1.\n");
	else if (row->max == INT_MAX)
		printf("Range: %s%d and more.\n", row->min < 0 ? "\\" : "", row->min);
	else
		printf("Range: %s%d to %d.\n", row->min < 0 ? "\\" : "", row->min, row->max);
}

static void parameter(const struct param_row *row)
{
	const char *effect = param_effect_text(row);

	printf(".TP\n.B %s\n", row->variable);
	put(row->help);
	printf("\n");
	default_put(row);
	range_put(row);
	if (*effect)
		printf("\\fINote:\\fP %s.\n", effect);
}

static const struct param_row *row_at(size_t offset)
{
	unsigned i;

	for (i = 0; i < param_rows_count && param_rows[i].offset != offset; i++)
		;
	return i < param_rows_count ? &param_rows[i] : NULL;
}

static void profiles(void)
{
	const struct param_profile *p;
	const struct param_row *row;
	int spec = SPEC_NONE;

	printf(".SH PROFILES\nWhat each value of\n.B VMA_SPEC\nsets.\n");
	for (p = param_profiles; p < param_profiles + param_profiles_count; p++) {
		row = row_at(offsetof(struct params, spec));
		if (p->spec != spec)
			printf(".TP\n.B \"%s\"\n", param_word_of(row, p->spec));
		else
			printf(".br\n");
		spec = p->spec;
		row = row_at(p->offset);
		printf("%s=", row->variable);
		if (p->text)
			put(p->text);
		else if (row->type == TYPE_ENUM)
			put(param_word_of(row, p->value));
		else
			printf("%s%d", p->value < 0 ? "\\" : "", p->value);
		printf("\n");
	}
}

static void obsoletes(void)
{
	const struct param_obsolete *o;

	printf(".SH OBSOLETE\n"
	       "Names of old releases. Each gets a warning, which says what stands here. One that "
	       "has a successor sets it, "
	       "where that is not set itself.\n");
	for (o = param_obsoletes; o < param_obsoletes + param_obsoletes_count; o++) {
		printf(".TP\n.B %s\n%c", o->variable, toupper((unsigned char)o->instead[0]));
		put(o->instead + 1);
		printf(".\n");
	}
}

int main(int argc, char **argv)
{
	unsigned i;

	head(argc > 1 ? argv[1] : "docs/libvma.7.in");
	for (i = 0; i < param_rows_count; i++)
		parameter(&param_rows[i]);
	profiles();
	obsoletes();
	printf(".SH SEE ALSO\n.BR libvma.conf (5),\n.BR vma_stats (8),\n.BR vma_extra (3)\n");
	return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
