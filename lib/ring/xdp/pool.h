/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the members of a port have in common, in memory that all of them map: who they are, whose
 * each chunk of the UMEM is, the flow totals, and two locks. A member is a process of one user with
 * a socket of its own on each queue (member.c); the fill and completion rings are everybody's.
 *
 * Any member may be killed at any instruction. So each change of who has a chunk is one store, or
 * can be finished or undone by whoever takes the lock next; and what a member reads here is checked
 * before it is an index.
 */
#ifndef RING_XDP_POOL_H
#define RING_XDP_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ring/port.h"
#include "ring/xdp/umem.h"

#define POOL_MEMBERS VMA_XSK_RINGS
/*
 * What an unread receive ring of the first member cannot take. The ring of a further one has as
 * many entries.
 */
#define POOL_RX_SPARE 512u
#define POOL_RX_CHUNKS (UMEM_RX_CHUNKS + POOL_RX_SPARE)
/* Of more than eight queues: as UMEM_RX_QUEUE. */
#define POOL_RX_SPARE_QUEUE 64u
/* A member has at most UMEM_TX_CHUNKS of these. */
#define POOL_TX_CHUNKS (UMEM_TX_CHUNKS + 256u)
#define POOL_CHUNKS (POOL_RX_CHUNKS + POOL_TX_CHUNKS)
#define POOL_CHUNKS_MAX (PORT_MAX_QUEUES * (UMEM_RX_QUEUE + POOL_RX_SPARE_QUEUE) + POOL_TX_CHUNKS)
/*
 * With so many chunks for transmitting a member may rest: if all do, half of them are left to who
 * sends.
 */
#define POOL_TX_RESTING (POOL_TX_CHUNKS / 2 / POOL_MEMBERS)
/* With more received frames in its hands a member that is not alone copies them out. */
#define POOL_HELD_MAX 256u
#define POOL_BACK_MAX 4096u
/* Another number when the meaning of something in the pool changes, even if its size stays. */
#define POOL_LAYOUT 3u

enum pool_state {
	POOL_FREE,
	POOL_ENTERING, /* under the port's lock; when that is free, it died there */
	POOL_MEMBER,
	POOL_LEFT, /* it has said so; what it has is taken back when it has ended */
	POOL_BURIED, /* its flows are gone, its chunks are still to be fetched */
};

/* Numbers of a member's descriptors; pidfd_getfd() fetches them. */
enum pool_fd {
	POOL_FD_POOL,
	POOL_FD_UMEM,
	POOL_FD_LIFE, /* the reading end of a pipe: it ends with the member, or at its exec() */
	POOL_FD_HELLO, /* where a new member sends its own */
	POOL_FD_CONNS, /* its connections (kmod_conns_fd()) */
	POOL_FD_PORT, /* as port_descriptors() has them */
	POOL_FDS = POOL_FD_PORT + PORT_DESCRIPTORS,
};

/* Written under the port's lock. */
struct pool_member {
	uint32_t state; /* enum pool_state */
	uint32_t pid;
	uint32_t generation; /* of those who have had the slot, one after the other */
	uint32_t told; /* generation of the last one whose peers were told of its end */
	uint64_t start_time;
	int32_t fd[POOL_FDS];
	int32_t xsk[PORT_MAX_QUEUES];
	uint32_t rx_entries, tx_entries; /* of its sockets' rings */
	/*
	 * What it just posts: POSTING() of the producer index that gives it to the driver.
	 * Zero-copy only; written without a lock.
	 */
	uint64_t posting;
};

/*
 * A chunk with `posted` posts that are not over, of which the number is just being changed, and the
 * place in a ring that belongs to it: who is killed then may have moved on in the ring and not
 * changed the number, or the other way round. 0: none.
 */
#define POSTING(at, posted, index)                                                                 \
	((uint64_t)(at) << 32 | (uint64_t)(posted) << 16 | ((uint64_t)(index) + 1))
_Static_assert(POOL_CHUNKS_MAX < 65535, "POSTING() has 16 bits for a chunk");
_Static_assert(POOL_CHUNKS <= POOL_CHUNKS_MAX, "few queues have no more than many");

