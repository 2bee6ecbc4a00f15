/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of a TCP socket, shared by tcp*.c of this folder. */
#ifndef SOCKET_TCP_INT_H
#define SOCKET_TCP_INT_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "proto/tcp.h"
#include "proto/tcp_frame.h"
#include "runtime/kmod.h"
#include "runtime/lock.h"
#include "runtime/stats.h"
#include "socket/stack_int.h"
#include "socket/tcp.h"
#include "socket/vfd.h"
#include "socket/wait_call.h"

/* Who serves the socket. KERNEL until it is connected or waited on; a kernel connection has no object at all. */
enum tsock_mode { TSOCK_KERNEL, TSOCK_CONN, TSOCK_LISTEN };

#define TSOCK_LEVEL 0x08000000u /* no EPOLL* bit */

/* What the engine's user pointers point to: the first field of a tsock_att, of a tsock_queued, or a tsock's. */
enum tsock_user_kind { TSOCK_USER_CONN, TSOCK_USER_LISTENER, TSOCK_USER_QUEUED };
struct tsock_user {
	uint8_t kind; /* enum tsock_user_kind */
};

/* A connection that waits to be accepted and is registered with the kernel module. Belongs to the stack's lock. */
struct tsock_queued {
	struct tsock_user user; /* first */
	struct vma_kmod_slot *slot;
	struct tsock_queued *next, **pprev; /* tsock_stack.queued */
};

/* Where the frames of one connection go: route and neighbour as a prebuilt header. Belongs to the stack's lock. */
struct tsock_path {
	uint32_t net_gen, neigh_gen;
	bool valid; /* the header is good for these generations */
	bool stale; /* the neighbour wants to be confirmed */
	uint32_t mtu;
	struct in6_addr next_hop;
	struct tcp_frame_hdr hdr;
};

/* A listener in one stack. Lives as long as the listener. */
struct tsock_att {
	struct tsock_user user; /* first */
	struct tsock *s;
	struct stack *st;
	struct tcp_listener *l; /* NULL: the stack is gone. st->lock */
	bool home; /* st is the interface's that the listener's key has chosen. s->lock */
	bool spread; /* listeners in other stacks may share its rules: a connection has its own. s->lock */
	unsigned num_keys;
	struct vma_flow_key *keys; /* its steering rules */
	struct tsock_att *next;
};

/* What only a socket has that is not offloaded yet, or listens. */
struct tsock_spare {
	struct tsock_att *atts; /* s->lock; a listener's */
	_Atomic uint64_t touched; /* tcp_opt.c: bit n: row n was set by the user. Written under s->lock */
	int backlog;
	_Atomic bool attached; /* has been waited on: atts stand, or are being made. s->lock to change it */
	bool quiet; /* the steering knows that the kernel has no connections on the port */
	bool parents; /* the process that forked this one had waited on it */
	bool no_offload; /* an option or the rules leave it to the kernel */
};

/* What getsockopt() still says of a connection that went with its interface (tcp_opt.c). */
struct tsock_last;

/* The path of a socket that sends (tcp_path.c). Belongs to the stack's lock. */
struct tsock_way {
	struct tsock_path path;
	struct tsock *s;
	struct tsock_way *next, *prev; /* of the stack's, the latest used first */
	uint32_t used; /* tsock_stack.seconds of the last segment */
};

/*
 * Four lines and a word, for which malloc() takes no more: the one that every call looks at, the one that its work needs, the
 * connection's name, and what is rare. An idle connection is this and what the engine has of it.
 */
