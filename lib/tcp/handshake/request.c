/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Embryonic connections of listeners: from the SYN to the ACK of our SYN|ACK (Linux: struct
 * tcp_request_sock).
 */
#include "tcp/internal.h"

#define SECOND_US 1000000u

uint32_t tcp_isn(const struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	/*
	 * RFC 6528: a hash of the tuple, and a clock that goes faster than connections come (64 ns,
	 * as in Linux).
	 */
	return (uint32_t)siphash(ts->cfg.secret + 2, tuple, sizeof(*tuple)) +
	       (uint32_t)(ts->now * 1000 / 64);
}

uint32_t tcp_ts_offset(const struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	struct in6_addr pair[3] = {tuple->local, tuple->remote, {.s6_addr = "time stamps"}};

	/*
	 * The same for all connections of two hosts: time stamps of later ones must be later (RFC
	 * 6191).
	 */
	return (uint32_t)siphash(ts->cfg.secret + 2, pair, sizeof(pair));
}

/* --- the SYN */

/* VMA_TCP_MAX_SYN_RATE: each listener answers as many SYNs a second. */
static bool syn_rate_ok(struct tcp_listener *l)
{
	struct tcp_stack *ts = l->ts;
	uint64_t second = ts->now / SECOND_US;

	if (!ts->cfg.max_syn_rate)
		return true;
	if (second != l->syn_second) {
		l->syn_second = second;
		l->syn_left = ts->cfg.max_syn_rate;
	}
	if (!l->syn_left) {
		ts->n.syn_rate_limited++;
		return false;
	}
	l->syn_left--;
	return true;
}

void tcp_req_fill(struct tcp_req *r, struct tcp_listener *l, const struct tcp_rx *rx,
		  const struct tcp_tuple *tuple)
{
	struct tcp_stack *ts = l->ts;
	struct tcp_opts with_route = l->o;
	struct tcp_route route = tcp_route_of(ts, tuple, &with_route);
	const struct tcp_opts *o = &with_route;
	uint32_t mss = tcp_adv_mss(ts, tuple, o, &route);

	r->node.tuple = *tuple;
	r->node.kind = TCP_KIND_REQ;
	r->timer.kind = TCP_TIMER_REQ;
	r->l = l;
	r->sent_us = ts->now;
	r->irs = rx->seq;
	r->ts_ok = o->timestamps && rx->has_ts;
	r->ts_recent = r->ts_ok ? rx->tsval : 0;
	r->ts_off = tcp_ts_offset(ts, tuple);
	r->sack_ok = o->sack && rx->sack_ok;
	r->wscale_ok = o->wscale && rx->has_wscale;
	r->snd_wscale = r->wscale_ok ? rx->wscale : 0;
	r->rcv_wscale = r->wscale_ok ? tcp_wscale_for(o) : 0;
	r->ecn_ok = (o->ecn || o->ecn_passive) &&
		    (rx->flags & (TCPHDR_ECE | TCPHDR_CWR)) == (TCPHDR_ECE | TCPHDR_CWR);
	r->wnd = rx->wnd;
	r->peer_mss = rx->has_mss ? rx->mss
				  : (uint16_t)(tuple->family == AF_INET6 ? TCP_MSS_DEFAULT6
									 : TCP_MSS_DEFAULT);
	r->advmss = (uint16_t)mss;
	r->rcv_wnd = (uint16_t)tcp_initial_window(o, mss - (r->ts_ok ? 12 : 0), route.initrwnd);
	r->tos = tcp_tos(o, tuple->family);
}

static uint8_t ttl_of(const struct tcp_req *r)
{
	return tcp_ttl(&r->l->o, r->node.tuple.family);
}

void tcp_send_synack(struct tcp_stack *ts, const struct tcp_req *r, uint32_t tsval,
		     const struct tcp_fast_open_cookie *fo)
{
	struct tcp_hdr_spec h = {
		.sport = r->node.tuple.lport,
		.dport = r->node.tuple.rport,
		.seq = r->iss,
		.ack = r->irs + 1,
		.wnd = r->rcv_wnd,
		.flags = TCPHDR_SYN | TCPHDR_ACK | (r->ecn_ok ? TCPHDR_ECE : 0),
		.ts = r->ts_ok,
		.sack_permitted = r->sack_ok,
		.wscale_present = r->wscale_ok,
		.wscale = r->rcv_wscale,
		.mss = r->advmss,
		.tsval = tsval ? tsval : tcp_ts_clock(ts) + r->ts_off,
		.tsecr = r->ts_recent,
		.fast_open = fo,
	};

	/* Lost, or refused by a full queue: the peer or the timer asks for it again. */
	tcp_xmit_bare(ts, &r->node.tuple, r->l->user, &h, r->tos, ttl_of(r));
}

