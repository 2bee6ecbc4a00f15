/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00; Cardwell et al., "BBR:
 * Congestion-Based Congestion Control", 2016). It sends as fast as the path was seen to deliver,
 * the highest rate of ten rounds, and keeps twice the path's content in flight: that rate by the
 * shortest round trip of ten seconds. A loss alone says nothing about either. Section numbers are
 * the draft's. Left out: the policer detection of Linux, which the draft does not have.
 */
#include <string.h>

#include "tcp/internal.h"

#define UNIT 256u /* gains are in 1/256 */
#define HIGH_GAIN 739u /* 2/ln 2: doubles the rate each round */
#define DRAIN_GAIN 88u /* its inverse */
#define CWND_GAIN 512u
#define PROBE_PHASES 8u
#define MIN_CWND 4u
#define FULL_ROUNDS 3u /* without a quarter more: the pipe is full */
#define RTT_WINDOW_US UINT64_C(10000000)
#define PROBE_RTT_US 200000u
#define EXTRA_MAX_US 100000u /* as much of the rate may come in one acknowledgement (Linux) */
#define GAP_PERCENT 1u /* paced below the rate, so that no queue stands (Linux) */
#define FIRST_RTT_US 1000u /* 4.2.1: while none was measured */
#define RATE_LOW 1000u

enum bbr_mode { STARTUP, DRAIN, PROBE_BW, PROBE_RTT };

static const uint32_t phase_gain[PROBE_PHASES] = {320, 192, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT};

/* --- the highest of the last ten rounds */

static void top_round(struct tcp_bbr_top *t, uint32_t round)
{
	t->of[round % TCP_BBR_ROUNDS] = 0;
	t->max = 0;
	for (unsigned i = 0; i < TCP_BBR_ROUNDS; i++)
		if (t->of[i] > t->max)
			t->max = t->of[i];
}

static void top_add(struct tcp_bbr_top *t, uint32_t round, uint64_t v)
{
	if (v > t->of[round % TCP_BBR_ROUNDS])
		t->of[round % TCP_BBR_ROUNDS] = v;
	if (v > t->max)
		t->max = v;
}

/* --- what follows from the model */

/* 4.2.1 and 4.2.2. Before the pipe was filled once the rate does not fall. */
static void set_rate(struct tcp_bbr *b, uint32_t gain)
{
	uint64_t rate = b->bw.max * gain / UNIT;

	rate -= rate * GAP_PERCENT / 100;
	if (rate < RATE_LOW)
		rate = RATE_LOW;
	if (b->bw.max && (b->filled || rate > b->pacing_rate))
		b->pacing_rate = rate;
}

/* The first window in a round trip, with the gain of slow start. */
static void first_rate(struct tcp_bbr *b, uint32_t cwnd, uint32_t mss, uint32_t rtt_us)
{
	b->pacing_rate = (uint64_t)cwnd * mss * 1000000 / rtt_us * HIGH_GAIN / UNIT;
}

/* 4.2.3.1: segments, with room for what travels together at both ends. */
static uint32_t content(const struct tcp_bbr *b, const struct tcp_cc_ack *a, uint32_t gain)
{
	uint64_t bytes, segs, burst = b->pacing_rate / 1000 / a->mss;

	if (!b->min_us)
		return TCP_INIT_CWND;
	bytes = b->bw.max * b->min_us / 1000000;
	segs = (bytes * gain / UNIT + a->mss - 1) / a->mss;
	if (burst < 2)
		burst = 2;
	if (burst > a->gso_segs)
		burst = a->gso_segs;
	segs += 3 * burst;
	segs += segs & 1;
	if (b->mode == PROBE_BW && !b->phase)
		segs += 2;
	return segs < TCP_CWND_UNLIMITED ? (uint32_t)segs : TCP_CWND_UNLIMITED;
}

static uint32_t pacing_gain(const struct tcp_bbr *b)
{
	switch ((enum bbr_mode)b->mode) {
	case STARTUP:
		return HIGH_GAIN;
	case DRAIN:
		return DRAIN_GAIN;
	case PROBE_BW:
		return phase_gain[b->phase];
	case PROBE_RTT:
		break;
	}
	return UNIT;
}

static uint32_t cwnd_gain(const struct tcp_bbr *b)
{
	if (b->mode == STARTUP || b->mode == DRAIN)
		return HIGH_GAIN;
	return b->mode == PROBE_BW ? CWND_GAIN : UNIT;
}

/* 4.2.3.4 */
static void save_cwnd(struct tcp_cc_state *s)
{
	struct tcp_bbr *b = s->bbr;

	if (b->ca_state < TCPCA_RECOVERY && b->mode != PROBE_RTT)
		b->saved_cwnd = s->cwnd;
	else if (s->cwnd > b->saved_cwnd)
		b->saved_cwnd = s->cwnd;
}

