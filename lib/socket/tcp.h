/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP sockets on the engine (proto/tcp.h), as preload and the stack see them. Names begin with tsock_: tcp_ is the engine's. */
#ifndef SOCKET_TCP_H
#define SOCKET_TCP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mem/buf.h"

struct stack;

/*
 * Reads the kernel's TCP settings and starts the timers' part of the internal thread. 0 or negative errno. begin starts the
 * library (preload's), for a socket that a forked child has inherited.
 */
int tsock_start(int (*begin)(void));
/*
 * Makes the object of a new kernel socket (AF_INET or AF_INET6, SOCK_STREAM) and enters it into the fd table; the
 * kernel serves it until it is connected or waited on. 0, or negative errno: then fd stays a plain kernel socket.
 */
int tsock_socket_created(int fd, int domain, int type, int protocol);

/*
 * The process is about to lose its privileges: opens the stacks that its listening and bound sockets will need. No lock held;
 * starts the library if need be.
 */
void tsock_open_early(void);

/* --- for the stack; its lock is held */

/* A segment that passed pkt_parse(); takes b. *now: the time of this batch in us, read when it is 0. */
void tsock_input(struct stack *st, struct buf *b, uint64_t *now);
/* After a batch of n packets (n may be 0): what became due is sent, timers run. now as above. */
void tsock_polled(struct stack *st, unsigned n, uint64_t now);
/* True when st must not be slept on: segments wait for room in the device queue. */
bool tsock_blocked(const struct stack *st);

/* --- no lock held */

/* Somebody is about to sleep: has the internal thread run the timers in time. */
void tsock_sleep_hint(void);
/* The interface of st has vanished: its connections are over. */
void tsock_stack_gone(struct stack *st);
/* Addresses, links or neighbours have changed. */
void tsock_addresses_changed(void);
void tsock_neighbours_changed(void);

/* --- the end of the process: tcp_exit.c */

/*
 * The process ends: its connections go to the kernel, which ends them, or are closed as the kernel would. In bounded time; may be
 * called in a signal handler, whatever that has interrupted. Keeps errno.
 */
void tsock_end(void);
/* The process becomes another program: the same, but what cannot go to the kernel stays as it is. */
void tsock_leave(void);
/* The library stops. After the internal thread. */
void tsock_exit_off(void);
/* The process loses the right to hand connections over: the kernel gets what another process may have, too. Not in a handler. */
void tsock_leave_held(void);

/* --- fork(): tcp_fork.c, tcp_heir.c */

/* Generations of processes that may have a connection of an owner and still close it at no cost. */
#define TSOCK_FORK_DEPTH 8

struct claims;
struct claim_holder;

/* On the stack of who forks. */
struct tsock_fork {
	struct tsock_fork_held {
		struct claims *claims;
		struct claim_holder *holder;
	} held[TSOCK_FORK_DEPTH + 1];
	unsigned num;
};

/*
 * Before a fork() that is made next, on this thread: the child will be able to claim the connections, so they may stay.
 * False: they cannot, and have to go home. Both ways one of the next two follows, in the parent with fork()'s result.
 */
bool tsock_fork_begin(struct tsock_fork *f);
void tsock_fork_end(const struct tsock_fork *f, pid_t pid);
void tsock_fork_child(const struct tsock_fork *f);
/* The child of any fork(), after the fd table was made the child's. */
void tsock_forked(void);

#endif
