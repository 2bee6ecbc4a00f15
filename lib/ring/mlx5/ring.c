/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/mlx5.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "net/net.h"
#include "ring/mlx5/internal.h"
#include "ring/mlx5/rule.h"
#include "ring/port.h"
#include "runtime/runtime.h"
#include "config/config.h"

#define ETH_HEADER 14u
#define VLAN_TAG 4u
#define CHUNK_MIN 2048u
#define GSO_MAX_FRAME (ETH_HEADER + 65535u)
/* Below this part of the receive chunks that no user holds, frames move to the heap. */
#define LOW_PART 4u
/* Below this part of them, frames are dropped if the heap has no room for them. */
#define RESERVE_PART 16u
#define RX_SEGS_MAX 16u /* of 2048 bytes, more than any card's MTU */
#define RX_WRE_MIN 2u
#define STRIDE CHUNK_MIN /* a frame of the usual MTU */
#define STRIDES 64u /* of a slab, where the device takes so few */
#define STRIDES_LOG_MAX 12u
#define SLABS_MIN 4u /* that the device has */
#define RX_COUNT_MAX 65535u /* a striding queue's completion says a length in 16 bits */
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

/*
 * What the device has said of the rule, not of its table, and not we of memory or of queues that
 * are not there just now.
 */
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
		r->caps.port_blocks = false;
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
		.moderation_frames = m->moderated ? m->moderation.count : 0,
		.moderation_usec = m->moderated ? m->moderation.usec : 0,
		.dev_mem_alloc = m->sq.dm.size,
		.dev_mem_packets = __atomic_load_n(&m->sq.dm.packets, __ATOMIC_RELAXED),
		.dev_mem_bytes = __atomic_load_n(&m->sq.dm.bytes, __ATOMIC_RELAXED),
		.dev_mem_oob = __atomic_load_n(&m->sq.dm.oob, __ATOMIC_RELAXED),
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

/* The longest frame that can be received. */
static uint32_t rx_room(const struct mlx5_ring *m)
{
	if (!m->want.strides)
		return m->memory.rx_chunk * m->want.rx_segs;
	return m->want.strides * m->want.stride < RX_COUNT_MAX ? m->want.strides * m->want.stride
							       : RX_COUNT_MAX;
}

static void set_mtu(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t tag = m->want.vlan ? VLAN_TAG : 0, frame = mtu + ETH_HEADER + tag;

	/* A larger one would need more than one buffer. */
	m->max_wire = frame < m->memory.chunk ? frame : m->memory.chunk;
	m->ring.caps.max_frame = m->max_wire - tag;
	m->ring.caps.max_rx_frame = rx_room(m) - tag;
}

/*
 * Received frames are to have so many buffers each, of the same memory, so there are descriptors
 * for fewer.
 */
static void want_segs(struct mlx5_ring *m, uint32_t segs)
{
	m->want.rx_segs = segs;
	m->want.rx_wre = power_of_two((uint32_t)params.rx_wre) / power_of_two(segs);
	if (m->want.rx_wre < RX_WRE_MIN)
		m->want.rx_wre = RX_WRE_MIN;
}

/*
 * The interface has an MTU whose frames do not fit into what a receive descriptor has: an error,
 * and new queues, for each that comes.
 */
