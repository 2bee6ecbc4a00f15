/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the engine was given: time, memory, events; and who drives it: whoever polls the stack, else the internal thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>

#include "net/net.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/worker.h"
#include "socket/tcp_int.h"

/* Empty polls between two looks at the clock. */
#define POLLS_PER_CLOCK 32u

/* VMA_TCP_CTL_THREAD */
enum { CTL_OFF, CTL_WAKEUP, CTL_BY_TIMER };

static void watch_ring(struct stack *st);

static int timer_fd = -1;
/* When timer_fd goes off, us; WHEEL_NEVER-like UINT64_MAX: not armed. */
static _Atomic uint64_t timer_armed = UINT64_MAX;

uint64_t tsock_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint32_t tsock_epoll_bits(uint32_t ev)
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

/* st->lock is held. The number goes first: a child that is forked here closes what it finds (tcp_life.c). */
static void release_held(struct tsock *s)
{
	int fd = s->held_fd;

	s->held_fd = -1;
	if (fd >= 0)
		libc.close(fd);
}

void tsock_conn_over(struct tsock *s)
{
	struct stack *st = atomic_load_explicit(&s->st, memory_order_relaxed);
	struct vma_flow_key key;

	s->c = NULL;
	tsock_kmod_del(s);
	if (s->engine)
		stack_users(st, -1);
	s->engine = false;
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	if (s->own_rule && atomic_load_explicit(&st->open, memory_order_relaxed)) {
		tsock_key(&s->tuple, true, &key);
		st->ring->ops->flow_del(st->ring, &key);
	}
	s->own_rule = false;
	if (s->wide)
		tsock_block_put(s, st);
	if (st->tcp)
		tsock_way_drop(st->tcp, s);
	release_held(s);
	if (s->kept)
		vfd_unkeep(s->kept_fd, s->kept);
	s->kept = NULL;
	if (s->closed && !s->in_close)
		tsock_free(s);
}

static void env_event(void *ctx, void *user, uint32_t ev)
{
	struct tsock_user *u = user;
	struct tsock *s;
	uint32_t bits;

	(void)ctx;
	if (!u)
		return;
	if (u->kind == TSOCK_USER_QUEUED) {
		if (ev & TCP_EV_GONE)
			tsock_kmod_unqueue((struct tsock_queued *)u);
		return;
	}
	s = u->kind == TSOCK_USER_LISTENER ? ((struct tsock_att *)u)->s : tsock_of_user(u);
	if (ev & TCP_EV_GONE) {
		tsock_conn_over(s);
		return;
	}
	if (ev & TCP_EV_TIME_WAIT) {
		/* Nothing of ours is sent from the port any more but answers: the kernel may give it to others. */
		s->c = NULL;
		tsock_kmod_del(s);
		release_held(s);
		return;
	}
	if (s->closed)
		return;
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	bits = tsock_epoll_bits(ev);
	atomic_fetch_or_explicit(&s->hint, bits, memory_order_release);
	if (u->kind == TSOCK_USER_CONN && s->c)
		tsock_show_state(s, tcp_conn_state(s->c));
	vfd_notify(&s->v, bits);
}

static void *env_alloc(void *ctx, size_t size)
{
	(void)ctx;
	return calloc(1, size);
}

static void *env_alloc_raw(void *ctx, size_t size)
{
	(void)ctx;
	return malloc(size);
}

static void env_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	free(p);
}

static void config(struct tcp_cfg *cfg)
{
	tcp_cfg_default(cfg);
	if (getrandom(cfg->secret, sizeof(cfg->secret), 0) != sizeof(cfg->secret))
		log_warn("tcp: getrandom: %s: sequence numbers can be guessed", strerror(errno));
	cfg->max_syn_rate = (uint32_t)params.tcp_max_syn_rate;
}

struct tsock_stack *tsock_stack_get(struct stack *st)
{
	struct tcp_env env = {
		.ctx = st,
		.output = tsock_output,
		.output_dummy = tsock_output_dummy,
		.event = env_event,
		.queued = tsock_kmod_queued,
		.alloc = env_alloc,
		.alloc_raw = env_alloc_raw,
		.free = env_free,
		.path = tsock_env_path,
	};
	struct tsock_stack *t = st->tcp;
	struct tcp_cfg cfg;

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	config(&cfg);
	t->ts = tcp_stack_new(&env, &cfg, tsock_now());
	if (!t->ts) {
		free(t);
		return NULL;
	}
	t->st = st;
	t->next_timer = UINT64_MAX;
	t->held_tail = &t->held;
	st->tcp = t;
	if (params.tcp_ctl_thread == CTL_WAKEUP)
		watch_ring(st);
	return t;
}

void tsock_kick(struct tsock_stack *t)
{
	if (!t->posted)
		return;
	t->posted = false;
	ring_kick(t->st->ring);
}

void tsock_unlock_stack(struct stack *st, uint64_t now)
{
	struct tsock_stack *t = st->tcp;
	struct ring *ring = st->ring;
	bool posted = false;

	if (t) {
		tcp_flush(t->ts, now);
		t->next_timer = tcp_next_timer(t->ts);
		posted = t->posted;
		t->posted = false;
	}
	lock_drop(&st->lock);
	/* A ring outlives its stack's end by seconds. */
	if (posted)
		ring_kick(ring);
}

void tsock_input(struct stack *st, struct buf *b, uint64_t *now)
{
	struct tsock_stack *t = st->tcp;

	if (__builtin_expect(!t, 0)) {
		stats_add(&st->stats->drop_no_socket, 1);
		buf_free(b);
		return;
	}
	if (!*now)
		*now = tsock_now();
	tcp_input(t->ts, b, *now);
}

