/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of a TCP socket, shared by this folder's files. */
#ifndef SOCKET_TCP_INTERNAL_H
#define SOCKET_TCP_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "tcp/tcp.h"
#include "kmod/kmod.h"
#include "runtime/runtime.h"
#include "stats/stats.h"
#include "stack/stack.h"
#include "socket/tcp/sock.h"
#include "fd/fd.h"
#include "wait/wait.h"

/* env.c */
/* TCP of an open stack, made when there is none; st->lock is held. NULL: no memory. */
struct tcp_sock_stack *tcp_sock_stack_get(struct stack *st);
/* Has the device transmit what output() posted; st->lock is held. */
void tcp_sock_kick(struct tcp_sock_stack *t);
/* EPOLL* for TCP_EV_*. */
uint32_t tcp_sock_epoll_bits(uint32_t ev);
/*
 * s's connection is a TIME_WAIT now. Where the listener's rule stands, nothing but the connection's
 * own end needs one of its own. In TIME_WAIT there would be too many, and a new client of that name
 * is to go to who listens. st->lock is held.
 */
void tcp_sock_time_wait_rule(struct tcp_sock *s);
/* Another number for each connection that the object ever has. st->lock is held. */
static inline uint32_t tcp_sock_conn_gen(const struct tcp_sock *s)
{
	return atomic_load_explicit(&s->gen, memory_order_relaxed) +
	       ((uint32_t)atomic_load_explicit(&s->conns, memory_order_relaxed) << 16);
}
/* The ring of a stack with TCP is there; st->lock is held. */
void tcp_sock_ring_watch(struct stack *st);
int tcp_sock_timers_start(void);
/* The tick of VMA_TCP_TIMER_RESOLUTION_MSEC. 0 or negative errno. */
int tcp_sock_tick_start(void);
void tcp_sock_timers_forked(void);

/*
 * sysctl.c: options of a new connection before the user's own, as the kernel's settings and ours
 * say.
 */
extern struct tcp_opts tcp_sock_defaults;
void tcp_sock_sysctl_read(void);
/* struct tcp_cfg's tw_reuse_us for an interface, as net.ipv4.tcp_tw_reuse says. */
uint32_t tcp_sock_tw_reuse_us(bool loopback);
/* The defaults, and what the network namespace's settings say instead. */
void tcp_sock_cfg(struct tcp_cfg *cfg);

/*
 * net.ipv4.tcp_fastopen_key; how many keys there are, 0: none yet, or only root may know it. Then
 * tcp_fastopen, tcp_fastopen_blackhole_timeout_sec, all as they are now.
 */
unsigned tcp_sock_fast_open_keys(uint64_t key[2][2]);
unsigned tcp_sock_fast_open_mode(void);
unsigned tcp_sock_fast_open_pause_s(void);

/* fast_open.c */
/*
 * The listener's attachments get what its kernel socket and the namespace say now of Fast Open.
 * s->lock is held, no stack's.
 */
void tcp_sock_fast_open_listen(struct tcp_sock *s);

/* What a connection begins with. */
struct tcp_sock_opening {
	struct tcp_opts opts;
	/* Fast Open: the SYN has what there is of iov, else it waits for the first call that sends
	 */
	bool fast_open;
	unsigned mode; /* of fast_open: net.ipv4.tcp_fastopen */
	bool plain, no_cookie; /* it is not to be tried now; it needs no cookie */
	bool waits; /* set: the SYN does */
	int iovcnt, flags;
	const struct iovec *iov;
	ssize_t taken; /* set: bytes of iov */
};

