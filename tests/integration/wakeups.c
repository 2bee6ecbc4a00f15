/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wakeups serve PROTO ADDRESS PORT | wakeups ask PROTO ADDRESS PORT ROUNDS
 *
 * A message goes to and fro, and each side sleeps for it: in recv(), poll(), epoll_wait() in turn,
 * with a thread of its own that asks on a second socket at the same time. Whoever waits ten seconds
 * looks, without waiting, whether the message is there after all: that is a missed wake-up, and is
 * said. PROTO is tcp or udp.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 10000
#define ASKERS 2

static const char *const how_name[] = {"recv", "poll", "epoll_wait"};
static struct sockaddr_in server;
static int rounds, stream;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void missed(int fd, int how, int round)
{
	char c;
	ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK);

	fprintf(stderr, "round %d: %s has waited %d ms; %s\n", round, how_name[how], WAIT_MS,
		n >= 0 ? "the message is there: a wake-up was missed" : "nothing is there");
	exit(2);
}

/* Sleeps until fd has something. */
static void wait_for(int fd, int epfd, int how, int round)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event ev;

	if (how == 1 && poll(&p, 1, WAIT_MS) != 1)
		missed(fd, how, round);
	if (how == 2 && epoll_wait(epfd, &ev, 1, WAIT_MS) != 1)
		missed(fd, how, round);
}

static int epoll_of(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int epfd = epoll_create1(0);

	if (epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev))
		die("epoll");
	return epfd;
}

static void set_timeout(int fd)
{
	struct timeval tv = {WAIT_MS / 1000, 0};

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)))
		die("SO_RCVTIMEO");
}

static void *ask(void *arg)
{
	int fd = socket(AF_INET, stream ? SOCK_STREAM : SOCK_DGRAM, 0), epfd;
	unsigned sent = 0, got;

	(void)arg;
	if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof(server)))
		die("connect");
	set_timeout(fd);
	epfd = epoll_of(fd);
	for (int i = 0; i < rounds; i++) {
		sent++;
		if (send(fd, &sent, sizeof(sent), 0) != sizeof(sent))
			die("send");
		wait_for(fd, epfd, i % 3, i);
		if (recv(fd, &got, sizeof(got), MSG_WAITALL) != sizeof(got)) {
			if (errno == EAGAIN)
				missed(fd, 0, i);
			die("recv");
		}
		if (got != sent) {
			fprintf(stderr, "round %d: %u came back for %u\n", i, got, sent);
			exit(1);
		}
	}
	close(epfd);
	close(fd);
	return NULL;
}

static void *answer(void *arg)
{
	int fd = (int)(long)arg, epfd = epoll_of(fd);
	struct sockaddr_in from;
	unsigned word;
	ssize_t n;

	for (int i = 0;; i++) {
		socklen_t len = sizeof(from);

		if (i % 3 == 1) {
			struct pollfd p = {.fd = fd, .events = POLLIN};

			poll(&p, 1, -1);
		} else if (i % 3 == 2) {
			struct epoll_event ev;

			epoll_wait(epfd, &ev, 1, -1);
		}
		n = recvfrom(fd, &word, sizeof(word), stream ? MSG_WAITALL : 0,
			     (struct sockaddr *)&from, &len);
		if (n <= 0)
			break;
		if (stream)
			n = send(fd, &word, sizeof(word), MSG_NOSIGNAL);
		else
			n = sendto(fd, &word, sizeof(word), 0, (struct sockaddr *)&from, len);
		if (n != sizeof(word))
			break;
	}
	close(epfd);
	close(fd);
	return NULL;
}

static void serve(void)
{
	int fd = socket(AF_INET, stream ? SOCK_STREAM : SOCK_DGRAM, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&server, sizeof(server)) || (stream && listen(fd, 16)))
		die("bind");
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int conn = fd;

		if (stream && (conn = accept(fd, NULL, NULL)) < 0)
			die("accept");
		if (!stream) {
			answer((void *)(long)fd);
			return;
		}
		if (pthread_create(&thread, NULL, answer, (void *)(long)conn))
			die("pthread_create");
		pthread_detach(thread);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[ASKERS];

	if (argc < 5)
		return 1;
	stream = !strcmp(argv[2], "tcp");
	server = (struct sockaddr_in){.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(argv[4]))};
	inet_pton(AF_INET, argv[3], &server.sin_addr);
	if (!strcmp(argv[1], "serve")) {
		serve();
		return 0;
	}
	rounds = atoi(argv[5]);
	for (long i = 0; i < ASKERS; i++)
		if (pthread_create(&threads[i], NULL, ask, NULL))
			die("pthread_create");
	for (int i = 0; i < ASKERS; i++)
		pthread_join(threads[i], NULL);
	printf("%d round trips, nobody slept too long\n", ASKERS * rounds);
	return 0;
}
