/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SocketXtreme: what happens to connections goes to the program by completions of their ring. Data
 * waits in the engine, where it occupies the receive buffer, as for a receive callback; events wait
 * here.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"

/* Told at once; told behind all data. */
#define BEFORE_DATA (EPOLLOUT | EPOLLPRI)
#define AFTER_DATA (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

/* A socket, for the object's life. */
struct tcp_completions {
	struct stack_due due; /* first */
	struct tcp_sock *s;
	_Atomic uint32_t gen; /* of s, whose it is. s->lock */
	struct sock_user_data user_data;
	/* The lock of the connection's stack: */
	bool begun; /* the program can know its number */
	bool is_new; /* VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED is to be told */
	int listen_fd; /* of that */
	uint32_t events; /* BEFORE_DATA and AFTER_DATA that have come */
	uint32_t told; /* AFTER_DATA that was told */
};

/* By the id of their sockets. Pages that nobody has touched cost nothing. */
static struct tcp_completions *_Atomic by_id[TCP_SOCK_NUMBERED];

/* NULL: completions know nothing of s. */
static struct tcp_completions *completion_of(const struct tcp_sock *s)
{
	struct tcp_completions *e =
		s->id < TCP_SOCK_NUMBERED
			? atomic_load_explicit(&by_id[s->id], memory_order_acquire)
			: NULL;

	return e && atomic_load_explicit(&e->gen, memory_order_relaxed) ==
				       atomic_load_explicit(&s->gen, memory_order_relaxed)
		       ? e
		       : NULL;
}

/* --- what there is to tell; st->lock is held */

static uint32_t before_data(const struct tcp_completions *e)
{
	return e->events & (EPOLLERR | EPOLLHUP) ? 0 : e->events & BEFORE_DATA;
}

/* As poll() says it. */
static uint32_t ready(const struct tcp_completions *e)
{
	return e->s->c ? tcp_sock_epoll_bits(tcp_ready(e->s->c)) : 0;
}

static uint32_t after_data(const struct tcp_completions *e)
{
	return (e->events | ready(e)) & AFTER_DATA & ~e->told;
}

static bool has_data(const struct tcp_completions *e)
{
	return e->s->c && tcp_unshown(e->s->c);
}

static void again(struct stack *st, struct tcp_completions *e)
{
	if (e->is_new || before_data(e) || has_data(e) || after_data(e))
		stack_due_add(st, &e->due);
}

static void fill(const struct tcp_completions *e, struct vma_completion_t *c, uint64_t events)
{
	const struct tcp_sock *s = e->s;

	c->events = events;
	c->user_data = sock_user_data(&e->user_data,
				      atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	c->listen_fd = events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED ? e->listen_fd : -1;
	completion_src(&s->tuple.remote, s->tuple.rport, &c->src);
}

static enum stack_tells tell_events(struct stack *st, struct tcp_completions *e,
				    struct vma_completion_t *c, uint64_t events)
{
	memset(&c->packet, 0, sizeof(c->packet));
	fill(e, c, events);
	again(st, e);
	return STACK_TELLS;
}

/* NOTHING: what there is cannot be told as it is, but read. */
static enum stack_tells tell_data(struct stack *st, struct tcp_completions *e,
				  struct vma_completion_t *c)
{
	struct tcp_sock *s = e->s;
	struct buf *b = tcp_take_unshown(s->c, SOCK_SHOW_PIECES);
	struct timespec time;

	if (!b)
		return STACK_TELLS_NOTHING;
	time = completion_time(b);
	if (!tcp_sock_lend(s, st, b, &c->packet)) {
		tcp_put_back(s->c, b);
		tcp_show_unread(s->c);
		stack_due_add(st, &e->due);
		return STACK_TELLS_NOT_NOW;
	}
	tcp_taken(s->c, tcp_sock_now_us());
	c->packet.hw_timestamp = time;
	fill(e, c, VMA_SOCKETXTREME_PACKET);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, c->packet.total_len);
	again(st, e);
	return STACK_TELLS;
}

