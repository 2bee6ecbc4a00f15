/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of TCP sockets: what a program sees of one, on the engine (tcp/tcp.h). Names begin with
 * tcp_sock_: tcp_ is the engine's. preload calls their operations (struct vfd_ops), stacks hand
 * them packets (struct stack_user_ops, struct stack_timed_ops), the room of handovers gives their
 * connections to the kernel.
 *
 * Every segment: read.c, write.c, file.c (sendfile), env.c, engine_memory.c, transmit.c, path.c,
 * iov.c and cmsg.c, and blocking.c for who waits; show.c, completion.c and zcopy.c for programs of
 * the Extra API. Each connection: connect.c, listen.c, accept.c, sock.c, module.c, port/ (local
 * ports), sysctl.c and secret.c. Rare: option/ (setsockopt), ioctl.c, error_queue.c, fast_open.c,
 * icmp_errors.c, shadow.c, lifecycle.c (start and fork), preopen.c; for vma_stats sock_stats.c and
 * kernel_conns.c.
 */
#ifndef SOCKET_TCP_SOCK_H
#define SOCKET_TCP_SOCK_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "fd/fd.h"
#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "stats/stats.h"
#include "tcp/tcp.h"
#include "wait/wait.h"

/*
 * Who serves the socket. KERNEL until it is connected or waited on; a kernel connection has no
 * object at all.
 */
enum tcp_sock_mode { TCP_SOCK_KERNEL, TCP_SOCK_CONN, TCP_SOCK_LISTEN };

#define TCP_SOCK_LEVEL 0x08000000u /* no EPOLL* bit */

/*
 * What the engine's user pointers point to: the first field of a tcp_sock_att, of a
 * tcp_sock_queued, or a tcp_sock's.
 */
enum tcp_sock_user_kind { TCP_SOCK_USER_CONN, TCP_SOCK_USER_LISTENER, TCP_SOCK_USER_QUEUED };
struct tcp_sock_user {
	uint8_t kind; /* enum tcp_sock_user_kind */
};

/*
 * A connection that waits to be accepted and is registered with the kernel module. Belongs to the
 * stack's lock.
 */
struct tcp_sock_queued {
	struct tcp_sock_user user; /* first */
	const struct tcp_sock_att *att; /* of its listener */
	struct vma_kmod_slot *slot;
	struct tcp_sock_queued *next, **pprev; /* tcp_sock_stack.queued */
};

/*
 * Where the frames of one connection go: route and neighbour as a prebuilt header. Belongs to the
 * stack's lock.
 */
struct tcp_sock_path {
	uint32_t net_gen, neigh_gen;
	bool valid; /* the header is good for these generations */
	bool stale; /* the neighbour wants to be confirmed */
	bool by_another; /* the route leaves by another interface, oif: the kernel sends */
	int oif;
	uint32_t mtu;
	struct in6_addr next_hop;
	struct tcp_frame_hdr hdr;
};

/* A listener in one stack. Lives as long as the listener. */
struct tcp_sock_att {
	struct tcp_sock_user user; /* first */
	struct tcp_sock *s;
	struct stack *st;
	/* NULL: the stack is gone, and may be another listener's. Changed under s->lock and
	 * st->lock */
	struct tcp_listener *l;
	struct stack_due due; /* connections wait that nobody was told of. st->lock */
	bool kernel_has; /* one that the kernel has is to be told of. st->lock */
	bool is_chosen; /* st is the interface's that the listener's key has chosen. s->lock */
	/*
	 * listeners in other stacks may share its rules, or listeners of other processes: a
	 * connection has its own. Written under s->lock and st->lock
	 */
	bool spread, is_joint;
	/* for its rules, or a connection's: asked for again each second. st->lock */
	bool has_no_room;
	unsigned num_keys;
	struct vma_flow_key *keys; /* its steering rules */
	struct tcp_sock_att *next;
};

/*
 * Other stacks, of this process or of others, may have its rules, too. Who comes and goes there
 * changes which of them gets a segment: so each handshake has a rule of its own. st->lock is held.
 */
