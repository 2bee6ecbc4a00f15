/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments without data: SYN, ACK, RST; the window that they tell. */
#include "tcp/recovery/loss.h"

/*
 * RFC 5961, 7. Not the same in each second, in the mean so many: whoever counts what is left of a
 * known number learns whether another connection was answered (CVE-2016-5696).
 */
#define CHALLENGES_A_SECOND 1000u

int tcp_xmit_bare(struct tcp_stack *ts, const struct tcp_tuple *tuple, void *user,
		  const struct tcp_hdr_spec *h, uint8_t tos, uint8_t ttl)
{
	uint8_t hdr[TCP_HDR_MAX];
	struct tcp_tx tx = {
		.user = user,
		.tuple = tuple,
		.hdr = hdr,
		.hdr_len = tcp_hdr_write(hdr, h),
		.tos = tos,
		.ttl = ttl,
		.family = tuple->family,
	};
	int err = ts->env.output(ts->env.ctx, &tx);

	if (err == -ENOBUFS)
		return err;
	ts->n.out_segs++;
	if (h->flags & TCPHDR_RST)
		ts->n.out_rsts++;
	return 0;
}

/* Neither SYNs nor what has no data is ECN-capable. */
static uint8_t tos_of(const struct tcp_conn *c)
{
	return (uint8_t)(tcp_tos(&c->o, c->node.tuple.family) & ~3u);
}

/* tcp_xmit_bare() of a connection. */
static int xmit_bare(const struct tcp_conn *c, const struct tcp_hdr_spec *h)
{
	return tcp_xmit_bare(c->ts, &c->node.tuple, tcp_tx_user(c), h, tos_of(c),
			     tcp_ttl(&c->o, c->node.tuple.family));
}

/* --- the window */

/*
 * Without scaling a window is a whole number of the peer's segments, and stays while it is within
 * one of what is free. Where one segment is all that ever fits, half of it more is enough (Linux).
 */
static uint32_t unscaled_window(const struct tcp_conn *c, uint32_t space, uint32_t mss)
{
	uint32_t window = c->rcv_wnd;

	if (window + mss <= space || window > space)
		return space - space % mss;
	return mss == space && space - window > space >> 1 ? space : window;
}

/*
 * The window to be told: none rather than a silly one (RFC 9293, 3.8.6.2.2; RFC 1122, 4.2.3.3).
 * What makes it silly is too little free memory; a window that auto-tuning or a clamp keeps small
 * is as large as it gets.
 */
static uint32_t window_of(const struct tcp_conn *c)
{
	uint32_t full = c->o.rcvbuf >> 1, mss = c->rcv_mss ? c->rcv_mss : TCP_MSS_DEFAULT;
	uint32_t left = tcp_rcv_free(c), space = tcp_rcv_space(c);

	if (c->window_clamp && full > c->window_clamp)
		full = c->window_clamp;
	if (mss > full)
		mss = full ? full : 1;
	if (left < full >> 1 && (left < full >> 4 || left < mss))
		return 0;
	if (!c->rcv_wscale)
		return unscaled_window(c, space, mss < space ? mss : space ? space : 1);
	/* Rounded up, so that one more buffer's worth does not go unsaid. */
	return (space + (1u << c->rcv_wscale) - 1) & ~((1u << c->rcv_wscale) - 1);
}

uint16_t tcp_select_window(struct tcp_conn *c)
{
	uint32_t was = tcp_rcv_window(c), unit = 1u << c->rcv_wscale;
	uint32_t window = window_of(c);

	/* Never shrink what was told (RFC 9293, 3.8.6). */
	if (window < was)
		window = (was + unit - 1) & ~(unit - 1);
	if (window > (uint32_t)UINT16_MAX << c->rcv_wscale)
		window = (uint32_t)UINT16_MAX << c->rcv_wscale;
	c->rcv_wnd = window;
	c->rcv_wup = c->rcv_nxt;
	return (uint16_t)(window >> c->rcv_wscale);
}

