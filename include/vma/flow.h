/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flow keys: what bpf/steer.bpf.c looks up and lib/ring/xdp writes. Read by bpf/, lib/, tools/ and
 * kmod/: fixed-width types, no libc.
 */
#ifndef VMA_FLOW_H
#define VMA_FLOW_H

#include <linux/types.h>

/* IPv4 addresses are stored v4-mapped (::ffff:a.b.c.d), so one key carries both families. */
struct vma_addr {
	__u8 byte[16];
};

/*
 * A flow as the local host sees it: "local" is the packet's destination.
 * A 3-tuple flow has remote = :: and remote_port = 0. A multicast flow has the group as local.
 * Ports are in host byte order, so that `bpftool map dump` prints the number people know.
 * With port_bits the flow is all of 2^port_bits local ports, of which local_port is the first, a
 * multiple of that: for rings that say so only (ring_caps.port_blocks); the steering program knows
 * none. There is no implicit padding: the key is hashed as bytes.
 */
struct vma_flow_key {
	struct vma_addr local;
	struct vma_addr remote;
	__u16 local_port;
	__u16 remote_port;
	__u8 proto; /* IPPROTO_UDP or IPPROTO_TCP */
	__u8 port_bits;
	__u8 reserved[2]; /* zero */
};

/*
 * The owner of a flow, for a dump, and the rings that serve it: one of that process, or several, of
 * which a remote address and port always get the same one. Several have a flow with SO_REUSEPORT,
 * and of a listener that processes share by fork(): pid and fd are the first one's then.
 */
#define VMA_FLOW_RINGS_MAX 16 /* a power of two */
#define VMA_FLOW_JOINT 1u /* of such a listener: other processes may have it, too */
struct vma_flow_info {
	__u32 pid;
	__u32 fd;
	__u8 num_rings;
	__u8 flags; /* VMA_FLOW_JOINT */
	__u8 reserved[2];
	__u8 ring[VMA_FLOW_RINGS_MAX];
};

/*
 * Where the steering program finds the XSK of a queue: rings of one process come one after the
 * other.
 */
#define VMA_XSK_QUEUES 64u
#define VMA_XSK_RINGS 64u

/*
 * Who attached the steering program: enough to name the process and to tell it from a later one
 * with the same pid.
 */
struct vma_port_owner {
	__u32 pid;
	__u32 ifindex;
	__u64 start_time; /* clock ticks since boot, field 22 of /proc/<pid>/stat */
};

/*
 * Where that process has what others of its user may join (lib/ring/xdp/member.c): the number of a
 * descriptor. Beside vma_port_owner, which other versions of the library read, too.
 */
struct vma_port_pool {
	__s32 fd; /* or one of these: */
#define VMA_PORT_POOL_NONE -1
#define VMA_PORT_POOL_COMING -2 /* in some milliseconds; if it is killed before, it is gone */
	__u32 uid;
};

#define VMA_ROWS_ALL 0xffffffffu /* of the XSKs' table; else the number of one row */

/* What the steering program and the guard behind it count, for each CPU. */
struct vma_steer_counters {
	/*
	 * UDP superframes of a registered flow that user space cannot take apart, left to the
	 * kernel
	 */
	__u64 passed_gso;
	/*
	 * TCP segments of flows in user space that came past the steering program, held back from
	 * the kernel: fragments; with a VLAN tag; behind IP options or extension headers; such as
	 * it takes otherwise, while it was off the interface or in a queue without XSK.
	 */
	__u64 held_fragment, held_tagged, held_headers, held_plain;
};

/*
 * The ring buffer by which the guard names flows whose segments it holds back again and again. What
 * finds no room is told again.
 */
#define VMA_STRAYS_BYTES 4096

struct vma_stray {
	struct vma_flow_key key; /* exact */
	__u32 seq; /* of the latest segment, host order: anybody may have sent it */
};

/*
 * A GSO burst: UDP datagrams of one size behind one set of headers, the last one may be shorter.
 * The steering program writes this directly in front of the frame, as XDP metadata, and the kernel
 * copies both to the XSK. In front of any other frame the program writes zeroes once there has been
 * a burst.
 */
struct vma_gso_burst {
	__u32 magic;
	__u16 size; /* payload bytes of each datagram */
	__u16 count; /* datagrams */
};

#define VMA_GSO_BURST_MAGIC 0x6e696174u

/*
 * When the device received a frame (VMA_XDP_METADATA): written in the same way. Once somebody wants
 * it, it stands in front of each frame.
 */
struct vma_rx_stamp {
	__u64 ns; /* of the device's clock */
	__u32 magic; /* another value: the driver has told none */
	__u32 reserved;
};

#define VMA_RX_STAMP_MAGIC 0x706d7473u

/*
 * An entry of the `ports` map (index: proto_index * 65536 + local port): what the flow table holds
 * for the port.
 */
struct vma_port {
	__u32 flags; /* 0: nothing */
	/*
	 * With VMA_PORT_SOLE4: the one IPv4 flow, so that the flow table need not be asked.
	 * Addresses in network order.
	 */
	__u32 local;
	__u32 remote; /* 0: any */
	__u16 remote_port;
	__u16 ring;
};

#define VMA_PORT_3TUPLE 1u /* a 3-tuple or multicast flow with this port exists */
#define VMA_PORT_EXACT 2u /* a flow with a remote side exists */
#define VMA_PORT_SOLE4 4u /* exactly one of them is an IPv4 flow */
/* TCP: the kernel may have connections on the port, too: 3-tuple flows leave it those */
#define VMA_PORT_KERNEL 8u

#define VMA_PORT_INDEX_UDP 0u
#define VMA_PORT_INDEX_TCP 65536u
#define VMA_PORT_INDEX_MAX 131072u

#endif
