/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How large a segment may be: the path's size, ICMP (RFC 1191, 8201, checked as RFC 5927 asks),
 * black holes, other ICMP errors.
 */
#include "tcp/recovery/loss.h"

#define MTU_MIN4 552u /* Linux: ip_rt_min_pmtu */
#define MTU_MIN6 1280u
#define MTU_MAX 65535u
#define MTU_RETRY_US 600000000u /* RFC 1191, 6.3 */
/* What looked like a black hole may have been an outage: doubled for each. */
#define HOLE_RETRY_US 60000000u

static uint32_t ip_len(const struct tcp_conn *c)
{
	return c->node.tuple.family == AF_INET6 ? 40 : 20;
}

static void ask_path(struct tcp_conn *c)
{
	uint32_t mtu = 1500, max_gso = 0;

	if (c->ts->env.path)
		c->ts->env.path(c->ts->env.ctx, &c->node.tuple, &mtu, &max_gso);
	c->pmtu = mtu < MTU_MAX ? mtu : MTU_MAX;
	c->max_gso = max_gso < MTU_MAX ? max_gso : MTU_MAX;
}

void tcp_sync_mss(struct tcp_conn *c)
{
	uint32_t head = ip_len(c) + 20, mss, half;

	if (!c->pmtu)
		ask_path(c);
	mss = c->pmtu > head + TCP_MSS_MIN ? c->pmtu - head : TCP_MSS_MIN;
	if (c->peer_mss && mss > c->peer_mss)
		mss = c->peer_mss;
	if (c->o.maxseg && mss > c->o.maxseg)
		mss = c->o.maxseg;
	if (c->ext && c->ext->probe.is_on) {
		if (c->ext->probe.high > c->pmtu)
			c->ext->probe.high = c->pmtu;
		if (mss > c->ext->probe.low - head)
			mss = c->ext->probe.low - head;
	}
	/*
	 * A segment that fills more than half of the largest window waits for the peer's delayed
	 * ACK (Linux: tcp_bound_to_half_wnd()).
	 */
	half = c->max_wnd > TCP_MSS_DEFAULT ? c->max_wnd / 2 : c->max_wnd;
	if (half && mss > half)
		mss = half;
	if (mss < TCP_MSS_MIN) /* whatever the user said: there is room for the options */
		mss = TCP_MSS_MIN;
	if (c->ts_ok)
		mss -= 12;
	c->mss = mss;
	c->gso_len = c->max_gso > mss ? c->max_gso - c->max_gso % mss : mss;
}

void tcp_path_anew(struct tcp_conn *c)
{
	uint32_t head = ip_len(c) + 20;

	c->pmtu = 0;
	tcp_sync_mss(c);
	if (c->pmtu > head + TCP_MSS_MIN && c->advmss > c->pmtu - head)
		c->advmss = c->pmtu - head;
}

uint32_t tcp_mss(const struct tcp_conn *c)
{
	return c->mss;
}

static void set_mtu(struct tcp_conn *c, uint32_t mtu)
{
	uint32_t was = c->mss;

	c->pmtu = mtu;
	tcp_sync_mss(c);
	if (c->mss < was && c->segq.packets_out && c->state != TCPS_SYN_SENT &&
	    c->state != TCPS_SYN_RECV)
		tcp_mark_oversized(c);
}

static uint32_t mtu_floor(const struct tcp_conn *c)
{
	return c->node.tuple.family == AF_INET6 ? MTU_MIN6 : MTU_MIN4;
}

void tcp_mtu(struct tcp_conn *c, uint32_t mtu, uint64_t now)
{
	c->ts->now = now;
	if (c->closing || c->state == TCPS_CLOSED || mtu == c->pmtu)
		return;
	/* The interface's says nothing of what a router has told; tcp_mtu_recheck() asks again. */
	if (mtu > c->pmtu && c->mtu_stamp)
		return;
	c->mtu_stamp = 0;
	if (mtu < c->pmtu)
		c->ts->n.pmtu_reduced++;
	set_mtu(c, mtu < MTU_MAX ? mtu : MTU_MAX);
}

/*
 * RFC 1191, 6.5 and RFC 8201, 4: smaller only; a size below the least of the family is taken for
 * that.
 */
static void frag_needed(struct tcp_conn *c, uint32_t mtu)
{
	if (c->mtu_locked)
		return;
	if (mtu < mtu_floor(c))
		mtu = mtu_floor(c);
	if (mtu >= c->pmtu)
		return;
	c->ts->n.pmtu_reduced++;
	c->mtu_stamp = c->ts->now;
	c->mtu_holes = 0;
	set_mtu(c, mtu);
}

/* What an IP packet of this size carries. */
static uint32_t payload_of(const struct tcp_conn *c, uint32_t mtu)
{
	return mtu - ip_len(c) - 20 - (c->ts_ok ? 12 : 0);
}

/*
 * The next size with which a segment of len bytes would not go out whole; pmtu: there is none. Few
 * steps: an orphan gives up after eight tries. 1064 is Linux's tcp_base_mss of 1024 with headers.
 */
