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

/* TCP_REPAIR may be used; asked once. */
enum allowed { ALLOWED_UNKNOWN, ALLOWED, ALLOWED_NOT };
static _Atomic int allowed;

static bool may_go(void)
{
	int a = atomic_load_explicit(&allowed, memory_order_relaxed), cancel;

	if (a == ALLOWED_UNKNOWN) {
		cancel = lock_quiet_begin();
		libc_internal_begin();
		a = tcp_sock_to_kernel_allowed() ? ALLOWED : ALLOWED_NOT;
		libc_internal_end();
		lock_quiet_end(cancel);
		atomic_store_explicit(&allowed, a, memory_order_relaxed);
	}
	return a == ALLOWED;
}

/*
 * Its packets come no sooner here than by the kernel, and nothing waits to be read. The caller, who
 * holds it, is the only one: another call may be half done. What only the library has (the Extra
 * API), or numbers otherwise than the kernel (sends without a copy), is not used.
 */
static bool stays(struct tcp_sock *s, uint64_t now)
{
	const struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);

	return !st->ring->caps.kernels_way || tcp_conn_state(s->c) != TCPS_ESTABLISHED ||
	       tcp_unread(s->c) || atomic_load(&s->v.calls) > 1 || s->zerocopy || s->has_held ||
	       s->tells & TCP_SOCK_TELLS_EXTRA || tcp_sock_show_awaited(s, now);
}

bool tcp_sock_crowded(struct tcp_sock *s)
{
	int before = errno, err = -EBUSY;

	if (params.crowd_to_kernel && may_go())
		err = tcp_sock_to_kernel_unless(s, STATS_WHY(CROWD), stays);
	if (err == -EPERM || err == -EACCES)
		atomic_store_explicit(&allowed, ALLOWED_NOT, memory_order_relaxed);
	errno = before;
	return !err;
}