static void restore_cwnd(struct tcp_cc_state *s)
{
	if (s->cwnd < s->bbr->saved_cwnd)
		s->cwnd = s->bbr->saved_cwnd;
}

/* --- the model */

/* 4.1.1.3: a round ends when what left after its beginning is acknowledged. */
static void update_round(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	b->round_start = false;
	if (!a->interval_us || seq_before(a->prior_delivered, b->round_end))
		return;
	b->round_end = a->delivered;
	b->round++;
	b->round_start = true;
	b->conserving = false;
	top_round(&b->bw, b->round);
	top_round(&b->extra, b->round);
}

/* 4.1.1.2 */
static void update_bw(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	uint64_t bw;

	if (!a->interval_us)
		return;
	bw = (uint64_t)a->sample * a->mss * 1000000 / a->interval_us;
	if (!a->app_limited || bw >= b->bw.max)
		top_add(&b->bw, b->round, bw);
}

/*
 * What comes beyond the rate: acknowledgements that were held back and come together. The window
 * has room for it, or the sender would stand still until the next one (draft-ietf-ccwg-bbr, 5.5.9).
 */
static void update_extra(struct tcp_bbr *b, const struct tcp_cc_ack *a, uint32_t cwnd)
{
	uint64_t expected = b->bw.max * (a->now - b->extra_start) / 1000000 / a->mss, extra, most;

	if (b->extra_acked <= expected) {
		b->extra_acked = 0;
		b->extra_start = a->now;
		expected = 0;
	}
	b->extra_acked += a->acked;
	extra = b->extra_acked - expected;
	most = b->bw.max * EXTRA_MAX_US / 1000000 / a->mss;
	if (extra > cwnd)
		extra = cwnd;
	if (b->filled)
		top_add(&b->extra, b->round, extra < most ? extra : most);
}

static void next_phase(struct tcp_bbr *b, uint64_t now)
{
	b->phase = (b->phase + 1) % PROBE_PHASES;
	b->phase_start = now;
}

/* 4.3.4.3 */
static void update_phase(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	bool full = a->now - b->phase_start > b->min_us, over;
	uint32_t gain = phase_gain[b->phase];

	if (b->mode != PROBE_BW)
		return;
	if (gain > UNIT)
		over = full && (a->lost || a->prior_flight >= content(b, a, gain));
	else if (gain < UNIT)
		over = full || a->prior_flight <= content(b, a, UNIT);
	else
		over = full;
	if (over)
		next_phase(b, a->now);
}

/* 4.3.2.2: three rounds that were not a quarter faster. */
static void check_full(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	if (b->filled || !b->round_start || a->app_limited)
		return;
	if (b->bw.max * 4 >= b->full_bw * 5) {
		b->full_bw = b->bw.max;
		b->full_rounds = 0;
		return;
	}
	if (++b->full_rounds >= FULL_ROUNDS)
		b->filled = true;
}

/* 4.3.4.2: any phase but the one that drains; which one need not be guessed by anybody else. */
static void enter_probe_bw(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	b->mode = PROBE_BW;
	b->phase = (uint8_t)(PROBE_PHASES - 1 - (a->now ^ a->delivered) % (PROBE_PHASES - 1));
	next_phase(b, a->now);
}

/* 4.3.3 */
static void check_drain(struct tcp_bbr *b, const struct tcp_cc_ack *a)
{
	if (b->mode == STARTUP && b->filled)
		b->mode = DRAIN;
	if (b->mode == DRAIN && a->flight <= content(b, a, UNIT))
		enter_probe_bw(b, a);
}

static void leave_probe_rtt(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;

	b->min_stamp = a->now;
	restore_cwnd(s);
	if (b->filled)
		enter_probe_bw(b, a);
	else
		b->mode = STARTUP;
}

/* 4.3.5: four segments in flight, for 200 ms and a round. */
static void probe_rtt(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;

	if (!b->probe_end) {
		if (a->flight > MIN_CWND)
			return;
		b->probe_end = a->now + PROBE_RTT_US;
		b->probe_round = false;
		b->round_end = a->delivered;
		return;
	}
	b->probe_round |= b->round_start;
	if (b->probe_round && a->now > b->probe_end)
		leave_probe_rtt(s, a);
}

/* 4.1.2.2 and 4.3.5 */
static void update_min_rtt(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;
	bool old = a->now - b->min_stamp > RTT_WINDOW_US;

	if (a->rtt_us && (!b->min_us || a->rtt_us <= b->min_us || old)) {
		b->min_us = a->rtt_us;
		b->min_stamp = a->now;
	}
	if (old && !b->restarted && b->mode != PROBE_RTT) {
		save_cwnd(s);
		b->mode = PROBE_RTT;
		b->probe_end = 0;
	}
	if (b->mode == PROBE_RTT)
		probe_rtt(s, a);
	if (a->interval_us)
		b->restarted = false;
}

/* --- the window */

/*
 * 4.2.3.4: in the first round of a recovery as much leaves as arrives. True: nothing more is to be
 * done to the window.
 */
