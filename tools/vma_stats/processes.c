/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "processes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

static void read_one(struct process *p, const struct options *o)
{
	struct source src;

	if (source_open(&src, o->dir, p->pid, false, p->why))
		return;
	p->readable = !source_read(&src, &p->snap, p->why);
	source_close(&src);
	if (p->readable)
		snapshot_sum(&p->sum, &p->snap);
}

/* It counts for nothing: it has ended meanwhile, or is another program than -n names. */
static bool left_out(const struct process *p, const struct options *o)
{
	if (o->name && (!p->readable || strcmp(p->snap.h.program, o->name)))
		return true;
	return !p->readable && !o->pid && kill(p->pid, 0) && errno == ESRCH;
}

int processes_take(struct processes *all, const struct options *o)
{
	int *pids = NULL, n = o->pid ? 1 : source_find(o->dir, !o->forbid_clean, &pids);

	*all = (struct processes){.process = NULL};
	if (n < 0)
		return n;
	all->process = calloc((size_t)n + 1, sizeof(*all->process));
	for (int i = 0; i < n && all->process; i++) {
		struct process *p = &all->process[all->n];

		*p = (struct process){.pid = pids ? pids[i] : o->pid};
		read_one(p, o);
		if (!left_out(p, o))
			all->n++;
		else if (p->readable)
			snapshot_free(&p->snap);
	}
	free(pids);
	return all->process ? 0 : -ENOMEM;
}

void processes_free(struct processes *all)
{
	for (unsigned i = 0; i < all->n; i++)
		snapshot_free(&all->process[i].snap);
	free(all->process);
	*all = (struct processes){.process = NULL};
}
