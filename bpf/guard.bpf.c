/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guard behind the steering: at the interface's tc ingress it holds back the TCP segments of
 * flows that live in user space, and that have come past the steering program all the same:
 * fragments, headers that it does not read, tagged ones, those of a queue that has no XSK, those
 * that come while the program is off the interface. The kernel knows no such connection and would
 * say RST. What is held back the peer sends again. Datagrams pass: the shadow socket takes them.
 *
 * A segment of the kernel's costs one parse and one array lookup (`ports`).
 */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include "flow_table.h"

#define PACKET_HOST 0 /* __sk_buff.pkt_type: the interface's own MAC */
#define VLAN_VID_MASK 0xfff
#define IP_OFFSET 0x1fff
#define IP_MORE 0x2000
#define IPV6_FRAGMENT_OFFSET 0xfff8
#define IPV6_HEADERS_MAX 6 /* extension headers that are looked at */
#define FLAGS_UNKNOWN 0
#define FRAGMENT_LEAST 8 /* of what is shorter the kernel makes nothing */
/* A flow of which segments are held again after this: not the rest of one burst, but sent again. */
#define AGAIN_MIN_NS 150000000ull
#define AGAIN_MAX_NS 180000000000ull /* TCP sends again within two minutes */

/* Flows of other rows are another process's, which has a guard for them. */
const volatile __u32 own_row = VMA_ROWS_ALL;

/* When a segment of the flow was held first, or was told of last. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct vma_flow_key);
	__type(value, __u64);
} held_at SEC(".maps");

/* The flows that the kernel is to have. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, VMA_STRAYS_BYTES);
} strays SEC(".maps");

/* TCP's header in a packet: where it is and how it got there. */
struct place {
	__u32 at; /* 0: there is none */
	bool fragment; /* the first one: of the others nobody knows whose they are */
	bool headers; /* options or extension headers in front of it */
};

struct ext_header {
	__u8 next, len;
	__be16 offset; /* a fragment's */
};

/* The first len bytes can be read directly. False: the packet has no so many. */
static __always_inline bool reach(struct __sk_buff *skb, __u32 len)
{
	if ((void *)(long)skb->data + len <= (void *)(long)skb->data_end)
		return true;
	return !bpf_skb_pull_data(skb, len) &&
	       (void *)(long)skb->data + len <= (void *)(long)skb->data_end;
}

static __always_inline struct place place_v4(const struct iphdr *ip)
{
	struct place p = {};

	if (ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(IP_OFFSET))
		return p;
	p.at = ETH_HLEN + ip->ihl * 4u;
	p.fragment = ip->frag_off & bpf_htons(IP_MORE);
	p.headers = ip->ihl != 5;
	return p;
}

static __always_inline bool is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_FRAGMENT;
}

/* Behind extension headers, of which `next` is the first. */
static __always_inline struct place place_behind(struct __sk_buff *skb, __u8 next)
{
	struct place p = {.at = ETH_HLEN + sizeof(struct ipv6hdr)}, none = {};
	struct ext_header h;

	for (int i = 0; i < IPV6_HEADERS_MAX && is_extension(next); i++) {
		if (bpf_skb_load_bytes(skb, p.at, &h, sizeof(h)))
			return none;
		if (next == IPPROTO_FRAGMENT) {
			if (h.offset & bpf_htons(IPV6_FRAGMENT_OFFSET))
				return none;
			p.fragment = true;
			p.at += 8;
		} else {
			p.headers = true;
			p.at += 8 + h.len * 8u;
		}
		next = h.next;
	}
	return next == IPPROTO_TCP ? p : none;
}

/* A flow that would stand still is told of: the kernel can read what the steering cannot. */
static __always_inline void tell(const struct vma_flow_key *key, __u32 seq)
{
	struct vma_stray stray = {.key = *key, .seq = seq};
	__u64 now = bpf_ktime_get_ns(), *at = bpf_map_lookup_elem(&held_at, key);

	if (at && now - *at < AGAIN_MIN_NS)
		return;
	if (at && now - *at < AGAIN_MAX_NS)
		bpf_ringbuf_output(&strays, &stray, sizeof(stray), BPF_RB_NO_WAKEUP);
	bpf_map_update_elem(&held_at, key, &now, BPF_ANY);
}

/* Its reason, counted; see struct vma_steer_counters. */
static __always_inline int hold(const struct place *p, const struct vma_flow_key *key, __u32 seq,
				bool tagged)
{
	__u32 zero = 0;
	struct vma_steer_counters *c = bpf_map_lookup_elem(&counters, &zero);

	tell(key, seq);
	if (!c)
		return TC_ACT_SHOT;
	if (p->fragment)
		c->held_fragment++;
	else if (tagged)
		c->held_tagged++;
	else if (p->headers)
		c->held_headers++;
	else
		c->held_plain++;
	return TC_ACT_SHOT;
}

