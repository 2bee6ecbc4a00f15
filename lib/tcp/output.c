/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What leaves: one transmission, and the decision how much new data may (windows, Nagle, cork,
 * pacing).
 */
#include "tcp/recovery/loss.h"

#define IOV_MAX_SHOT 32

void tcp_snd_init(struct tcp_conn *c, uint32_t iss, bool acked)
{
	c->iss = iss;
	c->snd_una = iss + acked;
	c->snd_nxt = c->snd_una;
	c->write_seq = iss + 1;
	c->push_seq = c->sml_seq = c->snd_up = c->write_seq;
	c->fack = c->rack_dsack_round = c->snd_una;
	c->max_out_seq = c->snd_una;
	c->reordering = TCP_REORDERING;
	c->rack_reo_steps = 1;
	/* Nothing says how fast the path is before the first data are acknowledged. */
	c->app_limited = UINT32_MAX;
	c->rate_app_limited = true;
	c->lsndtime = c->cwnd_stamp = c->ts->now;
	tcp_sndq_init(&c->sndq, iss + 1);
	tcp_rtt_init(&c->rtt, tcp_min_rto(c));
	tcp_cc_set(c, c->o.cc);
	tcp_first_cwnd(c);
	tcp_sync_mss(c);
}

/* How many SACK blocks fit into a segment of len bytes of payload. */
static unsigned sack_room(const struct tcp_conn *c, uint32_t len)
{
	uint32_t room = c->ts_ok ? 28 : 40;

	if (len > c->mss)
		return 0;
	/* mss leaves room for the options that every segment has; these are one more. */
	if (len && c->mss - len < room)
		room = c->mss - len;
	if (room < 12)
		return 0;
	return (room - 4) / 8 < TCP_SACK_MAX ? (room - 4) / 8 : TCP_SACK_MAX;
}

/* An acknowledgement has left: none is due now. all: with the SACK blocks that it should have. */
static void ack_sent(struct tcp_conn *c, bool all)
{
	c->last_ack_sent = c->rcv_nxt;
	if (c->quick)
		c->quick--;
	if (!all)
		return;
	c->ack_needed = 0;
	c->pushed = 0;
	if (wheel_armed(&c->delack))
		wheel_cancel(&c->ts->wheel, &c->delack);
}

/* RFC 9293, 3.8.5: the offset from this segment, as far as 16 bits reach. */
static void say_urgent(const struct tcp_conn *c, struct tcp_hdr_spec *h)
{
	uint32_t off = c->snd_up - h->seq;

	if (!seq_before(h->seq, c->snd_up))
		return;
	if (off <= UINT16_MAX)
		h->urg = (uint16_t)off;
	else if (seq_after(h->seq + UINT16_MAX, c->snd_nxt))
		h->urg = UINT16_MAX;
	else
		return;
	h->flags |= TCPHDR_URG;
}

static uint8_t tos_of(const struct tcp_conn *c, const struct tcp_transmission *xmit)
{
	/* RFC 3168, 6.1.4, 6.1.5: neither pure ACKs nor retransmissions are ECN-capable. */
	return (uint8_t)((tcp_tos(&c->o, c->node.tuple.family) & ~3u) |
			 (c->ecn_ok && xmit->fresh && xmit->len ? 2u : 0u));
}

/* RFC 3168, 6.1.2 and 6.1.3. */
static uint8_t ecn_flags(const struct tcp_conn *c, const struct tcp_transmission *xmit)
{
	uint8_t flags = xmit->flags;

	if (c->ece)
		flags |= TCPHDR_ECE;
	if (c->cwr && xmit->fresh && xmit->len)
		flags |= TCPHDR_CWR;
	return flags;
}

static void count(struct tcp_conn *c, const struct tcp_transmission *xmit)
{
	uint32_t n = 1;

	if (xmit->len > c->mss && !xmit->mss)
		n = (xmit->len + c->mss - 1) / c->mss;
	c->ts->n.out_segs += n;
	c->ts->n.out_bytes += xmit->len;
	c->segs_out += n;
	c->bytes_sent += xmit->len;
	if (xmit->len)
		c->data_segs_out += n;
}

