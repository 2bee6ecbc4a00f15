/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of handovers: how a socket changes hands. An established TCP connection goes to the
 * kernel socket of its number by TCP_REPAIR (to_kernel.c, replay_fin.c); to a child of fork() that
 * uses it (fork.c is the owner's side, inherited.c the child's, claim.h what both share); at the
 * end of the process (exit.c); where the library leaves before that (leave.c); where its thread is
 * one of a crowd that sleeps (crowd.c). A datagram socket that a child reads goes to the kernel
 * (udp_fork.c), and so does a listener that a child waits for (listener_to_kernel.c; implant.c has
 * its clients enter the kernel's queue; listener_parts.c: where several wait, none of them waits
 * long for one that is busy; listener_last.c: handshakes with one that ends; listener_late.c: with
 * one that asks for SIGIO; listener_looks.c: the lists of both). replay.c gives the kernel what has
 * come from the wire.
 *
 * It stands above the sockets and registers with them (hooks.c): nothing
 * below knows it. preload calls what is here. No packet comes through this room.
 */
#ifndef HANDOVER_HANDOVER_H
#define HANDOVER_HANDOVER_H

#include <stdbool.h>
#include <sys/types.h>

/* Before the sockets' own start; the internal thread runs. 0 or negative errno. */
int handover_start(void);
/* The library stops. After the internal thread. */
void handover_stop(void);
/* The child of any fork(), after the fd table was made the child's; the sockets' part included. */
void handover_forked(void);

/* --- the end of the process: exit.c */

/*
 * The process ends: its connections go to the kernel, which ends them, or are closed as the kernel
 * would. In bounded time; may be called in a signal handler, whatever that has interrupted. Keeps
 * errno.
 */
void handover_at_end(void);
/*
 * The process becomes another program: the same, but what cannot go to the kernel stays as it is.
 */
void handover_at_exec(void);
/*
 * The process is about to lose CAP_NET_ADMIN: the kernel gets what another process may
 * have, too. Not in a handler.
 */
void handover_before_rights_go(void);

/* --- leave.c */

/*
 * The kernel gets all that the library has, for good, and the rings go. No socket is in the table
 * afterwards but those of which something is still to be told: connections that could not go there
 * (ECONNABORTED), and connections that wait for accept() and could not enter the kernel's queue;
 * and those that a call holds. On the internal thread, where there is one.
 */
void handover_leave(void);

/* --- fork(): fork.c, inherited.c */

/* Generations of processes that may have a connection of an owner and still close it at no cost. */
#define HANDOVER_FORK_DEPTH 8

struct claims;
struct claim_holder;

/* On the stack of who forks. */
struct handover_fork {
	struct handover_fork_claim {
		struct claims *claims;
		struct claim_holder *holder;
	} claims[HANDOVER_FORK_DEPTH + 1];
	unsigned num;
};

/*
 * Before a fork() that is made next, on this thread: the child will be able to claim the
 * connections, so they may stay. False: they cannot, and are to be handed to the kernel. Both ways
 * one of the next two follows, in the parent with fork()'s result.
 */
bool handover_fork_begin(struct handover_fork *f);
void handover_fork_end(const struct handover_fork *f, pid_t pid);
void handover_fork_child(const struct handover_fork *f);

#endif
