/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fd table, and the watches of what it names. Lookups take no lock; changes take
 * vfd_table_lock.
 */
#include "fd/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include "runtime/runtime.h"

/* Between two looks whether another thread's close() is over. */
#define CLOSING_LOOK_NS 50000

struct vfd *_Atomic vfd_table[VFD_MAX];
_Atomic unsigned vfd_count;
void (*_Atomic vfd_unwatch)(struct vfd *v);
void (*_Atomic vfd_rewatch)(struct vfd *v);
void (*_Atomic vfd_watch_os)(struct vfd *v);
void (*_Atomic vfd_set_waits)(struct vfd *set);

/*
 * Guards every store to the table, nfds, and the high-water mark. No handler runs while it is held:
 * it may close() or dup(). Not a struct lock, because it must hold even under VMA_THREAD_MODE=0
 * (the worker closes too).
 */
static pthread_mutex_t vfd_table_lock = PTHREAD_MUTEX_INITIALIZER;
/* Highest used number + 1. Written under the lock, read by anyone. */
static _Atomic int table_limit;

static void table_lock(void)
{
	lock_enter();
	pthread_mutex_lock(&vfd_table_lock);
}

static void table_unlock(void)
{
	pthread_mutex_unlock(&vfd_table_lock);
	lock_leave();
}

static struct vfd *slot(int fd)
{
	return atomic_load_explicit(&vfd_table[fd], memory_order_relaxed);
}

/* Lock held. fd is in use. */
static void slot_replace(int fd, struct vfd *v)
{
	v->nfds++;
	/* Release: who finds v in the table sees it whole. */
	atomic_store_explicit(&vfd_table[fd], v, memory_order_release);
}

/* Lock held. fd is empty and within the table. */
static void slot_fill(int fd, struct vfd *v)
{
	if (fd >= atomic_load_explicit(&table_limit, memory_order_relaxed))
		atomic_store_explicit(&table_limit, fd + 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&vfd_count, 1, memory_order_relaxed);
	slot_replace(fd, v);
}

/* Lock held. The first number from `from` on that names v, -1 if there is none. */
static int slot_find_from(const struct vfd *v, int from)
{
	int limit = atomic_load_explicit(&table_limit, memory_order_relaxed);

	for (int fd = from; fd < limit; fd++)
		if (slot(fd) == v)
			return fd;
	return -1;
}

/* Lock held. A number that names v, -1 if there is none. */
static int slot_find(const struct vfd *v)
{
	return slot_find_from(v, 0);
}

/* Lock held. A number that names v, but not that one; -1 if there is none. */
static int slot_find_other(const struct vfd *v, int that)
{
	int fd = slot_find(v);

	return fd == that ? slot_find_from(v, that + 1) : fd;
}

/* Lock held. fd is nobody's from now on. */
static void slot_clear(int fd)
{
	int limit = atomic_load_explicit(&table_limit, memory_order_relaxed);

	atomic_store_explicit(&vfd_table[fd], NULL, memory_order_release);
	atomic_fetch_sub_explicit(&vfd_count, 1, memory_order_relaxed);
	while (limit > 0 && !slot(limit - 1))
		limit--;
	atomic_store_explicit(&table_limit, limit, memory_order_relaxed);
}

/* What a number that names an object no more has left: gone() does the rest. */
enum left {
	LEFT_NOTHING, /* to be done */
	LEFT_USERS, /* of the number: it was os_fd */
	LEFT_OBJECT, /* it was the last one */
};

/* Lock held. fd names v no more. */
static enum left unname(struct vfd *v, int fd)
{
	if (!v || vfd_is_closing(v))
		return LEFT_NOTHING;
	if (--v->nfds == 0)
		return LEFT_OBJECT;
	if (atomic_load_explicit(&v->os_fd, memory_order_relaxed) != fd)
		return LEFT_NOTHING;
	atomic_store_explicit(&v->os_fd, slot_find(v), memory_order_release);
	return LEFT_USERS;
}

