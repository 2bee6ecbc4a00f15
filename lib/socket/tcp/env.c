/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the engine was given: time, memory, events; and who drives it: whoever polls the stack, else
 * the internal thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/tcp/internal.h"

/* Empty polls between two looks at the clock. */
#define POLLS_PER_CLOCK 32u

/* VMA_TCP_CTL_THREAD */
enum { CTL_OFF, CTL_WAKEUP, CTL_BY_TIMER };

static int timer_fd = -1;
/* When timer_fd goes off, us; WHEEL_NEVER-like UINT64_MAX: not armed. */
static _Atomic uint64_t timer_armed = UINT64_MAX;

uint64_t tcp_sock_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint32_t tcp_sock_epoll_bits(uint32_t ev)
{
	uint32_t bits = 0;

	if (ev & TCP_EV_IN)
		bits |= EPOLLIN | EPOLLRDNORM;
	if (ev & (TCP_EV_OUT | TCP_EV_CONNECTED))
		bits |= EPOLLOUT | EPOLLWRNORM;
	if (ev & TCP_EV_ERR)
		bits |= EPOLLERR;
	if (ev & TCP_EV_HUP)
		bits |= EPOLLHUP;
	if (ev & TCP_EV_PRI)
		bits |= EPOLLPRI;
	if (ev & TCP_EV_RDHUP)
		bits |= EPOLLRDHUP;
	return bits;
}

void tcp_sock_port_give_back(struct tcp_sock *s)
{
	int fd = s->port_fd;

	tcp_sock_port_unhold(s);
	/* First: a child that is forked here closes what it finds (lifecycle.c). */
	s->port_fd = -1;
	if (fd >= 0)
		own_fd_close(fd);
}

static void drop_own_rule(struct tcp_sock *s, struct stack *st)
{
	struct vma_flow_key key;

	if (s->has_own_rule && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		tcp_sock_key(&s->tuple, true, &key);
		st->ring->ops->flow_del(st->ring, &key);
	}
	s->has_own_rule = false;
}

void tcp_sock_conn_over(struct tcp_sock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);

	s->c = NULL;
	s->by_another = false;
	atomic_fetch_add_explicit(&s->conns, 1, memory_order_relaxed);
	tcp_sock_kmod_del(s);
	if (s->in_engine)
		stack_users(st, -1);
	tcp_sock_accepted_over(s);
	s->in_engine = false;
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	/* The next connection of that name has begun: the rule is that one's. */
	if (s->by_shared && st->tcp && tcp_tuple_used(st->tcp->ts, &s->tuple))
		s->has_own_rule = false;
	drop_own_rule(s, st);
	if (s->on_block)
		tcp_sock_block_put(s, st);
	if (st->tcp)
		tcp_sock_path_drop(st->tcp, s);
	tcp_sock_port_give_back(s);
	if (s->kept)
		vfd_unkeep(s->kept_fd, s->kept);
	s->kept = NULL;
	if (s->closed && !s->in_close)
		tcp_sock_free(s);
}

void tcp_sock_time_wait_rule(struct tcp_sock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct vma_flow_key key;

	if (!s->accepted || !s->has_own_rule)
		return;
	tcp_sock_key(&s->tuple, false, &key);
	/* Of those that share it one may be gone while hundreds of thousands are in TIME_WAIT. */
	if (s->by_shared || stack_flow_stands(st, &key))
		drop_own_rule(s, st);
}

/* For programs of the Extra API: the callback is due, or a completion. */
static __attribute__((noinline)) void tell_extra(struct tcp_sock *s, struct tcp_sock_user *u,
						 uint32_t bits)
{
	if (!(s->tells & TCP_SOCK_COMPLETIONS))
		tcp_sock_unshown(s);
	else if (u->kind == TCP_SOCK_USER_LISTENER)
		tcp_sock_completion_listener((struct tcp_sock_att *)u);
	else
		tcp_sock_completion_event(s, bits);
}

