/* SPDX-License-Identifier: GPL-2.0-only */
/* What several suites need: addresses, sockets on the loopback interface, packets. */
#ifndef TESTS_KUNIT_HELP_H
#define TESTS_KUNIT_HELP_H

#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/inet.h>
#include <linux/interrupt.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "vma.h"

#define LOOPBACK "127.0.0.1"

/* The loopback interface of net has its addresses afterwards. */
static inline int help_lo_up(struct net *net)
{
	int err;

	rtnl_lock();
	err = dev_open(net->loopback_dev, NULL);
	rtnl_unlock();
	return err;
}

static inline struct vma_addr help_addr(const char *text)
{
	struct in6_addr a = {};
	struct vma_addr to;
	__be32 v4;

	if (in4_pton(text, -1, (u8 *)&v4, -1, NULL))
		ipv6_addr_set_v4mapped(v4, &a);
	else
		in6_pton(text, -1, (u8 *)&a, -1, NULL);
	memcpy(&to, &a, sizeof(to));
	return to;
}

static inline struct vma_flow_key help_key(u8 proto, const char *local, u16 lport,
					   const char *remote, u16 rport)
{
	return (struct vma_flow_key){
		.local = help_addr(local),
		.remote = help_addr(remote),
		.local_port = lport,
		.remote_port = rport,
		.proto = proto,
	};
}

static inline struct socket *help_bound(struct kunit *test, struct net *net, int family, u8 proto,
					const char *address, u16 port, bool reuse)
{
	struct vma_addr a = help_addr(address ?: "::");
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	int type = proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM;
	struct socket *sock;

	KUNIT_ASSERT_EQ(test, 0, __sock_create(net, family, type, proto, &sock, 0));
	sock->sk->sk_reuse = reuse ? SK_CAN_REUSE : SK_NO_REUSE;
	memcpy(&in6.sin6_addr, &a, sizeof(a));
	in.sin_addr.s_addr = address ? vma_addr_v4(&a) : 0;
	if (family == AF_INET)
		KUNIT_ASSERT_EQ(test, 0, kernel_bind(sock, (struct sockaddr *)&in, sizeof(in)));
	else
		KUNIT_ASSERT_EQ(test, 0, kernel_bind(sock, (struct sockaddr *)&in6, sizeof(in6)));
	return sock;
}

/*
 * A socket of net, as a program makes it, bound; address NULL: to all; port 0: to one of the
 * kernel's choice.
 */
static inline struct socket *help_socket(struct kunit *test, struct net *net, int family, u8 proto,
					 const char *address, u16 port)
{
	return help_bound(test, net, family, proto, address, port, false);
}

/* A TCP socket with SO_REUSEADDR. */
static inline struct socket *help_reuser(struct kunit *test, const char *address, u16 port)
{
	return help_bound(test, &init_net, AF_INET, IPPROTO_TCP, address, port, true);
}

static inline u16 help_port(const struct socket *sock)
{
	return inet_sk(sock->sk)->inet_num;
}

/*
 * What was sent over the loopback interface has arrived: on a busy host the softirq thread does it.
 */
static inline void help_settle(void)
{
	do
		msleep(20);
	while (local_softirq_pending() || task_is_running(this_cpu_ksoftirqd()));
}

/* A packet as LOCAL_IN sees it: data begins with the IPv4 header. */
static inline struct sk_buff *help_packet(struct kunit *test, u8 proto, u32 payload)
{
	u32 l4 = proto == IPPROTO_TCP ? 20 : 8;
	struct sk_buff *skb = alloc_skb(20 + l4 + payload, GFP_KERNEL);
	__be16 *ports;
	struct iphdr *ip;
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, skb);
	ip = skb_put_zero(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	ip->version = 4;
	ip->ihl = 5;
	ip->protocol = proto;
	ip->saddr = htonl(0x0a000002);
	ip->daddr = htonl(0x0a000001);
	ip->tot_len = htons(20 + l4 + payload);
	ports = skb_put_zero(skb, l4);
	ports[0] = htons(2000);
	ports[1] = htons(1000);
	for (i = 0; i < payload; i++)
		skb_put_u8(skb, i);
	return skb;
}

#endif
