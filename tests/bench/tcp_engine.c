/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcp_engine CONNECTIONS SEGMENTS: the TCP engine alone, no device and no kernel. Establishes so
 * many connections, then gives it segments of 64 bytes, each the next in order of its connection
 * and followed by a flush, and reads them. Prints JSON: nanoseconds for one segment (tcp_input()
 * and tcp_flush()) when one connection of all is busy and when all are in turns, in a random order;
 * and the bytes that the allocator gave for one idle connection, the table's included. What is
 * timed is in run_batch(), for callgrind's --toggle-collect.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tcp/internal.h"

#define BATCH 16u
#define PAYLOAD 64u
#define PORT 80

struct peer {
	struct tcp_conn *c;
	uint32_t seq, ack; /* what the peer sends next and has received */
};

struct bench {
	struct tcp_stack *ts;
	struct tcp_listener *l;
	struct peer *peer;
	uint32_t num;
	uint64_t now;
	uint64_t bytes;
	uint32_t isn; /* of the last SYN|ACK sent */
};

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "tcp_engine: %s\n", what);
	exit(1);
}

static void *count_alloc(void *ctx, size_t size)
{
	struct bench *b = ctx;

	b->bytes += size;
	return calloc(1, size);
}

static void count_free(void *ctx, void *p, size_t size)
{
	struct bench *b = ctx;

	b->bytes -= size;
	free(p);
}

static int output(void *ctx, const struct tcp_tx *tx)
{
	struct bench *b = ctx;
	uint32_t seq;

	memcpy(&seq, tx->hdr + 4, sizeof(seq));
	if (tx->hdr[13] & TCPHDR_SYN)
		b->isn = ntohl(seq);
	return 0;
}

static void event(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	(void)user;
	(void)events;
}

/* Received frames live in a few chunks that go round. */
static struct {
	struct buf b;
	uint8_t mem[TCP_HDR_MAX + PAYLOAD];
} chunk[BATCH];

static void chunk_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
}

static struct buf_pool pool = {.free = chunk_free};

/* Two hosts' worth of ports times many hosts. */
static void address(uint32_t i, struct buf_meta *m)
{
	uint32_t host = htonl(0x0a000002 + i / 50000), local = htonl(0x0a000001);

	memset(m, 0, sizeof(*m));
	memset(&m->src.s6_addr[10], 0xff, 2);
	memset(&m->dst.s6_addr[10], 0xff, 2);
	memcpy(&m->src.s6_addr[12], &host, 4);
	memcpy(&m->dst.s6_addr[12], &local, 4);
	m->sport = (uint16_t)(1024 + i % 50000);
	m->dport = PORT;
	m->family = AF_INET;
	m->ttl = 64;
}

static struct buf *segment(const struct bench *bench, unsigned slot, uint32_t i, uint8_t flags,
			   uint32_t len)
{
	struct buf *b = &chunk[slot].b;
	struct tcp_hdr_spec h = {
		.sport = (uint16_t)(1024 + i % 50000),
		.dport = PORT,
		.seq = bench->peer[i].seq,
		.ack = bench->peer[i].ack,
		.wnd = 65535,
		.flags = flags,
		.ts = true,
		.tsval = (uint32_t)(bench->now / 1000),
		.tsecr = 0,
	};
	uint32_t hdr_len;

	if (flags & TCPHDR_SYN) {
		h.mss = 1460;
		h.sack_permitted = h.wscale_present = true;
		h.wscale = 7;
	}
	hdr_len = tcp_hdr_write(chunk[slot].mem, &h);
	memset(b, 0, sizeof(*b));
	b->data = chunk[slot].mem;
	b->len = b->total = hdr_len + len;
	b->refs = 1;
	b->pool = &pool;
	address(i, &b->meta);
	return b;
}

static void establish(struct bench *b, uint32_t i)
{
	struct peer *p = &b->peer[i];

	p->seq = i * 7919;
	tcp_input(b->ts, segment(b, 0, i, TCPHDR_SYN, 0), b->now);
	tcp_flush(b->ts, b->now);
	p->seq++;
	p->ack = b->isn + 1;
	tcp_input(b->ts, segment(b, 0, i, TCPHDR_ACK, 0), b->now);
	tcp_flush(b->ts, b->now);
	p->c = tcp_accept(b->l);
	require(p->c != NULL, "a connection was not established");
	tcp_conn_set_user(p->c, p);
}

