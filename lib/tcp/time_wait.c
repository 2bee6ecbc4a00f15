/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TIME_WAIT (RFC 9293, 3.10.7.4; RFC 6191; Linux: tcp_timewait_state_process()), and FIN_WAIT2 of a
 * connection whose user is gone: all that is left is to answer.
 */
#include "tcp/internal.h"

#define ISN_STEP 65537u

static void list_add(struct tcp_stack *ts, struct tcp_tw *tw)
{
	tw->next = NULL;
	tw->pprev = ts->tws_tail;
	*tw->pprev = tw;
	ts->tws_tail = &tw->next;
}

static void list_del(struct tcp_stack *ts, struct tcp_tw *tw)
{
	*tw->pprev = tw->next;
	if (tw->next)
		tw->next->pprev = tw->pprev;
	else
		ts->tws_tail = tw->pprev;
}

/* There is one. What somebody else goes on with is left for as long as that takes. */
static struct tcp_tw *oldest(const struct tcp_stack *ts)
{
	struct tcp_tw *tw = ts->tws;

	while (tw->mute)
		tw = tw->next;
	return tw;
}

/* What is left of c. The caller arms its timer. NULL: no memory. */
static struct tcp_tw *tw_of(struct tcp_conn *c)
{
	struct tcp_stack *ts = c->ts;
	struct tcp_tw *tw = tcp_alloc(ts, sizeof(*tw));

	if (!tw) {
		ts->n.no_memory++;
		return NULL;
	}
	tw->node.tuple = c->node.tuple;
	tw->node.kind = TCP_KIND_TW;
	tw->timer.kind = TCP_TIMER_TW;
	tw->rcv_nxt = c->rcv_nxt;
	tw->snd_nxt = c->snd_nxt;
	tw->rcv_wnd = tcp_rcv_window(c);
	tw->rcv_wscale = c->rcv_wscale;
	tw->ts_ok = c->ts_ok;
	tw->ts_recent = c->ts_recent;
	tw->ts_recent_stamp = c->ts_recent_stamp;
	tw->ts_off = c->ts_off;
	tw->tos = tcp_tos(&c->o, c->node.tuple.family);
	tw->user = c->user;
	return tw;
}

struct tcp_tw *tcp_tw_new(struct tcp_conn *c, bool fin_wait2)
{
	struct tcp_stack *ts = c->ts;
	struct tcp_tw *tw;

	if (!ts->cfg.max_tw)
		return NULL;
	while (ts->num_tw >= ts->cfg.max_tw) {
		ts->n.tw_killed++;
		tcp_tw_free(ts, oldest(ts));
	}
	tw = tw_of(c);
	if (!tw)
		return NULL;
	tw->fin_wait2 = fin_wait2;
	list_add(ts, tw);
	ts->num_tw++;
	ts->n.tw_created++;
	wheel_arm(&ts->wheel, &tw->timer,
		  ts->now + (fin_wait2 ? c->o.linger2_ms * 1000ull : ts->cfg.timewait_us));
	return tw;
}

struct tcp_tw *tcp_tw_mute(struct tcp_conn *c, uint64_t until)
{
	struct tcp_tw *tw = tw_of(c);

	if (!tw)
		return NULL;
	tw->mute = true;
	tw->user = NULL;
	list_add(c->ts, tw);
	wheel_arm(&c->ts->wheel, &tw->timer, until);
	return tw;
}

void tcp_tw_free(struct tcp_stack *ts, struct tcp_tw *tw)
{
	void *user = tw->user;

	wheel_cancel(&ts->wheel, &tw->timer);
	list_del(ts, tw);
	ts->num_tw -= !tw->mute;
	tcp_table_del(&ts->table, &tw->node);
	if (tw->conn) { /* its user will have GONE from the connection */
		tw->conn->tw = NULL;
		user = NULL;
	}
	tcp_free(ts, tw, sizeof(*tw));
	if (user)
		ts->env.event(ts->env.ctx, user, TCP_EV_GONE);
}

void tcp_tw_timer(struct tcp_stack *ts, struct tcp_tw *tw)
{
	tcp_tw_free(ts, tw);
}

/* From the end of the list to its new place: the oldest stands first. */
static void restart(struct tcp_stack *ts, struct tcp_tw *tw)
{
	list_del(ts, tw);
	list_add(ts, tw);
	wheel_arm(&ts->wheel, &tw->timer, ts->now + ts->cfg.timewait_us);
}

static void tw_ack(struct tcp_stack *ts, struct tcp_tw *tw)
{
	struct tcp_hdr_spec h = {
		.sport = tw->node.tuple.lport,
		.dport = tw->node.tuple.rport,
		.seq = tw->snd_nxt,
		.ack = tw->rcv_nxt,
		.wnd = (uint16_t)(tw->rcv_wnd >> tw->rcv_wscale),
		.flags = TCPHDR_ACK,
		.ts = tw->ts_ok,
		.tsval = tcp_ts_clock(ts) + tw->ts_off,
		.tsecr = tw->ts_recent,
	};

	tcp_xmit_bare(ts, &tw->node.tuple, tw->user, &h, tw->tos, 0);
}

