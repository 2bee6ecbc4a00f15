/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of stacks. A stack is one ring with its flows, its timers and its lock (rule 5 of
 * docs/design.md); there is one for each offloaded interface, or several (key.h). Sockets use it,
 * waits poll it, the internal thread looks after it. What a protocol does with a packet or with an
 * interface that goes it registers here (struct stack_user_ops): a stack knows no socket.
 *
 * Every packet: receive.c, source.c; held.c for those that the program keeps, callbacks.c for
 * its callbacks, due.c for its completions; every send: round.c. When a socket attaches: registry.c
 * (the table of stacks), open.c, key.c, addrs.c, flow.c, port_claim.c, and refusal.c where it gets
 * none.
 * Rare or by the internal thread: async_open.c, upkeep.c, rest.c, publish.c, owner.c, users.c,
 * ring_fd.c, watch.c, ipsec.c.
 */
#ifndef STACK_STACK_H
#define STACK_STACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mem/mem.h"
#include "net/net.h"
#include "proto/proto.h"
#include "ring/ring.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "stats/stats.h"
#include "stack/due.h"
#include "stack/held.h"
#include "stack/key.h"
#include "stack/rest.h"
#include "stack/round.h"

#define STACKS_MAX 64
#define STACK_FLOW_BUCKETS 256

/* One steering rule of the ring and how many sockets want it. */
struct stack_flow {
	struct stack_flow *next;
	struct vma_flow_key key;
	unsigned users;
	bool suspended; /* the ring has no rule for it just now */
	uint8_t trial; /* stack_flow_tried(): looks that are to come */
	bool port_claimed; /* to the port (port_claim.h) */
	bool is_joint; /* stack_flow_join() */
	int fd; /* of the socket that has added it: who looks at the table sees it */
};

/*
 * Whether the kernel would take a packet with these addresses in, as it was asked when
 * net_generation() was `gen`.
 */
struct stack_source {
	uint32_t src, dst; /* network order */
	uint32_t gen; /* 0: empty */
	uint32_t refused_until; /* 0: it would; else not, and from this second on it is asked again
				 */
};

#define STACK_SOURCE_BITS 14

/*
 * How far the ring of a stack is. One that comes is opened by the internal thread, or by who cannot
 * go on without it; the stack is open meanwhile, for connections that begin when it is there.
 */
enum stack_ring {
	STACK_RING_THERE,
	STACK_RING_COMES,
	STACK_RING_CAME, /* it is there, and the internal thread has not told anybody yet */
	STACK_RING_REFUSED, /* it cannot be opened: the stack is about to be closed */
};

/* Memory of a stack is never given back before the process ends: a pointer to one stays good. */
struct stack {
	struct lock lock; /* all below, the ring and the queues of attached sockets */
	_Atomic bool open;
	/* closed, but sockets are still being taken off: not to be reused. The stacks' mutex */
	bool leaving;
	struct ring *ring; /* while it comes: no_ring */
	int ifindex;
	bool is_loopback;
	/* 1 << STACK_SOURCE_BITS of them, and what they are found by, odd */
	struct stack_source *sources;
	uint32_t source_seed;
	/* whose it is (key.h); changes, when nobody uses it any more, under the stacks' mutex */
	_Atomic uint64_t key;
	/*
	 * Sockets that receive here, connections, listeners, one more for those that only send; and
	 * who has just got it. Any thread.
	 */
	_Atomic unsigned users;
	_Atomic bool sends; /* counted for those */
	/* by application threads; the worker drains a stack whose count stands still */
	uint32_t polls;
	uint32_t polls_seen; /* worker only */
	/* VMA_RX_CQ_DRAIN_RATE_NSEC: when it was polled although data waited */
	uint64_t drained_ns;
	struct vma_stats_ring *stats;
	struct vma_stats_cq *cq_stats;
	struct udp_demux udp;
	/*
	 * Another with each change of who is in udp, and when the stack opens or shuts; no two
	 * stacks ever have the same.
	 */
	_Atomic uint64_t udp_gen;
	struct tcp_sock_stack *tcp; /* NULL until the first TCP socket */
	struct stack_flow *flows[STACK_FLOW_BUCKETS];
	unsigned group_flows; /* of them, multicast groups' */
	/*
	 * Since when there are frames that a round has left unkicked (round.h), 0: there are none;
	 * whether there were any since the internal thread looked.
	 */
	_Atomic uint64_t unkicked_since_ns;
	_Atomic bool has_rounds;
	/* TCP has something to say that waits for the end of a round; set under the lock. */
	_Atomic bool has_unsaid;
	struct stack_due *due, **due_tail; /* due.h */
	_Atomic int named; /* ring_fd.c: by this number less 1; 0: the program does not know it */
	_Atomic uint8_t ring_state; /* enum stack_ring; changes under the lock */
	/* events of the interface may have found no stack, while the ring was being opened */
	_Atomic bool link_unseen;
	struct ring no_ring;
};

