/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The end of the process: the kernel gets the connections and ends them as it would its own,
 * however long their peers take. One that it does not take (no CAP_NET_ADMIN) is closed here, and
 * waited for while its peer acknowledges something.
 *
 * The internal thread does it: who ends the process may be a signal handler that has interrupted
 * malloc() or anything else.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "handover/internal.h"
#include "runtime/runtime.h"
#include "config/config.h"

/* Nothing has moved for so long: it is given up. */
#define STALL_US 2000000u
/* What a process that ends waits for its peers at most. */
#define FINISH_US 10000000u
#define LOOK_NS 10000000L
/* For an answer to a SYN|ACK that process waits so long: the time after which it is sent again. */
#define LAST_US 1000000u
/*
 * A TIME_WAIT answers a FIN that comes again, nothing else; who leaves thousands behind shall not
 * end later for that (0.1 ms each).
 */
#define TIME_WAITS_MAX 64

/* wakes the internal thread; -1: there is nothing to end in this process */
static _Atomic int ask_fd = -1;
/* a child that was made behind our back has copies of all of this, and no thread */
static _Atomic pid_t owner;
static _Atomic bool ends; /* the process does; else it becomes another program */
static _Atomic uint32_t asked; /* calls so far */
/* those that were there when the internal thread last began; callers sleep on it */
static _Atomic uint32_t served;
static _Atomic uint32_t steps; /* what it has done: who waits sees that it goes on */

/* --- on the internal thread */

static void leave_one(struct tcp_sock *s, void *arg)
{
	unsigned *time_waits = arg;
	int err;

	atomic_fetch_add(&steps, 1);
	if (tcp_sock_mode(s) != TCP_SOCK_CONN)
		return;
	err = atomic_load(&ends) ? tcp_sock_to_kernel_last(s)
				 : tcp_sock_to_kernel_now(s, STATS_WHY(NONE));
	/* Each looks, with the lock, whether the user has closed it. */
	if (err && tcp_sock_orphan_to_kernel(s))
		(void)tcp_sock_time_wait_to_kernel(s, time_waits);
}

/* Those that nobody has accepted are reset, as the kernel resets its own. */
static void unlisten_one(struct tcp_sock *s, void *arg)
{
	(void)arg;
	if (tcp_sock_mode(s) != TCP_SOCK_LISTEN)
		return;
	lock_take(&s->lock);
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN)
		tcp_sock_unlisten(s);
	lock_drop(&s->lock);
}

/* What waits for another process that has the listener, too, waits in the kernel; else nobody does.
 */
static void leave_listener(struct tcp_sock *s, void *arg)
{
	(void)arg;
	atomic_fetch_add(&steps, 1);
	if (tcp_sock_mode(s) == TCP_SOCK_LISTEN && !lock_mine(&s->lock))
		tcp_sock_listener_last_share(s);
}

static void leave_datagrams(struct udp_sock *s, void *arg)
{
	(void)arg;
	atomic_fetch_add(&steps, 1);
	udp_leave_to_children(s);
}

static void close_one(struct tcp_sock *s, void *arg)
{
	struct stack *st = tcp_sock_conn_lock(s);
	uint64_t now = tcp_sock_now_us();

	(void)arg;
	if (!st)
		return;
	/* Closed ones go on by themselves. */
	if (!s->closed) {
		s->closed = true;
		s->in_close = true; /* its memory stays: other threads may still be inside */
		if (s->linger_s == 0)
			tcp_abort(s->c, now);
		else
			tcp_close(s->c, now);
	}
	tcp_sock_unlock_stack(st, now);
}

struct unfinished {
	unsigned conns;
	uint64_t bytes;
};

/*
 * A connection that still owes something is counted; one of which the peer has everything gets no
 * reset from the kernel module.
 */
static void count_or_release(struct tcp_sock *s, void *arg)
{
	struct unfinished *left = arg;
	struct stack *st = tcp_sock_conn_lock(s);

	if (!st)
		return;
	if (tcp_sock_unfinished(s->c)) {
		left->conns++;
		left->bytes += tcp_outq(s->c);
	} else {
		tcp_sock_kmod_del(s);
	}
	lock_drop(&st->lock);
}

void handover_poll(struct stack *st, void *arg)
{
	(void)arg;
	if (!st->tcp)
		return;
	stack_poll(st, (unsigned)params.cq_poll_batch_max);
	stack_polled(st, tcp_sock_now_us());
	st->ring->ops->kick(st->ring);
}

/* Handshakes with its listeners, which other processes have, too, may still end. */
static void leave_last(void)
{
	uint64_t end = tcp_sock_now_us() + LAST_US;

	stacks_each(handover_poll, NULL);
	while (listener_last_look() && tcp_sock_now_us() < end) {
		atomic_fetch_add(&steps, 1);
		clock_sleep_ns(1000000);
		stacks_each(handover_poll, NULL);
	}
}

