/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stands around the engine in fuzz_tcp.c: memory that is counted and may fail, frames that
 * must come back, a wire that looks at what is sent, users that look at what they are told, and
 * what must hold after every step.
 *
 * The bytes at sequence number s are those at world_stream(s) in both directions of every
 * connection: so whoever sees a byte knows whether it is the right one.
 */
#ifndef TESTS_FUZZ_TCP_WORLD_H
#define TESTS_FUZZ_TCP_WORLD_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "tcp/internal.h"

#define USERS 8u
#define SENT_KEPT 8u
#define MAX_GSO 20000u

/* The line says which invariant. */
#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A socket, as the socket layer would have it. */
struct user {
	struct tcp_conn *c; /* NULL: free, or closed and not gone yet */
	bool closed;
	/* the peer has spoken of urgent data: its byte may be missing from the stream */
	bool urgent;
	bool seen; /* the two below are valid */
	uint32_t rcv_nxt, snd_una;
};

/* A segment that the engine has sent. */
struct sent {
	struct tcp_tuple tuple;
	uint32_t seq, end_seq, ack, tsval;
	uint8_t flags;
	bool ts;
};

struct world {
	struct tcp_stack *ts;
	struct tcp_listener *l;
	uint64_t now;
	size_t bytes;
	unsigned blocks, bufs;
	unsigned fail_in, fail_count; /* after so many allocations, so many fail */
	int out_error;
	unsigned out_errors; /* so many times */
	struct user user[USERS], listener;
	struct sent sent[SENT_KEPT];
	unsigned num_sent;
};

#define STREAM_PERIOD (1u << 17)
#define STREAM_MAX 65536u /* in one piece */

/* The next STREAM_MAX bytes from seq on. */
static inline const uint8_t *world_stream(uint32_t seq)
{
	static uint8_t bytes[STREAM_PERIOD + STREAM_MAX];

	if (!bytes[1])
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(((i % STREAM_PERIOD) + 1) * 2654435761u >> 24);
	return &bytes[seq % STREAM_PERIOD];
}

/* --- memory */

static inline void *world_alloc(void *ctx, size_t size)
{
	struct world *w = ctx;
	void *p;

	if (w->fail_in)
		w->fail_in--;
	else if (w->fail_count) {
		w->fail_count--;
		return NULL;
	}
	p = memset(arena_alloc(size), 0, size);
	w->bytes += size;
	w->blocks++;
	return p;
}

static inline void world_free(void *ctx, void *p, size_t size)
{
	struct world *w = ctx;

	REQUIRE(p && w->blocks && w->bytes >= size);
	w->bytes -= size;
	w->blocks--;
	arena_free(p, size);
}

/* --- received frames: every fragment in exact memory of its own */

struct world_buf {
	struct buf b; /* first */
	struct world *w;
	uint8_t *mem;
	uint32_t size; /* of mem */
};

static inline void world_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct world_buf *wb = (struct world_buf *)b;

	(void)pool;
	REQUIRE(wb->w->bufs);
	wb->w->bufs--;
	arena_free(wb->mem, wb->size);
	arena_free(wb, sizeof(*wb));
}

static struct buf_pool world_pool = {.free = world_buf_free};

static inline struct buf *world_fragment(struct world *w, const uint8_t *from, uint32_t len)
{
	struct world_buf *wb = arena_alloc(sizeof(*wb));

	memset(wb, 0, sizeof(*wb));
	wb->mem = arena_alloc(len);
	wb->size = len;
	if (len)
		memcpy(wb->mem, from, len);
	wb->w = w;
	wb->b.data = wb->mem;
	wb->b.len = len;
	wb->b.refs = 1;
	wb->b.pool = &world_pool;
	w->bufs++;
	return &wb->b;
}

/*
 * A segment cut into fragments, the first of `first` bytes at least (it holds the header), the
 * others of `cut` (0: one piece).
 */
