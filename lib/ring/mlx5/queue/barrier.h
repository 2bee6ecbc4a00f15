/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ordering towards a device that reads and writes our memory. The atomics of C order threads; these
 * order DMA, and the two differ where the processor is weakly ordered (aarch64) and where memory is
 * write-combining (the UAR page, everywhere).
 */
#ifndef RING_MLX5_QUEUE_BARRIER_H
#define RING_MLX5_QUEUE_BARRIER_H

#include <stdint.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

/*
 * What was stored to memory before is there for the device before what is stored to memory after.
 */
static inline void dev_wmb(void)
{
#if defined(__x86_64__)
	__asm__ volatile("" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/* What the device wrote before the word that was read is what is read after. */
static inline void dev_rmb(void)
{
#if defined(__x86_64__)
	__asm__ volatile("" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dmb oshld" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/*
 * Between stores to memory and stores to the UAR page, and behind the latter: they leave the
 * write-combining buffer. On aarch64 a barrier that only orders would let them stay there.
 */
static inline void dev_wc_wmb(void)
{
#if defined(__x86_64__)
	_mm_sfence();
#elif defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#else
	__sync_synchronize();
#endif
}

/*
 * 64 bytes to the UAR page, both sides aligned to 64: past the caches, so that they leave as one
 * burst.
 */
static inline void dev_wc_copy64(void *to, const void *from)
{
#ifdef __x86_64__
	const __m128i *f = from;
	__m128i *t = to;
	__m128i a = _mm_load_si128(f), b = _mm_load_si128(f + 1), c = _mm_load_si128(f + 2),
		d = _mm_load_si128(f + 3);

	_mm_stream_si128(t, a);
	_mm_stream_si128(t + 1, b);
	_mm_stream_si128(t + 2, c);
	_mm_stream_si128(t + 3, d);
#else
	const uint64_t *f = from;
	volatile uint64_t *t = to;

	for (unsigned i = 0; i < 8; i++)
		t[i] = f[i];
#endif
}

/* One doorbell word to the UAR page; it is never torn. */
static inline void dev_write64(void *to, uint64_t word)
{
	__atomic_store_n((uint64_t *)to, word, __ATOMIC_RELAXED);
}

#endif