/* What a close() of this thread waits for. */
static __thread struct {
	struct vfd *v;
	void (*wait)(struct vfd *v, uint64_t arg);
	uint64_t arg;
} after_close;

void vfd_wait_after_close(struct vfd *v, void (*wait)(struct vfd *v, uint64_t arg), uint64_t arg)
{
	after_close.v = v;
	after_close.wait = wait;
	after_close.arg = arg;
}

static void wait_after_close(void)
{
	struct vfd *v = after_close.v;
	int err = errno;

	if (__builtin_expect(!v, 1))
		return;
	after_close.v = NULL;
	after_close.wait(v, after_close.arg);
	errno = err;
}

/* v has no number left. fd: the one to close, -1 for none. close()'s result. */
static int end(struct vfd *v, int fd)
{
	void (*unwatch)(struct vfd *) = atomic_load_explicit(&vfd_unwatch, memory_order_acquire);

	if (unwatch && atomic_load(&v->watches))
		unwatch(v);
	if (v->ops->close)
		return v->ops->close(v, fd);
	return fd < 0 ? 0 : vfd_release(fd);
}

/* No lock held. v->os_fd has changed: whoever has read the former number is done with it then. */
static void wait_for_users(struct vfd *v)
{
	if (v->ops->renumbered)
		v->ops->renumbered(v);
}

/* No lock held. After unname(v), which said so. fd, close()'s result: as end(). */
static int gone(struct vfd *v, enum left left, int fd)
{
	if (left == LEFT_OBJECT)
		return end(v, fd);
	/* Once it is closed it may be a stranger's: a connection would be handed over to him. */
	if (left == LEFT_USERS)
		wait_for_users(v);
	return fd < 0 ? 0 : vfd_release(fd);
}

int vfd_install(int fd, struct vfd *v)
{
	if ((unsigned)fd >= VFD_MAX)
		return -EMFILE;
	vfd_forget(fd); /* closed behind our back: stdio, a bare system call */
	table_lock();
	v->nfds = 0;
	v->parked = false;
	atomic_store_explicit(&v->os_fd, fd, memory_order_relaxed);
	slot_fill(fd, v);
	table_unlock();
	return 0;
}

bool vfd_dup_begin(struct vfd_dup *d, int oldfd)
{
	d->cancel = lock_quiet_begin();
	table_lock();
	d->v = (unsigned)oldfd < VFD_MAX ? slot(oldfd) : NULL;
	if (!vfd_is_closing(d->v))
		return true;
	table_unlock();
	lock_quiet_end(d->cancel);
	errno = EBADF;
	return false;
}

bool vfd_dup_onto(struct vfd_dup *d, int oldfd, int newfd)
{
	while (vfd_dup_begin(d, oldfd)) {
		if (vfd_get(newfd) != &vfd_closing)
			return true;
		table_unlock();
		lock_quiet_end(d->cancel);
		clock_sleep_ns(CLOSING_LOOK_NS);
	}
	return false;
}

/* Lock held. newfd names v from now on. What it has left of the object that it named before. */
static enum left rename_to(int newfd, struct vfd *v)
{
	struct vfd *before = slot(newfd);

	if (before == v)
		return LEFT_NOTHING;
	/* In one step, as the kernel does it: who looks finds the one object or the other. */
	if (!v)
		slot_clear(newfd);
	else if (before)
		slot_replace(newfd, v);
	else
		slot_fill(newfd, v);
	return unname(before, newfd);
}

void vfd_dup_end(struct vfd_dup *d, int newfd)
{
	struct vfd *before = vfd_get(newfd);
	enum left left = (unsigned)newfd < VFD_MAX ? rename_to(newfd, d->v) : LEFT_NOTHING;
	int err = errno;

	table_unlock();
	gone(before, left, -1);
	lock_quiet_end(d->cancel);
	wait_after_close();
	errno = err;
}

