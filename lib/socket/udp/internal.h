/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of a UDP socket, shared by this folder's files. */
#ifndef SOCKET_UDP_INTERNAL_H
#define SOCKET_UDP_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/proto.h"
#include "runtime/runtime.h"
#include "stats/stats.h"
#include "stack/stack.h"
#include "socket/socket.h"
#include "socket/udp/sock.h"
#include "fd/fd.h"

/* Notes who used the socket last; a store only when it changes. */
static inline void udp_note_tid(__u32 *tid)
{
	uint32_t me = lock_self();

	if (__builtin_expect(__atomic_load_n(tid, __ATOMIC_RELAXED) != me, 0))
		__atomic_store_n(tid, me, __ATOMIC_RELAXED);
}

/*
 * s->lock for a call of the application: a thread that is cancelled in the middle would keep it.
 * Returns what unlocking wants.
 */
static inline int udp_lock(struct udp_sock *s)
{
	int cancel = lock_quiet_begin();

	lock_take(&s->lock);
	lock_leave();
	return cancel;
}

static inline void udp_unlock(struct udp_sock *s, int cancel)
{
	lock_enter();
	lock_drop(&s->lock);
	lock_quiet_end(cancel);
}

/*
 * The same for a call on fd that changes s. False, nothing locked: another thread has closed fd;
 * the call is libc's. While it is locked close() waits.
 */