static inline struct buf *world_buf(struct world *w, const struct tcp_tuple *t, const uint8_t *p,
				    uint32_t len, uint32_t first, uint32_t cut, uint8_t tos)
{
	struct buf *b = world_fragment(w, p, cut && first < len ? first : len), **to = &b->frag;

	for (uint32_t done = b->len; done < len; done += (*to)->len, to = &(*to)->frag)
		*to = world_fragment(w, p + done, len - done < cut ? len - done : cut);
	b->total = len;
	b->meta = (struct buf_meta){.src = t->remote,
				    .dst = t->local,
				    .sport = t->rport,
				    .dport = t->lport,
				    .family = t->family,
				    .ttl = 64,
				    .tos = tos};
	return b;
}

/* --- the wire */

static inline int world_output(void *ctx, const struct tcp_tx *tx)
{
	struct world *w = ctx;
	struct buf b = {
		.data = (uint8_t *)(uintptr_t)tx->hdr, .len = tx->hdr_len, .total = tx->hdr_len};
	struct sent *s = &w->sent[w->num_sent % SENT_KEPT];
	struct tcp_rx rx;
	uint32_t done = 0;

	REQUIRE(tx->hdr_len <= TCP_HDR_MAX && tcp_rx_parse(&b, &rx) && !rx.len);
	REQUIRE((tx->hdr[0] << 8 | tx->hdr[1]) == tx->tuple->lport &&
		(tx->hdr[2] << 8 | tx->hdr[3]) == tx->tuple->rport);
	REQUIRE(!tx->hdr[16] && !tx->hdr[17]);
	REQUIRE(tx->len <= tx->mss || (tx->mss && tx->len <= MAX_GSO));
	for (int i = 0; i < tx->iovcnt; done += (uint32_t)tx->iov[i++].iov_len)
		REQUIRE(!memcmp(tx->iov[i].iov_base,
				world_stream(rx.seq + !!(rx.flags & TCPHDR_SYN) + done),
				tx->iov[i].iov_len));
	REQUIRE(done == tx->len);
	if (w->out_errors) {
		w->out_errors--;
		return w->out_error;
	}
	*s = (struct sent){.tuple = *tx->tuple,
			   .seq = rx.seq,
			   .end_seq = rx.end_seq + tx->len,
			   .ack = rx.ack,
			   .tsval = rx.has_ts ? rx.tsval : 0,
			   .flags = rx.flags,
			   .ts = rx.has_ts};
	w->num_sent++;
	return 0;
}

static inline void world_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu,
			      uint32_t *max_gso)
{
	(void)ctx;
	(void)tuple;
	*mtu = 1500;
	*max_gso = MAX_GSO;
}

/* --- the users */

static inline void world_event(void *ctx, void *user, uint32_t events)
{
	struct world *w = ctx;
	struct user *u = user;

	REQUIRE(u && events && !(events & ~0x1ffu));
	if (u == &w->listener)
		return;
	if (events & TCP_EV_GONE) {
		REQUIRE(u->closed);
		*u = (struct user){0};
		return;
	}
	REQUIRE(u->c || u->closed);
}

/* A user without socket, NULL: none. */
static inline struct user *world_idle(struct world *w)
{
	for (unsigned i = 0; i < USERS; i++)
		if (!w->user[i].c && !w->user[i].closed)
			return &w->user[i];
	return NULL;
}

/* --- what must hold */

static inline void check_segq(const struct tcp_conn *c)
{
	const struct tcp_segq *q = &c->segq;
	uint32_t out = 0, sacked = 0, lost = 0, retrans = 0;
	unsigned in_time = 0;

	for (const struct tcp_seg *s = q->head; s; s = s->next) {
		REQUIRE(seq_before(s->seq, s->end_seq) && s->pcount);
		REQUIRE(s->next ? s->next->seq == s->end_seq : q->tail == s);
		out += s->pcount;
		sacked += s->flags & SEG_SACKED ? s->pcount : 0;
		lost += s->flags & SEG_LOST ? s->pcount : 0;
		retrans += s->flags & SEG_RETRANS ? s->pcount : 0;
		in_time += !(s->flags & SEG_SACKED) &&
			   (s->flags & (SEG_LOST | SEG_RETRANS)) != SEG_LOST;
	}
	REQUIRE(out == q->packets_out && lost == q->lost_out && retrans == q->retrans_out);
	/* Without SACK sacked_out counts duplicate ACKs, as in Linux. */
	REQUIRE(c->sack_ok ? sacked == q->sacked_out : !sacked && q->sacked_out + lost <= out);
	for (const struct tcp_seg *s = q->thead; s; s = s->tnext, in_time--)
		REQUIRE(!s->tnext || s->sent_us <= s->tnext->sent_us);
	REQUIRE(!in_time);
	if (q->head) {
		REQUIRE(seq_leq(q->head->seq, c->snd_una) &&
			seq_after(q->head->end_seq, c->snd_una));
		REQUIRE(q->tail->end_seq == c->snd_nxt);
	} else {
		REQUIRE(c->snd_una == c->snd_nxt || c->state == TCPS_CLOSED);
	}
}

