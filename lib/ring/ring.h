/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of device queues, and the one interface to them: a ring is what a stack sends and
 * receives by. It is opened on a port, which is what this process owns of an interface. Only stacks
 * open rings; they and the sockets of their stacks use them. What a ring can do is in its
 * ring_caps; nobody above asks for the device's name. All functions need the lock of the stack that
 * owns the ring unless they say otherwise. Errors are negative errno.
 *
 * backends.c chooses, when a ring is opened; bond.c says what of bonds. frame_log.c is the log of
 * frames. xdp/ is AF_XDP on any interface (xdp/xdp.h), mlx5/ a
 * ConnectX queue pair (mlx5/mlx5.h). Every packet: rx.c and tx.c of either, xdp/gso.c, mlx5/queue/.
 * captured.c stands in front of either while vma_stats captures.
 */
#ifndef RING_RING_H
#define RING_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <string.h>
#include <sys/uio.h>

#include "mem/mem.h"
#include "runtime/runtime.h"
#include "vma/flow.h"

struct ring;
struct vma_mlx_hw_device_data;

struct ring_caps {
	uint32_t max_frame; /* largest frame, link header included, that post() takes (MTU + 14) */
	uint32_t max_gso; /* largest frame that send_gso() takes; 0: none */
	uint32_t max_rx_frame; /* largest frame that poll() can give */
	bool gso_in_order; /* send_gso() never overtakes what was posted before, nor is overtaken by
			      what comes after; any thread's send_gso() may clear it */
	bool gso_locked; /* send_gso() needs the stack lock, and makes no system call */
	/* device writes the checksums of IP, TCP and UDP into what is posted, whatever is there */
	bool tx_csum;
	bool rx_csum; /* device checks L4 checksums (BUF_CSUM_OK) */
	bool flow_tag;
	/*
	 * a group's flow brings the packets of other groups and ports, too: those of its Ethernet
	 * address
	 */
	bool groups_by_mac;
	/*
	 * a flow costs so much that one for several ports pays (vma_flow_key.port_bits); a refusal
	 * clears it
	 */
	bool port_blocks;
	/*
	 * a 3-tuple flow takes the segments of the kernel's connections, too: port_quiet() changes
	 * nothing
	 */
	bool takes_all;
	/* what this host sends to a group may come back by the device's own loop */
	bool hears_itself;
	/*
	 * a frame comes the way of the kernel's own (XDP generic): who sleeps is woken no sooner
	 * than by a kernel socket
	 */
	bool kernels_way;
	bool rx_stamp; /* poll_stamped() is there, and the device has a clock */
	/*
	 * a flow that several rings of the interface ask for is divided among them by its remote
	 * sides
	 */
	bool spread;
	bool looks_itself; /* poll() has the driver look; pending() does not (VMA_XDP_BUSY_POLL) */
	/*
	 * other processes of the user have the interface's queues, too, or may; a listener's flow
	 * is then divided among those that have it (VMA_FLOW_JOINT)
	 */
	bool joins;
};

/* 64-bit totals, written under the stack lock, read by the statistics. */
struct ring_counters {
	uint64_t rx_packets, rx_bytes;
	uint64_t tx_packets, tx_bytes;
	/*
	 * send_gso(): the frames, and what they carry; not in tx_packets and tx_bytes. Several
	 * threads add to them.
	 */
	uint64_t tx_gso_frames, tx_gso_packets, tx_gso_bytes;
	/* GSO bursts of datagrams (buf.gso_size); each of their datagrams is one of rx_packets */
	uint64_t rx_gso_frames;
	uint64_t rx_drop_no_buf; /* the fill ring could not be refilled */
	uint64_t rx_missed; /* what missed() has said last; the stack writes it */
	/*
	 * a descriptor outside the UMEM, an unfinished chain, a GSO burst whose marked size does
	 * not fit the frame
	 */
	uint64_t rx_drop_invalid;
	uint64_t tx_drop_oversize; /* refused: frame above the MTU */
	uint64_t tx_full; /* post() found no descriptor or buffer */
	uint64_t kicks; /* system calls made to transmit */
	/* times that someone slept on / was woken by the ring */
	uint64_t interrupts_requested, interrupts_received;
};

