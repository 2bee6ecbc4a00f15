/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Scripts on the engine, in virtual time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../sim/segq_check.h"
#include "tcp/internal.h"
#include "script_int.h"

static struct {
	struct tcp_stack *ts;
	struct tcp_listener *l;
	struct tcp_conn *c;
	uint64_t now;
	uint64_t allocs, bufs;
	bool gone;
} e;

static void buf_back(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	e.bufs--;
	free(b);
}

static struct buf_pool pool = {.free = buf_back};

static void *engine_alloc(void *ctx, size_t size)
{
	(void)ctx;
	e.allocs++;
	return calloc(1, size);
}

static void engine_free(void *ctx, void *p, size_t size)
{
	(void)ctx;
	(void)size;
	if (!p)
		return;
	e.allocs--;
	free(p);
}

static int engine_output(void *ctx, const struct tcp_tx *tx)
{
	uint32_t at = tx->hdr_len, left = tx->len;
	uint8_t *p;

	(void)ctx;
	if (tx->tuple->rport != PEER_PORT)
		return 0;
	p = malloc(tx->hdr_len + tx->len);
	memcpy(p, tx->hdr, tx->hdr_len);
	for (int i = 0; i < tx->iovcnt && left; i++) {
		uint32_t n = tx->iov[i].iov_len < left ? (uint32_t)tx->iov[i].iov_len : left;

		memcpy(p + at, tx->iov[i].iov_base, n);
		at += n;
		left -= n;
	}
	script_left(p, tx->hdr_len + tx->len, tx->tos, e.now);
	free(p);
	return 0;
}

static void engine_event(void *ctx, void *user, uint32_t events)
{
	(void)ctx;
	if (user == &e && (events & TCP_EV_GONE)) {
		e.c = NULL;
		e.gone = true;
	}
}

static void engine_path(void *ctx, const struct tcp_tuple *tuple, uint32_t *mtu, uint32_t *max_gso)
{
	(void)ctx;
	(void)tuple;
	*mtu = script.peer.mtu;
	*max_gso = 0;
}

static void engine_route(void *ctx, const struct tcp_tuple *tuple, struct tcp_route *r)
{
	(void)ctx;
	(void)tuple;
	*r = script.peer.route;
}

static void begin(void)
{
	const struct tcp_env env = {
		.output = engine_output,
		.event = engine_event,
		.alloc = engine_alloc,
		.free = engine_free,
		.path = engine_path,
		.route = engine_route,
	};

	memset(&e, 0, sizeof(e));
	e.now = 1000000000;
	for (unsigned i = 0; i < 4; i++)
		script.cfg.secret[i] = 0x1234567890abcdefu * (i + 1);
	e.ts = tcp_stack_new(&env, &script.cfg, e.now);
	if (!e.ts)
		script_fail("no stack");
}

static void settled(void)
{
	const char *why;

	tcp_flush(e.ts, e.now);
	if (!e.c || e.c->state == TCPS_CLOSED)
		return;
	why = check_segq(e.c);
	if (why)
		script_fail("%s", why);
}

static void end(void)
{
	if (!e.ts)
		return;
	tcp_stack_free(e.ts);
	e.ts = NULL;
	if (e.allocs || e.bufs)
		script_fail("%llu allocations and %llu buffers are left",
			    (unsigned long long)e.allocs, (unsigned long long)e.bufs);
}

static uint64_t now(void)
{
	return e.now;
}

static void wait(uint64_t us)
{
	uint64_t until = e.now + us;

	for (;;) {
		uint64_t next = tcp_next_timer(e.ts);

		if (next > until)
			break;
		if (next > e.now)
			e.now = next;
		tcp_run_timers(e.ts, e.now);
		settled();
		if (tcp_next_timer(e.ts) <= e.now)
			script_fail("a timer is due after tcp_run_timers()");
	}
	e.now = until;
}

static void engine_inject(uint8_t *tcp, unsigned n, uint8_t tos)
{
	struct buf *b = calloc(1, sizeof(*b) + n);

	e.bufs++;
	b->data = (uint8_t *)(b + 1);
	b->room = n;
	b->len = b->total = n;
	b->refs = 1;
	b->pool = &pool;
	memcpy(b->data, tcp, n);
	b->meta = (struct buf_meta){.src = script.theirs,
				    .dst = script.ours,
				    .ifindex = 1,
				    .ttl = 64,
				    .tos = tos,
				    .family = (uint8_t)script.peer.family};
	b->meta.sport = (uint16_t)(tcp[0] << 8 | tcp[1]);
	b->meta.dport = (uint16_t)(tcp[2] << 8 | tcp[3]);
	tcp_input(e.ts, b, e.now);
	settled();
}

static struct tcp_tuple tuple(void)
{
	struct tcp_tuple t = {.local = script.ours,
			      .remote = script.theirs,
			      .lport = OUR_PORT,
			      .rport = PEER_PORT,
			      .family = (uint8_t)script.peer.family};

