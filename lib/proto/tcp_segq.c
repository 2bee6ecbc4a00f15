/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The retransmission queue and SACK scoreboard: one record for each transmission unit, in two orders. */
#include "proto/tcp_int.h"

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

/* Whether s is in the order of time: on its way, as far as is known. */
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

/* To its place by the time it was sent: the last one when it was just sent again, else (undo, reneging) a walk will do. */
static void time_restore(struct tcp_segq *q, struct tcp_seg *s)
{
	struct tcp_seg *after = q->ttail;

	while (after && (after->sent_us > s->sent_us ||
			 (after->sent_us == s->sent_us && seq_after(after->seq, s->seq))))
		after = after->tprev;
	time_insert(q, s, after);
}

static void seq_insert(struct tcp_segq *q, struct tcp_seg *s, struct tcp_seg *after)
{
	s->prev = after;
	s->next = after ? after->next : q->head;
	if (s->next)
		s->next->prev = s;
	else
		q->tail = s;
	if (after)
		after->next = s;
	else
		q->head = s;
}

struct tcp_seg *tcp_segq_add(struct tcp_segq *q, const struct tcp_env *env, uint32_t seq,
			     uint32_t end_seq, uint16_t mss, uint8_t flags, uint64_t now)
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
	seq_insert(q, s, q->tail);
	if (in_time(flags))
		time_insert(q, s, q->ttail);
	q->packets_out += s->pcount;
	account(q, s, flags, 1);
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

void tcp_segq_del(struct tcp_segq *q, const struct tcp_env *env, struct tcp_seg *s)
{
	account(q, s, s->flags, -1);
	q->packets_out -= s->pcount;
	if (in_time(s->flags))
		time_remove(q, s);
	if (s->prev)
		s->prev->next = s->next;
	else
		q->head = s->next;
	if (s->next)
		s->next->prev = s->prev;
	else
		q->tail = s->prev;
	env->free(env->ctx, s, sizeof(*s));
}

void tcp_segq_clear(struct tcp_segq *q, const struct tcp_env *env)
{
	while (q->head)
		tcp_segq_del(q, env, q->head);
}
