/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The receive queues: what is in order (rcvq), and a sorted list of intervals that are not (ofo). A
 * buf stays whole as it came, with all its fragments, unless memory that it wastes begins to count.
 */
#include "tcp/internal.h"

#include <string.h>

#define RX_CHUNK 4096u /* what a fragment in a ring's memory occupies */
#define COLLAPSE_ROOM 16384u

uint32_t tcp_buf_charge(const struct buf *b)
{
	uint32_t sum = 0;

	for (; b; b = b->frag)
		sum += b->room ? b->room + (uint32_t)sizeof(*b) : RX_CHUNK;
	return sum;
}

struct buf *tcp_buf_trim_front(struct buf *b, uint32_t n)
{
	uint32_t seq = b->seq + n;

	if (n >= b->total) {
		buf_free(b);
		return NULL;
	}
	b = buf_skip(b, n);
	b->seq = seq;
	return b;
}

void tcp_buf_trim_tail(struct buf *b, uint32_t keep)
{
	b->total = keep;
	while (b->len < keep) {
		keep -= b->len;
		b = b->frag;
	}
	b->len = keep;
	buf_free(b->frag);
	b->frag = NULL;
}

static void copy_chain(uint8_t *to, const struct buf *b)
{
	for (; b; b = b->frag) {
		memcpy(to, b->data, b->len);
		to += b->len;
	}
}

/* An empty buf of the stack's own memory. */
static struct buf *own_buf(struct tcp_stack *ts, uint32_t room)
{
	void *(*alloc)(void *, size_t) = ts->env.alloc_raw ? ts->env.alloc_raw : ts->env.alloc;
	struct buf *b = alloc(ts->env.ctx, sizeof(*b) + room);

	if (!b)
		return NULL;
	*b = (struct buf){
		.data = (uint8_t *)(b + 1),
		.room = room,
		.refs = 1,
		.pool = &ts->pool,
	};
	return b;
}

/* What all that waits, and this much more, would occupy. */
static uint32_t used_with(const struct tcp_conn *c, uint32_t charge)
{
	return c->rcvq.charge + c->ofo_charge + charge;
}

/*
 * b occupies more than twice what it holds and there is so much waiting that it counts, or there is
 * no room for it.
 */
static bool wasteful(const struct tcp_conn *c, const struct buf *b, uint32_t charge)
{
	uint32_t used = used_with(c, charge);

	return used > c->o.rcvbuf || (charge / 2 > b->total && used > c->o.rcvbuf / 4);
}

/* --- in order */

/* The last buf, when it is our own and has room for len more. */
static struct buf *tail_with_room(const struct tcp_conn *c, uint32_t len)
{
	struct buf *b;

	if (!c->rcvq.head)
		return NULL;
	b = (struct buf *)((char *)c->rcvq.tail - offsetof(struct buf, next));
	if (b->pool != &c->ts->pool)
		return NULL;
	return (uint8_t *)(b + 1) + b->room - (b->data + b->len) >= (ptrdiff_t)len ? b : NULL;
}

static void append(struct tcp_conn *c, struct buf *b, uint32_t charge)
{
	b->next = NULL;
	*c->rcvq.tail = b;
	c->rcvq.tail = &b->next;
	c->rcvq.charge += charge;
	c->rcvq.count++;
}

/* Copies b behind the last bytes of the queue and frees it. False: no memory. */
static bool collapse(struct tcp_conn *c, struct buf *b)
{
	struct buf *to = tail_with_room(c, b->total);

	if (!to) {
		uint32_t used = used_with(c, sizeof(*to)), room = COLLAPSE_ROOM;

		if (room > c->o.rcvbuf / 4)
			room = c->o.rcvbuf / 4;
		if (used + room > c->o.rcvbuf)
			room = used < c->o.rcvbuf ? c->o.rcvbuf - used : 0;
		to = own_buf(c->ts, b->total > room ? b->total : room);
		if (!to)
			return false;
		to->seq = b->seq;
		append(c, to, tcp_buf_charge(to));
	}
	copy_chain(to->data + to->len, b);
	to->len += b->total;
	to->total += b->total;
	to->time_ns = b->time_ns; /* of the last byte, as Linux has it */
	c->ts->n.rcv_collapsed++;
	buf_free(b);
	return true;
}

