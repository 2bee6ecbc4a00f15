/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoll_create, epoll_ctl and close. The kernel is always asked first, so that the errno is its
 * own.
 */
#include "iomux/epoll.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "iomux/iomux.h"
#include "runtime/runtime.h"

#define OUT_BITS (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

/* What the kernel takes beside EPOLLEXCLUSIVE. */
#define EXCLUSIVE_WITH                                                                             \
	(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

/* How many items of one object are removed at a time when it closes. */
#define CLOSE_BATCH 16

struct epset *epset_of(int epfd)
{
	struct vfd *v = vfd_get(epfd);

	return v && v->kind == VFD_EPOLL ? (struct epset *)v : NULL;
}

/* Runs with the object's watch_lock held. */
static void item_notify(struct vfd_watch *w, uint32_t events)
{
	struct epitem *it = (struct epitem *)w;

	epset_ready(it->set, it, events ? events : ~0u);
	epset_notify(it->set);
}

/*
 * What the kernel's epoll watches on the shadow socket: it is always writable, and we answer for
 * that.
 */
static struct epoll_event shadow_event(const struct epitem *it, uint32_t events)
{
	struct epoll_event ev = {.events = events & ~(uint32_t)EPOLLWAKEUP,
				 .data.u64 = epitem_tag(it)};

	enum vfd_shadow shadow =
		it->v ? atomic_load_explicit(&it->v->shadow, memory_order_acquire) : VFD_SHADOW_ALL;

	if (it->nested || shadow == VFD_SHADOW_ALL)
		return ev;
	/*
	 * EPOLLEXCLUSIVE alone brings it here. ERR and HUP cannot be left out: they are told once,
	 * and not passed on.
	 */
	if (shadow == VFD_SHADOW_NONE) {
		ev.events = EPOLLET;
		return ev;
	}
	/* The kernel refuses some bits beside EXCLUSIVE: leave them, so that it does. */
	ev.events &= ~(uint32_t)(events & EPOLLEXCLUSIVE ? EPOLLOUT : OUT_BITS);
	return ev;
}

/* mtx held. Threads asleep in libc.epoll_wait do not see items: make it return for each of them. */
static void kick(struct epset *s, int epfd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = EPOLL_KICK_TAG};
	int fd;

	if (!epset_plain(s) || atomic_load(&s->kick_fd) >= 0)
		return;
	atomic_store_explicit(&s->tagged, true, memory_order_relaxed);
	fd = own_eventfd(1);
	if (fd < 0 || libc.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev)) {
		log_error("waking the waiters of epoll fd %d for its first offloaded fd: %s", epfd,
			  strerror(errno));
		if (fd >= 0)
			own_fd_close(fd);
		return;
	}
	atomic_store(&s->kicked_ns, clock_monotonic_ns());
	atomic_store(&s->kick_fd, fd);
	/* The last of them may have left before it could see kick_fd. */
	if (!epset_plain(s))
		epset_unkick(s, epfd);
}

void epset_unkick(struct epset *s, int epfd)
{
	int fd = atomic_exchange(&s->kick_fd, -1);

	if (fd < 0)
		return;
	libc.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
	own_fd_close(fd);
}

/*
 * mtx held. After it->events were set: what is ready already counts. True: the set's own watchers
 * are to be told.
 */
static bool arm(struct epset *s, struct epitem *it, const struct epoll_event *ev)
{
	it->data = ev->data;
	it->os_pending = 0; /* the kernel looks again by itself */
	epitem_arm(s, it, ev->events | EPOLLERR | EPOLLHUP); /* those two are always asked for */
	if (!epitem_user(it))
		return false;
	epset_ready(s, it, ~0u);
	return true;
}

