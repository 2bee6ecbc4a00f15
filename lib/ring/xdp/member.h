/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A process among others of its user that have the same interface's queues. It joins through one of
 * them that lives, by pidfd_getfd(), which the kernel allows where it allows ptrace(2); then all
 * have the same rights, and each can be killed. Each holds the sockets of all others: so the
 * queue's rings stay, and what a dead one had not read can be given back.
 */
#ifndef RING_XDP_MEMBER_H
#define RING_XDP_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct pool;
struct xdp_ring;

/*
 * Pools that are made or joined from now on are that user's, whom the process is about to become;
 * (uid_t)-1: of who it is. A forked child is who it is.
 */
void member_user_to_be(uid_t uid);
/* Whose pools those are. */
uid_t member_user(void);

/* The one to join through. */
struct member_door {
	pid_t pid;
	uint64_t start_time;
	int pidfd, pool_fd;
	struct pool *pool; /* NULL when it has gone over to a ring */
};

/*
 * -ENOENT: nobody has the interface's queues; -EAGAIN: who has them can be joined in a moment;
 * another negative errno: he cannot be joined.
 */
int member_door_find(int ifindex, struct member_door *d);
void member_door_close(struct member_door *d);
/*
 * x, which has a port and nothing else, becomes a member: with pool, UMEM, sockets, and its row in
 * the steering program's table. 0 or negative errno; then x has nothing of it, but perhaps the
 * pool.
 */
int member_enter(struct xdp_ring *x, struct member_door *d);
/* The socket of the queue that the one at the door has. */
int member_host_xsk(const struct xdp_ring *x, unsigned queue);

/* Before x is bound: will others be able to join? What comes after may still prevent it. */
bool member_may_share(const struct xdp_ring *x);
/*
 * A pool of x's own, with UMEM, that others may join later. 0 or negative errno: there cannot be
 * one here, and x has nothing of it.
 */
int member_begin(struct xdp_ring *x);
/* x receives and sends: others may come. */
void member_publish(struct xdp_ring *x);

/*
 * Flows of members that were killed a moment ago are dropped. True: there were such members. The
 * port's lock is held.
 */
bool member_flows_drop(struct xdp_ring *x);
/*
 * x gets no more packets. True: others have the port, and it stays as it is. Nothing in a forked
 * child.
 */
bool member_leave(struct xdp_ring *x);
/*
 * The process becomes this user. 0: x is its own and stays so, nobody of another user joins.
 * -EPERM: x has others' packets in its memory, which the new user may not see.
 */
int member_user_changes(struct xdp_ring *x, uid_t uid);
/* What x has of it but pool and UMEM. A forked child closes its copies. */
void member_free(struct xdp_ring *x);

#endif
