/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* parameters.def as data: read by the parser, the banner and the generator of the man page. */
#ifndef CONFIG_PARAMS_TABLE_H
#define CONFIG_PARAMS_TABLE_H

#include "config/params.h"

enum param_type { TYPE_INT, TYPE_BOOL, TYPE_ENUM, TYPE_STR };

/* How the banner shows a number that has a word: the number alone, the word alone, both. */
enum param_show {
	SHOW_NUMBER,
	SHOW_WORD,
	SHOW_BOTH,
	MODE = 8, /* or'ed: a number without a word is not a value, and nothing is nearest to it */
};

enum param_str {
	STR_TEXT,
	STR_FILE, /* the first %d becomes the process id */
	STR_CPUS, /* "-1" or what params_cpus() reads */
};

enum param_effect {
	READ = 0,
	NOT_ON_XDP = 1, /* it is about a ConnectX device only */
	/* what it sizes or switches does not exist here, or is always so; its text says why */
	NO_OBJECT = 2,
};

/*
 * A value's name; of several with one value the first is shown, all are read. Ends with name NULL.
 */
struct param_word {
	int value;
	const char *name;
};

struct param_row {
	const char *variable;
	const char *label;
	enum param_type type;
	int form; /* enum param_show, or enum param_str */
	unsigned effect;
	const struct param_word *words; /* NULL for strings */
	size_t offset; /* of the field in struct params */
	int def, min, max;
	const char *def_str; /* strings only */
	const char *help;
};

extern const struct param_row param_rows[];
extern const unsigned param_rows_count;

struct param_obsolete {
	const char *variable;
	const char *takes; /* the variable that gets its value; NULL: none */
	const char *off, *on; /* not NULL: what that variable gets for 0, for any other number */
	const char *instead; /* in words: what to use, or what is done without being asked */
};

extern const struct param_obsolete param_obsoletes[];
extern const unsigned param_obsoletes_count;

struct param_profile {
	int spec;
	const char *field;
	size_t offset;
	int value;
	const char *text; /* not NULL: the field is a string */
};

extern const struct param_profile param_profiles[];
extern const unsigned param_profiles_count;

static inline int *param_int(struct params *p, const struct param_row *row)
{
	return (int *)((char *)p + row->offset);
}

static inline const char **param_str(struct params *p, const struct param_row *row)
{
	return (const char **)((char *)p + row->offset);
}

/* The name shown for a value, or NULL. */
const char *param_word_of(const struct param_row *row, int value);
/* The value in the form of the banner's middle column, without padding. */
void param_format(const struct param_row *row, const struct params *p, char *out, size_t size);
/* What the effect flags say, in words; "" when the parameter does what it says. */
const char *param_effect_text(const struct param_row *row);
/* Sets what the profile sets. */
void spec_apply(int spec, struct params *p);

#endif
