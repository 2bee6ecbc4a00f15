/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * conform                      runs all cases and the matrix on the engine
 * conform --kernel             runs the cases on this machine's kernel (root)
 * conform --differential FILE  runs both and compares; a difference must be named in FILE,
 *                              and what FILE names must differ
 * conform --case NAME [--kernel] [--verbose]  one case only, with its time line
 *
 * All end in "N passed, N failed, N skipped".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "matrix.h"
#include "script_int.h"

#define AT_ONCE 24u /* kernel cases mostly sleep */
#define MAX_CASES 1000u
#define TRIES 12u /* of a case whose kernel run was disturbed */

struct result {
	enum verdict verdict;
	char why[600];
	char transcript[TRANSCRIPT];
};

static const struct conform_case *all[MAX_CASES];
static unsigned num_cases;

static void gather(void)
{
	for (unsigned i = 0; conform_files[i]; i++)
		for (const struct conform_case *c = conform_files[i]; c->name; c++)
			if (num_cases < MAX_CASES)
				all[num_cases++] = c;
}

static void run_into(struct result *r, const struct conform_case *c, const struct backend *b,
		     bool verbose)
{
	r->verdict = script_run(c, b, verbose, r->transcript);
	snprintf(r->why, sizeof(r->why), "%s", script.why);
}

/* In a process of its own: it makes a namespace, or it may die. */
static pid_t run_apart(struct result *r, const struct conform_case *c, const struct backend *b)
{
	pid_t pid;

	r->verdict = CASE_FAILED;
	snprintf(r->why, sizeof(r->why), "died");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		run_into(r, c, b, false);
		_exit(0);
	}
	return pid;
}

static void run_kernel(struct result *r)
{
	unsigned running = 0;

	for (unsigned i = 0; i < num_cases; i++) {
		if (running == AT_ONCE) {
			wait(NULL);
			running--;
		}
		run_apart(&r[i], all[i], &kernel_backend);
		running++;
	}
	while (running--)
		wait(NULL);
}

static void run_engine(struct result *r)
{
	for (unsigned i = 0; i < num_cases; i++)
		waitpid(run_apart(&r[i], all[i], &engine_backend), NULL, 0);
}

static struct result *results(void)
{
	struct result *r = mmap(NULL, MAX_CASES * sizeof(*r), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (r == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return r;
}

static int summary(unsigned passed, unsigned failed)
{
	printf("%u passed, %u failed, 0 skipped\n", passed, failed);
	return failed != 0;
}

static int report(const struct result *r, bool matrix)
{
	unsigned passed = 0, failed = 0;

	for (unsigned i = 0; i < num_cases; i++) {
		if (r[i].verdict == CASE_PASSED)
			passed++;
		if (r[i].verdict == CASE_FAILED && ++failed)
			printf("  FAILED  %s: %s\n", all[i]->name, r[i].why);
		if (r[i].verdict == CASE_SKIPPED)
			printf("  not run %s: %s\n", all[i]->name, r[i].why);
	}
	if (matrix)
		matrix_run(&passed, &failed);
	return summary(passed, failed);
}

/* Two lines say the same, or numbers that may differ so much. */
static bool same_line(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned long long x, y, xs, ys;
	char name[2][64];

	if (na == nb && !memcmp(a, b, na))
		return true;
	return sscanf(a, NOTED_READ, name[0], &x, &xs) == 3 &&
	       sscanf(b, NOTED_READ, name[1], &y, &ys) == 3 && !strcmp(name[0], name[1]) &&
	       (x > y ? x - y : y - x) <= (xs > ys ? xs : ys);
}

/* Whether two records part; the first line where they do. */
static bool part(const char *a, const char *b, char *text, size_t size)
{
	while (*a || *b) {
		size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");

		if (!same_line(a, na, b, nb)) {
			snprintf(text, size, "engine \"%.*s\", kernel \"%.*s\"", (int)na, a,
				 (int)nb, b);
			return true;
		}
		a += na + (a[na] == '\n');
		b += nb + (b[nb] == '\n');
	}
	return false;
}

static char *read_file(const char *path)
{
	char *text = calloc(1, 1u << 20);
	FILE *f = fopen(path, "r");

	if (!f) {
		perror(path);
		exit(2);
	}
	if (fread(text, 1, (1u << 20) - 1, f) == 0)
		fprintf(stderr, "%s is empty\n", path);
	fclose(f);
	return text;
}

static bool named(const char *list, const char *name)
{
	char quoted[200];

	snprintf(quoted, sizeof(quoted), "`%s`", name);
	return strstr(list, quoted) != NULL;
}

/* Where the two part; false: they agree. */
static bool differ(const struct result *e, const struct result *k, char *text, size_t size)
{
	if (k->verdict != CASE_FAILED)
		return part(e->transcript, k->transcript, text, size);
	snprintf(text, size, "kernel: %s", k->why);
	return true;
}

/*
 * True: as the list says. The kernel runs in real time: what a busy machine has made late is tried
 * again alone.
 */
static bool as_listed(unsigned i, const struct result *e, struct result *k, bool listed)
{
	char text[1000];

	for (unsigned tries = 0;; tries++) {
		bool d = differ(e, k, text, sizeof(text));

		if (d == listed)
			return true;
		if (tries == TRIES) {
			printf("  %s %s: %s\n", listed ? "AGREES though listed" : "DIFFERS",
			       all[i]->name, d ? text : "");
			return false;
		}
		/* What keeps the machine busy may be over then. */
		usleep(tries * 100000);
		waitpid(run_apart(k, all[i], &kernel_backend), NULL, 0);
	}
}

static int differential(const char *path)
{
	struct result *e = results(), *k = results();
	char *list = read_file(path);
	unsigned passed = 0, failed = 0, apart = 0;

	run_engine(e);
	run_kernel(k);
	for (unsigned i = 0; i < num_cases; i++) {
		if (k[i].verdict == CASE_SKIPPED)
			apart++;
		else if (as_listed(i, &e[i], &k[i], named(list, all[i]->name)))
			passed++;
		else
			failed++;
	}
	free(list);
	printf("%u cases compared, %u only for the engine (internals, or too long for real time)\n",
	       num_cases - apart, apart);
	return summary(passed, failed);
}

static int one(const char *name, const struct backend *b, bool verbose)
{
	struct result *r = results();

	for (unsigned i = 0; i < num_cases; i++) {
		if (strcmp(all[i]->name, name) != 0)
			continue;
		run_into(r, all[i], b, verbose);
		if (r->verdict != CASE_PASSED)
			printf("%s: %s\n", r->verdict == CASE_FAILED ? "FAILED" : "not run",
			       r->why);
		return summary(r->verdict == CASE_PASSED, r->verdict == CASE_FAILED);
	}
	fprintf(stderr, "no case has the name %s\n", name);
	return 2;
}

int main(int argc, char **argv)
{
	const struct backend *b = &engine_backend;
	const char *name = NULL;
	struct result *r;
	bool verbose = false;

	gather();
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--kernel"))
			b = &kernel_backend;
		else if (!strcmp(argv[i], "--verbose"))
			verbose = true;
		else if (!strcmp(argv[i], "--differential") && i + 1 < argc)
			return differential(argv[i + 1]);
		else if (!strcmp(argv[i], "--case") && i + 1 < argc)
			name = argv[++i];
		else
			return fprintf(stderr, "see the head of tests/conform/conform.c\n"), 2;
	}
	if (name)
		return one(name, b, verbose);
	r = results();
	if (b == &kernel_backend)
		run_kernel(r);
	else
		run_engine(r);
	return report(r, b == &engine_backend);
}
