/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of flows that live in user space, as the steering program and the one behind it
 * (guard.bpf.c) see it: one set of maps for both.
 */
#ifndef BPF_FLOW_TABLE_H
#define BPF_FLOW_TABLE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "vma/flow.h"

#define MAX_FLOWS 65536

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct vma_flow_key);
	__type(value, struct vma_flow_info);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VMA_PORT_INDEX_MAX);
	__uint(map_flags, BPF_F_MMAPABLE); /* the library writes it without system calls */
	__type(key, __u32);
	__type(value, struct vma_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, VMA_XSK_QUEUES *VMA_XSK_RINGS);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* None of these is touched when a packet is redirected. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct vma_steer_counters);
} counters SEC(".maps");

struct l4_ports {
	__be16 source;
	__be16 dest;
};

/*
 * addr = the 4 or 16 bytes at p, v4-mapped. Wide loads: headers behind Ethernet are aligned to 2
 * bytes only.
 */
static __always_inline void addr_load(struct vma_addr *addr, const void *p, bool v4)
{
	__u64 *to = (__u64 *)addr;

	if (v4) {
		to[0] = 0;
		to[1] = bpf_htonl(0xffff) | (__u64) * (const __u32 *)p << 32;
	} else {
		to[0] = ((const __u64 *)p)[0];
		to[1] = ((const __u64 *)p)[1];
	}
}

/* The sequence numbers lie between the ports and these flags. */
struct tcp_start {
	struct l4_ports ports;
	__be32 seq, ack;
	__u8 doff, flags;
};

#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define TCP_RST 0x04
#define SK_TIME_WAIT 6
#define SK_LISTEN 10 /* enum bpf_tcp_state: the UAPI has it as BPF_TCP_LISTEN since 4.15 */

/* A segment that opens a connection. */
static __always_inline bool opens(__u8 flags)
{
	return (flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN;
}

/* The kernel has a connection of these addresses (4 or 16 bytes each). ctx: an xdp_md or __sk_buff
 */
static __always_inline bool kernel_has(void *ctx, const struct l4_ports *l4, const void *src,
				       const void *dst, bool v4)
{
	struct bpf_sock_tuple tuple;
	struct bpf_sock *sk;
	bool has;

	if (v4) {
		tuple.ipv4.saddr = *(const __u32 *)src;
		tuple.ipv4.daddr = *(const __u32 *)dst;
		tuple.ipv4.sport = l4->source;
		tuple.ipv4.dport = l4->dest;
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, src, 16);
		__builtin_memcpy(tuple.ipv6.daddr, dst, 16);
		tuple.ipv6.sport = l4->source;
		tuple.ipv6.dport = l4->dest;
		sk = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!sk)
		return false;
	/* The tuple of a TIME_WAIT may be a new connection's, whose SYN went to the listener. */
	has = sk->state != SK_LISTEN && sk->state != SK_TIME_WAIT;
	bpf_sk_release(sk);
	return has;
}

#endif
