/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 5681, counting acknowledged segments instead of acknowledgements (RFC 3465, as Linux does
 * it).
 */
#include "tcp/internal.h"

static void init(struct tcp_cc_state *s)
{
	tcp_cc_first_window(s);
	s->cwnd_cnt = 0;
}

/* RFC 5681, (4). */
static uint32_t ssthresh(struct tcp_cc_state *s, uint64_t now)
{
	(void)now;
	s->cwnd_cnt = 0;
	return s->cwnd / 2 > 2 ? s->cwnd / 2 : 2;
}

/* RFC 5681, 3.1: one segment for each window that was acknowledged. */
static void acked(struct tcp_cc_state *s, uint32_t acked, uint32_t srtt_us, uint64_t now)
{
	(void)srtt_us;
	(void)now;
	if (s->cwnd < s->ssthresh)
		acked = tcp_cc_slow_start(s, acked);
	s->cwnd_cnt += acked;
	while (s->cwnd_cnt >= s->cwnd) {
		s->cwnd_cnt -= s->cwnd;
		if (s->cwnd < TCP_CWND_UNLIMITED)
			s->cwnd++;
	}
}

static void reset(struct tcp_cc_state *s)
{
	s->cwnd_cnt = 0;
}

const struct tcp_cc_ops tcp_cc_newreno = {
	.name = "reno",
	.init = init,
	.ssthresh = ssthresh,
	.acked = acked,
	.undo = tcp_cc_undo_cwnd,
	.reset = reset,
};
