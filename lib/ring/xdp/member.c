/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/xdp/member.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "kmod/kmod.h"
#include "net/net.h"
#include "ring/xdp/pin.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

/* Another member, as we know it. The port's lock. */
struct watch {
	struct xdp_ring *x;
	unsigned slot;
	uint32_t generation; /* a process may leave, and come again in the same slot */
	int life; /* -1: not known any more */
	int conns; /* kmod_conns_fd() of it; -1: it has none */
	bool is_draining; /* it is dead, and what the driver sends of it is to be fetched */
	int xsk[]; /* of each queue; -1: not known */
};

struct member {
	uint64_t mark; /* process_mark(): a forked child has nothing to do with others */
	unsigned host; /* through whom we came */
	bool entered; /* the others know us */
	int pool_fd, umem_fd;
	int life[2], hello[2];
	int drain_fd; /* a timer; -1: nothing had to be drained yet */
	unsigned drain_ms; /* from one look to the next */
	struct watch *watch[POOL_MEMBERS];
};

/* What a new one sends with its descriptors: life's, that of its connections, its sockets'. */
struct hello {
	uint32_t slot, generation;
};

/* Before the sockets. */
#define HELLO_FDS 2u
#define HELLO_FDS_MAX (HELLO_FDS + PORT_MAX_QUEUES)

static struct pool_member *me(const struct xdp_ring *x)
{
	return &x->pool->member[x->row];
}

static int fetch(int pidfd, int fd)
{
	return OWN_FD((int)libc_raw(SYS_pidfd_getfd, pidfd, fd, 0, 0, 0, 0));
}

static void fd_close(int *fd)
{
	if (*fd >= 0)
		own_fd_close(*fd);
	*fd = -1;
}

/* ------------------------------------------------------------------ whether one lives */

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return raw.poll(&p, 1, 0) > 0;
}

/* A descriptor of the process that had this pid at that time; -1: it has ended. */
static int process_open(pid_t pid, uint64_t start_time)
{
	int fd = OWN_FD((int)libc_raw(SYS_pidfd_open, pid, 0, 0, 0, 0, 0));

	if (fd >= 0 && (process_start_time((unsigned)pid) != start_time || is_readable(fd)))
		fd_close(&fd);
	return fd;
}

/* The port's lock is held. */
static bool lives(const struct xdp_ring *x, unsigned slot)
{
	const struct pool_member *m = &x->pool->member[slot];
	const struct watch *w = x->member->watch[slot];
	int fd;

	if (w && w->life >= 0 && w->generation == m->generation)
		return !is_readable(w->life);
	fd = process_open((pid_t)m->pid, m->start_time);
	if (fd < 0)
		return false;
	own_fd_close(fd);
	return true;
}

/*
 * Who comes next finds the member in that slot. As of the pool's user, whatever we are now. The
 * port's lock is held.
 */
static void publish(struct xdp_ring *x, unsigned slot)
{
	const struct pool_member *m = &x->pool->member[slot];
	const struct vma_port_pool pool = {
		.fd = x->pool->closing ? VMA_PORT_POOL_NONE : m->fd[POOL_FD_POOL],
		.uid = x->pool->uid,
	};

	(void)port_publish(x->port, (pid_t)m->pid, m->start_time, &pool);
}

/* ------------------------------------------------------------------ the end of one */

static void watch_close(const struct xdp_ring *x, struct watch *w)
{
	fd_close(&w->life);
	fd_close(&w->conns);
	for (unsigned i = 0; i < x->num_queues; i++)
		fd_close(&w->xsk[i]);
}

/* No packet goes to it any more, and who comes next finds us. The port's lock is held. */
static void flows_bury(struct xdp_ring *x, unsigned slot)
{
	struct pool_member *m = &x->pool->member[slot];

	port_remove_ring(x->port, slot);
	port_flows_drop(x->port, slot);
	if (m->state == POOL_MEMBER)
		__atomic_fetch_sub(&x->pool->num_members, 1, __ATOMIC_RELAXED);
	m->state = POOL_BURIED;
	publish(x, x->row);
	log_debug("ring/xdp: %s: process %u, which had the queues, too, has ended", x->ring.ifname,
		  m->pid);
}

