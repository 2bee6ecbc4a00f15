/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The live view's page. The first line says what it is, the last one which keys there are. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live_state.h"
#include "stats/stats.h"
#include "view.h"

#define SPARK_LEAST 8 /* columns; a column of the list has to leave so many */

static const struct process *draw_process(const struct live *l, const struct watch *w)
{
	int i = watch_find(w, l->process.pid);

	return i >= 0 ? &w->now.process[i] : NULL;
}

/* The socket that was gone into, or NULL: it was closed, or its process has ended. */
static const struct vma_stats_socket *draw_socket(const struct live *l, const struct watch *w)
{
	const struct process *p = draw_process(l, w);
	const struct vma_stats_socket *s;

	if (!p || !p->readable || l->socket.slot >= p->snap.h.max_sockets)
		return NULL;
	s = &p->snap.sockets[l->socket.slot];
	return s->enabled && s->generation == l->socket.generation ? s : NULL;
}

/* ---- the first line */

static void where_am_i(const struct live *l, const struct watch *w, char *text, size_t size)
{
	const struct process *p = draw_process(l, w);
	const char *program = p && p->readable ? p->snap.h.program : "";
	const struct vma_stats_socket *s;

	switch (l->level) {
	case LIVE_PROCESSES:
		snprintf(text, size, "%u process%s", w->now.n, w->now.n == 1 ? "" : "es");
		return;
	case LIVE_SOCKETS:
		snprintf(text, size, "%d %s%s", l->process.pid, program, p ? "" : " (ended)");
		return;
	case LIVE_SOCKET:
		s = draw_socket(l, w);
		snprintf(text, size, s ? "%d %s, fd %d" : "%d %s, socket closed", l->process.pid,
			 program, s ? s->fd : 0);
		return;
	case LIVE_BLOCKS:
		snprintf(text, size, "%d %s, everything%s", l->process.pid, program,
			 p ? "" : " (ended)");
		return;
	}
}

static void draw_title(struct page *p, const struct live *l, const struct watch *w)
{
	char left[PAGE_BYTES], right[160] = "", where[128];
	int gap;

	where_am_i(l, w, where, sizeof(where));
	snprintf(left, sizeof(left), "vma_stats  %s", where);
	if (l->level <= LIVE_SOCKETS) {
		const struct live_list *list = &l->list[l->level];
		const struct live_column *c = &live_columns(l->level)[list->column];

		snprintf(right, sizeof(right), "%s%s%s%s%s  by %s%s", l->paused ? "PAUSED  " : "",
			 list->filter[0] ? "/" : "", list->filter, list->filter[0] ? "  " : "",
			 l->totals ? "totals" : "rates", l->totals ? c->total_title : c->title,
			 list->reversed ? " (up)" : "");
	}
	gap = (int)p->columns - (int)strlen(left) - (int)strlen(right) - 8;
	page_put(p, 0, LOOK_TITLE, "%s%*s%s  %3u s ", left, gap > 1 ? gap : 1, "", right,
		 l->interval);
}

/* ---- lists */

/* The columns that fit, and what they leave for the bars. */
static unsigned fitting(const struct live_column *columns, unsigned width, unsigned *left)
{
	unsigned n = 0, used = 0;

	for (; columns[n].title; n++) {
		unsigned next = used + (unsigned)abs(columns[n].width) + 1;

		if (next + SPARK_LEAST > width)
			break;
		used = next;
	}
	*left = width > used ? width - used : 0;
	if (*left > SPARK_SAMPLES)
		*left = SPARK_SAMPLES;
	return n;
}

/* Adds a cell and a space. What is too long for its column ends in a tilde. */
static void add_cell(char *line, size_t size, const char *text, int width)
{
	size_t at = strlen(line), columns = (size_t)abs(width);

	if (strlen(text) > columns)
		snprintf(line + at, size - at, "%.*s~ ", (int)columns - 1, text);
	else
		snprintf(line + at, size - at, "%*s ", width, text);
}

static void draw_heading(struct page *p, const struct live *l)
{
	const struct live_column *columns = live_columns(l->level);
	char line[PAGE_BYTES] = "";
	unsigned left, n = fitting(columns, p->columns, &left);

	for (unsigned i = 0; i < n; i++)
		add_cell(line, sizeof(line), l->totals ? columns[i].total_title : columns[i].title,
			 columns[i].width);
	page_put(p, 1, LOOK_HEADING, "%s%-*s", line, (int)left, "PKT/s");
}

static void draw_row(struct page *p, unsigned at, const struct live *l, const struct live_row *r,
		     enum look look)
{
	const struct live_column *columns = live_columns(l->level);
	char line[PAGE_BYTES] = "", text[128], bars[SPARK_SAMPLES * 3 + 1];
	unsigned left, n = fitting(columns, p->columns, &left);

