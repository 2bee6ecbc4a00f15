/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connection's timers: retransmission (RFC 6298), zero-window probes, delayed ACK, keepalive,
 * pacing.
 */
#include "tcp/recovery/loss.h"

/* First repetitions of a SYN without back-off (Linux: tcp_syn_linear_timeouts). */
#define SYN_LINEAR 4u
#define ORPHAN_RETRIES 8u /* Linux: tcp_orphan_retries */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint32_t tcp_rto(const struct tcp_conn *c)
{
	uint64_t rto = (uint64_t)c->rtt.rto_us << (c->backoff < 16 ? c->backoff : 16);

	return (uint32_t)least(rto, TCP_RTO_MAX_US);
}

void tcp_arm_rtx(struct tcp_conn *c, enum tcp_pending what, uint64_t in_us)
{
	c->pending = (uint8_t)what;
	wheel_arm(&c->ts->wheel, &c->rtx, c->ts->now + in_us);
}

static void disarm_rtx(struct tcp_conn *c)
{
	c->pending = TCP_PENDING_NONE;
	if (wheel_armed(&c->rtx))
		wheel_cancel(&c->ts->wheel, &c->rtx);
}

void tcp_rearm_rtx(struct tcp_conn *c)
{
	if (!c->segq.packets_out) {
		disarm_rtx(c);
		return;
	}
	if (!tcp_tlp_arm(c))
		tcp_arm_rtx(c, TCP_PENDING_RTO, tcp_rto(c));
}

void tcp_timed_out(struct tcp_conn *c)
{
	c->ts->n.abort_on_timeout++;
	tcp_conn_done(c, c->soft_error ? c->soft_error : ETIMEDOUT);
}

static bool synced(const struct tcp_conn *c)
{
	return c->state != TCPS_SYN_SENT && c->state != TCPS_SYN_RECV;
}

/* --- giving up */

/*
 * The time that this many retransmissions with back-off from `base` on take (Linux:
 * tcp_model_timeout()).
 */
static uint64_t model_timeout(uint32_t tries, uint64_t base)
{
	uint64_t sum = 0, wait = base;

	for (uint32_t i = 0; i <= tries; i++) {
		sum += wait;
		wait = least(wait * 2, TCP_RTO_MAX_US);
	}
	return sum;
}

/* Since when nothing was acknowledged: of this flight's first retransmission. */
static bool retried_for(const struct tcp_conn *c, uint64_t us)
{
	return c->retries && c->retrans_stamp && c->ts->now - c->retrans_stamp >= us;
}

static bool retried_out(const struct tcp_conn *c, uint32_t tries)
{
	return retried_for(
		c, model_timeout(tries, synced(c) ? c->ts->cfg.min_rto_us : TCP_RTO_INIT_US));
}

static uint64_t user_timeout(const struct tcp_conn *c)
{
	return (uint64_t)c->o.user_timeout_ms * 1000;
}

/*
 * Too many retransmissions, or too long (RFC 1122, 4.2.3.5 R1 and R2; TCP_USER_TIMEOUT). True: the
 * connection is over.
 */
static bool give_up(struct tcp_conn *c)
{
	uint32_t tries = c->o.retries2;
	bool over;

	if (!synced(c)) {
		tries = c->o.syn_retries;
		over = c->retries >= tries + (c->state == TCPS_SYN_SENT ? SYN_LINEAR : 0);
		/* Counted from the first SYN, which was a second before its first repetition. */
		if (!over && !user_timeout(c))
			over = retried_for(c,
					   model_timeout(tries, TCP_RTO_INIT_US) - TCP_RTO_INIT_US);
	} else {
		if (retried_out(c, c->o.retries1))
			tcp_mtu_black_hole(c);
		if (c->orphan)
			tries = tcp_rto(c) < TCP_RTO_MAX_US ? ORPHAN_RETRIES : 0;
		over = c->orphan && !tries && c->soft_error;
	}
	if (!over)
		over = user_timeout(c) ? retried_for(c, user_timeout(c)) : retried_out(c, tries);
	if (over)
		tcp_timed_out(c);
	return over;
}

/* A timeout is not later than the user's limit. */
static uint64_t clamp_to_user(const struct tcp_conn *c, uint64_t since, uint64_t in_us)
{
	uint64_t limit = user_timeout(c), gone;

	if (!limit || !since)
		return in_us;
	gone = c->ts->now - since;
	return gone >= limit ? 1 : least(in_us, limit - gone);
}

/* --- retransmission */

static void next_rto(struct tcp_conn *c)
{
	if (c->backoff < UINT8_MAX)
		c->backoff++;
	if (c->retries < UINT8_MAX)
		c->retries++;
	tcp_arm_rtx(c, TCP_PENDING_RTO, clamp_to_user(c, c->retrans_stamp, tcp_rto(c)));
}

