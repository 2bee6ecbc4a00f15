/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The acknowledgement field and what follows from it, in the order of RFC 9293, 3.10.7.4, and
 * Linux's tcp_ack().
 */
#include "tcp/recovery/loss.h"

/* --- the window */

/* RFC 9293, 3.10.7.4: SND.WL1/WL2; as Linux, which also believes a window that is closed. */
static void update_window(struct tcp_conn *c, struct tcp_acking *a)
{
	const struct tcp_rx *rx = a->rx;
	uint32_t wnd = rx->flags & TCPHDR_SYN ? rx->wnd : rx->wnd << c->snd_wscale;

	if (!(a->flags & ACK_ADVANCED) && !seq_after(rx->seq, c->snd_wl1) &&
	    !(rx->seq == c->snd_wl1 && (wnd > c->snd_wnd || !wnd)))
		return;
	a->flags |= ACK_WINDOW;
	c->snd_wl1 = rx->seq;
	c->snd_wnd = wnd;
	if (wnd > c->max_wnd) {
		c->max_wnd = wnd;
		tcp_sync_mss(c); /* half of it bounds the MSS */
	}
}

/* --- the queue */

/* s, all of it, is acknowledged. */
static void seg_acked(struct tcp_conn *c, struct tcp_acking *a, struct tcp_seg *s)
{
	a->acked += s->pcount;
	a->flags |= ACK_ACKED;
	if (s->flags & SEG_EVER_RETRANS) {
		a->flags |= ACK_RETRANS_ACKED;
	} else if (!(s->flags & SEG_SACKED)) {
		a->last_sent = s->sent_us;
		if (!a->first_sent)
			a->first_sent = s->sent_us;
		if (seq_before(s->seq, a->prior_fack) && !a->has_reord) {
			a->has_reord = true;
			a->reord = s->seq;
		}
		if (seq_leq(s->end_seq, c->high_seq))
			a->flags |= ACK_ORIG_ACKED;
	}
	if (!(s->flags & SEG_SACKED))
		tcp_rate_delivered(c, &a->rate, s);
	if (!(s->flags & SEG_SACKED) && c->sack_ok) {
		c->delivered += s->pcount;
		tcp_rack_advance(c, s, a->rx);
	}
	if (c->rtx_hint == s)
		c->rtx_hint = s->next;
	tcp_segq_pop(&c->segq, &c->ts->env);
}

/* The front of s is acknowledged: whole wire segments of a larger transmission. */
static void front_acked(struct tcp_conn *c, struct tcp_acking *a, struct tcp_seg *s)
{
	uint32_t was = s->pcount;

	tcp_seg_resize(c, s, c->snd_una, s->mss ? s->mss : c->mss);
	was -= s->pcount;
	if (!was)
		return;
	a->acked += was;
	a->flags |= ACK_ACKED;
	if (s->flags & SEG_EVER_RETRANS) {
		a->flags |= ACK_RETRANS_ACKED;
	} else {
		a->last_sent = s->sent_us;
		if (!a->first_sent)
			a->first_sent = s->sent_us;
		if (seq_leq(c->snd_una, c->high_seq))
			a->flags |= ACK_ORIG_ACKED;
	}
	if (s->flags & SEG_SACKED)
		return;
	tcp_rate_delivered(c, &a->rate, s);
	if (c->sack_ok)
		c->delivered += was;
}

/*
 * RTT (RFC 6298; Karn: of what was sent once, else by the echoed time stamp, RFC 7323) and with it
 * the timeout without back-off.
 */
