/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steering: a packet whose flow somebody registered goes to the XSK of its queue, every other
 * packet to the kernel. A miss costs one parse and one array lookup (`ports`); the flow table is
 * asked only for ports with several flows. The library loads it as a fragments-aware program
 * ("xdp.frags") in native mode, as a plain one in generic mode, where the kernel would first copy
 * each packet to pages (ping-pong +17 %, flood at a third: tests/bench/floor -f).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "vma/flow.h"
#include "vma/kernel_calls.h"
#include "vma/steer.h"
#include "flow_table.h"

#define KERNEL_CACHE_LINE 64
#define UDP_HLEN 8
#define VLAN_HLEN 4
#define VLAN_VID_MASK 0xfff
#define META_MAX 0xfcu /* of an XDP program's metadata, whole words */
#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */
/*
 * skb_shared_info.gso_type: 1 << 17 since 4.18; bit 1 only says that the sender's word has not been
 * checked.
 */
#define SKB_GSO_DODGY (1u << 1)
#define SKB_GSO_UDP_L4 (1u << 17)

/*
 * The program itself reads nothing in these two: another process finds the owner's name through it.
 * steer() mentions them, so that the maps are the program's before it is attached: its owner may be
 * killed right after that.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vma_port_owner);
} vma_owner SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vma_port_pool);
} vma_pool SEC(".maps");

/*
 * The interface's MAC in its low 48 bits, in packet order; 0: take every packet. Written by the
 * library at any time.
 */
volatile __u64 local_mac;
/* There has been a GSO burst. */
static volatile __u32 bursts;
/* As tells, for who maps this memory. Set before loading. */
volatile __u32 told;
/* The device's time stamps are wanted: set by the library, and never taken back. */
volatile __u32 stamps;

/*
 * Generic mode: the packet is an skb, so a GSO burst of datagrams can be told from a single
 * datagram. Set before loading.
 */
const volatile __u32 generic_mode;
/* The XSKs take frames of several chunks: GSO bursts go to them. Otherwise the kernel gets them. */
const volatile __u32 take_gso_bursts;
/*
 * VMA_RX_TELLS_*: what the driver is asked for. In native mode only, and the program is bound to
 * the device then.
 */
const volatile __u32 tells;
/* The kernel has the casts below (6.2); before it the same words are fetched by probe reads. */
const volatile __u32 have_cast;
/* Where gso_size_of() reads; generic mode only. */
const volatile struct vma_steer_kernel kernel;

static void *(*const cast_to_kern_ctx)(void *ctx) = (void *)VMA_CALL_CAST_CTX;
static void *(*const rdonly_cast)(void *obj, __u32 btf_id) = (void *)VMA_CALL_CAST_RDONLY;
static int (*const rx_timestamp)(struct xdp_md *ctx, __u64 *ns) = (void *)VMA_CALL_RX_TIMESTAMP;
static int (*const rx_vlan_tag)(struct xdp_md *ctx, __be16 *proto,
				__u16 *tci) = (void *)VMA_CALL_RX_VLAN_TAG;

/*
 * The size and the kind of the segments of the skb behind ctx; 0: it is no superframe. Generic mode
 * only.
 */
static __always_inline __u16 gso_size_of(struct xdp_md *ctx, __u32 *type)
{
	const __u64 tail = ((__u64)kernel.shared_info_size + KERNEL_CACHE_LINE - 1) &
			   ~(KERNEL_CACHE_LINE - 1ull);
	void *x, *info, *start = NULL;
	__u32 size = 0;
	__u16 gso_size = 0;

	if (have_cast) {
		x = cast_to_kern_ctx(ctx);
		start = *(void **)(x + kernel.data_hard_start);
		size = *(__u32 *)(x + kernel.frame_sz);
		info = rdonly_cast(start + size - tail, kernel.shared_info_id);
		*type = *(__u32 *)(info + kernel.gso_type);
		return *(__u16 *)(info + kernel.gso_size);
	}
	x = ctx;
	bpf_probe_read_kernel(&start, sizeof(start), x + kernel.data_hard_start);
	bpf_probe_read_kernel(&size, sizeof(size), x + kernel.frame_sz);
	info = start + size - tail;
	bpf_probe_read_kernel(type, sizeof(*type), info + kernel.gso_type);
	bpf_probe_read_kernel(&gso_size, sizeof(gso_size), info + kernel.gso_size);
	return gso_size;
}

/*
 * So many bytes directly in front of the frame, where a program before this one may have written
 * what only the kernel could have read. NULL: there is no room. Pointers into the frame are over.
 */
static __always_inline void *in_front(struct xdp_md *ctx, __u32 bytes)
{
	__u32 skip = ctx->data - ctx->data_meta;
	void *at;

	if (skip < bytes && bpf_xdp_adjust_meta(ctx, -(int)bytes))
		return NULL;
	skip = (ctx->data - ctx->data_meta - bytes) & META_MAX;
	at = (void *)(long)ctx->data_meta + skip;
	return at + bytes > (void *)(long)ctx->data ? NULL : at;
}

