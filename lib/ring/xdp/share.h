/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several rings of this process on one interface (VMA_RING_ALLOCATION_LOGIC_*). The kernel gives a
 * queue to one UMEM, with one fill and one completion ring; each further socket on the queue has a
 * receive and a transmit ring only (XDP_SHARED_UMEM). So the rings of an interface have one UMEM,
 * whose size is fixed with the first: chunks for receiving belong to whoever has them just now,
 * those for transmitting to one ring for ever. Each ring has its own lock (its stack's); what they
 * have in common has the ones here, taken for a batch.
 */
#ifndef RING_XDP_SHARE_H
#define RING_XDP_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/xdp/umem.h"
#include "runtime/runtime.h"

#define SHARE_RINGS_MAX 64u
/*
 * Rings that an interface can have where VMA_RING_LIMIT_PER_INTERFACE does not say: the memory of
 * all is locked from the beginning.
 */
#define SHARE_RINGS_DEFAULT 8u

/*
 * Can the sockets of one queue share its completion ring on a kernel of that release
 * ("6.12.48+deb13")? Linux 6.6 to 6.16 reports chunks as sent that another socket has just posted:
 * they would be written anew before they have left.
 */
bool share_completions_good(const char *release);
/* The same of this kernel; if not, the log says so, once. */
bool share_allowed(void);

struct xdp_ring;
struct xsk;

struct xdp_share {
	struct xdp_share *next; /* shares_lock */
	int ifindex;
	unsigned max; /* rings that the UMEM has chunks for */
	unsigned num; /* opened so far. shares_lock */
	/* not closed; neither closed nor told that the process ends. shares_lock */
	unsigned alive, staying;
	struct xdp_ring *ring[SHARE_RINGS_MAX];
	struct lock flows; /* the port's flow table */
	struct lock supply; /* the fill rings of all queues */
	struct lock done; /* the completion ring, and: */
	/* transmitted chunks that their ring has not fetched */
	struct chunk_stack back[SHARE_RINGS_MAX];
};

/* As ring_several_begin(). */
void share_several_begin(void);
/* Rings that an interface may have by the parameters, or because the program wants several. */
unsigned share_rings_wanted(void);
/* Makes x, the first of its interface, one that can be joined. 0 or negative errno. */
int share_begin(struct xdp_ring *x, unsigned max);
/* Enters an opened ring. */
void share_enter(struct xdp_ring *x);
/* The one that a ring on the interface can join; NULL: none. -ENOSPC in *err: it is full. */
struct xdp_share *share_find(int ifindex, int *err);
/*
 * A ring is closed. True: it was the last one, and all of them are the caller's to free. What a
 * ring has in common with others outlives it: the first one has the fill rings.
 */
bool share_close(struct xdp_ring *x);
void share_free(struct xdp_share *sh);
/* The process ends, as far as x is concerned. True: for the last one. */
bool share_leave(struct xdp_ring *x);
/* For ring_forked(). */
void share_forked(void);
/* In place of rx_refill() and tx_reclaim(). */
void share_refill(struct xdp_ring *x, struct xsk *s);
void share_reclaim(struct xdp_ring *x);

#endif
