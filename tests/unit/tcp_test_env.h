/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The engine's memory as a test wants it: counted, and failing at a chosen allocation. */
#ifndef TESTS_UNIT_TCP_TEST_ENV_H
#define TESTS_UNIT_TCP_TEST_ENV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "tcp/tcp.h"

struct memory {
	size_t bytes; /* held now */
	unsigned blocks;
	unsigned calls; /* alloc() calls so far */
	unsigned fail_at; /* the call, counted from 1, that fails; 0: none */
	size_t fail_above; /* larger ones fail; 0: none */
};

static inline void *memory_alloc(void *ctx, size_t size)
{
	struct memory *m = ctx;
	void *p;

	if (++m->calls == m->fail_at || (m->fail_above && size > m->fail_above))
		return NULL;
	p = calloc(1, size);
	if (!p)
		abort();
	m->bytes += size;
	m->blocks++;
	return p;
}

static inline void memory_free(void *ctx, void *p, size_t size)
{
	struct memory *m = ctx;

	if (m->bytes < size || !m->blocks)
		abort();
	m->bytes -= size;
	m->blocks--;
	free(p);
}

static inline struct tcp_env test_env(struct memory *m)
{
	return (struct tcp_env){.ctx = m, .alloc = memory_alloc, .free = memory_free};
}

/* xorshift64*: the same numbers everywhere. */
static inline uint32_t test_random(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return (uint32_t)(*seed * UINT64_C(2685821657736338717) >> 32);
}

#endif
