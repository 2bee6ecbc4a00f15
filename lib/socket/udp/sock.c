/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/udp/internal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "socket/udp/flow_keys.h"

void (*udp_claim_raise)(struct udp_sock *s);
void (*udp_queue_leave)(struct udp_sock *s);

/* All socket objects ever made; memory is reused, never freed (vfd.h). */
static struct lock list_lock;
static struct udp_sock *all_socks; /* by next */
static unsigned next_id;
/* by next_free, the longest rested first */
static struct udp_sock *free_socks, **free_tail = &free_socks;

static struct udp_sock *sock_alloc(void)
{
	struct udp_sock *s;

	lock_take(&list_lock);
	s = free_socks;
	if (s) {
		free_socks = s->next_free;
		if (!free_socks)
			free_tail = &free_socks;
	} else {
		s = calloc(1, sizeof(*s));
		if (s) {
			lock_class(&s->lock, "udp_sock.lock");
			/* For ever: a thread may still be inside a former life. */
			s->v.ops = &udp_ops;
			s->v.kind = VFD_UDP;
			s->id = next_id++;
			s->next = all_socks;
			all_socks = s;
		}
	}
	lock_drop(&list_lock);
	return s;
}

static void sock_free(struct udp_sock *s)
{
	lock_take(&list_lock);
	s->next_free = NULL;
	*free_tail = s;
	free_tail = &s->next_free;
	lock_drop(&list_lock);
}

/* The worker's epoll saw something on the kernel socket: data that came that way, or an error. */
static void os_event(int fd, uint32_t events, void *arg)
{
	struct udp_sock *s = arg;

	(void)fd;
	atomic_fetch_or_explicit(&s->v.os_events, events, memory_order_acq_rel);
	udp_completion_kernel(s, events);
	vfd_notify(&s->v, events);
}

static void name_stats(struct udp_sock *s, int fd)
{
	s->stats->family = (uint8_t)s->domain;
	s->stats->proto = IPPROTO_UDP;
	s->stats->blocking = !s->o.nonblock;
	s->stats->mc_loop = s->o.mc_loop;
	s->stats->rx_ready_limit = s->o.rcvbuf;
	s->stats->fd = fd;
	s->inode = sock_inode(fd);
	stats_set(&s->stats->inode, s->inode);
	__atomic_store_n(&s->stats->enabled, 1, __ATOMIC_RELEASE);
}

struct udp_sock *udp_sock_new(int fd, int domain)
{
	struct udp_sock *s = sock_alloc();

	if (!s)
		return NULL;
	s->domain = domain;
	s->begun = s->kernel_has_older = s->in_kernel = s->shut_rd = s->shut_wr = s->corked = false;
	s->bound = s->connected = s->kernel_rx = s->shared = false;
	atomic_store_explicit(&s->lport, 0, memory_order_relaxed);
	s->bind_order = 0;
	s->stacks_seen = 0;
	atomic_store_explicit(&s->peer.len, 0, memory_order_relaxed);
	s->drops = 0;
	s->joined_ns = 0;
	s->dst_last = NULL;
	s->keyed = s->tx_keyed = false;
	s->key = s->tx_key = 0;
	s->ring_attr_rx = s->ring_attr_tx = 0;
	s->mover.accesses = s->tx_mover.accesses = 0;
	s->mover.candidate = s->tx_mover.candidate = 0;
	atomic_store_explicit(&s->last_time_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->spin.seen, 0, memory_order_relaxed);
	s->v.os_events = 0;
	atomic_store_explicit(&s->v.shadow, VFD_SHADOW_IN, memory_order_relaxed);
	s->os_countdown = 1;
	s->worker_fd = -1;
	atomic_store_explicit(&s->inherited_claim, NULL, memory_order_relaxed);
	s->cb = (struct udp_callback){0};
	sock_user_data_clear(&s->user_data);
	s->has_held = s->copied = false;
	atomic_store(&s->in_callback, false);
	memset(&s->local, 0, sizeof(s->local));
	s->stats = stats_socket_get(fd);
	udp_opts_init(s, fd);
	name_stats(s, fd);
	return s;
}

