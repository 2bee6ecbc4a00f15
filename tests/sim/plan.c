/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a seed means. Every choice is drawn here, before the run; a run's own dice come from the
 * same seed.
 */
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define MS 1000u

static bool one_in(struct rng *r, uint32_t n)
{
	return rng_below(r, n) == 0;
}

/* How bad the wire is: 0 clean, 1 mild, 2 harsh. */
static void plan_wire(struct plan *p, struct rng *r, unsigned dir, unsigned harsh)
{
	struct wire_plan *w = &p->wire[dir];
	static const uint32_t most[3] = {0, 30000, 120000};

	w->delay_us = rng_log(r, 5, 200 * MS);
	w->jitter_us = one_in(r, 3) ? rng_log(r, 1, w->delay_us + 1) : 0;
	w->fifo = one_in(r, 2);
	if (harsh && one_in(r, 2))
		w->loss_ppm = rng_log(r, 100, most[harsh]);
	if (harsh && one_in(r, 4)) {
		w->burst_ppm = rng_log(r, 100, most[harsh] / 10);
		w->burst_len = rng_range(r, 2, 20);
	}
	if (harsh && one_in(r, 3)) {
		w->reorder_ppm = rng_log(r, 100, 200000);
		w->reorder_us = rng_log(r, 1, w->delay_us * 2);
	}
	if (harsh && one_in(r, 3))
		w->dup_ppm = rng_log(r, 100, 100000);
	if (harsh && one_in(r, 3))
		w->corrupt_ppm = rng_log(r, 100, most[harsh] / 2);
	if (one_in(r, 3)) {
		w->rate = rng_log(r, 50000, 1000000000);
		w->queue = rng_log(r, 5000, 1000000);
		w->mark = one_in(r, 2) ? w->queue / 3 : 0;
	}
	if (harsh && one_in(r, 6)) {
		w->dark_at = rng_log(r, 1, 5000 * MS);
		w->dark_us = rng_log(r, MS, 8000 * MS);
	}
	w->cut = one_in(r, 3);
	w->icmp = !one_in(r, 3);
}

static void plan_mtu(struct plan *p, struct rng *r)
{
	static const uint32_t sizes[] = {1500, 1500, 1500, 1500, 9000, 1280, 4000, 65535};
	uint32_t mtu = sizes[rng_below(r, 8)];

	if (p->family == AF_INET && one_in(r, 10))
		mtu = rng_range(r, 576, 1500);
	for (unsigned i = 0; i < 2; i++) {
		struct wire_plan *w = &p->wire[i];
		/*
		 * A black hole is found by time-outs: too many steps down, and who has closed gives
		 * up before.
		 */
		uint32_t least = p->family == AF_INET6 ? 1280
				 : w->icmp	       ? 576
				 : mtu > 1500	       ? 1500
						       : 1100;

		p->host[i].mtu = mtu;
		w->mtu[0] = mtu;
		if (!one_in(r, 6) || mtu <= least)
			continue;
		w->mtu[1] = rng_range(r, least, mtu);
		w->mtu_at[1] = rng_log(r, 1, 3000 * MS);
		w->mtu[2] = one_in(r, 2) ? rng_range(r, least, mtu) : 0;
		w->mtu_at[2] = w->mtu_at[1] + rng_log(r, 1, 3000 * MS);
	}
}

static void plan_host(struct plan *p, struct rng *r, unsigned i, unsigned harsh)
{
	struct host_plan *h = &p->host[i];

	h->max_gso = one_in(r, 2) ? 0 : rng_range(r, 3000, 65000);
	h->poll_us = one_in(r, 2) ? 0 : rng_log(r, 1, 2 * MS);
	h->timer_late_us = one_in(r, 2) ? 0 : rng_log(r, 1, 10 * MS);
	h->chunk = one_in(r, 4) ? rng_range(r, 100, 4000) : 3840;
	if (!harsh)
		return;
	if (one_in(r, 12))
		h->alloc_fail_ppm = rng_log(r, 100, 50000);
	if (one_in(r, 8))
		h->enobufs_ppm = rng_log(r, 100, 100000);
	if (one_in(r, 12))
		h->senderr_ppm = rng_log(r, 100, 50000);
	h->unreach = one_in(r, 12);
}