int vfd_close(int fd)
{
	enum left left = LEFT_NOTHING;
	struct vfd *v;
	int ret, cancel;

	v = vfd_get(fd);
	if (!v)
		return libc.close(fd);
	pthread_testcancel(); /* as close(2); later it would be half done */
	/*
	 * Whoever hands the object to the kernel does it by one of its numbers: by none that goes
	 * meanwhile.
	 */
	if (v->nfds > 1 && v->ops->leaving)
		v->ops->leaving(v);
	if (__builtin_expect(atomic_load_explicit(&v->calls, memory_order_relaxed), 0))
		vfd_park(fd);
	cancel = lock_quiet_begin();
	table_lock();
	v = slot(fd);
	if (v && !vfd_is_closing(v)) {
		atomic_store_explicit(&vfd_table[fd], &vfd_closing, memory_order_release);
		left = unname(v, fd);
	}
	table_unlock();
	if (vfd_is_closing(v)) {
		errno = EBADF;
		ret = -1;
	} else {
		ret = v ? gone(v, left, fd) : raw.close(fd);
	}
	lock_quiet_end(cancel);
	wait_after_close();
	return ret;
}

/* Lock held. fd is the last number of v, which calls hold. */
static bool is_to_park(const struct vfd *v, int fd)
{
	return v && slot(fd) == v && v->nfds == 1 && !v->parked && !vfd_is_closing(v) && v->calls;
}

/* The calls of a parked v are over: what close() has left to do but for wait_after_close(). */
static void unpark(struct vfd *v)
{
	int fd, cancel = lock_quiet_begin();
	enum left left = LEFT_NOTHING;
	bool parked;

	table_lock();
	fd = atomic_load_explicit(&v->os_fd, memory_order_relaxed);
	/* Several may have seen that they are; and others may have come with a new life of v. */
	parked = v->parked && !v->calls && slot(fd) == v;
	if (parked) {
		v->parked = false;
		atomic_store_explicit(&vfd_table[fd], &vfd_closing, memory_order_release);
		left = unname(v, fd);
	}
	table_unlock();
	if (parked)
		gone(v, left, fd);
	lock_quiet_end(cancel);
}

/* v, which fd names, has the number `own`, too. False: not needed any more. */
static bool park(struct vfd *v, int fd, int own)
{
	bool needed;

	table_lock();
	needed = is_to_park(v, fd);
	if (needed) {
		slot_fill(own, v);
		atomic_store_explicit(&v->os_fd, own, memory_order_release);
		v->parked = true;
	}
	table_unlock();
	return needed;
}

/* v, which fd names, is reached by another of its numbers from now on, if it has one. */
static void renumber(struct vfd *v, int fd)
{
	int other = -1, cancel;

	/* Most have one: nothing is looked for, which would be the whole table. */
	if (v->nfds < 2)
		return;
	cancel = lock_quiet_begin();
	table_lock();
	if (slot(fd) == v && atomic_load_explicit(&v->os_fd, memory_order_relaxed) == fd)
		other = slot_find_other(v, fd);
	if (other >= 0)
		atomic_store_explicit(&v->os_fd, other, memory_order_release);
	table_unlock();
	if (other >= 0)
		wait_for_users(v);
	lock_quiet_end(cancel);
}

void vfd_park(int fd)
{
	struct vfd *v = vfd_get(fd);
	int own, cancel, err = errno;

	if (!v || vfd_is_closing(v))
		return;
	/* A call that begins from here on has come too late. */
	if (!is_to_park(v, fd)) {
		renumber(v, fd);
		return;
	}
	cancel = lock_quiet_begin();
	own = own_fd_copy(fd);
	/* Without a descriptor for it the calls end now. */
	if (own >= 0 && ((unsigned)own >= VFD_MAX || !park(v, fd, own))) {
		own_fd_close(own);
		own = -1;
	}
	if (own >= 0)
		wait_for_users(v);
	lock_quiet_end(cancel);
	if (own >= 0 && !v->calls)
		unpark(v);
	wait_after_close();
	errno = err;
}

/* What this thread's calls hold; nothing at depth 0. */
static __thread struct vfd_held held __attribute__((tls_model("initial-exec")));
static __thread bool held_is_watched __attribute__((tls_model("initial-exec")));
static pthread_key_t held_key;

