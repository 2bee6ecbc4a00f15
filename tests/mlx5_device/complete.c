/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Completion queues. */
#include "device.h"

/* The consumer index of the driver, checked: how many entries are not its own. */
static u32 cq_used(struct mdev_cq *q)
{
	u32 used = (q->pi - get32_once(q->dbrec)) & 0xffffff;

	if (used <= q->cnt)
		return used;
	mdev_complain(q->dev, "the consumer index of the completion queue is beyond the producer",
		      get32_once(q->dbrec), q->pi);
	return 0;
}

static void tell(struct mdev_cq *q)
{
	q->armed = false;
	q->events++;
	q->dev->ops->event(q->dev, q->cqn);
}

bool mdev_cq_put(struct mdev_cq *q, u8 entry[64], u8 op)
{
	u8 *to = q->entries + (q->pi & (q->cnt - 1)) * q->size + q->size - 64;

	if (cq_used(q) == q->cnt) {
		mdev_complain(q->dev, "the completion queue overflows", q->cqn, q->pi);
		return false;
	}
	entry[63] = (u8)(op | (q->pi & q->cnt ? 1 : 0));
	memcpy(to, entry, 63);
	/* The driver looks at the last byte before it reads the others. */
	device_wmb();
	*(volatile u8 *)(to + 63) = entry[63];
	q->pi++;
	if (q->armed)
		tell(q);
	return true;
}

void mdev_cq_arm(struct mdev_cq *q, const u8 doorbell[8])
{
	u32 word = get32(doorbell), record = get32_once(q->dbrec + 4);

	if (get32(doorbell + 4) != q->cqn) {
		mdev_complain(q->dev, "the arming names another completion queue",
			      get32(doorbell + 4), q->cqn);
		return;
	}
	/* One that races may have written the record for the next time. */
	if (word != record && !q->dev->racing)
		mdev_complain(q->dev, "the arming doorbell is not what its record says", word,
			      record);
	if (((q->pi - word) & 0xffffff) > q->cnt) {
		mdev_complain(q->dev, "the arming is for what has not come yet", word, q->pi);
		return;
	}
	/* Of a driver that has not yet read what it was told: the request is older than that. */
	if ((word >> 28 & 3) != (q->events & 3))
		return;
	if ((word & 0xffffff) != (q->pi & 0xffffff)) {
		tell(q);
		return;
	}
	q->armed = true;
}
