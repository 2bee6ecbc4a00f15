/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the gate into a socket's queue. The stack's lock is held throughout. */
#include <string.h>
#include <sys/epoll.h>

#include "socket/udp_int.h"

static void enqueue(struct udp_att *att, struct buf *b)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);
	struct vma_stats_socket *stats = s->stats;
	uint64_t charge = b->total + UDP_CHARGE;

	if (__builtin_expect(att->charge + charge > s->o.rcvbuf && att->head, 0)) {
		stats_add(&stats->rx_drop_packets, 1);
		stats_add(&stats->rx_drop_bytes, b->total);
		atomic_fetch_add_explicit(&s->drops, 1, memory_order_relaxed);
		buf_free(b);
		return;
	}
	att->charge += charge;
	atomic_store_explicit(&att->queued, att->queued + 1, memory_order_release);
	b->next = NULL;
	*att->tail = b;
	att->tail = &b->next;
	stats_add(&stats->rx_ready_packets, 1);
	stats_add(&stats->rx_ready_bytes, b->total);
	if (stats->rx_ready_packets > stats->rx_ready_packets_max)
		stats_set(&stats->rx_ready_packets_max, stats->rx_ready_packets);
	if (stats->rx_ready_bytes > stats->rx_ready_bytes_max)
		stats_set(&stats->rx_ready_bytes_max, stats->rx_ready_bytes);
	vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
}

/* A copy of b's datagram on the heap, for one more receiver of a multicast; NULL when memory is out. */
static struct buf *copy_of(const struct buf *b)
{
	struct buf *c = buf_heap_alloc(b->total);
	uint8_t *to;

	if (!c)
		return NULL;
	to = c->data;
	c->meta = b->meta;
	c->time_ns = b->time_ns;
	c->len = c->total = b->total;
	for (; b; b = b->frag) {
		memcpy(to, b->data, b->len);
		to += b->len;
	}
	return c;
}

static void input_multicast(struct stack *st, struct buf *b)
{
	struct udp_att *last = NULL;
	struct udp_bind *bind = NULL;

	while ((bind = udp_demux_next(&st->udp, &b->meta, bind)) != NULL) {
		struct udp_att *att = (struct udp_att *)bind;
		struct buf *copy;

		if (!udp_mc_accepts(atomic_load_explicit(&att->s, memory_order_relaxed), &b->meta))
			continue;
		if (last) {
			copy = copy_of(b);
			if (copy)
				enqueue(last, copy);
			else
				stats_add(&st->stats->drop_other, 1);
		}
		last = att;
	}
	if (last) {
		enqueue(last, b);
	} else {
		stats_add(&st->stats->drop_no_socket, 1);
		buf_free(b);
	}
}

void udp_input(struct stack *st, struct buf *b)
{
	struct udp_bind *bind;

	if (__builtin_expect(b->meta.multicast, 0)) {
		input_multicast(st, b);
		return;
	}
	bind = udp_demux_find(&st->udp, &b->meta);
	if (__builtin_expect(!bind, 0)) {
		stats_add(&st->stats->drop_no_socket, 1);
		buf_free(b);
		return;
	}
	enqueue((struct udp_att *)bind, b);
}

void udp_att_flush(struct udp_att *att)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);

	while (att->head)
		buf_free(udp_dequeue(s, att));
}
