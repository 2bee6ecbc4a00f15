/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A whole stack and a scripted peer: the test says what the peer sends (peer()), and takes what the
 * stack sent (sent()) in order. Sequence numbers are relative: the peer's first byte has the number
 * 1, ours too. Time stands still unless moved. Memory that is not given back fails the test at
 * end().
 */
#ifndef TESTS_TCP_PEER_H
#define TESTS_TCP_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tcp/internal.h"

#define MS 1000ull
#define SEC 1000000ull
#define T0 (1000 * SEC)
#define PEER_ISN 0x50000000u
#define LOG_MAX 256

/* A segment, either way. */
struct seg {
	uint8_t flags;
	uint32_t seq, ack; /* relative */
	uint32_t wnd;
	const char *data; /* of the peer's; NULL with len: that many 'x' */
	uint32_t len;
	uint16_t urg, mss;
	bool ts, sack_ok, wscale;
	uint8_t shift, ecn;
	uint32_t tsval, tsecr; /* tsval relative to PEER_TS when the peer's; tsecr as it is */
	unsigned num_sacks;
	struct tcp_sack_block sack[4]; /* relative */
	uint16_t rport; /* 0: the usual one */
	uint8_t tos, ttl; /* of what the stack sent */
};

#define PEER_TS 0x70000000u
#define LPORT 80
#define RPORT 4000

static struct {
	struct tcp_stack *ts;
	struct tcp_env env;
	struct tcp_cfg cfg;
	struct tcp_opts o;
	struct tcp_conn *c;
	struct tcp_listener *l;
	uint64_t now;
	uint32_t iss; /* ours, of the latest SYN that we sent */
	struct seg log[LOG_MAX];
	unsigned n, taken;
	uint32_t events, lev; /* of the connection's user, of the listener's */
	unsigned gone;
	long allocs, bufs;
	int output_err;
	int fail_after; /* allocations until they fail, -1: never */
	int user, luser; /* only their addresses count */
} t;

static inline int peer_output(void *ctx, const struct tcp_tx *tx)
{
	struct seg *s = &t.log[t.n];
	static uint8_t store[TCP_HDR_MAX];
	struct buf b = {.data = store, .len = tx->hdr_len, .total = tx->hdr_len, .refs = 2};
	struct tcp_rx rx;

	(void)ctx;
	if (t.output_err)
		return t.output_err;
	assert_true(t.n++ < LOG_MAX);
	memcpy(store, tx->hdr, tx->hdr_len);
	assert_true(tcp_rx_parse(&b, &rx));
	if (rx.flags & TCPHDR_SYN)
		t.iss = rx.seq;
	*s = (struct seg){
		.flags = rx.flags,
		.seq = rx.seq - t.iss,
		.ack = rx.flags & TCPHDR_ACK ? rx.ack - PEER_ISN : 0,
		.wnd = rx.wnd,
		.len = tx->len,
		.urg = rx.urg,
		.mss = rx.mss,
		.ts = rx.has_ts,
		.tsval = rx.tsval,
		.tsecr = rx.tsecr - PEER_TS,
		.sack_ok = rx.sack_ok,
		.wscale = rx.has_wscale,
		.shift = rx.wscale,
		.num_sacks = rx.num_sacks,
		.rport = tx->tuple->rport,
		.tos = tx->tos,
		.ttl = tx->ttl,
	};
	for (unsigned i = 0; i < rx.num_sacks; i++)
		s->sack[i] = (struct tcp_sack_block){rx.sack[i].start - PEER_ISN,
						     rx.sack[i].end - PEER_ISN};
	return 0;
}

static inline void peer_event(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	if (user == &t.luser)
		t.lev |= events;
	else if (events & TCP_EV_GONE)
		t.gone++;
	else
		t.events |= events;
}

static inline void *peer_alloc(void *ctx, size_t size)
{
	(void)ctx;
	if (!t.fail_after)
		return NULL;
	if (t.fail_after > 0)
		t.fail_after--;
	t.allocs++;
	return calloc(1, size);
}

static inline void peer_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	memset(p, 0xee, size);
	t.allocs--;
	free(p);
}

static inline void count_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	t.bufs--;
	memset(b->data, 0xee, b->len);
	free(b);
}

static struct buf_pool counted = {.free = count_free};

/* Everything fresh; t.cfg and t.o may be changed before start(). */
static inline void setup(void)
{
	memset(&t, 0, sizeof(t));
	t.now = T0;
	t.fail_after = -1;
	t.env = (struct tcp_env){
		.output = peer_output, .event = peer_event, .alloc = peer_alloc, .free = peer_free};
	tcp_cfg_default(&t.cfg);
	for (unsigned i = 0; i < 4; i++)
		t.cfg.secret[i] = 0x123456789abcdef0ull * (i + 1);
	tcp_opts_default(&t.o);
}

static inline void start(void)
{
	t.ts = tcp_stack_new(&t.env, &t.cfg, t.now);
	assert_non_null(t.ts);
}

static inline void end(void)
{
	tcp_stack_free(t.ts);
	assert_int_equal(t.allocs, 0);
	assert_int_equal(t.bufs, 0);
}

static inline struct tcp_tuple tuple_of(uint16_t rport)
{
	struct tcp_tuple u = {.lport = LPORT, .rport = rport, .family = AF_INET};

	inet_pton(AF_INET6, "::ffff:10.0.0.1", &u.local);
	inet_pton(AF_INET6, "::ffff:10.0.0.2", &u.remote);
	return u;
}

/*
 * The segment as a received buf, cut into fragments of at most `piece` bytes of payload behind the
 * first.
 */
