/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The statistics pages <VMA_STATS_SHMEM_DIR>/vmastat.<pid>: written by the library, mapped
 * read-only by vma_stats (the few control words: read-write by the same user). One writer for each
 * word (but for `select` and `poll`, where threads that count at once may lose a count), 64-bit,
 * relaxed stores; a reader may see one counter a moment before another, never half a counter.
 * Fixed-width types, no libc.
 *
 *   header | socket[max_sockets]
 *
 * A socket's base is what `vma_stats -z` writes and every reader subtracts: zeroing so races with
 * no counting thread and loses nothing. The library never reads one.
 */
#ifndef VMA_STATS_H
#define VMA_STATS_H

#include <linux/types.h>
#include "vma/flow.h"

#define VMA_STATS_MAGIC 0x74617453414d5601ull
/* Raised with every change of a struct below; a tool of another version says so and exits. */
#define VMA_STATS_VERSION 7u

/* The file is not longer than for this many sockets, whatever VMA_STATS_FD_NUM says. */
#define VMA_STATS_SOCKETS_MAX 1024
#define VMA_STATS_RINGS 16
#define VMA_STATS_CQS 16
#define VMA_STATS_POOLS 2
#define VMA_STATS_EPOLLS 32
#define VMA_STATS_GROUPS 64 /* multicast memberships shown per socket */

struct vma_stats_counters {
	__u64 packets, bytes, eagain, errors;
	__u64 os_packets, os_bytes, os_eagain, os_errors;
};

enum vma_stats_state { /* TCP states of RFC 9293, in the order of view 5 */
		       VMA_STATE_CLOSED,
		       VMA_STATE_LISTEN,
		       VMA_STATE_SYN_SENT,
		       VMA_STATE_SYN_RCVD,
		       VMA_STATE_ESTABLISHED,
		       VMA_STATE_FIN_WAIT_1,
		       VMA_STATE_FIN_WAIT_2,
		       VMA_STATE_CLOSE_WAIT,
		       VMA_STATE_CLOSING,
		       VMA_STATE_LAST_ACK,
		       VMA_STATE_TIME_WAIT,
};

/* Why a wait for a socket or a set slept: constant, name, text. New ones come last. */
#define VMA_SLEPT_LIST(X)                                                                          \
	X(SETTING, "setting", "VMA_RX_POLL or VMA_SELECT_POLL says so")                            \
	X(WINDOW, "window", "it lasted longer than a spin")                                        \
	X(LONG, "long", "its waits have been too long for any spin")                               \
	X(SHARED, "shared", "somebody else wants the processor")                                   \
	X(BUDGET, "budget", "the thread's spins have brought too little")                          \
	X(CROWD, "crowd", "enough threads spin already")                                           \
	X(QUOTA, "quota", "half of the control group's processor time is used")                    \
	X(KERNEL, "kernel", "the set has nothing that is offloaded")

enum vma_slept {
#define VMA_SLEPT_ENUM(constant, name, text) VMA_SLEPT_##constant,
	VMA_SLEPT_LIST(VMA_SLEPT_ENUM)
#undef VMA_SLEPT_ENUM
		VMA_SLEPTS
};

/* Waits that did not find at once what they waited for. */
struct vma_stats_waits {
	__u64 spun; /* it came while the thread spun */
	__u64 spun_in_vain; /* spun, and slept or gave up all the same */
	__u64 slept;
	__u64 why[VMA_SLEPTS]; /* slept, by reason */
};

/* In the order of the socket's 64-bit counters that only grow (tools/vma_stats/fields.c). */
#define VMA_STATS_SOCKET_COUNTERS (28 + VMA_SLEPTS)
struct vma_stats_base {
	__u32 generation, reserved;
	__u64 counter[VMA_STATS_SOCKET_COUNTERS];
};

/*
 * What a connection's engine had at the library's last look; zero where it has none. Sequence
 * numbers and windows as in RFC 9293, windows and buffers in bytes, cwnd, ssthresh and what is on
 * the way in segments.
 */
struct vma_stats_tcp {
	__u32 mss, advmss;
	__u32 wscale, snd_wscale, rcv_wscale; /* wscale: 1 if both sides scale */
	__u32 rcv_nxt, rcv_wup, rcv_wnd; /* rcv_wup: rcv_nxt when the window was last told */
	__u32 snd_una, snd_nxt, snd_wnd, snd_wnd_max, snd_wl1, write_seq;
	__u32 cwnd, ssthresh, unacked, sacked, lost;
	__u32 rto_us, srtt_us, rttvar_us; /* us, srtt 0: no sample yet */
	__u32 retries, retransmits; /* of the oldest segment; of the connection, ever */
	__u32 rcvbuf, rcvbuf_used, sndbuf,
		sndbuf_used; /* SO_RCVBUF and memory used of it; send too */
	__u32 reordered_bytes; /* memory of what waits for a gap to close */
	__u32 flags; /* VMA_STATS_TCP_* */
	__u32 rcv_wnd_max; /* no receive window is larger as things are */
	__u32 rtime_us; /* until the retransmission timer ends, 0: it does not run */
	/* bytes of the oldest transmission that is not acknowledged; where the newest one begins */
	__u32 unacked_first_len, unacked_last_seq;
};