static void grow(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t segs = (mtu + ETH_HEADER + VLAN_TAG + m->memory.chunk - 1) / m->memory.chunk;
	uint32_t was = m->want.rx_segs;

	if (segs <= was || mtu + ETH_HEADER + VLAN_TAG <= rx_room(m))
		return;
	if (segs <= RX_SEGS_MAX && !m->want.strides) {
		want_segs(m, segs);
		if (mlx5_remake(m)) {
			log_info("ring/mlx5: %s: MTU %u: a received frame may have %u buffers; "
				 "what is sent has up to %u bytes",
				 m->ring.ifname, mtu, segs, m->memory.chunk);
			return;
		}
		want_segs(m, was);
	}
	log_warn("ring/mlx5: %s: MTU %u: frames above %u bytes cannot be received until the "
		 "program starts anew",
		 m->ring.ifname, mtu, rx_room(m));
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
	/*
	 * An error that nobody has asked for: whoever sends little would come to its completion
	 * after many that were lost.
	 */
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

/* Errors and what waits for its release count upkeeps; so does the clock. */
static bool mlx5_rests(const struct ring *r, int *news_fd)
{
	const struct mlx5_ring *m = (const struct mlx5_ring *)r;

	*news_fd = m->objects->news_fd;
	return !m->rq.broken && !m->sq.broken && !m->retry && !m->clock.running &&
	       !mlx5_views_wait(m);
}

static void mlx5_leave(struct ring *r)
{
	(void)r; /* the flows go with the process's file of the device */
}

static void mlx5_close(struct ring *r)
{
	struct mlx5_ring *m = mlx5_ring(r);

	libc_internal_begin();
	if (m->opener == process_mark()) {
		mlx5_views_close(m);
		m->objects->ops->close(m->objects);
	} else {
		m->objects->ops->forget(m->objects);
	}
	mlx5_groups_free(m);
	rq_fini(&m->rq);
	sq_fini(&m->sq);
	slabs_fini(&m->slabs);
	memory_fini(&m->memory);
	free(m);
	libc_internal_end();
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
	.tx_full = mlx5_tx_full,
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
	.rests = mlx5_rests,
	.link_changed = mlx5_link_changed,
	.moderate = mlx5_moderate_by,
	.memory_add = mlx5_memory_add,
	.memory_del = mlx5_memory_del,
	.describe = mlx5_describe,
};

/* A striding receive queue, if that is wanted and can be had. */
static void want_strides(struct mlx5_ring *m)
{
	struct mlx5dv_striding_rq_caps caps = {0};
	uint32_t strides = STRIDES;
	int err = m->objects->ops->striding(m->objects, &caps);

	if (!err && (1u << caps.min_single_stride_log_num_of_bytes > STRIDE ||
		     1u << caps.max_single_stride_log_num_of_bytes < STRIDE ||
		     caps.min_single_wqe_log_num_of_strides > STRIDES_LOG_MAX ||
		     1u << caps.max_single_wqe_log_num_of_strides < STRIDES))
		err = -ERANGE;
	if (err) {
		log_debug("ring/mlx5: %s: VMA_STRQ: the device has no striding receive queue as it "
			  "should be (%s): a plain one",
			  m->ring.ifname, strerror(-err));
		return;
	}
	if (1u << caps.min_single_wqe_log_num_of_strides > strides)
		strides = 1u << caps.min_single_wqe_log_num_of_strides;
	m->want.strides = strides;
	m->want.stride = STRIDE;
	if (m->want.compress)
		log_info("ring/mlx5: %s: completions of a striding receive queue (VMA_STRQ) are "
			 "not compressed",
			 m->ring.ifname);
	m->want.compress = false;
}

/*
 * Chunks for received frames; a striding queue has as many places for frames as a plain one, if its
 * slabs are not larger.
 */
static uint32_t rx_chunks(struct mlx5_ring *m)
{
	uint32_t rx = power_of_two((uint32_t)params.rx_wre),
		 more = (uint32_t)params.qp_compensation_level;
	uint32_t strides = m->want.strides;

	if (!strides)
		return rx + more;
	m->want.rx_wre = rx / strides > SLABS_MIN ? rx / strides : SLABS_MIN;
	return m->want.rx_wre * strides + (more + strides - 1) / strides * strides + strides;
}

/*
 * Memory and queues behind the device of m->objects. 0 or negative errno, everything that was made
 * still to be freed.
 */
static int start(struct mlx5_ring *m, uint32_t mtu)
{
	uint32_t chunk = (mtu + ETH_HEADER + VLAN_TAG + 63) & ~63u;
	uint32_t strides = m->want.strides;
	int err;

	if (chunk < CHUNK_MIN)
		chunk = CHUNK_MIN;
	m->want.rx_wre = (uint32_t)params.rx_wre;
	err = memory_init_two(&m->memory, (enum pages_type)params.mem_alloc_type,
			      strides ? STRIDE : chunk, rx_chunks(m), chunk,
			      (uint32_t)params.tx_wre);
	if (!err && strides)
		err = slabs_init(&m->slabs, &m->memory, strides);
	if (err)
		return err;
	m->want.base = m->memory.base;
	m->want.bytes = m->memory.bytes;
	err = m->objects->ops->start(m->objects, &m->want);
	return err ? err : mlx5_queues_init(m);
}

/*
 * The same with a striding receive queue if that can be; m->objects may be others behind the same
 * device then, or none.
 */
static int start_either(struct mlx5_ring *m, const struct ring_port *device, uint32_t mtu)
{
	int err;

	m->want.tx_wre = (uint32_t)params.tx_wre;
	m->want.rx_segs = 1;
	m->want.max_inline = (uint32_t)params.tx_max_inline;
	m->want.ask_every = (uint32_t)params.tx_wre_batching;
	m->want.dm_bytes = (uint32_t)params.ring_dev_mem_tx;
	m->want.compress = params.cqe_compression;
	if (params.strq)
		want_strides(m);
	err = start(m, mtu);
	if (!err || !m->objects->no_striding)
		return err;
	log_info("ring/mlx5: %s: VMA_STRQ: could not %s: %s: a plain receive queue", m->ring.ifname,
		 m->objects->failed, strerror(-err));
	m->objects->ops->close(m->objects);
	m->objects = NULL;
	slabs_fini(&m->slabs);
	memory_fini(&m->memory);
	m->want.strides = 0;
	m->want.compress = params.cqe_compression;
	err = mlx5_objects_open(device, &m->objects);
	return err ? err : start(m, mtu);
}

/* What it has of its own for a striding receive queue. */
static void use_strides(struct mlx5_ring *m)
{
	uint32_t strides = m->want.strides;

	if (!strides)
		return;
	if (m->ring.ops != &m->ops)
		m->ops = *m->ring.ops;
	m->ops.poll = mlx5_poll_strides;
	m->ring.ops = &m->ops;
	/* The slab that is being filled is of no use to the next ones. */
	if (m->rx_low < 3 * strides)
		m->rx_low = 3 * strides;
	if (m->rx_reserve < 2 * strides)
		m->rx_reserve = 2 * strides;
	log_debug("ring/mlx5: %s: a striding receive queue: %u slabs of %u strides", m->ring.ifname,
		  m->rq.cnt, strides);
}

/* 0 or negative errno; *what: what the device would not do, NULL: nothing to tell. */
static int ring_make(int ifindex, struct ring **out, const char **what)
{
	struct mlx5_objects *objects;
	struct mlx5_ring *m;
	struct ring_port *port, device;
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
	m->opener = process_mark();
	memcpy(m->mac, port->mac, sizeof(m->mac));
	m->ring = (struct ring){.ops = &mlx5_ops, .counters = &m->counters, .ifindex = ifindex};
	memcpy(m->ring.ifname, port->ifname, sizeof(m->ring.ifname));
	if (vlan)
		mlx5_vlan_start(m, vlan);
	m->heap_pool.free = mlx5_heap_buf_free;
	m->heap_bufs_max = (uint32_t)params.rx_bufs;
	err = start_either(m, &device, port->mtu);
	objects = m->objects;
	if (err)
		goto err_ring;
	m->rx_low = m->memory.rx.num / LOW_PART;
	m->rx_reserve = m->memory.rx.num / RESERVE_PART;
	use_strides(m);
	set_mtu(m, port->mtu);
	set_gso(m);
	clock_init(&m->clock, objects, params.hw_ts_conversion);
	moderation_init(&m->moderation, mlx5_now_ms());
	mlx5_moderate(m);
	m->ring.caps.tx_csum = true;
	m->ring.caps.rx_csum = true;
	m->ring.caps.port_blocks = true;
	m->ring.caps.takes_all = true;
	m->ring.caps.hears_itself = true;
	m->ring.caps.groups_by_mac = params.eth_mc_l2_only_rules;
	m->ring.caps.rx_stamp = m->clock.kind != CLOCK_NONE;
	log_debug("ring/mlx5: %s: %u WQEBBs to send, %u buffers to receive, frames up to %u bytes",
		  m->ring.ifname, m->sq.mask + 1, m->rq.cnt, m->ring.caps.max_frame);
	port_close(port);
	*out = &m->ring;
	return 0;

err_ring:
	*what = objects && objects->failed ? objects->failed : "have memory or queues of that size";
	/* The device lets go of the memory before it goes. */
	if (objects)
		objects->ops->close(objects);
	objects = NULL;
	slabs_fini(&m->slabs);
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

bool mlx5_ring_likely(int ifindex)
{
	struct ring_port device;
	struct net_link link;

	if (mlx5_lost_lately(ifindex) || net_link_get(ifindex, &link))
		return false;
	memcpy(device.ifname, link.name, sizeof(device.ifname));
	(void)mlx5_vlan_of(ifindex, &device);
	return mlx5_objects_likely(device.ifname);
}

int mlx5_ring_more(const struct ring *first, struct ring **out)
{
	const char *what;
	int err = ring_make(first->ifindex, out, &what);

	if (what)
		log_debug("ring/mlx5: %s: no further ring: could not %s: %s", first->ifname, what,
			  strerror(-err));
	return err;
}
