/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dup_race CALL ADDRESS PORT: another thread closes a connection to there, and opens a socket under
 * its number, as soon as the kernel has made CALL's copy of it. The copy has to be the connection.
 * Built once more as a library (-DINTERPOSER) this file is the dup(), dup2() and fcntl() that let
 * the other thread go: what it is preloaded behind has not seen the copy yet.
 */
#define _GNU_SOURCE
#include <stdatomic.h>

#ifdef INTERPOSER
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

static void (*_Atomic meanwhile)(void);

/* Called once, before the next copy is returned. */
void race_load(void (*fn)(void))
{
	meanwhile = fn;
}

static int copied(int fd)
{
	void (*fn)(void) = atomic_exchange(&meanwhile, (void (*)(void))0);

	if (fn)
		fn();
	return fd;
}

int dup(int fd)
{
	return copied(((int (*)(int))dlsym(RTLD_NEXT, "dup"))(fd));
}

int dup2(int fd, int newfd)
{
	return copied(((int (*)(int, int))dlsym(RTLD_NEXT, "dup2"))(fd, newfd));
}

int fcntl64(int fd, int cmd, ...)
{
	int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	va_list ap;
	long arg;
	int ret;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	ret = next(fd, cmd, arg);
	return cmd == F_DUPFD ? copied(ret) : ret;
}
#else
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void race_load(void (*fn)(void)) __attribute__((weak));

static int s;
static _Atomic int tid;
static _Atomic bool go, done;

static void *closes(void *arg)
{
	tid = gettid();
	while (!go)
		usleep(1000);
	if (close(s) || socket(AF_INET, SOCK_STREAM, 0) != s)
		exit(3);
	done = true;
	return arg;
}

/* In futex(). */
static bool waits_for_a_lock(void)
{
	char path[64], text[8] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "r");
	if (!f || !fgets(text, sizeof(text), f))
		exit(4);
	fclose(f);
	return !strncmp(text, "202 ", 4);
}

static void let_close(void)
{
	go = true;
	while (!done && !waits_for_a_lock())
		usleep(1000);
}

static int copy(const char *call)
{
	if (!strcmp(call, "dup"))
		return dup(s);
	return strcmp(call, "dup2") ? fcntl(s, F_DUPFD, 100) : dup2(s, 100);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	pthread_t t;
	char c = 0;
	int k;

	if (argc < 4 || !race_load || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1)
		return 2;
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (struct sockaddr *)&to, sizeof(to)) ||
	    pthread_create(&t, NULL, closes, NULL))
		return 1;
	while (!tid)
		usleep(1000);
	race_load(let_close);
	k = copy(argv[1]);
	pthread_join(t, NULL);
	if (send(k, "x", 1, MSG_NOSIGNAL) != 1 || recv(k, &c, 1, 0) != 1)
		printf("the copy: %s\n", strerror(errno));
	else
		printf("the copy is the connection\n");
	return 0;
}
#endif
