/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a write() and a read() of one byte on a pipe cost, in nanoseconds: the median of several
 * rounds. Run with and without the library; the difference is what the library adds. Prints {"ns":
 * N} and, for a person, "N ns". passthrough [pairs in a round] [rounds]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Nanoseconds of one pair. */
static double one_round(const int fds[2], long pairs)
{
	uint64_t begun = now_ns();
	char byte = 0;

	for (long i = 0; i < pairs; i++)
		if (write(fds[1], &byte, 1) != 1 || read(fds[0], &byte, 1) != 1) {
			perror("passthrough: the pipe");
			exit(1);
		}
	return (double)(now_ns() - begun) / (double)pairs;
}

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 20000, rounds = argc > 2 ? atol(argv[2]) : 31;
	double ns[1000];
	int fds[2];

	if (pairs < 1 || rounds < 1 || rounds > 1000 || pipe(fds) < 0) {
		fprintf(stderr, "passthrough: pairs from 1, rounds from 1 to 1000\n");
		return 1;
	}
	one_round(fds, pairs);
	for (long i = 0; i < rounds; i++)
		ns[i] = one_round(fds, pairs);
	qsort(ns, (size_t)rounds, sizeof(*ns), by_value);
	printf("{\"ns\": %.1f}\n%.1f ns\n", ns[rounds / 2], ns[rounds / 2]);
	return 0;
}
