/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A card's rule for a listener's port takes the segments of the kernel's connections as well
 * (ring_caps.takes_all). So while the kernel has one, which was offloaded first and handed over,
 * the rule is suspended: each connection that needs it gets a rule of its own, and new ones come by
 * the kernel's listener, from which accept() takes, too. It comes back when the kernel has none.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

/* A connection that nobody has accepted, and its rule. */
struct tcp_sock_unaccepted {
	struct tcp_sock_unaccepted *next;
	struct tcp_tuple tuple;
};

struct local_side {
	struct stack *st;
	struct tcp_tuple at; /* the local side */
};

/* A connection's own. False: it was there, or cannot be. */
static bool rule(struct stack *st, const struct tcp_tuple *t, int fd)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)fd};
	struct vma_flow_key key;
	int err;

	tcp_sock_key(t, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	if (err && err != -EEXIST)
		log_warn("TCP port %u: a connection loses its steering rule: %s", t->lport,
			 strerror(-err));
	return !err;
}

static void unrule(struct stack *st, const struct tcp_tuple *t)
{
	struct vma_flow_key key;

	tcp_sock_key(t, true, &key);
	st->ring->ops->flow_del(st->ring, &key);
}

static bool same_side(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
	return a->lport == b->lport && !memcmp(&a->local, &b->local, sizeof(a->local));
}

static void own_rule(struct tcp_sock *s, void *arg)
{
	struct local_side *a = arg;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != a->st || !s->accepted ||
	    s->has_own_rule || !s->c || !same_side(&s->tuple, &a->at))
		return;
	s->has_own_rule =
		rule(a->st, &s->tuple, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
}

void tcp_sock_unaccepted_rule(struct stack *st, const struct tcp_tuple *tuple)
{
	struct tcp_sock_stack *t = st->tcp;
	struct tcp_sock_unaccepted *l;

	if (!rule(st, tuple, -1))
		return;
	l = malloc(sizeof(*l));
	if (!l) {
		unrule(st, tuple);
		return;
	}
	l->tuple = *tuple;
	l->next = t->unaccepted;
	t->unaccepted = l;
}

/* What has no socket yet. */
static void unaccepted_rule(const struct tcp_tuple *tuple, void *arg)
{
	struct local_side *a = arg;

	if (same_side(tuple, &a->at))
		tcp_sock_unaccepted_rule(a->st, tuple);
}

void tcp_sock_rules_of_own(struct stack *st, const struct tcp_tuple *at)
{
	struct local_side a = {.st = st, .at = *at};

	tcp_sock_each(own_rule, &a);
	if (st->tcp)
		tcp_each_tuple(st->tcp->ts, unaccepted_rule, &a);
}

static void suspend_rule(struct stack *st, const struct vma_flow_key *key,
			 const struct tcp_tuple *at)
{
	if (!st->ring->caps.takes_all || !stack_flow_stands(st, key))
		return;
	tcp_sock_rules_of_own(st, at);
	stack_flow_suspend(st, key);
	log_debug("TCP port %u: the kernel has a connection of it, and gets the next ones",
		  at->lport);
}

void tcp_sock_suspend_rule(const struct tcp_tuple *at, struct stack *st)
{
	struct vma_flow_key key;

	if (tcp_sock_blocks_deferred())
		return;
	tcp_sock_key(at, false, &key);
	suspend_rule(st, &key, at);
}

static void suspend_for_kernel(struct stack *st, const struct vma_flow_key *key, void *arg)
{
	struct tcp_tuple at = {.lport = key->local_port};

	(void)arg;
	if (key->proto != IPPROTO_TCP || !st->ring->caps.takes_all ||
	    net_tcp_conns(key->local_port) == 0)
		return;
	memcpy(&at.local, key->local.byte, sizeof(at.local));
	suspend_rule(st, key, &at);
}

void tcp_sock_suspend_rules(struct stack *st, void *arg)
{
	stack_flows_each(st, suspend_for_kernel, arg);
}

/* Where the entry of tuple is linked; of NULL: there is none. */
static struct tcp_sock_unaccepted **find(struct tcp_sock_stack *t, const struct tcp_tuple *tuple)
{
	struct tcp_sock_unaccepted **p = &t->unaccepted;

	while (*p && (!same_side(&(*p)->tuple, tuple) || (*p)->tuple.rport != tuple->rport ||
		      memcmp(&(*p)->tuple.remote, &tuple->remote, 16) != 0))
		p = &(*p)->next;
	return p;
}

bool tcp_sock_unaccepted_has(struct tcp_sock_stack *t, const struct tcp_tuple *tuple)
{
	return *find(t, tuple) != NULL;
}

bool tcp_sock_unaccepted_take(struct tcp_sock_stack *t, const struct tcp_tuple *tuple)
{
	struct tcp_sock_unaccepted **p = find(t, tuple), *l = *p;

	if (!l)
		return false;
	*p = l->next;
	free(l);
	return true;
}

/*
 * While the rule is suspended, what the ring still brings of the port is the kernel's: a RST of
 * ours would end its connection, and a handshake that began here would go on there. While the rule
 * is on trial, a connection that we do not know may be the kernel's; new ones are ours.
 */
bool tcp_sock_env_kernels(void *ctx, const struct tcp_tuple *tuple, bool opens)
{
	struct stack *st = ctx;
	struct vma_flow_key key;

	if (!st->ring->caps.takes_all)
		return false;
	tcp_sock_key(tuple, false, &key);
	if (stack_flow_stands(st, &key))
		return !opens && stack_flow_on_trial(st, &key);
	return stack_flow_users(st, &key) > 0;
}

static void look(struct stack *st, const struct vma_flow_key *key, void *arg)
{
	if (key->proto != IPPROTO_TCP)
		return;
	if (stack_flow_tried(st, key))
		suspend_for_kernel(st, key, arg);
	else if (!stack_flow_stands(st, key) && stack_flow_ours(st, key) &&
		 net_tcp_conns(key->local_port) == 0)
		stack_flow_resume(st, key);
}

void tcp_sock_suspended_check(struct tcp_sock_stack *t)
{
	struct tcp_sock_unaccepted **p = &t->unaccepted, *l;

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
		stack_flows_each(t->st, look, NULL);
}

void tcp_sock_unaccepted_free(struct tcp_sock_stack *t)
{
	while (t->unaccepted) {
		struct tcp_sock_unaccepted *l = t->unaccepted;

		t->unaccepted = l->next;
		free(l);
	}
}