bool tcp_sock_att_is_shared(const struct tcp_sock_att *att);

/* Of a listener that is joint: when this process has a part of the clients. */
enum tcp_sock_part {
	TCP_SOCK_PART_ALWAYS,
	/* while a call waits for them: none comes to a process that does something else */
	TCP_SOCK_PART_NOW,
	TCP_SOCK_PART_NONE, /* the same, and none waits: the rules are suspended */
};

/* What only a socket has that is not offloaded yet, or listens. */
struct tcp_sock_unconnected {
	struct tcp_sock_att *atts; /* s->lock; a listener's */
	/* option/sockopt.c: bit n: row n was set by the user. Written under s->lock */
	_Atomic uint64_t touched;
	uint16_t backlog; /* net.core.somaxconn at most */
	/* enum tcp_sock_part. s->lock to change it */
	_Atomic uint8_t part;
	/* calls that have waited for it, to be compared only */
	_Atomic uint8_t calls;
	/* has been waited on: atts stand, or are being made. s->lock to change it */
	_Atomic bool attached;
	/* connections from its former owner wait: accept() has them first. s->lock to change it */
	_Atomic bool given;
	/* a parent process has it, too, or had; and it had waited on it. Never changed */
	bool inherited : 1, waited_by_parent : 1;
	bool : 0; /* what follows is another byte */
	/* the steering knows that the kernel has no connections on the port. All: s->lock */
	bool is_quiet : 1;
	/* an option, the rules or another process that shares it leave it to the kernel */
	bool no_offload : 1;
	/* another process has been given it, which may wait; a child of fork() asks anew */
	bool elsewhere : 1;
	/*
	 * processes have it by fork(), and wait for it, or may have others of its port by
	 * SO_REUSEPORT: each with a part of the clients
	 */
	bool is_joint : 1;
};

/* What getsockopt() still says of a connection that went with its interface (option/sockopt.c). */
struct tcp_sock_kept_opts;

/* The path of a socket that sends (path.c). Belongs to the stack's lock. */
struct tcp_sock_path_cache {
	struct tcp_sock_path path;
	struct tcp_sock *s;
	struct tcp_sock_path_cache *next, *prev; /* of the stack's, the latest used first */
	uint32_t used; /* tcp_sock_stack.seconds of the last segment */
};

/* TCP_INQ; SO_TIMESTAMP, SO_TIMESTAMPNS, and that it was in the NEW form. */
#define TCP_SOCK_TELL_INQ 0x01u
#define TCP_SOCK_TELL_US 0x02u
#define TCP_SOCK_TELL_NS 0x04u
#define TCP_SOCK_TELL_NEW 0x08u
/* Among them: it has, or had, a receive callback (show.c). */
#define TCP_SOCK_SHOWS 0x10u
/* SocketXtreme: what happens is told by completions (completion.c). */
#define TCP_SOCK_COMPLETIONS 0x20u
/* Either: what arrives is kept apart before it can be read. */
#define TCP_SOCK_TELLS_EXTRA (TCP_SOCK_SHOWS | TCP_SOCK_COMPLETIONS)

/*
 * Four lines and a word, for which malloc() takes no more: the one that every call looks at, the
 * one that its work needs, the connection's name, and what is rare. An idle connection is this and
 * what the engine has of it.
 */
