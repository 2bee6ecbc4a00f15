/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A segment for a connection (RFC 9293, 3.10.7.4), in the RFC's order of steps; and header
 * prediction for the common one.
 */
#include "tcp/internal.h"

#include <errno.h>

#define PAWS_IDLE_US (24ull * 24 * 3600 * 1000000) /* RFC 7323, 5.5 */

bool tcp_paws_reject(uint64_t now, uint32_t ts_recent, uint64_t ts_recent_stamp,
		     const struct tcp_rx *rx, int32_t slack)
{
	return rx->has_ts && ts_recent && (int32_t)(ts_recent - rx->tsval) > slack &&
	       now - ts_recent_stamp < PAWS_IDLE_US;
}

/*
 * A pure ACK that brings nothing new and was overtaken by a few: its time stamp is old, but no harm
 * in it (Linux: tcp_disordered_ack()).
 */
static bool disordered_ack(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint32_t rto_ms = tcp_rto(c) / 1000;

	return (rx->flags & TCPHDR_ACK) && rx->seq == rx->end_seq && rx->seq == c->rcv_nxt &&
	       rx->ack == c->snd_una && rx->wnd << c->snd_wscale == c->snd_wnd &&
	       (int32_t)(c->ts_recent - rx->tsval) <= (int32_t)(rto_ms * 12 / 10);
}

/*
 * RFC 7323, 4.3: the time stamp to echo is that of the segment at the left edge of what was last
 * acknowledged.
 */
static void update_ts_recent(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (!c->ts_ok || !rx->has_ts || seq_after(rx->seq, c->rcv_wup))
		return;
	if (tcp_paws_reject(c->ts->now, c->ts_recent, c->ts_recent_stamp, rx, 0))
		return;
	c->ts_recent = rx->tsval;
	c->ts_recent_stamp = c->ts->now;
}

/*
 * Says what is expected instead; what had been received before as a D-SACK (Linux:
 * tcp_send_dupack()).
 */
static void answer_unacceptable(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (!tcp_oow_answer(c->ts, &c->oow_ack, rx))
		return;
	if (rx->seq != rx->end_seq && seq_before(rx->seq, c->rcv_nxt)) {
		tcp_enter_quickack(c, TCP_QUICKACKS);
		tcp_dsack_set(c, rx->seq, seq_min(rx->end_seq, c->rcv_nxt));
	}
	tcp_send_ack(c);
}

/* RFC 5961, 4: whoever really restarted answers the challenge with a RST. */
static void challenge_syn(struct tcp_conn *c)
{
	c->ts->n.syn_challenge++;
	tcp_challenge_ack(c);
}

/*
 * The last step of a simultaneous open: the peer's SYN|ACK to our SYN, its number one before the
 * window.
 */
static bool completes_crossed_syns(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	return c->state == TCPS_SYN_RECV && !c->fo_child &&
	       (rx->flags & (TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST | TCPHDR_FIN)) ==
		       (TCPHDR_SYN | TCPHDR_ACK) &&
	       rx->seq + 1 == rx->end_seq && rx->seq + 1 == c->rcv_nxt && rx->ack == c->snd_nxt;
}

/*
 * A peer that resets after data of which some is lost: the end of what we SACKed is as exact as
 * RCV.NXT (Linux).
 */
static bool rst_at_sack_edge(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (!c->sack_ok)
		return false;
	return rx->seq == (c->ofo_tail ? c->ofo_tail->end : c->rcv_nxt);
}

/*
 * A peer that resets after its FIN may do so with the FIN's own number (Linux: tcp_reset_check();
 * macOS does). That lies before the window once the FIN is acknowledged.
 */
static bool rst_at_fin(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	return c->fin_rcvd && rx->seq + 1 == c->rcv_nxt;
}

/* RFC 5961, 3.2: what is in the window, but not exact, may be a guess. */
static void rst_in_window(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (rx->seq == c->rcv_nxt || rst_at_fin(c, rx) || rst_at_sack_edge(c, rx)) {
		tcp_conn_reset(c);
		return;
	}
	c->ts->n.rst_ignored++;
	tcp_challenge_ack(c);
}

static void out_of_window(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (!(rx->flags & TCPHDR_RST)) {
		if (rx->flags & TCPHDR_SYN)
			challenge_syn(c);
		else
			answer_unacceptable(c, rx);
	} else if (rst_at_fin(c, rx)) {
		tcp_conn_reset(c);
	} else {
		c->ts->n.rst_ignored++;
	}
}

/*
 * RFC 9293, 3.10.7.4, first to fourth: time stamp, sequence number, RST, SYN. True: go on with it.
 */
static bool acceptable(struct tcp_conn *c, const struct tcp_rx *rx)
{
	bool rst = rx->flags & TCPHDR_RST, syn = rx->flags & TCPHDR_SYN;

	if (c->ts_ok && !rst &&
	    tcp_paws_reject(c->ts->now, c->ts_recent, c->ts_recent_stamp, rx, 1) &&
	    !disordered_ack(c, rx)) {
		c->ts->n.paws++;
		if (syn)
			challenge_syn(c);
		else
			answer_unacceptable(c, rx);
		return false;
	}
	if (completes_crossed_syns(c, rx))
		return true;
	if (seq_before(rx->end_seq, c->rcv_wup) ||
	    seq_after(rx->seq, c->rcv_nxt + tcp_rcv_window(c))) {
		out_of_window(c, rx);
		return false;
	}
	if (rst) {
		rst_in_window(c, rx);
		return false;
	}
	if (syn) {
		challenge_syn(c);
		return false;
	}
	return true;
}

/*
 * Fifth: the acknowledgement field. RFC 5961, 5.2: too old or not sent yet is answered and dropped.
 */