static bool is_to_bury(const struct xdp_ring *x, unsigned slot)
{
	const struct pool_member *m = &x->pool->member[slot];

	return me(x)->state == POOL_MEMBER && slot != x->row &&
	       (m->state == POOL_MEMBER || m->state == POOL_LEFT);
}

bool member_flows_drop(struct xdp_ring *x)
{
	bool any = false;

	for (unsigned i = 0; x->member && x->member->entered && i < POOL_MEMBERS; i++) {
		if (!is_to_bury(x, i) || lives(x, i))
			continue;
		flows_bury(x, i);
		any = true;
	}
	return any;
}

static bool is_empty(const struct xsk_ring *r)
{
	return __atomic_load_n(r->consumer, __ATOMIC_ACQUIRE) ==
	       __atomic_load_n(r->producer, __ATOMIC_RELAXED);
}

/*
 * The transmit ring of the dead one, after the kernel has been told to send what is there. False:
 * it cannot be had, and is needed. In copy mode nothing counts as unsent then: a chunk too few is
 * better than one in two hands.
 */
static bool tx_of_dead(struct xdp_ring *x, const struct watch *w, struct xsk_ring *tx)
{
	bool told = xsk_flush_other(w->xsk[0]);
	int err = -EAGAIN;

	if (told || x->zerocopy)
		err = xsk_map_other(tx, w->xsk[0], x->pool->member[w->slot].tx_entries,
				    XDP_PGOFF_TX_RING);
	return !err || !x->zerocopy;
}

/* A driver that has run dry sleeps. */
static void fills_tell(const struct xdp_ring *x)
{
	for (unsigned i = 0; x->zerocopy && i < x->num_queues; i++)
		rx_tell(&x->xsk[i], &x->xsk[i].fill);
}

/*
 * The port's lock is held. True: the slot is free. With zero-copy it is not before the driver has
 * taken all that the dead one has posted, for which its socket stays open.
 */
static bool chunks_bury(struct xdp_ring *x, const struct watch *w)
{
	struct pool_member *m = &x->pool->member[w->slot];
	struct xsk_ring rx[PORT_MAX_QUEUES] = {0}, tx = {0};

	for (unsigned i = 0; i < x->num_queues; i++)
		if (xsk_map_other(&rx[i], w->xsk[i], m->rx_entries, XDP_PGOFF_RX_RING))
			log_debug("ring/xdp: %s: what process %u had not read is lost to the pool",
				  x->ring.ifname, m->pid);
	if (tx_of_dead(x, w, &tx)) {
		pool_bury(x, w->slot, rx, &tx);
		fills_tell(x);
		if (!x->zerocopy || is_empty(&tx))
			m->state = POOL_FREE;
	}
	for (unsigned i = 0; i < x->num_queues; i++)
		xsk_unmap_other(&rx[i]);
	xsk_unmap_other(&tx);
	return m->state == POOL_FREE;
}

/* Longer than the kernel is at a batch of packets. */
#define PACKETS_END_NS 50000000

/* Who was about to give the dead one a packet has done so: its receive rings stay as they are. */
static void packets_end(void)
{
	/* EINVAL on a kernel with processors that have no tick (nohz_full) */
	if (libc_raw(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0, 0, 0, 0) < 0)
		clock_sleep_ns(PACKETS_END_NS);
}

/* False: this process may not. */
static bool peers_told(const struct xdp_ring *x, const struct watch *w)
{
	struct vma_flow_key *keys;
	unsigned num = kmod_conns_read(w->conns, &keys);
	int err = num ? net_tcp_orphans(keys, num, x->ring.ifindex) : 0;

	if (num)
		log_debug("ring/xdp: %s: the peers of %u connections of a process that was killed "
			  "are told of its end: %s",
			  x->ring.ifname, num, strerror(-err));
	free(keys);
	return err != -EPERM;
}

