/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A connection's birth, states and death.
 *
 * States (RFC 9293, 3.3.2), and which file moves them:
 *   CLOSED       -> SYN_SENT     tcp_connect()                          calls.c
 *   SYN_SENT     -> ESTABLISHED  SYN|ACK                                handshake/syn_sent.c
 *   SYN_SENT     -> SYN_RECV     SYN (simultaneous open)                handshake/syn_sent.c
 *   (tcp_req)    -> ESTABLISHED  ACK of our SYN|ACK                     handshake/request.c
 *   (listener)   -> SYN_RECV     SYN with a Fast Open cookie            handshake/fast_open.c
 *   SYN_RECV     -> ESTABLISHED  ACK of our SYN                         input.c
 *   ESTABLISHED  -> CLOSE_WAIT   FIN                                    input_data.c
 *   ESTABLISHED, SYN_RECV -> FIN_WAIT1   the user closes or shuts down  calls.c
 *   CLOSE_WAIT   -> LAST_ACK     the user closes or shuts down          calls.c
 *   FIN_WAIT1    -> FIN_WAIT2    ACK of our FIN                         input.c
 *   FIN_WAIT1    -> CLOSING      FIN (simultaneous close)               input_data.c
 *   FIN_WAIT2    -> TIME_WAIT    FIN                                    input_data.c
 *   CLOSING      -> TIME_WAIT    ACK of our FIN                         input.c
 *   LAST_ACK     -> CLOSED       ACK of our FIN                         input.c
 *   any          -> CLOSED       RST, timeout, abort                    tcp_conn_done()
 */
#include "tcp/recovery/loss.h"

#include <errno.h>
#include <string.h>

#define RTO_FALLBACK_US 3000000u
#define MTU_DEFAULT 1500u
#define RCV_MSS_MIN 88u /* Linux: TCP_MIN_MSS */

static void list_del(struct tcp_conn *c)
{
	if (c->next)
		c->next->pprev = c->pprev;
	*c->pprev = c->next;
	c->next = NULL;
	c->pprev = NULL;
}

void tcp_conn_link(struct tcp_conn *c)
{
	struct tcp_conn **list = &c->ts->conns;

	c->next = *list;
	if (c->next)
		c->next->pprev = &c->next;
	c->pprev = list;
	*list = c;
}

struct tcp_route tcp_route_of(struct tcp_stack *ts, const struct tcp_tuple *tuple,
			      struct tcp_opts *o)
{
	struct tcp_route r = {0};

	if (ts->env.route)
		ts->env.route(ts->env.ctx, tuple, &r);
	if (!o->window_clamp)
		o->window_clamp = r.window;
	if (r.cc)
		o->cc = r.cc - 1;
	return r;
}

/* Without memory the connection goes without. */
static void route_to_ext(struct tcp_conn *c, const struct tcp_route *r)
{
	struct tcp_conn_ext *a = tcp_conn_ext(c);

	if (!a)
		return;
	a->rto_min_us = r->rto_min_us;
	a->initcwnd = r->initcwnd;
}

struct tcp_conn *tcp_conn_new(struct tcp_stack *ts, const struct tcp_tuple *tuple,
			      const struct tcp_opts *o)
{
	struct tcp_route r;
	struct tcp_conn *c;

	if (ts->cfg.max_conns && ts->num_conns >= ts->cfg.max_conns)
		return NULL;
	c = tcp_alloc(ts, sizeof(*c));
	if (!c) {
		ts->n.no_memory++;
		return NULL;
	}
	c->ts = ts;
	c->o = *o;
	r = tcp_route_of(ts, tuple, &c->o);
	o = &c->o;
	if (r.rto_min_us || r.initcwnd)
		route_to_ext(c, &r);
	c->quickack = r.quickack;
	c->mtu_locked = r.mtu_locked;
	c->rcv_mss = TCP_MSS_DEFAULT; /* until the peer's SYN says more */
	c->node.tuple = *tuple;
	c->node.kind = TCP_KIND_CONN;
	c->state = TCPS_CLOSED;
	c->rcvq.tail = &c->rcvq.head;
	c->rtx.kind = TCP_TIMER_RTX;
	c->delack.kind = TCP_TIMER_DELACK;
	c->keep.kind = TCP_TIMER_KEEP;
	c->pace.kind = TCP_TIMER_PACE;
	c->advmss = tcp_adv_mss(ts, tuple, o, &r);
	c->ts_off = tcp_ts_offset(ts, tuple);
	c->rcv_wnd = c->rcv_ssthresh = tcp_initial_window(o, c->advmss, r.initrwnd);
	tcp_clamp_by_rcvbuf(c);
	ts->num_conns++;
	return c;
}

