/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of a UDP socket, shared by udp*.c. */
#ifndef SOCKET_UDP_INT_H
#define SOCKET_UDP_INT_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/udp_demux.h"
#include "proto/udp_tx.h"
#include "runtime/lock.h"
#include "runtime/stats.h"
#include "socket/stack_int.h"
#include "socket/udp.h"
#include "socket/vfd.h"

#define UDP_ATT_MAX 16 /* stacks that one socket can be attached to */
#define UDP_DST_WAYS 8 /* remembered destinations, power of two */
#define UDP_KEYS_MAX 128 /* steering rules of one socket on one stack */
/* What a queued datagram is charged besides its bytes, so that empty ones are bounded, too. */
#define UDP_CHARGE 128u
/* One IP datagram's UDP payload at most. */
#define UDP_PAYLOAD_MAX 65507u

/*
 * The socket in one stack. Type-stable and attached to a stack for as long as the socket lives: when the rules no
 * longer want it there it only leaves the demultiplexer, what is queued stays readable.
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
	bool home; /* st is the interface's that the socket's key has chosen. s->lock */
	/* st->lock: what udp_short.c has found out of the above, for as long as st->udp_gen is this. */
	_Atomic uint64_t short_gen;
	bool short_any; /* every unicast address is ours, else short_dst only, network order */
	uint16_t short_port;
	uint32_t short_dst;
	unsigned num_keys;
	struct vma_flow_key *keys;
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
	uint32_t short_max; /* payload that the short way takes; 0: it is not for this destination (udp_dst_short()) */
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
 * Options that the packet path reads: copies of what the kernel socket holds. Written under the socket's lock, each read alone
 * and without it.
 */
struct udp_opts {
	_Atomic bool nonblock, broadcast, reuseport, reuseaddr, v6only;
	_Atomic bool mc_loop, mc_all, mc_loop6, mc_all6;
	_Atomic bool df; /* IP_MTU_DISCOVER asks for DF */
	_Atomic bool timestamp, timestamp_ns, ts_new; /* SO_TIMESTAMP*, the latter: the 64-bit struct */
	_Atomic bool stamp_ever; /* one of them, or SIOCGSTAMP, was used: the kernel stamps such a socket's packets for ever */
	_Atomic bool pktinfo, recvttl, recvtos, origdst; /* IPv4 ancillary data */
	_Atomic bool pktinfo6, recvhoplimit, recvtclass, origdst6;
	_Atomic bool rxq_ovfl;
	_Atomic bool gro; /* UDP_GRO: a train is received whole */
	_Atomic bool any_cmsg; /* one of those that make ancillary data is set */
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

#define UDP_UNSTAMPED 1u

struct udp_sock {
	struct vfd v; /* first */
	_Atomic uint32_t gen; /* bumped at close: whoever still is inside a call sees it */
	struct lock lock; /* bind, connect, options, attaching; taken before any stack lock */
	int domain;
	uint64_t inode; /* of the kernel socket */
	union {
		struct {
			_Atomic bool home; /* goes through the kernel from now on (rule 3): set once */
			_Atomic bool shut_rd, shut_wr;
			_Atomic bool corked; /* the kernel socket holds part of a datagram (MSG_MORE) */
		};
		_Atomic uint32_t special; /* not 0: one of them is set; only read */
	};
	_Atomic bool bound, connected;
	_Atomic bool kernel_rx; /* the rules leave receiving to the kernel */
	_Atomic bool shared; /* another process's socket may want the same packets: both get them from the kernel */
	_Atomic uint32_t opt_gen; /* bumped when an option that prebuilt headers contain changes */
	_Atomic unsigned natt;
	struct udp_att *_Atomic att[UDP_ATT_MAX];
	struct udp_dst *_Atomic dsts; /* UDP_DST_WAYS of them, made by the first send */
	struct udp_dst *_Atomic dst_last; /* the one used last, a hint, maybe a former socket's; NULL: none yet */
	_Atomic uint32_t os_countdown; /* empty polls until the kernel socket is looked at */
	_Atomic uint32_t sends_seen; /* udp_kernel_sends when the kernel socket was last looked at */
	_Atomic uint64_t drops; /* for SO_RXQ_OVFL */
	_Atomic bool os_turn; /* a hint: two readers at once only change whose turn it is */
	_Atomic uint64_t last_time_ns; /* SIOCGSTAMP, by whoever received last; UDP_UNSTAMPED: that datagram had none */
	struct udp_opts o;
	struct in6_addr local; /* as bound; :: any */
	uint16_t lport; /* host order, 0: not bound */
	struct sockaddr_storage peer;
	socklen_t peer_len;
	unsigned num_groups;
	struct udp_group *groups;
	struct vma_stats_socket *stats;
	/* Whose rings it receives and sends with (stack_key.h); as of the first time. Written under lock */
	_Atomic bool keyed, tx_keyed;
	_Atomic uint64_t key, tx_key;
	struct stack_mover mover, tx_mover; /* of any caller, without a lock: a race only blurs the count */
	int worker_fd; /* -1: the worker does not watch the kernel socket */
	unsigned id; /* index into the claims (udp_fork.c) */
	_Atomic uint8_t *heir_of; /* inherited by fork(): the claim to raise before receiving; NULL otherwise or when raised */
	struct udp_sock *next, *next_free; /* udp.c's lists */
	_Atomic bool in_use;
};

/* Notes who used the socket last; a store only when it changes. */
static inline void udp_note_tid(__u32 *tid)
{
	uint32_t me = lock_self();

	if (__builtin_expect(__atomic_load_n(tid, __ATOMIC_RELAXED) != me, 0))
		__atomic_store_n(tid, me, __ATOMIC_RELAXED);
}

/* s->lock for a call of the application: a thread that is cancelled in the middle would keep it. Returns what unlocking wants. */
static inline int udp_lock(struct udp_sock *s)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	lock_take(&s->lock);
	return cancel;
}

