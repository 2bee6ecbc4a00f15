/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The application at one end: it writes a pattern, reads its peer's, pauses, and ends as its plan
 * says. It acts on events alone, as a program under edge-triggered epoll does: an event that the
 * engine forgets stalls the run.
 */
#include <errno.h>
#include <string.h>

#include "sim.h"

#define PATTERN 65521u
#define CALLS_A_TURN 64u

static uint8_t pattern[PATTERN];
static uint8_t scratch[1u << 17];

static void make_pattern(void)
{
	struct rng r = {12345};

	if (pattern[0] | pattern[1] | pattern[2])
		return;
	for (unsigned i = 0; i < PATTERN; i++)
		pattern[i] = (uint8_t)rng_next(&r);
}

struct tcp_tuple end_tuple(const struct end *e)
{
	struct tcp_tuple t = {.local = e->w->host[e->host].addr,
			      .remote = e->w->host[!e->host].addr,
			      .family = (uint8_t)e->w->p.family};
	uint16_t client = (uint16_t)(CLIENT_PORT + e->index);

	t.lport = e->host ? SERVER_PORT : client;
	t.rport = e->host ? client : SERVER_PORT;
	return t;
}

void end_init(struct end *e, struct world *w, unsigned conn, unsigned side)
{
	const struct conn_plan *p = &w->p.conn[conn];

	make_pattern();
	memset(e, 0, sizeof(*e));
	e->w = w;
	e->p = &p->end[side];
	e->peer = &w->end[conn][!side];
	e->host = side;
	e->index = conn;
	e->rng.s = w->p.seed * 1009 + conn * 2 + side;
	world_at(w, w->now + e->p->start_us, EVENT_END, side, e);
}

static const char *side(const struct end *e)
{
	return e->host ? "server" : "client";
}

static void pause_for(struct end *e, uint64_t *until, uint32_t us)
{
	*until = e->w->now + us;
	world_at(e->w, *until, EVENT_END, e->host, e);
}

static void error(struct end *e, int err, const char *call)
{
	world_say(e->w, "%s %u: %s gives %s", side(e), e->index, call, strerror(err));
	if (!e->error)
		e->error = err;
}

void end_start(struct end *e)
{
	struct tcp_tuple tuple = end_tuple(e);
	int rc;

	e->opened = true;
	rc = tcp_connect(e->w->host[e->host].ts, &tuple, &e->p->o, e, e->w->now, &e->c);
	world_say(e->w, "%s %u: connect() = %d", side(e), e->index, rc);
	if (rc) {
		e->c = NULL;
		e->gone = true;
		error(e, -rc, "connect()");
		if (rc != -ENOMEM || !e->w->host[e->host].p->alloc_fail_ppm)
			world_fail(e->w, "tcp_connect: %s", strerror(-rc));
		e->w->p.explains |= MAY_RESET | MAY_STALL;
	}
}

void end_accepted(struct end *e, struct tcp_conn *c)
{
	if (e->opened && (e->w->p.explains & MAY_REPEAT)) {
		tcp_abort(c, e->w->now);
		return;
	}
	if (e->opened)
		world_fail(e->w, "connection %u was accepted twice", e->index);
	world_say(e->w, "%s %u: accept()", side(e), e->index);
	e->opened = e->connected = true;
	e->c = c;
	tcp_conn_set_user(c, e);
	tcp_set_opts(c, &e->p->o, e->w->now);
	e->awake = true;
}