/* connect() of s is to make a SYN with data (TCP_FASTOPEN_CONNECT). s->lock is held. */
bool tcp_sock_fast_open_wanted(const struct tcp_sock *s, int fd);
/* net.ipv4.tcp_fastopen, 0: the namespace does not let its programs do it. */
unsigned tcp_sock_fast_open_allowed(void);
/* Before the connection is begun, no stack's lock held; after it was, its stack's held. */
void tcp_sock_fast_open_prepare(const struct tcp_sock *s, int fd, struct tcp_sock_opening *o);
void tcp_sock_fast_open_begin(struct tcp_sock *s, struct tcp_sock_opening *o, uint64_t now);
/* The engine's (struct tcp_env). */
void tcp_sock_fast_open_news(void *ctx, const struct tcp_tuple *t,
			     const struct tcp_fast_open_news *news);
void tcp_sock_fast_open_forked(void);

/* connect.c */
/*
 * sendto() with MSG_FASTOPEN of a socket without a connection; waits if that blocks. 0: connected;
 * -EINPROGRESS; 1: the kernel is to do it; -EAGAIN: another thread has connected it; or why not.
 */
int tcp_sock_connect_with(struct tcp_sock *s, int fd, const struct sockaddr *addr, socklen_t len,
			  struct tcp_sock_opening *o);
/* The same of a socket with a connection. 0: it can be written to now. */
int tcp_sock_connect_again(struct tcp_sock *s, int fd, bool nonblock);
/* The SYN that had waited has left: waits until it is decided. As connect(). */
int tcp_sock_connect_rest(struct tcp_sock *s, int fd);

/*
 * secret.c: what all stacks make sequence numbers and time stamp offsets from. It is read before
 * the first stack is made, and before privileges are dropped.
 */
void tcp_sock_secret_read(void);
void tcp_sock_secret(uint64_t to[4]);

/* icmp_errors.c */
void tcp_sock_icmp_start(void);
void tcp_sock_icmp_forked(void);

/* path.c; st->lock is held but for the first */
/*
 * Route as s wants it; of q the caller fills addresses and ports, and the interface that the
 * destination names. 0 or negative errno.
 */
struct net_route;
struct net_route_query;
int tcp_sock_route(const struct tcp_sock *s, struct net_route_query *q, struct net_route *r);
/* Some have tcp_sock.by_another. */
extern _Atomic bool tcp_sock_some_by_another __attribute__((visibility("hidden")));
/*
 * Makes p fit the tuple on st. 0; -EAGAIN: the neighbour is being looked for; other negative errno:
 * no way.
 */
int tcp_sock_path_make(struct stack *st, const struct tcp_tuple *t, int bound_if, uint32_t mark,
		       uint8_t ttl, struct tcp_sock_path *p);
/* The path of a socket that has none, or not used it in this second. NULL: no memory. */
struct tcp_sock_path *tcp_sock_path_get_slow(struct tcp_sock_stack *t, struct tcp_sock *s);
/* The same for any. */
static inline struct tcp_sock_path *tcp_sock_path_get(struct tcp_sock_stack *t, struct tcp_sock *s)
{
	struct tcp_sock_path_cache *w = s->path_cache;

	return __builtin_expect(w && w->used == t->seconds, 1) ? &w->path
							       : tcp_sock_path_get_slow(t, s);
}

/* What the path of s depends on has changed. No stack lock is held. */
void tcp_sock_path_renew(struct tcp_sock *s);
/* s sends no more; it may have none. */
void tcp_sock_path_drop(struct tcp_sock_stack *t, struct tcp_sock *s);
/* Once a second: frees those that have rested. */
void tcp_sock_paths_expire(struct tcp_sock_stack *t);
/* The stack ends. */
void tcp_sock_paths_free(struct tcp_sock_stack *t);
static inline bool tcp_sock_path_good(const struct tcp_sock_path *p, uint32_t net_gen,
				      uint32_t neigh_gen)
{
	return p->valid && p->net_gen == net_gen && p->neigh_gen == neigh_gen;
}

/*
 * engine_memory.c: the engine's alloc(), alloc_raw() and free(), ctx its struct stack. A piece is
 * given back with the size that it was asked for.
 */
