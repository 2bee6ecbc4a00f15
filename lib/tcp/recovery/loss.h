/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the files of the sending side (tcp/output.c, retransmit.c, tcp/ack.c, sack.c, rack.c,
 * states.c, tcp/timers.c, tcp/mtu/path_mtu.c) share: transmissions, the scoreboard's arithmetic,
 * and what an acknowledgement was found to say.
 */
#ifndef TCP_RECOVERY_LOSS_H
#define TCP_RECOVERY_LOSS_H

#include <errno.h>

#include "tcp/internal.h"

#define TCP_RETRY_US 1000u /* output() was full, or memory short, and nobody calls */
#define TCP_PROBE_RETRY_US 500000u /* Linux: TCP_RESOURCE_PROBE_INTERVAL */
#define TCP_REORDERING 3u
#define TCP_REORDERING_MAX 300u

/* --- what an acknowledgement says */

#define ACK_DATA 0x0001u /* its segment carries data */
#define ACK_WINDOW 0x0002u /* it changed the window */
#define ACK_ADVANCED 0x0004u /* snd_una moved */
#define ACK_ACKED 0x0008u /* a whole segment is acknowledged */
#define ACK_RETRANS_ACKED 0x0010u /* among them retransmitted ones */
#define ACK_SACKED 0x0020u /* something was newly SACKED */
/* never retransmitted and sent before high_seq: (S)ACKED now (F-RTO) */
#define ACK_ORIG_ACKED 0x0040u
#define ACK_DSACK 0x0080u
#define ACK_DSACK_TLP 0x0100u /* the D-SACK names the probe */
#define ACK_ECE 0x0200u
#define ACK_LOST_RETRANS 0x0400u /* a retransmission was found lost */
#define ACK_REARM 0x0800u /* the retransmission timer starts anew */
#define ACK_NOT_DUP (ACK_DATA | ACK_WINDOW | ACK_ACKED)

/* The path's rate as one acknowledgement shows it (rate.c). */
struct tcp_rate {
	uint32_t delivered, interval_us; /* segments, and in what time; interval_us 0: no sample */
	uint32_t prior_delivered; /* the connection's, when the newest segment acknowledged left */
	uint32_t prior_us, end_seq;
	uint64_t sent_us;
	bool any, app_limited;
};

/* One acknowledgement while tcp_ack_input() works on it. */
struct tcp_acking {
	const struct tcp_rx *rx;
	uint32_t flags;
	uint32_t prior_una;
	uint32_t prior_delivered, prior_lost, prior_fack, prior_flight;
	uint32_t reord; /* lowest sequence that arrived late; valid while has_reord */
	uint32_t acked; /* wire segments that it acknowledged cumulatively */
	bool has_reord;
	bool dup; /* a duplicate (RFC 5681, 2) */
	/*
	 * When what it newly acknowledges, and was sent once, left: oldest cumulative, newest,
	 * oldest SACKED. 0: none.
	 */
	uint64_t first_sent, last_sent, sack_sent;
	struct tcp_rate rate;
};

/* --- counts (RFC 6675's pipe as Linux keeps it) */

static inline uint32_t tcp_left_out(const struct tcp_conn *c)
{
	return c->segq.sacked_out + c->segq.lost_out;
}

static inline uint32_t tcp_in_flight(const struct tcp_conn *c)
{
	return c->segq.packets_out - tcp_left_out(c) + c->segq.retrans_out;
}

static inline const struct tcp_cc_ops *tcp_cc_of(const struct tcp_conn *c)
{
	return tcp_cc_ops[c->o.cc];
}

/* The algorithm has just been begun anew: the route may say how. */
static inline void tcp_first_cwnd(struct tcp_conn *c)
{
	if (c->ext && c->ext->initcwnd && c->o.cc != TCP_CC_NONE)
		c->cc.cwnd = c->ext->initcwnd;
}

static inline bool tcp_in_reduction(const struct tcp_conn *c)
{
	return c->ca_state == TCPCA_CWR || c->ca_state == TCPCA_RECOVERY;
}

/* The right edge of the peer's window. */
static inline uint32_t tcp_wnd_end(const struct tcp_conn *c)
{
	return c->snd_una + c->snd_wnd;
}

/* Behind the last number that is to be sent, a queued FIN's included. */
static inline uint32_t tcp_send_end(const struct tcp_conn *c)
{
	return c->write_seq + c->fin_queued;
}

static inline bool tcp_unsent(const struct tcp_conn *c)
{
	return c->snd_nxt != tcp_send_end(c);
}

