/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the gate into a socket's queue. The stack's lock is held throughout. */
#include <string.h>
#include <sys/epoll.h>

#include "socket/udp/internal.h"

static void count_dropped(struct udp_sock *s, unsigned n, uint32_t bytes)
{
	stats_add(&s->stats->rx_drop_packets, n);
	stats_add(&s->stats->rx_drop_bytes, bytes);
	atomic_fetch_add_explicit(&s->drops, n, memory_order_relaxed);
}

/*
 * The receive buffer has no room for the n datagrams of b. The kernel would have queued them one by
 * one: as many as there is room for stay, one at least in an empty queue. Returns how many; with 0
 * b is still the caller's.
 */
static unsigned admit_some(struct udp_sock *s, struct udp_att *att, struct buf *b, unsigned n)
{
	uint64_t limit = s->o.rcvbuf, room = limit > att->charge ? limit - att->charge : 0;
	uint64_t fit = b->gso_size ? room / (b->gso_size + UDP_CHARGE) : 0;
	uint32_t total = b->total;

	if (!att->head && !fit)
		fit = 1;
	if (fit >= n)
		return n; /* an empty queue takes any one datagram */
	if (fit) {
		buf_cut(b, (uint32_t)fit * b->gso_size);
		if (fit == 1)
			b->gso_size = 0;
		total -= b->total;
	}
	count_dropped(s, n - (unsigned)fit, total);
	return (unsigned)fit;
}

static void enqueue(struct udp_att *att, struct buf *b)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);
	struct vma_stats_socket *stats = s->stats;
	unsigned n = udp_count(b);
	uint64_t now;

	if (__builtin_expect(att->charge + b->total + (uint64_t)n * UDP_CHARGE > s->o.rcvbuf, 0)) {
		n = admit_some(s, att, b, n);
		if (!n) {
			buf_free(b);
			return;
		}
	}
	att->charge += b->total + (uint64_t)n * UDP_CHARGE;
	atomic_store_explicit(&att->queued, att->queued + n, memory_order_release);
	b->next = NULL;
	*att->tail = b;
	att->tail = &b->next;
	stats_add(&stats->rx_ready_packets, n);
	stats_add(&stats->rx_ready_bytes, b->total);
	/* Of a socket in several stacks each has its lock: a figure that races is a little off. */
	now = __atomic_load_n(&stats->rx_ready_packets, __ATOMIC_RELAXED);
	if (now > __atomic_load_n(&stats->rx_ready_packets_max, __ATOMIC_RELAXED))
		stats_set(&stats->rx_ready_packets_max, now);
	now = __atomic_load_n(&stats->rx_ready_bytes, __ATOMIC_RELAXED);
	if (now > __atomic_load_n(&stats->rx_ready_bytes_max, __ATOMIC_RELAXED))
		stats_set(&stats->rx_ready_bytes_max, now);
	vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
}

/*
 * A copy of b's datagram on the heap, for one more receiver of a multicast; NULL when memory is
 * out.
 */
static struct buf *copy_of(const struct buf *b)
{
	struct buf *c = buf_heap_alloc(b->total);
	uint8_t *to;

	if (!c)
		return NULL;
	to = c->data;
	c->meta = b->meta;
	c->gso_size = b->gso_size;
	c->time_ns = b->time_ns;
	c->hw_ns = b->hw_ns;
	c->flags = b->flags;
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

void udp_input(struct stack *st, struct buf *b, uint64_t *now_us)
{
	struct udp_bind *bind;

	(void)now_us;
	/* The parser may have cut the frame down to what its headers say. */
	if (__builtin_expect(b->gso_size, 0) && b->gso_size >= b->total)
		b->gso_size = 0;
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
