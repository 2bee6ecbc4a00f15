/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * callback <address> <port> <datagrams>: counts what arrives without ever reading it. Datagrams
 * that begin with "keep" are held and printed in the end; "stop" ends it.
 *
 *   gcc -o callback callback.c && LD_PRELOAD=libvma.so ./callback 192.0.2.1 7000 10
 */
#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 64

struct counted {
	unsigned packets, held;
	size_t bytes;
	int stopped;
	struct vma_packet_t ids[HELD_MAX];
	struct iovec data[HELD_MAX];
};

static int begins_with(const struct iovec *iov, const char *word)
{
	return iov->iov_len >= strlen(word) && !memcmp(iov->iov_base, word, strlen(word));
}

static vma_recv_callback_retval_t count(int fd, size_t n, struct iovec iov[],
					struct vma_info_t *info, void *context)
{
	struct counted *c = context;

	(void)fd;
	c->packets++;
	c->bytes += info->payload_sz;
	if (n && begins_with(&iov[0], "stop"))
		c->stopped = 1;
	if (n != 1 || !info->packet_id || c->held == HELD_MAX || !begins_with(&iov[0], "keep"))
		return VMA_PACKET_DROP;
	/* iov and info are gone after this call; what they point to stays. */
	c->data[c->held] = iov[0];
	c->ids[c->held++].packet_id = info->packet_id;
	return VMA_PACKET_HOLD;
}

static int open_socket(const char *address, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    bind(fd, (struct sockaddr *)&at, sizeof(at))) {
		perror("socket");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	static struct counted c;
	struct pollfd p;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: callback <address> <port> <datagrams>\n");
		return 2;
	}
	if (!api) {
		fprintf(stderr, "callback: libvma.so is not preloaded\n");
		return 1;
	}
	fd = open_socket(argv[1], argv[2]);
	if (api->register_recv_callback(fd, count, &c)) {
		perror("register_recv_callback");
		return 1;
	}
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	poll(&p, 1, 0);
	printf("ready\n");
	fflush(stdout);
	/* Nothing is ever let through: each poll() ends by its time, and has run the callback. */
	while (!c.stopped && c.packets < (unsigned)atoi(argv[3]))
		poll(&p, 1, 100);
	printf("%u packets, %zu bytes\n", c.packets, c.bytes);
	for (unsigned i = 0; i < c.held; i++)
		printf("kept: %.*s\n", (int)c.data[i].iov_len, (char *)c.data[i].iov_base);
	if (c.held && api->free_packets(fd, c.ids, c.held)) {
		perror("free_packets");
		return 1;
	}
	return 0;
}