/* mtx held; the kernel has said yes. 0, or negative errno and the item is gone. */
static int enter(struct epset *s, struct epitem *it, int epfd)
{
	int r;

	it->watch.notify = item_notify;
	it->watch.set = &s->vfd;
	/* Before the item: who sees one counts. */
	if (!atomic_load_explicit(&s->stats, memory_order_relaxed))
		atomic_store(&s->stats, stats_iomux_get(epfd));
	r = epset_insert(s, it);
	if (r)
		return r;
	kick(s, epfd);
	vfd_watch_add(it->v, &it->watch);
	return 0;
}

/*
 * The kernel has nothing to say about the shadow socket: it need not know of the item. (It judges
 * EPOLLEXCLUSIVE.)
 */
static bool kernel_left_out(const struct vfd *v, uint32_t events)
{
	return atomic_load_explicit(&v->shadow, memory_order_acquire) == VFD_SHADOW_NONE &&
	       !(events & EPOLLEXCLUSIVE);
}

static int item_add(struct epset *s, int epfd, int fd, struct vfd *v, const struct epoll_event *ev,
		    bool *notify)
{
	struct epitem *it = epitem_new(), *old = epset_find(s, fd, v);
	struct epoll_event shadow;
	int r;

	if (!it)
		return -ENOMEM;
	it->v = v;
	it->fd = fd;
	it->nested = v->kind == VFD_EPOLL;
	it->events = 0;
	it->in_kernel = it->served = it->given = false;
	shadow = shadow_event(it, ev->events);
	atomic_store_explicit(&s->tagged, true, memory_order_relaxed);
	r = 0;
	if (old && !old->in_kernel)
		r = -EEXIST;
	else if (old || !kernel_left_out(v, ev->events))
		r = libc.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &shadow) ? -errno : 0;
	if (r) {
		epitem_free(it);
		return r;
	}
	epitem_in_kernel(s, it, old || !kernel_left_out(v, ev->events));
	if (old) /* the kernel has forgotten it: its shadow socket was replaced */
		epset_remove(s, old);
	r = enter(s, it, epfd);
	if (r) {
		if (it->in_kernel)
			libc.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
		epitem_in_kernel(s, it, false);
		epitem_free(it);
		return r;
	}
	epitem_served(s, it);
	if (vfd_get(fd) == v) {
		*notify = arm(s, it, ev);
		return 0;
	}
	/* Another thread has closed it meanwhile, or handed it to the kernel, which knows. */
	if (it->in_kernel)
		libc.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
	epset_remove(s, it);
	shadow = *ev;
	return libc.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &shadow) ? -errno : 0;
}

static _Atomic bool leaving; /* iomux_epoll_leave() */

/* mtx held. The socket has gone to the kernel, disarmed; now that is told what the user wants. */
static int rearm_in_kernel(struct epset *s, int epfd, struct epitem *it, struct epoll_event *ev)
{
	if (libc.epoll_ctl(epfd, EPOLL_CTL_MOD, it->fd, ev))
		return -errno;
	epset_remove(s, it);
	return 0;
}

/* mtx held. */
static int item_ctl(struct epset *s, int epfd, int op, int fd, struct vfd *v,
		    struct epoll_event *ev, bool *notify)
{
	struct epitem *it = epset_find(s, fd, v);
	struct epoll_event shadow;

	if (op == EPOLL_CTL_ADD && v && ev->events & EPOLLEXCLUSIVE && ev->events & ~EXCLUSIVE_WITH)
		return -EINVAL;
	if (op == EPOLL_CTL_ADD && v)
		return item_add(s, epfd, fd, v, ev, notify);
	if (!it || op == EPOLL_CTL_ADD)
		return libc.epoll_ctl(epfd, op, fd, ev) ? -errno : 0;
	if (op == EPOLL_CTL_DEL) {
		int r = it->in_kernel && libc.epoll_ctl(epfd, op, fd, ev) ? -errno : 0;

		if (!r || r == -ENOENT)
			epset_remove(s, it);
		return r;
	}
	if (!it->v && atomic_load_explicit(&leaving, memory_order_relaxed))
		return rearm_in_kernel(s, epfd, it, ev);
	shadow = shadow_event(it, ev->events);
	/* The kernel does not know the item as the user asked. */
	if ((it->events | ev->events) & EPOLLEXCLUSIVE)
		return -EINVAL;
	if (it->in_kernel && libc.epoll_ctl(epfd, op, fd, &shadow))
		return -errno;
	*notify = arm(s, it, ev);
	return 0;
}