void end_event(struct end *e, uint32_t events)
{
	e->events |= events;
	if (e->gone)
		world_fail(e->w, "%s %u: event %x after GONE", side(e), e->index, events);
	world_say(e->w, "%s %u: event%s%s%s%s%s%s%s%s", side(e), e->index,
		  events & TCP_EV_IN ? " IN" : "", events & TCP_EV_OUT ? " OUT" : "",
		  events & TCP_EV_CONNECTED ? " CONNECTED" : "", events & TCP_EV_ERR ? " ERR" : "",
		  events & TCP_EV_HUP ? " HUP" : "", events & TCP_EV_PRI ? " PRI" : "",
		  events & TCP_EV_RDHUP ? " RDHUP" : "", events & TCP_EV_GONE ? " GONE" : "");
	if (events & TCP_EV_GONE) {
		if (!e->closed)
			world_fail(e->w, "%s %u: GONE before it was closed", side(e), e->index);
		e->gone = true;
		e->c = NULL;
		return;
	}
	if (events == TCP_EV_TIME_WAIT && e->closed)
		return;
	if (e->closed)
		world_fail(e->w, "%s %u: event %x after close", side(e), e->index, events);
	if (events & (TCP_EV_IN | TCP_EV_RDHUP | TCP_EV_ERR | TCP_EV_HUP | TCP_EV_PRI))
		e->read_blocked = false;
	if (events & (TCP_EV_OUT | TCP_EV_ERR | TCP_EV_HUP | TCP_EV_CONNECTED))
		e->write_blocked = false;
	if (events & TCP_EV_CONNECTED)
		e->connected = true;
	e->awake = true;
}

static void close_now(struct end *e, bool abort)
{
	world_say(e->w, "%s %u: %s after %u sent, %u received", side(e), e->index,
		  abort ? "abort" : "close", e->sent, e->received);
	e->closed = true;
	e->aborted |= abort;
	if (abort)
		tcp_abort(e->c, e->w->now);
	else
		tcp_close(e->c, e->w->now);
}

void end_give_up(struct end *e)
{
	if (!e->closed)
		close_now(e, true);
	tcp_flush(e->w->host[e->host].ts, e->w->now);
	if (e->c)
		world_fail(e->w, "%s %u: aborted, but not gone", side(e), e->index);
}

/* Points iov at the pattern's bytes from `at` on. */
static unsigned pattern_iov(const struct end *e, uint32_t at, uint32_t n, struct iovec iov[3])
{
	uint32_t from = (uint32_t)(((uint64_t)at + e->p->key) % PATTERN);
	unsigned k = 0;

	while (n && k < 3) {
		uint32_t part = PATTERN - from < n ? PATTERN - from : n;

		iov[k++] = (struct iovec){pattern + from, part};
		n -= part;
		from = 0;
	}
	return k;
}

static bool same_as_pattern(const struct end *from, uint32_t at, const uint8_t *p, uint32_t n)
{
	struct iovec iov[3];

	for (unsigned i = 0, k = pattern_iov(from, at, n, iov); i < k; p += iov[i++].iov_len)
		if (memcmp(iov[i].iov_base, p, iov[i].iov_len) != 0)
			return false;
	return true;
}

/* False: nothing more can be written now. */
static bool write_once(struct end *e)
{
	uint32_t n = e->p->total - e->sent, limit = rng_range(&e->rng, 1, e->p->write_max);
	int flags = rng_chance(&e->rng, e->p->more_ppm) ? MSG_MORE : 0;
	struct iovec iov[3];
	ssize_t rc;

	if (rng_chance(&e->rng, e->p->more_ppm))
		flags |= MSG_EOR;
	if (n > limit)
		n = limit;
	if (n > 2 * PATTERN)
		n = 2 * PATTERN;
	if (e->p->oob_at != UINT32_MAX && e->sent <= e->p->oob_at && e->sent + n > e->p->oob_at) {
		n = e->p->oob_at - e->sent;
		if (n == 0) {
			n = 1;
			flags |= MSG_OOB;
		}
	}
	/* The last byte must not wait for one that never comes. */
	if (e->sent + n == e->p->total)
		flags &= ~MSG_MORE;
	rc = tcp_send(e->c, iov, (int)pattern_iov(e, e->sent, n, iov), flags, e->w->now);
	if (rc > (ssize_t)n)
		world_fail(e->w, "%s %u: tcp_send(%u) = %zd", side(e), e->index, n, rc);
	if (rc == 0)
		world_fail(e->w, "%s %u: tcp_send(%u) = 0", side(e), e->index, n);
	if (rc == -EAGAIN) {
		e->write_blocked = true;
		return false;
	}
	if (rc == -ENOMEM && e->w->host[e->host].p->alloc_fail_ppm) {
		pause_for(e, &e->pause_until, 1000);
		return false;
	}
	if (rc < 0) {
		error(e, (int)-rc, "send()");
		return false;
	}
	world_say(e->w, "%s %u: send(%u%s%s) = %zd", side(e), e->index, n,
		  flags & MSG_MORE ? ", MORE" : "", flags & MSG_OOB ? ", OOB" : "", rc);
	e->oob_sent |= (flags & MSG_OOB) != 0;
	e->sent += (uint32_t)rc;
	if (e->p->pause_ppm && rng_chance(&e->rng, e->p->pause_ppm))
		pause_for(e, &e->pause_until, rng_range(&e->rng, 1, e->p->pause_us));
	return true;
}

