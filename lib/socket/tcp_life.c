/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP in the life of the process: start, fork(), an interface that vanishes. The end is in tcp_exit.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "socket/tcp_int.h"

static int (*begin_fn)(void);
static _Atomic bool running;

int tsock_begin(void)
{
	return begin_fn ? begin_fn() : -EOPNOTSUPP;
}

int tsock_start(int (*begin)(void))
{
	int err;

	begin_fn = begin;
	tsock_sysctl_read();
	tsock_ports_read();
	tsock_icmp_start();
	err = tsock_timers_start();
	if (!err)
		err = tsock_kmod_start();
	if (!err)
		err = tsock_exit_start();
	running = !err;
	return err;
}

bool tsock_running(void)
{
	return running;
}

/* --- the network changes */

static void follow(struct tsock *s, void *arg)
{
	struct stack *st;

	(void)arg;
	if (tsock_mode(s) == TSOCK_LISTEN) {
		lock_take(&s->lock);
		tsock_relisten(s);
		lock_drop(&s->lock);
	} else if ((st = tsock_conn_lock(s))) {
		uint64_t now = tsock_now();
		uint32_t mtu, gso;

		tsock_env_path(st, &s->tuple, &mtu, &gso);
		tcp_mtu(s->c, mtu, now);
		tsock_unlock_stack(st, now);
	}
}

void tsock_addresses_changed(void)
{
	tsock_each(follow, NULL);
}

/* The buffers are the ring's memory, which goes away: the connection is over, without a word to anybody. */
static void vanish(struct tsock *s, void *arg)
{
	struct stack *st = arg;
	struct tsock_att *att;

	if (tsock_mode(s) == TSOCK_LISTEN) {
		lock_take(&s->lock);
		for (att = s->spare.atts; att; att = att->next) {
			if (att->st == st)
				att->l = NULL;
		}
		lock_drop(&s->lock);
		return;
	}
	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st)
		return;
	lock_take(&st->lock);
	/* As of a connection that the administrator ends (ss -K). */
	if (s->c && !s->closed) {
		tsock_opts_keep(s);
		if (tcp_conn_state(s->c) != TCPS_CLOSED)
			atomic_store_explicit(&s->left_err, ECONNABORTED, memory_order_relaxed);
	}
	atomic_fetch_or_explicit(&s->hint, EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT, memory_order_release);
	if (!s->closed)
		vfd_notify(&s->v, EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT);
	if (s->engine)
		tsock_conn_over(s);
	lock_drop(&st->lock);
}

void tsock_stack_gone(struct stack *st)
{
	struct tsock_stack *t;

	tsock_each(vanish, st);
	lock_take(&st->lock);
	tsock_blocks_gone(st);
	t = st->tcp;
	if (t)
		tsock_ways_free(t);
	st->tcp = NULL;
	if (t) {
		tsock_held_free(t);
		tsock_loose_free(t);
		while (t->queued)
			tsock_kmod_unqueue(t->queued);
		tcp_stack_free(t->ts);
		free(t->cache);
		free(t);
	}
	lock_drop(&st->lock);
}

/* --- fork() */

/* What a child of fork() has of a parent's socket: a listener, or a socket that is nothing yet. */
static void inherit(struct tsock *parents, void *arg)
{
	int fd = atomic_load_explicit(&parents->v.os_fd, memory_order_relaxed);
	struct tsock *s;

	(void)arg;

	/* Ours is a copy, which would keep the port when the parent gives it back. */
	if (parents->held_fd >= 0)
		libc.close(parents->held_fd);
	if (parents->closed || tsock_mode(parents) == TSOCK_CONN)
		return;
	s = tsock_new(fd, parents->domain);
	if (!s)
		return;
	s->bound = parents->bound;
	s->port_bound = parents->port_bound;
	s->stale = parents->stale;
	s->nonblock = parents->nonblock;
	s->flagged = parents->flagged;
	s->rcvlowat = parents->rcvlowat;
	s->linger_s = parents->linger_s;
	s->rcvtimeo_ns = parents->rcvtimeo_ns;
	s->sndtimeo_ns = parents->sndtimeo_ns;
	s->zerocopy = parents->zerocopy;
	s->mark = parents->mark;
	s->bound_if = parents->bound_if;
	s->spare.backlog = parents->spare.backlog;
	s->spare.no_offload = parents->spare.no_offload;
	s->spare.parents = parents->spare.attached || parents->spare.parents;
	s->spare.touched = parents->spare.touched;
	atomic_store_explicit(&s->mode, tsock_mode(parents), memory_order_relaxed);
	if (vfd_install(fd, &s->v)) {
		tsock_stats_end(s);
		tsock_free(s);
		return;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
}

void tsock_forked(void)
{
	running = false;
	tsock_exit_off();
	tsock_claims_forked();
	tsock_timers_forked();
	tsock_ports_forked();
	tsock_blocks_forked();
	tsock_kmod_forked();
	tsock_icmp_forked();
	tsock_atts_forked();
	tsock_list_forked(inherit);
}
