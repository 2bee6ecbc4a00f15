/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What few connections need is a part of its own, made when it is first needed. And what a sender
 * spends its time on (TCP_INFO's busy_time and its like; Linux: tcp_chrono_*).
 */
#include "tcp/recovery/loss.h"

struct tcp_conn_ext *tcp_conn_ext(struct tcp_conn *c)
{
	if (c->ext || c->closing)
		return c->ext;
	c->ext = tcp_alloc(c->ts, sizeof(*c->ext));
	if (!c->ext)
		c->ts->n.no_memory++;
	return c->ext;
}

static uint32_t now_ms(const struct tcp_conn *c)
{
	return (uint32_t)(c->ts->now / 1000);
}

static void spend_on(struct tcp_conn *c, uint8_t what)
{
	uint32_t now = now_ms(c), gone = now - c->spent_since;
	struct tcp_conn_ext *a;

	if (c->spends == TCP_SPENDS_BUSY) {
		c->busy_ms += gone;
	} else if (c->spends != TCP_SPENDS_NOT && (a = tcp_conn_ext(c))) {
		if (c->spends == TCP_SPENDS_RWND)
			a->rwnd_ms += gone;
		else
			a->sndbuf_ms += gone;
	}
	c->spends = what;
	c->spent_since = now;
}

void tcp_spends(struct tcp_conn *c, enum tcp_spends what)
{
	if (what > c->spends)
		spend_on(c, (uint8_t)what);
}

void tcp_spends_no_more(struct tcp_conn *c, enum tcp_spends what)
{
	if (!c->segq.head && !tcp_unsent(c))
		spend_on(c, TCP_SPENDS_NOT);
	else if (what == c->spends && what != TCP_SPENDS_BUSY)
		spend_on(c, TCP_SPENDS_BUSY);
}

void tcp_spends_nothing(struct tcp_conn *c)
{
	if (c->spends)
		spend_on(c, TCP_SPENDS_NOT);
}

void tcp_spent(const struct tcp_conn *c, uint64_t now, struct tcp_spent *s)
{
	uint32_t gone = (uint32_t)(now / 1000) - c->spent_since;

	s->rwnd_ms = c->ext ? c->ext->rwnd_ms : 0;
	s->sndbuf_ms = c->ext ? c->ext->sndbuf_ms : 0;
	if (c->spends == TCP_SPENDS_RWND)
		s->rwnd_ms += gone;
	if (c->spends == TCP_SPENDS_SNDBUF)
		s->sndbuf_ms += gone;
	s->all_ms = (uint64_t)c->busy_ms + s->rwnd_ms + s->sndbuf_ms;
	if (c->spends == TCP_SPENDS_BUSY)
		s->all_ms += gone;
}

void tcp_conn_ext_drop(struct tcp_conn *c)
{
	if (!c->ext)
		return;
	tcp_fast_open_drop(c);
	tcp_free(c->ts, c->ext, sizeof(*c->ext));
	c->ext = NULL;
}

/* --- retransmission timeouts */

void tcp_count_rto(struct tcp_conn *c)
{
	struct tcp_conn_ext *a = tcp_conn_ext(c);

	if (!a)
		return;
	a->rtos++;
	if (c->retries)
		return;
	a->rto_recoveries++;
	a->rto_since = now_ms(c) ? now_ms(c) : 1;
}

void tcp_rto_over(struct tcp_conn *c)
{
	struct tcp_conn_ext *a = c->ext;

	if (!a || !a->rto_since)
		return;
	a->rto_ms += now_ms(c) - a->rto_since;
	a->rto_since = 0;
}