static void remember_ts(struct tcp_stack *ts, struct tcp_tw *tw, const struct tcp_rx *rx)
{
	if (!tw->ts_ok || !rx->has_ts)
		return;
	tw->ts_recent = rx->tsval;
	tw->ts_recent_stamp = ts->now;
}

/* What must not be: answered with a RST, and the rest of the connection is no more. */
static void tw_reset(struct tcp_stack *ts, struct tcp_tw *tw, const struct tcp_rx *rx)
{
	tcp_reply_rst(ts, &tw->node.tuple, rx);
	tcp_tw_free(ts, tw);
}

static void fin_wait2_input(struct tcp_stack *ts, struct tcp_tw *tw, const struct tcp_rx *rx,
			    bool old)
{
	if (old || seq_before(rx->end_seq, tw->rcv_nxt) ||
	    seq_after(rx->seq, tw->rcv_nxt + tw->rcv_wnd)) {
		ts->n.paws += old;
		if (!(rx->flags & TCPHDR_RST) && tcp_oow_answer(ts, &tw->oow_ack, rx))
			tw_ack(ts, tw);
		return;
	}
	if (rx->flags & TCPHDR_RST) {
		if (rx->seq == tw->rcv_nxt)
			tcp_tw_free(ts, tw);
		else if (tcp_oow_allowed(ts, &tw->oow_ack)) /* RFC 5961, 3.2 */
			tw_ack(ts, tw);
		return;
	}
	if (rx->flags & TCPHDR_SYN) { /* RFC 5961, 4 */
		ts->n.syn_challenge++;
		if (tcp_oow_allowed(ts, &tw->oow_ack))
			tw_ack(ts, tw);
		return;
	}
	if (!(rx->flags & TCPHDR_ACK) || seq_leq(rx->end_seq, tw->rcv_nxt))
		return;
	/* Data: there is nobody to give it to. */
	if (rx->len && seq_after(rx->seq + rx->len, tw->rcv_nxt)) {
		ts->n.abort_on_data++;
		tw_reset(ts, tw, rx);
		return;
	}
	if (!(rx->flags & TCPHDR_FIN) || rx->end_seq != tw->rcv_nxt + 1)
		return;
	tw->fin_wait2 = false;
	tw->rcv_nxt = rx->end_seq;
	remember_ts(ts, tw, rx);
	restart(ts, tw);
	tw_ack(ts, tw);
}

/* A SYN that is surely new: a higher number or a later time stamp (RFC 6191; RFC 9293, 3.6.1). */
static bool new_syn(const struct tcp_tw *tw, const struct tcp_rx *rx)
{
	if ((rx->flags & (TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST)) != TCPHDR_SYN)
		return false;
	return seq_after(rx->seq, tw->rcv_nxt) ||
	       (tw->ts_ok && rx->has_ts && seq_before(tw->ts_recent, rx->tsval));
}

/* The peer takes part in a handshake of the same name that somebody else on this host has begun. */
static bool is_taken_over(struct tcp_stack *ts, const struct tcp_tw *tw, const struct tcp_rx *rx)
{
	return (rx->flags & (TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST)) == (TCPHDR_SYN | TCPHDR_ACK) &&
	       tw->user && ts->env.may_be_others && ts->env.may_be_others(ts->env.ctx, tw->user);
}

bool tcp_tw_input(struct tcp_stack *ts, struct tcp_tw *tw, struct tcp_rx *rx)
{
	bool old = tw->ts_ok && tcp_paws_reject(ts->now, tw->ts_recent, tw->ts_recent_stamp, rx, 0);

	if (tw->mute) /* another stack has the connection: it must not hear a word of us */
		return true;
	if (tw->fin_wait2) {
		fin_wait2_input(ts, tw, rx, old);
		return true;
	}
	if (rx->flags & TCPHDR_RST) { /* RFC 1337's advice is off, as in Linux */
		if (!old && rx->seq == tw->rcv_nxt)
			tcp_tw_free(ts, tw);
		return true;
	}
	if (!old && rx->seq == tw->rcv_nxt && rx->seq == rx->end_seq) { /* an ACK that was late */
		remember_ts(ts, tw, rx);
		return true;
	}
	if (!old && new_syn(tw, rx) && tcp_listener_find(ts, &tw->node.tuple)) {
		ts->reuse_isn = tw->snd_nxt + ISN_STEP;
		ts->reuse_isn += !ts->reuse_isn;
		ts->n.tw_recycled++;
		tcp_tw_free(ts, tw);
		return false;
	}
	if (is_taken_over(ts, tw, rx)) { /* comes again, and goes to who has asked for it */
		tcp_tw_free(ts, tw);
		return true;
	}
	ts->n.paws += old;
	/* The peer's FIN again, as a rule: our ACK of it was lost, and the wait begins anew. */
	if (old || (rx->flags & TCPHDR_ACK))
		restart(ts, tw);
	if (tcp_oow_answer(ts, &tw->oow_ack, rx))
		tw_ack(ts, tw);
	return true;
}
