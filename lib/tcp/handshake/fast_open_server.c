/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP Fast Open (RFC 7413), the server's side: a SYN with a cookie of ours makes a connection at
 * once, in SYN_RECV, with the data that came along (Linux: tcp_try_fastopen()).
 */
#include "tcp/internal.h"

#include <string.h>

#define COOKIE_LEN 8u /* of those that we make */
#define RESET_COUNTS_US 60000000u /* RFC 7413, 5.1; Linux: reqsk_fastopen_remove() */

/* --- cookies */

/* The same bytes as the kernel's, which may have made it, or may get it back. */
static void cookie_make(const uint64_t key[2], const struct tcp_tuple *tuple,
			struct tcp_fast_open_cookie *to)
{
	unsigned skip = tuple->family == AF_INET6 ? 0 : 12, len = 16 - skip;
	uint8_t pair[32];
	uint64_t hash;

	memcpy(pair, tuple->remote.s6_addr + skip, len);
	memcpy(pair + len, tuple->local.s6_addr + skip, len);
	hash = siphash(key, pair, 2 * (size_t)len);
	for (unsigned i = 0; i < COOKIE_LEN; i++)
		to->val[i] = (uint8_t)(hash >> 8 * i);
	to->len = COOKIE_LEN;
}

/* Every byte is looked at: how long it takes does not say how many are right. */
static bool cookie_same(const struct tcp_fast_open_cookie *a, const struct tcp_fast_open_cookie *b)
{
	uint8_t differ = (uint8_t)(a->len ^ b->len);

	for (unsigned i = 0; i < COOKIE_LEN; i++)
		differ |= a->val[i] ^ b->val[i];
	return !differ;
}

/*
 * Whether rx's cookie is one of l's. *answer: what the SYN|ACK is to say: the first key's cookie,
 * or nothing to a peer that has it.
 */
static bool cookie_check(const struct tcp_listener *l, const struct tcp_rx *rx,
			 const struct tcp_tuple *tuple, struct tcp_fast_open_cookie *answer)
{
	const struct tcp_fast_open_server *fo = &l->fast_open;
	struct tcp_fast_open_cookie mine;

	if (!fo->num_keys || rx->fast_open.len < 0)
		return false;
	cookie_make(fo->key[0], tuple, answer);
	answer->exp = rx->fast_open.exp;
	for (unsigned i = 0; i < fo->num_keys && rx->fast_open.len; i++) {
		cookie_make(fo->key[i], tuple, &mine);
		if (!cookie_same(&mine, &rx->fast_open))
			continue;
		if (!i)
			answer->len = -1;
		return true;
	}
	return false;
}

/* --- how many there may be */

static void list_add(struct tcp_fast_open **at, struct tcp_fast_open *fo)
{
	fo->next = *at;
	fo->pprev = at;
	if (fo->next)
		fo->next->pprev = &fo->next;
	*at = fo;
}

static void list_del(struct tcp_listener *l, struct tcp_fast_open *fo)
{
	if (l->fo_reset_tail == &fo->next)
		l->fo_reset_tail = fo->pprev;
	*fo->pprev = fo->next;
	if (fo->next)
		fo->next->pprev = fo->pprev;
	fo->l = NULL;
	l->fo_count--;
}

/* Linux: tcp_fastopen_queue_check(). */
static bool has_room(struct tcp_listener *l)
{
	struct tcp_fast_open *old = l->fo_reset;

	if (l->fo_count < l->fast_open.qlen)
		return true;
	if (!old || old->until > l->ts->now) {
		l->ts->n.fast_open_overflow++;
		return false;
	}
	list_del(l, old);
	tcp_free(l->ts, old, sizeof(*old));
	return true;
}

void tcp_fast_open_over(struct tcp_conn *c)
{
	struct tcp_fast_open *fo = c->ext->fast_open;

	c->fo_child = false;
	if (fo && fo->l)
		list_del(fo->l, fo);
}

void tcp_fast_open_complete(struct tcp_conn *c)
{
	tcp_fast_open_over(c);
	c->bytes_acked--; /* a passive open's own SYN does not count */
}

/*
 * Whoever sends SYNs in another's name makes that one reset what it did not ask for: an accepted
 * one counts for a minute more.
 */
void tcp_fast_open_reset(struct tcp_conn *c)
{
	struct tcp_fast_open *fo = c->ext->fast_open;
	struct tcp_listener *l = fo ? fo->l : NULL;

	if (!l || c->l)
		return;
	tcp_fast_open_over(c);
	c->ext->fast_open = NULL;
	fo->l = l;
	fo->until = c->ts->now + RESET_COUNTS_US;
	list_add(l->fo_reset_tail, fo);
	l->fo_reset_tail = &fo->next;
	l->fo_count++;
}

void tcp_fast_open_unlisten(struct tcp_listener *l)
{
	struct tcp_fast_open *fo;

	while ((fo = l->fo_open))
		list_del(l, fo); /* its connection has it */
	while ((fo = l->fo_reset)) {
		list_del(l, fo);
		tcp_free(l->ts, fo, sizeof(*fo));
	}
}