static void req_link(struct tcp_req *r)
{
	struct tcp_listener *l = r->l;

	r->pprev = l->reqs_tail;
	*r->pprev = r;
	l->reqs_tail = &r->next;
	l->num_reqs++;
}

static void req_arm(struct tcp_stack *ts, struct tcp_req *r)
{
	uint64_t in = (uint64_t)TCP_RTO_INIT_US << (r->retries < 16 ? r->retries : 16);

	wheel_arm(&ts->wheel, &r->timer, ts->now + (in < TCP_RTO_MAX_US ? in : TCP_RTO_MAX_US));
}

bool tcp_begins(const struct tcp_listener *l, struct tcp_node *n)
{
	struct tcp_stack *ts = l->ts;
	int ret = ts->env.begins ? ts->env.begins(ts->env.ctx, l->user, &n->tuple) : 0;

	n->tells_end = ret > 0;
	return ret >= 0;
}

void tcp_ended(struct tcp_stack *ts, struct tcp_node *n)
{
	if (!n->tells_end)
		return;
	n->tells_end = false;
	ts->env.ended(ts->env.ctx, &n->tuple);
}

bool tcp_ended_taken(struct tcp_conn *c)
{
	bool was = c->node.tells_end;

	c->node.tells_end = false;
	return was;
}

/* Linux: tcp_conn_request(). What follows a TIME_WAIT has a peer that is known to be there. */
static bool keeps_no_more(const struct tcp_listener *l)
{
	return !l->ts->reuse_isn &&
	       (l->num_reqs > (unsigned)l->spec.backlog || l->ts->cfg.syncookies == 2);
}

/* A SYN for which l keeps no embryo. */
static void without_state(struct tcp_listener *l, const struct tcp_rx *rx,
			  const struct tcp_tuple *tuple)
{
	struct tcp_req cookie = {0};

	if (!l->ts->cfg.syncookies) {
		l->ts->n.listen_drops++;
		return;
	}
	tcp_req_fill(&cookie, l, rx, tuple);
	tcp_cookie_syn(&cookie, rx);
}

void tcp_listen_syn(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple)
{
	struct tcp_fast_open_cookie answer = {.len = -1};
	struct tcp_stack *ts = l->ts;
	struct tcp_req *r;

	if (l->stopped || !syn_rate_ok(l)) {
		ts->n.listen_drops++;
		return;
	}
	if (l->num_accept > (unsigned)l->spec.backlog) {
		ts->n.listen_overflows++;
		ts->n.listen_drops++;
		return;
	}
	if (keeps_no_more(l)) {
		without_state(l, rx, tuple);
		return;
	}
	if (l->fast_open.qlen && tcp_fast_open_syn(l, rx, tuple, &answer))
		return;
	r = tcp_alloc(ts, sizeof(*r));
	if (!r) {
		ts->n.no_memory++;
		ts->n.listen_drops++;
		return;
	}
	tcp_req_fill(r, l, rx, tuple);
	if (!tcp_begins(l, &r->node)) {
		ts->n.listen_drops++;
		tcp_free(ts, r, sizeof(*r));
		return;
	}
	r->iss = ts->reuse_isn ? ts->reuse_isn : tcp_isn(ts, tuple);
	req_link(r);
	tcp_table_add(&ts->table, &ts->env, &r->node);
	req_arm(ts, r);
	tcp_send_synack(ts, r, 0, &answer);
}

/* --- the end of an embryo */

static void req_unlink(struct tcp_req *r)
{
	struct tcp_listener *l = r->l;

	wheel_cancel(&l->ts->wheel, &r->timer);
	*r->pprev = r->next;
	if (r->next)
		r->next->pprev = r->pprev;
	else
		l->reqs_tail = r->pprev;
	l->num_reqs--;
}

