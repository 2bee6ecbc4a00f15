/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* RACK-TLP (RFC 8985): loss by the time of transmission, and the probe of a silent tail. */
#include "tcp/recovery/loss.h"

#define PERSIST 16 /* recoveries that a widened window lasts */
/* looked at for the reordering timer: it runs again for those behind them */
#define EARLY_MAX 32u

/* (t1, seq1) was sent after (t2, seq2). */
static bool sent_after(uint64_t t1, uint32_t seq1, uint64_t t2, uint32_t seq2)
{
	return t1 > t2 || (t1 == t2 && seq_after(seq1, seq2));
}

void tcp_rack_advance(struct tcp_conn *c, const struct tcp_seg *s, const struct tcp_rx *rx)
{
	uint64_t rtt = c->ts->now - s->sent_us;

	/* Step 2: the answer to an earlier transmission of it says nothing of this one. */
	if ((s->flags & SEG_EVER_RETRANS) &&
	    (tcp_echo_before(c, rx, s->sent_us) || rtt < c->rtt.min_us))
		return;
	c->rack_advanced = true;
	c->rack_rtt_us = rtt < UINT32_MAX ? (uint32_t)rtt : UINT32_MAX;
	if (sent_after(s->sent_us, s->end_seq, c->rack_mstamp, c->rack_end_seq)) {
		c->rack_mstamp = s->sent_us;
		c->rack_end_seq = s->end_seq;
	}
}

/*
 * The round in which a D-SACK has widened the window is not over: its end is in flight. An older
 * one's may lie 2 GiB back, where it seems to be ahead.
 */
static bool in_dsack_round(const struct tcp_conn *c)
{
	return seq_after(c->rack_dsack_round, c->snd_una) &&
	       seq_leq(c->rack_dsack_round, c->snd_nxt);
}

/* Step 4: a D-SACK widens the window, once a round trip; 16 recoveries without one narrow it. */
void tcp_rack_update_window(struct tcp_conn *c, const struct tcp_acking *a)
{
	if (a->prior_delivered == c->delivered)
		return;
	if (c->rack_dsack_seen && !in_dsack_round(c)) {
		c->rack_dsack_round = c->snd_nxt;
		if (c->rack_reo_steps < UINT8_MAX)
			c->rack_reo_steps++;
		c->rack_persist = PERSIST;
	} else if (!c->rack_persist) {
		c->rack_reo_steps = 1;
	}
	c->rack_dsack_seen = false;
}

static uint32_t reo_window(const struct tcp_conn *c)
{
	uint64_t w;

	if (!c->rack_reord &&
	    (c->ca_state >= TCPCA_RECOVERY || c->segq.sacked_out >= c->reordering))
		return 0;
	if (c->rtt.min_us == UINT32_MAX)
		return 0;
	w = (uint64_t)(c->rtt.min_us >> 2) * c->rack_reo_steps;
	return w < tcp_srtt(c) ? (uint32_t)w : tcp_srtt(c);
}

int64_t tcp_rack_left(const struct tcp_conn *c, const struct tcp_seg *s, uint32_t window)
{
	return (int64_t)((uint64_t)c->rack_rtt_us + window) - (int64_t)(c->ts->now - s->sent_us);
}

/* Step 5. Returns how long until the next may be late, 0: none will. */
static uint64_t mark_late(struct tcp_conn *c)
{
	uint32_t window = reo_window(c);
	struct tcp_seg *s, *next;
	unsigned early = 0;
	int64_t wait = 0;

	for (s = c->segq.thead; s && early < EARLY_MAX; s = next) {
		int64_t left;

		next = s->tnext;
		if (!sent_after(c->rack_mstamp, c->rack_end_seq, s->sent_us, s->end_seq))
			break;
		left = tcp_rack_left(c, s, window);
		if (left <= 0) {
			tcp_mark_lost(c, s);
			c->ts->n.rack_marks++;
		} else {
			early++;
			wait = left > wait ? left : wait;
		}
	}
	return (uint64_t)wait;
}