void tcp_fast_open_drop(struct tcp_conn *c)
{
	struct tcp_fast_open *fo = c->ext->fast_open;

	if (!fo)
		return;
	if (fo->l)
		list_del(fo->l, fo);
	tcp_free(c->ts, fo, sizeof(*fo));
	c->ext->fast_open = NULL;
}

/* --- the connection */

/* In no table yet; its SYN is not answered. NULL: no memory, or tcp_env.begins() refuses. */
static struct tcp_conn *child_new(struct tcp_listener *l, const struct tcp_rx *rx,
				  const struct tcp_tuple *tuple)
{
	struct tcp_stack *ts = l->ts;
	struct tcp_req r = {0};
	struct tcp_fast_open *fo = tcp_alloc(ts, sizeof(*fo));
	struct tcp_conn *c;

	if (!fo)
		return NULL;
	tcp_req_fill(&r, l, rx, tuple);
	c = tcp_begins(l, &r.node) ? tcp_req_child(&r, rx) : NULL;
	if (c && !tcp_conn_ext(c)) {
		ts->num_conns--;
		tcp_free(ts, c, sizeof(*c));
		c = NULL;
	}
	if (!c) {
		tcp_ended(ts, &r.node);
		tcp_free(ts, fo, sizeof(*fo));
		return NULL;
	}
	fo->l = l;
	list_add(&l->fo_open, fo);
	l->fo_count++;
	c->ext->fast_open = fo;
	return c;
}

/* As after a handshake, but that our SYN is still to be acknowledged. */
static void child_begin(struct tcp_conn *c, const struct tcp_rx *rx)
{
	struct tcp_stack *ts = c->ts;

	c->snd_wnd = c->max_wnd = rx->wnd; /* never scaled in a SYN (RFC 7323, 2.2) */
	tcp_snd_init(c, ts->reuse_isn ? ts->reuse_isn : tcp_isn(ts, &c->node.tuple), false);
	c->sml_seq = c->iss; /* our SYN makes no small segment wait */
	tcp_conn_established(c);
	tcp_set_state(c, TCPS_SYN_RECV);
	c->rtt.rto_us = TCP_RTO_INIT_US;
	c->fo_child = true;
	tcp_table_add(&ts->table, &ts->env, &c->node);
}

/*
 * Linux: tcp_fastopen_add_skb(): it says nothing of how the peer will go on. Without room for it
 * the SYN alone is acknowledged.
 */
static void take_data(struct tcp_conn *c, struct tcp_rx *rx)
{
	uint32_t window = tcp_rcv_window(c);

	rx->seq++;
	rx->flags &= (uint8_t)~TCPHDR_SYN;
	if (rx->len > window)
		tcp_rx_cut(rx, rx->seq, rx->seq + window);
	if (!rx->b || !tcp_rcvq_admit(c, rx->b, rx->seq))
		return;
	tcp_rcvq_add(c, rx->b);
	rx->b = NULL;
	c->rcv_nxt += rx->len;
	c->bytes_received += rx->len;
	c->data_segs_in++;
	c->syn_data = true;
}

/* True: the SYN is done with. */
static bool open_at_once(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple,
			 const struct tcp_fast_open_cookie *answer)
{
	struct tcp_conn *c = child_new(l, rx, tuple);

	if (!c) {
		l->ts->n.fast_open_passive_fail++;
		return false;
	}
	c->ext->fast_open->cookie = *answer;
	child_begin(c, rx);
	take_data(c, rx);
	c->l = l; /* the SYN|ACK goes by the listener's mark */
	tcp_send_syn(c);
	l->ts->n.fast_open_passive++;
	tcp_accept_add(l, c);
	return true;
}

bool tcp_fast_open_syn(struct tcp_listener *l, struct tcp_rx *rx, const struct tcp_tuple *tuple,
		       struct tcp_fast_open_cookie *answer)
{
	bool good;

	l->ts->n.fast_open_asked += !rx->fast_open.len;
	if ((!rx->len && rx->fast_open.len < 0) || !has_room(l))
		return false;
	if (l->fast_open.no_cookie)
		return open_at_once(l, rx, tuple, answer);
	good = cookie_check(l, rx, tuple, answer);
	l->ts->n.fast_open_passive_fail += !good && rx->fast_open.len > 0;
	return good && open_at_once(l, rx, tuple, answer);
}

bool tcp_fast_open_syn_again(struct tcp_conn *c, const struct tcp_rx *rx)
{
	if ((rx->flags & (TCPHDR_SYN | TCPHDR_ACK | TCPHDR_RST | TCPHDR_FIN)) != TCPHDR_SYN ||
	    rx->seq != c->irs ||
	    (c->ts_ok && tcp_paws_reject(c->ts->now, c->ts_recent, c->ts_recent_stamp, rx, 0)))
		return false;
	if (tcp_oow_allowed(c->ts, &c->oow_ack))
		tcp_send_syn(c);
	return true;
}
