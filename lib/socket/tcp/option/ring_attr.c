/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SO_VMA_RING_ALLOC_LOGIC: what a socket has said of the ring that its connection, or those that it
 * accepts, are to have. Few sockets say so: it stands beside them.
 */
#include <errno.h>

#include "config/config.h"
#include "socket/tcp/internal.h"

/* A socket's, by its id. Pages that nobody has touched cost nothing. */
static struct {
	_Atomic bool is_said;
	_Atomic uint32_t gen; /* of the socket that has said it. Its lock */
	_Atomic stack_ring_attr ring_attr;
} by_id[TCP_SOCK_NUMBERED];

static stack_ring_attr ring_attr_of(const struct tcp_sock *s)
{
	if (s->id >= TCP_SOCK_NUMBERED ||
	    !atomic_load_explicit(&by_id[s->id].is_said, memory_order_acquire) ||
	    atomic_load_explicit(&by_id[s->id].gen, memory_order_relaxed) !=
		    atomic_load_explicit(&s->gen, memory_order_relaxed))
		return 0;
	return atomic_load_explicit(&by_id[s->id].ring_attr, memory_order_relaxed);
}

uint64_t tcp_sock_key_rx(const struct tcp_sock *s, const struct in6_addr *local)
{
	/* Not one of those that UDP sockets have. */
	struct stack_client c = {.local = *local, .socket = 1ull << 40 | s->id};
	stack_ring_attr w = stacks_several() ? ring_attr_of(s) : 0;

	return stack_key_by_attr(w, params.ring_allocation_logic_rx, &c);
}

/* A connection, and a listener that was waited on, have their ring for good. */
static bool has_ring(struct tcp_sock *s)
{
	return tcp_sock_mode(s) == TCP_SOCK_CONN ||
	       atomic_load_explicit(&s->unconn.attached, memory_order_relaxed);
}

/* A connection sends by the ring that it receives by. */
static void show(struct vma_stats_socket *b, stack_ring_attr w)
{
	b->rx_by_user = b->tx_by_user = stack_ring_attr_by_user(w);
	b->rx_ring_user = b->tx_ring_user = (uint32_t)w;
}

static int set_locked(struct tcp_sock *s, stack_ring_attr w)
{
	if (has_ring(s))
		return -EINVAL;
	if (s->id >= TCP_SOCK_NUMBERED)
		return -ENOMEM;
	atomic_store_explicit(&by_id[s->id].ring_attr, w, memory_order_relaxed);
	atomic_store_explicit(&by_id[s->id].gen,
			      atomic_load_explicit(&s->gen, memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&by_id[s->id].is_said, true, memory_order_release);
	stacks_set_ring_attr();
	show(s->stats, w);
	return 0;
}

int tcp_sock_set_ring_attr(struct vfd *v, int fd, stack_ring_attr w)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int cancel, err;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EBADF;
	err = set_locked(s, w);
	tcp_sock_unlock(s, cancel);
	return err;
}

void tcp_sock_ring_attrs_forked(void)
{
	for (uint32_t i = 0; i < TCP_SOCK_NUMBERED && i < tcp_sock_count(); i++)
		atomic_store_explicit(&by_id[i].is_said, false, memory_order_relaxed);
}