/*
 * Writes in front of the frame that it is a GSO burst of count datagrams of size bytes each; count
 * 0: that it is none. False: there is no room.
 */
static __always_inline bool mark(struct xdp_md *ctx, __u16 size, __u16 count)
{
	struct vma_gso_burst *t = in_front(ctx, sizeof(*t));

	if (!t)
		return false;
	t->magic = count ? VMA_GSO_BURST_MAGIC : 0;
	t->size = size;
	t->count = count;
	return true;
}

/*
 * Says where the datagrams of a superframe end: an XSK gets the bytes and nothing else. False: not
 * a GSO burst of datagrams (an IP packet that will be fragmented, a tunnel's), or there is no room;
 * the kernel must take it.
 */
static __always_inline bool mark_gso_burst(struct xdp_md *ctx, __u16 size, __u32 type,
					   __u32 hdr_len)
{
	__u32 len = ctx->data_end - ctx->data, count;

	if (!take_gso_bursts || (type & ~SKB_GSO_DODGY) != SKB_GSO_UDP_L4 || len <= hdr_len + size)
		return false;
	/* Of an earlier program, for the kernel: it gets the frame. */
	if (ctx->data_meta != ctx->data)
		return false;
	count = (len - hdr_len + size - 1) / size;
	if (!bursts)
		bursts = 1;
	return count <= 0xffff && mark(ctx, size, (__u16)count);
}

/*
 * A TCP segment for a listener's rule on a port where the kernel, too, may have connections
 * (accepted before the rule stood): true when this one is the kernel's. A SYN, too: of a client
 * that has begun anew from its old port, or whose handshake the kernel has begun. Who made the
 * answer to it must get the rest.
 */
static __always_inline bool kernel_owns(struct xdp_md *ctx, const struct l4_ports *l4,
					const void *src, const void *dst, bool v4)
{
	const struct tcp_start *t = (const void *)l4;

	if ((void *)(t + 1) > (void *)(long)ctx->data_end)
		return true;
	return kernel_has(ctx, l4, src, dst, v4);
}

/* One of the rings that share a flow, by the remote side. */
static __always_inline __s32 ring_of(const struct vma_flow_info *f, const void *src, bool v4,
				     __be16 source)
{
	__u32 hash, n = f->num_rings;

	if (n < 2)
		return f->ring[0];
	/* Of an IPv6 address the end: what differs between neighbours. */
	hash = *(const __u32 *)(src + (v4 ? 0 : 12)) ^ ((__u32)source * 0x9e3779b1u);
	hash = (hash ^ hash >> 16) * 0x85ebca6bu;
	hash = (hash ^ hash >> 13) % n;
	/* for the verifier, which does not know n's limit */
	return f->ring[hash & (VMA_FLOW_RINGS_MAX - 1)];
}

/*
 * A tag of VLAN 0 says a priority and nothing else: the frame is the interface's own. Those of
 * VLANs are the kernel's.
 */
static __always_inline bool is_priority_tag(__be16 type, __be16 tag)
{
	return (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) &&
	       !(tag & bpf_htons(VLAN_VID_MASK));
}

/* The device, or the sender's, has taken the tag of a VLAN off the frame. */
static __always_inline bool had_vlan_tag(struct xdp_md *ctx)
{
	__be16 proto = 0;
	__u16 tci = 0; /* what it stays where there is none */

	(void)rx_vlan_tag(ctx, &proto, &tci);
	return tci & VLAN_VID_MASK;
}

/* Writes in front of the frame when the device received it. */
static __always_inline void stamp(struct xdp_md *ctx)
{
	struct vma_rx_stamp *t;
	__u64 ns = 0; /* what it stays where the driver does not know */

	(void)rx_timestamp(ctx, &ns);
	t = in_front(ctx, sizeof(*t));
	if (!t)
		return;
	t->ns = ns;
	t->magic = ns ? VMA_RX_STAMP_MAGIC : 0;
	t->reserved = 0;
}

#define RING_NONE -1