struct tsock {
	struct vfd v; /* first */
	struct tsock_user user;
	_Atomic uint8_t mode; /* enum tsock_mode; changes under lock */
	uint8_t domain;
	bool bound; /* by the user */
	bool port_bound; /* to a port of the user's choice */
	bool stale; /* the kernel socket keeps the port of a connection that is no more. s->lock */
	bool accepted; /* lives on its listener's steering rule until that goes (own_rule) */
	bool own_rule : 1, wide : 1; /* wide: lives on the rule of a block of ports (tcp_block.c). st->lock */
	bool closed; /* out of the fd table; the object waits for TCP_EV_GONE. st->lock */
	bool in_close; /* tsock_close() is at work: it releases, not the event. st->lock */
	bool engine; /* the engine knows s: TCP_EV_GONE is still to come. st->lock */
	bool home; /* the kernel has taken the connection over (tcp_home.c) */
	bool connected; /* connect() has said so; the next one is EISCONN */
	bool untold; /* the kernel socket lacks options or O_NONBLOCK (VMA_AVOID_SYS_CALLS_ON_TCP_FD). lock */
	_Atomic bool flagged; /* fcntl() has set status flags besides O_NONBLOCK */
	_Atomic bool nonblock, zerocopy;
	_Atomic bool in_use;
	_Atomic uint16_t left_err; /* SO_ERROR of a connection of which c is NULL */
	uint32_t id; /* of the object, for ever */

	_Atomic uint32_t gen; /* bumped at close: whoever still is inside a call sees it */
	/*
	 * EPOLL* that happened since a waiter cleared it (under st->lock, before it looked): spinning costs one load. Set by
	 * the engine's events.
	 */
	_Atomic uint32_t hint;
	/* EPOLL* as computed last, with TSOCK_LEVEL; 0: something may have changed since. Written under st->lock. */
	_Atomic uint32_t level;
	struct lock lock; /* bind, connect, listen, options; taken before any stack lock */
	struct stack *_Atomic st; /* of the connection; set once */
	struct tcp_conn *c; /* NULL: over, in TIME_WAIT after the close, or none. st->lock */
	struct tsock_way *way; /* NULL: nothing was sent for a while. st->lock */
	/* What the kernel module knows of the connection; NULL: nothing. seq and ack follow what is sent. st->lock */
	struct vma_kmod_slot *slot;
	struct vma_stats_socket *_Atomic stats; /* changes at close, when others may still be inside a call */
	/* Options: written under lock, read by whoever is in a call. */
	_Atomic uint32_t rcvlowat;
	_Atomic int linger_s; /* -1: off */
	_Atomic uint64_t rcvtimeo_ns, sndtimeo_ns; /* 0: for ever */

	struct tcp_tuple tuple; /* of the connection */
	_Atomic uint64_t zc_next, zc_told; /* MSG_ZEROCOPY calls that have ended, and told. Written under s->lock */
	_Atomic uint32_t mark; /* option, as above */
	_Atomic int bound_if; /* option, as above */
	int held_fd; /* keeps the local port after the close; -1. st->lock */
	union {
		int worker_fd; /* listener: the worker watches the kernel's queue; -1 */
		int kept_fd; /* kept: the number that close() has not freed yet */
	};
	struct tsock_spare spare;
	struct tsock_last *last; /* mode CONN and c NULL: not NULL if there was memory. Never freed. st->lock */
	union {
		struct vfd *kept; /* NULL: none. st->lock */
		struct tsock *next_free; /* not in use: tcp.c's list */
	};
	uint32_t born, claim_gen; /* tcp_fork.c: forks before it was made; which connection of the object */
};

_Static_assert(sizeof(struct tsock) == 264, "tcp_memory: with the engine's 1,088 and the tables' 150, 1,536 at most");

/* A segment whose neighbour is not known yet. */
struct tsock_held;

/* A connection that nobody has accepted yet, with a steering rule of its own. */
struct tsock_loose;

/* TCP in one stack. Belongs to the stack's lock. */
struct tsock_stack {
	struct tcp_stack *ts;
	struct stack *st;
	uint64_t next_timer; /* us */
	bool posted; /* frames wait for a kick */
	bool blocked; /* output() said -ENOBUFS */
	unsigned skipped; /* empty polls since the timers were looked at */
	struct tsock_queued *queued;
	struct tsock_held *held, **held_tail;
	unsigned num_held;
	/* For answers that belong to no socket and for half-open connections. */
	struct tsock_cached *cache;
	/* Of sockets that have sent something lately. */
	struct tsock_way *ways_first, *ways_last;
	uint32_t seconds; /* the clock of their rest */
	struct tsock_loose *loose;
};