static void plan_opts(struct rng *r, struct tcp_opts *o)
{
	tcp_opts_default(o);
	o->timestamps = !one_in(r, 4);
	o->sack = !one_in(r, 4);
	o->wscale = !one_in(r, 5);
	o->ecn = one_in(r, 4);
	o->nodelay = one_in(r, 3);
	o->cork = one_in(r, 12);
	o->quickack = !one_in(r, 4);
	o->oobinline = !one_in(r, 3);
	o->cc = one_in(r, 3)	? TCP_CC_NEWRENO
		: one_in(r, 12) ? TCP_CC_NONE
		: one_in(r, 3)	? TCP_CC_BBR
				: TCP_CC_CUBIC;
	if (one_in(r, 3))
		o->rcvbuf = o->rcvbuf_max = rng_log(r, 2304, 1u << 20);
	if (one_in(r, 3))
		o->sndbuf = o->sndbuf_max = rng_log(r, 4608, 1u << 20);
	if (one_in(r, 10))
		o->maxseg = (uint16_t)rng_range(r, 88, 2000);
	if (one_in(r, 10))
		o->window_clamp = rng_log(r, 1000, 200000);
	if (one_in(r, 10))
		o->pacing_rate = rng_log(r, 20000, 100000000);
	if (one_in(r, 10))
		o->notsent_lowat = rng_log(r, 1000, 200000);
	if (one_in(r, 8)) {
		o->keepalive = true;
		o->keepidle_s = rng_range(r, 2, 60);
		o->keepintvl_s = rng_range(r, 2, 30);
	}
}

static void plan_end(struct rng *r, struct end_plan *e, uint32_t most)
{
	plan_opts(r, &e->o);
	e->total = one_in(r, 6) ? 0 : rng_log(r, 1, most);
	e->key = rng_below(r, 65521);
	e->oob_at = UINT32_MAX;
	e->write_max = rng_log(r, 1, 1u << 17);
	e->read_max = rng_log(r, 1, 1u << 17);
	/* Many small calls cost much and show little. */
	if (e->write_max < e->total / 2000)
		e->write_max = e->total / 2000;
	if (e->read_max < most / 2000)
		e->read_max = most / 2000;
	if (one_in(r, 4)) {
		e->pause_ppm = rng_log(r, 100, 300000);
		e->pause_us = rng_log(r, 10, 3000 * MS);
	}
	if (one_in(r, 4)) {
		e->read_pause_ppm = rng_log(r, 100, 300000);
		e->read_pause_us = rng_log(r, 10, 10000 * MS);
		/*
		 * The window must open before a sender that has closed gives up probing (two
		 * minutes).
		 */
		while ((uint64_t)e->o.rcvbuf / e->read_max * e->read_pause_ppm / 1000000 *
			       e->read_pause_us >
		       30 * US_PER_S)
			e->read_pause_us /= 2;
	}
	if (one_in(r, 10))
		e->more_ppm = 300000;
	if (one_in(r, 10))
		e->opts_ppm = rng_log(r, 1000, 100000);
	if (one_in(r, 10))
		e->peek_ppm = 200000;
	if (e->total && one_in(r, 12))
		e->oob_at = rng_below(r, e->total);
}

static void plan_endings(struct plan *p, struct rng *r, struct conn_plan *c)
{
	unsigned first = rng_below(r, 2);

	c->end[0].ending = c->end[1].ending = END_SHUTDOWN;
	switch (rng_below(r, 10)) {
	case 0:
	case 1:
	case 2:
		c->end[first].ending = END_WAIT;
		break;
	case 3:
	case 4:
		/* Whoever closes at once has read nothing: legal only when nothing comes. */
		c->end[first].ending = END_CLOSE;
		c->end[!first].total = 0;
		c->end[!first].oob_at = UINT32_MAX;
		break;
	case 5:
		if (one_in(r, 2))
			break;
		c->end[first].ending = one_in(r, 2) ? END_CLOSE : END_ABORT;
		c->end[first].abort_after = rng_below(r, c->end[0].total + c->end[1].total + 1);
		p->explains |= MAY_RESET | MAY_STALL;
		break;
	}
}