int tcp_xmit(struct tcp_conn *c, struct tcp_transmission *xmit)
{
	struct iovec iov[IOV_MAX_SHOT];
	uint8_t hdr[TCP_HDR_MAX];
	bool sacks = c->ofo || c->dsack.start != c->dsack.end;
	struct tcp_hdr_spec h = {
		.sport = c->node.tuple.lport,
		.dport = c->node.tuple.rport,
		.seq = xmit->seq,
		.ack = c->rcv_nxt,
		.wnd = tcp_select_window(c),
		.ts = c->ts_ok,
		.tsval = tcp_ts_now(c),
		.tsecr = c->ts_recent,
	};
	struct tcp_tx tx = {
		.user = tcp_tx_user(c),
		.tuple = &c->node.tuple,
		.hdr = hdr,
		.iov = iov,
		.len = xmit->len,
		.mss = xmit->mss ? xmit->mss : (uint16_t)c->mss,
		.tos = tos_of(c, xmit),
		.ttl = tcp_ttl(&c->o, c->node.tuple.family),
		.family = c->node.tuple.family,
	};
	unsigned fit = 0;

	if (xmit->len) {
		tx.iovcnt = tcp_sndq_iov(&c->sndq, xmit->seq, &tx.len, iov, IOV_MAX_SHOT);
		if (tx.len < xmit->len) {
			/* Cut short: what belongs to the end does not go with it. */
			if (tx.len > c->mss)
				tx.len -= tx.len % c->mss;
			xmit->len = tx.len;
			xmit->flags &= (uint8_t) ~(TCPHDR_FIN | TCPHDR_PSH);
		}
	}
	h.flags = ecn_flags(c, xmit);
	if (c->snd_urg)
		say_urgent(c, &h);
	if (sacks && c->sack_ok) {
		fit = sack_room(c, xmit->len);
		if (fit)
			h.num_sacks = (uint8_t)tcp_sack_blocks(c, h.sack, fit);
	}
	tx.hdr_len = tcp_hdr_write(hdr, &h);
	if (c->ts->env.output(c->ts->env.ctx, &tx) == -ENOBUFS)
		return -ENOBUFS;
	ack_sent(c, !sacks || !c->sack_ok || h.num_sacks);
	count(c, xmit);
	return 0;
}

void tcp_blocked(struct tcp_conn *c)
{
	struct tcp_stack *ts = c->ts;

	ts->blocked = true;
	tcp_watch_refused(c);
	if (!c->blocked_pprev) {
		c->blocked_next = NULL;
		c->blocked_pprev = ts->refused_tail;
		*ts->refused_tail = c;
		ts->refused_tail = &c->blocked_next;
	}
	if (!wheel_armed(&c->pace))
		wheel_arm(&ts->wheel, &c->pace, ts->now + TCP_RETRY_US);
}

void tcp_unblock(struct tcp_conn *c)
{
	if (!c->blocked_pprev)
		return;
	*c->blocked_pprev = c->blocked_next;
	if (c->blocked_next)
		c->blocked_next->blocked_pprev = c->blocked_pprev;
	else
		c->ts->refused_tail = c->blocked_pprev;
	c->blocked_pprev = NULL;
}

/*
 * A small segment at the end of the queue waits: corked; or Nagle, as Minshall would have it: only
 * behind another small one that is not acknowledged (RFC 896, draft-minshall-nagle). A FIN and
 * urgent data do not.
 */
static bool hold_small(const struct tcp_conn *c)
{
	if (c->fin_queued || c->snd_urg || c->push_held)
		return false;
	if (c->o.cork || c->more_holds)
		return true;
	/* The last small one may lie 2 GiB back, where it seems to be ahead. */
	return !c->o.nodelay && c->segq.packets_out && seq_after(c->sml_seq, c->snd_una) &&
	       seq_leq(c->sml_seq, c->snd_nxt);
}

/* What of len bytes the peer's window takes (RFC 9293, 3.8.6.2.1: no silly pieces of it). */
static uint32_t fit_window(const struct tcp_conn *c, uint32_t len)
{
	uint32_t end = tcp_wnd_end(c), room;

	room = seq_after(end, c->snd_nxt) ? end - c->snd_nxt : 0;
	if (len <= room)
		return len;
	if (room >= c->mss)
		return room - room % c->mss;
	/* Half of the largest window that it ever had is all that it may be able to open. */
	return room && room >= c->max_wnd / 2 ? room : 0;
}