void tcp_conn_set_irs(struct tcp_conn *c, uint32_t irs)
{
	c->irs = irs;
	c->rcv_nxt = c->rcv_wup = c->copied_seq = c->last_ack_sent = irs + 1;
	/* A callback may be there before the peer is. */
	if (c->shows)
		c->ext->shown_seq = c->copied_seq;
}

uint16_t tcp_adv_mss(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_opts *o,
		     const struct tcp_route *route)
{
	uint32_t headers = tuple->family == AF_INET6 ? 60 : 40;
	uint32_t mtu = MTU_DEFAULT, gso = 0, mss;

	if (ts->env.path)
		ts->env.path(ts->env.ctx, tuple, &mtu, &gso);
	mss = mtu > headers + TCP_MSS_MIN ? mtu - headers : TCP_MSS_MIN;
	if (mss > UINT16_MAX - 1)
		mss = UINT16_MAX - 1;
	if (route->advmss)
		mss = route->advmss;
	if (o->maxseg && o->maxseg < mss)
		mss = o->maxseg;
	return (uint16_t)mss;
}

uint32_t tcp_initial_window(const struct tcp_opts *o, uint32_t mss, uint32_t segments)
{
	uint32_t wnd = o->rcvbuf / 2;

	if (o->window_clamp && o->window_clamp < wnd)
		wnd = o->window_clamp;
	if (wnd > UINT16_MAX)
		wnd = UINT16_MAX;
	if (segments && wnd > segments * mss)
		wnd = segments * mss;
	return wnd > mss ? wnd - wnd % mss : wnd;
}

uint8_t tcp_wscale_for(const struct tcp_opts *o)
{
	uint32_t space = o->rcvbuf_max > o->rcvbuf ? o->rcvbuf_max : o->rcvbuf;
	uint8_t scale = 0;

	if (!o->wscale)
		return 0;
	if (o->window_clamp && o->window_clamp < space)
		space = o->window_clamp;
	while (space > UINT16_MAX && scale < TCP_WSCALE_MAX) {
		space >>= 1;
		scale++;
	}
	return scale;
}

void tcp_set_state(struct tcp_conn *c, enum tcp_state state)
{
	bool was = c->state == TCPS_ESTABLISHED || c->state == TCPS_CLOSE_WAIT;
	bool is = state == TCPS_ESTABLISHED || state == TCPS_CLOSE_WAIT;

	c->ts->n.curr_estab += (uint64_t)is - (uint64_t)was;
	c->state = (uint8_t)state;
}

void tcp_event(struct tcp_conn *c, uint32_t events)
{
	if (c->user && !c->orphan && !c->closing)
		c->ts->env.event(c->ts->env.ctx, c->user, events);
}