static void update_rtt(struct tcp_conn *c, struct tcp_acking *a)
{
	uint64_t now = c->ts->now, sent = 0, rtt;
	const struct tcp_rx *rx = a->rx;

	if (a->first_sent && !(a->flags & ACK_RETRANS_ACKED))
		sent = a->first_sent;
	else if (a->sack_sent)
		sent = a->sack_sent;
	if (sent) {
		rtt = now - sent;
	} else if ((a->flags & ACK_ACKED) && c->ts_ok && rx->has_ts && rx->tsecr) {
		uint32_t ms = tcp_ts_now(c) - rx->tsecr;

		if (ms > TCP_RTO_MAX_US / 1000)
			return; /* not an echo of ours */
		rtt = ms ? (uint64_t)ms * 1000 : 1000;
	} else {
		return;
	}
	tcp_rtt_sample(&c->rtt, rtt < UINT32_MAX ? (uint32_t)rtt : UINT32_MAX, c->snd_una,
		       c->snd_nxt, tcp_min_rto(c), now);
	c->backoff = 0;
}

static void clean_queue(struct tcp_conn *c, struct tcp_acking *a)
{
	struct tcp_seg *s;

	while ((s = c->segq.head) && seq_leq(s->end_seq, c->snd_una))
		seg_acked(c, a, s);
	if (s && seq_before(s->seq, c->snd_una))
		front_acked(c, a, s);
	if (c->ext && c->ext->probe.size && seq_geq(c->snd_una, c->ext->probe.end))
		tcp_mtu_probe_arrived(c);
	if (seq_before(c->fack, c->snd_una))
		c->fack = c->snd_una;
	if (!s && c->spends)
		tcp_spends_no_more(c, TCP_SPENDS_BUSY);
	if (a->flags & ACK_ACKED) {
		a->flags |= ACK_REARM;
		if (!c->sack_ok)
			tcp_reno_acked(c, a->acked);
		else if (a->has_reord)
			tcp_saw_reordering(c, a->reord);
	}
	/*
	 * A SACK of what left after the head last did: the timeout counts from now, or it would
	 * never end.
	 */
	if (a->sack_sent && s && a->sack_sent > s->sent_us)
		a->flags |= ACK_REARM;
	update_rtt(c, a);
}

/* --- what follows */

/* Slow start watches the time of the newest segment: a delayed acknowledgement is no queue. */
static void watch_rtt(struct tcp_conn *c, const struct tcp_acking *a)
{
	uint64_t took = c->ts->now - a->last_sent;
	struct tcp_cc_rtt rtt = {.now = c->ts->now,
				 .min_us = c->rtt.min_us,
				 .snd_una = c->snd_una,
				 .snd_nxt = c->snd_nxt,
				 .paced = tcp_pacing_rate(c) != UINT64_MAX};

	if (!a->last_sent || (a->flags & ACK_RETRANS_ACKED))
		return;
	rtt.us = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
	tcp_cc_of(c)->rtt(&c->cc, &rtt);
}

/* Slow start and avoidance, when the window was what limited (RFC 7661). */
static void grow_cwnd(struct tcp_conn *c, uint32_t acked)
{
	if (!c->cwnd_limited && !(c->cc.cwnd < c->cc.ssthresh && c->cc.cwnd < 2 * c->max_out))
		return;
	tcp_cc_of(c)->acked(&c->cc, acked, tcp_srtt(c), c->ts->now);
	c->cwnd_stamp = c->ts->now;
}

/* An algorithm that makes a model of the path. */
static void update_model(struct tcp_conn *c, const struct tcp_acking *a)
{
	uint64_t sent = a->flags & ACK_RETRANS_ACKED ? 0 : a->last_sent;
	uint64_t rtt = c->ts->now - (sent ? sent : a->sack_sent);
	struct tcp_cc_ack ack = {
		.now = c->ts->now,
		.srtt_us = tcp_srtt(c),
		.mss = c->mss,
		.app_limited = a->rate.app_limited,
		.ca_state = c->ca_state,
		.delivered = c->delivered,
		.acked = c->delivered - a->prior_delivered,
		.lost = c->lost - a->prior_lost,
		.flight = tcp_in_flight(c),
		.prior_flight = a->prior_flight,
		.gso_segs = c->gso_len / c->mss,
		.sample = a->rate.delivered,
		.interval_us = a->rate.interval_us,
		.prior_delivered = a->rate.prior_delivered,
	};

	if (sent || a->sack_sent)
		ack.rtt_us = rtt < UINT32_MAX ? (uint32_t)rtt + !rtt : UINT32_MAX;
	if (tcp_cc_of(c)->control(&c->cc, &ack))
		tcp_rate_set_limited(c);
}

