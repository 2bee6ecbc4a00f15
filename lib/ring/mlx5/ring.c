/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/mlx5.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ring/mlx5/moderation.h"
#include "ring/mlx5/objects.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/send.h"
#include "ring/port.h"
#include "runtime/libc.h"
#include "runtime/lock.h"
#include "runtime/log.h"
#include "runtime/params.h"
#include "runtime/stats.h"

#define ETH_HEADER 14u
#define VLAN_TAG 4u
#define CHUNK_MIN 2048u
#define GSO_MAX_FRAME (ETH_HEADER + 65535u)
/* Below these parts of the receive chunks that no user holds, frames move to the heap; below the second they are dropped if that fails. */
#define LOW_PART 4u
#define RESERVE_PART 16u
#define RETRY_POLLS 4096u
#define UPKEEP_POLLS 200u /* what an upkeep counts for */
#define VIEWS 4u
#define VIEW_UPKEEPS 40u /* two seconds, as the stacks keep a ring that is gone */

/* Where pending() looks, which has no lock: what is here does not change, nor the memory go, while somebody may be looking. */
struct view {
	struct cq cq; /* what cq_at() and cq_ours() want */
	void *old; /* to be released */
	uint32_t upkeeps; /* until then; 0: it is in use, or free */
};

struct mlx5_ring {
	struct ring ring;
	struct ring_counters counters;
	struct sq sq;
	struct rq rq;
	struct memory memory;
	struct view views[VIEWS];
	struct view *view; /* of rq.cq; the one of which nothing ever comes while there is none */
	struct view mute;
	struct mlx5_objects *objects;
	struct mlx5_want want;
	uint32_t refill_at; /* places in the receive queue that are worth a refill */
	uint32_t refill_ci; /* rq.ci from which on it is time for one */
	uint32_t rx_low; /* chunks */
	bool slow; /* a poll has more to do: armed, or rx_short */
	bool rx_short; /* users hold so many that fewer are left */
	uint32_t heap_bufs, heap_bufs_max; /* received frames copied to the heap */
	struct buf_pool heap_pool; /* counts them */
	struct buf_pool *heap_origin; /* where their memory goes */
	uint32_t arm_sn; /* events taken: the device ignores a request to tell that is older */
	pid_t pid; /* who opened it */
	uint8_t mac[6]; /* of the interface; the rules match it */
	struct moderation moderation;
	bool moderated; /* the device can */
	bool refused; /* it has refused a rule, which was logged */
	uint32_t retry; /* polls until recover() tries again; 0: it has not failed */
	bool armed;
};

static struct mlx5_ring *mlx5_ring(struct ring *r)
{
	return (struct mlx5_ring *)r; /* its first member */
}

/*
 * What m->objects does makes system calls, which a thread of the application can be cancelled in: the stack's lock would never come
 * back. Returns what objects_end() wants.
 */
static int objects_begin(void)
{
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	return cancel;
}

static void objects_end(int cancel)
{
	pthread_setcancelstate(cancel, NULL);
}

static inline void stat_add(uint64_t *c, uint64_t n)
{
	stats_add((__u64 *)c, n);
}

/* --- receive */

/* Chunks that no user holds. */
static inline uint32_t rx_ours(const struct mlx5_ring *m)
{
	return m->memory.rx.num_free + m->rq.pi - m->rq.ci;
}

static void refill(struct mlx5_ring *m)
{
	uint32_t room = rq_room(&m->rq);
	struct buf *b;

	while (room && (b = pool_get_rx(&m->memory.rx)) != NULL) {
		rq_post(&m->rq, b);
		room--;
	}
	rq_publish(&m->rq);
	m->rx_short = rx_ours(m) < m->rx_low;
	m->slow |= m->rx_short;
	m->refill_ci = m->rq.pi - m->rq.cnt + m->refill_at;
}

/* The heap_pool's free: one less of the copies that VMA_RX_BUFS limits. */
static void heap_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct mlx5_ring *m =
		(struct mlx5_ring *)((char *)pool - offsetof(struct mlx5_ring, heap_pool));

	m->heap_bufs--;
	m->heap_origin->free(m->heap_origin, b);
}

