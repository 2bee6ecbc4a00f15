/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Between area.c, which owns the pages and the file, and blocks.c, which hands out the blocks in
 * them. Everything here is read and written with stats_mutex held.
 */
#ifndef STATS_AREA_H
#define STATS_AREA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vma/stats.h"

/* The reservation's first page: what a tool must not be able to write. */
struct stats_area {
	struct stats_area *older; /* of the process that forked this one */
	size_t bytes; /* behind this page */
	uint64_t sockets[VMA_STATS_SOCKETS_MAX / 64]; /* blocks in use */
	uint32_t rings, cqs, pools, epolls;
};

_Static_assert(VMA_STATS_RINGS <= 32 && VMA_STATS_CQS <= 32 && VMA_STATS_POOLS <= 32 &&
		       VMA_STATS_EPOLLS <= 32,
	       "one word of use bits each");

extern pthread_mutex_t stats_mutex;
extern struct stats_area *stats_area; /* the current one, NULL before the first request */
/* The control words as last seen or written here. */
extern struct stats_followed {
	int level, details;
} stats_followed;
/* Who gets no memory counts into this, all together. */
extern struct vma_stats_header stats_header_spill;

/* The current reservation, made now if there is none; NULL without memory. */
struct stats_area *stats_area_get(void);
/* Its header, or the spill. */
struct vma_stats_header *stats_header_get(void);
/* The area, current or older, that p stands in; NULL if it is a block of its own. */
struct stats_area *stats_area_of(const void *p);
/* Header and sockets. */
char *stats_area_pages(const struct stats_area *a);
/*
 * Every page of the file exists afterwards, which is so long: a full file system must fail here,
 * not kill the program at a counter. 0 or negative errno.
 */
int stats_reserve(int fd, size_t bytes);
/* In the child of a fork(): the capture is the parent's. */
void stats_capture_forked(void);
/* Is there a file that tools see? */
bool stats_has_file(void);

#endif
