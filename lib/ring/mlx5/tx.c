/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the ring sends. */
#include "ring/mlx5/ring_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "ring/mlx5/queue/mpw.h"
#include "runtime/runtime.h"

static __attribute__((noinline)) struct buf *pool_alloc(struct mlx5_ring *m)
{
	struct buf *b = pool_get(&m->memory.tx, m->memory.chunk);

	if (__builtin_expect(!b, 0)) {
		/* All are posted: have them sent, what is complete comes back. */
		sq_burst_end(&m->sq);
		sq_kick(&m->sq);
		sq_reclaim(&m->sq);
		b = pool_get(&m->memory.tx, m->memory.chunk);
		if (!b) {
			mlx5_stat_add(&m->counters.tx_full, 1);
			return NULL;
		}
	}
	return b;
}

struct buf *mlx5_tx_alloc(struct ring *r, uint32_t room)
{
	struct mlx5_ring *m = mlx5_ring(r);
	struct buf *b = sq_slot(&m->sq, room);

	return __builtin_expect(b != NULL, 1) ? b : pool_alloc(m);
}

void mlx5_burst_begin(struct ring *r)
{
	sq_burst_begin(&mlx5_ring(r)->sq);
}

uint8_t *mlx5_burst_add(struct ring *r, uint32_t len)
{
	struct mlx5_ring *m = mlx5_ring(r);
	uint8_t *at =
		__builtin_expect(len <= r->caps.max_frame, 1) ? sq_burst_add(&m->sq, len) : NULL;

	if (__builtin_expect(!at, 0))
		return NULL;
	mlx5_stat_add(&m->counters.tx_packets, 1);
	mlx5_stat_add(&m->counters.tx_bytes, len);
	return at;
}

void mlx5_burst_end(struct ring *r)
{
	sq_burst_end(&mlx5_ring(r)->sq);
}

/* A frame, or a large one, was not posted. */
static __attribute__((noinline)) int refuse(struct mlx5_ring *m, int err)
{
	if (err == -EMSGSIZE)
		mlx5_stat_add(&m->counters.tx_drop_oversize, 1);
	if (m->sq.broken)
		mlx5_recover(m);
	if (err == -ENOBUFS)
		mlx5_stat_add(&m->counters.tx_full, 1);
	return err;
}

int mlx5_post(struct ring *r, struct buf *b)
{
	struct mlx5_ring *m = mlx5_ring(r);
	uint32_t len = b->len;
	int err;

	if (__builtin_expect(b->frag || len > m->max_wire, 0))
		return refuse(m, len > m->max_wire ? -EMSGSIZE : -EINVAL);
	err = sq_post(&m->sq, b);
	if (__builtin_expect(err, 0))
		return refuse(m, err);
	mlx5_stat_add(&m->counters.tx_packets, 1);
	mlx5_stat_add(&m->counters.tx_bytes, len);
	return 0;
}

int mlx5_dummy(struct ring *r, struct buf *b)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int err = b->len > r->caps.max_frame ? -EMSGSIZE : sq_post_nop(&m->sq, b);

	return __builtin_expect(err, 0) ? refuse(m, err) : 0;
}

int mlx5_kick(struct ring *r)
{
	/*
	 * Who rings is waited for: no signal handler runs meanwhile, to stay away for ever, or to
	 * wait for what it has interrupted.
	 */
	lock_enter();
	sq_kick(&mlx5_ring(r)->sq);
	lock_leave();
	return 0;
}

_Static_assert(SQ_SEND_HEADER == RING_SHORT_HEADER, "as the caller has it");

bool mlx5_send_short(struct ring *r, const void *hdr, const void *data, uint32_t len)
{
	struct mlx5_ring *m = mlx5_ring(r);

	if (__builtin_expect(!sq_send(&m->sq, hdr, data, len), 0))
		return false;
	mlx5_stat_add(&m->counters.tx_packets, 1);
	mlx5_stat_add(&m->counters.tx_bytes, SQ_SEND_HEADER + len);
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

/*
 * The headers as the device wants them: of UDP the length of a segment, and the rest it fills in
 * itself.
 */
static void gso_header(uint8_t *to, const void *from, const struct ring_gso *g)
{
	uint16_t len = htobe16((uint16_t)(g->gso_size + 8u));

	memcpy(to, from, g->hdr_len);
	if (g->proto == IPPROTO_UDP)
		memcpy(to + g->l4_off + 4, &len, sizeof(len));
}

int mlx5_send_gso(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g)
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
	mlx5_stat_add(&m->counters.tx_gso_frames, 1);
	mlx5_stat_add(&m->counters.tx_gso_packets,
		      (total - g->hdr_len + g->gso_size - 1) / g->gso_size);
	mlx5_stat_add(&m->counters.tx_gso_bytes, total);
	return 0;
}
