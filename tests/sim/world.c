/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The events of a run in their order, from the first SYN to the last timer. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* Engine calls that no legal run needs. */
#define MAX_STEPS 5000000u

static struct world world;

void world_fail(struct world *w, const char *format, ...)
{
	va_list args;
	int n = snprintf(w->why, sizeof(w->why),
			 "at %.6f s: ", (double)(w->now - w->p.start) / US_PER_S);

	va_start(args, format);
	vsnprintf(w->why + n, sizeof(w->why) - (size_t)n, format, args);
	va_end(args);
	longjmp(w->fail, 1);
}

void world_say(const struct world *w, const char *format, ...)
{
	va_list args;

	if (!w->verbose)
		return;
	printf("%12.6f ", (double)(w->now - w->p.start) / US_PER_S);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static bool earlier(const struct event *a, const struct event *b)
{
	return a->when < b->when || (a->when == b->when && a->order < b->order);
}

void world_at(struct world *w, uint64_t when, enum event_kind kind, unsigned host, void *p)
{
	unsigned i = w->num_events++;

	if (i == w->max_events) {
		w->max_events = w->max_events ? w->max_events * 2 : 1024;
		w->heap = realloc(w->heap, w->max_events * sizeof(*w->heap));
	}
	w->heap[i] = (struct event){when, w->order++, kind, host, p};
	for (; i && earlier(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2) {
		struct event e = w->heap[i];

		w->heap[i] = w->heap[(i - 1) / 2];
		w->heap[(i - 1) / 2] = e;
	}
}

static struct event take(struct world *w)
{
	struct event first = w->heap[0];
	unsigned i = 0, n = --w->num_events;

	w->heap[0] = w->heap[n];
	for (;;) {
		unsigned least = i;

		for (unsigned child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
			if (earlier(&w->heap[child], &w->heap[least]))
				least = child;
		if (least == i)
			return first;
		struct event e = w->heap[i];

		w->heap[i] = w->heap[least];
		w->heap[least] = e;
		i = least;
	}
}

static void packet(struct world *w, unsigned index, struct packet *p)
{
	struct host *h = &w->host[index];

	if (h->num_rx == sizeof(h->rx) / sizeof(h->rx[0])) {
		free(p);
		return;
	}
	h->rx[h->num_rx++] = p;
	if (h->poll_due)
		return;
	h->poll_due = true;
	world_at(w, w->now + h->p->poll_us, EVENT_POLL, index, NULL);
}

static void close_listener(struct world *w)
{
	struct host *h = &w->host[1];

	if (!h->listener)
		return;
	world_say(w, "the listener closes");
	/* What waits is taken first: nobody is to be reset whom the plan wants served. */
	host_accept(h);
	tcp_listen_close(h->listener, w->now);
	h->listener = NULL;
	tcp_flush(h->ts, w->now);
	host_settle(h);
}

static void dispatch(struct world *w, const struct event *e)
{
	switch (e->kind) {
	case EVENT_PACKET:
		packet(w, e->host, e->p);
		return;
	case EVENT_POLL:
		host_poll(&w->host[e->host]);
		return;
	case EVENT_END:
		((struct end *)e->p)->awake = true;
		host_settle(&w->host[e->host]);
		return;
	case EVENT_READY:
		w->host[e->host].full = false;
		tcp_tx_ready(w->host[e->host].ts, w->now);
		tcp_flush(w->host[e->host].ts, w->now);
		host_settle(&w->host[e->host]);
		return;
	case EVENT_FLOOD:
		wire_flood(w, w->p.flood);
		return;
	case EVENT_LISTENER:
		close_listener(w);
		return;
	}
}

static uint64_t timer_of(const struct host *h)
{
	uint64_t t = tcp_next_timer(h->ts);

	return t == WHEEL_NEVER ? t : t + h->p->timer_late_us;
}

static bool all_over(const struct world *w)
{
	for (unsigned i = 0; i < w->p.conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (w->end[i][side].c)
				return false;
	return true;
}

/* Nothing is under way and no timer runs. True: somebody went on after all. */
static bool wake_the_stuck(struct world *w)
{
	bool any = false;

	for (unsigned i = 0; i < w->p.conns; i++)
		for (unsigned side = 0; side < 2; side++) {
			struct end *e = &w->end[i][side];

			if (!e->c)
				continue;
			if (!(w->p.explains & (MAY_STALL | MAY_TIMEOUT)) &&
			    !check_left_by_orphan(w, i, side))
				world_fail(w,
					   "connection %u: the %s waits for ever (sent %u of %u, "
					   "received %u of %u)",
					   i, side ? "server" : "client", e->sent, e->p->total,
					   e->received, e->peer->p->total);
			any = true;
			end_give_up(e);
			tcp_flush(w->host[side].ts, w->now);
			host_settle(&w->host[side]);
		}
	return any;
}

/* One step in time; false: the end. */
static bool step(struct world *w)
{
	uint64_t next = w->num_events ? w->heap[0].when : WHEEL_NEVER;
	uint64_t timer[2] = {timer_of(&w->host[0]), timer_of(&w->host[1])};
	unsigned first = timer[1] < timer[0];

	/* A measured run ends by its time. */
	if (++w->steps > MAX_STEPS && !w->p.stop_at)
		world_fail(w, "livelock: %u steps", MAX_STEPS);
	if (timer[first] < next) {
		/* wheel_next() may be early, and a late timer lies in the past. */
		if (timer[first] > w->now)
			w->now = timer[first];
		host_timers(&w->host[first]);
	} else if (next != WHEEL_NEVER) {
		struct event e;

		w->now = next;
		e = take(w);
		dispatch(w, &e);
	} else {
		if (wake_the_stuck(w))
			return true;
		if (w->host[1].listener) {
			close_listener(w);
			return true;
		}
		return false;
	}
	if (w->now - w->p.start > w->p.deadline && !all_over(w))
		world_fail(w, "not over after %.0f s", (double)w->p.deadline / US_PER_S);
	return true;
}

static void begin(struct world *w)
{
	for (unsigned i = 0; i < 2; i++) {
		w->wire[i].rng.s = w->p.seed * 77 + i;
		host_init(&w->host[i], w, i);
	}
	if (w->p.flood)
		world_at(w, w->now, EVENT_FLOOD, 1, NULL);
	if (w->p.close_listener_at)
		world_at(w, w->now + w->p.close_listener_at, EVENT_LISTENER, 1, NULL);
	for (unsigned i = 0; i < w->p.conns; i++)
		for (unsigned side = 0; side < 2; side++)
			end_init(&w->end[i][side], w, i, side);
}

static void discard(struct world *w)
{
	for (unsigned i = 0; i < w->num_events; i++)
		if (w->heap[i].kind == EVENT_PACKET)
			free(w->heap[i].p);
	w->num_events = 0;
}

const char *world_run(const struct plan *p, bool verbose)
{
	struct world *w = &world;
	struct event *heap = w->heap;
	unsigned max = w->max_events;

	memset(w, 0, sizeof(*w));
	w->heap = heap;
	w->max_events = max;
	w->p = *p;
	w->now = p->start;
	w->verbose = verbose;
	if (setjmp(w->fail)) {
		/* The engine may be inconsistent: what it holds is left alone. */
		discard(w);
		return w->why;
	}
	begin(w);
	while (step(w))
		if (p->stop_at && w->now - p->start >= p->stop_at)
			break;
	if (!p->stop_at)
		check_finished(w);
	discard(w);
	return NULL;
}

const char *world_measure(const struct plan *p, struct measured *m)
{
	const char *why = world_run(p, false);

	*m = (struct measured){.bytes = world.end[0][1].received,
			       .packets = world.wire[0].packets,
			       .drops = world.wire[0].drops};
	for (unsigned i = 0; i < 2 && !why; i++)
		host_free(&world.host[i]);
	return why;
}
