/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * market <group> <port> <interface address> <exchange address> <exchange port> <orders>: a price
 * comes by multicast, is looked at in the receive callback, and an order leaves by TCP from there.
 * Without the library recvmsg() brings it. Prints the median microseconds from stamp to order.
 *
 *   LD_PRELOAD=libvma.so ./market 239.1.1.1 7000 192.0.2.1 192.0.2.2 7001 100
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
static void look(struct market *m, const struct iovec *message, struct timespec stamp)
{
	struct timespec now;
	char order[32] = "";
	int len, price;

	if (message->iov_len >= sizeof(order) || m->orders == m->wanted)
		return;
	memcpy(order, message->iov_base, message->iov_len);
	price = atoi(order);
	if (price >= 100)
		return;
	len = snprintf(order, sizeof(order), "buy at %d\n", price);
	check(send(m->exchange, order, (size_t)len, MSG_NOSIGNAL) == len, "send");
	clock_gettime(CLOCK_REALTIME, &now);
	m->us[m->orders++] = (double)(now.tv_sec - stamp.tv_sec) * 1e6 +
			     (double)(now.tv_nsec - stamp.tv_nsec) / 1e3;
}

static vma_recv_callback_retval_t tick(int fd, size_t n, struct iovec iov[],
				       struct vma_info_t *info, void *context)
{
	(void)fd;
	if (n == 1)
		look(context, &iov[0], info->sw_timestamp);
	return VMA_PACKET_DROP;
}

static void kernel_tick(int fd, struct market *m)
{
	char data[32], control[128];
	struct iovec iov = {data, sizeof(data)};
	struct msghdr msg = {NULL, 0, &iov, 1, control, sizeof(control), 0};
	ssize_t n = recvmsg(fd, &msg, 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	check(n >= 0 && c && c->cmsg_type == SCM_TIMESTAMPNS, "recvmsg");
	iov.iov_len = (size_t)n;
	look(m, &iov, *(struct timespec *)CMSG_DATA(c));
}

static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	check(inet_pton(AF_INET, ip, &a.sin_addr) == 1, ip);
	return a;
}

static int by_size(const void *a, const void *b)
{
	return *(const double *)a > *(const double *)b ? 1 : -1;
}

int main(int argc, char **argv)
{
	struct vma_api_t *api = vma_get_api();
	struct sockaddr_in prices, exchange;
	static struct market m;
	struct ip_mreq join;
	int fd, on = 1;

	if (argc != 7) {
		fprintf(stderr, "market: six arguments, as its first lines say\n");
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
	join = (struct ip_mreq){prices.sin_addr, address(argv[3], "0").sin_addr};
	check(!setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), "join");
	check(api ? !api->register_recv_callback(fd, tick, &m)
		  : !setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)),
	      "prices");
	while (m.orders < m.wanted)
		api ? (void)poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000) : kernel_tick(fd, &m);
	qsort(m.us, m.orders, sizeof(m.us[0]), by_size);
	printf("%s: %u orders, tick to trade %.1f us\n", api ? "libvma" : "kernel", m.orders,
	       m.us[m.orders / 2]);
	return 0;
}
