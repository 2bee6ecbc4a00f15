/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring on AF_XDP, on any interface: its insides, shared by its files. Of others only backends.c
 * includes it; the rest goes by struct ring_ops.
 *
 * Every packet: rx.c, tx.c, gso.c. When rings and rules come and go: ring.c, xsk.c (sockets),
 * port.c, mode.c, umem.c, share.c, pool.c and member.c (several processes), flow_table.c, pin.c,
 * guard.c, kernel_types.c.
 */
#ifndef RING_XDP_XDP_H
#define RING_XDP_XDP_H

#include <linux/if_xdp.h>
#include <stdatomic.h>

#include "ring/port.h"
#include "ring/ring.h"
#include "ring/xdp/member.h"
#include "ring/xdp/pool.h"
#include "ring/xdp/share.h"
#include "ring/xdp/umem.h"

/* Newer than linux-libc-dev 6.1. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

#define ETH_HEADER 14u
#define VLAN_HEADER 4u
#define XDP_HEADROOM 256u /* the kernel's XDP_PACKET_HEADROOM, in front of a received frame */

/*
 * One of a socket's four rings. Each index word has one writer: the kernel on one side, we on the
 * other.
 */
struct xsk_ring {
	uint32_t *producer;
	uint32_t *consumer;
	uint32_t *flags; /* kernel writes: XDP_RING_NEED_WAKEUP */
	union {
		struct xdp_desc *desc; /* receive, transmit */
		uint64_t *addr; /* fill, completion */
	};
	uint32_t mask;
	uint32_t size;
	uint32_t head; /* receive, completion: what we consumed; fill, transmit: what we produced */
	uint32_t seen; /* the last value read of the other side's index */
	void *map;
	size_t map_len;
};

/* One receive queue of the interface and its socket. */
struct xsk {
	int fd; /* -1: closed */
	uint32_t missing; /* chunks that may still be put into the fill ring */
	uint32_t refill_at; /* that many of them are worth a refill */
	uint32_t supply; /* the chunks that are in the fill ring when nobody else has any */
	struct xsk_ring rx, fill;
	struct buf *chain_head, *chain_tail; /* a frame whose last descriptors have not come yet */
	uint32_t chain_len; /* descriptors in it */
	bool chain_bad; /* drop the rest of it */
	struct xsk_ring tx, comp; /* only queue 0 transmits */
	/* How much of the fill ring stays empty: see supply_judge(). */
	uint32_t held_back; /* of `missing`, as many as are not refilled */
	uint32_t judged; /* fill.head when that was judged last */
	uint32_t keep_full; /* times that it is not judged again */
	uint32_t keep_full_next; /* so many the next time that half was too little */
	uint32_t calm; /* judgements since that number was changed */
	uint32_t streams; /* that large frames since then were of: a bit each, by a hash */
	uint64_t merged; /* bytes in them */
};

struct xdp_ring {
	struct ring ring;
	struct ring_counters counters;
	struct ring_port *port; /* of a ring after the first: the first one's */
	struct xdp_umem umem;
	/*
	 * NULL: the interface can have this ring only, which has the fill and completion rings for
	 * itself.
	 */
	struct xdp_share *share;
	unsigned index; /* number in the share */
	/* NULL: no other process can join; else the fill and completion rings are every member's */
	struct pool *pool;
	struct member *member;
	bool joined; /* the queues were another process's before */
	uint32_t fill_entries, comp_entries; /* of its queues' rings, checked */
	unsigned row; /* in the steering program's table: number in the share, or in the pool */
	uint32_t tx_held; /* chunks for transmitting that are ours; of a pool */
	/* Receive, under the stack lock. */
	uint32_t num_queues;
	uint32_t next_queue; /* where the next poll() starts */
	/*
	 * chunks that the kernel holds for receiving; of a share: given less taken, from x's own
	 * part on
	 */
	uint32_t filled;
	uint32_t part; /* as many chunks for receiving as we count as ours at the beginning */
	uint32_t chunks_low;
	uint32_t heap_bufs_max; /* VMA_RX_BUFS; see buf_copy_begin() */
	struct buf_pool heap_pool; /* counts them */
	struct buf_pool *heap_origin; /* where their memory goes */
	uint8_t rx_flags; /* buf.flags of every frame */
	bool armed;
	bool stamping; /* poll_stamped() is at work */
	bool stamps_told; /* the steering program knows that they are wanted */
	bool generic; /* the kernel receives on several processors at once: see rx_contended() */
	/* Transmit, under the stack lock but for kick(). */
	uint32_t tx_credit; /* buffers to hand out before the completion ring is looked at again */
	bool zerocopy;
	bool sg;
	bool busy_poll; /* who looks in vain runs the driver's poll routine */
	bool zerocopy_alone; /* no other process can come where it is zero-copy */
	bool gso_bursts; /* the steering program marks them */
	_Atomic uint32_t
		/* 1: frames were posted since the last kick() took over. Set by post(), cleared by
		   kick() */
		unsent;
	_Atomic uint32_t
		/* 1: kick() gave up with frames left. Set and cleared by kick(), read by poll() */
		stalled;
	uint32_t done_seen; /* comp.producer at the last arm(); the stack lock */
	/* NULL, or, with zero-copy and others, where it says what it posts: see POSTING() */
	uint64_t *posting;
	int gso_fd; /* AF_PACKET, -1: none */
	/* gso_fd goes past the queueing discipline; cleared once, by any thread */
	_Atomic bool gso_bypass;
	_Atomic uint32_t
		/* in a row; beyond GSO_FAILS_MAX: how far the pause is. Any thread, races only blur
		   it */
		gso_fails;
	struct xsk xsk[];
};

