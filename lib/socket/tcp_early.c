/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stacks that are opened before the process loses the right to: rules and listeners come at the first wait, as ever. */
#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "socket/tcp_int.h"

/* A socket that will want a stack when it is waited on, and nobody else in its family of processes waits on it. */
static bool wants(const struct tsock *s)
{
	if (s->spare.attached || s->spare.parents || s->spare.no_offload)
		return false;
	return tsock_mode(s) == TSOCK_LISTEN || (tsock_mode(s) == TSOCK_KERNEL && s->bound);
}

static void open_for(struct tsock *s, void *arg)
{
	int links[STACKS_MAX], cancel;
	unsigned n;

	(void)arg;
	if (!wants(s) || tsock_begin())
		return;
	cancel = tsock_lock(s);
	libc_internal++;
	n = wants(s) ? net_link_list(links, STACKS_MAX) : 0;
	for (unsigned i = 0; i < n && i < STACKS_MAX; i++) {
		struct stack *st = tsock_covers(s, links[i]) ? stack_get(links[i], tsock_key_rx(s, &in6addr_any)) : NULL;

		if (!st)
			continue;
		log_debug("interface %d is opened for fd %d before the process gives its privileges away", links[i],
			  atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
		stack_put(st);
	}
	libc_internal--;
	tsock_unlock(s, cancel);
}

void tsock_open_early(void)
{
	tsock_each(open_for, NULL);
}
