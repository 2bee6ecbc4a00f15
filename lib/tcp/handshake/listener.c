/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Listeners: which one a segment is for, their backlog, their accept queue. */
#include "tcp/internal.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

static struct tcp_listener **bucket_of(struct tcp_stack *ts, uint16_t port)
{
	return &ts->listeners[port % TCP_LISTEN_BUCKETS];
}

static bool is_any(const struct in6_addr *a)
{
	static const struct in6_addr v4_any = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	return IN6_IS_ADDR_UNSPECIFIED(a) || !memcmp(a, &v4_any, sizeof(*a));
}

/* A segment with this tuple may be l's. */
static bool fits(const struct tcp_listener *l, const struct tcp_tuple *tuple)
{
	const struct tcp_listen_spec *s = &l->spec;

	return s->port == tuple->lport &&
	       (s->family == tuple->family || (s->family == AF_INET6 && !s->v6only)) &&
	       (is_any(&s->local) || !memcmp(&s->local, &tuple->local, sizeof(s->local)));
}

/* Linux: compute_score(). The local address is looked at before. */
static int score(const struct tcp_listener *l, const struct tcp_tuple *tuple)
{
	return (l->spec.on_device ? 2 : 1) + (l->spec.family == tuple->family && !l->spec.mapped);
}

/* SO_REUSEPORT's groups are of one family, address and device (inet_reuseport_add_sock()). */
static bool same_group(const struct tcp_listener *a, const struct tcp_listener *b)
{
	return b->spec.reuseport && !b->stopped && a->spec.port == b->spec.port &&
	       a->spec.family == b->spec.family && a->spec.mapped == b->spec.mapped &&
	       a->spec.v6only == b->spec.v6only && a->spec.on_device == b->spec.on_device &&
	       !memcmp(&a->spec.local, &b->spec.local, sizeof(a->spec.local));
}

/* The member of l's group that gets a connection: all its segments find the same one. */
static struct tcp_listener *member(struct tcp_stack *ts, struct tcp_listener *l,
				   const struct tcp_tuple *tuple)
{
	struct tcp_listener *chain = *bucket_of(ts, tuple->lport), *one;
	unsigned n = 0, pick;

	for (one = chain; one; one = one->next)
		n += same_group(l, one);
	if (n < 2)
		return l;
	pick = (unsigned)(siphash(ts->cfg.secret, tuple, sizeof(*tuple)) % n);
	for (one = chain; one; one = one->next)
		if (same_group(l, one) && !pick--)
			return one;
	return l;
}

/* Of those that listen on any address, or of the others. */
static struct tcp_listener *best_bound(struct tcp_stack *ts, const struct tcp_tuple *tuple,
				       bool any)
{
	struct tcp_listener *best = NULL;
	int high = 0;

	for (struct tcp_listener *l = *bucket_of(ts, tuple->lport); l; l = l->next) {
		if (l->stopped || !fits(l, tuple) || is_any(&l->spec.local) != any ||
		    score(l, tuple) <= high)
			continue;
		if (l->spec.reuseport)
			return member(ts, l, tuple);
		best = l;
		high = score(l, tuple);
	}
	return best;
}

/* Answers to its cookies may still come; what else comes is not answered. */
static struct tcp_listener *stopped(struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	struct tcp_listener *l = *bucket_of(ts, tuple->lport);

	while (l && !(l->stopped && fits(l, tuple)))
		l = l->next;
	return l;
}

struct tcp_listener *tcp_listener_find(struct tcp_stack *ts, const struct tcp_tuple *tuple)
{
	struct tcp_listener *l = best_bound(ts, tuple, false);

	if (!l)
		l = best_bound(ts, tuple, true);
	return l ? l : stopped(ts, tuple);
}

static bool taken(struct tcp_stack *ts, const struct tcp_listen_spec *spec)
{
	for (struct tcp_listener *l = *bucket_of(ts, spec->port); l; l = l->next)
		if (!l->stopped && l->spec.port == spec->port && l->spec.family == spec->family &&
		    !memcmp(&l->spec.local, &spec->local, sizeof(spec->local)) &&
		    !(l->spec.reuseport && spec->reuseport))
			return true;
	return false;
}