static void control_congestion(struct tcp_conn *c, const struct tcp_acking *a)
{
	uint32_t delivered = c->delivered - a->prior_delivered;

	if (tcp_cc_of(c)->control) {
		update_model(c, a);
		return;
	}
	if (tcp_in_reduction(c)) {
		tcp_prr(c, delivered, c->lost - a->prior_lost, a->flags & ACK_ADVANCED);
		return;
	}
	if (c->cc.cwnd < c->cc.ssthresh && tcp_cc_of(c)->rtt)
		watch_rtt(c, a);
	if (delivered &&
	    (a->flags & (ACK_ACKED | (c->reordering > TCP_REORDERING ? ACK_SACKED : 0))))
		grow_cwnd(c, delivered);
}

/* Linux's tcp_sndbuf_expand(): two or three windows' worth, with what a segment costs besides its
 * bytes. */
void tcp_sndbuf_expand(struct tcp_conn *c)
{
	uint64_t want;

	if (c->o.sndbuf >= c->o.sndbuf_max || tcp_in_flight(c) >= c->cc.cwnd)
		return;
	want = c->cc.cwnd > TCP_INIT_CWND ? c->cc.cwnd : TCP_INIT_CWND;
	/* A model does not take a full window for a full path: it wants more to send at hand. */
	want *= (tcp_cc_of(c)->control ? 3 : 2) * ((uint64_t)c->mss + 512);
	if (want > c->o.sndbuf_max)
		want = c->o.sndbuf_max;
	if (want > c->o.sndbuf)
		c->o.sndbuf = (uint32_t)want;
}

/* snd_una moves to ack. */
static void advance(struct tcp_conn *c, uint32_t ack)
{
	/* Our SYN and FIN count, as in Linux: the peer may repeat the number that it had before. */
	c->bytes_acked += ack - c->snd_una;
	c->snd_una = ack;
	tcp_sndq_ack(&c->sndq, &c->ts->env, ack);
	c->retries = 0;
	c->probe_stamp = 0;
	if (c->snd_urg && seq_geq(ack, c->snd_up))
		c->snd_urg = false;
	if (c->fin_sent && ack == c->write_seq + 1)
		c->fin_acked = true;
}

/* Nothing is in flight: the ACK answers a probe, or opens the window (Linux: tcp_ack_probe()). */
static void probe_answered(struct tcp_conn *c)
{
	if (c->pending != TCP_PENDING_PROBE || !tcp_unsent(c) ||
	    seq_geq(c->snd_nxt, tcp_wnd_end(c)))
		return;
	c->backoff = 0;
	c->probe_stamp = 0;
}

/* An acknowledgement older than snd_una is good for its SACK blocks only. */
static void old_ack(struct tcp_conn *c, struct tcp_acking *a)
{
	if (!c->sack_ok || !a->rx->num_sacks || !c->segq.packets_out)
		return;
	tcp_sack_input(c, a);
	tcp_recovery_input(c, a);
	if (tcp_in_reduction(c))
		tcp_prr(c, c->delivered - a->prior_delivered, c->lost - a->prior_lost, false);
	tcp_mark_dirty(c);
}

/* The steps that only something out of the ordinary asks for. */
static void slow_path(struct tcp_conn *c, struct tcp_acking *a)
{
	if (c->tlp_out)
		tcp_tlp_ack(c, a);
	if ((a->flags & ACK_NOT_DUP) && !(a->flags & (ACK_SACKED | ACK_ECE | ACK_DSACK)) &&
	    c->ca_state == TCPCA_OPEN)
		return;
	a->dup = !(a->flags & (ACK_ADVANCED | ACK_NOT_DUP | ACK_DSACK)) && c->segq.packets_out;
	tcp_recovery_input(c, a);
}