static inline bool udp_lock_live(struct udp_sock *s, int fd, int *cancel)
{
	*cancel = udp_lock(s);
	if (__builtin_expect(vfd_get(fd) == &s->v, 1))
		return true;
	udp_unlock(s, *cancel);
	return false;
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

/*
 * The stack of att. acquire, as where att->s is compared: its queue, should att have become another
 * attachment of the socket meanwhile.
 */
static inline struct stack *udp_att_stack(const struct udp_att *att)
{
	return atomic_load_explicit(&att->st, memory_order_acquire);
}

/* Another socket may be bound to the same address and port. */
static inline bool udp_can_share(const struct udp_sock *s)
{
	return s->o.reuseaddr || s->o.reuseport;
}

/* migrate.c */
/* A logic by which a socket may follow its callers from ring to ring. */
extern _Atomic bool udp_moves_rx __attribute__((visibility("hidden")));
extern _Atomic bool udp_moves_tx __attribute__((visibility("hidden")));
void udp_moves_start(void);
/* The first time s gets the key of the ring that it receives by. s->lock is held. */
void udp_key_rx(struct udp_sock *s);
/* The peer of connect(), as struct udp_peer says; its length. Any thread. */
static inline socklen_t udp_peer_get(const struct udp_sock *s, union udp_addr *a)
{
	for (unsigned i = 0; i < sizeof(a->word) / sizeof(a->word[0]); i++)
		a->word[i] = atomic_load_explicit(&s->peer.word[i], memory_order_acquire);
	return atomic_load_explicit(&s->peer.len, memory_order_acquire);
}

/* How its ring is chosen: enum stack_logic. */
static inline int udp_logic_rx(const struct udp_sock *s)
{
	return stack_ring_attr_logic(atomic_load_explicit(&s->ring_attr_rx, memory_order_relaxed),
				     params.ring_allocation_logic_rx);
}

static inline int udp_logic_tx(const struct udp_sock *s)
{
	return stack_ring_attr_logic(atomic_load_explicit(&s->ring_attr_tx, memory_order_relaxed),
				     params.ring_allocation_logic_tx);
}

/*
 * A call is about to receive on s, or to send; no lock is held. It may move to the caller's ring.
 * Until it does the thread is not noted as the last one: so only the owner takes the fast path, and
 * the calls of all others are counted here.
 */
void udp_receiving_slow(struct udp_sock *s);
void udp_sending_slow(struct udp_sock *s);
static inline void udp_receiving(struct udp_sock *s)
{
	if (__builtin_expect(atomic_load_explicit(&udp_moves_rx, memory_order_relaxed), 0))
		udp_receiving_slow(s);
	else
		udp_note_tid(&s->stats->rx_tid);
}

static inline void udp_sending(struct udp_sock *s)
{
	if (__builtin_expect(atomic_load_explicit(&udp_moves_tx, memory_order_relaxed), 0))
		udp_sending_slow(s);
	else
		udp_note_tid(&s->stats->tx_tid);
}

/* The stack that s sends with on an interface; NULL as stack_get(). s->lock is held. */
struct stack *udp_sender(struct udp_sock *s, int ifindex);

/* sock.c */
extern const struct vfd_ops udp_ops;
/*
 * Binds the kernel socket to a free port if it has none; then attaches. s->lock is held. 0 or
 * negative errno.
 */
int udp_autobind(struct udp_sock *s, int fd);
/*
 * Makes stacks and steering rules agree with what s is bound, connected and joined to. s->lock is
 * held.
 */
void udp_attach(struct udp_sock *s, int fd);

/*
 * The program waits for the socket, receives or sends: from here on it is attached. bind(),
 * connect() and options alone open no ring: a master process that only binds and forks leaves the
 * interface to its workers. No lock is held; keeps errno.
 */
void udp_begin_slow(struct udp_sock *s, int fd);
static inline void udp_begin(struct udp_sock *s, int fd)
{
	if (__builtin_expect(!atomic_load_explicit(&s->begun, memory_order_relaxed), 0))
		udp_begin_slow(s, fd);
}

/* After a bind(), s->lock held: s begins if another socket of its port has. */
void udp_follow_port(struct udp_sock *s);
/* One of this process's sockets on the port is such. No s->lock is needed, nor taken. */
bool udp_port_any(uint16_t port, bool (*is)(const struct udp_sock *s));
/*
 * True when one of these inodes (each once) is none of this process's offloaded sockets: another
 * process's, or one that the kernel has for good. Sorts them.
 */
bool udp_inodes_foreign(uint64_t *inodes, unsigned n);

/* sharing.c */
/* Others have the port as well, or it is not known. At most one question to the kernel in a second.
 */
bool udp_port_shared(uint16_t port);
/* A socket of ours has left the port: the next one asks. */
void udp_port_forget(uint16_t port);
void udp_sharing_forked(void);
/* full_queue.c: a send of s was refused, as the queue of its ring is full. No lock held. */
void udp_tx_refused(struct udp_sock *s);
void udp_full_queues_start(void);
void udp_full_queues_forked(void);

/*
 * attach.c, for these two: port is that of a socket whose port others may have, too (0: of none);
 * no lock is held, errno is kept.
 */
/* The kernel has got it, or it is the kernel's and has come to the port: others leave it its share.
 */
void udp_port_divide(uint16_t port);
/*
 * It has come to interfaces, and has no peer: those that have one keep their peers' packets there.
 */
void udp_port_joined(uint16_t port);
/* attach.c; s->lock is held for all of these but the last */
/* Reads from the kernel what s is bound to now. */
void udp_learn_local(struct udp_sock *s, int fd);
/* Out of every demultiplexer, rules away; what is queued stays readable. */
void udp_unlist(struct udp_sock *s);
/* Takes every attachment off its stack and frees what is queued. */
void udp_detach(struct udp_sock *s);
/* The attachment that s has on an interface by its key; NULL: none, or it has gone. */
struct udp_att *udp_att_chosen(const struct udp_sock *s, int ifindex);
/* Moves s to the stacks of its key, which has changed. */
void udp_follow_key(struct udp_sock *s, int fd);
/* Gives up attachments that neither bring nor hold anything. */
void udp_prune(struct udp_sock *s);
/* In the child of a fork(): attachments are the parent's. */
void udp_atts_forked(void);

/* input.c; the stack's lock is held */
/* struct stack_user_ops.input */
void udp_input(struct stack *st, struct buf *b, uint64_t *now_us);
/* Datagrams in a queued buffer: one, or those of a burst. */
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

/* Takes the first buffer out of the queue, a burst whole; the caller frees it. */
static inline struct buf *udp_dequeue(struct udp_sock *s, struct udp_att *att)
{
	struct buf *b = att->head;

	att->head = b->next;
	if (!att->head)
		att->tail = &att->head;
	udp_uncharge(s, att, udp_count(b), b->total);
	return b;
}

/* Puts b, which is charged, at the end of the queue of what can be read. */
void udp_queue_add(struct udp_att *att, struct buf *b);
/* Puts b, one datagram that is not charged, back to the front. */
void udp_queue_first(struct udp_att *att, struct buf *b);

/*
 * gso_burst.c: a copy of the first datagram of the burst at the head of a queue, which has it no
 * more; NULL: no memory, and nothing has changed. Charges and counts are the caller's.
 */
struct buf *udp_burst_take(struct buf **head, struct buf ***tail);
/*
 * gso_burst.c: takes the first datagram of the burst at the head of the queue away; the last one is
 * a plain datagram.
 */
void udp_burst_step(struct udp_sock *s, struct udp_att *att);

/*
 * A copy on the heap of the first n bytes of b's payload, with what is known of it; NULL when
 * memory is out.
 */
struct buf *udp_copy_of(const struct buf *b, uint32_t n);
/* Frees what an attachment has queued. */
void udp_att_flush(struct udp_att *att);

/* show.c; the stack's lock is held for these two */
/* b, which is charged, waits for the callback. */
void udp_unshown_add(struct udp_att *att, struct buf *b);
/* The first datagram of those that wait; NULL: no memory, and its burst was dropped. */
struct buf *udp_unshown_take(struct udp_att *att);
/* Frees what waits for it. */
void udp_unshown_flush(struct udp_att *att);
/* The callback of s and its attachments; s->lock is held. */
void udp_callback_set(struct udp_sock *s, struct udp_callback cb);
/* struct stack_user_ops.show */
bool udp_show(void);
void udp_show_forked(void);

/* completion.c; the stack's lock is held */
/* b, which is charged, waits to be told. */
void udp_completion_add(struct udp_att *att, struct buf *b);
/* struct stack_due.tell of an attachment */
enum stack_tells udp_tell(struct stack *st, struct stack_due *d, struct stack_completions *told);
/* The kernel socket has something (EPOLL*): a completion is to say so. No stack's lock is held. */
void udp_completion_kernel(struct udp_sock *s, uint32_t events);

/* zcopy.c; the stack's lock is held */
/*
 * b, one datagram that is charged, goes to the program: what names it there. NULL: there are too
 * many. shown: to a callback first.
 */
void *udp_hold(struct udp_sock *s, struct udp_att *att, struct stack *st, struct buf *b,
	       bool shown);
/* It does not stay there; its charge is what it was. uses: of the attachment, at that time. */
void udp_unhold(struct udp_att *att, uint32_t uses, const struct buf *b);
/* The same piece by piece (SocketXtreme). False: there are too many. */
bool udp_lend(struct udp_sock *s, struct udp_att *att, struct stack *st, struct buf *b,
	      struct vma_packet_desc_t *p);
/* What the program holds leaves no room in the receive buffer: it is told, once. */
void udp_held_too_long(const struct udp_sock *s);

/* recv.c */
static inline bool udp_is_nonblock(const struct udp_sock *s, int flags)
{
	return s->o.nonblock || (flags & MSG_DONTWAIT);
}
/*
 * Waits as recvmsg() does for something to read: the attachment whose head it is, its stack locked;
 * or NULL, and *n is what recvmsg() returns, msg filled by the kernel socket. gen: of s, before the
 * caller held it, if it does.
 */
struct udp_att *udp_ready(struct udp_sock *s, int fd, uint32_t gen, struct msghdr *msg, int flags,
			  ssize_t *n);
/* Hands the head of att to the user and unlocks its stack. Returns what recvmsg() returns. */
ssize_t udp_deliver(struct udp_sock *s, struct udp_att *att, struct msghdr *msg, int flags);
/* The sender's address, cut to *len bytes; *len becomes its whole length. */
void udp_put_name(const struct udp_sock *s, const struct buf_meta *m, void *name, socklen_t *len);
/* For SIOCGSTAMP: b is the last datagram that was handed over. */
void udp_note_time(struct udp_sock *s, const struct buf *b);
ssize_t udp_recvmsg(struct vfd *v, int fd, struct msghdr *msg, int flags);
/*
 * fast_path.c: recvfrom_zcopy() of the usual kind. False: it is not, or nothing is there; *n is not
 * set.
 */
bool udp_give_frame(struct udp_sock *s, int flags, const struct zcopy *z, ssize_t *n);
/* With other flags recvfrom() is a recvmsg(). */
#define UDP_RX_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_WAITALL)
/* fast_path.c: recvfrom(); what is not of the usual kind is for the next one. */
ssize_t udp_recvfrom(struct vfd *v, void *buf, size_t len, uint64_t call, struct sockaddr *addr,
		     socklen_t *alen);
ssize_t udp_recvfrom_any(struct udp_sock *s, int fd, void *buf, size_t len, int flags,
			 struct sockaddr *addr, socklen_t *alen);
int udp_recvmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags,
		 struct timespec *timeout);
