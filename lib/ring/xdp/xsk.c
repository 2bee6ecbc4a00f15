/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AF_XDP sockets: one for each receive queue, all on one UMEM. Raw system calls: see xsk in
 * Documentation/networking/af_xdp.rst.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"
#include "config/config.h"

#define RING_MAX 2048u
#define RING_MIN 32u /* PORT_MAX_QUEUES of them share the chunks */
/*
 * Chunks put into a fill ring at a time, or a quarter of a ring that is smaller than four times
 * this.
 */
#define REFILL_BATCH 32u
/* A queue of a process that just died or closed stays taken for up to 18 ms (measured). */
#define BUSY_RETRY_MS 100
/* One that nobody steers packets to is being closed: on a busy machine that takes longer. */
#define CLOSING_RETRY_MS 1000
#define BUSY_RETRY_NS 500000
#define RETRIES(ms) ((ms) * (1000000 / BUSY_RETRY_NS))

static uint32_t ring_size(long wanted, uint32_t max)
{
	uint32_t size = RING_MIN;

	while (size < max && (long)size * 2 <= wanted)
		size *= 2;
	return size;
}

static int set_size(struct xdp_ring *x, int fd, int option, const char *name, uint32_t size)
{
	if (libc.setsockopt(fd, SOL_XDP, option, &size, sizeof(size)) == 0)
		return 0;
	log_error("ring/xdp: %s: setsockopt(%s, %u): %s", x->ring.ifname, name, size,
		  strerror(errno));
	return -errno;
}

static int map_ring(struct xsk_ring *r, int fd, const struct xdp_ring_offset *o, uint32_t size,
		    size_t entry, off_t where)
{
	r->map_len = o->desc + (size_t)size * entry;
	r->map = mmap(NULL, r->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
		      where);
	if (r->map == MAP_FAILED) {
		r->map = NULL;
		return -errno;
	}
	r->producer = (uint32_t *)((uint8_t *)r->map + o->producer);
	r->consumer = (uint32_t *)((uint8_t *)r->map + o->consumer);
	r->flags = (uint32_t *)((uint8_t *)r->map + o->flags);
	r->desc = (struct xdp_desc *)((uint8_t *)r->map + o->desc);
	r->size = size;
	r->mask = size - 1;
	return 0;
}

static void unmap_ring(struct xsk_ring *r)
{
	if (r->map)
		munmap(r->map, r->map_len);
	memset(r, 0, sizeof(*r));
}

static int register_umem(struct xdp_ring *x, int fd)
{
	struct xdp_umem_reg reg = {
		.addr = (uintptr_t)x->umem.base,
		.len = (uint64_t)x->umem.num_chunks * UMEM_CHUNK,
		.chunk_size = UMEM_CHUNK,
	};
	int err;

	if (libc.setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)) == 0)
		return 0;
	err = -errno;
	if (err == -ENOBUFS || err == -ENOMEM)
		log_warn("ring/xdp: %s: the kernel does not let %llu MiB be locked: raise 'ulimit "
			 "-l' or grant CAP_IPC_LOCK",
			 x->ring.ifname, (unsigned long long)reg.len >> 20);
	else
		log_error("ring/xdp: %s: setsockopt(XDP_UMEM_REG): %s", x->ring.ifname,
			  strerror(-err));
	return err;
}

/*
 * Entries of a queue's receive ring: x's chunks are shared by the queues, each gets no more than
 * its part.
 */
static uint32_t rx_entries(const struct xdp_ring *x, uint32_t chunks)
{
	uint32_t n = ring_size(params.rx_wre, chunks);

	while (n > RING_MIN && n * x->num_queues > chunks)
		n /= 2;
	return n;
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = RING_MIN;

	while (p < n)
		p *= 2;
	return p;
}

/* A ring with other sockets' fill and completion rings. */
static bool is_further(const struct xdp_ring *x)
{
	return x->index || x->joined;
}

/* The chunks for receiving that a ring's entries are counted by. */
static uint32_t rx_chunks(const struct xdp_ring *x)
{
	if (x->joined)
		return POOL_RX_SPARE;
	return x->index ? UMEM_RX_MORE : UMEM_RX_CHUNKS;
}

struct sizes {
	uint32_t rx, tx; /* of the socket's own rings; tx 0: none */
	uint32_t fill, comp; /* 0: another socket has made them */
};

static struct sizes sizes_of(const struct xdp_ring *x, const struct xsk *s)
{
	bool transmits = s == x->xsk;
	struct sizes z = {.rx = rx_entries(x, rx_chunks(x)),
			  .tx = transmits ? ring_size(params.tx_wre, RING_MAX) : 0};

