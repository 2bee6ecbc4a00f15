// SPDX-License-Identifier: GPL-2.0-only
/* The reset of a connection whose process is dead. */
#include <linux/skbuff.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/route.h>
#include <net/tcp.h>

#include "vma.h"

static void put_tcp(struct sk_buff *skb, const struct vma_flow_key *key, u32 seq, u32 ack)
{
	struct tcphdr *th = skb_put_zero(skb, sizeof(*th));

	skb_reset_transport_header(skb);
	th->source = htons(key->local_port);
	th->dest = htons(key->remote_port);
	th->seq = htonl(seq);
	th->ack_seq = htonl(ack);
	th->doff = sizeof(*th) / 4;
	th->rst = 1;
	th->ack = 1;
}

static void push_ip4(struct sk_buff *skb, const struct vma_flow_key *key, u8 ttl)
{
	__be32 from = vma_addr_v4(&key->local), to = vma_addr_v4(&key->remote);
	struct tcphdr *th = tcp_hdr(skb);
	struct iphdr *ip;

	th->check = tcp_v4_check(sizeof(*th), from, to, csum_partial(th, sizeof(*th), 0));
	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	*ip = (struct iphdr){
		.version = 4,
		.ihl = sizeof(*ip) / 4,
		.tot_len = htons(skb->len),
		.frag_off = htons(IP_DF),
		.ttl = ttl,
		.protocol = IPPROTO_TCP,
		.saddr = from,
		.daddr = to,
	};
	ip_send_check(ip);
	skb->protocol = htons(ETH_P_IP);
}

static void push_ip6(struct sk_buff *skb, const struct vma_flow_key *key, u8 ttl)
{
	struct tcphdr *th = tcp_hdr(skb);
	struct ipv6hdr *ip;

	th->check = tcp_v6_check(sizeof(*th), vma_addr_v6(&key->local), vma_addr_v6(&key->remote),
				 csum_partial(th, sizeof(*th), 0));
	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	*ip = (struct ipv6hdr){
		.version = 6,
		.payload_len = htons(sizeof(*th)),
		.nexthdr = IPPROTO_TCP,
		.hop_limit = ttl,
		.saddr = *vma_addr_v6(&key->local),
		.daddr = *vma_addr_v6(&key->remote),
	};
	skb->protocol = htons(ETH_P_IPV6);
}

/**
 * vma_rst_build - the segment, whole, checksums and all
 * @key: a TCP flow with a remote side
 * @seq: snd_nxt of the dead process: what a peer that has received everything takes at once
 *	(RFC 5961, section 3.2). One that has not answers with a challenge ACK, and the kernel,
 *	which knows no such connection, resets with that number.
 * @ack: rcv_nxt
 * @ttl: or hop limit
 *
 * Return: the packet from its IP header on, or NULL without memory.
 */
struct sk_buff *vma_rst_build(const struct vma_flow_key *key, u32 seq, u32 ack, u8 ttl)
{
	struct sk_buff *skb = alloc_skb(MAX_TCP_HEADER + sizeof(struct tcphdr), GFP_KERNEL);

	if (!skb)
		return NULL;
	skb_reserve(skb, MAX_TCP_HEADER);
	put_tcp(skb, key, seq, ack);
	if (vma_addr_is_v4(&key->local))
		push_ip4(skb, key, ttl);
	else
		push_ip6(skb, key, ttl);
	return skb;
}

static int send4(struct net *net, const struct sock *sk, const struct vma_flow_key *key,
		 struct sk_buff *skb)
{
	struct flowi4 fl = {
		.flowi4_oif = sk->sk_bound_dev_if,
		.flowi4_mark = sk->sk_mark,
		.flowi4_uid = sk->sk_uid,
		.flowi4_proto = IPPROTO_TCP,
		.saddr = vma_addr_v4(&key->local),
		.daddr = vma_addr_v4(&key->remote),
		.fl4_sport = htons(key->local_port),
		.fl4_dport = htons(key->remote_port),
	};
	struct rtable *rt = ip_route_output_key(net, &fl);
	int err;

	if (IS_ERR(rt)) {
		kfree_skb(skb);
		return PTR_ERR(rt);
	}
	skb_dst_set(skb, &rt->dst);
	err = ip_local_out(net, NULL, skb);
	return net_xmit_eval(err);
}

#if IS_ENABLED(CONFIG_IPV6)
static int send6(struct net *net, const struct sock *sk, const struct vma_flow_key *key,
		 struct sk_buff *skb)
{
	struct flowi6 fl = {
		.flowi6_oif = sk->sk_bound_dev_if,
		.flowi6_mark = sk->sk_mark,
		.flowi6_uid = sk->sk_uid,
		.flowi6_proto = IPPROTO_TCP,
		.saddr = *vma_addr_v6(&key->local),
		.daddr = *vma_addr_v6(&key->remote),
		.fl6_sport = htons(key->local_port),
		.fl6_dport = htons(key->remote_port),
	};
	struct dst_entry *dst = ip6_dst_lookup_flow(net, NULL, &fl, NULL);
	int err;

	if (IS_ERR(dst)) {
		kfree_skb(skb);
		return PTR_ERR(dst);
	}
	skb_dst_set(skb, dst);
	err = ip6_local_out(net, NULL, skb);
	return net_xmit_eval(err);
}
#else
static int send6(struct net *net, const struct sock *sk, const struct vma_flow_key *key,
		 struct sk_buff *skb)
{
	kfree_skb(skb);
	return -EAFNOSUPPORT;
}
#endif

/**
 * vma_rst_send - resets the peer of a dead process's connection
 * @c: a registration that its owner held when it died; sequence numbers are set
 *
 * Nothing is sent for an address that is not this host's any more, nor when the kernel has the
 * connection now.
 *
 * Context: process.
 * Return: 0, -EADDRINUSE, -EADDRNOTAVAIL, -ENOMEM, or why the packet did not leave.
 */
int vma_rst_send(const struct vma_conn *c)
{
	const struct vma_flow_key *key = &c->key.flow;
	struct net *net = c->key.net;
	struct sk_buff *skb;
	int err;

	if (vma_kernel_has(net, key, c->sk->sk_bound_dev_if))
		return -EADDRINUSE;
	err = vma_owner_local(net, key);
	if (err)
		return err;
	skb = vma_rst_build(key, c->seq, c->ack, READ_ONCE(net->ipv4.sysctl_ip_default_ttl));
	if (!skb)
		return -ENOMEM;
	skb->mark = READ_ONCE(c->sk->sk_mark);
	return vma_addr_is_v4(&key->local) ? send4(net, c->sk, key, skb)
					   : send6(net, c->sk, key, skb);
}
