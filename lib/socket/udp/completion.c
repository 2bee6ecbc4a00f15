/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SocketXtreme: datagrams that the rings bring go to the program by completions of their ring. They
 * wait in the queue of what cannot be read (udp_att.unshown), charged to the receive buffer.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>

#include "config/config.h"
#include "socket/udp/internal.h"

/* --- st->lock is held for all of these */

void udp_completion_add(struct udp_att *att, struct buf *b)
{
	b->next = NULL;
	*att->unshown_tail = b;
	att->unshown_tail = &b->next;
	stack_due_add(atomic_load_explicit(&att->st, memory_order_relaxed), &att->due);
}

/* What waits first; NULL: nothing. */
static struct buf *take(struct udp_att *att)
{
	struct buf *b = NULL;

	while (att->unshown && !b)
		b = udp_unshown_take(att);
	return b;
}

static void put_back(struct udp_att *att, struct buf *b)
{
	b->next = att->unshown;
	if (!att->unshown)
		att->unshown_tail = &b->next;
	att->unshown = b;
}

static void fill(const struct udp_sock *s, struct vma_completion_t *c, uint64_t events)
{
	c->events = events;
	c->user_data = sock_user_data(&s->user_data,
				      atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	c->listen_fd = -1;
}

/* What rings have brought was told. */
static enum stack_tells tell_kernel(struct udp_att *att, struct vma_completion_t *c)
{
	uint32_t events = att->kernel_events;

	if (!events)
		return STACK_TELLS_NOTHING;
	att->kernel_events = 0;
	memset(c, 0, sizeof(*c));
	fill(atomic_load_explicit(&att->s, memory_order_relaxed), c, events);
	return STACK_TELLS;
}

/* struct stack_due.tell */
enum stack_tells udp_tell(struct stack *st, struct stack_due *d, struct stack_completions *told)
{
	struct udp_att *att = (struct udp_att *)((char *)d - offsetof(struct udp_att, due));
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);
	struct vma_completion_t *c = told->at;
	struct buf *b = take(att);

	if (!b)
		return tell_kernel(att, c);
	if (!udp_lend(s, att, st, b, &c->packet)) {
		put_back(att, b);
		stack_due_add(st, d);
		return STACK_TELLS_NOT_NOW;
	}
	fill(s, c, VMA_SOCKETXTREME_PACKET);
	c->packet.hw_timestamp = completion_time(b);
	completion_src(&b->meta.src, b->meta.sport, &c->src);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, c->packet.total_len);
	if (att->unshown || att->kernel_events)
		stack_due_add(st, d);
	return STACK_TELLS;
}

/* --- no stack's lock is held from here on */

void udp_completion_kernel(struct udp_sock *s, uint32_t events)
{
	struct udp_att *att;
	struct stack *st;

	if (!params.socketxtreme || !atomic_load_explicit(&s->natt, memory_order_acquire))
		return;
	att = udp_att(s, 0);
	st = udp_att_stack(att);
	lock_take(&st->lock);
	if (udp_att_stack(att) == st && atomic_load_explicit(&att->s, memory_order_acquire) == s) {
		att->kernel_events |= events & (EPOLLIN | EPOLLERR);
		if (att->kernel_events)
			stack_due_add(st, &att->due);
	}
	lock_drop(&st->lock);
}

int udp_set_user_data(struct vfd *v, int fd, uint64_t value)
{
	struct udp_sock *s = udp_of(v);
	int cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return -EBADF;
	sock_user_data_set(&s->user_data, value);
	udp_unlock(s, cancel);
	return 0;
}

uint64_t udp_get_user_data(struct vfd *v, int fd)
{
	return sock_user_data(&udp_of(v)->user_data, fd);
}