	if (is_further(x))
		return z;
	z.fill = z.rx;
	/*
	 * A chunk that is posted waits in the completion ring: there must be room for all of them.
	 */
	z.comp = transmits ? RING_MAX : RING_MIN;
	if (x->pool) {
		/* what the dead had goes to any queue */
		z.fill = power_of_two(x->umem.num_rx / x->num_queues * 3 / 2);
		x->pool->fill_entries = z.fill;
		if (transmits)
			x->pool->comp_entries = z.comp;
	}
	if (x->share) {
		z.fill = power_of_two(z.rx + (x->share->max - 1) * rx_entries(x, UMEM_RX_MORE));
		if (transmits)
			z.comp = power_of_two(x->umem.num_chunks - x->umem.num_rx + RING_MAX);
	}
	return z;
}

static int make_rings(struct xdp_ring *x, struct xsk *s)
{
	const struct sizes z = sizes_of(x, s);
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);
	int err, fd = s->fd;

	if ((z.fill && (err = set_size(x, fd, XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING", z.fill))) ||
	    (z.comp && (err = set_size(x, fd, XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING",
				       z.comp))) ||
	    (err = set_size(x, fd, XDP_RX_RING, "XDP_RX_RING", z.rx)) ||
	    (z.tx && (err = set_size(x, fd, XDP_TX_RING, "XDP_TX_RING", z.tx))))
		return err;
	if (libc.getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		return -errno;
	if ((z.fill && (err = map_ring(&s->fill, fd, &o.fr, z.fill, sizeof(uint64_t),
				       (off_t)XDP_UMEM_PGOFF_FILL_RING))) ||
	    (z.comp && (err = map_ring(&s->comp, fd, &o.cr, z.comp, sizeof(uint64_t),
				       (off_t)XDP_UMEM_PGOFF_COMPLETION_RING))) ||
	    (err = map_ring(&s->rx, fd, &o.rx, z.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING)) ||
	    (z.tx && (err = map_ring(&s->tx, fd, &o.tx, z.tx, sizeof(struct xdp_desc),
				     (off_t)XDP_PGOFF_TX_RING)))) {
		log_error("ring/xdp: %s: mmap of a ring: %s", x->ring.ifname, strerror(-err));
		return err;
	}
	if (x->index) {
		/*
		 * For the guesses of rx_idle() and pending(); map is NULL, so that it is not
		 * unmapped twice.
		 */
		lock_take(&x->share->supply);
		s->fill = x->share->ring[0]->xsk[s - x->xsk].fill;
		lock_drop(&x->share->supply);
		s->fill.map = NULL;
	}
	s->supply = x->pool ? x->umem.num_rx / x->num_queues : z.rx;
	s->missing = x->joined ? 0 : s->supply;
	s->refill_at = z.rx / 4 < REFILL_BATCH ? z.rx / 4 : REFILL_BATCH;
	return 0;
}

/* A process that lives has packets steered to the queue. */
static bool has_owner(int ifindex)
{
	pid_t pid = port_owner_pid(ifindex);

	return pid && (libc_raw(SYS_kill, pid, 0, 0, 0, 0, 0) == 0 || errno != ESRCH);
}

/* Whose UMEM s has, and, of a further ring, whose fill and completion rings. */
static int shared_fd(const struct xdp_ring *x, const struct xsk *s)
{
	unsigned queue = (unsigned)(s - x->xsk);

	if (x->joined)
		return member_host_xsk(x, queue);
	return x->index ? x->share->ring[0]->xsk[queue].fd : x->xsk[0].fd;
}

static int try_bind(struct xdp_ring *x, struct xsk *s, uint16_t flags)
{
	struct sockaddr_xdp a = {
		.sxdp_family = AF_XDP,
		.sxdp_ifindex = (uint32_t)x->ring.ifindex,
		.sxdp_queue_id = (uint32_t)(s - x->xsk),
		.sxdp_flags = flags,
	};
	bool waited = false;

	/*
	 * A further queue of the ring has its own fill ring on the first one's UMEM; a further ring
	 * those of the queue's first socket.
	 */
	if (flags & XDP_SHARED_UMEM)
		a.sxdp_shared_umem_fd = (uint32_t)shared_fd(x, s);
	for (int left = RETRIES(BUSY_RETRY_MS);; left--) {
		if (libc.bind(s->fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return 0;
		if (errno != EBUSY)
			return -errno;
		if (left == 0 && (waited || has_owner(x->ring.ifindex)))
			return -EBUSY;
		if (left == 0) {
			waited = true;
			left = RETRIES(CLOSING_RETRY_MS);
		}
		clock_sleep_ns(BUSY_RETRY_NS);
	}
}

/* Binds queue 0 in the best way that the driver has; the other queues follow it. */
static int bind_first(struct xdp_ring *x, struct xsk *s)
{
	static const uint16_t native[] = {XDP_ZEROCOPY | XDP_USE_SG, XDP_ZEROCOPY,
					  XDP_COPY | XDP_USE_SG, XDP_COPY};
	bool may_zerocopy = x->port->mode == PORT_NATIVE && x->port->bind != BIND_COPY;
	const uint16_t *mode = may_zerocopy ? native : native + 2,
		       *end = x->port->bind == BIND_ZEROCOPY ? native + 2 : native + 4;
	int err = -EINVAL;

	for (; mode < end; mode++) {
		err = try_bind(x, s, *mode | XDP_USE_NEED_WAKEUP);
		if (!err) {
			x->zerocopy = *mode & XDP_ZEROCOPY;
			x->sg = *mode & XDP_USE_SG;
			return 0;
		}
		if (err != -EINVAL && err != -EOPNOTSUPP)
			return err;
	}
	return err;
}

/* The fill and completion rings of a bound socket are those of its queue. */
static int map_queue(struct xdp_ring *x, struct xsk *s)
{
	const struct pool *p = x->pool;
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);
	int err;

	if (libc.getsockopt(s->fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		return -errno;
	err = map_ring(&s->fill, s->fd, &o.fr, p->fill_entries, sizeof(uint64_t),
		       (off_t)XDP_UMEM_PGOFF_FILL_RING);
	if (!err && s == x->xsk)
		err = map_ring(&s->comp, s->fd, &o.cr, p->comp_entries, sizeof(uint64_t),
			       (off_t)XDP_UMEM_PGOFF_COMPLETION_RING);
	return err;
}

int xsk_map_other(struct xsk_ring *r, int fd, uint32_t entries, off_t where)
{
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);

	if (!entries || entries > RING_MAX || entries & (entries - 1))
		return -EINVAL;
	if (libc.getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		return -errno;
	return map_ring(r, fd, where == XDP_PGOFF_TX_RING ? &o.tx : &o.rx, entries,
			sizeof(struct xdp_desc), where);
}

void xsk_unmap_other(struct xsk_ring *r)
{
	unmap_ring(r);
}

/* The bind of s failed: says why. Returns what the caller is told. */
static int bind_refused(const struct xdp_ring *x, const struct xsk *s, int err)
{
	if (x->port->bind == BIND_ZEROCOPY && (err == -EINVAL || err == -EOPNOTSUPP)) {
		log_warn("ring/xdp: %s: driver %s has no zero-copy (VMA_XDP_MODE=zerocopy): "
			 "sockets stay with the kernel",
			 x->ring.ifname, x->port->driver);
		return -EINVAL;
	}
	log_at(is_further(x) ? LOG_DEBUG : LOG_WARN,
	       "ring/xdp: %s: bind of queue %u: %s: sockets stay with the kernel", x->ring.ifname,
	       (unsigned)(s - x->xsk), strerror(-err));
	return err;
}

static int xsk_open(struct xdp_ring *x, struct xsk *s)
{
	bool sends = s == x->xsk, first = sends && !is_further(x);
	int err, size = 8 << 20;
	char missing[64];

	s->fd = OWN_FD(libc.socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
	if (s->fd < 0) {
		err = -errno;
		s->fd = -1;
		log_at(is_further(x) ? LOG_DEBUG : LOG_WARN,
		       "ring/xdp: %s: socket(AF_XDP): %s%s: sockets stay with the kernel",
		       x->ring.ifname, strerror(-err),
		       caps_missing(CAPS_BIT(CAP_NET_RAW), missing, sizeof(missing)));
		return err;
	}
	/* A batch must not end at the send buffer's limit; without the privilege it may. */
	if (sends)
		(void)libc.setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	if (first && (err = register_umem(x, s->fd)))
		return err;
	err = make_rings(x, s);
	if (err)
		return err;
	err = first ? bind_first(x, s) : try_bind(x, s, XDP_SHARED_UMEM);
	if (!err && x->joined)
		err = map_queue(x, s);
	return err && err != -EBUSY ? bind_refused(x, s, err) : err;
}

static void xsk_close(struct xsk *s)
{
	unmap_ring(&s->rx);
	unmap_ring(&s->fill);
	unmap_ring(&s->tx);
	unmap_ring(&s->comp);
	if (s->fd >= 0)
		own_fd_close(s->fd);
	memset(s, 0, sizeof(*s));
	s->fd = -1;
}

void xsk_close_all(struct xdp_ring *x)
{
	/* The first one holds the UMEM. */
	for (unsigned i = x->num_queues; i-- > 0;)
		xsk_close(&x->xsk[i]);
}

int xsk_open_all(struct xdp_ring *x, unsigned *queue)
{
	int err;

	for (unsigned i = 0; i < x->num_queues; i++) {
		err = xsk_open(x, &x->xsk[i]);
		if (err) {
			*queue = i;
			xsk_close_all(x);
			return err;
		}
	}
	return 0;
}
