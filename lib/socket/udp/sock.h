/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of UDP sockets: what a program sees of one. preload calls their operations (struct
 * vfd_ops), stacks hand them packets (struct stack_user_ops), the room of handovers gives them to
 * the kernel.
 *
 * Every datagram: send.c, recv.c, input.c, fast_path.c, gso_burst.c; cmsg.c where ancillary data
 * was asked for; show.c, completion.c and zcopy.c for programs of the Extra API. When something
 * changes: sock.c, attach.c, flow_keys.c, resolve.c, sockopt.c, option_copies.c, multicast.c,
 * migrate.c, sharing.c. Rare: full_queue.c, dummy_send.c, send_ask.c (what the Extra API asks).
 */
#ifndef SOCKET_UDP_SOCK_H
#define SOCKET_UDP_SOCK_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "fd/fd.h"
#include "mellanox/vma_extra.h"
#include "proto/proto.h"
#include "runtime/runtime.h"
#include "socket/socket.h"
#include "stack/stack.h"
#include "stats/stats.h"
#include "wait/wait.h"

#define UDP_ATT_MAX 16 /* stacks that one socket can be attached to */
#define UDP_DST_WAYS 8 /* remembered destinations, power of two */
#define UDP_KEYS_MAX 128 /* steering rules of one socket on one stack */
/* What a queued datagram is charged besides its bytes, so that empty ones are bounded, too. */
#define UDP_CHARGE 128u
/* One IP datagram's UDP payload at most. */
#define UDP_PAYLOAD_MAX 65507u

struct udp_callback {
	vma_recv_callback_t fn; /* NULL: none */
	void *context;
};

/*
 * The socket in one stack. Type-stable and attached to a stack for as long as the socket lives:
 * when the rules no longer want it there it only leaves the demultiplexer, what is queued stays
 * readable.
 */
struct udp_att {
	struct udp_bind bind; /* first: udp_input() comes from here */
	struct udp_sock *_Atomic s;
	struct stack *_Atomic st;
	/* The receive queue; st->lock. */
	struct buf *head, **tail;
	uint64_t charge;
	_Atomic unsigned queued; /* datagrams in the queue, for those who look without the lock */
	bool listed; /* in st's demultiplexer */
	bool is_chosen; /* st is the interface's that the socket's key has chosen. s->lock */
	/*
	 * The receive callback, and what is to be shown to it (show.c); charged as what is queued.
	 * is_due: it counts in stacks_unshown. showing: a thread is in the callback. st->lock
	 */
	bool is_due, showing;
	/* What comes waits in unshown: for the callback, or to be told by completions
	 * (completion.c) */
	bool queues_unshown;
	struct udp_callback cb;
	struct buf *unshown, **unshown_tail;
	/* of the charge, what the program holds; st->lock */
	uint64_t held;
	uint32_t uses; /* by sockets, this one counted; st->lock */
	/*
	 * st->lock: what fast_path.c has found out of the above, for as long as st->udp_gen is
	 * this.
	 */
	_Atomic uint64_t fast_gen;
	bool fast_any; /* every unicast address is ours, else fast_dst only, network order */
	uint16_t fast_port;
	uint32_t fast_dst;
	unsigned num_keys;
	struct vma_flow_key *keys;
	/* completion.c; st->lock */
	struct stack_due due;
	uint32_t kernel_events; /* of the kernel socket, EPOLL*, that are to be told */
	struct udp_att *next_free;
};

/* A destination that has been resolved; belongs to st->lock. */
struct udp_dst {
	struct stack *_Atomic st; /* NULL: empty */
	union {
		struct {
			uint32_t net_gen, neigh_gen;
		};
		uint64_t gens; /* both, as net_generations() */
	};
	uint32_t tick, opt_gen;
	uint32_t max_payload;
	/*
	 * payload that the fast path takes; 0: it is not for this destination (udp_dst_fast_path())
	 */
	uint32_t fast_max;
	uint8_t key_len;
	uint8_t key[28]; /* the sockaddr as the user gave it */
	int ifindex;
	bool stale; /* the neighbour wants to be confirmed */
	struct in6_addr next_hop;
	struct udp_hdr hdr;
};

