/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * xtreme <address> <port>: gives back what comes by UDP and by TCP, connections as they come, in
 * one loop that calls nothing but socketxtreme_poll() and send(). A datagram "stop" ends it.
 *
 *   gcc -o xtreme xtreme.c && VMA_SOCKETXTREME=1 LD_PRELOAD=libvma.so ./xtreme 192.0.2.1 7000
 */
#include <arpa/inet.h>
#include <errno.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define AT_ONCE 64

static struct vma_api_t *api;
static int udp, stopped;
static unsigned packets, connections, ends;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int open_socket(int type, const char *address, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, type, 0), on = 1;

	if (fd < 0 || inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at)))
		fail("socket");
	return fd;
}

/* The data lies where the ring has put it, in one piece or several. */
static void answer(int fd, const struct vma_completion_t *c)
{
	struct iovec iov[64];
	struct msghdr msg = {.msg_iov = iov};

	for (struct vma_buff_t *b = c->packet.buff_lst; b && msg.msg_iovlen < 64; b = b->next)
		iov[msg.msg_iovlen++] = (struct iovec){b->payload, b->len};
	if (fd == udp) {
		msg.msg_name = (void *)&c->src;
		msg.msg_namelen = sizeof(c->src);
		stopped = c->packet.total_len == 4 && !memcmp(iov[0].iov_base, "stop", 4);
	}
	if (sendmsg(fd, &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
		fail("sendmsg");
}

static void handle(struct vma_completion_t *c)
{
	int fd = (int)c->user_data; /* unless SO_VMA_USER_DATA has said another */

	if (c->events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED)
		connections++;
	if (c->events & VMA_SOCKETXTREME_PACKET) {
		packets++;
		answer(fd, c);
		if (api->socketxtreme_free_vma_packets(&c->packet, 1))
			fail("socketxtreme_free_vma_packets");
	}
	/* Told behind all data. The number may be another connection's at once. */
	if (c->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		ends++;
		close(fd);
	}
}

/* The ring of both sockets: they have one address, so one interface. */
static int ring_of(int fd)
{
	int ring;

	if (api->get_socket_rings_fds(fd, &ring, 1) != 1) {
		fprintf(stderr, "xtreme: no ring serves this address\n");
		exit(1);
	}
	return ring;
}

int main(int argc, char **argv)
{
	struct vma_completion_t told[AT_ONCE];
	int tcp, ring, n;

	if (argc != 3) {
		fprintf(stderr, "usage: xtreme <address> <port>\n");
		return 2;
	}
	api = vma_get_api();
	if (!api || !(api->vma_extra_supported_mask & VMA_EXTRA_API_SOCKETXTREME_POLL)) {
		fprintf(stderr, "xtreme: libvma.so is not preloaded\n");
		return 1;
	}
	udp = open_socket(SOCK_DGRAM, argv[1], argv[2]);
	tcp = open_socket(SOCK_STREAM, argv[1], argv[2]);
	if (listen(tcp, 16))
		fail("listen");
	ring = ring_of(udp);
	ring_of(tcp);
	printf("ready\n");
	fflush(stdout);
	while (!stopped) {
		n = api->socketxtreme_poll(ring, told, AT_ONCE, 0);
		if (n < 0) /* EOPNOTSUPP: VMA_SOCKETXTREME=1 is missing */
			fail("socketxtreme_poll");
		for (int i = 0; i < n; i++)
			handle(&told[i]);
	}
	printf("%u packets, %u connections, %u ends\n", packets, connections, ends);
	return 0;
}