void *tcp_sock_mem_alloc(void *ctx, size_t size);
void *tcp_sock_mem_raw(void *ctx, size_t size);
void tcp_sock_mem_free(void *ctx, void *piece, size_t size);
/* t is about to be freed, and its engine is. */
void tcp_sock_pieces_free(struct tcp_sock_stack *t);
/* Once a second: what nobody has needed since goes back. */
void tcp_sock_pieces_expire(struct tcp_sock_stack *t);

/* transmit.c: the engine's output() and path(); st->lock is held */
int tcp_sock_output(void *ctx, const struct tcp_tx *tx);
int tcp_sock_output_dummy(void *ctx, const struct tcp_tx *tx);
void tcp_sock_env_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso);
void tcp_sock_env_route(void *ctx, const struct tcp_tuple *tuple, struct tcp_route *r);
/* Sends what waited for its neighbour and can go; gives up what has waited too long. */
void tcp_sock_awaiting_check(struct tcp_sock_stack *t, uint64_t now);
void tcp_sock_awaiting_free(struct tcp_sock_stack *t);

/* port/local.c */
/* Follows the kernel's settings for local ports. */
void tcp_sock_ports_read(void);
void tcp_sock_ports_forked(void);
/*
 * Finds a free local port for t (whose lport is filled in) and binds the kernel socket to it. 0 or
 * negative errno as connect() says it.
 */
int tcp_sock_port_take(int domain, int fd, struct stack *st, struct tcp_tuple *t);
/* The next search for t's destination leaves so many ports out. */
void tcp_sock_ports_skip(const struct tcp_tuple *t, uint32_t num);

/* Random. */
uint64_t tcp_sock_ports_random(void);
/* The first of 2^bits ports, its multiple, which a connect() may be given; 0: none was found. */
uint16_t tcp_sock_ports_block(unsigned bits);

/* port/connected.c */
/*
 * The connection of s, which the user has closed, is in TIME_WAIT or FIN_WAIT2: s->port_fd is kept
 * for as long. False: it is not, for there are too many. st->lock is held.
 */
bool tcp_sock_port_hold(struct tcp_sock *s);
/* How many ports of one kind are held at most: each takes a descriptor. */
unsigned tcp_sock_ports_max(void);
/* It is over; s need not hold a port. st->lock is held. */
void tcp_sock_port_unhold(struct tcp_sock *s);
/*
 * Gives the local port back to the kernel if none but a TIME_WAIT of ours keeps it: the caller
 * takes it. No stack's lock is held.
 */
bool tcp_sock_port_steal(uint16_t port);
void tcp_sock_port_holds_forked(void);

/* port/accepted.c */
/* What a listener is bound to, and what decides who else may be. */
struct tcp_sock_port {
	struct sockaddr_storage addr;
	socklen_t len;
	uint16_t port; /* 0: nothing is to be kept */
	int reuseaddr, reuseport, v6only, bound_if;
};
/* s was accepted from the engine; it holds its local port no more. s's stack is locked. */
void tcp_sock_accepted(struct tcp_sock *s);
void tcp_sock_accepted_over(struct tcp_sock *s);
/* Before fd, a listener's kernel socket, is closed; afterwards, until its connections are over. */
void tcp_sock_port_learn(const struct tcp_sock *s, int fd, struct tcp_sock_port *p);
void tcp_sock_port_keep(const struct tcp_sock_port *p);
void tcp_sock_port_keeps_forked(void);

/* port/block.c */
/*
 * Finds a local port for s (tuple.lport is filled in) that a rule of several ports takes already,
 * and binds its kernel socket to it: s->on_block. False: it is to have a rule of its own. s->lock
 * is held.
 */
bool tcp_sock_block_take(struct tcp_sock *s, int fd, struct stack *st);
/*
 * The block of s, which is on_block, has its rule, or will have it when the ring has come; st->lock
 * is held.
 */