struct tcp_sock {
	struct vfd v; /* first */
	struct tcp_sock_user user;
	_Atomic uint8_t mode; /* enum tcp_sock_mode; changes under lock */
	uint8_t domain;
	/* By the user; to a port of the user's choice; IPV6_V6ONLY of a connection. s->lock */
	bool bound : 1, port_bound : 1, v6only : 1;
	_Atomic uint8_t tells; /* TCP_SOCK_TELL_*: what recvmsg() says beside data. Option, below */
	/*
	 * Frames of it are, or were, in the program's hands (zcopy.c). Set under st->lock; read
	 * when there is no connection as well
	 */
	_Atomic bool has_held;
	bool accepted; /* uses its listener's steering rule until that goes (has_own_rule) */
	/*
	 * on_block: uses the rule of a block of ports (port/block.c); counted: among the accepted
	 * ones of its port (port/accepted.c); by_shared: other processes have its listener's rule,
	 * too; by_another: tcp_sock_path.by_another, and the kernel is to have it. st->lock
	 */
	bool has_own_rule : 1, on_block : 1, counted : 1, by_shared : 1, by_another : 1;
	/*
	 * closed: out of the fd table; the object waits for TCP_EV_GONE. in_close: tcp_sock_close()
	 * is at work: it releases, not the event. in_engine: the engine knows s: TCP_EV_GONE is
	 * still to come. st->lock
	 */
	bool closed : 1, in_close : 1, in_engine : 1;
	bool in_kernel; /* the kernel has taken the connection over (handover/to_kernel.c) */
	/*
	 * connected: connect() has said so, and the next one is EISCONN. stale: the kernel socket
	 * keeps the port of a connection that is no more. opts_deferred: it lacks TCP_CORK or
	 * TCP_NODELAY, or with VMA_AVOID_SYS_CALLS_ON_TCP_FD other options or O_NONBLOCK. lock
	 */
	bool connected : 1, stale : 1, opts_deferred : 1;
	/*
	 * Somebody is about to release it, the kernel's for good, or it is closed, until it is
	 * another socket. Set under lock while somebody else may have it. Who has found the object
	 * among all, and may find another's, reads it first.
	 */
	_Atomic bool given_up;
	_Atomic bool has_status_flags; /* the program has set status flags besides O_NONBLOCK */
	_Atomic bool nonblock, zerocopy;
	_Atomic bool in_use;
	struct wait_spin_memory spin; /* of its blocking calls */
	_Atomic uint16_t pending_error; /* SO_ERROR of a connection of which c is NULL */
	_Atomic uint16_t conns; /* connections that it has had, ever. st->lock */
	uint32_t id; /* of the object, for ever */

	_Atomic uint32_t gen; /* bumped at close: whoever still is inside a call sees it */
	/*
	 * EPOLL* that happened since a waiter cleared it (under st->lock, before it looked):
	 * spinning costs one load. Set by the engine's events.
	 */
	_Atomic uint32_t hint;
	/*
	 * EPOLL* as computed last, with TCP_SOCK_LEVEL; 0: something may have changed since.
	 * Written under st->lock.
	 */
	_Atomic uint32_t level;
	struct lock lock; /* bind, connect, listen, options; taken before any stack lock */
	struct stack *_Atomic st; /* of the connection; set once */
	struct tcp_conn *c; /* NULL: over, in TIME_WAIT after the close, or none. st->lock */
	struct tcp_sock_path_cache *path_cache; /* NULL: nothing was sent for a while. st->lock */
	/*
	 * What the kernel module knows of the connection; NULL: nothing. seq and ack follow what is
	 * sent. st->lock
	 */
	struct vma_kmod_slot *slot;
	/* changes at close, when others may still be inside a call */
	struct vma_stats_socket *_Atomic stats;
	/* Options: written under lock, read by whoever is in a call. */
	_Atomic uint32_t rcvlowat;
	_Atomic int linger_s; /* -1: off */
	_Atomic uint64_t rcvtimeo_ns, sndtimeo_ns; /* 0: for ever */

	struct tcp_tuple tuple; /* of the connection */
	/* MSG_ZEROCOPY calls that have ended, and told. Written under s->lock */
	_Atomic uint64_t zc_next, zc_told;
	_Atomic uint32_t mark; /* option, as above */
	_Atomic int bound_if; /* option, as above */
	int port_fd; /* keeps the local port after the close; -1. st->lock */
	union {
		int worker_fd; /* listener: the worker watches the kernel's queue; -1 */
		int kept_fd; /* kept: the number that close() has not freed yet */
	};
	struct tcp_sock_unconnected unconn;
	/* mode CONN and c NULL: not NULL if there was memory. Never freed. st->lock */
	struct tcp_sock_kept_opts *kept_opts;
	union {
		struct vfd *kept; /* NULL: none. st->lock */
		struct tcp_sock *next_free; /* not in use: sock.c's list */
	};
	/* handover/fork.c: forks before it was made; which connection of the object */
	uint32_t born, claim_gen;
};