struct udp_group {
	struct in6_addr group;
	int ifindex;
	bool exclude; /* sources are blocked ones; otherwise the only ones allowed */
	unsigned num_sources;
	struct in6_addr *sources;
};

/*
 * Options that the packet path reads: copies of what the kernel socket holds. Written under the
 * socket's lock, each read alone and without it.
 */
struct udp_opts {
	_Atomic bool nonblock, broadcast, reuseport, reuseaddr, v6only;
	_Atomic bool mc_loop, mc_all, mc_loop6, mc_all6;
	/* IP_MTU_DISCOVER asks for DF; also where the path's MTU is locked */
	_Atomic bool df, df_always;
	/* SO_TIMESTAMP*, the latter: the 64-bit struct */
	_Atomic bool timestamp, timestamp_ns, ts_new;
	/*
	 * one of them, or SIOCGSTAMP, was used: the kernel stamps such a socket's packets for ever
	 */
	_Atomic bool stamp_ever;
	_Atomic bool pktinfo, recvttl, recvtos, origdst; /* IPv4 ancillary data */
	_Atomic bool pktinfo6, recvhoplimit, recvtclass, origdst6;
	_Atomic bool rxq_ovfl;
	_Atomic bool gro; /* UDP_GRO: a burst is received whole */
	_Atomic bool any_cmsg; /* one of those that make ancillary data is set */
	/* SO_RCVTIMEO was set to a negative time, which the kernel does not tell again */
	bool rcv_at_once;
	_Atomic uint8_t ttl, tos, mc_ttl;
	_Atomic uint8_t hops6, tclass6, mc_hops6;
	_Atomic uint32_t timestamping; /* SOF_TIMESTAMPING_* */
	_Atomic uint64_t stamping; /* what this socket counts for in stack_timestamps() */
	_Atomic int mc_if, mc_if6; /* ifindex, 0: by route */
	struct in6_addr mc_if_addr; /* IP_MULTICAST_IF's address, :: none */
	_Atomic int bound_if;
	_Atomic uint32_t mark;
	_Atomic uint32_t gso_size; /* UDP_SEGMENT */
	_Atomic uint64_t rcvbuf; /* limit of a queue's charge */
	_Atomic uint64_t rcvtimeo_ns; /* 0: for ever */
};

union udp_addr {
	struct sockaddr sa;
	struct sockaddr_in6 in6; /* the longest */
	uint64_t word[4];
};

/*
 * An address that senders read without the lock (udp_peer_get()), perhaps while it changes: who
 * writes bumps opt_gen before and after, no destination is remembered in between, and who sends
 * takes one only that has the opt_gen from before the reading; or takes the lock and reads again.
 */
struct udp_peer {
	_Atomic uint64_t word[4];
	_Atomic socklen_t len;
};

#define UDP_UNSTAMPED 1u

