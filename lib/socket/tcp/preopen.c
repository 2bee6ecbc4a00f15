/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stacks that are opened before the process loses the right to: rules and listeners come at the
 * first wait, as ever.
 */
#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

/*
 * A socket that will want a stack when it is waited on, and nobody else in its family of processes
 * waits on it.
 */
static bool wants(const struct tcp_sock *s)
{
	if (tcp_sock_given_up(s) || s->unconn.attached || s->unconn.waited_by_parent ||
	    s->unconn.no_offload)
		return false;
	return tcp_sock_mode(s) == TCP_SOCK_LISTEN ||
	       (tcp_sock_mode(s) == TCP_SOCK_KERNEL && s->bound);
}

static void open_for(struct tcp_sock *s, void *arg)
{
	struct net_link_walk links = {.num = 0};
	int ifindex, cancel;

	(void)arg;
	if (!wants(s) || tcp_sock_begin())
		return;
	cancel = tcp_sock_lock(s);
	libc_internal_begin();
	while (wants(s) && (ifindex = net_link_next(&links))) {
		struct stack *st = tcp_sock_covers(s, ifindex)
					   ? stack_get(ifindex, tcp_sock_key_rx(s, &in6addr_any))
					   : NULL;

		if (!st)
			continue;
		log_debug("interface %d is opened for fd %d before the process gives its "
			  "privileges away",
			  ifindex, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
		stack_put(st);
	}
	libc_internal_end();
	tcp_sock_unlock(s, cancel);
}

void tcp_sock_preopen(void)
{
	tcp_sock_each(open_for, NULL);
}