/* The last call of a thread lets go of v. A handler of this thread waits until it is over. */
static void drop(struct vfd *v)
{
	int err;

	if (atomic_fetch_sub(&v->calls, 1) != 1 || __builtin_expect(!v->parked, 1))
		return;
	err = errno;
	unpark(v);
	errno = err;
}

void vfd_unref(struct vfd *v)
{
	drop(v);
	wait_after_close();
}

static void turn_end(struct vfd_held *h)
{
	if (!h->turn)
		return;
	h->turn = false;
	vfd_turn_over(h->v);
}

bool vfd_turn_take(struct vfd *v)
{
	bool mine;

	lock_enter();
	mine = held.turn = vfd_turn_begin(v);
	lock_leave();
	return mine;
}

void vfd_turn_end(void)
{
	lock_enter();
	turn_end(&held);
	lock_leave();
}

void vfd_let_go(void)
{
	lock_enter();
	if (!--held.depth) {
		turn_end(&held);
		drop(held.v);
	}
	lock_leave();
	wait_after_close();
}

static void thread_ends(void *arg)
{
	(void)arg;
	if (!held.depth)
		return;
	held.depth = 1;
	vfd_let_go();
}

static void held_key_make(void)
{
	/* Without a key a thread that is cancelled keeps what it holds. */
	if (pthread_key_create(&held_key, thread_ends))
		log_warn("no thread-specific key is left: a socket that is closed while a thread "
			 "waits in it stays open if that thread is cancelled");
}

/* Once for each thread: it lets go at its end. */
static __attribute__((noinline, cold)) void watch_held(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, held_key_make);
	pthread_setspecific(held_key, &held);
	held_is_watched = true;
}

bool vfd_hold(struct vfd *v, int fd)
{
	lock_enter();
	if (__builtin_expect(!held_is_watched, 0))
		watch_held();
	if (!held.depth++) {
		held.v = v;
		atomic_fetch_add(&v->calls, 1);
	}
	lock_leave();
	/* Who is held by a call around this one needs no number. */
	if (__builtin_expect(vfd_get(fd) == v || held.depth > 1, 1))
		return true;
	vfd_let_go();
	return false;
}

bool vfd_holds(const struct vfd *v)
{
	return held.depth && held.v == v;
}

struct vfd_held vfd_hold_pause(void)
{
	struct vfd_held paused;

	if (!held.depth && !held.turn) {
		wait_after_close();
		return (struct vfd_held){0};
	}
	lock_enter();
	turn_end(&held);
	paused = held;
	held.depth = 0;
	if (paused.depth)
		drop(paused.v);
	lock_leave();
	wait_after_close();
	return paused;
}

void vfd_hold_resume(struct vfd_held paused)
{
	if (!paused.depth)
		return;
	/* What has been closed meanwhile the call finds closed. */
	lock_enter();
	atomic_fetch_add(&paused.v->calls, 1);
	held = paused;
	lock_leave();
}

void vfd_forget(int fd)
{
	enum left left;
	struct vfd *v;
	int cancel;

	if (!vfd_get(fd))
		return;
	cancel = lock_quiet_begin();
	table_lock();
	v = slot(fd);
	if (v)
		slot_clear(fd);
	left = unname(v, fd);
	table_unlock();
	gone(v, left, -1);
	lock_quiet_end(cancel);
	wait_after_close();
}

bool vfd_exchange(int fd, const struct vfd *from, struct vfd *to)
{
	bool same;

	table_lock();
	same = slot(fd) == from;
	if (same && to)
		atomic_store_explicit(&vfd_table[fd], to, memory_order_release);
	else if (same)
		slot_clear(fd);
	table_unlock();
	return same;
}

/*
 * The kernel's number. ThreadSanitizer sees only libc's close(), and must of what libc's dup3() was
 * for.
 */
static int close_number(int fd)
{
	return own_fd_is(fd) ? own_fd_close(fd) : raw.close(fd);
}