struct udp_sock {
	struct vfd v; /* first */
	_Atomic uint32_t gen; /* bumped at close: whoever still is inside a call sees it */
	struct lock lock; /* bind, connect, options, attaching; taken before any stack lock */
	_Atomic int domain;
	uint64_t inode; /* of the kernel socket */
	union {
		struct {
			/* goes through the kernel from now on (rule 3): set once */
			_Atomic bool in_kernel;
			_Atomic bool shut_rd, shut_wr;
			/* the kernel socket holds part of a datagram (MSG_MORE) */
			_Atomic bool corked;
		};
		_Atomic uint32_t special; /* not 0: one of them is set; only read */
	};
	_Atomic bool bound, connected;
	/* the program has waited for it, received or sent: udp_attach() may do something */
	_Atomic bool begun;
	/* what came before that waits in the kernel socket: older than all that the rings bring */
	_Atomic bool kernel_has_older;
	_Atomic bool kernel_rx; /* the rules leave receiving to the kernel */
	/* odd while what is queued goes to the kernel socket (udp_take_queued()) */
	_Atomic uint32_t givings;
	/* another process's socket may want the same packets: both get them from the kernel */
	_Atomic bool shared;
	_Atomic uint32_t opt_gen; /* bumped when an option that prebuilt headers contain changes */
	_Atomic unsigned natt;
	struct udp_att *_Atomic att[UDP_ATT_MAX];
	struct udp_dst *_Atomic dsts; /* UDP_DST_WAYS of them, made by the first send */
	/* the one used last, a hint, maybe a former socket's; NULL: none yet */
	struct udp_dst *_Atomic dst_last;
	_Atomic uint32_t os_countdown; /* empty polls until the kernel socket is looked at */
	/* udp_kernel_sends when the kernel socket was last looked at */
	_Atomic uint32_t sends_seen;
	_Atomic uint64_t drops; /* for SO_RXQ_OVFL */
	struct wait_spin_memory spin; /* of its blocking calls */
	/*
	 * Whose turn it is where several have something: the kernel socket's; which attachment's.
	 * Hints: two readers at once only change them
	 */
	_Atomic bool os_turn;
	_Atomic uint8_t att_turn;
	/* SIOCGSTAMP, by whoever received last; UDP_UNSTAMPED: that datagram had none */
	_Atomic uint64_t last_time_ns;
	struct udp_opts o;
	struct in6_addr local; /* as bound; :: any */
	_Atomic uint16_t lport; /* host order, 0: not bound. lock; others look without it */
	uint64_t bind_order; /* udp_bind.order */
	/* stacks_generation() when it was attached last. lock; others look without it */
	_Atomic uint32_t stacks_seen;
	struct udp_peer peer; /* of connect() */
	unsigned num_groups;
	/* of the last join, ns; with VMA_WAIT_AFTER_JOIN_MSEC only. Under s->lock, read without */
	_Atomic uint64_t joined_ns;
	struct udp_group *groups;
	struct vma_stats_socket *_Atomic stats; /* of a former life for who is still in it */
	/*
	 * Whose rings it receives and sends with (stack/key.h); as of the first time. Written under
	 * lock
	 */
	_Atomic bool keyed, tx_keyed;
	_Atomic uint64_t key, tx_key;
	/* what was said of them; read without lock */
	_Atomic stack_ring_attr ring_attr_rx, ring_attr_tx;
	/* of any caller, without a lock: a race only blurs the count */
	struct stack_mover mover, tx_mover;
	int worker_fd; /* -1: the worker does not watch the kernel socket */
	unsigned id; /* index into the claims (handover/udp_fork.c) */
	/*
	 * inherited by fork(): the claim to raise before receiving; NULL otherwise or when a thread
	 * has taken it to raise it
	 */
	_Atomic uint8_t *_Atomic inherited_claim;
	struct udp_callback cb; /* as in its attachments; lock */
	struct sock_user_data user_data;
	/* frames of it are, or were, in the program's hands (zcopy.c) */
	_Atomic bool has_held;
	/* A child of fork() has had its numbers, too: what waits here may be read there. */
	_Atomic bool copied;
	bool in_shows; /* for ever; lock */
	/* A thread runs the receive callback. Its attachments' datagrams wait for that. */
	_Atomic bool in_callback;
	struct udp_sock *shows_next; /* show.c's list */
	/* A send was refused by that stack (full_queue.c); in the list while tx_refused is set. */
	_Atomic bool tx_refused;
	struct stack *_Atomic refused_by;
	struct udp_sock *refused_next;
	struct udp_sock *next, *next_free; /* sock.c's lists */
	_Atomic bool in_use;
};

/* --- for preload */

/* Starts the once-a-second tick. 0 or negative errno. */
int udp_start(void);
/*
 * Makes the object of a new kernel socket (AF_INET or AF_INET6, SOCK_DGRAM) and enters it into the
 * fd table. 0, or negative errno: then fd stays a plain kernel socket.
 */
int udp_socket_created(int fd, int domain, int type, int protocol);

/*
 * The process is about to lose its privileges: its bound sockets are attached as by a first use. No
 * lock held.
 */
void udp_preopen(void);

/* --- for the Extra API */

/*
 * Each datagram that a ring brings is shown to fn before it can be read; NULL: no more. 0, or
 * negative errno: -EINVAL: the kernel serves the socket.
 */
