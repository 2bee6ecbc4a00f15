/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What ThreadSanitizer cannot see: an order that comes by a system call or by another process.
 * Nothing in every other build.
 */
#ifndef VMA_RUNTIME_TSAN_H
#define VMA_RUNTIME_TSAN_H

#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define TSAN_ACQUIRE(p) __tsan_acquire(p)
#define TSAN_RELEASE(p) __tsan_release(p)
#define TSAN_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define TSAN_ACQUIRE(p) ((void)0)
#define TSAN_RELEASE(p) ((void)0)
#define TSAN_UNSEEN inline
#endif

#endif