/*
 * When users hold so many chunks that the receive queue could run dry, the frame moves to the heap. Returns the frame to hand out,
 * NULL when it had to be dropped.
 */
static __attribute__((noinline)) struct buf *spare_chunk(struct mlx5_ring *m, struct buf *b)
{
	struct buf *c = m->heap_bufs < m->heap_bufs_max ? buf_heap_alloc(b->len) : NULL;

	if (c) {
		memcpy(c->data, b->data, b->len);
		c->len = c->total = b->len;
		c->flags = b->flags;
		m->heap_origin = c->pool;
		c->pool = &m->heap_pool;
		m->heap_bufs++;
	} else if (rx_ours(m) >= m->memory.rx.num / RESERVE_PART || !params.cq_keep_qp_full) {
		return b;
	} else {
		stat_add(&m->counters.rx_drop_no_buf, 1);
	}
	buf_free(b);
	return c;
}

static void recover(struct mlx5_ring *m);

/* What else there is to do once frames have been taken, or not. */
static void poll_end(struct mlx5_ring *m, unsigned got, enum rx_result res)
{
	if (got && m->armed) {
		m->armed = false;
		stat_add(&m->counters.interrupts_received, 1);
	}
	if ((int32_t)(m->rq.ci - m->refill_ci) >= 0)
		refill(m);
	if (res == RX_BROKEN || m->sq.broken)
		recover(m);
	m->slow = m->armed || m->rx_short;
}

/* Nearly always there is nothing else. */
static inline bool poll_more(const struct mlx5_ring *m)
{
	return (int32_t)(m->rq.ci - m->refill_ci) >= 0 || m->slow;
}

static __attribute__((noinline)) unsigned poll_many(struct mlx5_ring *m, struct buf **pkts,
						    unsigned max)
{
	enum rx_result res = RX_NONE;
	unsigned n = 0, got = 0;
	uint64_t bytes = 0;
	struct buf *b;

	while (got < max && (res = rq_take(&m->rq, &b)) == RX_FRAME) {
		__builtin_prefetch(b->data);
		got++;
		bytes += b->len;
		if (__builtin_expect(m->rx_short, 0))
			b = spare_chunk(m, b);
		pkts[n] = b;
		n += b != NULL;
	}
	if (got) {
		cq_publish(&m->rq.cq);
		stat_add(&m->counters.rx_packets, got);
		stat_add(&m->counters.rx_bytes, bytes);
	}
	if (__builtin_expect(res == RX_BROKEN || m->sq.broken || poll_more(m), 0))
		poll_end(m, got, res);
	return n;
}

static unsigned mlx5_poll(struct ring *r, struct buf **pkts, unsigned max)
{
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *b;

	/* One who waits for one. */
	if (__builtin_expect(max > 1 || poll_more(m), 0))
		return poll_many(m, pkts, max);
	b = rq_take_usual(&m->rq);
	if (__builtin_expect(!b, 0))
		return poll_many(m, pkts, max);
	cq_publish(&m->rq.cq);
	stat_add(&m->counters.rx_packets, 1);
	stat_add(&m->counters.rx_bytes, b->len);
	pkts[0] = b;
	return 1;
}

static bool mlx5_pending(const struct ring *r)
{
	const struct mlx5_ring *m = (const struct mlx5_ring *)r;
	const struct cq *q = &__atomic_load_n(&m->view, __ATOMIC_ACQUIRE)->cq;
	uint32_t ci = __atomic_load_n(&m->rq.cq.ci, __ATOMIC_RELAXED);

	/*
	 * In the middle of a compressed session this looks at what the device left there, in recover() at one queue with the other's
	 * index: a wrong hint at worst.
	 */
	return cq_ours(q, ci, cqe_op_own(cq_at(q, ci))) ||
	       __atomic_load_n(&m->rq.zip_left, __ATOMIC_RELAXED);
}

static unsigned mlx5_wait_fds(struct ring *r, int *fds, unsigned max)
{
	if (!max)
		return 0;
	fds[0] = mlx5_ring(r)->objects->event_fd;
	return 1;
}

