/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The local ports of connections that connect() has made, the user has closed, and that are in
 * TIME_WAIT or FIN_WAIT2: as with the kernel's own nobody else can bind to them meanwhile. The
 * kernel socket that had the port stays open for that; it has the SO_REUSEADDR that the user gave
 * it, by which the kernel decides who may bind all the same. A connect() of this process may have
 * the port for another peer, as it may in the kernel.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

/* Of the descriptors that the process may have; what is above that is not held. */
#define SHARE 8u

/* Who holds the port; written under the lock of its stack. */
static struct tcp_sock *_Atomic holder[65536];
static _Atomic unsigned num;

unsigned tcp_sock_ports_max(void)
{
	static _Atomic unsigned max; /* 0: not known yet */
	unsigned n = atomic_load_explicit(&max, memory_order_relaxed);
	struct rlimit limit;

	if (n)
		return n;
	n = 1024 / SHARE;
	if (!libc.getrlimit(RLIMIT_NOFILE, &limit))
		n = limit.rlim_cur < 65536 * SHARE ? (unsigned)(limit.rlim_cur / SHARE) : 65536;
	n += !n;
	atomic_store_explicit(&max, n, memory_order_relaxed);
	return n;
}

bool tcp_sock_port_hold(struct tcp_sock *s)
{
	struct tcp_sock *none = NULL;

	/* The ports of a block are the block's. */
	if (s->on_block || atomic_load_explicit(&num, memory_order_relaxed) >= tcp_sock_ports_max())
		return false;
	if (!atomic_compare_exchange_strong(&holder[s->tuple.lport], &none, s))
		return false;
	atomic_fetch_add_explicit(&num, 1, memory_order_relaxed);
	return true;
}

void tcp_sock_port_unhold(struct tcp_sock *s)
{
	struct tcp_sock *was = s;

	if (s->port_fd >= 0 && atomic_compare_exchange_strong(&holder[s->tuple.lport], &was, NULL))
		atomic_fetch_sub_explicit(&num, 1, memory_order_relaxed);
}

bool tcp_sock_port_steal(uint16_t port)
{
	struct tcp_sock *s = atomic_load_explicit(&holder[port], memory_order_acquire);
	struct stack *st = s ? atomic_load_explicit(&s->st, memory_order_acquire) : NULL;
	int fd = -1;

	if (!st || lock_mine(&st->lock))
		return false;
	lock_take(&st->lock);
	/* Its TIME_WAIT may be over, and s another connection's by now. */
	if (atomic_load_explicit(&holder[port], memory_order_relaxed) == s &&
	    atomic_load_explicit(&s->st, memory_order_relaxed) == st) {
		fd = s->port_fd;
		tcp_sock_port_unhold(s);
		s->port_fd = -1;
	}
	lock_drop(&st->lock);
	if (fd >= 0)
		own_fd_close(fd);
	return fd >= 0;
}

void tcp_sock_port_holds_forked(void)
{
	if (!atomic_exchange(&num, 0))
		return;
	for (unsigned i = 0; i < 65536; i++) {
		if (atomic_load_explicit(&holder[i], memory_order_relaxed))
			atomic_store_explicit(&holder[i], NULL, memory_order_relaxed);
	}
}
