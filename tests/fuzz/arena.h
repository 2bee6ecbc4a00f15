/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Memory of one execution of a fuzz target: pieces one behind the other, poisoned while nobody has
 * them, none given out twice before arena_reset(). AddressSanitizer sees an access outside of a
 * piece, or after its end, as it does with malloc(), at a tenth of the cost.
 */
#ifndef TESTS_FUZZ_ARENA_H
#define TESTS_FUZZ_ARENA_H

#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_SIZE (8u << 20)
#define ARENA_GAP 32u /* poisoned, between two pieces */

static _Alignas(16) uint8_t arena[ARENA_SIZE];
static size_t arena_used;

/* All pieces are given back already, or forgotten now. */
static inline void arena_reset(void)
{
	ASAN_POISON_MEMORY_REGION(arena, arena_used ? arena_used : ARENA_SIZE);
	arena_used = ARENA_GAP;
}

/*
 * size bytes of whatever was there; of the heap when the arena is full. Aborts when there is no
 * memory.
 */
static inline void *arena_alloc(size_t size)
{
	size_t step = (size + 15) / 16 * 16 + ARENA_GAP;
	uint8_t *p = &arena[arena_used];

	if (step > ARENA_SIZE - arena_used) {
		p = malloc(size);
		if (!p)
			abort();
		return p;
	}
	arena_used += step;
	ASAN_UNPOISON_MEMORY_REGION(p, size);
	return p;
}

static inline void arena_free(void *p, size_t size)
{
	if ((uint8_t *)p >= arena && (uint8_t *)p < arena + ARENA_SIZE)
		ASAN_POISON_MEMORY_REGION(p, size);
	else
		free(p);
}

#endif