static inline struct tsock *tsock_of(struct vfd *v)
{
	return (struct tsock *)v;
}

/* Our FIN is on its way: the peer has not acknowledged everything. The stack is locked. */
static inline bool tsock_unfinished(const struct tcp_conn *c)
{
	enum tcp_state state = tcp_conn_state(c);

	return state == TCPS_FIN_WAIT1 || state == TCPS_CLOSING || state == TCPS_LAST_ACK;
}

static inline enum tsock_mode tsock_mode(const struct tsock *s)
{
	return (enum tsock_mode)atomic_load_explicit(&s->mode, memory_order_acquire);
}

static inline struct tsock *tsock_of_user(struct tsock_user *u)
{
	return (struct tsock *)((char *)u - offsetof(struct tsock, user));
}

/*
 * Before a look, st->lock held (a listener: s->lock): what happens from now on is noticed by tsock_wait_more(). Readers and
 * writers clear their own bits; an error or a hang-up stays.
 */
static inline void tsock_hint_clear(struct tsock *s, uint32_t bits)
{
	if (atomic_load_explicit(&s->hint, memory_order_relaxed) & bits)
		atomic_fetch_and_explicit(&s->hint, ~bits, memory_order_acq_rel);
}

/* CLOCK_MONOTONIC in us. */
uint64_t tsock_now(void);
/* Starts the library in this process if it is not: for a listener that a forked child has inherited. 0 or negative errno. */
int tsock_begin(void);

/* tcp.c */
extern const struct vfd_ops tsock_ops;
/* Blocks of statistics that nobody looks at. */
#define TSOCK_NO_STATS 16u
extern struct vma_stats_socket tsock_no_stats[TSOCK_NO_STATS] __attribute__((visibility("hidden")));
/* The block of s that others may look at; NULL: none has been left for it. */
static inline struct vma_stats_socket *tsock_shown(const struct tsock *s)
{
	struct vma_stats_socket *b = atomic_load_explicit(&s->stats, memory_order_relaxed);

	return b >= tsock_no_stats && b < tsock_no_stats + TSOCK_NO_STATS ? NULL : b;
}

static inline void tsock_show_blocking(struct tsock *s)
{
	struct vma_stats_socket *b = tsock_shown(s);

	if (b)
		b->blocking = !s->nonblock;
}

static inline void tsock_show_offloaded(struct tsock *s, bool offloaded)
{
	struct vma_stats_socket *b = tsock_shown(s);

	if (b)
		b->offloaded = offloaded;
}

/* s's block is shown no more. */
void tsock_stats_end(struct tsock *s);
/* An object in no table; NULL when out of memory. */
struct tsock *tsock_new(int fd, int domain);
/* Gives the object back. It is in no table, no stack and no list of waiters. */
void tsock_free(struct tsock *s);
/* The kernel serves the socket for good: epoll sets and the table forget the object. No lock held. */
void tsock_release(struct tsock *s);
/* Runs fn for every object in use (closed ones that live on too); no lock held. */
void tsock_each(void (*fn)(struct tsock *s, void *arg), void *arg);

/* s->lock for a call of the application: a thread that is cancelled in the middle would keep it. Returns what unlocking wants. */
static inline int tsock_lock(struct tsock *s)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	lock_take(&s->lock);
	return cancel;
}

static inline void tsock_unlock(struct tsock *s, int cancel)
{
	lock_drop(&s->lock);
	pthread_setcancelstate(cancel, NULL);
}

/*
 * The same for a call on fd that changes s. False, nothing locked: another thread has closed fd, or the kernel serves the
 * socket for good; the call is libc's. While it is locked close() waits.
 */
static inline bool tsock_lock_live(struct tsock *s, int fd, int *cancel)
{
	*cancel = tsock_lock(s);
	if (__builtin_expect(vfd_get(fd) == &s->v, 1))
		return true;
	tsock_unlock(s, *cancel);
	return false;
}