_Static_assert(sizeof(struct tcp_sock) == 264,
	       "tcp_memory: with the engine's 1,096 and the tables' 150, 1,536 at most");

static inline bool tcp_sock_given_up(const struct tcp_sock *s)
{
	return atomic_load_explicit(&s->given_up, memory_order_acquire);
}

static inline enum tcp_sock_part tcp_sock_part(const struct tcp_sock *s)
{
	return atomic_load_explicit(&s->unconn.part, memory_order_relaxed);
}

/* A segment whose neighbour is not known yet. */
struct tcp_sock_awaiting;

/* A connection that nobody has accepted yet, with a steering rule of its own. */

/* TCP in one stack. Belongs to the stack's lock. */
#define TCP_SOCK_SIZES 8u
#define TCP_SOCK_BLOCK_SIZES 6u
struct tcp_sock_pieces {
	void *first; /* begins with the next one's address */
	unsigned num;
	unsigned unused; /* of blocks: so many were there all the time since the last second */
};

struct tcp_sock_stack {
	struct tcp_stack *ts;
	struct stack *st;
	uint64_t next_timer_us; /* us */
	bool posted; /* frames wait for a kick */
	bool blocked; /* output() said -ENOBUFS */
	bool joint_left; /* a listener with whose port other processes go on */
	unsigned skipped; /* empty polls since the timers were looked at */
	uint32_t to_kernel; /* connections that were handed to the kernel, ever */
	struct tcp_sock_queued *queued;
	struct tcp_sock_awaiting *awaiting, **awaiting_tail;
	unsigned num_awaiting;
	/* For answers that belong to no socket and for half-open connections. */
	struct tcp_sock_cached *cache;
	/* Of sockets that have sent something lately. */
	struct tcp_sock_path_cache *paths_first, *paths_last;
	uint32_t seconds; /* the clock of their rest */
	/* engine_memory.c: given back, by size */
	struct tcp_sock_pieces pieces[TCP_SOCK_SIZES], blocks[TCP_SOCK_BLOCK_SIZES];
	size_t blocks_bytes; /* that blocks hold */
};

static inline struct tcp_sock *tcp_sock_of(struct vfd *v)
{
	return (struct tcp_sock *)v;
}

/* Our FIN is on its way: the peer has not acknowledged everything. The stack is locked. */
static inline bool tcp_sock_unfinished(const struct tcp_conn *c)
{
	enum tcp_state state = tcp_conn_state(c);

	return state == TCPS_FIN_WAIT1 || state == TCPS_CLOSING || state == TCPS_LAST_ACK;
}

static inline enum tcp_sock_mode tcp_sock_mode(const struct tcp_sock *s)
{
	return (enum tcp_sock_mode)atomic_load_explicit(&s->mode, memory_order_acquire);
}

static inline struct tcp_sock *tcp_sock_of_user(struct tcp_sock_user *u)
{
	return (struct tcp_sock *)((char *)u - offsetof(struct tcp_sock, user));
}

/*
 * After a look that found nothing, st->lock still held: what happens from now on is noticed by
 * tcp_sock_wait_more(). Readers and writers clear their own bits; an error or a hang-up stays.
 * (A listener holds s->lock only, and looks again.)
 */
static inline void tcp_sock_hint_clear(struct tcp_sock *s, uint32_t bits)
{
	if (atomic_load_explicit(&s->hint, memory_order_relaxed) & bits)
		atomic_fetch_and_explicit(&s->hint, ~bits, memory_order_acq_rel);
}

/* CLOCK_MONOTONIC in us. */
uint64_t tcp_sock_now_us(void);
/*
 * Starts the library in this process if it is not: for a listener that a forked child has
 * inherited. 0 or negative errno.
 */
int tcp_sock_begin(void);

