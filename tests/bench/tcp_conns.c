/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections a second: connect, one request of 16 bytes, its echo, close.
 *
 *   tcp_conns server ADDRESS PORT           serves one connection after the other until killed
 *   tcp_conns client ADDRESS PORT SECONDS   prints "rate N"
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

static void serve(const struct sockaddr_in *to)
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)to, sizeof(*to)) || listen(l, 128))
		die("listen");
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

	if (argc < 4 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1) {
		fprintf(stderr,
			"usage: tcp_conns server ADDRESS PORT | client ADDRESS PORT SECONDS\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	if (!strcmp(argv[1], "server"))
		serve(&to);
	else
		ask(&to, argc > 4 ? atof(argv[4]) : 1.0);
	return 0;
}
