/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The build with CHECK_LOCKS=1 (build/check): locks that watch themselves. Every file is compiled
 * with this header before all others; the ordinary build has nothing of it.
 *
 * Order: each lock has a class, the name by which the library speaks of it. Which class was taken
 * while which was held is noted for the whole process; what contradicts what was noted, or the
 * order of docs/design.md, ends the process with the stacks of both.
 * Leaks: at the return of each intercepted call, and of each callback of the worker, the thread
 * holds what it held at its beginning.
 * Perturbation: at each lock and at each wake-up the thread now and then gives its CPU away, by a
 * generator of its own that starts from LOCK_CHECK_SEED.
 */
#ifndef RUNTIME_LOCK_CHECK_H
#define RUNTIME_LOCK_CHECK_H

#define VMA_CHECK

#include <pthread.h>
#include <stdbool.h>

#include "runtime/lock.h"

/* A place in the source that takes a lock. */
struct lock_site {
	const char *file, *text;
	int line;
};

#define LOCK_SITE(l)                                                                               \
	({                                                                                         \
		static const struct lock_site site_ = {__FILE__, #l, __LINE__};                    \
		&site_;                                                                            \
	})

/* The class of l, for good; its memory is never another lock's. */
void lock_class(const void *l, const char *name);
/* This thread is going to wait for l. */
void lock_check_wants(const void *l, const struct lock_site *site, bool is_mutex);
/* This thread has l now, waited for or not. */
void lock_check_has(const void *l, const struct lock_site *site, bool is_mutex);
/* This thread is going to give l back. */
void lock_check_drops(const void *l, const struct lock_site *site);
/*
 * This thread reaches a cancellation point, the function of libc of that name: nothing that would
 * stay taken may be held, unless it cannot be cancelled. Any other name is let pass.
 */
void lock_check_cancel(const char *name);
/* Nothing is held: at the end of `what`. */
void lock_check_none(const char *what);
/* Now and then lets another thread run; around a wake-up often. Keeps errno. */
void perturb(void);
void perturb_wake(void);

static inline void lock_check_take(struct lock *l, const struct lock_site *site)
{
	lock_check_wants(l, site, false);
	lock_take(l);
	lock_check_has(l, site, false);
}

static inline bool lock_check_get(struct lock *l, const struct lock_site *site)
{
	if (lock_mine(l))
		return lock_get(l);
	lock_check_wants(l, site, false);
	if (!lock_get(l))
		return false;
	lock_check_has(l, site, false);
	return true;
}

static inline bool lock_check_get_now(struct lock *l, uint32_t me, const struct lock_site *site)
{
	perturb();
	if (!lock_get_now(l, me))
		return false;
	lock_check_has(l, site, false);
	return true;
}

static inline bool lock_check_try(struct lock *l, const struct lock_site *site)
{
	perturb();
	if (!lock_try(l))
		return false;
	lock_check_has(l, site, false);
	return true;
}

static inline void lock_check_drop(struct lock *l, const struct lock_site *site)
{
	lock_check_drops(l, site);
	lock_drop(l);
	perturb();
}

int lock_check_mutex_lock(pthread_mutex_t *m, const struct lock_site *site);
int lock_check_mutex_trylock(pthread_mutex_t *m, const struct lock_site *site);
int lock_check_mutex_unlock(pthread_mutex_t *m, const struct lock_site *site);
/* A child of fork() makes the mutex anew, which this thread may have had. */
int lock_check_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr);

#define lock_take(l) lock_check_take(l, LOCK_SITE(l))
#define lock_get(l) lock_check_get(l, LOCK_SITE(l))
#define lock_get_now(l, me) lock_check_get_now(l, me, LOCK_SITE(l))
#define lock_try(l) lock_check_try(l, LOCK_SITE(l))
#define lock_drop(l) lock_check_drop(l, LOCK_SITE(l))
#define lock_dropped(l) lock_check_drops(l, LOCK_SITE(l))
#define pthread_mutex_lock(m) lock_check_mutex_lock(m, LOCK_SITE(m))
#define pthread_mutex_trylock(m) lock_check_mutex_trylock(m, LOCK_SITE(m))
#define pthread_mutex_unlock(m) lock_check_mutex_unlock(m, LOCK_SITE(m))
#define pthread_mutex_init(m, attr) lock_check_mutex_init(m, attr)

#endif