/* All data was told. */
static enum stack_tells tell_end(struct stack *st, struct tcp_completions *e,
				 struct vma_completion_t *c)
{
	uint32_t bits = after_data(e);

	/* What could not be told, urgent data and its mark, waits for recv(). */
	if (bits || (ready(e) & (EPOLLIN | EPOLLRDHUP)) == EPOLLIN)
		bits |= EPOLLIN;
	if (!bits)
		return STACK_TELLS_NOTHING;
	e->told |= bits & AFTER_DATA;
	if (bits & (EPOLLERR | EPOLLHUP))
		e->events &= ~(uint32_t)BEFORE_DATA;
	return tell_events(st, e, c, bits);
}

/* struct stack_due.tell of a connection */
static enum stack_tells tell(struct stack *st, struct stack_due *d, struct stack_completions *told)
{
	struct tcp_completions *e = (struct tcp_completions *)d;
	enum stack_tells what = STACK_TELLS_NOTHING;
	uint32_t bits;

	if (completion_of(e->s) != e || atomic_load_explicit(&e->s->st, memory_order_relaxed) != st)
		return what;
	if (e->is_new) {
		e->is_new = false;
		return tell_events(st, e, told->at, VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);
	}
	bits = before_data(e);
	if (bits) {
		e->events &= ~bits;
		return tell_events(st, e, told->at, bits);
	}
	if (has_data(e))
		what = tell_data(st, e, told->at);
	return what == STACK_TELLS_NOTHING ? tell_end(st, e, told->at) : what;
}

void tcp_sock_completion_event(struct tcp_sock *s, uint32_t events)
{
	struct tcp_completions *e = completion_of(s);

	if (!e || !e->begun)
		return;
	e->events |= events & (BEFORE_DATA | AFTER_DATA);
	stack_due_add(atomic_load_explicit(&s->st, memory_order_relaxed), &e->due);
}

void tcp_sock_completion_read(struct tcp_sock *s)
{
	struct tcp_completions *e = completion_of(s);

	if (e && e->begun && has_data(e))
		stack_due_add(atomic_load_explicit(&s->st, memory_order_relaxed), &e->due);
}

/* --- listeners */

/* Such connections are for accept(): completions would say nothing of their data. */
static enum stack_tells tell_kernel(struct tcp_sock_att *att, struct vma_completion_t *c)
{
	const struct tcp_completions *e = completion_of(att->s);
	int fd = atomic_load_explicit(&att->s->v.os_fd, memory_order_relaxed);

	att->kernel_has = false;
	memset(c, 0, sizeof(*c));
	c->events = EPOLLIN;
	c->user_data = e ? sock_user_data(&e->user_data, fd) : (uint64_t)fd;
	c->listen_fd = -1;
	return STACK_TELLS;
}

/* struct stack_due.tell of a listener: its connections want their numbers first. */
static enum stack_tells tell_listener(struct stack *st, struct stack_due *d,
				      struct stack_completions *told)
{
	struct tcp_sock_att *att =
		(struct tcp_sock_att *)((char *)d - offsetof(struct tcp_sock_att, due));

	(void)st;
	if (att->l && tcp_accept_queued(att->l)) {
		told->first = tcp_sock_accept_completion;
		told->object = att->s;
		told->gen = atomic_load_explicit(&att->s->gen, memory_order_relaxed);
	}
	return att->kernel_has ? tell_kernel(att, told->at) : STACK_TELLS_NOTHING;
}

void tcp_sock_completion_listener(struct tcp_sock_att *att)
{
	att->due.tell = tell_listener;
	stack_due_add(att->st, &att->due);
}

void tcp_sock_completion_kernel(struct tcp_sock *s)
{
	struct tcp_sock_att *att = s->unconn.atts;

	if (!att)
		return;
	lock_take(&att->st->lock);
	att->kernel_has = true;
	tcp_sock_completion_listener(att);
	lock_drop(&att->st->lock);
}

/* --- begin and end */