static uint32_t smaller_mtu(const struct tcp_conn *c, uint32_t len)
{
	static const uint32_t steps4[] = {1500, 1064, MTU_MIN4},
			      steps6[] = {1500, MTU_MIN6, MTU_MIN6};
	const uint32_t *steps = c->node.tuple.family == AF_INET6 ? steps6 : steps4;

	for (unsigned i = 0; i < sizeof(steps4) / sizeof(*steps4); i++)
		if (steps[i] < c->pmtu && payload_of(c, steps[i]) < len)
			return steps[i];
	return c->pmtu;
}

/* For a path that swallows what is too large without a word. */
void tcp_mtu_black_hole(struct tcp_conn *c)
{
	const struct tcp_seg *head = c->segq.head;
	uint32_t mtu, len;

	if (!head)
		return;
	if (c->ts->cfg.mtu_probing) {
		tcp_mtu_probe_smaller(c);
		return;
	}
	/* Each size has its second chance. */
	if (c->retries > c->mtu_tried && c->mtu_tried && c->retries - c->mtu_tried < 2)
		return;
	len = tcp_seg_payload(head);
	mtu = smaller_mtu(c, len < c->mss ? len : c->mss);
	if (mtu >= c->pmtu)
		return;
	c->ts->n.mtu_black_holes++;
	c->mtu_tried = c->retries;
	if (c->mtu_holes < 4)
		c->mtu_holes++;
	c->mtu_stamp = c->ts->now;
	set_mtu(c, mtu);
}

void tcp_mtu_recheck(struct tcp_conn *c)
{
	uint64_t wait = c->mtu_holes ? (uint64_t)HOLE_RETRY_US << (c->mtu_holes - 1) : MTU_RETRY_US;

	c->mtu_tried = 0;
	if (c->ts->now - c->mtu_stamp < wait)
		return;
	c->mtu_stamp = 0;
	ask_path(c);
	tcp_sync_mss(c);
}

/* --- ICMP */

/* A route came or went: the back-off of the last timeout is taken back (RFC 6069). */
static void revert_backoff(struct tcp_conn *c, uint32_t seq)
{
	uint64_t due;

	if (seq != c->snd_una || !c->retries || !c->backoff || c->pending != TCP_PENDING_RTO ||
	    !c->segq.head)
		return;
	c->backoff--;
	due = c->segq.head->sent_us + tcp_rto(c);
	tcp_arm_rtx(c, TCP_PENDING_RTO, due > c->ts->now ? due - c->ts->now : 0);
}

/* Linux: icmp_err_convert, icmpv6_err_convert(). */
static const uint16_t error_of[TCP_ICMP_COUNT] = {
	[TCP_ICMP_UNREACH_NET] = ENETUNREACH,	[TCP_ICMP_UNREACH_HOST] = EHOSTUNREACH,
	[TCP_ICMP_UNREACH_PORT] = ECONNREFUSED, [TCP_ICMP_FRAG_NEEDED] = EMSGSIZE,
	[TCP_ICMP_UNREACH_PROTO] = ENOPROTOOPT, [TCP_ICMP_SOURCE_ROUTE] = EOPNOTSUPP,
	[TCP_ICMP_HOST_UNKNOWN] = EHOSTDOWN,	[TCP_ICMP_HOST_ISOLATED] = ENONET,
	[TCP_ICMP_REFUSED_NET] = ENETUNREACH,	[TCP_ICMP_REFUSED_HOST] = EHOSTUNREACH,
	[TCP_ICMP_PROHIBITED] = EACCES,		[TCP_ICMP_PROTOCOL] = EPROTO,
};

static void conn_icmp(struct tcp_conn *c, uint32_t seq, enum tcp_icmp kind, uint32_t mtu)
{
	/* RFC 5927, 4.1: only of what is in flight. */
	if (c->closing || c->state == TCPS_CLOSED || !c->segq.packets_out ||
	    !seq_between(seq, c->snd_una, c->snd_nxt))
		return;
	if (kind == TCP_ICMP_FRAG_NEEDED) {
		frag_needed(c, mtu);
		return;
	}
	/* RFC 5461: a handshake fails at once, a connection only if it then times out. */
	if (c->state == TCPS_SYN_SENT || (c->state == TCPS_SYN_RECV && !c->fo_child)) {
		tcp_conn_done(c, error_of[kind]);
		return;
	}
	if (kind == TCP_ICMP_UNREACH_NET || kind == TCP_ICMP_UNREACH_HOST)
		revert_backoff(c, seq);
	c->soft_error = error_of[kind];
}

void tcp_icmp(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint32_t seq, enum tcp_icmp kind,
	      uint32_t mtu, uint64_t now)
{
	struct tcp_node *n = tcp_table_find(&ts->table, tuple);

	ts->now = now;
	if (n && n->kind == TCP_KIND_CONN)
		conn_icmp((struct tcp_conn *)n, seq, kind, mtu);
}
