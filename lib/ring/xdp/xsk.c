/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AF_XDP sockets: one for each receive queue, all on one UMEM. Raw system calls: see xsk in
 * Documentation/networking/af_xdp.rst.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ring/xdp/mode.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"
#include "config/config.h"

/* Newer than libc's. */
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif
#define BUSY_POLL_US 20 /* of one call; a call that does not wait looks once, whatever it says */

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
/* Calls that empty a transmit ring: the kernel sends 32 frames in each. */
#define FLUSH_MAX (2 * RING_MAX / 32)
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

static void warn_memlock(const char *ifname, unsigned long long mib)
{
	struct rlimit limit = {0};

	(void)libc.getrlimit(RLIMIT_MEMLOCK, &limit);
	log_box("Your current max locked memory is: %llu. Please change it to unlimited.\n"
		"Set this user's default to `ulimit -l unlimited`, or grant CAP_IPC_LOCK.\n"
		"Interface %s will not be offloaded: the kernel does not let %llu MiB be locked.",
		(unsigned long long)limit.rlim_cur, ifname, mib);
}

/* As the manual has it. */
static void warn_no_permission(const char *ifname)
{
	log_box("Interface %s will not be offloaded.\n"
		"Offloaded resources are restricted to root or user with CAP_NET_RAW privileges.\n"
		"Remedy: run as root, or grant the capabilities that libvma(7) names, for example\n"
		"by AmbientCapabilities= of systemd or setpriv(1). A program with setcap(8) needs\n"
		"chmod u+s of libvma.so as well: see SETCAP PROGRAMS in libvma(7).",
		ifname);
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
		warn_memlock(x->ring.ifname, (unsigned long long)reg.len >> 20);
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
		return pool_rx_spare(x->num_queues);
	return x->index ? UMEM_RX_MORE : umem_rx_chunks(x->num_queues);
}

/* With zero-copy: other sockets on its queues, of this process or of others. */
static bool zerocopy_is_shared(const struct xdp_ring *x)
{
	return x->share || (member_may_share(x) && !x->zerocopy_alone);
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
	/*
	 * With zero-copy the kernel takes the frames of all sockets into an array that has the
	 * first one's entries, and does not look where that ends (6.18). No more than the
	 * completion ring has.
	 */
	if (transmits && zerocopy_is_shared(x) && mode_may_zerocopy(x->port))
		z.tx = z.comp;
	return z;
}

/* A size that the user has set and does not get is said once. */
static void size_said(const struct xdp_ring *x, const char *variable, const int *wanted,
		      uint32_t size, uint32_t most, _Atomic bool *said)
{
	if ((uint32_t)*wanted == size || !params_given(wanted) || atomic_exchange(said, true))
		return;
	log_warn("%s=%d is %u on %s: with AF_XDP it is a power of two, %u at most for all queues "
		 "of an interface together",
		 variable, *wanted, size, x->ring.ifname, most);
}

