/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where more threads sleep than there are processors, each for a connection of its own, a packet
 * wakes the one that sleeps on the rings, and that one wakes the one that the packet is for. The
 * kernel wakes the right one at once. Where its packets come no later than ours it serves such a
 * connection with less, so it gets it. For good: there is no way back.
 */
#include <errno.h>

#include "config/config.h"
#include "handover/internal.h"
#include "runtime/runtime.h"
#include "socket/tcp/sock.h"
#include "stack/stack.h"

/* After so many that the kernel did not take, for want of a right or of memory, none is tried. */
#define REFUSALS_MAX 16u
static _Atomic unsigned refusals;
static _Atomic bool allowed; /* TCP_REPAIR; asked until it has been once */

static bool may_go(void)
{
	int cancel;
	bool yes;

	if (atomic_load_explicit(&refusals, memory_order_relaxed) >= REFUSALS_MAX)
		return false;
	if (atomic_load_explicit(&allowed, memory_order_relaxed))
		return true;
	cancel = lock_quiet_begin();
	libc_internal_begin();
	yes = tcp_sock_to_kernel_allowed();
	libc_internal_end();
	lock_quiet_end(cancel);
	atomic_store_explicit(&allowed, yes, memory_order_relaxed);
	if (!yes)
		atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
	return yes;
}

/*
 * Where its packets come no sooner here than by the kernel. Not if the program uses what only the
 * library has (the Extra API, whose callbacks run in waits that come this way) or numbers otherwise
 * than the kernel (sends without a copy); nor if another call may be half done. The caller holds s.
 * A look without locks, at a ring that outlives its stack by seconds.
 */
static bool may_suit(struct tcp_sock *s)
{
	const struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);

	return st && stack_ring(st)->caps.kernels_way && atomic_load(&s->v.calls) <= 1 &&
	       !s->zerocopy && !s->has_held && !(s->tells & TCP_SOCK_TELLS_EXTRA) &&
	       !atomic_load_explicit(&stacks_have_callbacks, memory_order_relaxed);
}

/* What is unsent goes over where there is no way back any more: without it there is one. */
static bool stays(struct tcp_sock *s, uint64_t now)
{
	(void)now;
	return !may_suit(s) || tcp_conn_state(s->c) != TCPS_ESTABLISHED || tcp_unread(s->c) ||
	       tcp_outq_unsent(s->c);
}

bool tcp_sock_crowded(struct tcp_sock *s)
{
	int before = errno, err = -EBUSY;

	if (params.crowd_to_kernel && may_suit(s) && may_go())
		err = tcp_sock_to_kernel_unless(s, STATS_WHY(CROWD), stays);
	if (err && err != -EBUSY && err != -ENOTCONN && err != -EOPNOTSUPP)
		atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
	errno = before;
	return !err;
}