/*
 * With SYN cookies the first segment that arrives must be the one behind the SYN, or it is reset
 * (as in Linux); and of a connection that is over nothing tells that an ACK of it is old.
 */
static void plan_cookies(struct plan *p)
{
	const struct wire_plan *w = &p->wire[0];

	if (p->backlog > (int)p->conns && !p->flood)
		return;
	p->explains |= MAY_REPEAT;
	/* It does not arrive, or too late, or finds the accept queue full. */
	if (w->loss_ppm || w->burst_ppm || w->corrupt_ppm || w->reorder_ppm || w->dark_us ||
	    w->rate || w->mtu[1] || (w->jitter_us && !w->fifo) || p->host[0].senderr_ppm ||
	    p->host[0].enobufs_ppm || p->host[1].alloc_fail_ppm || (int)p->conns > p->backlog + 1)
		p->explains |= MAY_RESET | MAY_STALL;
}

static void plan_specials(struct plan *p, struct rng *r, unsigned harsh)
{
	if (one_in(r, 12)) {
		p->flood = rng_range(r, 1, 200);
		p->backlog = (int)rng_range(r, 1, 16);
		/*
		 * A cookie whose ACK is lost is known to the client alone: it must be the one that
		 * speaks.
		 */
		for (unsigned i = 0; i < p->conns; i++) {
			p->conn[i].end[0].total += p->conn[i].end[0].total == 0;
			p->conn[i].end[0].start_us += 1000;
			p->conn[i].end[0].pause_ppm = 0;
			if (p->conn[i].end[1].ending == END_CLOSE)
				p->conn[i].end[1].ending = END_SHUTDOWN;
			if (p->conn[i].end[0].ending == END_WAIT && p->conn[i].end[0].total < 2)
				p->conn[i].end[0].ending = END_SHUTDOWN;
		}
	} else if (p->conns == 1 && one_in(r, 10)) {
		p->conn[0].both_open = true;
		/* Fatal in SYN-RECEIVED too. */
		p->host[0].unreach = p->host[1].unreach = false;
		p->conn[0].end[0].start_us = 0;
		p->conn[0].end[1].start_us = rng_below(r, 6);
	}
	if (one_in(r, 60)) {
		uint64_t at = rng_log(r, 1, 3000 * MS);

		p->explains |= MAY_TIMEOUT | MAY_STALL | MAY_RESET;
		p->wire[0].dark_at = p->wire[1].dark_at = at;
		p->wire[0].dark_us = p->wire[1].dark_us = UINT64_MAX;
	}
	if (one_in(r, 60)) {
		p->close_listener_at = rng_log(r, 1, 1000 * MS);
		p->explains |= MAY_RESET | MAY_STALL;
	}
	if (harsh == 2 && one_in(r, 10)) {
		p->conn[0].end[rng_below(r, 2)].o.user_timeout_ms = rng_range(r, 500, 60000);
		p->explains |= MAY_TIMEOUT | MAY_RESET | MAY_STALL;
	}
}

