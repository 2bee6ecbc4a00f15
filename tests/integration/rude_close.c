/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rude_close CALL ADDRESS SECONDS: closes numbers that it does not have, or replaces them, while
 * threads begin to wait, for which the library opens descriptors of its own. What CALL (close, dup2
 * or close_range) reaches must be the program's alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FREE_TO 20 /* nothing of the program stands from its socket to there */

static int s;
static _Atomic bool done;
static _Atomic unsigned failed;

static void *waits(void *arg)
{
	char c;

	if (recv(s, &c, 1, 0) >= 0 || errno != EAGAIN)
		failed++;
	return arg;
}

static void *make_threads(void *arg)
{
	pthread_t t;

	while (!done) {
		if (pthread_create(&t, NULL, waits, NULL) || pthread_join(t, NULL))
			exit(3);
		*(unsigned *)arg += 1;
	}
	return NULL;
}

/* How many of these calls reached something, or did not do what they say. */
static int closed(int fd)
{
	return !close(fd);
}

static int replaced(int fd)
{
	if (dup2(0, fd) != fd)
		return 1;
	for (int i = 0; i < 20; i++)
		if (fcntl(fd, F_GETFD) < 0)
			return 1;
	return close(fd) != 0;
}

static int ranged(int fd)
{
	return close_range((unsigned)fd, FREE_TO, 0) != 0;
}

static const struct {
	const char *name;
	int (*call)(int fd);
} calls[] = {{"close", closed}, {"dup2", replaced}, {"close_range", ranged}};

static int (*of(const char *name))(int)
{
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].call;
	exit(2);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct timeval soon = {0, 100};
	unsigned threads = 0, bad = 0;
	int (*call)(int fd);
	time_t end;
	pthread_t t;

	if (argc < 4 || inet_pton(AF_INET, argv[2], &a.sin_addr) != 1 ||
	    setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 4096}))
		return 2;
	call = of(argv[1]);
	s = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || recv(s, &a, 1, MSG_DONTWAIT) >= 0 ||
	    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)))
		return 1;
	end = time(NULL) + atoi(argv[3]);
	if (pthread_create(&t, NULL, make_threads, &threads))
		return 1;
	while (time(NULL) < end)
		for (int fd = s + 1; fd < FREE_TO; fd++)
			bad += (unsigned)call(fd);
	done = true;
	pthread_join(t, NULL);
	printf("beside %s threads: %u calls met what is not the program's, %u waits failed\n",
	       threads > 100 ? "many" : "few", bad, failed);
	return 0;
}