static bool recover(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;
	uint8_t was = b->ca_state;

	if (a->lost)
		s->cwnd = s->cwnd > a->lost ? s->cwnd - a->lost : 1;
	b->ca_state = a->ca_state;
	if (a->ca_state == TCPCA_RECOVERY && was != TCPCA_RECOVERY) {
		b->conserving = true;
		b->round_end = a->delivered;
		s->cwnd = a->flight + a->acked;
	} else if (was >= TCPCA_RECOVERY && a->ca_state < TCPCA_RECOVERY) {
		b->conserving = false;
		restore_cwnd(s);
	}
	if (!b->conserving)
		return false;
	if (s->cwnd < a->flight + a->acked)
		s->cwnd = a->flight + a->acked;
	return true;
}

/* 4.2.3.5 */
static void set_cwnd(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;

	if (a->acked && !recover(s, a)) {
		uint32_t target = content(b, a, cwnd_gain(b)) + (uint32_t)b->extra.max;

		if (b->filled)
			s->cwnd = s->cwnd + a->acked < target ? s->cwnd + a->acked : target;
		else if (s->cwnd < target || a->delivered < TCP_INIT_CWND)
			s->cwnd += a->acked;
		if (s->cwnd < MIN_CWND)
			s->cwnd = MIN_CWND;
		if (s->cwnd > TCP_CWND_UNLIMITED)
			s->cwnd = TCP_CWND_UNLIMITED;
	}
	if (b->mode == PROBE_RTT && s->cwnd > MIN_CWND)
		s->cwnd = MIN_CWND;
}

static void see_rtt(struct tcp_cc_state *s, uint32_t srtt_us, uint32_t mss)
{
	if (s->bbr->seen_rtt || !srtt_us)
		return;
	s->bbr->seen_rtt = true;
	first_rate(s->bbr, s->cwnd, mss, srtt_us);
}

/* The clocks run from the first use on. */
static void begin(struct tcp_bbr *b, uint64_t now)
{
	if (b->begun)
		return;
	b->begun = true;
	b->min_stamp = b->extra_start = b->phase_start = now;
}

static bool control(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;

	begin(b, a->now);
	see_rtt(s, a->srtt_us, a->mss);
	update_round(b, a);
	update_bw(b, a);
	update_extra(b, a, s->cwnd);
	update_phase(b, a);
	check_full(b, a);
	check_drain(b, a);
	update_min_rtt(s, a);
	set_rate(b, pacing_gain(b));
	set_cwnd(s, a);
	return b->mode == PROBE_RTT;
}

/* 4.4.3: from idle at the path's rate; what had been in flight has left it. */
static void restart(struct tcp_cc_state *s, const struct tcp_cc_ack *a)
{
	struct tcp_bbr *b = s->bbr;

	begin(b, a->now);
	see_rtt(s, a->srtt_us, a->mss);
	if (!a->app_limited)
		return;
	b->restarted = true;
	b->extra_start = a->now;
	b->extra_acked = 0;
	if (b->mode == PROBE_BW)
		set_rate(b, UNIT);
	else if (b->mode == PROBE_RTT && b->probe_end && a->now > b->probe_end)
		leave_probe_rtt(s, a);
}

static void init(struct tcp_cc_state *s)
{
	struct tcp_bbr *b = s->bbr;

	tcp_cc_first_window(s);
	s->ssthresh = TCP_SSTHRESH_INFINITE;
	memset(b, 0, sizeof(*b));
	b->saved_cwnd = s->cwnd;
	first_rate(b, s->cwnd, TCP_MSS_DEFAULT6, FIRST_RTT_US);
}

/* A loss changes nothing but what is in flight until it is repaired. */
static uint32_t ssthresh(struct tcp_cc_state *s, uint64_t now)
{
	(void)now;
	save_cwnd(s);
	return s->ssthresh;
}

/* The window is control()'s. */
static void acked(struct tcp_cc_state *s, uint32_t acked, uint32_t srtt_us, uint64_t now)
{
	(void)s;
	(void)acked;
	(void)srtt_us;
	(void)now;
}

/* It was no loss: whether the pipe is full is asked anew. */
static uint32_t undo(struct tcp_cc_state *s)
{
	s->bbr->full_bw = 0;
	s->bbr->full_rounds = 0;
	return tcp_cc_undo_cwnd(s);
}

/* A timeout: what was seen so far of the growth is no measure. */
static void reset(struct tcp_cc_state *s)
{
	s->bbr->ca_state = TCPCA_LOSS;
	s->bbr->full_bw = 0;
	s->bbr->conserving = false;
}

const struct tcp_cc_ops tcp_cc_bbr = {
	.name = "bbr",
	.init = init,
	.ssthresh = ssthresh,
	.acked = acked,
	.control = control,
	.restart = restart,
	.undo = undo,
	.reset = reset,
};