/*
 * Bytes of new data that may leave in one go now, of `left` that wait; waits: what is less than a
 * segment may be made to wait for more.
 */
static uint32_t allowed(struct tcp_conn *c, uint32_t left, bool waits, uint32_t flight)
{
	uint32_t max = c->snd_urg || c->cwr ? c->mss : c->gso_len;
	uint32_t room = c->cc.cwnd - flight, len = left;

	if (len > c->mss) {
		if (len > max)
			len = max;
		if ((uint64_t)room * c->mss < len)
			len = room * c->mss;
	}
	len = fit_window(c, len);
	if (tcp_pacing_rate(c) != UINT64_MAX && len) {
		max = tcp_pace_allow(c);
		if (len > max)
			len = max;
	}
	if (!waits)
		return len;
	/* The end of the queue is a small segment, perhaps behind full ones. */
	if (len == left && len < c->mss)
		return hold_small(c) ? 0 : len;
	if (len == left && len > c->mss && len % c->mss && hold_small(c))
		len -= len % c->mss;
	return len;
}

/*
 * Flags of new data up to end: PSH where the queue ends, unless more was announced, or a record,
 * and every half of the peer's window (RFC 9293, 3.9.1.2; Linux).
 */
static uint8_t data_flags(struct tcp_conn *c, uint32_t end)
{
	if ((end == c->write_seq && !c->more) || seq_after(end, c->push_seq + (c->max_wnd >> 1)) ||
	    (c->sndq.records && tcp_sndq_record(&c->sndq, end - 1, 2) == 1))
		return TCPHDR_ACK | TCPHDR_PSH;
	return TCPHDR_ACK;
}

/* A segment is recorded, its transmission succeeded. */
static void new_sent(struct tcp_conn *c, const struct tcp_seg *s,
		     const struct tcp_transmission *xmit)
{
	c->snd_nxt = s->end_seq;
	if (xmit->flags & TCPHDR_FIN)
		c->fin_sent = true;
	if (xmit->flags & TCPHDR_PSH)
		c->push_seq = c->snd_nxt;
	if (xmit->len < c->mss || (xmit->len > c->mss && s->pcount * c->mss > xmit->len))
		c->sml_seq = s->end_seq;
	if (xmit->len)
		c->cwr = false;
	/* An answer: the next ones may carry the ACKs, too (Linux: tcp_event_data_sent()). */
	if (c->ts->now - c->last_rcv_us < c->ato_us)
		c->pingpong = true;
	c->lsndtime = c->ts->now;
	if (tcp_in_reduction(c))
		c->prr_out += s->pcount;
	if (tcp_pacing_rate(c) != UINT64_MAX)
		tcp_pace_sent(c, xmit->len);
}

/* Sends it, in segments of mss, and records it. 0 or -ENOBUFS. */
static int send_fresh(struct tcp_conn *c, struct tcp_transmission *xmit, uint32_t mss)
{
	uint32_t len = xmit->len, fin = xmit->flags & TCPHDR_FIN;
	struct tcp_seg *s = tcp_seg_new(
		&c->ts->env, xmit->seq, xmit->seq + len + !!fin, (uint16_t)mss,
		(fin ? SEG_FIN : 0) | (xmit->flags & TCPHDR_PSH ? SEG_PSH : 0), c->ts->now);

	if (!s) {
		c->ts->n.no_memory++;
		return -ENOBUFS;
	}
	if (tcp_xmit(c, xmit)) {
		tcp_free(c->ts, s, sizeof(*s));
		return -ENOBUFS;
	}
	tcp_rate_sent(c, s);
	tcp_segq_append(&c->segq, s);
	if (xmit->len != len) {
		/* In too many pieces for one go. */
		s->end_seq = s->seq + xmit->len;
		s->flags = 0;
		tcp_seg_resize(c, s, s->seq, c->mss);
	}
	new_sent(c, s, xmit);
	return 0;
}

/* Sends len bytes of new data, with the FIN when it follows and fits. 0 or -ENOBUFS. */
static int send_one(struct tcp_conn *c, uint32_t len)
{
	uint32_t end = c->snd_nxt + len;
	struct tcp_transmission xmit = {.seq = c->snd_nxt, .len = len, .fresh = true};

	xmit.flags = len ? data_flags(c, end) : TCPHDR_ACK;
	if (c->fin_queued && end == c->write_seq && seq_before(end, tcp_wnd_end(c)))
		xmit.flags |= TCPHDR_FIN;
	return send_fresh(c, &xmit, c->mss);
}