/* tcp_env.c */
/* TCP of an open stack, made when there is none; st->lock is held. NULL: no memory. */
struct tsock_stack *tsock_stack_get(struct stack *st);
/*
 * Ends a call into the engine: flushes, drops st->lock, has the device transmit. The only way to drop the lock after
 * anything that may have sent.
 */
void tsock_unlock_stack(struct stack *st, uint64_t now);
/* Has the device transmit what output() posted; st->lock is held. */
void tsock_kick(struct tsock_stack *t);
/* EPOLL* for TCP_EV_*. */
uint32_t tsock_epoll_bits(uint32_t ev);
/* The engine is done with s; st->lock is held. Frees what the connection had; s itself when it is closed. */
void tsock_conn_over(struct tsock *s);
int tsock_timers_start(void);
void tsock_timers_forked(void);

/* tcp_sysctl.c: options of a new connection before the user's own, as the kernel's settings and ours say. */
extern struct tcp_opts tsock_defaults;
void tsock_sysctl_read(void);

/* tcp_icmp.c */
void tsock_icmp_start(void);
void tsock_icmp_forked(void);

/* tcp_path.c; st->lock is held but for the first */
/* Route of dst from src (:: any) as s wants it. 0 or negative errno. */
struct net_route;
int tsock_route(const struct tsock *s, const struct in6_addr *src, const struct in6_addr *dst, int oif, struct net_route *r);
/* Makes p fit the tuple on st. 0; -EAGAIN: the neighbour is being looked for; other negative errno: no way. */
int tsock_path_make(struct stack *st, const struct tcp_tuple *t, uint32_t mark, uint8_t ttl, struct tsock_path *p);
/* The path of a socket that has none, or not used it in this second. NULL: no memory. */
struct tsock_path *tsock_way_slow(struct tsock_stack *t, struct tsock *s);
/* The same for any. */
static inline struct tsock_path *tsock_way(struct tsock_stack *t, struct tsock *s)
{
	struct tsock_way *w = s->way;

	return __builtin_expect(w && w->used == t->seconds, 1) ? &w->path : tsock_way_slow(t, s);
}

/* What the path of s depends on has changed. No stack lock is held. */
void tsock_way_renew(struct tsock *s);
/* s sends no more; it may have none. */
void tsock_way_drop(struct tsock_stack *t, struct tsock *s);
/* Once a second: frees those that have rested. */
void tsock_ways_rest(struct tsock_stack *t);
/* The stack ends. */
void tsock_ways_free(struct tsock_stack *t);
static inline bool tsock_path_good(const struct tsock_path *p, uint32_t net_gen, uint32_t neigh_gen)
{
	return p->valid && p->net_gen == net_gen && p->neigh_gen == neigh_gen;
}

/* tcp_output.c: the engine's output() and path(); st->lock is held */
int tsock_output(void *ctx, const struct tcp_tx *tx);
int tsock_output_dummy(void *ctx, const struct tcp_tx *tx);
void tsock_env_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso);
/* Sends what waited for its neighbour and can go; gives up what has waited too long. */
void tsock_held_look(struct tsock_stack *t, uint64_t now);
void tsock_held_free(struct tsock_stack *t);

/* tcp_port.c */
/* Follows the kernel's settings for local ports. */
void tsock_ports_read(void);
void tsock_ports_forked(void);
/* Finds a free local port for t (whose lport is filled in) and binds the kernel socket to it. 0 or negative errno as connect() says it. */
int tsock_port_take(int domain, int fd, struct stack *st, struct tcp_tuple *t);

/* Random. */
uint64_t tsock_ports_random(void);
/* The first of 2^bits ports, its multiple, which a connect() may be given; 0: none was found. */
uint16_t tsock_ports_block(unsigned bits);

/* tcp_block.c */
/*
 * Finds a local port for s (tuple.lport is filled in) that a rule of several ports takes already, and binds its kernel socket
 * to it: s->wide. False: it is to have a rule of its own. s->lock is held.
 */