/*
 * By one who may: a process that has laid its rights down may be the first one here, and take the
 * chunks. Before that is said to be done, as it may be killed; what is told twice does no harm.
 */
static void peers_tell(struct xdp_ring *x, const struct watch *w)
{
	struct pool_member *m = &x->pool->member[w->slot];
	bool done;

	pool_port_lock(x);
	done = m->generation == w->generation && m->told == w->generation;
	pool_port_unlock(x);
	if (done || w->conns < 0 || !peers_told(x, w))
		return;
	pool_port_lock(x);
	if (m->generation == w->generation)
		m->told = w->generation;
	pool_port_unlock(x);
}

/* ------------------------------------------------------------------ zero-copy: draining */

/* As long as the link is down a driver sends nothing. */
#define DRAIN_MS 50u
#define DRAIN_MAX_MS 1600u

/*
 * Who has left meanwhile has no say in the pool any more; another may have done it. The port's lock
 * is held.
 */
static bool has_chunks_to_bury(const struct xdp_ring *x, const struct watch *w)
{
	const struct pool_member *m = &x->pool->member[w->slot];

	return me(x)->state == POOL_MEMBER && m->state == POOL_BURIED &&
	       m->generation == w->generation;
}

/* ms 0: not any more. */
static void drain_after(const struct xdp_ring *x, unsigned ms)
{
	const struct itimerspec t = {
		.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}};

	if (timerfd_settime(x->member->drain_fd, 0, &t, NULL))
		log_warn("ring/xdp: %s: timerfd_settime(): %s: chunks of ended processes are lost",
			 x->ring.ifname, strerror(errno));
}

/* The driver has been told, and what it has sent is fetched. The port's lock is held. */
static bool has_drained(struct xdp_ring *x, const struct watch *w)
{
	struct xsk_ring tx = {0};
	bool empty = tx_of_dead(x, w, &tx) && is_empty(&tx);

	xsk_unmap_other(&tx);
	return empty;
}

/* The port's lock is held. True: that is over. */
static bool drain(struct xdp_ring *x, const struct watch *w)
{
	return !has_chunks_to_bury(x, w) || (has_drained(x, w) && chunks_bury(x, w));
}

static void drain_all(int fd, uint32_t events, void *arg)
{
	struct xdp_ring *x = arg;
	struct member *m = x->member;
	bool more = false;

	(void)fd;
	(void)events;
	drain_after(x, 0); /* it is readable no more */
	pool_port_lock(x);
	for (unsigned i = 0; i < POOL_MEMBERS; i++) {
		struct watch *w = m->watch[i];

		if (!w || !w->is_draining)
			continue;
		w->is_draining = !drain(x, w);
		if (w->is_draining)
			more = true;
		else
			watch_close(x, w);
	}
	/* What the driver has sent since nobody may fetch for long. */
	if (me(x)->state == POOL_MEMBER)
		pool_fetch(x);
	m->drain_ms = m->drain_ms * 2 < DRAIN_MAX_MS ? m->drain_ms * 2 : DRAIN_MAX_MS;
	if (more)
		drain_after(x, m->drain_ms);
	pool_port_unlock(x);
}

/* The port's lock is held. */
static void drain_begin(struct xdp_ring *x, struct watch *w)
{
	struct member *m = x->member;
	int err = 0;

	if (m->drain_fd < 0) {
		m->drain_fd = OWN_FD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
		err = m->drain_fd < 0 ? -errno : worker_fd_add(m->drain_fd, EPOLLIN, drain_all, x);
	}
	if (err) {
		fd_close(&m->drain_fd);
		log_warn("ring/xdp: %s: no timer (%s): chunks of process %u are lost to the pool",
			 x->ring.ifname, strerror(-err), x->pool->member[w->slot].pid);
		return;
	}
	w->is_draining = true;
	m->drain_ms = DRAIN_MS;
	drain_after(x, m->drain_ms);
}

/* ------------------------------------------------------------------ the end of one, seen */