static void syn_timeout(struct tcp_conn *c)
{
	if (give_up(c))
		return;
	c->ts->n.timeouts++;
	tcp_count_rto(c);
	tcp_fast_open_timeout(c);
	/* One that has never left counts from here, too. */
	if (!c->retrans_stamp)
		c->retrans_stamp = c->ts->now;
	tcp_send_syn(c);
	c->retries++;
	if (c->state != TCPS_SYN_SENT || c->retries > SYN_LINEAR)
		c->backoff++;
	tcp_arm_rtx(c, TCP_PENDING_RTO, clamp_to_user(c, c->retrans_stamp, tcp_rto(c)));
}

/*
 * A segment without data that the peer must answer: a number that it has acknowledged. 0 or
 * -ENOBUFS.
 */
static int send_probe(struct tcp_conn *c)
{
	struct tcp_transmission xmit = {.seq = c->snd_una - 1, .flags = TCPHDR_ACK};

	return tcp_xmit(c, &xmit);
}

/*
 * Nobody has answered the last two of what asks after a shut window, however long the wait between
 * them has become. By the time at which the timer was due: an answer may be here that a thread has
 * not come to yet, or has taken in between that time and now.
 */
static bool unanswered(const struct tcp_conn *c, uint64_t since)
{
	int64_t limit = 2 * (int64_t)TCP_RTO_MAX_US;

	return (int64_t)(c->rtx.when_us - c->rcv_tstamp) > limit &&
	       c->ts->now - since > (uint64_t)limit;
}

/*
 * The peer has closed its window on data in flight: they are the probe, and its answers keep the
 * connection (RFC 1122, 4.2.2.17; Linux: tcp_rtx_probe0_timed_out()).
 */
static bool window_shut(struct tcp_conn *c)
{
	uint64_t since = c->retrans_stamp ? c->retrans_stamp : c->segq.head->sent_us;

	if (c->snd_wnd || c->orphan)
		return false;
	/* Answers are no progress: the user does not wait longer for those. */
	if ((user_timeout(c) && c->ts->now - since > user_timeout(c)) || unanswered(c, since)) {
		tcp_timed_out(c);
		return true;
	}
	tcp_enter_loss(c);
	(void)tcp_retransmit(c, c->segq.head, 1, false);
	/*
	 * What is too large for the path is not answered; this is, and tells what the window has
	 * become.
	 */
	if (c->retries)
		(void)send_probe(c);
	next_rto(c);
	return true;
}

static void rto_timer(struct tcp_conn *c)
{
	if (!synced(c) && (c->segq.packets_out || tcp_syn_unsent(c))) {
		syn_timeout(c);
		return;
	}
	if (!c->segq.packets_out)
		return;
	c->tlp_out = false;
	if (window_shut(c) || give_up(c))
		return;
	c->ts->n.timeouts++;
	tcp_enter_loss(c);
	tcp_count_rto(c);
	if (tcp_retransmit(c, c->segq.head, 1, false) == -ENOBUFS) {
		/*
		 * Our own queue was full: no reason to back off (Linux:
		 * TCP_RESOURCE_PROBE_INTERVAL).
		 */
		if (!c->retries)
			c->retries = 1;
		if (!c->retrans_stamp)
			c->retrans_stamp = c->ts->now;
		tcp_arm_rtx(c, TCP_PENDING_RTO, least(tcp_rto(c), TCP_PROBE_RETRY_US));
		return;
	}
	next_rto(c);
}

/* --- zero-window probes (RFC 9293, 3.8.6.1) and what waits for more: the persist timer */

static uint64_t probe_when(const struct tcp_conn *c)
{
	uint64_t base =
		c->rtt.rto_us > c->ts->cfg.min_rto_us ? c->rtt.rto_us : c->ts->cfg.min_rto_us;
	uint64_t when = base << (c->backoff < 16 ? c->backoff : 16);

	return clamp_to_user(c, c->probe_stamp, least(when, TCP_RTO_MAX_US));
}

void tcp_check_probe(struct tcp_conn *c)
{
	if (!c->segq.packets_out && tcp_unsent(c) && !wheel_armed(&c->pace)) {
		if (c->pending != TCP_PENDING_PROBE)
			tcp_arm_rtx(c, TCP_PENDING_PROBE, probe_when(c));
	} else if (c->pending == TCP_PENDING_PROBE) {
		disarm_rtx(c);
	}
}

void tcp_watch_refused(struct tcp_conn *c)
{
	if (c->segq.packets_out || c->pending != TCP_PENDING_NONE)
		return;
	if (tcp_syn_unsent(c))
		tcp_arm_rtx(c, TCP_PENDING_RTO, clamp_to_user(c, c->ts->now, tcp_rto(c)));
	else if (tcp_unsent(c))
		tcp_arm_rtx(c, TCP_PENDING_PROBE, probe_when(c));
}

/*
 * Data when the window has room (what Nagle, cork or silly-window avoidance held), else the bare
 * probe. 0 or -ENOBUFS.
 */
static int wake_up(struct tcp_conn *c)
{
	int n;

	c->more = c->more_holds = false;
	n = c->snd_urg && tcp_wnd_end(c) == c->snd_nxt ? 0 : tcp_send_new(c, c->mss);
	if (n > 0) {
		tcp_rearm_rtx(c);
		return 0;
	}
	return n ? n : send_probe(c);
}

