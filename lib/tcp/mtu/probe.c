/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packetization-layer path MTU discovery (RFC 4821, as Linux does it): segments begin small, and
 * one that is larger goes out now and then. Its arrival makes it the size of all, its loss alone is
 * no congestion. For who sets net.ipv4.tcp_mtu_probing: 2 always, 1 behind a black hole.
 */
#include "tcp/recovery/loss.h"

#define LEAST_CWND 11u /* less than this tells losses too late */

static uint32_t headers(const struct tcp_conn *c)
{
	return (c->node.tuple.family == AF_INET6 ? 40 : 20) + 20;
}

/* What an IP packet of this size carries, and the other way round. */
static uint32_t payload_of(const struct tcp_conn *c, uint32_t mtu)
{
	return mtu - headers(c) - (c->ts_ok ? 12 : 0);
}

static uint32_t packet_of(const struct tcp_conn *c, uint32_t payload)
{
	return payload + headers(c) + (c->ts_ok ? 12 : 0);
}

/* The largest packet that the peer takes and the path is believed to. */
static uint32_t most(const struct tcp_conn *c)
{
	uint32_t mtu = c->peer_mss + headers(c);

	if (c->o.maxseg && c->o.maxseg < c->peer_mss)
		mtu = c->o.maxseg + headers(c);
	return mtu < c->pmtu ? mtu : c->pmtu;
}

static void begin(struct tcp_conn *c)
{
	struct tcp_conn_ext *a = tcp_conn_ext(c);

	if (!a)
		return;
	a->probe.is_on = true;
	a->probe.size = 0;
	a->probe.low = packet_of(c, c->ts->cfg.base_mss);
	a->probe.high = most(c);
	a->probe.stamp = c->ts->now;
}

void tcp_mtu_probe_start(struct tcp_conn *c)
{
	if (c->ts->cfg.mtu_probing > 1)
		begin(c);
}

void tcp_mtu_probe_smaller(struct tcp_conn *c)
{
	const struct tcp_cfg *cfg = &c->ts->cfg;
	uint32_t mss;

	if (!c->ext || !c->ext->probe.is_on) {
		begin(c);
	} else {
		mss = payload_of(c, c->ext->probe.low) / 2;
		if (mss > cfg->base_mss)
			mss = cfg->base_mss;
		if (mss < cfg->mtu_probe_floor)
			mss = cfg->mtu_probe_floor;
		if (mss < TCP_MSS_MIN)
			mss = TCP_MSS_MIN;
		c->ext->probe.low = packet_of(c, mss);
	}
	c->ts->n.mtu_black_holes++;
	tcp_sync_mss(c);
}

/* The search has ended long ago: the path may have changed. */
static void search_again(struct tcp_conn *c)
{
	struct tcp_mtu_probe *p = &c->ext->probe;

	if (c->ts->now - p->stamp < (uint64_t)c->ts->cfg.probe_interval_s * 1000000)
		return;
	p->high = most(c);
	p->low = packet_of(c, c->mss);
	p->stamp = c->ts->now;
}

/* Whether something is to be found out, and this is the time for it. */
static bool wanted(struct tcp_conn *c)
{
	const struct tcp_mtu_probe *p = &c->ext->probe;

	if (!p->is_on || p->size || c->ca_state != TCPCA_OPEN || c->cc.cwnd < LEAST_CWND ||
	    c->ofo || c->dsack.start != c->dsack.end || c->snd_urg)
		return false;
	if (p->high > p->low && p->high - p->low >= c->ts->cfg.probe_threshold)
		return true;
	search_again(c);
	return false;
}

enum tcp_mtu_probing tcp_mtu_probe(struct tcp_conn *c)
{
	uint32_t len, need, left = c->write_seq - c->snd_nxt, flight = tcp_in_flight(c);
	struct tcp_mtu_probe *p;

	if (!c->ext || !wanted(c))
		return TCP_MTU_NO_PROBE;
	p = &c->ext->probe;
	len = payload_of(c, (p->high + p->low) / 2);
	/* So many segments behind it that its loss is seen. */
	need = len + (c->reordering + 1) * c->mss;
	if (left < need || c->snd_wnd < need || tcp_sndq_record(&c->sndq, c->snd_nxt, len) < len)
		return TCP_MTU_NO_PROBE;
	if (seq_after(c->snd_nxt + need, tcp_wnd_end(c)))
		return TCP_MTU_PROBE_WAITS;
	if (flight + 2 > c->cc.cwnd)
		return flight ? TCP_MTU_PROBE_WAITS : TCP_MTU_NO_PROBE;
	p->start = c->snd_nxt;
	if (!tcp_send_whole(c, len))
		return TCP_MTU_NO_PROBE;
	/* It takes the place of about two. */
	c->cc.cwnd--;
	p->size = packet_of(c, len);
	p->end = c->snd_nxt;
	return TCP_MTU_PROBE_SENT;
}

void tcp_mtu_probe_arrived(struct tcp_conn *c)
{
	struct tcp_mtu_probe *p = &c->ext->probe;
	uint64_t cwnd = (uint64_t)c->cc.cwnd * packet_of(c, c->mss) / p->size;

	c->cc.prior_ssthresh = tcp_current_ssthresh(c);
	c->cc.cwnd = cwnd ? (uint32_t)cwnd : 1;
	c->cc.cwnd_cnt = 0;
	c->cwnd_stamp = c->ts->now;
	c->cc.ssthresh = tcp_current_ssthresh(c);
	p->low = p->size;
	p->size = 0;
	tcp_sync_mss(c);
}

bool tcp_mtu_probe_lost(struct tcp_conn *c)
{
	struct tcp_mtu_probe *p = c->ext ? &c->ext->probe : NULL;

	if (!p || !p->size || c->snd_una != p->start || c->ca_state >= TCPCA_CWR)
		return false;
	p->high = p->size - 1;
	p->size = 0;
	c->cc.cwnd++;
	tcp_lost_unpunished(c);
	return true;
}
