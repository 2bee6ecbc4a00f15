/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The descriptor layer: send, receive and completion queues in the memory that mlx5dv_init_obj()
 * describes. It makes no system call and knows no verbs object. All functions need the lock of the
 * stack that owns the ring, but for sq_kick(). The device is not trusted: what it writes is checked
 * before it is an index or a length.
 */
#ifndef RING_MLX5_QUEUE_QUEUE_H
#define RING_MLX5_QUEUE_QUEUE_H

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mem/mem.h"
#include "ring/mlx5/queue/barrier.h"

#define BB 64u /* WQEBB: the unit of the send queue */
#define CQE_COMPRESSED 3u /* the format bits of a CQE that starts a compressed session */
#define CQE_SOLICITED 2u /* a bit of op_own */
#define MINI_CQES 8u /* in the place of one CQE */
#define CQ_CI_MASK 0xffffffu /* the consumer index in a CQ's doorbell record has 24 bits */

/* mlx5dv.h does not have it. The first word is a hash or a checksum, as the CQ was made. */
struct mini_cqe {
	__be32 info;
	__be32 byte_cnt;
};

/* --- completion queue */

struct cq {
	uint8_t *cqes; /* the 64 bytes that count of the first one */
	__be32 *dbrec; /* ours to write: [0] consumer index, [1] arming */
	uint32_t ci; /* completions taken in total */
	uint32_t cnt; /* a power of two */
	uint32_t shift; /* 6 or 7: 64 or 128 bytes each */
};

/* 0 or -EINVAL: not what we can drive. */
int cq_init(struct cq *q, const struct mlx5dv_cq *dv);

static inline struct mlx5_cqe64 *cq_at(const struct cq *q, uint32_t index)
{
	return (struct mlx5_cqe64 *)(q->cqes + ((size_t)(index & (q->cnt - 1)) << q->shift));
}

/* The owner bit of the entry at index when it is ours: it turns with each lap. */
static inline uint8_t cq_owner(const struct cq *q, uint32_t index)
{
	return !!(index & q->cnt);
}

/* The first byte to be read of a CQE: the device writes it last. */
static inline uint8_t cqe_op_own(const struct mlx5_cqe64 *c)
{
	return __atomic_load_n(&c->op_own, __ATOMIC_RELAXED);
}

/* Is the entry with this op_own, at index, a completion? */
static inline bool cq_ours(const struct cq *q, uint32_t index, uint8_t op_own)
{
	return op_own >> 4 != MLX5_CQE_INVALID &&
	       (op_own & MLX5_CQE_OWNER_MASK) == cq_owner(q, index);
}

/* The device may write over what was taken. */
static inline void cq_publish(struct cq *q)
{
	/* release: the entries have been read before they are given back */
	__atomic_store_n(&q->dbrec[0], htobe32(q->ci & CQ_CI_MASK), __ATOMIC_RELEASE);
}

/* A completion queue in which nothing ever comes, in the place of one that is gone. */
void cq_mute(struct cq *q);

/* --- send queue */

/* Written with the WQE that asks for a completion, at its index: what the completion frees. */
struct sq_mark {
	uint32_t end; /* sq.pi behind the WQE */
	uint32_t held; /* sq.held_pi behind it */
	uint32_t dm; /* sq.dm.pi behind it */
};

/*
 * How far the queue is, in the low 16 bits of WQEBB counts. The halves are written alone while
 * somebody may kick: `post` under the stack lock, `rung` by who rings; when they agree nobody
 * rings, and the stack lock is enough to write both.
 */
union sq_state {
	uint64_t whole;
	struct {
		uint32_t post; /* pi | WQEBBs of the last WQE << 16 */
		uint32_t rung; /* pi of the last doorbell */
	};
};

/* Memory of the device (dm.h). */
struct sq_dm {
	uint8_t *map;
	uint32_t size; /* a multiple of 8; 0: there is none */
	uint32_t at; /* where the next frame goes */
	/* bytes given out, with those left out at the end, and got back, in total */
	uint32_t pi, ci;
	__be32 lkey; /* its addresses are offsets */
	/* Frames that were put there, their bytes, and frames for which there was no room. */
	uint64_t packets, bytes, oob;
};

/* A burst (mpw.h): what is known of the WQE that it is filling. */
struct sq_mpw {
	bool able; /* the device knows such WQEs */
	bool is_on;
	/* of 16 bytes: written, and that there is room for; 0: no WQE is begun */
	uint32_t units, units_max;
	uint32_t frames;
	uint32_t slot_room; /* the queue's own, which is 0 meanwhile */
	struct buf *held; /* frames that it points to, a chain */
};

