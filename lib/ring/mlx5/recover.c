/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* New queues after an error, and devices that went. */
#include "ring/mlx5/internal.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/runtime.h"
#include "config/config.h"

#define RETRY_POLLS 4096u
#define VIEW_UPKEEPS 40u /* two seconds, as the stacks keep a ring that is gone */

static struct mlx5_view *view_free(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		if (!m->views[i].upkeeps && &m->views[i] != m->view)
			return &m->views[i];
	}
	return NULL;
}

static void view_show(struct mlx5_ring *m, struct mlx5_view *v)
{
	/* release: what is in it */
	__atomic_store_n(&m->view, v, __ATOMIC_RELEASE);
}

/*
 * v is shown no more, but somebody may still be looking. `old` is what renew() left of it, or NULL.
 */
static void view_retire(struct mlx5_ring *m, struct mlx5_view *v, void *old)
{
	if (!old)
		return;
	if (v == &m->mute) { /* nobody has ever looked */
		m->objects->ops->release(m->objects, old);
		return;
	}
	v->old = old;
	v->upkeeps = VIEW_UPKEEPS;
}

void mlx5_views_upkeep(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		struct mlx5_view *v = &m->views[i];

		if (v->upkeeps && !--v->upkeeps)
			m->objects->ops->release(m->objects, v->old);
	}
}

bool mlx5_views_wait(const struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		if (m->views[i].upkeeps)
			return true;
	}
	return false;
}

void mlx5_views_close(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		if (m->views[i].upkeeps)
			m->objects->ops->release(m->objects, m->views[i].old);
	}
}

int mlx5_queues_init(struct mlx5_ring *m)
{
	const struct mlx5_objects *o = m->objects;
	struct sq_config config = {
		.qpn = o->qpn,
		.lkey = o->lkey,
		.max_inline = m->want.max_inline,
		.min_inline = o->min_inline,
		.ask_every = m->want.ask_every,
		.mpw = o->mpw,
		.dm = o->dm,
		.dm_bytes = o->dm_bytes,
		.dm_lkey = o->dm_lkey,
	};
	const struct rq_spill spill = {.at = m->memory.spill, .len = MEMORY_SPILL};
	struct mlx5_view *v = view_free(m);
	struct sq sq;
	int err;

	if (m->want.strides)
		err = strq_init(&m->rq, &o->rwq, &o->rx_cq, o->lkey, &m->slabs);
	else
		err = rq_init(&m->rq, &o->qp, &o->rx_cq, o->lkey, m->want.rx_segs, &spill);
	if (!err)
		err = sq_init(&sq, &o->qp, &o->tx_cq, &config);
	if (err) {
		rq_fini(&m->rq);
		return err;
	}
	/* In one piece, and last: other threads may be about to kick. */
	sq.dm.packets = m->sq.dm.packets;
	sq.dm.bytes = m->sq.dm.bytes;
	sq.dm.oob = m->sq.dm.oob;
	m->sq = sq;
	v->cq = m->rq.cq;
	view_show(m, v);
	m->refill_at = (uint32_t)params.rx_wre_batching < m->rq.cnt / 2
			       ? (uint32_t)params.rx_wre_batching
			       : m->rq.cnt / 2;
	mlx5_refill(m);
	return 0;
}

void mlx5_moderate(struct mlx5_ring *m)
{
	int err = m->objects->ops->moderate(m->objects, m->moderation.count, m->moderation.usec);

	m->moderated = !err;
	if (err)
		log_debug("ring/mlx5: %s: no interrupt moderation: %s", m->ring.ifname,
			  strerror(-err));
}

static void report(struct mlx5_ring *m)
{
	log_warn("ring/mlx5: %s: the device reports %s (syndrome %#x, vendor %#x): new queues",
		 m->ring.ifname, m->rq.broken ? "a receive error" : "a send error",
		 m->rq.broken ? m->rq.syndrome : m->sq.syndrome,
		 m->rq.broken ? m->rq.vendor_syndrome : m->sq.vendor_syndrome);
	mlx5_stat_add(&m->counters.rx_drop_invalid, m->rq.broken);
}

/* There is a free view. */
static void queues_renew(struct mlx5_ring *m)
{
	struct mlx5_view *shown = m->view;
	void *old = NULL;
	int err;

	/* Who is ringing the doorbell writes to what goes away. */
	while (__atomic_exchange_n(&m->sq.ringing, 1, __ATOMIC_SEQ_CST))
		sched_yield();
	view_show(m, &m->mute);
	err = m->objects->ops->renew(m->objects, &m->want, &old);
	view_retire(m, shown, old);
	/* The device has let go of the buffers. */
	rq_fini(&m->rq);
	sq_fini(&m->sq);
	if (!err)
		err = mlx5_queues_init(m);
	if (!err && m->moderated)
		mlx5_moderate(m);
	/*
	 * The new queue has told of nothing yet. Whoever sleeps has asked the old one to be woken.
	 */
	m->arm_sn = 0;
	if (!err && m->armed)
		mlx5_request_event(m);
	if (!err)
		return;
	log_warn("ring/mlx5: %s: no new queues: %s: %s", m->ring.ifname,
		 m->objects->failed ? m->objects->failed : "they are not like the old ones",
		 strerror(-err));
	m->retry = RETRY_POLLS;
	__atomic_store_n(&m->sq.ringing, 0, __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) void mlx5_recover(struct mlx5_ring *m)
{
	int cancel;

	if (m->retry && --m->retry)
		return;
	if (!view_free(m)) {
		/*
		 * So many errors within two seconds that no memory is left to look at; nothing is
		 * sent until then.
		 */
		sq_stop(&m->sq);
		m->retry = RETRY_POLLS;
		return;
	}
	cancel = mlx5_begin();
	report(m);
	queues_renew(m);
	mlx5_end(cancel);
}

bool mlx5_remake(struct mlx5_ring *m)
{
	int cancel;

	/* Broken ones are made anew soon, and as they are wanted then. */
	if (m->rq.broken || m->sq.broken || !view_free(m))
		return true;
	cancel = mlx5_begin();
	queues_renew(m);
	mlx5_end(cancel);
	return !m->rq.broken;
}

void mlx5_uncompress(struct mlx5_ring *m)
{
	int cancel;

	m->want.compress = false;
	(void)mlx5_remake(m); /* or recover() will have said why not */
	cancel = mlx5_begin();
	log_info("ring/mlx5: %s: a socket wants the device's time stamps: completions are not "
		 "compressed any more",
		 m->ring.ifname);
	mlx5_end(cancel);
}

/* --- devices that went */

#define LOST_MAX 16u
#define LOST_SECONDS 60
/*
 * Not to be opened again at once. The stacks' mutex, or the worker alone: an entry that is read
 * half written is a try more or less.
 */
static struct mlx5_lost {
	_Atomic int ifindex;
	_Atomic int64_t until;
} lost[LOST_MAX];

static int64_t now_seconds(void)
{
	return mlx5_now_ms() / 1000;
}

bool mlx5_lost_lately(int ifindex)
{
	for (unsigned i = 0; i < LOST_MAX; i++) {
		if (lost[i].ifindex == ifindex && lost[i].until > now_seconds())
			return true;
	}
	return false;
}

void mlx5_lost_note(int ifindex)
{
	unsigned i = (unsigned)ifindex % LOST_MAX;

	lost[i].ifindex = ifindex;
	lost[i].until = now_seconds() + LOST_SECONDS;
}