bool tcp_sock_block_stands(const struct tcp_sock *s, struct stack *st);
/*
 * The ring is there that was still to come: blocks get their rules. A connection whose block cannot
 * have one, and whose SYN is held therefore, is on_block no more. st->lock is held.
 */
void tcp_sock_blocks_came(struct stack *st);
/* s, which is on_block, needs its port no more; st->lock is held. */
void tcp_sock_block_put(struct tcp_sock *s, struct stack *st);
/* The kernel may have a connection of the port; no lock of a stack is held. */
void tcp_sock_block_lost(const struct tcp_tuple *t);
/* That is so now. */
bool tcp_sock_blocks_deferred(void);
/* Once a second: blocks that nobody needs are given back. */
void tcp_sock_blocks_tick(void);
/* The stack ends; its lock is held. */
void tcp_sock_blocks_gone(struct stack *st);
void tcp_sock_blocks_forked(void);

/* port/rule_suspend.c; a stack's lock is held */
/*
 * Whoever lives on a listener's rule for this local side, which is about to go, gets a rule of his
 * own; connections that nobody has accepted, too.
 */
void tcp_sock_rules_of_own(struct stack *st, const struct tcp_tuple *at);
/*
 * A connection that nobody has accepted yet, maybe still a handshake, gets a rule of its own. 0 or
 * negative errno.
 */
int tcp_sock_unaccepted_rule(struct stack *st, const struct tcp_tuple *tuple);
/* The engine's ended(): that rule goes. */
void tcp_sock_env_ended(void *ctx, const struct tcp_tuple *tuple);
/* Once a second. */
void tcp_sock_suspended_check(struct tcp_sock_stack *t);
/* The engine's is_others(). */
bool tcp_sock_env_kernels(void *ctx, const struct tcp_tuple *tuple, bool opens);

/* connect.c */
/*
 * The connection is taken off at once, the socket is as new (connect(2), AF_UNSPEC). s->lock is
 * held; vfd_shadow_changed() follows.
 */
void tcp_sock_disconnect(struct tcp_sock *s);
int tcp_sock_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len);
/* The key of the ring that a connection from this address, or a listener, of s is to have. */
uint64_t tcp_sock_key_rx(const struct tcp_sock *s, const struct in6_addr *local);
/* sock_stats.c; before s is in any table */
void tcp_sock_stats_begin(struct tcp_sock *s, int fd);
/* b is to show a new connection; st->lock is held. */
void tcp_sock_figures_begin(struct vma_stats_socket *b);
/* Who is closing s: what its connection has come to. No stack's lock held. */
void tcp_sock_figures_last(struct tcp_sock *s);
/* The receive queue may be as long as never before. s->c is there, st->lock is held. */
void tcp_sock_figures_peak(struct tcp_sock *s);
/* struct stack_timed_ops */
uint64_t tcp_sock_retransmits(const struct stack *st);
void tcp_sock_figures_forked(void);
/* struct stack_timed_ops */
void tcp_sock_ring_came(struct stack *st);
/* TCP state, and both addresses, as vma_stats shows them. */
void tcp_sock_show_state(struct tcp_sock *s, enum tcp_state state);
void tcp_sock_show_state_in(struct vma_stats_socket *b, enum tcp_state state);

/* kernel_conns.c: a block whose connection is the kernel's, and whose number is open; it is given
 * away. */
void tcp_sock_kernel_conn_add(struct vma_stats_socket *b);
/* The number is another socket's. */
void tcp_sock_kernel_conn_forget(int fd);
/* What the kernel says of them now; those whose numbers are closed go. The internal thread. */
void tcp_sock_kernel_conn_look(void);
void tcp_sock_kernel_conn_forked(void);
void tcp_sock_show_addresses(struct tcp_sock *s);

/*
 * sock.c: in the child of a fork(), forgets the parent's objects after handing each that was in use
 * to fn.
 */
