/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program's receive callback (the Extra API) for connections. What arrives waits in the engine
 * until a call of the program runs the callback, without any lock; it goes back there to be read,
 * or not. One frame at a time: what follows is shown when what was let through has been read.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "socket/socket.h"
#include "socket/tcp/internal.h"

/*
 * How long a connection stays for the sake of a frame that its callback has: who runs the callback
 * may wait for who waits here.
 */
#define LEAVE_WAITS_US 10000000u

/* A socket's callback, from the first on and for the object's life. */
struct tcp_show {
	struct tcp_sock *s;
	struct tcp_show *next; /* all_shows; never changes */
	/* s->lock, and that of the connection's stack */
	vma_recv_callback_t fn; /* NULL: none */
	void *context;
	uint32_t gen; /* of s, whose callback it is */
	/* is_due: it counts in stacks_unshown; st->lock of the stack that it had then */
	struct stack *st;
	bool is_due;
	/*
	 * Under the lock of the connection's stack. Atomic: a callback may outlast it, and s have
	 * one in another stack by then
	 */
	_Atomic uint32_t thread; /* who runs the callback */
	_Atomic uint64_t leaves; /* which connection is to go to the kernel: leave_of() */
	_Atomic uint64_t left; /* which did, while the callback had a frame of it: left_of() */
};

static struct tcp_show *_Atomic all_shows;
/* By the id of their sockets. Pages that nobody has touched cost nothing. */
static struct tcp_show *_Atomic by_id[TCP_SOCK_NUMBERED];
/* How often this process has been forked off: a callback may return in a child. */
static uint32_t forks;

/* One frame on its way through the callback. */
struct shown {
	struct tcp_show *e;
	struct stack *st;
	struct buf *b;
	void *id; /* NULL: it cannot be held */
	uint32_t gen, forks, charge;
	vma_recv_callback_t fn;
	void *context;
	struct tcp_tuple tuple;
	uint32_t unread;
};

/* NULL: s has no callback. */
static struct tcp_show *show_of(const struct tcp_sock *s)
{
	struct tcp_show *e = s->id < TCP_SOCK_NUMBERED
				     ? atomic_load_explicit(&by_id[s->id], memory_order_acquire)
				     : NULL;

	return e && e->gen == atomic_load_explicit(&s->gen, memory_order_relaxed) ? e : NULL;
}

/* --- st->lock is held for all of these */

void tcp_sock_unshown(struct tcp_sock *s)
{
	struct tcp_show *e = show_of(s);

	if (s->tells & TCP_SOCK_COMPLETIONS)
		tcp_sock_completion_read(s);
	if (!e || e->is_due || !s->c || !tcp_unshown(s->c))
		return;
	e->st = atomic_load_explicit(&s->st, memory_order_relaxed);
	e->is_due = true;
	atomic_fetch_add_explicit(&stacks_unshown, 1, memory_order_release);
	vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
}

static void due_end(struct tcp_show *e)
{
	if (e->is_due)
		atomic_fetch_sub_explicit(&stacks_unshown, 1, memory_order_relaxed);
	e->is_due = false;
}