/* sock.c */
extern const struct vfd_ops tcp_sock_ops;
/* Blocks of statistics that nobody looks at. */
#define TCP_SOCK_NO_STATS 16u
extern struct vma_stats_socket tcp_sock_no_stats[TCP_SOCK_NO_STATS]
	__attribute__((visibility("hidden")));
/* The block of s that others may look at; NULL: none has been left for it. */
static inline struct vma_stats_socket *tcp_sock_shown(const struct tcp_sock *s)
{
	struct vma_stats_socket *b = atomic_load_explicit(&s->stats, memory_order_relaxed);

	return b >= tcp_sock_no_stats && b < tcp_sock_no_stats + TCP_SOCK_NO_STATS ? NULL : b;
}

static inline void tcp_sock_show_blocking(struct tcp_sock *s)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	if (b)
		__atomic_store_n(&b->blocking, !s->nonblock, __ATOMIC_RELAXED);
}

static inline void tcp_sock_show_offloaded(struct tcp_sock *s, bool offloaded)
{
	struct vma_stats_socket *b = tcp_sock_shown(s);

	if (b)
		b->offloaded = offloaded;
}

/* sock_stats.c: what vma_stats shows. s's block is shown no more. */
void tcp_sock_stats_end(struct tcp_sock *s);
/* The same, of a number that goes on as a connection of the kernel's: it is shown still. */
void tcp_sock_stats_leave(struct tcp_sock *s);
/* s's connection is about to leave it, or has: what it had is shown no more. st->lock is held. */
void tcp_sock_figures_end(struct tcp_sock *s);
/* The same of every connection now. No lock held. */
void tcp_sock_figures_look(void);
/* An object in no table; NULL when out of memory. */
struct tcp_sock *tcp_sock_new(int fd, int domain);
/* Gives the object back. It is in no table, no stack and no list of waiters. */
void tcp_sock_free(struct tcp_sock *s);
/*
 * The kernel serves the socket for good: epoll sets and the table forget the object. No lock held;
 * the caller has set given_up under s's, and so is the only one.
 */
void tcp_sock_release(struct tcp_sock *s);
/* The same; vma_stats goes on to show the number, while it is what it was. */
void tcp_sock_release_shown(struct tcp_sock *s);
/* Runs fn for every object in use (closed ones that live on too); no lock held. */
void tcp_sock_each(void (*fn)(struct tcp_sock *s, void *arg), void *arg);

/*
 * s->lock for a call of the application: a thread that is cancelled in the middle would keep it.
 * Returns what unlocking wants.
 */
static inline int tcp_sock_lock(struct tcp_sock *s)
{
	int cancel = lock_quiet_begin();

	lock_take(&s->lock);
	lock_leave();
	return cancel;
}

static inline void tcp_sock_unlock(struct tcp_sock *s, int cancel)
{
	lock_enter();
	lock_drop(&s->lock);
	lock_quiet_end(cancel);
}

/*
 * The same for a call on fd that changes s. False, nothing locked: another thread has closed fd, or
 * the kernel serves the socket for good; the call is libc's. While it is locked close() waits.
 * What a call does because of the mode it decides from here on: before, the mode may change with
 * each call of another thread.
 */
static inline bool tcp_sock_lock_live(struct tcp_sock *s, int fd, int *cancel)
{
	*cancel = tcp_sock_lock(s);
	if (__builtin_expect(vfd_get(fd) == &s->v && !tcp_sock_given_up(s), 1))
		return true;
	tcp_sock_unlock(s, *cancel);
	return false;
}

/*
 * As tcp_sock_lock() for who has no number: *fd is the kernel socket's, and stays it while s is
 * locked, if s is still what the caller takes it for. Read before, it may be another socket's by
 * now (vfd_close()). A connection's: tcp_sock_conn_fd().
 */
static inline int tcp_sock_lock_fd(struct tcp_sock *s, int *fd)
{
	int cancel = tcp_sock_lock(s);

	*fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	return cancel;
}

