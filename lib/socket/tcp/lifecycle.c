/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP in the life of the process: start, fork(), an interface that vanishes. The end is in
 * handover/exit.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

static int (*begin_fn)(void);

int tcp_sock_begin(void)
{
	return begin_fn ? begin_fn() : -EOPNOTSUPP;
}

/* --- the network changes */

static void listen_anew(struct tcp_sock *s, void *arg)
{
	(void)arg;
	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN)
		return;
	lock_take(&s->lock);
	tcp_sock_relisten(s);
	lock_drop(&s->lock);
}

static void addresses_changed(void)
{
	tcp_sock_each(listen_anew, NULL);
}

static void look_at_path(struct tcp_sock *s, void *arg)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_LISTEN ? NULL : tcp_sock_conn_lock(s);
	uint32_t mtu, gso;
	uint64_t now;

	(void)arg;
	if (!st)
		return;
	now = tcp_sock_now_us();
	tcp_sock_env_path(st, &s->tuple, &mtu, &gso);
	tcp_mtu(s->c, mtu, now);
	tcp_sock_unlock_stack(st, now);
}

static void paths_changed(void)
{
	tcp_sock_each(look_at_path, NULL);
}

/*
 * The buffers are the ring's memory, which goes away: the connection is over, without a word to
 * anybody.
 */
static void vanish(struct tcp_sock *s, void *arg)
{
	struct stack *st = arg;

	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN) {
		tcp_sock_listener_gone(s, st);
		return;
	}
	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st)
		return;
	lock_take(&st->lock);
	/* It may have been closed or disconnected meanwhile, and be in another stack. */
	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st) {
		lock_drop(&st->lock);
		return;
	}
	/* As of a connection that the administrator ends (ss -K). */
	if (s->c && !s->closed) {
		tcp_sock_opts_keep(s);
		if (tcp_conn_state(s->c) != TCPS_CLOSED)
			atomic_store_explicit(&s->pending_error, ECONNABORTED,
					      memory_order_relaxed);
	}
	/* First: who is woken must not find what was true before. */
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	atomic_fetch_or_explicit(&s->hint, EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT,
				 memory_order_release);
	if (!s->closed)
		vfd_notify(&s->v, EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT);
	if (s->in_engine)
		tcp_sock_conn_over(s);
	lock_drop(&st->lock);
}

static void stack_gone(struct stack *st)
{
	struct tcp_sock_stack *t;

	tcp_sock_each(vanish, st);
	lock_take(&st->lock);
	tcp_sock_blocks_gone(st);
	t = st->tcp;
	if (t)
		tcp_sock_paths_free(t);
	st->tcp = NULL;
	if (t) {
		tcp_sock_awaiting_free(t);
		while (t->queued)
			tcp_sock_kmod_unqueue(t->queued);
		tcp_stack_free(t->ts);
		free(t->cache);
		tcp_sock_pieces_free(t);
		free(t);
	}
	lock_drop(&st->lock);
}

/* --- start */

static const struct stack_user_ops user_ops = {
	.input = tcp_sock_input,
	.gone = stack_gone,
	.cut_off = tcp_sock_handover_cut_off,
	.strays = tcp_sock_handover_strays,
	.addresses_changed = addresses_changed,
	.show = tcp_sock_show,
};
static const struct stack_timed_ops timed_ops = {
	.first_ring = tcp_sock_tick_start,
	.polled = tcp_sock_polled,
	.say = tcp_sock_say,
	.is_blocked = tcp_sock_blocked,
	.rests = tcp_sock_rests,
	.may_rest = tcp_sock_handover_rests,
	.sleep_hint = tcp_sock_sleep_hint,
	.paths_changed = paths_changed,
	.neighbours_changed = tcp_sock_neighbours_changed,
	.figures = tcp_sock_figures_look,
	.retransmits = tcp_sock_retransmits,
	.ring_came = tcp_sock_ring_came,
};

int tcp_sock_start(int (*begin)(void))
{
	int err;

	begin_fn = begin;
	stack_register_tcp(&user_ops, &timed_ops);
	tcp_sock_sysctl_read();
	tcp_sock_ports_read();
	tcp_sock_secret_read();
	tcp_sock_icmp_start();
	err = tcp_sock_timers_start();
	if (!err)
		err = tcp_sock_kmod_start();
	return err;
}

/* --- fork() */

/* What a child of fork() has of a parent's socket: a listener, or a socket that is nothing yet. */
static void inherit(struct tcp_sock *parents, void *arg)
{
	int fd = atomic_load_explicit(&parents->v.os_fd, memory_order_relaxed);
	struct tcp_sock *s;

	(void)arg;

	/* Ours is a copy, which would keep the port when the parent gives it back. */
	if (parents->port_fd >= 0)
		own_fd_close(parents->port_fd);
	/* Without a number it is being closed, and what it had may be another's already. */
	if (!parents->v.nfds)
		return;
	if (parents->closed || parents->v.parked || tcp_sock_mode(parents) == TCP_SOCK_CONN)
		return;
	s = tcp_sock_new(fd, parents->domain);
	if (!s)
		return;
	s->bound = parents->bound;
	s->port_bound = parents->port_bound;
	s->stale = parents->stale;
	s->nonblock = parents->nonblock;
	s->has_status_flags = parents->has_status_flags;
	s->rcvlowat = parents->rcvlowat;
	s->linger_s = parents->linger_s;
	s->rcvtimeo_ns = parents->rcvtimeo_ns;
	s->sndtimeo_ns = parents->sndtimeo_ns;
	s->zerocopy = parents->zerocopy;
	s->tells = parents->tells & (uint8_t)~TCP_SOCK_SHOWS;
	s->mark = parents->mark;
	s->bound_if = parents->bound_if;
	s->unconn.backlog = parents->unconn.backlog;
	s->unconn.no_offload = parents->unconn.no_offload;
	s->unconn.inherited = true;
	s->unconn.waited_by_parent = parents->unconn.attached || parents->unconn.waited_by_parent;
	if (parents->unconn.atts || parents->unconn.waited_by_parent ||
	    (tcp_sock_mode(parents) == TCP_SOCK_LISTEN && !parents->unconn.attached))
		tcp_sock_given_inherit(s, parents);
	s->unconn.touched = parents->unconn.touched;
	atomic_store_explicit(&s->mode, tcp_sock_mode(parents), memory_order_relaxed);
	if (vfd_install(fd, &s->v)) {
		tcp_sock_stats_end(s);
		tcp_sock_free(s);
		return;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
}

void tcp_sock_forked(void)
{
	tcp_sock_figures_forked();
	tcp_sock_timers_forked();
	tcp_sock_ports_forked();
	tcp_sock_port_holds_forked();
	tcp_sock_port_keeps_forked();
	tcp_sock_blocks_forked();
	tcp_sock_kmod_forked();
	tcp_sock_icmp_forked();
	tcp_sock_atts_forked();
	tcp_sock_fast_open_forked();
	tcp_sock_shows_forked();
	tcp_sock_completion_forked();
	tcp_sock_ring_attrs_forked();
	tcp_sock_list_forked(inherit);
}
