/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The SACK option on the sender's side: the scoreboard (RFC 2018, 6675), D-SACK (RFC 2883, 3708),
 * reordering.
 */
#include "tcp/recovery/loss.h"

/* Something that was in flight: the only kind of block that says anything about the queue. */
static bool valid_block(const struct tcp_conn *c, const struct tcp_sack_block *b)
{
	return seq_before(b->start, b->end) && seq_after(b->start, c->snd_una) &&
	       !seq_after(b->end, c->snd_nxt);
}

/* RFC 2883, 4: the first block repeats what is acknowledged already, or part of the second. */
static bool is_dsack(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	const struct tcp_sack_block *b = rx->sack;

	if (!seq_before(b->start, b->end) || seq_after(b->end, c->snd_nxt))
		return false;
	if (seq_before(b->start, rx->ack))
		return true;
	return rx->num_sacks > 1 && seq_leq(b->end, b[1].end) && seq_geq(b->start, b[1].start);
}

/* Whether a D-SACK is of this undo's retransmissions, and could be true at all. */
static bool of_undo(const struct tcp_conn *c, const struct tcp_sack_block *b)
{
	return c->can_undo && c->undo_retrans > 0 && seq_after(b->end, c->undo_marker);
}

static void dsack_input(struct tcp_conn *c, struct tcp_acking *a)
{
	const struct tcp_sack_block *b = a->rx->sack;
	uint32_t len = b->end - b->start, n = 1;

	if (len > c->max_wnd)
		return;
	if (len > c->mss)
		n = (len + c->mss - 1) / c->mss;
	else if (c->tlp_out && c->tlp_end_seq == b->end)
		a->flags |= ACK_DSACK_TLP;
	c->ts->n.dsack_recv++;
	c->dsack_dups += n;
	/* More than we ever sent twice: the network duplicates, or the peer lies. */
	if (c->dsack_dups > c->total_retrans)
		return;
	a->flags |= ACK_DSACK;
	if (!(a->flags & ACK_DSACK_TLP))
		c->rack_dsack_seen = true;
	c->delivered += n;
	if (of_undo(c, b))
		c->undo_retrans = c->undo_retrans > (int32_t)n ? c->undo_retrans - (int32_t)n : 0;
}

/* s, not SACKED yet, has arrived, the peer says. */
static void sack_seg(struct tcp_conn *c, struct tcp_acking *a, struct tcp_seg *s)
{
	tcp_rack_advance(c, s, a->rx);
	tcp_rate_delivered(c, &a->rate, s);
	if (!(s->flags & SEG_EVER_RETRANS)) {
		if (seq_before(s->seq, a->prior_fack) &&
		    (!a->has_reord || seq_before(s->seq, a->reord))) {
			a->has_reord = true;
			a->reord = s->seq;
		}
		if (seq_leq(s->end_seq, c->high_seq))
			a->flags |= ACK_ORIG_ACKED;
		if (!a->sack_sent)
			a->sack_sent = s->sent_us;
	}
	/* A retransmission of what was not marked lost is taken to be still in flight. */
	tcp_segq_mark(&c->segq, s, SEG_SACKED, s->flags & SEG_LOST ? SEG_LOST | SEG_RETRANS : 0);
	c->delivered += s->pcount;
	c->fack = seq_max(c->fack, s->end_seq);
	a->flags |= ACK_SACKED;
}

/*
 * In as many pieces as pleases the peer, but not in more than what its window makes us keep anyway.
 * NULL: not split.
 */
static struct tcp_seg *split(struct tcp_conn *c, struct tcp_seg *s, uint32_t seq)
{
	if (c->segq.count >= 2 * tcp_max_segs(c))
		return NULL;
	return tcp_segq_split(&c->segq, &c->ts->env, s, seq);
}

/*
 * The part of s that [start, end) covers, in whole wire segments, as a seg of its own; NULL: none
 * (or no memory to split). s itself when all of it.
 */
static struct tcp_seg *covered(struct tcp_conn *c, struct tcp_seg *s, uint32_t start, uint32_t end)
{
	uint32_t skip = 0, cut;

	if (seq_after(start, s->seq)) {
		if (!s->mss)
			return NULL;
		skip = start - s->seq;
		skip += s->mss - 1;
		skip -= skip % s->mss;
		if (skip >= s->end_seq - s->seq)
			return NULL;
	}
	if (seq_before(end, s->end_seq)) {
		if (!s->mss)
			return NULL;
		cut = end - s->seq;
		cut -= cut % s->mss;
		if (cut <= skip || !split(c, s, s->seq + cut))
			return NULL;
	}
	return skip ? split(c, s, s->seq + skip) : s;
}

/*
 * What lies before `from` need not be walked; b covers the segment that this is in from its own
 * start on.
 */
static void sack_range(struct tcp_conn *c, struct tcp_acking *a, const struct tcp_sack_block *b,
		       uint32_t from)
{
	struct tcp_segq *q = &c->segq;
	struct tcp_seg *s = tcp_segq_unsacked(q, tcp_segq_find(q, from));

	while (s && seq_before(s->seq, b->end)) {
		struct tcp_seg *in = covered(c, s, b->start, b->end);

		if (in) {
			sack_seg(c, a, in);
			s = in;
		}
		s = tcp_segq_unsacked(q, s->next);
	}
}

/* What of b the last ACK had not said already. */
static void sack_block(struct tcp_conn *c, struct tcp_acking *a, const struct tcp_sack_block *b)
{
	uint32_t from = b->start;

	for (unsigned i = 0; i < c->num_sack_seen; i++) {
		const struct tcp_sack_block *old = &c->sack_seen[i];

		if (seq_geq(from, old->start) && seq_before(from, old->end))
			from = old->end;
	}
	if (seq_before(from, b->end))
		sack_range(c, a, b, from);
}

/* The blocks of this ACK are what need not be walked at the next. */
static void remember(struct tcp_conn *c, const struct tcp_sack_block *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		c->sack_seen[i] = b[i];
	c->num_sack_seen = (uint8_t)n;
}

void tcp_saw_reordering(struct tcp_conn *c, uint32_t low)
{
	uint32_t span = c->fack - low;

	if (!seq_before(low, c->fack))
		return;
	if (span > c->reordering * c->mss) {
		uint32_t n = (span + c->mss - 1) / c->mss;

		c->reordering = n < TCP_REORDERING_MAX ? n : TCP_REORDERING_MAX;
	}
	c->rack_reord = true;
	c->reord_seen++;
}

void tcp_sack_input(struct tcp_conn *c, struct tcp_acking *a)
{
	const struct tcp_rx *rx = a->rx;
	struct tcp_sack_block good[TCP_SACK_MAX];
	unsigned i = 0, n = 0;

	if (!c->segq.sacked_out) {
		c->fack = c->snd_una;
		c->num_sack_seen = 0;
	}
	if (is_dsack(c, rx)) {
		dsack_input(c, a);
		i = 1;
	}
	for (; i < rx->num_sacks; i++) {
		if (!valid_block(c, &rx->sack[i]))
			continue;
		sack_block(c, a, &rx->sack[i]);
		good[n++] = rx->sack[i];
	}
	if (n)
		remember(c, good, n);
	/* In Loss all that is outstanding is marked, so what comes late there says nothing. */
	if (a->has_reord && (c->ca_state != TCPCA_LOSS || c->can_undo))
		tcp_saw_reordering(c, a->reord);
}