/* What a protocol whose sockets live in stacks is told. All are there; its sockets' locks are its
 * own. */
struct stack_user_ops {
	/*
	 * A packet that the gate has passed; b is the user's from here on. *now_us: the time of
	 * this batch, CLOCK_MONOTONIC, read by who needs it while it is 0. The stack's lock is
	 * held.
	 */
	void (*input)(struct stack *st, struct buf *b, uint64_t *now_us);
	/* The interface has vanished, its ring goes in a moment: nothing of it may be kept. No lock
	 * held. */
	void (*gone)(struct stack *st);
	/*
	 * The ring brings no more packets, gone() follows: what can go on through the kernel goes.
	 * No lock held.
	 */
	void (*cut_off)(struct stack *st);
	/*
	 * What the peer of this connection sends does not come by a ring, whoever has it: the
	 * kernel is to have it, if it was the peer who sent that. The worker, no lock held. NULL:
	 * the kernel's sockets take it.
	 */
	void (*strays)(const struct vma_stray *stray);
	/*
	 * Addresses, links or rings have changed: sockets look where they belong, and open rings.
	 * No lock held.
	 */
	void (*addresses_changed)(void);
	/*
	 * Packets wait for the program's callbacks, which run now. No lock held. False: this is a
	 * child that one of them has forked.
	 */
	bool (*show)(void);
};

/* The one that sends by itself, too: it has timers, and segments that wait for room. */
struct stack_timed_ops {
	/* The first ring of the process is there: from now on there is something to be timed. */
	int (*first_ring)(void); /* 0 or negative errno */
	/* After a batch: what became due is sent, timers run. now_us as above. The lock is held. */
	void (*polled)(struct stack *st, uint64_t now_us);
	/* What calls of a round have left unsaid is sent. The lock is held; a kick follows. */
	void (*say)(struct stack *st);
	/* True when st must not be slept on: segments wait for room in the device's queue. */
	bool (*is_blocked)(const struct stack *st);
	/* Somebody is about to sleep: the internal thread is to run the timers in time. No lock
	 * held. */
	void (*sleep_hint)(void);
	/*
	 * True: nothing has to be looked at in st until a packet comes or the internal thread's
	 * timer goes off, which sleep_hint() sets. The lock is held.
	 */
	bool (*rests)(struct stack *st);
	/* The same of what stands beside the stacks. The internal thread, no lock held. */
	bool (*may_rest)(void);
	/* Addresses, links or rings have changed: connections look at their paths. No lock held. */
	void (*paths_changed)(void);
	/* Neighbours have changed. No lock held. */
	void (*neighbours_changed)(void);
	/* What vma_stats shows of each connection is brought up to date. No lock held. */
	void (*figures)(void);
	/* Segments that st has sent again, ever. The lock is held. */
	uint64_t (*retransmits)(const struct stack *st);
	/*
	 * The ring is there that was still to come: what was begun meanwhile goes on. The worker,
	 * no lock held.
	 */
	void (*ring_came)(struct stack *st);
};

/* Once, before the first stack is opened; the tables stay where they are. */
void stack_register_udp(const struct stack_user_ops *ops);
void stack_register_tcp(const struct stack_user_ops *ops, const struct stack_timed_ops *timed);
extern const struct stack_user_ops *stack_udp_ops __attribute__((visibility("hidden")));
extern const struct stack_user_ops *stack_tcp_ops __attribute__((visibility("hidden")));
extern const struct stack_timed_ops *stack_timed_ops __attribute__((visibility("hidden")));

/*
 * The stack of an interface for the sockets with this key, opened when it is not yet; another one,
 * shared, where VMA_RING_LIMIT_PER_INTERFACE or the device allows no more. NULL when the interface
 * is not to be offloaded or cannot be (the log has said why). The caller is one of its users until
 * stack_put(): nobody else's key takes it over meanwhile. Takes the stacks' own mutex: no stack
 * lock may be held.
 */