void tcp_rcvq_add(struct tcp_conn *c, struct buf *b)
{
	uint32_t charge = tcp_buf_charge(b);

	b->seq = c->rcv_nxt;
	if (wasteful(c, b, charge) && collapse(c, b))
		return;
	append(c, b, charge);
}

bool tcp_rcvq_front_to_heap(struct tcp_conn *c)
{
	struct buf *b = c->rcvq.head, *own = buf_heap_alloc(b->total);

	if (!own)
		return false;
	copy_chain(own->data, b);
	own->len = own->total = b->total;
	own->seq = b->seq;
	own->time_ns = b->time_ns;
	own->next = b->next;
	c->rcvq.head = own;
	if (!own->next)
		c->rcvq.tail = &own->next;
	c->rcvq.charge += tcp_buf_charge(own) - tcp_buf_charge(b);
	buf_free(b);
	return true;
}

void tcp_rcvq_clear(struct tcp_conn *c)
{
	struct buf *b;

	while ((b = c->rcvq.head)) {
		c->rcvq.head = b->next;
		buf_free(b);
	}
	c->rcvq.tail = &c->rcvq.head;
	c->rcvq.charge = 0;
	c->rcvq.count = 0;
}

/* --- out of order */

static void ofo_free(struct tcp_conn *c, struct tcp_ofo *o)
{
	struct buf *b;

	while ((b = o->head)) {
		o->head = b->next;
		buf_free(b);
	}
	c->ofo_charge -= o->charge;
	c->ofo_count--;
	tcp_free(c->ts, o, sizeof(*o));
}

void tcp_ofo_clear(struct tcp_conn *c)
{
	struct tcp_ofo *o;

	while ((o = c->ofo)) {
		c->ofo = o->next;
		ofo_free(c, o);
	}
	c->ofo_tail = NULL;
	c->ofo_tree.root = NULL;
	c->num_recent = 0;
}

/* o has changed: its block is told first (RFC 2018, 4). */
static void touch(struct tcp_conn *c, const struct tcp_ofo *o)
{
	uint32_t keep[TCP_SACK_MAX];
	unsigned n = 0;

	keep[n++] = o->start;
	for (unsigned i = 0; i < c->num_recent && n < TCP_SACK_MAX; i++)
		if (!seq_between(c->sack_recent[i], o->start, o->end - 1))
			keep[n++] = c->sack_recent[i];
	memcpy(c->sack_recent, keep, n * sizeof(keep[0]));
	c->num_recent = (uint8_t)n;
}

static struct tcp_ofo *ofo_new(struct tcp_conn *c, uint32_t start)
{
	struct tcp_ofo *o = tcp_alloc(c->ts, sizeof(*o));

	if (!o) {
		c->ts->n.no_memory++;
		return NULL;
	}
	o->start = o->end = start;
	o->tail = &o->head;
	o->charge = sizeof(*o);
	c->ofo_charge += o->charge;
	c->ofo_count++;
	return o;
}

/* After prev (NULL: the first). */
static void ofo_link(struct tcp_conn *c, struct tcp_ofo *o, struct tcp_ofo *prev)
{
	o->prev = prev;
	o->next = prev ? prev->next : c->ofo;
	if (o->next)
		o->next->prev = o;
	else
		c->ofo_tail = o;
	if (prev)
		prev->next = o;
	else
		c->ofo = o;
	seq_tree_add(&c->ofo_tree, &o->node);
}

/* Off the list; its bufs stay. */
static void ofo_unlink(struct tcp_conn *c, struct tcp_ofo *o)
{
	seq_tree_del(&c->ofo_tree, &o->node);
	if (o->next)
		o->next->prev = o->prev;
	else
		c->ofo_tail = o->prev;
	if (o->prev)
		o->prev->next = o->next;
	else
		c->ofo = o->next;
}

static void ofo_drop(struct tcp_conn *c, struct tcp_ofo *o)
{
	ofo_unlink(c, o);
	ofo_free(c, o);
}

