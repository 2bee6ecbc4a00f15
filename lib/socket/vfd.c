/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fd table, and the watches of what it names. Lookups take no lock; changes take vfd_table_lock. */
#include "socket/vfd.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/libc.h"

struct vfd *_Atomic vfd_table[VFD_MAX];
_Atomic unsigned vfd_count;

/*
 * Guards every store to the table, nfds, and the high-water mark. Signals are blocked while it is held: a handler may
 * close() or dup(). Not a struct lock, because it must hold even under VMA_THREAD_MODE=0 (the worker closes too).
 */
static pthread_mutex_t vfd_table_lock = PTHREAD_MUTEX_INITIALIZER;
/* Highest used number + 1. Written under the lock, read by anyone. */
static _Atomic int table_limit;

static void table_lock(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, old);
	pthread_mutex_lock(&vfd_table_lock);
}

static void table_unlock(const sigset_t *old)
{
	pthread_mutex_unlock(&vfd_table_lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

static struct vfd *slot(int fd)
{
	return atomic_load_explicit(&vfd_table[fd], memory_order_relaxed);
}

/* Lock held. fd is empty and within the table. */
static void slot_fill(int fd, struct vfd *v)
{
	v->nfds++;
	if (fd >= atomic_load_explicit(&table_limit, memory_order_relaxed))
		atomic_store_explicit(&table_limit, fd + 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&vfd_count, 1, memory_order_relaxed);
	/* Release: who finds v in the table sees it whole. */
	atomic_store_explicit(&vfd_table[fd], v, memory_order_release);
}

/* Lock held. Another number that names v, -1 if there is none. */
static int slot_find(const struct vfd *v)
{
	int limit = atomic_load_explicit(&table_limit, memory_order_relaxed);

	for (int fd = 0; fd < limit; fd++)
		if (slot(fd) == v)
			return fd;
	return -1;
}

/*
 * Lock held. Empties fd; *last says whether it was the object's last number. NULL: it was empty.
 * The kernel's fd is still open here, so its number cannot come back before the slot is empty.
 */
static struct vfd *slot_empty(int fd, bool *last)
{
	struct vfd *v = slot(fd);
	int limit = atomic_load_explicit(&table_limit, memory_order_relaxed);

	if (!v)
		return NULL;
	atomic_store_explicit(&vfd_table[fd], NULL, memory_order_release);
	atomic_fetch_sub_explicit(&vfd_count, 1, memory_order_relaxed);
	while (limit > 0 && !slot(limit - 1))
		limit--;
	atomic_store_explicit(&table_limit, limit, memory_order_relaxed);
	*last = --v->nfds == 0;
	if (!*last && atomic_load_explicit(&v->os_fd, memory_order_relaxed) == fd)
		atomic_store_explicit(&v->os_fd, slot_find(v), memory_order_release);
	return v;
}

static struct vfd *take(int fd, bool *last)
{
	sigset_t old;
	struct vfd *v;

	*last = false;
	if (!vfd_get(fd))
		return NULL;
	table_lock(&old);
	v = slot_empty(fd, last);
	table_unlock(&old);
	return v;
}

int vfd_install(int fd, struct vfd *v)
{
	sigset_t old;

	if ((unsigned)fd >= VFD_MAX)
		return -EMFILE;
	vfd_forget(fd); /* closed behind our back: stdio, a bare system call */
	table_lock(&old);
	v->nfds = 0;
	atomic_store_explicit(&v->os_fd, fd, memory_order_relaxed);
	slot_fill(fd, v);
	table_unlock(&old);
	return 0;
}

bool vfd_dup(int oldfd, int newfd)
{
	sigset_t old;
	struct vfd *v;

	if (!vfd_get(oldfd) || oldfd == newfd || (unsigned)newfd >= VFD_MAX)
		return false;
	vfd_forget(newfd);
	table_lock(&old);
	v = slot(oldfd); /* again, under the lock: it may have been closed meanwhile */
	if (v)
		slot_fill(newfd, v);
	table_unlock(&old);
	return v != NULL;
}

int vfd_close(int fd)
{
	bool last;
	struct vfd *v = take(fd, &last);

	if (last && v->ops->close)
		return v->ops->close(v, fd);
	return libc.close(fd);
}

void vfd_forget(int fd)
{
	bool last;
	struct vfd *v = take(fd, &last);

	if (last && v->ops->close)
		v->ops->close(v, -1);
}

void vfd_release(struct vfd *v)
{
	sigset_t old;
	bool last;

	table_lock(&old);
	for (int fd = slot_find(v); fd >= 0; fd = slot_find(v))
		slot_empty(fd, &last);
	table_unlock(&old);
}

int vfd_limit(void)
{
	return atomic_load_explicit(&table_limit, memory_order_relaxed);
}

/* Signals are blocked by the caller of fork() through these three; the mask that fork saw is the child's too. */
static sigset_t fork_mask;

void vfd_fork_prepare(void)
{
	sigset_t old;

	table_lock(&old);
	fork_mask = old; /* under the lock: one fork at a time */
}

void vfd_fork_parent(void)
{
	sigset_t old = fork_mask;

	table_unlock(&old);
}

void vfd_fork_child(void)
{
	sigset_t old = fork_mask;

	for (int fd = 0; fd < vfd_limit(); fd++)
		atomic_store_explicit(&vfd_table[fd], NULL, memory_order_relaxed);
	atomic_store_explicit(&table_limit, 0, memory_order_relaxed);
	atomic_store_explicit(&vfd_count, 0, memory_order_relaxed);
	table_unlock(&old);
}

/*
 * Always a real lock, under VMA_THREAD_MODE=0 too: the one thread that is promised there is the application's, and the
 * worker notifies besides. Held for a few instructions, so the rare loser sleeps a moment rather than in a futex (never
 * only yields: a real-time loser would keep the holder from running).
 */
static void watch_take(struct vfd *v)
{
	static const struct timespec moment = {0, 20000};
	uint32_t free = 0, me = lock_self();

	lock_enter();
	for (unsigned tries = 1; !atomic_compare_exchange_weak_explicit(
		     &v->watch_lock.owner, &free, me, memory_order_acquire, memory_order_relaxed);
	     tries++) {
		free = 0;
		if (tries % 256 == 0)
			/* Not libc's: that is a cancellation point, and a stack's lock may be held. */
			libc_raw(SYS_nanosleep, (long)(uintptr_t)&moment, 0, 0, 0, 0, 0);
	}
}

static void watch_drop(struct vfd *v)
{
	/* Whoever takes it by lock_take() may sleep on it (VMA_THREAD_MODE=2). */
	if (atomic_exchange_explicit(&v->watch_lock.owner, 0, memory_order_release) & LOCK_WAITERS)
		lock_wake(&v->watch_lock);
	lock_leave();
}

void vfd_watch_add(struct vfd *v, struct vfd_watch *w)
{
	struct vfd_watch *first;

	watch_take(v);
	first = atomic_load_explicit(&v->watches, memory_order_relaxed);
	w->next = first;
	w->pprev = NULL; /* the head */
	if (first)
		first->pprev = &w->next;
	/* Sequentially consistent with vfd_notify(): either it sees w, or w's owner, who looks again, sees the event. */
	atomic_store_explicit(&v->watches, w, memory_order_seq_cst);
	watch_drop(v);
}

void vfd_watch_del(struct vfd *v, struct vfd_watch *w)
{
	watch_take(v);
	if (w->next)
		w->next->pprev = w->pprev;
	if (w->pprev)
		*w->pprev = w->next;
	else
		atomic_store_explicit(&v->watches, w->next, memory_order_relaxed);
	watch_drop(v);
	w->next = NULL;
	w->pprev = NULL;
}

void vfd_notify_slow(struct vfd *v, uint32_t events)
{
	struct vfd_watch *w, *next;

	watch_take(v);
	for (w = atomic_load_explicit(&v->watches, memory_order_relaxed); w; w = next) {
		next = w->next;
		w->notify(w, events);
	}
	watch_drop(v);
}
