/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "soft.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define QPN 0x1234u
#define LKEY 0x00aabbu
#define DM_LKEY 0x00ccddu
#define LENT_LKEY 0x00ee11u
#define TX_CQN 0x77u
#define RX_CQN 0x78u
#define UAR_BYTES 4096u
#define UAR_BF 0x800u
#define UAR_ARM 0x20u
/* What is in a register that was not written to. */
#define UNTOUCHED 0xee

struct soft_config soft_config = {
	.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};
struct soft *soft;

static struct soft *soft_of(struct mlx5_objects *o)
{
	return (struct soft *)o; /* its first member */
}

static struct soft *soft_of_dev(struct mdev *d)
{
	return (struct soft *)((char *)d - offsetof(struct soft, dev));
}

static u8 *soft_memory(struct mdev *d, u32 lkey, u64 addr, u32 len)
{
	const struct soft *s = soft_of_dev(d);
	const struct mlx5_want *w = &s->want;
	u64 base = (u64)(uintptr_t)w->base;

	/* Its own begins at 0. */
	if (lkey == DM_LKEY && s->dm && addr <= s->o.dm_bytes && len <= s->o.dm_bytes - addr)
		return s->dm + addr;
	if (lkey != LKEY || addr < base || addr - base > w->bytes || len > w->bytes - (addr - base))
		return NULL;
	return (u8 *)(uintptr_t)addr;
}

static void soft_transmit(struct mdev *d, const u8 *frame, u32 len)
{
	struct soft *s = soft_of_dev(d);

	if (s->sent)
		s->sent(s, frame, len);
}

static void soft_event(struct mdev *d, u32 cqn)
{
	uint64_t one = 1;

	if (cqn != RX_CQN || write(soft_of_dev(d)->o.event_fd, &one, sizeof(one)) < 0)
		mdev_complain(d, "an event has nowhere to go", cqn, RX_CQN);
}

static void soft_complain(struct mdev *d, const char *what, u32 a, u32 b)
{
	(void)d;
	if (!soft_config.quiet)
		fprintf(stderr, "mlx5 device: %s (%#x, %#x)\n", what, a, b);
}

static const struct mdev_ops dev_ops = {
	.memory = soft_memory,
	.transmit = soft_transmit,
	.event = soft_event,
	.complain = soft_complain,
};

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static void *pages(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

	if (!p)
		abort();
	memset(p, 0, (bytes + 63) & ~(size_t)63);
	return p;
}

/* But for the receive queue's completions. */
static void queues_free(struct soft *s)
{
	free(s->o.qp.sq.buf);
	free(s->o.qp.rq.buf);
	free(s->o.qp.dbrec);
	free(s->o.rwq.buf);
	free(s->o.rwq.dbrec);
	free(s->o.rx_cq.dbrec);
	free(s->o.tx_cq.buf);
	free(s->o.tx_cq.dbrec);
	free(s->sq.sums);
	free(s->rq.posted);
	s->o.qp = (struct mlx5dv_qp){0};
	s->o.rwq = (struct mlx5dv_rwq){0};
	s->o.rx_cq = s->o.tx_cq = (struct mlx5dv_cq){0};
	s->sq.sums = s->rq.posted = NULL;
}

static void cq_make(struct soft *s, struct mlx5dv_cq *dv, struct mdev_cq *q, uint32_t cnt,
		    uint32_t cqn)
{
	uint32_t size = soft_config.cqe_size;

	*dv = (struct mlx5dv_cq){
		.buf = pages((size_t)cnt * size),
		.dbrec = pages(8),
		.cqe_cnt = cnt,
		.cqe_size = size,
		.cq_uar = s->uar,
		.cqn = cqn,
	};
	for (uint32_t i = 0; i < cnt; i++)
		((uint8_t *)dv->buf)[(size_t)i * size + size - 1] = MLX5_CQE_INVALID << 4;
	*q = (struct mdev_cq){
		.dev = &s->dev,
		.entries = dv->buf,
		.dbrec = (const u8 *)dv->dbrec,
		.cnt = cnt,
		.size = size,
		.cqn = cqn,
	};
}

