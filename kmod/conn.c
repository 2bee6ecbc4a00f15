// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of registered flows: one entry for a flow of a network namespace, whoever registered
 * it.
 */
#include <linux/slab.h>

#include "vma.h"

static struct rhashtable conns;

/* The hash is keyed with a secret of the table's: strangers choose addresses. */
static const struct rhashtable_params params = {
	.key_len = sizeof(struct vma_conn_key),
	.key_offset = offsetof(struct vma_conn, key),
	.head_offset = offsetof(struct vma_conn, node),
	.automatic_shrinking = true,
};

int vma_conn_init(void)
{
	/* Hashed as bytes. */
	BUILD_BUG_ON(sizeof(struct vma_flow_key) + sizeof(void *) != sizeof(struct vma_conn_key));
	return rhashtable_init(&conns, &params);
}

/* No registration is left. */
void vma_conn_exit(void)
{
	rcu_barrier();
	rhashtable_destroy(&conns);
}

/**
 * vma_conn_add - enters a flow
 * @sk: passed vma_owner_check(); a reference is taken
 * @key: the flow
 * @flags: VMA_KMOD_CONN_*, VMA_CONN_UNFILTERED
 * @by_net_raw: vma_owner_check() said -EPERM, CAP_NET_RAW helped
 * @session: whose it is
 * @slot: its slot there
 *
 * Return: the entry, which the caller owns until vma_conn_free(), or -EADDRINUSE, -ENOMEM, -E2BIG.
 */
struct vma_conn *vma_conn_add(struct sock *sk, const struct vma_flow_key *key, u32 flags,
			      bool by_net_raw, struct vma_session *session, u32 slot)
{
	struct vma_conn *c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	int err;

	if (!c)
		return ERR_PTR(-ENOMEM);
	c->key.flow = *key;
	c->key.net = sock_net(sk);
	c->flags = flags;
	c->by_net_raw = by_net_raw;
	c->session = session;
	c->slot = slot;
	c->sk = sk;
	sock_hold(sk);
	err = vma_kernel_has(c->key.net, key, sk->sk_bound_dev_if)
		      ? -EADDRINUSE
		      : rhashtable_lookup_insert_fast(&conns, &c->node, params);
	if (err) {
		sock_put(sk);
		kfree(c);
		return ERR_PTR(err == -EEXIST ? -EADDRINUSE : err);
	}
	vma_total_add(VMA_TOTAL_CONNS, 1);
	vma_total_add(VMA_TOTAL_CONNS_SEEN, 1);
	return c;
}

/* From now on nobody finds it; who has may look at it until a grace period is over. Once. */
void vma_conn_unhash(struct vma_conn *c)
{
	rhashtable_remove_fast(&conns, &c->node, params);
	vma_total_add(VMA_TOTAL_CONNS, -1);
}

static void conn_free_rcu(struct rcu_head *head)
{
	struct vma_conn *c = container_of(head, struct vma_conn, rcu);

	sock_put(c->sk);
	kfree(c);
}

/* Unhashed before. */
void vma_conn_free(struct vma_conn *c)
{
	call_rcu(&c->rcu, conn_free_rcu);
}

/**
 * vma_conn_find - the registration of a packet's flow: with this remote side, else with any
 * @net: the packet's namespace
 * @key: the packet's addresses; local is its destination
 *
 * Context: RCU read side; the answer is good until its end.
 * Return: NULL if there is none.
 */
struct vma_conn *vma_conn_find(struct net *net, const struct vma_flow_key *key)
{
	struct vma_conn_key k = {.flow = *key, .net = net};
	struct vma_conn *c = rhashtable_lookup(&conns, &k, params);

	if (c || key->proto != IPPROTO_UDP)
		return c;
	memset(&k.flow.remote, 0, sizeof(k.flow.remote));
	k.flow.remote_port = 0;
	return rhashtable_lookup(&conns, &k, params);
}