static inline void udp_unlock(struct udp_sock *s, int cancel)
{
	lock_drop(&s->lock);
	pthread_setcancelstate(cancel, NULL);
}

static inline struct udp_sock *udp_of(struct vfd *v)
{
	return (struct udp_sock *)v;
}

static inline struct udp_att *udp_att(const struct udp_sock *s, unsigned i)
{
	/* acquire: the count may be an older one, from before the place was another attachment's */
	return atomic_load_explicit(&s->att[i], memory_order_acquire);
}

/* The stack of att. acquire, as where att->s is compared: its queue, should att have become another attachment of the socket meanwhile. */
static inline struct stack *udp_att_stack(const struct udp_att *att)
{
	return atomic_load_explicit(&att->st, memory_order_acquire);
}

/* udp_move.c */
/* VMA_RING_ALLOCATION_LOGIC_* that a socket follows from ring to ring. */
extern bool udp_moves_rx __attribute__((visibility("hidden")));
extern bool udp_moves_tx __attribute__((visibility("hidden")));
void udp_moves_start(void);
/*
 * A call is about to receive on s, or to send; no lock is held. It may move to the caller's ring. Until it does the thread is not noted
 * as the last one: so the short ways are not taken by others than the owner, and all their calls are counted here.
 */
void udp_receiving_slow(struct udp_sock *s);
void udp_sending_slow(struct udp_sock *s);
static inline void udp_receiving(struct udp_sock *s)
{
	if (__builtin_expect(udp_moves_rx, 0))
		udp_receiving_slow(s);
	else
		udp_note_tid(&s->stats->rx_tid);
}

static inline void udp_sending(struct udp_sock *s)
{
	if (__builtin_expect(udp_moves_tx, 0))
		udp_sending_slow(s);
	else
		udp_note_tid(&s->stats->tx_tid);
}

/* The stack that s sends with on an interface; NULL as stack_get(). s->lock is held. */
struct stack *udp_sender(struct udp_sock *s, int ifindex);

/* udp.c */
extern const struct vfd_ops udp_ops;
/* Binds the kernel socket to a free port if it has none; then attaches. s->lock is held. 0 or negative errno. */
int udp_autobind(struct udp_sock *s, int fd);
/* Makes stacks and steering rules agree with what s is bound, connected and joined to. s->lock is held. */
void udp_attach(struct udp_sock *s, int fd);
/* Hands s to the kernel for good; queued datagrams stay readable. why is for the log. s->lock is held. */
void udp_go_home(struct udp_sock *s, int fd, const char *why);

/* True when this inode is one of this process's offloaded sockets. */
bool udp_inode_is_ours(uint64_t inode);

/* udp_attach.c; s->lock is held for all of these but the last */
/* Reads from the kernel what s is bound to now. */
void udp_learn_local(struct udp_sock *s, int fd);
/* Out of every demultiplexer, rules away; what is queued stays readable. */
void udp_unlist(struct udp_sock *s);
/* Takes every attachment off its stack and frees what is queued. */
void udp_detach(struct udp_sock *s);
/* The attachment that s has on an interface by its key; NULL: none, or it has gone. */
struct udp_att *udp_home(const struct udp_sock *s, int ifindex);
/* Moves s to the stacks of its key, which has changed. */
void udp_rehome(struct udp_sock *s, int fd);
/* Gives up attachments that neither bring nor hold anything. */
void udp_prune(struct udp_sock *s);
/* In the child of a fork(): attachments are the parent's. */
void udp_atts_forked(void);

/* udp_input.c; the stack's lock is held */
/* Datagrams in a queued buffer: one, or those of a train. */
static inline unsigned udp_count(const struct buf *b)
{
	return __builtin_expect(b->gso_size, 0) ? (b->total + b->gso_size - 1) / b->gso_size : 1;
}

