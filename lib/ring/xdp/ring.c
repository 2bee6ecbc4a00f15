/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The life of an AF_XDP ring. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/xdp/mode.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"
#include "vma/steer.h"
#include "config/config.h"

/* The port is the share's or the pool's, and each ring has its stack's lock only. */
static void port_lock(struct xdp_ring *x)
{
	if (x->share)
		lock_take(&x->share->flows);
	else if (x->pool)
		pool_port_lock(x);
}

static void port_unlock(struct xdp_ring *x)
{
	if (x->share)
		lock_drop(&x->share->flows);
	else if (x->pool)
		pool_port_unlock(x);
}

static int xdp_flow_add(struct ring *r, const struct vma_flow_key *key,
			const struct vma_flow_info *info)
{
	struct xdp_ring *x = xdp_ring(r);
	int err;

	port_lock(x);
	err = port_flow_add(x->port, x->row, key, info);
	/* It may be one's who was killed just now. */
	if (err == -EEXIST && member_flows_drop(x))
		err = port_flow_add(x->port, x->row, key, info);
	port_unlock(x);
	return err;
}

static int xdp_flow_del(struct ring *r, const struct vma_flow_key *key)
{
	struct xdp_ring *x = xdp_ring(r);
	int err;

	port_lock(x);
	err = port_flow_del(x->port, x->row, key);
	port_unlock(x);
	return err;
}

static void xdp_port_quiet(struct ring *r, uint16_t local_port, bool quiet)
{
	struct xdp_ring *x = xdp_ring(r);

	port_lock(x);
	port_quiet(x->port, local_port, quiet);
	port_unlock(x);
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

static int xdp_program_changed(struct ring *r, uint32_t id)
{
	struct xdp_ring *x = xdp_ring(r);
	int err;

	/*
	 * Gone and there again before the worker has read of either: to it the interface is the
	 * old one, and perhaps without a program.
	 */
	if (xsk_orphaned(&x->xsk[0])) {
		/* It went with its interface: what has its place by now is another ring's. */
		x->port->guard.filter_on = 0;
		return -ENODEV;
	}
	port_lock(x);
	err = port_program_changed(x->port, id);
	port_unlock(x);
	return err;
}

/* An interface may have more than a port takes from the beginning. */
static void xdp_queues_changed(struct ring *r, unsigned num_queues)
{
	bool more = num_queues > xdp_ring(r)->num_queues;

	if (atomic_exchange_explicit(&r->has_more_queues, more, memory_order_relaxed) || !more)
		return;
	/*
	 * Of what comes on the others the kernel makes connections, which may come by ours later.
	 */
	port_lock(xdp_ring(r));
	port_unquiet(xdp_ring(r)->port);
	port_unlock(xdp_ring(r));
	log_warn("ring/xdp: %s has %u receive queues now, and this program listens on %u: what "
		 "comes on the others takes the kernel's way, and new connections that the "
		 "program begins do. Restart it to have all",
		 r->ifname, num_queues, xdp_ring(r)->num_queues);
}

static void xdp_guard(struct ring *r, void (*fn)(const struct vma_stray *stray))
{
	port_guard(xdp_ring(r)->port, fn);
}

/* What no other ring shares with this one. */
static void ring_free(struct xdp_ring *x)
{
	xsk_close_all(x);
	if (x->gso_fd >= 0)
		own_fd_close(x->gso_fd);
	umem_fini(&x->umem);
	pool_unmap(x->pool);
	free(x);
}

/* The port is what all the members have. */
static void members_leave(struct xdp_ring *x)
{
	if (x->member)
		x->port->others = member_leave(x);
	port_close(x->port);
}

/*
 * Every buffer has been given back: the UMEM goes, with the last ring of a share. A forked child
 * only drops its share of it.
 */
static void xdp_close(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);
	struct xdp_share *sh = x->share;

	libc_internal_begin();
	if (!sh) {
		if (x->port)
			members_leave(x);
		x->port = NULL;
		if (x->member)
			member_free(x);
		ring_free(x);
	} else if (share_close(x)) {
		port_close(x->port);
		/* The first one holds the UMEM. */
		for (unsigned i = sh->num; i-- > 0;)
			ring_free(sh->ring[i]);
		share_free(sh);
	}
	libc_internal_end();
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

/*
 * In copy mode. A zero-copy driver that has no buffer drops in the device, and the interface's
 * counters say so. Linux before 5.9 tells the first members only, of which one is enough; before
 * 6.6 a frame that does not fit a buffer is among them.
 */
static uint64_t xdp_missed(const struct ring *r)
{
	const struct xdp_ring *x = (const struct xdp_ring *)r;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < x->num_queues; i++) {
		struct xdp_statistics s = {0};
		socklen_t len = sizeof(s);

		if (libc.getsockopt(x->xsk[i].fd, SOL_XDP, XDP_STATISTICS, &s, &len))
			return 0;
		sum += s.rx_dropped + s.rx_ring_full;
	}
	return sum;
}

