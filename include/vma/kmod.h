/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What /dev/vma and the library say to each other; docs/abi/dev-vma describes it. Fixed-width
 * types, every struct a multiple of 8 bytes without padding, so that a 32-bit process passes the
 * same bytes. Fields named reserved are zero.
 *
 * A process opens the device once, with O_CLOEXEC, and sets it up. What it registers then belongs
 * to that process only: a forked child that inherits the fd can do nothing with it, nor can the
 * program after an exec, and all of it ends at the owner's first close() of the fd, which O_CLOEXEC
 * makes an exec, and at its death, however it dies.
 */
#ifndef VMA_KMOD_H
#define VMA_KMOD_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "vma/flow.h"

/* Raised when a program of before would be misunderstood. */
#define VMA_KMOD_VERSION 1u

#define VMA_KMOD_CONNS_MAX 65536u
#define VMA_KMOD_RING_MIN 65536u /* bytes; a packet of 64 KiB needs more */
#define VMA_KMOD_RING_MAX (16u << 20)

/*
 * Where in the device the parts are mapped (MAP_SHARED, from the beginning, no longer than said at
 * set-up).
 */
#define VMA_KMOD_MAP_CONNS 0ull
#define VMA_KMOD_MAP_STATS 0x100000000ull
#define VMA_KMOD_MAP_RING 0x200000000ull
#define VMA_KMOD_MAP_REGION(id) (((__u64)(id) + 1) << 36)

/* vma_kmod_setup.features */
#define VMA_KMOD_HAS_CONNS 1ull
#define VMA_KMOD_HAS_STATS 2ull
#define VMA_KMOD_HAS_REGIONS 4ull
#define VMA_KMOD_HAS_FALLBACK 8ull

/*
 * First of all, once. EPROTO: another version; EALREADY: for the second time; EINVAL: out of range;
 * ENOMEM. 0 in one of the sizes: not wanted. The last four are answers: what there is, and how many
 * bytes of it can be mapped.
 */
struct vma_kmod_setup {
	__u32 version; /* VMA_KMOD_VERSION */
	__u32 sockets; /* in the statistics pages (vma/stats.h), at most VMA_STATS_SOCKETS_MAX */
	__u32 conns; /* slots for flows, at most VMA_KMOD_CONNS_MAX */
	__u32 ring; /* bytes of the fallback ring: a power of two, from _RING_MIN to _RING_MAX */
	__u64 reserved[2];
	__u64 features;
	__u64 stats_bytes;
	__u64 conns_bytes;
	__u64 ring_bytes;
};

/* vma_kmod_conn.flags; at least one. */
#define VMA_KMOD_CONN_RST 1u /* TCP: the peer gets a reset if the process dies */
#define VMA_KMOD_CONN_FALLBACK 2u /* packets of the flow that reach the kernel go to the ring */

/*
 * A flow of the caller's. fd is a kernel socket of the caller's, of the same network namespace and
 * protocol, that is bound to the local side; with CAP_NET_RAW in the namespace it need not be
 * bound. The registration is void while that socket is not bound any more (the CAP_NET_RAW kind:
 * closed). TCP flows have a remote side; UDP flows may have none.
 *
 * EBADF, ENOTSOCK; EPROTOTYPE: another protocol than the socket; EISCONN: the kernel serves this
 * socket; EPERM: not the caller's address or port; EADDRNOTAVAIL: not an address of this host;
 * EADDRINUSE: the kernel or another registration has the flow; ENOSPC: no free slot.
 */
struct vma_kmod_conn {
	__s32 fd;
	__u32 flags;
	struct vma_flow_key key;
	__u32 slot; /* answer */
	__u32 reserved;
};

/* The flow is nobody's any more; no reset is sent. ENOENT: no such registration. */
struct vma_kmod_unconn {
	__u32 slot;
	__u32 reserved;
};

/*
 * A registration's slot, an array at VMA_KMOD_MAP_CONNS, zeroed when it is handed out. The library
 * writes, the kernel reads each word once, when the process dies. Nothing in it can name a
 * connection.
 */
struct vma_kmod_slot {
	__u32 seq; /* snd_nxt */
	__u32 ack; /* rcv_nxt */
	__u32 live; /* 0: closed cleanly, no reset */
	__u32 reserved;
};

enum vma_kmod_mem {
	VMA_KMOD_MEM_CONTIG = 1, /* physically contiguous, in blocks of up to 4 MiB */
	VMA_KMOD_MEM_HUGE = 2, /* in blocks of 2 MiB, or not at all */
	VMA_KMOD_MEM_GIGA = 3, /* in blocks of 1 GiB, or not at all */
};

/*
 * Pinned, zeroed memory, mapped once or more at `offset`; gone with its last mapping. Counted
 * against RLIMIT_MEMLOCK of the user, together with AF_XDP's and io_uring's, unless CAP_IPC_LOCK.
 * EPERM: the limit is 0; ENOMEM: over the limit, or there is no such memory; EINVAL; ENOSPC: 255
 * regions.
 */
struct vma_kmod_region {
	__u64 bytes; /* rounded up to whole blocks: the answer is what can be mapped */
	__u32 kind; /* enum vma_kmod_mem */
	__s32 node; /* NUMA node, -1: any */
	__u64 offset; /* answer */
	__u64 block; /* answer: bytes that are physically contiguous, and aligned so */
	__u64 reserved;
};

/*
 * What the sequence numbers of all processes in the caller's network namespace are made from,
 * whoever's they are: drawn when the module was loaded. EPERM: without CAP_NET_RAW in the initial
 * user namespace. Who has that can see and forge the namespace's packets anyway.
 */
struct vma_kmod_secret {
	__u64 words[4]; /* answer */
};

#define VMA_KMOD_IOC 0xB7
#define VMA_KMOD_SETUP _IOWR(VMA_KMOD_IOC, 0, struct vma_kmod_setup)
#define VMA_KMOD_CONN _IOWR(VMA_KMOD_IOC, 1, struct vma_kmod_conn)
#define VMA_KMOD_UNCONN _IOW(VMA_KMOD_IOC, 2, struct vma_kmod_unconn)
#define VMA_KMOD_REGION _IOWR(VMA_KMOD_IOC, 3, struct vma_kmod_region)
#define VMA_KMOD_SECRET _IOR(VMA_KMOD_IOC, 4, struct vma_kmod_secret)

/*
 * The fallback ring: this head, and VMA_KMOD_RING_DATA bytes from the mapping's beginning the data.
 * Both positions count bytes and wrap at 2^32. poll() of the device says POLLIN while the ring is
 * not empty.
 */
struct vma_kmod_ring {
	__u32 produced; /* kernel; a store-release, after the records */
	__u32 reserved[15];
	__u32 consumed; /* library; a store-release, after it has read the records */
	__u32 reserved2[15];
	__u64 packets; /* kernel */
	__u64 dropped; /* kernel: the ring was full */
};

#define VMA_KMOD_RING_DATA 4096u

/*
 * A record begins at a multiple of 8 and is not wrapped; behind it stands the packet from its IP
 * header on.
 */
struct vma_kmod_record {
	__u32 len; /* of the packet; VMA_KMOD_RECORD_SKIP: nothing more up to the data's end */
	__u32 slot;
	__u32 ifindex;
	__u16 gso_size; /* payload of each segment when the kernel has merged several, else 0 */
	__u16 flags;
};

#define VMA_KMOD_RECORD_SKIP 0xffffffffu
#define VMA_KMOD_RECORD_CSUM_OK 1u /* the device or the kernel vouches for the L4 checksum */

#endif
