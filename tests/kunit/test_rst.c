// SPDX-License-Identifier: GPL-2.0-only
/* The reset: what stands in it, and when it leaves. */
#include <linux/netfilter_ipv4.h>
#include <net/ip6_checksum.h>
#include <net/tcp.h>

#include "help.h"

static void v4_is_a_whole_segment(struct kunit *test)
{
	struct vma_flow_key key = help_key(IPPROTO_TCP, "10.0.0.1", 80, "10.0.0.2", 40000);
	struct sk_buff *skb = vma_rst_build(&key, 0xfffffff0, 7, 64);
	struct iphdr *ip;
	struct tcphdr *th;

	KUNIT_ASSERT_NOT_NULL(test, skb);
	ip = ip_hdr(skb);
	th = tcp_hdr(skb);
	KUNIT_EXPECT_PTR_EQ(test, (u8 *)ip, skb->data);
	KUNIT_EXPECT_EQ(test, skb->len, 40);
	KUNIT_EXPECT_EQ(test, ntohs(ip->tot_len), 40);
	KUNIT_EXPECT_EQ(test, ip->ttl, 64);
	KUNIT_EXPECT_EQ(test, ntohl(ip->saddr), 0x0a000001);
	KUNIT_EXPECT_EQ(test, ntohl(ip->daddr), 0x0a000002);
	KUNIT_EXPECT_EQ(test, (u16)ip_fast_csum(ip, ip->ihl), 0);
	KUNIT_EXPECT_EQ(test, ntohs(th->source), 80);
	KUNIT_EXPECT_EQ(test, ntohs(th->dest), 40000);
	KUNIT_EXPECT_EQ(test, ntohl(th->seq), 0xfffffff0);
	KUNIT_EXPECT_EQ(test, ntohl(th->ack_seq), 7);
	/* RST and ACK, nothing else; no window, no options. */
	KUNIT_EXPECT_EQ(test, ((u8 *)th)[13], 0x14);
	KUNIT_EXPECT_EQ(test, (int)th->doff, 5);
	KUNIT_EXPECT_EQ(test, th->window, 0);
	KUNIT_EXPECT_EQ(test, tcp_v4_check(20, ip->saddr, ip->daddr, csum_partial(th, 20, 0)), 0);
	kfree_skb(skb);
}

static void v6_is_a_whole_segment(struct kunit *test)
{
	struct vma_flow_key key = help_key(IPPROTO_TCP, "fd00::1", 80, "fd00::2", 40000);
	struct sk_buff *skb = vma_rst_build(&key, 5, 7, 3);
	struct ipv6hdr *ip;
	struct tcphdr *th;

	KUNIT_ASSERT_NOT_NULL(test, skb);
	ip = ipv6_hdr(skb);
	th = tcp_hdr(skb);
	KUNIT_EXPECT_EQ(test, skb->len, 60);
	KUNIT_EXPECT_EQ(test, (int)ip->version, 6);
	KUNIT_EXPECT_EQ(test, ntohs(ip->payload_len), 20);
	KUNIT_EXPECT_EQ(test, ip->hop_limit, 3);
	KUNIT_EXPECT_EQ(test, memcmp(&ip->saddr, &key.local, 16), 0);
	KUNIT_EXPECT_EQ(test, memcmp(&ip->daddr, &key.remote, 16), 0);
	KUNIT_EXPECT_EQ(test, ((u8 *)th)[13], 0x14);
	KUNIT_EXPECT_EQ(test, tcp_v6_check(20, &ip->saddr, &ip->daddr, csum_partial(th, 20, 0)), 0);
	kfree_skb(skb);
}

/* ---- on its way: seen, and taken, where packets leave the host */

static u32 seen, seen_seq;

static unsigned int see(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	if (ip_hdr(skb)->protocol != IPPROTO_TCP || !tcp_hdr(skb)->rst)
		return NF_ACCEPT;
	seen++;
	seen_seq = ntohl(tcp_hdr(skb)->seq);
	return NF_DROP;
}

static const struct nf_hook_ops see_ops = {
	.hook = see,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_OUT,
};

static struct socket *shadow;

static int rst_init(struct kunit *test)
{
	KUNIT_ASSERT_EQ(test, 0, help_lo_up(&init_net));
	seen = 0;
	shadow = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	return nf_register_net_hook(&init_net, &see_ops);
}

static void rst_exit(struct kunit *test)
{
	nf_unregister_net_hook(&init_net, &see_ops);
	sock_release(shadow);
}

static struct vma_conn conn_to(const char *local)
{
	return (struct vma_conn){
		.key.flow = help_key(IPPROTO_TCP, local, help_port(shadow), "127.0.0.2", 9),
		.key.net = &init_net,
		.sk = shadow->sk,
		.seq = 1234,
	};
}

static void it_leaves_with_the_number_given(struct kunit *test)
{
	struct vma_conn c = conn_to(LOOPBACK);

	/* The hook drops it, which is all the answer there is. */
	KUNIT_EXPECT_EQ(test, vma_rst_send(&c), -EPERM);
	KUNIT_EXPECT_EQ(test, seen, 1);
	KUNIT_EXPECT_EQ(test, seen_seq, 1234);
}

static void none_from_an_address_that_is_not_here(struct kunit *test)
{
	struct vma_conn c = conn_to("10.9.9.9");

	KUNIT_EXPECT_EQ(test, vma_rst_send(&c), -EADDRNOTAVAIL);
	KUNIT_EXPECT_EQ(test, seen, 0);
}

static void none_for_a_connection_that_the_kernel_has(struct kunit *test)
{
	struct socket *listener = help_socket(test, &init_net, AF_INET, IPPROTO_TCP, LOOPBACK, 0);
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(help_port(listener)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct vma_conn c = conn_to(LOOPBACK);

	KUNIT_ASSERT_EQ(test, 0, kernel_listen(listener, 1));
	KUNIT_ASSERT_EQ(test, 0, kernel_connect(shadow, (struct sockaddr *)&to, sizeof(to), 0));
	c.key.flow.remote = help_addr(LOOPBACK);
	c.key.flow.remote_port = help_port(listener);
	KUNIT_EXPECT_EQ(test, vma_rst_send(&c), -EADDRINUSE);
	KUNIT_EXPECT_EQ(test, seen, 0);
	sock_release(listener);
}

static struct kunit_case cases[] = {KUNIT_CASE(v4_is_a_whole_segment),
				    KUNIT_CASE(v6_is_a_whole_segment),
				    KUNIT_CASE(it_leaves_with_the_number_given),
				    KUNIT_CASE(none_from_an_address_that_is_not_here),
				    KUNIT_CASE(none_for_a_connection_that_the_kernel_has),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_rst",
	.init = rst_init,
	.exit = rst_exit,
	.test_cases = cases,
};

kunit_test_suite(suite);