static void xdp_leave(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);

	/* It has, with frames of it in the program's hands. */
	if (!x->port)
		return;
	libc_internal_begin();
	if (!x->share)
		members_leave(x);
	else if (share_leave(x))
		port_close(x->port);
	x->port = NULL;
	libc_internal_end();
}

static int xdp_user_changes(struct ring *r, uid_t uid)
{
	struct xdp_ring *x = xdp_ring(r);

	return x->member ? member_user_changes(x, uid) : 0;
}

static void tell_unparted(const struct ring *r, const char *what, int err)
{
	if (err)
		log_error("ring/xdp: %s: other processes share the queues, and %s stays in reach "
			  "of the new user (%s): restart this program",
			  r->ifname, what, strerror(-err));
}

static void xdp_part(struct ring *r)
{
	struct xdp_ring *x = xdp_ring(r);
	int memory, sockets, pool;

	libc_internal_begin();
	memory = umem_part(&x->umem);
	xdp_leave(r);
	member_free(x);
	sockets = xsk_part_all(x);
	pool = pages_replace(x->pool, sizeof(*x->pool), NULL);
	libc_internal_end();
	tell_unparted(r, "the memory of their packets", memory);
	tell_unparted(r, "a socket of their queues", sockets);
	tell_unparted(r, "the list of them", pool);
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
	.poll_stamped = xdp_poll_stamped,
	.pending = xdp_pending,
	.tx_alloc = xdp_tx_alloc,
	.post = xdp_post,
	.tx_full = xdp_tx_full,
	.dummy = xdp_dummy,
	.kick = xdp_kick,
	.send_gso = xdp_send_gso,
	.wait_fds = xdp_wait_fds,
	.arm = xdp_arm,
	.flow_add = xdp_flow_add,
	.flow_del = xdp_flow_del,
	.port_quiet = xdp_port_quiet,
	.link_changed = xdp_link_changed,
	.program_changed = xdp_program_changed,
	.queues_changed = xdp_queues_changed,
	.user_changes = xdp_user_changes,
	.part = xdp_part,
	.guard = xdp_guard,
	.gauges = xdp_gauges,
	.missed = xdp_missed,
};

/* A queue that somebody else has. */
struct busy {
	unsigned queue;
	char ifname[IF_NAMESIZE];
	bool zerocopy; /* for which it may be */
};

static void log_busy(const struct busy *b, int ifindex)
{
	pid_t pid = port_owner_pid(ifindex);

	if (pid)
		log_warn("ring/xdp: queue %u of %s belongs to process %d: sockets stay with the "
			 "kernel until it ends%s",
			 b->queue, b->ifname, (int)pid,
			 b->zerocopy ? " (with this driver or an MTU above 3822 zero-copy is for "
				       "one process; with VMA_XDP_MODE=native processes share the "
				       "queues)"
				     : "");
	else
		log_warn("ring/xdp: queue %u of %s belongs to another AF_XDP program: sockets stay "
			 "with the kernel",
			 b->queue, b->ifname);
}

/* It is in native mode, and generic mode serves as well on this kernel: merged packets, too. */
static bool may_be_generic(const struct xdp_ring *x)
{
	return x->port->mode == PORT_NATIVE && x->port->bind == BIND_ANY && (x->sg || x->zerocopy);
}

/* It takes a program for frames of several chunks, perhaps; then no other process can come. */
static bool may_be_alone(const struct xdp_ring *x)
{
	return x->member && !x->zerocopy_alone && x->zerocopy && !x->sg;
}

/* With the program on it the driver has receive queues that nobody listens to. */
static bool has_new_queues(const struct xdp_ring *x)
{
	unsigned more = x->port->mode == PORT_NATIVE ? port_new_queues(x->port) : 0;

	if (more)
		log_info("ring/xdp: %s: in native mode driver %s makes %u receive queues more: "
			 "what comes there goes by the kernel, unless all are in use before "
			 "(ethtool -L)",
			 x->port->ifname, x->port->driver, more);
	return more;
}

