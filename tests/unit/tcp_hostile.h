/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one packet may cost when its sender means ill: the work does not grow with what the peer has
 * made us queue. Work is counted in basic blocks: lib/proto is compiled once more for
 * test_tcp_hostile_* with -fsanitize-coverage=trace-pc. Each attack is driven at n and at 4n.
 */
#ifndef TESTS_TCP_HOSTILE_H
#define TESTS_TCP_HOSTILE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tcp/internal.h"

#define PEER_ISN 0x50000000u
#define PORT 80
#define MSS 48u

/* --- the count */

static uint64_t blocks;

/*
 * Called at each basic block of the engine; not instrumented itself (Makefile: only the engine's
 * objects are).
 */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	blocks++;
}

/* --- one stack, its memory, a wire that swallows all */

static struct {
	struct tcp_stack *ts;
	struct tcp_listener *l;
	struct tcp_conn *c;
	struct tcp_opts o;
	uint64_t now;
	uint32_t iss; /* of our last SYN|ACK */
	uint32_t tsval; /* of our last segment */
	uint32_t gso;
	unsigned room; /* segments that output() takes, then -ENOBUFS */
	long allocs;
} h;

static inline int swallow(void *ctx, const struct tcp_tx *tx)
{
	uint32_t seq;

	(void)ctx;
	if (!h.room)
		return -ENOBUFS;
	h.room--;
	memcpy(&seq, tx->hdr + 4, 4);
	if (tx->hdr[13] & TCPHDR_SYN)
		h.iss = ntohl(seq);
	return 0;
}

static inline void ignore(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	(void)user;
	(void)events;
}

static inline void *get(void *ctx, size_t size)
{
	(void)ctx;
	h.allocs++;
	return calloc(1, size);
}

static inline void give(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	h.allocs--;
	free(p);
}

static inline void path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *gso)
{
	(void)ctx;
	(void)tuple;
	*mtu = 1500;
	*gso = h.gso;
}

static inline void frame_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	free(b);
}

static struct buf_pool frames = {.free = frame_free};

/*
 * The peer with this number sends a segment of so much payload; the relative numbers of `s` begin
 * at 0 = ISN.
 */
static inline void peer(uint32_t who, struct tcp_hdr_spec s, uint32_t len)
{
	struct buf *b = calloc(1, sizeof(*b) + TCP_HDR_MAX + len);

	assert_non_null(b);
	s.sport = (uint16_t)(1024 + who % 60000);
	s.dport = PORT;
	s.seq += PEER_ISN;
	s.ack += s.flags & TCPHDR_ACK ? h.iss : 0;
	for (unsigned i = 0; i < s.num_sacks; i++) {
		s.sack[i].start += h.iss;
		s.sack[i].end += h.iss;
	}
	b->data = (uint8_t *)(b + 1);
	b->len = b->total = tcp_hdr_write(b->data, &s) + len;
	b->refs = 1;
	b->pool = &frames;
	b->meta.src.s6_addr[15] = (uint8_t)(2 + who / 60000);
	b->meta.sport = s.sport;
	b->meta.dport = PORT;
	b->meta.family = AF_INET6;
	tcp_input(h.ts, b, h.now);
}

static inline void flush(void)
{
	tcp_flush(h.ts, h.now);
}

static inline void begin(void)
{
	struct tcp_env env = {
		.output = swallow, .event = ignore, .alloc = get, .free = give, .path = path};
	struct tcp_cfg cfg;

	memset(&h, 0, sizeof(h));
	h.now = 1000000;
	h.room = UINT32_MAX;
	tcp_cfg_default(&cfg);
	h.ts = tcp_stack_new(&env, &cfg, h.now);
	assert_non_null(h.ts);
	tcp_opts_default(&h.o);
	h.o.cc = TCP_CC_NONE;
	h.o.nodelay = true;
	h.o.sndbuf = h.o.sndbuf_max = 8u << 20;
	h.o.rcvbuf = h.o.rcvbuf_max = 64u << 20;
}

static inline void end(void)
{
	tcp_stack_free(h.ts);
	assert_int_equal(h.allocs, 0);
}

static inline void listen_with(int backlog)
{
	struct tcp_listen_spec spec = {.port = PORT, .family = AF_INET6, .backlog = backlog};

	assert_int_equal(tcp_listen(h.ts, &spec, &h.o, NULL, &h.l), 0);
}

static inline struct tcp_conn *accept_peer(uint32_t who, bool ts)
{
	struct tcp_hdr_spec syn = {.flags = TCPHDR_SYN,
				   .wnd = 65535,
				   .mss = MSS,
				   .sack_permitted = true,
				   .wscale_present = true,
				   .wscale = 10,
				   .ts = ts,
				   .tsval = 1};
	struct tcp_hdr_spec ack = {
		.flags = TCPHDR_ACK, .seq = 1, .ack = 1, .wnd = 65535, .ts = ts, .tsval = 1};
	struct tcp_conn *c;

	peer(who, syn, 0);
	flush();
	peer(who, ack, 0);
	flush();
	c = tcp_accept(h.l);
	assert_non_null(c);
	tcp_conn_set_user(c, &h);
	return c;
}

/*
 * work(4n) against work(n): as much, but for a logarithm; `times`: what is done in one go may be
 * this much more.
 */
static inline void flat(const char *what, uint64_t (*attack)(unsigned n), unsigned n,
			unsigned times)
{
	uint64_t few = attack(n), many = attack(4 * n);

	printf("%-28s %8lu blocks at %u, %8lu at %u\n", what, (unsigned long)few, n,
	       (unsigned long)many, 4 * n);
	assert_true(many <= few * times + few / 2);
}

#endif
