/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The descriptor checker: it executes send, receive and completion queues as the card would, and
 * complains about whatever the card would choke on, or do silently wrong. It trusts nothing that
 * the driver wrote. Not locked: the caller serializes.
 */
#ifndef MLX5_DEVICE_DEVICE_H
#define MLX5_DEVICE_DEVICE_H

#include "platform.h"

#define MDEV_BB 64u /* the send queue's unit */
#define MDEV_SQ_MAX 32768u
#define MDEV_FRAME_MAX 65600u
#define MDEV_SEGMENT_MAX 10240u
#define MDEV_WQE_MAX 1024u /* 63 units of 16 bytes, in whole WQEBBs */

/* Opcode and format of completions. */
#define MDEV_CQE_REQ (0 << 4)
#define MDEV_CQE_RESP_SEND (2 << 4)
#define MDEV_CQE_COMPRESSED (2 << 4 | 3 << 2)
#define MDEV_CQE_REQ_ERR (13 << 4)
#define MDEV_CQE_RESP_ERR (14 << 4)

enum mdev_syndrome {
	MDEV_LENGTH_ERROR = 0x01,
	MDEV_QP_ERROR = 0x02, /* a descriptor that makes no sense */
	MDEV_PROTECTION_ERROR = 0x04,
	MDEV_FLUSHED = 0x05,
};

struct mdev;
struct mdev_ops {
	/* len bytes at addr behind a memory key, or NULL: no such key, or beyond its bounds. */
	u8 *(*memory)(struct mdev *d, u32 lkey, u64 addr, u32 len);
	/* A frame leaves, checksums as they were asked for. */
	void (*transmit)(struct mdev *d, const u8 *frame, u32 len);
	/* Somebody asked to be told of a completion queue, and there is something. */
	void (*event)(struct mdev *d, u32 cqn);
	/* The driver did what it must not. a and b say where. */
	void (*complain)(struct mdev *d, const char *what, u32 a, u32 b);
};

struct mdev {
	const struct mdev_ops *ops;
	u32 min_inline; /* header bytes that each send descriptor must hold */
	u32 max_frame;
	u32 max_tso; /* payload of a frame that is to be cut; 0: none is */
	bool mpw; /* enhanced multi-packet WQEs */
	u32 complaints;
	/*
	 * The driver runs beside us: its record may be further than the doorbell that we saw, and a
	 * doorbell may be seen after one that was rung later. WQEs are taken over up to the one
	 * that a doorbell named, no further.
	 */
	bool racing;
	u8 wqe[MDEV_WQE_MAX]; /* the descriptor in hand, in one piece */
	u8 frame[MDEV_FRAME_MAX];
	u8 segment[MDEV_SEGMENT_MAX]; /* one of a frame that is cut */
};

struct mdev_cq {
	struct mdev *dev;
	u8 *entries;
	const u8 *dbrec; /* [0] consumer index, [4] arming */
	u32 cnt, size; /* entries; bytes of each, 64 or 128 */
	u32 cqn;
	u32 pi;
	bool armed;
	u32 events; /* told in total */
};

struct mdev_sq {
	struct mdev *dev;
	struct mdev_cq *cq;
	const u8 *wqes;
	const u8 *dbrec; /* [4] producer index */
	u32 cnt, qpn;
	u32 pi, ci; /* WQEBBs taken over, and executed */
	u32 freed; /* end of the last WQE with a completion: what the driver may write over */
	u32 rung; /* index that a doorbell named */
	bool has_rung;
	bool error; /* all that follows is flushed */
	u8 fail; /* syndrome of the next WQE, for no reason of its own; 0: none */
	u64 *sums; /* [cnt], the caller's: what a WQE and its data were when it was taken over */
};

struct mdev_rq {
	struct mdev *dev;
	struct mdev_cq *cq;
	const u8 *wqes;
	const u8 *dbrec; /* [0] producer index */
	u32 cnt, stride; /* bytes of each */
	/* a striding queue: strides of the memory of each, and their bytes; 0: it is none */
	u32 parts, part;
	u32 at; /* strides used of the WQE at ci */
	u32 qpn;
	u32 pi, ci;
	u32 dropped; /* no descriptor was there */
	bool error;
	u8 fail; /* as in mdev_sq */
	u64 *posted; /* [cnt], the caller's: the addresses that the device may write to */
	/* Completions held back to be written as one compressed session. */
	u32 zip_max; /* 0: none are */
	u32 *sessions; /* counts them; NULL: nobody wants to know */
	u32 zip_num;
	u32 zip_first; /* WQE of the first */
	u32 zip_bytes[64];
	u8 zip_title[64];
};

/* Where things are in a frame; 0: not there. */
struct mdev_where {
	u32 l3, l4, end;
	u32 type; /* the Ethernet type, behind a tag */
	u8 family, proto; /* 4 or 6 */
	bool vlan, fragment;
};

/* What the card finds out about a received frame. */
struct mdev_seen {
	u8 ok; /* bits: 1 L2, 2 L3, 4 L4 */
	u8 types; /* l3 << 2 | l4 << 4 */
	u32 tag;
	u64 time;
};

/*
 * The 64 bytes of a completion, but for the last: `op` has opcode and format there, the owner is
 * added. False: there was no place.
 */
bool mdev_cq_put(struct mdev_cq *q, u8 entry[64], u8 op);
/*
 * The bytes at 0x20 of the UAR page were written: q, whose number they name, is to tell of what
 * comes.
 */
void mdev_cq_arm(struct mdev_cq *q, const u8 doorbell[8]);

/*
 * A doorbell register was written: `reg` is what is in it. `whole`: more than the first eight bytes
 * are.
 */
void mdev_sq_doorbell(struct mdev_sq *q, const u8 *reg, bool whole);
/* After the doorbells: takes over what the record says. */
void mdev_sq_fetch(struct mdev_sq *q);
/* Executes up to max WQEs; returns how many it did. */
u32 mdev_sq_run(struct mdev_sq *q, u32 max);

/* A frame came for q. False: there was no descriptor for it. */
bool mdev_rq_receive(struct mdev_rq *q, const u8 *frame, u32 len, const struct mdev_seen *seen);
/* Writes what is held back. */
void mdev_rq_flush(struct mdev_rq *q);
/* Looks at what was posted since. */
void mdev_rq_fetch(struct mdev_rq *q);
/* Every WQE that was posted comes back with an error. */
void mdev_rq_abort(struct mdev_rq *q);
/* Finds the headers of a frame of at least 14 bytes. */
void mdev_find(const u8 *frame, u32 len, struct mdev_where *w);
/* Parses a frame as the card does. */
void mdev_look(const u8 *frame, u32 len, struct mdev_seen *seen);
/*
 * Where the header ends of a frame whose first `header` bytes are at f, of TCP or UDP; 0: there is
 * none that could be cut behind. *l3, *l4: where its IP and its TCP or UDP header start.
 */
u32 mdev_cut_point(const u8 *f, u32 header, u32 *l3, u32 *l4);
/*
 * Makes the headers of the n-th segment, which starts `at` bytes into the payload and has `len` of
 * them, out of the first one's.
 */
void mdev_cut_header(u8 *f, u32 l3, u32 l4, u32 n, u32 at, u32 len, bool last);
/* Completes the checksums of a frame: bits 0x40 of the IP header, 0x80 of TCP or UDP. */
void mdev_checksum(u8 *frame, u32 len, u8 flags);

static inline void mdev_complain(struct mdev *d, const char *what, u32 a, u32 b)
{
	d->complaints++;
	d->ops->complain(d, what, a, b);
}

#endif
