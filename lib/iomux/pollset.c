/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "iomux/pollset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "iomux/epoll.h"
#include "runtime/runtime.h"
#include "config/config.h"
#include "stack/stack.h"

/* A shadow socket is always writable: what it says of that is not asked. */
#define OUT_BITS (POLLOUT | POLLWRNORM | POLLWRBAND)
/* For how many lists of descriptors a thread counts; two that share a counter share the looks. */
#define LISTS_BITS 3
#define LISTS (1 << LISTS_BITS)

/*
 * Offloaded answers of this thread since the kernel was last asked, by the list of descriptors, and
 * zero-timeout calls without any.
 */
static __thread uint16_t hits_since_kernel[LISTS], zeros_since_kernel;

/* mux_may_skip() for them: two bytes each, of the little that a thread has. */
static bool may_skip(uint16_t *calls, int limit)
{
	int n = *calls;
	bool skip = mux_may_skip(&n, limit < UINT16_MAX ? limit : UINT16_MAX);

	*calls = (uint16_t)n;
	return skip;
}

int pollset_init(struct pollset *s, struct pollset_room *room, unsigned n, unsigned ours)
{
	size_t each = sizeof(struct pollset_entry) + sizeof(struct pollfd);
	size_t need = n * each + ours * (sizeof(unsigned) + sizeof(struct wait_watch));
	char *p = room->bytes;

	s->mux.heap = NULL;
	if (need > sizeof(room->bytes)) {
		p = s->mux.heap = malloc(need);
		if (!p)
			return -ENOMEM;
	}
	/* The widest alignment first. */
	s->watches = (void *)p;
	s->entries = (void *)(s->watches + ours);
	s->kernel = (void *)(s->entries + n);
	s->index = (void *)(s->kernel + n);
	s->room = ours;
	s->n = s->ours = s->watched = 0;
	s->plain_hash = 0;
	s->plain = s->bad_fd_fails = s->mux.spin = s->mux.muted = false;
	return 0;
}

/* What the kernel is asked about an offloaded fd. */
static struct pollfd shadow_ask(struct vfd *v, int fd, uint32_t events)
{
	enum vfd_shadow shadow = atomic_load_explicit(&v->shadow, memory_order_acquire);

	/* Not asked; see follow(). */
	if (shadow == VFD_SHADOW_NONE)
		return (struct pollfd){.fd = ~fd, .events = (short)events};
	if (v->kind == VFD_EPOLL || shadow == VFD_SHADOW_ALL)
		return (struct pollfd){.fd = fd, .events = (short)events};
	return (struct pollfd){.fd = fd, .events = (short)(events & ~OUT_BITS)};
}

bool pollset_add(struct pollset *s, int fd, uint32_t events, uint32_t accept)
{
	struct vfd *v = fd >= 0 ? vfd_get_ours(fd) : NULL;
	unsigned i = s->n++;

	s->entries[i] = (struct pollset_entry){.v = v, .accept = accept};
	if (!v) {
		s->kernel[i] = (struct pollfd){.fd = fd, .events = (short)events};
		s->plain |= fd >= 0;
		s->plain_hash = (s->plain_hash ^ (uint32_t)fd) * 2654435761u;
		return true;
	}
	if (s->ours == s->room)
		return false;
	if (v->ops->waited)
		v->ops->waited(v);
	s->kernel[i] = shadow_ask(v, fd, events);
	s->index[s->ours++] = i;
	if (v->kind == VFD_EPOLL) {
		s->plain = true; /* it may hold kernel fds */
		s->mux.spin |= epoll_spins(v);
	} else if (atomic_load_explicit(&v->shadow, memory_order_relaxed) == VFD_SHADOW_ALL) {
		s->plain = true;
	} else {
		s->mux.spin = true;
	}
	return true;
}

/* The number of entry i, one of ours. */
static int number(const struct pollset *s, unsigned i)
{
	int fd = s->kernel[i].fd;

	return fd < 0 ? ~fd : fd;
}