/* The entry of s, made when there is none. NULL: no memory, or too many sockets. */
static struct tcp_completions *entry_get(struct tcp_sock *s)
{
	struct tcp_completions *e = completion_of(s);
	uint32_t id = s->id;

	if (e || id >= TCP_SOCK_NUMBERED)
		return e;
	e = atomic_load_explicit(&by_id[id], memory_order_relaxed);
	if (!e) {
		e = calloc(1, sizeof(*e));
		if (!e)
			return NULL;
		e->due.tell = tell;
		e->s = s;
		atomic_store_explicit(&by_id[id], e, memory_order_release);
	}
	sock_user_data_clear(&e->user_data);
	e->begun = e->is_new = false;
	e->events = e->told = 0;
	atomic_store_explicit(&e->gen, atomic_load_explicit(&s->gen, memory_order_relaxed),
			      memory_order_relaxed);
	return e;
}

void tcp_sock_completion_begin(struct tcp_sock *s)
{
	struct tcp_completions *e = entry_get(s);

	if (!e || tcp_set_shows(s->c, true)) {
		log_warn("no memory, or too many sockets: socketxtreme_poll() does not tell of "
			 "fd %d, which can be read",
			 atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
		atomic_fetch_and_explicit(&s->tells, (uint8_t)~TCP_SOCK_COMPLETIONS,
					  memory_order_relaxed);
		return;
	}
	tcp_show_unread(s->c);
	e->begun = !s->accepted;
}

void tcp_sock_completion_accepted(struct tcp_sock *s, int lfd)
{
	struct tcp_completions *e = s->tells & TCP_SOCK_COMPLETIONS ? completion_of(s) : NULL;
	struct stack *st = e ? atomic_load_explicit(&s->st, memory_order_acquire) : NULL;

	if (!st)
		return;
	lock_take(&st->lock);
	/* Another thread may have closed it. */
	if (completion_of(s) == e && atomic_load_explicit(&s->st, memory_order_relaxed) == st) {
		e->listen_fd = lfd;
		e->begun = e->is_new = true;
		stack_due_add(st, &e->due);
	}
	lock_drop(&st->lock);
}

static void forget_in(struct tcp_completions *e, struct stack *st)
{
	lock_take(&st->lock);
	stack_due_del(st, &e->due);
	e->begun = e->is_new = false;
	e->events = e->told = 0;
	lock_drop(&st->lock);
}

void tcp_sock_completion_forget(struct tcp_sock *s)
{
	struct tcp_completions *e =
		s->id < TCP_SOCK_NUMBERED
			? atomic_load_explicit(&by_id[s->id], memory_order_acquire)
			: NULL;
	struct stack *st = e ? atomic_load_explicit(&s->st, memory_order_relaxed) : NULL;

	if (st)
		forget_in(e, st);
	/* Of a former connection: no other thread puts it there any more. */
	st = e ? atomic_load_explicit(&e->due.st, memory_order_relaxed) : NULL;
	if (st)
		forget_in(e, st);
}

void tcp_sock_completion_forked(void)
{
	for (uint32_t i = 0; i < TCP_SOCK_NUMBERED && i < tcp_sock_count(); i++)
		atomic_store_explicit(&by_id[i], NULL, memory_order_relaxed);
}

/* --- SO_VMA_USER_DATA */

int tcp_sock_set_user_data(struct vfd *v, int fd, uint64_t value)
{
	struct tcp_sock *s = tcp_sock_of(v);
	struct tcp_completions *e;
	int cancel;

	if (!tcp_sock_lock_live(s, fd, &cancel))
		return -EBADF;
	e = entry_get(s);
	if (e)
		sock_user_data_set(&e->user_data, value);
	tcp_sock_unlock(s, cancel);
	return e ? 0 : -ENOMEM;
}

uint64_t tcp_sock_get_user_data(struct vfd *v, int fd)
{
	const struct tcp_completions *e = completion_of(tcp_sock_of(v));

	return e ? sock_user_data(&e->user_data, fd) : (uint64_t)fd;
}
