/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection leaves for another stack, which goes on where this one stopped. */
#include <errno.h>
#include <string.h>

#include "tcp/internal.h"

static bool can_leave(const struct tcp_conn *c)
{
	switch (c->state) {
	case TCPS_ESTABLISHED:
	case TCPS_CLOSE_WAIT:
	case TCPS_FIN_WAIT1:
	case TCPS_FIN_WAIT2:
	case TCPS_CLOSING:
	case TCPS_LAST_ACK:
		return !c->closing;
	case TCPS_SYN_RECV:
		return c->fo_child && !tcp_syn_unsent(c) && !c->closing;
	default:
		return false;
	}
}

static void image_of(const struct tcp_conn *c, struct tcp_image *im)
{
	memset(im, 0, sizeof(*im));
	im->tuple = c->node.tuple;
	im->state = c->state;
	im->fin_rcvd = c->fin_rcvd;
	im->fin_queued = c->fin_queued;
	im->shut_rd = c->shut_rd;
	im->ts_ok = c->ts_ok;
	im->sack_ok = c->sack_ok;
	im->wscale_ok = c->wscale_ok;
	im->snd_wscale = c->snd_wscale;
	im->rcv_wscale = c->rcv_wscale;
	im->peer_mss = (uint16_t)(c->peer_mss > UINT16_MAX ? UINT16_MAX : c->peer_mss);
	im->tsval = tcp_ts_now(c);
	im->ts_recent = c->ts_recent;
	im->write_seq = c->write_seq;
	/*
	 * A FIN that was sent has the number write_seq, one that was acknowledged is before
	 * snd_una.
	 */
	im->snd_nxt = c->fin_sent ? c->write_seq : c->snd_nxt;
	im->snd_una = seq_after(c->snd_una, c->write_seq) ? c->write_seq : c->snd_una;
	/* Of Fast Open: the SYN|ACK is on its way, and taken for one that arrives. */
	if (c->fo_child) {
		im->state = TCPS_ESTABLISHED;
		im->snd_una = c->iss + 1;
	}
	im->rcv_nxt = c->rcv_nxt - c->fin_rcvd;
	im->copied_seq = seq_after(c->copied_seq, im->rcv_nxt) ? im->rcv_nxt : c->copied_seq;
	im->snd_wl1 = c->snd_wl1;
	im->snd_wnd = c->snd_wnd;
	im->max_wnd = c->max_wnd > c->snd_wnd ? c->max_wnd : c->snd_wnd;
	im->rcv_wup = c->rcv_wup;
	im->rcv_wnd = c->rcv_wnd;
	if (seq_after(im->rcv_wup, im->rcv_nxt)) {
		im->rcv_wnd += im->rcv_wup - im->rcv_nxt;
		im->rcv_wup = im->rcv_nxt;
	}
}

int tcp_export(const struct tcp_conn *c, struct tcp_image *im)
{
	if (!can_leave(c))
		return -EOPNOTSUPP;
	image_of(c, im);
	return 0;
}

int tcp_export_ended(const struct tcp_conn *c, struct tcp_image *im)
{
	bool peer_has_answered = c->irs || c->rcv_nxt;

	if (c->state != TCPS_CLOSED || c->orphan || !peer_has_answered)
		return -EOPNOTSUPP;
	image_of(c, im);
	im->so_error = c->so_error;
	/* The send queue went with the end. */
	im->snd_una = im->snd_nxt = im->write_seq;
	return 0;
}

uint32_t tcp_export_received(const struct tcp_conn *c, uint32_t seq, void *to, uint32_t n)
{
	uint32_t done = 0;

	for (const struct buf *b = c->rcvq.head; b && done < n; b = b->next) {
		uint32_t at = b->seq;

		for (const struct buf *f = b; f && done < n; at += f->len, f = f->frag) {
			uint32_t skip = seq + done - at, len;

			if (seq_before(seq + done, at))
				return done; /* a hole: cannot be */
			if (skip >= f->len)
				continue;
			len = f->len - skip < n - done ? f->len - skip : n - done;
			memcpy((uint8_t *)to + done, f->data + skip, len);
			done += len;
		}
	}
	return done;
}