static void env_event(void *ctx, void *user, uint32_t ev)
{
	struct tcp_sock_user *u = user;
	struct tcp_sock *s;
	uint32_t bits;

	(void)ctx;
	if (!u)
		return;
	if (u->kind == TCP_SOCK_USER_QUEUED) {
		if (ev & TCP_EV_GONE)
			tcp_sock_kmod_unqueue((struct tcp_sock_queued *)u);
		return;
	}
	s = u->kind == TCP_SOCK_USER_LISTENER ? ((struct tcp_sock_att *)u)->s : tcp_sock_of_user(u);
	if (ev & TCP_EV_GONE) {
		tcp_sock_conn_over(s);
		return;
	}
	if (ev & TCP_EV_TIME_WAIT) {
		s->c = NULL;
		tcp_sock_time_wait_rule(s);
		tcp_sock_kmod_del(s);
		if (s->port_fd >= 0 && !tcp_sock_port_hold(s))
			tcp_sock_port_give_back(s);
		return;
	}
	/* Reset: the port is free before the user closes, as in the kernel. */
	if (u->kind == TCP_SOCK_USER_CONN && s->c && tcp_is_over(s->c))
		tcp_sock_accepted_over(s);
	if (s->closed)
		return;
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	bits = tcp_sock_epoll_bits(ev);
	atomic_fetch_or_explicit(&s->hint, bits, memory_order_release);
	if (__builtin_expect(s->tells & TCP_SOCK_TELLS_EXTRA, 0))
		tell_extra(s, u, bits);
	if (u->kind == TCP_SOCK_USER_CONN && s->c)
		tcp_sock_show_state(s, tcp_conn_state(s->c));
	vfd_notify(&s->v, bits);
}

/* The port of a client whose user has closed: nothing holds it any more, and the kernel gives it
 * away. */
static bool env_may_be_others(void *ctx, void *user)
{
	const struct tcp_sock_user *u = user;
	const struct tcp_sock *s;

	(void)ctx;
	if (u->kind != TCP_SOCK_USER_CONN)
		return false;
	s = tcp_sock_of_user(user);
	return s->closed && !s->accepted && !s->on_block && s->port_fd < 0;
}

static int env_begins(void *ctx, void *listener, const struct tcp_tuple *tuple)
{
	struct tcp_sock_att *att = listener;
	int err;

	if (!tcp_sock_att_is_shared(att))
		return 0;
	err = tcp_sock_unaccepted_rule(ctx, tuple);
	att->has_no_room = att->has_no_room || err == -ENOSPC;
	return err ? err : 1;
}

static void env_queued(void *ctx, void *listener, struct tcp_conn *c)
{
	struct stack *st = ctx;

	tcp_sock_kmod_queued(st, listener, c);
	if (((struct tcp_sock_att *)listener)->is_joint)
		tcp_sock_handover_client();
}

static void config(const struct stack *st, struct tcp_cfg *cfg)
{
	struct net_link link;
	bool loopback = !net_link_get(st->ifindex, &link) && link.kind == NET_LINK_LOOPBACK;

	tcp_sock_cfg(cfg);
	tcp_sock_secret(cfg->secret);
	cfg->tw_reuse_us = tcp_sock_tw_reuse_us(loopback);
	cfg->max_syn_rate = (uint32_t)params.tcp_max_syn_rate;
}

struct tcp_sock_stack *tcp_sock_stack_get(struct stack *st)
{
	struct tcp_env env = {
		.ctx = st,
		.output = tcp_sock_output,
		.output_dummy = tcp_sock_output_dummy,
		.event = env_event,
		.begins = env_begins,
		.ended = tcp_sock_env_ended,
		.queued = env_queued,
		.alloc = tcp_sock_mem_alloc,
		.alloc_raw = tcp_sock_mem_raw,
		.free = tcp_sock_mem_free,
		.path = tcp_sock_env_path,
		.route = tcp_sock_env_route,
		.is_others = tcp_sock_env_kernels,
		.may_be_others = env_may_be_others,
		.fast_open = tcp_sock_fast_open_news,
	};
	struct tcp_sock_stack *t = st->tcp;
	struct tcp_cfg cfg;

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	config(st, &cfg);
	t->ts = tcp_stack_new(&env, &cfg, tcp_sock_now_us());
	if (!t->ts) {
		free(t);
		return NULL;
	}
	t->st = st;
	t->next_timer_us = UINT64_MAX;
	t->awaiting_tail = &t->awaiting;
	st->tcp = t;
	tcp_sock_ring_watch(st);
	return t;
}

/* Frames wait for a kick, which is the caller's from now on. */
static bool take_posted(struct tcp_sock_stack *t)
{
	bool posted = t->posted;

	t->posted = false;
	return posted;
}

void tcp_sock_kick(struct tcp_sock_stack *t)
{
	if (take_posted(t))
		ring_kick(t->st->ring);
}

/* Says all that is to be said, and gives the lock back. True: frames wait for a kick. */
static bool say_and_unlock(struct stack *st, uint64_t now)
{
	struct tcp_sock_stack *t = st->tcp;
	bool posted = false;

	if (t) {
		tcp_flush(t->ts, now);
		if (__builtin_expect(atomic_load_explicit(&st->has_unsaid, memory_order_relaxed),
				     0))
			atomic_store_explicit(&st->has_unsaid, false, memory_order_relaxed);
		t->next_timer_us = tcp_next_timer(t->ts);
		posted = take_posted(t);
		stacks_used();
	}
	lock_drop(&st->lock);
	return posted;
}

