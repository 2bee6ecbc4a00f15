// SPDX-License-Identifier: GPL-2.0-only
/*
 * What belongs to a network namespace: the dead connections' queue, and the hook once a flow there
 * has wanted it.
 */
#include <linux/module.h>
#include <net/net_namespace.h>
#include <net/netfilter/ipv6/nf_defrag_ipv6.h>
#include <net/netns/generic.h>

#include "vma.h"

/*
 * Resets sent before others may run; with a jiffy between the batches thousands go in a moment, and
 * no flood.
 */
#define BATCH 256

struct vma_net {
	spinlock_t lock; /* dead */
	struct list_head dead; /* struct vma_conn */
	struct delayed_work work;
	struct mutex hook_lock; /* hooked */
	bool hooked;
};

static unsigned int net_id;
static struct workqueue_struct *queue;
/*
 * IPv6 puts pieces together behind the hook, conntrack's module before it. Not linked against:
 * insmod would refuse us where that one is not loaded. NULL: there is none, pieces pass to the
 * kernel.
 */
static int (*defrag_on)(struct net *net);
static void (*defrag_off)(struct net *net);

static struct vma_net *net_of(struct net *net)
{
	return net_generic(net, net_id);
}

static struct vma_conn *next_dead(struct vma_net *n)
{
	struct vma_conn *c;

	spin_lock(&n->lock);
	c = list_first_entry_or_null(&n->dead, struct vma_conn, dead);
	if (c)
		list_del(&c->dead);
	spin_unlock(&n->lock);
	return c;
}

static void reset(const struct vma_conn *c)
{
	int err = vma_rst_send(c);

	if (err == -EADDRINUSE || err == -EADDRNOTAVAIL)
		vma_total_add(VMA_TOTAL_RESETS_VOID, 1);
	else
		vma_total_add(err ? VMA_TOTAL_RESETS_FAILED : VMA_TOTAL_RESETS, 1);
}

static void bury_batch(struct work_struct *work)
{
	struct vma_net *n = container_of(to_delayed_work(work), struct vma_net, work);
	struct vma_conn *c;
	int i;

	for (i = 0; i < BATCH; i++) {
		c = next_dead(n);
		if (!c)
			return;
		if (c->reset)
			reset(c);
		vma_conn_free(c);
		cond_resched();
	}
	queue_delayed_work(queue, &n->work, 1);
}

/**
 * vma_net_bury - resets and frees registrations of a dead process, later and elsewhere
 * @net: the namespace of all of them; it lives, since they hold sockets of it
 * @dead: linked by vma_conn.dead, unhashed; empty afterwards
 */
void vma_net_bury(struct net *net, struct list_head *dead)
{
	struct vma_net *n = net_of(net);

	spin_lock(&n->lock);
	list_splice_tail_init(dead, &n->dead);
	/*
	 * Under the lock: work that runs already may free them right after it, and nothing else
	 * keeps the namespace.
	 */
	queue_delayed_work(queue, &n->work, 0);
	spin_unlock(&n->lock);
}

/* Returns when everything that was buried in net before is gone. Process context. */
void vma_net_flush(struct net *net)
{
	struct vma_net *n = net_of(net);
	bool more;

	do {
		flush_delayed_work(&n->work);
		spin_lock(&n->lock);
		more = !list_empty(&n->dead);
		spin_unlock(&n->lock);
	} while (more);
}

static int hook_on(struct net *net)
{
	int err = nf_register_net_hooks(net, vma_hook_ops, vma_hook_ops_count);

	if (err || !defrag_on)
		return err;
	err = defrag_on(net);
	if (err)
		nf_unregister_net_hooks(net, vma_hook_ops, vma_hook_ops_count);
	return err;
}

/*
 * The hook is in place afterwards, and stays: the first one of all namespaces, and the going of the
 * last, change the kernel's code under all processors. 0 or negative errno. May sleep.
 */
int vma_net_hook(struct net *net)
{
	struct vma_net *n = net_of(net);
	int err = 0;

	mutex_lock(&n->hook_lock);
	if (!n->hooked)
		err = hook_on(net);
	n->hooked = !err;
	mutex_unlock(&n->hook_lock);
	return err;
}

static int __net_init net_begin(struct net *net)
{
	struct vma_net *n = net_of(net);

	spin_lock_init(&n->lock);
	mutex_init(&n->hook_lock);
	INIT_LIST_HEAD(&n->dead);
	INIT_DELAYED_WORK(&n->work, bury_batch);
	return 0;
}

/* Nothing is registered here any more: a registration holds a socket, and that the namespace. */
static void __net_exit net_end(struct net *net)
{
	struct vma_net *n = net_of(net);

	vma_net_flush(net);
	cancel_delayed_work_sync(&n->work);
	if (!n->hooked)
		return;
	if (defrag_off)
		defrag_off(net);
	nf_unregister_net_hooks(net, vma_hook_ops, vma_hook_ops_count);
}

static struct pernet_operations net_ops = {
	.init = net_begin,
	.exit = net_end,
	.id = &net_id,
	.size = sizeof(struct vma_net),
};

static void defrag_put(void)
{
	if (defrag_on)
		symbol_put(nf_defrag_ipv6_enable);
	if (defrag_off)
		symbol_put(nf_defrag_ipv6_disable);
}

static void defrag_get(void)
{
	defrag_on = symbol_request(nf_defrag_ipv6_enable);
	defrag_off = defrag_on ? symbol_get(nf_defrag_ipv6_disable) : NULL;
	if (defrag_off)
		return;
	defrag_put();
	defrag_on = NULL;
	pr_notice("vma: no nf_defrag_ipv6: pieces of IPv6 packets pass to the kernel\n");
}

int vma_net_init(void)
{
	int err;

	queue = alloc_workqueue("vma", WQ_UNBOUND, 0);
	if (!queue)
		return -ENOMEM;
	/* Its part of a namespace ends after ours, which uses it. */
	defrag_get();
	err = register_pernet_subsys(&net_ops);
	if (err) {
		defrag_put();
		destroy_workqueue(queue);
	}
	return err;
}

/* No session is left. */
void vma_net_exit(void)
{
	unregister_pernet_subsys(&net_ops);
	destroy_workqueue(queue);
	defrag_put();
}
