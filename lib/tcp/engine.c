/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The stack: where segments, time and the flush come in and are handed to the object they belong
 * to.
 */
#include "tcp/internal.h"

#include <string.h>

#define OOW_INTERVAL_US 500000u /* Linux: tcp_invalid_ratelimit */

void tcp_cfg_default(struct tcp_cfg *cfg)
{
	*cfg = (struct tcp_cfg){
		.max_tw = 65536,
		.max_orphans = 65536,
		.min_rto_us = 200000,
		.delack_min_us = 40000,
		.delack_max_us = 200000,
		.timewait_us = 60000000,
		.tw_reuse_us = 1000000,
		.base_mss = 1024,
		.mtu_probe_floor = 48,
		.probe_interval_s = 600,
		.probe_threshold = 8,
		.syn_retries = TCP_SYN_RETRIES,
		.synack_retries = TCP_SYNACK_RETRIES,
		.notsent_lowat = UINT32_MAX,
		.syncookies = 1,
	};
}

/* Frees a buf that queue/reassembly.c made: its storage is of env. */
static void pool_free(struct buf_pool *pool, struct buf *b)
{
	struct tcp_stack *ts =
		(struct tcp_stack *)((char *)pool - offsetof(struct tcp_stack, pool));

	tcp_free(ts, b, sizeof(*b) + b->room);
}

struct tcp_stack *tcp_stack_new(const struct tcp_env *env, const struct tcp_cfg *cfg, uint64_t now)
{
	struct tcp_stack *ts = env->alloc(env->ctx, sizeof(*ts));
	uint64_t key[2];

	if (!ts)
		return NULL;
	ts->env = *env;
	ts->cfg = *cfg;
	ts->now = now;
	ts->dirty_tail = &ts->dirty;
	ts->refused_tail = &ts->refused;
	ts->tws_tail = &ts->tws;
	ts->pool.free = pool_free;
	wheel_init(&ts->wheel, now);
	/* Each use of the secret has its own key. */
	key[0] = siphash(cfg->secret, "table 0", 7);
	key[1] = siphash(cfg->secret, "table 1", 7);
	if (tcp_table_init(&ts->table, &ts->env, key)) {
		env->free(env->ctx, ts, sizeof(*ts));
		return NULL;
	}
	return ts;
}

static int output_nowhere(void *ctx, const struct tcp_tx *tx)
{
	(void)ctx;
	(void)tx;
	return 0;
}

static void event_nowhere(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	(void)user;
	(void)events;
}

static void ended_nowhere(void *ctx, const struct tcp_tuple *tuple)
{
	(void)ctx;
	(void)tuple;
}

void tcp_stack_free(struct tcp_stack *ts)
{
	struct tcp_env env = ts->env;

	/* Nobody is told: what would be sent or said from here on goes nowhere. */
	ts->env.output = output_nowhere;
	ts->env.event = event_nowhere;
	ts->env.ended = ended_nowhere;
	for (unsigned i = 0; i < TCP_LISTEN_BUCKETS; i++)
		while (ts->listeners[i])
			tcp_listen_close(ts->listeners[i], ts->now);
	while (ts->tws)
		tcp_tw_free(ts, ts->tws);
	while (ts->conns) {
		struct tcp_conn *c = ts->conns;

		tcp_conn_release(c);
		tcp_conn_done(c, 0);
	}
	tcp_flush(ts, ts->now);
	tcp_table_fini(&ts->table, &env);
	env.free(env.ctx, ts, sizeof(*ts));
}

const struct tcp_counters *tcp_stack_counters(const struct tcp_stack *ts)
{
	return &ts->n;
}

unsigned tcp_stack_conns(const struct tcp_stack *ts)
{
	return ts->num_conns;
}

bool tcp_oow_allowed(struct tcp_stack *ts, uint64_t *stamp)
{
	if (*stamp && ts->now - *stamp < OOW_INTERVAL_US) {
		ts->n.challenge_limited++;
		return false;
	}
	*stamp = ts->now ? ts->now : 1;
	return true;
}

static bool opens(const struct tcp_rx *rx)
{
	return (rx->flags & (TCPHDR_SYN | TCPHDR_ACK)) == TCPHDR_SYN;
}

/*
 * A segment for which there is no connection: a listener's, or nobody's (RFC 9293, 3.10.7.1
 * and 3.10.7.2).
 */
static void listener_input(struct tcp_stack *ts, struct tcp_rx *rx, const struct tcp_tuple *tuple)
{
	struct tcp_listener *l = tcp_listener_find(ts, tuple);

	if (ts->env.is_others && ts->env.is_others(ts->env.ctx, tuple, opens(rx)))
		return;
	if (!l) {
		ts->n.no_listener++;
		tcp_reply_rst(ts, tuple, rx);
		return;
	}
	if (rx->flags & TCPHDR_RST)
		return;
	if (rx->flags & TCPHDR_ACK) {
		if ((rx->flags & TCPHDR_SYN) || !tcp_cookie_input(l, rx, tuple))
			tcp_reply_rst(ts, tuple, rx);
		return;
	}
	if ((rx->flags & (TCPHDR_SYN | TCPHDR_FIN)) == TCPHDR_SYN)
		tcp_listen_syn(l, rx, tuple);
}