void tcp_conn_established(struct tcp_conn *c)
{
	uint32_t hint;

	/*
	 * RFC 6298, 5.7: a handshake that had to be repeated gave no sample, and its back-off is
	 * not the data's.
	 */
	if (!c->rtt.srtt_us) {
		c->backoff = 0;
		c->rtt.rto_us = RTO_FALLBACK_US;
	}
	tcp_mtu_probe_start(c);
	tcp_sync_mss(c);
	tcp_sndbuf_expand(c);
	c->rcv_ssthresh = c->rcv_wnd < c->window_clamp ? c->rcv_wnd : c->window_clamp;
	c->rcvq_space =
		c->rcv_wnd < TCP_INIT_CWND * c->advmss ? c->rcv_wnd : TCP_INIT_CWND * c->advmss;
	c->rcvq_space_seq = c->copied_seq;
	c->rcvq_space_time = c->rcv_rtt_time = c->ts->now;
	c->rcv_rtt_seq = c->rcv_nxt + c->rcv_wnd;
	c->last_rcv_us = c->rcv_tstamp = c->ts->now;

	/* The first guess at the peer's segments (Linux: tcp_initialize_rcv_mss). */
	hint = c->advmss < c->mss ? c->advmss : c->mss;
	if (hint > c->rcv_wnd / 2)
		hint = c->rcv_wnd / 2;
	if (hint > TCP_MSS_DEFAULT)
		hint = TCP_MSS_DEFAULT;
	c->rcv_mss = hint > RCV_MSS_MIN ? hint : RCV_MSS_MIN;

	tcp_set_state(c, TCPS_ESTABLISHED);
	if (c->o.keepalive)
		tcp_keep_start(c);
}

/* Out of the engine's working parts; the tuple is free, or next's. Then the user is told. */
static void conn_end(struct tcp_conn *c, struct tcp_node *next, int err)
{
	struct tcp_stack *ts = c->ts;
	uint32_t events = TCP_EV_HUP | TCP_EV_RDHUP | TCP_EV_IN | TCP_EV_OUT;

	wheel_cancel(&ts->wheel, &c->rtx);
	wheel_cancel(&ts->wheel, &c->delack);
	wheel_cancel(&ts->wheel, &c->keep);
	wheel_cancel(&ts->wheel, &c->pace);
	tcp_unblock(c);
	if (c->fo_child)
		tcp_fast_open_over(c);
	tcp_segq_clear(&c->segq, &ts->env);
	tcp_sndq_clear(&c->sndq, &ts->env);
	tcp_ofo_clear(c);
	tcp_cc_drop(c);
	tcp_spends_nothing(c);
	if (next)
		tcp_table_replace(&ts->table, &c->node, next);
	else
		tcp_table_del(&ts->table, &c->node);
	tcp_ended(ts, &c->node);
	if (ts->last == c)
		ts->last = NULL;
	c->pending = TCP_PENDING_NONE;
	c->ack_needed = 0;
	tcp_set_state(c, TCPS_CLOSED);
	ts->num_conns--;
	if (err) {
		c->so_error = (uint16_t)err;
		events |= TCP_EV_ERR;
	}
	tcp_event(c, events);
	c->closing = true;
	if (c->orphan) {
		ts->num_orphans--;
		tcp_conn_bury(c);
	}
}

void tcp_conn_done(struct tcp_conn *c, int err)
{
	if (!c->closing)
		conn_end(c, NULL, err);
}

void tcp_conn_replace(struct tcp_conn *c, struct tcp_node *n)
{
	if (!c->closing)
		conn_end(c, n, 0);
}

void tcp_conn_time_wait(struct tcp_conn *c, bool fin_wait2)
{
	struct tcp_tw *tw;

	/*
	 * What the flush would acknowledge, the peer's FIN among it: there is no flush any more,
	 * and the peer would send its FIN again, 200 ms later.
	 */
	if (c->ack_needed)
		tcp_send_ack(c);
	tw = tcp_tw_new(c, fin_wait2);
	if (!tw) {
		conn_end(c, NULL, 0);
		return;
	}
	if (c->orphan) { /* it inherits the user to whom GONE must be said */
		if (c->user)
			c->ts->env.event(c->ts->env.ctx, c->user, TCP_EV_TIME_WAIT);
		c->user = NULL;
	} else {
		tw->conn = c;
		c->tw = tw;
	}
	conn_end(c, &tw->node, 0);
}

void tcp_conn_reset(struct tcp_conn *c)
{
	int err;

	switch (c->state) {
	case TCPS_SYN_SENT:
		err = ECONNREFUSED;
		c->ts->n.attempt_fails++;
		break;
	case TCPS_SYN_RECV:
		err = ECONNRESET;
		c->ts->n.attempt_fails++;
		if (c->fo_child)
			tcp_fast_open_reset(c);
		break;
	case TCPS_CLOSE_WAIT:
		err = EPIPE;
		c->ts->n.estab_resets++;
		break;
	default:
		err = ECONNRESET;
		if (c->state == TCPS_ESTABLISHED)
			c->ts->n.estab_resets++;
	}
	tcp_conn_done(c, err);
}

