/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Some TCP streams side by side in one thread.
 *
 *   tcp_stream recv ADDRESS PORT STREAMS
 *            takes so many connections to their ends, prints "goodput N": their Mbit/s summed
 *   tcp_stream send ADDRESS PORT STREAMS SECONDS [CONTROL]
 *            with that congestion control (cubic); prints what TCP_INFO says of each at the end
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 64

static char buf[256 << 10];
static struct pollfd streams[STREAMS_MAX];
static int num_streams;

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

static void add(int i, int fd, short events)
{
	if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK))
		die("stream");
	streams[i] = (struct pollfd){.fd = fd, .events = events};
}

static void receive(const struct sockaddr_in *at)
{
	double begun[STREAMS_MAX], bytes[STREAMS_MAX] = {0}, goodput = 0;
	int one = 1, left = num_streams, l = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)at, sizeof(*at)) || listen(l, STREAMS_MAX))
		die("listen");
	for (int i = 0; i < num_streams; i++) {
		add(i, accept(l, NULL, NULL), POLLIN);
		begun[i] = now();
	}
	while (left) {
		if (poll(streams, (nfds_t)num_streams, 10000) <= 0)
			die("poll");
		for (int i = 0; i < num_streams; i++) {
			ssize_t n =
				streams[i].revents ? recv(streams[i].fd, buf, sizeof(buf), 0) : -1;

			if (n > 0) {
				bytes[i] += (double)n;
			} else if (!n) {
				goodput += bytes[i] * 8 / (now() - begun[i]) / 1e6;
				close(streams[i].fd);
				streams[i].fd = -1;
				left--;
			} else if (streams[i].revents && errno != EAGAIN) {
				die("recv");
			}
		}
	}
	printf("goodput %.3f\n", goodput);
}

static void transmit(const struct sockaddr_in *to, double seconds, const char *control)
{
	double end;

	for (int i = 0; i < num_streams; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, control, (socklen_t)strlen(control)))
			die("TCP_CONGESTION");
		if (connect(s, (const struct sockaddr *)to, sizeof(*to)))
			die("connect");
		add(i, s, POLLOUT);
	}
	for (end = now() + seconds; now() < end;) {
		if (poll(streams, (nfds_t)num_streams, 10000) <= 0)
			die("poll");
		for (int i = 0; i < num_streams; i++)
			if (streams[i].revents && send(streams[i].fd, buf, 16 << 10, 0) < 0 &&
			    errno != EAGAIN)
				die("send");
	}
	for (int i = 0; i < num_streams; i++) {
		struct tcp_info info;
		socklen_t len = sizeof(info);

		if (getsockopt(streams[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len))
			die("TCP_INFO");
		printf("retrans %u cwnd %u ssthresh %u rtt %u mss %u backoff %u reordering %u\n",
		       info.tcpi_total_retrans, info.tcpi_snd_cwnd, info.tcpi_snd_ssthresh,
		       info.tcpi_rtt, info.tcpi_snd_mss, info.tcpi_backoff, info.tcpi_reordering);
		shutdown(streams[i].fd, SHUT_WR);
		streams[i].events = POLLIN;
	}
	/* The process stays until all has arrived. */
	for (int left = num_streams; left;) {
		if (poll(streams, (nfds_t)num_streams, 60000) <= 0)
			die("poll");
		for (int i = 0; i < num_streams; i++) {
			if (!streams[i].revents)
				continue;
			close(streams[i].fd);
			streams[i].fd = -1;
			left--;
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};

	if (argc < 5 || inet_pton(AF_INET, argv[2], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: tcp_stream recv ADDRESS PORT STREAMS | send ADDRESS PORT "
				"STREAMS SECONDS [CONTROL]\n");
		return 2;
	}
	to.sin_port = htons((uint16_t)atoi(argv[3]));
	num_streams = atoi(argv[4]);
	if (num_streams < 1 || num_streams > STREAMS_MAX)
		return 2;
	if (!strcmp(argv[1], "recv"))
		receive(&to);
	else
		transmit(&to, argc > 5 ? atof(argv[5]) : 1.0, argc > 6 ? argv[6] : "cubic");
	return 0;
}
