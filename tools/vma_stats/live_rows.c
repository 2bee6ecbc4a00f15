/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which rows a list has, in which order, and which of them is chosen. */
#include <stdlib.h>
#include <string.h>

#include "live_state.h"

struct live_id live_row_id(enum live_level level, const struct live_row *r)
{
	const struct process *p = &r->w->now.process[r->process];

	if (level == LIVE_PROCESSES)
		return (struct live_id){.pid = p->pid};
	return (struct live_id){p->pid, r->slot, p->snap.sockets[r->slot].generation};
}

static bool is_id(const struct live_id *a, const struct live_id *b)
{
	return a->pid == b->pid && a->slot == b->slot && a->generation == b->generation;
}

/* Some cell of the row has the text. */
static bool passes(const struct live *l, const struct live_row *r)
{
	const char *filter = l->list[l->level].filter;
	char text[128];

	if (!filter[0])
		return true;
	for (const struct live_column *c = live_columns(l->level); c->title; c++) {
		if (!c->text)
			continue;
		c->text(r, text, sizeof(text));
		if (strcasestr(text, filter))
			return true;
	}
	return false;
}

/* ---- the order */

struct order {
	const struct live_column *column;
	bool reversed, total;
};

/* Numbers begin with the highest, texts with the first of the alphabet. */
static int compare_cells(const struct order *o, const struct live_row *a, const struct live_row *b)
{
	char x[128], y[128];
	double m, n;

	if (o->column->number) {
		m = o->column->number(a, o->total);
		n = o->column->number(b, o->total);
		return (m < n) - (m > n);
	}
	o->column->text(a, x, sizeof(x));
	o->column->text(b, y, sizeof(y));
	return strcmp(x, y);
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct live_row *x = a, *y = b;
	const struct order *o = arg;
	int c = compare_cells(o, x, y);

	if (o->reversed)
		c = -c;
	if (!c)
		c = (x->process > y->process) - (x->process < y->process);
	return c ? c : (x->slot > y->slot) - (x->slot < y->slot);
}

/* ---- the rows */

static unsigned add_processes(const struct live *l, const struct watch *w, struct live_row *rows)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w->now.n; i++) {
		rows[n] = (struct live_row){.w = w, .process = i};
		n += passes(l, &rows[n]);
	}
	return n;
}

static unsigned add_sockets(const struct live *l, const struct watch *w, unsigned process,
			    struct live_row *rows)
{
	const struct snapshot *s = &w->now.process[process].snap;
	unsigned n = 0;

	for (unsigned i = 0; i < s->h.max_sockets; i++) {
		if (!s->sockets[i].enabled || !options_fd(l->o, s->sockets[i].fd))
			continue;
		rows[n] = (struct live_row){w, process, i};
		n += passes(l, &rows[n]);
	}
	return n;
}

/* Of a list without a chosen row the one at its place is chosen. */
static void choose_row(struct live_list *list, enum live_level level, const struct live_row *rows,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct live_id id = live_row_id(level, &rows[i]);

		if (is_id(&id, &list->at)) {
			list->row = i;
			return;
		}
	}
	if (list->row >= n)
		list->row = n ? n - 1 : 0;
	if (n)
		list->at = live_row_id(level, &rows[list->row]);
}

unsigned live_rows(struct live *l, const struct watch *w, struct live_row **rows)
{
	struct live_list *list = &l->list[l->level];
	int process = l->level == LIVE_SOCKETS ? watch_find(w, l->process.pid) : 0;
	struct order order = {&live_columns(l->level)[list->column], list->reversed, l->totals};
	unsigned n = 0;

	*rows = calloc(w->now.n + VMA_STATS_SOCKETS_MAX + 1, sizeof(**rows));
	if (!*rows || process < 0)
		return 0;
	if (l->level == LIVE_PROCESSES)
		n = add_processes(l, w, *rows);
	else if (w->now.process[process].readable)
		n = add_sockets(l, w, (unsigned)process, *rows);
	qsort_r(*rows, n, sizeof(**rows), compare, &order);
	choose_row(list, l->level, *rows, n);
	return n;
}