/* A member has ended: each of the others sees it, and one of them does each step. */
static void ended(int fd, uint32_t events, void *arg)
{
	struct watch *w = arg;
	struct xdp_ring *x = w->x;
	struct pool_member *m = &x->pool->member[w->slot];

	(void)events;
	pool_port_lock(x);
	if (is_to_bury(x, w->slot) && m->generation == w->generation)
		flows_bury(x, w->slot);
	pool_port_unlock(x);
	packets_end();
	peers_tell(x, w);
	pool_port_lock(x);
	if (has_chunks_to_bury(x, w)) {
		(void)chunks_bury(x, w);
		if (x->zerocopy)
			drain_begin(x, w);
	}
	worker_fd_del(fd, w);
	fd_close(&w->life);
	if (!w->is_draining)
		watch_close(x, w);
	pool_port_unlock(x);
}

/* ------------------------------------------------------------------ knowing one */

/* An unused one for that slot. NULL: no memory. The port's lock is held. */
static struct watch *watch_for(struct xdp_ring *x, unsigned slot)
{
	struct watch *w = x->member->watch[slot];

	/* Another has already buried it. */
	if (w && w->life >= 0)
		worker_fd_del(w->life, w);
	if (w)
		watch_close(x, w);
	if (!w)
		w = malloc(sizeof(*w) + x->num_queues * sizeof(w->xsk[0]));
	if (!w)
		return NULL;
	*w = (struct watch){.x = x, .slot = slot, .life = -1, .conns = -1};
	for (unsigned i = 0; i < x->num_queues; i++)
		w->xsk[i] = -1;
	x->member->watch[slot] = w;
	return w;
}

/*
 * fds: as struct hello has them, which are w's from now on. Once: the file is the dead one's and
 * every member's, so no close() of ours takes it out of the worker's set.
 */
static int watch_begin(struct watch *w, uint32_t generation, const int *fds)
{
	int err;

	w->generation = generation;
	w->life = fds[0];
	w->conns = fds[1];
	memcpy(w->xsk, fds + HELLO_FDS, w->x->num_queues * sizeof(*fds));
	err = worker_fd_add(w->life, EPOLLIN | EPOLLONESHOT, ended, w);
	if (err)
		watch_close(w->x, w);
	return err;
}

static void fds_close(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		fd_close(&fds[i]);
}

/* The descriptors that came with a message. Returns how many. */
static unsigned fds_of(struct msghdr *msg, int fds[HELLO_FDS_MAX])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	unsigned n;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	for (unsigned i = 0; i < n; i++) {
		own_fd_begin();
		fds[i] = own_fd_adopt(fds[i]);
		own_fd_end();
	}
	return n;
}

/* False: nothing more is there. */
static bool hello_read(struct xdp_ring *x)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(HELLO_FDS_MAX * sizeof(int))];
	} control;
	struct hello h = {0};
	struct iovec v = {&h, sizeof(h)};
	struct msghdr msg = {.msg_iov = &v,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	int fds[HELLO_FDS_MAX] = {0};
	struct watch *w = NULL;
	ssize_t got = raw.recvmsg(x->member->hello[0], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	unsigned n = got > 0 ? fds_of(&msg, fds) : 0;

	if (got <= 0)
		return false;
	if (got == sizeof(h) && n == HELLO_FDS + x->num_queues && h.slot < POOL_MEMBERS &&
	    h.slot != x->row) {
		pool_port_lock(x);
		w = watch_for(x, h.slot);
		if (w)
			(void)watch_begin(w, h.generation, fds);
		pool_port_unlock(x);
	}
	if (!w)
		fds_close(fds, n);
	return true;
}

static void hellos_read(int fd, uint32_t events, void *arg)
{
	(void)fd;
	(void)events;
	while (hello_read(arg))
		;
}

/* Sends our descriptors: the other has them even if we are killed before it looks. */
static int hello_send(const struct xdp_ring *x, int to)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(HELLO_FDS_MAX * sizeof(int))];
	} control = {0};
	struct hello h = {.slot = x->row, .generation = me(x)->generation};
	struct iovec v = {&h, sizeof(h)};
	const size_t n = HELLO_FDS + x->num_queues;
	struct msghdr msg = {.msg_iov = &v,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fds[HELLO_FDS_MAX] = {x->member->life[0], kmod_conns_fd()};

	for (unsigned i = 0; i < x->num_queues; i++)
		fds[HELLO_FDS + i] = x->xsk[i].fd;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return raw.sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* ------------------------------------------------------------------ being one */

static struct member *member_new(void)
{
	struct member *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->mark = process_mark();
	m->pool_fd = m->umem_fd = -1;
	m->life[0] = m->life[1] = m->hello[0] = m->hello[1] = m->drain_fd = -1;
	return m;
}

/* How others find us and see our end. 0 or negative errno. */
static int bell_make(struct xdp_ring *x)
{
	struct member *m = x->member;

	if (!OWN_FD_PAIR(libc.pipe2(m->life, O_CLOEXEC | O_NONBLOCK), m->life) ||
	    !OWN_FD_PAIR(libc.socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, m->hello),
			 m->hello) ||
	    kmod_conns_fd() < 0)
		return -errno;
	return worker_fd_add(m->hello[0], EPOLLIN, hellos_read, x);
}

