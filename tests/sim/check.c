/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What must hold at every step and at the end. Here, and only here, the tests look inside the
 * engine.
 */
#include <stdio.h>
#include <string.h>

#include "segq_check.h"
#include "sim.h"

#define SAME_TIME_MAX 20000u

/* What is closed is the engine's alone, and may be a TIME_WAIT by now: it is looked up. */
static const struct tcp_conn *conn_of(const struct end *e)
{
	struct tcp_tuple tuple = end_tuple(e);
	const struct tcp_node *n;

	if (!e->closed || !e->c)
		return e->c;
	n = tcp_table_find(&e->w->host[e->host].ts->table, &tuple);
	return n && n->kind == TCP_KIND_CONN ? (const struct tcp_conn *)n : NULL;
}

static void check_conn(struct end *e, const struct tcp_conn *c)
{
	struct world *w = e->w;
	const char *why;

	if (e->watched && seq_before(c->snd_una, e->una))
		world_fail(w, "snd_una went back from %u to %u", e->una, c->snd_una);
	if (e->watched && seq_before(c->rcv_nxt, e->rcv_nxt))
		world_fail(w, "rcv_nxt went back from %u to %u", e->rcv_nxt, c->rcv_nxt);
	/* The peer's sequence numbers begin with its SYN. */
	e->watched = c->state != TCPS_SYN_SENT;
	e->una = c->snd_una;
	e->rcv_nxt = c->rcv_nxt;
	if (c->state == TCPS_CLOSED)
		return;
	if (c->cc.cwnd < 1)
		world_fail(w, "cwnd is 0");
	if (seq_after(c->snd_una, c->snd_nxt))
		world_fail(w, "snd_una %u is above snd_nxt %u", c->snd_una, c->snd_nxt);
	/* A recount of a long queue at every step would be quadratic. */
	if (c->segq.packets_out > 64 && w->steps % 16)
		return;
	why = check_segq(c);
	if (why)
		world_fail(w, "%s %u: %s", e->host ? "server" : "client", e->index, why);
}

/* One timer at least where the peer may never speak again. */
static void check_armed(struct end *e, const struct tcp_conn *c)
{
	if (c->state == TCPS_CLOSED || c->segq.head == NULL)
		return;
	if (!wheel_armed(&c->rtx))
		world_fail(e->w, "%s %u: segments are in flight and no timer runs",
			   e->host ? "server" : "client", e->index);
}

void check_host(struct host *h)
{
	for (unsigned i = 0; i < h->w->p.conns; i++) {
		struct end *e = &h->w->end[i][h->index];
		const struct tcp_conn *c = conn_of(e);

		if (!c)
			continue;
		check_conn(e, c);
		check_armed(e, c);
	}
}

static bool promised(struct world *w, const struct seg *s, struct promise *mine,
		     const struct promise *theirs)
{
	uint32_t edge, slack;
	int shift = (s->flags & F_SYN) || mine->wscale < 0 || theirs->wscale < 0 ? 0 : mine->wscale;

	(void)w;
	if (!(s->flags & F_ACK) || (s->flags & F_RST))
		return true;
	edge = s->ack + ((uint32_t)s->wnd << shift);
	slack = 1u << shift;
	/* RFC 9293, 3.8.6.2.2: not to be shrunk; by the rounding of the scale it may. */
	if (mine->known && seq_before(edge + slack, mine->edge))
		return false;
	if (!mine->known || seq_after(edge, mine->edge))
		mine->edge = edge;
	mine->known = true;
	return true;
}