void tcp_sock_shows_begin(struct tcp_sock *s)
{
	const struct tcp_show *e = show_of(s);

	if (e && tcp_set_shows(s->c, e->fn != NULL))
		log_warn("no memory: the receive callback of fd %d is not called",
			 atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
}

static bool is_alive(const struct shown *w)
{
	const struct tcp_sock *s = w->e->s;

	return atomic_load_explicit(&s->st, memory_order_relaxed) == w->st &&
	       tcp_sock_conn_gen(s) == w->gen && s->c;
}

/* --- leaving for the kernel */

/* 0 stands for none. */
static uint64_t left_of(uint32_t gen)
{
	return (uint64_t)gen << 32 | 1;
}

/* A connection, and the second from which it waits no more for the callback. */
static uint64_t leave_of(uint32_t gen, uint64_t us)
{
	return (uint64_t)gen << 32 | (uint32_t)((us + LEAVE_WAITS_US) / 1000000u);
}

static bool is_leave_of(uint64_t leaves, uint32_t gen)
{
	return leaves && leaves >> 32 == gen;
}

bool tcp_sock_show_awaited(struct tcp_sock *s, uint64_t now)
{
	struct tcp_show *e = show_of(s);
	uint32_t gen = tcp_sock_conn_gen(s);
	uint64_t leaves;

	if (!e || !tcp_is_showing(s->c) ||
	    atomic_load_explicit(&e->thread, memory_order_relaxed) == lock_self())
		return false;
	leaves = atomic_load_explicit(&e->leaves, memory_order_relaxed);
	if (!is_leave_of(leaves, gen)) {
		leaves = leave_of(gen, now);
		atomic_store_explicit(&e->leaves, leaves, memory_order_relaxed);
	}
	return (int32_t)((uint32_t)(now / 1000000u) - (uint32_t)leaves) < 0;
}

void tcp_sock_show_left(struct tcp_sock *s)
{
	struct tcp_show *e = show_of(s);

	if (e && tcp_is_showing(s->c))
		atomic_store_explicit(&e->left, left_of(tcp_sock_conn_gen(s)),
				      memory_order_relaxed);
}

static bool is_leaving(const struct shown *w)
{
	return is_leave_of(atomic_load_explicit(&w->e->leaves, memory_order_relaxed), w->gen);
}

/* The callback has let through what nobody can read any more. */
static void tell_lost(const struct shown *w)
{
	if (atomic_load_explicit(&w->e->left, memory_order_relaxed) == left_of(w->gen))
		log_warn("fd %d went to the kernel while its receive callback ran: the %u bytes "
			 "that the callback let through then are lost",
			 atomic_load_explicit(&w->e->s->v.os_fd, memory_order_relaxed),
			 w->b->total);
}

/* --- one frame */

/* Takes the next frame of the connection. False: there is none. */
static bool show_next(struct shown *w)
{
	struct tcp_sock *s = w->e->s;

	if (!is_alive(w) || show_of(s) != w->e || !w->e->fn || is_leaving(w))
		return false;
	w->b = tcp_take_unshown(s->c, SOCK_SHOW_PIECES);
	if (!w->b)
		return false;
	w->charge = tcp_buf_charge(w->b);
	w->id = tcp_sock_hold(s, w->st, w->b, true);
	w->fn = w->e->fn;
	w->context = w->e->context;
	w->tuple = s->tuple;
	w->unread = tcp_inq(s->c);
	atomic_store_explicit(&w->e->thread, lock_self(), memory_order_relaxed);
	return true;
}

static void settle(struct shown *w, vma_recv_callback_retval_t ret, uint64_t now)
{
	struct tcp_sock *s = w->e->s;
	bool alive = is_alive(w);

	if (ret == VMA_PACKET_HOLD && w->id) {
		stack_held_keep(w->id);
		if (alive)
			tcp_taken(s->c, now);
		return;
	}
	if (ret == VMA_PACKET_RECV && alive) {
		tcp_put_back(s->c, w->b);
	} else {
		if (ret == VMA_PACKET_RECV)
			tell_lost(w);
		buf_free(w->b);
		if (alive) {
			tcp_taken(s->c, now);
			tcp_give_back(s->c, w->charge, now);
		}
	}
	/* Last: the memory of a ring that has gone may go with it. */
	if (w->id)
		stack_held_drop(w->id);
}

/*
 * No more is shown for now. A reader that found nothing before sleeps on the hint: it learns of
 * data that was let through, and of an end behind data that was not. Less than SO_RCVLOWAT may be
 * what its call still wants.
 */
static void tell_readers(const struct shown *w)
{
	struct tcp_sock *s = w->e->s;
	uint32_t bits;

	if (!is_alive(w))
		return;
	bits = tcp_sock_epoll_bits(tcp_ready(s->c)) & ~(uint32_t)(EPOLLOUT | EPOLLWRNORM);
	if (tcp_inq(s->c))
		bits |= EPOLLIN | EPOLLRDNORM;
	atomic_store_explicit(&s->level, 0, memory_order_relaxed);
	atomic_fetch_or_explicit(&s->hint, bits, memory_order_release);
	if (bits)
		vfd_notify(&s->v, bits);
}

/*
 * As tell_readers(), and drops the lock. Who has waited to take the connection to the kernel has
 * waited for this.
 */
static void show_pause(const struct shown *w)
{
	struct tcp_sock *s = w->e->s;
	bool leaves = is_alive(w) && is_leaving(w) && !tcp_is_showing(s->c);

	tell_readers(w);
	if (leaves) {
		atomic_store_explicit(&w->e->leaves, 0, memory_order_relaxed);
		/* If it does not go. */
		tcp_sock_unshown(s);
	}
	tcp_sock_unlock_stack(w->st, tcp_sock_now_us());
	if (leaves)
		tcp_sock_handover_decided(s);
}

/* --- no lock is held from here on */

/* The callback has decided, the lock is held again. False: this is a child that it has forked. */
static bool show_end(struct shown *w, vma_recv_callback_retval_t ret)
{
	if (w->forks != forks)
		return false;
	lock_take(&w->st->lock);
	settle(w, ret, tcp_sock_now_us());
	return true;
}

/* The callback has ended its thread. */
static void show_broken(void *arg)
{
	struct shown *w = arg;

	if (!show_end(w, VMA_PACKET_DROP))
		return;
	if (is_alive(w))
		tcp_sock_unshown(w->e->s);
	show_pause(w);
}

static vma_recv_callback_retval_t call(const struct shown *w)
{
	const struct tcp_tuple *t = &w->tuple;
	const struct tcp_sock *s = w->e->s;
	struct sock_frame f = {
		.fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed),
		.domain = s->domain,
		.b = w->b,
		.src = &t->remote,
		.sport = t->rport,
		.dst = &t->local,
		.dport = t->lport,
	};
	struct vma_info_t info = {
		.packet_id = w->id,
		.socket_ready_queue_pkt_count = w->unread != 0,
		.socket_ready_queue_byte_count = w->unread,
		.hw_timestamp = completion_time(w->b),
	};

	return sock_show(&f, &info, w->fn, w->context);
}