int vfd_release_plain(int fd)
{
	/*
	 * While the number is still taken: once the kernel is free to give it out again, an entry
	 * would be met by its new owner. Another object there was entered by who did not wait for
	 * this close().
	 */
	(void)vfd_exchange(fd, &vfd_closing, NULL);
	return close_number(fd);
}

int vfd_release_idle(int fd)
{
	bool own = own_fd_is(fd);
	int ret = 0;

	/*
	 * In one step, or dup() would find nothing and copy what the kernel has there. One of ours
	 * nobody can copy, and it could not be vacated if it stands above the limit: its close may
	 * linger (SO_LINGER), for which nobody else is to wait.
	 */
	table_lock();
	if ((unsigned)fd < VFD_MAX && slot(fd) == &vfd_closing)
		slot_clear(fd);
	if (!own)
		ret = raw.close(fd);
	table_unlock();
	return own ? own_fd_close(fd) : ret;
}

int vfd_release(int fd)
{
	vfd_vacate(fd);
	return vfd_release_idle(fd);
}

/* Runs one of iomux's hooks if anybody watches v. */
static void tell_sets(struct vfd *v, void (*fn)(struct vfd *v))
{
	int err = errno;

	if (fn && atomic_load(&v->watches))
		fn(v);
	errno = err;
}

void vfd_shadow_changed(struct vfd *v)
{
	tell_sets(v, atomic_load_explicit(&vfd_rewatch, memory_order_acquire));
}

bool vfd_disown(struct vfd *v)
{
	void (*leave)(struct vfd *) = atomic_load_explicit(&vfd_watch_os, memory_order_acquire);
	bool owned = false;
	int parked = -1;

	/*
	 * While the numbers are still v's: who closes one takes v out of the sets first, and so
	 * waits until they are done with it.
	 */
	tell_sets(v, leave);

	table_lock();
	for (int fd = slot_find(v); fd >= 0; fd = slot_find(v)) {
		v->nfds--;
		slot_clear(fd);
		owned = true;
		/* Only calls knew it, which end now. */
		if (v->parked && own_fd_is(fd))
			parked = fd;
	}
	v->parked = false;
	table_unlock();
	if (parked >= 0) {
		wait_for_users(v);
		own_fd_close(parked);
	}
	/* Those that took it in meanwhile; from here on none can. */
	if (owned)
		tell_sets(v, leave);
	return owned;
}

void vfd_replace_os(struct vfd *v, int newfd)
{
	int limit, flags, err = errno;

	table_lock();
	limit = atomic_load_explicit(&table_limit, memory_order_relaxed);
	for (int fd = 0; fd < limit; fd++) {
		if (slot(fd) != v)
			continue;
		/* A number that was closed behind our back is nobody's to fill. */
		flags = raw.fcntl(fd, F_GETFD);
		if (flags >= 0)
			libc.dup3(newfd, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	}
	table_unlock();
	errno = err;
}

int vfd_limit(void)
{
	return atomic_load_explicit(&table_limit, memory_order_relaxed);
}

/*
 * Signals are blocked by the caller of fork() through these three; the mask that fork saw is the
 * child's too.
 */
static sigset_t fork_mask;

void vfd_fork_prepare(void)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	pthread_mutex_lock(&vfd_table_lock);
	fork_mask = old; /* under the lock: one fork at a time */
	for (int fd = 0; fd < vfd_limit(); fd++) {
		struct vfd *v = slot(fd);

		if (v && v->ops->forking && !v->parked &&
		    atomic_load_explicit(&v->os_fd, memory_order_relaxed) == fd)
			v->ops->forking(v);
	}
}

