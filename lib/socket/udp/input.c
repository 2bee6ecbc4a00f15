/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the gate into a socket's queue. The stack's lock is held throughout. */
#include <stdlib.h>
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

	if (!att->charge && !fit)
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
	if (att->held > limit / 2)
		udp_held_too_long(s);
	return (unsigned)fit;
}

/* Can be read from now on: n datagrams in b, charged. */
static inline void queue_add(struct udp_sock *s, struct udp_att *att, struct buf *b, unsigned n)
{
	struct vma_stats_socket *stats = s->stats;
	uint64_t now;

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

/* The same, but it cannot be read: the callback, or a completion, comes first. */
static __attribute__((noinline)) void queue_unshown(struct udp_sock *s, struct udp_att *att,
						    struct buf *b)
{
	if (!att->cb.fn) {
		udp_completion_add(att, b);
		return;
	}
	udp_unshown_add(att, b);
	/* Whoever waits runs the callback. */
	vfd_notify(&s->v, EPOLLIN | EPOLLRDNORM);
}

/* For SO_RXQ_OVFL, which is to say where in the queue something is missing. */
static void note_drops(const struct udp_sock *s, struct buf *b)
{
	b->seq = (uint32_t)atomic_load_explicit(&s->drops, memory_order_relaxed);
	b->flags |= BUF_DROPS;
}

static void enqueue(struct udp_att *att, struct buf *b)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);
	unsigned n = udp_count(b);

	if (__builtin_expect(s->o.rxq_ovfl, 0))
		note_drops(s, b);
	if (__builtin_expect(att->charge + b->total + (uint64_t)n * UDP_CHARGE > s->o.rcvbuf, 0)) {
		n = admit_some(s, att, b, n);
		if (!n) {
			buf_free(b);
			return;
		}
	}
	att->charge += b->total + (uint64_t)n * UDP_CHARGE;
	if (__builtin_expect(att->queues_unshown, 0)) {
		queue_unshown(s, att, b);
		return;
	}
	queue_add(s, att, b, n);
}

void udp_queue_add(struct udp_att *att, struct buf *b)
{
	queue_add(atomic_load_explicit(&att->s, memory_order_relaxed), att, b, udp_count(b));
}

void udp_queue_first(struct udp_att *att, struct buf *b)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);

	att->charge += b->total + UDP_CHARGE;
	b->next = att->head;
	if (!att->head)
		att->tail = &b->next;
	att->head = b;
	atomic_store_explicit(&att->queued, att->queued + 1, memory_order_release);
	stats_add(&s->stats->rx_ready_packets, 1);
	stats_add(&s->stats->rx_ready_bytes, b->total);
}

/* The first n bytes of b's payload. */
static void copy_first(const struct buf *b, size_t n, uint8_t *to)
{
	for (size_t part; b && n; b = b->frag, to += part, n -= part) {
		part = b->len < n ? b->len : n;
		memcpy(to, b->data, part);
	}
}

struct buf *udp_copy_of(const struct buf *b, uint32_t n)
{
	struct buf *c = buf_heap_alloc(n);

	if (!c)
		return NULL;
	c->meta = b->meta;
	c->gso_size = b->gso_size;
	c->time_ns = b->time_ns;
	c->hw_ns = b->hw_ns;
	c->flags = b->flags;
	c->seq = b->seq;
	c->len = c->total = n;
	copy_first(b, n, c->data);
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
			copy = udp_copy_of(b, b->total);
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

/* The same as below of one attachment, its stack locked. False: fn has said so. */
static bool take_of(struct udp_sock *s, struct udp_att *att, uint8_t *room,
		    bool (*fn)(const struct buf_meta *m, const void *data, size_t len, void *arg),
		    void *arg)
{
	struct buf *b;

	while ((b = att->head) != NULL) {
		size_t len = b->gso_size ? b->gso_size : b->total;

		if (len > UDP_PAYLOAD_MAX)
			return false;
		copy_first(b, len, room);
		if (!fn(&b->meta, room, len, arg))
			return false;
		/* Older than what stays here. The worker, which would tell, may be who does this.
		 */
		atomic_store_explicit(&s->kernel_has_older, true, memory_order_relaxed);
		atomic_fetch_or_explicit(&s->v.os_events, EPOLLIN, memory_order_release);
		if (b->gso_size)
			udp_burst_step(s, att);
		else
			buf_free(udp_dequeue(s, att));
	}
	return true;
}

void udp_take_queued(struct udp_sock *s,
		     bool (*fn)(const struct buf_meta *m, const void *data, size_t len, void *arg),
		     void *arg)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);
	uint8_t *room = n ? malloc(UDP_PAYLOAD_MAX) : NULL;
	bool more = room != NULL;

	atomic_fetch_add(&s->givings, 1);
	for (unsigned i = 0; more && i < n; i++) {
		struct stack *st = udp_att(s, i)->st;

		if (lock_mine(&st->lock))
			continue;
		lock_take(&st->lock);
		more = take_of(s, udp_att(s, i), room, fn, arg);
		lock_drop(&st->lock);
	}
	atomic_fetch_add(&s->givings, 1);
	free(room);
}

void udp_att_flush(struct udp_att *att)
{
	struct udp_sock *s = atomic_load_explicit(&att->s, memory_order_relaxed);

	while (att->head)
		buf_free(udp_dequeue(s, att));
	udp_unshown_flush(att);
}