int iomux_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct epset *s = epset_of(epfd);
	struct vfd *v = vfd_get(fd);
	bool notify = false;
	int r;

	if (vfd_is_closing(v)) {
		errno = EBADF;
		return -1;
	}
	/*
	 * No event where there must be one is the kernel's EFAULT; an unknown operation its EINVAL.
	 */
	if (!s || (op != EPOLL_CTL_DEL && !ev) ||
	    (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL))
		return libc.epoll_ctl(epfd, op, fd, ev);
	epset_use(s);
	if (!v && (op == EPOLL_CTL_ADD || !atomic_load(&s->num_items))) {
		r = libc.epoll_ctl(epfd, op, fd, ev);
		if (!r && op == EPOLL_CTL_ADD)
			atomic_store_explicit(&s->kernel_fds, true, memory_order_relaxed);
		return r;
	}
	if (lock_mine(&s->mtx)) {
		errno = EDEADLK; /* a signal handler inside this thread's own epoll call */
		return -1;
	}
	if (v && v->ops->waited && op == EPOLL_CTL_ADD)
		v->ops->waited(v);
	epset_lock(s);
	r = item_ctl(s, epfd, op, fd, v, ev, &notify);
	epset_unlock(s);
	/* Not of one that is not there: nobody waits then. */
	if (!r && v && v->ops->waited && op == EPOLL_CTL_MOD)
		v->ops->waited(v);
	if (!r && v && op == EPOLL_CTL_ADD && atomic_load(&s->given))
		vfd_give(v, STATS_WHY(PASSED));
	if (notify)
		epset_notify(s);
	if (atomic_load_explicit(&leaving, memory_order_relaxed))
		(void)iomux_epoll_leave(epfd);
	if (r < 0) {
		errno = -r;
		return -1;
	}
	return 0;
}

/* The last fd of the set is being closed. fd -1: the kernel closes it itself. */
static int epoll_close(struct vfd *v, int fd)
{
	struct epset *s = (struct epset *)v;
	struct vma_stats_iomux *stats;
	bool plain;

	if (lock_mine(&s->mtx)) /* a signal handler: the set stays behind, empty for the kernel */
		return fd < 0 ? 0 : vfd_release(fd);
	epset_lock(s);
	atomic_fetch_add(&s->generation, 1);
	epset_plain_anew(s);
	while (s->items)
		epset_remove(s, s->items);
	free(s->by_fd);
	s->by_fd = NULL;
	s->by_fd_size = 0;
	stats = atomic_exchange(&s->stats, NULL);
	atomic_store(&s->kernel_fds, false);
	atomic_store(&s->given, false);
	plain = !atomic_exchange(&s->tagged, false);
	atomic_store(&s->shadow_hot, false);
	epset_unlock(s);
	epset_unkick(s, fd);
	epset_wake_all(s); /* who still waits in it finds another generation */
	vfd_notify(v, EPOLLHUP);
	if (stats)
		stats_iomux_put(stats);
	epset_free(s);
	if (fd < 0)
		return 0;
	return plain ? vfd_release_plain(fd) : vfd_release(fd);
}

static uint32_t epoll_events(struct vfd *v)
{
	struct epset *s = (struct epset *)v;
	unsigned popped = 0, todo;
	uint32_t events = 0;

	if (!atomic_load(&s->num_ready))
		return 0;
	if (lock_mine(&s->mtx))
		return EPOLLIN | EPOLLRDNORM;
	epset_lock(s);
	for (todo = atomic_load(&s->num_ready); popped < todo && !events; popped++) {
		struct epitem *it = epset_pop(s);

		if (epitem_peek(it)) {
			epset_ready(s, it, ~0u);
			events = EPOLLIN | EPOLLRDNORM;
		}
	}
	epset_popped(s, popped);
	epset_unlock(s);
	return events;
}