/* n datagrams of `bytes` bytes together have left the queue. */
static inline void udp_uncharge(struct udp_sock *s, struct udp_att *att, unsigned n, uint32_t bytes)
{
	att->charge -= bytes + (uint64_t)n * UDP_CHARGE;
	atomic_store_explicit(&att->queued, att->queued - n, memory_order_release);
	stats_add(&s->stats->rx_ready_packets, -(uint64_t)n);
	stats_add(&s->stats->rx_ready_bytes, -(uint64_t)bytes);
}

/* Takes the first buffer out of the queue, a train whole; the caller frees it. */
static inline struct buf *udp_dequeue(struct udp_sock *s, struct udp_att *att)
{
	struct buf *b = att->head;

	att->head = b->next;
	if (!att->head)
		att->tail = &att->head;
	udp_uncharge(s, att, udp_count(b), b->total);
	return b;
}

/* udp_train.c: takes the first datagram of the train at the head of the queue away; the last one is no train any more. */
void udp_train_step(struct udp_sock *s, struct udp_att *att);

/* Frees what an attachment has queued. */
void udp_att_flush(struct udp_att *att);

/* udp_rx.c */
ssize_t udp_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags);
/* With other flags recvfrom() is a recvmsg(). */
#define UDP_RX_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL)
/* udp_short.c: recvfrom(); what is not of the usual kind is for the next one. */
ssize_t udp_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call, struct sockaddr *addr, socklen_t *alen);
ssize_t udp_recvfrom_any(struct udp_sock *s, int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
			 socklen_t *alen);
int udp_recvmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout);
uint32_t udp_events(struct vfd *v);
/* Bytes of the first datagram waiting here, or -1 when none waits. */
int udp_first_len(struct udp_sock *s);

/* udp_tx.c */
ssize_t udp_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags);
ssize_t udp_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call, const struct sockaddr *addr, socklen_t alen);
int udp_sendmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags);
/* Ticks once a second: large datagrams ask for their path's MTU anew. */
extern _Atomic uint32_t udp_tick __attribute__((visibility("hidden")));
/* Datagrams that this process has sent through kernel sockets of ours. */
extern _Atomic uint32_t udp_kernel_sends __attribute__((visibility("hidden")));

/* udp_opt.c */
int udp_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len);
int udp_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len);
int udp_ioctl(struct vfd *v, int fd, unsigned long req, void *arg);
int udp_fcntl(struct vfd *v, int fd, int cmd, long arg);
/* Has arriving packets stamped if s wants that; s->lock is held. */
void udp_stamping(struct udp_sock *s);
/* SO_TIMESTAMPING asks for nothing that a ring of the socket's cannot stamp; the socket's lock is held. */
bool udp_stamps_here(const struct udp_sock *s);
/* Reads all mirrored options from the new kernel socket. */
void udp_opts_init(struct udp_sock *s, int fd);

/* udp_mc.c */
/* Follows a successful membership option. s->lock is held. Returns false when s must go home. */
bool udp_membership(struct udp_sock *s, int level, int opt, const void *val, socklen_t len);
/* May this socket have a multicast datagram? */
bool udp_mc_accepts(const struct udp_sock *s, const struct buf_meta *m);
void udp_groups_free(struct udp_sock *s);

/* udp_fork.c */
/* Makes what parent and children share. 0 or negative errno. */
int udp_claims_start(void);
/* The parent is to leave receiving on this inherited socket to the kernel: this process is going to read it. */
void udp_claim(struct udp_sock *s);
/* In the child, first. */
void udp_claims_forked(void);
/* In the child: the inherited socket number id, which is fd, becomes an object again. */
void udp_inherit(const struct udp_sock *parents, int fd);

/* udp.c */
/* Runs fn for every live socket, its lock held. */
void udp_each(void (*fn)(struct udp_sock *s, void *arg), void *arg);
/* A socket object that is in no table yet; NULL when out of memory. */
struct udp_sock *udp_sock_new(int fd, int domain);

static inline bool udp_is_multicast(const struct in6_addr *a)
{
	return IN6_IS_ADDR_V4MAPPED(a) ? IN_MULTICAST((uint32_t)a->s6_addr[12] << 24) : IN6_IS_ADDR_MULTICAST(a);
}

/* udp_addr.c: sockaddr <-> v4-mapped address and port. */
/* False when sa is no usable AF_INET/AF_INET6 address of at least its family's length. */
bool udp_addr_get(const struct sockaddr *sa, socklen_t len, struct in6_addr *addr, uint16_t *port, uint32_t *scope);
/* Writes the address in the form that a socket of `domain` gives; returns its length. */
socklen_t udp_addr_put(int domain, const struct in6_addr *addr, uint16_t port, uint32_t scope, struct sockaddr_storage *out);

#endif