/* How full things are just now, for the statistics. */
struct ring_gauges {
	uint32_t rx_free, tx_free; /* buffers that nobody holds */
	uint32_t rx_queued; /* received frames that poll() has not taken */
	/* An interrupt waits for so many frames, or so long, us; both 0: for nothing. */
	uint32_t moderation_frames, moderation_usec;
	/*
	 * Bytes of the device's own memory, to send from. In total: what was; packets for which it
	 * had no room.
	 */
	uint64_t dev_mem_alloc, dev_mem_packets, dev_mem_bytes, dev_mem_oob;
};

/* A frame that the kernel or the device cuts into segments of gso_size payload bytes. */
struct ring_gso {
	uint16_t hdr_len; /* link + network + transport headers, in the first iovec */
	uint16_t l4_off; /* offset of the transport header */
	/*
	 * offset of the checksum field inside the transport header; it holds the pseudo-header sum
	 */
	uint16_t csum_off;
	uint16_t gso_size;
	uint8_t proto; /* IPPROTO_UDP or IPPROTO_TCP */
	uint8_t family; /* AF_INET or AF_INET6 */
};

#define RING_SHORT_HEADER 42u /* Ethernet, IPv4 without options, UDP */

struct ring_ops {
	const char *name; /* "xdp", "mlx5" */
	void (*close)(struct ring *r);
	/*
	 * The process ends: steering goes, memory and fds stay, because other threads may still be
	 * inside kick(). No close() follows.
	 */
	void (*leave)(struct ring *r);
	/*
	 * Up to max received frames; the caller owns them. Never sleeps, makes no system call when
	 * nothing is there, unless VMA_XDP_BUSY_POLL asks for it.
	 */
	unsigned (*poll)(struct ring *r, struct buf **pkts, unsigned max);
	/*
	 * As poll(), the frames with the device's own time of reception (BUF_HW_TIME) where it
	 * tells; only where caps.rx_stamp.
	 */
	unsigned (*poll_stamped)(struct ring *r, struct buf **pkts, unsigned max);
	/*
	 * A hint that poll() has something to do; no lock needed, so that a spinning reader takes
	 * none in vain. It may be wrong for a moment, and sees no upkeep: poll() must be called now
	 * and then all the same.
	 */
	bool (*pending)(const struct ring *r);
	/*
	 * A transmit buffer (one reference, ->room bytes, data at its start), or NULL when none is
	 * free. `room` is a hint: a buffer for less may be had cheaper. It is posted or freed
	 * before the next one is asked for.
	 */
	struct buf *(*tx_alloc)(struct ring *r, uint32_t room);
	/* post() would refuse a frame, as far as is known without having the device work. */
	bool (*tx_full)(struct ring *r);
	/*
	 * Sends a short frame at once, RING_SHORT_HEADER bytes at hdr (48 can be read there) and
	 * len at data: as tx_alloc(), post() and kick(). The device writes the checksums. False:
	 * not now, or the frame is too long. NULL: the ring cannot do it.
	 */
	bool (*send_short)(struct ring *r, const void *hdr, const void *data, uint32_t len);
	/*
	 * Queues b (b->len set) and takes ownership; -EMSGSIZE above caps.max_frame, -ENOBUFS when
	 * full (the caller keeps b then).
	 */
	int (*post)(struct ring *r, struct buf *b);
	/*
	 * Has the device transmit what was posted. May be called WITHOUT the stack lock (any
	 * thread). 0, or negative errno (-ENETDOWN: the interface is down, the posted frames will
	 * be lost as on any down link).
	 */
	int (*kick)(struct ring *r);
	/*
	 * As post(), but nothing leaves: the device is given a descriptor that does nothing.
	 * -EOPNOTSUPP: it has none (the caller keeps b, as with any error).
	 */
	int (*dummy)(struct ring *r, struct buf *b);
	/*
	 * Several frames will be posted one after the other, and the lock is held until the end is
	 * said: they may share descriptors. kick() comes after the end, which may also be said of
	 * no burst. NULL, all three: there is nothing to be gained.
	 */
	void (*burst_begin)(struct ring *r);
	/*
	 * Posts a frame of len bytes, which are written to where the result points before anything
	 * else is asked of the ring; 64 bytes may be written in any case. NULL: tx_alloc() and
	 * post() may take it.
	 */
	uint8_t *(*burst_add)(struct ring *r, uint32_t len);
	void (*burst_end)(struct ring *r);
	/*
	 * Transmits at once, by the path for large frames, after what was posted; iov[0] starts
	 * with the headers. 0, or negative errno and nothing was transmitted (-EAGAIN: full, or
	 * what was posted has not left yet). Needs no lock but where caps.gso_locked.
	 */
	int (*send_gso)(struct ring *r, const struct iovec *iov, int iovcnt,
			const struct ring_gso *g);
	/* The fds whose readability means "poll() has something"; returns how many were written. */
	unsigned (*wait_fds)(struct ring *r, int *fds, unsigned max);
	/*
	 * Says that someone will sleep on wait_fds(). Returns true when frames wait already, or
	 * some that were posted are about to leave but need another poll(): do not sleep.
	 */
	bool (*arm)(struct ring *r);
	int (*flow_add)(struct ring *r, const struct vma_flow_key *key,
			const struct vma_flow_info *info);
	int (*flow_del)(struct ring *r, const struct vma_flow_key *key);
	/*
	 * TCP: the kernel has (until told otherwise) connections of its own on the local port,
	 * which 3-tuple flows must leave it.
	 */
	void (*port_quiet)(struct ring *r, uint16_t local_port, bool quiet);
	void (*gauges)(const struct ring *r, struct ring_gauges *g);
	/*
	 * Frames that never reached the receive queue, ever: the kernel found no buffer for them,
	 * or no room. It is asked, so no lock is held. 0: not known. NULL: such a ring counts them
	 * itself.
	 */
	uint64_t (*missed)(const struct ring *r);
	/*
	 * What is to be done now and then, by the worker only. -ENODEV: the device is gone, the
	 * ring must be closed; else 0. NULL: nothing is.
	 */
	int (*upkeep)(struct ring *r);
	/*
	 * False: poll() or upkeep() has something to do soon. True: not before a frame comes,
	 * something is sent, or *news_fd (-1: nothing else) becomes readable. NULL: always true.
	 */
	bool (*rests)(const struct ring *r, int *news_fd);
	/* The interface's MTU or MAC changed (net/ noticed): caps follow. */
	void (*link_changed)(struct ring *r, uint32_t mtu, const uint8_t mac[6]);
	/*
	 * The XDP program on the interface is this one now (its id, 0: none), or was just now. 0:
	 * the ring's packets come, maybe again; negative errno, logged: they come no more, the ring
	 * is to be closed. -ENODEV: the interface is another one, as with upkeep(). The worker
	 * only, without the lock. NULL: no such program stands in front of the ring.
	 */
	int (*program_changed)(struct ring *r, uint32_t id);
	/*
	 * So many receive queues are in use: sets has_more_queues. The worker only. NULL: the
	 * device gives the ring its packets from any of them.
	 */
	void (*queues_changed)(struct ring *r, unsigned num_queues);
	/*
	 * The process becomes another user. 0: the ring may stay; negative errno: it has what that
	 * user may not see, and is to be closed, part() included. The worker only, without the
	 * lock. NULL, both: it has nothing of other processes.
	 */
	int (*user_changes)(struct ring *r, uid_t uid);
	/*
	 * The ring, which is closed later, has nothing of others any more from now on. A thread may
	 * be inside kick().
	 */
	void (*part)(struct ring *r);
	/*
	 * Now and then: the kernel is kept from answering TCP segments of the ring's flows that
	 * reach it all the same; fn gets the connections that would stand still so. The worker
	 * only, without the lock. NULL: none do.
	 */
	void (*guard)(struct ring *r, void (*fn)(const struct vma_stray *stray));
	/*
	 * What the program asks of its device (vma_extra(3)). NULL, all: it has nothing of the
	 * kind. Readers are woken after so many packets, or so long after the first, from now on;
	 * 0 and 0: at once. 0 or negative errno.
	 */
	int (*moderate)(struct ring *r, uint32_t packets, uint32_t usec);
	/*
	 * The device may read and write the program's memory as *key, until it is taken back or the
	 * ring is closed. 0 or negative errno; -EEXIST: it may already, -ENOENT: it may not.
	 */
	int (*memory_add)(struct ring *r, void *addr, size_t len, uint32_t *key);
	int (*memory_del)(struct ring *r, void *addr, size_t len);
	/* The queues where the device has them. */
	void (*describe)(struct ring *r, struct vma_mlx_hw_device_data *to);
};

