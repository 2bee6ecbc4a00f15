/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The epoll object. Kernel fds stand in the kernel's epoll with the user's own data, so a set
 * without fds of ours is served by the kernel only. Each offloaded fd has an item here, and its
 * shadow socket stands in the kernel's epoll with the item's tag as data: tags are values that
 * neither a pointer nor a small number can have.
 *
 * Locks, outer first: set->mtx (items, scanning; an outer set's before an inner's), vfd.watch_lock,
 * set->lock (ready list).
 */
#ifndef IOMUX_EPOLL_H
#define IOMUX_EPOLL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "iomux/wait_loop.h"
#include "runtime/runtime.h"
#include "stats/stats.h"
#include "fd/fd.h"
#include "wait/wait.h"

/* What survives the report of a ONESHOT item. */
#define EP_PRIVATE (EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE | EPOLLWAKEUP)

struct epset;

/* Type-stable: a stale tag or watch finds an item, never foreign memory. */
struct epitem {
	struct vfd_watch watch;
	struct epset *set; /* NULL: free. set->mtx */
	/*
	 * NULL: only the shadow socket is left (in the child of a fork(), but for another set; of
	 * one that was disarmed when the kernel got it)
	 */
	struct vfd *v;
	bool nested; /* v is another set */
	bool in_kernel; /* the kernel's epoll watches the fd, too; mtx */
	bool served; /* and the kernel serves it for now, or it is another set; mtx */
	bool given; /* epset.given has seen it; mtx */
	bool ready; /* in the list; set->lock */
	int fd;
	uint32_t index, generation; /* the tag */
	/*
	 * As the user asked, ERR and HUP besides; nothing but EP_PRIVATE: disarmed.
	 * Written under mtx and set->lock, read under either.
	 */
	uint32_t events;
	/* What the kernel said of the shadow socket and the user was not told yet; mtx. */
	uint32_t os_pending;
	epoll_data_t data; /* mtx */
	/* by_fd chain: an older item whose number was closed while a dup lives; mtx. */
	struct epitem *same_fd;
	struct epitem *next, **pprev; /* set->items; mtx. Free list: next */
	/* set->lock, as `ready`: */
	struct epitem *ready_next, *ready_prev;
};

/* A thread asleep in epoll_wait, on its stack. set->lock */
struct epwaiter {
	struct epwaiter *next, **pprev;
	struct wait_thread *thread; /* the owner's; NULL: not in the list */
	bool woken; /* it will look again */
};

struct epset {
	struct vfd vfd;
	struct lock mtx;
	int cancel_state; /* of the thread that holds mtx, before it did */
	_Atomic uint32_t generation; /* mtx; bumped when the set is closed */
	struct epitem **by_fd; /* mtx */
	unsigned by_fd_size;
	struct epitem *items;
	_Atomic unsigned num_sockets, num_nested; /* written under mtx */
	_Atomic bool reap; /* a signal handler closed something while its thread held mtx */
	/*
	 * Held for a few instructions. The worker notifies too, so it locks even with
	 * VMA_THREAD_MODE=0.
	 */
	struct lock lock;
	struct epitem *ready_first, *ready_last;
	struct epwaiter *waiters; /* the latest first: its cache is the warmest */
	_Atomic uint32_t num_waiters; /* sequentially consistent against num_ready */
	_Atomic uint32_t calls; /* that have begun to wait; of two at once one may not count */
	/*
	 * In the ready list, or being looked at. Sequentially consistent against vfd.watches and
	 * num_waiters.
	 */
	_Atomic uint32_t num_ready;
	_Atomic uint32_t num_items;
	/*
	 * Threads that sleep in libc.epoll_wait because the set has (or had) no fds of ours; above
	 * them 32 bits of the generation: who slept in a set that was closed is none of the next.
	 */
	_Atomic uint64_t plain;
	/*
	 * An eventfd in the kernel's epoll that is always readable: it drives those threads out.
	 * -1: none.
	 */
	_Atomic int kick_fd;
	_Atomic uint64_t kicked_ns; /* when it was put there */
	/*
	 * The kernel's epoll was ever given a tag: set before it is. Without, all data is the
	 * user's. Closing the set clears it: a thread that still waits compares the generation.
	 */
	_Atomic bool tagged;
	_Atomic bool kernel_fds; /* a kernel fd was ever added */
	_Atomic bool inherited; /* made before a fork(), and not used in this process yet */
	/* Others ask the kernel's epoll by themselves: what the set gets goes to the kernel. */
	_Atomic bool given;
	_Atomic unsigned num_in_kernel; /* items that the kernel's epoll knows; written under mtx */
	_Atomic unsigned num_served; /* those of them that are like the kernel's fds; as above */
	_Atomic bool shadow_hot; /* the last kernel look found a shadow socket ready */
	_Atomic int hits_since_kernel, zeros_since_kernel;
	_Atomic bool kernel_turn; /* of odd room the kernel's fds have the larger part this time */
	struct vma_stats_iomux *_Atomic stats; /* NULL until the first item; mtx */
	struct mux_polling polling;
	struct wait_spin_memory spin;
	struct epset *all; /* every set ever made; never shrinks */
	struct epset *free; /* set_list_lock */
};

/* How many threads sleep in libc.epoll_wait. */
static inline uint32_t epset_plain(const struct epset *s)
{
	return (uint32_t)atomic_load(&s->plain);
}

