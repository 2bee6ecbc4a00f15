/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The round-trip time and the retransmission timeout (RFC 6298). As Linux: the smoothed time is
 * kept eightfold and the mean deviation fourfold; the variance that counts is the largest deviation
 * of a window of data, let down slowly, and never below min_rto.
 */
#include "tcp/internal.h"

#define MIN_WINDOW_US UINT64_C(300000000) /* tcp_min_rtt_wlen */
#define SAMPLE_MAX_US (1u << 28) /* eightfold still fits */

void tcp_rtt_init(struct tcp_rtt *r, uint32_t min_rto_us)
{
	*r = (struct tcp_rtt){
		.mdev_us = TCP_RTO_INIT_US,
		.mdev_max_us = min_rto_us,
		.rto_us = TCP_RTO_INIT_US,
		.min_us = UINT32_MAX,
	};
}

static void first_sample(struct tcp_rtt *r, uint32_t rtt_us, uint32_t snd_nxt, uint32_t min_rto_us)
{
	r->srtt_us = rtt_us << 3;
	r->mdev_us = rtt_us << 1;
	r->rttvar_us = r->mdev_us > min_rto_us ? r->mdev_us : min_rto_us;
	r->mdev_max_us = r->rttvar_us;
	r->rtt_seq = snd_nxt;
}

static void next_sample(struct tcp_rtt *r, uint32_t rtt_us, uint32_t snd_una, uint32_t snd_nxt,
			uint32_t min_rto_us)
{
	int32_t error = (int32_t)(rtt_us - (r->srtt_us >> 3));
	int32_t change = (error < 0 ? -error : error) - (int32_t)(r->mdev_us >> 2);

	r->srtt_us += (uint32_t)error;
	/*
	 * A time that falls is good news, not variance: the deviation grows by it only with an
	 * eighth of the gain.
	 */
	if (error < 0 && change > 0)
		change >>= 3;
	r->mdev_us += (uint32_t)change;
	if (r->mdev_us > r->mdev_max_us) {
		r->mdev_max_us = r->mdev_us;
		if (r->mdev_max_us > r->rttvar_us)
			r->rttvar_us = r->mdev_max_us;
	}
	if (!seq_after(snd_una, r->rtt_seq))
		return;
	/* A window is over. */
	if (r->mdev_max_us < r->rttvar_us)
		r->rttvar_us -= (r->rttvar_us - r->mdev_max_us) >> 2;
	r->rtt_seq = snd_nxt;
	r->mdev_max_us = min_rto_us;
}

void tcp_rtt_sample(struct tcp_rtt *r, uint32_t rtt_us, uint32_t snd_una, uint32_t snd_nxt,
		    uint32_t min_rto_us, uint64_t now)
{
	uint32_t rto;

	if (rtt_us > SAMPLE_MAX_US)
		rtt_us = SAMPLE_MAX_US;
	if (!rtt_us)
		rtt_us = 1; /* faster than the clock */
	if (rtt_us <= r->min_us || now - r->min_stamp > MIN_WINDOW_US) {
		r->min_us = rtt_us;
		r->min_stamp = now;
	}
	if (r->srtt_us)
		next_sample(r, rtt_us, snd_una, snd_nxt, min_rto_us);
	else
		first_sample(r, rtt_us, snd_nxt, min_rto_us);
	if (!r->srtt_us)
		r->srtt_us = 1;
	rto = (r->srtt_us >> 3) + r->rttvar_us;
	r->rto_us = rto < TCP_RTO_MAX_US ? rto : TCP_RTO_MAX_US;
}