/*
 * It is ours, and its owner lives: the rule's ring has a socket. That of a process that has died
 * without a word has none, and the kernel is to tell its peers.
 */
static __always_inline bool is_ours(const struct vma_flow_info *f)
{
	__u32 slot = f->ring[0] * VMA_XSK_QUEUES;

	if (own_row != VMA_ROWS_ALL && f->ring[0] != own_row)
		return false;
	return bpf_map_lookup_elem(&xsks, &slot);
}

/*
 * The flow's, if user space has it: that of a connection, or of a listener, to whose port the
 * kernel may have connections, too. To a listener's one a SYN may go: the kernel's listener answers
 * it, and the connection is the kernel's. In a VLAN, whose interface may be in another network
 * namespace, a listener's addresses may be somebody else's.
 */
static __always_inline bool is_held(struct __sk_buff *skb, const struct vma_port *port,
				    const struct vma_flow_key *key, const struct tcp_start *t,
				    bool v4)
{
	bool tagged = skb->vlan_present && skb->vlan_tci & VLAN_VID_MASK;
	struct vma_flow_key listener = *key;
	struct vma_flow_info *info;

	info = bpf_map_lookup_elem(&flows, key);
	if (info)
		return is_ours(info);
	if (!(port->flags & VMA_PORT_3TUPLE) || tagged || opens(t->flags))
		return false;
	__builtin_memset(&listener.remote, 0, sizeof(listener.remote));
	listener.remote_port = 0;
	info = bpf_map_lookup_elem(&flows, &listener);
	return info && is_ours(info) &&
	       !kernel_has(skb, &t->ports, &key->remote.byte[v4 ? 12 : 0],
			   &key->local.byte[v4 ? 12 : 0], v4);
}

static __always_inline int judge(struct __sk_buff *skb, const struct place *p, const void *src,
				 const void *dst, bool v4)
{
	struct tcp_start t = {.flags = FLAGS_UNKNOWN};
	struct vma_flow_key key = {.proto = IPPROTO_TCP};
	struct vma_port *port;
	__u32 index;

	/* A fragment has eight bytes at least: the ports and the number. */
	if (!p->at || (bpf_skb_load_bytes(skb, p->at, &t, sizeof(t)) &&
		       bpf_skb_load_bytes(skb, p->at, &t, FRAGMENT_LEAST)))
		return TC_ACT_UNSPEC;
	index = VMA_PORT_INDEX_TCP + bpf_ntohs(t.ports.dest);
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !port->flags)
		return TC_ACT_UNSPEC;
	addr_load(&key.local, dst, v4);
	addr_load(&key.remote, src, v4);
	key.local_port = bpf_ntohs(t.ports.dest);
	key.remote_port = bpf_ntohs(t.ports.source);
	if (!is_held(skb, port, &key, &t, v4))
		return TC_ACT_UNSPEC;
	return hold(p, &key, bpf_ntohl(t.seq), skb->vlan_present);
}

/* TC_ACT_UNSPEC: whoever else has a program there, else the kernel. */
SEC("tc")
int guard(struct __sk_buff *skb)
{
	struct iphdr *ip;
	struct ipv6hdr *ip6;
	struct place p;
	__u8 addrs[32];

	if (skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!reach(skb, ETH_HLEN + sizeof(*ip)))
			return TC_ACT_UNSPEC;
		ip = (void *)(long)skb->data + ETH_HLEN;
		if ((void *)(ip + 1) > (void *)(long)skb->data_end)
			return TC_ACT_UNSPEC;
		p = place_v4(ip);
		return judge(skb, &p, &ip->saddr, &ip->daddr, true);
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || !reach(skb, ETH_HLEN + sizeof(*ip6)))
		return TC_ACT_UNSPEC;
	ip6 = (void *)(long)skb->data + ETH_HLEN;
	if ((void *)(ip6 + 1) > (void *)(long)skb->data_end)
		return TC_ACT_UNSPEC;
	if (ip6->nexthdr != IPPROTO_TCP && !is_extension(ip6->nexthdr))
		return TC_ACT_UNSPEC;
	__builtin_memcpy(addrs, &ip6->saddr, sizeof(addrs));
	p = place_behind(skb, ip6->nexthdr);
	return judge(skb, &p, addrs, addrs + 16, false);
}

char _license[] SEC("license") = "Dual BSD/GPL";
