/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The device in user space: queues on plain memory behind lib/ring/mlx5/objects.h, executed by the
 * descriptor checker when the test says so. One at a time unless soft_config says otherwise; each
 * further one is another ring's on the same card.
 */
#ifndef MLX5_DEVICE_SOFT_H
#define MLX5_DEVICE_SOFT_H

#include <sys/uio.h>

#include "device.h"
#include "ring/mlx5/objects.h"

/* What the next device is like. */
struct soft_config {
	uint32_t sq_bbs, rq_cnt; /* 0: what the ring asks for */
	uint32_t cqe_size; /* 64 or 128 */
	uint32_t min_inline; /* 0 or 18 */
	uint32_t bf_size; /* bytes of a BlueFlame register; 0: plain doorbells */
	uint32_t zip_max; /* completions in a compressed session; 0: none */
	uint32_t max_frame, max_tso;
	/* fewest strides of a receive descriptor; 0: there are no striding queues */
	uint32_t strides_log;
	bool no_wq; /* and none can be had for all that */
	uint32_t dm_bytes; /* of its own memory, at most */
	bool mpw; /* it takes several frames in a WQE */
	uint32_t flows_max; /* rules that have a place; 0: no limit */
	unsigned devices; /* that can be open; 0: 1 */
	bool whole_ports; /* rules for a part of a port's bits are refused */
	uint32_t clock_khz; /* 0: there is no clock */
	bool ptp;
	bool loose; /* trust the driver: no fingerprints of what it hands over */
	bool quiet; /* complaints are counted, not printed */
};

extern struct soft_config soft_config;

struct soft {
	struct mlx5_objects o; /* first */
	struct soft *next; /* that was opened before, and is open */
	struct mdev dev;
	struct mdev_sq sq;
	struct mdev_rq rq;
	struct mdev_cq tx_cq, rx_cq;
	struct mlx5_want want;
	uint8_t *uar;
	uint8_t *dm;
	struct vma_flow_key *rules; /* that are there, [flows] */
	unsigned flows, flows_made; /* flows_made: so far */
	_Atomic bool started; /* its queues are there: soft_run() and soft_receive() may come */
	unsigned renewals;
	unsigned readdressed;
	uint8_t mac[6]; /* as it was last told */
	unsigned unreleased; /* renewals whose old completions are still there */
	enum mlx5_news news; /* what is told next */
	uint32_t held_packets, held_usec; /* interrupt moderation */
	struct iovec lent; /* the program's memory, NULL: none; one at a time */
	uint64_t cycles; /* its clock, and the stamp of what comes */
	unsigned clock_reads;
	struct mlx5dv_clock_info ptp;
	/* The test's: every frame that left. */
	void (*sent)(struct soft *s, const uint8_t *frame, uint32_t len);
	void *arg;
};

/* The device that was opened last, NULL: none is open. */
extern struct soft *soft;
/* Another thread is opening it, maybe: that is done. */
bool soft_started(void);

/* Looks at the doorbells and executes up to max WQEs; returns how many. */
unsigned soft_run(struct soft *s, unsigned max);
/* Does a rule steer what goes to local, as a key without port_bits has it, to us? */
bool soft_steers(const struct soft *s, const struct vma_flow_key *to);
/* A frame comes in. False: the queue had no place for it. */
bool soft_receive(struct soft *s, const void *frame, uint32_t len);

#endif
