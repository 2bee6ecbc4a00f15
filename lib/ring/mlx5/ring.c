/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/mlx5.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/mlx5/ring_int.h"
#include "ring/mlx5/rule.h"
#include "ring/port.h"
#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/params.h"

#define ETH_HEADER 14u
#define VLAN_TAG 4u
#define CHUNK_MIN 2048u
#define GSO_MAX_FRAME (ETH_HEADER + 65535u)
/* Below this part of the receive chunks that no user holds, frames move to the heap. */
#define LOW_PART 4u
#define RX_SEGS_MAX 16u /* of 2048 bytes, more than any card's MTU */
#define RX_WRE_MIN 2u
#define UPKEEP_POLLS 200u /* what an upkeep counts for */

static bool by_mac(const struct vma_flow_key *key)
{
	return params.eth_mc_l2_only_rules && ring_flow_of_group(key);
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

/* What the device has said of the rule, not of its table, and not we of memory or of queues that are not there just now. */
static bool is_refusal(int err)
{
	return err && err != -ENOSPC && err != -EEXIST && err != -ENOMEM && err != -ENETDOWN;
}

static int mlx5_flow_add(struct ring *r, const struct vma_flow_key *key,
			 const struct vma_flow_info *info)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel = mlx5_begin(),
	    err = by_mac(key) ? mlx5_group_add(m, key) : m->objects->ops->flow_add(m->objects, key);

	mlx5_end(cancel);
	(void)info;
	if (key->port_bits && is_refusal(err)) {
		r->caps.wide_flows = false;
		log_info("ring/mlx5: %s: the device takes no rule for several ports (%s): each "
			 "connection has one of its own",
			 r->ifname, strerror(-err));
		return err;
	}
	if (err && err != -EEXIST && !m->refused) {
		m->refused = true;
		log_warn("ring/mlx5: %s: the device takes no more steering rules (%s): sockets "
			 "without one stay with the "
			 "kernel",
			 r->ifname, strerror(-err));
	}
	return err;
}

static int mlx5_flow_del(struct ring *r, const struct vma_flow_key *key)
{
	struct mlx5_ring *m = mlx5_ring(r);
	int cancel = mlx5_begin(),
	    err = by_mac(key) ? mlx5_group_del(m, key) : m->objects->ops->flow_del(m->objects, key);

	mlx5_end(cancel);
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
		.rx_free = mlx5_rx_ours(m),
		.tx_free = m->memory.tx.num_free,
		.rx_queued = mlx5_pending(r),
	};
}

static void set_gso(struct mlx5_ring *m)
{
	uint32_t segments = sq_lso_segments(SQ_LSO_HEADER_MAX);

	m->ring.caps.gso_locked = true;
	/* The headers of a VLAN's segments would need their tag. */
	if (!m->sq.lso || !m->objects->max_tso || m->want.vlan)
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
	uint32_t tag = m->want.vlan ? VLAN_TAG : 0, frame = mtu + ETH_HEADER + tag;

	/* A larger one would need more than one buffer. */
	m->max_wire = frame < m->memory.chunk ? frame : m->memory.chunk;
	m->ring.caps.max_frame = m->max_wire - tag;
	m->ring.caps.max_rx_frame = m->memory.chunk * m->want.rx_segs - tag;
}

/* Received frames are to have so many buffers each, of the same memory, so there are descriptors for fewer. */
static void want_segs(struct mlx5_ring *m, uint32_t segs)
{
	m->want.rx_segs = segs;
	m->want.rx_wre = power_of_two((uint32_t)params.rx_wre) / power_of_two(segs);
	if (m->want.rx_wre < RX_WRE_MIN)
		m->want.rx_wre = RX_WRE_MIN;
}

/* The interface has an MTU whose frames do not fit into what a receive descriptor has: an error, and new queues, for each that comes. */
static void grow(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t segs = (mtu + ETH_HEADER + VLAN_TAG + m->memory.chunk - 1) / m->memory.chunk;
	uint32_t was = m->want.rx_segs;

	if (segs <= was)
		return;
	if (segs <= RX_SEGS_MAX) {
		want_segs(m, segs);
		if (mlx5_remake(m)) {
			log_info("ring/mlx5: %s: MTU %u: a received frame may have %u buffers; what is sent has up to %u bytes",
				 m->ring.ifname, mtu, segs, m->memory.chunk);
			return;
		}
		want_segs(m, was);
	}
	log_warn("ring/mlx5: %s: MTU %u: frames above %u bytes cannot be received until the program starts anew", m->ring.ifname, mtu,
		 m->memory.chunk * was);
}

static void mlx5_link_changed(struct ring *r, uint32_t mtu, const uint8_t mac[6])
{
	struct mlx5_ring *m = mlx5_ring(r);

	grow(m, mtu);
	set_mtu(m, mtu);
	if (!memcmp(m->mac, mac, sizeof(m->mac)))
		return;
	memcpy(m->mac, mac, sizeof(m->mac));
	m->objects->ops->readdress(m->objects, mac);
}