void plan_make(struct plan *p, uint64_t seed)
{
	struct rng r = {seed};
	unsigned harsh;

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	p->start = 1 + (rng_next(&r) >> 24);
	p->family = one_in(&r, 3) ? AF_INET6 : AF_INET;
	p->conns = one_in(&r, 8) ? rng_range(&r, 2, MAX_CONNS) : 1;
	p->backlog = one_in(&r, 4) ? (int)rng_range(&r, 0, 4) : 128;
	p->deadline = 24 * 3600 * US_PER_S;
	harsh = one_in(&r, 6) ? 0 : one_in(&r, 3) ? 2 : 1;
	tcp_cfg_default(&p->cfg);
	for (unsigned i = 0; i < 4; i++)
		p->cfg.secret[i] = rng_next(&r);
	for (unsigned i = 0; i < 2; i++) {
		plan_wire(p, &r, i, harsh);
		plan_host(p, &r, i, harsh);
	}
	plan_mtu(p, &r);
	if (p->seed % 4 == 0) /* tcp_mtu_probing */
		p->cfg.mtu_probing = 1 + (uint32_t)(p->seed / 4 % 2);
	for (unsigned i = 0; i < p->conns; i++) {
		for (unsigned side = 0; side < 2; side++)
			plan_end(&r, &p->conn[i].end[side],
				 one_in(&r, 25)	 ? 3000000
				 : one_in(&r, 4) ? 300000
						 : 30000);
		p->conn[i].end[0].start_us = rng_below(&r, 1000 * MS);
		plan_endings(p, &r, &p->conn[i]);
	}
	p->conn[0].end[1].start_us = one_in(&r, 5) ? rng_log(&r, 1, 3000 * MS) : 0;
	plan_specials(p, &r, harsh);
	plan_cookies(p);
	/* Last, so that a seed of former days makes the rest of what it made. */
	for (unsigned i = 0; i < 2; i++)
		if (harsh && one_in(&r, 6))
			p->wire[i].shrink_ppm = rng_log(&r, 100, 500000);
}

void plan_print(const struct plan *p)
{
	static const char *const endings[] = {"shutdown", "wait", "close", "abort"};

	printf("  IPv%u, %u connection(s), backlog %d, flood %u%s, mtu %u, explains %x\n",
	       p->family == AF_INET ? 4 : 6, p->conns, p->backlog, p->flood,
	       p->conn[0].both_open ? ", simultaneous open" : "", p->host[0].mtu, p->explains);
	for (unsigned i = 0; i < 2; i++) {
		const struct wire_plan *w = &p->wire[i];
		const struct host_plan *h = &p->host[i];

		printf("  %c loss %u burst %u*%u reorder %u*%u us dup %u corrupt %u shrink %u ppm, "
		       "delay "
		       "%u+%u us%s, rate %llu queue %u "
		       "mark %u, mtu %u at %llu us, %u at %llu us%s, dark %lld+%lld us%s\n"
		       "    gso %u poll %u us late %u us chunk %u alloc-fail %u enobufs %u senderr "
		       "%u ppm%s\n",
		       i ? '<' : '>', w->loss_ppm, w->burst_ppm, w->burst_len, w->reorder_ppm,
		       w->reorder_us, w->dup_ppm, w->corrupt_ppm, w->shrink_ppm, w->delay_us,
		       w->jitter_us, w->fifo ? " fifo" : "", (unsigned long long)w->rate, w->queue,
		       w->mark, w->mtu[1], (unsigned long long)w->mtu_at[1], w->mtu[2],
		       (unsigned long long)w->mtu_at[2], w->icmp ? " icmp" : "",
		       (long long)w->dark_at, (long long)w->dark_us, w->cut ? " cut" : "",
		       h->max_gso, h->poll_us, h->timer_late_us, h->chunk, h->alloc_fail_ppm,
		       h->enobufs_ppm, h->senderr_ppm, h->unreach ? " unreach" : "");
	}
	for (unsigned i = 0; i < 2 * p->conns; i++) {
		const struct end_plan *e = &p->conn[i / 2].end[i % 2];

		printf("  %s %u: %u bytes, %s, start %llu us, write %u read %u, pause %u*%u us, "
		       "read pause %u*%u us, "
		       "sndbuf %u rcvbuf %u%s%s%s%s%s%s%s cc %u maxseg %u oob %d\n",
		       i % 2 ? "server" : "client", i / 2, e->total, endings[e->ending],
		       (unsigned long long)e->start_us, e->write_max, e->read_max, e->pause_ppm,
		       e->pause_us, e->read_pause_ppm, e->read_pause_us, e->o.sndbuf, e->o.rcvbuf,
		       e->o.timestamps ? " ts" : "", e->o.sack ? " sack" : "",
		       e->o.wscale ? " wscale" : "", e->o.ecn ? " ecn" : "",
		       e->o.nodelay ? " nodelay" : "", e->o.cork ? " cork" : "",
		       e->opts_ppm ? " toggles" : "", e->o.cc, e->o.maxseg, (int)e->oob_at);
	}
}