bool tsock_block_take(struct tsock *s, int fd, struct stack *st);
/* The block of s, which is wide, stands; st->lock is held. */
bool tsock_block_stands(const struct tsock *s, struct stack *st);
/* s, which is wide, needs its port no more; st->lock is held. */
void tsock_block_put(struct tsock *s, struct stack *st);
/* s, which is wide, goes to the kernel: the others of its block get rules of their own. st->lock is held. */
void tsock_block_home(struct tsock *s, struct stack *st);
/* The kernel may have a connection of the port; no lock of a stack is held. */
void tsock_block_lost(const struct tcp_tuple *t);
/* While many go home: the others of their blocks get no rules before it is over. */
void tsock_blocks_defer(bool defer);
/* That is so now. */
bool tsock_blocks_deferred(void);
/* Once a second: blocks that nobody needs are given back. */
void tsock_blocks_tick(void);
/* The stack ends; its lock is held. */
void tsock_blocks_gone(struct stack *st);
void tsock_blocks_forked(void);

/* tcp_aside.c; a stack's lock is held */
/* A connection of this local side goes to the kernel: a listener's rule must not take its segments. */
void tsock_step_aside(const struct tcp_tuple *at, struct stack *st);
/* For stacks_each(): the same of all that have gone while many did. */
void tsock_all_aside(struct stack *st, void *arg);
/* Whoever lives on a listener's rule for this local side, which is about to go, gets a rule of his own; connections that nobody has accepted, too. */
void tsock_rules_of_own(struct stack *st, const struct tcp_tuple *at);
/* The connection has a rule of its own, which is the caller's from now on. */
bool tsock_loose_taken(struct tsock_stack *t, const struct tcp_tuple *tuple);
/* Once a second. */
void tsock_asides_look(struct tsock_stack *t);
void tsock_loose_free(struct tsock_stack *t);

/* tcp_conn.c */
/* The connection is taken off at once, the socket is as new (connect(2), AF_UNSPEC). s->lock is held; vfd_shadow_changed() follows. */
void tsock_disconnect(struct tsock *s);
int tsock_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len);
/* The key of the ring that a connection from this address, or a listener, of s is to have. */
uint64_t tsock_key_rx(const struct tsock *s, const struct in6_addr *local);
/* Locks the stack of s's connection; NULL: it is not offloaded or over (c is NULL). errno is left alone. */
struct stack *tsock_conn_lock(struct tsock *s);
void tsock_key(const struct tcp_tuple *t, bool exact, struct vma_flow_key *key);
/* TCP state, and both addresses, as vma_stats shows them. */
void tsock_show_state(struct tsock *s, enum tcp_state state);
void tsock_show_addresses(struct tsock *s);

/* tcp.c: in the child of a fork(), forgets the parent's objects after handing each that was in use to fn. */
void tsock_list_forked(void (*fn)(struct tsock *parents, void *arg));
/* tcp.c: the kernel's socket has just ceased to listen; s->lock is held. vfd_shadow_changed() and vfd_notify() follow. */
void tsock_listen_over(struct tsock *s);
/* tcp_listen.c */
void tsock_atts_forked(void);
int tsock_listen(struct vfd *v, int fd, int backlog);
/* The listener is about to be waited on: it attaches to the stacks. */
void tsock_waited(struct vfd *v);
/* A connection that lives on its listener's rule gets one of its own; st->lock is held. */
void tsock_own_rule(struct tsock *c, struct stack *st);
/* Takes the listener off its stacks; s->lock is held. */
void tsock_unlisten(struct tsock *s);
/* Rules and stacks follow the addresses; s->lock is held. */
void tsock_relisten(struct tsock *s);
/* Once a second: has the steering look no more for the kernel's connections on the port when there are none. */
void tsock_listen_tick(struct tsock *s);

/* tcp_accept.c */
int tsock_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags);
/* What poll() says of a listener. */
uint32_t tsock_listen_events(struct tsock *s);
/* Rules and addresses say that s, which listens or is bound to, is to be served from the interface. s->lock is held. */
bool tsock_covers(const struct tsock *s, int ifindex);

/* tcp_rx.c, tcp_tx.c */
ssize_t tsock_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags);
ssize_t tsock_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call, struct sockaddr *addr, socklen_t *alen);
ssize_t tsock_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags);
ssize_t tsock_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call, const struct sockaddr *addr, socklen_t alen);

