/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sixth to eighth of RFC 9293, 3.10.7.4: urgent pointer, data, FIN; and when to acknowledge (RFC
 * 5681, 4.2, with Linux's quick ACKs and estimate of the delay).
 */
#include "tcp/internal.h"

#define CE 3u
#define GROW_FROM 128u /* shorter segments do not open the window */

/* --- acknowledging */

static void ack_now(struct tcp_conn *c)
{
	c->ack_needed = 2;
	tcp_mark_dirty(c);
}

/* Half a window of segments at most gets ACKs of its own. */
static void add_quickacks(struct tcp_conn *c, unsigned max)
{
	uint32_t n = c->rcv_wnd / (2 * c->rcv_mss);

	if (n < 2)
		n = 2;
	if (n > max)
		n = max;
	if (n > c->quick)
		c->quick = (uint8_t)n;
}

void tcp_enter_quickack(struct tcp_conn *c, unsigned max)
{
	add_quickacks(c, max);
	c->pingpong = false;
	c->ato_us = c->ts->cfg.delack_min_us;
}

static bool ack_due(const struct tcp_conn *c)
{
	if (c->ack_needed == 2 || c->o.quickack || c->quickack || (c->quick && !c->pingpong))
		return true;
	/* At least every second full segment (RFC 5681, 4.2); of a batch, the last. */
	return c->rcv_nxt - c->rcv_wup > c->rcv_mss;
}

/* Linux: tcp_send_delayed_ack(). */
static void arm_delack(struct tcp_conn *c)
{
	const struct tcp_cfg *cfg = &c->ts->cfg;
	uint32_t ato = c->ato_us, max = c->pingpong || c->pushed ? cfg->delack_max_us : 500000,
		 rtt = c->rtt.srtt_us >> 3;
	uint64_t when;

	if (rtt && rtt < cfg->delack_min_us)
		rtt = cfg->delack_min_us;
	if (rtt && rtt < max)
		max = rtt;
	if (max > cfg->delack_max_us)
		max = cfg->delack_max_us;
	if (ato > max)
		ato = max;
	when = c->ts->now + ato;
	if (wheel_armed(&c->delack) && c->delack.when_us <= when)
		return;
	wheel_arm(&c->ts->wheel, &c->delack, when);
}

void tcp_ack_flush(struct tcp_conn *c)
{
	if (!c->ack_needed)
		return;
	if (ack_due(c)) {
		if (c->ack_needed == 1 && c->quick)
			c->ts->n.quick_acks++;
		tcp_send_ack(c);
	} else {
		arm_delack(c);
	}
}

/* --- estimates: the peer's segment, the RTT as the receiver sees it, the gap between segments */

/* Linux: tcp_measure_rcv_mss(). A small segment means that somebody waits for its answer. */
static void measure_mss(struct tcp_conn *c, uint32_t len)
{
	uint32_t last = c->last_seg_size;

	c->last_seg_size = 0;
	if (len >= c->rcv_mss) {
		c->rcv_mss = len < c->advmss ? len : c->advmss;
		return;
	}
	if (len >= TCP_MSS_DEFAULT) {
		c->last_seg_size = len;
		if (len == last) {
			c->rcv_mss = len;
			return;
		}
	}
	if (c->pushed < 2)
		c->pushed++;
}

static void rtt_update(struct tcp_conn *c, uint32_t us, bool of_window)
{
	if (!us)
		us = 1;
	if (!c->rcv_rtt_us || (of_window && us < c->rcv_rtt_us))
		c->rcv_rtt_us = us;
	else if (!of_window)
		c->rcv_rtt_us = (uint32_t)(((uint64_t)c->rcv_rtt_us * 7 + us) / 8);
}

/* How long a window of data takes; better: how long ago what the peer echoes was. */
static void measure_rtt(struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint64_t now = c->ts->now;

	if (seq_geq(c->rcv_nxt, c->rcv_rtt_seq)) {
		rtt_update(c, (uint32_t)(now - c->rcv_rtt_time), true);
		c->rcv_rtt_seq = c->rcv_nxt + c->rcv_wnd;
		c->rcv_rtt_time = now;
	}
	if (c->ts_ok && rx->has_ts && rx->tsecr && rx->tsecr != c->rcv_rtt_tsecr &&
	    rx->len >= c->rcv_mss) {
		uint32_t ms = tcp_ts_now(c) - rx->tsecr;

		c->rcv_rtt_tsecr = rx->tsecr;
		if (ms < INT32_MAX / 1000)
			rtt_update(c, ms ? ms * 1000 : 1000, false);
	}
}

/* Slow start of the window that we tell (Linux: tcp_grow_window()). */
static void grow_window(struct tcp_conn *c, uint32_t len)
{
	uint32_t used = c->rcvq.charge + c->ofo_charge, room, step;

	room = used < c->o.rcvbuf ? (c->o.rcvbuf - used) / 2 : 0;
	if (room > c->window_clamp)
		room = c->window_clamp;
	if (room <= c->rcv_ssthresh)
		return;
	room -= c->rcv_ssthresh;
	step = 2 * (len > c->advmss ? len : c->advmss);
	c->rcv_ssthresh += step < room ? step : room;
	c->quick |= 1;
}

/* Data is here (Linux: tcp_event_data_recv()). */
static void data_arrived(struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint64_t gap = c->ts->now - c->last_rcv_us;
	uint32_t min = c->ts->cfg.delack_min_us;

	measure_mss(c, rx->len);
	measure_rtt(c, rx);
	if (!c->ato_us) {
		add_quickacks(c, TCP_QUICKACKS);
		c->ato_us = min;
	} else if (gap <= min / 2) {
		c->ato_us = c->ato_us / 2 + min / 2;
	} else if (gap < c->ato_us) {
		c->ato_us = c->ato_us / 2 + (uint32_t)gap;
		if (c->ato_us > tcp_rto(c))
			c->ato_us = tcp_rto(c);
	} else if (gap > tcp_rto(c)) { /* too long: the sender may have restarted its slow start */
		add_quickacks(c, TCP_QUICKACKS);
	}
	c->last_rcv_us = c->ts->now;
	c->bytes_received += rx->len;
	if (!c->ack_needed)
		c->ack_needed = 1;
	if (rx->len >= GROW_FROM)
		grow_window(c, rx->len);
}

/* RFC 3168, 6.1.3: ECE from a CE mark on until CWR comes; a change is told at once. */
static void ecn_input(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if (!c->ecn_ok)
		return;
	c->ecn_seen |= rx->ecn != 0;
	if (rx->flags & TCPHDR_CWR) {
		if (c->ece)
			ack_now(c);
		c->ece = false;
	}
	if (rx->ecn == CE) {
		if (!c->ece)
			tcp_enter_quickack(c, 2);
		c->ece = true;
	}
}

/* --- SACK */

void tcp_dsack_set(struct tcp_conn *c, uint32_t start, uint32_t end)
{
	if (!c->sack_ok)
		return;
	if (c->dsack.start != c->dsack.end && seq_leq(start, c->dsack.end) &&
	    seq_leq(c->dsack.start, end)) {
		c->dsack.start = seq_min(c->dsack.start, start);
		c->dsack.end = seq_max(c->dsack.end, end);
		return;
	}
	c->dsack.start = start;
	c->dsack.end = end;
}

unsigned tcp_sack_blocks(struct tcp_conn *c, struct tcp_sack_block *to, unsigned max)
{
	unsigned n = 0;

	if (max && c->dsack.start != c->dsack.end) {
		to[n++] = c->dsack;
		c->dsack.end = c->dsack.start;
		c->ts->n.dsack_sent++;
	}
	for (unsigned i = 0; i < c->num_recent && n < max; i++) {
		const struct tcp_ofo *o = tcp_ofo_find(c, c->sack_recent[i]);

		if (o && seq_after(o->start, c->rcv_nxt))
			to[n++] = (struct tcp_sack_block){o->start, o->end};
	}
	return n;
}

/* --- urgent data (RFC 6093; Linux: tcp_check_urg()) */

/* A new urgent pointer: the byte before it is the urgent one. */
static void urgent_pointer(struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint32_t up = rx->seq + (rx->urg ? rx->urg : 1);

	if (seq_after(c->copied_seq, up - 1) || seq_before(up - 1, c->rcv_nxt))
		return; /* read already, or told already */
	if (c->urg_valid && !seq_after(up, c->rcv_up))
		return;
	/*
	 * A mark at which the user stands, byte taken, and now a second one: the stream goes on
	 * behind the first. Before a frame that the callback has nobody has read on.
	 */
	if (c->urg_valid && tcp_at_mark(c) && !c->o.oobinline && c->copied_seq != c->rcv_nxt &&
	    !c->showing)
		tcp_skip_mark(c);
	c->rcv_up = up;
	c->urg_valid = true;
	c->urg_here = c->urg_read = false;
	tcp_event(c, TCP_EV_PRI);
}

static uint8_t byte_at(const struct buf *b, uint32_t off)
{
	while (off >= b->len) {
		off -= b->len;
		b = b->frag;
	}
	return b->data[off];
}

void tcp_urgent_input(struct tcp_conn *c, const struct tcp_rx *rx)
{
	uint32_t off;

	if (c->state != TCPS_ESTABLISHED && c->state != TCPS_FIN_WAIT1 &&
	    c->state != TCPS_FIN_WAIT2)
		return;
	if (rx->flags & TCPHDR_URG)
		urgent_pointer(c, rx);
	if (!c->urg_valid || c->urg_here)
		return;
	off = c->rcv_up - 1 - rx->seq;
	if (off >= rx->len)
		return;
	c->urg_byte = byte_at(rx->b, off);
	c->urg_here = true;
	tcp_event(c, TCP_EV_PRI | TCP_EV_IN);
}

/* --- data and FIN */

/* The peer has closed; its FIN has the number rcv_nxt. */
static void fin_arrived(struct tcp_conn *c)
{
	uint32_t events = TCP_EV_IN | TCP_EV_RDHUP;

	c->rcv_nxt++;
	c->bytes_received++; /* as in Linux */
	c->fin_rcvd = true;
	tcp_ofo_clear(c);
	/* It may wait: the answer's data, or our own FIN, may carry it (Linux: tcp_fin()). */
	if (!c->ack_needed)
		c->ack_needed = 1;
	switch (c->state) {
	case TCPS_ESTABLISHED:
		tcp_set_state(c, TCPS_CLOSE_WAIT);
		c->pingpong = true; /* our FIN follows, soon as a rule */
		break;
	case TCPS_FIN_WAIT1:
		ack_now(c);
		tcp_set_state(c, TCPS_CLOSING);
		events |= TCP_EV_HUP;
		break;
	case TCPS_FIN_WAIT2:
		tcp_send_ack(c);
		tcp_conn_time_wait(c, false);
		return;
	default:
		break;
	}
	if (c->shut_wr)
		events |= TCP_EV_HUP;
	tcp_event(c, events);
}

void tcp_data_in_order(struct tcp_conn *c, struct tcp_rx *rx)
{
	if (!tcp_rcvq_admit(c, rx->b, rx->seq)) {
		tcp_enter_quickack(c, TCP_QUICKACKS);
		ack_now(c);
		return;
	}
	tcp_rcvq_add(c, rx->b);
	rx->b = NULL;
	c->rcv_nxt += rx->len;
	data_arrived(c, rx);
	tcp_event(c, TCP_EV_IN);
}

/* In order: queued, with what it makes contiguous. */
static void take_next(struct tcp_conn *c, struct tcp_rx *rx)
{
	bool fin = rx->flags & TCPHDR_FIN;

	if (rx->len) {
		tcp_data_in_order(c, rx);
		if (rx->b)
			return;
	}
	if (c->ofo) {
		ack_now(c); /* RFC 5681, 4.2: a gap is filled, in whole or in part */
		if (!fin)
			fin = tcp_ofo_drain(c);
	}
	if (fin)
		fin_arrived(c);
}

/* Behind a gap. */
static void take_later(struct tcp_conn *c, struct tcp_rx *rx)
{
	if (rx->b && !tcp_rcvq_admit(c, rx->b, rx->seq)) {
		ack_now(c);
		c->ts->n.ofo_drop++;
		return;
	}
	measure_mss(c, rx->len);
	c->last_rcv_us = c->ts->now;
	if (tcp_conn_ext(c))
		c->ext->rcv_ooopack++;
	tcp_ofo_add(c, rx);
	/* Without SACK the sender counts the duplicates: each has its own, all with one window. */
	if (!c->sack_ok) {
		tcp_send_ack(c);
		return;
	}
	if (!rx->b && rx->len >= GROW_FROM)
		grow_window(c, rx->len);
	ack_now(c);
}

/* Received already, in whole. */
static void duplicate(struct tcp_conn *c, const struct tcp_rx *rx)
{
	tcp_dsack_set(c, rx->seq, rx->end_seq);
	tcp_enter_quickack(c, TCP_QUICKACKS);
	ack_now(c);
}

void tcp_data_input(struct tcp_conn *c, struct tcp_rx *rx)
{
	uint32_t right = c->rcv_nxt + tcp_rcv_window(c);

	if (rx->seq == rx->end_seq)
		return;
	ecn_input(c, rx);
	if (seq_leq(rx->end_seq, c->rcv_nxt)) {
		duplicate(c, rx);
		return;
	}
	if (c->fin_rcvd) /* nothing lies behind the end of the stream */
		return;
	if (seq_before(rx->seq, c->rcv_nxt)) {
		tcp_dsack_set(c, rx->seq, c->rcv_nxt);
		ack_now(c);
		tcp_rx_cut(rx, c->rcv_nxt, rx->end_seq);
	}
	/* The window's edge; a FIN needs no room. */
	if (seq_geq(rx->seq, right) && (rx->len || rx->seq != c->rcv_nxt)) {
		c->ts->n.zero_window_drop++;
		tcp_enter_quickack(c, TCP_QUICKACKS);
		ack_now(c);
		return;
	}
	if (seq_after(rx->seq + rx->len, right))
		tcp_rx_cut(rx, rx->seq, right);
	if (rx->seq == c->rcv_nxt)
		take_next(c, rx);
	else
		take_later(c, rx);
}
