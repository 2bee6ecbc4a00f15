/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One sending connection on a stack of its own: records what it sends, is fed acknowledgements and
 * time. The first byte of its stream has the number 0 (so the SYN's, before it, wraps), mss is
 * 1000, nothing is cut. What the receiving half would give is below, so that only the sending half
 * is under test.
 */
#ifndef TESTS_TCP_FAKE_H
#define TESTS_TCP_FAKE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tcp/recovery/loss.h"

#define MS 1000ull
#define SEC 1000000ull
#define FAKE_SENT_MAX 4096

struct sent {
	uint64_t when_us;
	uint32_t seq, len, ack;
	uint16_t mss, wnd, urg;
	uint8_t flags, tos, ttl, options;
};

static struct {
	struct tcp_stack ts;
	struct tcp_conn *c;
	struct sent s[FAKE_SENT_MAX];
	unsigned n, seen; /* sent; looked at already */
	int output_err, alloc_fail;
	uint32_t mtu, max_gso, events, space;
	int done; /* errno that the connection ended with, -1: it lives */
	int allocs; /* that live */
	bool time_wait;
} f;

/* --- what the receiving half gives */

void tcp_conn_done(struct tcp_conn *c, int err)
{
	struct tcp_stack *ts = c->ts;

	wheel_cancel(&ts->wheel, &c->rtx);
	wheel_cancel(&ts->wheel, &c->delack);
	wheel_cancel(&ts->wheel, &c->keep);
	wheel_cancel(&ts->wheel, &c->pace);
	tcp_segq_clear(&c->segq, &ts->env);
	tcp_sndq_clear(&c->sndq, &ts->env);
	tcp_conn_ext_drop(c);
	c->closing = true;
	c->state = TCPS_CLOSED;
	f.done = err;
}

void tcp_conn_time_wait(struct tcp_conn *c, bool fin_wait2)
{
	(void)fin_wait2;
	f.time_wait = true;
	tcp_conn_done(c, 0);
}

void tcp_event(struct tcp_conn *c, uint32_t events)
{
	(void)c;
	f.events |= events;
}

unsigned tcp_sack_blocks(struct tcp_conn *c, struct tcp_sack_block *to, unsigned max)
{
	(void)max;
	to[0] = c->dsack;
	c->dsack = (struct tcp_sack_block){0};
	return 1;
}

uint32_t tcp_rcv_space(const struct tcp_conn *c)
{
	(void)c;
	return f.space;
}

uint32_t tcp_rcv_free(const struct tcp_conn *c)
{
	(void)c;
	return f.space;
}

void tcp_fast_open_drop(struct tcp_conn *c)
{
	assert_null(c->ext->fast_open);
}

bool tcp_oow_allowed(struct tcp_stack *ts, uint64_t *stamp)
{
	if (*stamp && ts->now - *stamp < 500 * MS)
		return false;
	*stamp = ts->now;
	return true;
}

/* --- the environment */

static inline int fake_output(void *ctx, const struct tcp_tx *tx)
{
	const uint8_t *h = tx->hdr;
	uint32_t total = 0;

	(void)ctx;
	if (f.output_err)
		return f.output_err;
	assert_true(f.n < FAKE_SENT_MAX);
	for (int i = 0; i < tx->iovcnt; i++)
		total += (uint32_t)tx->iov[i].iov_len;
	assert_int_equal(total, tx->len);
	f.s[f.n++] = (struct sent){
		.when_us = f.ts.now,
		.seq = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7],
		.ack = (uint32_t)h[8] << 24 | (uint32_t)h[9] << 16 | (uint32_t)h[10] << 8 | h[11],
		.len = tx->len,
		.mss = tx->mss,
		.wnd = (uint16_t)(h[14] << 8 | h[15]),
		.urg = (uint16_t)(h[18] << 8 | h[19]),
		.flags = h[13],
		.tos = tx->tos,
		.ttl = tx->ttl,
		.options = (uint8_t)(tx->hdr_len - 20),
	};
	return 0;
}

static inline void fake_event(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	(void)user;
	f.events |= events;
}

static inline void *fake_alloc(void *ctx, size_t size)
{
	(void)ctx;
	if (f.alloc_fail)
		return NULL;
	f.allocs++;
	return calloc(1, size);
}