/*
 * As show_end(), after the callback; its thread may end in it. The handler stands around nothing
 * else: one of the program's may leave by siglongjmp() where a lock is dropped.
 */
static bool show_one(struct shown *w)
{
	vma_recv_callback_retval_t ret;

	pthread_cleanup_push(show_broken, w);
	ret = call(w);
	pthread_cleanup_pop(0);
	return show_end(w, ret);
}

/* All that waits for e's callback. False: see show_end(). */
static bool show_all(struct tcp_show *e)
{
	struct shown w = {.e = e, .st = e->st, .forks = forks};

	if (!w.st || !lock_get(&w.st->lock))
		return true; /* a signal handler in the middle of a call */
	due_end(e);
	w.gen = tcp_sock_conn_gen(e->s);
	while (show_next(&w)) {
		tcp_sock_unlock_stack(w.st, tcp_sock_now_us());
		if (!show_one(&w))
			return false;
	}
	show_pause(&w);
	return true;
}

bool tcp_sock_show(void)
{
	struct tcp_show *e = atomic_load_explicit(&all_shows, memory_order_acquire);

	for (; e; e = e->next) {
		if (__atomic_load_n(&e->is_due, __ATOMIC_RELAXED) && !show_all(e))
			return false;
	}
	return true;
}

void tcp_sock_shows_forked(void)
{
	struct tcp_show *e = atomic_load_explicit(&all_shows, memory_order_relaxed);

	/* Left behind, as their sockets are. */
	for (; e; e = e->next)
		atomic_store_explicit(&by_id[e->s->id], NULL, memory_order_relaxed);
	atomic_store(&all_shows, NULL);
	forks++;
}

/* --- registering; s->lock is held */

/* The entry of s, made when there is none. NULL: no memory, or too many sockets. */
static struct tcp_show *entry_get(struct tcp_sock *s)
{
	struct tcp_show *e;

	if (s->id >= TCP_SOCK_NUMBERED)
		return NULL;
	e = atomic_load_explicit(&by_id[s->id], memory_order_relaxed);
	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->s = s;
	e->next = atomic_load_explicit(&all_shows, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&all_shows, &e->next, e, memory_order_release,
						      memory_order_relaxed))
		;
	atomic_store_explicit(&by_id[s->id], e, memory_order_release);
	return e;
}

static int set(struct tcp_sock *s, vma_recv_callback_t fn, void *context)
{
	struct tcp_show *e = entry_get(s);
	struct stack *st = tcp_sock_conn_lock(s);
	int err = e ? 0 : -ENOMEM;

	if (st && !err)
		err = tcp_set_shows(s->c, fn != NULL);
	if (!err) {
		e->fn = fn;
		e->context = context;
		e->gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
		atomic_fetch_or_explicit(&s->tells, TCP_SOCK_SHOWS, memory_order_release);
		atomic_store_explicit(&stacks_have_callbacks, true, memory_order_relaxed);
	}
	if (st) {
		/* What waited for a callback that is no more can be read. */
		if (!fn)
			vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
		lock_drop(&st->lock);
	}
	return err;
}

int tcp_sock_set_callback(struct vfd *v, int fd, vma_recv_callback_t fn, void *context)
{
	struct tcp_sock *s = tcp_sock_of(v);
	int err, cancel;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EINVAL;
	err = tcp_sock_mode(s) == TCP_SOCK_LISTEN || s->in_kernel ? -EINVAL : set(s, fn, context);
	tcp_sock_unlock(s, cancel);
	return err;
}