int tcp_listen(struct tcp_stack *ts, const struct tcp_listen_spec *spec,
	       const struct tcp_opts *opts, void *user, struct tcp_listener **out)
{
	struct tcp_listener **list = bucket_of(ts, spec->port), *l;

	if (taken(ts, spec))
		return -EADDRINUSE;
	l = tcp_alloc(ts, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->ts = ts;
	l->user = user;
	l->spec = *spec;
	l->o = *opts;
	l->reqs_tail = &l->reqs;
	l->accept_tail = &l->accept_head;
	l->fo_reset_tail = &l->fo_reset;
	tcp_listen_backlog(l, spec->backlog);
	/* Linux: __inet_hash(). Among equals the last one goes first, but for these. */
	while ((spec->family == AF_INET6 || spec->mapped) && spec->reuseport && *list)
		list = &(*list)->next;
	l->next = *list;
	if (l->next)
		l->next->pprev = &l->next;
	l->pprev = list;
	*list = l;
	*out = l;
	return 0;
}

void tcp_listen_backlog(struct tcp_listener *l, int backlog)
{
	/* A negative one is a large one, as in the kernel, which compares unsigned. */
	l->spec.backlog = backlog < 0 ? INT_MAX : backlog;
}

void tcp_listen_stop(struct tcp_listener *l)
{
	l->stopped = true;
}

void tcp_listen_opts(struct tcp_listener *l, const struct tcp_opts *opts)
{
	l->o = *opts;
}

void tcp_listen_fast_open(struct tcp_listener *l, const struct tcp_fast_open_server *fo)
{
	l->fast_open = *fo;
}

static struct tcp_conn *pop(struct tcp_listener *l)
{
	struct tcp_conn *c = l->accept_head;

	if (!c)
		return NULL;
	l->accept_head = c->next;
	if (!l->accept_head)
		l->accept_tail = &l->accept_head;
	l->num_accept--;
	c->next = NULL;
	c->l = NULL;
	return c;
}

struct tcp_conn *tcp_accept(struct tcp_listener *l)
{
	struct tcp_conn *c = pop(l);

	if (c)
		tcp_conn_link(c);
	return c;
}

const struct tcp_conn *tcp_accept_first(const struct tcp_listener *l)
{
	return l->accept_head;
}

static void each_of(struct tcp_listener *l, bool (*fn)(const struct tcp_tuple *tuple, void *arg),
		    void *arg)
{
	for (struct tcp_req *r = l->reqs; r; r = r->next) {
		if (!r->node.tells_end)
			r->node.tells_end = fn(&r->node.tuple, arg);
	}
	for (struct tcp_conn *c = l->accept_head; c; c = c->next) {
		if (!c->node.tells_end && !c->closing)
			c->node.tells_end = fn(&c->node.tuple, arg);
	}
}

void tcp_each_unaccepted(struct tcp_stack *ts, bool (*fn)(const struct tcp_tuple *tuple, void *arg),
			 void *arg)
{
	for (unsigned i = 0; i < TCP_LISTEN_BUCKETS; i++) {
		for (struct tcp_listener *l = ts->listeners[i]; l; l = l->next)
			each_of(l, fn, arg);
	}
}

unsigned tcp_accept_queued(const struct tcp_listener *l)
{
	return l->num_accept;
}

unsigned tcp_listen_requests(const struct tcp_listener *l)
{
	return l->num_reqs;
}

void tcp_listen_close(struct tcp_listener *l, uint64_t now)
{
	struct tcp_stack *ts = l->ts;
	struct tcp_conn *c;

	ts->now = now;
	while (l->reqs)
		tcp_req_free(l->reqs);
	while ((c = pop(l)))
		tcp_abort(c, now);
	tcp_fast_open_unlisten(l);
	if (l->next)
		l->next->pprev = l->pprev;
	*l->pprev = l->next;
	tcp_free(ts, l, sizeof(*l));
}