void vfd_fork_parent(void)
{
	sigset_t old = fork_mask;

	pthread_mutex_unlock(&vfd_table_lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* What the child has under fd. */
static struct vfd *inherited(int fd)
{
	struct vfd *v = slot(fd);

	return v && v->ops->inherited && !own_fd_is(fd) ? v->ops->inherited(v) : NULL;
}

void vfd_fork_child(void)
{
	int limit = vfd_limit(), used = 0;
	unsigned count = 0;

	for (int fd = 0; fd < limit; fd++) {
		struct vfd *was = slot(fd), *v = inherited(fd);

		/* Kept for a connection that is not the child's, or for calls that are not. */
		if (vfd_is_closing(was) && was != &vfd_closing)
			raw.close(fd);
		else if (was && was->parked && own_fd_is(fd))
			own_fd_close(fd);
		/* The calls of other threads are not the child's; this one's are paused. */
		if (was && !vfd_is_closing(was)) {
			atomic_store_explicit(&was->calls, 0, memory_order_relaxed);
			atomic_store_explicit(&was->has_turn, false, memory_order_relaxed);
		}
		if (v)
			v->nfds = 0;
		atomic_store_explicit(&vfd_table[fd], v, memory_order_relaxed);
	}
	for (int fd = 0; fd < limit; fd++) {
		struct vfd *v = slot(fd);

		if (!v)
			continue;
		if (!v->nfds++) {
			atomic_store_explicit(&v->os_fd, fd, memory_order_relaxed);
			v->parked = false; /* the parent's: its number of ours has been closed */
		}
		used = fd + 1;
		count++;
	}
	atomic_store_explicit(&table_limit, used, memory_order_relaxed);
	atomic_store_explicit(&vfd_count, count, memory_order_relaxed);
	vfd_closing_forked();
	pthread_mutex_unlock(&vfd_table_lock);
}

void vfd_fork_child_done(void)
{
	pthread_sigmask(SIG_SETMASK, &fork_mask, NULL);
}

void vfd_touch_all(void)
{
	for (int fd = 0; fd < vfd_limit(); fd++) {
		struct vfd *v = vfd_get(fd);

		if (v && v->ops->touch)
			v->ops->touch(v);
	}
}

void vfd_watch_add(struct vfd *v, struct vfd_watch *w)
{
	struct vfd_watch *first;

	lock_take(&v->watch_lock);
	first = atomic_load_explicit(&v->watches, memory_order_relaxed);
	w->next = first;
	w->pprev = NULL; /* the head */
	if (first)
		first->pprev = &w->next;
	/*
	 * Sequentially consistent with vfd_notify(): either it sees w, or w's owner, who looks
	 * again, sees the event.
	 */
	atomic_store_explicit(&v->watches, w, memory_order_seq_cst);
	lock_drop(&v->watch_lock);
}

void vfd_watch_del(struct vfd *v, struct vfd_watch *w)
{
	lock_take(&v->watch_lock);
	if (w->next)
		w->next->pprev = w->pprev;
	if (w->pprev)
		*w->pprev = w->next;
	else
		atomic_store_explicit(&v->watches, w->next, memory_order_relaxed);
	lock_drop(&v->watch_lock);
	w->next = NULL;
	w->pprev = NULL;
}

void vfd_notify_slow(struct vfd *v, uint32_t events)
{
	struct vfd_watch *w, *next;

	lock_take(&v->watch_lock);
	for (w = atomic_load_explicit(&v->watches, memory_order_relaxed); w; w = next) {
		next = w->next;
		w->notify(w, events);
	}
	lock_drop(&v->watch_lock);
	perturb_wake();
}

bool vfd_is_waited_for(struct vfd *v, uint32_t *calls)
{
	bool any = false;

	lock_take(&v->watch_lock);
	for (struct vfd_watch *w = atomic_load_explicit(&v->watches, memory_order_relaxed); w;
	     w = w->next)
		any |= !w->set || w->set->ops->is_waited_in(w->set, calls);
	lock_drop(&v->watch_lock);
	return any;
}

bool vfd_is_in_set(struct vfd *v, const struct vfd *set)
{
	bool found = false;

	lock_take(&v->watch_lock);
	for (struct vfd_watch *w = atomic_load_explicit(&v->watches, memory_order_relaxed);
	     w && !found; w = w->next)
		found = w->set && (w->set == set || vfd_is_in_set(w->set, set));
	lock_drop(&v->watch_lock);
	return found;
}