/* Until the peers have acknowledged everything, or nothing for too long. */
static void finish(void)
{
	uint64_t now = tcp_sock_now_us(), end = now + FINISH_US, stall = now + STALL_US;
	struct unfinished left, last = {0};

	tcp_sock_each(close_one, NULL);
	for (;;) {
		left = (struct unfinished){0};
		stacks_each(handover_poll, NULL);
		tcp_sock_each(count_or_release, &left);
		atomic_fetch_add(&steps, 1);
		now = tcp_sock_now_us();
		if (left.conns != last.conns || left.bytes != last.bytes)
			stall = now + STALL_US;
		last = left;
		if (!left.conns || now >= end || now >= stall)
			break;
		clock_sleep_ns(100000);
	}
	if (left.conns)
		log_warn("tcp: the process ends before %u of its connections do", left.conns);
}

static void work(int fd, uint32_t events, void *arg)
{
	uint32_t calls = atomic_load(&asked);
	unsigned time_waits = TIME_WAITS_MAX;
	uint64_t ticks;

	(void)events;
	(void)arg;
	(void)!raw.read(fd, &ticks, sizeof(ticks));
	stack_rounds_flush();
	if (tcp_sock_to_kernel_allowed()) {
		tcp_sock_blocks_defer(true);
		tcp_sock_each(leave_one, &time_waits);
		tcp_sock_blocks_defer(false);
		if (!atomic_load(&ends))
			stacks_each(tcp_sock_suspend_rules, NULL);
	}
	if (atomic_load(&ends)) {
		tcp_sock_each(leave_listener, NULL);
		leave_last();
		tcp_sock_each(unlisten_one, NULL);
		udp_each(leave_datagrams, NULL);
		finish();
	} else {
		(void)listener_last_look();
	}
	atomic_store(&served, calls);
	libc_raw(SYS_futex, (long)(uintptr_t)&served, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

/* --- who asks for it: nothing but system calls and atomics */

static bool can_ask(void)
{
	/*
	 * Who is in the middle of something of ours here is the handler of a fault: the internal
	 * thread would wait for that.
	 */
	return atomic_load(&ask_fd) >= 0 && !lock_thread.depth && atomic_load(&owner) == getpid();
}

/* Returns when it is done, or does not go on. */
static void ask(void)
{
	const struct timespec look = {0, LOOK_NS};
	uint64_t stall = tcp_sock_now_us() + STALL_US, one = 1;
	uint32_t call = atomic_fetch_add(&asked, 1) + 1, step = atomic_load(&steps), seen;

	libc_raw(SYS_write, atomic_load(&ask_fd), (long)(uintptr_t)&one, sizeof(one), 0, 0, 0);
	while ((int32_t)((seen = atomic_load(&served)) - call) < 0 && tcp_sock_now_us() < stall) {
		libc_raw(SYS_futex, (long)(uintptr_t)&served, FUTEX_WAIT_PRIVATE, (long)seen,
			 (long)(uintptr_t)&look, 0, 0);
		if (atomic_load(&steps) != step)
			stall = tcp_sock_now_us() + STALL_US;
		step = atomic_load(&steps);
	}
}

void handover_at_end(void)
{
	int err = errno;

	if (can_ask()) {
		atomic_store(&ends, true);
		ask();
	}
	errno = err;
}

void handover_at_exec(void)
{
	int err = errno;

	if (can_ask())
		ask();
	errno = err;
}

/* --- else */

static void leave_if_shared(struct tcp_sock *s, void *arg)
{
	(void)arg;
	if (!s->closed && !lock_mine(&s->lock))
		tcp_sock_leaving(&s->v);
}

/* Other processes go on with it when this one ends. */
static void find_shared_listener(struct tcp_sock *s, void *arg)
{
	bool *any = arg;

	*any = *any || (tcp_sock_mode(s) == TCP_SOCK_LISTEN && s->unconn.inherited);
}

void handover_before_rights_go(void)
{
	bool any = false;

	tcp_sock_each(leave_if_shared, NULL);
	tcp_sock_each(find_shared_listener, &any);
	if (any)
		implant_prepare();
}

int exit_start(void)
{
	int fd = own_eventfd(0), err;

	if (fd < 0)
		return -errno;
	err = worker_fd_add(fd, EPOLLIN, work, NULL);
	if (err) {
		own_fd_close(fd);
		return err;
	}
	atomic_store(&ends, false);
	atomic_store(&owner, getpid());
	atomic_store(&ask_fd, fd);
	return 0;
}

void exit_off(void)
{
	int fd = atomic_exchange(&ask_fd, -1);

	if (fd >= 0)
		own_fd_close(fd);
}