void tcp_window_update(struct tcp_conn *c)
{
	uint32_t told = tcp_rcv_window(c), window;

	if (c->state == TCPS_CLOSED || c->closing || c->fin_rcvd)
		return;
	/* More than a segment has been read that nobody acknowledged. */
	if (c->ack_needed && c->rcv_nxt - c->rcv_wup > c->rcv_mss) {
		c->ack_needed = 2;
		tcp_mark_dirty(c);
		return;
	}
	if (c->window_clamp && 2 * (uint64_t)told > c->window_clamp)
		return;
	window = window_of(c);
	if (window && window >= 2 * (uint64_t)told) {
		c->ack_needed = 2;
		tcp_mark_dirty(c);
	}
}

/* --- ACK */

/*
 * The number of a segment without data. A peer that has taken back its window throws away what lies
 * beyond it. Less than its scale's unit is rounding: such a peer may have all up to snd_nxt, and
 * throws away what lies before that (Linux: tcp_acceptable_seq()).
 */
static uint32_t acceptable_seq(const struct tcp_conn *c)
{
	uint32_t end = tcp_wnd_end(c);

	if (!seq_after(c->snd_nxt, end) || c->snd_nxt - end < 1u << c->snd_wscale)
		return c->snd_nxt;
	return seq_max(c->snd_una, end);
}

void tcp_send_ack(struct tcp_conn *c)
{
	struct tcp_transmission xmit = {.seq = acceptable_seq(c), .flags = TCPHDR_ACK};

	if (c->closing || c->state == TCPS_CLOSED)
		return;
	if (tcp_xmit(c, &xmit)) {
		/* It is still due. */
		c->ack_needed = 2;
		tcp_blocked(c);
	}
}

static uint32_t challenges_in(const struct tcp_stack *ts, uint64_t second)
{
	return CHALLENGES_A_SECOND / 2 +
	       (uint32_t)(siphash(ts->cfg.secret, &second, sizeof(second)) % CHALLENGES_A_SECOND);
}

void tcp_challenge_ack(struct tcp_conn *c)
{
	struct tcp_stack *ts = c->ts;
	uint64_t second = ts->now / 1000000;

	if (!tcp_oow_allowed(ts, &c->oow_ack))
		return;
	if (ts->challenge_second != second) {
		ts->challenge_second = second;
		ts->challenge_left = challenges_in(ts, second);
	}
	if (!ts->challenge_left) {
		ts->n.challenge_limited++;
		return;
	}
	ts->challenge_left--;
	ts->n.challenge_ack++;
	tcp_send_ack(c);
}

/* --- SYN */

/* With what the user has given until now, which fits. */
static int xmit_syn_data(struct tcp_conn *c, struct tcp_fast_open *fo, const struct tcp_hdr_spec *h)
{
	struct iovec iov[4];
	uint8_t hdr[TCP_HDR_MAX];
	struct tcp_tx tx = {
		.user = c->user,
		.tuple = &c->node.tuple,
		.hdr = hdr,
		.hdr_len = tcp_hdr_write(hdr, h),
		.iov = iov,
		.len = c->sndq.len,
		.mss = (uint16_t)c->mss,
		.tos = tos_of(c),
		.ttl = tcp_ttl(&c->o, c->node.tuple.family),
		.family = c->node.tuple.family,
	};

	tx.iovcnt = tcp_sndq_iov(&c->sndq, c->iss + 1, &tx.len, iov, 4);
	if (c->ts->env.output(c->ts->env.ctx, &tx) == -ENOBUFS)
		return -ENOBUFS;
	fo->sent = (uint16_t)tx.len;
	c->data_segs_out++;
	c->bytes_sent += tx.len;
	c->ts->n.out_segs++;
	c->ts->n.out_bytes += tx.len;
	return 0;
}