/* Drops the interval that lies last. */
static void ofo_drop_last(struct tcp_conn *c)
{
	ofo_drop(c, c->ofo_tail);
	c->ts->n.ofo_drop++;
}

/* Appends b (may be NULL) to o; where it wastes memory that counts, a tight copy. */
static void ofo_append(struct tcp_conn *c, struct tcp_ofo *o, struct buf *b)
{
	uint32_t charge;
	struct buf *own;

	if (!b)
		return;
	b->seq = o->end;
	charge = tcp_buf_charge(b);
	if (wasteful(c, b, charge) && (own = own_buf(c->ts, b->total))) {
		copy_chain(own->data, b);
		own->len = own->total = b->total;
		own->seq = b->seq;
		own->time_ns = b->time_ns;
		buf_free(b);
		b = own;
		charge = tcp_buf_charge(b);
		c->ts->n.rcv_collapsed++;
	}
	b->next = NULL;
	*o->tail = b;
	o->tail = &b->next;
	o->charge += charge;
	c->ofo_charge += charge;
}

/* next, which o touches, becomes part of o. */
static void ofo_merge(struct tcp_conn *c, struct tcp_ofo *o)
{
	struct tcp_ofo *next = o->next;

	o->end = next->end;
	o->fin = next->fin;
	if (next->head) {
		*o->tail = next->head;
		o->tail = next->tail;
	}
	o->charge += next->charge - (uint32_t)sizeof(*next);
	c->ofo_charge -= (uint32_t)sizeof(*next);
	c->ofo_count--;
	ofo_unlink(c, next);
	tcp_free(c->ts, next, sizeof(*next));
}

/*
 * The last interval that starts at or before seq, NULL: none. The common ones are the tail and
 * none.
 */
static struct tcp_ofo *ofo_before(struct tcp_conn *c, uint32_t seq)
{
	struct seq_node *n;

	_Static_assert(offsetof(struct tcp_ofo, start) - offsetof(struct tcp_ofo, node) ==
			       offsetof(struct seq_node, seq),
		       "an interval's start is its node's number");
	if (c->ofo_tail && seq_leq(c->ofo_tail->start, seq))
		return c->ofo_tail;
	n = seq_tree_find(&c->ofo_tree, seq);
	return n ? (struct tcp_ofo *)((char *)n - offsetof(struct tcp_ofo, node)) : NULL;
}

struct tcp_ofo *tcp_ofo_find(struct tcp_conn *c, uint32_t seq)
{
	struct tcp_ofo *o = ofo_before(c, seq);

	return o && seq_before(seq, o->end) ? o : NULL;
}

void tcp_rx_cut(struct tcp_rx *rx, uint32_t start, uint32_t end)
{
	uint32_t len;

	if (rx->end_seq != end) {
		rx->flags &= ~TCPHDR_FIN;
		rx->end_seq = end;
	}
	if (start != rx->seq && rx->b)
		rx->b = tcp_buf_trim_front(rx->b, start - rx->seq);
	rx->seq = start;
	len = rx->end_seq - rx->seq - !!(rx->flags & TCPHDR_FIN);
	if (rx->b && !len) {
		buf_free(rx->b);
		rx->b = NULL;
	} else if (rx->b && rx->b->total > len) {
		tcp_buf_trim_tail(rx->b, len);
	}
	rx->len = len;
}

/*
 * Takes away from rx what the intervals after prev have; those that rx covers go. False: nothing is
 * left.
 */
static bool cut_overlap(struct tcp_conn *c, struct tcp_ofo *prev, struct tcp_rx *rx)
{
	struct tcp_ofo *next;

	if (prev && seq_before(rx->seq, prev->end)) {
		uint32_t end = seq_min(rx->end_seq, prev->end);

		tcp_dsack_set(c, rx->seq, end);
		if (end == rx->end_seq) {
			touch(c, prev);
			return false;
		}
		tcp_rx_cut(rx, end, rx->end_seq);
	}
	if (prev && prev->fin) /* nothing lies behind the end of the stream */
		return false;
	while ((next = prev ? prev->next : c->ofo) && seq_before(next->start, rx->end_seq)) {
		if (next->fin && seq_after(rx->end_seq, next->end))
			tcp_rx_cut(rx, rx->seq, next->end);
		tcp_dsack_set(c, next->start, seq_min(rx->end_seq, next->end));
		if (seq_leq(rx->end_seq, next->end)) {
			tcp_rx_cut(rx, rx->seq, next->start);
			break;
		}
		ofo_drop(c, next);
	}
	return true;
}

