/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about our segments: the kernel has no socket for them and drops them, so the internal
 * thread reads a copy of each from raw sockets. Without CAP_NET_RAW there are none, and connections
 * find out by their timers. Of datagrams the kernel has a socket, but tells nobody what it learns
 * of the path's MTU.
 */
#include <errno.h>
/* Before Linux's own, which have the same names and look whether they are there. */
#include <net/if.h>

#include <linux/icmp.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/net.h"
#include "tcp/tcp.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

#ifndef ICMP_FILTER
#define ICMP_FILTER 1
#endif
#define READS_AT_ONCE 64

static int fds[2] = {-1, -1};

static void tell(struct stack *st, void *arg)
{
	const struct icmp_tcp *e = arg;
	uint64_t now = tcp_sock_now_us();

	if (!st->tcp)
		return;
	tcp_icmp(st->tcp->ts, &e->tuple, e->seq, e->kind, e->mtu, now);
	tcp_flush(st->tcp->ts, now);
	tcp_sock_kick(st->tcp);
}

/*
 * A datagram has found a path that has no room for it. IPv6: each has for what is not asked for
 * again every second in any case.
 */
static bool is_of_datagram_too_big(const uint8_t *p, size_t len, int family)
{
	const struct iphdr *ip = (const void *)p, *quote;
	const struct icmphdr *icmp;
	size_t hlen;

	if (family != AF_INET || len < sizeof(*ip))
		return false;
	hlen = ip->ihl * 4u;
	if (len < hlen + sizeof(*icmp) + sizeof(*quote))
		return false;
	icmp = (const void *)(p + hlen);
	quote = (const void *)(icmp + 1);
	return icmp->type == ICMP_DEST_UNREACH && icmp->code == ICMP_FRAG_NEEDED &&
	       quote->protocol == IPPROTO_UDP;
}

static void readable(int fd, uint32_t events, void *arg)
{
	int family = fd == fds[0] ? AF_INET : AF_INET6;
	struct icmp_tcp e;
	_Alignas(4) uint8_t packet[1500];

	(void)events;
	(void)arg;
	for (int i = 0; i < READS_AT_ONCE; i++) {
		ssize_t n = raw.recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

		if (n < 0)
			return;
		if (icmp_tcp_parse(packet, (size_t)n, family, &e))
			stacks_each(tell, &e);
		else if (is_of_datagram_too_big(packet, (size_t)n, family))
			net_path_mtu_changes();
	}
}

static int open_v4(void)
{
	uint32_t filter =
		~(1u << ICMP_DEST_UNREACH | 1u << ICMP_TIME_EXCEEDED | 1u << ICMP_PARAMETERPROB);
	int fd = OWN_FD(libc.socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));

	if (fd >= 0)
		(void)libc.setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter));
	return fd;
}

static int open_v6(void)
{
	struct icmp6_filter filter;
	int fd = OWN_FD(libc.socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6));

	ICMP6_FILTER_SETBLOCKALL(&filter);
	ICMP6_FILTER_SETPASS(ICMP6_DST_UNREACH, &filter);
	ICMP6_FILTER_SETPASS(ICMP6_PACKET_TOO_BIG, &filter);
	ICMP6_FILTER_SETPASS(ICMP6_TIME_EXCEEDED, &filter);
	ICMP6_FILTER_SETPASS(ICMP6_PARAM_PROB, &filter);
	if (fd >= 0)
		(void)libc.setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof(filter));
	return fd;
}

void tcp_sock_icmp_start(void)
{
	fds[0] = open_v4();
	fds[1] = open_v6();
	for (int i = 0; i < 2; i++) {
		if (fds[i] < 0)
			log_debug("tcp: no raw socket for ICMP errors: %s", strerror(errno));
		else if (worker_fd_add(fds[i], EPOLLIN, readable, NULL))
			log_debug("tcp: ICMP errors are not read");
	}
}

void tcp_sock_icmp_forked(void)
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			own_fd_close(fds[i]);
		fds[i] = -1;
	}
}