uint32_t udp_events(struct vfd *v);
/* Bytes of the first datagram waiting here, or -1 when none waits. */
int udp_first_len(struct udp_sock *s, int fd);
/* attach.c: a datagram waits in the kernel socket. */
bool udp_kernel_has(int fd);

/* send.c */
ssize_t udp_sendmsg(struct vfd *v, int fd, const struct msghdr *msg, int flags);
ssize_t udp_sendto(struct vfd *v, const void *buf, size_t len, uint64_t call,
		   const struct sockaddr *addr, socklen_t alen);
int udp_sendmmsg(struct vfd *v, int fd, struct mmsghdr *msgs, unsigned n, int flags);
/* Ticks once a second: large datagrams ask for their path's MTU anew. */
extern _Atomic uint32_t udp_tick __attribute__((visibility("hidden")));
/* Datagrams that this process has sent through kernel sockets of ours. */
extern _Atomic uint32_t udp_kernel_sends __attribute__((visibility("hidden")));

/* sockopt.c, option_copies.c */
int udp_setsockopt(struct vfd *v, int fd, int level, int opt, const void *val, socklen_t len);
int udp_getsockopt(struct vfd *v, int fd, int level, int opt, void *val, socklen_t *len);
int udp_ioctl(struct vfd *v, int fd, unsigned long req, void *arg);
int udp_fcntl(struct vfd *v, int fd, int cmd, long arg);
/* Has arriving packets stamped if s wants that; s->lock is held. */
void udp_stamping(struct udp_sock *s);
/*
 * SO_TIMESTAMPING asks for nothing that a ring of the socket's cannot stamp; the socket's lock is
 * held.
 */
bool udp_stamps_here(const struct udp_sock *s);
/* The options that user space copies: of a new kernel socket. */
void udp_opts_init(struct udp_sock *s, int fd);
/* One that was set. The socket's lock is held. */
void udp_opts_mirror(struct udp_sock *s, int fd, int level, int opt);
/*
 * IP_MULTICAST_IF was set to val: the kernel does not tell the index, which counts before the
 * address.
 */
void udp_opts_mc_if(struct udp_sock *s, const void *val, socklen_t len);

/* multicast.c */
/* Follows a successful membership option. s->lock is held. False: the kernel must have s. */
bool udp_membership(struct udp_sock *s, int level, int opt, const void *val, socklen_t len);
/* May this socket have a multicast datagram? */
bool udp_mc_accepts(const struct udp_sock *s, const struct buf_meta *m);
void udp_groups_free(struct udp_sock *s);

/*
 * The parent is to leave receiving on this inherited socket to the kernel: this process is going to
 * read it.
 */
static inline void udp_claim(struct udp_sock *s)
{
	if (__builtin_expect(
		    atomic_load_explicit(&s->inherited_claim, memory_order_relaxed) != NULL, 0))
		udp_claim_raise(s);
}

/* sock.c */

#endif
