/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "live_watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long watch_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static __u64 figure_count(const struct vma_stats_socket *s, enum figure f)
{
	switch (f) {
	case FIGURE_RX:
		return s->rx.packets;
	case FIGURE_TX:
		return s->tx.packets;
	case FIGURE_RX_BYTES:
		return s->rx.bytes;
	case FIGURE_TX_BYTES:
		return s->tx.bytes;
	case FIGURE_KERNEL:
		return s->rx.os_packets + s->tx.os_packets;
	case FIGURE_DROPS:
		return s->rx_drop_packets;
	case FIGURE_RETRANSMITS:
		return s->tx_retransmits;
	}
	return 0;
}

/* A counter that went back was zeroed: what it has counted since the last look is not known. */
static double figure_rate(const struct watch *w, const struct vma_stats_socket *now,
			  const struct vma_stats_socket *before, enum figure f)
{
	__u64 n = figure_count(now, f), b = before ? figure_count(before, f) : 0;

	return w->seconds > 0 && n >= b ? (double)(n - b) / w->seconds : 0;
}

int watch_find(const struct watch *w, int pid)
{
	for (unsigned i = 0; i < w->now.n; i++)
		if (w->now.process[i].pid == pid)
			return (int)i;
	return -1;
}

double watch_process(const struct watch *w, unsigned process, enum figure f, bool total)
{
	const struct process *p = &w->now.process[process], *before = w->past[process].before;

	if (total)
		return (double)figure_count(&p->sum, f);
	return before ? figure_rate(w, &p->sum, &before->sum, f) : 0;
}

double watch_socket(const struct watch *w, unsigned process, unsigned slot, enum figure f,
		    bool total)
{
	const struct vma_stats_socket *s = &w->now.process[process].snap.sockets[slot];
	const struct process *before = w->past[process].before;
	const struct vma_stats_socket *b = NULL;

	if (total)
		return (double)figure_count(s, f);
	if (!before)
		return 0;
	/* Another one was in its place before: all of this one is new. */
	if (slot < before->snap.h.max_sockets &&
	    before->snap.sockets[slot].generation == s->generation)
		b = &before->snap.sockets[slot];
	return figure_rate(w, s, b, f);
}

static double all_packets(double rx, double tx, double kernel)
{
	return rx + tx + kernel;
}

/* Without memory a socket has no past. */
static void past_sockets(struct watch *w, unsigned process)
{
	struct past *past = &w->past[process];
	const struct snapshot *s = &w->now.process[process].snap;

	if (past->sockets != s->h.max_sockets) {
		free(past->socket);
		past->socket = calloc(s->h.max_sockets + 1, sizeof(*past->socket));
		past->sockets = past->socket ? s->h.max_sockets : 0;
	}
	for (unsigned i = 0; i < past->sockets; i++) {
		struct past_socket *k = &past->socket[i];

		if (k->generation != s->sockets[i].generation || k->fd != s->sockets[i].fd)
			*k = (struct past_socket){.generation = s->sockets[i].generation,
						  .fd = s->sockets[i].fd};
		spark_add(&k->spark,
			  all_packets(watch_socket(w, process, i, FIGURE_RX, false),
				      watch_socket(w, process, i, FIGURE_TX, false),
				      watch_socket(w, process, i, FIGURE_KERNEL, false)));
	}
}

static void past_add(struct watch *w, unsigned process)
{
	/* The first look has no rates. */
	if (!w->past[process].before)
		return;
	spark_add(&w->past[process].spark,
		  all_packets(watch_process(w, process, FIGURE_RX, false),
			      watch_process(w, process, FIGURE_TX, false),
			      watch_process(w, process, FIGURE_KERNEL, false)));
	past_sockets(w, process);
}

static bool same(const struct process *a, const struct process *b)
{
	return a->pid == b->pid && a->readable && b->readable &&
	       a->snap.h.start_time == b->snap.h.start_time;
}

/* The past of each process that was there goes to its new place; w->before has been set. */
static void past_move(struct watch *w, struct past *old)
{
	for (unsigned i = 0; i < w->now.n; i++) {
		for (unsigned k = 0; k < w->before.n; k++) {
			if (!same(&w->now.process[i], &w->before.process[k]))
				continue;
			w->past[i] = old[k];
			w->past[i].before = &w->before.process[k];
			old[k].socket = NULL;
		}
	}
	for (unsigned k = 0; old && k < w->before.n; k++)
		free(old[k].socket);
	free(old);
}

void watch_take(struct watch *w, const struct options *o)
{
	long long now = watch_clock();
	struct past *old = w->past;

	w->seconds = w->taken_ns ? (double)(now - w->taken_ns) / 1e9 : 0;
	w->taken_ns = now;
	processes_free(&w->before);
	w->before = w->now;
	w->error = processes_take(&w->now, o);
	w->past = calloc(w->now.n + 1, sizeof(*w->past));
	if (!w->past)
		processes_free(&w->now);
	past_move(w, old);
	for (unsigned i = 0; i < w->now.n; i++)
		past_add(w, i);
}

void watch_free(struct watch *w)
{
	for (unsigned i = 0; i < w->now.n; i++)
		free(w->past[i].socket);
	free(w->past);
	processes_free(&w->now);
	processes_free(&w->before);
	*w = (struct watch){.seconds = 0};
}