static int mlx5_upkeep(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);

	mlx5_views_upkeep(m);
	switch (m->objects->ops->news(m->objects)) {
	case MLX5_QUEUES_FAILED:
		sq_stop(&m->sq);
		mlx5_recover(m);
		return 0;
	case MLX5_DEVICE_GONE:
		log_warn("ring/mlx5: %s: the device is gone: datagram sockets and listeners go on "
			 "without it, connections end",
			 r->ifname);
		mlx5_lost_note(r->ifindex);
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
		mlx5_recover(m);
	}
	clock_upkeep(&m->clock, m->objects);
	if (m->moderated && moderation_adapt(&m->moderation, &m->counters, mlx5_now_ms()))
		mlx5_moderate(m);
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
		mlx5_views_close(m);
		m->objects->ops->close(m->objects);
	} else {
		m->objects->ops->forget(m->objects);
	}
	mlx5_groups_free(m);
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
	.poll_stamped = mlx5_poll_stamped,
	.pending = mlx5_pending,
	.tx_alloc = mlx5_tx_alloc,
	.send_short = mlx5_send_short,
	.post = mlx5_post,
	.dummy = mlx5_dummy,
	.kick = mlx5_kick,
	.burst_begin = mlx5_burst_begin,
	.burst_add = mlx5_burst_add,
	.burst_end = mlx5_burst_end,
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

/* Memory and queues behind the device of m->objects. 0 or negative errno, everything that was made still to be freed. */
static int start(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t chunk = (mtu + ETH_HEADER + VLAN_TAG + 63) & ~63u;
	uint32_t rx = power_of_two((uint32_t)params.rx_wre);
	int err;

	m->want.tx_wre = (uint32_t)params.tx_wre;
	m->want.rx_wre = (uint32_t)params.rx_wre;
	m->want.rx_segs = 1;
	m->want.max_inline = (uint32_t)params.tx_max_inline;
	m->want.ask_every = (uint32_t)params.tx_wre_batching;
	m->want.dm_bytes = (uint32_t)params.ring_dev_mem_tx;
	m->want.compress = params.cqe_compression;
	err = memory_init(&m->memory, (enum pages_type)params.mem_alloc_type,
			  chunk < CHUNK_MIN ? CHUNK_MIN : chunk,
			  rx + (uint32_t)params.qp_compensation_level, (uint32_t)params.tx_wre);
	if (err)
		return err;
	m->want.base = m->memory.base;
	m->want.bytes = m->memory.bytes;
	err = m->objects->ops->start(m->objects, &m->want);
	return err ? err : mlx5_queues_init(m);
}

/* 0 or negative errno; *what: what the device would not do, NULL: nothing to tell. */
static int ring_make(int ifindex, struct ring **out, const char **what)
{
	struct mlx5_objects *objects;
	struct mlx5_ring *m;
	struct port *port, device;
	uint16_t vlan;
	int err;

	*what = NULL;
	if (mlx5_lost_lately(ifindex))
		return -EOPNOTSUPP;
	err = port_open(ifindex, &port);
	if (err)
		return err;
	device = *port;
	vlan = mlx5_vlan_of(ifindex, &device);
	err = mlx5_objects_open(&device, &objects);
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
	if (vlan)
		mlx5_vlan_start(m, vlan);
	m->heap_pool.free = mlx5_heap_buf_free;
	m->heap_bufs_max = (uint32_t)params.rx_bufs;
	err = start(m, port->mtu);
	if (err)
		goto err_ring;
	m->rx_low = m->memory.rx.num / LOW_PART;
	set_mtu(m, port->mtu);
	set_gso(m);
	clock_init(&m->clock, objects, params.hw_ts_conversion);
	moderation_init(&m->moderation, mlx5_now_ms());
	mlx5_moderate(m);
	m->ring.caps.tx_csum = true;
	m->ring.caps.rx_csum = true;
	m->ring.caps.wide_flows = true;
	m->ring.caps.takes_all = true;
	m->ring.caps.wide_groups = params.eth_mc_l2_only_rules;
	m->ring.caps.rx_stamp = m->clock.kind != CLOCK_NONE;
	log_debug("ring/mlx5: %s: %u WQEBBs to send, %u buffers to receive, frames up to %u bytes",
		  m->ring.ifname, m->sq.mask + 1, m->rq.cnt, m->ring.caps.max_frame);
	port_close(port);
	*out = &m->ring;
	return 0;

err_ring:
	*what = objects->failed ? objects->failed : "have memory or queues of that size";
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

int mlx5_ring_open(int ifindex, struct ring **out)
{
	char ifname[IF_NAMESIZE] = "";
	const char *what;
	int err = ring_make(ifindex, out, &what);

	if (what) {
		(void)if_indextoname((unsigned)ifindex, ifname);
		log_warn("ring/mlx5: %s: could not %s: %s%s", ifname, what, strerror(-err),
			 params.ring_type == RING_TYPE_AUTO ? ": AF_XDP is used" : "");
	}
	return err;
}

int mlx5_ring_more(const struct ring *first, struct ring **out)
{
	const char *what;
	int err = ring_make(first->ifindex, out, &what);

	if (what)
		log_debug("ring/mlx5: %s: no further ring: could not %s: %s", first->ifname, what, strerror(-err));
	return err;
}
