/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An offloaded fd without a network: a datagram socketpair's end is the shadow socket (idle,
 * writable), readiness is a counter of "packets" that the test moves. And the stacks' interface,
 * served by one eventfd that stands for a ring.
 */
#ifndef FAKE_VFD_H
#define FAKE_VFD_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "iomux/iomux.h"
#include "runtime/libc.h"
#include "stack/stack.h"
#include "fd/fd.h"
#include "vfd_dup.h"
#include "wait/wait.h"

struct fake {
	struct vfd vfd;
	_Atomic int packets;
	_Atomic uint32_t extra; /* more EPOLL* bits */
	int fd, peer; /* peer: sends through the shadow socket */
};

static inline uint32_t fake_events(struct vfd *v)
{
	struct fake *f = (struct fake *)v;
	uint32_t ev = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND | atomic_load(&f->extra);

	pthread_testcancel(); /* a real one may ask the kernel about its shadow socket */
	return atomic_load(&f->packets) > 0 ? ev | EPOLLIN | EPOLLRDNORM : ev;
}

static inline int fake_close(struct vfd *v, int fd)
{
	(void)v;
	return fd < 0 ? 0 : vfd_release(fd);
}

static const struct vfd_ops fake_ops = {.events = fake_events, .close = fake_close};

static inline void fake_open(struct fake *f)
{
	int pair[2];

	assert(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
	f->vfd.ops = &fake_ops;
	f->vfd.kind = VFD_UDP;
	atomic_store(&f->packets, 0);
	atomic_store(&f->extra, 0);
	f->fd = pair[0];
	f->peer = pair[1];
	assert(!vfd_install(f->fd, &f->vfd));
}

static inline void fake_shut(struct fake *f)
{
	vfd_close(f->fd);
	close(f->peer);
}

/* A packet arrives over the ring. */
static inline void fake_arrive(struct fake *f)
{
	atomic_fetch_add(&f->packets, 1);
	vfd_notify(&f->vfd, EPOLLIN | EPOLLRDNORM);
}

static inline void fake_take(struct fake *f)
{
	if (atomic_load(&f->packets) > 0)
		atomic_fetch_sub(&f->packets, 1);
}

/* The ring: a packet for ring_owner waits while ring_fd is readable. -1: no stack. */
static int ring_fd = -1;
static struct fake *ring_owner;
static struct fake *(*ring_next)(void); /* not NULL: whose the packet is that was just taken */
static _Atomic uint32_t ring_generation;
static _Atomic unsigned long ring_polls;

unsigned stacks_poll(void)
{
	uint64_t n;

	atomic_fetch_add_explicit(&ring_polls, 1, memory_order_relaxed);
	if (ring_fd < 0 || read(ring_fd, &n, sizeof(n)) < 0)
		return 0;
	fake_arrive(ring_next ? ring_next() : ring_owner);
	return 1;
}

unsigned stacks_wait_fds(int *fds, unsigned max)
{
	assert(max >= 1);
	fds[0] = ring_fd;
	return ring_fd >= 0;
}

bool stacks_arm(void)
{
	return stacks_poll() > 0;
}

uint32_t stacks_generation(void)
{
	return atomic_load(&ring_generation);
}

#endif