/* Whoever has the set's lock may be using the number. */
static void epoll_renumbered(struct vfd *v)
{
	struct epset *s = (struct epset *)v;

	if (lock_mine(&s->mtx)) /* a signal handler: that call of this thread goes on afterwards */
		return;
	epset_lock(s);
	epset_unlock(s);
}

static void epoll_waited(struct vfd *v)
{
	epset_wait_begins((struct epset *)v);
}

static bool epoll_is_waited_in(struct vfd *v, uint32_t *calls)
{
	struct epset *s = (struct epset *)v;

	*calls += atomic_load_explicit(&s->calls, memory_order_relaxed);
	return atomic_load_explicit(&s->num_waiters, memory_order_relaxed) ||
	       vfd_is_waited_for(v, calls);
}

/* mtx held. Objects of the set that were not given before, at most CLOSE_BATCH. */
static unsigned not_given(struct epset *s, struct vfd **objects)
{
	unsigned n = 0;

	for (struct epitem *it = s->items; it && n < CLOSE_BATCH; it = it->next) {
		if (!it->v || it->given)
			continue;
		it->given = true;
		objects[n++] = it->v;
	}
	return n;
}

/*
 * The kernel (io_uring) or another process asks the kernel's epoll by itself from now on. What
 * comes into the set later goes to the kernel there, too.
 */
static void epoll_give(struct vfd *v, struct vma_stats_why why)
{
	struct epset *s = (struct epset *)v;
	struct vfd *objects[CLOSE_BATCH];
	unsigned n = 1;

	if (lock_mine(&s->mtx) || atomic_exchange(&s->given, true))
		return;
	while (n) {
		epset_lock(s);
		n = not_given(s, objects);
		epset_unlock(s);
		for (unsigned i = 0; i < n; i++)
			vfd_give(objects[i], why);
	}
}

/* The child of a fork() has the set under all its numbers; epset_forked() does the rest. */
static struct vfd *epoll_inherited(struct vfd *v)
{
	return v;
}

static const struct vfd_ops epoll_ops = {
	.inherited = epoll_inherited,
	.close = epoll_close,
	.events = epoll_events,
	.waited = epoll_waited,
	.is_waited_in = epoll_is_waited_in,
	.give = epoll_give,
	.renumbered = epoll_renumbered,
};

bool epoll_spins(struct vfd *v)
{
	struct epset *s = (struct epset *)v;
	bool spins = atomic_load(&s->num_sockets) > 0;

	if (spins || !atomic_load(&s->num_nested) || lock_mine(&s->mtx))
		return spins;
	epset_lock(s);
	for (struct epitem *it = s->items; it && !spins; it = it->next)
		spins = it->nested && it->v && epoll_spins(it->v);
	epset_unlock(s);
	return spins;
}

/* What identifies an item after every lock was dropped. */
struct item_ref {
	struct epset *set;
	uint64_t tag;
};

/* Collects items that watch v, after `skip` of them. Returns how many, at most CLOSE_BATCH. */
static unsigned items_of(struct vfd *v, unsigned skip, struct item_ref *refs)
{
	unsigned n = 0;

	lock_take(&v->watch_lock);
	for (struct vfd_watch *w = atomic_load_explicit(&v->watches, memory_order_relaxed); w;
	     w = w->next) {
		struct epitem *it = (struct epitem *)w;

		if (w->notify == item_notify && skip)
			skip--;
		else if (w->notify == item_notify && n < CLOSE_BATCH)
			refs[n++] = (struct item_ref){it->set, epitem_tag(it)};
	}
	lock_drop(&v->watch_lock);
	return n;
}

