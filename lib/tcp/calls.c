/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The user's calls that open and end a connection: connect, shutdown, close, abort (RFC
 * 9293, 3.10.1, 3.10.4, 3.10.5).
 */
#include "tcp/internal.h"

#include <errno.h>
#include <sys/socket.h>

#define TW_ISN_STEP 65537u /* RFC 6191's higher ISN, as Linux has it */

/*
 * A TIME_WAIT whose time stamps tell its segments from a new connection's is given up for that (RFC
 * 6191).
 */
static bool may_follow(const struct tcp_stack *ts, const struct tcp_tw *tw, uint64_t now)
{
	return ts->cfg.tw_reuse_us && !tw->fin_wait2 && !tw->mute && tw->ts_ok &&
	       now > tw->ts_recent_stamp + ts->cfg.tw_reuse_us;
}

bool tcp_tuple_used(const struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	return tcp_table_find(&ts->table, tuple) != NULL;
}

bool tcp_tuple_taken(const struct tcp_stack *ts, const struct tcp_tuple *tuple, uint64_t now)
{
	const struct tcp_node *n = tcp_table_find(&ts->table, tuple);

	return n && (n->kind != TCP_KIND_TW || !may_follow(ts, (const struct tcp_tw *)n, now));
}

int tcp_connect(struct tcp_stack *ts, const struct tcp_tuple *tuple, const struct tcp_opts *opts,
		void *user, uint64_t now, struct tcp_conn **out)
{
	struct tcp_node *n = tcp_table_find(&ts->table, tuple);
	struct tcp_tw *tw = n && n->kind == TCP_KIND_TW ? (struct tcp_tw *)n : NULL;
	struct tcp_conn *c;
	uint32_t iss;

	ts->now = now;
	if (n && (!tw || !may_follow(ts, tw, now)))
		return -EADDRNOTAVAIL;
	c = tcp_conn_new(ts, tuple, opts);
	if (!c)
		return -ENOMEM;
	iss = tcp_isn(ts, tuple);
	if (tw) {
		iss = tw->snd_nxt + TW_ISN_STEP;
		c->ts_recent = tw->ts_recent;
		ts->n.tw_reused++;
		tcp_tw_free(ts, tw);
	}
	c->user = user;
	c->rcv_wscale = tcp_wscale_for(&c->o);
	tcp_snd_init(c, iss, false);
	tcp_set_state(c, TCPS_SYN_SENT);
	tcp_table_add(&ts->table, &ts->env, &c->node);
	tcp_conn_link(c);
	tcp_mark_dirty(c);
	ts->n.active_opens++;
	*out = c;
	return 0;
}

void tcp_hold_syn(struct tcp_conn *c)
{
	c->syn_held = true;
}

bool tcp_syn_is_held(const struct tcp_conn *c)
{
	return c->syn_held;
}

void tcp_let_syn_go(struct tcp_conn *c)
{
	if (!c->syn_held)
		return;
	c->syn_held = false;
	tcp_path_anew(c);
	tcp_mark_dirty(c);
}

/* A FIN behind all data, where one is still to be sent. */
static void queue_fin(struct tcp_conn *c)
{
	switch (c->state) {
	case TCPS_ESTABLISHED:
		tcp_set_state(c, TCPS_FIN_WAIT1);
		break;
	case TCPS_CLOSE_WAIT:
		tcp_set_state(c, TCPS_LAST_ACK);
		break;
	case TCPS_SYN_RECV: /* FIN_WAIT1 follows when our SYN is acknowledged */
		break;
	default:
		return;
	}
	c->fin_queued = true;
	tcp_spends(c, TCP_SPENDS_BUSY);
	tcp_mark_dirty(c);
}

int tcp_shutdown(struct tcp_conn *c, int how, uint64_t now)
{
	uint32_t events = 0;

	c->ts->now = now;
	if (c->state == TCPS_CLOSED)
		return -ENOTCONN;
	if (c->state == TCPS_SYN_SENT) {
		tcp_conn_done(c, ECONNRESET);
		return 0;
	}
	if (how == SHUT_RD || how == SHUT_RDWR) {
		c->shut_rd = true;
		events |= TCP_EV_IN | TCP_EV_RDHUP;
	}
	if (how == SHUT_WR || how == SHUT_RDWR) {
		c->shut_wr = true;
		events |= TCP_EV_OUT;
		queue_fin(c);
	}
	if (c->shut_wr && (c->shut_rd || c->fin_rcvd))
		events |= TCP_EV_HUP;
	tcp_event(c, events);
	return 0;
}

/* States in which the peer must be told of an abort (Linux: tcp_need_reset()). */
static bool peer_knows(const struct tcp_conn *c)
{
	switch (c->state) {
	case TCPS_ESTABLISHED:
	case TCPS_CLOSE_WAIT:
	case TCPS_FIN_WAIT1:
	case TCPS_FIN_WAIT2:
	case TCPS_SYN_RECV:
		return true;
	case TCPS_CLOSING:
	case TCPS_LAST_ACK:
		return !c->fin_sent;
	default:
		return false;
	}
}

/* A closed connection ends here and now. What the user has written before leaves before. */
static void kill_orphan(struct tcp_conn *c, uint64_t *counter)
{
	++*counter;
	if (c->dirty)
		tcp_output(c);
	if (c->closing)
		return;
	tcp_send_rst(c);
	tcp_conn_done(c, 0);
}

/* Something was received that the user has not seen. An urgent byte taken out of line has been. */
static bool unread(const struct tcp_conn *c)
{
	uint32_t n = c->rcv_nxt - c->fin_rcvd - c->copied_seq;

	return n > (c->urg_read && !c->o.oobinline && tcp_at_mark(c));
}

void tcp_close(struct tcp_conn *c, uint64_t now)
{
	struct tcp_stack *ts = c->ts;

	if (c->orphan)
		return;
	ts->now = now;
	tcp_conn_release(c);
	if (c->closing)
		return;
	c->shut_rd = c->shut_wr = true;
	if (c->state == TCPS_SYN_SENT) {
		ts->n.attempt_fails++;
		tcp_conn_done(c, 0);
	} else if (unread(c)) { /* RFC 2525, 2.17 */
		kill_orphan(c, &ts->n.abort_on_close);
	} else if (ts->num_orphans > ts->cfg.max_orphans) {
		kill_orphan(c, &ts->n.abort_on_memory);
	} else if (c->state == TCPS_FIN_WAIT2 && !c->o.linger2_ms) {
		kill_orphan(c, &ts->n.abort_on_linger);
	} else if (c->state == TCPS_FIN_WAIT2) {
		tcp_conn_time_wait(c, true);
	} else {
		queue_fin(c);
	}
}

void tcp_abort(struct tcp_conn *c, uint64_t now)
{
	if (c->orphan)
		return;
	c->ts->now = now;
	tcp_conn_release(c);
	if (c->closing)
		return;
	if (peer_knows(c))
		kill_orphan(c, &c->ts->n.abort_on_linger);
	else
		tcp_conn_done(c, 0);
}
