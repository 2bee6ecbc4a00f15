/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * extra_pingpong server own-address port, or client server-address port round-trips: 64 bytes there
 * and back by the Extra API. A callback of the server's answers out of the frame, and the client
 * has the answer where it lies. Both spin. The client prints JSON: half a round trip's median in
 * microseconds, and how many went by the kernel ("copied").
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "clock.h"
#include "mellanox/vma_extra.h"

#define PAYLOAD 64
#define WARM_UP 2000

static struct vma_api_t *api;
static int fd;

static int die(const char *what)
{
	fprintf(stderr, "extra_pingpong: %s: %s\n", what, strerror(errno));
	return 1;
}

static vma_recv_callback_retval_t answer(int s, size_t n, struct iovec iov[],
					 struct vma_info_t *info, void *context)
{
	(void)n, (void)context;
	sendto(s, iov[0].iov_base, iov[0].iov_len, 0, (struct sockaddr *)info->src,
	       sizeof(*info->src));
	return VMA_PACKET_DROP;
}

static int serve(void)
{
	char data[PAYLOAD];
	struct sockaddr_in from;
	socklen_t len;
	ssize_t n;

	if (api->register_recv_callback(fd, answer, NULL))
		return die("register_recv_callback");
	/* The first ones may be the kernel's. */
	for (;;) {
		len = sizeof(from);
		n = recvfrom(fd, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
		if (n > 0)
			sendto(fd, data, (size_t)n, 0, (struct sockaddr *)&from, len);
	}
}

/* 1: without a copy, 0: with one, negative: nothing within a second. */
static int receive(void)
{
	struct {
		struct vma_packets_t head;
		struct vma_packet_t p;
		struct iovec iov[4];
	} __attribute__((packed)) got;
	time_t until = time(NULL) + 2;
	int flags, n;

	do {
		flags = MSG_DONTWAIT;
		n = api->recvfrom_zcopy(fd, &got, sizeof(got), &flags, NULL, NULL);
		if (n == PAYLOAD && flags & MSG_VMA_ZCOPY)
			return api->free_packets(fd, &got.p, 1) ? -1 : 1;
		if (n == PAYLOAD)
			return 0;
	} while (n < 0 && errno == EAGAIN && time(NULL) < until);
	return -1;
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int ask(unsigned trips)
{
	uint64_t *took = calloc(trips + 1, sizeof(*took)), start, median;
	char data[PAYLOAD] = {0};
	unsigned copied = 0;
	int how;

	for (unsigned i = 0; i < WARM_UP + trips; i++) {
		start = now_ns();
		if (send(fd, data, sizeof(data), 0) != sizeof(data))
			return die("send");
		how = receive();
		if (how < 0 && i >= WARM_UP)
			return die("no answer");
		if (i < WARM_UP)
			continue;
		took[i - WARM_UP] = now_ns() - start;
		copied += how == 0;
	}
	qsort(took, trips, sizeof(*took), by_size);
	median = took[trips / 2];
	printf("{\"median\": %.3f, \"copied\": %u}\n", (double)median / 2000, copied);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	bool server = argc == 4 && !strcmp(argv[1], "server");

	if ((!server && argc != 5) || inet_pton(AF_INET, argv[2], &a.sin_addr) != 1)
		return fprintf(stderr, "extra_pingpong server own port | client peer port n\n"), 2;
	a.sin_port = htons((uint16_t)atoi(argv[3]));
	api = vma_get_api();
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (!api || fd < 0)
		return die("the library is not there, or no socket");
	if (server)
		return bind(fd, (struct sockaddr *)&a, sizeof(a)) ? die("bind") : serve();
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) ? die("connect")
							     : ask((unsigned)atoi(argv[4]));
}
