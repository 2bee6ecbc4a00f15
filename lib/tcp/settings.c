/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The options: Linux's defaults, and what a change of them does at once. */
#include "tcp/recovery/loss.h"

void tcp_opts_default(struct tcp_opts *o)
{
	*o = (struct tcp_opts){
		.sndbuf = 16384,
		.rcvbuf = 131072,
		.rcvbuf_max = 6291456,
		.sndbuf_max = 4194304,
		.keepidle_s = 7200,
		.keepintvl_s = 75,
		.keepcnt = 9,
		.rcvlowat = 1,
		.notsent_lowat = UINT32_MAX,
		.pacing_rate = UINT64_MAX,
		.linger2_ms = 60000,
		.syn_retries = 6,
		.retries1 = 3,
		.retries2 = 15,
		.cc = TCP_CC_CUBIC,
		.timestamps = true,
		.sack = true,
		.wscale = true,
		.ecn_passive = true,
	};
}

const struct tcp_opts *tcp_get_opts(const struct tcp_conn *c)
{
	return &c->o;
}

/* The window is half of the buffer at most, and what the user allows. */
void tcp_clamp_by_rcvbuf(struct tcp_conn *c)
{
	c->window_clamp = c->o.rcvbuf / 2;
	if (c->o.window_clamp && c->o.window_clamp < c->window_clamp)
		c->window_clamp = c->o.window_clamp;
}

/* As much must fit (Linux: tcp_set_rcvlowat()). */
static void change_lowat(struct tcp_conn *c)
{
	uint32_t want = c->o.rcvlowat > UINT32_MAX / 2 ? UINT32_MAX : 2 * c->o.rcvlowat;

	if (want > c->o.rcvbuf_max)
		want = c->o.rcvbuf_max;
	if (want > c->o.rcvbuf) {
		c->o.rcvbuf = want;
		tcp_clamp_by_rcvbuf(c);
	}
}

/* Linux: tcp_set_window_clamp(). */
static void change_clamp(struct tcp_conn *c, uint32_t clamp)
{
	uint32_t most = c->rcv_wnd < clamp ? c->rcv_wnd : clamp;

	if (!clamp)
		return;
	if (clamp < c->window_clamp && c->rcv_ssthresh > clamp)
		c->rcv_ssthresh = clamp; /* not most: the window may be shut just now */
	else if (clamp >= c->window_clamp && c->rcv_ssthresh < most)
		c->rcv_ssthresh = most;
	c->window_clamp = clamp;
}

uint32_t tcp_window_clamp(const struct tcp_conn *c)
{
	return c->window_clamp;
}

/* Linux: tcp_sock_set_quickack(). */
void tcp_quickack(struct tcp_conn *c, int value, uint64_t now)
{
	c->ts->now = now;
	c->pingpong = !value;
	if (!value || !c->ack_needed || c->closing ||
	    (c->state != TCPS_ESTABLISHED && c->state != TCPS_CLOSE_WAIT))
		return;
	c->ack_needed = 2;
	c->pingpong = !(value & 1);
	tcp_mark_dirty(c);
}

bool tcp_is_quickack(const struct tcp_conn *c)
{
	return c->o.quickack || !c->pingpong;
}

void tcp_conn_first(const struct tcp_conn *c, uint8_t *ttl, uint8_t *tos)
{
	*ttl = c->node.first_ttl;
	*tos = c->node.first_tos;
}

void tcp_set_opts(struct tcp_conn *c, const struct tcp_opts *o, uint64_t now)
{
	struct tcp_opts was = c->o;
	bool alive = c->state != TCPS_CLOSED && !c->closing;

	c->ts->now = now;
	/* As MSG_MORE: a cork holds back what follows. */
	if (alive && o->cork && !was.cork && c->dirty)
		tcp_output(c);
	alive = alive && !c->closing;
	c->o = *o;
	c->o.cc = was.cc;
	if (!alive)
		return;
	/* A window that another algorithm left is taken over; "none" opens it. */
	if (o->cc != was.cc)
		tcp_cc_set(c, o->cc);
	if (o->maxseg != was.maxseg)
		tcp_sync_mss(c);
	if (c->o.keepalive != was.keepalive || c->o.keepidle_s != was.keepidle_s)
		tcp_keep_start(c);
	if (o->quickack && !was.quickack && c->ack_needed)
		c->ack_needed = 2;
	/* A larger buffer is for a larger window; a smaller one keeps what was promised. */
	if (o->rcvbuf > was.rcvbuf)
		tcp_clamp_by_rcvbuf(c);
	if (o->window_clamp != was.window_clamp)
		change_clamp(c, o->window_clamp);
	if (o->rcvlowat != was.rcvlowat)
		change_lowat(c);
	/* Uncorked, unpaced, Nagle off: what waited for that goes at the flush. */
	if (!o->cork && was.cork)
		c->more_holds = false;
	tcp_mark_dirty(c);
}

void tcp_push_held(struct tcp_conn *c, uint64_t now)
{
	if (c->state == TCPS_CLOSED || c->closing)
		return;
	c->ts->now = now;
	c->push_held = tcp_unsent(c);
	tcp_mark_dirty(c);
}
