/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The retransmission queue and SACK scoreboard: one record for each transmission unit, in two
 * orders.
 */
#include "tcp/internal.h"

/* How many segments s is on the wire. */
static uint32_t count_wire(const struct tcp_seg *s)
{
	uint32_t payload = s->end_seq - s->seq - !!(s->flags & SEG_SYN) - !!(s->flags & SEG_FIN);

	if (!s->mss || payload <= s->mss)
		return 1;
	return (payload + s->mss - 1) / s->mss;
}

/* Adds s with its marks to the counts, or takes it out (sign -1). */
static void account(struct tcp_segq *q, const struct tcp_seg *s, uint8_t marks, int sign)
{
	uint32_t n = sign > 0 ? s->pcount : -s->pcount;

	if (marks & SEG_SACKED)
		q->sacked_out += n;
	if (marks & SEG_LOST)
		q->lost_out += n;
	if (marks & SEG_RETRANS)
		q->retrans_out += n;
}

/* Whether s is in the order of time: in flight, as far as is known. */
static bool in_time(uint8_t flags)
{
	return !(flags & SEG_SACKED) && (flags & (SEG_LOST | SEG_RETRANS)) != SEG_LOST;
}

/* After `after` in the order of time; NULL: to the front. */
static void time_insert(struct tcp_segq *q, struct tcp_seg *s, struct tcp_seg *after)
{
	s->tprev = after;
	s->tnext = after ? after->tnext : q->thead;
	if (s->tnext)
		s->tnext->tprev = s;
	else
		q->ttail = s;
	if (after)
		after->tnext = s;
	else
		q->thead = s;
}

static void time_remove(struct tcp_segq *q, struct tcp_seg *s)
{
	if (s->tprev)
		s->tprev->tnext = s->tnext;
	else
		q->thead = s->tnext;
	if (s->tnext)
		s->tnext->tprev = s->tprev;
	else
		q->ttail = s->tprev;
	s->tnext = s->tprev = NULL;
}

/*
 * To its place by the time it was sent: it was just sent again, so there is nothing to walk over.
 */
static void time_restore(struct tcp_segq *q, struct tcp_seg *s)
{
	struct tcp_seg *after = q->ttail;

	while (after && after->sent_us > s->sent_us)
		after = after->tprev;
	time_insert(q, s, after);
}

/* --- many at once into the order of time */

static bool earlier(const struct tcp_seg *a, const struct tcp_seg *b)
{
	return a->sent_us < b->sent_us || (a->sent_us == b->sent_us && seq_before(a->seq, b->seq));
}

/* Two lists in order, linked by tnext, into one. */
static struct tcp_seg *merge(struct tcp_seg *a, struct tcp_seg *b)
{
	struct tcp_seg *head = NULL, **to = &head;

	while (a && b) {
		struct tcp_seg **from = earlier(b, a) ? &b : &a;

		*to = *from;
		to = &(*to)->tnext;
		*from = *to;
	}
	*to = a ? a : b;
	return head;
}

/* Sorts a list linked by tnext: bin[i] is empty or holds 2^i of them. */
static struct tcp_seg *sort(struct tcp_seg *list)
{
	struct tcp_seg *bin[32] = {0}, *all = NULL;
	unsigned top = 0;

	while (list) {
		struct tcp_seg *run = list;
		unsigned i = 0;

		list = run->tnext;
		run->tnext = NULL;
		for (; bin[i]; bin[i++] = NULL)
			run = merge(bin[i], run);
		bin[i] = run;
		top = i < top ? top : i;
	}
	for (unsigned i = 0; i <= top; i++)
		all = merge(bin[i], all);
	return all;
}

void tcp_segq_unmark(struct tcp_segq *q, uint8_t mark)
{
	struct tcp_seg *back = NULL, **to = &back, *before = NULL;

	for (struct tcp_seg *s = q->head; s; s = s->next) {
		bool was = in_time(s->flags);

		if (!(s->flags & mark))
			continue;
		account(q, s, s->flags, -1);
		s->flags &= (uint8_t)~mark;
		account(q, s, s->flags, 1);
		if (was)
			continue;
		s->tnext = s->tprev = NULL;
		if (!in_time(s->flags))
			continue;
		*to = s;
		to = &s->tnext;
	}
	q->thead = merge(q->thead, sort(back));
	for (struct tcp_seg *s = q->thead; s; before = s, s = s->tnext)
		s->tprev = before;
	q->ttail = before;
}

/* --- by sequence */

static struct tcp_seg *seg_of(struct seq_node *n)
{
	_Static_assert(offsetof(struct tcp_seg, seq) - offsetof(struct tcp_seg, node) ==
			       offsetof(struct seq_node, seq),
		       "a segment's number is its node's");
	return n ? (struct tcp_seg *)((char *)n - offsetof(struct tcp_seg, node)) : NULL;
}

