/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The congestion controls by number, what they share, and "none": a window that never limits. */
#include "tcp/internal.h"

void tcp_cc_first_window(struct tcp_cc_state *s)
{
	if (s->cwnd && s->cwnd < TCP_CWND_UNLIMITED)
		return;
	s->cwnd = TCP_INIT_CWND;
	s->ssthresh = TCP_SSTHRESH_INFINITE;
	s->cwnd_cnt = 0;
}

uint32_t tcp_cc_slow_start(struct tcp_cc_state *s, uint32_t acked)
{
	uint32_t end = s->ssthresh < TCP_CWND_UNLIMITED ? s->ssthresh : TCP_CWND_UNLIMITED;
	uint32_t room = end > s->cwnd ? end - s->cwnd : 0;
	uint32_t used = acked < room ? acked : room;

	s->cwnd += used;
	return acked - used;
}

uint32_t tcp_cc_undo_cwnd(struct tcp_cc_state *s)
{
	return s->cwnd > s->prior_cwnd ? s->cwnd : s->prior_cwnd;
}

static void none_open(struct tcp_cc_state *s)
{
	s->cwnd = TCP_CWND_UNLIMITED;
	s->ssthresh = TCP_SSTHRESH_INFINITE;
}

static uint32_t none_ssthresh(struct tcp_cc_state *s, uint64_t now)
{
	(void)s;
	(void)now;
	return TCP_CWND_UNLIMITED;
}

static void none_acked(struct tcp_cc_state *s, uint32_t acked, uint32_t srtt_us, uint64_t now)
{
	(void)acked;
	(void)srtt_us;
	(void)now;
	none_open(s);
}

static uint32_t none_undo(struct tcp_cc_state *s)
{
	(void)s;
	return TCP_CWND_UNLIMITED;
}

const struct tcp_cc_ops tcp_cc_none = {
	.name = "none",
	.init = none_open,
	.ssthresh = none_ssthresh,
	.acked = none_acked,
	.undo = none_undo,
	.reset = none_open,
};

const struct tcp_cc_ops *const tcp_cc_ops[TCP_CC_COUNT] = {
	[TCP_CC_NEWRENO] = &tcp_cc_newreno,
	[TCP_CC_CUBIC] = &tcp_cc_cubic,
	[TCP_CC_NONE] = &tcp_cc_none,
	[TCP_CC_BBR] = &tcp_cc_bbr,
};

void tcp_cc_drop(struct tcp_conn *c)
{
	if (c->o.cc != TCP_CC_BBR || !c->cc.bbr)
		return;
	tcp_free(c->ts, c->cc.bbr, sizeof(*c->cc.bbr));
	c->cc.bbr = NULL;
}

void tcp_cc_set(struct tcp_conn *c, uint8_t cc)
{
	tcp_cc_drop(c);
	c->o.cc = cc < TCP_CC_COUNT ? cc : TCP_CC_CUBIC;
	if (c->o.cc == TCP_CC_BBR) {
		c->cc.bbr = tcp_alloc(c->ts, sizeof(*c->cc.bbr));
		if (!c->cc.bbr) {
			c->ts->n.no_memory++;
			c->o.cc = TCP_CC_CUBIC;
		}
	}
	tcp_cc_ops[c->o.cc]->init(&c->cc);
}