/* The run of bufs from `start` to `end`, without a hole. */
static inline void check_run(const struct buf *b, uint32_t start, uint32_t end, bool front_read)
{
	if (b && !front_read)
		REQUIRE(b->seq == start);
	if (b && front_read)
		start = b->seq;
	for (; b; b = b->next) {
		uint32_t len = 0;

		REQUIRE(b->seq == start);
		for (const struct buf *f = b; f; len += f->len, f = f->frag)
			REQUIRE(!memcmp(f->data, world_stream(b->seq + len), f->len));
		REQUIRE(len == b->total && len);
		start += len;
	}
	REQUIRE(start == end);
}

static inline void check_received(const struct tcp_conn *c)
{
	bool fin = c->fin_rcvd;
	uint32_t at = c->rcv_nxt, ofo = 0;

	if (c->rcvq.head) {
		REQUIRE(seq_leq(c->rcvq.head->seq, c->copied_seq));
		check_run(c->rcvq.head, 0, c->rcv_nxt - fin, true);
	}
	for (const struct tcp_ofo *o = c->ofo; o; o = o->next) {
		REQUIRE(seq_after(o->start, at) && seq_before(o->start, o->end));
		check_run(o->head, o->start, o->end - o->fin, false);
		at = o->end;
		ofo += o->charge;
	}
	REQUIRE(ofo == c->ofo_charge);
}

static inline void check_conn(struct tcp_conn *c)
{
	struct user *u = c->user;

	if (c->closing)
		return;
	REQUIRE(c->state >= TCPS_ESTABLISHED && c->state <= TCPS_CLOSING);
	check_segq(c);
	if (c->state == TCPS_SYN_SENT || c->state == TCPS_CLOSED)
		return;
	check_received(c);
	REQUIRE(seq_leq(c->snd_una, c->snd_nxt) &&
		seq_leq(c->snd_nxt, c->write_seq + c->fin_queued));
	REQUIRE(c->sndq.seq + c->sndq.len == c->write_seq);
	REQUIRE(seq_leq(c->sndq.seq, c->snd_una + (c->snd_una == c->iss)));
	REQUIRE(seq_leq(c->copied_seq, c->rcv_nxt));
	REQUIRE(c->cc.cwnd && c->cc.ssthresh && c->mss);
	if (u && u->seen)
		REQUIRE(seq_geq(c->rcv_nxt, u->rcv_nxt) && seq_geq(c->snd_una, u->snd_una));
	if (u) {
		u->rcv_nxt = c->rcv_nxt;
		u->snd_una = c->snd_una;
		u->seen = true;
	}
}

/* After a flush: whatever waits for the network has a timer that ends the waiting. */
static inline void check_alive(const struct tcp_conn *c)
{
	if (c->state == TCPS_CLOSED || c->closing)
		return;
	if (c->segq.packets_out || (c->state != TCPS_SYN_SENT && tcp_outq_unsent(c)))
		REQUIRE(wheel_armed(&c->rtx) || wheel_armed(&c->pace));
	REQUIRE(!c->dirty);
}

static inline void world_check(struct world *w, bool flushed)
{
	for (struct tcp_conn *c = w->ts->conns; c; c = c->next) {
		check_conn(c);
		if (flushed)
			check_alive(c);
	}
	if (!w->l)
		return;
	for (struct tcp_conn *c = w->l->accept_head; c; c = c->next)
		check_conn(c);
}

#endif