void tcp_conn_bury(struct tcp_conn *c)
{
	struct tcp_stack *ts = c->ts;

	tcp_rcvq_clear(c);
	if (c->pprev)
		list_del(c);
	c->next = ts->dead;
	ts->dead = c;
}

void tcp_conn_release(struct tcp_conn *c)
{
	if (c->orphan)
		return;
	c->orphan = true;
	if (!c->closing) {
		c->ts->num_orphans++;
		return;
	}
	if (c->tw) { /* its TIME_WAIT says GONE */
		if (c->user)
			c->ts->env.event(c->ts->env.ctx, c->user, TCP_EV_TIME_WAIT);
		c->tw->conn = NULL;
		c->tw = NULL;
		c->user = NULL;
	}
	tcp_conn_bury(c);
}

void tcp_conn_reap(struct tcp_stack *ts)
{
	struct tcp_conn *c;

	while ((c = ts->dead)) {
		void *user = c->user;

		ts->dead = c->next;
		tcp_conn_ext_drop(c);
		tcp_free(ts, c, sizeof(*c));
		if (user)
			ts->env.event(ts->env.ctx, user, TCP_EV_GONE);
	}
}

void tcp_conn_set_user(struct tcp_conn *c, void *user)
{
	c->user = user;
	if (c->tw)
		c->tw->user = user;
}

bool tcp_is_over(const struct tcp_conn *c)
{
	return c->state == TCPS_CLOSED && !c->tw;
}

void *tcp_conn_user(const struct tcp_conn *c)
{
	return c->user;
}

const struct tcp_tuple *tcp_conn_tuple(const struct tcp_conn *c)
{
	return &c->node.tuple;
}

void tcp_conn_seqs(const struct tcp_conn *c, uint32_t *snd_nxt, uint32_t *rcv_nxt)
{
	*snd_nxt = c->snd_nxt;
	*rcv_nxt = c->rcv_nxt;
}

bool tcp_seq_likely(const struct tcp_conn *c, uint32_t seq)
{
	/* What is sent again may begin before rcv_nxt, by less than the longest segment. */
	return c->state == TCPS_SYN_SENT ||
	       seq - c->rcv_nxt + UINT16_MAX <= UINT16_MAX + tcp_rcv_window(c);
}

enum tcp_state tcp_conn_state(const struct tcp_conn *c)
{
	return (enum tcp_state)c->state;
}

int tcp_error(struct tcp_conn *c)
{
	int err = c->so_error ? c->so_error : c->soft_error;

	/* What ICMP said counts when nothing worse has happened (Linux: sk_err_soft). */
	if (!c->so_error)
		c->soft_error = 0;
	c->so_error = 0;
	return err;
}

/* As Linux's tcp_poll(). */
uint32_t tcp_ready(const struct tcp_conn *c)
{
	bool closed = c->state == TCPS_CLOSED;
	/* What is still to be shown comes before the end. */
	bool no_rcv = closed || c->shut_rd || (c->fin_rcvd && !tcp_unshown(c));
	bool no_snd = closed || c->shut_wr;
	uint32_t ev = 0;

	if (no_rcv && no_snd)
		ev |= TCP_EV_HUP;
	if (no_rcv)
		ev |= TCP_EV_IN | TCP_EV_RDHUP;
	if (c->fo_waits)
		ev |= TCP_EV_OUT;
	if (c->state != TCPS_SYN_SENT && (c->state != TCPS_SYN_RECV || c->fo_child)) {
		if (tcp_readable(c))
			ev |= TCP_EV_IN;
		if (no_snd || tcp_writable(c))
			ev |= TCP_EV_OUT;
		if (c->urg_valid && c->urg_here && !c->urg_read)
			ev |= TCP_EV_PRI;
	}
	if (c->so_error)
		ev |= TCP_EV_ERR;
	return ev;
}