#define CARRIER_MS 5000u

/*
 * Many drivers begin anew when a program comes, and what is sent meanwhile is lost: the datagram
 * for which the ring is opened, as a rule.
 */
static void wait_for_carrier(const struct xdp_ring *x)
{
	unsigned ms = 0;

	for (; ms < CARRIER_MS && !port_has_carrier(x->port); ms++)
		clock_sleep_ns(1000000);
	if (ms)
		log_info("ring/xdp: %s: driver %s took the carrier away for %u ms when the "
			 "program came",
			 x->port->ifname, x->port->driver, ms);
}

/* By the driver. */
static bool is_refused(int err)
{
	return err && err != -EEXIST && err != -EBUSY && err != -EACCES;
}

/* Takes the queues, then puts the program in front of them: see port.h for why in this order. */
static int take_port(struct xdp_ring *x, struct busy *busy)
{
	int err, fds[PORT_MAX_QUEUES];
	bool had_carrier;

	memcpy(busy->ifname, x->ring.ifname, sizeof(busy->ifname));
	err = xsk_open_all(x, &busy->queue);
	if (err == -EBUSY)
		busy->zerocopy = mode_takes_zerocopy(x->port) && !mode_shares_zerocopy(x->port);
	if (err)
		return err;
	if (!x->zerocopy && x->port->mode == PORT_NATIVE && x->port->bind == BIND_ANY)
		mode_zerocopy_refused(x->port);
	/*
	 * Without frames of several chunks (Linux before 6.6) what the peer or GRO has merged would
	 * be lost, and generic mode sees it merged: TCP from a kernel peer would crawl from one
	 * timeout to the next. In a driver nothing is merged yet.
	 */
	if (!x->sg && x->port->mode == PORT_GENERIC && x->port->bind == BIND_ANY) {
		x->port->mode = PORT_NATIVE;
		x->port->why = "AF_XDP of this kernel (before 6.6) takes no merged packets";
	}
	x->gso_bursts = x->sg && x->port->mode == PORT_GENERIC;
	x->port->take_gso_bursts = x->gso_bursts;
	x->port->frags = x->sg;
	if (!mode_receives(x->port)) {
		xsk_close_all(x);
		return -EOPNOTSUPP;
	}
	had_carrier = x->port->mode == PORT_NATIVE && port_has_carrier(x->port);
	err = port_attach(x->port, fds, xdp_wait_fds(&x->ring, fds, PORT_MAX_QUEUES));
	if (!err && had_carrier)
		wait_for_carrier(x);
	if (!err && has_new_queues(x)) {
		if (may_be_generic(x)) {
			port_detach(x->port);
			err = -ECHRNG;
		} else {
			x->port->has_more_queues = true;
		}
	}
	if (err && err != -EEXIST && err != -EACCES && !x->sg && !x->zerocopy)
		log_warn("ring/xdp: %s: driver %s has no native XDP for an MTU of %u (%s), and "
			 "this kernel (before 6.6) no "
			 "AF_XDP for merged packets: sockets stay with the kernel",
			 x->port->ifname, x->port->driver, x->port->mtu, strerror(-err));
	if (err)
		xsk_close_all(x);
	return err;
}

/* A ring on port, without sockets yet, whose sockets come first; NULL: no memory. */
static struct xdp_ring *ring_new(struct ring_port *port)
{
	struct xdp_ring *x = calloc(1, sizeof(*x) + port->num_queues * sizeof(x->xsk[0]));

	if (!x)
		return NULL;
	x->port = port;
	x->num_queues = port->num_queues;
	x->ring =
		(struct ring){.ops = &xdp_ops, .counters = &x->counters, .ifindex = port->ifindex};
	memcpy(x->ring.ifname, port->ifname, sizeof(x->ring.ifname));
	x->gso_fd = -1;
	for (unsigned i = 0; i < x->num_queues; i++)
		x->xsk[i].fd = -1;
	return x;
}

static const char *mode_name(const struct xdp_ring *x)
{
	/* By zero-copy, busy polling, metadata. */
	static const char *const names[2][2][2] = {
		{{"native", "native+metadata"}, {"native+poll", "native+poll+metadata"}},
		{{"zero-copy", "zero-copy+metadata"},
		 {"zero-copy+poll", "zero-copy+poll+metadata"}},
	};

	if (x->port->mode == PORT_GENERIC)
		return "generic";
	return names[x->zerocopy][x->busy_poll][x->port->tells != 0];
}

