/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What each key of the live view does. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "live_state.h"

#define PAGE_STEP 10
#define INTERVAL_MOST 60

static bool is_list(const struct live *l)
{
	return l->level == LIVE_PROCESSES || l->level == LIVE_SOCKETS;
}

/* ---- moving */

static unsigned moved(unsigned at, long step, unsigned n)
{
	long to = (long)at + step;

	if (to < 0 || !n)
		return 0;
	return to < (long)n ? (unsigned)to : n - 1;
}

static void move_by(struct live *l, const struct watch *w, long step)
{
	struct live_list *list;
	struct live_row *rows;
	unsigned n;

	if (!is_list(l)) {
		/* The page holds it back at the end. */
		l->text_top = moved(l->text_top, step, 1u << 30);
		return;
	}
	list = &l->list[l->level];
	n = live_rows(l, w, &rows);
	if (n) {
		list->row = moved(list->row, step, n);
		list->at = live_row_id(l->level, &rows[list->row]);
	}
	free(rows);
}

static bool move_key(struct live *l, const struct watch *w, int key)
{
	const long far = 1 << 20;

	switch (key) {
	case LIVE_KEY_UP:
	case 'k':
		move_by(l, w, -1);
		return true;
	case LIVE_KEY_DOWN:
	case 'j':
		move_by(l, w, 1);
		return true;
	case LIVE_KEY_PAGE_UP:
		move_by(l, w, -PAGE_STEP);
		return true;
	case LIVE_KEY_PAGE_DOWN:
		move_by(l, w, PAGE_STEP);
		return true;
	case LIVE_KEY_HOME:
	case 'g':
		move_by(l, w, -far);
		return true;
	case LIVE_KEY_END:
	case 'G':
		move_by(l, w, far);
		return true;
	default:
		return false;
	}
}

/* ---- in and out */

/* The chosen row's own. False: the list is empty. */
static bool chosen(struct live *l, const struct watch *w, struct live_id *id)
{
	struct live_row *rows;
	unsigned n = live_rows(l, w, &rows);

	free(rows);
	if (n)
		*id = l->list[l->level].at;
	return n;
}

static void go_in(struct live *l, const struct watch *w)
{
	if (l->level == LIVE_PROCESSES && chosen(l, w, &l->process)) {
		struct live_list *sockets = &l->list[LIVE_SOCKETS];

		sockets->filter[0] = 0;
		sockets->row = sockets->top = 0;
		sockets->at = (struct live_id){.pid = 0};
		l->level = LIVE_SOCKETS;
	} else if (l->level == LIVE_SOCKETS && chosen(l, w, &l->socket)) {
		l->text_top = 0;
		l->level = LIVE_SOCKET;
	}
}

static void go_back(struct live *l)
{
	if (l->level == LIVE_BLOCKS)
		l->level = l->blocks_from;
	else if (l->level == LIVE_SOCKET)
		l->level = LIVE_SOCKETS;
	else
		l->level = LIVE_PROCESSES;
}

static void go_blocks(struct live *l, const struct watch *w)
{
	if (l->level == LIVE_PROCESSES && !chosen(l, w, &l->process))
		return;
	if (l->level != LIVE_BLOCKS)
		l->blocks_from = l->level;
	l->text_top = 0;
	l->level = LIVE_BLOCKS;
}

static bool go_key(struct live *l, const struct watch *w, int key)
{
	switch (key) {
	case LIVE_KEY_ENTER:
	case 'l':
		go_in(l, w);
		return true;
	case LIVE_KEY_BACK:
	case LIVE_KEY_ESCAPE:
	case 'h':
		go_back(l);
		return true;
	case 'i':
		go_blocks(l, w);
		return true;
	default:
		return false;
	}
}

/* ---- zeroing */

/* What the page is about: a process, or one socket. False: there is none. */
static bool zero_target(struct live *l, const struct watch *w, struct live_id *id)
{
	*id = l->level == LIVE_SOCKET ? l->socket : l->process;
	return !is_list(l) || chosen(l, w, id);
}

static void zero(struct live *l, const struct watch *w)
{
	struct options o = *l->o;
	struct live_id id;
	int process;

	if (!zero_target(l, w, &id))
		return;
	process = watch_find(w, id.pid);
	if (process < 0)
		return;
	if (l->level == LIVE_SOCKETS || l->level == LIVE_SOCKET) {
		const struct snapshot *s = &w->now.process[process].snap;

		if (id.slot >= s->h.max_sockets || !s->sockets[id.slot].enabled ||
		    s->sockets[id.slot].generation != id.generation)
			return;
		o.ranges[0].first = o.ranges[0].last = s->sockets[id.slot].fd;
		o.num_ranges = 1;
	}
	if (!control_zero(&o, id.pid, l->message))
		snprintf(l->message, sizeof(l->message), "The counters are zero.");
	l->look = true;
}

/* ---- prompts */

static void filter_key(struct live *l, int key)
{
	size_t n = strlen(l->typed);

	if (key == LIVE_KEY_ENTER || key == LIVE_KEY_ESCAPE) {
		if (key == LIVE_KEY_ENTER)
			snprintf(l->list[l->level].filter, LIVE_TYPED, "%s", l->typed);
		l->prompt = PROMPT_NONE;
	} else if (key == LIVE_KEY_BACK && n) {
		l->typed[n - 1] = 0;
	} else if (key < 0x7f && isprint(key) && n + 1 < LIVE_TYPED) {
		l->typed[n] = (char)key;
		l->typed[n + 1] = 0;
	}
}

static void prompt_key(struct live *l, const struct watch *w, int key)
{
	enum live_prompt prompt = l->prompt;

	if (prompt == PROMPT_FILTER) {
		filter_key(l, key);
		return;
	}
	l->prompt = PROMPT_NONE;
	if (prompt == PROMPT_ZERO && key == 'y')
		zero(l, w);
}

/* ---- all keys */

static void sort_by(struct live *l, unsigned step)
{
	struct live_list *list = &l->list[l->level];

	list->column = (list->column + step) % live_columns_count(live_columns(l->level));
	list->reversed = false;
}

/* Those of the lists. */
static bool list_key(struct live *l, int key)
{
	switch (key) {
	case 's':
		sort_by(l, 1);
		return true;
	case 'S':
		sort_by(l, live_columns_count(live_columns(l->level)) - 1);
		return true;
	case 'r':
		l->list[l->level].reversed = !l->list[l->level].reversed;
		return true;
	case 't':
		l->totals = !l->totals;
		return true;
	case '/':
		snprintf(l->typed, sizeof(l->typed), "%s", l->list[l->level].filter);
		l->prompt = PROMPT_FILTER;
		return true;
	default:
		return false;
	}
}

void live_key(struct live *l, const struct watch *w, int key)
{
	l->message[0] = 0;
	if (l->prompt != PROMPT_NONE) {
		prompt_key(l, w, key);
		return;
	}
	if (move_key(l, w, key) || go_key(l, w, key) || (is_list(l) && list_key(l, key)))
		return;
	switch (key) {
	case 'q':
		l->quit = true;
		return;
	case '?':
		l->prompt = PROMPT_HELP;
		return;
	case 'z':
		l->prompt = PROMPT_ZERO;
		return;
	case 'p':
		l->paused = !l->paused;
		return;
	case '+':
		l->interval += l->interval < INTERVAL_MOST;
		return;
	case '-':
		l->interval -= l->interval > 1;
		return;
	default:
		return;
	}
}