uint32_t tcp_export_unacked(struct tcp_conn *c, uint32_t seq, void *to, uint32_t n)
{
	uint32_t done = 0;

	while (done < n) {
		struct iovec iov[8];
		uint32_t len = n - done;
		int cnt;

		if (seq_before(seq + done, c->sndq.seq) ||
		    seq_after(seq + n, c->sndq.seq + c->sndq.len))
			return done;
		cnt = tcp_sndq_iov(&c->sndq, seq + done, &len, iov, 8);
		if (!cnt || !len)
			return done;
		for (int i = 0; i < cnt; i++) {
			memcpy((uint8_t *)to + done, iov[i].iov_base, iov[i].iov_len);
			done += (uint32_t)iov[i].iov_len;
		}
	}
	return done;
}

bool tcp_take_back_syn(struct tcp_conn *c, uint64_t now)
{
	struct tcp_hdr_spec h = {
		.sport = c->node.tuple.lport,
		.dport = c->node.tuple.rport,
		.seq = c->iss + 1,
		.flags = TCPHDR_RST,
	};

	/* What the program has given to a SYN may be the peer's already. */
	if (c->state != TCPS_SYN_SENT || c->closing || c->sndq.len)
		return false;
	/* The peer knows of nothing. */
	if (tcp_syn_to_come(c))
		return true;
	c->ts->now = now;
	/* Lost: the peer's answer is reset by whoever gets it, and the next SYN comes again. */
	(void)tcp_xmit_bare(c->ts, &c->node.tuple, c->user, &h, 0,
			    tcp_ttl(&c->o, c->node.tuple.family));
	return true;
}

void tcp_forget(struct tcp_conn *c, uint64_t now)
{
	struct tcp_stack *ts = c->ts;
	struct tcp_tw *tw;

	ts->now = now;
	tw = tcp_tw_mute(c, now + TCP_FORGET_US);
	tcp_conn_release(c);
	tcp_conn_replace(c, tw ? &tw->node : NULL);
}

static struct tcp_tw *time_wait_image(const struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	struct tcp_node *n = tcp_table_find(&ts->table, tuple);
	struct tcp_tw *tw = n && n->kind == TCP_KIND_TW ? (struct tcp_tw *)n : NULL;

	return tw && !tw->mute ? tw : NULL;
}

int tcp_export_time_wait(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now,
			 struct tcp_image *im)
{
	struct tcp_tw *tw = time_wait_image(ts, tuple);

	ts->now = now;
	if (!tw ||
	    (!tw->fin_wait2 && tw->timer.when_us + TCP_TW_FRESH_US <= now + ts->cfg.timewait_us))
		return -ENOENT;
	memset(im, 0, sizeof(*im));
	im->tuple = tw->node.tuple;
	im->state = tw->fin_wait2 ? TCPS_FIN_WAIT2 : TCPS_TIME_WAIT;
	im->fin_rcvd = !tw->fin_wait2;
	im->fin_queued = true;
	im->ts_ok = tw->ts_ok;
	im->tsval = tcp_ts_clock(ts) + tw->ts_off;
	im->wscale_ok = true;
	im->rcv_wscale = tw->rcv_wscale;
	im->peer_mss = TCP_MSS_DEFAULT;
	im->snd_una = im->snd_nxt = im->write_seq = tw->snd_nxt - 1;
	im->rcv_nxt = im->copied_seq = im->rcv_wup = im->snd_wl1 = tw->rcv_nxt - im->fin_rcvd;
	im->snd_wnd = im->max_wnd = TCP_MSS_DEFAULT;
	im->rcv_wnd = tw->rcv_wnd;
	return 0;
}

void tcp_forget_time_wait(struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now)
{
	struct tcp_tw *tw = time_wait_image(ts, tuple);

	ts->now = now;
	if (!tw)
		return;
	tw->mute = true;
	wheel_arm(&ts->wheel, &tw->timer, now + TCP_FORGET_US);
}
