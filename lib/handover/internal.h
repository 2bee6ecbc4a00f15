/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The inside of the room, shared by its files. */
#ifndef HANDOVER_INTERNAL_H
#define HANDOVER_INTERNAL_H

#include <netinet/in.h>
#include <sys/uio.h>

#include "handover/handover.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"

/* to_kernel.c */
/*
 * Moves an offloaded connection to the kernel socket of its fd, for good; no lock held. 0;
 * -ENOTCONN: there is none; -EOPNOTSUPP: it is not established yet; -EBUSY: its receive callback
 * has a frame of it, whoever runs that moves it then; other negative errno: the kernel did not take
 * it, and it stays here.
 */
int tcp_sock_to_kernel(struct tcp_sock *s, struct vma_stats_why why);
/* The same; -EBUSY where stays(s, now) says so. s's lock and its stack's are held for that. */
int tcp_sock_to_kernel_unless(struct tcp_sock *s, struct vma_stats_why why,
			      bool (*stays)(struct tcp_sock *s, uint64_t now));
/* The same, whatever its callback has: that goes to nobody. */
int tcp_sock_to_kernel_now(struct tcp_sock *s, struct vma_stats_why why);
/* The same at the end of the process: -EBUSY, it is over, and nobody else has it. */
int tcp_sock_to_kernel_last(struct tcp_sock *s);
/* struct tcp_sock_handover */
void tcp_sock_decided(struct tcp_sock *s);
/*
 * The same for one that the user has closed and the engine has not finished. 0; -ENOTCONN: there is
 * none.
 */
int tcp_sock_orphan_to_kernel(struct tcp_sock *s);
/*
 * The same for one that is in FIN_WAIT2 after the user's close, or in TIME_WAIT, of which
 * *time_waits, counted down, may still be moved. 0; -ENOENT: nothing is left, or nobody needs it.
 */
int tcp_sock_time_wait_to_kernel(struct tcp_sock *s, unsigned *time_waits);
/*
 * The connection's segments come here, where nobody takes them, until the kernel has it; st->lock
 * is held. 0 or negative errno.
 */
int tcp_sock_hold_segments(struct tcp_sock *s, struct stack *st, int fd);
/* The kernel has it now: nothing is left of it here. st->lock is held. */
void tcp_sock_leave_engine(struct tcp_sock *s, struct stack *st, uint64_t now);
/* All that one stack has. The internal thread only. */
void tcp_sock_stack_to_kernel(struct stack *st);
/* The connection of which that comes past the ring. The internal thread only. */
void tcp_sock_strays_to_kernel(const struct vma_stray *stray);
/* The connection, if that may be now. The internal thread only. */
void tcp_sock_leave(struct tcp_sock *s, struct vma_stats_why why);
/* Whether this process may do any of it now. */
bool tcp_sock_to_kernel_allowed(void);
void tcp_sock_share(struct vfd *v, struct vma_stats_why why);
void tcp_sock_give(struct vfd *v, struct vma_stats_why why);
void tcp_sock_leaving(struct vfd *v);
/* crowd.c: struct tcp_sock_handover */
bool tcp_sock_crowded(struct tcp_sock *s);
/* to_kernel.c: from now on a connection in SYN_SENT goes there, too. */
void tcp_sock_syns_to_kernel(void);
/* exit.c: the internal thread runs. 0 or negative errno. */
int exit_start(void);
void exit_off(void);
/* stacks_each(): st's packets, and what leaves in answer. */
void handover_poll(struct stack *st, void *arg);
/* fork.c */
/* A new connection's object: children know nothing of it. */
void tcp_sock_claim_new(struct tcp_sock *s);
/* What children have of s's connection; for the next one, when s may have another by then. */
uint64_t tcp_sock_claim_of(const struct tcp_sock *s);
/* The kernel has the connection; it is over. Whoever claims it goes on. */
void tcp_sock_claim_in_kernel(struct tcp_sock *s, uint64_t claim);
void tcp_sock_claim_over(struct tcp_sock *s);
/*
 * Another process may have a copy. Asked when the object is out of the fd table: no fork() can add
 * one any more.
 */
bool tcp_sock_has_copies(const struct tcp_sock *s);
/* vfd_ops.forking */
void tcp_sock_forking(struct vfd *v);
/* Answers the claims there are; also once a second, for children that cannot wake this process. */
void tcp_sock_claims_look(void);
void tcp_sock_claims_forked(void);
/*
 * All that could go to the kernel is there, and this process answers no more: whoever claims
 * something goes on with the kernel's socket. The internal thread's.
 */
void tcp_sock_claims_end(void);
/* This process's; NULL: none. */
struct claims *tcp_sock_claims(void);
/* inherited.c */
struct claim_ref;
enum claim_answer { CLAIM_TAKEN, CLAIM_OVER, CLAIM_OWNER_GONE };
/*
 * Raises the claim and waits for the owner's answer: the kernel has it, or it is over, or the owner
 * is. No lock held.
 */