void tcp_req_free(struct tcp_req *r)
{
	struct tcp_stack *ts = r->l->ts;

	req_unlink(r);
	tcp_table_del(&ts->table, &r->node);
	tcp_ended(ts, &r->node);
	tcp_free(ts, r, sizeof(*r));
}

/* TCP_DEFER_ACCEPT in time-outs of the SYN|ACK (Linux: secs_to_retrans()). */
static unsigned defer_retries(const struct tcp_opts *o)
{
	uint32_t period = 1, timeout = 1, n;

	if (!o->defer_accept_s)
		return 0;
	for (n = 1; o->defer_accept_s > period && n < UINT8_MAX; n++) {
		timeout = timeout * 2 < TCP_RTO_MAX_US / SECOND_US ? timeout * 2
								   : TCP_RTO_MAX_US / SECOND_US;
		period += timeout;
	}
	return n;
}

void tcp_req_timer(struct tcp_req *r)
{
	struct tcp_stack *ts = r->l->ts;
	const struct tcp_opts *o = &r->l->o;
	/* The listener's TCP_SYNCNT, if it was set. */
	unsigned max =
		o->syn_retries == ts->cfg.syn_retries ? ts->cfg.synack_retries : o->syn_retries;
	unsigned defer = defer_retries(o);

	/*
	 * Linux: syn_ack_recalc(). One that waits for data is kept that long, and asked again only
	 * at the end.
	 */
	if (r->retries >= max && (!defer || !r->acked || r->retries >= defer)) {
		ts->n.attempt_fails++;
		tcp_req_free(r);
		return;
	}
	if (!defer || !r->acked || r->retries + 1u >= defer) {
		ts->n.retrans_segs++;
		tcp_send_synack(ts, r, 0, NULL);
	}
	r->retries++;
	req_arm(ts, r);
}

/* --- the ACK */

struct tcp_conn *tcp_req_child(const struct tcp_req *r, const struct tcp_rx *rx)
{
	struct tcp_stack *ts = r->l->ts;
	struct tcp_conn *c = tcp_conn_new(ts, &r->node.tuple, &r->l->o);

	if (!c)
		return NULL;
	c->node.first_ttl = rx->ttl;
	c->node.first_tos = rx->tos;
	c->node.tells_end = r->node.tells_end;
	c->o.defer_accept_s = 0; /* the listener's */
	c->ts_ok = r->ts_ok;
	c->sack_ok = r->sack_ok;
	c->wscale_ok = r->wscale_ok;
	c->ecn_ok = r->ecn_ok;
	c->snd_wscale = r->snd_wscale;
	c->rcv_wscale = r->rcv_wscale;
	c->peer_mss = r->peer_mss;
	c->advmss = r->advmss;
	c->ts_off = r->ts_off;
	c->ts_recent = r->ts_recent;
	c->ts_recent_stamp = ts->now;
	c->rcv_wnd = r->rcv_wnd;
	tcp_conn_set_irs(c, r->irs);
	c->snd_wl1 = rx->seq;
	c->segs_in = 1; /* the SYN */
	return c;
}

void tcp_accept_add(struct tcp_listener *l, struct tcp_conn *c)
{
	struct tcp_stack *ts = l->ts;

	ts->n.passive_opens++;
	c->l = l;
	*l->accept_tail = c;
	l->accept_tail = &c->next;
	l->num_accept++;
	if (ts->env.queued)
		ts->env.queued(ts->env.ctx, l->user, c);
	if (l->user)
		ts->env.event(ts->env.ctx, l->user, TCP_EV_IN);
}

bool tcp_req_complete(struct tcp_req *r, struct tcp_rx *rx)
{
	struct tcp_listener *l = r->l;
	struct tcp_stack *ts = l->ts;
	bool in_table = r->pprev != NULL;
	struct tcp_conn *c;

	if (l->num_accept > (unsigned)l->spec.backlog) {
		ts->n.listen_overflows++;
		ts->n.listen_drops++;
		return false;
	}
	c = tcp_req_child(r, rx);
	if (!c) {
		ts->n.listen_drops++;
		return false;
	}
	c->snd_wnd = c->max_wnd = rx->wnd << r->snd_wscale;
	tcp_snd_init(c, r->iss, true);
	c->delivered = 1; /* the SYN|ACK, as Linux counts it */
	if (!r->retries)
		tcp_ack_syn(c, (uint32_t)(ts->now - r->sent_us));
	c->total_retrans = r->retries;
	if (in_table) {
		req_unlink(r);
		tcp_table_replace(&ts->table, &r->node, &c->node);
		tcp_free(ts, r, sizeof(*r));
	} else {
		tcp_table_add(&ts->table, &ts->env, &c->node);
	}
	tcp_conn_established(c);
	tcp_accept_add(l, c);
	tcp_conn_input(c, rx);
	return true;
}