/* Asks the device to tell of the next completion, or at once of one that we have not taken. */
static void request_event(struct mlx5_ring *m)
{
	const struct mlx5dv_cq *cq = &m->objects->rx_cq;
	uint32_t word = (m->arm_sn & 3) << 28 | MLX5_CQ_DB_REQ_NOT | (m->rq.cq.ci & CQ_CI_MASK);

	m->rq.cq.dbrec[1] = htobe32(word);
	/* The record before the doorbell that has the device look at it. */
	dev_wc_wmb();
	dev_write64((uint8_t *)cq->cq_uar + MLX5_CQ_DOORBELL,
		    htobe64((uint64_t)word << 32 | cq->cqn));
	dev_wc_wmb();
}

static bool mlx5_arm(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel;

	/* Whoever sleeps cannot refill. */
	if (m->rq.broken)
		return false;
	if (rq_room(&m->rq))
		refill(m);
	cancel = objects_begin();
	m->arm_sn += m->objects->ops->take_events(m->objects);
	objects_end(cancel);
	if (mlx5_pending(r))
		return true;
	request_event(m);
	m->armed = m->slow = true;
	stat_add(&m->counters.interrupts_requested, 1);
	return false;
}

/* --- transmit */

static __attribute__((noinline)) struct buf *pool_alloc(struct mlx5_ring *m)
{
	struct buf *b = pool_get(&m->memory.tx, m->memory.chunk);

	if (__builtin_expect(!b, 0)) {
		/* All are posted: have them sent, what is complete comes back. */
		sq_kick(&m->sq);
		sq_reclaim(&m->sq);
		b = pool_get(&m->memory.tx, m->memory.chunk);
		if (!b) {
			stat_add(&m->counters.tx_full, 1);
			return NULL;
		}
	}
	return b;
}

static struct buf *mlx5_tx_alloc(struct ring *r, uint32_t room)
{
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *b = sq_slot(&m->sq, room);

	return __builtin_expect(b != NULL, 1) ? b : pool_alloc(m);
}

/* A frame, or a large one, was not posted. */
static __attribute__((noinline)) int refuse(struct mlx5_ring *m, int err)
{
	if (err == -EMSGSIZE)
		stat_add(&m->counters.tx_drop_oversize, 1);
	if (m->sq.broken)
		recover(m);
	if (err == -ENOBUFS)
		stat_add(&m->counters.tx_full, 1);
	return err;
}

static int mlx5_post(struct ring *r, struct buf *b)
{
	struct mlx5_ring *m = mlx5_ring(r);
	uint32_t len = b->len;
	int err;

	if (__builtin_expect(b->frag || len > r->caps.max_frame, 0))
		return refuse(m, len > r->caps.max_frame ? -EMSGSIZE : -EINVAL);
	err = sq_post(&m->sq, b);
	if (__builtin_expect(err, 0))
		return refuse(m, err);
	stat_add(&m->counters.tx_packets, 1);
	stat_add(&m->counters.tx_bytes, len);
	return 0;
}

static int mlx5_kick(struct ring *r)
{
	/* Who rings is waited for: no signal handler runs meanwhile, to stay away for ever, or to wait for what it has interrupted. */
	lock_enter();
	sq_kick(&mlx5_ring(r)->sq);
	lock_leave();
	return 0;
}

_Static_assert(SQ_SEND_HEADER == RING_SHORT_HEADER, "as the caller has it");

static bool mlx5_send_short(struct ring *r, const void *hdr, const void *data, uint32_t len)
{
	struct mlx5_ring *m = mlx5_ring(r);

	if (__builtin_expect(!sq_send(&m->sq, hdr, data, len), 0))
		return false;
	stat_add(&m->counters.tx_packets, 1);
	stat_add(&m->counters.tx_bytes, SQ_SEND_HEADER + len);
	return true;
}

/* The bytes of iov behind the first `skip`, in chunks of our own. NULL: there are not so many. */
static struct buf *gather(struct mlx5_ring *m, const struct iovec *iov, int iovcnt, size_t skip)
{
	struct buf *first = NULL, **at = &first, *b = NULL;

