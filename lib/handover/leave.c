/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The library leaves a process that goes on: the kernel gets all that it has, and from then on each
 * call of the program's is libc's own.
 */
#include "handover/internal.h"
#include "socket/udp/sock.h"
#include "stack/stack.h"

/*
 * Something of it is told by the object alone: that its connection could not go to the kernel, or
 * connections that wait for accept() and could not enter the kernel's queue.
 */
static bool is_still_asked(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s);
	bool yes = tcp_sock_mode(s) == TCP_SOCK_CONN || s->unconn.given ||
		   atomic_load_explicit(&s->pending_error, memory_order_relaxed);

	tcp_sock_unlock(s, cancel);
	return yes;
}

static void each(bool (*is_one)(const struct vfd *v), void (*fn)(struct vfd *v))
{
	for (int fd = 0; fd < vfd_limit(); fd++) {
		struct vfd *v = vfd_get(fd);

		if (v && !vfd_is_closing(v) && is_one(v))
			fn(v);
	}
}

static bool is_socket(const struct vfd *v)
{
	return v->kind != VFD_EPOLL;
}

static bool is_set(const struct vfd *v)
{
	return v->kind == VFD_EPOLL;
}

static void give(struct vfd *v)
{
	vfd_give(v, STATS_WHY(RING_GONE));
}

static void disown_socket(struct vfd *v)
{
	struct tcp_sock *s = v->ops == &tcp_sock_ops ? tcp_sock_of(v) : NULL;

	if (s && is_still_asked(s))
		return;
	if (s && tcp_sock_mode(s) == TCP_SOCK_KERNEL)
		tcp_sock_release(s);
	else
		(void)vfd_disown(v);
}

static void disown_set(struct vfd *v)
{
	(void)vfd_disown(v);
}

void handover_leave(void)
{
	/* Listeners first: a stack that goes takes with it what waits for accept(). */
	each(is_socket, give);
	stacks_leave();
	each(is_socket, disown_socket);
	/* What is in them stands in the kernel's sets by now as the program has said it. */
	each(is_set, disown_set);
}
