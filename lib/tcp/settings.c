/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The options: Linux's defaults, and what a change of them does at once. */
#include "proto/tcp_loss.h"

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
	};
}

const struct tcp_opts *tcp_get_opts(const struct tcp_conn *c)
{
	return &c->o;
}

/* A window that another algorithm left is taken over; "none" opens it. */
static void change_cc(struct tcp_conn *c, uint8_t cc)
{
	c->o.cc = cc < TCP_CC_COUNT ? cc : TCP_CC_CUBIC;
	tcp_cc_of(c)->init(&c->cc);
}

/* As much must fit (Linux: tcp_set_rcvlowat()). */
static void change_lowat(struct tcp_conn *c)
{
	uint32_t want = c->o.rcvlowat > UINT32_MAX / 2 ? UINT32_MAX : 2 * c->o.rcvlowat;

	if (want > c->o.rcvbuf_max)
		want = c->o.rcvbuf_max;
	if (want > c->o.rcvbuf) {
		c->o.rcvbuf = want;
		c->window_clamp = want / 2;
		if (c->o.window_clamp && c->o.window_clamp < c->window_clamp)
			c->window_clamp = c->o.window_clamp;
	}
}

void tcp_set_opts(struct tcp_conn *c, const struct tcp_opts *o, uint64_t now)
{
	struct tcp_opts was = c->o;
	bool alive = c->state != TCPS_CLOSED && !c->closing;

	c->ts->now = now;
	c->o = *o;
	c->o.cc = was.cc;
	if (o->cc != was.cc)
		change_cc(c, o->cc);
	if (!alive)
		return;
	if (o->maxseg != was.maxseg)
		tcp_sync_mss(c);
	if (c->o.keepalive != was.keepalive || c->o.keepidle_s != was.keepidle_s)
		tcp_keep_start(c);
	if (o->quickack && !was.quickack && c->ack_needed)
		c->ack_needed = 2;
	if (o->rcvlowat != was.rcvlowat)
		change_lowat(c);
	/* Uncorked, unpaced, Nagle off: what waited for that goes at the flush. */
	if (!o->cork && was.cork)
		c->more = false;
	tcp_mark_dirty(c);
}