/* The urgent byte when it is kept out of the stream. */
static void read_oob(struct end *e)
{
	uint8_t byte = 0;
	struct iovec iov = {&byte, 1};
	const struct end *from = e->peer;

	if (e->p->o.oobinline || from->p->oob_at == UINT32_MAX || e->oob_got || !e->c)
		return;
	if (tcp_recv(e->c, &iov, 1, MSG_OOB, e->w->now) != 1)
		return;
	world_say(e->w, "%s %u: the urgent byte", side(e), e->index);
	if (!same_as_pattern(from, from->p->oob_at, &byte, 1))
		world_fail(e->w, "%s %u: the urgent byte is another one", side(e), e->index);
	e->oob_got = true;
}

/*
 * Where in the peer's stream the byte `received` stands: an urgent byte that is not inline is left
 * out.
 */
static void verify(struct end *e, const uint8_t *p, uint32_t n)
{
	const struct end *from = e->peer;
	uint32_t gap = e->p->o.oobinline ? UINT32_MAX : from->p->oob_at, at = e->received,
		 first = n;

	if (at + n > from->sent)
		world_fail(e->w, "%s %u: received %u bytes of %u that were sent", side(e), e->index,
			   at + n, from->sent);
	if (gap != UINT32_MAX && at >= gap)
		at++;
	else if (gap != UINT32_MAX && at + n > gap)
		first = gap - at;
	if (!same_as_pattern(from, at, p, first) ||
	    !same_as_pattern(from, at + first + 1, p + first, n - first))
		world_fail(e->w, "%s %u: bytes %u to %u are not those that were sent", side(e),
			   e->index, e->received, e->received + n);
}

static bool read_once(struct end *e)
{
	uint32_t n = rng_range(&e->rng, 1, e->p->read_max);
	struct iovec iov[2] = {{scratch, n}, {NULL, 0}};
	int flags = e->p->peek_ppm && rng_chance(&e->rng, e->p->peek_ppm) ? MSG_PEEK : 0;
	int parts = 1;
	ssize_t rc;

	if (n > 7 && rng_chance(&e->rng, 200000)) {
		iov[0].iov_len = n / 3;
		iov[1] = (struct iovec){scratch + n / 3, n - n / 3};
		parts = 2;
	}
	read_oob(e);
	rc = tcp_recv(e->c, iov, parts, flags, e->w->now);
	if (rc > (ssize_t)n)
		world_fail(e->w, "%s %u: tcp_recv(%u) = %zd", side(e), e->index, n, rc);
	if (rc == -EAGAIN) {
		e->read_blocked = true;
		return false;
	}
	world_say(e->w, "%s %u: recv(%u%s) = %zd", side(e), e->index, n, flags ? ", PEEK" : "", rc);
	if (rc < 0) {
		error(e, (int)-rc, "recv()");
		return false;
	}
	/*
	 * Behind an urgent byte that was only looked past the end is not the end: close() would
	 * find it unread.
	 */
	if (rc == 0 && flags)
		return true;
	if (rc == 0) {
		e->eof = true;
		return false;
	}
	verify(e, scratch, (uint32_t)rc);
	if (flags)
		return true;
	e->received += (uint32_t)rc;
	if (e->p->read_pause_ppm && rng_chance(&e->rng, e->p->read_pause_ppm))
		pause_for(e, &e->read_pause_until, rng_range(&e->rng, 1, e->p->read_pause_us));
	return true;
}