	for (unsigned i = 0; i < n; i++) {
		live_cell(&columns[i], r, l->totals, text, sizeof(text));
		add_cell(line, sizeof(line), text, columns[i].width);
	}
	spark_text(live_row_spark(l->level, r), bars, sizeof(bars), left, l->utf8);
	page_put(p, at, look, "%s%s", line, bars);
}

/* More of the chosen process than its row has. */
static void describe_process(const struct process *p, char *text, size_t size)
{
	size_t at;

	if (!p->readable) {
		snprintf(text, size, "%s", p->why);
		return;
	}
	at = (size_t)snprintf(text, size, "%d %s: library %s", p->pid, p->snap.h.program,
			      p->snap.h.library_version);
	for (unsigned i = 0; i < VMA_STATS_RINGS && at < size; i++)
		if (p->snap.h.rings[i].enabled)
			at += (size_t)snprintf(text + at, size - at, ", %s %s",
					       p->snap.h.rings[i].ifname, p->snap.h.rings[i].type);
}

static void describe_socket(const struct vma_stats_socket *s, char *text, size_t size)
{
	const struct vma_stats_why *why = stats_why_first(s);
	char local[STATS_ADDR_TEXT], remote[STATS_ADDR_TEXT];
	size_t at;

	at = (size_t)snprintf(text, size, "%s",
			      stats_addr_text(local, &s->local, s->family, s->local_port));
	if (s->remote_port)
		at += (size_t)snprintf(
			text + at, size - at, " > %s",
			stats_addr_text(remote, &s->remote, s->family, s->remote_port));
	snprintf(text + at, size - at, "  %s%s%s, dropped %llu, sent again %llu, polls %.0f%%",
		 s->offloaded ? "offloaded" : "not offloaded", why ? ", by kernel: " : "",
		 why ? stats_why_name(why->reason) : "", N(s->rx_drop_packets),
		 N(s->tx_retransmits), view_percent(s->rx_poll_hit, s->rx_poll_miss));
}

static void draw_chosen(struct page *p, const struct live *l, const struct live_row *r)
{
	const struct process *process = &r->w->now.process[r->process];
	char text[WHY_LEN];

	if (p->rows < 4)
		return;
	if (l->level == LIVE_PROCESSES)
		describe_process(process, text, sizeof(text));
	else
		describe_socket(&process->snap.sockets[r->slot], text, sizeof(text));
	page_put(p, p->rows - 2, LOOK_FAINT, "%s", text);
}

static void draw_nothing(struct page *p, const struct live *l, const struct watch *w)
{
	const char *what = "no sockets";

	if (l->list[l->level].filter[0])
		what = "nothing has the text of the filter: / changes it";
	else if (l->level == LIVE_PROCESSES && w->error)
		what = "the directory of the statistics cannot be read";
	else if (l->level == LIVE_PROCESSES)
		what = "no process runs over libvma.so";
	page_put(p, 3, LOOK_FAINT, "  %s", what);
}

static void draw_list(struct page *p, struct live *l, const struct watch *w)
{
	struct live_list *list = &l->list[l->level];
	unsigned room = p->rows > 4 ? p->rows - 4 : 0, n;
	struct live_row *rows;

	draw_heading(p, l);
	n = live_rows(l, w, &rows);
	/* The chosen row stays in sight. */
	if (list->row < list->top)
		list->top = list->row;
	if (room && list->row >= list->top + room)
		list->top = list->row - room + 1;
	if (list->top + room > n)
		list->top = n > room ? n - room : 0;
	for (unsigned i = list->top; i < n && i < list->top + room; i++)
		draw_row(p, 2 + i - list->top, l, &rows[i],
			 i == list->row ? LOOK_SELECTED : LOOK_PLAIN);
	if (n)
		draw_chosen(p, l, &rows[list->row]);
	else
		draw_nothing(p, l, w);
	free(rows);
}

/* ---- texts */

/* The same figures as view 3 has, and what the engine knows. */
static void write_socket(FILE *f, const struct live *l, const struct watch *w,
			 const struct vma_stats_socket *s)
{
	const struct past *past = &w->past[watch_find(w, l->process.pid)];
	char bars[SPARK_SAMPLES * 3 + 1];

	stats_socket_print(f, s, "");
	if (s->proto == IPPROTO_TCP && s->tcp.mss) {
		fprintf(f, "State: %s\n", view_state(s));
		for (const struct field *i = tcp_fields; i->name; i++)
			fprintf(f, "  %-16s %10u  %s\n", i->name,
				*(const __u32 *)((const char *)&s->tcp + i->offset),
				i->help ? i->help : "");
	}
	if (l->socket.slot >= past->sockets)
		return;
	spark_text(&past->socket[l->socket.slot].spark, bars, sizeof(bars), 60, l->utf8);
	fprintf(f, "Packets a second: %s\n", bars);
}