/* Timers that are due, and what waits for the device or a neighbour. st->lock is held. */
static void run_due(struct tsock_stack *t, uint64_t now)
{
	t->skipped = 0;
	if (t->blocked) {
		t->blocked = false;
		ring_kick(t->st->ring);
		tcp_tx_ready(t->ts, now);
	}
	if (t->held)
		tsock_held_look(t, now);
	if (now >= t->next_timer)
		tcp_run_timers(t->ts, now);
}

void tsock_polled(struct stack *st, unsigned n, uint64_t now)
{
	struct tsock_stack *t = st->tcp;

	(void)n;
	if (!t)
		return;
	if (!now) {
		if (++t->skipped < POLLS_PER_CLOCK && !t->blocked)
			return;
		now = tsock_now();
	} else {
		tcp_flush(t->ts, now);
		t->next_timer = tcp_next_timer(t->ts);
	}
	if (now >= t->next_timer || t->blocked || t->held)
		run_due(t, now);
	t->skipped = 0;
	t->next_timer = tcp_next_timer(t->ts);
	tsock_kick(t);
}

bool tsock_blocked(const struct stack *st)
{
	return st->tcp && st->tcp->blocked;
}

/* --- the internal thread */

static void earliest(struct stack *st, void *arg)
{
	uint64_t *next = arg;

	if (st->tcp && st->tcp->next_timer < *next)
		*next = st->tcp->next_timer;
	/* A neighbour that does not answer is given up in time. */
	if (st->tcp && st->tcp->held) {
		uint64_t soon = tsock_now() + 500000;

		if (soon < *next)
			*next = soon;
	}
}

static void arm(uint64_t when)
{
	struct itimerspec its = { 0 };

	its.it_value.tv_sec = (time_t)(when / 1000000u);
	its.it_value.tv_nsec = (long)(when % 1000000u * 1000u);
	if (!when)
		its.it_value.tv_nsec = 1;
	if (timer_fd >= 0 && timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &its, NULL))
		log_error("tcp: timerfd_settime: %s", strerror(errno));
}

void tsock_sleep_hint(void)
{
	uint64_t next = UINT64_MAX, armed = atomic_load_explicit(&timer_armed, memory_order_acquire);

	stacks_each(earliest, &next);
	/* Who loses the race arms it for later than it is armed already, at worst once too often. */
	while (next < armed) {
		if (atomic_compare_exchange_weak(&timer_armed, &armed, next)) {
			arm(next);
			return;
		}
	}
}

static void run_stack(struct stack *st, void *arg)
{
	struct tsock_stack *t = st->tcp;
	uint64_t now = *(const uint64_t *)arg;

	if (!t)
		return;
	run_due(t, now);
	t->next_timer = tcp_next_timer(t->ts);
	tsock_kick(t);
}

static void run_all(void)
{
	uint64_t now = tsock_now();

	stacks_each(run_stack, &now);
}

static void timer_due(int fd, uint32_t events, void *arg)
{
	uint64_t ticks;

	(void)events;
	(void)arg;
	(void)!libc.read(fd, &ticks, sizeof(ticks));
	atomic_store_explicit(&timer_armed, UINT64_MAX, memory_order_release);
	run_all();
	tsock_sleep_hint();
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
}

/* VMA_TCP_CTL_THREAD=1: a packet has come; whoever polls has the lock, or has it taken in already. */
static void ring_readable(int fd, uint32_t events, void *arg)
{
	struct stack *st = arg;

	(void)fd;
	(void)events;
	if (!lock_try(&st->lock))
		return;
	if (atomic_load_explicit(&st->open, memory_order_relaxed))
		stack_poll(st, (unsigned)params.cq_poll_batch_max);
	lock_drop(&st->lock);
}

/* The ring's fds outlive their stack's end by seconds; epoll forgets them when they are closed. */
static void watch_ring(struct stack *st)
{
	int fds[STACKS_WAIT_FDS_MAX];
	unsigned n = st->ring->ops->wait_fds(st->ring, fds, STACKS_WAIT_FDS_MAX);
	int err = 0;

	for (unsigned i = 0; i < n && !err; i++)
		err = worker_fd_add(fds[i], EPOLLIN | EPOLLET, ring_readable, st);
	if (err)
		log_warn("VMA_TCP_CTL_THREAD=1: the internal thread cannot watch %s: %s", st->ring->ifname, strerror(-err));
}

static void listen_tick(struct tsock *s, void *arg)
{
	(void)arg;
	tsock_listen_tick(s);
}

static void rest(struct stack *st, void *arg)
{
	(void)arg;
	if (!st->tcp)
		return;
	tsock_ways_rest(st->tcp);
	tsock_asides_look(st->tcp);
}

static void second(void *arg)
{
	(void)arg;
	stacks_each(rest, NULL);
	tsock_each(listen_tick, NULL);
	tsock_blocks_tick();
	tsock_claims_look();
}

void tsock_neighbours_changed(void)
{
	run_all();
}

int tsock_timers_start(void)
{
	int err;

	timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer_fd < 0)
		return -errno;
	err = worker_fd_add(timer_fd, EPOLLIN, timer_due, NULL);
	if (!err)
		err = worker_timer_add((unsigned)params.tcp_timer_resolution_msec, tick, NULL);
	if (err >= 0)
		err = worker_timer_add(1000, second, NULL);
	return err < 0 ? err : 0;
}

void tsock_timers_forked(void)
{
	if (timer_fd >= 0)
		libc.close(timer_fd);
	timer_fd = -1;
	atomic_store(&timer_armed, UINT64_MAX);
}
