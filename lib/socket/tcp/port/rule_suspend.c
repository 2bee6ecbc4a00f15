/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A card's rule for a listener's port takes the segments of the kernel's connections as well
 * (ring_caps.takes_all). So while the kernel has one, which was offloaded first and handed over,
 * the rule is suspended: each connection that needs it gets a rule of its own, and new ones come by
 * the kernel's listener, from which accept() takes, too. It comes back when the kernel has none.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

struct local_side {
	struct stack *st;
	struct tcp_tuple at; /* the local side */
};

/* A connection's own. 0, also where it is there already, or negative errno. */
static int rule(struct stack *st, const struct tcp_tuple *t, int fd)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)fd};
	struct vma_flow_key key;
	int err;

	tcp_sock_key(t, true, &key);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	return err == -EALREADY ? 0 : err;
}

static bool same_side(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
	return a->lport == b->lport && !memcmp(&a->local, &b->local, sizeof(a->local));
}

static void keeps_no_rule(const struct tcp_tuple *t, int err)
{
	if (err != -EEXIST)
		log_warn("TCP port %u: a connection loses its steering rule: %s", t->lport,
			 strerror(-err));
}

static void own_rule(struct tcp_sock *s, void *arg)
{
	struct local_side *a = arg;
	int err;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != a->st || !s->c || !s->accepted ||
	    s->has_own_rule || !same_side(&s->tuple, &a->at))
		return;
	err = rule(a->st, &s->tuple, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	s->has_own_rule = !err;
	if (err)
		keeps_no_rule(&s->tuple, err);
}

int tcp_sock_unaccepted_rule(struct stack *st, const struct tcp_tuple *tuple)
{
	return rule(st, tuple, -1);
}

void tcp_sock_env_ended(void *ctx, const struct tcp_tuple *tuple)
{
	struct stack *st = ctx;
	struct vma_flow_key key;

	if (!atomic_load_explicit(&st->open, memory_order_relaxed))
		return;
	tcp_sock_key(tuple, true, &key);
	st->ring->ops->flow_del(st->ring, &key);
}

/* What has no socket yet. */
static bool unaccepted_rule(const struct tcp_tuple *tuple, void *arg)
{
	struct local_side *a = arg;
	int err;

	if (!same_side(tuple, &a->at))
		return false;
	err = rule(a->st, tuple, -1);
	if (err)
		keeps_no_rule(tuple, err);
	return !err;
}

void tcp_sock_rules_of_own(struct stack *st, const struct tcp_tuple *at)
{
	struct local_side a = {.st = st, .at = *at};

	tcp_sock_each(own_rule, &a);
	if (st->tcp)
		tcp_each_unaccepted(st->tcp->ts, unaccepted_rule, &a);
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

/*
 * A SYN to a port that a listener here shared and has left is another process's, or nobody's: the
 * client's next one gets the answer.
 *
 * While the rule is suspended, what the ring still brings of the port is the kernel's: a RST of
 * ours would end its connection, and a handshake that began here would go on there. While the rule
 * is on trial, a connection that we do not know may be the kernel's; new ones are ours.
 */
bool tcp_sock_env_kernels(void *ctx, const struct tcp_tuple *tuple, bool opens)
{
	struct stack *st = ctx;
	struct vma_flow_key key;
	bool late = opens && st->tcp->joint_left;

	if (!st->ring->caps.takes_all && !late)
		return false;
	tcp_sock_key(tuple, false, &key);
	if (!stack_flow_users(st, &key))
		return late;
	if (!st->ring->caps.takes_all)
		return false;
	return !stack_flow_stands(st, &key) || (!opens && stack_flow_on_trial(st, &key));
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
	if (t->st->ring->caps.takes_all)
		stack_flows_each(t->st, look, NULL);
}