bool tcp_send_whole(struct tcp_conn *c, uint32_t len)
{
	struct tcp_transmission xmit = {
		.seq = c->snd_nxt, .len = len, .fresh = true, .mss = (uint16_t)len};
	struct iovec iov[IOV_MAX_SHOT];
	uint32_t fits = len;

	(void)tcp_sndq_iov(&c->sndq, xmit.seq, &fits, iov, IOV_MAX_SHOT);
	if (fits < len)
		return false;
	xmit.flags = data_flags(c, c->snd_nxt + len);
	return !send_fresh(c, &xmit, len);
}

int tcp_send_new(struct tcp_conn *c, uint32_t limit)
{
	uint32_t left = c->write_seq - c->snd_nxt, room = tcp_wnd_end(c) - c->snd_nxt;
	uint32_t before = c->segq.packets_out;
	int err;

	if (!tcp_unsent(c) || seq_geq(c->snd_nxt, tcp_wnd_end(c)))
		return 0;
	left = tcp_sndq_record(&c->sndq, c->snd_nxt, left < limit ? left : limit);
	err = send_one(c, left < room ? left : room);
	return err ? err : (int)(c->segq.packets_out - before);
}

/* Whether the peer's window holds the next segment, which cwnd would let go. */
static void note_window(struct tcp_conn *c)
{
	uint32_t left = tcp_sndq_record(&c->sndq, c->snd_nxt, c->write_seq - c->snd_nxt);
	bool held = tcp_unsent(c) && tcp_in_flight(c) < c->cc.cwnd &&
		    seq_after(c->snd_nxt + (left < c->mss ? left : c->mss), tcp_wnd_end(c));

	if (held)
		tcp_spends(c, TCP_SPENDS_RWND);
	else if (c->spends == TCP_SPENDS_RWND)
		tcp_spends_no_more(c, TCP_SPENDS_RWND);
}

/* Sends what the rules let go. 0, or -ENOBUFS. */
static int send_data(struct tcp_conn *c)
{
	if (c->ext && tcp_unsent(c) && tcp_mtu_probe(c) == TCP_MTU_PROBE_WAITS)
		return 0;
	while (tcp_unsent(c)) {
		uint32_t left = c->write_seq - c->snd_nxt, flight = tcp_in_flight(c), len = 0;
		uint32_t record = tcp_sndq_record(&c->sndq, c->snd_nxt, left);
		int err;

		if (left) {
			if (flight >= c->cc.cwnd || c->segq.count >= tcp_max_segs(c))
				break;
			/* Nothing can be added to a record that has others behind it. */
			len = allowed(c, record, record == left, flight);
			if (!len)
				break;
		} else if (seq_geq(c->snd_nxt, tcp_wnd_end(c))) {
			break; /* The FIN alone: cwnd does not hold it, the window does. */
		}
		err = send_one(c, len);
		if (err)
			return err;
	}
	if (tcp_unsent(c) || c->spends == TCP_SPENDS_RWND)
		note_window(c);
	return 0;
}

/*
 * RFC 5681, 4.1 and Linux's slow_start_after_idle: half the window for each RTO without data, not
 * below the initial one.
 */
static void restart_after_idle(struct tcp_conn *c)
{
	uint64_t idle = c->ts->now - c->lsndtime;
	uint32_t rto = c->rtt.rto_us, cwnd = c->cc.cwnd;
	uint32_t floor = cwnd < tcp_init_cwnd(c) ? cwnd : tcp_init_cwnd(c);

	if (idle <= rto || c->o.cc == TCP_CC_NONE || c->ts->cfg.keep_cwnd)
		return;
	c->cc.ssthresh = tcp_current_ssthresh(c);
	tcp_cc_of(c)->reset(&c->cc);
	for (idle -= rto; idle > 0 && cwnd > floor; idle -= idle < rto ? idle : rto)
		cwnd >>= 1;
	c->cc.cwnd = cwnd > floor ? cwnd : floor;
	c->cwnd_stamp = c->ts->now;
	c->cwnd_used = 0;
}