struct stack *stack_get(int ifindex, uint64_t key);
/*
 * The same for who may not wait: the ring may be still to come (stack_ring_comes()), or be refused
 * before it is there (stack_refused()); then struct stack_user_ops.cut_off and gone() follow. With
 * several rings for an interface it is stack_get().
 */
struct stack *stack_get_soon(int ifindex, uint64_t key);
static inline enum stack_ring stack_ring_state(const struct stack *st)
{
	return (enum stack_ring)atomic_load_explicit(&st->ring_state, memory_order_acquire);
}
/* For who does not hold the lock: what is there may take the place of what was not. */
static inline struct ring *stack_ring(const struct stack *st)
{
	return __atomic_load_n(&st->ring, __ATOMIC_ACQUIRE);
}
/* Nothing can be sent yet; the lock is held. */
static inline bool stack_ring_comes(const struct stack *st)
{
	return stack_ring_state(st) == STACK_RING_COMES;
}
/* Nothing is to be begun there; the lock is held. */
static inline bool stack_refused(const struct stack *st)
{
	return stack_ring_state(st) == STACK_RING_REFUSED;
}
/* Rings that are still to come are opened now, by this thread, which holds no lock. */
void stacks_open_pending(void);
/* stack_get() for one that only sends there; it is not to be put. */
struct stack *stack_get_sender(int ifindex, uint64_t key);
/* refusal.c: why stack_get() has just said NULL. No stack's lock held. */
struct vma_stats_why stack_why_not(int ifindex);
/*
 * Why no interface (bound_if: not this one) brings the packets of a socket that is bound to local,
 * :: any. As stack_why_not().
 */