/* tcp_errq.c */
/* A call with MSG_ZEROCOPY, begun when s->gen was gen, has sent something: a notification waits. No lock held. */
void tsock_zerocopy_done(struct tsock *s, uint32_t gen);
/* recvmsg(MSG_ERRQUEUE): a notification, or what the kernel socket's queue has. */
ssize_t tsock_recv_err(struct tsock *s, int fd, struct msghdr *msg, int flags);
/* EPOLLERR while a notification waits. */
static inline uint32_t tsock_errq_events(struct tsock *s)
{
	return atomic_load_explicit(&s->zc_told, memory_order_relaxed) != atomic_load_explicit(&s->zc_next, memory_order_acquire) ?
		       EPOLLERR :
		       0;
}

/* tcp_iov.c */
#define TSOCK_IOVS 8 /* vectors that a waiting call goes on with: a thread's stack may be small */
/* Bytes in cnt vectors. */
static inline size_t tsock_iov_len(const struct iovec *iov, size_t cnt)
{
	size_t len = 0;

	for (size_t i = 0; i < cnt; i++)
		len += iov[i].iov_len;
	return len;
}

/* The first vectors of iov that lie behind its first `skip` bytes, into part; returns how many. */
int tsock_iov_part(const struct iovec *iov, int cnt, size_t skip, struct iovec part[TSOCK_IOVS]);

/* tcp_opt.c */
int tsock_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len);
int tsock_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len);
/* What a connection or listener of s begins with: the defaults and what the user has set on the kernel socket. */
void tsock_opts_read(struct tsock *s, int fd, struct tcp_opts *o);
/* The new socket fd gets what was set on its listener. */
void tsock_fields_inherit(const struct tsock *from, struct tsock *to);
void tsock_opts_inherit(const struct tsock *from, int from_fd, int fd);

/* The connection of s is about to go with its interface: getsockopt() goes on answering. st->lock is held. */
void tsock_opts_keep(struct tsock *s);
/* to_fd gets what the user has set on from_fd, s's kernel socket. */
void tsock_opts_copy(const struct tsock *s, int from_fd, int to_fd);
/* What the engine knows of options that the idle kernel socket was not told; it serves the connection from now on. */
void tsock_opts_home(const struct tsock *s, int fd, const struct tcp_opts *o);
/* The same and O_NONBLOCK, if there is anything that the kernel was not told to avoid the call. s's and its stack's lock are held. */
void tsock_opts_tell(struct tsock *s, int fd);

/* tcp_ioctl.c */
int tsock_ioctl(struct vfd *v, int fd, unsigned long req, void *arg);
int tsock_fcntl(struct vfd *v, int fd, int cmd, long arg);

/* tcp_shadow.c */
/* A copy of fd with a number away from those that programs count on; it is closed on exec. -1: none. */
int tsock_fd_hold(int fd);
/*
 * Before s connects, listens or is bound again: a kernel socket that keeps an earlier connection's port is replaced by a new
 * one. s->lock is held; vfd_shadow_changed() follows.
 */
void tsock_shadow_renew(struct tsock *s, int fd);
/* The error that a connection has left, taken; 0: none. */
static inline int tsock_left_error(struct tsock *s)
{
	return atomic_load_explicit(&s->left_err, memory_order_relaxed) ?
		       atomic_exchange_explicit(&s->left_err, 0, memory_order_relaxed) :
		       0;
}
/* getsockname() of a socket without a connection. */
int tsock_shadow_name(const struct tsock *s, int fd, struct sockaddr *addr, socklen_t *len);

/* tcp_home.c */
/*
 * Moves an offloaded connection to the kernel socket of its fd, for good; no lock held. 0; -ENOTCONN: there is none;
 * -EOPNOTSUPP: it is not established yet; other negative errno: the kernel did not take it, and it stays here.
 */
