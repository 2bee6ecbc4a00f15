/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * zcopy udp|tcp <address> <port>: adds up the bytes that it receives where they lie, until a
 * datagram of no bytes or the end of the connection, and says how many packets were not copied.
 *
 *   gcc -o zcopy zcopy.c && LD_PRELOAD=libvma.so ./zcopy udp 192.0.2.1 7000
 */
#include <arpa/inet.h>
#include <errno.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The socket to read from: a datagram socket, or the first connection. */
static int begin(int type, const char *address, const char *port)
{
	int fd = open_socket(type, address, port), c;
	char none;

	if (type == SOCK_DGRAM)
		recv(fd, &none, 1, MSG_DONTWAIT); /* from here on the ring has its datagrams */
	else if (listen(fd, 1))
		fail("listen");
	printf("ready\n");
	fflush(stdout);
	if (type == SOCK_DGRAM)
		return fd;
	c = accept(fd, NULL, NULL);
	if (c < 0)
		fail("accept");
	close(fd);
	return c;
}

static unsigned sum(const unsigned char *data, size_t len)
{
	unsigned s = 0;

	while (len--)
		s += *data++;
	return s;
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	unsigned total = 0, packets = 0, copied = 0;
	size_t bytes = 0;
	char buf[2048];
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: zcopy udp|tcp <address> <port>\n");
		return 2;
	}
	if (!api || !(api->vma_extra_supported_mask & VMA_EXTRA_API_RECVFROM_ZCOPY)) {
		fprintf(stderr, "zcopy: libvma.so is not preloaded\n");
		return 1;
	}
	fd = begin(strcmp(argv[1], "tcp") ? SOCK_DGRAM : SOCK_STREAM, argv[2], argv[3]);
	for (;;) {
		int flags = 0, n = api->recvfrom_zcopy(fd, buf, sizeof(buf), &flags, NULL, NULL);
		struct vma_packets_t *p = (struct vma_packets_t *)buf;

		if (n < 0 && errno == EINVAL) /* the kernel has this connection */
			n = (int)recv(fd, buf, sizeof(buf), 0);
		if (n < 0)
			fail("recvfrom_zcopy");
		if (flags & MSG_VMA_ZCOPY) {
			for (size_t i = 0; i < p->pkts[0].sz_iov; i++)
				total += sum(p->pkts[0].iov[i].iov_base, p->pkts[0].iov[i].iov_len);
			if (api->free_packets(fd, p->pkts, p->n_packet_num))
				fail("free_packets");
		} else {
			total += sum((unsigned char *)buf, (size_t)n);
		}
		if (!n)
			break;
		copied += !(flags & MSG_VMA_ZCOPY);
		packets++;
		bytes += (size_t)n;
	}
	printf("%zu bytes, sum %u, %u copied\n", bytes, total, copied);
	return packets == 0;
}
