/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The user's side of sending: room in the send buffer, copying into it. */
#include <sys/socket.h>

#include "tcp/recovery/loss.h"

/* Bytes that both windows let go at the flush. */
static uint64_t may_leave(const struct tcp_conn *c)
{
	uint32_t flight = tcp_in_flight(c), end = tcp_wnd_end(c);
	uint64_t cwnd = c->cc.cwnd > flight ? (uint64_t)(c->cc.cwnd - flight) * c->mss : 0;
	uint32_t wnd = seq_after(end, c->snd_nxt) ? end - c->snd_nxt : 0;

	return cwnd < wnd ? cwnd : wnd;
}

/* Linux: tcp_notsent_lowat(). UINT32_MAX: nothing bounds what is not sent. */
static uint32_t lowat_of(const struct tcp_conn *c)
{
	uint32_t own = c->o.notsent_lowat;

	return own == UINT32_MAX ? c->ts->cfg.notsent_lowat : own;
}

/* Bytes that the send buffer takes now. TCP_NOTSENT_LOWAT bounds what one call leaves unsent. */
static uint32_t room(const struct tcp_conn *c)
{
	uint32_t max = c->o.sndbuf > c->sndq.charge ? c->o.sndbuf - c->sndq.charge : 0;
	uint32_t unsent = tcp_outq_unsent(c), lowat = lowat_of(c);
	uint64_t fits;

	if (lowat == UINT32_MAX)
		return max;
	/* What waits for the flush only is as good as sent. */
	if (unsent >= lowat && !c->dirty)
		return 0;
	fits = may_leave(c) + lowat;
	if (unsent >= fits)
		return 0;
	fits -= unsent;
	return max < fits ? max : (uint32_t)fits;
}

uint32_t tcp_send_room(const struct tcp_conn *c)
{
	return c->state == TCPS_ESTABLISHED || c->state == TCPS_CLOSE_WAIT ? room(c) : 0;
}

/* The same of a SYN that waits for data; one that has no room for any waits no more. */
static uint32_t syn_room(struct tcp_conn *c)
{
	uint32_t max = tcp_fast_open_room(c);

	if (!max)
		tcp_fast_open_go(c);
	return max;
}

/* As Linux's sk_stream_is_writeable(): half of what is used is free. */
bool tcp_writable(const struct tcp_conn *c)
{
	uint32_t used = c->sndq.charge, lowat = lowat_of(c);

	if (lowat != UINT32_MAX && (uint64_t)tcp_outq_unsent(c) * 2 >= lowat)
		return false;
	return c->o.sndbuf > used && c->o.sndbuf - used >= used / 2;
}

void tcp_tell_space(struct tcp_conn *c)
{
	if (!tcp_writable(c))
		return;
	c->nospace = false;
	if (c->spends == TCP_SPENDS_SNDBUF)
		tcp_spends_no_more(c, TCP_SPENDS_SNDBUF);
	tcp_event(c, TCP_EV_OUT);
}

uint32_t tcp_outq(const struct tcp_conn *c)
{
	return c->sndq.len;
}

uint32_t tcp_fin_unacked(const struct tcp_conn *c)
{
	return c->fin_queued && !c->fin_acked && c->state != TCPS_CLOSED;
}

uint32_t tcp_fin_unsent(const struct tcp_conn *c)
{
	return tcp_fin_unacked(c) && !c->fin_sent;
}

uint32_t tcp_outq_unsent(const struct tcp_conn *c)
{
	if (c->fin_sent || c->state == TCPS_CLOSED)
		return 0;
	if (tcp_syn_to_come(c))
		return c->sndq.len;
	return c->write_seq - c->snd_nxt;
}

static size_t iov_len(const struct iovec *iov, int iovcnt)
{
	size_t n = 0;

	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len;
	return n;
}

/* Whether the user may send: 0 or the error to return (a pending one is taken). */
static int may_send(struct tcp_conn *c)
{
	if (c->so_error) {
		int err = c->so_error;

		c->so_error = 0;
		return -err;
	}
	if (c->shut_wr || c->state == TCPS_CLOSED)
		return -EPIPE;
	if (c->fo_child || c->fo_waits)
		return 0;
	if (c->state == TCPS_SYN_SENT || c->state == TCPS_SYN_RECV)
		return -EAGAIN;
	return c->state == TCPS_ESTABLISHED || c->state == TCPS_CLOSE_WAIT ? 0 : -EPIPE;
}