struct ring {
	const struct ring_ops *ops;
	struct ring_caps caps;
	struct ring_counters *counters; /* never NULL */
	int ifindex;
	/* frames of its memory that the program has in its hands: it is not closed meanwhile */
	_Atomic unsigned held;
	/*
	 * the interface has receive queues that are not the ring's, and the answer to a SYN may
	 * come there
	 */
	_Atomic bool has_more_queues;
	char ifname[16];
	const char
		*mode; /* of several that its device has, the one it is in; NULL: there are none */
	struct ring_capture *capture; /* NULL: it has never been captured */
};

struct ring_port;

/*
 * Rings that are opened from now on may be joined by others on their interface, whatever
 * VMA_RING_ALLOCATION_LOGIC_RX and _TX say. (The memory of AF_XDP rings is made with the first.)
 */
void ring_several_begin(void);

/*
 * Rings that are opened from now on are shared with that user's processes, whom this one is about
 * to become; (uid_t)-1: with those of who it is.
 */
void ring_user_to_be(uid_t uid);

/*
 * Opens the ring of the type that the interface and VMA_RING_TYPE allow.
 * 0 and *out; -EBUSY: another process owns the queues; -EOPNOTSUPP: nothing fits this interface;
 * -EEXIST: a foreign XDP program sits there; other negative errno from the system. One log line
 * says why.
 */
