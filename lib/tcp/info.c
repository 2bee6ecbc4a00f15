/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP_INFO, as Linux fills it. */
#include <linux/tcp.h>
#include <string.h>

#include "tcp/recovery/loss.h"

static void fill_state(const struct tcp_conn *c, struct tcp_info *i)
{
	i->tcpi_state = c->state;
	i->tcpi_ca_state = c->ca_state;
	i->tcpi_retransmits = c->retries;
	i->tcpi_probes = c->probes;
	i->tcpi_backoff = c->backoff;
	if (c->ts_ok)
		i->tcpi_options |= TCPI_OPT_TIMESTAMPS;
	if (c->sack_ok)
		i->tcpi_options |= TCPI_OPT_SACK;
	if (c->wscale_ok) {
		i->tcpi_options |= TCPI_OPT_WSCALE;
		i->tcpi_snd_wscale = c->snd_wscale & 15;
		i->tcpi_rcv_wscale = c->rcv_wscale & 15;
	}
	if (c->ecn_ok)
		i->tcpi_options |= TCPI_OPT_ECN;
}

static void fill_times(const struct tcp_conn *c, struct tcp_info *i, uint64_t now)
{
	i->tcpi_rto = tcp_rto(c);
	i->tcpi_ato = c->ato_us;
	i->tcpi_last_data_sent = (uint32_t)((now - c->lsndtime) / 1000);
	i->tcpi_last_data_recv = (uint32_t)((now - c->last_rcv_us) / 1000);
	i->tcpi_last_ack_recv = (uint32_t)((now - c->rcv_tstamp) / 1000);
	i->tcpi_rtt = tcp_srtt(c);
	i->tcpi_rttvar = c->rtt.mdev_us >> 2;
	i->tcpi_min_rtt = c->rtt.min_us;
	i->tcpi_rcv_rtt = c->rcv_rtt_us >> 3;
}

static void fill_sizes(const struct tcp_conn *c, struct tcp_info *i)
{
	i->tcpi_snd_mss = c->mss;
	i->tcpi_rcv_mss = c->rcv_mss;
	i->tcpi_advmss = c->advmss;
	i->tcpi_pmtu = c->pmtu;
	i->tcpi_snd_cwnd = c->cc.cwnd;
	i->tcpi_snd_ssthresh = c->cc.ssthresh;
	i->tcpi_rcv_ssthresh = c->rcv_ssthresh;
	i->tcpi_rcv_space = c->rcvq_space;
	i->tcpi_reordering = c->reordering;
	i->tcpi_pacing_rate = tcp_pacing_rate(c);
	i->tcpi_max_pacing_rate = c->o.pacing_rate;
	i->tcpi_delivery_rate = tcp_rate(c);
	i->tcpi_delivery_rate_app_limited = c->rate_app_limited;
	i->tcpi_snd_wnd = c->snd_wnd;
	i->tcpi_notsent_bytes = tcp_outq_unsent(c);
}

static void fill_counts(const struct tcp_conn *c, struct tcp_info *i)
{
	i->tcpi_unacked = c->segq.packets_out;
	i->tcpi_sacked = c->segq.sacked_out;
	i->tcpi_lost = c->segq.lost_out;
	i->tcpi_retrans = c->segq.retrans_out;
	i->tcpi_total_retrans = c->total_retrans;
	i->tcpi_bytes_acked = c->bytes_acked;
	i->tcpi_bytes_received = c->bytes_received;
	i->tcpi_bytes_sent = c->bytes_sent;
	i->tcpi_bytes_retrans = c->bytes_retrans;
	i->tcpi_segs_out = c->segs_out;
	i->tcpi_segs_in = c->segs_in;
	i->tcpi_data_segs_out = c->data_segs_out;
	i->tcpi_data_segs_in = c->data_segs_in;
	i->tcpi_delivered = c->delivered;
	i->tcpi_dsack_dups = c->dsack_dups;
	i->tcpi_reord_seen = c->reord_seen;
}

size_t tcp_fill_info(const struct tcp_conn *c, void *info, size_t len, uint64_t now)
{
	struct tcp_info i;

	memset(&i, 0, sizeof(i));
	fill_state(c, &i);
	fill_times(c, &i, now);
	fill_sizes(c, &i);
	fill_counts(c, &i);
	if (len > sizeof(i))
		len = sizeof(i);
	memcpy(info, &i, len);
	return len;
}
