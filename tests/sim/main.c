/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sim [--from N] [--count N] [--jobs N]: runs that many seeds and says which failed; ends in "N
 * passed, N failed, N skipped". sim --seed N [--verbose]: replays one alone, with its time line.
 * sim --goodput: what loss costs, as a table. sim --bottleneck: scenes of a narrow place, each held
 * to its limits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "goodput.h"
#include "sim.h"

#define MAX_JOBS 64u
#define SHOWN 20u /* failures told in full by each job */

/* In memory that the parent shares: a job that dies leaves the seed that killed it. */
struct tally {
	uint64_t seed; /* under way */
	uint64_t next; /* how many of its seeds are done */
	uint64_t runs, conns, failed;
};

static bool run_one(uint64_t seed, bool verbose, struct tally *t)
{
	static struct plan p;
	const char *why;

	t->seed = seed;
	plan_make(&p, seed);
	if (verbose)
		plan_print(&p);
	t->runs++;
	t->conns += p.conns;
	why = world_run(&p, verbose);
	if (!why)
		return true;
	if (t->failed++ < SHOWN) {
		printf("seed %llu: %s\n", (unsigned long long)seed, why);
		fflush(stdout);
	}
	return false;
}

/* A job takes every jobs-th seed. */
static pid_t start(struct tally *t, uint64_t from, uint64_t count, unsigned jobs, unsigned job)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid != 0)
		return pid;
	while (t->next * jobs + job < count) {
		uint64_t i = t->next++ * jobs + job;

		run_one(from + i, false, t);
	}
	exit(0);
}

static int run_all(uint64_t from, uint64_t count, unsigned jobs)
{
	struct tally sum = {0}, *t;
	pid_t pid[MAX_JOBS];

	t = mmap(NULL, jobs * sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		 0);
	if (t == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	for (unsigned i = 0; i < jobs; i++)
		pid[i] = start(&t[i], from, count, jobs, i);
	for (unsigned i = 0; i < jobs; i++) {
		int status = 0;

		waitpid(pid[i], &status, 0);
		if (status != 0) {
			printf("seed %llu: died, status %#x\n", (unsigned long long)t[i].seed,
			       (unsigned)status);
			t[i].failed++;
			pid[i] = start(&t[i], from, count, jobs, i);
			i--;
			continue;
		}
		sum.runs += t[i].runs;
		sum.conns += t[i].conns;
		sum.failed += t[i].failed;
	}
	printf("%llu seeds, %llu connections\n", (unsigned long long)sum.runs,
	       (unsigned long long)sum.conns);
	printf("%llu passed, %llu failed, 0 skipped\n", (unsigned long long)(sum.runs - sum.failed),
	       (unsigned long long)sum.failed);
	return sum.failed != 0;
}

int main(int argc, char **argv)
{
	uint64_t from = 1, count = 1000, seed = 0;
	bool verbose = false, one = false;
	unsigned jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose"))
			verbose = true;
		else if (!strcmp(argv[i], "--goodput"))
			return goodput_table();
		else if (!strcmp(argv[i], "--bottleneck"))
			return bottleneck_check();
		else if (i + 1 == argc)
			goto usage;
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0), one = true;
		else if (!strcmp(argv[i], "--from"))
			from = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--count"))
			count = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--jobs"))
			jobs = (unsigned)strtoul(argv[++i], NULL, 0);
		else
			goto usage;
	}
	if (one) {
		struct tally t = {0};
		bool ok = run_one(seed, verbose, &t);

		printf("%u passed, %u failed, 0 skipped\n", ok, !ok);
		return !ok;
	}
	return run_all(from, count, jobs < 1 ? 1 : jobs > MAX_JOBS ? MAX_JOBS : jobs);
usage:
	fprintf(stderr, "usage: sim [--from N] [--count N] [--jobs N] | --seed N [--verbose] | "
			"--goodput | --bottleneck\n");
	return 2;
}
