/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Opening a ring takes tens of milliseconds, on a loaded machine a second, and a call that must not
 * wait does not wait for it: the internal thread opens it, and until then its stack has one that
 * neither sends nor receives. A flow that is added to it the ring gets from its socket, when it has
 * come (struct stack_timed_ops.ring_came).
 */
#include "stack/internal.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/epoll.h>

#include "net/net.h"
#include "runtime/runtime.h"

#define LINK_HEADER 14u

static void nothing(struct ring *r)
{
	(void)r;
}

static unsigned no_frames(struct ring *r, struct buf **pkts, unsigned max)
{
	(void)r;
	(void)pkts;
	(void)max;
	return 0;
}

static bool none_pending(const struct ring *r)
{
	(void)r;
	return false;
}

static struct buf *no_room(struct ring *r, uint32_t room)
{
	(void)r;
	(void)room;
	return NULL;
}

static int not_posted(struct ring *r, struct buf *b)
{
	(void)r;
	(void)b;
	return -ENOBUFS;
}

static int nothing_kicked(struct ring *r)
{
	(void)r;
	return 0;
}

static int not_sent(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g)
{
	(void)r;
	(void)iov;
	(void)iovcnt;
	(void)g;
	return -EAGAIN;
}

static unsigned no_fds(struct ring *r, int *fds, unsigned max)
{
	(void)r;
	(void)fds;
	(void)max;
	return 0;
}

static bool none_wait(struct ring *r)
{
	(void)r;
	return false;
}

static int flow_later(struct ring *r, const struct vma_flow_key *key,
		      const struct vma_flow_info *info)
{
	(void)r;
	(void)key;
	(void)info;
	return 0;
}

static int no_flow(struct ring *r, const struct vma_flow_key *key)
{
	(void)r;
	(void)key;
	return 0;
}

static void port_later(struct ring *r, uint16_t local_port, bool quiet)
{
	(void)r;
	(void)local_port;
	(void)quiet;
}

static void empty(const struct ring *r, struct ring_gauges *g)
{
	(void)r;
	*g = (struct ring_gauges){0};
}

static void link_changed(struct ring *r, uint32_t mtu, const uint8_t mac[6])
{
	(void)mac;
	r->caps.max_frame = mtu + LINK_HEADER;
}

static bool is_full(struct ring *r)
{
	(void)r;
	return true;
}

static const struct ring_ops none = {
	.name = "none",
	.tx_full = is_full,
	.close = nothing,
	.leave = nothing,
	.poll = no_frames,
	.poll_stamped = no_frames,
	.pending = none_pending,
	.tx_alloc = no_room,
	.post = not_posted,
	.kick = nothing_kicked,
	.dummy = not_posted,
	.send_gso = not_sent,
	.wait_fds = no_fds,
	.arm = none_wait,
	.flow_add = flow_later,
	.flow_del = no_flow,
	.port_quiet = port_later,
	.gauges = empty,
	.link_changed = link_changed,
};

struct ring *stack_no_ring(struct stack *st, int ifindex)
{
	static struct ring_counters counters; /* nobody counts */
	struct ring *r = &st->no_ring;
	struct net_link link;

	/* Each by itself: a thread may still look at what the stack was before. */
	r->ops = &none;
	r->counters = &counters;
	r->ifindex = ifindex;
	r->caps.port_blocks = ring_blocks_likely(ifindex);
	if (!net_link_get(ifindex, &link)) {
		r->caps.max_frame = link.mtu + LINK_HEADER;
		memcpy(r->ifname, link.name, sizeof(r->ifname));
	}
	return r;
}

/* --- the internal thread */

/* Readable from the beginning: it has been asked, and has not begun; -1. stacks_mutex */
static int ask_fd = -1;

static void come_or_go(struct stack *st)
{
	uint64_t key = atomic_load_explicit(&st->key, memory_order_relaxed);
	struct stack *opened;
	enum stack_ring state;

	if (!atomic_load_explicit(&st->open, memory_order_acquire) ||
	    stack_ring_state(st) == STACK_RING_THERE)
		return;
	if (stack_ring_comes(st))
		log_debug("%s is opened by the internal thread: a connect() that does not wait "
			  "has asked for it",
			  st->no_ring.ifname);
	opened = stack_get(st->ifindex, key);
	if (opened)
		stack_put(opened);
	lock_take(&st->lock);
	state = stack_ring_state(st) == STACK_RING_CAME ? STACK_RING_THERE : STACK_RING_REFUSED;
	atomic_store_explicit(&st->ring_state, state, memory_order_release);
	lock_drop(&st->lock);
	if (state == STACK_RING_THERE) {
		stack_timed_ops->ring_came(st);
		return;
	}
	stack_tcp_ops->cut_off(st);
	stack_vanished(st);
}

static void open_all(int fd, uint32_t events, void *arg)
{
	unsigned n;

	(void)events;
	worker_fd_del(fd, arg);
	pthread_mutex_lock(&stacks_mutex);
	ask_fd = -1;
	own_fd_close(fd);
	n = atomic_load_explicit(&num_stacks, memory_order_relaxed);
	pthread_mutex_unlock(&stacks_mutex);
	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		come_or_go(st);
		stack_link_see(st);
	}
	stacks_follow();
}

int stack_opener_ask(void)
{
	int fd, err;

	if (ask_fd >= 0)
		return 0;
	fd = own_eventfd(1);
	if (fd < 0)
		return -errno;
	err = worker_fd_add(fd, EPOLLIN, open_all, NULL);
	if (err)
		own_fd_close(fd);
	else
		ask_fd = fd;
	return err;
}

void stack_opener_forked(void)
{
	/* The parent's thread was asked. */
	if (ask_fd >= 0)
		own_fd_close(ask_fd);
	ask_fd = -1;
}

void stacks_open_pending(void)
{
	unsigned n = atomic_load_explicit(&num_stacks, memory_order_acquire);

	for (unsigned i = 0; i < n; i++) {
		struct stack *st = atomic_load_explicit(&stacks[i], memory_order_relaxed);

		if (!atomic_load_explicit(&st->open, memory_order_acquire) || !stack_ring_comes(st))
			continue;
		st = stack_get(st->ifindex, atomic_load_explicit(&st->key, memory_order_relaxed));
		if (st)
			stack_put(st);
	}
}
