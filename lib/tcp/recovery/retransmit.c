/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sending again, and how fast: retransmissions from the queue, pacing. */
#include "tcp/recovery/loss.h"

/* Adds what s counts, or takes it out (sign -1). */
static void recount(struct tcp_segq *q, const struct tcp_seg *s, int sign)
{
	uint32_t n = sign > 0 ? s->pcount : -s->pcount;

	q->packets_out += n;
	if (s->flags & SEG_SACKED)
		q->sacked_out += n;
	if (s->flags & SEG_LOST)
		q->lost_out += n;
	if (s->flags & SEG_RETRANS)
		q->retrans_out += n;
}

void tcp_seg_resize(struct tcp_conn *c, struct tcp_seg *s, uint32_t seq, uint32_t mss)
{
	uint32_t len;

	recount(&c->segq, s, -1);
	s->seq = seq;
	s->mss = (uint16_t)mss;
	len = tcp_seg_payload(s);
	s->pcount = len > mss ? (len + mss - 1) / mss : 1;
	recount(&c->segq, s, 1);
}

/*
 * The most of s that may go now: segs wire segments, the peer's window (all of it closed: this is
 * its probe). 0: none.
 */
static uint32_t rtx_len(const struct tcp_conn *c, const struct tcp_seg *s, uint32_t segs)
{
	uint32_t len = tcp_seg_payload(s), end = tcp_wnd_end(c), room;
	/* A device that cuts a super-segment copies the urgent pointer, it does not move it. */
	uint32_t max = c->snd_urg ? c->mss : c->gso_len;

	if (seq_geq(s->seq, end) && s->seq != c->snd_una)
		return 0;
	room = seq_after(end, s->seq) ? end - s->seq : c->mss;
	if ((uint64_t)segs * c->mss < max)
		max = segs * c->mss;
	if (max > room)
		max = room > c->mss ? room - room % c->mss : room;
	return len < max ? len : max;
}

/* What s becomes after it was sent again. */
static void resent(struct tcp_conn *c, struct tcp_seg *s, bool probe)
{
	struct tcp_segq *q = &c->segq;

	/* The time first: so it finds its place in the order of time at the end. */
	tcp_segq_sent(q, s, c->ts->now);
	c->lsndtime = c->ts->now;
	tcp_rate_sent(c, s);
	tcp_segq_mark(q, s, SEG_EVER_RETRANS | (probe ? 0 : SEG_RETRANS), 0);
	c->total_retrans += s->pcount;
	c->ts->n.retrans_segs += s->pcount;
	if (tcp_conn_ext(c))
		c->ext->bytes_retrans += tcp_seg_payload(s);
	if (!c->retrans_stamp)
		c->retrans_stamp = c->ts->now;
	if (c->undo_retrans < 0)
		c->undo_retrans = 0;
	c->undo_retrans += (int32_t)s->pcount;
	if (tcp_in_reduction(c))
		c->prr_out += s->pcount;
}

int tcp_retransmit(struct tcp_conn *c, struct tcp_seg *s, uint32_t segs, bool probe)
{
	uint32_t payload, len;
	struct tcp_transmission xmit = {.seq = s->seq, .flags = TCPHDR_ACK};
	int err;

	/* Nobody will know what became of a larger segment that is under way. */
	if (c->ext)
		c->ext->probe.size = 0;
	if (s->mss > c->mss)
		tcp_seg_resize(c, s, s->seq, c->mss);
	payload = tcp_seg_payload(s);
	len = rtx_len(c, s, segs);
	if (payload && !len)
		return -EAGAIN;
	if (len < payload && !tcp_segq_split(&c->segq, &c->ts->env, s, s->seq + len)) {
		c->ts->n.no_memory++;
		return -ENOBUFS;
	}
	xmit.len = len;
	if (s->flags & SEG_PSH)
		xmit.flags |= TCPHDR_PSH;
	if (s->flags & SEG_FIN)
		xmit.flags |= TCPHDR_FIN;
	err = tcp_xmit(c, &xmit);
	if (err)
		return err;
	/*
	 * Sent in part only, and no memory to say so: then the whole counts as sent, and is found
	 * lost again.
	 */
	if (xmit.len < len)
		(void)tcp_segq_split(&c->segq, &c->ts->env, s, s->seq + xmit.len);
	resent(c, s, probe);
	return 0;
}

int tcp_retransmit_lost(struct tcp_conn *c)
{
	struct tcp_seg *s = c->rtx_hint ? c->rtx_hint : c->segq.head;
	int err = 0;

	for (; s && c->segq.lost_out > c->segq.retrans_out;
	     s = tcp_segq_unsacked(&c->segq, s->next)) {
		uint32_t flight = tcp_in_flight(c), segs;

		if ((s->flags & (SEG_LOST | SEG_RETRANS | SEG_SACKED)) != SEG_LOST)
			continue;
		if (flight >= c->cc.cwnd)
			break;
		segs = c->cc.cwnd - flight;
		if (tcp_pacing_rate(c) != UINT64_MAX) {
			uint32_t may = tcp_pace_allow(c) / c->mss;

			if (!may)
				break;
			segs = may < segs ? may : segs;
		}
		err = tcp_retransmit(c, s, segs, false);
		if (err)
			break;
		if (tcp_pacing_rate(c) != UINT64_MAX)
			tcp_pace_sent(c, tcp_seg_payload(s));
		if (c->ca_state != TCPCA_LOSS)
			c->ts->n.fast_retrans++;
		if (s == c->segq.head && c->pending != TCP_PENDING_REO)
			tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
	}
	c->rtx_hint = s ? s : c->segq.tail;
	return err == -ENOBUFS ? err : 0;
}

/*
 * --- pacing: a token that is as old as a millisecond's worth of the rate at most; older when data
 * waited for it, and nobody was there to send them at its time: processes sleep and wait for
 * processors
 */

#define CATCH_UP_US 5000u

uint32_t tcp_pace_allow(struct tcp_conn *c)
{
	uint64_t now = c->ts->now, burst = tcp_pacing_rate(c) / 1000;

	if (c->pace_next > now) {
		wheel_arm(&c->ts->wheel, &c->pace, c->pace_next);
		c->pace_waits = true;
		return 0;
	}
	if (burst < 2 * (uint64_t)c->mss)
		burst = 2 * (uint64_t)c->mss;
	if (burst > c->gso_len)
		return c->gso_len;
	return (uint32_t)(burst - burst % c->mss);
}

void tcp_pace_sent(struct tcp_conn *c, uint32_t len)
{
	uint64_t rate = tcp_pacing_rate(c) ? tcp_pacing_rate(c) : 1;
	uint64_t cost = (uint64_t)len * 1000000 / rate;

	/* A wait is counted from when the last one ended, unless the sender had nothing to send. */
	if (c->pace_waits) {
		if (c->pace_next + CATCH_UP_US < c->ts->now)
			c->pace_next = c->ts->now - CATCH_UP_US;
	} else if (c->pace_next + cost < c->ts->now) {
		c->pace_next = c->ts->now;
	}
	c->pace_next += cost;
	if (c->pace_next > c->ts->now)
		c->pace_waits = false;
}