/* Nothing is in flight, and something is about to leave. */
static void restart(struct tcp_conn *c)
{
	struct tcp_cc_ack a = {.now = c->ts->now,
			       .srtt_us = tcp_srtt(c),
			       .mss = c->mss,
			       .app_limited = c->app_limited != 0};

	if (tcp_cc_of(c)->restart)
		tcp_cc_of(c)->restart(&c->cc, &a);
	else if (c->ts->now - c->lsndtime > c->rtt.rto_us)
		restart_after_idle(c);
}

/*
 * The window was not used for an RTO: it shrinks halfway to what was (RFC 7661's forerunner RFC
 * 2861, as Linux).
 */
static void application_limited(struct tcp_conn *c)
{
	if (c->ca_state == TCPCA_OPEN && c->o.cc != TCP_CC_NONE && !tcp_cc_of(c)->control) {
		uint32_t first = tcp_init_cwnd(c);
		uint32_t used = c->cwnd_used > first ? c->cwnd_used : first;

		if (used < c->cc.cwnd) {
			c->cc.ssthresh = tcp_current_ssthresh(c);
			c->cc.cwnd = (c->cc.cwnd + used) >> 1;
		}
		c->cwnd_used = 0;
	}
	c->cwnd_stamp = c->ts->now;
}

/*
 * After new data: was cwnd what limited? It grows only then (RFC 7661; Linux: tcp_cwnd_validate()).
 */
static void validate_cwnd(struct tcp_conn *c)
{
	uint32_t out = c->segq.packets_out;
	bool limited = tcp_in_flight(c) >= c->cc.cwnd;

	if (seq_geq(c->snd_una, c->max_out_seq) || limited ||
	    (!c->cwnd_limited && out > c->max_out)) {
		c->cwnd_limited = limited;
		c->max_out = out;
		c->max_out_seq = c->snd_nxt;
	}
	if (c->cwnd_limited) {
		c->cwnd_used = 0;
		c->cwnd_stamp = c->ts->now;
		return;
	}
	if (out > c->cwnd_used)
		c->cwnd_used = out;
	if (c->nospace && !tcp_unsent(c) &&
	    (c->state == TCPS_ESTABLISHED || c->state == TCPS_CLOSE_WAIT))
		tcp_spends(c, TCP_SPENDS_SNDBUF);
	if (c->ts->now - c->cwnd_stamp >= c->rtt.rto_us && !c->ts->cfg.keep_cwnd)
		application_limited(c);
}

static bool synchronized(const struct tcp_conn *c)
{
	if (c->state == TCPS_SYN_RECV) /* RFC 7413, 4.2.2: the server may answer before the ACK */
		return c->fo_child && !tcp_syn_unsent(c) && !c->closing;
	return c->state != TCPS_CLOSED && c->state != TCPS_LISTEN && c->state != TCPS_SYN_SENT &&
	       !c->closing;
}

/* New data has left: the flight's timer starts, or the probe's is put off (RFC 8985, 7.2). */
static void after_new(struct tcp_conn *c, bool idle)
{
	if (idle || c->pending == TCP_PENDING_TLP || c->pending == TCP_PENDING_NONE ||
	    c->pending == TCP_PENDING_PROBE)
		tcp_rearm_rtx(c);
	validate_cwnd(c);
}

void tcp_output(struct tcp_conn *c)
{
	uint32_t nxt = c->snd_nxt;
	bool idle = !c->segq.packets_out, first = c->frto_new;
	int err = 0;

	if (!synchronized(c))
		return;
	if (idle && tcp_unsent(c))
		restart(c);
	c->frto_new = false;
	if (first) {
		/*
		 * RFC 5682, 2b: the answer to new data tells; without any the retransmission goes
		 * on.
		 */
		err = send_data(c);
		if (c->snd_nxt == nxt)
			c->frto = false;
	}
	if (!err && c->segq.lost_out > c->segq.retrans_out && !(first && c->frto))
		err = tcp_retransmit_lost(c);
	if (!err && !first)
		err = send_data(c);
	if (!tcp_unsent(c))
		c->push_held = false;
	if (c->snd_nxt != nxt)
		after_new(c, idle);
	/* Something else holds the rest, if there is any. */
	if (c->pace_next <= c->ts->now)
		c->pace_waits = false;
	if (err)
		tcp_blocked(c);
	else if (!c->segq.packets_out)
		tcp_check_probe(c);
	if (c->nospace)
		tcp_tell_space(c);
}
