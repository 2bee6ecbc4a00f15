/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A host: one engine, the memory that it is given, the packets that wait to be looked at. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "sim.h"

/* Before each allocation stands its size, so that a wrong one at free() shows. */
union stamp {
	size_t size;
	max_align_t align;
};

static void *host_alloc(void *ctx, size_t size)
{
	struct host *h = ctx;
	union stamp *s;

	if (h->p->alloc_fail_ppm && rng_chance(&h->rng, h->p->alloc_fail_ppm))
		return NULL;
	s = calloc(1, sizeof(*s) + size);
	s->size = size;
	h->allocs++;
	h->bytes += size;
	return s + 1;
}

static void *host_alloc_raw(void *ctx, size_t size)
{
	void *p = host_alloc(ctx, size);

	return p ? memset(p, 0xa5, size) : NULL;
}

static void host_release(void *ctx, void *p, size_t size)
{
	struct host *h = ctx;
	union stamp *s = (union stamp *)p - 1;

	if (!p)
		return;
	if (s->size != size)
		world_fail(h->w, "free of %zu bytes that were allocated as %zu", size, s->size);
	h->allocs--;
	h->bytes -= size;
	free(s);
}

static int host_output(void *ctx, const struct tcp_tx *tx)
{
	return wire_output(ctx, tx);
}

static void host_event(void *ctx, void *user, uint32_t events)
{
	struct host *h = ctx;

	if (user == h) {
		h->accept_due = true;
		return;
	}
	/* Nobody has accepted it yet: the engine has nobody to tell. */
	if (!user)
		world_fail(h->w, "event %x for nobody", events);
	end_event(user, events);
}

static void host_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso)
{
	struct host *h = ctx;

	(void)tuple;
	*mtu = h->p->mtu;
	*max_gso = h->p->max_gso;
}

void host_init(struct host *h, struct world *w, unsigned index)
{
	struct tcp_env env = {
		.ctx = h,
		.output = host_output,
		.event = host_event,
		.alloc = host_alloc,
		.free = host_release,
		.alloc_raw = host_alloc_raw,
		.path = host_path,
	};
	const char *addr[2][2] = {{"::ffff:10.0.0.1", "::ffff:10.0.0.2"}, {"fd00::1", "fd00::2"}};
	struct tcp_listen_spec spec = {
		.port = SERVER_PORT, .family = (uint8_t)w->p.family, .backlog = w->p.backlog};
	int rc;

	memset(h, 0, sizeof(*h));
	h->w = w;
	h->index = index;
	h->p = &w->p.host[index];
	h->rng.s = w->p.seed * 31 + index;
	inet_pton(AF_INET6, addr[w->p.family == AF_INET6][index], &h->addr);
	do
		h->ts = tcp_stack_new(&env, &w->p.cfg, w->now);
	while (!h->ts && h->p->alloc_fail_ppm);
	if (!h->ts)
		world_fail(w, "no stack");
	h->allocs_at_start = h->allocs;
	if (index == 0 || w->p.conn[0].both_open)
		return;
	spec.local = h->addr;
	do
		rc = tcp_listen(h->ts, &spec, &w->p.conn[0].end[1].o, h, &h->listener);
	while (rc == -ENOMEM && h->p->alloc_fail_ppm);
	if (rc)
		world_fail(w, "tcp_listen: %s", strerror(-rc));
}

/* Packets whose "from" is negative are ICMP errors: see wire.c. */
static void icmp(struct host *h, const struct packet *p)
{
	struct tcp_tuple tuple;

	memcpy(&tuple, p->data, sizeof(tuple));
	tcp_icmp(h->ts, &tuple, p->len,
		 p->from == -1 ? TCP_ICMP_FRAG_NEEDED : TCP_ICMP_UNREACH_HOST, p->mss, h->w->now);
}

void host_poll(struct host *h)
{
	h->poll_due = false;
	for (unsigned i = 0; i < h->num_rx; i++) {
		struct packet *p = h->rx[i];
		struct buf *b = NULL;

		if (p->from < 0)
			icmp(h, p);
		else
			b = wire_receive(h, p);
		free(p);
		h->rx[i] = NULL;
		if (b)
			tcp_input(h->ts, b, h->w->now);
	}
	h->num_rx = 0;
	tcp_flush(h->ts, h->w->now);
	host_settle(h);
}

void host_timers(struct host *h)
{
	uint64_t next;

	tcp_run_timers(h->ts, h->w->now);
	next = tcp_next_timer(h->ts);
	if (next <= h->w->now)
		world_fail(h->w, "a timer is due at %lld us from now after tcp_run_timers()",
			   (long long)(next - h->w->now));
	host_settle(h);
}

static struct end *end_of(struct host *h, const struct tcp_tuple *tuple)
{
	unsigned i = tuple->rport - CLIENT_PORT;

	if (i >= h->w->p.conns)
		world_fail(h->w, "a connection with port %u was accepted that nobody opened",
			   tuple->rport);
	return &h->w->end[i][1];
}

void host_accept(struct host *h)
{
	struct tcp_conn *c;

	h->accept_due = false;
	while (h->listener && (c = tcp_accept(h->listener)) != NULL)
		end_accepted(end_of(h, tcp_conn_tuple(c)), c);
}

static bool accept_now(const struct host *h)
{
	uint64_t t = h->w->now - h->w->p.start;

	return h->accept_due && t >= h->w->p.conn[0].end[1].start_us;
}

void host_settle(struct host *h)
{
	struct world *w = h->w;

	check_host(h);
	for (unsigned turn = 0; turn < 1000; turn++) {
		bool again = false;

		if (accept_now(h))
			host_accept(h);
		for (unsigned i = 0; i < w->p.conns; i++) {
			struct end *e = &w->end[i][h->index];

			if (!e->awake)
				continue;
			e->awake = false;
			again = true;
			end_run(e);
			tcp_flush(h->ts, w->now);
			check_host(h);
		}
		if (!again)
			return;
	}
	world_fail(w, "the application is woken again and again without time passing");
}

void host_free(struct host *h)
{
	for (unsigned i = 0; i < h->num_rx; i++)
		free(h->rx[i]);
	h->num_rx = 0;
	if (h->ts)
		tcp_stack_free(h->ts);
	h->ts = NULL;
}
