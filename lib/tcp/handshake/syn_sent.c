/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SYN_SENT (RFC 9293, 3.10.7.3): the answer to our SYN, or the peer's own SYN crossing it. */
#include "tcp/recovery/loss.h"

/* What the peer's SYN offers and we had offered too. */
static void negotiate(struct tcp_conn *c, const struct tcp_rx *rx)
{
	c->ts_ok = c->o.timestamps && rx->has_ts;
	c->sack_ok = c->o.sack && rx->sack_ok;
	c->wscale_ok = c->o.wscale && rx->has_wscale;
	c->snd_wscale = c->wscale_ok ? rx->wscale : 0;
	if (!c->wscale_ok)
		c->rcv_wscale = 0;
	c->peer_mss = rx->has_mss			 ? rx->mss
		      : c->node.tuple.family == AF_INET6 ? TCP_MSS_DEFAULT6
							 : TCP_MSS_DEFAULT;
	if (c->ts_ok) {
		c->ts_recent = rx->tsval;
		c->ts_recent_stamp = c->ts->now;
	}
	tcp_conn_set_irs(c, rx->seq);
	c->snd_wnd = c->max_wnd = rx->wnd; /* never scaled in a SYN (RFC 7323, 2.2) */
	c->snd_wl1 = rx->seq;
}

static bool acks_our_syn(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	return seq_after(rx->ack, c->snd_una) &&
	       !seq_after(rx->ack, c->snd_nxt + tcp_fast_open_sent(c));
}

/* The time stamp that it echoes is one that we have sent. */
static bool echoes_us(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	return !rx->has_ts || !rx->tsecr || !c->o.timestamps ||
	       !seq_after(rx->tsecr, tcp_ts_now(c));
}

/*
 * Its ACK is of another connection's numbers: the peer has one from this port still, a TIME_WAIT
 * perhaps. What it is answered with ends that, and the SYN follows close behind, as Linux's does.
 */
static void mistaken(struct tcp_conn *c, struct tcp_rx *rx)
{
	tcp_reply_rst(c->ts, &c->node.tuple, rx);
	if (!c->retries && c->snd_nxt != c->iss)
		tcp_arm_rtx(c, TCP_PENDING_RTO, TCP_TIMEOUT_MIN_US);
}

static void answered(struct tcp_conn *c, struct tcp_rx *rx)
{
	bool again; /* the SYN's data must be sent */

	negotiate(c, rx);
	/* RFC 3168, 6.1.1: ECE without CWR. */
	c->ecn_ok = c->o.ecn && (rx->flags & (TCPHDR_ECE | TCPHDR_CWR)) == TCPHDR_ECE;
	again = tcp_fast_open_answered(c, rx);
	tcp_ack_input(c, rx);
	c->total_retrans += again;
	c->ts->n.retrans_segs += again;
	c->snd_wnd = c->max_wnd = rx->wnd;
	tcp_conn_established(c);
	/* With our first data if there is some already. */
	c->ack_needed = 2;
	tcp_mark_dirty(c);
	tcp_event(c, TCP_EV_CONNECTED | TCP_EV_OUT);
}

static void crossed(struct tcp_conn *c, struct tcp_rx *rx)
{
	c->fo_waits = false;
	if (c->snd_nxt == c->iss)
		tcp_send_syn(c);
	negotiate(c, rx);
	c->ecn_ok =
		c->o.ecn && (rx->flags & (TCPHDR_ECE | TCPHDR_CWR)) == (TCPHDR_ECE | TCPHDR_CWR);
	tcp_set_state(c, TCPS_SYN_RECV);
	tcp_send_syn(c);
}

void tcp_syn_sent_input(struct tcp_conn *c, struct tcp_rx *rx)
{
	/* It has no path yet: whatever this is, it comes again. */
	if (c->syn_held)
		return;
	if ((rx->flags & TCPHDR_ACK) && !acks_our_syn(c, rx)) {
		mistaken(c, rx);
		return;
	}
	if ((rx->flags & TCPHDR_ACK) && !echoes_us(c, rx)) {
		tcp_reply_rst(c->ts, &c->node.tuple, rx);
		return;
	}
	if (rx->flags & TCPHDR_RST) {
		if (rx->flags & TCPHDR_ACK)
			tcp_conn_reset(c);
		return;
	}
	if (!(rx->flags & TCPHDR_SYN))
		return;
	if (rx->flags & TCPHDR_ACK)
		answered(c, rx);
	else
		crossed(c, rx);
}
