/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether sockets that are not this process's have a port, too: opened to others by SO_REUSEADDR or
 * SO_REUSEPORT, or a multicast group's. The steering would take their packets; while somebody else
 * has the port, the kernel distributes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/udp/internal.h"

#define ANSWERS 256u
#define INODES_AT_ONCE 64u
/* Sockets come between the first question, which says how many there are, and the second. */
#define INODES_SPARE 64u

/*
 * A thousand sockets of one port ask once: an answer is good until the next tick, as that of a
 * socket that asked before is.
 */
static struct answer {
	uint16_t port; /* 0: none */
	bool shared;
	uint32_t tick;
} answers[ANSWERS];
static struct lock answers_lock;

static bool asked_before(uint16_t port, bool *shared)
{
	struct answer *a = &answers[port % ANSWERS];
	bool known;

	lock_take(&answers_lock);
	known = a->port == port && a->tick == atomic_load_explicit(&udp_tick, memory_order_relaxed);
	*shared = a->shared;
	lock_drop(&answers_lock);
	return known;
}

static bool ask(uint16_t port)
{
	uint64_t few[INODES_AT_ONCE], *inodes = few;
	int n = net_udp_inodes(port, inodes, INODES_AT_ONCE), room = INODES_AT_ONCE;
	bool shared;

	if (n > room) {
		room = n + (int)INODES_SPARE;
		inodes = malloc((size_t)room * sizeof(*inodes));
		n = inodes ? net_udp_inodes(port, inodes, (unsigned)room) : -ENOMEM;
	}
	/* Not known: the safe way. */
	shared = n < 0 || n > room || udp_inodes_foreign(inodes, (unsigned)n);
	if (inodes != few)
		free(inodes);
	return shared;
}

bool udp_port_shared(uint16_t port)
{
	uint32_t tick = atomic_load_explicit(&udp_tick, memory_order_relaxed);
	bool shared;

	if (asked_before(port, &shared))
		return shared;
	shared = ask(port);
	lock_take(&answers_lock);
	answers[port % ANSWERS] = (struct answer){.port = port, .shared = shared, .tick = tick};
	lock_drop(&answers_lock);
	return shared;
}

void udp_port_forget(uint16_t port)
{
	struct answer *a = &answers[port % ANSWERS];

	lock_take(&answers_lock);
	if (a->port == port)
		a->port = 0;
	lock_drop(&answers_lock);
}

void udp_sharing_forked(void)
{
	atomic_store(&answers_lock.owner, 0);
	memset(answers, 0, sizeof(answers));
}
