/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYN cookies (RFC 4987, 3.6): the embryonic connection is our ISN and our time stamp. ISN: a hash
 * of the tuple, plus the peer's ISN, plus the minute in the upper eight bits, plus 24 bits of a
 * hash with that minute and the peer's ISN and the index of the MSS. Were the ISN not hashed, a
 * segment one to three bytes behind a lost first one would pass for the first, with another MSS.
 * Time stamp, low six bits: the peer's window scale, SACK, ECN, as in Linux.
 */
#include "tcp/internal.h"

#define MINUTE_US 60000000u
#define COOKIE_BITS 24u
#define COOKIE_MASK ((1u << COOKIE_BITS) - 1)
#define MAX_AGE 2u /* minutes */

#define TS_BITS 6u
#define TS_MASK ((1u << TS_BITS) - 1)
#define TS_WSCALE 0xfu /* this value: no window scale */
#define TS_SACK 0x10u
#define TS_ECN 0x20u

/* What peers have: the minimum of old, a tunnel, PPPoE and Ethernet. */
static const uint16_t mss_table[] = {536, 1300, 1440, 1460};
#define MSS_COUNT (sizeof(mss_table) / sizeof(mss_table[0]))

static uint32_t cookie_hash(const struct tcp_stack *ts, const struct tcp_tuple *tuple, uint32_t irs,
			    uint32_t minute, uint32_t which)
{
	struct {
		struct tcp_tuple tuple;
		uint32_t irs, minute, which;
	} in = {*tuple, irs, minute, which};

	return (uint32_t)siphash(ts->cfg.secret, &in, sizeof(in));
}

static uint32_t cookie_make(const struct tcp_stack *ts, const struct tcp_tuple *tuple, uint32_t irs,
			    uint32_t data)
{
	uint32_t minute = (uint32_t)(ts->now / MINUTE_US);

	return cookie_hash(ts, tuple, 0, 0, 1) + irs + (minute << COOKIE_BITS) +
	       ((cookie_hash(ts, tuple, irs, minute, 2) + data) & COOKIE_MASK);
}

/* The data in a cookie; UINT32_MAX: too old, or none of ours. */
static uint32_t cookie_data(const struct tcp_stack *ts, const struct tcp_tuple *tuple, uint32_t irs,
			    uint32_t cookie)
{
	uint32_t minute = (uint32_t)(ts->now / MINUTE_US), age;

	cookie -= cookie_hash(ts, tuple, 0, 0, 1) + irs;
	age = (minute - (cookie >> COOKIE_BITS)) & (UINT32_MAX >> COOKIE_BITS);
	if (age >= MAX_AGE)
		return UINT32_MAX;
	return (cookie - cookie_hash(ts, tuple, irs, minute - age, 2)) & COOKIE_MASK;
}

/* The clock with the options in its low bits; never ahead of the clock. */
static uint32_t ts_encode(const struct tcp_req *r, uint32_t clock)
{
	uint32_t bits = r->wscale_ok ? r->snd_wscale : TS_WSCALE, ts;

	bits |= (r->sack_ok ? TS_SACK : 0) | (r->ecn_ok ? TS_ECN : 0);
	ts = (clock & ~TS_MASK) | bits;
	return seq_after(ts, clock) ? ts - (TS_MASK + 1) : ts;
}

void tcp_cookie_syn(struct tcp_req *r, const struct tcp_rx *rx)
{
	struct tcp_listener *l = r->l;
	struct tcp_stack *ts = l->ts;
	uint32_t i = MSS_COUNT - 1;

	while (i && mss_table[i] > r->peer_mss)
		i--;
	if (!r->ts_ok) /* nowhere to keep them */
		r->sack_ok = r->wscale_ok = r->ecn_ok = false;
	r->rcv_wscale = r->wscale_ok ? r->rcv_wscale : 0;
	r->iss = cookie_make(ts, &r->node.tuple, rx->seq, i);
	l->cookie_stamp = ts->now ? ts->now : 1;
	ts->n.syn_cookies_sent++;
	tcp_send_synack(ts, r, r->ts_ok ? ts_encode(r, tcp_ts_clock(ts)) + r->ts_off : 0, NULL);
}

/* The options from the time stamp that came back; o are our own. False: not one of ours. */
static bool ts_decode(struct tcp_req *r, const struct tcp_opts *o, const struct tcp_rx *rx)
{
	uint32_t bits = rx->tsecr - r->ts_off;

	if (!rx->has_ts)
		return true;
	if (!o->timestamps)
		return false;
	r->ts_ok = true;
	r->ts_recent = rx->tsval;
	r->sack_ok = bits & TS_SACK;
	r->ecn_ok = bits & TS_ECN;
	if ((r->sack_ok && !o->sack) || (r->ecn_ok && !o->ecn && !o->ecn_passive))
		return false;
	if ((bits & TS_WSCALE) == TS_WSCALE)
		return true;
	r->wscale_ok = true;
	r->snd_wscale = bits & TS_WSCALE;
	r->rcv_wscale = tcp_wscale_for(o);
	return o->wscale && r->snd_wscale <= TCP_WSCALE_MAX;
}

bool tcp_cookie_input(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple)
{
	struct tcp_stack *ts = l->ts;
	struct tcp_req r = {.l = l,
			    .irs = rx->seq - 1,
			    .iss = rx->ack - 1,
			    .retries = 1,
			    .tos = tcp_tos(&l->o, tuple->family)};
	struct tcp_opts o = l->o;
	struct tcp_route route;
	uint32_t data;

	if (!ts->cfg.syncookies)
		return false;
	/*
	 * Not sent any lately: none can come back, and guessing is not even tried. Of another
	 * process nobody knows that here.
	 */
	if (!l->spec.joint &&
	    (!l->cookie_stamp || ts->now - l->cookie_stamp > (uint64_t)MAX_AGE * MINUTE_US))
		return false;
	data = cookie_data(ts, tuple, r.irs, r.iss);
	if (data >= MSS_COUNT) {
		ts->n.syn_cookies_failed++;
		return false;
	}
	r.node.tuple = *tuple;
	r.peer_mss = mss_table[data];
	r.ts_off = tcp_ts_offset(ts, tuple);
	route = tcp_route_of(ts, tuple, &o);
	if (!ts_decode(&r, &o, rx)) {
		ts->n.syn_cookies_failed++;
		return false;
	}
	r.advmss = tcp_adv_mss(ts, tuple, &o, &route);
	r.rcv_wnd = (uint16_t)tcp_initial_window(&o, r.advmss - (r.ts_ok ? 12 : 0), route.initrwnd);
	ts->n.syn_cookies_recv++;
	/*
	 * The peer believes that it is connected: its next segment tries again when there is no
	 * room now.
	 */
	if (!tcp_begins(l, &r.node))
		ts->n.listen_drops++;
	else if (!tcp_req_complete(&r, rx))
		tcp_ended(ts, &r.node);
	return true;
}