#define VMA_STATS_TCP_TIMESTAMPS 0x1u
#define VMA_STATS_TCP_SACK 0x2u
#define VMA_STATS_TCP_ECN 0x4u
#define VMA_STATS_TCP_NODELAY 0x8u
#define VMA_STATS_TCP_CORK 0x10u

/*
 * Why the kernel serves a socket, or a part of its calls: constant, name, text. New ones come last.
 * The detail is what the comment says, else 0.
 */
#define VMA_WHY_LIST(X)                                                                            \
	X(RULE, "rule", "a rule of VMA_CONFIG_FILE")                                               \
	/* level << 16 | option */                                                                 \
	X(OPTION, "option", "a socket option that user space does not have")                       \
	X(ASYNC, "async", "O_ASYNC")                                                               \
	X(MEMBERSHIP, "membership", "a multicast membership that user space does not follow")      \
	X(STAMPS, "stamps", "time stamps that only the kernel can give")                           \
	X(SHARED_PORT, "shared-port", "another process's socket shares the port")                  \
	X(FORK, "fork", "another process has it, too, since fork()")                               \
	X(PASSED, "passed", "another program has it, too")                                         \
	X(IO_URING, "io-uring", "io_uring or io_submit() works on it")                             \
	X(STDIO, "stdio", "libc reads and writes it by itself")                                    \
	X(RING_GONE, "ring-gone", "its ring is gone")                                              \
	X(STRAY, "stray", "what its peer sends does not come by the ring")                         \
	X(LOCAL, "local", "the address is this host's own")                                        \
	X(ADDRESS, "address", "no address that user space can serve")                              \
	X(GROUP_CONNECTED, "group-connected", "bound to a multicast group, and connected")         \
	X(MULTICAST_LOOP, "multicast-loop", "multicast that this host may want to hear, too")      \
	X(BROADCAST, "broadcast", "a broadcast")                                                   \
	X(ROUTE, "route", "no route to another host")                                              \
	X(NEIGHBOUR, "neighbour", "the neighbour's address is not known yet")                      \
	X(NOT_ETHERNET, "not-ethernet", "the interface is not Ethernet")                           \
	X(SLAVE, "slave", "the interface is part of a bond or a bridge")                           \
	X(DOWN, "down", "the interface is down")                                                   \
	X(OWNER, "owner", "another process has the interface's queues")                            \
	/* its number */                                                                           \
	X(CAPABILITY, "capability", "a capability is missing")                                     \
	/* errno */                                                                                \
	X(NO_RING, "no-ring", "the interface gives no queues")                                     \
	/* errno */                                                                                \
	X(STEERING, "steering", "the steering rule cannot be set")                                 \
	X(MTU, "mtu", "the MTU leaves no room for the headers")                                    \
	X(FRAGMENT, "fragment", "a datagram that must be sent in fragments")                       \
	X(SEGMENTS, "segments", "UDP_SEGMENT that the ring cannot cut")                            \
	X(RING_FULL, "ring-full", "the ring was full")                                             \
	/* the flags */                                                                            \
	X(FLAGS, "flags", "a flag of the call that user space does not have")                      \
	X(CORKED, "corked", "MSG_MORE or UDP_CORK")                                                \
	X(ANCILLARY, "ancillary", "ancillary data that user space does not have")                  \
	X(SEVERAL_WAYS, "several-ways",                                                            \
	  "connections to the address may come by several interfaces")                             \
	X(CROWD, "many-threads", "more threads wait than there are processors")                    \
	X(QUEUES, "queues", "packets come by receive queues that the program does not have")       \
	X(OTHER_WAY, "other-interface", "what it sends leaves by another interface")               \
	X(IPSEC, "ipsec", "the host has IPsec policies, which only the kernel follows")

enum vma_why {
	VMA_WHY_NONE,
#define VMA_WHY_ENUM(constant, name, text) VMA_WHY_##constant,
	VMA_WHY_LIST(VMA_WHY_ENUM)
#undef VMA_WHY_ENUM
		VMA_WHYS
};

/* Of what: all of the socket; what it receives, or accepts; what it sends, or connects to. */
enum vma_why_path { VMA_WHY_SOCKET, VMA_WHY_RX, VMA_WHY_TX, VMA_WHY_PATHS };

struct vma_stats_why {
	__u32 reason; /* enum vma_why, the latest one; VMA_WHY_NONE: it is offloaded, or not used */
	__s32 detail;
};

