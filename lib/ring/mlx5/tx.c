/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the ring sends. */
#include "ring/mlx5/internal.h"

#include <errno.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#include "ring/mlx5/queue/mpw.h"
#include "runtime/runtime.h"

/* Fields of the IP headers. */
#define IP4_LENGTH 2u
#define IP4_ID 4u
#define IP6_LENGTH 4u

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

bool mlx5_tx_full(struct ring *r)
{
	struct sq *q = &mlx5_ring(r)->sq;

	return !q->run && !sq_room(q, 1);
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

/* Where one is in what is to be sent. */
struct place {
	const struct iovec *iov;
	size_t at; /* in *iov */
};

/* Copies the next len bytes; there are so many. */
static void take(struct place *p, uint8_t *to, size_t len)
{
	while (len) {
		size_t left = p->iov->iov_len - p->at, n = left < len ? left : len;

		memcpy(to, (const uint8_t *)p->iov->iov_base + p->at, n);
		to += n;
		len -= n;
		p->at += n;
		if (p->at == p->iov->iov_len)
			*p = (struct place){.iov = p->iov + 1};
	}
}

/* The next len bytes, in chunks of our own. NULL: there are not so many chunks. */
static struct buf *gather(struct mlx5_ring *m, struct place *from, size_t len)
{
	struct buf *first = NULL, **at = &first;

	for (; len; len -= (*at)->len, at = &(*at)->frag) {
		*at = pool_alloc(m);
		if (!*at) {
			buf_free(first);
			return NULL;
		}
		(*at)->len = (uint32_t)(len < m->memory.chunk ? len : m->memory.chunk);
		take(from, (*at)->data, (*at)->len);
	}
	return first;
}

static void header_put(uint8_t *to, uint32_t value)
{
	uint16_t field = htobe16((uint16_t)value);

	memcpy(to, &field, sizeof(field));
}

/*
 * The headers as the device wants them: of UDP the length of a segment, and the rest it fills in
 * itself.
 */
static void gso_header(uint8_t *to, const void *from, const struct ring_gso *g)
{
	memcpy(to, from, g->hdr_len);
	if (g->proto == IPPROTO_UDP)
		header_put(to + g->l4_off + 4, g->gso_size + 8u);
}

/*
 * The next len bytes as a datagram of their own, the one after `before` others: the device copies
 * the length in UDP's header into all that it cuts, so that a shorter last one is not for it to
 * cut. NULL: there is no buffer.
 */
static struct buf *last_datagram(struct mlx5_ring *m, const void *header, struct place *from,
				 size_t len, uint32_t before, const struct ring_gso *g)
{
	struct buf *b = pool_alloc(m);
	uint16_t id;

	if (!b)
		return NULL;
	b->len = (uint32_t)(g->hdr_len + len);
	memcpy(b->data, header, g->hdr_len);
	take(from, b->data + g->hdr_len, len);
	header_put(b->data + g->l4_off + 4, b->len - g->l4_off);
	if (g->family == AF_INET6) {
		header_put(b->data + ETH_HLEN + IP6_LENGTH, b->len - g->l4_off);
		return b;
	}
	header_put(b->data + ETH_HLEN + IP4_LENGTH, b->len - ETH_HLEN);
	memcpy(&id, b->data + ETH_HLEN + IP4_ID, sizeof(id));
	header_put(b->data + ETH_HLEN + IP4_ID, be16toh(id) + before);
	return b;
}

/* 0 or negative errno: a large frame of `total` bytes that cannot be sent. */
static int gso_check(const struct ring *r, const struct iovec *iov, int iovcnt,
		     const struct ring_gso *g, size_t total)
{
	if (!r->caps.max_gso)
		return -EOPNOTSUPP;
	if (total > r->caps.max_gso || (uint32_t)g->hdr_len + g->gso_size > r->caps.max_frame)
		return -EMSGSIZE;
	if (iovcnt < 1 || iov[0].iov_len < g->hdr_len || g->hdr_len > SQ_LSO_HEADER_MAX ||
	    g->l4_off + 8u > g->hdr_len || !g->gso_size || total == g->hdr_len)
		return -EINVAL;
	return 0;
}

/* Posts `whole` bytes of payload to be cut, and `rest` more as a frame of their own. */
static int gso_post(struct mlx5_ring *m, const struct iovec *iov, const struct ring_gso *g,
		    size_t whole, size_t rest)
{
	struct place from = {.iov = iov, .at = g->hdr_len};
	struct buf *payload = gather(m, &from, whole), *last = NULL;
	uint8_t hdr[SQ_LSO_HEADER_MAX];
	int err;

	if (rest)
		last = last_datagram(m, iov[0].iov_base, &from, rest,
				     (uint32_t)(whole / g->gso_size), g);
	if ((whole && !payload) || (rest && !last)) {
		err = -EAGAIN;
		goto err_bufs;
	}
	gso_header(hdr, iov[0].iov_base, g);
	err = whole ? sq_post_lso(&m->sq, hdr, g->hdr_len, g->gso_size, payload, last)
		    : sq_post(&m->sq, last);
	if (!err)
		return 0;
	err = refuse(m, err) == -ENOBUFS ? -EAGAIN : err;
err_bufs:
	if (payload)
		buf_free(payload);
	if (last)
		buf_free(last);
	return err;
}

int mlx5_send_gso(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g)
{
	struct mlx5_ring *m = mlx5_ring(r);
	size_t total = 0, payload, rest;
	int err;

	for (int i = 0; i < iovcnt; i++)
		total += iov[i].iov_len;
	err = gso_check(r, iov, iovcnt, g, total);
	if (err)
		return err;
	payload = total - g->hdr_len;
	rest = g->proto == IPPROTO_UDP ? payload % g->gso_size : 0;
	err = gso_post(m, iov, g, payload - rest, rest);
	if (err)
		return err;
	sq_kick(&m->sq);
	mlx5_stat_add(&m->counters.tx_gso_frames, 1);
	mlx5_stat_add(&m->counters.tx_gso_packets, (payload + g->gso_size - 1) / g->gso_size);
	mlx5_stat_add(&m->counters.tx_gso_bytes, total);
	return 0;
}