struct sq {
	/* Under the stack lock; the first line is what a short frame needs. */
	uint8_t *wqes;
	uint32_t mask; /* WQEBBs - 1 */
	uint32_t pi; /* WQEBBs given to the device in total */
	uint32_t run; /* at least so many are free from pi on, without a turn at the end */
	uint32_t
		/* frames up to this many bytes are made in the WQE itself; 0 when broken */
		slot_room;
	uint32_t ask_in; /* the WQE that asks for a completion next, counted from the next one */
	uint32_t qpn; /* << 8 */
	uint8_t *
		/*
		 * two registers of bf_size bytes, used in turn; bf_size 0: one, for doorbells only
		 */
		bf;
	uint32_t bf_size, bf_offset; /* by who rings */
	__be32 *dbrec; /* by who rings */
	union sq_state state;

	uint32_t ringing; /* 1: somebody does */
	bool broken; /* the device reported an error, or what cannot be: nothing moves any more */
	bool lso; /* sq_post_lso() may be used */
	uint8_t syndrome, vendor_syndrome; /* of the error; 0: it reported what cannot be */
	uint32_t ci; /* WQEBBs got back in total */
	uint32_t ask_every;
	__be32 lkey;
	uint32_t
		/* header bytes that the device wants in the WQE: 0 or SQ_INLINE_HEADER */
		min_inline;
	uint32_t held_pi, held_ci;
	struct buf **held; /* [WQEBBs], a queue: frames that the device reads from their buffers */
	struct sq_mark *marks; /* [WQEBBs] */
	struct cq cq;
	struct buf slot; /* the next WQE, as a place for a frame (sq_slot()) */
	struct sq_mpw mpw;
	struct sq_dm dm;
};

_Static_assert(offsetof(struct sq, ringing) <= 72, "a short frame needs little more than a line");

#define SQ_INLINE_HEADER 18u /* Ethernet and a VLAN tag */
/* where a frame starts that is in the WQE: behind control and Ethernet segment */
#define SQ_FRAME_AT 30u
/* so long a frame may be there: of the WQE's 63 units of 16 bytes it fills 58 */
#define SQ_SLOT_MAX 884u

struct sq_config {
	uint32_t qpn, lkey;
	uint32_t max_inline; /* VMA_TX_MAX_INLINE */
	uint32_t min_inline;
	/* VMA_TX_WRE_BATCHING; less often where the queues are so small or large */
	uint32_t ask_every;
	/* the device takes several frames in a WQE, and wants no header in front of them */
	bool mpw;
	uint8_t *dm; /* of dm_bytes: memory of the device, aligned to 8 */
	uint32_t dm_bytes, dm_lkey;
};

/* 0, -EINVAL (not what we can drive), -ENOMEM. */
int sq_init(struct sq *q, const struct mlx5dv_qp *qp, const struct mlx5dv_cq *cq,
	    const struct sq_config *config);
/*
 * Gives all buffers back; the device must be done with the queue, whose memory is not touched. What
 * is left is a broken queue.
 */
void sq_fini(struct sq *q);
/*
 * Posts b, a frame in one piece, and takes it over. -ENOBUFS: full (b is the caller's), also when
 * the queue is broken; -EINVAL: too short for a frame. The device sees it with the next sq_kick().
 */
int sq_post(struct sq *q, struct buf *b);
/*
 * The same, but the WQE does nothing: as long as it would be if b is a slot, of one WQEBB else (b
 * is given back).
 */
int sq_post_nop(struct sq *q, struct buf *b);
#define SQ_SEND_HEADER 42u
/*
 * sq_send() of a frame of another length, or of one that asks for a completion; there is room.
 * False: len is below 16.
 */
bool sq_send_odd(struct sq *q, const void *hdr, const void *data, uint32_t len);
#define SQ_LSO_HEADER_MAX 160u
/*
 * Posts a large frame: hdr_len bytes of headers at hdr, which the device completes for each segment
 * of mss bytes, and the payload in `payload` and its fragments, and then the frame `last`, which is
 * no slot, or NULL. Takes both over. Only where q->lso. -ENOBUFS, -EINVAL: as sq_post(), nothing is
 * posted, both are the caller's.
 */
int sq_post_lso(struct sq *q, const void *hdr, uint32_t hdr_len, uint32_t mss, struct buf *payload,
		struct buf *last);
/* Buffers that the payload may have behind headers of that length. */
uint32_t sq_lso_segments(uint32_t hdr_len);
/* The queue is of no use any more, the device has said elsewhere. */
void sq_stop(struct sq *q);
/* Takes completions: buffers go back to their pools. */
void sq_reclaim(struct sq *q);
/*
 * Rings the doorbell for what was posted. Any thread, no lock of a stack; signal handlers must wait
 * meanwhile (lock_enter()).
 */