void tcp_sock_say(struct stack *st)
{
	struct tcp_sock_stack *t = st->tcp;

	if (!t)
		return;
	tcp_flush(t->ts, tcp_sock_now_us());
	t->next_timer_us = tcp_next_timer(t->ts);
	t->posted = false;
}

/*
 * What is to be said waits for the end of this thread's round, and is marked. True: there is
 * something.
 */
static bool hold(struct tcp_sock_stack *t, uint64_t now)
{
	bool waits = tcp_flush_later(t->ts, now);

	t->next_timer_us = tcp_next_timer(t->ts);
	if (waits) {
		atomic_store_explicit(&t->st->has_unsaid, true, memory_order_relaxed);
		stack_round_mark(t->st);
	}
	return waits;
}

/* The same. True: there is something, or frames have been posted. */
static bool hold_and_unlock(struct stack *st, uint64_t now)
{
	struct tcp_sock_stack *t = st->tcp;
	bool posted = false, waits = false;

	if (t) {
		waits = hold(t, now);
		posted = take_posted(t);
	}
	lock_drop(&st->lock);
	return posted || waits;
}

void tcp_sock_unlock_stack(struct stack *st, uint64_t now)
{
	struct ring *ring = st->ring;

	/* A ring outlives its stack's end by seconds. */
	if (say_and_unlock(st, now))
		ring_kick(ring);
}

void tcp_sock_unlock_stack_answered(struct stack *st, uint64_t now)
{
	struct ring *ring = st->ring;

	if (stack_round_holds(st) ? hold_and_unlock(st, now) : say_and_unlock(st, now))
		stack_round_sent(st, ring);
	else
		stack_round_look();
}

void tcp_sock_unlock_stack_in_round(struct stack *st, uint64_t now)
{
	if (!stack_round_holds(st))
		tcp_sock_unlock_stack_answered(st, now);
	else if (hold_and_unlock(st, now))
		stack_round_also(st);
	else
		stack_round_look();
}

void tcp_sock_input(struct stack *st, struct buf *b, uint64_t *now)
{
	struct tcp_sock_stack *t = st->tcp;

	if (__builtin_expect(!t, 0)) {
		stats_add(&st->stats->drop_no_socket, 1);
		buf_free(b);
		return;
	}
	if (!*now)
		*now = tcp_sock_now_us();
	tcp_input(t->ts, b, *now);
}

/* Timers that are due, and what waits for the device or a neighbour. st->lock is held. */
static void run_due(struct tcp_sock_stack *t, uint64_t now)
{
	t->skipped = 0;
	if (t->blocked) {
		t->blocked = false;
		ring_kick(t->st->ring);
		tcp_tx_ready(t->ts, now);
	}
	if (t->awaiting)
		tcp_sock_awaiting_check(t, now);
	if (now >= t->next_timer_us)
		tcp_run_timers(t->ts, now);
	if (t->posted || t->blocked || t->awaiting)
		stacks_used();
}

void tcp_sock_polled(struct stack *st, uint64_t now)
{
	struct tcp_sock_stack *t = st->tcp;

	if (!now) {
		if (++t->skipped < POLLS_PER_CLOCK && !t->blocked)
			return;
		now = tcp_sock_now_us();
	} else if (stack_round_holds(st)) {
		/*
		 * Not what other answers have left unsaid either: a packet that comes in between
		 * cuts no round in two.
		 */
		(void)hold(t, now);
		if (take_posted(t))
			stack_round_mark(st);
	} else {
		tcp_flush(t->ts, now);
		t->next_timer_us = tcp_next_timer(t->ts);
	}
	if (now >= t->next_timer_us || t->blocked || t->awaiting)
		run_due(t, now);
	t->skipped = 0;
	t->next_timer_us = tcp_next_timer(t->ts);
	tcp_sock_kick(t);
}

bool tcp_sock_blocked(const struct stack *st)
{
	return st->tcp && st->tcp->blocked;
}

bool tcp_sock_rests(struct stack *st)
{
	struct tcp_sock_stack *t = st->tcp;

	if (!t)
		return true;
	t->next_timer_us = tcp_next_timer(t->ts);
	return !t->blocked && !t->awaiting &&
	       !atomic_load_explicit(&st->has_unsaid, memory_order_relaxed);
}

/* --- the internal thread */

