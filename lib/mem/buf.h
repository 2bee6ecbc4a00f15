/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet buffer: the small header that travels through ring, proto and socket. Its storage
 * belongs to a pool (a ring's UMEM, or the heap when the UMEM runs low).
 */
#ifndef MEM_BUF_H
#define MEM_BUF_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/* Where a buffer goes when its last user is done. Called with the owning stack's lock held. */
struct buf_pool {
	void (*free)(struct buf_pool *pool, struct buf *b);
};

/* buf.flags */
/* the device vouches for the checksums, of an IPv4 header and of TCP or UDP */
#define BUF_CSUM_OK 0x01
#define BUF_HW_TIME 0x04 /* hw_ns is the device's time of reception; else it is anything */
/* device is virtual: an L4 field equal to the pseudo-header sum is complete */
#define BUF_CSUM_PARTIAL_OK 0x02
#define BUF_DROPS 0x08 /* seq is what its datagram socket had dropped when it was queued */

/*
 * What the parser found; valid once proto has accepted the packet. Addresses are v4-mapped for
 * IPv4.
 */
struct buf_meta {
	struct in6_addr src;
	struct in6_addr dst;
	uint16_t sport; /* host order */
	uint16_t dport; /* host order */
	uint32_t ifindex;
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t ttl;
	uint8_t tos;
	uint8_t multicast; /* 1 when dst is a multicast or broadcast address */
};

struct buf {
	/* First cache line: every packet touches it. */
	struct buf *next; /* queue link; owner: whoever holds the buffer, set by who queues it */
	struct buf *frag; /* following fragment of the same frame (multi-buffer), or NULL */
	uint8_t *data; /* first valid byte */
	uint32_t len; /* valid bytes in this fragment */
	uint32_t total; /* valid bytes in the frame, all fragments (only in the first) */
	struct buf_pool *pool;
	/* CLOCK_REALTIME of reception, 0 when nobody asked; the stack's, not the ring's */
	uint64_t time_ns;
	uint32_t room; /* transmit: bytes that may be written from data on */
	uint16_t refs;
	uint8_t flags;
	uint64_t addr; /* the ring's own: UMEM offset of the chunk */
	/* Second line */
	struct buf_meta meta;
	uint32_t seq; /* of the first byte, while TCP holds it in a receive queue; BUF_DROPS */
	/*
	 * A GSO burst, UDP datagrams of one size behind one set of headers: that size; the last one
	 * may be shorter. 0: one datagram, or anything else. Received frames only, and only in the
	 * first fragment.
	 */
	uint16_t gso_size;
	uint16_t gso_count; /* datagrams, as whoever marked the frame counted them */
	uint64_t hw_ns; /* BUF_HW_TIME: by the device's clock, or what the ring makes of it */
};

/* Gives b and its fragments back. Needs the lock of the stack that b came from. b may be NULL. */
static inline void buf_free(struct buf *b)
{
	while (b) {
		struct buf *frag = b->frag;

		if (b->refs > 1) {
			b->refs--;
			return;
		}
		b->refs = 0;
		b->pool->free(b->pool, b);
		b = frag;
	}
}

/*
 * Takes n bytes off the front of the frame in b, n < b->total; fragments that this empties are
 * given back, the first one too: returns what is the first one now. Needs the lock that buf_free()
 * needs.
 */
struct buf *buf_skip(struct buf *b, uint32_t n);
/*
 * Makes the frame in b end after its first n bytes, 0 < n <= b->total; what is behind them is given
 * back. Lock as above.
 */
void buf_cut(struct buf *b, uint32_t n);
/* A buffer on the heap with `room` bytes of storage and one reference; NULL when out of memory. */
struct buf *buf_heap_alloc(size_t room);
/*
 * VMA_RX_BUFS: received frames that were copied to the heap because their ring is short of buffers,
 * of all rings of the process. buf_copy_begin() counts one more, false: there are max already.
 * buf_copy_end(): one is freed.
 */
bool buf_copy_begin(uint32_t max);
void buf_copy_end(void);
/* How many there are. */
uint32_t buf_copies(void);

#endif