struct vma_stats_why stack_why_unserved(const struct in6_addr *local, int bound_if);
/* A stack of an interface if one is open. */
struct stack *stack_any(int ifindex);
/* The program has said that interfaces are to have several. For ever. */
extern _Atomic bool stacks_have_ring_attr __attribute__((visibility("hidden")));
/* It says so, before it gets the stack of a socket with an attribute of its own. */
void stacks_set_ring_attr(void);
/* Interfaces may have several: VMA_RING_ALLOCATION_LOGIC_RX or _TX says so, or the program. */
static inline bool stacks_several(void)
{
	return params.ring_allocation_logic_rx || params.ring_allocation_logic_tx ||
	       atomic_load_explicit(&stacks_have_ring_attr, memory_order_acquire);
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
 * The stack of the interface that has a rule for `key` which others than `fewer` sockets in `mine`
 * (NULL: none) want; NULL: none has. Takes stack locks.
 */
struct stack *stack_flow_owner(int ifindex, const struct vma_flow_key *key,
			       const struct stack *mine, unsigned fewer);
/*
 * The stack of the interface that has a rule for a multicast group, whichever; NULL: none has.
 * Takes stack locks.
 */
struct stack *stack_groups_owner(int ifindex);
/* From asking who owns a rule to setting it. Taken before any stack lock, after a socket's. */
extern struct lock stack_flows_lock __attribute__((visibility("hidden")));
/* True when the kind and state of the interface allow a stack. */
bool stack_wanted(int ifindex);

/* --- addrs.c: whom an interface brings packets for. No stack's lock held. */

#define STACK_ADDRS_MAX 64
/*
 * Up to max addresses that it brings packets for: its own, and the service addresses that stand on
 * the loopback interface (net_addr_service_list()); of the loopback interface itself all of the
 * host. Returns how many.
 */
unsigned stack_addrs(int ifindex, struct in6_addr *addrs, unsigned max);
/* It is among those. */
bool stack_has_address(int ifindex, const struct in6_addr *addr);
/*
 * The same, of those for which packets of one peer keep to this interface: a connection lives in
 * one stack. Routers may send those for a service address by whichever interface there is.
 */
unsigned stack_addrs_lasting(int ifindex, struct in6_addr *addrs, unsigned max);
/* A service address that stack_addrs_lasting() has left out, as there are several interfaces. */
bool stack_by_several_ways(const struct in6_addr *local);

/*
 * Runs fn for the open stacks of an interface, their lock held, until it says true; returns whether
 * it did.
 */
bool stacks_any_on(int ifindex, bool (*fn)(struct stack *st, void *arg), void *arg);
/* Runs fn for every open stack, its lock held. */
void stacks_each(void (*fn)(struct stack *st, void *arg), void *arg);
/* Polls the ring once and delivers; the lock is held. Returns the number of packets. */
unsigned stack_poll(struct stack *st, unsigned max);
/*
 * The descriptor that names st's ring to the program, readable when the ring has something; -1: it
 * has none. No lock is held.
 */
int stack_ring_fd(struct stack *st);
/* The stack that the program knows by this descriptor; it may have been closed. NULL: none. */
struct stack *stack_of_ring_fd(int fd);
/* Packets wait in the ring of an open stack; the lock is held. */
static inline bool stack_pending(struct stack *st)
{
	return atomic_load_explicit(&st->open, memory_order_relaxed) &&
	       ring_ops(st->ring)->pending(st->ring);
}

/*
 * As stack_poll(), by a thread of the application; the lock is held. Nothing when the stack is
 * closed.
 */
static inline unsigned stack_poll_called(struct stack *st)
{
	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return 0;
	st->polls++;
	return stack_poll(st, (unsigned)params.cq_poll_batch_max);
}

/* After a batch, or instead of one: the timers' turn. The lock is held. */
static inline void stack_polled(struct stack *st, uint64_t now_us)
{
	if (st->tcp)
		stack_timed_ops->polled(st, now_us);
}

static inline struct stack_source *stack_source(const struct stack *st, uint32_t src, uint32_t dst)
{
	return &st->sources[((src ^ (dst << 16 | dst >> 16)) * st->source_seed) >>
			    (32 - STACK_SOURCE_BITS)];
}

/* A packet with these IPv4 addresses is known to be one that the kernel takes in. */
static inline bool stack_source_known(const struct stack *st, uint32_t src, uint32_t dst)
{
	const struct stack_source *e = stack_source(st, src, dst);

	return e->src == src && e->dst == dst && e->gen == net_generation() && !e->refused_until;
}

/* A frame that ring_poll() gave goes to whom it is for, unstamped; the lock is held. */
void stack_input(struct stack *st, struct buf *b);
/* Not 0: received frames are to be stamped. */
extern _Atomic uint64_t stack_timestamps_wanted __attribute__((visibility("hidden")));
/* Received frames can have the device's time stamp; st may be closed. Takes its lock. */
bool stack_stamps(struct stack *st);
/*
 * VMA_RX_CQ_DRAIN_RATE_NSEC: a receive is to poll although data waits, and is taken to do so now.
 * The lock is held.
 */
bool stack_drain_due_slow(struct stack *st);

static inline bool stack_drain_due(struct stack *st)
{
	return __builtin_expect(params.rx_cq_drain_rate_nsec, 0) && stack_drain_due_slow(st);
}

/* Renews udp_gen; the lock is held. */
void stack_udp_changed(struct stack *st);
/*
 * Adds or releases a steering rule; the lock is held. 0 or negative errno. A listener's over a card
 * (ring_caps.takes_all) is suspended from the beginning while another process has claimed the
 * port, or the kernel has a connection of it.
 */
int stack_flow_add(struct stack *st, const struct vma_flow_key *key, int fd);
/* The same of a listener that other processes have, too: they may share the rule (VMA_FLOW_JOINT).
 */
int stack_flow_join(struct stack *st, const struct vma_flow_key *key, int fd);
void stack_flow_del(struct stack *st, const struct vma_flow_key *key);
/* The ring has the rule. */
bool stack_flow_stands(struct stack *st, const struct vma_flow_key *key);
/* The port's segments may be ours, as far as other processes are concerned. */
bool stack_flow_ours(struct stack *st, const struct vma_flow_key *key);
/*
 * A listener's rule over a card stands anew: the kernel may have got a connection of the port just
 * before, of which it does not say yet. So it is looked for again, once a second, twice.
 */
bool stack_flow_on_trial(struct stack *st, const struct vma_flow_key *key);
/* It is on trial, and the next look is due, which the caller takes. */
bool stack_flow_tried(struct stack *st, const struct vma_flow_key *key);
/*
 * The rule that stands goes, but not its users; and comes back, if the ring takes it and the kernel
 * has not got a connection meanwhile.
 */
void stack_flow_suspend(struct stack *st, const struct vma_flow_key *key);
void stack_flow_resume(struct stack *st, const struct vma_flow_key *key);
/* fn adds and deletes none. */
void stack_flows_each(struct stack *st,
		      void (*fn)(struct stack *st, const struct vma_flow_key *key, void *arg),
		      void *arg);
/* How many sockets want the rule; 0: it does not stand. The lock is held. */
unsigned stack_flow_users(struct stack *st, const struct vma_flow_key *key);
/* publish.c: copies the ring's counters where vma_stats sees them; the lock is held. */
void stack_publish(struct stack *st);
/* The process's buffer pools are sums over all stacks. */
struct stack_pools {
	uint64_t rx_free, tx_free, rx_missing, tx_missing;
};
/* Publishes st's queue and adds to the sums; the lock is held. */
void stack_publish_gauges(struct stack *st, struct stack_pools *sums);
/* Worker only. */
void stack_publish_pools(const struct stack_pools *sums);
/*
 * Time stamps are taken while somebody wants them: each socket counts once for software's, once for
 * the device's.
 */
#define STACK_STAMP_SOFTWARE 1ull
#define STACK_STAMP_DEVICE (1ull << 32)
/* delta: a difference of sums of these. */
void stack_timestamps(uint64_t delta);
/*
 * The internal thread is woken by each packet of st's ring, from here on. st is open and locked;
 * why: the parameter that wants it.
 */
void stack_watch(struct stack *st, const char *why);
/* Starts the worker's part (drain, link events); stops everything: rings closed, rules gone. */
int stacks_start(void);
void stacks_stop(void);
/*
 * After net_process(): connections and sockets follow what the events have changed, once for all of
 * them; sockets that look for a ring while one is being opened, at the next tick after that. The
 * worker only.
 */
void stacks_follow(void);
/*
 * The library leaves the process: the kernel has all that the stacks had, and their rings are gone
 * after stacks_retired_end(). The worker only.
 */
void stacks_leave(void);
/* Closes the rings of stacks that are gone. No thread is inside kick(). The worker only. */
void stacks_retired_end(void);
/*
 * The process becomes this user: rings with what that one may not see are given up. The worker
 * only.
 */
void stacks_user_changes(uid_t uid);
/* False: stacks_user_changes() has nothing to look at. */
bool stacks_user_matters(void);
/*
 * Rings that are opened from now on are for this user, whom the process is about to become;
 * (uid_t)-1: for who it is. None is being opened for another one when it returns. Not from the
 * worker, nor from a signal handler that interrupted the library.
 */
void stacks_user_to_be(uid_t uid);
/*
 * Another process has left the interface's queues: sockets look for a ring again. The worker only.
 */
void stack_freed(int ifindex);
/*
 * Around fork(): no stack is half open in the child. Waits for who opens one; signals are blocked
 * or handlers deferred in whoever holds the mutex.
 */
void stacks_fork_prepare(void);
void stacks_fork_parent(void);
/*
 * The child of a fork(): the rings are the parent's, those of vanished interfaces among them;
 * forget them and close our copies of their fds.
 */
void stacks_forked(void);

/*
 * Polls every open stack once (those whose lock is free: whoever holds it is polling) and hands the
 * packets to their sockets. Returns the number of packets taken in. No lock held; makes no system
 * call when nothing is there.
 */
unsigned stacks_poll(void);
/*
 * Queues with packets that are to be shown to the program (the Extra API's receive callback) before
 * they can be read. Changes with a stack's lock held.
 */
extern _Atomic unsigned stacks_unshown __attribute__((visibility("hidden")));
/* A receive callback was set once: it runs in calls of the program that come this way. */
extern _Atomic bool stacks_have_callbacks __attribute__((visibility("hidden")));
/* This thread is inside such a callback: it runs no other. */
extern __thread bool stack_showing __attribute__((tls_model("initial-exec"), visibility("hidden")));
bool stacks_show_slow(void);

static inline bool stacks_show_due(void)
{
	return __builtin_expect(atomic_load_explicit(&stacks_unshown, memory_order_acquire) != 0,
				0) &&
	       !stack_showing;
}

/*
 * By a thread of the program, where a call of it looks for packets: runs its callbacks. No lock is
 * held; errno is kept. False: this is a child that one of them has forked, the call ends.
 */
static inline bool stacks_show(void)
{
	return !stacks_show_due() || stacks_show_slow();
}

/*
 * The fds to sleep on so that no packet of any stack is missed. Returns how many were written (at
 * most max).
 */
unsigned stacks_wait_fds(int *fds, unsigned max);
#define STACKS_WAIT_FDS_MAX 256
/*
 * To be called after the caller's watches are registered and before it sleeps: polls every stack
 * once more, waiting for locks. True: something came in, look again instead of sleeping.
 */
bool stacks_arm(void);
/* Bumped when a stack is opened or closed: wait fds must be fetched again. */
uint32_t stacks_generation(void);

#endif