static void write_text(FILE *f, const struct live *l, const struct watch *w)
{
	const struct process *p = draw_process(l, w);
	const struct vma_stats_socket *s = draw_socket(l, w);

	if (l->level == LIVE_BLOCKS && p && p->readable)
		view_full(f, &p->snap, l->o);
	else if (l->level == LIVE_BLOCKS)
		fprintf(f, "%s\n", p ? p->why : "The process has ended.");
	else if (s)
		write_socket(f, l, w, s);
	else
		fputs("The socket was closed.\n", f);
}

/* Rules of the printed views are left out, and their tabs. */
static bool shown(const char *line)
{
	return line[0] != '=';
}

/* The lines from l->text_top on, which does not go behind the last page. */
static void draw_lines(struct page *p, struct live *l, char *text)
{
	unsigned room = p->rows > 3 ? p->rows - 3 : 0, n = 0, at = 0;
	char *rest = text;

	for (const char *c = text; *c; c += strcspn(c, "\n"), c += *c == '\n')
		n += shown(c);
	if (l->text_top + room > n)
		l->text_top = n > room ? n - room : 0;
	for (char *line = strsep(&rest, "\n"); line && rest; line = strsep(&rest, "\n")) {
		if (!shown(line))
			continue;
		if (at >= l->text_top && at < l->text_top + room)
			page_put(p, 1 + at - l->text_top, LOOK_PLAIN, "%s",
				 line + strspn(line, "\t"));
		at++;
	}
}

static void draw_text(struct page *p, struct live *l, const struct watch *w)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return;
	write_text(f, l, w);
	if (!fclose(f))
		draw_lines(p, l, text);
	free(text);
}

/* ---- the last lines */

static void draw_help(struct page *p)
{
	static const char *const lines[] = {
		"Enter      into the process, then into the socket",
		"Esc        back; from the first list it does not leave",
		"Up, Down, PgUp, PgDn, Home, End, or k j g G",
		"s  S       sort by the next, the previous column",
		"r          the other way round",
		"/          only rows with a text, in any letters; nothing: all rows",
		"t          totals instead of rates",
		"i          everything about the process: rings, queues, pools, epoll",
		"z          zero the counters, as vma_stats -z does",
		"p          pause",
		"+  -       a longer, a shorter interval",
		"q          quit",
		"",
		"RX TX: packets, RXB TXB: bytes that were offloaded. OS: packets by the kernel.",
		"DRP: dropped, the queue was full. RTR: TCP segments sent again.",
		"SPIN: share of the time that select, poll or epoll spins, in percent.",
		"BY KERNEL: why the kernel serves a socket or a part of it (vma_stats(8)).",
	};

	for (unsigned i = 1; i + 1 < p->rows; i++)
		page_put(p, i, LOOK_PLAIN, "%s%s", "  ",
			 i - 1 < sizeof(lines) / sizeof(lines[0]) ? lines[i - 1] : "");
}

static void draw_keys(struct page *p, const struct live *l)
{
	unsigned last = p->rows - 1;

	if (l->prompt == PROMPT_FILTER)
		page_put(p, last, LOOK_TITLE, "Show only rows with: %s_", l->typed);
	else if (l->prompt == PROMPT_ZERO)
		page_put(p, last, LOOK_TITLE,
			 "Zero the counters, for every vma_stats that looks? y or n");
	else if (l->prompt == PROMPT_HELP)
		page_put(p, last, LOOK_TITLE, "Any key goes back");
	else if (l->message[0])
		page_put(p, last, LOOK_TITLE, "%s", l->message);
	else if (l->level == LIVE_PROCESSES)
		page_put(p, last, LOOK_TITLE,
			 "Enter sockets  i all  s sort  r reverse  / filter  t totals  ? help  q "
			 "quit");
	else if (l->level == LIVE_SOCKETS)
		page_put(p, last, LOOK_TITLE,
			 "Enter socket  Esc back  s sort  r reverse  / filter  t totals  z zero  ? "
			 "help");
	else
		page_put(p, last, LOOK_TITLE, "Esc back  Up Down scroll  z zero  ? help  q quit");
}

void live_draw(struct page *p, struct live *l, const struct watch *w)
{
	if (!p->rows || !p->columns)
		return;
	draw_title(p, l, w);
	if (l->prompt == PROMPT_HELP)
		draw_help(p);
	else if (l->level <= LIVE_SOCKETS)
		draw_list(p, l, w);
	else
		draw_text(p, l, w);
	if (p->rows > 1)
		draw_keys(p, l);
}