int ring_open(int ifindex, struct ring **out);
/*
 * A further ring on the interface of `first`, of the same type. As above, but what refuses it does
 * so without a word.
 */
int ring_open_more(const struct ring *first, struct ring **out);
/*
 * Will the ring of the interface have caps.port_blocks? As far as can be told before it is open,
 * without waiting. No lock of a stack's is held.
 */
bool ring_blocks_likely(int ifindex);
/*
 * The child of a fork(), after it has closed what it has of its parent's rings: locks that another
 * thread may have held are free.
 */
void ring_forked(void);
/* Around a fork(), in parent and child: nobody is between the next two. */
void ring_fork_prepare(void);
void ring_fork_end(void);
/*
 * From begin to end this thread alone has what libbpf and libxdp keep for the process: where they
 * print (into our log meanwhile; the application may use the same libraries), and the folder in
 * bpffs. No lock of a stack's is held. Not for long: fork() waits.
 */
void ring_bpf_begin(void);
void ring_bpf_end(void);
/*
 * Enters the running kernel's functions where prog, which is not loaded yet, calls by stand-ins
 * (vma/kernel_calls.h). Between begin and end. 0; -EOPNOTSUPP: the kernel does not have one of
 * them; other negative errno.
 */
struct bpf_program;
int ring_kernel_calls(struct bpf_program *prog);
/*
 * The process whose steering program sits on the interface, 0 when there is none or it cannot be
 * told.
 */