static bool ack_acceptable(struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint32_t back = c->max_wnd;

	if (!(rx->flags & TCPHDR_ACK))
		return false;
	if (c->state == TCPS_SYN_RECV &&
	    (!seq_after(rx->ack, c->snd_una) || seq_after(rx->ack, c->snd_nxt))) {
		tcp_reply_rst(c->ts, &c->node.tuple, rx);
		return false;
	}
	if (back > c->bytes_acked)
		back = (uint32_t)c->bytes_acked;
	if (seq_before(rx->ack, c->snd_una - back) || seq_after(rx->ack, c->snd_nxt)) {
		tcp_challenge_ack(c);
		return false;
	}
	return true;
}

/* SYN_RECV of a simultaneous open, or of Fast Open: our SYN is acknowledged. */
static void opened(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (c->fo_child)
		tcp_fast_open_complete(c);
	c->snd_wnd = rx->flags & TCPHDR_SYN ? rx->wnd : rx->wnd << c->snd_wscale;
	c->snd_wl1 = rx->seq;
	c->max_wnd = c->snd_wnd;
	tcp_conn_established(c);
	if (c->fin_queued) /* the user had closed already */
		tcp_set_state(c, TCPS_FIN_WAIT1);
	tcp_event(c, TCP_EV_CONNECTED | TCP_EV_OUT);
}

/* Our FIN is acknowledged. True: the connection goes on, with this segment too. */
static bool fin_acked(struct tcp_conn *c)
{
	switch (c->state) {
	case TCPS_FIN_WAIT1:
		tcp_set_state(c, TCPS_FIN_WAIT2);
		if (c->orphan && !c->o.linger2_ms) {
			c->ts->n.abort_on_linger++;
			tcp_send_rst(c);
			tcp_conn_done(c, 0);
			return false;
		}
		return true;
	case TCPS_CLOSING:
		tcp_conn_time_wait(c, false);
		return false;
	case TCPS_LAST_ACK:
		tcp_conn_done(c, 0);
		return false;
	default:
		return true;
	}
}

/*
 * Data after the user has stopped reading for good: there is nobody to give it to (RFC 9293, 3.6;
 * RFC 1122, 4.2.2.13).
 */
static bool nobody_reads(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	return (c->state == TCPS_FIN_WAIT1 || c->state == TCPS_FIN_WAIT2) && c->shut_rd &&
	       rx->len && seq_after(rx->seq + rx->len, c->rcv_nxt);
}

static void slow_path(struct tcp_conn *c, struct tcp_rx *rx)
{
	if (c->fo_child && tcp_fast_open_syn_again(c, rx))
		return;
	if (!acceptable(c, rx) || !ack_acceptable(c, rx))
		return;
	update_ts_recent(c, rx);
	c->more_holds = false;
	tcp_ack_input(c, rx);
	if (c->closing)
		return;
	tcp_mark_dirty(c);
	if (c->state == TCPS_SYN_RECV) {
		opened(c, rx);
		if (rx->flags & TCPHDR_SYN) {
			c->ack_needed = 2;
			return;
		}
	}
	if (c->fin_acked && !fin_acked(c))
		return;
	if (nobody_reads(c, rx)) {
		/* What the user has written before is not lost by it (tcp_flush_later()). */
		tcp_output(c);
		if (c->closing)
			return;
		c->ts->n.abort_on_data++;
		tcp_reply_rst(c->ts, &c->node.tuple, rx);
		tcp_conn_done(c, ECONNRESET);
		return;
	}
	tcp_urgent_input(c, rx);
	tcp_data_input(c, rx);
	/* The rest of FIN_WAIT2 needs no connection. */
	if (!c->closing && c->state == TCPS_FIN_WAIT2 && c->orphan)
		tcp_conn_time_wait(c, true);
}

/*
 * Header prediction: the next data in order, or an acknowledgement, with nothing else going on.
 * Whatever is doubtful sets a bit, and then the segment takes all steps.
 */
static inline bool predicted(const struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint32_t doubts = c->state ^ TCPS_ESTABLISHED;

	doubts |= (rx->flags & ~TCPHDR_PSH) ^ TCPHDR_ACK;
	doubts |= rx->seq ^ c->rcv_nxt;
	doubts |= (uint32_t)(rx->ecn == 3) | c->urg_valid | (c->ofo != NULL);
	doubts |= rx->len > tcp_rcv_window(c);
	doubts |= rx->ack - c->snd_una > c->snd_nxt - c->snd_una;
	doubts |= (uint32_t)(c->ts_ok != rx->has_ts);
	doubts |= (uint32_t)(rx->tsval - c->ts_recent) >> 31 & c->ts_ok;
	return !doubts;
}

void tcp_conn_input(struct tcp_conn *c, struct tcp_rx *rx)
{
	c->segs_in++;
	c->data_segs_in += rx->len != 0;
	if (!c->ts_ok && c->state != TCPS_SYN_SENT)
		rx->has_ts = false; /* not negotiated: not looked at */
	if (__builtin_expect(!predicted(c, rx), 0)) {
		if (c->state == TCPS_SYN_SENT)
			tcp_syn_sent_input(c, rx);
		else
			slow_path(c, rx);
		return;
	}
	c->ts->n.fast_path++;
	/* Data alone gives Linux no occasion to send; an acknowledgement does. */
	if (!rx->len || rx->ack != c->snd_una)
		c->more_holds = false;
	update_ts_recent(c, rx);
	tcp_mark_dirty(c);
	tcp_ack_input(c, rx);
	if (rx->len && !c->closing)
		tcp_data_in_order(c, rx);
}