/*
 * mtx held. The kernel's epoll watches the shadow socket as it->v wants it now. DEL and ADD: MOD
 * refuses EPOLLEXCLUSIVE.
 */
static void shadow_again(struct epset *s, struct epitem *it)
{
	int epfd = atomic_load(&s->vfd.os_fd);
	struct epoll_event ev = shadow_event(it, it->events);

	it->os_pending = 0;
	if (it->in_kernel)
		libc.epoll_ctl(epfd, EPOLL_CTL_DEL, it->fd, NULL);
	epitem_in_kernel(s, it, !it->v || !kernel_left_out(it->v, it->events));
	epitem_served(s, it);
	if (it->in_kernel && libc.epoll_ctl(epfd, EPOLL_CTL_ADD, it->fd, &ev))
		log_error("epoll fd %d: watching fd %d anew: %s", epfd, it->fd, strerror(errno));
	if (epitem_user(it))
		epset_ready(s, it, ~0u);
}

/*
 * mtx held. The item goes, the kernel serves it as the user asked. To say that it is disarmed the
 * kernel has no word: errors and hang-ups are told once at least, and to an item that stays.
 */
static void item_release(struct epset *s, struct epitem *it)
{
	int epfd = atomic_load(&s->vfd.os_fd), fd = it->fd;
	bool armed = it->events & ~EP_PRIVATE;
	struct epoll_event ev = {.events = it->events, .data = it->data};

	if (!armed)
		ev.data.u64 = epitem_tag(it);

	if (vfd_get(fd) != it->v) /* closed, and perhaps another's by now: its copy is left */
		fd = atomic_load(&it->v->os_fd);
	libc.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
	if (libc.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev))
		log_error("epoll fd %d: leaving fd %d to the kernel: %s", epfd, fd,
			  strerror(errno));
	atomic_store_explicit(&s->kernel_fds, true, memory_order_relaxed);
	if (armed)
		epset_remove(s, it);
	else
		epset_orphan(s, it);
}

/* True: the item still watches its object. */
static bool item_do(const struct item_ref *ref, void (*fn)(struct epset *s, struct epitem *it))
{
	struct epitem *it;
	bool stays;

	if (lock_mine(&ref->set->mtx))
		return true;
	epset_lock(ref->set);
	it = epitem_of(ref->set, ref->tag);
	/* Without an object: another thread has released it meanwhile. */
	if (it && it->v)
		fn(ref->set, it);
	stays = it && epitem_of(ref->set, ref->tag) && it->v;
	epset_unlock(ref->set);
	return stays;
}

/* Runs fn for every item that watches v. */
static void items_each(struct vfd *v, void (*fn)(struct epset *s, struct epitem *it))
{
	struct item_ref refs[CLOSE_BATCH];
	unsigned n, done = 0;

	while ((n = items_of(v, done, refs)) > 0) {
		for (unsigned i = 0; i < n; i++)
			done += item_do(&refs[i], fn);
	}
}

/* vfd_rewatch */
static void shadow_changed(struct vfd *v)
{
	items_each(v, shadow_again);
}

/* vfd_watch_os */
static void leave_to_kernel(struct vfd *v)
{
	items_each(v, item_release);
}

/*
 * mtx held. The number of the item is being closed. When another process has the socket, too, the
 * kernel goes on watching it in this set: from now on as the user asked, without a tag.
 */
static void forget_tag(struct epset *s, const struct epitem *it)
{
	struct epoll_event ev = {.events = it->events, .data = it->data};
	bool armed = it->events & ~EP_PRIVATE, refused = it->events & EPOLLEXCLUSIVE;
	int op = EPOLL_CTL_MOD;

	/* A number that the kernel has closed may be another file's by now. */
	if (!it->in_kernel || !vfd_is_closing(vfd_get(it->fd)))
		return;
	if (!armed || refused ||
	    atomic_load_explicit(&it->v->shadow, memory_order_relaxed) == VFD_SHADOW_NONE)
		op = EPOLL_CTL_DEL;
	/* Another thread may be closing that number, and be done before: it is refused then. */
	(void)raw.epoll_ctl(atomic_load(&s->vfd.os_fd), op, it->fd, &ev);
}