/* Chunks that the kernel has sent and somebody else found in the completion ring. */
struct pool_back {
	/*
	 * How many, and (upper half) one more than the place in the completion ring of the last
	 * one: in one store, so that nobody enters it again.
	 */
	uint64_t state;
	/* The one that its member is at: POSTING() of how many there are. See hand_out(). */
	uint64_t fetching;
	uint32_t index[POOL_BACK_MAX];
};

struct pool {
	uint32_t magic, layout, size; /* another version's is not joined */
	/* Written before anybody else comes. */
	uint32_t mode; /* enum port_mode */
	uint32_t sg, gso_bursts, zerocopy;
	uint32_t num_queues;
	uint32_t fill_entries, comp_entries;
	uint64_t umem_bytes;
	uint32_t uid; /* the others are, or are about to be, of that user */

	/* Who they are, the flow table and its totals, the port itself. */
	pthread_mutex_t port_lock;
	uint32_t closing; /* nobody may come: the last one has left, or is another user's now */
	uint32_t shared; /* somebody has joined once: there may be packets of several processes */
	uint32_t num_members; /* read without the lock, too */
	uint32_t flow_busy; /* ring_port.flow_busy */
	struct pool_member member[POOL_MEMBERS];

	/* Chunks, fill and completion rings. Taken after the port's. */
	pthread_mutex_t lock;
	uint32_t fill_head[PORT_MAX_QUEUES]; /* what will be the producer index */
	uint64_t handing; /* POSTING() of a place in the completion ring: see hand_out() */
	uint32_t tx_num;
	uint32_t tx_free[POOL_TX_CHUNKS];
	uint32_t owner[POOL_CHUNKS_MAX]; /* umem.owner */
	struct pool_back back[POOL_MEMBERS];

	struct port_flows flows[VMA_PORT_INDEX_MAX];
};

struct xdp_ring;
struct xsk;
struct xsk_ring;

static inline uint32_t pool_rx_spare(unsigned queues)
{
	uint32_t n = queues * POOL_RX_SPARE_QUEUE;

	return n > POOL_RX_SPARE ? n : POOL_RX_SPARE;
}

/* The chunks of a pool by its queues, of which all members have the same number. */
static inline uint32_t pool_rx_chunks(unsigned queues)
{
	return umem_rx_chunks(queues) + pool_rx_spare(queues);
}

static inline uint32_t pool_chunks(unsigned queues)
{
	return pool_rx_chunks(queues) + POOL_TX_CHUNKS;
}

/* A new one, with the UMEM of x that lies at *umem_fd. 0 or negative errno. */
int pool_make(struct xdp_ring *x, int *pool_fd, int *umem_fd);
/* Another process's. NULL: it is none, or another version's. */
struct pool *pool_map(int fd);
void pool_unmap(struct pool *p);

/* The port's lock. If its last holder died with it, the flow totals are made right. */
void pool_port_lock(struct xdp_ring *x);
void pool_port_unlock(struct xdp_ring *x);

/* Are there other members? It may be wrong for a moment. p may be NULL. */
static inline bool pool_others(const struct pool *p)
{
	return __builtin_expect(p != NULL, 1) &&
	       __atomic_load_n(&p->num_members, __ATOMIC_RELAXED) > 1;
}

/* As rx_supply(). */
uint32_t pool_supply(struct xdp_ring *x, struct xsk *s, uint32_t n);
/* As tx_reclaim(). */
void pool_reclaim(struct xdp_ring *x);
/* What the kernel has sent is given to whom it belongs, or, of the dead, to all. */
void pool_fetch(struct xdp_ring *x);
/* x rests: of what it has for transmitting others get what is free. */
void pool_rest(struct xdp_ring *x);
/*
 * What the dead member had goes back: rx[], tx are its sockets' rings, those of num_queues queues.
 * One without a map is not known. In copy mode what stands in tx will not be sent. With zero-copy
 * it will, if the socket stays open for so long: tx is known there, and once more when it is empty
 * what has been sent meanwhile goes back.
 */
void pool_bury(struct xdp_ring *x, unsigned member, const struct xsk_ring *rx,
	       const struct xsk_ring *tx);

#endif