static int xmit_syn(struct tcp_conn *c, bool ack)
{
	struct tcp_hdr_spec h = {
		.sport = c->node.tuple.lport,
		.dport = c->node.tuple.rport,
		.seq = c->iss,
		.flags = TCPHDR_SYN,
		.mss = (uint16_t)c->advmss,
		.tsval = tcp_ts_now(c),
	};
	uint32_t wnd = c->rcv_wnd;
	struct tcp_fast_open *fo = c->ext ? c->ext->fast_open : NULL;

	if (c->snd_nxt != c->iss) /* RFC 7413, 4.1.3: repeated, it is an ordinary one */
		fo = NULL;
	if (fo)
		h.fast_open = &fo->cookie;
	/* The window of a SYN is never scaled (RFC 7323, 2.2). */
	h.wnd = wnd < UINT16_MAX ? (uint16_t)wnd : UINT16_MAX;
	if (ack) {
		h.flags |= TCPHDR_ACK | (c->ecn_ok ? TCPHDR_ECE : 0);
		h.ack = c->rcv_nxt;
		h.ts = c->ts_ok;
		h.tsecr = c->ts_recent;
		h.sack_permitted = c->sack_ok;
		h.wscale_present = c->wscale_ok;
		c->rcv_wup = c->last_ack_sent = c->rcv_nxt;
		c->ack_needed = 0;
	} else {
		h.ts = c->o.timestamps;
		h.sack_permitted = c->o.sack;
		h.wscale_present = c->o.wscale;
		/* RFC 3168, 6.1.1.1: some drop a SYN that asks, so the third one does not. */
		if (c->o.ecn && c->retries < 2)
			h.flags |= TCPHDR_ECE | TCPHDR_CWR;
	}
	h.wscale = c->rcv_wscale;
	c->segs_out++;
	if (fo && !ack && c->sndq.len)
		return xmit_syn_data(c, fo, &h);
	return xmit_bare(c, &h);
}

void tcp_send_syn(struct tcp_conn *c)
{
	struct tcp_segq *q = &c->segq;
	bool ack = c->state == TCPS_SYN_RECV, again = q->head != NULL;
	struct tcp_seg *s = q->head;

	if (!again)
		s = tcp_segq_add(q, &c->ts->env, c->iss, c->iss + 1, 0, SEG_SYN, c->ts->now);
	if (!s) {
		c->ts->n.no_memory++;
		tcp_blocked(c);
		return;
	}
	if (xmit_syn(c, ack)) {
		if (!again)
			tcp_segq_pop(q, &c->ts->env);
		tcp_blocked(c);
		return;
	}
	if (again) {
		tcp_segq_mark(q, s, SEG_EVER_RETRANS, 0);
		tcp_segq_sent(q, s, c->ts->now);
		c->total_retrans++;
		c->ts->n.retrans_segs++;
		if (!c->retrans_stamp)
			c->retrans_stamp = c->ts->now;
	}
	if (!again)
		c->snd_nxt = c->iss + 1;
	tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
}

/* --- RST */

void tcp_send_rst(struct tcp_conn *c)
{
	struct tcp_hdr_spec h = {
		.sport = c->node.tuple.lport,
		.dport = c->node.tuple.rport,
		/* Elsewhere the peer would answer with a challenge only (RFC 5961, 3). */
		.seq = acceptable_seq(c),
		.ack = c->rcv_nxt,
		.flags = TCPHDR_RST | TCPHDR_ACK,
		.wnd = tcp_select_window(c),
		.ts = c->ts_ok,
		.tsval = tcp_ts_now(c),
		.tsecr = c->ts_recent,
	};

	/* Lost, or no room for it: the peer's next segment is answered with one. */
	(void)xmit_bare(c, &h);
}

void tcp_reply_rst(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_rx *rx)
{
	struct tcp_hdr_spec h = {.sport = tuple->lport, .dport = tuple->rport, .flags = TCPHDR_RST};

	if (rx->flags & TCPHDR_RST)
		return;
	if (rx->flags & TCPHDR_ACK) {
		h.seq = rx->ack;
	} else {
		h.flags |= TCPHDR_ACK;
		h.ack = rx->end_seq;
	}
	(void)tcp_xmit_bare(ts, tuple, NULL, &h, 0, 0);
}