/* Says in the pool who x is. The port's lock is held. */
static void describe(struct xdp_ring *x)
{
	struct pool_member *m = me(x);

	m->generation++;
	m->pid = (uint32_t)getpid();
	m->start_time = process_start_time(m->pid);
	m->fd[POOL_FD_POOL] = x->member->pool_fd;
	m->fd[POOL_FD_UMEM] = x->member->umem_fd;
	m->fd[POOL_FD_LIFE] = x->member->life[0];
	m->fd[POOL_FD_HELLO] = x->member->hello[1];
	m->fd[POOL_FD_CONNS] = kmod_conns_fd();
	for (unsigned i = 0; i < PORT_DESCRIPTORS; i++)
		m->fd[POOL_FD_PORT + i] = x->port->fd[i];
	for (unsigned i = 0; i < x->num_queues; i++)
		m->xsk[i] = x->xsk[i].fd;
	m->rx_entries = x->xsk[0].rx.size;
	m->tx_entries = x->xsk[0].tx.size;
	m->posting = 0;
	x->posting = x->zerocopy ? &m->posting : NULL;
}

static void enter_done(struct xdp_ring *x)
{
	me(x)->state = POOL_MEMBER;
	__atomic_fetch_add(&x->pool->num_members, 1, __ATOMIC_RELAXED);
	x->member->entered = true;
	x->ring.caps.joins = true;
}

int member_begin(struct xdp_ring *x)
{
	struct member *m = member_new();
	int err = m ? pool_make(x, &m->pool_fd, &m->umem_fd) : -ENOMEM;

	if (err) {
		log_debug("ring/xdp: %s: no memory that others can share: %s", x->ring.ifname,
			  strerror(-err));
		free(m);
		return err;
	}
	x->member = m;
	x->pool->num_queues = x->num_queues;
	x->port->flows = x->pool->flows;
	x->port->flow_busy = &x->pool->flow_busy;
	x->port->row = x->row;
	x->port->pool_follows = true;
	return 0;
}

bool member_may_share(const struct xdp_ring *x)
{
	return x->member && x->member->umem_fd >= 0 && share_allowed();
}

/* Nobody shall wait for it. */
static void publish_none(struct xdp_ring *x)
{
	const struct vma_port_pool none = {.fd = VMA_PORT_POOL_NONE};

	(void)port_publish(x->port, getpid(), process_start_time((unsigned)getpid()), &none);
}

void member_publish(struct xdp_ring *x)
{
	/* What hangs on a descriptor (port.c) cannot be found. */
	if ((x->zerocopy && (x->sg || x->zerocopy_alone)) || !member_may_share(x) ||
	    !x->port->prog || bell_make(x)) {
		publish_none(x);
		return;
	}
	pool_port_lock(x);
	x->pool->mode = x->port->mode;
	x->pool->sg = x->sg;
	x->pool->zerocopy = x->zerocopy;
	x->pool->gso_bursts = x->gso_bursts;
	describe(x);
	enter_done(x);
	publish(x, x->row);
	pool_port_unlock(x);
}

