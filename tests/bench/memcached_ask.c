/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A load for memcached: threads with an epoll set each, connections with one `get` under way each.
 *
 *   memcached_ask ADDRESS PORT SECONDS THREADS CONNECTIONS   (so many connections in each thread)
 *
 * Prints "answers N rate R p50 US p99 US". Debian has no load generator for memcached that runs for
 * a time and tells percentiles.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define VALUE 100
#define KEY "bench"
#define ASK "get " KEY "\r\n"
#define ANSWER_MAX 256
/* Latencies by binary order of magnitude, each in so many equal parts. */
#define PARTS_BITS 5
#define PARTS (1u << PARTS_BITS)
#define BINS (40 * PARTS)
#define GIVE_UP_MS 5000

struct conn {
	int fd;
	size_t got;
	uint64_t asked; /* nanoseconds */
	char answer[ANSWER_MAX];
};

struct asker {
	pthread_t thread;
	unsigned n;
	struct conn *conns;
	uint64_t bins[BINS];
	uint64_t answers;
	uint64_t took; /* nanoseconds */
};

static struct sockaddr_in server = {.sin_family = AF_INET};
static uint64_t duration;
static size_t answer_len;
static pthread_barrier_t all_connected;

static void die(const char *call)
{
	fprintf(stderr, "memcached_ask: %s: %s\n", call, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static unsigned bin_of(uint64_t ns)
{
	unsigned shift = 0;

	while (ns >> shift >= 2 * PARTS)
		shift++;
	return shift * PARTS + (unsigned)(ns >> shift);
}

/* The middle of the bin, in microseconds. */
static double bin_value(unsigned bin)
{
	unsigned shift = bin < 2 * PARTS ? 0 : bin / PARTS - 1;

	return ((double)(bin - shift * PARTS) + 0.5) * (double)(1ull << shift) / 1000;
}

static int connect_it(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)))
		die("connect");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("setsockopt(TCP_NODELAY)");
	return fd;
}

/* Sends the text and reads what must come back. */
static void exchange(int fd, const char *text, size_t len, size_t wanted)
{
	char back[ANSWER_MAX];

	if (send(fd, text, len, 0) != (ssize_t)len ||
	    recv(fd, back, wanted, MSG_WAITALL) != (ssize_t)wanted)
		die("exchange");
}

/* What is asked for has to be there. */
static void store(void)
{
	char value[VALUE + 1] = {0}, text[ANSWER_MAX];
	int fd = connect_it(), len;

	memset(value, 'v', VALUE);
	len = snprintf(text, sizeof(text), "set " KEY " 0 0 %d\r\n%s\r\n", VALUE, value);
	exchange(fd, text, (size_t)len, strlen("STORED\r\n"));
	len = snprintf(text, sizeof(text), "VALUE " KEY " 0 %d\r\n%s\r\nEND\r\n", VALUE, value);
	answer_len = (size_t)len;
	exchange(fd, ASK, strlen(ASK), answer_len);
	close(fd);
}

static void ask(struct conn *c)
{
	c->got = 0;
	c->asked = now();
	if (send(c->fd, ASK, strlen(ASK), 0) != (ssize_t)strlen(ASK))
		die("send");
}

/* Takes what has come; true when the answer is whole. */
static bool take(struct conn *c)
{
	ssize_t n = recv(c->fd, c->answer + c->got, answer_len - c->got, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0)
		die("recv");
	c->got += (size_t)n;
	return c->got == answer_len;
}

static void open_all(struct asker *a, int set)
{
	for (unsigned i = 0; i < a->n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &a->conns[i]};

		a->conns[i].fd = connect_it();
		if (epoll_ctl(set, EPOLL_CTL_ADD, a->conns[i].fd, &ev))
			die("epoll_ctl");
	}
}

static void *run(void *arg)
{
	struct asker *a = arg;
	struct epoll_event events[64];
	int set = epoll_create1(0);
	uint64_t begun;

	if (set < 0)
		die("epoll_create1");
	open_all(a, set);
	pthread_barrier_wait(&all_connected);
	begun = now();
	for (unsigned i = 0; i < a->n; i++)
		ask(&a->conns[i]);
	while ((a->took = now() - begun) < duration) {
		int n = epoll_wait(set, events, 64, GIVE_UP_MS);

		if (n == 0)
			errno = ETIMEDOUT;
		if (n <= 0)
			die("epoll_wait");
		for (int i = 0; i < n; i++) {
			struct conn *c = events[i].data.ptr;

			if (!take(c))
				continue;
			a->bins[bin_of(now() - c->asked)]++;
			a->answers++;
			ask(c);
		}
	}
	return NULL;
}

static double percentile(const uint64_t *bins, uint64_t all, double part)
{
	uint64_t wanted = (uint64_t)((double)all * part), seen = 0;

	for (unsigned i = 0; i < BINS; i++) {
		seen += bins[i];
		if (seen > wanted)
			return bin_value(i);
	}
	return 0;
}

static void sum_up(const struct asker *askers, unsigned threads)
{
	static uint64_t bins[BINS];
	uint64_t answers = 0;
	double rate = 0;

	for (unsigned t = 0; t < threads; t++) {
		for (unsigned i = 0; i < BINS; i++)
			bins[i] += askers[t].bins[i];
		answers += askers[t].answers;
		rate += (double)askers[t].answers * 1e9 / (double)askers[t].took;
	}
	printf("answers %lu rate %.0f p50 %.2f p99 %.2f\n", (unsigned long)answers, rate,
	       percentile(bins, answers, 0.5), percentile(bins, answers, 0.99));
}

int main(int argc, char **argv)
{
	unsigned threads = argc == 6 ? (unsigned)atoi(argv[4]) : 0;
	unsigned each = argc == 6 ? (unsigned)atoi(argv[5]) : 0;
	struct asker *askers = calloc(threads, sizeof(*askers));

	if (!threads || !each || !askers || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: memcached_ask ADDRESS PORT SECONDS THREADS CONNECTIONS\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)atoi(argv[2]));
	duration = (uint64_t)(atof(argv[3]) * 1e9);
	store();
	pthread_barrier_init(&all_connected, NULL, threads);
	for (unsigned t = 0; t < threads; t++) {
		askers[t].n = each;
		askers[t].conns = calloc(each, sizeof(*askers[t].conns));
		if (!askers[t].conns)
			die("calloc");
		errno = pthread_create(&askers[t].thread, NULL, run, &askers[t]);
		if (errno)
			die("pthread_create");
	}
	for (unsigned t = 0; t < threads; t++)
		pthread_join(askers[t].thread, NULL);
	sum_up(askers, threads);
	return 0;
}