/* Our SYN is acknowledged: what the handshake took away from the window. */
static void syn_acked(struct tcp_conn *c)
{
	c->lsndtime = c->cwnd_stamp = c->ts->now;
	c->ca_state = TCPCA_OPEN;
	c->retrans_stamp = 0;
	c->can_undo = c->frto = false;
	tcp_rto_over(c);
	/* RFC 6298, 5.7: a SYN that was lost more than once leaves one segment. */
	c->cc.cwnd = 0;
	tcp_cc_of(c)->init(&c->cc);
	tcp_first_cwnd(c);
	if (c->total_retrans > 1 && c->o.cc != TCP_CC_NONE)
		c->cc.cwnd = 1;
}

/* An ACK while nothing was out: of a probe, or of the tail that a probe repeated. */
static void nothing_in_flight(struct tcp_conn *c, struct tcp_acking *a)
{
	probe_answered(c);
	if (c->tlp_out)
		tcp_tlp_ack(c, a);
	if (a->flags & ACK_DSACK) {
		tcp_rack_update_window(c, a);
		tcp_recovery_input(c, a);
	}
	if (tcp_unsent(c))
		tcp_mark_dirty(c);
}

void tcp_ack_input(struct tcp_conn *c, const struct tcp_rx *rx)
{
	struct tcp_acking a = {
		.rx = rx,
		.prior_una = c->snd_una,
		.prior_delivered = c->delivered,
		.prior_lost = c->lost,
		.prior_flight = tcp_in_flight(c),
		.prior_fack = c->segq.sacked_out ? c->fack : c->snd_una,
	};
	bool in_flight = c->segq.packets_out;
	/* Not by numbers: after 4 GiB iss is one of the stream's. */
	bool syn = c->segq.head && (c->segq.head->flags & SEG_SYN);
	bool odd = c->ca_state | rx->num_sacks | c->tlp_out | (rx->flags & TCPHDR_ECE);

	if (rx->len)
		a.flags |= ACK_DATA;
	if (seq_before(rx->ack, c->snd_una)) {
		old_ack(c, &a);
		return;
	}
	if (seq_after(rx->ack, c->snd_nxt))
		return;
	if (rx->ack != c->snd_una)
		a.flags |= ACK_ADVANCED;
	update_window(c, &a);
	if (a.flags & ACK_ADVANCED)
		advance(c, rx->ack);
	c->rcv_tstamp = c->ts->now;
	c->soft_error = 0;
	c->probes = 0;
	if (rx->num_sacks && c->sack_ok)
		tcp_sack_input(c, &a);
	if ((rx->flags & (TCPHDR_ECE | TCPHDR_SYN)) == TCPHDR_ECE && c->ecn_ok)
		a.flags |= ACK_ECE;
	if (!in_flight) {
		nothing_in_flight(c, &a);
		return;
	}
	clean_queue(c, &a);
	if (syn && (a.flags & ACK_ADVANCED)) {
		syn_acked(c);
		odd = false;
	}
	if (odd || !(a.flags & ACK_NOT_DUP)) {
		tcp_rack_update_window(c, &a);
		slow_path(c, &a);
	}
	if (a.flags & ACK_REARM)
		tcp_rearm_rtx(c);
	tcp_rate_finish(c, &a.rate);
	if ((a.flags & ACK_ECE) && c->delivered != a.prior_delivered && tcp_conn_ext(c))
		c->ext->delivered_ce += c->delivered - a.prior_delivered;
	if (!syn)
		control_congestion(c, &a);
	if (a.flags & ACK_ADVANCED) {
		tcp_sndbuf_expand(c);
		if (c->nospace)
			tcp_tell_space(c);
		if (c->mtu_stamp)
			tcp_mtu_recheck(c);
	}
	if (tcp_unsent(c) || c->segq.lost_out > c->segq.retrans_out)
		tcp_mark_dirty(c);
}

void tcp_ack_syn(struct tcp_conn *c, uint32_t rtt_us)
{
	if (rtt_us)
		tcp_rtt_sample(&c->rtt, rtt_us, c->snd_una, c->snd_nxt, tcp_min_rto(c), c->ts->now);
	c->rcv_tstamp = c->ts->now;
}
