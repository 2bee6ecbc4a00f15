// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packets of registered flows that reached the kernel: reassembled fragments, traffic of a full
 * flow table. Their process gets them; the kernel, which knows no such connection, would answer
 * with a reset or an ICMP error.
 */
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "vma.h"

static int ports(const struct sk_buff *skb, int at, u8 proto, struct vma_flow_key *key)
{
	__be16 buf[2], *p;

	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return -EPROTONOSUPPORT;
	p = skb_header_pointer(skb, at, sizeof(buf), buf);
	if (!p)
		return -EINVAL;
	key->proto = proto;
	key->remote_port = ntohs(p[0]);
	key->local_port = ntohs(p[1]);
	return 0;
}

static int key4(const struct sk_buff *skb, struct vma_flow_key *key)
{
	const struct iphdr *ip = ip_hdr(skb);

	if (ip_is_fragment(ip))
		return -EINVAL;
	ipv6_addr_set_v4mapped(ip->daddr, (struct in6_addr *)&key->local);
	ipv6_addr_set_v4mapped(ip->saddr, (struct in6_addr *)&key->remote);
	return ports(skb, skb_network_offset(skb) + ip_hdrlen(skb), ip->protocol, key);
}

#if IS_ENABLED(CONFIG_IPV6)
static int key6(const struct sk_buff *skb, struct vma_flow_key *key)
{
	const struct ipv6hdr *ip = ipv6_hdr(skb);
	u8 proto = ip->nexthdr;
	__be16 frag;
	int at;

	memcpy(&key->local, &ip->daddr, sizeof(key->local));
	memcpy(&key->remote, &ip->saddr, sizeof(key->remote));
	at = ipv6_skip_exthdr(skb, skb_network_offset(skb) + sizeof(*ip), &proto, &frag);
	/* A piece that nobody has put together before this hook, see net.c. */
	if (at < 0 || frag)
		return -EINVAL;
	return ports(skb, at, proto, key);
}
#else
static int key6(const struct sk_buff *skb, struct vma_flow_key *key)
{
	return -EAFNOSUPPORT;
}
#endif

/**
 * vma_hook_key - the flow that a received packet belongs to
 * @skb: its network header is set, and was checked by the kernel
 * @family: NFPROTO_IPV4 or NFPROTO_IPV6
 * @key: to be filled; local is the packet's destination
 *
 * Return: 0, or negative errno: neither TCP nor UDP, a piece of a packet, too short.
 */
int vma_hook_key(const struct sk_buff *skb, u8 family, struct vma_flow_key *key)
{
	memset(key, 0, sizeof(*key));
	return family == NFPROTO_IPV4 ? key4(skb, key) : key6(skb, key);
}

/* Whose packet it is; NULL: the kernel's. Under RCU. */
static struct vma_conn *conn_of(const struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct vma_flow_key key;
	struct vma_conn *c;

	/* The hook stays when the last flow has gone. */
	if (!atomic64_read(&vma_totals[VMA_TOTAL_CONNS]) || vma_hook_key(skb, state->pf, &key))
		return NULL;
	c = vma_conn_find(state->net, &key);
	if (!c || !(c->flags & VMA_KMOD_CONN_FALLBACK) || !vma_owner_holds(c))
		return NULL;
	return c;
}

static unsigned int give(struct vma_conn *c, struct sk_buff *skb, const struct nf_hook_state *state)
{
	/* Handed over to the kernel, and not yet taken from the table. */
	if (vma_kernel_has(state->net, &c->key.flow, state->in->ifindex))
		return NF_ACCEPT;
	if (vma_ring_put(&c->session->ring, c->slot, skb)) {
		vma_total_add(VMA_TOTAL_FALLBACK_DROPPED, 1);
		return NF_DROP;
	}
	vma_total_add(VMA_TOTAL_FALLBACK_PACKETS, 1);
	consume_skb(skb);
	return NF_STOLEN;
}

/*
 * The filter of a stateful firewall drops what comes of a flow by the kernel: that knows some
 * packets of it at most, and no connection. All others come by the process's queues, which no
 * filter sees. Under RCU, in softirq or (loopback, a raw send) process context; so is the next.
 */
static unsigned int in_front(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct vma_conn *c = conn_of(skb, state);

	return c && c->flags & VMA_CONN_UNFILTERED ? give(c, skb, state) : NF_ACCEPT;
}

/*
 * Who could not see it otherwise gets what the host's firewall lets pass: chains of nftables have
 * any priority (firewalld's are behind the filter).
 */
static unsigned int behind(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct vma_conn *c = conn_of(skb, state);

	return c ? give(c, skb, state) : NF_ACCEPT;
}

const struct nf_hook_ops vma_hook_ops[] = {
	{
		.hook = in_front,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP_PRI_FILTER - 1,
	},
	{
		.hook = behind,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP_PRI_CONNTRACK_HELPER - 1,
	},
	{
		.hook = in_front,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP6_PRI_FILTER - 1,
	},
	{
		.hook = behind,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = NF_IP6_PRI_CONNTRACK_HELPER - 1,
	},
};

const unsigned int vma_hook_ops_count = ARRAY_SIZE(vma_hook_ops);