static inline struct buf *frame(const struct seg *s, uint32_t piece)
{
	struct tcp_hdr_spec h = {
		.sport = s->rport ? s->rport : RPORT,
		.dport = LPORT,
		.seq = s->seq + PEER_ISN,
		.ack = s->flags & TCPHDR_ACK ? s->ack + t.iss : 0,
		.wnd = (uint16_t)s->wnd,
		.urg = s->urg,
		.flags = s->flags,
		.ts = s->ts,
		.tsval = s->tsval + PEER_TS,
		.tsecr = s->tsecr,
		.sack_permitted = s->sack_ok,
		.wscale_present = s->wscale,
		.wscale = s->shift,
		.mss = s->mss,
		.num_sacks = (uint8_t)s->num_sacks,
	};
	struct tcp_tuple u = tuple_of(h.sport);
	struct buf *head = NULL, **tail = &head;
	uint32_t off = 0;

	for (unsigned i = 0; i < s->num_sacks; i++)
		h.sack[i] =
			(struct tcp_sack_block){s->sack[i].start + t.iss, s->sack[i].end + t.iss};
	do {
		uint32_t n = s->len - off < piece ? s->len - off : piece, hdr = 0;
		struct buf *b = calloc(1, sizeof(*b) + TCP_HDR_MAX + piece);

		assert_non_null(b);
		b->data = (uint8_t *)(b + 1);
		b->pool = &counted;
		b->refs = 1;
		t.bufs++;
		if (!head)
			hdr = tcp_hdr_write(b->data, &h);
		if (s->data)
			memcpy(b->data + hdr, s->data + off, n);
		else
			memset(b->data + hdr, 'x', n);
		b->len = hdr + n;
		off += n;
		*tail = b;
		tail = &b->frag;
		head->total += b->len;
	} while (off < s->len);
	head->meta.src = u.remote;
	head->meta.dst = u.local;
	head->meta.sport = u.rport;
	head->meta.dport = u.lport;
	head->meta.family = AF_INET;
	head->meta.tos = s->ecn;
	return head;
}

/* The peer sends s; no flush: as one of a batch. */
static inline void peer_batch(struct seg s)
{
	if (s.data)
		s.len = (uint32_t)strlen(s.data);
	if (!s.wnd)
		s.wnd = 10000;
	else if (s.wnd == UINT32_MAX)
		s.wnd = 0;
	tcp_input(t.ts, frame(&s, 70000), t.now);
}

static inline void peer_sends(struct seg s)
{
	peer_batch(s);
	tcp_flush(t.ts, t.now);
}
#define peer(...) peer_sends((struct seg){__VA_ARGS__})

/* What the stack sent next; the test fails when there is nothing. */
static inline const struct seg *sent(void)
{
	assert_true(t.taken < t.n);
	return &t.log[t.taken++];
}

static inline void silent(void)
{
	if (t.taken != t.n)
		print_error("sent: flags %02x seq %u ack %u len %u\n", t.log[t.taken].flags,
			    t.log[t.taken].seq, t.log[t.taken].ack, t.log[t.taken].len);
	assert_int_equal(t.taken, t.n);
}

static inline const struct seg *sent_is(uint8_t flags, uint32_t seq, uint32_t ack)
{
	const struct seg *s = sent();

	assert_int_equal(s->flags, flags);
	assert_int_equal(s->seq, seq);
	assert_int_equal(s->ack, ack);
	return s;
}

static inline void pass(uint64_t us)
{
	uint64_t until = t.now + us;

	for (;;) {
		uint64_t next = tcp_next_timer(t.ts);

		if (next > until)
			break;
		t.now = next > t.now ? next : t.now + 1;
		tcp_run_timers(t.ts, t.now);
	}
	t.now = until;
	tcp_run_timers(t.ts, t.now);
}

static inline void listen_on(int backlog)
{
	struct tcp_listen_spec spec = {
		.local = tuple_of(0).local, .port = LPORT, .family = AF_INET, .backlog = backlog};

	assert_int_equal(tcp_listen(t.ts, &spec, &t.o, &t.luser, &t.l), 0);
}

/* Passive open with the peer's SYN options; the connection is accepted, nothing is left to take. */
static inline void accepted(struct seg syn)
{
	uint32_t tsecr;

	listen_on(8);
	syn.flags = TCPHDR_SYN;
	peer_sends(syn);
	tsecr = sent()->tsval;
	peer_sends((struct seg){.flags = TCPHDR_ACK,
				.seq = 1,
				.ack = 1,
				.ts = syn.ts,
				.tsval = syn.tsval,
				.tsecr = tsecr});
	t.c = tcp_accept(t.l);
	assert_non_null(t.c);
	tcp_conn_set_user(t.c, &t.user);
	silent();
	t.events = 0;
}

/* The usual one: no time stamps, SACK. quick ACKs are used up. */
static inline void accepted_plain(void)
{
	accepted((struct seg){.mss = 1460, .sack_ok = true});
	t.c->quick = 0;
	t.c->ato_us = 40000;
}

static inline ssize_t user_recv(char *to, size_t len, int flags)
{
	struct iovec iov = {to, len};
	ssize_t n = tcp_recv(t.c, &iov, 1, flags, t.now);

	tcp_flush(t.ts, t.now);
	return n;
}

/* The user reads exactly this. */
static inline void reads(const char *want)
{
	char got[4096];
	ssize_t n = user_recv(got, sizeof(got), 0);

	assert_int_equal(n, strlen(want));
	assert_memory_equal(got, want, n);
}

static inline void user_close(void)
{
	tcp_close(t.c, t.now);
	tcp_flush(t.ts, t.now);
}

#endif
