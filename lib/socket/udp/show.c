/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The program's receive callback (the Extra API): what the rings bring waits in a queue of its own
 * until a call of the program runs the callback, without any lock, which decides what becomes of
 * it.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "socket/udp/internal.h"

/* Those that have ever had a callback; by shows_next. Objects are type-stable, so none is taken
 * out. */
static struct udp_sock *_Atomic all_shows;
/* How often this process has been forked off: a callback may return in a child. */
static uint32_t forks;

/* One datagram on its way through the callback. */
struct show {
	struct udp_sock *s;
	struct udp_att *att;
	struct stack *st;
	const struct ring *ring; /* of st, when b was taken */
	struct buf *b;
	void *id; /* NULL: it cannot be held */
	uint32_t uses, forks;
	struct udp_callback cb;
};

/* st->lock is held for all of these. */

static void unshown_add(struct udp_att *att)
{
	if (!att->is_due && !att->showing && att->unshown) {
		att->is_due = true;
		atomic_fetch_add_explicit(&stacks_unshown, 1, memory_order_release);
	}
}

static void unshown_end(struct udp_att *att)
{
	if (att->is_due)
		atomic_fetch_sub_explicit(&stacks_unshown, 1, memory_order_relaxed);
	att->is_due = false;
}

void udp_unshown_add(struct udp_att *att, struct buf *b)
{
	b->next = NULL;
	*att->unshown_tail = b;
	att->unshown_tail = &b->next;
	unshown_add(att);
}

/* b, of those that wait or out of them, is gone. */
static void unshown_drop(struct udp_att *att, struct buf *b)
{
	att->charge -= b->total + (uint64_t)udp_count(b) * UDP_CHARGE;
	buf_free(b);
}

struct buf *udp_unshown_take(struct udp_att *att)
{
	struct buf *b = att->unshown, *one;

	if (b->gso_size) {
		one = udp_burst_take(&att->unshown, &att->unshown_tail);
		if (one)
			return one;
	}
	att->unshown = b->next;
	if (!att->unshown)
		att->unshown_tail = &att->unshown;
	if (!b->gso_size)
		return b;
	unshown_drop(att, b);
	return NULL;
}

void udp_unshown_flush(struct udp_att *att)
{
	struct buf *b;

	while ((b = att->unshown)) {
		att->unshown = b->next;
		unshown_drop(att, b);
	}
	att->unshown_tail = &att->unshown;
	unshown_end(att);
}

/* What waits is as if there had never been a callback. */
static void unshown_release(struct udp_att *att)
{
	struct buf *b;

	while ((b = att->unshown)) {
		att->unshown = b->next;
		udp_queue_add(att, b);
	}
	att->unshown_tail = &att->unshown;
	unshown_end(att);
}

static bool is_alive(const struct show *w)
{
	return w->att->uses == w->uses &&
	       atomic_load_explicit(&w->att->s, memory_order_relaxed) == w->s;
}

/* Takes the next datagram out of the queue. False: there is none. */
static bool show_next(struct show *w)
{
	struct udp_att *att = w->att;

	do {
		if (!is_alive(w) || !att->cb.fn || !att->unshown)
			return false;
		w->b = udp_unshown_take(att);
	} while (!w->b);
	w->cb = att->cb;
	w->ring = w->st->ring;
	w->id = udp_hold(w->s, att, w->st, w->b, true);
	return true;
}

/* The frame's memory stays while it waits: the ring that brought it is still the stack's. */
static bool may_wait(const struct show *w)
{
	return w->st->ring == w->ring && atomic_load_explicit(&w->st->open, memory_order_relaxed);
}

static void settle(struct show *w, vma_recv_callback_retval_t ret)
{
	bool alive = is_alive(w);

	if (ret == VMA_PACKET_HOLD && w->id) {
		stack_held_keep(w->id);
		return;
	}
	if (w->id)
		udp_unhold(w->att, w->uses, w->b);
	if (ret == VMA_PACKET_RECV && alive && may_wait(w)) {
		udp_queue_add(w->att, w->b);
	} else if (alive) {
		stats_add(&w->s->stats->rx_drop_packets, 1);
		unshown_drop(w->att, w->b);
	} else {
		buf_free(w->b);
	}
	/* Last: the memory of a ring that has gone may go with it. */
	if (w->id)
		stack_held_drop(w->id);
}

/* --- no lock is held from here on */

/* The callback is free for the datagrams of the other rings, which may have come meanwhile. */
static void others_due(struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire);

	atomic_store(&s->in_callback, false);
	for (unsigned i = 0; i < n; i++) {
		struct udp_att *att = udp_att(s, i);
		struct stack *st = udp_att_stack(att);
		bool due;

		if (!lock_get(&st->lock))
			continue;
		due = udp_att_stack(att) == st && att->unshown &&
		      atomic_load_explicit(&att->s, memory_order_relaxed) == s;
		if (due)
			unshown_add(att);
		lock_drop(&st->lock);
		if (due)
			vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
	}
}

/*
 * The callback has decided. False: this is a child that it has forked, where frames, queues and
 * locks are the parent's.
 */