/*
 * Segs that a connection sends at most: a peer with a tiny MSS makes us keep no more records than
 * the send buffer would pay for (Linux counts them into it). SACKs may cut them into twice as many.
 */
static inline uint32_t tcp_max_segs(const struct tcp_conn *c)
{
	return c->o.sndbuf / 1024 + 256;
}

static inline uint32_t tcp_seg_payload(const struct tcp_seg *s)
{
	return s->end_seq - s->seq - !!(s->flags & SEG_SYN) - !!(s->flags & SEG_FIN);
}

static inline uint32_t tcp_srtt(const struct tcp_conn *c)
{
	return c->rtt.srtt_us >> 3;
}

/*
 * The echoed time stamp is older than us (of the stack's clock): what it answers left before then
 * (RFC 3522).
 */
static inline bool tcp_echo_before(const struct tcp_conn *c, const struct tcp_rx *rx, uint64_t us)
{
	return c->ts_ok && rx && rx->has_ts && rx->tsecr &&
	       seq_before(rx->tsecr, (uint32_t)(us / 1000) + c->ts_off);
}

/* --- tcp/output.c */

/* One transmission. */
struct tcp_transmission {
	uint32_t seq, len;
	uint8_t flags; /* TH_* */
	bool fresh; /* new data: may say ECT and CWR */
	uint16_t mss; /* 0: the connection's; else one segment of this size */
};

/*
 * Sends [seq, seq+len) with the header that the connection has now; what was due to be acknowledged
 * is. *len may come back smaller (memory is in too many pieces; never 0). -ENOBUFS: not sent,
 * nothing changed. Else it counts as sent.
 */
int tcp_xmit(struct tcp_conn *c, struct tcp_transmission *xmit);
/*
 * What was refused is the first of the flight, for which no timer runs: it is given up in time, too
 * (TCP_USER_TIMEOUT). timers.c
 */
void tcp_watch_refused(struct tcp_conn *c);
/* output() or memory refused: again in a moment, or when tcp_tx_ready() comes to it. */
void tcp_blocked(struct tcp_conn *c);
/*
 * Sends one transmission of new data (at most limit bytes of payload, or a FIN) whatever cwnd and
 * Nagle say. Returns the wire segments it was, 0: nothing to send or no window, -ENOBUFS.
 */
int tcp_send_new(struct tcp_conn *c, uint32_t limit);

/* One segment of len bytes of new data, whatever the mss. False: it did not leave. */
bool tcp_send_whole(struct tcp_conn *c, uint32_t len);

/* --- tcp/rate.c */

/* s leaves, for the first time or again; before it is counted in flight. */
void tcp_rate_sent(struct tcp_conn *c, struct tcp_seg *s);
/* s, or its front, is newly acknowledged or SACKed. */
void tcp_rate_delivered(struct tcp_conn *c, struct tcp_rate *r, const struct tcp_seg *s);
/* All that an acknowledgement says is taken in, the round-trip time too: the sample is made. */
void tcp_rate_finish(struct tcp_conn *c, struct tcp_rate *r);
/* The program gives more to send: was it all that was missing until now? */
void tcp_rate_check_limited(struct tcp_conn *c);
/* As if the program had no more to send than what is in flight. */
void tcp_rate_set_limited(struct tcp_conn *c);
/* Bytes a second, 0: not known yet (tcpi_delivery_rate). */
uint64_t tcp_rate(const struct tcp_conn *c);

/* --- tcp/send.c */

/* The user was refused (nospace): told when there is room again. */
void tcp_tell_space(struct tcp_conn *c);

/* --- retransmit.c */

/* Recounts s after its bounds, or the size of its wire segments, changed. */
void tcp_seg_resize(struct tcp_conn *c, struct tcp_seg *s, uint32_t seq, uint32_t mss);
/*
 * Sends s again, or as much of its front as segs wire segments and the peer's window allow (the
 * rest is split off). 0, -ENOBUFS, -EAGAIN (outside of the window).
 */
int tcp_retransmit(struct tcp_conn *c, struct tcp_seg *s, uint32_t segs, bool probe);
/* Sends what is lost and not sent again yet, as far as cwnd and pacing let it. 0 or -ENOBUFS. */
int tcp_retransmit_lost(struct tcp_conn *c);
/* How many bytes pacing allows in one go now; 0: none, and the timer is armed. */
uint32_t tcp_pace_allow(struct tcp_conn *c);
void tcp_pace_sent(struct tcp_conn *c, uint32_t len);

/* --- sack.c */

