/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a blocking call on a TCP socket waits for; wait/call.c has how. */
#include <errno.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "socket/tcp/internal.h"

void tcp_sock_wait_init(struct tcp_sock *s, struct tcp_sock_wait *w, uint32_t want,
			uint64_t timeout_ns)
{
	wait_call_init(&w->call, &s->gen, timeout_ns, params.rx_poll, &s->spin);
	w->want = want;
	w->behind = 0;
}

/* For a call that has peeked at what is there. */
static bool more_is_there(struct tcp_sock *s, const struct tcp_sock_wait *w)
{
	struct stack *st = tcp_sock_conn_lock(s);
	bool yes;

	if (!st)
		return true;
	yes = tcp_inq(s->c) > w->behind || tcp_at_mark(s->c) || tcp_is_held_back(s->c) ||
	      (tcp_ready(s->c) & (TCP_EV_RDHUP | TCP_EV_HUP | TCP_EV_ERR));
	lock_drop(&st->lock);
	return yes;
}

static bool has_come(struct tcp_sock *s, const struct tcp_sock_wait *w)
{
	uint32_t come = atomic_load_explicit(&s->hint, memory_order_acquire);

	if (__builtin_expect(w->behind, 0))
		return more_is_there(s, w);
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		come |= atomic_load_explicit(&s->v.os_events, memory_order_relaxed);
	return come & w->want;
}

struct wait_look {
	struct tcp_sock *s;
	const struct tcp_sock_wait *w;
};

static bool look(void *arg)
{
	const struct wait_look *l = arg;

	return has_come(l->s, l->w);
}

static int sleep_once(struct tcp_sock *s, struct tcp_sock_wait *w)
{
	struct wait_look l = {.s = s, .w = w};
	/* Only a listener's kernel socket can have something of interest. */
	int fd = tcp_sock_mode(s) == TCP_SOCK_LISTEN
			 ? atomic_load_explicit(&s->v.os_fd, memory_order_acquire)
			 : -1;
	int err;

	if (tcp_sock_mode(s) == TCP_SOCK_CONN && w->want & EPOLLIN)
		return wait_call_sleep_alone(&w->call, &s->v, look, &l);
	err = wait_call_sleep(&w->call, &s->v, fd, look, &l);
	if (err > 0) {
		atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release);
		err = 0;
	}
	return err;
}

/* Polls the stack of a connection, or all of them, when a ring shows something. */
static void poll_once(struct tcp_sock *s, const struct tcp_sock_wait *w)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	const struct ring *ring;

	if (!st) {
		stacks_poll();
		return;
	}
	if (!atomic_load_explicit(&st->open, memory_order_acquire))
		return;
	/* A ring outlives its stack's end by seconds, so this look needs no lock. */
	ring = stack_ring(st);
	if (w->call.polls % WAIT_POLLS_PER_CLOCK && !ring_ops(ring)->pending(ring))
		return;
	if (!lock_try(&st->lock))
		return; /* whoever holds it polls */
	stack_poll_called(st);
	lock_drop(&st->lock);
}

static int wait_until_come(struct tcp_sock *s, struct tcp_sock_wait *w)
{
	for (;;) {
		int err;

		if (wait_call_closed(&w->call))
			return -EBADF;
		/* A hang-up stays in the hint; what is to be shown comes before it. */
		if (!stacks_show_due() && has_come(s, w))
			return 0;
		if (wait_call_interrupted(&w->call))
			return -EINTR;
		poll_once(s, w);
		if (!stacks_show())
			return -EINTR;
		if (has_come(s, w))
			return 0;
		err = wait_call_spun(&w->call);
		if (err > 0)
			err = sleep_once(s, w);
		if (err)
			return err;
	}
}

/* A wait to receive that slept has missed, whatever ended it. */
static void count(struct tcp_sock *s, const struct tcp_sock_wait *w, bool came)
{
	if (w->call.slept)
		stats_add(&s->stats->rx_poll_miss, 1);
	else
		stats_add(&s->stats->rx_poll_hit, came);
}

int tcp_sock_wait_more(struct tcp_sock *s, struct tcp_sock_wait *w)
{
	int err = wait_until_come(s, w);

	if (w->want & EPOLLIN)
		count(s, w, !err);
	wait_call_count(&w->call, !err, &s->stats->waits);
	wait_call_end(&w->call, !err);
	return err;
}