static bool show_end(struct show *w, vma_recv_callback_retval_t ret)
{
	if (w->forks != forks)
		return false;
	lock_take(&w->st->lock);
	settle(w, ret);
	return true;
}

/* The callback has ended its thread. */
static void show_broken(void *arg)
{
	struct show *w = arg;
	bool alive;

	if (!show_end(w, VMA_PACKET_DROP))
		return;
	alive = is_alive(w);
	if (alive)
		w->att->showing = false;
	lock_drop(&w->st->lock);
	if (alive)
		others_due(w->s);
}

static vma_recv_callback_retval_t call(const struct show *w)
{
	const struct buf *b = w->b;
	struct sock_frame f = {
		.fd = atomic_load_explicit(&w->s->v.os_fd, memory_order_relaxed),
		.domain = w->s->domain,
		.b = b,
		.src = &b->meta.src,
		.sport = b->meta.sport,
		.dst = &b->meta.dst,
		.dport = b->meta.dport,
		.scope = b->meta.ifindex,
	};
	struct vma_info_t info = {
		.packet_id = w->id,
		.socket_ready_queue_pkt_count =
			atomic_load_explicit(&w->att->queued, memory_order_relaxed),
		.socket_ready_queue_byte_count =
			(uint32_t)__atomic_load_n(&w->s->stats->rx_ready_bytes, __ATOMIC_RELAXED),
		.hw_timestamp = completion_time(b),
	};

	return sock_show(&f, &info, w->cb.fn, w->cb.context);
}

/*
 * As show_end(), after the callback; its thread may end in it. The handler stands around nothing
 * else: one of the program's may leave by siglongjmp() where a lock is dropped.
 */
static bool show_one(struct show *w)
{
	vma_recv_callback_retval_t ret;

	pthread_cleanup_push(show_broken, w);
	ret = call(w);
	pthread_cleanup_pop(0);
	return show_end(w, ret);
}

/* All that waits in w->att; its stack is locked. False: see show_end(). */
static bool show_waiting(struct show *w)
{
	while (show_next(w)) {
		w->att->showing = true;
		lock_drop(&w->st->lock);
		if (!show_one(w))
			return false;
		if (is_alive(w))
			w->att->showing = false;
	}
	return true;
}

/*
 * All that waits in att, unless a thread is in the socket's callback: that one sees to the rest.
 * False: see show_end().
 */
static bool show_att(struct udp_sock *s, struct udp_att *att)
{
	struct show w = {.s = s, .att = att, .st = udp_att_stack(att), .forks = forks};
	bool over = false;

	if (!lock_get(&w.st->lock))
		return true; /* a signal handler in the middle of a call */
	w.uses = att->uses;
	if (atomic_load_explicit(&att->st, memory_order_relaxed) == w.st && is_alive(&w)) {
		unshown_end(att);
		if (att->unshown && !atomic_exchange(&s->in_callback, true)) {
			if (!show_waiting(&w))
				return false;
			over = is_alive(&w);
		}
	}
	lock_drop(&w.st->lock);
	if (over)
		others_due(s);
	return true;
}

bool udp_show(void)
{
	struct udp_sock *s = atomic_load_explicit(&all_shows, memory_order_acquire);

	for (; s; s = s->shows_next) {
		unsigned n = atomic_load_explicit(&s->natt, memory_order_acquire);

		for (unsigned i = 0; i < n; i++) {
			if (!show_att(s, udp_att(s, i)))
				return false;
		}
	}
	return true;
}

void udp_show_forked(void)
{
	atomic_store(&all_shows, NULL);
	forks++;
}

/* s->lock is held. */
static void shows_add(struct udp_sock *s)
{
	struct udp_sock *first = atomic_load_explicit(&all_shows, memory_order_relaxed);

	if (s->in_shows)
		return;
	s->in_shows = true;
	do {
		s->shows_next = first;
	} while (!atomic_compare_exchange_weak_explicit(&all_shows, &first, s, memory_order_release,
							memory_order_relaxed));
}

void udp_callback_set(struct udp_sock *s, struct udp_callback cb)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	s->cb = cb;
	for (unsigned i = 0; i < n; i++) {
		struct udp_att *att = udp_att(s, i);

		lock_take(&att->st->lock);
		att->cb = cb;
		att->queues_unshown = cb.fn != NULL;
		if (!cb.fn)
			unshown_release(att);
		/* Until now the fast path may have passed the queue by. */
		stack_udp_changed(att->st);
		lock_drop(&att->st->lock);
	}
}

int udp_set_callback(struct vfd *v, int fd, vma_recv_callback_t fn, void *context)
{
	struct udp_sock *s = udp_of(v);
	int err = 0, cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return -EBADF;
	if (fn && atomic_load_explicit(&s->in_kernel, memory_order_relaxed))
		err = -EINVAL;
	if (!err) {
		atomic_store_explicit(&stacks_have_callbacks, true, memory_order_relaxed);
		if (fn)
			shows_add(s);
		udp_callback_set(s, (struct udp_callback){.fn = fn, .context = context});
		udp_stamping(s);
	}
	udp_unlock(s, cancel);
	return err;
}