	for (int i = 0; i < iovcnt; i++) {
		const uint8_t *from = (const uint8_t *)iov[i].iov_base + skip;
		size_t left = iov[i].iov_len - skip;

		for (skip = 0; left;) {
			size_t n;

			if (!b || b->len == m->memory.chunk) {
				b = pool_alloc(m);
				*at = b;
				if (!b) {
					buf_free(first);
					return NULL;
				}
				b->len = 0;
				at = &b->frag;
			}
			n = m->memory.chunk - b->len < left ? m->memory.chunk - b->len : left;
			memcpy(b->data + b->len, from, n);
			b->len += (uint32_t)n;
			from += n;
			left -= n;
		}
	}
	return first;
}

/* The headers as the device wants them: of UDP the length of a segment, and the rest it fills in itself. */
static void gso_header(uint8_t *to, const void *from, const struct ring_gso *g)
{
	uint16_t len = htobe16((uint16_t)(g->gso_size + 8u));

	memcpy(to, from, g->hdr_len);
	if (g->proto == IPPROTO_UDP)
		memcpy(to + g->l4_off + 4, &len, sizeof(len));
}

static int mlx5_send_gso(struct ring *r, const struct iovec *iov, int iovcnt,
			 const struct ring_gso *g)
{
	struct mlx5_ring *m = mlx5_ring(r);
	uint8_t hdr[SQ_LSO_HEADER_MAX];
	struct buf *payload;
	size_t total = 0;
	int err;

	if (!r->caps.max_gso)
		return -EOPNOTSUPP;
	for (int i = 0; i < iovcnt; i++)
		total += iov[i].iov_len;
	if (total > r->caps.max_gso || (uint32_t)g->hdr_len + g->gso_size > r->caps.max_frame)
		return -EMSGSIZE;
	if (iovcnt < 1 || iov[0].iov_len < g->hdr_len || g->hdr_len > sizeof(hdr) ||
	    g->l4_off + 8u > g->hdr_len || !g->gso_size || total == g->hdr_len)
		return -EINVAL;
	payload = gather(m, iov, iovcnt, g->hdr_len);
	if (!payload)
		return -EAGAIN;
	gso_header(hdr, iov[0].iov_base, g);
	err = sq_post_lso(&m->sq, hdr, g->hdr_len, g->gso_size, payload);
	if (err) {
		buf_free(payload);
		return refuse(m, err) == -ENOBUFS ? -EAGAIN : err;
	}
	sq_kick(&m->sq);
	stat_add(&m->counters.tx_gso_frames, 1);
	stat_add(&m->counters.tx_gso_packets, (total - g->hdr_len + g->gso_size - 1) / g->gso_size);
	stat_add(&m->counters.tx_gso_bytes, total);
	return 0;
}

/* --- devices that went */

#define LOST_MAX 16u
#define LOST_SECONDS 60
/* Not to be opened again at once. The stacks' mutex, or the worker alone: an entry that is read half written is a try more or less. */
static struct lost {
	_Atomic int ifindex;
	_Atomic int64_t until;
} lost[LOST_MAX];

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int64_t now_seconds(void)
{
	return now_ms() / 1000;
}

static bool lost_lately(int ifindex)
{
	for (unsigned i = 0; i < LOST_MAX; i++) {
		if (lost[i].ifindex == ifindex && lost[i].until > now_seconds())
			return true;
	}
	return false;
}

static void lost_note(int ifindex)
{
	unsigned i = (unsigned)ifindex % LOST_MAX;

	lost[i].ifindex = ifindex;
	lost[i].until = now_seconds() + LOST_SECONDS;
}

/* --- control */

static struct view *view_free(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		if (!m->views[i].upkeeps && &m->views[i] != m->view)
			return &m->views[i];
	}
	return NULL;
}

static void view_show(struct mlx5_ring *m, struct view *v)
{
	/* release: what is in it */
	__atomic_store_n(&m->view, v, __ATOMIC_RELEASE);
}

/* v is shown no more, but somebody may still be looking. `old` is what renew() left of it, or NULL. */
static void view_retire(struct mlx5_ring *m, struct view *v, void *old)
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

