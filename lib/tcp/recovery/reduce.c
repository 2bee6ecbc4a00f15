/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The window's reductions: into Recovery (RFC 6937), CWR and Loss, and how they end. */
#include "tcp/recovery/loss.h"

uint32_t tcp_current_ssthresh(const struct tcp_conn *c)
{
	uint32_t most = (c->cc.cwnd >> 1) + (c->cc.cwnd >> 2);

	if (tcp_in_reduction(c) || most < c->cc.ssthresh)
		return c->cc.ssthresh;
	return most;
}

static void init_undo(struct tcp_conn *c)
{
	c->can_undo = true;
	c->undo_marker = c->snd_una;
	c->undo_retrans = (int32_t)c->segq.retrans_out;
	if (c->tlp_out && c->tlp_retrans)
		c->undo_retrans++;
	if (!c->undo_retrans)
		c->undo_retrans = -1;
}

void tcp_init_reduction(struct tcp_conn *c)
{
	c->high_seq = c->snd_nxt;
	c->tlp_out = false;
	c->cc.cwnd_cnt = 0;
	c->cc.prior_cwnd = c->cc.cwnd;
	c->prr_delivered = c->prr_out = 0;
	c->cc.ssthresh = tcp_cc_of(c)->ssthresh(&c->cc, c->ts->now);
	c->cwr = c->ecn_ok;
}

void tcp_end_reduction(struct tcp_conn *c)
{
	if (!tcp_cc_of(c)->control && c->cc.ssthresh < TCP_SSTHRESH_INFINITE &&
	    (c->ca_state == TCPCA_CWR || c->can_undo)) {
		c->cc.cwnd = c->cc.ssthresh;
		c->cwnd_stamp = c->ts->now;
	}
}

void tcp_prr(struct tcp_conn *c, uint32_t delivered, uint32_t lost, bool advanced)
{
	uint32_t flight = tcp_in_flight(c), ssthresh = c->cc.ssthresh;
	int64_t send;

	if (!delivered || !c->cc.prior_cwnd || c->o.cc == TCP_CC_NONE || tcp_cc_of(c)->control)
		return;
	c->prr_delivered += delivered;
	if (flight > ssthresh) {
		uint64_t share = (uint64_t)ssthresh * c->prr_delivered + c->cc.prior_cwnd - 1;

		send = (int64_t)(share / c->cc.prior_cwnd) - c->prr_out;
	} else {
		/* Slow start reduction bound, one more while the repair goes well. */
		send = (int64_t)c->prr_delivered - c->prr_out;
		if (send < (int64_t)delivered)
			send = delivered;
		if (advanced && !lost)
			send++;
		if (send > (int64_t)(ssthresh - flight))
			send = ssthresh - flight;
	}
	/* The first retransmission is not held back. */
	if (send < !c->prr_out)
		send = !c->prr_out;
	c->cc.cwnd = flight + (uint32_t)send;
}

void tcp_enter_recovery(struct tcp_conn *c, bool ece)
{
	c->cc.prior_ssthresh = 0;
	init_undo(c);
	if (!tcp_in_reduction(c)) {
		if (!ece)
			c->cc.prior_ssthresh = tcp_current_ssthresh(c);
		tcp_init_reduction(c);
	}
	c->ca_state = TCPCA_RECOVERY;
}

void tcp_enter_cwr(struct tcp_conn *c)
{
	c->cc.prior_ssthresh = 0;
	if (c->ca_state >= TCPCA_CWR)
		return;
	c->can_undo = false;
	tcp_init_reduction(c);
	c->ca_state = TCPCA_CWR;
	c->ts->n.ecn_reductions++;
}

/* The head is SACKED, yet not acknowledged: the peer has thrown away what it had (RFC 2018, 8). */
static void forget_sacks(struct tcp_conn *c)
{
	c->ts->n.sack_reneging++;
	c->sack_reneged = true;
	c->num_sack_seen = 0;
	c->fack = c->snd_una;
	tcp_segq_unmark(&c->segq, SEG_SACKED);
}

/*
 * At a timeout: all is lost, but what left within a round trip. Go-back-N is what this is without
 * SACK.
 */
static void mark_timed_out(struct tcp_conn *c)
{
	struct tcp_seg *head = c->segq.head;
	bool reneged = head && c->sack_ok && (head->flags & SEG_SACKED);

	if (reneged)
		forget_sacks(c);
	else if (!c->sack_ok)
		c->segq.sacked_out = 0;
	c->rtx_hint = NULL;
	for (struct tcp_seg *s = head; s; s = s->next) {
		if (!reneged && c->sack_ok && s != head && tcp_rack_left(c, s, 0) > 0)
			continue;
		tcp_mark_lost(c, s);
	}
}

void tcp_enter_loss(struct tcp_conn *c)
{
	bool first = c->ca_state < TCPCA_RECOVERY;

	mark_timed_out(c);
	if (c->ca_state <= TCPCA_DISORDER || !seq_after(c->high_seq, c->snd_una) ||
	    (c->ca_state == TCPCA_LOSS && !c->retries)) {
		c->cc.prior_ssthresh = tcp_current_ssthresh(c);
		c->cc.prior_cwnd = c->cc.cwnd;
		c->cc.ssthresh = tcp_cc_of(c)->ssthresh(&c->cc, c->ts->now);
		init_undo(c);
	}
	tcp_cc_of(c)->reset(&c->cc);
	c->cc.cwnd = tcp_in_flight(c) + 1;
	c->cc.cwnd_cnt = 0;
	c->cwnd_stamp = c->ts->now;
	/* A timeout amid duplicates: reordering was believed larger than it is. */
	if (c->ca_state <= TCPCA_DISORDER && c->segq.sacked_out >= TCP_REORDERING &&
	    c->reordering > TCP_REORDERING)
		c->reordering = TCP_REORDERING;
	c->ca_state = TCPCA_LOSS;
	c->high_seq = c->snd_nxt;
	c->tlp_out = false;
	c->cwr = c->ecn_ok;
	c->frto = first || c->retries;
	c->frto_new = false;
}