void tcp_sock_list_forked(void (*fn)(struct tcp_sock *parents, void *arg));
/*
 * sock.c: the kernel's socket has just ceased to listen; s->lock is held. vfd_shadow_changed() and
 * vfd_notify() follow.
 */
void tcp_sock_listen_over(struct tcp_sock *s);
/* listen.c */
void tcp_sock_atts_forked(void);
/* sock.c: struct tcp_sock_handover */
void tcp_sock_handover_held(struct tcp_sock *s);
bool tcp_sock_listener_claim(struct tcp_sock *s, bool *given);
void tcp_sock_listener_waited(struct tcp_sock *s);
int tcp_sock_given_take(struct tcp_sock *s, bool *more);
void tcp_sock_given_inherit(struct tcp_sock *s, const struct tcp_sock *parents);
int tcp_sock_listen(struct vfd *v, int fd, int backlog);
/* The listener is about to be waited on: it attaches to the stacks. */
void tcp_sock_waited(struct vfd *v);
/* A connection that lives on its listener's rule gets one of its own; st->lock is held. */
void tcp_sock_own_rule(struct tcp_sock *c, struct stack *st);
/*
 * The interface of st has vanished, and with it what listens there for s, and its rules. No lock
 * held.
 */
void tcp_sock_listener_gone(struct tcp_sock *s, struct stack *st);
/* Rules and stacks follow the addresses; s->lock is held. */
void tcp_sock_relisten(struct tcp_sock *s);
/*
 * Once a second: has the steering look no more for the kernel's connections on the port when there
 * are none.
 */
void tcp_sock_listen_tick(struct tcp_sock *s);

/* accept.c */
int tcp_sock_accept4(struct vfd *v, int fd, struct sockaddr *addr, socklen_t *len, int flags);
/* How many wait in the engine for accept(). No lock held. */
unsigned tcp_sock_accept_waits(struct tcp_sock *s);
/* What poll() says of a listener. */
uint32_t tcp_sock_listen_events(struct tcp_sock *s);
/*
 * Rules and addresses say that s, which listens or is bound to, is to be served from the interface.
 * s->lock is held.
 */
bool tcp_sock_covers(const struct tcp_sock *s, int ifindex);

/* read.c, write.c */
ssize_t tcp_sock_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags);
ssize_t tcp_sock_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call,
			  struct sockaddr *addr, socklen_t *alen);
ssize_t tcp_sock_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags);
ssize_t tcp_sock_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call,
			const struct sockaddr *addr, socklen_t alen);
size_t tcp_sock_room(struct vfd *v);
/* file.c: struct vfd_ops.send_file */
size_t tcp_sock_send_file(struct vfd *v, int in, off_t pos, size_t n);

/* show.c */
/* Something of s may wait for its callback, or for a completion; st->lock is held. */
void tcp_sock_unshown(struct tcp_sock *s);
/* The connection of s begins, and it has a callback; st->lock is held. */
void tcp_sock_shows_begin(struct tcp_sock *s);
/* struct stack_user_ops.show */
bool tcp_sock_show(void);
void tcp_sock_shows_forked(void);
/*
 * completion.c: SocketXtreme. The connection of s begins; EPOLL* events have come, of s or of a
 * listener in a stack. st->lock is held for these.
 */
void tcp_sock_completion_begin(struct tcp_sock *s);
void tcp_sock_completion_event(struct tcp_sock *s, uint32_t events);
void tcp_sock_completion_listener(struct tcp_sock_att *att);
/* The kernel has connections for the listener s: a completion is to say so. s->lock is held. */
void tcp_sock_completion_kernel(struct tcp_sock *s);
/* The program has read s by a call: what lies behind that can be told now. */
void tcp_sock_completion_read(struct tcp_sock *s);
/* The new connection s of the listener lfd is in the table. No lock is held. */
void tcp_sock_completion_accepted(struct tcp_sock *s, int lfd);
/*
 * s connects, or is no more: nothing of before is told. s->lock is held, or nobody else has s; no
 * stack's.
 */