static void earliest(struct stack *st, void *arg)
{
	uint64_t *next = arg;

	if (st->tcp && st->tcp->next_timer_us < *next)
		*next = st->tcp->next_timer_us;
	/* A neighbour that does not answer is given up in time. */
	if (st->tcp && st->tcp->awaiting) {
		uint64_t soon = tcp_sock_now_us() + 500000;

		if (soon < *next)
			*next = soon;
	}
}

static void arm(uint64_t when)
{
	struct itimerspec its = {0};

	its.it_value.tv_sec = (time_t)(when / 1000000u);
	its.it_value.tv_nsec = (long)(when % 1000000u * 1000u);
	if (!when)
		its.it_value.tv_nsec = 1;
	if (timer_fd >= 0 && timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &its, NULL))
		log_error("tcp: timerfd_settime: %s", strerror(errno));
}

void tcp_sock_sleep_hint(void)
{
	uint64_t next = UINT64_MAX,
		 armed = atomic_load_explicit(&timer_armed, memory_order_acquire);

	stacks_each(earliest, &next);
	/*
	 * Who loses the race arms it for later than it is armed already, at worst once too often.
	 */
	while (next < armed) {
		if (atomic_compare_exchange_weak(&timer_armed, &armed, next)) {
			arm(next);
			return;
		}
	}
}

static void run_stack(struct stack *st, void *arg)
{
	struct tcp_sock_stack *t = st->tcp;
	uint64_t now = *(const uint64_t *)arg;

	if (!t)
		return;
	run_due(t, now);
	t->next_timer_us = tcp_next_timer(t->ts);
	tcp_sock_kick(t);
}

static void run_all(void)
{
	uint64_t now = tcp_sock_now_us();

	stacks_each(run_stack, &now);
}

static void timer_due(int fd, uint32_t events, void *arg)
{
	uint64_t ticks;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &ticks, sizeof(ticks));
	atomic_store_explicit(&timer_armed, UINT64_MAX, memory_order_release);
	run_all();
	tcp_sock_sleep_hint();
}

static void poll_stack(struct stack *st, void *arg)
{
	(void)arg;
	if (st->tcp)
		stack_poll(st, (unsigned)params.progress_engine_wce_max);
}

static void tick(void *arg)
{
	(void)arg;
	if (params.tcp_ctl_thread == CTL_BY_TIMER)
		stacks_each(poll_stack, NULL);
	run_all();
	tcp_sock_handover_tick();
}

void tcp_sock_ring_watch(struct stack *st)
{
	if (params.tcp_ctl_thread == CTL_WAKEUP && !params.internal_thread_arm_cq)
		stack_watch(st, "VMA_TCP_CTL_THREAD=1");
}

static void listen_tick(struct tcp_sock *s, void *arg)
{
	(void)arg;
	tcp_sock_listen_tick(s);
}

static void rest(struct stack *st, void *arg)
{
	(void)arg;
	if (!st->tcp)
		return;
	tcp_sock_paths_expire(st->tcp);
	tcp_sock_pieces_expire(st->tcp);
	tcp_sock_suspended_check(st->tcp);
}

_Atomic bool tcp_sock_some_by_another;

static void leave_by_another(struct tcp_sock *s, void *arg)
{
	struct stack *st = tcp_sock_mode(s) == TCP_SOCK_CONN ? tcp_sock_conn_lock(s) : NULL;
	bool leaves;

	(void)arg;
	if (!st)
		return;
	leaves = s->by_another;
	s->by_another = false;
	lock_drop(&st->lock);
	if (leaves)
		tcp_sock_handover_leave(s, STATS_WHY(OTHER_WAY));
}

static void second(void *arg)
{
	(void)arg;
	if (atomic_exchange_explicit(&tcp_sock_some_by_another, false, memory_order_relaxed))
		tcp_sock_each(leave_by_another, NULL);
	stacks_each(rest, NULL);
	tcp_sock_each(listen_tick, NULL);
	tcp_sock_blocks_tick();
	tcp_sock_handover_second();
}

void tcp_sock_neighbours_changed(void)
{
	run_all();
}

int tcp_sock_timers_start(void)
{
	int err;

	timer_fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (timer_fd < 0)
		return -errno;
	err = worker_fd_add(timer_fd, EPOLLIN, timer_due, NULL);
	if (!err)
		err = worker_timer_add(1000, second, NULL);
	return err < 0 ? err : 0;
}

int tcp_sock_tick_start(void)
{
	return stack_tick_add((unsigned)params.tcp_timer_resolution_msec, tick, NULL);
}

void tcp_sock_timers_forked(void)
{
	if (timer_fd >= 0)
		own_fd_close(timer_fd);
	timer_fd = -1;
	atomic_store(&timer_armed, UINT64_MAX);
}