static inline void *fake_alloc_raw(void *ctx, size_t size)
{
	(void)ctx;
	if (f.alloc_fail)
		return NULL;
	f.allocs++;
	return memset(malloc(size), 0xa5, size);
}

static inline void fake_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	f.allocs--;
	free(p);
}

static inline void fake_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu,
			     uint32_t *max_gso)
{
	(void)ctx;
	(void)tuple;
	*mtu = f.mtu;
	*max_gso = f.max_gso;
}

/* --- the connection */

/*
 * A connection in SYN_SENT, not flushed. The options are Linux's, but without time stamps and
 * Nagle, and with NewReno.
 */
static inline struct tcp_conn *fake_new(void)
{
	struct tcp_conn *c;

	memset(&f, 0, sizeof(f));
	f.done = -1;
	f.mtu = 1040;
	f.space = 60000;
	f.ts.env = (struct tcp_env){
		.output = fake_output,
		.event = fake_event,
		.alloc = fake_alloc,
		.alloc_raw = fake_alloc_raw,
		.free = fake_free,
		.path = fake_path,
	};
	f.ts.cfg = (struct tcp_cfg){
		.min_rto_us = 200 * MS,
		.delack_min_us = 40 * MS,
		.delack_max_us = 200 * MS,
		.notsent_lowat = UINT32_MAX,
	};
	f.ts.now = 1000 * SEC;
	f.ts.dirty_tail = &f.ts.dirty;
	f.ts.refused_tail = &f.ts.refused;
	wheel_init(&f.ts.wheel, f.ts.now);
	f.c = c = calloc(1, sizeof(*c));
	c->ts = &f.ts;
	c->node.tuple.family = AF_INET;
	tcp_opts_default(&c->o);
	c->o.timestamps = false;
	c->o.nodelay = true;
	c->o.cc = TCP_CC_NEWRENO;
	c->o.sndbuf = c->o.sndbuf_max;
	c->rtx.kind = TCP_TIMER_RTX;
	c->delack.kind = TCP_TIMER_DELACK;
	c->keep.kind = TCP_TIMER_KEEP;
	c->pace.kind = TCP_TIMER_PACE;
	c->rcv_mss = 536;
	c->rcv_wnd = 60000;
	c->state = TCPS_SYN_SENT;
	tcp_snd_init(c, UINT32_MAX, false);
	return c;
}

static inline void fake_flush(void)
{
	struct tcp_conn *c;

	while ((c = f.ts.dirty)) {
		f.ts.dirty = c->dirty_next;
		if (!f.ts.dirty)
			f.ts.dirty_tail = &f.ts.dirty;
		c->dirty = false;
		if (c->closing)
			continue;
		if (c->state == TCPS_SYN_SENT && c->snd_nxt == c->iss)
			tcp_send_syn(c);
		tcp_output(c);
		if (c->ack_needed == 2)
			tcp_send_ack(c);
	}
}

static inline void fake_timer(struct wheel_timer *t)
{
	switch (t->kind) {
	case TCP_TIMER_RTX:
		tcp_rtx_timer(f.c);
		break;
	case TCP_TIMER_DELACK:
		tcp_delack_timer(f.c);
		break;
	case TCP_TIMER_KEEP:
		tcp_keep_timer(f.c);
		break;
	case TCP_TIMER_PACE:
		tcp_pace_timer(f.c);
		break;
	default:
		fail();
	}
}

/* Lets so much time go by, timers at their time. */
static inline void fake_pass(uint64_t us)
{
	uint64_t end = f.ts.now + us;

	for (;;) {
		uint64_t next = wheel_next(&f.ts.wheel);
		struct wheel_timer *t;

		if (next > end)
			break;
		if (next > f.ts.now)
			f.ts.now = next;
		while ((t = wheel_expire(&f.ts.wheel, f.ts.now)))
			fake_timer(t);
		fake_flush();
	}
	f.ts.now = end;
}

/*
 * An acknowledgement with SACK blocks, as pairs up to a pair of equal numbers; NULL: none. Then the
 * flush.
 */
