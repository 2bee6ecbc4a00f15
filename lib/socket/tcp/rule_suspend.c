/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A card's rule for a listener's port takes the segments of the kernel's connections as well (ring_caps.takes_all). So while the
 * kernel has one, which came here first and went home, the rule steps aside: whoever lives on it gets a rule of his own, and who
 * connects is accepted by the kernel's listener, from which accept() takes besides. It comes back when the kernel has none.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/log.h"
#include "socket/tcp_int.h"

/* A connection that nobody has accepted, and its rule. */
struct tsock_loose {
	struct tsock_loose *next;
	struct tcp_tuple tuple;
};

struct aside {
	struct stack *st;
	struct tcp_tuple at; /* the local side */
};

/* A connection's own. False: it was there, or cannot be. */
static bool rule(struct stack *st, const struct tcp_tuple *t, int fd)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)fd};
	struct vma_flow_key key;
	int err;

	tsock_key(t, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	if (err && err != -EEXIST)
		log_warn("TCP port %u: a connection loses its steering rule: %s", t->lport, strerror(-err));
	return !err;
}

static void unrule(struct stack *st, const struct tcp_tuple *t)
{
	struct vma_flow_key key;

	tsock_key(t, true, &key);
	st->ring->ops->flow_del(st->ring, &key);
}

static bool same_side(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
	return a->lport == b->lport && !memcmp(&a->local, &b->local, sizeof(a->local));
}

static void own_rule(struct tsock *s, void *arg)
{
	struct aside *a = arg;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != a->st || !s->accepted || s->own_rule || !s->c ||
	    !same_side(&s->tuple, &a->at))
		return;
	s->own_rule = rule(a->st, &s->tuple, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
}

/* What has no socket yet. */
static void loose_rule(const struct tcp_tuple *tuple, void *arg)
{
	struct aside *a = arg;
	struct tsock_stack *t = a->st->tcp;
	struct tsock_loose *l;

	if (!same_side(tuple, &a->at) || !rule(a->st, tuple, -1))
		return;
	l = malloc(sizeof(*l));
	if (!l) {
		unrule(a->st, tuple);
		return;
	}
	l->tuple = *tuple;
	l->next = t->loose;
	t->loose = l;
}

void tsock_rules_of_own(struct stack *st, const struct tcp_tuple *at)
{
	struct aside a = {.st = st, .at = *at};

	tsock_each(own_rule, &a);
	if (st->tcp)
		tcp_each_tuple(st->tcp->ts, loose_rule, &a);
}

static void step_aside(struct stack *st, const struct vma_flow_key *key, const struct tcp_tuple *at)
{
	if (!st->ring->caps.takes_all || !stack_flow_stands(st, key))
		return;
	tsock_rules_of_own(st, at);
	stack_flow_aside(st, key);
	log_debug("TCP port %u: the kernel has a connection of it, and gets the next ones", at->lport);
}

void tsock_step_aside(const struct tcp_tuple *at, struct stack *st)
{
	struct vma_flow_key key;

	if (tsock_blocks_deferred())
		return;
	tsock_key(at, false, &key);
	step_aside(st, &key, at);
}

static void aside_for_kernel(struct stack *st, const struct vma_flow_key *key, void *arg)
{
	struct tcp_tuple at = {.lport = key->local_port};

	(void)arg;
	if (key->proto != IPPROTO_TCP || !st->ring->caps.takes_all || net_tcp_conns(key->local_port) == 0)
		return;
	memcpy(&at.local, key->local.byte, sizeof(at.local));
	step_aside(st, key, &at);
}

void tsock_all_aside(struct stack *st, void *arg)
{
	stack_flows_each(st, aside_for_kernel, arg);
}

bool tsock_loose_taken(struct tsock_stack *t, const struct tcp_tuple *tuple)
{
	for (struct tsock_loose **p = &t->loose, *l; (l = *p); p = &l->next) {
		if (!same_side(&l->tuple, tuple) || l->tuple.rport != tuple->rport || memcmp(&l->tuple.remote, &tuple->remote, 16))
			continue;
		*p = l->next;
		free(l);
		return true;
	}
	return false;
}

static void back(struct stack *st, const struct vma_flow_key *key, void *arg)
{
	(void)arg;
	if (key->proto != IPPROTO_TCP || stack_flow_stands(st, key) || !stack_flow_ours(st, key) || net_tcp_conns(key->local_port) != 0)
		return;
	stack_flow_back(st, key);
	/* One that has come in between: the rule, on which nobody lives yet, goes again. */
	if (stack_flow_stands(st, key) && net_tcp_conns(key->local_port) != 0)
		stack_flow_aside(st, key);
}

void tsock_asides_look(struct tsock_stack *t)
{
	struct tsock_loose **p = &t->loose, *l;

	while ((l = *p)) {
		if (tcp_tuple_used(t->ts, &l->tuple)) {
			p = &l->next;
			continue;
		}
		unrule(t->st, &l->tuple);
		*p = l->next;
		free(l);
	}
	if (t->st->ring->caps.takes_all)
		stack_flows_each(t->st, back, NULL);
}

void tsock_loose_free(struct tsock_stack *t)
{
	while (t->loose) {
		struct tsock_loose *l = t->loose;

		t->loose = l->next;
		free(l);
	}
}