struct tcp_seg *tcp_segq_find(struct tcp_segq *q, uint32_t seq)
{
	/*
	 * Who SACKs nothing pays for no tree. Once there is one it lives until the queue is empty.
	 */
	if (!q->tree.root)
		for (struct tcp_seg *s = q->head; s; s = s->next)
			seq_tree_add(&q->tree, &s->node);
	return seg_of(seq_tree_find(&q->tree, seq));
}

struct tcp_seg *tcp_segq_unsacked(const struct tcp_segq *q, struct tcp_seg *s)
{
	struct tcp_seg *end = s, *stop, *next;

	if (!s)
		return NULL;
	while (end && (end->flags & SEG_SACKED))
		end = end->skip ? end->skip : end->next;
	/*
	 * The next look is shorter. What is SACKed stays so until tcp_segq_unmark() says otherwise
	 * of all.
	 */
	for (stop = end ? end : q->tail; s && s != stop; s = next) {
		next = s->skip ? s->skip : s->next;
		s->skip = stop;
	}
	return end;
}

static void seq_insert(struct tcp_segq *q, struct tcp_seg *s, struct tcp_seg *after)
{
	s->next = after ? after->next : q->head;
	if (!s->next)
		q->tail = s;
	if (after)
		after->next = s;
	else
		q->head = s;
	q->count++;
	if (q->tree.root)
		seq_tree_add(&q->tree, &s->node);
}

struct tcp_seg *tcp_seg_new(const struct tcp_env *env, uint32_t seq, uint32_t end_seq, uint16_t mss,
			    uint8_t flags, uint64_t now)
{
	struct tcp_seg *s = env->alloc(env->ctx, sizeof(*s));

	if (!s)
		return NULL;
	s->seq = seq;
	s->end_seq = end_seq;
	s->mss = mss;
	s->flags = flags;
	s->sent_us = now;
	s->pcount = count_wire(s);
	return s;
}

void tcp_segq_append(struct tcp_segq *q, struct tcp_seg *s)
{
	seq_insert(q, s, q->tail);
	if (in_time(s->flags))
		time_insert(q, s, q->ttail);
	q->packets_out += s->pcount;
	account(q, s, s->flags, 1);
}

struct tcp_seg *tcp_segq_add(struct tcp_segq *q, const struct tcp_env *env, uint32_t seq,
			     uint32_t end_seq, uint16_t mss, uint8_t flags, uint64_t now)
{
	struct tcp_seg *s = tcp_seg_new(env, seq, end_seq, mss, flags, now);

	if (s)
		tcp_segq_append(q, s);
	return s;
}

struct tcp_seg *tcp_segq_split(struct tcp_segq *q, const struct tcp_env *env, struct tcp_seg *s,
			       uint32_t seq)
{
	struct tcp_seg *half = env->alloc(env->ctx, sizeof(*half));

	if (!half)
		return NULL;
	*half = *s;
	half->seq = seq;
	half->flags = (uint8_t)(s->flags & ~SEG_SYN);
	half->pcount = count_wire(half);
	seq_insert(q, half, s);
	if (in_time(s->flags))
		time_insert(q, half, s);
	q->packets_out += half->pcount;
	account(q, half, half->flags, 1);

	account(q, s, s->flags, -1);
	q->packets_out -= s->pcount;
	s->end_seq = seq;
	s->flags &= (uint8_t) ~(SEG_FIN | SEG_PSH); /* they belong to the end */
	s->pcount = count_wire(s);
	q->packets_out += s->pcount;
	account(q, s, s->flags, 1);
	return half;
}

void tcp_segq_mark(struct tcp_segq *q, struct tcp_seg *s, uint8_t set, uint8_t clear)
{
	uint8_t was = s->flags, is = (uint8_t)((was | set) & ~clear);

	account(q, s, was, -1);
	account(q, s, is, 1);
	s->flags = is;
	if (in_time(was) && !in_time(is))
		time_remove(q, s);
	else if (!in_time(was) && in_time(is))
		time_restore(q, s);
}

void tcp_segq_sent(struct tcp_segq *q, struct tcp_seg *s, uint64_t now)
{
	s->sent_us = now;
	if (s->tries < UINT8_MAX)
		s->tries++;
	if (!in_time(s->flags))
		return;
	time_remove(q, s);
	time_insert(q, s, q->ttail);
}

void tcp_segq_pop(struct tcp_segq *q, const struct tcp_env *env)
{
	struct tcp_seg *s = q->head;

	account(q, s, s->flags, -1);
	q->packets_out -= s->pcount;
	if (in_time(s->flags))
		time_remove(q, s);
	if (q->tree.root)
		seq_tree_del(&q->tree, &s->node);
	q->head = s->next;
	if (!q->head)
		q->tail = NULL;
	q->count--;
	env->free(env->ctx, s, sizeof(*s));
}

void tcp_segq_clear(struct tcp_segq *q, const struct tcp_env *env)
{
	while (q->head)
		tcp_segq_pop(q, env);
}
