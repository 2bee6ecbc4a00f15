/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Open, Disorder, CWR, Recovery, Loss: what an acknowledgement makes of them, and how a reduction
 * of the window is undone (by time stamps, D-SACK and F-RTO: RFC 3522, 3708, 5682); NewReno (RFC
 * 6582) where the peer has no SACK.
 */
#include "tcp/recovery/loss.h"

void tcp_mark_lost(struct tcp_conn *c, struct tcp_seg *s)
{
	if (s->flags & SEG_SACKED)
		return;
	if (s->flags & SEG_LOST) {
		if (!(s->flags & SEG_RETRANS))
			return;
		c->ts->n.lost_retrans++;
		tcp_segq_mark(&c->segq, s, 0, SEG_RETRANS);
	} else {
		tcp_segq_mark(&c->segq, s, SEG_LOST, 0);
	}
	c->lost += s->pcount;
	if (c->rtx_hint && seq_before(s->seq, c->rtx_hint->seq))
		c->rtx_hint = s;
}

/*
 * --- without SACK: duplicates are counted as if each SACKed one segment (RFC 6582 on Linux's
 * counts)
 */

/* The count can not be more than what is in flight but the hole. */
static void reno_limit(struct tcp_conn *c)
{
	struct tcp_segq *q = &c->segq;
	uint32_t holes = q->lost_out ? q->lost_out : 1;

	if (holes > q->packets_out)
		holes = q->packets_out;
	if (q->sacked_out + holes > q->packets_out) {
		q->sacked_out = q->packets_out - holes;
		/* More duplicates than segments: the network duplicates or reorders. */
		if (c->reordering < q->packets_out && q->packets_out < TCP_REORDERING_MAX)
			c->reordering = q->packets_out;
	}
}

static void reno_dup(struct tcp_conn *c, const struct tcp_acking *a)
{
	uint32_t was = c->segq.sacked_out;

	if (!a->dup)
		return;
	c->segq.sacked_out++;
	reno_limit(c);
	if (c->segq.sacked_out > was)
		c->delivered++;
}

/* Acknowledged segments were either counted as duplicates or are the hole. */
void tcp_reno_acked(struct tcp_conn *c, uint32_t acked)
{
	uint32_t sacked = c->segq.sacked_out;

	if (acked) {
		c->delivered += acked > sacked + 1 ? acked - sacked : 1;
		c->segq.sacked_out = acked - 1 >= sacked ? 0 : sacked - (acked - 1);
	}
	reno_limit(c);
}

/*
 * RFC 6582: the third duplicate, or a partial acknowledgement, says that the head is lost. One wire
 * segment of it.
 */
static void reno_mark(struct tcp_conn *c, bool advanced)
{
	struct tcp_seg *s = c->segq.head;

	if (!(c->ca_state < TCPCA_RECOVERY && c->segq.sacked_out >= c->reordering) &&
	    !(c->ca_state == TCPCA_RECOVERY && advanced))
		return;
	if (!s || (s->flags & SEG_LOST))
		return;
	if (s->pcount > 1 && !tcp_segq_split(&c->segq, &c->ts->env, s, s->seq + s->mss))
		c->ts->n.no_memory++;
	tcp_mark_lost(c, s);
	reno_limit(c); /* all of s is lost when it could not be split */
}

/* --- undoing */

static bool retrans_done(const struct tcp_conn *c)
{
	return c->segq.retrans_out || (c->segq.head && (c->segq.head->flags & SEG_EVER_RETRANS));
}

/* What was acknowledged left before the first retransmission, by the peer's echo. */
static bool packet_delayed(const struct tcp_conn *c, const struct tcp_acking *a)
{
	return c->retrans_stamp && tcp_echo_before(c, a->rx, c->retrans_stamp);
}

static bool may_undo(const struct tcp_conn *c, const struct tcp_acking *a)
{
	return c->can_undo && (!c->undo_retrans || packet_delayed(c, a));
}

static void undo_reduction(struct tcp_conn *c, bool unmark)
{
	if (unmark) {
		tcp_segq_unmark(&c->segq, SEG_LOST);
		c->rtx_hint = NULL;
	}
	if (c->cc.prior_ssthresh) {
		c->cc.cwnd = tcp_cc_of(c)->undo(&c->cc);
		if (c->cc.prior_ssthresh > c->cc.ssthresh) {
			c->cc.ssthresh = c->cc.prior_ssthresh;
			c->cwr = false;
		}
	}
	c->cwnd_stamp = c->ts->now;
	c->can_undo = false;
	c->rack_advanced = true; /* what RACK had marked is judged again */
	c->ts->n.undo++;
}

/*
 * Without SACK a late duplicate would start a false recovery until something above high_seq is
 * acknowledged (RFC 6582, 4).
 */
