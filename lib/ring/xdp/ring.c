/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The life of an AF_XDP ring. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/xdp/xdp.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"

static int xdp_flow_add(struct ring *r, const struct vma_flow_key *key,
			const struct vma_flow_info *info)
{
	return port_flow_add(xdp_ring(r)->port, key, info);
}

static int xdp_flow_del(struct ring *r, const struct vma_flow_key *key)
{
	return port_flow_del(xdp_ring(r)->port, key);
}

static void xdp_port_quiet(struct ring *r, uint16_t local_port, bool quiet)
{
	port_quiet(xdp_ring(r)->port, local_port, quiet);
}

static void set_mtu(struct xdp_ring *x, uint32_t mtu)
{
	uint32_t frame = mtu + ETH_HEADER;

	/* A larger one would need more than one transmit buffer. */
	x->ring.caps.max_frame = frame < UMEM_CHUNK ? frame : UMEM_CHUNK;
}

static void xdp_link_changed(struct ring *r, uint32_t mtu, const uint8_t mac[6])
{
	struct xdp_ring *x = xdp_ring(r);

	set_mtu(x, mtu);
	port_set_mac(x->port, mac);
}

/* Every buffer has been given back: the UMEM goes. A forked child only drops its share. */
static void xdp_close(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);

	libc_internal++;
	port_close(x->port);
	xsk_close_all(x);
	if (x->gso_fd >= 0)
		libc.close(x->gso_fd);
	umem_fini(&x->umem);
	free(x);
	libc_internal--;
}

static void xdp_gauges(const struct ring *r, struct ring_gauges *g)
{
	const struct xdp_ring *x = (const struct xdp_ring *)r;

	*g = (struct ring_gauges){.rx_free = x->umem.rx_free.num + x->filled,
				  .tx_free = x->umem.tx_free.num};
	for (uint32_t i = 0; i < x->num_queues; i++)
		g->rx_queued += __atomic_load_n(x->xsk[i].rx.producer, __ATOMIC_RELAXED) -
				x->xsk[i].rx.head;
}

static void xdp_leave(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);

	libc_internal++;
	port_close(x->port);
	x->port = NULL;
	libc_internal--;
}

/* AF_XDP has no descriptor that does nothing. */
static int xdp_dummy(struct ring *r, struct buf *b)
{
	(void)r;
	(void)b;
	return -EOPNOTSUPP;
}

static const struct ring_ops xdp_ops = {
	.name = "xdp",
	.close = xdp_close,
	.leave = xdp_leave,
	.poll = xdp_poll,
	.pending = xdp_pending,
	.tx_alloc = xdp_tx_alloc,
	.post = xdp_post,
	.dummy = xdp_dummy,
	.kick = xdp_kick,
	.send_gso = xdp_send_gso,
	.wait_fds = xdp_wait_fds,
	.arm = xdp_arm,
	.flow_add = xdp_flow_add,
	.flow_del = xdp_flow_del,
	.port_quiet = xdp_port_quiet,
	.link_changed = xdp_link_changed,
	.gauges = xdp_gauges,
};

static void log_busy(struct xdp_ring *x, unsigned queue)
{
	pid_t pid = port_owner_pid(x->ring.ifindex);

	if (pid)
		log_warn("ring/xdp: queue %u of %s belongs to process %d: sockets stay with the "
			 "kernel until it ends",
			 queue, x->ring.ifname, (int)pid);
	else
		log_warn("ring/xdp: queue %u of %s belongs to another AF_XDP program: sockets stay "
			 "with the kernel",
			 queue, x->ring.ifname);
}

/* Takes the queues, then puts the program in front of them: see port.h for why in this order. */
static int take_port(struct xdp_ring *x)
{
	int err, fds[PORT_MAX_QUEUES];
	unsigned queue = 0;

	err = xsk_open_all(x, &queue);
	if (err == -EBUSY)
		log_busy(x, queue);
	if (err)
		return err;
	/*
	 * Without frames of several chunks (Linux before 6.6) what the peer or GRO has merged would be lost, and generic mode
	 * sees it merged: TCP from a kernel peer would crawl from one timeout to the next. In a driver nothing is merged yet.
	 */
	if (!x->sg)
		x->port->mode = PORT_NATIVE;
	x->trains = x->sg && x->port->mode == PORT_GENERIC;
	x->port->take_trains = x->trains;
	x->port->frags = x->sg;
	err = port_attach(x->port, fds, xdp_wait_fds(&x->ring, fds, PORT_MAX_QUEUES));
	if (err && err != -EEXIST && !x->sg)
		log_warn("ring/xdp: %s: driver %s has no native XDP for an MTU of %u (%s), and this kernel (before 6.6) no "
			 "AF_XDP for merged packets: sockets stay with the kernel",
			 x->port->ifname, x->port->driver, x->port->mtu, strerror(-err));
	if (err)
		xsk_close_all(x);
	return err;
}

int xdp_ring_open(int ifindex, struct ring **out)
{
	struct xdp_ring *x;
	struct port *port;
	int err;

	err = port_open(ifindex, &port);
	if (err)
		return err;
	x = calloc(1, sizeof(*x) + port->num_queues * sizeof(x->xsk[0]));
	if (!x) {
		err = -ENOMEM;
		goto err_port;
	}
	x->port = port;
	x->num_queues = port->num_queues;
	x->ring = (struct ring){.ops = &xdp_ops, .counters = &x->counters, .ifindex = ifindex};
	memcpy(x->ring.ifname, port->ifname, sizeof(x->ring.ifname));
	err = umem_init(&x->umem, (enum pages_type)params.mem_alloc_type);
	if (err)
		goto err_ring;
	err = take_port(x);
	if (err && err != -EEXIST && err != -EBUSY && port->mode == PORT_NATIVE && x->sg) {
		log_info("ring/xdp: %s: driver %s has no usable native XDP: generic mode is tried",
			 port->ifname, port->driver);
		port->mode = PORT_GENERIC;
		err = take_port(x);
	}
	if (err)
		goto err_umem;
	set_mtu(x, port->mtu);
	x->ring.caps.max_rx_frame = x->sg ? ETH_HEADER + 65535 : UMEM_CHUNK - XDP_HEADROOM;
	gso_open(x);
	rx_init(x, (uint32_t)params.rx_bufs);
	log_debug("ring/xdp: %s: driver %s, %u queues, %s mode%s%s, frames up to %u bytes",
		  port->ifname, port->driver, x->num_queues,
		  port->mode == PORT_GENERIC ? "generic" : "native",
		  x->zerocopy ? ", zero-copy" : "", x->sg ? ", multi-buffer" : "",
		  x->ring.caps.max_frame);
	*out = &x->ring;
	return 0;

err_umem:
	umem_fini(&x->umem);
err_ring:
	free(x);
err_port:
	port_close(port);
	return err;
}
