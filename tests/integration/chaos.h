/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What chaos.c and chaos_data.c share: threads that make random calls, and who looks after them. */
#ifndef VMA_TESTS_CHAOS_H
#define VMA_TESTS_CHAOS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
#define ERRNOS 200
#define STUCK_S 60 /* no call may take longer; the longest time limit is a second */

struct thread {
	pthread_t id;
	unsigned number, seed;
	unsigned left; /* calls */
	_Atomic bool ended;
	/* The call that it is in, NULL: none; since when. For the watch. */
	const char *_Atomic call;
	_Atomic int fd;
	_Atomic long since_s;
};

struct op {
	const char *name;
	unsigned weight;
	long (*fn)(struct thread *t, int fd);
	bool no_fd;
};

/* The two hosts, in either family. */
struct hosts {
	struct in_addr own4, peer4;
	struct in6_addr own6, peer6;
};

static struct thread threads[THREADS_MAX];
static unsigned num_threads;
static struct hosts hosts;
static _Atomic unsigned long done, good, errnos[ERRNOS];
static _Atomic bool is_child;

/* What a call on a socket, a set or a pipe may say. Not there: EFAULT, ENOSYS, EIO, EDEADLK, ... */
static const int known[] = {
	EAGAIN,	      EBADF,	ENOTCONN,     EPIPE,  ECONNRESET,   ECONNREFUSED,  ECONNABORTED,
	EINPROGRESS,  EALREADY, EISCONN,      EINVAL, EADDRINUSE,   EADDRNOTAVAIL, ENETUNREACH,
	EHOSTUNREACH, ENETDOWN, ETIMEDOUT,    EINTR,  EDESTADDRREQ, EOPNOTSUPP,	   EMSGSIZE,
	ENOPROTOOPT,  ENOTSOCK, ENODEV,	      EEXIST, ENOENT,	    ELOOP,	   EPERM,
	ENOTTY,	      ESPIPE,	EAFNOSUPPORT,
};

static __attribute__((noreturn, format(printf, 1, 2))) void wrong(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fprintf(stderr, "chaos: ");
	vfprintf(stderr, format, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	abort();
}

static unsigned any(struct thread *t, unsigned below)
{
	return (unsigned)rand_r(&t->seed) % below;
}

static long now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* The peer's or the own host's address of the family, and its length. */
static socklen_t host_address(struct sockaddr_storage *to, int family, bool peers, uint16_t port)
{
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)to;
	struct sockaddr_in *a4 = (struct sockaddr_in *)to;

	memset(to, 0, sizeof(*to));
	to->ss_family = (sa_family_t)family;
	if (family == AF_INET6) {
		a6->sin6_addr = peers ? hosts.peer6 : hosts.own6;
		a6->sin6_port = htons(port);
		return sizeof(*a6);
	}
	a4->sin_addr = peers ? hosts.peer4 : hosts.own4;
	a4->sin_port = htons(port);
	return sizeof(*a4);
}

/* Who may see it must not block on it for long. */
static void limit(struct thread *t, int fd)
{
	struct timeval tv = {.tv_usec = 1000 + (int)any(t, 40000)};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	if (any(t, 2))
		fcntl(fd, F_SETFL, O_NONBLOCK);
}

static bool is_known(const struct op *op, int err)
{
	/* Of a datagram whose fragments do not all find room in a small send buffer. */
	if (err == ENOBUFS)
		return !strncmp(op->name, "send", 4);
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i] == err)
			return true;
	}
	return false;
}

static void judge(const struct op *op, int fd, long r, int err)
{
	done++;
	if (r >= 0) {
		good++;
		return;
	}
	if (is_known(op, err)) {
		errnos[err]++;
		return;
	}
	wrong("%s on fd %d: %s (errno %d)", op->name, fd, strerror(err), err);
}

