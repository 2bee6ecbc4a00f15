/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP Fast Open (RFC 7413), the client's side: a SYN that asks for a cookie, or brings data with
 * one (Linux: tcp_send_syn_data(), tcp_rcv_fastopen_synack()).
 */
#include "tcp/internal.h"

/* What middleboxes may add is left room for, as all options of our own. */
#define OPTION_ROOM 40u

/* tcpi_fastopen_client_fail (linux/tcp.h) */
enum { FAIL_NONE, FAIL_NO_COOKIE, FAIL_NOT_ACKED, FAIL_RETRANSMITTED };

void tcp_fast_open(struct tcp_conn *c, const struct tcp_fast_open_client *how)
{
	struct tcp_conn_ext *a = tcp_conn_ext(c);
	struct tcp_fast_open *fo = a ? tcp_alloc(c->ts, sizeof(*fo)) : NULL;

	if (!fo)
		return; /* an ordinary handshake is always right */
	fo->cookie = how->cookie;
	fo->peer_mss = how->mss;
	fo->fail = how->with_data ? FAIL_NONE : FAIL_NO_COOKIE;
	a->fast_open = fo;
	c->fo_waits = how->with_data;
}

bool tcp_fast_open_waits(const struct tcp_conn *c)
{
	return c->fo_waits;
}

void tcp_fast_open_go(struct tcp_conn *c)
{
	c->fo_waits = false;
	tcp_mark_dirty(c);
}

uint32_t tcp_fast_open_room(const struct tcp_conn *c)
{
	uint32_t peer = c->ext->fast_open->peer_mss, mss = peer ? peer : c->advmss;

	if (mss > c->mss)
		mss = c->mss;
	return mss > OPTION_ROOM ? mss - OPTION_ROOM : 0;
}

uint32_t tcp_fast_open_sent(const struct tcp_conn *c)
{
	return c->ext && c->ext->fast_open ? c->ext->fast_open->sent : 0;
}

static void tell(struct tcp_conn *c, const struct tcp_fast_open_news *news)
{
	struct tcp_stack *ts = c->ts;

	if (ts->env.fast_open)
		ts->env.fast_open(ts->env.ctx, &c->node.tuple, news);
}

bool tcp_fast_open_answered(struct tcp_conn *c, const struct tcp_rx *rx)
{
	struct tcp_fast_open *fo = c->ext ? c->ext->fast_open : NULL;
	struct tcp_fast_open_news news = {.cookie = rx->fast_open, .mss = (uint16_t)c->peer_mss};

	if (!fo)
		return false;
	if (fo->cookie.len < 0) /* not asked for: not believed */
		news.cookie.len = -1;
	else if (!c->total_retrans && rx->fast_open.len < 0 && !fo->sent)
		news.refused = true;
	news.worked = fo->sent && seq_after(rx->ack, c->snd_nxt);
	tell(c, &news);
	if (!fo->sent)
		return false;
	if (news.worked) {
		c->snd_nxt = rx->ack;
		c->syn_data = rx->ack == c->write_seq;
		c->ts->n.fast_open_active++;
		return false;
	}
	/* It goes again as data does; nothing says that the path was full. */
	fo->fail = c->total_retrans ? FAIL_RETRANSMITTED : FAIL_NOT_ACKED;
	c->ts->n.fast_open_active_fail++;
	return true;
}

void tcp_fast_open_timeout(struct tcp_conn *c)
{
	struct tcp_fast_open_news news = {.cookie = {.len = -1}, .black_hole = true};

	/* Linux: tcp_fastopen_active_detect_blackhole(). */
	if (c->state == TCPS_SYN_SENT && c->ext && c->ext->fast_open && c->retries == 2)
		tell(c, &news);
}