/* Releases those whose time has come. */
static void views_upkeep(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		struct view *v = &m->views[i];

		if (v->upkeeps && !--v->upkeeps)
			m->objects->ops->release(m->objects, v->old);
	}
}

/* Nobody looks any more. */
static void views_close(struct mlx5_ring *m)
{
	for (unsigned i = 0; i < VIEWS; i++) {
		if (m->views[i].upkeeps)
			m->objects->ops->release(m->objects, m->views[i].old);
	}
}

/* There is a free view. */
static int queues_init(struct mlx5_ring *m)
{
	const struct mlx5_objects *o = m->objects;
	struct sq_config config = {
		.qpn = o->qpn,
		.lkey = o->lkey,
		.max_inline = m->want.max_inline,
		.min_inline = o->min_inline,
		.ask_every = m->want.ask_every,
	};
	struct view *v = view_free(m);
	struct sq sq;
	int err;

	err = rq_init(&m->rq, &o->qp, &o->rx_cq, o->lkey);
	if (!err)
		err = sq_init(&sq, &o->qp, &o->tx_cq, &config);
	if (err) {
		rq_fini(&m->rq);
		return err;
	}
	/* In one piece, and last: other threads may be about to kick. */
	m->sq = sq;
	v->cq = m->rq.cq;
	view_show(m, v);
	m->refill_at = (uint32_t)params.rx_wre_batching < m->rq.cnt / 2
			       ? (uint32_t)params.rx_wre_batching
			       : m->rq.cnt / 2;
	refill(m);
	return 0;
}

/* Has the device do what m->moderation says. */
static void moderate(struct mlx5_ring *m)
{
	int err = m->objects->ops->moderate(m->objects, m->moderation.count, m->moderation.usec);

	m->moderated = !err;
	if (err)
		log_debug("ring/mlx5: %s: no interrupt moderation: %s", m->ring.ifname, strerror(-err));
}

/* There is a free view. */
static void queues_renew(struct mlx5_ring *m)
{
	struct view *shown = m->view;
	void *old = NULL;
	int err;

	log_warn("ring/mlx5: %s: the device reports %s (syndrome %#x, vendor %#x): new queues",
		 m->ring.ifname, m->rq.broken ? "a receive error" : "a send error",
		 m->rq.broken ? m->rq.syndrome : m->sq.syndrome,
		 m->rq.broken ? m->rq.vendor_syndrome : m->sq.vendor_syndrome);
	stat_add(&m->counters.rx_drop_invalid, m->rq.broken);
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
		err = queues_init(m);
	if (!err && m->moderated)
		moderate(m);
	/* The new queue has told of nothing yet. Whoever sleeps has asked the old one to be woken. */
	m->arm_sn = 0;
	if (!err && m->armed)
		request_event(m);
	if (!err)
		return;
	log_warn("ring/mlx5: %s: no new queues: %s: %s", m->ring.ifname,
		 m->objects->failed ? m->objects->failed : "they are not like the old ones",
		 strerror(-err));
	m->retry = RETRY_POLLS;
	__atomic_store_n(&m->sq.ringing, 0, __ATOMIC_SEQ_CST);
}

/*
 * The device has stopped the queues, or has reported what cannot be: they are made anew. What was in flight is lost, as on any
 * wire. Should that fail the ring is silent until the next try, some polls later.
 */
static __attribute__((noinline)) void recover(struct mlx5_ring *m)
{
	int cancel;

	if (m->retry && --m->retry)
		return;
	if (!view_free(m)) {
		/* So many errors within two seconds that no memory is left to look at; nothing is sent until then. */
		sq_stop(&m->sq);
		m->retry = RETRY_POLLS;
		return;
	}
	cancel = objects_begin();
	queues_renew(m);
	objects_end(cancel);
}

static int mlx5_flow_add(struct ring *r, const struct vma_flow_key *key,
			 const struct vma_flow_info *info)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel = objects_begin(), err = m->objects->ops->flow_add(m->objects, key);

	objects_end(cancel);
	(void)info;
	if (err && err != -EEXIST && !m->refused) {
		m->refused = true;
		log_warn("ring/mlx5: %s: the device takes no more steering rules (%s): sockets without one stay with the "
			 "kernel",
			 r->ifname, strerror(-err));
	}
	return err;
}