/*
 * The number of the kernel socket of s's connection, which is not closed; s's and its stack's lock
 * are held. s's alone says nothing: an object that was closed before becomes another connection,
 * under another number, while somebody who has not seen that holds its lock (tcp_sock_new()).
 */
static inline int tcp_sock_conn_fd(const struct tcp_sock *s)
{
	return atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
}

/* --- for preload */

/*
 * Reads the kernel's TCP settings and starts the timers' part of the internal thread. 0 or negative
 * errno. begin starts the library (preload's), for a socket that a forked child has inherited.
 */
int tcp_sock_start(int (*begin)(void));
/*
 * Makes the object of a new kernel socket (AF_INET or AF_INET6, SOCK_STREAM) and enters it into the
 * fd table; the kernel serves it until it is connected or waited on. 0, or negative errno: then fd
 * stays a plain kernel socket.
 */
int tcp_sock_socket_created(int fd, int domain, int type, int protocol);

/*
 * The process is about to lose its privileges: opens the stacks that its listening and bound
 * sockets will need. No lock held; starts the library if need be.
 */
void tcp_sock_preopen(void);

/* The child of any fork(), after the fd table was made the child's. */
void tcp_sock_forked(void);

/* --- for the Extra API */

struct zcopy;

/*
 * Each frame of the stream is shown to fn before it can be read; NULL: no more. 0, or negative
 * errno: -EINVAL: a listener, or the kernel serves the connection.
 */
int tcp_sock_set_callback(struct vfd *v, int fd, vma_recv_callback_t fn, void *context);
/*
 * recvfrom_zcopy(3): with MSG_VMA_ZCOPY in *flags buf holds a struct vma_packets_t, else data. -1
 * and errno as recvfrom(); ENOBUFS: it would have to be copied, and must not.
 */
ssize_t tcp_sock_recv_zcopy(struct vfd *v, int fd, struct zcopy *z);
/* SO_VMA_USER_DATA: what its completions carry. 0 or negative errno. */
int tcp_sock_set_user_data(struct vfd *v, int fd, uint64_t value);
uint64_t tcp_sock_get_user_data(struct vfd *v, int fd);
/*
 * SO_VMA_RING_ALLOC_LOGIC: the ring of the connection that s will make, or of those that it will
 * accept. 0 or negative errno; -EINVAL: it has one.
 */
int tcp_sock_set_ring_attr(struct vfd *v, int fd, stack_ring_attr w);
/* The stacks that it receives by, at most max. */
unsigned tcp_sock_stacks(struct vfd *v, struct stack *sts[], unsigned max);
/* The stack of its connection; NULL: it has none. */
struct stack *tcp_sock_tx_stack(struct vfd *v);
/*
 * The link and network headers of its connection, at most 64 bytes: how many, or -ENOTCONN: none
 * that is offloaded, or the neighbour is not known yet.
 */
int tcp_sock_header(struct vfd *v, uint8_t *hdr);

/* --- for the room of handovers */

/*
 * sock.c: what the room of handovers does for TCP sockets; it registers before the first socket is
 * made. share, give, leaving, forking and inherited are vfd_ops'.
 */
