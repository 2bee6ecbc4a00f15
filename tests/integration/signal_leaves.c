/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * signal_leaves FUNCTION: a handler that leaves a call by siglongjmp(), and what its thread is
 * afterwards. Built once more as a library (-DINTERPOSER) this file is the functions of libc that
 * raise the signal: what it is preloaded behind holds a lock there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#ifdef INTERPOSER
#include <dlfcn.h>

static const char *loaded = "";

/* The next call of the function of this name raises SIGALRM. */
void leaves_load(const char *name)
{
	loaded = name;
}

static void shoot(const char *name)
{
	if (strcmp(name, loaded))
		return;
	loaded = "";
	pthread_kill(pthread_self(), SIGALRM);
}

int getsockopt(int fd, int level, int opt, void *restrict val, socklen_t *restrict len)
{
	int (*next)(int, int, int, void *, socklen_t *) =
		(int (*)(int, int, int, void *, socklen_t *))dlsym(RTLD_NEXT, "getsockopt");

	shoot("getsockopt");
	return next(fd, level, opt, val, len);
}

int setsockopt(int fd, int level, int opt, const void *val, socklen_t len)
{
	int (*next)(int, int, int, const void *, socklen_t) =
		(int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");

	shoot("setsockopt");
	return next(fd, level, opt, val, len);
}

int epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	int (*next)(int, int, int, struct epoll_event *) =
		(int (*)(int, int, int, struct epoll_event *))dlsym(RTLD_NEXT, "epoll_ctl");

	shoot("epoll_ctl");
	return next(ep, op, fd, e);
}

int dup(int fd)
{
	int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "dup");

	shoot("dup");
	return next(fd);
}
#else
#include <netinet/in.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void leaves_load(const char *name) __attribute__((weak));

static sigjmp_buf out;
static const char *what;
static int tcp, udp, ep;

static void handler(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void call(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int on = 1;

	leaves_load(what);
	if (!strcmp(what, "setsockopt"))
		setsockopt(tcp, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	else if (!strcmp(what, "getsockopt"))
		setsockopt(udp, IPPROTO_IP, IP_TTL, &on, sizeof(on));
	else if (!strcmp(what, "epoll_ctl"))
		epoll_ctl(ep, EPOLL_CTL_ADD, udp, &e);
	else
		dup(udp);
}

static void *calls(void *arg)
{
	int state;

	if (!sigsetjmp(out, 1)) {
		call();
		printf("the handler has not run\n");
		exit(1);
	}
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	printf(state == PTHREAD_CANCEL_ENABLE ? "it can be cancelled\n"
					      : "it cannot be cancelled\n");
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc < 2 || !leaves_load)
		return 2;
	what = argv[1];
	signal(SIGALRM, handler);
	tcp = socket(AF_INET, SOCK_STREAM, 0);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	ep = epoll_create1(0);
	return pthread_create(&t, NULL, calls, NULL) || pthread_join(t, NULL);
}
#endif