void check_sent(struct host *from, const struct tcp_tx *tx)
{
	struct world *w = from->w;
	unsigned conn = (from->index ? tx->tuple->rport : tx->tuple->lport) - CLIENT_PORT;
	struct promise *mine, *theirs;
	uint8_t bytes[TCP_HDR_MAX];
	struct seg s;
	char text[300];

	w->same_time = w->last_sent == w->now ? w->same_time + 1 : 0;
	w->last_sent = w->now;
	if (w->same_time > SAME_TIME_MAX)
		world_fail(w, "livelock: %u segments without time passing", SAME_TIME_MAX);
	if (tx->hdr_len > TCP_HDR_MAX)
		world_fail(w, "a header of %u bytes", tx->hdr_len);
	memcpy(bytes, tx->hdr, tx->hdr_len);
	if (!seg_parse(&s, bytes, tx->hdr_len) || s.hdr_len != tx->hdr_len)
		world_fail(w, "a header that cannot be read");
	s.len = tx->len;
	if (tx->len > tx->mss && (tx->len > from->p->max_gso || !tx->mss))
		world_fail(w, "a segment of %u bytes (mss %u) where super-segments may have %u",
			   tx->len, tx->mss, from->p->max_gso);
	if (conn >= w->p.conns)
		return;
	mine = &w->promise[conn][from->index];
	theirs = &w->promise[conn][!from->index];
	/* A cookie's SYN|ACK may offer less than the one that comes after it. */
	if (s.flags & F_SYN)
		mine->wscale = s.wscale;
	if (!(w->p.explains & MAY_RESET) && !promised(w, &s, mine, theirs))
		world_fail(w, "the window shrinks: %s after the edge %u",
			   seg_text(text, sizeof(text), &s, 0, 0), mine->edge);
	if (!theirs->known || (s.flags & (F_SYN | F_RST)) || s.len == 0 ||
	    (w->p.explains & MAY_RESET))
		return;
	/* The byte of a window probe is allowed (RFC 9293, 3.8.6.1). */
	if (seq_after(s.seq + s.len, theirs->edge + (s.len == 1)))
		world_fail(w, "sent outside the window: %s, edge %u",
			   seg_text(text, sizeof(text), &s, 0, 0), theirs->edge);
}

bool check_left_by_orphan(const struct world *w, unsigned conn, unsigned side)
{
	const struct end *other = &w->end[conn][!side];

	return !other->c && !other->error && w->host[!side].ts->n.abort_on_timeout;
}

static void check_streams(struct world *w, unsigned i)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct end *e = &w->end[i][side], *from = e->peer;
		const char *name = side ? "server" : "client";
		uint32_t expected = from->p->total;

		if (e->opened && !e->gone)
			world_fail(w, "%s %u has never gone", name, i);
		if ((w->p.explains & ~MAY_REPEAT) || check_left_by_orphan(w, i, side))
			continue;
		if (!e->opened)
			world_fail(w, "%s %u was never opened", name, i);
		if (e->error)
			world_fail(w, "%s %u ended with: %s (sent %u of %u, received %u of %u)",
				   name, i, strerror(e->error), e->sent, e->p->total, e->received,
				   expected);
		if (from->oob_sent && !e->p->o.oobinline && expected)
			expected--;
		if (e->p->ending != END_CLOSE && e->received != expected)
			world_fail(w, "%s %u received %u of %u bytes", name, i, e->received,
				   expected);
		if (e->p->ending != END_CLOSE && !e->eof)
			world_fail(w, "%s %u never saw the end", name, i);
	}
}

static void check_empty(struct host *h)
{
	struct world *w = h->w;
	const struct tcp_stack *ts = h->ts;

	if (tcp_stack_conns(ts) || ts->num_conns || ts->num_tw || ts->num_orphans)
		world_fail(w, "host %u: %u connections, %u TIME_WAITs, %u orphans are left",
			   h->index, ts->num_conns, ts->num_tw, ts->num_orphans);
	if (ts->wheel.armed)
		world_fail(w, "host %u: %llu timers are left", h->index,
			   (unsigned long long)ts->wheel.armed);
	if (ts->table.count)
		world_fail(w, "host %u: %u entries are left in the table", h->index,
			   ts->table.count);
	if (h->bufs)
		world_fail(w, "host %u: %llu buffers are not back", h->index,
			   (unsigned long long)h->bufs);
	if (h->allocs != h->allocs_at_start)
		world_fail(w, "host %u: %lld allocations are left", h->index,
			   (long long)(h->allocs - h->allocs_at_start));
}

void check_finished(struct world *w)
{
	for (unsigned i = 0; i < w->p.conns; i++)
		check_streams(w, i);
	for (unsigned i = 0; i < 2; i++) {
		struct host *h = &w->host[i];

		check_empty(h);
		host_free(h);
		if (h->allocs || h->bytes)
			world_fail(w, "host %u: tcp_stack_free() leaves %llu allocations", i,
				   (unsigned long long)h->allocs);
	}
}
