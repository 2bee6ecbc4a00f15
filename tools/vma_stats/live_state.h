/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the person has chosen to see. Keys change it (live_keys.c), the page shows it (live_draw.c).
 */
#ifndef VMA_STATS_LIVE_STATE_H
#define VMA_STATS_LIVE_STATE_H

#include "live_page.h"
#include "live_watch.h"

#define LIVE_TYPED 32

enum live_level { LIVE_PROCESSES, LIVE_SOCKETS, LIVE_SOCKET, LIVE_BLOCKS };
enum live_prompt { PROMPT_NONE, PROMPT_FILTER, PROMPT_ZERO, PROMPT_HELP };

/* Keys that are no character. */
enum live_key {
	LIVE_KEY_UP = 0x1000,
	LIVE_KEY_DOWN,
	LIVE_KEY_PAGE_UP,
	LIVE_KEY_PAGE_DOWN,
	LIVE_KEY_HOME,
	LIVE_KEY_END,
	LIVE_KEY_ENTER,
	LIVE_KEY_BACK,
	LIVE_KEY_ESCAPE,
};

/* What a row is of, whatever its place. */
struct live_id {
	int pid;
	unsigned slot, generation;
};

/* How a list of rows is shown. */
struct live_list {
	unsigned column; /* by which it is sorted */
	bool reversed;
	char filter[LIVE_TYPED]; /* only rows that have this text */
	struct live_id at; /* the chosen row */
	unsigned row, top; /* its place, and that of the row on top, when they were last shown */
};

struct live {
	const struct options *o;
	enum live_level level, blocks_from; /* where LIVE_BLOCKS goes back to */
	struct live_list list[2]; /* LIVE_PROCESSES, LIVE_SOCKETS */
	struct live_id process, socket; /* that were gone into */
	unsigned text_top; /* LIVE_SOCKET, LIVE_BLOCKS: the first line shown */
	enum live_prompt prompt;
	char typed[LIVE_TYPED];
	char message[WHY_LEN]; /* until the next key */
	unsigned interval; /* seconds */
	bool totals, paused, utf8, quit;
	bool look; /* at once */
};

/* A row of one of the two lists. */
struct live_row {
	const struct watch *w;
	unsigned process, slot;
};

struct live_column {
	const char *title, *total_title; /* of rates, of totals */
	int width; /* negative: left-justified */
	/* By which rows are sorted; NULL: by the text. */
	double (*number)(const struct live_row *r, bool total);
	/* What is shown; NULL: the number, in five characters. */
	void (*text)(const struct live_row *r, char *text, size_t size);
};

/* ---- live_columns.c */

/* End: title NULL. */
extern const struct live_column live_process_columns[], live_socket_columns[];
const struct live_column *live_columns(enum live_level level);
unsigned live_columns_count(const struct live_column *columns);
/* At most five characters. */
void live_human(char text[16], double value);
void live_cell(const struct live_column *c, const struct live_row *r, bool total, char *text,
	       size_t size);
const struct spark *live_row_spark(enum live_level level, const struct live_row *r);

/* ---- live_rows.c */

struct live_id live_row_id(enum live_level level, const struct live_row *r);
/*
 * The rows of the list of l->level, filtered and sorted, *rows the caller's to free. Their number.
 * The list's chosen row is one of them then, if there is any.
 */
unsigned live_rows(struct live *l, const struct watch *w, struct live_row **rows);

/* ---- live_draw.c, live_keys.c */

void live_draw(struct page *p, struct live *l, const struct watch *w);
void live_key(struct live *l, const struct watch *w, int key);

#endif