/* ------------------------------------------------------------------ joining */

/* The uid, and above it the pid of the process that it holds for; 0: none. */
static _Atomic uint64_t user_to_be;

void member_user_to_be(uid_t uid)
{
	uint64_t pid = (uint32_t)getpid();

	atomic_store(&user_to_be, uid == (uid_t)-1 ? 0 : pid << 32 | uid);
}

uid_t member_user(void)
{
	uint64_t u = atomic_load(&user_to_be);

	return u >> 32 == (uint32_t)getpid() ? (uid_t)u : geteuid();
}

/* Who is about to become the pool's user may be at either end: he was as the other is now. */
static int door_open(struct member_door *d)
{
	char path[32];
	struct stat st;

	d->pidfd = process_open(d->pid, d->start_time);
	if (d->pidfd < 0)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d", (int)d->pid);
	if (stat(path, &st) || (st.st_uid != geteuid() && st.st_uid != member_user()))
		return -EPERM;
	return 0;
}

static bool has_ended(const struct member_door *d)
{
	int fd = process_open(d->pid, d->start_time);

	if (fd >= 0)
		own_fd_close(fd);
	return fd < 0;
}

int member_door_find(int ifindex, struct member_door *d)
{
	struct port_public pub;
	int err;

	*d = (struct member_door){.pidfd = -1, .pool_fd = -1};
	err = port_public_find(ifindex, &pub);
	if ((err && err != -EAGAIN) || (pid_t)pub.owner.pid == getpid())
		return -ENOENT;
	d->pid = (pid_t)pub.owner.pid;
	d->start_time = pub.owner.start_time;
	if (err)
		return has_ended(d) ? -ENOENT : -EAGAIN;
	err = pub.pool.uid == member_user() ? door_open(d) : -EPERM;
	if (err)
		return err;
	d->pool_fd = fetch(d->pidfd, pub.pool.fd);
	if (d->pool_fd < 0)
		return -errno;
	d->pool = pool_map(d->pool_fd);
	return d->pool ? 0 : -EPROTO;
}

void member_door_close(struct member_door *d)
{
	fd_close(&d->pidfd);
	fd_close(&d->pool_fd);
	pool_unmap(d->pool);
	d->pool = NULL;
}

int member_host_xsk(const struct xdp_ring *x, unsigned queue)
{
	return x->member->watch[x->member->host]->xsk[queue];
}

static int slot_find(const struct pool *p, const struct member_door *d, unsigned *host,
		     unsigned *slot)
{
	*host = *slot = POOL_MEMBERS;
	for (unsigned i = POOL_MEMBERS; i-- > 0;) {
		const struct pool_member *m = &p->member[i];

		if (m->state == POOL_FREE)
			*slot = i;
		if (m->state == POOL_MEMBER && m->pid == (uint32_t)d->pid &&
		    m->start_time == d->start_time)
			*host = i;
	}
	if (p->closing)
		return -EPERM;
	if (*host == POOL_MEMBERS) /* another stands in the map by now */
		return -EAGAIN;
	return *slot == POOL_MEMBERS ? -ENOSPC : 0;
}

/* Knows the member in the slot, by what its process has. 0 or negative errno. */
static int watch_fetch(struct xdp_ring *x, unsigned slot, int pidfd)
{
	const struct pool_member *m = &x->pool->member[slot];
	int fds[HELLO_FDS_MAX];
	struct watch *w;

	fds[0] = fetch(pidfd, m->fd[POOL_FD_LIFE]);
	fds[1] = fetch(pidfd, m->fd[POOL_FD_CONNS]);
	for (unsigned i = 0; i < x->num_queues; i++)
		fds[HELLO_FDS + i] = fetch(pidfd, m->xsk[i]);
	for (unsigned i = 0; i < HELLO_FDS + x->num_queues; i++) {
		if (fds[i] < 0) {
			fds_close(fds, HELLO_FDS + x->num_queues);
			return -EPERM;
		}
	}
	w = watch_for(x, slot);
	if (!w) {
		fds_close(fds, HELLO_FDS + x->num_queues);
		return -ENOMEM;
	}
	return watch_begin(w, m->generation, fds);
}

