/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"
#include "source.h"

/* Is it the program that -n names? A file that cannot be read has no name. */
static bool named(const struct options *o, int pid)
{
	struct snapshot snap;
	struct source src;
	char why[WHY_LEN];
	bool is = false;

	if (!o->name)
		return true;
	if (source_open(&src, o->dir, pid, false, why))
		return false;
	if (!source_read(&src, &snap, why)) {
		is = !strcmp(snap.h.program, o->name);
		snapshot_free(&snap);
	}
	source_close(&src);
	return is;
}

int choice_pids(const struct options *o, int **pids)
{
	int n = source_find(o->dir, !o->forbid_clean, pids), kept = 0;

	if (n < 0) {
		fprintf(stderr, "vmastat: directory %s cannot be read: %s\n",
			o->dir ? o->dir : SOURCE_DEFAULT_DIR, strerror(-n));
		return -1;
	}
	if (o->pid) {
		int *one = realloc(*pids, sizeof(**pids));

		if (!one)
			return -1;
		*pids = one;
		one[0] = o->pid;
		return 1;
	}
	for (int i = 0; i < n; i++)
		if (named(o, (*pids)[i]))
			(*pids)[kept++] = (*pids)[i];
	return kept;
}

int choice_none(void)
{
	return complain("Failed to identify process please provide pid of active proccess...");
}

int choice_one(const struct options *o)
{
	int *pids, n = choice_pids(o, &pids), pid = n == 1 ? pids[0] : 0;

	if (n >= 0 && n != 1) {
		choice_none();
		for (int i = 0; i < n; i++)
			fprintf(stderr, "vmastat: running: %d\n", pids[i]);
	}
	free(pids);
	return pid;
}