static bool hold_reno(struct tcp_conn *c)
{
	if (c->snd_una != c->high_seq || c->sack_ok)
		return false;
	if (!retrans_done(c))
		c->retrans_stamp = 0;
	return true;
}

/* At the end of Recovery or Loss. True: the state stays. */
static bool try_undo_recovery(struct tcp_conn *c, const struct tcp_acking *a)
{
	if (may_undo(c, a))
		undo_reduction(c, false);
	else if (c->rack_persist)
		c->rack_persist--;
	if (hold_reno(c))
		return true;
	c->ca_state = TCPCA_OPEN;
	c->sack_reneged = false;
	return false;
}

/* All retransmissions of this undo were needless. */
static bool try_undo_dsack(struct tcp_conn *c)
{
	if (!c->can_undo || c->undo_retrans)
		return false;
	if (c->rack_persist < 16)
		c->rack_persist++;
	undo_reduction(c, false);
	return true;
}

static bool try_undo_loss(struct tcp_conn *c, const struct tcp_acking *a, bool frto)
{
	if (!frto && !may_undo(c, a))
		return false;
	undo_reduction(c, true);
	if (frto)
		c->ts->n.spurious_rto++;
	c->retries = 0;
	if (hold_reno(c))
		return true;
	if (frto || c->sack_ok) {
		c->ca_state = TCPCA_OPEN;
		c->sack_reneged = false;
	}
	return true;
}

static void keep_open(struct tcp_conn *c)
{
	uint8_t state = tcp_left_out(c) || retrans_done(c) ? TCPCA_DISORDER : TCPCA_OPEN;

	if (c->ca_state != state) {
		c->ca_state = state;
		c->high_seq = c->snd_nxt;
	}
}

/* A partial acknowledgement in Recovery of what was late, not lost. True: nothing more to do. */
static bool try_undo_partial(struct tcp_conn *c, const struct tcp_acking *a)
{
	if (!c->can_undo || !packet_delayed(c, a))
		return false;
	tcp_saw_reordering(c, a->prior_una);
	/* Retransmissions are out: their answers are awaited before anything is taken back. */
	if (c->segq.retrans_out)
		return true;
	if (!retrans_done(c))
		c->retrans_stamp = 0;
	undo_reduction(c, true);
	keep_open(c);
	return true;
}

static void try_to_open(struct tcp_conn *c, const struct tcp_acking *a)
{
	if (!retrans_done(c))
		c->retrans_stamp = 0;
	if (a->flags & ACK_ECE)
		tcp_enter_cwr(c);
	if (c->ca_state != TCPCA_CWR)
		keep_open(c);
}

/* --- the states */

static void find_losses(struct tcp_conn *c, struct tcp_acking *a)
{
	uint32_t retrans = c->segq.retrans_out;

	if (!c->segq.head)
		return;
	if (!c->sack_ok) {
		reno_mark(c, a->flags & ACK_ADVANCED);
		return;
	}
	if (tcp_rack_detect(c))
		a->flags &= ~ACK_REARM;
	if (retrans > c->segq.retrans_out)
		a->flags |= ACK_LOST_RETRANS;
}

/*
 * Loss, with F-RTO in it (RFC 5682, SACK-enhanced). False: nothing is to be sent again yet, or
 * nothing has changed.
 */
static void loss_input(struct tcp_conn *c, struct tcp_acking *a)
{
	bool recovered = seq_geq(c->snd_una, c->high_seq);

	if ((a->flags & ACK_ADVANCED) && try_undo_loss(c, a, false))
		return;
	if (c->frto) {
		/* 3b: what had not been sent again has arrived: the timeout was spurious. */
		if ((a->flags & ACK_ORIG_ACKED) && try_undo_loss(c, a, true))
			return;
		if (seq_after(c->snd_nxt, c->high_seq)) {
			/* 3a */
			if ((a->flags & ACK_SACKED) || a->dup)
				c->frto = c->frto_new = false;
		} else if ((a->flags & ACK_ADVANCED) && !recovered) {
			/* 2b: tcp_output() tries new data and falls back to retransmitting. */
			c->high_seq = c->snd_nxt;
			if (tcp_unsent(c) && seq_after(tcp_wnd_end(c), c->snd_nxt)) {
				c->frto_new = true;
				return;
			}
			c->frto = false;
		}
	}
	if (recovered) {
		(void)try_undo_recovery(c, a);
		return;
	}
	if (!c->sack_ok) {
		if (seq_after(c->snd_nxt, c->high_seq) && a->dup)
			reno_dup(c, a);
		else if (a->flags & ACK_ADVANCED)
			c->segq.sacked_out = 0;
	}
}