struct tcp_sock_handover {
	/* vfd_ops.crowded, of a connection */
	bool (*crowded)(struct tcp_sock *s);
	void (*share)(struct vfd *v, struct vma_stats_why why);
	void (*give)(struct vfd *v, struct vma_stats_why why);
	void (*leaving)(struct vfd *v);
	void (*forking)(struct vfd *v);
	struct vfd *(*inherited)(struct vfd *v);
	/* A new connection's object: children know nothing of it. */
	void (*made)(struct tcp_sock *s);
	/* Its connection is over, or the user has closed it: whoever waits for it goes on. */
	void (*over)(struct tcp_sock *s);
	/* Once a second, on the internal thread. */
	void (*second)(void);
	/*
	 * In a child: s is what it has of its parent's listener, which is offloaded or was never
	 * waited for.
	 */
	void (*listener_inherited)(struct tcp_sock *s, const struct tcp_sock *parents);
	/*
	 * The child waits for it, no lock held: the parent is to leave it to the kernel. True: it
	 * has; *given: connections of the parent's wait.
	 */
	bool (*listener_wanted)(struct tcp_sock *s, bool *given);
	/* The next of those, a kernel socket; -1: none. *more: another one waits. s->lock is held.
	 */
	int (*listener_given)(struct tcp_sock *s, bool *more);
	/* The user closes its last number of a listener, which still listens; no lock held. */
	void (*listener_closing)(struct tcp_sock *s);
	/* It has been waited for the first time; no lock held. */
	void (*listener_waits)(struct tcp_sock *s);
	/* A client waits for accept() at a listener that is joint. st->lock is held. */
	void (*client)(void);
	/* accept() has taken one, and s is not TCP_SOCK_PART_ALWAYS; no lock held. Keeps errno. */
	void (*accepted)(struct tcp_sock *s);
	/* Each VMA_TCP_TIMER_RESOLUTION_MSEC while there is a ring, on the internal thread. */
	void (*tick)(void);
	/* Nothing waits for that; the same thread. */
	bool (*rests)(void);
	/* struct stack_user_ops.cut_off */
	void (*cut_off)(struct stack *st);
	/* struct stack_user_ops.strays */
	void (*strays)(const struct vma_stray *stray);
	/* The kernel gets the connection, if it may now. The internal thread, no lock held. */
	void (*leave)(struct tcp_sock *s, struct vma_stats_why why);
	/* After tcp_sock_show_awaited(): no frame of s is with its callback now. No lock held. */
	void (*decided)(struct tcp_sock *s);
};
void tcp_sock_handover_register(const struct tcp_sock_handover *h);
void tcp_sock_handover_second(void);
bool tcp_sock_handover_crowded(struct tcp_sock *s);
void tcp_sock_handover_tick(void);
bool tcp_sock_handover_rests(void);
void tcp_sock_handover_cut_off(struct stack *st);
void tcp_sock_handover_strays(const struct vma_stray *stray);
void tcp_sock_handover_leave(struct tcp_sock *s, struct vma_stats_why why);
void tcp_sock_handover_client(void);
void tcp_sock_handover_accepted(struct tcp_sock *s);
void tcp_sock_handover_decided(struct tcp_sock *s);
/*
 * show.c; st->lock is held. The connection of s is to go to the kernel. True: not now, a frame of
 * it is with its callback. No other one is shown then, and decided() is called. False also when
 * this thread runs the callback, or it takes too long. now: us.
 */
bool tcp_sock_show_awaited(struct tcp_sock *s, uint64_t now);
/* It goes, whatever is with its callback. st->lock is held. */
void tcp_sock_show_left(struct tcp_sock *s);
/*
 * listen.c: new connections of the listener are the kernel's from now on, also if it was not waited
 * on yet; what is in the engine's queue stays there, for accept(). s->lock is held.
 */
void tcp_sock_listen_to_kernel(struct tcp_sock *s);
/*
 * What waits at s, and handshakes that are under way, become those of a listener that no program
 * has and that takes no new clients: tcp_sock_listener_end()'s. s has none then. NULL: no memory,
 * or no number. No lock held.
 */
struct tcp_sock *tcp_sock_listener_split(struct tcp_sock *s);
/* What is left there is reset. */
void tcp_sock_listener_end(struct tcp_sock *own);
/*
 * listen.c: s leaves new clients to the other processes, or where none of them waits to the
 * kernel's queue, until a call waits for it here: PART_NONE; PART_NOW while one does. What is in
 * the engine's queue stays there. No lock held; errno is kept.
 */
void tcp_sock_listener_step_out(struct tcp_sock *s);
/* PART_ALWAYS, as before the first tcp_sock_listener_step_out(). The same. */
void tcp_sock_listener_stay(struct tcp_sock *s);
/* accept.c: accept() of what is in the engine's queue. The new fd, in the table, or negative errno.
 */
