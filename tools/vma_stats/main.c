/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* vma_stats: the monitor of processes that run over libvma. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "source.h"
#include "view.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* A line for the person; with --json the output is the program's. */
static void say(const struct options *o, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void say(const struct options *o, const char *fmt, ...)
{
	FILE *f = o->json ? stderr : stdout;
	va_list ap;

	fputs("vmastat: ", f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fputc('\n', f);
	fflush(f);
}

static int complain(const char *why)
{
	fflush(stdout);
	fprintf(stderr, "vmastat: %s\n", why);
	return 1;
}

/* ---- which process */

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

/* The pids that the options choose, *pids the caller's to free. -1 after a line. */
static int choose(const struct options *o, int **pids)
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

/* Exactly one process; 0 after a line. */
static int choose_one(const struct options *o)
{
	int *pids, n = choose(o, &pids), pid = n == 1 ? pids[0] : 0;

	if (n >= 0 && n != 1) {
		complain("Failed to identify process please provide pid of active proccess...");
		for (int i = 0; i < n; i++)
			fprintf(stderr, "vmastat: running: %d\n", pids[i]);
	}
	free(pids);
	return pid;
}

/* ---- the control words */

/* The base of each chosen socket becomes what it has counted so far. */
static void zero(const struct options *o, struct source *src, const struct snapshot *snap)
{
	for (unsigned i = 0; i < snap->h.max_sockets; i++) {
		const size_t socket = sizeof(snap->h) + i * sizeof(struct vma_stats_socket),
			     base = socket + offsetof(struct vma_stats_socket, base);
		/* As read a moment ago; the snapshot has subtracted the last base. */
		const char *live = (const char *)src->map + socket;
		__u32 generation = snap->sockets[i].generation;

		if (!snap->sockets[i].enabled || !options_fd(o, snap->sockets[i].fd))
			continue;
		/*
		 * No generation while the counters change: a reader takes all of the new base or
		 * none.
		 */
		source_put32(src, base + offsetof(struct vma_stats_base, generation),
			     generation - 1);
		for (unsigned c = 0; c < VMA_STATS_SOCKET_COUNTERS; c++)
			source_put64(
				src,
				base + offsetof(struct vma_stats_base, counter) + c * sizeof(__u64),
				__atomic_load_n((const __u64 *)(live + socket_counters[c].offset),
						__ATOMIC_RELAXED));
		source_put32(src, base + offsetof(struct vma_stats_base, generation), generation);
	}
}

static bool controls(const struct options *o)
{
	return o->zero || o->log_level != UNSET || o->log_details != UNSET || o->dump_fd != UNSET;
}

/* 0, or 1 after a line. */
static int control(const struct options *o, int pid)
{
	struct snapshot snap;
	struct source src;
	char why[WHY_LEN];

	if (source_open(&src, o->dir, pid, true, why))
		return complain(why);
	/* Nothing is written to a file that is not understood. */
	if (source_read(&src, &snap, why)) {
		source_close(&src);
		return complain(why);
	}
	if (o->zero) {
		say(o, "Zero counters...");
		zero(o, &src, &snap);
	}
	if (o->log_level != UNSET)
		source_put32(&src, offsetof(struct vma_stats_header, log_level),
			     (__u32)o->log_level);
	if (o->log_details != UNSET)
		source_put32(&src, offsetof(struct vma_stats_header, log_details),
			     (__u32)o->log_details);
	if (o->dump_fd != UNSET) {
		if (o->dump_fd)
			say(o, "Dumping Fd %d to VMA using log level = %s...", o->dump_fd,
			    options_level_name(o->dump_level));
		else
			say(o, "Dumping all Fd's to VMA using log level = %s...",
			    options_level_name(o->dump_level));
		source_put32(&src, offsetof(struct vma_stats_header, dump_fd_level),
			     (__u32)o->dump_level);
		/* The level is there before the library sees the number. */
		source_put32(&src, offsetof(struct vma_stats_header, dump_fd), (__u32)o->dump_fd);
	}
	snapshot_free(&snap);
	source_close(&src);
	return 0;
}

/* ---- showing */

/* Waits; true when the process has ended. */
static bool wait_ended(int pidfd, int pid, unsigned seconds)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	struct timespec start, now;
	long left = (long)seconds * 1000;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (left >= 0 && !interrupted) {
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

static void show(const struct options *o, const struct snapshot *snap, unsigned *lines)
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
	fflush(stdout);
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

	if (o->deltas) {
		if (source_read(src, &before, why))
			return complain(why);
		ended = wait_ended(pidfd, src->pid, o->interval);
	}
	for (unsigned n = 1; !interrupted && !ended; n++) {
		if (cycle_take(o, src, &before, &shown, why)) {
			snapshot_free(&before);
			return complain(why);
		}
		show(o, &shown, &lines);
		snapshot_free(&shown);
		if (o->cycles && n == o->cycles)
			break;
		ended = wait_ended(pidfd, src->pid, o->interval);
	}
	snapshot_free(&before);
	if (interrupted)
		say(o, "Got Ctrl-C (interrupted by user)");
	else if (ended)
		say(o, "Proccess %d ended - exiting", src->pid);
	return 0;
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
	return 0;
}

/* View 5: all chosen processes. One that cannot be read costs a line, not the others' rows. */
static int netstat(const struct options *o)
{
	int *pids, n = choose(o, &pids), err = n < 0;

	if (!n)
		err = complain(
			"Failed to identify process please provide pid of active proccess...");
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
	int pid = choose_one(o), pidfd, err;
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
	err = controls(o) ? control(o, pid) : 0;
	if (!err && (o->shows || !controls(o)))
		err = o->view >= VIEW_GROUPS ? once(o, &src) : cycles(o, &src, pidfd);
	if (pidfd >= 0)
		close(pidfd);
	source_close(&src);
	return err;
}

int main(int argc, char **argv)
{
	struct sigaction interrupt = {.sa_handler = on_interrupt};
	struct options o;

	options_parse(&o, argc, argv);
	sigaction(SIGINT, &interrupt, NULL);
	return o.view == VIEW_NETSTAT && !controls(&o) ? netstat(&o) : one_process(&o);
}