/* Entry i has been closed since it was added; what has gone to the kernel has not. */
static bool is_closed(const struct pollset *s, unsigned i)
{
	int fd = number(s, i);

	return __builtin_expect(vfd_get(fd) != s->entries[i].v, 0) && raw.fcntl(fd, F_GETFD) < 0;
}

/* As poll() and select() of the kernel: the one has a bit for it, the other calls it ready. */
static uint32_t closed_events(const struct pollset *s, unsigned i)
{
	return s->bad_fd_fails ? s->entries[i].accept : POLLNVAL;
}

/* Returns how many of ours are ready, or -EBADF. */
static int look_user(struct pollset *s)
{
	int ready = 0;

	for (unsigned j = 0; j < s->ours; j++) {
		unsigned i = s->index[j];
		struct pollset_entry *e = &s->entries[i];
		uint32_t events = is_closed(s, i) ? closed_events(s, i) : e->v->ops->events(e->v);

		if (events & POLLNVAL && s->bad_fd_fails) /* vfd_closing */
			return -EBADF;
		e->got = events & e->accept;
		ready += e->got != 0;
	}
	if (ready)
		stats_add(&s->mux.stats->ready_offloaded, (uint64_t)ready);
	return ready;
}

/*
 * select()'s sets do not count POLLHUP of what is to be written to, nor POLLHUP and POLLERR of what
 * may have urgent data; ppoll() cannot leave them out.
 */
static void mute(struct pollset *s, unsigned i)
{
	s->entries[i].muted = s->mux.muted = true;
	s->kernel[i].fd = ~s->kernel[i].fd;
}

static void unmute(struct pollset *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (s->entries[i].muted)
			s->kernel[i].fd = ~s->kernel[i].fd;
		s->entries[i].muted = false;
	}
	s->mux.muted = false;
}

/*
 * Adds what the kernel said to what user space said. Returns how many entries are ready, or -EBADF.
 */
static int fold_kernel(struct pollset *s)
{
	int ready = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct pollset_entry *e = &s->entries[i];
		uint32_t events = (unsigned short)s->kernel[i].revents;

		/* What look_user() says of a number that was closed is enough. */
		if (s->kernel[i].fd < 0 || (events & POLLNVAL && e->v && is_closed(s, i)))
			events = 0;
		if (events & POLLNVAL && s->bad_fd_fails)
			return -EBADF;
		if (events && !(events & e->accept))
			mute(s, i);
		events &= e->accept;
		/*
		 * Before the worker has told the socket: what poll() promises the next call must
		 * find.
		 */
		if (events && e->v)
			atomic_fetch_or_explicit(&e->v->os_events, events, memory_order_release);
		if (events)
			stats_add(&s->mux.stats->ready_os, 1);
		e->got |= events;
		ready += e->got != 0;
	}
	return ready;
}

static unsigned list_of(const struct pollset *s)
{
	return s->plain_hash >> (32 - LISTS_BITS);
}

/* What has gone to the kernel since it was added is the kernel's to answer. */
static void follow(struct pollset *s)
{
	for (unsigned j = 0; j < s->ours; j++) {
		unsigned i = s->index[j];
		struct pollfd *k = &s->kernel[i];

		if (k->fd < 0 && !s->entries[i].muted)
			*k = shadow_ask(s->entries[i].v, ~k->fd, (unsigned short)k->events);
	}
}

static int look_kernel(struct pollset *s)
{
	int r;

	if (s->mux.muted)
		unmute(s);
	follow(s);
	r = raw.poll(s->kernel, s->n, 0);
	hits_since_kernel[list_of(s)] = zeros_since_kernel = 0;
	return r < 0 ? -errno : fold_kernel(s);
}

/*
 * The kernel need not be asked this time: an offloaded one is ready, or only shadow sockets are
 * there, and it is asked by the sleep, or had its turn lately.
 */
static bool first_suffices(const struct pollset *s, int ready)
{
	if (ready)
		return may_skip(&hits_since_kernel[list_of(s)], mux_skip_os(s->plain));
	return !s->plain &&
	       (!s->mux.zero || may_skip(&zeros_since_kernel, params.select_poll_os_ratio));
}