static const struct op *choose(struct thread *t, const struct op *ops, unsigned num)
{
	unsigned sum = 0, at;

	for (unsigned i = 0; i < num; i++)
		sum += ops[i].weight;
	at = any(t, sum);
	for (unsigned i = 0; i < num; i++) {
		if (at < ops[i].weight)
			return &ops[i];
		at -= ops[i].weight;
	}
	return &ops[0];
}

/* One call, and what comes of it. */
static void make_call(struct thread *t, const struct op *op, int fd)
{
	long r;

	t->left--;
	t->fd = fd;
	t->since_s = now_s();
	t->call = op->name;
	if (is_child)
		alarm(STUCK_S); /* nobody watches it */
	r = op->fn(t, fd);
	judge(op, fd, r, errno);
	t->call = NULL;
}

static void begin(struct thread *t, void *(*run)(void *))
{
	t->ended = false;
	if (pthread_create(&t->id, NULL, run, t))
		wrong("pthread_create(): %s", strerror(errno));
}

/* Who started the program finds all threads as they stand. */
static void look_after(struct thread *t)
{
	const char *call = t->call;

	if (!call || now_s() - t->since_s <= STUCK_S)
		return;
	fprintf(stderr, "chaos: thread %u: %s on fd %d has not returned for %d s\n", t->number,
		call, t->fd, STUCK_S);
	for (;;)
		pause();
}

/*
 * Interrupts threads, with cancels also ends some, which begin again, and sees that none is stuck,
 * until all have made their calls.
 */
static void watch(void *(*run)(void *), bool cancels)
{
	struct thread self = {.seed = threads[0].seed + 1};
	unsigned running = num_threads;

	while (running) {
		running = 0;
		usleep(2000);
		for (unsigned i = 0; i < num_threads; i++) {
			struct thread *t = &threads[i];

			look_after(t);
			running += !t->ended || t->left;
			if (!t->ended && !any(&self, 8))
				pthread_kill(t->id, SIGUSR1);
			if (cancels && !any(&self, 40))
				pthread_cancel(t->id);
			if (t->ended && t->left) {
				pthread_join(t->id, NULL);
				begin(t, run);
			}
		}
	}
	for (unsigned i = 0; i < num_threads; i++)
		pthread_join(threads[i].id, NULL);
}

static void interrupted(int sig)
{
	(void)sig;
}

#define ARGUMENTS "<seed> <calls> <threads> <own IPv4> <peer's> <own IPv6> <peer's>"
#define FIRST_WORD 8 /* of the words that follow */

/* The numbers and addresses that both programs begin with. */
static void read_arguments(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = interrupted};

	if (argc < FIRST_WORD || inet_pton(AF_INET, argv[4], &hosts.own4) != 1 ||
	    inet_pton(AF_INET, argv[5], &hosts.peer4) != 1 ||
	    inet_pton(AF_INET6, argv[6], &hosts.own6) != 1 ||
	    inet_pton(AF_INET6, argv[7], &hosts.peer6) != 1)
		wrong("%s " ARGUMENTS " [fork] [cancel]", argv[0]);
	num_threads = (unsigned)atoi(argv[3]);
	if (!num_threads || num_threads > THREADS_MAX)
		wrong("%u threads: 1 to %d", num_threads, THREADS_MAX);
	for (unsigned i = 0; i < num_threads; i++) {
		threads[i].number = i;
		threads[i].seed = (unsigned)atoi(argv[1]) * 1000 + i;
		threads[i].left = (unsigned)atoi(argv[2]);
	}
	sigaction(SIGUSR1, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void run_all(void *(*run)(void *), bool cancels)
{
	for (unsigned i = 0; i < num_threads; i++)
		begin(&threads[i], run);
	watch(run, cancels);
}

static void print_sums(void)
{
	printf("%lu calls, %lu without an error\n", done, good);
	for (int i = 0; i < ERRNOS; i++)
		if (errnos[i])
			printf("%s: %lu\n", strerrorname_np(i), errnos[i]);
}

#endif
