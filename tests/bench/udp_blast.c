/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One way UDP, as fast as one thread can: the same program for the kernel and for the library.
 *
 *   udp_blast recv ADDRESS PORT SECONDS BATCH        counts from the first message on
 *   udp_blast send ADDRESS PORT SECONDS BATCH SIZE   sends for so long
 *   udp_blast idle ADDRESS PORT SECONDS              binds and sleeps
 *
 * BATCH 1: recvfrom() and sendto(), one message a call; above: recvmmsg() and sendmmsg() of so
 * many. The result is one line, "messages N seconds S rate R errors E". The clock is read rarely:
 * it is not measured.
 */
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BATCH_MAX 256
#define SIZE_MAX_UDP 65507
#define WARM_UP 0.2
#define CLOCK_EVERY 64 /* calls between two looks at the clock */

struct blast {
	int fd;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	double seconds;
	unsigned batch;
	size_t size;
	unsigned long errors;
	struct mmsghdr msgs[BATCH_MAX];
	struct iovec iov[BATCH_MAX];
};

static char payload[SIZE_MAX_UDP];
static char room[BATCH_MAX][2048];

static void die(const char *call)
{
	fprintf(stderr, "udp_blast: %s: %s\n", call, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void resolve(struct blast *b, const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	int rc = getaddrinfo(host, port, &hints, &found);

	if (rc) {
		fprintf(stderr, "udp_blast: %s port %s: %s\n", host, port, gai_strerror(rc));
		exit(2);
	}
	memcpy(&b->addr, found->ai_addr, found->ai_addrlen);
	b->addr_len = found->ai_addrlen;
	freeaddrinfo(found);
	b->fd = socket(b->addr.ss_family, SOCK_DGRAM, 0);
	if (b->fd < 0)
		die("socket");
}

static void bind_it(struct blast *b)
{
	/* A receiver must end although nobody sends any more. */
	struct timeval limit = {.tv_sec = 5};

	if (bind(b->fd, (struct sockaddr *)&b->addr, b->addr_len))
		die("bind");
	if (setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)))
		die("setsockopt(SO_RCVTIMEO)");
}

/* Receives once; the number of messages, at least 1. */
static unsigned receive(struct blast *b)
{
	ssize_t n;

	if (b->batch == 1) {
		n = recvfrom(b->fd, room[0], sizeof(room[0]), 0, NULL, NULL);
		if (n >= 0)
			return 1;
	} else {
		n = recvmmsg(b->fd, b->msgs, b->batch, MSG_WAITFORONE, NULL);
		if (n > 0)
			return n;
	}
	die("receiving");
	return 0;
}

static unsigned send_some(struct blast *b)
{
	ssize_t n;

	if (b->batch == 1)
		n = sendto(b->fd, payload, b->size, 0, (struct sockaddr *)&b->addr, b->addr_len);
	else
		n = sendmmsg(b->fd, b->msgs, b->batch, 0);
	if (n < 0) {
		if (errno != EAGAIN && errno != ENOBUFS)
			die("sending");
		b->errors++;
		return 0;
	}
	return b->batch == 1 ? 1 : n;
}

/* Runs step until the time is over; prints what came of it. */
static void run(struct blast *b, unsigned (*step)(struct blast *))
{
	double start = now(), t = start;
	unsigned long messages = 0;
	unsigned calls = 0;

	while (t - start < b->seconds) {
		messages += step(b);
		if (++calls % CLOCK_EVERY == 0)
			t = now();
	}
	printf("messages %lu seconds %.6f rate %.0f errors %lu\n", messages, t - start,
	       messages / (t - start), b->errors);
}

static void run_receiver(struct blast *b)
{
	double warm;
	unsigned calls = 0;

	bind_it(b);
	/* The first message may be long in coming: a sender starts when it starts. */
	receive(b);
	warm = now() + WARM_UP;
	while (++calls % CLOCK_EVERY || now() < warm)
		receive(b);
	run(b, receive);
}

static void prepare(struct blast *b, bool sending)
{
	unsigned i;

	for (i = 0; i < b->batch; i++) {
		b->iov[i] = (struct iovec){sending ? payload : room[i],
					   sending ? b->size : sizeof(room[i])};
		b->msgs[i].msg_hdr.msg_iov = &b->iov[i];
		b->msgs[i].msg_hdr.msg_iovlen = 1;
		if (sending) {
			b->msgs[i].msg_hdr.msg_name = &b->addr;
			b->msgs[i].msg_hdr.msg_namelen = b->addr_len;
		}
	}
}

int main(int argc, char **argv)
{
	static struct blast b;

	if (argc < 5) {
		fprintf(stderr,
			"usage: udp_blast recv|send|idle ADDRESS PORT SECONDS [BATCH [SIZE]]\n");
		return 2;
	}
	b.seconds = strtod(argv[4], NULL);
	b.batch = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
	b.size = argc > 6 ? strtoul(argv[6], NULL, 10) : 64;
	if (b.batch < 1 || b.batch > BATCH_MAX || b.size > SIZE_MAX_UDP) {
		fprintf(stderr, "udp_blast: BATCH is 1 to %d, SIZE at most %d\n", BATCH_MAX,
			SIZE_MAX_UDP);
		return 2;
	}
	resolve(&b, argv[2], argv[3]);
	prepare(&b, strcmp(argv[1], "send") == 0);
	if (strcmp(argv[1], "recv") == 0) {
		run_receiver(&b);
	} else if (strcmp(argv[1], "send") == 0) {
		run(&b, send_some);
	} else {
		bind_it(&b);
		usleep(b.seconds * 1e6);
	}
	close(b.fd);
	return 0;
}
