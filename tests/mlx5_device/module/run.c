// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The card's clockwork: looks at the doorbell registers, executes what they tell of. */
#include <linux/delay.h>
#include <linux/kthread.h>

#include "card.h"

#define UAR_ARM 0x20
#define UAR_BF 0x800
#define BF_STEP 0x100
#define BF_REGS 4
#define BATCH 64

/* The register's value and zero in its place. 0: it was not written. */
static u64 take(u8 *reg)
{
	u64 *word = (u64 *)reg;

	return READ_ONCE(*word) ? xchg(word, 0) : 0;
}

static void arm(struct card *card, u64 value)
{
	u32 cqn = get32((u8 *)&value + 4);
	struct card_cq *cq;

	card->counts.arms++;
	list_for_each_entry(cq, &card->cqs, of_card) {
		if (cq->q.cqn == cqn) {
			card->counts.vectors |= BIT(cq->vector);
			mdev_cq_arm(&cq->q, (u8 *)&value);
			return;
		}
	}
	/* Who has not noticed yet that the card is gone writes to what was its page. */
	if (card->ib)
		mdev_complain(&card->dev, "the arming names no completion queue", cqn, 0);
}

static void ring(struct card *card, const struct uar *uar, u64 value)
{
	u32 qpn = get32((u8 *)&value + 4) >> 8;
	struct card_qp *qp = card_qp_find(card, qpn);

	card->counts.doorbells++;
	if (card->faults.drop_doorbells) {
		card->faults.drop_doorbells--;
		return;
	}
	if (!qp && !card->ib) /* as in arm() */
		return;
	if (!qp || qp->uar != uar->id)
		mdev_complain(&card->dev, "a doorbell names a queue pair that is not of its page",
			      qpn, uar->id);
	else if (qp->state < IB_QPS_RTS)
		mdev_complain(&card->dev, "a doorbell is of a queue pair that does not send yet",
			      qpn, qp->state);
	else /* in an error state, too: what was posted comes back flushed */
		mdev_sq_doorbell(&qp->sq, (u8 *)&value, false);
}

static void look_at(struct card *card, struct uar *uar)
{
	u64 value;
	int i;

	for (i = 0; i < BF_REGS; i++) {
		value = take(uar->page + UAR_BF + i * BF_STEP);
		if (value)
			ring(card, uar, value);
	}
	value = take(uar->page + UAR_ARM);
	if (value)
		arm(card, value);
}

static void forget(u8 *reg, u32 low, unsigned int shift)
{
	u64 value = READ_ONCE(*(u64 *)reg);

	if (get32((u8 *)&value + 4) >> shift == low)
		cmpxchg((u64 *)reg, value, 0);
}

/* A queue pair goes: what was rung for it and not looked at is no mistake. The lock is held. */
void run_forget_qp(struct card *card, u32 qpn)
{
	struct uar *uar;
	int i;

	list_for_each_entry(uar, &card->uars, of_card) {
		for (i = 0; i < BF_REGS; i++)
			forget(uar->page + UAR_BF + i * BF_STEP, qpn, 8);
	}
}

void run_forget_cq(struct card *card, u32 cqn)
{
	struct uar *uar;

	list_for_each_entry(uar, &card->uars, of_card)
		forget(uar->page + UAR_ARM, cqn, 0);
}

/* Is it time for what the send queue holds? */
static bool due(const struct card *card, struct card_qp *qp)
{
	if (card->faults.stall)
		return false;
	if (!card->faults.delay)
		return true;
	if (!qp->due)
		qp->due = ktime_add_us(ktime_get(), card->faults.delay);
	if (ktime_before(ktime_get(), qp->due))
		return false;
	qp->due = 0;
	return true;
}

static void run_sq(struct card *card, struct card_qp *qp)
{
	struct mdev_sq *q = &qp->sq;

	mdev_sq_fetch(q);
	if (q->ci == q->pi || !due(card, qp))
		return;
	if (card->faults.tx_error) {
		q->fail = card->faults.tx_error;
		card->faults.tx_error = 0;
		card->counts.tx_errors++;
	}
	card->counts.tx_wqes += mdev_sq_run(q, BATCH);
}

/* What the card reports of queues without a completion: to each of them. The lock is held. */
static void report(struct card *card)
{
	struct ib_event event = {.device = card->ib ? &card->ib->ib : NULL};
	struct card_cq *cq;
	struct card_qp *qp;

	list_for_each_entry(cq, &card->cqs, of_card) {
		event.event = IB_EVENT_CQ_ERR;
		event.element.cq = &cq->ib;
		if (card->faults.cq_error && cq->ib.event_handler)
			cq->ib.event_handler(&event, cq->ib.cq_context);
	}
	list_for_each_entry(qp, &card->qps, of_card) {
		event.event = IB_EVENT_QP_FATAL;
		event.element.qp = &qp->ib;
		if (card->faults.qp_error && qp->ib.event_handler)
			qp->ib.event_handler(&event, qp->ib.qp_context);
	}
	card->faults.cq_error = 0;
	card->faults.qp_error = 0;
}

static void run(struct card *card)
{
	struct sk_buff_head out;
	struct card_cq *cq;
	struct card_qp *qp;
	struct card_wq *wq;
	struct sk_buff *skb;
	struct uar *uar;

	__skb_queue_head_init(&out);
	spin_lock_bh(&card->lock);
	clock_run(card);
	list_for_each_entry(uar, &card->uars, of_card)
		look_at(card, uar);
	if (card->faults.cq_error || card->faults.qp_error)
		report(card);
	list_for_each_entry(qp, &card->qps, of_card) {
		card->pd = qp->ib.pd;
		if (qp->sq.cnt && qp->state >= IB_QPS_RTS)
			run_sq(card, qp);
		if (!qp->rq.cnt || qp->state < IB_QPS_RTR)
			continue;
		mdev_rq_flush(&qp->rq);
		if (qp->rq.error)
			mdev_rq_abort(&qp->rq);
	}
	list_for_each_entry(wq, &card->wqs, of_card) {
		card->pd = wq->ib.pd;
		if (wq->rq.error)
			mdev_rq_abort(&wq->rq);
	}
	list_for_each_entry(cq, &card->cqs, of_card) {
		if (cq->waiting &&
		    (cq->q.pi - cq->told + 1 >= cq->count || !ktime_before(ktime_get(), cq->due)))
			card_cq_tell(card, cq);
	}
	skb_queue_splice_init(&card->out, &out);
	skb_queue_walk(&out, skb) flow_loop(card, skb->data, skb->len);
	spin_unlock_bh(&card->lock);
	while ((skb = __skb_dequeue(&out))) {
		if (netif_running(card->ndev) && netif_carrier_ok(card->ndev))
			port_deliver(card->peer, skb);
		else
			kfree_skb(skb);
	}
}

int run_thread(void *arg)
{
	struct card *card = arg;

	while (!kthread_should_stop()) {
		wait_event_interruptible(card->wait, card->counts.qps || kthread_should_stop());
		run(card);
		usleep_range(30, 60);
	}
	return 0;
}