/* The program asks the driver of each frame where VMA_XDP_METADATA says so and the driver tells. */
static void metadata_begin(struct xdp_ring *x)
{
	x->ring.caps.rx_stamp = x->port->stamps != NULL;
	if (params.xdp_metadata && !x->port->tells && !x->index)
		log_warn("ring/xdp: %s: VMA_XDP_METADATA=1 has no effect: %s", x->ring.ifname,
			 x->port->mode == PORT_GENERIC ? "it is for native and zero-copy mode"
			 : x->joined ? "the process that opened the interface does without"
				     : "the driver tells nothing, the kernel is older than 6.7, or "
				       "another XDP program is there");
	else if (x->port->tells)
		log_debug("ring/xdp: %s: its driver tells%s%s", x->ring.ifname,
			  x->port->tells & VMA_RX_TELLS_STAMP ? " time stamps" : "",
			  x->port->tells & VMA_RX_TELLS_VLAN ? " VLAN tags" : "");
}

/* The program runs the driver where VMA_XDP_BUSY_POLL asks for it and there is one to run. */
static void busy_poll_begin(struct xdp_ring *x)
{
	int err;

	if (!params.xdp_busy_poll)
		return;
	err = x->port->mode == PORT_GENERIC ? -EOPNOTSUPP : xsk_busy_poll(x, params.xdp_busy_poll);
	x->busy_poll = x->ring.caps.looks_itself = !err;
	if (err && !x->index)
		log_warn("ring/xdp: %s: VMA_XDP_BUSY_POLL=%d has no effect: %s", x->ring.ifname,
			 params.xdp_busy_poll,
			 x->port->mode == PORT_GENERIC ? "it is for native and zero-copy mode"
						       : strerror(-err));
}

/* The sockets are bound and the steering knows them. */
static void ring_ready(struct xdp_ring *x)
{
	set_mtu(x, x->port->mtu);
	x->ring.caps.max_rx_frame = x->sg ? ETH_HEADER + 65535 : UMEM_CHUNK - XDP_HEADROOM;
	x->ring.caps.spread = x->share != NULL;
	x->ring.caps.kernels_way = x->port->mode == PORT_GENERIC;
	atomic_init(&x->ring.has_more_queues, x->port->has_more_queues);
	busy_poll_begin(x);
	metadata_begin(x);
	x->ring.mode = mode_name(x);
	gso_open(x);
	rx_init(x, (uint32_t)params.rx_bufs);
	if (x->share)
		share_enter(x);
	log_debug("ring/xdp: %s: ring %u: driver %s, %u queues, %s mode%s, frames up to %u bytes",
		  x->port->ifname, x->row, x->port->driver, x->num_queues, x->ring.mode,
		  x->sg ? ", multi-buffer" : "", x->ring.caps.max_frame);
}

/* A further ring on the queues that the first one has. */
static int ring_join(struct xdp_share *sh, struct ring **out)
{
	struct xdp_ring *first = sh->ring[0], *x;
	int err, fds[PORT_MAX_QUEUES];
	unsigned queue = 0;

	x = ring_new(first->port);
	if (!x)
		return -ENOMEM;
	x->share = sh;
	x->index = sh->num;
	x->row = x->index;
	x->zerocopy = first->zerocopy;
	x->sg = first->sg;
	x->gso_bursts = first->gso_bursts;
	err = umem_join(&x->umem, &first->umem, x->index);
	if (err)
		goto err_ring;
	err = xsk_open_all(x, &queue);
	if (err)
		goto err_umem;
	port_lock(x);
	err = port_add_ring(x->port, x->index, fds, xdp_wait_fds(&x->ring, fds, PORT_MAX_QUEUES));
	port_unlock(x);
	if (err)
		goto err_xsk;
	ring_ready(x);
	/* the port's MTU is that of when it was opened */
	x->ring.caps.max_frame = first->ring.caps.max_frame;
	*out = &x->ring;
	return 0;

err_xsk:
	xsk_close_all(x);
err_umem:
	umem_fini(&x->umem);
err_ring:
	free(x);
	log_debug("ring/xdp: %s: no further ring: %s", first->ring.ifname, strerror(-err));
	return err;
}

/*
 * Who wants several rings has no use for others' queues (share.h), and who has given an allocator
 * wants no others' memory.
 */
static bool shares_nothing(unsigned rings)
{
	return rings > 1 || allocator_is_there();
}