static void uar_clear(struct soft *s)
{
	memset(s->uar, UNTOUCHED, UAR_BYTES);
	for (unsigned i = 0; i < 2; i++)
		memset(s->uar + UAR_BF + (size_t)i * soft_config.bf_size, 0, 8);
	memset(s->uar + UAR_ARM, 0, 8);
}

static void queues_make(struct soft *s)
{
	const struct mlx5_want *w = &s->want;
	uint32_t wqe_bbs = (w->max_inline + 52 + MDEV_BB - 1) / MDEV_BB;
	uint32_t bbs = soft_config.sq_bbs ? soft_config.sq_bbs : power_of_two(w->tx_wre * wqe_bbs);
	uint32_t rqs = soft_config.rq_cnt ? soft_config.rq_cnt : power_of_two(w->rx_wre);
	uint32_t stride = w->strides ? 32 : power_of_two(w->rx_segs + 1) * 16;
	void *wqes = pages((size_t)rqs * stride);

	s->o.qp = (struct mlx5dv_qp){
		.dbrec = pages(8),
		.sq = {pages((size_t)bbs * MDEV_BB), bbs, MDEV_BB},
		.bf = {s->uar + UAR_BF, soft_config.bf_size},
	};
	if (w->strides)
		s->o.rwq = (struct mlx5dv_rwq){
			.buf = wqes, .dbrec = pages(8), .wqe_cnt = rqs, .stride = stride};
	else
		s->o.qp.rq = (__typeof__(s->o.qp.rq)){wqes, rqs, stride};
	cq_make(s, &s->o.rx_cq, &s->rx_cq, rqs * (w->strides ? w->strides : 1), RX_CQN);
	cq_make(s, &s->o.tx_cq, &s->tx_cq, bbs < 8 ? 8 : bbs, TX_CQN);
	s->sq = (struct mdev_sq){
		.dev = &s->dev,
		.cq = &s->tx_cq,
		.wqes = s->o.qp.sq.buf,
		.dbrec = (const u8 *)s->o.qp.dbrec,
		.cnt = bbs,
		.qpn = QPN,
		.sums = soft_config.loose ? NULL : pages(bbs * sizeof(u64)),
	};
	s->rq = (struct mdev_rq){
		.dev = &s->dev,
		.cq = &s->rx_cq,
		.wqes = wqes,
		.dbrec = (const u8 *)(w->strides ? s->o.rwq.dbrec : s->o.qp.dbrec),
		.cnt = rqs,
		.stride = stride,
		.qpn = QPN,
		.parts = w->strides,
		.part = w->stride,
		.zip_max = w->compress ? soft_config.zip_max : 0,
		.posted = soft_config.loose ? NULL : pages(rqs * sizeof(u64)),
	};
	uar_clear(s);
}

static int soft_striding(struct mlx5_objects *o, struct mlx5dv_striding_rq_caps *caps)
{
	(void)o;
	*caps = (struct mlx5dv_striding_rq_caps){6, 13, soft_config.strides_log, 16,
						 1u << IBV_QPT_RAW_PACKET};
	return soft_config.strides_log ? 0 : -EOPNOTSUPP;
}

static int soft_start(struct mlx5_objects *o, const struct mlx5_want *want)
{
	struct soft *s = soft_of(o);

	s->want = *want;
	s->o.failed = "make the striding work queue";
	s->o.no_striding = want->strides && soft_config.no_wq;
	if (s->o.no_striding)
		return -ENOMEM;
	if (!s->dm && want->dm_bytes && want->dm_bytes <= soft_config.dm_bytes) {
		s->dm = s->o.dm = pages(want->dm_bytes);
		s->o.dm_bytes = want->dm_bytes;
		s->o.dm_lkey = DM_LKEY;
	}
	queues_make(s);
	s->started = true;
	return 0;
}