bool tcp_rack_detect(struct tcp_conn *c)
{
	uint64_t wait;

	if (!c->rack_advanced)
		return false;
	c->rack_advanced = false;
	wait = mark_late(c);
	if (wait)
		tcp_arm_rtx(c, TCP_PENDING_REO, wait);
	return wait != 0;
}

/* The timeout of what is in flight, counted from when its head left. */
static void resume_rto(struct tcp_conn *c)
{
	uint64_t due;

	if (!c->segq.head || c->pending == TCP_PENDING_RTO)
		return;
	due = c->segq.head->sent_us + tcp_rto(c);
	tcp_arm_rtx(c, TCP_PENDING_RTO, due > c->ts->now ? due - c->ts->now : 1);
}

void tcp_rack_timer(struct tcp_conn *c)
{
	uint32_t lost = c->lost, flight = tcp_in_flight(c);
	uint64_t wait;

	c->rack_advanced = false;
	wait = mark_late(c);
	if (tcp_in_flight(c) != flight) {
		if (c->ca_state != TCPCA_RECOVERY && c->ca_state != TCPCA_LOSS) {
			tcp_enter_recovery(c, false);
			tcp_prr(c, 1, c->lost - lost, false);
		}
		tcp_mark_dirty(c);
	}
	if (wait)
		tcp_arm_rtx(c, TCP_PENDING_REO, wait);
	else
		resume_rto(c);
}

/* --- the tail loss probe, section 7 */

bool tcp_tlp_arm(struct tcp_conn *c)
{
	uint64_t pto = TCP_RTO_INIT_US, due;

	if (!c->sack_ok || c->tlp_out || c->backoff || c->segq.sacked_out ||
	    (c->ca_state != TCPCA_OPEN && c->ca_state != TCPCA_CWR) || c->state == TCPS_SYN_SENT ||
	    c->state == TCPS_SYN_RECV)
		return false;
	/* 7.2: two round trips, and the peer's delayed ACK when there is only one segment. */
	if (c->rtt.srtt_us)
		pto = (c->rtt.srtt_us >> 2) +
		      (c->segq.packets_out == 1 ? tcp_min_rto(c) : TCP_TIMEOUT_MIN_US);
	due = c->segq.head->sent_us + tcp_rto(c);
	if (due <= c->ts->now)
		return false;
	tcp_arm_rtx(c, TCP_PENDING_TLP, pto < due - c->ts->now ? pto : due - c->ts->now);
	return true;
}

/* The last segment once more. 0 or an error. */
static int probe_tail(struct tcp_conn *c)
{
	struct tcp_seg *s = c->segq.tail;
	uint32_t last;

	if (s->pcount > 1) {
		last = (s->pcount - 1) * s->mss;
		s = tcp_segq_split(&c->segq, &c->ts->env, s, s->seq + last);
		if (!s)
			return -ENOBUFS;
	}
	return tcp_retransmit(c, s, 1, true);
}

void tcp_tlp_timer(struct tcp_conn *c)
{
	int n;

	if (!c->segq.packets_out)
		return;
	if (!c->tlp_out) {
		/* 7.3: new data if there is any, whatever cwnd says. */
		n = tcp_send_new(c, c->mss);
		c->tlp_retrans = n == 0;
		if (!n)
			n = probe_tail(c) ? -ENOBUFS : 1;
		if (n > 0) {
			c->tlp_out = true;
			c->tlp_end_seq = c->snd_nxt;
			c->ts->n.tlp_probes++;
		}
	}
	tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
}

/* 7.4: did the probe repair a loss? */
void tcp_tlp_ack(struct tcp_conn *c, const struct tcp_acking *a)
{
	uint32_t ack = a->rx->ack;

	if (seq_before(ack, c->tlp_end_seq))
		return;
	if (!c->tlp_retrans || (a->flags & ACK_DSACK_TLP)) {
		c->tlp_out = false;
	} else if (seq_after(ack, c->tlp_end_seq)) {
		c->ts->n.tlp_recovery++;
		c->tlp_out = false;
		tcp_reduce_once(c);
	} else if (!(a->flags & (ACK_ADVANCED | ACK_NOT_DUP | ACK_SACKED))) {
		/* One more of the same: the original and the probe both came. */
		c->tlp_out = false;
	}
}