int udp_socket_created(int fd, int domain, int type, int protocol)
{
	struct udp_sock *s;
	int err;

	if ((domain != AF_INET && domain != AF_INET6) || (type & 0xf) != SOCK_DGRAM ||
	    (protocol && protocol != IPPROTO_UDP))
		return -EPROTONOSUPPORT;
	if (params.ring_type == RING_TYPE_NONE)
		return -EOPNOTSUPP;
	s = udp_sock_new(fd, domain);
	if (!s)
		return -ENOMEM;
	s->worker_fd = fd;
	err = worker_fd_add(fd, EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLET, os_event, s);
	if (!err) {
		err = vfd_install(fd, &s->v);
		if (err)
			worker_fd_del(fd, s);
	}
	if (err) {
		log_warn("fd %d stays with the kernel: %s", fd, strerror(-err));
		stats_socket_put(s->stats);
		sock_free(s);
		return err;
	}
	atomic_store_explicit(&s->in_use, true, memory_order_release);
	return 0;
}

static int udp_bind(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct udp_sock *s = udp_of(v);
	uint16_t joined = 0, divided = 0;
	int ret, cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return libc.bind(fd, addr, len);
	ret = libc.bind(fd, addr, len);
	if (!ret) {
		s->bound = true;
		udp_learn_local(s, fd);
		libc_internal_begin();
		udp_follow_port(s);
		udp_attach(s, fd);
		libc_internal_end();
		joined = udp_can_share(s) ? s->lport : 0;
		divided = s->in_kernel ? joined : 0;
	}
	udp_unlock(s, cancel);
	udp_port_divide(divided);
	udp_port_joined(joined);
	return ret;
}

/* The kernel's word for who the peer is. Nothing goes by a remembered destination meanwhile. */
static void learn_peer(struct udp_sock *s, int fd)
{
	union udp_addr a = {.word = {0}};
	socklen_t len = sizeof(a);
	struct in6_addr peer = {0};
	uint16_t port = 0;
	uint32_t scope;
	bool connected = !libc.getpeername(fd, &a.sa, &len);

	if (!connected)
		len = 0;
	atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_seq_cst);
	for (unsigned i = 0; i < sizeof(a.word) / sizeof(a.word[0]); i++)
		atomic_store_explicit(&s->peer.word[i], a.word[i], memory_order_release);
	atomic_store_explicit(&s->peer.len, len, memory_order_release);
	s->connected = connected;
	atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
	if (connected)
		sock_addr_get(&a.sa, len, &peer, &port, &scope);
	memcpy(s->stats->remote.byte, &peer, 16);
	s->stats->remote_port = port;
}

static int udp_connect(struct vfd *v, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct udp_sock *s = udp_of(v);
	uint16_t joined = 0;
	int ret, err, cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return raw.connect(fd, addr, len);
	ret = raw.connect(fd, addr, len);
	err = errno;
	/*
	 * Leaving the peer can fail and yet have happened; a failure that the kernel blames on addr
	 * must not be read here.
	 */
	if (!ret || (err != EFAULT && err != EINVAL && addr->sa_family == AF_UNSPEC)) {
		learn_peer(s, fd);
		udp_learn_local(s, fd);
		libc_internal_begin();
		if (!s->lport) /* the port went with the peer */
			udp_unlist(s);
		udp_attach(s, fd);
		libc_internal_end();
		joined = !s->connected && udp_can_share(s) ? s->lport : 0;
	}
	udp_unlock(s, cancel);
	udp_port_joined(joined);
	errno = err;
	return ret;
}