static int pollset_look(struct mux *m, enum mux_look how)
{
	struct pollset *s = (struct pollset *)m;
	int ready = look_user(s);

	if (ready < 0 || how == LOOK_USER || (how == LOOK_FIRST && first_suffices(s, ready)))
		return ready;
	return look_kernel(s);
}

static struct vfd *watched_vfd(const struct pollset *s, unsigned j)
{
	return s->entries[s->index[j]].v;
}

static void pollset_unwatch(struct mux *m, bool look_follows)
{
	struct pollset *s = (struct pollset *)m;
	unsigned n = s->watched;
	bool closed = false;

	for (unsigned j = 0; j < n; j++) {
		wait_watch_del(watched_vfd(s, j), &s->watches[j]);
		closed |= watched_vfd(s, j)->parked;
	}
	s->watched = 0;
	/* What has woken us has come before the end of what was closed meanwhile. */
	if (closed && look_follows)
		stacks_poll();
	for (unsigned j = 0; j < n; j++)
		if (watched_vfd(s, j)->kind != VFD_EPOLL)
			vfd_unref(watched_vfd(s, j));
}

static void pollset_watch(struct mux *m)
{
	struct pollset *s = (struct pollset *)m;

	/* Without an eventfd wait_sleep() looks again by itself, so that is no reason to fail. */
	for (unsigned j = 0; j < s->ours; j++) {
		struct vfd *v = watched_vfd(s, j);

		/* Closed meanwhile it stays until the sleep is over, as the kernel's. */
		if (v->kind != VFD_EPOLL)
			vfd_ref(v);
		wait_watch_add(v, &s->watches[j]);
		s->watched++;
	}
	/* Who goes from here on wakes us. */
	follow(s);
}

static int pollset_woken(struct mux *m)
{
	struct pollset *s = (struct pollset *)m;

	int ready = look_user(s);

	return ready < 0 ? ready : fold_kernel(s);
}

/* A set of epoll may have such. */
static bool pollset_kernel_serves(const struct mux *m)
{
	const struct pollset *s = (const struct pollset *)m;

	for (unsigned j = 0; j < s->ours; j++) {
		const struct vfd *v = s->entries[s->index[j]].v;

		if (v->kind == VFD_EPOLL ||
		    atomic_load_explicit(&v->shadow, memory_order_relaxed) == VFD_SHADOW_ALL)
			return true;
	}
	return false;
}

/* As a recv() that waits would: a close() meanwhile is nothing to it. */
static bool pollset_leaves(struct mux *m)
{
	struct pollset *s = (struct pollset *)m;
	struct vfd *v = watched_vfd(s, 0);
	bool left;

	if (!vfd_hold(v, number(s, s->index[0])))
		return false;
	left = vfd_holds(v) && v->ops->crowded(v);
	vfd_let_go();
	return left;
}

/* What a thread that waits to receive from one connection remembers is the connection's. */
static void remember_alone(struct pollset *s)
{
	bool one =
		s->n == 1 && s->ours == 1 && s->entries[s->index[0]].accept & (POLLIN | POLLRDNORM);
	struct vfd *v = one ? watched_vfd(s, 0) : NULL;
	struct wait_spin_memory *memory = v && v->ops->alone ? v->ops->alone(v) : NULL;

	s->mux.alone = memory != NULL;
	if (memory)
		s->mux.memory = memory;
}

static const struct mux_ops pollset_ops = {
	.leaves = pollset_leaves,
	.kernel_serves = pollset_kernel_serves,
	.look = pollset_look,
	.watch = pollset_watch,
	.unwatch = pollset_unwatch,
	.woken = pollset_woken,
};

int pollset_run(struct pollset *s, const struct timespec *timeout, const sigset_t *sigmask)
{
	remember_alone(s);
	s->mux.ops = &pollset_ops;
	s->mux.pfds = s->kernel;
	s->mux.npfds = s->n;
	s->mux.zero_signals = true;
	return mux_run(&s->mux, timeout, sigmask);
}

void pollset_free(struct pollset *s)
{
	free(s->mux.heap);
}