static inline struct xdp_ring *xdp_ring(struct ring *r)
{
	return (struct xdp_ring *)r; /* its first member */
}

/* One writer (the stack lock), readers anywhere: an add that is never seen half done. */
static inline void stat_add(uint64_t *c, uint64_t n)
{
	__atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/*
 * Opens and binds the sockets of all queues. 0; -EBUSY: *queue belongs to somebody else; or
 * negative errno.
 */
int xsk_open_all(struct xdp_ring *x, unsigned *queue);
/*
 * From now on xsk_drive() has the driver hand over up to `budget` frames at a time: SO_BUSY_POLL of
 * socket(7). The sockets are bound. 0 or negative errno.
 */
int xsk_busy_poll(struct xdp_ring *x, int budget);
/* What the device has for the queue of s, as far as nobody else is fetching it, is in s then. */
void xsk_drive(const struct xsk *s);
void xsk_close_all(struct xdp_ring *x);
/*
 * The sockets, which are closed later, are something harmless from now on, for who is inside
 * kick(). 0, or the first negative errno: the rest is done all the same.
 */
int xsk_part_all(struct xdp_ring *x);
/*
 * The receive or (where = XDP_PGOFF_TX_RING) transmit ring of another process's socket, with so
 * many entries. 0 or negative errno.
 */
int xsk_map_other(struct xsk_ring *r, int fd, uint32_t entries, off_t where);
void xsk_unmap_other(struct xsk_ring *r);
/*
 * The interface that s was bound to was unregistered. One of its name and number may be there
 * again, from which nothing comes to s.
 */
bool xsk_orphaned(const struct xsk *s);
/*
 * Has the kernel send what another process, which has ended, has posted on its socket. True: the
 * consumer index of the transmit ring says what it has taken. Before Linux 6.17 that lags behind
 * by what the kernel has looked at and not sent.
 */
bool xsk_flush_other(int fd);

/* Puts up to n free chunks into the fill ring f. Returns how many. */
uint32_t rx_supply(struct xdp_ring *x, struct xsk_ring *f, uint32_t n);
/* A zero-copy driver that ran dry sleeps until it is told: the fill ring f of s has been filled. */
void rx_tell(const struct xsk *s, const struct xsk_ring *f);
/* The kernel has transmitted from chunk `index` of ours, or sent back what it does not name. */
void tx_done(struct xdp_ring *x, uint64_t addr);
/* Says how few chunks are few: that depends on whether others need them. */
void rx_low(struct xdp_ring *x);
/* Fills the fill rings for the first time. */
void rx_init(struct xdp_ring *x, uint32_t heap_bufs_max);
void rx_refill(struct xdp_ring *x, struct xsk *s);
unsigned xdp_poll(struct ring *r, struct buf **pkts, unsigned max);
unsigned xdp_poll_stamped(struct ring *r, struct buf **pkts, unsigned max);
bool xdp_pending(const struct ring *r);
unsigned xdp_wait_fds(struct ring *r, int *fds, unsigned max);
bool xdp_arm(struct ring *r);

/* Moves the transmitted chunks back to the free stack. */
void tx_reclaim(struct xdp_ring *x);
struct buf *xdp_tx_alloc(struct ring *r, uint32_t room);
bool xdp_tx_full(struct ring *r);
int xdp_post(struct ring *r, struct buf *b);
int xdp_kick(struct ring *r);
/*
 * Has what was posted transmitted. 0: the kernel has taken all of it; -EAGAIN: not yet, as with a
 * full ring; or the errors of kick(). Any thread.
 */
int tx_flush(struct xdp_ring *x);

/* Sets ring.caps.max_gso and gso_fd; without the kernel's help both stay "none". */
void gso_open(struct xdp_ring *x);
int xdp_send_gso(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g);

/* 0 or the errors of ring_open(). */
int xdp_ring_open(int ifindex, struct ring **out);
/* As ring_open_more(). */
int xdp_ring_more(const struct ring *first, struct ring **out);

#endif