int tsock_go_home(struct tsock *s, const char *why);
/* The same for one that the user has closed and the engine has not finished. 0; -ENOTCONN: there is none. */
int tsock_orphan_home(struct tsock *s);
/*
 * The same for one that is in FIN_WAIT2 after the user's close, or in TIME_WAIT, of which *time_waits, counted down, may still be
 * moved. 0; -ENOENT: nothing is left, or nobody needs it.
 */
int tsock_rest_home(struct tsock *s, unsigned *time_waits);
/* Whether this process may do any of it now. */
bool tsock_home_allowed(void);
void tsock_share(struct vfd *v, const char *why);
void tsock_leaving(struct vfd *v);
/* tcp_kmod.c; st->lock is held */
/* The connection of fd is registered with the kernel module. */
void tsock_kmod_add(struct tsock *s, int fd);
/* tcp_env.queued: one that waits to be accepted is registered, too. */
void tsock_kmod_queued(void *ctx, void *listener, struct tcp_conn *c);
/* It was accepted from this listener: s has its registration. q: the user that it had; NULL: it has none yet. */
void tsock_kmod_accepted(struct tsock *s, struct tsock_queued *q, int listener);
/* It never was accepted, and is over. */
void tsock_kmod_unqueue(struct tsock_queued *q);
/* It is over, or the kernel's. */
void tsock_kmod_del(struct tsock *s);
/* No lock held. What of registered connections reaches the kernel is taken in from now on. 0 or negative errno. */
int tsock_kmod_start(void);
void tsock_kmod_forked(void);
/* tcp_exit.c: the internal thread runs. 0 or negative errno. */
int tsock_exit_start(void);
/* tcp_fork.c */
/* A new connection's object: children know nothing of it. */
void tsock_claim_new(struct tsock *s);
/* The kernel has the connection; it is over. Whoever claims it goes on. */
void tsock_claim_home(struct tsock *s);
void tsock_claim_over(struct tsock *s);
/* Another process may have a copy. Asked when the object is out of the fd table: no fork() can add one any more. */
bool tsock_held_elsewhere(const struct tsock *s);
/* vfd_ops.forking */
void tsock_forking(struct vfd *v);
/* Answers the claims there are; also once a second, for children that cannot wake this process. */
void tsock_claims_look(void);
void tsock_claims_forked(void);
/* This process's; NULL: none. */
struct claims *tsock_claims(void);
/* tcp_heir.c */
/* vfd_ops.heir */
struct vfd *tsock_heir(struct vfd *v);
/* The child of a fork(): c is its parent's, who has forked seq times before. */
void tsock_heirs_of(struct claims *c, uint32_t seq);
void tsock_heirs_fork_begin(struct tsock_fork *f);
void tsock_heirs_fork_end(const struct tsock_fork *f, pid_t pid);
/* tcp.c: how many objects there are; that with this id, NULL: none. */
uint32_t tsock_count(void);
struct tsock *tsock_numbered(uint32_t id);
/* tcp_life.c: the library runs in this process. */
bool tsock_running(void);
/* tcp_fin.c: gives the kernel socket that has im's connection the peer's FIN. 0 or negative errno. */
int tsock_fin_again(const struct tcp_image *im);
/* Its acknowledgement of our FIN, with its own FIN where that is in. 0 or negative errno. */
int tsock_fin_acked(const struct tcp_image *im);

/* tcp_wait.c: blocking calls */
struct tsock_wait {
	struct wait_call call;
	uint32_t want; /* EPOLL* */
	uint32_t behind; /* not 0: EPOLLIN counts only when more than so many bytes can be read (who peeks leaves them there) */
};
void tsock_wait_init(const struct tsock *s, struct tsock_wait *w, uint32_t want, uint64_t timeout_ns);
/*
 * Spins, then sleeps, until one of the wanted events has come since s->hint was cleared, or the kernel socket has
 * something (a listener's). 0: look again; -EAGAIN: the deadline; -EINTR; -EBADF: closed meanwhile.
 */
int tsock_wait_more(struct tsock *s, int fd, struct tsock_wait *w);

/* tcp.c: as accept() and getpeername() give it. */
void tsock_addr_put(const struct tsock *s, bool remote, struct sockaddr *addr, socklen_t *len);

#endif
