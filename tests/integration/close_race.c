/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * close_race ADDRESS: close_range() while threads begin to wait, for which the library opens
 * descriptors of its own. Built once more as a library (-DINTERPOSER) this file is a close_range()
 * that lets them go before it asks the kernel: what it is preloaded behind has looked already which
 * numbers are its own.
 */
#define _GNU_SOURCE
#include <stdatomic.h>

#ifdef INTERPOSER
#include <dlfcn.h>

static void (*_Atomic before)(void);

/* Called once, before the range up to the highest number is closed. */
void race_load(void (*fn)(void))
{
	before = fn;
}

int close_range(unsigned first, unsigned last, int flags)
{
	void (*fn)(void) = last == ~0u ? atomic_exchange(&before, (void (*)(void))0) : 0;

	if (fn)
		fn();
	return ((int (*)(unsigned, unsigned, int))dlsym(RTLD_NEXT, "close_range"))(first, last,
										   flags);
}
#else
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 24
#define LOWEST 1024 /* of the library's, by the soft limit */
#define NUMBERS (5 * LOWEST)

void race_load(void (*fn)(void)) __attribute__((weak));

static int s;
static _Atomic int tid[THREADS];
static _Atomic bool go;
static bool was_open[NUMBERS];

static void *waits(void *arg)
{
	char c;

	*(_Atomic int *)arg = gettid();
	while (!go)
		usleep(1000);
	return recv(s, &c, 1, 0) < 0 ? arg : NULL;
}

static void state_of(int id, char *text, int room)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", id);
	f = fopen(path, "r");
	if (!f || !fgets(text, room, f))
		exit(4);
	fclose(f);
}

/* In one system call at two looks, which is not that of usleep(). */
static void until_asleep(int id)
{
	char was[256] = "", now[256] = "";

	do {
		strcpy(was, now);
		usleep(20000);
		state_of(id, now, sizeof(now));
	} while (strcmp(was, now) || !strncmp(now, "running", 7) || !strncmp(now, "230 ", 4));
}

/* Also where it is not the program's. */
static bool is_open(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void let_wait(void)
{
	go = true;
	for (int i = 0; i < THREADS; i++)
		until_asleep(tid[i]);
	for (int fd = LOWEST; fd < NUMBERS; fd++)
		was_open[fd] = is_open(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int gone = 0;
	pthread_t t;

	if (argc < 2 || !race_load || inet_pton(AF_INET, argv[1], &a.sin_addr) != 1 ||
	    setrlimit(RLIMIT_NOFILE, &(struct rlimit){LOWEST, 4 * LOWEST}))
		return 2;
	s = socket(AF_INET, SOCK_DGRAM, 0);
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) || recv(s, &a, 1, MSG_DONTWAIT) >= 0)
		return 1;
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&t, NULL, waits, &tid[i]))
			return 1;
		while (!tid[i])
			usleep(1000);
	}
	race_load(let_wait);
	close_range(100, ~0u, 0);
	for (int fd = LOWEST; fd < NUMBERS; fd++)
		gone += was_open[fd] && !is_open(fd);
	printf("%d threads wait, %d descriptors of the library's have gone\n", go ? THREADS : 0,
	       gone);
	return 0;
}
#endif