/* The ring that somebody registered for the flow of this packet; RING_NONE: nobody did. */
static __always_inline __s32 flow_ring(struct xdp_md *ctx, const struct l4_ports *l4, __u8 proto,
				       const void *src, const void *dst, bool v4)
{
	__u32 index = bpf_ntohs(l4->dest) +
		      (proto == IPPROTO_TCP ? VMA_PORT_INDEX_TCP : VMA_PORT_INDEX_UDP);
	struct vma_flow_info *info;
	struct vma_flow_key key;
	struct vma_port *port;
	__u32 flags;

	port = bpf_map_lookup_elem(&ports, &index);
	if (!port)
		return RING_NONE;
	flags = port->flags;
	if (!flags)
		return RING_NONE;
	/*
	 * The usual case: a comparison instead of hashing 40 bytes (50 to 80 ns of a
	 * ping-pong's 1.1 us).
	 */
	if (v4 && (flags & (VMA_PORT_SOLE4 | VMA_PORT_KERNEL)) == VMA_PORT_SOLE4)
		return port->local == *(const __u32 *)dst &&
				       (!port->remote_port ||
					(port->remote == *(const __u32 *)src &&
					 port->remote_port == bpf_ntohs(l4->source)))
			       ? port->ring
			       : RING_NONE;

	addr_load(&key.local, dst, v4);
	key.local_port = bpf_ntohs(l4->dest);
	*(__u32 *)&key.proto = bpf_htonl((__u32)proto << 24); /* and the reserved bytes */
	if (flags & VMA_PORT_EXACT) {
		addr_load(&key.remote, src, v4);
		key.remote_port = bpf_ntohs(l4->source);
		info = bpf_map_lookup_elem(&flows, &key);
		if (info)
			return ring_of(info, src, v4, l4->source);
	}
	if (!(flags & VMA_PORT_3TUPLE))
		return RING_NONE;
	__builtin_memset(&key.remote, 0, sizeof(key.remote));
	key.remote_port = 0;
	info = bpf_map_lookup_elem(&flows, &key);
	if (!info || (flags & VMA_PORT_KERNEL && kernel_owns(ctx, l4, src, dst, v4)))
		return RING_NONE;
	return ring_of(info, src, v4, l4->source);
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	struct ipv6hdr *ip6 = data + ETH_HLEN;
	__u32 zero = 0, hdr_len = ETH_HLEN + sizeof(*ip) + UDP_HLEN, gso_type = 0;
	__u16 gso_size;
	__be16 type;
	bool tagged;
	__s32 ring;
	__u64 mac;
	__u8 proto;

	/* Never: the verifier takes it out. */
	if (generic_mode > 1 &&
	    (!bpf_map_lookup_elem(&vma_owner, &zero) || !bpf_map_lookup_elem(&vma_pool, &zero)))
		return XDP_ABORTED;
	/* The shortest packet of interest: Ethernet, IPv4, two ports. */
	if ((void *)(ip + 1) + sizeof(struct l4_ports) > end)
		return XDP_PASS;
	/*
	 * A frame for another host (promiscuous mode, a flooding switch) is not ours. Bit 0 of the
	 * first byte: multicast.
	 */
	mac = *(__u32 *)data | (__u64) * (__u16 *)(data + 4) << 32;
	if (mac != local_mac && !(mac & 1) && local_mac)
		return XDP_PASS;

	type = *(__be16 *)(data + 2 * ETH_ALEN);
	tagged = is_priority_tag(type, *(__be16 *)(data + ETH_HLEN));
	if (tagged) {
		ip = data + ETH_HLEN + VLAN_HLEN;
		ip6 = (void *)ip;
		if ((void *)(ip + 1) + sizeof(struct l4_ports) > end)
			return XDP_PASS;
		type = *(__be16 *)((void *)ip - sizeof(type));
	}
	if (type == bpf_htons(ETH_P_IP)) {
		/* Options and fragments are the kernel's. */
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(IP_FRAGMENT))
			return XDP_PASS;
		proto = ip->protocol;
		if (proto != IPPROTO_UDP && proto != IPPROTO_TCP)
			return XDP_PASS;
		ring = flow_ring(ctx, (void *)(ip + 1), proto, &ip->saddr, &ip->daddr, true);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(ip6 + 1) + sizeof(struct l4_ports) > end)
			return XDP_PASS;
		proto = ip6->nexthdr;
		if (proto != IPPROTO_UDP && proto != IPPROTO_TCP)
			return XDP_PASS;
		ring = flow_ring(ctx, (void *)(ip6 + 1), proto, &ip6->saddr, &ip6->daddr, false);
		hdr_len = ETH_HLEN + sizeof(*ip6) + UDP_HLEN;
	} else {
		return XDP_PASS;
	}

	if (ring < 0 || ctx->rx_queue_index >= VMA_XSK_QUEUES)
		return XDP_PASS;
	if (tells & VMA_RX_TELLS_VLAN && had_vlan_tag(ctx))
		return XDP_PASS;
	gso_size = generic_mode && proto == IPPROTO_UDP ? gso_size_of(ctx, &gso_type) : 0;
	if (gso_size && (tagged || !mark_gso_burst(ctx, gso_size, gso_type, hdr_len))) {
		struct vma_steer_counters *c = bpf_map_lookup_elem(&counters, &zero);

		if (c)
			c->passed_gso++;
		return XDP_PASS;
	}
	/*
	 * The kernel copies a frame before it sees that the XSK's ring is full, and takes the chunk
	 * for the next one: the mark of a lost burst would stand in front of that. 22 ns.
	 */
	if (bursts && !gso_size)
		(void)mark(ctx, 0, 0);
	if (tells & VMA_RX_TELLS_STAMP && stamps)
		stamp(ctx);
	return bpf_redirect_map(&xsks, (__u32)ring * VMA_XSK_QUEUES + ctx->rx_queue_index,
				XDP_PASS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
