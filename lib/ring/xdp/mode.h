/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the steering program and the XSKs stand to an interface's driver, by what the driver can:
 * zero-copy where it has it; in the driver (native) where that takes nothing from the kernel's own
 * flows; on the skb (generic) else. VMA_XDP_MODE may say it in its place.
 */
#ifndef RING_XDP_MODE_H
#define RING_XDP_MODE_H

#include "ring/port.h"

/* What the kernel says that a driver has (linux/netdev.h's NETDEV_XDP_ACT_*), since 6.3. */
#define XDP_HAS_BASIC 1u
#define XDP_HAS_REDIRECT 2u
#define XDP_HAS_ZEROCOPY 8u

struct mode_facts {
	bool is_known; /* features: the kernel has told them */
	uint64_t features; /* XDP_HAS_* */
	bool merges; /* the device, or its host, merges what is received */
};

/* Sets p->mode, bind and why: asks the kernel, unless VMA_XDP_MODE says it. */
void mode_choose(struct ring_port *p);
/* Sets p->mode and why by what is known of the driver; p->is_virtual is set. */
void mode_pick(struct ring_port *p, const struct mode_facts *f);
/* The same as if the driver had no zero-copy. */
void mode_pick_without_zerocopy(struct ring_port *p, const struct mode_facts *f);
/* The mode allows zero-copy, whether the driver has it or not. */
static inline bool mode_may_zerocopy(const struct ring_port *p)
{
	return p->mode == PORT_NATIVE && p->bind != BIND_COPY;
}

/* Would zero-copy be taken of the interface's driver? */
bool mode_takes_zerocopy(const struct ring_port *p);
/*
 * In zero-copy mode other processes can have the queues, too. Not where their frames need several
 * buffers, nor with a driver that waits for a program whose receive ring is full: all others of the
 * queue would wait with it.
 */
bool mode_shares_zerocopy(const struct ring_port *p);
/* VMA_RX_TELLS_*: what the program may ask the driver for of each frame (VMA_XDP_METADATA). */
uint32_t mode_rx_metadata(const struct ring_port *p);
/*
 * The driver has refused the zero-copy that it says it has (virtio-net does so where its host maps
 * no memory): sets p->mode and why as if it had none.
 */
void mode_zerocopy_refused(struct ring_port *p);
/*
 * Do frames reach the interface's XSKs in p->mode? False is said in the log. In native mode those
 * of a bond come by the devices below it, and an XSK takes its own device's only: they would be
 * lost.
 */
bool mode_receives(const struct ring_port *p);
/*
 * May a good frame have a checksum over the pseudo-header only? What this host or a virtual
 * machine's host sends has, and what GRO has merged in front of generic mode; what a driver takes
 * off a wire has not.
 */
bool mode_partial_sums(const struct ring_port *p);

#endif