int udp_set_callback(struct vfd *v, int fd, vma_recv_callback_t fn, void *context);

/*
 * recvfrom_zcopy(3): with MSG_VMA_ZCOPY in *flags buf holds a struct vma_packets_t, else data. -1
 * and errno as recvfrom(); ENOBUFS: it would have to be copied, and must not.
 */
ssize_t udp_recv_zcopy(struct vfd *v, int fd, struct zcopy *z);

/* SO_VMA_USER_DATA: what its completions carry. 0 or negative errno. */
int udp_set_user_data(struct vfd *v, int fd, uint64_t value);
uint64_t udp_get_user_data(struct vfd *v, int fd);

/*
 * SO_VMA_RING_ALLOC_LOGIC: whose rings it receives by (rx) and sends by (tx) from now on. 0 or
 * negative errno.
 */
int udp_set_ring_attr(struct vfd *v, int fd, bool rx, bool tx, stack_ring_attr w);

/* The stacks that it receives by, at most max. */
unsigned udp_stacks(struct vfd *v, struct stack *sts[], unsigned max);
/*
 * The stack that sends to `to`, NULL: to the connected peer; NULL: none does. It may be opened for
 * that.
 */
struct stack *udp_tx_stack(struct vfd *v, int fd, const struct sockaddr *to, socklen_t tolen);
/*
 * All headers of a datagram to the connected peer, at most UDP_HDR_MAX bytes: how many, or
 * -ENOTCONN: there is none, or the kernel sends to it.
 */
int udp_header(struct vfd *v, int fd, uint8_t *hdr);

/* --- for the room of handovers */

/*
 * The room of handovers registers before the first socket is made: what raises the claim of an
 * inherited socket (inherited_claim is not NULL).
 */
extern void (*udp_claim_raise)(struct udp_sock *s) __attribute__((visibility("hidden")));
/* And what puts the queue of a socket that another process is given into the kernel socket; s->lock
 * is held. */
extern void (*udp_queue_leave)(struct udp_sock *s) __attribute__((visibility("hidden")));

/* The child of a fork(), by the room of handovers: hands each inherited socket, number fd, to
 * inherit. */
void udp_forked(void (*inherit)(const struct udp_sock *parents, int fd));
/* Runs fn for every live socket, its lock held. */
void udp_each(void (*fn)(struct udp_sock *s, void *arg), void *arg);
/* The ids of sockets that there have been are below this. */
unsigned udp_num_ids(void);
/* A socket object that is in no table yet; NULL when out of memory. */
struct udp_sock *udp_sock_new(int fd, int domain);
/* Copies the options of a kernel socket that is not new to its new object. */
void udp_opts_mirror_all(struct udp_sock *s, int fd);
/* Why the kernel serves a part of s. */
static inline void udp_why(struct udp_sock *s, int fd, enum vma_why_path path, enum vma_why reason)
{
	stats_why(s->stats, fd, path, (struct vma_stats_why){.reason = reason});
}
/*
 * Hands s to the kernel for good; queued datagrams stay readable. s->lock is held.
 */
void udp_to_kernel(struct udp_sock *s, int fd, struct vma_stats_why why);
/*
 * The same, and what is queued or on its way waits in the kernel socket, in its order, as far as
 * that has room and can have it (replay.c).
 */
void udp_move_to_kernel(struct udp_sock *s, struct vma_stats_why why);
/*
 * After that, no lock held: other sockets of its port (0: of any) may leave it the packets that are
 * its own. A look asks the kernel for each port.
 */
void udp_sharing_look(uint16_t port);
/*
 * This process lets go of s, and a child of fork() may have it, too: what has come and nobody has
 * read waits in the kernel socket from then on. Nothing when there was no fork(). s->lock is held.
 */
void udp_leave_to_children(struct udp_sock *s);
/*
 * Takes the queued datagrams out one after the other, until fn, which gets each with its stack
 * locked, says false: that one stays. fn brings it to the kernel socket, which is asked from then
 * on. s->lock is held.
 */
void udp_take_queued(struct udp_sock *s,
		     bool (*fn)(const struct buf_meta *m, const void *data, size_t len, void *arg),
		     void *arg);

#endif