void sq_kick(struct sq *q);

/* Looks anew how far q->run reaches. True: at least so many WQEBBs. */
bool sq_room(struct sq *q, uint32_t bbs);

/* WQEBBs of a frame in its WQE. */
static inline uint32_t slot_bbs(uint32_t len)
{
	return (SQ_FRAME_AT + len + BB - 1) / BB;
}

/*
 * A place for a frame of up to `room` bytes in the next WQE: what is written there needs no copy,
 * and the device fetches nothing. It is to be posted or freed before anything else is posted. NULL:
 * too long, the queue is full, or ends too soon. 64 bytes may always be written.
 */
static inline struct buf *sq_slot(struct sq *q, uint32_t room)
{
	uint32_t bbs = slot_bbs(room > 64 ? room : 64);

	if (__builtin_expect(room > q->slot_room, 0) ||
	    (__builtin_expect(bbs > q->run, 0) && !sq_room(q, bbs)))
		return NULL;
	q->slot.data = q->wqes + (size_t)(q->pi & q->mask) * BB + SQ_FRAME_AT;
	q->slot.room = bbs * BB - SQ_FRAME_AT;
	q->slot.refs = 1;
	return &q->slot;
}

/* --- receive queue */

enum rx_result {
	RX_NONE, /* nothing has come */
	RX_FRAME,
	RX_LONG, /* one that is lost: it was longer than its buffers (struct rq_spill) */
	RX_BROKEN, /* the device reported an error, or what cannot be: nothing moves any more */
};

/*
 * Where the device writes what of a frame has no room in its buffers, of all frames to the same
 * place, which nobody reads. Without it such a frame is an error that ends the queue, and the MTU
 * of others on the wire may be larger than ours.
 */
struct rq_spill {
	const void *at;
	uint32_t len;
};

struct rq {
	struct cq cq;
	struct mlx5_wqe_data_seg *wqes;
	__be32 *dbrec;
	/* [cnt]: what the device writes to; further ones of a WQE are the first one's fragments */
	struct buf **bufs;
	uint32_t cnt, stride; /* a power of two; in data segments */
	uint32_t segs; /* buffers of a WQE, which a long frame fills one after the other */
	uint32_t pi, ci; /* buffers given to the device, and got back, in total */
	uint32_t spill; /* bytes of a WQE behind its buffers */
	__be32 lkey;
	/* A compressed session. */
	struct mini_cqe minis[MINI_CQES];
	uint32_t zip_left,
		zip_at; /* frames to come; the next one, counted from the session's first */
	uint8_t zip_flags;
	bool broken;
	/* broken, in the middle of a session, of several buffers for a WQE, or striding */
	bool is_odd;
	uint8_t syndrome, vendor_syndrome; /* as in struct sq */
	/* A striding queue (strides.h), whose segs are 0: pi and ci count slabs. */
	struct slabs *slabs; /* NULL: it is none */
	struct mlx5_slab **posted; /* [cnt] */
	struct mlx5_slab *slab; /* at ci, or NULL: it was not looked at */
	uint32_t strides; /* of a slab */
	uint32_t at; /* the next one of `slab`; strides: there is none */
};

/*
 * 0, -EINVAL, -ENOMEM. segs: buffers of a WQE, which has room for so many, and one more segment if
 * there is a spill (NULL: none).
 */
int rq_init(struct rq *q, const struct mlx5dv_qp *qp, const struct mlx5dv_cq *cq, uint32_t lkey,
	    uint32_t segs, const struct rq_spill *spill);
/* As sq_fini(). */
void rq_fini(struct rq *q);
/* Ends the use of the queue; RX_BROKEN. */
enum rx_result rq_break(struct rq *q);
/*
 * The completion c is of a single frame that its buffers have no room for: RX_LONG, they are given
 * back, or rq_break().
 */
enum rx_result rq_take_long(struct rq *q, const struct mlx5_cqe64 *c);
/* Any completion that rq_take() does not know at sight. */
enum rx_result rq_take_odd(struct rq *q, struct buf **out);

/* Places for buffers. */
static inline uint32_t rq_room(const struct rq *q)
{
	return q->cnt - (q->pi - q->ci);
}

/*
 * Posts b, whose room the device may write, where a WQE is of one; there must be a place.
 * rq_publish() tells the device.
 */
