/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections a second: connect, one request of 16 bytes, its echo, close.
 *
 *   tcp_conns server ADDRESS PORT [WORKERS]
 *     serves one connection after the other until killed; so many forked processes do, each at the
 *     same listener
 *   tcp_conns client ADDRESS PORT SECONDS [CLIENTS]
 *     each of so many processes prints "rate N"
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUEST 16

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int listener(const struct sockaddr_in *to)
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)to, sizeof(*to)) || listen(l, 128))
		die("listen");
	return l;
}

/* The calling process is one of num that go on. */
static void be_one_of(int num)
{
	while (--num > 0) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			return;
		}
	}
}

static void serve(int l)
{
	for (;;) {
		char buf[REQUEST];
		int c = accept(l, NULL, NULL);
		ssize_t n;

		if (c < 0)
			die("accept");
		n = recv(c, buf, sizeof(buf), 0);
		if (n > 0 && send(c, buf, (size_t)n, 0) != n)
			die("send");
		/* The client closes first: the TIME_WAITs are its own. */
		while (n > 0)
			n = recv(c, buf, sizeof(buf), 0);
		close(c);
	}
}

static void ask(const struct sockaddr_in *to, double seconds)
{
	double begun = now(), end = begun + seconds;
	unsigned long done = 0;

	while (now() < end) {
		char buf[REQUEST] = "0123456789abcde";
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (s < 0 || connect(s, (const struct sockaddr *)to, sizeof(*to)))
			die("connect");
		if (send(s, buf, sizeof(buf), 0) != sizeof(buf) ||
		    recv(s, buf, sizeof(buf), MSG_WAITALL) != sizeof(buf))
			die("request");
		close(s);
		done++;
	}
	printf("rate %.0f\n", (double)done / (now() - begun));
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	if (argc < 4 || argc > 6 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1) {
		fprintf(stderr,
			"usage: tcp_conns server ADDRESS PORT [WORKERS] | client ADDRESS PORT "
			"SECONDS [CLIENTS]\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	if (!strcmp(argv[1], "server")) {
		int l = listener(&to);

		be_one_of(argc > 4 ? atoi(argv[4]) : 1);
		serve(l);
	}
	be_one_of(argc > 5 ? atoi(argv[5]) : 1);
	ask(&to, argc > 4 ? atof(argv[4]) : 1.0);
	while (wait(NULL) > 0)
		;
	return 0;
}