static unsigned soft_take_events(struct mlx5_objects *o)
{
	uint64_t n = 0;

	return read(o->event_fd, &n, sizeof(n)) == sizeof(n) ? (unsigned)n : 0;
}

static int soft_renew(struct mlx5_objects *o, const struct mlx5_want *want, void **old)
{
	struct soft *s = soft_of(o);

	s->renewals++;
	s->unreleased++;
	*old = o->rx_cq.buf;
	queues_free(s);
	(void)soft_take_events(o); /* of the old queue */
	return soft_start(o, want);
}

static void soft_release(struct mlx5_objects *o, void *old)
{
	soft_of(o)->unreleased--;
	free(old);
}

static int soft_moderate(struct mlx5_objects *o, uint32_t packets, uint32_t usec)
{
	soft_of(o)->held_packets = packets;
	soft_of(o)->held_usec = usec;
	return 0;
}

static int soft_memory_add(struct mlx5_objects *o, void *addr, size_t len, uint32_t *key)
{
	struct soft *s = soft_of(o);

	if (s->lent.iov_base == addr && s->lent.iov_len == len)
		return -EEXIST;
	s->lent = (struct iovec){addr, len};
	*key = LENT_LKEY;
	return 0;
}

static int soft_memory_del(struct mlx5_objects *o, void *addr, size_t len)
{
	struct soft *s = soft_of(o);

	if (s->lent.iov_base != addr || s->lent.iov_len != len)
		return -ENOENT;
	s->lent = (struct iovec){0};
	return 0;
}

static enum mlx5_news soft_news(struct mlx5_objects *o)
{
	enum mlx5_news news = soft_of(o)->news;

	soft_of(o)->news = MLX5_NOTHING;
	return news;
}

static struct vma_flow_key *rule_find(const struct soft *s, const struct vma_flow_key *key)
{
	for (unsigned i = 0; i < s->flows; i++) {
		if (!memcmp(&s->rules[i], key, sizeof(*key)))
			return &s->rules[i];
	}
	return NULL;
}

static int soft_flow_add(struct mlx5_objects *o, const struct vma_flow_key *key)
{
	struct soft *s = soft_of(o);

	pthread_testcancel(); /* as a system call */
	if (rule_find(s, key))
		return -EEXIST;
	if (key->port_bits && soft_config.whole_ports)
		return -EOPNOTSUPP;
	if (soft_config.flows_max && s->flows >= soft_config.flows_max)
		return -ENOSPC;
	s->rules = realloc(s->rules, (s->flows + 1) * sizeof(*s->rules));
	if (!s->rules)
		abort();
	s->rules[s->flows++] = *key;
	s->flows_made++;
	return 0;
}

static int soft_flow_del(struct mlx5_objects *o, const struct vma_flow_key *key)
{
	struct soft *s = soft_of(o);
	struct vma_flow_key *rule = rule_find(s, key);

	pthread_testcancel();
	if (!rule)
		return -ENOENT;
	*rule = s->rules[--s->flows];
	return 0;
}

bool soft_steers(const struct soft *s, const struct vma_flow_key *to)
{
	for (unsigned i = 0; i < s->flows; i++) {
		const struct vma_flow_key *r = &s->rules[i];

		if (r->proto == to->proto && !memcmp(&r->local, &to->local, 16) &&
		    r->local_port >> r->port_bits == to->local_port >> r->port_bits &&
		    (!r->remote_port ||
		     (r->remote_port == to->remote_port && !memcmp(&r->remote, &to->remote, 16))))
			return true;
	}
	return false;
}

static void soft_readdress(struct mlx5_objects *o, const uint8_t mac[6])
{
	soft_of(o)->readdressed++;
	memcpy(soft_of(o)->mac, mac, 6);
}

static int soft_clock_read(struct mlx5_objects *o, uint64_t *cycles)
{
	soft_of(o)->clock_reads++;
	*cycles = soft_of(o)->cycles;
	return soft_config.clock_khz ? 0 : -EOPNOTSUPP;
}