static void toggle(struct end *e)
{
	struct tcp_opts o = *tcp_get_opts(e->c);

	switch (rng_below(&e->rng, 5)) {
	case 0:
		o.nodelay = !o.nodelay;
		break;
	case 1:
		o.cork = !o.cork;
		break;
	case 2:
		o.quickack = !o.quickack;
		break;
	case 3:
		o.rcvbuf = o.rcvbuf_max = rng_log(&e->rng, 2304, 1u << 20);
		break;
	case 4:
		o.sndbuf = o.sndbuf_max = rng_log(&e->rng, 4608, 1u << 20);
		break;
	}
	tcp_set_opts(e->c, &o, e->w->now);
}

/* A corked last byte would wait 200 ms only, but an application uncorks before it waits. */
static void uncork(struct end *e)
{
	struct tcp_opts o = *tcp_get_opts(e->c);

	if (!o.cork)
		return;
	o.cork = false;
	tcp_set_opts(e->c, &o, e->w->now);
}

static void end_of_writing(struct end *e)
{
	int rc;

	uncork(e);
	if (e->p->ending == END_CLOSE || e->p->ending == END_WAIT) {
		close_now(e, false);
		return;
	}
	rc = tcp_shutdown(e->c, SHUT_WR, e->w->now);
	world_say(e->w, "%s %u: shutdown() = %d", side(e), e->index, rc);
	e->shut = true;
	if (rc)
		error(e, -rc, "shutdown()");
}

/* True: this turn is over. */
static bool over(struct end *e)
{
	if (!e->c || e->closed)
		return true;
	if (e->error || (e->eof && e->shut)) {
		close_now(e, false);
		return true;
	}
	if (e->p->ending == END_ABORT && e->sent + e->received >= e->p->abort_after) {
		close_now(e, true);
		return true;
	}
	return false;
}

void end_run(struct end *e)
{
	const struct world *w = e->w;
	bool active = e->host == 0 || w->p.conn[e->index].both_open;

	if (!e->opened && active && w->now - w->p.start >= e->p->start_us)
		end_start(e);
	for (unsigned calls = 0; !over(e); calls++) {
		bool write = e->sent < e->p->total && !e->write_blocked &&
			     w->now >= e->pause_until && e->connected;
		bool read = !e->eof && !e->read_blocked && w->now >= e->read_pause_until &&
			    e->connected;

		if (!e->connected && (e->events & TCP_EV_ERR)) {
			error(e, tcp_error(e->c), "SO_ERROR");
			if (!e->error)
				world_fail(w->host[0].w, "%s %u: EV_ERR without an error", side(e),
					   e->index);
			continue;
		}
		if (calls == CALLS_A_TURN && (write || read)) {
			world_at(e->w, w->now + 10, EVENT_END, e->host, e);
			return;
		}
		if (e->connected && e->p->opts_ppm && rng_chance(&e->rng, e->p->opts_ppm))
			toggle(e);
		if (write && !write_once(e))
			write = false;
		if (read && !e->error && !read_once(e))
			read = e->eof;
		if (e->connected && e->sent == e->p->total && !e->shut && !e->error &&
		    (e->p->ending != END_WAIT || e->eof))
			end_of_writing(e);
		else if (!write && !read && !e->error)
			return;
	}
}
