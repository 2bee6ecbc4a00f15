/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steering rules with a count of the sockets that want them. The stack's lock is held throughout.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "stack/stack.h"
#include "stack/port_claim.h"

static struct stack_flow **flow_slot(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow **p = &st->flows[ring_flow_hash(key) % STACK_FLOW_BUCKETS];

	while (*p && memcmp(&(*p)->key, key, sizeof(*key)) != 0)
		p = &(*p)->next;
	return p;
}

/*
 * Each segment of a TCP port: a listener's rule, of a ring that cannot leave the kernel its
 * connections' ones.
 */
static bool takes_port(const struct stack *st, const struct vma_flow_key *key)
{
	return st->ring->caps.takes_all && key->proto == IPPROTO_TCP && !key->remote_port;
}

static bool claim_port(struct stack_flow *f)
{
	f->port_claimed = port_claim_take(f->key.local_port);
	return f->port_claimed;
}

/* The rule is to wait for others to leave the port. */
static bool others_first(struct stack_flow *f)
{
	if (!claim_port(f))
		log_debug("TCP port %u is another process's on the card: connections come through "
			  "the kernel",
			  f->key.local_port);
	return !f->port_claimed || net_tcp_conns(f->key.local_port) != 0;
}

#define TRIAL_LOOKS 2

static void rule_end(struct stack *st, struct stack_flow *f)
{
	f->suspended = true;
	st->ring->ops->flow_del(st->ring, &f->key);
}

/* The ring gets the rule, if it takes it. 0 or negative errno. */
static int rule_begin(struct stack *st, struct stack_flow *f)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(),
				     .fd = (uint32_t)f->fd,
				     .flags = f->is_joint ? VMA_FLOW_JOINT : 0};
	int err = st->ring->ops->flow_add(st->ring, &f->key, &info);

	f->suspended = err != 0;
	if (err || !takes_port(st, &f->key))
		return err;
	f->trial = TRIAL_LOOKS;
	/* One that has come between: nobody lives on the rule yet. */
	if (net_tcp_conns(f->key.local_port) != 0)
		rule_end(st, f);
	return 0;
}

static void flow_free(struct stack_flow *f)
{
	if (f->port_claimed)
		port_claim_drop(f->key.local_port);
	free(f);
}

unsigned stack_flow_users(struct stack *st, const struct vma_flow_key *key)
{
	const struct stack_flow *f = *flow_slot(st, key);

	return f ? f->users : 0;
}

static int add(struct stack *st, const struct vma_flow_key *key, int fd, bool joint)
{
	struct stack_flow **slot = flow_slot(st, key), *f = *slot;
	int err = 0;

	if (f) {
		f->users++;
		return 0;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->key = *key;
	f->users = 1;
	f->is_joint = joint;
	f->fd = fd;
	f->suspended = takes_port(st, key) && others_first(f);
	if (!f->suspended)
		err = rule_begin(st, f);
	if (err) {
		flow_free(f);
		return err;
	}
	*slot = f;
	st->group_flows += ring_flow_of_group(key);
	return 0;
}

int stack_flow_add(struct stack *st, const struct vma_flow_key *key, int fd)
{
	return add(st, key, fd, false);
}

int stack_flow_join(struct stack *st, const struct vma_flow_key *key, int fd)
{
	return add(st, key, fd, true);
}

void stack_flow_del(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow **slot = flow_slot(st, key), *f = *slot;

	if (!f || --f->users)
		return;
	if (!f->suspended && atomic_load_explicit(&st->open, memory_order_relaxed))
		st->ring->ops->flow_del(st->ring, key);
	st->group_flows -= ring_flow_of_group(key);
	*slot = f->next;
	flow_free(f);
}

bool stack_flow_stands(struct stack *st, const struct vma_flow_key *key)
{
	const struct stack_flow *f = *flow_slot(st, key);

	return f && !f->suspended;
}

bool stack_flow_on_trial(struct stack *st, const struct vma_flow_key *key)
{
	const struct stack_flow *f = *flow_slot(st, key);

	return f && !f->suspended && f->trial;
}

bool stack_flow_tried(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow *f = *flow_slot(st, key);

	return f && !f->suspended && f->trial && f->trial--;
}

bool stack_flow_ours(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow *f = *flow_slot(st, key);

	return f && (f->port_claimed || claim_port(f));
}

void stack_flow_suspend(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow *f = *flow_slot(st, key);

	if (f)
		rule_end(st, f);
}

void stack_flow_resume(struct stack *st, const struct vma_flow_key *key)
{
	struct stack_flow *f = *flow_slot(st, key);

	if (f)
		(void)rule_begin(st, f);
}

void stack_flows_each(struct stack *st,
		      void (*fn)(struct stack *st, const struct vma_flow_key *key, void *arg),
		      void *arg)
{
	for (unsigned i = 0; i < STACK_FLOW_BUCKETS; i++) {
		for (struct stack_flow *f = st->flows[i]; f; f = f->next)
			fn(st, &f->key, arg);
	}
}