enum claim_answer claim_wait(const struct claim_ref *r);
/* In the process that has forked, of its own. False: it has not. */
bool tcp_sock_own_claim(const struct tcp_sock *s, struct claim_ref *out);
/* In the child, of its parent's listener. False: the parent has no claims. */
bool tcp_sock_parents_claim(const struct tcp_sock *parents, struct claim_ref *out);
/* listener_to_kernel.c */
/* s, wanted by a child, is the kernel's; what waits to be accepted goes to the taker. */
void tcp_sock_listener_give(struct tcp_sock *s, uint64_t taker);
/* Another process is to have s, too: the kernel's, with what waits in its queue, if it can be. */
void tcp_sock_listener_share(struct tcp_sock *s, struct vma_stats_why why);
/* The same at the end of s in this process. */
void tcp_sock_listener_last_share(struct tcp_sock *s);
/* In a child: another program will have s, which the parent had waited for. All wait alike then. */
void tcp_sock_listener_leave(struct tcp_sock *s);
void tcp_sock_listeners_forked(void);
/* struct tcp_sock_handover */
void tcp_sock_listener_inherited(struct tcp_sock *s, const struct tcp_sock *parents);
bool tcp_sock_listener_wanted(struct tcp_sock *s, bool *given);
int tcp_sock_listener_given(struct tcp_sock *s, bool *more);
void tcp_sock_listener_closing(struct tcp_sock *s);
void tcp_sock_listener_waits(struct tcp_sock *s);
void tcp_sock_listeners_tick(void);
void tcp_sock_listeners_client(void);
void tcp_sock_listener_accepted(struct tcp_sock *s);
/* Clients that wait too long for this process go to others. True: some wait. */
bool tcp_sock_listeners_look(void);
/* listener_last.c */
/* s closes: handshakes that are under way end without it. No lock held. */
void listener_last_begin(struct tcp_sock *s);
bool listener_last_any(void);
/* On the internal thread. True: some are there still. */
bool listener_last_look(void);
void listener_last_forked(void);
/* listener_late.c */
/* s, which the kernel has now, is to signal those whose handshake is under way. No lock held. */
void listener_late_begin(struct tcp_sock *s);
bool listener_late_any(void);
/* On the internal thread. */
void listener_late_look(void);
void listener_late_forked(void);
/* listener_parts.c */
void listener_parts_forked(void);
bool tcp_sock_listeners_rest(void);
void tcp_sock_listener_over(const struct tcp_sock *s);
/* vfd_ops.inherited */
struct vfd *tcp_sock_inherited(struct vfd *v);
/* The child of a fork(): c is its parent's, who has forked seq times before. */
void tcp_sock_inherit_from(struct claims *c, uint32_t seq);
void tcp_sock_inherited_fork_begin(struct handover_fork *f);
void tcp_sock_inherited_fork_end(const struct handover_fork *f, pid_t pid);
/* implant.c */
struct implant;
/*
 * For what listener, a kernel socket, is to accept; *im is implant_close()'s. 0; -EBUSY: another
 * thread has the only one that this process can have; other negative errno: this kernel, or this
 * process, cannot. *im is NULL then.
 */
int implant_open(int listener, struct implant **im);
/* Before this process loses the right to load one: implant_open() will not need it. */
void implant_prepare(void);
/* NULL: nothing. */
void implant_close(struct implant *im);
/* In a child, first: those that threads of its parent had open are closed. */
void implants_forked(void);
/*
 * The connection of s, which a listener of the kernel's port could have accepted, waits in that
 * listener's queue; s has none any more. No lock held. 0; -ECONNRESET: the kernel got a part of
 * it only, s is to be closed; other negative errno: nothing has happened. -EADDRINUSE:
 * net_tcp_time_wait_end() would help.
 */
int implant(struct implant *im, struct tcp_sock *s);

/* replay.c */
struct replay_to {
	struct in6_addr src, dst; /* v4-mapped for IPv4 */
	uint8_t proto, ttl, tos; /* ttl 0: any */
};
#define REPLAY_PIECES 2
/*
 * The checksum of a segment or datagram whose own field is 0, in network order. All pieces but the
 * last are of even length.
 */
uint16_t replay_csum(const struct replay_to *to, const struct iovec *iov, size_t num);
/* What replay_send() sends with: a socket for each family, -1: none yet. replay_close()'s. */
struct replay {
	int fd4, fd6;
};
#define REPLAY_NONE ((struct replay){-1, -1})
/* The socket for such addresses, if it is not there yet. 0 or negative errno. */
int replay_open(struct replay *r, const struct in6_addr *dst);
void replay_close(struct replay *r);
/*
 * The kernel receives these REPLAY_PIECES pieces at most, a transport's header and data, as if
 * from the wire. replay_open() was called for to->dst. 0 or negative errno.
 */
int replay_send(const struct replay *r, const struct replay_to *to, const struct iovec *iov,
		size_t num);
/*
 * What s, which is the kernel's by now, has queued here waits in the kernel socket then, where
 * another process finds it, too; s->lock is held. What cannot be put there stays.
 */
void udp_replay_queued(struct udp_sock *s);
/* replay_fin.c: 0: tcp_sock_fin_replay() may send it; negative errno: no permission, no number. */
int tcp_sock_fin_may_replay(const struct tcp_image *im);
/*
 * replay_fin.c: gives the kernel socket that has im's connection the peer's FIN. 0 or
 * negative errno.
 */
int tcp_sock_fin_replay(const struct tcp_image *im);
/* Its RST, behind the FIN where that is in: whatever there was ends. 0 or negative errno. */
int tcp_sock_rst_replay(const struct tcp_image *im);
/* Its acknowledgement of our FIN, with its own FIN where that is in. 0 or negative errno. */
int tcp_sock_fin_acked(const struct tcp_image *im);

/* udp_fork.c */
/* Makes what parent and children share. 0 or negative errno. */
int udp_claims_start(void);
/* In the child, first. */
void udp_claims_forked(void);
/* In the child: the inherited socket, which is fd, becomes an object again. */
void udp_inherit(const struct udp_sock *parents, int fd);
/* Of a socket that a child has inherited: the parent is to leave receiving to the kernel. */
void udp_raise_claim(struct udp_sock *s);

/* hooks.c: the library runs in this process. */
bool handover_running(void);

#endif
