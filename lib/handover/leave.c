/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The library leaves a process that goes on: the kernel gets all that it has, and from then on each
 * call of the program's is libc's own.
 */
#include <sys/socket.h>

#include "handover/internal.h"
#include "handover/listener.h"
#include "runtime/runtime.h"
#include "socket/udp/sock.h"
#include "stack/stack.h"

/* For handshakes the process waits so long: as at its end. */
#define LAST_US 1000000u
#define LOOK_NS 1000000
/* A kernel socket takes so much of what its object has queued. */
#define QUEUE_BYTES (64 << 20)

static void each_socket(void (*fn)(struct vfd *v))
{
	for (int fd = 0; fd < vfd_limit(); fd++) {
		struct vfd *v = vfd_get(fd);

		if (v && (v->kind == VFD_TCP || v->kind == VFD_UDP))
			fn(v);
	}
}

/* What waits here would be dropped where the kernel's queue is full. */
static void give_datagrams(struct vfd *v)
{
	int fd = atomic_load_explicit(&v->os_fd, memory_order_relaxed), had = 0, most = QUEUE_BYTES;
	struct caps_sets before = caps_raise(CAPS_BIT(CAP_NET_ADMIN));
	socklen_t len = sizeof(had);
	bool grown = !libc.getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &had, &len) &&
		     !libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &most, sizeof(most));

	vfd_give(v, STATS_WHY(RING_GONE));
	had /= 2; /* socket(7): it is told doubled */
	if (grown)
		(void)libc.setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &had, sizeof(had));
	caps_lower(&before);
}

static void give(struct vfd *v)
{
	if (v->kind == VFD_UDP)
		give_datagrams(v);
	else
		vfd_give(v, STATS_WHY(RING_GONE));
}

static void leave_it(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s);

	s->unconn.no_offload = true;
	tcp_sock_unlock(s, cancel);
}

/* Not of one that goes on without a number: listener_last_look() gives those. */
static bool has_clients(struct tcp_sock *s)
{
	return tcp_sock_mode(s) == TCP_SOCK_LISTEN && s->v.nfds && tcp_sock_clients(s);
}

/* A handshake that is under way may end meanwhile, and then the kernel takes its connection. */
static void give_late(struct tcp_sock *s, void *arg)
{
	bool *more = arg;
	int err;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN && !s->unconn.no_offload) {
		err = tcp_sock_to_kernel_now(s, STATS_WHY(RING_GONE));
		if (err == -EOPNOTSUPP)
			*more = true;
		else if (err)
			leave_it(s); /* it will not be taken the next time either */
	} else if (has_clients(s)) {
		listener_give_late(s);
		*more = *more || tcp_sock_clients(s);
	}
}

/* Those that cannot enter the kernel's queue: accept() finds them all the same. */
static void keep_clients(struct tcp_sock *s, void *arg)
{
	(void)arg;
	if (has_clients(s))
		(void)listener_give_queued(s, NULL);
}

static void give_what_is_left(void)
{
	uint64_t end = tcp_sock_now_us() + LAST_US;
	bool more = true;

	while (more && tcp_sock_now_us() < end) {
		stacks_each(handover_poll, NULL);
		more = listener_last_look();
		tcp_sock_each(give_late, &more);
		if (more)
			clock_sleep_ns(LOOK_NS);
	}
	/* Nobody has answered. */
	tcp_sock_syns_to_kernel();
	tcp_sock_each(give_late, &more);
	tcp_sock_each(keep_clients, NULL);
}

/* Something of it is told by the object alone. */
static bool is_still_asked(struct tcp_sock *s)
{
	int cancel = tcp_sock_lock(s);
	bool yes = tcp_sock_mode(s) == TCP_SOCK_CONN || s->unconn.given ||
		   atomic_load(&s->zc_told) != atomic_load(&s->zc_next) ||
		   atomic_load_explicit(&s->pending_error, memory_order_relaxed);

	s->unconn.no_offload = true;
	/* Nobody watches the kernel's queue for it any more: accept() asks. */
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		__atomic_store_n(&s->worker_fd, -1, __ATOMIC_RELAXED);
	tcp_sock_unlock(s, cancel);
	return yes;
}

/* What a call holds stays, as that call goes on by it: it is the kernel's, too. */
static void disown(struct vfd *v)
{
	struct tcp_sock *s = v->ops == &tcp_sock_ops ? tcp_sock_of(v) : NULL;

	if ((s && is_still_asked(s)) || atomic_load(&v->calls))
		return;
	if (s && tcp_sock_mode(s) == TCP_SOCK_KERNEL)
		tcp_sock_release(s);
	else
		(void)vfd_disown(v);
}

void handover_leave(void)
{
	/* Before the stacks, which take with them what waits for accept(). */
	each_socket(give);
	give_what_is_left();
	stacks_leave();
	tcp_sock_claims_end();
	each_socket(disown);
}