static int mlx5_flow_del(struct ring *r, const struct vma_flow_key *key)
{
	struct mlx5_objects *o = mlx5_ring(r)->objects;
	int cancel = objects_begin(), err = o->ops->flow_del(o, key);

	objects_end(cancel);
	return err;
}

static void mlx5_port_quiet(struct ring *r, uint16_t local_port, bool quiet)
{
	(void)r;
	(void)local_port;
	(void)quiet;
}

static void mlx5_gauges(const struct ring *r, struct ring_gauges *g)
{
	const struct mlx5_ring *m = (const struct mlx5_ring *)r;

	*g = (struct ring_gauges){
		.rx_free = rx_ours(m),
		.tx_free = m->memory.tx.num_free,
		.rx_queued = mlx5_pending(r),
	};
}

static void set_gso(struct mlx5_ring *m)
{
	uint32_t segments = sq_lso_segments(SQ_LSO_HEADER_MAX);

	m->ring.caps.gso_locked = true;
	if (!m->sq.lso || !m->objects->max_tso)
		return;
	/* Half the buffers are never one frame's. */
	if (segments > m->memory.tx.num / 2)
		segments = m->memory.tx.num / 2;
	m->ring.caps.max_gso = GSO_MAX_FRAME;
	if (m->ring.caps.max_gso / m->memory.chunk >= segments)
		m->ring.caps.max_gso = segments * m->memory.chunk;
	if (m->ring.caps.max_gso > m->objects->max_tso)
		m->ring.caps.max_gso = m->objects->max_tso;
	m->ring.caps.gso_in_order = true;
}

static void set_mtu(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t frame = mtu + ETH_HEADER;

	/* A larger one would need more than one buffer. */
	m->ring.caps.max_frame = frame < m->memory.chunk ? frame : m->memory.chunk;
}

static void mlx5_link_changed(struct ring *r, uint32_t mtu, const uint8_t mac[6])
{
	struct mlx5_ring *m = mlx5_ring(r);

	set_mtu(m, mtu);
	if (!memcmp(m->mac, mac, sizeof(m->mac)))
		return;
	memcpy(m->mac, mac, sizeof(m->mac));
	m->objects->ops->readdress(m->objects, mac);
}

static int mlx5_upkeep(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);

	views_upkeep(m);
	switch (m->objects->ops->news(m->objects)) {
	case MLX5_QUEUES_FAILED:
		sq_stop(&m->sq);
		recover(m);
		return 0;
	case MLX5_DEVICE_GONE:
		log_warn("ring/mlx5: %s: the device is gone: datagram sockets and listeners go on "
			 "without it, connections end",
			 r->ifname);
		lost_note(r->ifindex);
		return -ENODEV;
	default:
		break;
	}
	/* An error that nobody has asked for: whoever sends little would come to its completion after many that were lost. */
	sq_reclaim(&m->sq);
	if (m->sq.broken) {
		/* While nobody polls the next try is this one's after a second. */
		if (m->retry)
			m->retry = m->retry > UPKEEP_POLLS ? m->retry - UPKEEP_POLLS : 1;
		recover(m);
	}
	if (m->moderated && moderation_adapt(&m->moderation, &m->counters, now_ms()))
		moderate(m);
	return 0;
}

static void mlx5_leave(struct ring *r)
{
	(void)r; /* the flows go with the process's file of the device */
}

static void mlx5_close(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);

	libc_internal++;
	if (getpid() == m->pid) {
		views_close(m);
		m->objects->ops->close(m->objects);
	} else {
		m->objects->ops->forget(m->objects);
	}
	rq_fini(&m->rq);
	sq_fini(&m->sq);
	memory_fini(&m->memory);
	free(m);
	libc_internal--;
}