/* high_seq is acknowledged: the episode may end. True: nothing more to do. */
static bool leave(struct tcp_conn *c, const struct tcp_acking *a)
{
	if (c->ca_state == TCPCA_OPEN) {
		c->retrans_stamp = 0;
		return false;
	}
	if (seq_before(c->snd_una, c->high_seq))
		return false;
	if (c->ca_state == TCPCA_CWR) {
		/* Something above it, so that the peer has seen CWR. */
		if (c->snd_una != c->high_seq) {
			tcp_end_reduction(c);
			c->ca_state = TCPCA_OPEN;
		}
	} else if (c->ca_state == TCPCA_RECOVERY) {
		if (!c->sack_ok)
			c->segq.sacked_out = 0;
		if (try_undo_recovery(c, a))
			return true;
		tcp_end_reduction(c);
	}
	return false;
}

/*
 * The peer reneged, it seems: soon a timeout, unless the ACK that explains it comes (Linux:
 * tcp_check_sack_reneging()).
 */
static bool reneging(struct tcp_conn *c, struct tcp_acking *a)
{
	uint32_t wait = c->rtt.srtt_us >> 4;

	if (!c->sack_ok || !(a->flags & ACK_ADVANCED) || !c->segq.head ||
	    !(c->segq.head->flags & SEG_SACKED))
		return false;
	tcp_arm_rtx(c, TCP_PENDING_RTO, wait > 10000 ? wait : 10000);
	a->flags &= ~ACK_REARM;
	return true;
}

/* Recovery. True: done with this acknowledgement. */
static bool recovery_state(struct tcp_conn *c, struct tcp_acking *a)
{
	if (!(a->flags & ACK_ADVANCED)) {
		if (!c->sack_ok)
			reno_dup(c, a);
	} else if (try_undo_partial(c, a)) {
		return true;
	}
	if (try_undo_dsack(c))
		try_to_open(c, a);
	find_losses(c, a);
	if (c->ca_state == TCPCA_RECOVERY)
		return true;
	/* Undone; when a loss is evident all the same, a new recovery begins. */
	if (c->segq.lost_out)
		tcp_enter_recovery(c, a->flags & ACK_ECE);
	return true;
}

static void open_state(struct tcp_conn *c, struct tcp_acking *a)
{
	if (!c->sack_ok) {
		if (a->flags & ACK_ADVANCED)
			c->segq.sacked_out = 0;
		reno_dup(c, a);
	}
	if (c->ca_state <= TCPCA_DISORDER)
		(void)try_undo_dsack(c);
	find_losses(c, a);
	if (!c->segq.lost_out) {
		try_to_open(c, a);
		return;
	}
	if (!tcp_mtu_probe_lost(c))
		tcp_enter_recovery(c, a->flags & ACK_ECE);
}

void tcp_recovery_input(struct tcp_conn *c, struct tcp_acking *a)
{
	if (!c->segq.packets_out)
		c->segq.sacked_out = 0;
	if (a->flags & ACK_ECE)
		c->cc.prior_ssthresh = 0; /* the reduction is called for: no undo */
	if (reneging(c, a))
		return;
	if (leave(c, a))
		return;
	if (c->ca_state == TCPCA_RECOVERY) {
		(void)recovery_state(c, a);
		return;
	}
	if (c->ca_state == TCPCA_LOSS) {
		loss_input(c, a);
		if (c->ca_state != TCPCA_LOSS)
			tcp_rto_over(c);
		find_losses(c, a);
		/*
		 * Undone, or retransmissions were lost again: on to see whether a recovery begins.
		 */
		if (c->ca_state != TCPCA_OPEN && !(a->flags & ACK_LOST_RETRANS))
			return;
	}
	open_state(c, a);
}

void tcp_reduce_once(struct tcp_conn *c)
{
	c->cc.prior_ssthresh = 0;
	tcp_init_reduction(c);
	c->ca_state = TCPCA_CWR;
	tcp_end_reduction(c);
	keep_open(c);
}

void tcp_lost_unpunished(struct tcp_conn *c)
{
	if (!c->sack_ok)
		reno_limit(c);
	/* Not congestion: the window stays, but what is lost goes again without more ado. */
	if (c->ca_state != TCPCA_LOSS) {
		c->high_seq = c->snd_nxt;
		c->cc.ssthresh = tcp_current_ssthresh(c);
		c->cc.prior_ssthresh = 0;
		c->can_undo = false;
		c->ca_state = TCPCA_LOSS;
		c->frto = false;
	}
	tcp_mark_dirty(c);
}

void tcp_mark_oversized(struct tcp_conn *c)
{
	uint32_t lost = c->lost;

	for (struct tcp_seg *s = c->segq.head; s; s = s->next)
		if (s->mss > c->mss && tcp_seg_payload(s) > c->mss)
			tcp_mark_lost(c, s);
	c->rtx_hint = NULL;
	if (lost != c->lost)
		tcp_lost_unpunished(c);
}
