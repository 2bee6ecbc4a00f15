/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * HyStart (Ha and Rhee, "Taming the elephants: New TCP slow start", 2011): the end of the first
 * slow start before a queue runs over. A round is one window of data. Slow start is over when the
 * path is full: the acknowledgements of a round come without a gap for half of the shortest round
 * trip; or when a queue stands: the first round-trip times of a round are longer than the shortest.
 * HyStart++ (RFC 9406) goes on for five rounds at a quarter of the pace from there; where the queue
 * is not longer than the path that overruns it all the same.
 */
#include "tcp/internal.h"

/* As Linux has them. */
#define MIN_THRESH_US 4000u
#define MAX_THRESH_US 16000u
#define DIVISOR 8u
#define MIN_SAMPLES 8u
#define GAP_US 2000u /* acknowledgements farther apart are not of one train */
#define LOW_WINDOW 16u /* segments: a window below it overruns nothing */

static void next_round(struct tcp_hystart *h, const struct tcp_cc_rtt *rtt)
{
	h->round_end = rtt->snd_nxt;
	h->round_us = h->last_us = (uint32_t)rtt->now;
	h->least_us = UINT32_MAX;
	h->samples = 0;
	h->in_round = true;
}

static uint32_t threshold(uint32_t min_us)
{
	uint32_t eighth = min_us / DIVISOR;

	if (eighth < MIN_THRESH_US)
		return MIN_THRESH_US;
	return eighth < MAX_THRESH_US ? eighth : MAX_THRESH_US;
}

/* The acknowledgements since the round began are a train as long as the path. */
static bool full(struct tcp_hystart *h, const struct tcp_cc_rtt *rtt)
{
	uint32_t now = (uint32_t)rtt->now;

	if (now - h->last_us > GAP_US)
		return false;
	h->last_us = now;
	return now - h->round_us > (rtt->paced ? rtt->min_us : rtt->min_us / 2);
}

/* The round's least time of its first samples: later ones stand behind its own data. */
static bool queued(struct tcp_hystart *h, const struct tcp_cc_rtt *rtt)
{
	if (rtt->us < h->least_us)
		h->least_us = rtt->us;
	if (h->samples < MIN_SAMPLES) {
		h->samples++;
		return false;
	}
	return h->least_us > rtt->min_us + threshold(rtt->min_us);
}

bool tcp_hystart_rtt(struct tcp_hystart *h, const struct tcp_cc_rtt *rtt, uint32_t cwnd)
{
	bool over;

	if (!h->in_round || seq_after(rtt->snd_una, h->round_end))
		next_round(h, rtt);
	over = full(h, rtt);
	over |= queued(h, rtt);
	return over && cwnd >= LOW_WINDOW;
}