ssize_t tcp_send_dummy(const struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags)
{
	size_t len = iov_len(iov, iovcnt);
	uint8_t hdr[TCP_HDR_MAX];
	struct tcp_hdr_spec h = {
		.sport = c->node.tuple.lport,
		.dport = c->node.tuple.rport,
		.seq = c->snd_nxt,
		.ack = c->rcv_nxt,
		.flags = TCPHDR_ACK | TCPHDR_PSH,
		.ts = c->ts_ok,
		.tsval = tcp_ts_now(c),
		.tsecr = c->ts_recent,
	};
	struct tcp_tx tx = {
		.user = c->user,
		.tuple = &c->node.tuple,
		.hdr = hdr,
		.iov = iov,
		.iovcnt = iovcnt,
		.mss = (uint16_t)c->mss,
		.tos = tcp_tos(&c->o, c->node.tuple.family),
		.ttl = tcp_ttl(&c->o, c->node.tuple.family),
		.family = c->node.tuple.family,
	};

	if ((c->state != TCPS_ESTABLISHED && c->state != TCPS_CLOSE_WAIT) || c->shut_wr ||
	    (flags & MSG_MORE) || !len || len > c->mss || tcp_outq_unsent(c) ||
	    tcp_in_flight(c) >= c->cc.cwnd || seq_after(c->snd_nxt + (uint32_t)len, tcp_wnd_end(c)))
		return -EAGAIN;
	tx.len = (uint32_t)len;
	tx.hdr_len = tcp_hdr_write(hdr, &h);
	if (c->ts->env.output_dummy && c->ts->env.output_dummy(c->ts->env.ctx, &tx))
		return -EAGAIN;
	return (ssize_t)len;
}

/* How many of `want` bytes there is room for; negative errno: none is taken whatever there is. */
static ssize_t send_begin(struct tcp_conn *c, size_t want, uint64_t now)
{
	uint32_t max;
	int err;

	c->ts->now = now;
	err = may_send(c);
	if (err) {
		c->nospace = err == -EAGAIN;
		return err;
	}
	if (!want)
		return 0;
	tcp_rate_check_limited(c);
	max = c->fo_waits ? syn_room(c) : room(c);
	return want < max ? (ssize_t)want : (ssize_t)max;
}

/* n of `want` bytes are in the send buffer, which had room for so many. As tcp_send(). */
static ssize_t send_end(struct tcp_conn *c, uint32_t n, ssize_t room, size_t want, int flags)
{
	if (!n) {
		c->nospace = true;
		/*
		 * Memory is short and nothing in flight will free some: the user is told by timer.
		 */
		if (room) {
			c->ts->n.no_memory++;
			if (!c->sndq.len)
				tcp_blocked(c);
		}
		return -EAGAIN;
	}
	c->write_seq += n;
	c->fo_waits = false;
	if (!c->spends)
		tcp_spends(c, TCP_SPENDS_BUSY);
	c->push_held = false;
	/* More is to come, also when not all found room: the rest will follow. */
	c->more = c->more_holds = flags & MSG_MORE;
	if ((flags & MSG_EOR) && n == want)
		tcp_sndq_end_record(&c->sndq);
	if ((flags & MSG_OOB) && n == want) {
		c->snd_urg = true;
		c->snd_up = c->write_seq;
	}
	/* Whoever waits for room from here on, having been refused or not, is told. */
	c->nospace = n < want || !tcp_writable(c);
	tcp_mark_dirty(c);
	return n;
}

ssize_t tcp_send(struct tcp_conn *c, const struct iovec *iov, int iovcnt, int flags, uint64_t now)
{
	size_t want = iov_len(iov, iovcnt);
	uint32_t n = 0;
	ssize_t max;

	c->ts->now = now;
	/* What is held back is what follows, not what waits for the flush. */
	if ((flags & MSG_MORE) && c->dirty && !c->more_holds)
		tcp_output(c);
	max = send_begin(c, want, now);
	if (max < 0 || !want)
		return max;
	if (max)
		n = tcp_sndq_put(&c->sndq, &c->ts->env, iov, iovcnt, 0, (uint32_t)max, c->o.sndbuf);
	return send_end(c, n, max, want, flags);
}

void tcp_pieces_get(struct tcp_conn *c, uint32_t len, struct tcp_pieces *p)
{
	tcp_sndq_pieces(&c->ts->env, len, c->o.sndbuf, p);
}

ssize_t tcp_send_pieces(struct tcp_conn *c, struct tcp_pieces *p, uint32_t len, uint64_t now)
{
	ssize_t max = send_begin(c, len, now);

	if (max < 0 || !len)
		return max;
	return send_end(c, max ? tcp_sndq_take(&c->sndq, p, (uint32_t)max) : 0, max, len, 0);
}