/* The host's UMEM. */
static int umem_fetch(struct xdp_ring *x, int pidfd)
{
	const struct pool_member *host = &x->pool->member[x->member->host];
	size_t bytes = x->pool->umem_bytes;
	struct stat st;
	void *base;
	int err, fd = fetch(pidfd, host->fd[POOL_FD_UMEM]);

	x->member->umem_fd = fd;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || bytes < (size_t)pool_chunks(x->num_queues) * UMEM_CHUNK ||
	    bytes > (size_t)st.st_size || !own_fd_memory_is(fd))
		return -EPROTO;
	base = pages_map_fd(fd, bytes);
	if (!base)
		return -errno;
	err = umem_enter(&x->umem, base, bytes, pool_rx_chunks(x->num_queues),
			 pool_chunks(x->num_queues));
	if (err) {
		pages_unmap(base, bytes);
		return err;
	}
	x->umem.owner = x->pool->owner;
	x->umem.me = OWNER_OF(x->row);
	return 0;
}

static int port_fetch(struct xdp_ring *x, int pidfd)
{
	const struct pool_member *host = &x->pool->member[x->member->host];
	int err = 0, fd[PORT_DESCRIPTORS];

	for (unsigned i = 0; i < PORT_DESCRIPTORS; i++) {
		fd[i] = fetch(pidfd, host->fd[POOL_FD_PORT + i]);
		if (fd[i] < 0)
			err = -EPERM;
	}
	x->port->mode = x->pool->mode == PORT_GENERIC ? PORT_GENERIC : PORT_NATIVE;
	x->port->frags = x->sg;
	x->port->take_gso_bursts = x->gso_bursts;
	x->port->flows = x->pool->flows;
	x->port->flow_busy = &x->pool->flow_busy;
	if (!err)
		err = port_enter(x->port, fd);
	if (err)
		fds_close(fd, PORT_DESCRIPTORS);
	else
		port_flows_recount(x->port); /* the lock's last holder may have died with it */
	return err;
}

/* Knows all the others, and has them know x. */
static void greet(struct xdp_ring *x)
{
	for (unsigned i = 0; i < POOL_MEMBERS; i++) {
		const struct pool_member *m = &x->pool->member[i];
		int pidfd, to;

		if (m->state != POOL_MEMBER || i == x->row)
			continue;
		pidfd = process_open((pid_t)m->pid, m->start_time);
		if (pidfd < 0) /* the others will see it */
			continue;
		if (i != x->member->host)
			(void)watch_fetch(x, i, pidfd);
		to = fetch(pidfd, m->fd[POOL_FD_HELLO]);
		if (to < 0 || hello_send(x, to))
			log_debug("ring/xdp: %s: process %u does not know of us", x->ring.ifname,
				  m->pid);
		fd_close(&to);
		own_fd_close(pidfd);
	}
}

static bool are_entries(uint32_t n)
{
	return n && n <= POOL_CHUNKS * 2 && !(n & (n - 1));
}

