/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dlopened <library> server <address> <port> | dlopened <library> client <address> <port>: a
 * program that is not started with the library, but loads it and takes its calls by dlsym(), as
 * sockperf --load-vma does. The server says "<bytes> of <rings> rings" of the first datagram and of
 * a connection; the client sends both.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mellanox/vma_extra.h"

static struct {
	int (*socket)(int, int, int);
	int (*bind)(int, const struct sockaddr *, socklen_t);
	int (*listen)(int, int);
	int (*accept)(int, struct sockaddr *, socklen_t *);
	int (*connect)(int, const struct sockaddr *, socklen_t);
	ssize_t (*recv)(int, void *, size_t, int);
	ssize_t (*send)(int, const void *, size_t, int);
	int (*getsockopt)(int, int, int, void *, socklen_t *);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
	int (*close)(int);
} vma;

static void *library;
static struct vma_api_t *api;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* In a thread that was there before the library: its storage has to have room, too. */
static void *load(void *path)
{
	socklen_t len = sizeof(api);

	library = dlopen(path, RTLD_LAZY);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define TAKE(name) (vma.name = (__typeof__(vma.name))dlsym(library, #name))
	check(TAKE(socket) && TAKE(bind) && TAKE(listen) && TAKE(accept) && TAKE(connect) &&
		      TAKE(recv) && TAKE(send) && TAKE(getsockopt) && TAKE(setsockopt) &&
		      TAKE(close),
	      "dlsym");
	check(!vma.getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &len), "SO_VMA_GET_API");
	return NULL;
}

static int open_socket(int type, const struct sockaddr_in *at)
{
	int fd = vma.socket(AF_INET, type, 0), on = 1;

	check(fd >= 0, "socket");
	if (!at)
		return fd;
	check(!vma.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "SO_REUSEADDR");
	check(!vma.bind(fd, (const struct sockaddr *)at, sizeof(*at)), "bind");
	return fd;
}

static void say(const char *what, int fd)
{
	char buf[2000];
	ssize_t n = vma.recv(fd, buf, sizeof(buf), 0);

	check(n > 0, "recv");
	printf("%s: %zd bytes of %d ring\n", what, n, api->get_socket_rings_num(fd));
	fflush(stdout);
}

static void serve(const struct sockaddr_in *at)
{
	int u = open_socket(SOCK_DGRAM, at), l = open_socket(SOCK_STREAM, at), c;
	struct timeval soon = {.tv_usec = 1000}, never = {0};

	check(!vma.listen(l, 5), "listen");
	/* They begin with the first wait. */
	(void)vma.recv(u, NULL, 0, MSG_DONTWAIT);
	vma.setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
	(void)vma.accept(l, NULL, NULL);
	vma.setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
	printf("ready\n");
	fflush(stdout);
	say("UDP", u);
	c = vma.accept(l, NULL, NULL);
	check(c >= 0, "accept");
	say("TCP", c);
	vma.close(c);
}

static void send_to(const struct sockaddr_in *to)
{
	int u = open_socket(SOCK_DGRAM, NULL), c = open_socket(SOCK_STREAM, NULL);
	char end;

	check(!vma.connect(u, (const struct sockaddr *)to, sizeof(*to)), "connect");
	check(vma.send(u, "datagram", 8, 0) == 8, "send");
	check(!vma.connect(c, (const struct sockaddr *)to, sizeof(*to)), "connect");
	check(vma.send(c, "stream", 6, 0) == 6, "send");
	check(vma.recv(c, &end, 1, 0) == 0, "recv");
	printf("sent\n");
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	pthread_t t;

	if (argc != 5)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[4]));
	inet_pton(AF_INET, argv[3], &a.sin_addr);
	check(!pthread_create(&t, NULL, load, argv[1]), "pthread_create");
	pthread_join(t, NULL);
	if (strcmp(argv[2], "server") == 0)
		serve(&a);
	else
		send_to(&a);
	/* Polite, and without effect. */
	check(!dlclose(library), "dlclose");
	check(vma.socket(AF_INET, SOCK_STREAM, 0) >= 0, "socket");
	return 0;
}
