/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of a stack, for the sockets that live in it. */
#ifndef SOCKET_STACK_INT_H
#define SOCKET_STACK_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem/buf.h"
#include "proto/udp_demux.h"
#include "ring/ring.h"
#include "runtime/lock.h"
#include "runtime/params.h"
#include "runtime/stats.h"
#include "socket/stack.h"
#include "socket/stack_key.h"

#define STACKS_MAX 64
#define STACK_FLOW_BUCKETS 256

/* One steering rule of the ring and how many sockets want it. */
struct stack_flow {
	struct stack_flow *next;
	struct vma_flow_key key;
	unsigned users;
	bool aside; /* the ring has no rule for it just now */
	bool right; /* to the port (stack_right.h) */
};

/* Memory of a stack is never given back before the process ends: a pointer to one stays good. */
struct stack {
	struct lock lock; /* all below, the ring and the queues of attached sockets */
	_Atomic bool open;
	bool leaving; /* closed, but sockets are still being taken off: not to be reused. The stacks' mutex */
	struct ring *ring;
	int ifindex;
	_Atomic uint64_t key; /* whose it is (stack_key.h); changes, when nobody uses it any more, under the stacks' mutex */
	/* Sockets that receive here, connections, listeners, one more for those that only send; and who has just got it. Any thread. */
	_Atomic unsigned users;
	_Atomic bool sends; /* counted for those */
	uint32_t polls; /* by application threads; the worker drains a stack whose count stands still */
	uint32_t polls_seen; /* worker only */
	uint64_t drained_ns; /* VMA_RX_CQ_DRAIN_RATE_NSEC: when it was polled although data waited */
	struct vma_stats_ring *stats;
	struct vma_stats_cq *cq_stats;
	struct udp_demux udp;
	/* Another with each change of who is in udp, and when the stack opens or shuts; no two stacks ever have the same. */
	_Atomic uint64_t udp_gen;
	struct tsock_stack *tcp; /* NULL until the first TCP socket */
	struct stack_flow *flows[STACK_FLOW_BUCKETS];
	unsigned group_flows; /* of them, multicast groups' */
};

/*
 * The stack of an interface for the sockets with this key, opened when it is not yet; another one, shared, where
 * VMA_RING_LIMIT_PER_INTERFACE or the device allows no more. NULL when the interface is not to be offloaded or cannot be
 * (the log has said why). The caller is one of its users until stack_put(): nobody else's key takes it over meanwhile. Takes the
 * stacks' own mutex: no stack lock may be held.
 */
struct stack *stack_get(int ifindex, uint64_t key);
/* The same for one that only sends there; it is not to be put. */
struct stack *stack_get_sender(int ifindex, uint64_t key);
/* A stack of an interface if one is open. */
struct stack *stack_any(int ifindex);
/* Interfaces may have several: VMA_RING_ALLOCATION_LOGIC_RX or _TX says so. */
static inline bool stacks_several(void)
{
	return params.ring_allocation_logic_rx || params.ring_allocation_logic_tx;
}

/* The sockets that use st change by n. */
static inline void stack_users(struct stack *st, int n)
{
	atomic_fetch_add(&st->users, (unsigned)n);
}

static inline void stack_put(struct stack *st)
{
	stack_users(st, -1);
}

/*
 * The stack of the interface that has a rule for `key` which others than `fewer` sockets in `mine` (NULL: none) want; NULL: none
 * has. Takes stack locks.
 */
struct stack *stack_flow_owner(int ifindex, const struct vma_flow_key *key, const struct stack *mine, unsigned fewer);
/* The stack of the interface that has a rule for a multicast group, whichever; NULL: none has. Takes stack locks. */
struct stack *stack_groups_owner(int ifindex);
/* From asking who owns a rule to setting it. Taken before any stack lock, after a socket's. */
extern struct lock stack_flows_lock __attribute__((visibility("hidden")));
/* True when the kind and state of the interface allow a stack. */
bool stack_wanted(int ifindex);
/* Runs fn for the open stacks of an interface, their lock held, until it says true; returns whether it did. */
bool stacks_any_on(int ifindex, bool (*fn)(struct stack *st, void *arg), void *arg);
/* Runs fn for every open stack, its lock held. */
void stacks_each(void (*fn)(struct stack *st, void *arg), void *arg);
/* Polls the ring once and delivers; the lock is held. Returns the number of packets. */
unsigned stack_poll(struct stack *st, unsigned max);
/* Packets wait in the ring of an open stack; the lock is held. */
static inline bool stack_pending(struct stack *st)
{
	return atomic_load_explicit(&st->open, memory_order_relaxed) && st->ring->ops->pending(st->ring);
}

