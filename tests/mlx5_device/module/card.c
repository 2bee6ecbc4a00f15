// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One card: what the checker asks of its surroundings, and how a card comes and goes. */
#include <linux/kthread.h>
#include <linux/mm.h>
#include <net/addrconf.h>

#include "card.h"

static struct card *of_dev(struct mdev *dev)
{
	return container_of(dev, struct card, dev);
}

/* The lock is held: the frame leaves when it is dropped. */
static void transmit(struct mdev *dev, const u8 *frame, u32 len)
{
	struct card *card = of_dev(dev);
	struct sk_buff *skb = netdev_alloc_skb(card->ndev, len);

	if (!skb)
		return;
	skb_put_data(skb, frame, len);
	__skb_queue_tail(&card->out, skb);
	card->counts.tx_frames++;
}

/* The lock is held. */
void card_cq_tell(struct card *card, struct card_cq *cq)
{
	card->counts.events++;
	cq->waiting = false;
	cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
}

static void event(struct mdev *dev, u32 cqn)
{
	struct card *card = of_dev(dev);
	struct card_cq *cq;

	list_for_each_entry(cq, &card->cqs, of_card) {
		if (cq->q.cqn != cqn)
			continue;
		if (cq->count <= 1 || !cq->period) {
			card_cq_tell(card, cq);
			return;
		}
		cq->waiting = true;
		cq->told = cq->q.pi;
		cq->due = ktime_add_us(ktime_get(), cq->period);
	}
}

/* Loud: the tests fail for any of these. */
static void complain(struct mdev *dev, const char *what, u32 a, u32 b)
{
	if (net_ratelimit())
		pr_err("mlx5_device: %s: %s (%#x, %#x)\n", netdev_name(of_dev(dev)->ndev), what, a,
		       b);
}

const struct mdev_ops card_dev_ops = {
	.memory = memory_find,
	.transmit = transmit,
	.event = event,
	.complain = complain,
};

/* The lock is held. */
struct card_qp *card_qp_find(struct card *card, u32 qpn)
{
	struct card_qp *qp;

	list_for_each_entry(qp, &card->qps, of_card) {
		if (qp->ib.qp_num == qpn)
			return qp;
	}
	return NULL;
}

/* Registers the RDMA device. removal is held, or nobody else knows of the card. */
int card_plug(struct card *card)
{
	struct card_ib *cib = ib_alloc_device(card_ib, ib);
	int err;

	if (!cib)
		return -ENOMEM;
	cib->card = card;
	cib->ib.node_type = RDMA_NODE_IB_CA;
	cib->ib.phys_port_cnt = 1;
	cib->ib.num_comp_vectors = 2;
	cib->ib.dev.parent = &card->pdev->dev;
	cib->ib.driver_def = uar_defs;
	addrconf_addr_eui48((u8 *)&cib->ib.node_guid, card->ndev->dev_addr);
	ib_set_device_ops(&cib->ib, &card_ib_ops);
	err = ib_device_set_netdev(&cib->ib, card->ndev, 1);
	if (!err)
		err = ib_register_device(&cib->ib, "mlx5_%d", NULL);
	if (err) {
		ib_dealloc_device(&cib->ib);
		return err;
	}
	spin_lock_bh(&card->lock);
	card->ib = cib;
	spin_unlock_bh(&card->lock);
	return 0;
}

/* All objects of the RDMA device are gone afterwards. As card_plug(). */
void card_unplug(struct card *card)
{
	struct card_ib *cib = card->ib;

	if (!cib)
		return;
	spin_lock_bh(&card->lock);
	card->ib = NULL;
	spin_unlock_bh(&card->lock);
	ib_unregister_device(&cib->ib);
	ib_dealloc_device(&cib->ib);
}

/* Pair and end of it give it its MAC; not plugged yet. ERR_PTR. */
struct card *card_make(unsigned int index, unsigned int unit)
{
	struct card *card = kvzalloc(sizeof(*card), GFP_KERNEL);
	int err;

	if (!card)
		return ERR_PTR(-ENOMEM);
	err = clock_make(card);
	if (err)
		goto err_card;
	card->dev.ops = &card_dev_ops;
	card->dev.racing = true;
	card->dev.min_inline = min_inline;
	card->dev.max_frame = MDEV_FRAME_MAX;
	card->dev.max_tso = CARD_MAX_TSO;
	card->dev.mpw = true;
	card->next_qpn = 0x100;
	card->next_cqn = 0x400;
	card->faults.flows_max = 1024;
	card->faults.compress = CARD_SESSION;
	card->link = true;
	mutex_init(&card->removal);
	spin_lock_init(&card->lock);
	init_waitqueue_head(&card->wait);
	INIT_LIST_HEAD(&card->uars);
	INIT_LIST_HEAD(&card->qps);
	INIT_LIST_HEAD(&card->wqs);
	INIT_LIST_HEAD(&card->cqs);
	INIT_LIST_HEAD(&card->rules);
	xa_init_flags(&card->mrs, XA_FLAGS_ALLOC1);
	__skb_queue_head_init(&card->out);

	card->pdev = platform_device_register_simple("mlx5_device", index * 2 + unit, NULL, 0);
	if (IS_ERR(card->pdev)) {
		err = PTR_ERR(card->pdev);
		goto err_clock;
	}
	card->ndev = port_make(card, index * 2 + unit);
	if (IS_ERR(card->ndev)) {
		err = PTR_ERR(card->ndev);
		goto err_pdev;
	}
	card->thread = kthread_run(run_thread, card, "mlx5_device/%u", index * 2 + unit);
	if (IS_ERR(card->thread)) {
		err = PTR_ERR(card->thread);
		goto err_ndev;
	}
	return card;

err_ndev:
	unregister_netdev(card->ndev);
	free_netdev(card->ndev);
err_pdev:
	platform_device_unregister(card->pdev);
err_clock:
	clock_free(card);
err_card:
	kvfree(card);
	return ERR_PTR(err);
}

/* Its interface is unregistered, its RDMA device, too. */
void card_free(struct card *card)
{
	kthread_stop(card->thread);
	debugfs_remove(card->debug);
	__skb_queue_purge(&card->out);
	free_netdev(card->ndev);
	platform_device_unregister(card->pdev);
	xa_destroy(&card->mrs);
	clock_free(card);
	kvfree(card);
}
