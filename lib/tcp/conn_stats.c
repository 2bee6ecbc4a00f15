/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What vma_stats shows of a connection. */
#include "tcp/recovery/loss.h"
#include "vma/stats.h"

_Static_assert(sizeof(struct vma_stats_tcp) % 8 == 0, "what follows it is of 64 bits");

static uint32_t flags(const struct tcp_conn *c)
{
	return (c->ts_ok ? VMA_STATS_TCP_TIMESTAMPS : 0) | (c->sack_ok ? VMA_STATS_TCP_SACK : 0) |
	       (c->ecn_ok ? VMA_STATS_TCP_ECN : 0) | (c->o.nodelay ? VMA_STATS_TCP_NODELAY : 0) |
	       (c->o.cork ? VMA_STATS_TCP_CORK : 0);
}

static uint32_t rtime(const struct tcp_conn *c)
{
	uint64_t now = c->ts->now;

	return wheel_armed(&c->rtx) && c->rtx.when_us > now ? (uint32_t)(c->rtx.when_us - now) : 0;
}

void tcp_figures(const struct tcp_conn *c, struct vma_stats_tcp *f)
{
	const struct tcp_seg *first = c->segq.head, *last = c->segq.tail;

	*f = (struct vma_stats_tcp){
		.mss = c->mss,
		.advmss = c->advmss - (c->ts_ok ? 12 : 0),
		.wscale = c->wscale_ok,
		.snd_wscale = c->snd_wscale,
		.rcv_wscale = c->rcv_wscale,
		.rcv_nxt = c->rcv_nxt,
		.rcv_wup = c->rcv_wup,
		.rcv_wnd = c->rcv_wnd,
		.snd_una = c->snd_una,
		.snd_nxt = c->snd_nxt,
		.snd_wnd = c->snd_wnd,
		.snd_wnd_max = c->max_wnd,
		.snd_wl1 = c->snd_wl1,
		.write_seq = c->write_seq,
		.cwnd = c->cc.cwnd,
		.ssthresh = c->cc.ssthresh,
		.unacked = c->segq.packets_out,
		.sacked = c->segq.sacked_out,
		.lost = c->segq.lost_out,
		.rto_us = tcp_rto(c),
		.srtt_us = tcp_srtt(c),
		.rttvar_us = c->rtt.mdev_us >> 2,
		.retries = c->retries,
		.retransmits = c->total_retrans,
		.rcvbuf = c->o.rcvbuf,
		.rcvbuf_used = c->rcvq.charge + c->ofo_charge,
		.sndbuf = c->o.sndbuf,
		.sndbuf_used = c->sndq.charge,
		.reordered_bytes = c->ofo_charge,
		.flags = flags(c),
		.rcv_wnd_max = c->window_clamp ? c->window_clamp : c->o.rcvbuf >> 1,
		.rtime_us = rtime(c),
		.unacked_first_len = first ? first->end_seq - first->seq : 0,
		.unacked_last_seq = last ? last->seq : 0,
	};
}

uint32_t tcp_inq_pieces(const struct tcp_conn *c)
{
	return c->rcvq.count;
}