pid_t port_owner_pid(int ifindex);

/*
 * From now on each frame of the ring goes to stats_capture_keep(), too; no more. Without memory
 * nothing changes. The stack lock, or nobody has the ring yet.
 */
void ring_capture_begin(struct ring *r);
void ring_capture_end(struct ring *r);
bool ring_captured(const struct ring *r);
/* ops->close(), and what the ring was captured by. */
void ring_close(struct ring *r);

/* For who does not hold the stack lock: a capture that begins or ends changes them. */
static inline const struct ring_ops *ring_ops(const struct ring *r)
{
	return __atomic_load_n(&r->ops, __ATOMIC_ACQUIRE);
}

/* A flow of a multicast group. */
static inline bool ring_flow_of_group(const struct vma_flow_key *key)
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
	const uint8_t *a = key->local.byte;

	return a[0] == 0xff || (a[12] >> 4 == 14 && !memcmp(a, mapped, sizeof(mapped)));
}

/* For the tables of flows. */
static inline uint32_t ring_flow_hash(const struct vma_flow_key *key)
{
	uint32_t hash = key->local_port * 31u + key->remote_port;

	for (unsigned i = 0; i < sizeof(key->remote.byte); i++)
		hash = hash * 31u + key->remote.byte[i] + key->local.byte[i];
	return hash;
}

/*
 * frame_log.c: what has come, what is about to be posted, what is about to be sent by send_gso(),
 * in the log. The inline functions below ask for the level themselves.
 */
__attribute__((cold)) void ring_frames_log(const struct ring *r, struct buf *const *pkts,
					   unsigned n);
__attribute__((cold)) void ring_sent_log(const struct ring *r, const struct buf *b);
__attribute__((cold)) void ring_gso_log(const struct ring *r, const struct iovec *iov, int iovcnt);

static inline unsigned ring_poll(struct ring *r, struct buf **pkts, unsigned max)
{
	unsigned n = r->ops->poll(r, pkts, max);

	if (log_enabled(LOG_FINER))
		ring_frames_log(r, pkts, n);
	return n;
}

static inline unsigned ring_poll_stamped(struct ring *r, struct buf **pkts, unsigned max)
{
	unsigned n = r->ops->poll_stamped(r, pkts, max);

	if (log_enabled(LOG_FINER))
		ring_frames_log(r, pkts, n);
	return n;
}

static inline int ring_send_gso(struct ring *r, const struct iovec *iov, int iovcnt,
				const struct ring_gso *g)
{
	if (log_enabled(LOG_FINER))
		ring_gso_log(r, iov, iovcnt);
	return ring_ops(r)->send_gso(r, iov, iovcnt, g);
}

/* No frame is to be shown: send_short() and burst_add(), which have no buffer, may be used. */
static inline bool ring_frames_unlogged(void)
{
	return !log_enabled(LOG_FINER);
}

static inline struct buf *ring_tx_alloc(struct ring *r, uint32_t room)
{
	return r->ops->tx_alloc(r, room);
}

static inline int ring_post(struct ring *r, struct buf *b)
{
	if (log_enabled(LOG_FINER))
		ring_sent_log(r, b);
	return r->ops->post(r, b);
}

static inline int ring_kick(struct ring *r)
{
	return ring_ops(r)->kick(r);
}

static inline void ring_burst_begin(struct ring *r)
{
	if (r->ops->burst_begin)
		r->ops->burst_begin(r);
}

static inline void ring_burst_end(struct ring *r)
{
	if (r->ops->burst_end)
		r->ops->burst_end(r);
}

#endif
