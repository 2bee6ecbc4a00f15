/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CUBIC (RFC 9438). Section numbers below are its. Windows in segments, times in seconds. */
#include <string.h>

#include "tcp/internal.h"

#define CUBIC_C 0.4
#define BETA 0.7
#define ALPHA (3 * (1 - BETA) / (1 + BETA)) /* 4.3: as fast as Reno with this beta */

static double cube(double x)
{
	return x * x * x;
}

/*
 * The root of x >= 0 by Newton's method, from a start whose exponent is right: libm is not linked.
 */
static double cube_root(double x)
{
	double root = 1;

	if (x <= 0)
		return 0;
	while (cube(root) < x)
		root *= 2;
	while (cube(root) > x * 8)
		root /= 2;
	for (int i = 0; i < 8; i++)
		root -= (root - x / (root * root)) / 3;
	return root;
}

static void init(struct tcp_cc_state *s)
{
	tcp_cc_first_window(s);
	memset(&s->cubic, 0, sizeof(s->cubic));
	s->searching = s->ssthresh == TCP_SSTHRESH_INFINITE;
}

/* The first slow start is over, and what its search had noted with it; no epoch has begun. */
static void end_epoch(struct tcp_cc_state *s)
{
	s->searching = false;
	s->cubic.epoch_start = 0;
}

static void rtt(struct tcp_cc_state *s, const struct tcp_cc_rtt *rtt)
{
	if (!s->searching || !tcp_hystart_rtt(&s->cubic.hystart, rtt, s->cwnd))
		return;
	s->ssthresh = s->cwnd;
	end_epoch(s);
}

/*
 * 4.6 and 4.7 (fast convergence: who has not come back to the old maximum leaves room for a
 * newcomer).
 */
static uint32_t ssthresh(struct tcp_cc_state *s, uint64_t now)
{
	double reduced = s->cwnd * BETA;

	(void)now;
	s->cubic.w_max_undo = (uint32_t)s->cubic.w_max;
	s->cubic.w_max = s->cwnd < s->cubic.w_max ? s->cwnd * (1 + BETA) / 2 : s->cwnd;
	s->cubic.cwnd_prior = s->cwnd;
	end_epoch(s);
	return reduced > 2 ? (uint32_t)reduced : 2;
}

/* 4.2, and 4.8/4.10 for an epoch that no reduction began: K is 0 and the curve starts here. */
static void begin_epoch(struct tcp_cc_state *s, uint64_t now)
{
	s->cubic.epoch_start = now;
	s->cubic.w_est = s->cwnd;
	s->cubic.credit = 0;
	if (s->cubic.w_max > s->cwnd) {
		s->cubic.k_s = cube_root((s->cubic.w_max - s->cwnd) / CUBIC_C);
	} else {
		s->cubic.k_s = 0;
		s->cubic.w_max = s->cwnd;
	}
}

/* (1) */
static double w_cubic(const struct tcp_cc_state *s, double t)
{
	return CUBIC_C * cube(t - s->cubic.k_s) + s->cubic.w_max;
}

/* What acked segments add to the window: 4.3, 4.4, 4.5. */
static double growth(struct tcp_cc_state *s, uint32_t acked, double t, double rtt)
{
	double cwnd = s->cwnd + s->cubic.credit, target;

	s->cubic.w_est += (s->cubic.w_est < s->cubic.cwnd_prior ? ALPHA : 1) * acked / cwnd;
	if (w_cubic(s, t) < s->cubic.w_est)
		return s->cubic.w_est > cwnd ? s->cubic.w_est - cwnd : 0;
	target = w_cubic(s, t + rtt);
	if (target > cwnd * 1.5)
		target = cwnd * 1.5;
	if (target <= cwnd)
		return 0;
	/* One window of acknowledgements brings the target, not more. */
	return (target - cwnd) * (acked < cwnd ? acked / cwnd : 1);
}

static void acked(struct tcp_cc_state *s, uint32_t acked, uint32_t srtt_us, uint64_t now)
{
	uint64_t since = now - s->cubic.last_us;
	uint32_t whole;

	s->cubic.last_us = now;
	if (s->cwnd < s->ssthresh)
		acked = tcp_cc_slow_start(s, acked);
	if (!acked)
		return;
	if (s->searching)
		end_epoch(s); /* somebody else has set ssthresh */
	if (!s->cubic.epoch_start)
		begin_epoch(s, now);
	else if (since > 2 * (uint64_t)srtt_us)
		s->cubic.epoch_start +=
			since -
			srtt_us; /* 5.8: time in which the window was not used does not count */
	s->cubic.credit +=
		growth(s, acked, (double)(now - s->cubic.epoch_start) / 1e6, srtt_us / 1e6);
	whole = (uint32_t)s->cubic.credit;
	s->cubic.credit -= whole;
	s->cwnd += whole;
	if (s->cwnd > TCP_CWND_UNLIMITED)
		s->cwnd = TCP_CWND_UNLIMITED;
}

/* 4.9: the old maximum too; K follows from it when the next epoch begins at the old window. */
static uint32_t undo(struct tcp_cc_state *s)
{
	s->cubic.w_max = s->cubic.w_max_undo;
	end_epoch(s);
	return tcp_cc_undo_cwnd(s);
}

/* 4.8 */
static void reset(struct tcp_cc_state *s)
{
	s->cubic.w_max = 0;
	end_epoch(s);
}

const struct tcp_cc_ops tcp_cc_cubic = {
	.name = "cubic",
	.init = init,
	.ssthresh = ssthresh,
	.acked = acked,
	.rtt = rtt,
	.undo = undo,
	.reset = reset,
};