	return t;
}

static void engine_icmp(enum tcp_icmp kind, uint32_t seq, uint32_t mtu)
{
	struct tcp_tuple t = tuple();

	tcp_icmp(e.ts, &t, seq, kind, mtu, e.now);
	settled();
}

static void engine_listen(void)
{
	struct tcp_listen_spec spec = {.local = script.ours,
				       .port = OUR_PORT,
				       .family = (uint8_t)script.peer.family,
				       .backlog = script.peer.backlog};
	struct tcp_fast_open_server fo = {.qlen = script.peer.fast_open, .num_keys = 1};
	int rc = tcp_listen(e.ts, &spec, &script.o, NULL, &e.l);

	if (rc)
		script_fail("tcp_listen: %s", strerror(-rc));
	memcpy(fo.key[0], FAST_OPEN_KEY, sizeof(fo.key[0]));
	tcp_listen_fast_open(e.l, &fo);
}

static int engine_connect(void)
{
	struct tcp_tuple t = tuple();
	int rc = tcp_connect(e.ts, &t, &script.o, &e, e.now, &e.c);

	settled();
	return rc;
}

static int engine_connect_with(const uint8_t *p, uint32_t n)
{
	struct iovec iov = {(void *)(uintptr_t)p, n};
	struct tcp_fast_open_client how = {.cookie.len = script.peer.asks ? 0 : -1,
					   .with_data = !script.peer.asks};
	struct tcp_tuple t = tuple();
	int rc = tcp_connect(e.ts, &t, &script.o, &e, e.now, &e.c);

	if (rc)
		return rc;
	tcp_fast_open(e.c, &how);
	rc = (int)tcp_send(e.c, &iov, 1, 0, e.now);
	tcp_fast_open_go(e.c);
	settled();
	return rc > 0 ? rc : -EINPROGRESS;
}

static int engine_accept(void)
{
	struct tcp_conn *c = tcp_accept(e.l);

	if (!c)
		return -EAGAIN;
	e.c = c;
	tcp_conn_set_user(c, &e);
	return 0;
}

static int engine_send(const uint8_t *p, uint32_t n, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)p, n};
	int rc = (int)tcp_send(e.c, &iov, 1, flags, e.now);

	settled();
	return rc;
}

static int engine_recv(uint8_t *p, uint32_t n, int flags)
{
	struct iovec iov = {p, n};
	int rc = (int)tcp_recv(e.c, &iov, 1, flags, e.now);

	settled();
	return rc;
}

static int engine_shutdown(int how)
{
	int rc = tcp_shutdown(e.c, how, e.now);

	settled();
	return rc;
}

static void engine_close(bool abort)
{
	struct tcp_conn *c = e.c;

	/* From here on the memory is the engine's alone. */
	e.c = NULL;
	if (!c && e.l) {
		tcp_listen_close(e.l, e.now);
		e.l = NULL;
	} else if (abort) {
		tcp_abort(c, e.now);
	} else {
		tcp_close(c, e.now);
	}
	settled();
}

static int engine_error(void)
{
	return tcp_error(e.c);
}

static uint32_t engine_ready(void)
{
	return tcp_ready(e.c);
}

/* Also of what has no connection object (any more). */
static enum tcp_state engine_state(void)
{
	struct tcp_tuple t = tuple();
	struct tcp_node *n = tcp_table_find(&e.ts->table, &t);

	if (n && n->kind == TCP_KIND_REQ)
		return TCPS_SYN_RECV;
	if (n && n->kind == TCP_KIND_TW)
		return ((struct tcp_tw *)n)->fin_wait2 ? TCPS_FIN_WAIT2 : TCPS_TIME_WAIT;
	return n ? tcp_conn_state((struct tcp_conn *)n) : TCPS_CLOSED;
}

static void engine_info(union tcp_info_all *ti)
{
	if (e.c)
		tcp_fill_info(e.c, ti, sizeof(*ti), e.now);
}

static void engine_set_opts(void)
{
	if (e.c)
		tcp_set_opts(e.c, &script.o, e.now);
	/* As setting all of them does in the kernel. */
	if (script.o.nodelay)
		tcp_push_held(e.c, e.now);
	else if (e.l)
		tcp_listen_opts(e.l, &script.o);
	settled();
}

static uint32_t engine_inq(void)
{
	return tcp_inq(e.c);
}

struct tcp_conn *the_conn(void)
{
	return e.c;
}

const struct tcp_counters *counters(void)
{
	return tcp_stack_counters(e.ts);
}

const struct backend engine_backend = {
	"engine",
	true,
	begin,
	end,
	now,
	wait,
	engine_inject,
	engine_icmp,
	engine_listen,
	engine_connect,
	engine_connect_with,
	engine_accept,
	engine_send,
	engine_recv,
	engine_shutdown,
	engine_close,
	engine_error,
	engine_ready,
	engine_state,
	engine_info,
	engine_set_opts,
	engine_inq,
};