struct vma_stats_socket {
	__u32 enabled; /* 0: free; written last at creation, first at removal */
	__s32 fd;
	__u64 inode;
	__u8 family; /* AF_INET or AF_INET6 */
	__u8 proto; /* IPPROTO_TCP or IPPROTO_UDP */
	__u8 state; /* enum vma_stats_state, TCP only */
	__u8 offloaded, blocking, mc_loop;
	__u8 rx_by_user, tx_by_user; /* its ring is one by a user id: rx_ring_user, tx_ring_user */
	struct vma_addr local, remote; /* v4-mapped for IPv4 */
	__u16 local_port, remote_port;
	__s32 mc_if; /* ifindex of IP_MULTICAST_IF */
	struct vma_addr mc_if_addr; /* its address if the program named one, else zero */
	__u32 rx_tid, tx_tid; /* last thread that received and sent */
	struct vma_stats_counters rx, tx;
	__u64 rx_poll_hit, rx_poll_miss, rx_poll_os_hit;
	__u64 rx_ready_packets, rx_ready_bytes; /* waiting now */
	__u64 rx_ready_packets_max, rx_ready_bytes_max, rx_ready_limit;
	__u64 rx_drop_packets, rx_drop_bytes; /* over the receive buffer's limit */
	__u64 rx_zcopy_buffers;
	__u64 rx_ring_migrations, tx_ring_migrations;
	__u64 tx_retransmits, tx_dummy, tx_ready_bytes;
	struct vma_stats_waits waits;
	__u32 num_groups;
	/* counts the sockets that this block has had: a base belongs to one of them */
	__u32 generation;
	struct vma_addr groups[VMA_STATS_GROUPS];
	struct vma_stats_tcp tcp; /* TCP */
	struct vma_stats_why why[VMA_WHY_PATHS]; /* by path */
	__u64 why_ever; /* a bit for each reason that it has had, 1 << enum vma_why */
	__u32 rx_ring_user, tx_ring_user;
	struct vma_stats_base base; /* written by the tool */
};

struct vma_stats_ring {
	__u32 enabled;
	__s32 ifindex;
	char type[16]; /* "RING_XDP", "RING_ETH" */
	char ifname[16];
	/*
	 * AF_XDP's: "zero-copy", "native", "generic"; behind it "+poll" with VMA_XDP_BUSY_POLL, and
	 * "+metadata" with VMA_XDP_METADATA. Others' is empty.
	 */
	char mode[32];
	__u64 rx_packets, rx_bytes, tx_packets, tx_bytes, tx_gso_frames;
	__u64 rx_drop_no_buf, rx_drop_invalid, tx_drop_oversize, tx_full, kicks;
	__u64 interrupts_requested, interrupts_received, retransmits;
	/* Packets that the protocol core refused, by reason. */
	__u64 drop_malformed, drop_checksum, drop_no_socket, drop_other;
	/* What was sent from the device's memory; packets for which that had no room. */
	__u64 dev_mem_bytes, dev_mem_packets, dev_mem_oob;
	/* An interrupt waits for so many frames, or so long; both 0: for nothing. */
	__u64 moderation_frames, moderation_usec;
	__u64 dev_mem_alloc; /* bytes of the device's memory to send from (VMA_RING_DEV_MEM_TX) */
};

struct vma_stats_cq {
	__u32 enabled, reserved;
	__u64 drops, queue_len, drained_max, pool_len;
};

struct vma_stats_pool {
	__u32 enabled, is_rx;
	__u64 size, no_buffers;
};

struct vma_stats_iomux {
	__u32 enabled;
	__s32 epfd; /* -1 for select and poll */
	__u32 tid, polling_cpu; /* percent */
	__u64 ready_os, ready_offloaded, poll_hit, poll_miss, timeouts, errors;
	struct vma_stats_waits waits;
};

/* dump_fd when nothing is asked for; 0 asks for all sockets. */
#define VMA_STATS_DUMP_NONE (-1)

struct vma_stats_header {
	/*
	 * These 32 bytes stay where they are in every version: a tool of another one reads no
	 * further.
	 */
	__u64 magic;
	__u32 version, header_size, socket_size, max_sockets;
	__u32 pid;
	__u8 release[4]; /* of the library: major, minor, revision, layout version */
	__u64 start_time; /* seconds since the epoch */
	char library_version[32];
	char program[64];
	/*
	 * Control words: the only ones that a tool writes (same user or root), the library reads
	 * them each 100 ms.
	 */
	__s32 log_level, log_details, dump_fd, dump_fd_level;
	/*
	 * vma_stats capture (vma/capture.h): a number that the tool chose, 0: none, written after
	 * the two others. Bytes; the library cuts them to what it allows.
	 */
	__u32 capture, capture_snap, capture_bytes;
	/*
	 * The library's answer to the number capture_is: the memfd's descriptor in its process (-1:
	 * none), or why there is none, errno.
	 */
	__u32 capture_is;
	__s32 capture_fd, capture_error;
	struct vma_stats_ring rings[VMA_STATS_RINGS];
	struct vma_stats_cq cqs[VMA_STATS_CQS];
	struct vma_stats_pool pools[VMA_STATS_POOLS];
	struct vma_stats_iomux select, poll, epoll[VMA_STATS_EPOLLS];
	/*
	 * The counters of those that are no more, added up. Of the other fields generation is odd
	 * while those of a socket are moved here, and another one after it; the rest are 0.
	 */
	struct vma_stats_socket closed_sockets;
	struct vma_stats_ring closed_rings;
};

#endif
