/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an idle connection costs the process that serves it.
 *
 *   tcp_idle server ADDRESS PORT FIRST MORE
 *            accepts FIRST connections into an epoll set, then MORE, and prints what those cost
 *            each: "allocated N resident N". What grows once for all is in the FIRST
 *   tcp_idle client ADDRESS PORT COUNT
 *            connects so often, and stays until it is killed
 *
 * Each connection has said a few bytes both ways before it is idle. The server looks when nothing
 * has changed for 3 seconds after having waited 15: the library gives back what an idle connection
 * does not need.
 */
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_S 15
#define STEADY_S 3

struct use {
	size_t allocated, resident;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Room for so many descriptors, and for what the library keeps of its own. */
static void raise_limit(rlim_t count)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	if (limit.rlim_cur >= count + 1000)
		return;
	limit.rlim_cur = count + 1000;
	if (limit.rlim_max < limit.rlim_cur)
		limit.rlim_max = limit.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("setrlimit");
}

/* Bytes of anonymous memory that are in pages, of /proc/self/status. */
static size_t resident(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	size_t kib = 0;

	if (!f)
		die("/proc/self/status");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "RssAnon: %zu kB", &kib) == 1)
			break;
	}
	fclose(f);
	return kib * 1024;
}

/* All arenas, chunk headers included. */
static size_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static struct use steady(void)
{
	struct use u;
	unsigned same = 0;

	sleep(REST_S);
	u.allocated = allocated();
	while (same < STEADY_S) {
		size_t before = u.allocated;

		sleep(1);
		u.allocated = allocated();
		same = u.allocated == before ? same + 1 : 0;
	}
	u.resident = resident();
	return u;
}

static void accept_one(int l, int ep)
{
	int c = accept(l, NULL, NULL);
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = c};
	char buf[16];

	if (c < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, c, &ev))
		die("accept");
	if (recv(c, buf, sizeof(buf), MSG_WAITALL) != sizeof(buf) ||
	    send(c, buf, sizeof(buf), 0) != sizeof(buf))
		die("request");
}

static void serve(const struct sockaddr_in *to, unsigned first, unsigned more)
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0), ep = epoll_create1(0);
	struct use before, after;

	raise_limit(first + more);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)to, sizeof(*to)) || listen(l, 128))
		die("listen");
	for (unsigned i = 0; i < first; i++)
		accept_one(l, ep);
	before = steady();
	for (unsigned i = 0; i < more; i++)
		accept_one(l, ep);
	after = steady();
	printf("allocated %.1f resident %.1f\n",
	       ((double)after.allocated - (double)before.allocated) / more,
	       ((double)after.resident - (double)before.resident) / more);
}

static void fill(const struct sockaddr_in *to, unsigned count)
{
	raise_limit(count);
	for (unsigned i = 0; i < count; i++) {
		char buf[16] = "0123456789abcde";
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (s < 0 || connect(s, (const struct sockaddr *)to, sizeof(*to)))
			die("connect");
		if (send(s, buf, sizeof(buf), 0) != sizeof(buf) ||
		    recv(s, buf, sizeof(buf), MSG_WAITALL) != sizeof(buf))
			die("request");
	}
	for (;;)
		pause();
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	if (argc < 5 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: tcp_idle server ADDRESS PORT FIRST MORE | client ADDRESS "
				"PORT COUNT\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)number(argv[3]));
	if (!strcmp(argv[1], "server") && argc > 5)
		serve(&to, number(argv[4]), number(argv[5]));
	else
		fill(&to, number(argv[4]));
	return 0;
}