/* The port's lock is held. */
static int enter(struct xdp_ring *x, struct member_door *d)
{
	int err, fds[PORT_MAX_QUEUES];
	unsigned queue = 0;

	err = slot_find(x->pool, d, &x->member->host, &x->row);
	if (err)
		return err;
	x->fill_entries = x->pool->fill_entries;
	x->comp_entries = x->pool->comp_entries;
	if (x->pool->num_queues != x->num_queues || !are_entries(x->fill_entries) ||
	    !are_entries(x->comp_entries))
		return -EPROTO;
	me(x)->state = POOL_ENTERING;
	x->port->row = x->row;
	x->sg = x->pool->sg;
	x->zerocopy = x->pool->zerocopy;
	x->gso_bursts = x->pool->gso_bursts;
	if ((err = umem_fetch(x, d->pidfd)) || (err = port_fetch(x, d->pidfd)) ||
	    (err = watch_fetch(x, x->member->host, d->pidfd)) || (err = bell_make(x)) ||
	    (err = xsk_open_all(x, &queue)))
		return err;
	err = port_add_ring(x->port, x->row, fds, xdp_wait_fds(&x->ring, fds, PORT_MAX_QUEUES));
	if (err)
		return err;
	describe(x);
	greet(x);
	x->pool->shared = 1;
	enter_done(x);
	return 0;
}

int member_enter(struct xdp_ring *x, struct member_door *d)
{
	int err;

	x->member = member_new();
	if (!x->member)
		return -ENOMEM;
	x->joined = true;
	x->pool = d->pool;
	x->member->pool_fd = d->pool_fd;
	d->pool = NULL;
	d->pool_fd = -1;
	pool_port_lock(x);
	err = enter(x, d);
	if (err && x->row < POOL_MEMBERS && me(x)->state == POOL_ENTERING)
		me(x)->state = POOL_FREE;
	pool_port_unlock(x);
	if (err)
		member_free(x);
	return err;
}

/* ------------------------------------------------------------------ leaving */

/* Who comes next finds another. False: there is none. The port's lock is held. */
static bool hand_on(struct xdp_ring *x)
{
	for (unsigned i = 0; i < POOL_MEMBERS; i++) {
		const struct pool_member *m = &x->pool->member[i];

		if (m->state != POOL_MEMBER || !lives(x, i))
			continue;
		publish(x, i);
		return true;
	}
	return false;
}

bool member_leave(struct xdp_ring *x)
{
	bool others;

	if (x->member->mark != process_mark())
		return true;
	if (!x->member->entered)
		return false;
	pool_port_lock(x);
	me(x)->state = POOL_LEFT;
	__atomic_fetch_sub(&x->pool->num_members, 1, __ATOMIC_RELAXED);
	others = hand_on(x);
	if (others) {
		port_remove_ring(x->port, x->row);
		port_flows_drop(x->port, x->row);
	} else {
		x->pool->closing = 1;
	}
	pool_port_unlock(x);
	return others;
}

int member_user_changes(struct xdp_ring *x, uid_t uid)
{
	int err = 0;

	if (!x->member->entered || uid == (uid_t)x->pool->uid)
		return 0;
	pool_port_lock(x);
	if (x->pool->shared) {
		err = -EPERM;
	} else {
		x->pool->closing = 1;
		publish(x, x->row);
	}
	pool_port_unlock(x);
	return err;
}

/* Waits for a callback under way. */
static void watch_end(struct xdp_ring *x, struct watch *w)
{
	int life;

	pool_port_lock(x);
	life = w->life;
	pool_port_unlock(x);
	if (life >= 0)
		worker_fd_del(life, w);
}

void member_free(struct xdp_ring *x)
{
	struct member *m = x->member;
	bool ours = m->mark == process_mark();

	if (ours && m->hello[0] >= 0)
		worker_fd_del(m->hello[0], x);
	for (unsigned i = 0; ours && i < POOL_MEMBERS; i++)
		if (m->watch[i])
			watch_end(x, m->watch[i]);
	/* They were the ones that set it. */
	if (ours && m->drain_fd >= 0) {
		worker_fd_del(m->drain_fd, x);
		drain_after(x, 0); /* a forked child may have it still */
	}
	fd_close(&m->drain_fd);
	for (unsigned i = 0; i < POOL_MEMBERS; i++) {
		if (!m->watch[i])
			continue;
		watch_close(x, m->watch[i]);
		free(m->watch[i]);
	}
	fds_close(m->life, 2);
	fds_close(m->hello, 2);
	fd_close(&m->pool_fd);
	fd_close(&m->umem_fd);
	free(m);
	x->member = NULL;
}
