/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "live.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "live_state.h"
#include "live_terminal.h"
#include "stop.h"

#define BY_RX_PROCESSES 3 /* columns that the lists begin sorted by */
#define BY_RX_SOCKETS 4

static long long live_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void show_now(struct page *p, struct live *l, const struct watch *w)
{
	unsigned rows, columns;

	terminal_size(&rows, &columns);
	page_clear(p, rows, columns);
	live_draw(p, l, w);
	terminal_show(p);
}

/* Until a key, a signal or that time. False: the terminal has gone. */
static bool wait_key(long long until)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	long long left = until - live_ms();

	if (stop_poll(&p, 1, left > 0 ? (int)left : 0) <= 0)
		return true;
	return !(p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static void take_keys(struct live *l, const struct watch *w)
{
	int key;

	/* A negative one is none of ours, or a new size. */
	while (!l->quit && (key = terminal_key()))
		if (key > 0)
			live_key(l, w, key);
}

static void live_loop(struct page *p, struct live *l, struct watch *w)
{
	long long last = 0;

	while (!l->quit && !stop_asked()) {
		long long now = live_ms(), next = last + (long long)l->interval * 1000;

		if (l->look || (!l->paused && now >= next)) {
			watch_take(w, l->o);
			l->look = false;
			last = now;
			next = now + (long long)l->interval * 1000;
		}
		show_now(p, l, w);
		/* While it pauses nothing but a key is waited for. */
		if (!wait_key(l->paused ? now + 3600000 : next))
			return;
		take_keys(l, w);
	}
}

int live_run(const struct options *o)
{
	struct live l = {.o = o, .interval = o->interval, .look = true};
	struct watch w = {.seconds = 0};
	struct page *p;

	if (!terminal_usable())
		return -1;
	p = malloc(sizeof(*p));
	if (!p || terminal_open(&l.utf8)) {
		free(p);
		return -1;
	}
	/* ncurses, too, ends at SIGTERM, but does not say so to its callers. */
	stop_on(SIGTERM);
	stop_on(SIGHUP);
	stop_hold();
	l.list[LIVE_PROCESSES].column = BY_RX_PROCESSES;
	l.list[LIVE_SOCKETS].column = BY_RX_SOCKETS;
	live_loop(p, &l, &w);
	terminal_close();
	watch_free(&w);
	free(p);
	return 0;
}
