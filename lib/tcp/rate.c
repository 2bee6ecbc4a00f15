/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How fast the path delivers (draft-cheng-iccrg-delivery-rate-estimation): each segment remembers
 * how much had been delivered when it left, so its acknowledgement says how much arrived in
 * between. The time of that is the longer of the two in which it was sent and was acknowledged:
 * neither a burst nor acknowledgements that come together look like a fast path. Times are the low
 * bits of microseconds.
 */
#include "tcp/recovery/loss.h"

void tcp_rate_sent(struct tcp_conn *c, struct tcp_seg *s)
{
	uint32_t now = (uint32_t)c->ts->now;

	/* A flight begins: no time was spent before it. */
	if (!c->segq.packets_out)
		c->rate_first_us = c->rate_delivered_us = now;
	s->first_us = c->rate_first_us;
	s->delivered_us = c->rate_delivered_us;
	s->delivered = c->delivered;
	s->flags &= (uint8_t)~SEG_APP_LIMITED;
	if (c->app_limited)
		s->flags |= SEG_APP_LIMITED;
}

/* s left after the one that the sample is of so far. */
static bool later(const struct tcp_rate *r, const struct tcp_seg *s)
{
	if (s->delivered != r->prior_delivered)
		return seq_after(s->delivered, r->prior_delivered);
	return s->sent_us > r->sent_us ||
	       (s->sent_us == r->sent_us && seq_after(s->end_seq, r->end_seq));
}

void tcp_rate_delivered(struct tcp_conn *c, struct tcp_rate *r, const struct tcp_seg *s)
{
	c->rate_delivered_us = (uint32_t)c->ts->now;
	if ((s->flags & SEG_SYN) || (r->any && !later(r, s)))
		return;
	*r = (struct tcp_rate){.any = true,
			       .app_limited = s->flags & SEG_APP_LIMITED,
			       .prior_delivered = s->delivered,
			       .prior_us = s->delivered_us,
			       .interval_us = (uint32_t)s->sent_us - s->first_us,
			       .end_seq = s->end_seq,
			       .sent_us = s->sent_us};
	c->rate_first_us = (uint32_t)s->sent_us;
}

/* Slower than what TCP_INFO says already, by products: a / b < c / d. */
static bool slower(const struct tcp_conn *c, const struct tcp_rate *r)
{
	return (uint64_t)r->delivered * c->rate_interval_us <
	       (uint64_t)c->rate_delivered * r->interval_us;
}

void tcp_rate_finish(struct tcp_conn *c, struct tcp_rate *r)
{
	uint32_t acked_us = c->rate_delivered_us - r->prior_us;

	if (c->app_limited && seq_after(c->delivered, c->app_limited))
		c->app_limited = 0;
	if (!r->any)
		return;
	r->delivered = c->delivered - r->prior_delivered;
	if (acked_us > r->interval_us)
		r->interval_us = acked_us;
	/* Less than a round trip: something was acknowledged that had not arrived before. */
	if (!r->delivered || !r->interval_us || r->interval_us < c->rtt.min_us) {
		r->interval_us = 0;
		return;
	}
	/* What the program did not use says nothing of the path, unless it is more. */
	if (r->app_limited && c->rate_interval_us && slower(c, r))
		return;
	c->rate_delivered = r->delivered;
	c->rate_interval_us = r->interval_us;
	c->rate_app_limited = r->app_limited;
}

void tcp_rate_set_limited(struct tcp_conn *c)
{
	uint32_t end = c->delivered + tcp_in_flight(c);

	c->app_limited = end ? end : 1;
}

void tcp_rate_check_limited(struct tcp_conn *c)
{
	if (c->write_seq - c->snd_nxt >= c->mss || tcp_in_flight(c) >= c->cc.cwnd ||
	    c->segq.lost_out > c->segq.retrans_out)
		return;
	tcp_rate_set_limited(c);
}

uint64_t tcp_rate(const struct tcp_conn *c)
{
	if (!c->rate_interval_us)
		return 0;
	return (uint64_t)c->rate_delivered * c->mss * 1000000 / c->rate_interval_us;
}