static int udp_shutdown(struct vfd *v, int fd, int how)
{
	struct udp_sock *s = udp_of(v);
	int ret, err, cancel;

	if (!udp_lock_live(s, fd, &cancel))
		return libc.shutdown(fd, how);
	ret = libc.shutdown(fd, how);
	err = errno;
	/*
	 * ENOTCONN is the answer of an unconnected socket, but the directions are shut all the
	 * same.
	 */
	if (!ret || err == ENOTCONN) {
		if (how == SHUT_RD || how == SHUT_RDWR)
			atomic_store_explicit(&s->shut_rd, true, memory_order_release);
		if (how == SHUT_WR || how == SHUT_RDWR)
			atomic_store_explicit(&s->shut_wr, true, memory_order_release);
		vfd_notify(v, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
	}
	udp_unlock(s, cancel);
	errno = err;
	return ret;
}

/* The packets on their way to s. */
static void poll_once(const struct udp_sock *s)
{
	unsigned n = atomic_load_explicit(&s->natt, memory_order_relaxed);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = udp_att(s, i)->st;

		if (lock_mine(&st->lock))
			continue;
		lock_take(&st->lock);
		stack_poll_called(st);
		lock_drop(&st->lock);
	}
}

void udp_move_to_kernel(struct udp_sock *s, struct vma_stats_why why)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);

	/* Those that wait go first, while what comes still comes here, behind them. */
	if (!atomic_load_explicit(&s->in_kernel, memory_order_relaxed)) {
		poll_once(s);
		udp_queue_leave(s);
	}
	udp_to_kernel(s, fd, why);
	poll_once(s);
	udp_queue_leave(s);
}

void udp_leave_to_children(struct udp_sock *s)
{
	if (!atomic_load_explicit(&s->copied, memory_order_relaxed) ||
	    !atomic_load_explicit(&s->natt, memory_order_relaxed))
		return;
	libc_internal_begin();
	udp_move_to_kernel(s, STATS_WHY(FORK));
	libc_internal_end();
}

static void udp_forking(struct vfd *v)
{
	atomic_store_explicit(&udp_of(v)->copied, true, memory_order_relaxed);
}

static int udp_close(struct vfd *v, int fd)
{
	struct udp_sock *s = udp_of(v);
	int ret, err, cancel;

	/* Neither a handler nor a cancellation may see it half closed. */
	lock_enter();
	cancel = udp_lock(s);
	udp_leave_to_children(s);
	atomic_store_explicit(&s->in_use, false, memory_order_release);
	atomic_fetch_add_explicit(&s->gen, 1, memory_order_release);
	/*
	 * The remembered destinations carry this socket's port: the next user of the memory must
	 * not send by them.
	 */
	atomic_fetch_add_explicit(&s->opt_gen, 1, memory_order_release);
	udp_detach(s);
	if (s->has_held)
		stack_held_orphan(s);
	stack_timestamps(0 - s->o.stamping);
	lock_drop(&s->lock);
	ret = fd >= 0 ? vfd_release(fd) : 0;
	err = errno;
	udp_port_forget(s->lport);
	if (s->worker_fd >= 0)
		worker_fd_del(s->worker_fd, s);
	vfd_notify(v, EPOLLHUP);
	udp_groups_free(s);
	stats_socket_put(s->stats);
	sock_free(s);
	lock_leave();
	pthread_setcancelstate(cancel, NULL);
	errno = err;
	return ret;
}

/* Another process is to have it, which can wait for the kernel socket only. */
static void udp_share(struct vfd *v, struct vma_stats_why why)
{
	struct udp_sock *s = udp_of(v);
	int err = errno, cancel;
	uint16_t port = 0;

	udp_claim(s);
	cancel = udp_lock(s);
	libc_internal_begin();
	if (atomic_load_explicit(&s->in_use, memory_order_relaxed)) {
		port = udp_can_share(s) ? s->lport : 0;
		udp_move_to_kernel(s, why);
	}
	libc_internal_end();
	udp_unlock(s, cancel);
	if (port)
		udp_sharing_look(port);
	errno = err;
}

static void udp_touch(struct vfd *v)
{
	int err = errno;

	udp_claim(udp_of(v));
	errno = err;
}

