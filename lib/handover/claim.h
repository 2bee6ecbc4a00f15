/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a process and the children it has forked share of its connections: memory that both sides
 * map. The owner is the process whose engine serves them; the others have the kernel sockets
 * behind, and claim a connection when they use one.
 */
#ifndef HANDOVER_CLAIM_H
#define HANDOVER_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "socket/tcp/sock.h"

/* Connections with a higher id are handed to the kernel before their process forks. */
#define CLAIM_WORDS TCP_SOCK_NUMBERED
/* Processes that may hold copies at the same time; what is beyond counts as one that never ends. */
#define CLAIM_HOLDERS 256u

/*
 * How far a connection is on its way to the kernel. Forward only, until the object gets another
 * connection.
 */
enum claim_state {
	CLAIM_NONE, /* the owner's engine serves it */
	CLAIM_WANTED, /* written by a child: it waits for one of the next two */
	CLAIM_IN_KERNEL, /* the kernel socket has it */
	CLAIM_GONE, /* it is over, or the kernel did not take it */
};

/* Processes that are known to wait for one listener; who comes when all live is not noted. */
#define CLAIM_WAITERS 8u

#define CLAIM_PENDING (-1) /* pid: being forked, or in a namespace of its own */
#define CLAIM_NOT_YET UINT32_MAX
#define CLAIM_COPY 256u /* one, in a word */

/*
 * A process that was forked with connections. Taken by who forks, given back by the owner, who
 * finds the process dead.
 */
struct claim_holder {
	_Atomic int32_t pid; /* 0: free */
	/* it may have what was made until then; CLAIM_NOT_YET while it is PENDING */
	_Atomic uint32_t seq;
};

struct claims {
	int32_t owner;
	/* of the owner's socket: a datagram there has it look. Written before the first fork() */
	struct sockaddr_un addr;
	socklen_t addr_len;
	_Atomic uint32_t seq; /* forks of the owner that are done; the owner's */
	_Atomic uint32_t lost; /* the latest seq of a process that found no room in holders[] */
	struct claim_holder holders[CLAIM_HOLDERS];
	/*
	 * [id]. Bits 63..32: which connection of the object; 31..8: copies that children
	 * have; 7..0: enum claim_state. Changed by compare and swap, by both sides; children sleep
	 * on the lower half.
	 */
	_Atomic uint64_t words[CLAIM_WORDS];
	/* [id]: of a listener that is wanted, who gets what waits in its queue
	 * (listener_to_kernel.c) */
	_Atomic uint64_t takers[CLAIM_WORDS];
	/*
	 * [id]: who has waited for a listener for which the owner had not when it forked
	 * (listener_to_kernel.c). Bits 63..32 as of words, 31..0 the process.
	 */
	_Atomic uint64_t waiters[CLAIM_WORDS][CLAIM_WAITERS];
};

/* One of an owner's sockets, as a child names it. */
struct claim_ref {
	struct claims *claims;
	uint32_t id, gen; /* of the owner's object */
};

static inline uint32_t claim_gen(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline enum claim_state claim_state(uint64_t word)
{
	return (enum claim_state)(word & 0xff);
}

static inline uint32_t claim_copies(uint64_t word)
{
	return (uint32_t)word >> 8;
}

/* One copy more. Full is for ever: the owner takes it for held then. */
static inline void claim_copy_add(_Atomic uint64_t *word)
{
	uint64_t w = atomic_load(word);

	while (claim_copies(w) < (1u << 24) - 1 &&
	       !atomic_compare_exchange_weak(word, &w, w + CLAIM_COPY))
		;
}

/* The process has ended, and its descriptors are closed. In doubt false. */
bool claim_has_ended(int32_t pid);
/* The owner, or one that it has forked, lives, and is not this process. */
bool claim_others_live(const struct claims *c);
/* Before a fork(): an entry for the child, or NULL: claim_lost() then. */
struct claim_holder *claim_hold(struct claims *c);
/* What was made until seq is held for ever. */
void claim_lost(struct claims *c, uint32_t seq);

#endif