static inline void rq_post(struct rq *q, struct buf *b)
{
	uint32_t i = q->pi++ & (q->cnt - 1);

	q->bufs[i] = b;
	q->wqes[(size_t)i * q->stride].byte_count = htobe32(b->room);
	q->wqes[(size_t)i * q->stride].addr = htobe64((uint64_t)(uintptr_t)b->data);
}

/* The same for b and its fragments, q->segs buffers. */
void rq_post_chain(struct rq *q, struct buf *b);

static inline void rq_publish(struct rq *q)
{
	/* The descriptors before the index that gives them to the device. */
	dev_wmb();
	q->dbrec[MLX5_RCV_DBR] = htobe32(q->pi & 0xffff);
}

/*
 * The buffer flags that a completion vouches for: only where the device has seen both headers. A
 * bit for each pair of their types: IPv4 (2) or IPv6 (1) in the lower two bits of its number, and
 * UDP (2) or one of three TCPs (1, 3, 4) above; the others are nothing yet.
 */
_Static_assert(offsetof(struct mlx5_cqe64, l4_hdr_type_etc) ==
		       offsetof(struct mlx5_cqe64, hds_ip_ext) + 1,
	       "read as one");
static inline uint8_t cqe_flags(const struct mlx5_cqe64 *c)
{
	const uint8_t both = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
	uint16_t bytes;
	uint32_t seen;

	/* UDP over IPv4, by one look at both bytes. */
	memcpy(&bytes, &c->hds_ip_ext, sizeof(bytes));
	if (__builtin_expect(
		    (bytes & htobe16(both << 8 | 0x7c)) == htobe16(both << 8 | 2 << 2 | 2 << 4), 1))
		return BUF_CSUM_OK;
	seen = 0x00066660u >> (c->l4_hdr_type_etc >> 2 & 31) & 1;
	return (c->hds_ip_ext & both) == both ? (uint8_t)seen * BUF_CSUM_OK : 0;
}

/*
 * The buffer of the next receive WQE, filled with len bytes, or NULL: the device says what cannot
 * be.
 */
static inline struct buf *rq_pop(struct rq *q, uint16_t counter, uint32_t len, uint8_t flags)
{
	struct buf *b = q->bufs[q->ci & (q->cnt - 1)];

	/* The WQEs of a receive queue are used in their order. */
	if (__builtin_expect(counter != (uint16_t)q->ci || q->ci == q->pi || len > b->room, 0))
		return NULL;
	q->ci++;
	b->len = len;
	b->total = len;
	b->flags = flags;
	return b;
}

/* Takes c, the next completion, one of a single frame. */
static inline enum rx_result rq_take_plain(struct rq *q, const struct mlx5_cqe64 *c,
					   struct buf **out)
{
	/*
	 * The rest of the completion, and the frame, after the byte that says that they are there.
	 */
	dev_rmb();
	*out = rq_pop(q, be16toh(c->wqe_counter),
		      be32toh(__atomic_load_n(&c->byte_cnt, __ATOMIC_RELAXED)), cqe_flags(c));
	if (__builtin_expect(!*out, 0))
		return rq_take_long(q, c);
	q->cq.ci++;
	return RX_FRAME;
}

/*
 * Takes a completion if it is one of a single frame; NULL: another, or none, for rq_take().
 * cq_publish() follows.
 */
static inline struct buf *rq_take_usual(struct rq *q)
{
	const struct mlx5_cqe64 *c = cq_at(&q->cq, q->cq.ci);
	struct buf *b;

	if (__builtin_expect((cqe_op_own(c) ^ cq_owner(&q->cq, q->cq.ci)) != MLX5_CQE_RESP_SEND
										     << 4 ||
				     q->is_odd,
			     0))
		return NULL;
	/*
	 * The rest of the completion, and the frame, after the byte that says that they are there.
	 */
	dev_rmb();
	b = rq_pop(q, be16toh(c->wqe_counter),
		   be32toh(__atomic_load_n(&c->byte_cnt, __ATOMIC_RELAXED)), cqe_flags(c));
	q->cq.ci += b != NULL;
	return b;
}

/*
 * Takes one completion. RX_FRAME: *out is the caller's, its len, total and flags set. cq_publish()
 * follows the last.
 */
static inline enum rx_result rq_take(struct rq *q, struct buf **out)
{
	const struct mlx5_cqe64 *c = cq_at(&q->cq, q->cq.ci);
	uint8_t op_own = cqe_op_own(c);

	if (__builtin_expect((op_own ^ cq_owner(&q->cq, q->cq.ci)) != MLX5_CQE_RESP_SEND << 4 ||
				     q->is_odd,
			     0))
		return rq_take_odd(q, out);
	return rq_take_plain(q, c, out);
}

#endif