static bool same_tuple(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
	uint64_t x[5], y[5];

	_Static_assert(sizeof(x) == sizeof(*a), "compared in words");
	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return !((x[4] ^ y[4]) | (x[3] ^ y[3]) | (x[2] ^ y[2]) | (x[1] ^ y[1]) | (x[0] ^ y[0]));
}

/* The next segment is often for the same connection: that costs no hash. */
static struct tcp_node *find(struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	struct tcp_node *n;

	if (ts->last && same_tuple(&ts->last->node.tuple, tuple))
		return &ts->last->node;
	n = tcp_table_find(&ts->table, tuple);
	if (n && n->kind == TCP_KIND_CONN) {
		/*
		 * With many connections each line is a miss: all at once rather than one after the
		 * other.
		 */
		for (unsigned at = 64; at < TCP_CONN_HOT; at += 64)
			__builtin_prefetch((const char *)n + at, 1);
		ts->last = (struct tcp_conn *)n;
	}
	return n;
}

/* Gives rx to whoever has its tuple. */
static void dispatch(struct tcp_stack *ts, struct tcp_rx *rx, const struct tcp_tuple *tuple)
{
	struct tcp_node *n = find(ts, tuple);

	if (n && n->kind == TCP_KIND_CONN) {
		tcp_conn_input((struct tcp_conn *)n, rx);
		return;
	}
	if (n && n->kind == TCP_KIND_REQ) {
		tcp_req_input((struct tcp_req *)n, rx);
		return;
	}
	if (n && tcp_tw_input(ts, (struct tcp_tw *)n, rx))
		return;
	listener_input(ts, rx, tuple);
	ts->reuse_isn = 0;
}

void tcp_input(struct tcp_stack *ts, struct buf *b, uint64_t now)
{
	struct tcp_tuple tuple = {
		.local = b->meta.dst,
		.remote = b->meta.src,
		.lport = b->meta.dport,
		.rport = b->meta.sport,
		.family = b->meta.family,
	};
	struct tcp_rx rx;

	ts->now = now;
	ts->n.in_segs++;
	/* To a group or to all: never TCP (RFC 9293, 3.9.2.3). */
	if (b->meta.multicast || !tcp_rx_parse(b, &rx)) {
		ts->n.in_errs++;
		buf_free(b);
		return;
	}
	ts->n.in_bytes += rx.len;
	if (!rx.len) { /* whoever keeps payload needs not ask whether there is any */
		buf_free(rx.b);
		rx.b = NULL;
	}
	dispatch(ts, &rx, &tuple);
	buf_free(rx.b);
}

void tcp_flush(struct tcp_stack *ts, uint64_t now)
{
	struct tcp_conn *c;

	ts->now = now;
	while ((c = ts->dirty)) {
		ts->dirty = c->dirty_next;
		if (!ts->dirty)
			ts->dirty_tail = &ts->dirty;
		c->dirty = false;
		if (c->closing)
			continue;
		if (tcp_syn_unsent(c))
			tcp_send_syn(c);
		if (c->state == TCPS_SYN_SENT)
			continue;
		tcp_output(c);
		if (!c->closing)
			tcp_ack_flush(c);
	}
	if (ts->dead)
		tcp_conn_reap(ts);
}

bool tcp_waits_for_flush(const struct tcp_conn *c)
{
	return c->dirty && tcp_outq_unsent(c);
}

bool tcp_flush_later(struct tcp_stack *ts, uint64_t now)
{
	/* Those that are over stand in both lists. */
	if (ts->dead)
		tcp_flush(ts, now);
	ts->now = now;
	return ts->dirty != NULL;
}

static void run_timer(struct tcp_stack *ts, struct wheel_timer *t)
{
	switch ((enum tcp_timer_kind)t->kind) {
	case TCP_TIMER_RTX:
		tcp_rtx_timer(tcp_conn_of_timer(t, offsetof(struct tcp_conn, rtx)));
		break;
	case TCP_TIMER_DELACK:
		tcp_delack_timer(tcp_conn_of_timer(t, offsetof(struct tcp_conn, delack)));
		break;
	case TCP_TIMER_KEEP:
		tcp_keep_timer(tcp_conn_of_timer(t, offsetof(struct tcp_conn, keep)));
		break;
	case TCP_TIMER_PACE:
		tcp_pace_timer(tcp_conn_of_timer(t, offsetof(struct tcp_conn, pace)));
		break;
	case TCP_TIMER_REQ:
		tcp_req_timer((struct tcp_req *)((char *)t - offsetof(struct tcp_req, timer)));
		break;
	case TCP_TIMER_TW:
		tcp_tw_timer(ts, (struct tcp_tw *)((char *)t - offsetof(struct tcp_tw, timer)));
		break;
	}
}

void tcp_run_timers(struct tcp_stack *ts, uint64_t now)
{
	struct wheel_timer *t;

	ts->now = now;
	while ((t = wheel_expire(&ts->wheel, now)))
		run_timer(ts, t);
	tcp_flush(ts, now);
}

uint64_t tcp_next_timer(const struct tcp_stack *ts)
{
	return wheel_next(&ts->wheel);
}

void tcp_tx_ready(struct tcp_stack *ts, uint64_t now)
{
	struct tcp_conn *c;

	ts->now = now;
	if (!ts->blocked)
		return;
	ts->blocked = false;
	/* One after the other, and no more of them than there is room for. */
	while ((c = ts->refused) && !ts->blocked) {
		tcp_unblock(c);
		tcp_mark_dirty(c);
		tcp_flush(ts, now);
	}
}
