/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * market <group> <port> <interface address> <exchange address> <exchange port> <orders>: a price
 * comes by multicast, is looked at in the receive callback, and an order leaves by TCP from there.
 * Prints the median time from the packet's stamp to the end of send(), in microseconds.
 *
 *   gcc -o market market.c && LD_PRELOAD=libvma.so ./market 239.1.1.1 7000 192.0.2.1 192.0.2.2 7001
 * 100
 */
#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ORDERS_MAX 10000

struct market {
	int exchange; /* the connection that orders go by */
	unsigned orders, wanted;
	double us[ORDERS_MAX]; /* tick to trade */
};

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* The message is "<price>"; whatever is below 100 is bought. */
static vma_recv_callback_retval_t tick(int fd, size_t n, struct iovec iov[],
				       struct vma_info_t *info, void *context)
{
	struct market *m = context;
	struct timespec now;
	char order[32];
	int len, price;

	(void)fd;
	if (n != 1 || iov[0].iov_len >= sizeof(order) || m->orders == m->wanted)
		return VMA_PACKET_DROP;
	memcpy(order, iov[0].iov_base, iov[0].iov_len);
	order[iov[0].iov_len] = 0;
	price = atoi(order);
	if (price >= 100)
		return VMA_PACKET_DROP;
	len = snprintf(order, sizeof(order), "buy at %d\n", price);
	check(send(m->exchange, order, (size_t)len, MSG_NOSIGNAL) == len, "send");
	clock_gettime(CLOCK_REALTIME, &now);
	m->us[m->orders++] = (double)(now.tv_sec - info->sw_timestamp.tv_sec) * 1e6 +
			     (double)(now.tv_nsec - info->sw_timestamp.tv_nsec) / 1e3;
	return VMA_PACKET_DROP;
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	check(inet_pton(AF_INET, ip, &a.sin_addr) == 1, ip);
	return a;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	struct sockaddr_in prices, exchange;
	static struct market m;
	struct ip_mreq join;
	struct pollfd p;
	int fd, on = 1;

	if (argc != 7 || !api) {
		fprintf(stderr, argc != 7 ? "usage: market <group> <port> <interface address> "
					    "<exchange address> <port> <orders>\n"
					  : "market: libvma.so is not preloaded\n");
		return 2;
	}
	prices = address(argv[1], argv[2]);
	exchange = address(argv[4], argv[5]);
	m.wanted = (unsigned)atoi(argv[6]) < ORDERS_MAX ? (unsigned)atoi(argv[6]) : ORDERS_MAX;
	m.exchange = socket(AF_INET, SOCK_STREAM, 0);
	check(!connect(m.exchange, (struct sockaddr *)&exchange, sizeof(exchange)), "connect");
	setsockopt(m.exchange, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	check(!bind(fd, (struct sockaddr *)&prices, sizeof(prices)), "bind");
	join = (struct ip_mreq){.imr_multiaddr = prices.sin_addr};
	check(inet_pton(AF_INET, argv[3], &join.imr_interface) == 1, argv[3]);
	check(!setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), "join");
	check(!api->register_recv_callback(fd, tick, &m), "register_recv_callback");
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	poll(&p, 1, 0);
	printf("ready\n");
	fflush(stdout);
	while (m.orders < m.wanted)
		poll(&p, 1, 1000);
	qsort(m.us, m.orders, sizeof(m.us[0]), by_size);
	printf("%u orders, tick to trade %.1f us\n", m.orders, m.us[m.orders / 2]);
	return 0;
}