/* Marks what a's blocks say; finds D-SACK and reordering. */
void tcp_sack_input(struct tcp_conn *c, struct tcp_acking *a);
/* Data at low arrived after data up to high had: reordering of that size. */
void tcp_saw_reordering(struct tcp_conn *c, uint32_t low);

/* --- rack.c */

/* s was delivered now (RFC 8985, 6.2 step 2). */
void tcp_rack_advance(struct tcp_conn *c, const struct tcp_seg *s, const struct tcp_rx *rx);
void tcp_rack_update_window(struct tcp_conn *c, const struct tcp_acking *a);
/* Marks what is late; arms the reordering timer for what may be (true). */
bool tcp_rack_detect(struct tcp_conn *c);
/* s, sent at s->sent_us, is not late yet; us until it is, 0 or less: it is. */
int64_t tcp_rack_left(const struct tcp_conn *c, const struct tcp_seg *s, uint32_t window);
void tcp_rack_timer(struct tcp_conn *c);
void tcp_tlp_timer(struct tcp_conn *c);
void tcp_tlp_ack(struct tcp_conn *c, const struct tcp_acking *a);
/* Arms the tail loss probe instead of the timeout when the flight is one that it is for. */
bool tcp_tlp_arm(struct tcp_conn *c);

/* --- states.c */

/* s is lost: it, or its retransmission. */
void tcp_mark_lost(struct tcp_conn *c, struct tcp_seg *s);
void tcp_recovery_input(struct tcp_conn *c, struct tcp_acking *a);
/*
 * Without SACK: `acked` wire segments were acknowledged, some of them counted as duplicates before.
 */
void tcp_reno_acked(struct tcp_conn *c, uint32_t acked);
/* One tail loss probe repaired a loss: the window is reduced once (RFC 8985, 7.4.2). */
void tcp_reduce_once(struct tcp_conn *c);
/* Segments that are larger than the path now takes are lost (Linux: tcp_simple_retransmit). */
void tcp_mark_oversized(struct tcp_conn *c);
/* What is lost goes again without more ado: it was not congestion. */
void tcp_lost_unpunished(struct tcp_conn *c);

/* --- reduce.c */

uint32_t tcp_current_ssthresh(const struct tcp_conn *c);
void tcp_enter_loss(struct tcp_conn *c);
void tcp_enter_recovery(struct tcp_conn *c, bool ece);
void tcp_enter_cwr(struct tcp_conn *c);
/* A reduction begins from the window as it is; ends, at ssthresh unless it was undone. */
void tcp_init_reduction(struct tcp_conn *c);
void tcp_end_reduction(struct tcp_conn *c);
/* RFC 6937 after `delivered` more arrived, `lost` more were lost. */
void tcp_prr(struct tcp_conn *c, uint32_t delivered, uint32_t lost, bool advanced);

/* --- tcp/timers.c */

/* The connection ends by timeout: the error of ICMP if there was one. */
void tcp_timed_out(struct tcp_conn *c);
void tcp_arm_rtx(struct tcp_conn *c, enum tcp_pending what, uint64_t in_us);

/* --- tcp/mtu/path_mtu.c */

/*
 * The same large segment was lost again and again: a smaller size is tried (RFC 8899's black hole,
 * Linux: tcp_mtu_probing).
 */
void tcp_mtu_black_hole(struct tcp_conn *c);
/*
 * mtu_stamp is set and data get through: the path's own size is tried again after some minutes (RFC
 * 1191, 6.3).
 */
void tcp_mtu_recheck(struct tcp_conn *c);

/* --- tcp/mtu/probe.c */

/* The handshake is complete: with tcp_mtu_probing 2 the search begins. Before tcp_sync_mss(). */
void tcp_mtu_probe_start(struct tcp_conn *c);
/* Timeouts in a row: a black hole, it may be. */
void tcp_mtu_probe_smaller(struct tcp_conn *c);
enum tcp_mtu_probing {
	TCP_MTU_NO_PROBE, /* new data leave as ever */
	TCP_MTU_PROBE_SENT,
	TCP_MTU_PROBE_WAITS /* for acknowledgements: nothing else may leave before */
};
/* Before new data. */
enum tcp_mtu_probing tcp_mtu_probe(struct tcp_conn *c);
/* It is acknowledged (its size is not 0, its end not after snd_una). */
void tcp_mtu_probe_arrived(struct tcp_conn *c);
/* A loss was found: was it only the probe? Then there is nothing to recover from. */
bool tcp_mtu_probe_lost(struct tcp_conn *c);

#endif