/* Whoever has s->lock may be using the number. */
static void udp_renumbered(struct vfd *v)
{
	struct udp_sock *s = udp_of(v);
	int cancel;

	if (lock_mine(&s->lock)) /* as TCP's: a signal handler */
		return;
	cancel = udp_lock(s);
	udp_unlock(s, cancel);
}

static void udp_waited(struct vfd *v)
{
	udp_touch(v);
	udp_begin(udp_of(v), atomic_load_explicit(&v->os_fd, memory_order_relaxed));
}

void udp_each(void (*fn)(struct udp_sock *s, void *arg), void *arg)
{
	struct udp_sock *s;

	lock_take(&list_lock);
	s = all_socks;
	lock_drop(&list_lock);
	for (; s; s = s->next) { /* next never changes once a socket is listed */
		lock_take(&s->lock);
		if (atomic_load_explicit(&s->in_use, memory_order_acquire))
			fn(s, arg);
		lock_drop(&s->lock);
	}
}

unsigned udp_num_ids(void)
{
	unsigned n;

	lock_take(&list_lock);
	n = next_id;
	lock_drop(&list_lock);
	return n;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

bool udp_inodes_foreign(uint64_t *inodes, unsigned n)
{
	unsigned ours = 0;

	qsort(inodes, n, sizeof(*inodes), by_number);
	lock_take(&list_lock);
	for (struct udp_sock *s = all_socks; s; s = s->next) {
		if (atomic_load_explicit(&s->in_use, memory_order_acquire) &&
		    !atomic_load_explicit(&s->in_kernel, memory_order_relaxed) &&
		    bsearch(&s->inode, inodes, n, sizeof(*inodes), by_number))
			ours++;
	}
	lock_drop(&list_lock);
	return ours < n;
}

bool udp_port_any(uint16_t port, bool (*is)(const struct udp_sock *s))
{
	struct udp_sock *s;

	lock_take(&list_lock);
	for (s = all_socks; s; s = s->next) {
		if ((!port || atomic_load_explicit(&s->lport, memory_order_relaxed) == port) &&
		    is(s) && atomic_load_explicit(&s->in_use, memory_order_acquire))
			break;
	}
	lock_drop(&list_lock);
	return s != NULL;
}

void udp_forked(void (*inherit)(const struct udp_sock *parents, int fd))
{
	struct udp_sock *parents = all_socks, *s;

	/*
	 * Objects, stacks, queues and locks are as the parent had them at this instant: all are
	 * left behind.
	 */
	atomic_store(&list_lock.owner, 0);
	all_socks = NULL;
	free_socks = NULL;
	free_tail = &free_socks;
	next_id = 0;
	udp_atts_forked();
	udp_show_forked();
	udp_sharing_forked();
	udp_full_queues_forked();
	for (s = parents; s; s = s->next) {
		if (atomic_load_explicit(&s->in_use, memory_order_relaxed) &&
		    (atomic_load(&s->inherited_claim) ||
		     !atomic_load_explicit(&s->in_kernel, memory_order_relaxed)))
			inherit(s, atomic_load_explicit(&s->v.os_fd, memory_order_relaxed));
	}
}

const struct vfd_ops udp_ops = {
	.bind = udp_bind,
	.connect = udp_connect,
	.shutdown = udp_shutdown,
	.getsockopt = udp_getsockopt,
	.setsockopt = udp_setsockopt,
	.ioctl = udp_ioctl,
	.fcntl = udp_fcntl,
	.recvmsg = udp_recvmsg,
	.sendmsg = udp_sendmsg,
	.recvfrom = udp_recvfrom,
	.sendto = udp_sendto,
	.recvmmsg = udp_recvmmsg,
	.sendmmsg = udp_sendmmsg,
	.close = udp_close,
	.events = udp_events,
	.waited = udp_waited,
	.share = udp_share,
	.touch = udp_touch,
	.renumbered = udp_renumbered,
	.forking = udp_forking,
};
