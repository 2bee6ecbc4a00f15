/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP_INFO, as Linux fills it. */
#include <string.h>

#include "tcp/info.h"
#include "tcp/recovery/loss.h"

_Static_assert(sizeof(union tcp_info_all) == TCP_INFO_BYTES, "newer headers: see what they add");

/* Linux: tcp_update_pacing_rate(), which says it also when nothing is paced. */
#define PACING_SLOW_START 200u /* per cent of a window in a round trip */
#define PACING_AVOIDANCE 120u

static uint64_t paced_at(const struct tcp_conn *c)
{
	uint32_t window = c->cc.cwnd > c->segq.packets_out ? c->cc.cwnd : c->segq.packets_out;
	uint64_t rate = (uint64_t)c->mss * 10000 * 8 *
			(c->cc.cwnd < c->cc.ssthresh / 2 ? PACING_SLOW_START : PACING_AVOIDANCE);

	if (tcp_cc_of(c)->control || !c->rtt.srtt_us)
		return tcp_pacing_rate(c);
	rate = rate * window / c->rtt.srtt_us;
	return rate < c->o.pacing_rate ? rate : c->o.pacing_rate;
}

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
	if (c->ecn_seen)
		i->tcpi_options |= TCPI_OPT_ECN_SEEN;
	if (c->syn_data)
		i->tcpi_options |= TCPI_OPT_SYN_DATA;
}

static void fill_times(const struct tcp_conn *c, struct tcp_info *i, uint64_t now)
{
	i->tcpi_rto = tcp_rto(c);
	i->tcpi_ato = c->ato_us < c->ts->cfg.delack_max_us ? c->ato_us : c->ts->cfg.delack_max_us;
	i->tcpi_last_data_sent = (uint32_t)((now - c->lsndtime) / 1000);
	i->tcpi_last_data_recv = (uint32_t)((now - c->last_rcv_us) / 1000);
	i->tcpi_last_ack_recv = (uint32_t)((now - c->rcv_tstamp) / 1000);
	i->tcpi_rtt = tcp_srtt(c);
	i->tcpi_rttvar = c->rtt.mdev_us >> 2;
	i->tcpi_min_rtt = c->rtt.min_us;
	i->tcpi_rcv_rtt = c->rcv_rtt_us;
}

static void fill_sizes(const struct tcp_conn *c, struct tcp_info *i)
{
	i->tcpi_snd_mss = c->mss;
	i->tcpi_rcv_mss = c->rcv_mss;
	i->tcpi_advmss = c->advmss - (c->ts_ok ? 12 : 0);
	i->tcpi_pmtu = c->pmtu;
	i->tcpi_snd_cwnd = c->cc.cwnd;
	i->tcpi_snd_ssthresh = c->cc.ssthresh;
	i->tcpi_rcv_ssthresh = c->rcv_ssthresh;
	i->tcpi_rcv_space = c->rcvq_space;
	i->tcpi_reordering = c->reordering;
	i->tcpi_pacing_rate = paced_at(c);
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
	i->tcpi_segs_out = c->segs_out;
	i->tcpi_segs_in = c->segs_in;
	i->tcpi_data_segs_out = c->data_segs_out;
	i->tcpi_data_segs_in = c->data_segs_in;
	i->tcpi_delivered = c->delivered;
	i->tcpi_dsack_dups = c->dsack_dups;
	i->tcpi_reord_seen = c->reord_seen;
}

/* Where a sender's time went, and what few connections have. */
static void fill_rare(const struct tcp_conn *c, union tcp_info_all *i, uint64_t now)
{
	const struct tcp_conn_ext *a = c->ext;
	struct tcp_spent s;

	tcp_spent(c, now, &s);
	i->is.tcpi_busy_time = s.all_ms * 1000;
	i->is.tcpi_rwnd_limited = (uint64_t)s.rwnd_ms * 1000;
	i->is.tcpi_sndbuf_limited = (uint64_t)s.sndbuf_ms * 1000;
	i->later.rcv_wnd = c->rcv_wnd;
	if (!a)
		return;
	if (a->fast_open)
		i->is.tcpi_fastopen_client_fail = a->fast_open->fail & 3;
	i->is.tcpi_bytes_retrans = a->bytes_retrans;
	i->is.tcpi_rcv_ooopack = a->rcv_ooopack;
	i->is.tcpi_delivered_ce = a->delivered_ce;
	i->later.total_rto = a->rtos;
	i->later.total_rto_recoveries = a->rto_recoveries;
	i->later.total_rto_time = a->rto_ms;
	if (a->rto_since)
		i->later.total_rto_time += (uint32_t)(now / 1000) - a->rto_since;
}

size_t tcp_fill_info(const struct tcp_conn *c, void *info, size_t len, uint64_t now)
{
	union tcp_info_all i;

	memset(&i, 0, sizeof(i));
	fill_state(c, &i.is);
	fill_times(c, &i.is, now);
	fill_sizes(c, &i.is);
	fill_counts(c, &i.is);
	fill_rare(c, &i, now);
	if (len > sizeof(i))
		len = sizeof(i);
	memcpy(info, &i, len);
	return len;
}
