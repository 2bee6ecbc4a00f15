/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* vma_stats: the monitor of processes that run over libvma. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "choice.h"
#include "control.h"
#include "listen.h"
#include "live.h"
#include "say.h"
#include "source.h"
#include "stop.h"
#include "view.h"

/* Waits; true when the process has ended. */
static bool wait_ended(int pidfd, int pid, unsigned seconds)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	struct timespec start, now;
	long left = (long)seconds * 1000;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (left >= 0 && !stop_asked()) {
		/* A negative fd only waits. */
		if (poll(&p, 1, (int)left) > 0)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		left = (long)seconds * 1000 - (now.tv_sec - start.tv_sec) * 1000 -
		       (now.tv_nsec - start.tv_nsec) / 1000000;
		if (left <= 0)
			break;
	}
	return kill(pid, 0) && errno == ESRCH;
}

/* What was printed is out. 0, or 1 with a line that says why not. */
static int printed(void)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	return complain(errno ? strerror(errno) : "standard output cannot be written");
}

/* 0 or 1. */
static int show(const struct options *o, const struct snapshot *snap, unsigned *lines)
{
	if (o->json) {
		view_json(stdout, snap, o);
	} else if (o->view == VIEW_FULL) {
		if (isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		view_full(stdout, snap, o);
	} else {
		view_table(stdout, snap, o, lines);
	}
	return printed();
}

/*
 * What one cycle shows: the totals, or what they grew by since `before`, which then becomes the
 * totals. 0, or -1 with why.
 */
static int cycle_take(const struct options *o, struct source *src, struct snapshot *before,
		      struct snapshot *shown, char why[WHY_LEN])
{
	struct snapshot now;

	if (!o->deltas)
		return source_read(src, shown, why);
	if (source_read(src, &now, why))
		return -1;
	if (snapshot_clone(shown, &now)) {
		snapshot_free(&now);
		snprintf(why, WHY_LEN, "out of memory");
		return -1;
	}
	snapshot_delta(shown, before, o->interval);
	snapshot_free(before);
	*before = now;
	return 0;
}

/* Views 1 to 3. 0 or 1. */
static int cycles(const struct options *o, struct source *src, int pidfd)
{
	struct snapshot before = {.sockets = NULL}, shown;
	bool ended = false;
	char why[WHY_LEN];
	unsigned lines = 0;
	int err = 0;

	if (o->deltas) {
		if (source_read(src, &before, why))
			return complain(why);
		ended = wait_ended(pidfd, src->pid, o->interval);
	}
	for (unsigned n = 1; !stop_asked() && !ended; n++) {
		if (cycle_take(o, src, &before, &shown, why)) {
			snapshot_free(&before);
			return complain(why);
		}
		err = show(o, &shown, &lines);
		snapshot_free(&shown);
		if (err || (o->cycles && n == o->cycles))
			break;
		ended = wait_ended(pidfd, src->pid, o->interval);
	}
	snapshot_free(&before);
	if (stop_asked())
		say(o, "Got Ctrl-C (interrupted by user)");
	else if (ended)
		say(o, "Proccess %d ended - exiting", src->pid);
	return err;
}

/* Views 4 and 5 are shown once. 0 or 1. */
static int once(const struct options *o, struct source *src)
{
	struct snapshot snap;
	char why[WHY_LEN];

	if (source_read(src, &snap, why))
		return complain(why);
	if (o->json)
		view_json(stdout, &snap, o);
	else if (o->view == VIEW_GROUPS)
		view_groups(stdout, &snap, o);
	else
		view_netstat(stdout, &snap, o);
	snapshot_free(&snap);
	return printed();
}

/* View 6. A process that cannot be read costs a line. 0 or 1. */
static int members(const struct options *o)
{
	struct processes all;
	int err = processes_take(&all, o);

	if (err)
		return complain(strerror(-err));
	if (!all.n)
		err = choice_none();
	for (unsigned i = 0; i < all.n; i++)
		if (!all.process[i].readable)
			err = complain(all.process[i].why);
	if (view_members(stdout, &all))
		err = complain("out of memory");
	processes_free(&all);
	return err;
}

/* View 5: all chosen processes. One that cannot be read costs a line, not the others' rows. */
static int netstat(const struct options *o)
{
	int *pids, n = choice_pids(o, &pids), err = n < 0;

	if (!n)
		err = choice_none();
	if (n > 0 && !o->json)
		view_netstat_heading(stdout);
	for (int i = 0; i < n; i++) {
		struct source src;
		char why[WHY_LEN];

		if (source_open(&src, o->dir, pids[i], false, why)) {
			err = complain(why);
			continue;
		}
		err |= once(o, &src);
		source_close(&src);
	}
	free(pids);
	return err;
}

static int one_process(const struct options *o)
{
	int pid = choice_one(o), pidfd, err;
	struct snapshot snap;
	struct source src;
	char why[WHY_LEN];

	if (!pid)
		return 1;
	if (source_open(&src, o->dir, pid, false, why))
		return complain(why);
	if (source_read(&src, &snap, why)) {
		source_close(&src);
		return complain(why);
	}
	say(o, "stats for application: %s with pid: %d%s", snap.h.program, pid,
	    src.is_sysfs ? " (kernel module)" : "");
	snapshot_free(&snap);
	/* -1 on an old kernel: then the end is seen after an interval. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	err = control_asked(o) ? control(o, pid) : 0;
	if (!err && (o->shows || !control_asked(o)))
		err = o->view >= VIEW_GROUPS ? once(o, &src) : cycles(o, &src, pidfd);
	if (pidfd >= 0)
		close(pidfd);
	source_close(&src);
	return err;
}

int main(int argc, char **argv)
{
	struct options o;

	stop_on(SIGINT);
	if (argc > 1 && !strcmp(argv[1], "capture"))
		return capture(argc - 1, argv + 1);
	options_parse(&o, argc, argv);
	if (o.listen)
		return listen_serve(&o);
	if (o.prometheus)
		return listen_print(&o);
	/* Without a terminal that can do it, text as in a pipe. */
	if ((o.live || argc == 1) && !live_run(&o))
		return 0;
	if (o.live)
		return complain("--live needs a terminal that can move its cursor");
	if (control_asked(&o))
		return one_process(&o);
	/* As JSON a process has one form. */
	if (o.view == VIEW_MEMBERS && !o.json)
		return members(&o);
	return o.view >= VIEW_NETSTAT ? netstat(&o) : one_process(&o);
}