/*
 * False: this thread holds the set already, inside a signal handler; it will be done when that call
 * goes on.
 */
static bool ref_remove(const struct item_ref *ref)
{
	struct epitem *it;

	if (lock_mine(&ref->set->mtx)) {
		atomic_store(&ref->set->reap, true);
		return false;
	}
	epset_lock(ref->set);
	it = epitem_of(ref->set, ref->tag);
	if (it && it->v) {
		forget_tag(ref->set, it);
		epset_remove(ref->set, it);
	}
	epset_unlock(ref->set);
	return true;
}

/*
 * vfd_unwatch: v's last number is gone, by whatever call. It leaves every set, as the kernel does
 * with its own.
 */
static void leave_sets(struct vfd *v)
{
	struct item_ref refs[CLOSE_BATCH];
	bool done = true;
	unsigned n;

	if (lock_mine(&v->watch_lock)) {
		for (struct epset *s = epset_first(); s; s = s->all)
			atomic_store(&s->reap, true);
		return;
	}
	while (done && atomic_load(&v->watches) && (n = items_of(v, 0, refs)) > 0)
		for (unsigned i = 0; i < n; i++)
			done &= ref_remove(&refs[i]);
}

/* Above 0 from fork_prepare() to the end of the fork(): a set that comes then is shared, too. */
static _Atomic unsigned forks;

static void share_sets(void)
{
	for (struct epset *s = epset_first(); s; s = s->all)
		atomic_store(&s->tagged, true);
}

static void forked_child(void)
{
	atomic_store(&forks, 0);
	epset_forked();
	share_sets(); /* also one that another thread of the parent was closing */
	for (struct epset *s = epset_first(); s; s = s->all) {
		if (atomic_load(&s->stats))
			atomic_store(&s->stats, stats_iomux_get(atomic_load(&s->vfd.os_fd)));
	}
}

/* The kernel's epolls are both processes' from now on, and either may add its sockets to them. */
static void fork_prepare(void)
{
	atomic_fetch_add(&forks, 1);
	share_sets();
}

static void forked_parent(void)
{
	atomic_fetch_sub(&forks, 1);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * Lazily, so that preload's own handler, which empties the fd table, is registered before and runs
 * before.
 */
static void first_set(void)
{
	atomic_store_explicit(&vfd_unwatch, leave_sets, memory_order_release);
	atomic_store_explicit(&vfd_rewatch, shadow_changed, memory_order_release);
	atomic_store_explicit(&vfd_watch_os, leave_to_kernel, memory_order_release);
	atfork_add(fork_prepare, forked_parent, forked_child);
}

int iomux_epoll_created(int epfd)
{
	struct epset *s = epset_new();
	int r;

	pthread_once(&once, first_set);
	if (!s)
		return -ENOMEM;
	/* The memory of a former set has them: a call of that one may still read them. */
	if (!s->vfd.ops) {
		s->vfd.ops = &epoll_ops;
		s->vfd.kind = VFD_EPOLL;
	}
	/* fork_prepare() sees the set, or this sees it. */
	if (atomic_load(&forks))
		atomic_store(&s->tagged, true);
	r = vfd_install(epfd, &s->vfd);
	if (r)
		epset_free(s);
	return r;
}

bool iomux_epoll_leave(int epfd)
{
	struct epset *s = epset_of(epfd);
	bool empty;

	atomic_store_explicit(&leaving, true, memory_order_relaxed);
	if (!s)
		return false;
	epset_lock(s);
	empty = !s->items;
	epset_unlock(s);
	return empty && vfd_disown(&s->vfd);
}
