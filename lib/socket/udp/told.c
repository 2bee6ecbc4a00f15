/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SocketXtreme: datagrams that the rings bring go to the program by completions of their ring. They
 * wait in the queue of what cannot be read (udp_att.unshown), charged to the receive buffer.
 * st->lock is held but for the last.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "socket/udp/internal.h"

void udp_told_add(struct udp_att *att, struct buf *b)
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

static void fill(const struct udp_sock *s, const struct buf *b, struct vma_completion_t *c)
{
	c->events = VMA_SOCKETXTREME_PACKET;
	c->user_data = told_user_data(&s->user_data,
				      atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	c->packet.hw_timestamp = told_time(b);
	c->listen_fd = -1;
	told_src(&b->meta.src, b->meta.sport, &c->src);
}

/* struct stack_due.tell */
enum stack_tells udp_tell(struct stack *st, struct stack_due *d, struct stack_told *told)
{
	struct udp_att *att = (struct udp_att *)((char *)d - offsetof(struct udp_att, due));
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);
	struct vma_completion_t *c = told->at;
	struct buf *b = take(att);

	if (!b)
		return STACK_TELLS_NOTHING;
	if (!udp_lend(s, att, st, b, &c->packet)) {
		put_back(att, b);
		stack_due_add(st, d);
		return STACK_TELLS_NOT_NOW;
	}
	fill(s, b, c);
	stats_add(&s->stats->rx.packets, 1);
	stats_add(&s->stats->rx.bytes, c->packet.total_len);
	stats_add(&s->stats->rx_zcopy_buffers, 1);
	if (att->unshown)
		stack_due_add(st, d);
	return STACK_TELLS;
}

int udp_set_user_data(struct vfd *v, int fd, uint64_t value)
{
	struct udp_sock *s = udp_of(v);
	int cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return -EBADF;
	s->user_data = (struct told_user_data){.value = value, .is_set = true};
	udp_unlock(s, cancel);
	return 0;
}

uint64_t udp_get_user_data(struct vfd *v, int fd)
{
	return told_user_data(&udp_of(v)->user_data, fd);
}