/* The first ring of the interface. -EBUSY, which is not logged: somebody else has a queue. */
static int ring_first(int ifindex, unsigned rings, struct busy *busy, struct ring **out)
{
	struct xdp_ring *x;
	struct ring_port *port;
	int err;

	err = port_open(ifindex, &port);
	if (err)
		return err;
	mode_choose(port);
	x = ring_new(port);
	if (!x) {
		err = -ENOMEM;
		goto err_port;
	}
	err = shares_nothing(rings) || member_begin(x)
		      ? umem_init(&x->umem, (enum pages_type)params.mem_alloc_type, rings,
				  x->num_queues)
		      : 0;
	if (err)
		goto err_ring;
	err = rings > 1 ? share_begin(x, rings) : 0;
	if (err)
		goto err_umem;
	x->zerocopy_alone = !mode_shares_zerocopy(port);
	err = take_port(x, busy);
	if (is_refused(err) && err != -ECHRNG && may_be_alone(x)) {
		x->zerocopy_alone = true;
		err = take_port(x, busy);
	}
	if (is_refused(err) && may_be_generic(x)) {
		log_info("ring/xdp: %s: driver %s has no usable native XDP: generic mode is tried",
			 port->ifname, port->driver);
		port->mode = PORT_GENERIC;
		port->why = "native mode failed";
		err = take_port(x, busy);
	}
	if (err)
		goto err_share;
	ring_ready(x);
	if (x->member)
		member_publish(x);
	log_info("ring/xdp: %s (%s): %s mode: %s", port->ifname, port->driver, x->ring.mode,
		 port->why);
	*out = &x->ring;
	return 0;

err_share:
	if (x->share)
		share_free(x->share);
err_umem:
	port_close(port);
	port = NULL;
	if (x->member)
		member_free(x);
	umem_fini(&x->umem);
	pool_unmap(x->pool);
err_ring:
	free(x);
err_port:
	port_close(port);
	return err;
}

/*
 * Beside another process of our user that has the queues. -ENOENT: there is none; -EAGAIN: not yet.
 */
static int ring_beside(int ifindex, struct ring **out)
{
	struct member_door door;
	struct ring_port *port;
	struct xdp_ring *x;
	int err;

	err = member_door_find(ifindex, &door);
	if (err == -ENOENT || err == -EAGAIN)
		return err;
	if (err)
		goto err_door;
	err = port_open(ifindex, &port);
	if (err)
		goto err_door;
	x = ring_new(port);
	err = x ? member_enter(x, &door) : -ENOMEM;
	if (err)
		goto err_port;
	member_door_close(&door);
	ring_ready(x);
	*out = &x->ring;
	return 0;

err_port:
	port_close(port);
	if (x)
		ring_free(x);
err_door:
	log_debug("ring/xdp: interface %d cannot be shared with process %d: %s", ifindex,
		  (int)door.pid, strerror(-err));
	member_door_close(&door);
	return err;
}

/* A server's processes start together: one of them opens the queues meanwhile. */
#define COMING_NS 2000000000ull
#define COMING_PAUSE_NS 1000000ull
#define COMING_PAUSE_MAX_NS 20000000ull

/* deadline: of clock_monotonic_ns(). */
static int ring_beside_soon(int ifindex, uint64_t deadline, struct ring **out)
{
	uint64_t pause = COMING_PAUSE_NS;
	int err = ring_beside(ifindex, out);

	while (err == -EAGAIN && clock_monotonic_ns() < deadline) {
		clock_sleep_ns(pause);
		pause = pause * 2 < COMING_PAUSE_MAX_NS ? pause * 2 : COMING_PAUSE_MAX_NS;
		err = ring_beside(ifindex, out);
	}
	return err;
}

int xdp_ring_open(int ifindex, struct ring **out)
{
	uint64_t deadline = clock_monotonic_ns() + COMING_NS;
	unsigned rings = share_rings_wanted();
	bool beside = !shares_nothing(rings);
	struct busy busy = {0};
	int err;

	if (beside && !ring_beside_soon(ifindex, deadline, out))
		return 0;
	err = ring_first(ifindex, rings, &busy, out);
	if (err != -EBUSY)
		return err;
	/* The one that had the queues was ending, or another has them only now. */
	if (beside && !ring_beside_soon(ifindex, deadline, out))
		return 0;
	log_busy(&busy, ifindex);
	return err;
}

int xdp_ring_more(const struct ring *first, struct ring **out)
{
	struct xdp_share *sh;
	int err;

	sh = share_find(first->ifindex, &err);
	if (!sh)
		return -ENODEV; /* its interface goes */
	return err ? err : ring_join(sh, out);
}