/* As stack_poll(), by a thread of the application; the lock is held. Nothing when the stack is closed. */
static inline unsigned stack_poll_called(struct stack *st)
{
	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return 0;
	st->polls++;
	return stack_poll(st, (unsigned)params.cq_poll_batch_max);
}

/* A frame that ring_poll() gave goes to whom it is for, unstamped; the lock is held. */
void stack_input(struct stack *st, struct buf *b);
/* Not 0: received frames are to be stamped. */
extern _Atomic uint64_t stack_timestamps_wanted __attribute__((visibility("hidden")));
/* Received frames can have the device's time stamp; st may be closed. Takes its lock. */
bool stack_stamps(struct stack *st);
/* VMA_RX_CQ_DRAIN_RATE_NSEC: a receive is to poll although data waits, and is taken to do so now. The lock is held. */
bool stack_drain_due_slow(struct stack *st);

static inline bool stack_drain_due(struct stack *st)
{
	return __builtin_expect(params.rx_cq_drain_rate_nsec, 0) && stack_drain_due_slow(st);
}

/* Renews udp_gen; the lock is held. */
void stack_udp_changed(struct stack *st);
/*
 * Adds or releases a steering rule; the lock is held. 0 or negative errno. A listener's over a card (ring_caps.takes_all) is aside from the
 * beginning while another process has the right to the port, or the kernel a connection of it.
 */
int stack_flow_add(struct stack *st, const struct vma_flow_key *key, int fd);
void stack_flow_del(struct stack *st, const struct vma_flow_key *key);
/* The ring has the rule. */
bool stack_flow_stands(struct stack *st, const struct vma_flow_key *key);
/* The port's segments may be ours, as far as other processes are concerned. */
bool stack_flow_ours(struct stack *st, const struct vma_flow_key *key);
/* The rule that stands goes, but not its users; and comes back, if the ring takes it. */
void stack_flow_aside(struct stack *st, const struct vma_flow_key *key);
void stack_flow_back(struct stack *st, const struct vma_flow_key *key);
/* fn adds and deletes none. */
void stack_flows_each(struct stack *st, void (*fn)(struct stack *st, const struct vma_flow_key *key, void *arg), void *arg);
/* How many sockets want the rule; 0: it does not stand. The lock is held. */
unsigned stack_flow_users(struct stack *st, const struct vma_flow_key *key);
/* stack_stats.c: copies the ring's counters where vma_stats sees them; the lock is held. */
void stack_publish(struct stack *st);
/* The process's buffer pools are sums over all stacks. */
struct stack_pools {
	uint64_t rx_free, tx_free, rx_missing, tx_missing;
};
/* Publishes st's queue and adds to the sums; the lock is held. */
void stack_publish_gauges(struct stack *st, struct stack_pools *sums);
/* Worker only. */
void stack_publish_pools(const struct stack_pools *sums);
/* Time stamps are taken while somebody wants them: each socket counts once for software's, once for the device's. */
#define STACK_STAMP_SOFTWARE 1ull
#define STACK_STAMP_DEVICE (1ull << 32)
/* delta: a difference of sums of these. */
void stack_timestamps(uint64_t delta);
/* Starts the worker's part (drain, link events); stops everything: rings closed, rules gone. */
int stacks_start(void);
void stacks_stop(void);
/* After net_process(): sockets follow what the events have changed, once for all of them. The worker only. */
void stacks_follow(void);
/* Another process has left the interface's queues: sockets look for a ring again. The worker only. */
void stack_freed(int ifindex);
/* The child of a fork(): the rings are the parent's; forget them and close our copies of their fds. */
void stacks_forked(void);

#endif