void tcp_sock_completion_forget(struct tcp_sock *s);
void tcp_sock_completion_forked(void);

/* option/ring_attr.c */
/* A child's sockets have said nothing. */
void tcp_sock_ring_attrs_forked(void);
/* accept.c: one connection of the listener s, if its gen is still that. As stack_completions.first.
 */
bool tcp_sock_accept_completion(void *s, uint32_t gen);

/* zcopy.c; st->lock is held */
/* The same piece by piece (SocketXtreme). False: there are too many. */
bool tcp_sock_lend(struct tcp_sock *s, struct stack *st, struct buf *b,
		   struct vma_packet_desc_t *p);
/* b, taken off s, goes to the program: what names it there; NULL: there are too many. */
void *tcp_sock_hold(struct tcp_sock *s, struct stack *st, struct buf *b, bool shown);

/* cmsg.c */
/* Room for ancillary data: what is left of it, and whether something did not fit. */
struct tcp_sock_cmsgs {
	uint8_t *at;
	size_t left;
	bool cut;
};

/* One that does not fit is cut, or left out. */
void tcp_sock_cmsg_put(struct tcp_sock_cmsgs *m, int level, int type, const void *data, size_t len);

/* error_queue.c */
/*
 * A call with MSG_ZEROCOPY, begun when s->gen was gen, has sent something: a notification waits. No
 * lock held.
 */
void tcp_sock_zerocopy_done(struct tcp_sock *s, uint32_t gen);
/* recvmsg(MSG_ERRQUEUE): a notification, or what the kernel socket's queue has. */
ssize_t tcp_sock_recv_err(struct tcp_sock *s, int fd, struct msghdr *msg, int flags);
/* EPOLLERR while a notification waits. */
static inline uint32_t tcp_sock_errq_events(struct tcp_sock *s)
{
	return atomic_load_explicit(&s->zc_told, memory_order_relaxed) !=
			       atomic_load_explicit(&s->zc_next, memory_order_acquire)
		       ? EPOLLERR
		       : 0;
}

/* iov.c */
/* vectors that a waiting call goes on with: a thread's stack may be small */
#define TCP_SOCK_IOVS 8
/* Bytes in cnt vectors. */
static inline size_t tcp_sock_iov_len(const struct iovec *iov, size_t cnt)
{
	size_t len = 0;

	for (size_t i = 0; i < cnt; i++)
		len += iov[i].iov_len;
	return len;
}

/* The first vectors of iov that lie behind its first `skip` bytes, into part; returns how many. */
int tcp_sock_iov_part(const struct iovec *iov, int cnt, size_t skip,
		      struct iovec part[TCP_SOCK_IOVS]);

/* option/rows.c */
/* TCP_CONGESTION's names, by enum tcp_cc. */
extern const char *const tcp_sock_cc_names[TCP_CC_COUNT];
/* NewReno for a name that the engine has not. */
enum tcp_cc tcp_sock_cc_of(const char *name);

/* option/sockopt.c */
int tcp_sock_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len);
int tcp_sock_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len);
/*
 * What a connection or listener of s begins with: the defaults and what the user has set on the
 * kernel socket.
 */
void tcp_sock_opts_read(struct tcp_sock *s, int fd, struct tcp_opts *o);
/* The new socket fd gets what was set on its listener. */
void tcp_sock_fields_inherit(const struct tcp_sock *from, struct tcp_sock *to);
void tcp_sock_opts_inherit(const struct tcp_sock *from, int from_fd, int fd);
/*
 * The connection of s begins: the engine gets what tcp_opts does not have, as it is set on the
 * kernel socket fd. st->lock is held.
 */
void tcp_sock_opts_begin(struct tcp_sock *s, int fd, uint64_t now);

/*
 * The connection of s is about to go with its interface: getsockopt() goes on answering. st->lock
 * is held.
 */