static inline void fake_ack_full(uint32_t ack, const uint32_t *blocks, uint8_t flags, uint32_t wnd,
				 uint32_t tsecr)
{
	struct tcp_rx rx = {
		.seq = f.c->rcv_nxt,
		.end_seq = f.c->rcv_nxt,
		.ack = ack,
		.wnd = wnd,
		.flags = TCPHDR_ACK | flags,
		.has_ts = tsecr != 0,
		.tsecr = tsecr,
	};

	for (; blocks && blocks[0] != blocks[1]; blocks += 2)
		rx.sack[rx.num_sacks++] = (struct tcp_sack_block){blocks[0], blocks[1]};
	tcp_ack_input(f.c, &rx);
	fake_flush();
}

static uint32_t fake_wnd = 60000;

static inline void fake_ack(uint32_t ack)
{
	fake_ack_full(ack, NULL, 0, fake_wnd, 0);
}

static inline void fake_sack(uint32_t ack, uint32_t start, uint32_t end)
{
	uint32_t b[] = {start, end, 0, 0};

	fake_ack_full(ack, b, 0, fake_wnd, 0);
}

/* Two blocks: the first is the D-SACK, or the newer. */
static inline void fake_sack2(uint32_t ack, uint32_t s1, uint32_t e1, uint32_t s2, uint32_t e2)
{
	uint32_t b[] = {s1, e1, s2, e2, 0, 0};

	fake_ack_full(ack, b, 0, fake_wnd, 0);
}

/* ESTABLISHED, after a handshake of rtt_us. */
static inline struct tcp_conn *fake_open(uint64_t rtt_us)
{
	struct tcp_conn *c = fake_new();

	fake_wnd = 60000;
	c->sack_ok = true;
	tcp_mark_dirty(c);
	fake_flush();
	fake_pass(rtt_us);
	fake_ack(0);
	c->state = TCPS_ESTABLISHED;
	c->last_rcv_us = f.ts.now;
	f.n = f.seen = 0;
	return c;
}

static inline void fake_close(void)
{
	if (!f.c->closing)
		tcp_conn_done(f.c, 0);
	assert_int_equal(f.allocs, 0);
	free(f.c);
}

/* The user sends n bytes; then the flush. Returns what tcp_send() did. */
static inline ssize_t fake_send_flags(uint32_t n, int flags)
{
	static uint8_t data[1 << 20];
	struct iovec iov = {data, n};
	ssize_t done = tcp_send(f.c, &iov, 1, flags, f.ts.now);

	fake_flush();
	return done;
}

static inline void fake_send(uint32_t n)
{
	assert_int_equal(fake_send_flags(n, 0), n);
}

/*
 * As if so many bytes more had been sent in full segments and acknowledged; nothing is in flight.
 * So numbers come again (4 GiB) without as much data.
 */
static inline void fake_went(uint32_t bytes)
{
	struct tcp_conn *c = f.c;

	assert_int_equal(c->snd_una, c->write_seq);
	c->snd_una += bytes;
	c->snd_nxt += bytes;
	c->write_seq += bytes;
	c->sndq.seq += bytes;
	c->fack += bytes;
	c->push_seq += bytes;
	c->max_out_seq += bytes;
	c->rtt.rtt_seq += bytes;
	c->delivered += bytes / c->mss;
}

/* The next segment sent and not looked at yet is this one. */
static inline struct sent *expect_at(const char *file, int line, uint32_t seq, uint32_t len)
{
	struct sent *s = &f.s[f.seen];

	if (f.seen >= f.n)
		print_error("%s:%d: nothing was sent\n", file, line);
	assert_true(f.seen < f.n);
	f.seen++;
	if (s->seq != seq || s->len != len)
		print_error("%s:%d: sent %u(%u), expected %u(%u)\n", file, line, s->seq, s->len,
			    seq, len);
	assert_int_equal(s->seq, seq);
	assert_int_equal(s->len, len);
	return s;
}

#define expect_sent(seq, len) expect_at(__FILE__, __LINE__, seq, len)

#define expect_quiet()                                                                             \
	do {                                                                                       \
		if (f.seen < f.n)                                                                  \
			print_error("%s:%d: sent %u(%u)\n", __FILE__, __LINE__, f.s[f.seen].seq,   \
				    f.s[f.seen].len);                                              \
		assert_int_equal(f.n - f.seen, 0);                                                 \
	} while (0)

/* Looks over n segments of mss from seq on. */
static inline void expect_run(uint32_t seq, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		expect_sent(seq + i * 1000, 1000);
}

#endif