static int make_rings(struct xdp_ring *x, struct xsk *s)
{
	static _Atomic bool rx_said, tx_said;
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
	size_said(x, "VMA_RX_WRE", &params.rx_wre, z.rx, umem_rx_chunks(x->num_queues), &rx_said);
	if (z.tx)
		size_said(x, "VMA_TX_WRE", &params.tx_wre, ring_size(params.tx_wre, RING_MAX),
			  RING_MAX, &tx_said);
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
	/*
	 * Not with frames of several chunks where sockets share a queue: their chunks together are
	 * more than a receive ring's entries (see supply_bound()).
	 */
	const uint16_t *zerocopy = zerocopy_is_shared(x) ? native + 1 : native,
		       *mode = mode_may_zerocopy(x->port) ? zerocopy : native + 2,
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
	struct xdp_mmap_offsets o;
	socklen_t len = sizeof(o);
	int err;

	if (libc.getsockopt(s->fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &len))
		return -errno;
	err = map_ring(&s->fill, s->fd, &o.fr, x->fill_entries, sizeof(uint64_t),
		       (off_t)XDP_UMEM_PGOFF_FILL_RING);
	if (!err && s == x->xsk)
		err = map_ring(&s->comp, s->fd, &o.cr, x->comp_entries, sizeof(uint64_t),
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

int xsk_busy_poll(struct xdp_ring *x, int budget)
{
	/*
	 * With zero-copy the kernel would no longer wake the driver to send, which a thread that
	 * sends and does not look would wait for.
	 */
	const int values[][2] = {{SO_PREFER_BUSY_POLL, !x->zerocopy},
				 {SO_BUSY_POLL_BUDGET, budget},
				 {SO_BUSY_POLL, BUSY_POLL_US}};

	for (unsigned q = 0; q < x->num_queues; q++)
		for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++)
			if (libc.setsockopt(x->xsk[q].fd, SOL_SOCKET, values[i][0], &values[i][1],
					    sizeof(values[i][1])))
				return -errno;
	return 0;
}

void xsk_drive(const struct xsk *s)
{
	(void)libc_raw(SYS_recvfrom, s->fd, 0, 0, MSG_DONTWAIT, 0, 0);
}

bool xsk_orphaned(const struct xsk *s)
{
	return libc_raw(SYS_sendto, s->fd, 0, 0, MSG_DONTWAIT, 0, 0) < 0 && errno == ENXIO;
}

bool xsk_flush_other(int fd)
{
	for (unsigned i = 0; i < FLUSH_MAX; i++) {
		if (libc_raw(SYS_sendto, fd, 0, 0, MSG_DONTWAIT, 0, 0) >= 0)
			return true;
		if (errno != EAGAIN && errno != EBUSY && errno != ENOBUFS && errno != EINTR)
			return false;
		sched_yield();
	}
	return false;
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

/*
 * With zero-copy the kernel (6.6 and newer) frees a frame of several chunks whose end finds the
 * receive ring full, though its head stands there already: the chunk would be the kernel's and
 * ours. So the ring has room for all that the kernel can have.
 */
static void supply_bound(struct xsk *s)
{
	if (s->supply > s->rx.size)
		s->supply = s->rx.size;
	if (s->missing > s->rx.size)
		s->missing = s->rx.size;
}

static int xsk_open(struct xdp_ring *x, struct xsk *s)
{
	bool sends = s == x->xsk, first = sends && !is_further(x);
	int err, size = 8 << 20;
	char text[64];
	const char *missing;

	s->fd = OWN_FD(libc.socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
	if (s->fd < 0) {
		err = -errno;
		s->fd = -1;
		missing = caps_missing(CAPS_BIT(CAP_NET_RAW), text, sizeof(text));
		log_at(is_further(x) ? LOG_DEBUG : LOG_WARN,
		       "ring/xdp: %s: socket(AF_XDP): %s%s: sockets stay with the kernel",
		       x->ring.ifname, strerror(-err), missing);
		if (*missing && !is_further(x))
			warn_no_permission(x->ring.ifname);
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
	if (!err && x->zerocopy && x->sg)
		supply_bound(s);
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

static int ring_part(const struct xsk_ring *r)
{
	return r->map ? pages_replace(r->map, r->map_len, NULL) : 0;
}

/* The number stays taken. */
static int fd_part(int fd, int dummy)
{
	return fd >= 0 && own_fd_dup3(dummy, fd, O_CLOEXEC) < 0 ? -errno : 0;
}

static int first_error(const int *errs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (errs[i])
			return errs[i];
	return 0;
}

static int xsk_part(const struct xsk *s, int dummy)
{
	const int errs[] = {fd_part(s->fd, dummy), ring_part(&s->rx), ring_part(&s->fill),
			    ring_part(&s->tx), ring_part(&s->comp)};

	return first_error(errs, sizeof(errs) / sizeof(errs[0]));
}

int xsk_part_all(struct xdp_ring *x)
{
	int errs[PORT_MAX_QUEUES + 1], dummy = own_eventfd(0);

	for (unsigned i = 0; i < x->num_queues; i++)
		errs[i] = xsk_part(&x->xsk[i], dummy);
	errs[x->num_queues] = fd_part(x->gso_fd, dummy);
	if (dummy >= 0)
		own_fd_close(dummy);
	return first_error(errs, x->num_queues + 1);
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