/* An ACK that says where we are: for segments outside of the window, and challenges. */
static void req_ack(struct tcp_req *r, const struct tcp_rx *rx)
{
	struct tcp_stack *ts = r->l->ts;
	struct tcp_hdr_spec h = {
		.sport = r->node.tuple.lport,
		.dport = r->node.tuple.rport,
		.seq = r->iss + 1,
		.ack = r->irs + 1,
		.wnd = (uint16_t)(r->rcv_wnd >> r->rcv_wscale),
		.flags = TCPHDR_ACK,
		.ts = r->ts_ok,
		.tsval = tcp_ts_clock(ts) + r->ts_off,
		.tsecr = r->ts_recent,
	};

	if (tcp_oow_answer(ts, &r->oow_ack, rx))
		tcp_xmit_bare(ts, &r->node.tuple, r->l->user, &h, r->tos, ttl_of(r));
}

/* The SYN once more: so is our answer, but not for each of a flood. */
static void syn_again(struct tcp_req *r, const struct tcp_rx *rx)
{
	if (r->ts_ok && rx->has_ts)
		r->ts_recent = rx->tsval;
	if (tcp_oow_allowed(r->l->ts, &r->oow_ack))
		tcp_send_synack(r->l->ts, r, 0, NULL);
}

/* There is no room for the connection, or no memory (Linux: tcp_check_req()). */
static void req_overflow(struct tcp_req *r, const struct tcp_rx *rx)
{
	struct tcp_stack *ts = r->l->ts;

	if (!ts->cfg.abort_on_overflow) {
		r->acked = true;
		return;
	}
	tcp_reply_rst(ts, &r->node.tuple, rx);
	tcp_req_free(r);
}

void tcp_req_input(struct tcp_req *r, struct tcp_rx *rx)
{
	struct tcp_stack *ts = r->l->ts;
	bool old = r->ts_ok && tcp_paws_reject(ts->now, r->ts_recent, r->sent_us, rx, 0);
	uint32_t right = r->irs + 1 + r->rcv_wnd;

	if ((rx->flags & (TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST)) == TCPHDR_SYN &&
	    rx->seq == r->irs && !old) {
		syn_again(r, rx);
		return;
	}
	/* RFC 9293, 3.10.7.4: sequence number, time stamp. */
	if ((old && !(rx->flags & TCPHDR_RST)) || seq_before(rx->end_seq, r->irs + 1) ||
	    seq_after(rx->seq, right)) {
		ts->n.paws += old;
		if (!(rx->flags & TCPHDR_RST))
			req_ack(r, rx);
		return;
	}
	if (rx->flags & TCPHDR_RST) {
		if (rx->seq != r->irs + 1) {
			req_ack(r, rx);
			return;
		}
		ts->n.attempt_fails++;
		tcp_req_free(r);
		return;
	}
	/* Another connection's, and nothing is established yet (Linux: tcp_check_req()). */
	if (rx->flags & TCPHDR_SYN) {
		tcp_reply_rst(ts, &r->node.tuple, rx);
		ts->n.attempt_fails++;
		tcp_req_free(r);
		return;
	}
	if (!(rx->flags & TCPHDR_ACK))
		return;
	if (rx->ack != r->iss + 1) {
		tcp_reply_rst(ts, &r->node.tuple, rx);
		return;
	}
	if (r->ts_ok && rx->has_ts && !seq_after(rx->seq, r->irs + 1))
		r->ts_recent = rx->tsval;
	if (rx->end_seq == r->irs + 1 && r->retries < defer_retries(&r->l->o)) {
		r->acked = true;
		return;
	}
	if (!tcp_req_complete(r, rx))
		req_overflow(r, rx);
}