static void probe_timer(struct tcp_conn *c)
{
	uint32_t max = c->o.retries2;
	int err;

	if (c->segq.packets_out || !tcp_unsent(c)) {
		c->probes = 0;
		c->probe_stamp = 0;
		return;
	}
	if (!c->probe_stamp)
		c->probe_stamp = c->ts->now;
	if (c->orphan)
		max = probe_when(c) < TCP_RTO_MAX_US ? ORPHAN_RETRIES : 0;
	if ((user_timeout(c) && c->ts->now - c->probe_stamp >= user_timeout(c)) ||
	    c->probes >= max) {
		tcp_timed_out(c);
		return;
	}
	err = wake_up(c);
	if (c->segq.packets_out) {
		c->probes = 0;
		c->backoff = 0;
		c->probe_stamp = 0;
		tcp_mark_dirty(c);
		return;
	}
	if (!err) {
		c->ts->n.window_probes++;
		c->probes++;
		if (c->backoff < c->o.retries2)
			c->backoff++;
	}
	tcp_arm_rtx(c, TCP_PENDING_PROBE, err ? TCP_PROBE_RETRY_US : probe_when(c));
}

void tcp_rtx_timer(struct tcp_conn *c)
{
	uint8_t pending = c->pending;

	c->pending = TCP_PENDING_NONE;
	switch ((enum tcp_pending)pending) {
	case TCP_PENDING_RTO:
		rto_timer(c);
		break;
	case TCP_PENDING_TLP:
		tcp_tlp_timer(c);
		break;
	case TCP_PENDING_REO:
		tcp_rack_timer(c);
		break;
	case TCP_PENDING_PROBE:
		probe_timer(c);
		break;
	case TCP_PENDING_NONE:
		break;
	}
}

/* --- delayed ACK, pacing */

void tcp_delack_timer(struct tcp_conn *c)
{
	if (!c->ack_needed)
		return;
	if (c->pingpong) {
		/* Our data did not come in time to carry it. */
		c->pingpong = false;
		c->ato_us = c->ts->cfg.delack_min_us;
	} else {
		c->ato_us = (uint32_t)least((uint64_t)c->ato_us * 2, c->rtt.rto_us);
	}
	c->ts->n.delayed_acks++;
	tcp_send_ack(c);
}

void tcp_pace_timer(struct tcp_conn *c)
{
	if (tcp_syn_unsent(c)) {
		tcp_send_syn(c);
		return;
	}
	/* Memory was short when nothing was queued: the user may try again. */
	if (c->nospace)
		tcp_tell_space(c);
	c->more_holds = false; /* the call that said so is over */
	tcp_mark_dirty(c);
}

/* --- keepalive (RFC 9293, 3.8.4), or the end of an orphan's FIN_WAIT2 */

static bool keep_state(const struct tcp_conn *c)
{
	return c->state != TCPS_CLOSED && c->state != TCPS_LISTEN && synced(c) && !c->closing;
}

static void keep_in(struct tcp_conn *c, uint64_t us)
{
	wheel_arm(&c->ts->wheel, &c->keep, c->ts->now + us);
}

/* Since the peer was last heard. */
static uint64_t silence(const struct tcp_conn *c)
{
	uint64_t heard = c->rcv_tstamp > c->last_rcv_us ? c->rcv_tstamp : c->last_rcv_us;

	return c->ts->now - heard;
}

void tcp_keep_start(struct tcp_conn *c)
{
	uint64_t idle = (uint64_t)c->o.keepidle_s * 1000000, gone;

	if (!keep_state(c) || (c->orphan && c->state == TCPS_FIN_WAIT2))
		return;
	if (!c->o.keepalive) {
		if (wheel_armed(&c->keep))
			wheel_cancel(&c->ts->wheel, &c->keep);
		return;
	}
	gone = silence(c);
	keep_in(c, gone < idle ? idle - gone : 0);
}

/* True: nothing came back for too long (TCP_USER_TIMEOUT takes the place of the count). */
static bool keep_failed(const struct tcp_conn *c)
{
	if (user_timeout(c))
		return c->probes && silence(c) >= user_timeout(c);
	return c->probes >= c->o.keepcnt;
}

void tcp_keep_timer(struct tcp_conn *c)
{
	uint64_t idle = (uint64_t)c->o.keepidle_s * 1000000;

	if (c->state == TCPS_FIN_WAIT2 && c->orphan) {
		tcp_conn_time_wait(c, true);
		return;
	}
	if (!c->o.keepalive || !keep_state(c))
		return;
	/* Data under way have timers of their own. */
	if (c->segq.packets_out || tcp_unsent(c)) {
		keep_in(c, idle);
		return;
	}
	if (silence(c) < idle) {
		keep_in(c, idle - silence(c));
		return;
	}
	if (keep_failed(c)) {
		tcp_send_rst(c);
		tcp_timed_out(c);
		return;
	}
	if (send_probe(c)) {
		keep_in(c, TCP_PROBE_RETRY_US);
		return;
	}
	c->ts->n.keepalives++;
	c->probes++;
	keep_in(c, (uint64_t)c->o.keepintvl_s * 1000000);
}