void tcp_ofo_add(struct tcp_conn *c, struct tcp_rx *rx)
{
	struct tcp_ofo *prev = ofo_before(c, rx->seq), *o = prev;

	if (!cut_overlap(c, prev, rx))
		return;
	if (!prev || prev->end != rx->seq) {
		o = ofo_new(c, rx->seq);
		if (!o)
			return;
		ofo_link(c, o, prev);
	}
	ofo_append(c, o, rx->b);
	rx->b = NULL;
	o->end = rx->end_seq;
	o->fin = rx->flags & TCPHDR_FIN;
	/*
	 * What lies behind the end of the stream is none of it, and the FIN's number no byte of it.
	 */
	while (o->fin && o->next)
		ofo_drop(c, o->next);
	if (o->next && o->next->start == o->end)
		ofo_merge(c, o);
	touch(c, o);
	c->ts->n.ofo_queue++;
	if (c->ofo_count > TCP_OFO_MAX)
		ofo_drop_last(c);
}

/* The bufs of o from rcv_nxt on into the receive queue. */
static void ofo_deliver(struct tcp_conn *c, struct tcp_ofo *o)
{
	uint32_t end = o->end - o->fin;
	struct buf *b;

	while ((b = o->head)) {
		o->head = b->next;
		if (seq_before(b->seq, c->rcv_nxt))
			b = tcp_buf_trim_front(b, c->rcv_nxt - b->seq);
		if (!b)
			continue;
		c->rcv_nxt += b->total;
		append(c, b, tcp_buf_charge(b));
	}
	c->rcv_nxt = seq_max(c->rcv_nxt, end);
}

bool tcp_ofo_drain(struct tcp_conn *c)
{
	uint32_t from = c->rcv_nxt;
	struct tcp_ofo *o;
	bool fin = false;

	while (!fin && (o = c->ofo) && seq_leq(o->start, c->rcv_nxt)) {
		if (seq_before(o->start, c->rcv_nxt))
			tcp_dsack_set(c, o->start, seq_min(o->end, c->rcv_nxt));
		if (seq_after(o->end, c->rcv_nxt)) {
			ofo_deliver(c, o);
			fin = o->fin;
		}
		ofo_drop(c, o);
	}
	c->bytes_received += c->rcv_nxt - from;
	if (!c->ofo)
		c->num_recent = 0;
	return fin;
}

/* --- memory */

/*
 * Drops the intervals that lie last until need fits, but none that lies before seq (Linux:
 * tcp_prune_ofo_queue()).
 */
static bool prune(struct tcp_conn *c, uint32_t seq, uint32_t need)
{
	while (c->ofo_tail && seq_before(seq, c->ofo_tail->start)) {
		ofo_drop_last(c);
		if (used_with(c, need) <= c->o.rcvbuf)
			return true;
	}
	return false;
}

bool tcp_rcvq_admit(struct tcp_conn *c, const struct buf *b, uint32_t seq)
{
	uint32_t interval = seq != c->rcv_nxt ? (uint32_t)sizeof(struct tcp_ofo) : 0;
	uint32_t tight = b->total + (uint32_t)sizeof(*b) + interval;

	if (used_with(c, tcp_buf_charge(b) + interval) <= c->o.rcvbuf)
		return true;
	/* It will be copied. */
	if (seq == c->rcv_nxt && tail_with_room(c, b->total))
		return true;
	if (used_with(c, tight) <= c->o.rcvbuf || prune(c, seq, tight))
		return true;
	/* A reader that waits must get something, however small its buffer. */
	if (seq == c->rcv_nxt && !c->rcvq.head)
		return true;
	c->ts->n.rcvbuf_drop++;
	return false;
}