static int soft_clock_ptp(struct mlx5_objects *o, struct mlx5dv_clock_info *info)
{
	*info = soft_of(o)->ptp;
	return soft_config.ptp ? 0 : -EOPNOTSUPP;
}

static void soft_close(struct mlx5_objects *o)
{
	struct soft *s = soft_of(o), **at = &soft;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(o->rx_cq.buf);
	queues_free(s);
	close(o->event_fd);
	free(s->rules);
	free(s->uar);
	free(s->dm);
	free(s);
}

static const struct mlx5_object_ops object_ops = {
	.striding = soft_striding,
	.start = soft_start,
	.renew = soft_renew,
	.release = soft_release,
	.take_events = soft_take_events,
	.news = soft_news,
	.moderate = soft_moderate,
	.memory_add = soft_memory_add,
	.memory_del = soft_memory_del,
	.flow_add = soft_flow_add,
	.flow_del = soft_flow_del,
	.readdress = soft_readdress,
	.clock_read = soft_clock_read,
	.clock_ptp = soft_clock_ptp,
	.close = soft_close,
	.forget = soft_close,
};

int mlx5_objects_open(const struct ring_port *port, struct mlx5_objects **out)
{
	unsigned open = 0;
	struct soft *s;

	(void)port;
	for (s = soft; s; s = s->next)
		open++;
	if (open >= (soft_config.devices ? soft_config.devices : 1))
		return -EOPNOTSUPP;
	s = pages(sizeof(*s));
	s->o.ops = &object_ops;
	s->o.qpn = QPN;
	s->o.lkey = LKEY;
	s->o.min_inline = soft_config.min_inline;
	s->o.clock_khz = soft_config.clock_khz;
	s->o.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s->o.news_fd = -1;
	s->dev.ops = &dev_ops;
	s->dev.min_inline = soft_config.min_inline;
	s->dev.max_frame = soft_config.max_frame;
	s->dev.max_tso = s->o.max_tso = soft_config.max_tso;
	s->dev.mpw = s->o.mpw = soft_config.mpw;
	s->uar = aligned_alloc(UAR_BYTES, UAR_BYTES);
	if (!s->uar || s->o.event_fd < 0)
		abort();
	uar_clear(s);
	s->next = soft;
	__atomic_store_n(&soft, s, __ATOMIC_RELEASE);
	*out = &s->o;
	return 0;
}

bool mlx5_objects_likely(const char *ifname)
{
	(void)ifname;
	return true;
}

bool soft_started(void)
{
	const struct soft *s = __atomic_load_n(&soft, __ATOMIC_ACQUIRE);

	return s && s->started;
}

/* Was the register written, and more than its first word? */
static void look_at(struct soft *s, uint8_t *reg)
{
	bool whole = soft_config.bf_size && reg[16] != UNTOUCHED;

	if (!get64(reg))
		return;
	mdev_sq_doorbell(&s->sq, reg, whole);
	memset(reg, UNTOUCHED, soft_config.bf_size);
	memset(reg, 0, 8);
}

unsigned soft_run(struct soft *s, unsigned max)
{
	look_at(s, s->uar + UAR_BF);
	if (soft_config.bf_size)
		look_at(s, s->uar + UAR_BF + soft_config.bf_size);
	mdev_sq_fetch(&s->sq);
	if (get64(s->uar + UAR_ARM)) {
		mdev_cq_arm(&s->rx_cq, s->uar + UAR_ARM);
		memset(s->uar + UAR_ARM, 0, 8);
	}
	return mdev_sq_run(&s->sq, max);
}

bool soft_receive(struct soft *s, const void *frame, uint32_t len)
{
	struct mdev_seen seen = {.time = s->cycles};

	mdev_look(frame, len, &seen);
	return mdev_rq_receive(&s->rq, frame, len, &seen);
}