int tcp_sock_accept_queued(struct tcp_sock *s);
/* Clients that wait in the engine: to be accepted, or for the end of their handshake. */
unsigned tcp_sock_clients(struct tcp_sock *s);
/* The connection that accept() takes next from the engine, to be compared only; NULL: none. */
const void *tcp_sock_first_client(struct tcp_sock *s);

/* Objects with a lower id can be found by it, and children can claim their connections. */
#define TCP_SOCK_NUMBERED 65536u
/* sock.c: how many objects there are; that with this id, NULL: none. */
uint32_t tcp_sock_count(void);
struct tcp_sock *tcp_sock_numbered(uint32_t id);

/* sock.c: as accept() and getpeername() give it. */
int tcp_sock_addr_put(const struct tcp_sock *s, bool remote, struct sockaddr *addr, socklen_t *len);
/*
 * The peer's name as accept() and SO_PEERNAME have it: also of a connection that it has reset, or
 * that is not made yet, of which getpeername() says ENOTCONN. The second one of a kernel socket. 0
 * or negative errno.
 */
int tcp_sock_peer(struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len);
int tcp_sock_kernel_peer(int fd, int domain, struct sockaddr *addr, socklen_t *len);
/*
 * A connection of this local side goes to the kernel: a listener's rule must not take its segments.
 */
void tcp_sock_suspend_rule(const struct tcp_tuple *at, struct stack *st);
/* For stacks_each(): the same of all that have gone while many did. */
void tcp_sock_suspend_rules(struct stack *st, void *arg);
/*
 * s, which is on_block, goes to the kernel: the others of its block get rules of their own.
 * st->lock is held.
 */
void tcp_sock_block_to_kernel(struct tcp_sock *s, struct stack *st);
/* While many connections go to the kernel: the others of their blocks get no rules
 * before it is over. */
void tcp_sock_blocks_defer(bool defer);
/*
 * Locks the stack of s's connection; NULL: it is not offloaded or over (c is NULL). errno is left
 * alone.
 */
struct stack *tcp_sock_conn_lock(struct tcp_sock *s);
/*
 * The same for a call that only asks: what has come so far is in the answer. Without it the ring's
 * news would be as old as the internal thread's last round.
 */
struct stack *tcp_sock_conn_look(struct tcp_sock *s);
/*
 * Ends a call into the engine: flushes, drops st->lock, has the device transmit. The only way to
 * drop the lock after anything that may have sent.
 */
void tcp_sock_unlock_stack(struct stack *st, uint64_t now);
/*
 * The same, of a call in the middle of a thread's round (stack/round.h): what there is to say may
 * wait for its end. An answer is one of those that the round counts.
 */
void tcp_sock_unlock_stack_in_round(struct stack *st, uint64_t now);
void tcp_sock_unlock_stack_answered(struct stack *st, uint64_t now);
/* struct stack_timed_ops.say */
void tcp_sock_say(struct stack *st);
void tcp_sock_key(const struct tcp_tuple *t, bool exact, struct vma_flow_key *key);
/*
 * The engine is done with s; st->lock is held. Frees what the connection had; s itself when it is
 * closed.
 */
void tcp_sock_conn_over(struct tcp_sock *s);
/* It is over, or the kernel's. */
void tcp_sock_kmod_del(struct tcp_sock *s);
/*
 * What the engine knows of options that the idle kernel socket was not told; it serves the
 * connection from now on.
 */
void tcp_sock_opts_to_kernel(const struct tcp_sock *s, int fd, const struct tcp_opts *o);
/*
 * O_NONBLOCK, if the kernel was not told to avoid the call; the options are with it. s's lock is
 * held.
 */
void tcp_sock_flags_sync(struct tcp_sock *s, int fd);
/*
 * All that the kernel socket was not told to avoid the call. s's and its stack's lock are held.
 */
void tcp_sock_opts_sync(struct tcp_sock *s, int fd);
/* The kernel socket that has kept the port of a closed s goes; st->lock is held. */
void tcp_sock_port_give_back(struct tcp_sock *s);
/* Takes the listener off its stacks; s->lock is held. */
void tcp_sock_unlisten(struct tcp_sock *s);

#endif
