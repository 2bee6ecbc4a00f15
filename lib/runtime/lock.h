/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lock of a stack or a socket. Who waits for it spins, then sleeps (a futex). VMA_THREAD_MODE:
 * 2 always wakes the sleeper, the others nearly always, and give the lock back for less. It knows
 * its owner, so that a signal handler which interrupted the owner can see that it must not wait.
 */
#ifndef RUNTIME_LOCK_H
#define RUNTIME_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct lock {
	_Atomic uint32_t owner; /* thread id, and the two below; 0 free */
};

#define LOCK_WAITERS 0x80000000u /* someone sleeps on it */
#define LOCK_AFTER 0x40000000u /* its owner has something to do when it has given it back */
#define LOCK_MARKS (LOCK_WAITERS | LOCK_AFTER) /* no thread id is so large */

/* Between two looks of a thread that spins: the other hardware thread of this core has it for a
 * moment. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* What a thread knows of itself, in one place: every lock and unlock looks at it. */
struct lock_thread {
	uint32_t tid; /* cached, 0: not asked for yet; lock_thread_forked() renews it in a child */
	/*
	 * Locks, and other things that must not be met half done, that this thread is in the middle
	 * of. While there are any, signal handlers wait (preload/signal.c): one that interrupted
	 * the holder could wait for the lock for ever.
	 */
	volatile uint32_t depth;
	/* Set by a signal that waits; lock_leave() then calls lock_deferred_fn. */
	volatile bool deferred;
	/*
	 * Between lock_busy_begin() and lock_busy_end(): what had better wait for the end of a lock
	 * can. put_off: something does.
	 */
	bool busy, put_off;
	uint32_t sleeps; /* for locks, ever */
};

extern __thread struct lock_thread lock_thread
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
uint32_t lock_tid_init(void);
void lock_thread_forked(void);
/* 1 to 3, as VMA_THREAD_MODE has it. Written once, by who makes the process's first socket. */
extern _Atomic int lock_mode __attribute__((visibility("hidden")));
/* After so long who sleeps looks again, in the modes that may miss a mark; tests write it. */
extern struct timespec lock_sleep_most __attribute__((visibility("hidden")));
void lock_slow(struct lock *l, uint32_t me);

static inline uint32_t lock_self(void)
{
	return __builtin_expect(lock_thread.tid != 0, 1) ? lock_thread.tid : lock_tid_init();
}

extern void (*lock_deferred_fn)(void) __attribute__((visibility("hidden")));

/*
 * Used by this thread only, but also by its signal handlers: in one instruction where the compiler
 * would make three of a volatile word.
 */
static inline __attribute__((always_inline)) void lock_depth_add(uint32_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	__asm__ volatile("addl %1, %0" : "+m"(lock_thread.depth) : "ri"(n));
#else
	lock_thread.depth = lock_thread.depth + n;
#endif
}

static inline void lock_enter(void)
{
	lock_depth_add(1);
	/* A handler of this thread sees the depth before it can see what comes after. */
	atomic_signal_fence(memory_order_seq_cst);
}

static inline __attribute__((always_inline)) void lock_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	lock_depth_add(-1u);
	if (__builtin_expect(lock_thread.deferred, 0) && !lock_thread.depth)
		lock_deferred_fn();
}

/*
 * From begin to end this thread neither runs a signal handler nor can be cancelled: nobody may see
 * what is half done, or die with a lock held. Returns what the end wants. A handler never runs
 * while only the cancelling is off: one that leaves by siglongjmp() would leave it so.
 */
static inline int lock_quiet_begin(void)
{
	int cancel;

	lock_enter();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	return cancel;
}

static inline void lock_quiet_end(int cancel)
{
	pthread_setcancelstate(cancel, NULL);
	lock_leave();
}

/* Never call when lock_mine() may be true. */
static inline void lock_take(struct lock *l)
{
	uint32_t free = 0, me;

	lock_enter();
	me = lock_self();
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&l->owner, &free, me,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0))
		lock_slow(l, me);
}

/* lock_get() when l is not free. */
bool lock_get_slow(struct lock *l, uint32_t me);

/*
 * Takes l unless this thread has it already (a signal handler in the middle of a call): false then.
 */
static inline bool lock_get(struct lock *l)
{
	uint32_t free = 0, me;

	lock_enter();
	me = lock_self();
	if (__builtin_expect(atomic_compare_exchange_strong_explicit(&l->owner, &free, me,
								     memory_order_acquire,
								     memory_order_relaxed),
			     1))
		return true;
	return lock_get_slow(l, me);
}

/* As lock_try() of the thread `me`, but after a failure lock_leave() is the caller's to call. */
static inline bool lock_get_now(struct lock *l, uint32_t me)
{
	uint32_t free = 0;

	lock_enter();
	return atomic_compare_exchange_strong_explicit(&l->owner, &free, me, memory_order_acquire,
						       memory_order_relaxed);
}

static inline bool lock_try(struct lock *l)
{
	uint32_t free = 0;

	lock_enter();
	if (atomic_compare_exchange_strong_explicit(&l->owner, &free, lock_self(),
						    memory_order_acquire, memory_order_relaxed))
		return true;
	lock_leave();
	return false;
}

/* What lock_drop() does in mode 2, and where there is a mark. */
void lock_drop_slow(struct lock *l);
/*
 * From begin to end this thread has a lock, l, for which others wait, and the processor that it
 * runs on may be wanted: whom it would wake it wakes after the drop, if it can. It says put_off,
 * and lock_after_fn is called then, still with the signal handlers put off.
 */
static inline void lock_busy_begin(void)
{
	lock_thread.busy = true;
}

void lock_after(struct lock *l);

static inline void lock_busy_end(struct lock *l)
{
	lock_thread.busy = false;
	if (__builtin_expect(lock_thread.put_off, 0))
		lock_after(l);
}

extern void (*lock_after_fn)(void) __attribute__((visibility("hidden")));

/*
 * The spinning modes are the odd ones. They do without an atomic instruction: who marks the word
 * between the look and the time when others see the store sleeps for its 0.2 ms.
 */
static inline __attribute__((always_inline)) void lock_drop(struct lock *l)
{
	if (__builtin_expect(atomic_load_explicit(&lock_mode, memory_order_relaxed) & 1, 1) &&
	    __builtin_expect(!(atomic_load_explicit(&l->owner, memory_order_relaxed) & LOCK_MARKS),
			     1))
		atomic_store_explicit(&l->owner, 0, memory_order_release);
	else
		lock_drop_slow(l);
	lock_leave();
}

/*
 * True when the calling thread holds l: only a handler that could not be made to wait can see that
 * at an entry point.
 */
static inline bool lock_mine(struct lock *l)
{
	return (atomic_load_explicit(&l->owner, memory_order_relaxed) & ~LOCK_MARKS) == lock_self();
}

#ifndef VMA_CHECK
/* What lock_check.h does in the build with CHECK_LOCKS=1; nothing in this one. */
#define lock_class(l, name) ((void)0) /* l is known by this name; said when l is made */
#define lock_dropped(l) ((void)0) /* code that gives l back by its own instructions is about to */
#define lock_check_none(what) ((void)0) /* at the end of `what` no lock is held */
#define perturb_wake() ((void)0) /* before and after a wake-up: another thread may do anything */
#endif

/*
 * lock_take(), where the process ends: exit() may be called anywhere, in a signal handler that has
 * interrupted the holder too, and who has it may never give it back. It is waited for for a tenth
 * of a second. False: it is not to be had.
 */
bool lock_at_exit(struct lock *l);

#endif