void run_batch(struct bench *b, struct buf *const *batch);

__attribute__((noinline)) void run_batch(struct bench *b, struct buf *const *batch)
{
	for (unsigned i = 0; i < BATCH; i++) {
		tcp_input(b->ts, batch[i], b->now);
		tcp_flush(b->ts, b->now);
	}
}

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void read_all(struct bench *b, uint32_t i)
{
	uint8_t mem[BATCH * PAYLOAD];
	struct iovec iov = {mem, sizeof(mem)};

	require(tcp_recv(b->peer[i].c, &iov, 1, 0, b->now) > 0, "no data was received");
}

/* Nanoseconds for a segment; busy: so many connections, spread over all, get them in turns. */
static double measure(struct bench *b, uint32_t busy, uint32_t segments)
{
	uint32_t stride = busy > 1 ? 7919 : 0, at = b->num / 2;
	uint64_t ns = 0, fast = tcp_stack_counters(b->ts)->fast_path;

	for (uint32_t done = 0; done < segments; done += BATCH) {
		struct buf *batch[BATCH];
		uint32_t who[BATCH];
		uint64_t begun;

		for (unsigned k = 0; k < BATCH; k++) {
			/* A stride that is prime to their number visits all of them, far apart. */
			at = (uint32_t)(((uint64_t)at + stride) % b->num);
			who[k] = at;
			batch[k] = segment(b, k, at, TCPHDR_ACK | TCPHDR_PSH, PAYLOAD);
			b->peer[at].seq += PAYLOAD;
		}
		begun = clock_ns();
		run_batch(b, batch);
		ns += clock_ns() - begun;
		for (unsigned k = 0; k < BATCH; k++)
			if (tcp_inq(b->peer[who[k]].c))
				read_all(b, who[k]);
		tcp_flush(b->ts, b->now);
		b->now += 10;
		tcp_run_timers(b->ts, b->now);
	}
	require(tcp_stack_counters(b->ts)->fast_path - fast >= segments,
		"a segment was not the next in order");
	return (double)ns / segments;
}

int main(int argc, char **argv)
{
	struct bench b = {.now = 1000000};
	struct tcp_env env = {.ctx = &b,
			      .output = output,
			      .event = event,
			      .alloc = count_alloc,
			      .free = count_free};
	struct tcp_listen_spec spec = {.port = PORT, .family = AF_INET6, .backlog = 128};
	struct tcp_opts opts;
	struct tcp_cfg cfg;
	uint32_t segments;
	uint64_t before;
	double one, all;

	require(argc == 3, "usage: tcp_engine CONNECTIONS SEGMENTS");
	b.num = (uint32_t)strtoul(argv[1], NULL, 10);
	segments = (uint32_t)strtoul(argv[2], NULL, 10);
	b.peer = calloc(b.num, sizeof(*b.peer));
	require(b.num && b.peer, "no connections");
	tcp_cfg_default(&cfg);
	memset(cfg.secret, 0x5a, sizeof(cfg.secret));
	tcp_opts_default(&opts);
	b.ts = tcp_stack_new(&env, &cfg, b.now);
	require(b.ts && !tcp_listen(b.ts, &spec, &opts, NULL, &b.l), "no listener");
	before = b.bytes;
	for (uint32_t i = 0; i < b.num; i++)
		establish(&b, i);
	printf("{\"connections\": %u, \"bytes\": %.1f, ", b.num,
	       (double)(b.bytes - before) / b.num);
	one = measure(&b, 1, segments);
	all = b.num > 1 ? measure(&b, b.num, segments) : one;
	printf("\"ns_one\": %.1f, \"ns_all\": %.1f}\n", one, all);
	tcp_stack_free(b.ts);
	require(b.bytes == 0, "memory was not returned");
	free(b.peer);
	return 0;
}