/* Who does from now on is counted; who slept before is not. */
static inline void epset_plain_anew(struct epset *s)
{
	atomic_store(&s->plain, (uint64_t)atomic_load(&s->generation) << 32);
}

/* epoll_item.c: items and sets */
struct epset *epset_new(void);
void epset_free(struct epset *s);
/* Every set ever made, linked by ->all. */
struct epset *epset_first(void);
struct epset *epset_of(int epfd);
struct epitem *epitem_new(void);
/* Out of all lists already. */
void epitem_free(struct epitem *it);
uint64_t epitem_tag(const struct epitem *it);
bool epitem_tagged(uint64_t data);
/* The item of a tag if it belongs to s; NULL for a stale one. mtx held. */
struct epitem *epitem_of(struct epset *s, uint64_t data);
/* mtx held. -ENOMEM or 0. */
int epset_insert(struct epset *s, struct epitem *it);
struct epitem *epset_find(struct epset *s, int fd, const struct vfd *v);
/* mtx held. Notes whether the kernel's epoll watches the item's fd. */
static inline void epitem_in_kernel(struct epset *s, struct epitem *it, bool in)
{
	if (it->in_kernel != in)
		atomic_fetch_add_explicit(&s->num_in_kernel, in ? 1u : -1u, memory_order_relaxed);
	it->in_kernel = in;
}

/* mtx held, after epitem_in_kernel(). Notes whether the kernel is who serves the item's fd. */
void epitem_served(struct epset *s, struct epitem *it);
/* The kernel serves something of the set: calls that find an offloaded fd ready ask it, too. */
static inline bool epset_has_kernel_fds(const struct epset *s)
{
	return atomic_load_explicit(&s->kernel_fds, memory_order_relaxed) ||
	       atomic_load_explicit(&s->num_served, memory_order_relaxed);
}

/* mtx held. Takes it out of every list, its watch too, and frees it. */
void epset_remove(struct epset *s, struct epitem *it);
/* mtx held. Its object leaves it, which is a socket; the kernel's epoll knows it by its tag. */
void epset_orphan(struct epset *s, struct epitem *it);
/*
 * Any thread. Puts it last in the ready list unless it stands there, or is disarmed, or wants none
 * of the events.
 */
void epset_ready(struct epset *s, struct epitem *it, uint32_t events);
/* mtx held. Sets what the item waits for. */
void epitem_arm(struct epset *s, struct epitem *it, uint32_t events);
/*
 * In the child of a fork(), after the fd table was emptied: the sockets are the parent's. What is
 * left of an item is the translation of its tag. The sets themselves stay in the fd table, and in
 * each other.
 */
void epset_forked(void);
/*
 * mtx held. The first of the ready list, taken off; NULL. num_ready counts it until epset_popped(),
 * when those that stay ready are in the list again: who finds 0 looks no further.
 */
struct epitem *epset_pop(struct epset *s);
/* mtx held. n were popped. */
void epset_popped(struct epset *s, unsigned n);
/* Something is ready: wakes one of the threads in epoll_wait, and all other watchers of the set. */
void epset_notify(struct epset *s);
/* Wakes one of the threads in epoll_wait when anything is ready. */
void epset_wake(struct epset *s);
/* Every thread in epoll_wait, whatever is ready. */
void epset_wake_all(struct epset *s);
void epset_waiter_add(struct epset *s, struct epwaiter *w);
/* A wake-up meant for w may be lost with it: look again, or call epset_wake(). */
void epset_waiter_del(struct epset *s, struct epwaiter *w);
/*
 * The set is going to be used: what a parent process put into it has to be the kernel's. No lock
 * held.
 */
static inline void epset_use(struct epset *s)
{
	if (__builtin_expect(atomic_load_explicit(&s->inherited, memory_order_relaxed), 0)) {
		atomic_store_explicit(&s->inherited, false, memory_order_relaxed);
		vfd_touch_all();
	}
}

/* A call begins to wait in the set. As epset_use(). */
static inline void epset_wait_begins(struct epset *s)
{
	void (*tell)(struct vfd *) = atomic_load_explicit(&vfd_set_waits, memory_order_relaxed);
	uint32_t calls = atomic_load_explicit(&s->calls, memory_order_relaxed);

	epset_use(s);
	atomic_store_explicit(&s->calls, calls + 1, memory_order_relaxed);
	if (__builtin_expect(tell != NULL, 0))
		tell(&s->vfd);
}

void epset_lock(struct epset *s);
/* Also does what a signal handler had to leave undone. */
void epset_unlock(struct epset *s);
#define EPOLL_KICK_TAG 0xe5a7ffffffffffffull

/* The offloaded half of what an item has to report now, 0: nothing or disarmed. mtx held. */
uint32_t epitem_user(const struct epitem *it);
/* Both halves. mtx held. */
uint32_t epitem_peek(const struct epitem *it);
/*
 * Sorts what the kernel's epoll gave: tagged events go to their items, the others move to the front
 * of evs. Returns the number of those. No lock held.
 */
int epset_fold(struct epset *s, struct epoll_event *evs, int n);
/* Removes the always readable eventfd that drove sleepers out of libc.epoll_wait. */
void epset_unkick(struct epset *s, int epfd);
/* True when a set has offloaded sockets, its own or of sets in it: spinning for it makes sense. */
bool epoll_spins(struct vfd *v);

#endif