void tcp_sock_opts_keep(struct tcp_sock *s);
/* to_fd gets what the user has set on from_fd, s's kernel socket. */
void tcp_sock_opts_copy(const struct tcp_sock *s, int from_fd, int to_fd);

/* option/query.c */
struct tcp_opt_row;
/*
 * getsockopt() of what the addresses and the handshake of s, a connection, answer. False: it is the
 * kernel socket's to answer.
 */
bool tcp_sock_opt_ask(struct tcp_sock *s, int fd, const struct tcp_opt_row *r, void *val,
		      socklen_t *len, int *ret);
/* Gives `from` (n bytes) to the caller as getsockopt() does. 0 or -1 and errno. */
int tcp_sock_opt_give(int level, void *val, socklen_t *len, const void *from, size_t n);

/* ioctl.c */
int tcp_sock_ioctl(struct vfd *v, int fd, unsigned long req, void *arg);
int tcp_sock_fcntl(struct vfd *v, int fd, int cmd, long arg);

/* shadow.c */
/*
 * Before s connects, listens or is bound again: a kernel socket that keeps an earlier connection's
 * port is replaced by a new one. s->lock is held; vfd_shadow_changed() follows. False: it stays.
 */
bool tcp_sock_shadow_renew(struct tcp_sock *s, int fd);
/* The error that a connection has left, taken; 0: none. */
static inline int tcp_sock_pending_error_take(struct tcp_sock *s)
{
	return atomic_load_explicit(&s->pending_error, memory_order_relaxed)
		       ? atomic_exchange_explicit(&s->pending_error, 0, memory_order_relaxed)
		       : 0;
}
/* getsockname() of a socket without a connection. */
int tcp_sock_shadow_name(const struct tcp_sock *s, int fd, struct sockaddr *addr, socklen_t *len);

/* module.c; st->lock is held */
/* The connection of fd is registered with the kernel module. */
void tcp_sock_kmod_add(struct tcp_sock *s, int fd);
/* tcp_env.queued: one that waits to be accepted is registered, too. */
void tcp_sock_kmod_queued(struct stack *st, struct tcp_sock_att *att, struct tcp_conn *c);
/*
 * It was accepted from this listener: s has its registration. q: the user that it had; NULL: it has
 * none yet.
 */
void tcp_sock_kmod_accepted(struct tcp_sock *s, struct tcp_sock_queued *q, int listener);
/* It never was accepted, and is over. */
void tcp_sock_kmod_unqueue(struct tcp_sock_queued *q);
/*
 * No lock held. What of registered connections reaches the kernel is taken in from now on. 0 or
 * negative errno.
 */
int tcp_sock_kmod_start(void);
void tcp_sock_kmod_forked(void);
/* struct stack_user_ops and struct stack_timed_ops (stack/stack.h), in env.c */
void tcp_sock_input(struct stack *st, struct buf *b, uint64_t *now_us);
void tcp_sock_polled(struct stack *st, uint64_t now_us);
bool tcp_sock_blocked(const struct stack *st);
bool tcp_sock_rests(struct stack *st);
void tcp_sock_sleep_hint(void);
void tcp_sock_neighbours_changed(void);

/* blocking.c: blocking calls */
struct tcp_sock_wait {
	struct wait_call call;
	uint32_t want; /* EPOLL* */
	/*
	 * not 0: EPOLLIN counts only when more than so many bytes can be read (who peeks leaves
	 * them there)
	 */
	uint32_t behind;
};
void tcp_sock_wait_init(struct tcp_sock *s, struct tcp_sock_wait *w, uint32_t want,
			uint64_t timeout_ns);
/*
 * Spins, then sleeps, until one of the wanted events has come since s->hint was cleared, or the
 * kernel socket has something (a listener's). 0: look again; -EAGAIN: the deadline; -EINTR; -EBADF:
 * closed meanwhile.
 */
int tcp_sock_wait_more(struct tcp_sock *s, struct tcp_sock_wait *w);

#endif