static const struct ring_ops mlx5_ops = {
	.name = "mlx5",
	.close = mlx5_close,
	.leave = mlx5_leave,
	.poll = mlx5_poll,
	.pending = mlx5_pending,
	.tx_alloc = mlx5_tx_alloc,
	.send_short = mlx5_send_short,
	.post = mlx5_post,
	.kick = mlx5_kick,
	.send_gso = mlx5_send_gso,
	.wait_fds = mlx5_wait_fds,
	.arm = mlx5_arm,
	.flow_add = mlx5_flow_add,
	.flow_del = mlx5_flow_del,
	.port_quiet = mlx5_port_quiet,
	.gauges = mlx5_gauges,
	.upkeep = mlx5_upkeep,
	.link_changed = mlx5_link_changed,
};

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* Memory and queues behind the device of m->objects. 0 or negative errno, everything that was made still to be freed. */
static int start(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t chunk = (mtu + ETH_HEADER + VLAN_TAG + 63) & ~63u;
	uint32_t rx = power_of_two((uint32_t)params.rx_wre);
	int err;

	m->want.tx_wre = (uint32_t)params.tx_wre;
	m->want.rx_wre = (uint32_t)params.rx_wre;
	m->want.max_inline = (uint32_t)params.tx_max_inline;
	m->want.ask_every = (uint32_t)params.tx_wre_batching;
	err = memory_init(&m->memory, (enum pages_type)params.mem_alloc_type,
			  chunk < CHUNK_MIN ? CHUNK_MIN : chunk,
			  rx + (uint32_t)params.qp_compensation_level, (uint32_t)params.tx_wre);
	if (err)
		return err;
	m->want.base = m->memory.base;
	m->want.bytes = m->memory.bytes;
	err = m->objects->ops->start(m->objects, &m->want);
	return err ? err : queues_init(m);
}

int mlx5_ring_open(int ifindex, struct ring **out)
{
	struct mlx5_objects *objects;
	struct mlx5_ring *m;
	struct port *port;
	int err;

	if (lost_lately(ifindex))
		return -EOPNOTSUPP;
	err = port_open(ifindex, &port);
	if (err)
		return err;
	err = mlx5_objects_open(port, &objects);
	if (err)
		goto err_port;
	m = aligned_alloc(64, (sizeof(*m) + 63) & ~(size_t)63);
	if (!m) {
		err = -ENOMEM;
		goto err_objects;
	}
	memset(m, 0, sizeof(*m));
	cq_mute(&m->mute.cq);
	m->view = &m->mute;
	m->objects = objects;
	m->pid = getpid();
	memcpy(m->mac, port->mac, sizeof(m->mac));
	m->ring = (struct ring){.ops = &mlx5_ops, .counters = &m->counters, .ifindex = ifindex};
	memcpy(m->ring.ifname, port->ifname, sizeof(m->ring.ifname));
	m->heap_pool.free = heap_buf_free;
	m->heap_bufs_max = (uint32_t)params.rx_bufs;
	err = start(m, port->mtu);
	if (err)
		goto err_ring;
	m->rx_low = m->memory.rx.num / LOW_PART;
	set_mtu(m, port->mtu);
	set_gso(m);
	moderation_init(&m->moderation, now_ms());
	moderate(m);
	m->ring.caps.max_rx_frame = m->memory.chunk;
	m->ring.caps.tx_csum = true;
	m->ring.caps.rx_csum = true;
	log_debug("ring/mlx5: %s: %u WQEBBs to send, %u buffers to receive, frames up to %u bytes",
		  m->ring.ifname, m->sq.mask + 1, m->rq.cnt, m->ring.caps.max_frame);
	port_close(port);
	*out = &m->ring;
	return 0;

err_ring:
	log_warn("ring/mlx5: %s: could not %s: %s%s", port->ifname,
		 objects->failed ? objects->failed : "have memory or queues of that size",
		 strerror(-err), params.ring_type == RING_TYPE_AUTO ? ": AF_XDP is used" : "");
	/* The device lets go of the memory before it goes. */
	objects->ops->close(objects);
	objects = NULL;
	memory_fini(&m->memory);
	free(m);
err_objects:
	if (objects)
		objects->ops->close(objects);
err_port:
	port_close(port);
	return err;
}
