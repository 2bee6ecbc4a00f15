/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What makes the queues: the verbs objects on a machine with the card, plain memory in the tests.
 * The ring knows only this. Everything here makes system calls and needs the lock of the stack that
 * owns the ring, unless the ring is being opened.
 */
#ifndef RING_MLX5_OBJECTS_H
#define RING_MLX5_OBJECTS_H

#include <infiniband/mlx5dv.h>

#include "ring/port.h"
#include "vma/flow.h"

struct mlx5_objects;

/* What the ring asks for. The queues may become larger. */
struct mlx5_want {
	void *base; /* what the device may read and write */
	size_t bytes;
	uint32_t tx_wre, rx_wre; /* descriptors */
	uint32_t rx_segs; /* buffers of a receive descriptor, which has one segment more */
	/* of a receive descriptor, and bytes of each, both powers of two; 0: no striding queue */
	uint32_t strides, stride;
	uint32_t max_inline; /* bytes in a send descriptor */
	uint32_t ask_every; /* send descriptors for one completion */
	uint32_t dm_bytes; /* of the device's memory; there may be none */
	uint16_t vlan; /* frames have its tag; 0: none */
	bool compress; /* completions of received frames may be: only where the device offers it */
};

/* What the device has to say for itself. */
enum mlx5_news {
	MLX5_NOTHING,
	MLX5_QUEUES_FAILED, /* the queues are of no use any more */
	MLX5_DEVICE_GONE, /* nor is the device */
};

struct mlx5_object_ops {
	/*
	 * What striding receive queues of raw packets the device can have. 0 or negative errno;
	 * -EOPNOTSUPP: none.
	 */
	int (*striding)(struct mlx5_objects *o, struct mlx5dv_striding_rq_caps *caps);
	/*
	 * Registers the memory and makes the queues; the device may use them from now on. 0 or
	 * negative errno; -EOPNOTSUPP: not a striding receive queue.
	 */
	int (*start)(struct mlx5_objects *o, const struct mlx5_want *want);
	/*
	 * New queues in place of the old ones, which are gone also when it fails; flows stay. The
	 * memory of the old receive queue's completions stays until release(*old), NULL: there was
	 * none. 0 or negative errno.
	 */
	int (*renew)(struct mlx5_objects *o, const struct mlx5_want *want, void **old);
	void (*release)(struct mlx5_objects *o, void *old);
	/*
	 * Reads the events that event_fd tells of; returns how many there were of the receive
	 * queue. Never sleeps.
	 */
	unsigned (*take_events)(struct mlx5_objects *o);
	/*
	 * The receive queue's events are held back until so many packets or microseconds have
	 * passed. 0 or negative errno.
	 */
	int (*moderate)(struct mlx5_objects *o, uint32_t packets, uint32_t usec);
	/*
	 * The device may use this memory, too, as *key, until it is told the same again or is
	 * closed. 0 or negative errno; -EEXIST, -ENOENT: it may already, it may not.
	 */
	int (*memory_add)(struct mlx5_objects *o, void *addr, size_t len, uint32_t *key);
	int (*memory_del)(struct mlx5_objects *o, void *addr, size_t len);
	/* Reads the device's own events. Never sleeps. */
	enum mlx5_news (*news)(struct mlx5_objects *o);
	/*
	 * 0; -EEXIST: it is there already; -ENOSPC: the table is full; or another negative errno.
	 */
	int (*flow_add)(struct mlx5_objects *o, const struct vma_flow_key *key);
	int (*flow_del)(struct mlx5_objects *o, const struct vma_flow_key *key);
	/*
	 * The interface has another MAC: the flows, and those to come, are of frames to that one.
	 */
	void (*readdress)(struct mlx5_objects *o, const uint8_t mac[6]);
	/*
	 * The device's clocks, which are read without a system call: cycles of its counter, and
	 * what its PTP clock makes of them. 0 or negative errno; -EOPNOTSUPP: there is none.
	 */
	int (*clock_read)(struct mlx5_objects *o, uint64_t *cycles);
	int (*clock_ptp)(struct mlx5_objects *o, struct mlx5dv_clock_info *info);
	/* Everything goes, also after a start() that failed. */
	void (*close)(struct mlx5_objects *o);
	/* In a forked child instead: the objects are the parent's, our references to them go. */
	void (*forget)(struct mlx5_objects *o);
};

struct mlx5_objects {
	const struct mlx5_object_ops *ops;
	/* Filled by start() and renew(). */
	struct mlx5dv_qp qp; /* rq: nothing where the receive queue is a striding one */
	struct mlx5dv_rwq rwq; /* that one */
	struct mlx5dv_cq rx_cq, tx_cq;
	uint32_t qpn, lkey;
	uint32_t vendor_id, part_id; /* of the device */
	uint32_t max_tso; /* payload of a frame that the device cuts; 0: it does not */
	uint32_t clock_khz; /* of the counter that completions are stamped with; 0: there is none */
	uint64_t clock_mask; /* its bits */
	uint32_t min_inline; /* header bytes that a send descriptor must hold: 0 or 18 */
	uint8_t *dm; /* VMA_RING_DEV_MEM_TX: the device's own memory, NULL: there is none */
	uint32_t dm_bytes, dm_lkey;
	bool mpw; /* enhanced multi-packet WQEs, which want no header of their frames */
	bool no_striding; /* start() failed for the want of a striding receive queue */
	int event_fd; /* readable when an armed receive queue has something */
	int news_fd; /* readable when news() has something; -1: it never has */
	const char *failed; /* what start() or renew() could not do */
};

/*
 * The device behind an interface. 0, -EOPNOTSUPP (there is none that we can drive), or another
 * negative errno, logged.
 */
int mlx5_objects_open(const struct ring_port *port, struct mlx5_objects **out);
/* Whether it is likely that there is one: nothing is opened or loaded. */
bool mlx5_objects_likely(const char *ifname);

#endif
