/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "snapshot.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats/stats.h"
#include "vma/version.h"

#define SOCKET_BYTES sizeof(struct vma_stats_socket)

/* Terminated, and nothing in it that a terminal or a line of output would act on. */
static void clean_text(char *text, size_t size)
{
	text[size - 1] = 0;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
			*c = '?';
}

/* h is our copy. -1 with the reason. */
static int header_check(const struct vma_stats_header *h, size_t size, char why[WHY_LEN])
{
	if (h->magic != VMA_STATS_MAGIC) {
		snprintf(why, WHY_LEN, "is not a VMA statistics file");
		return -1;
	}
	if (h->version != VMA_STATS_VERSION || h->header_size != sizeof(*h) ||
	    h->socket_size != SOCKET_BYTES) {
		snprintf(why, WHY_LEN,
			 "Version %d.%d.%d.%u is not compatible with VMA version %d.%d.%d.%d",
			 VMA_LIBRARY_MAJOR, VMA_LIBRARY_MINOR, VMA_LIBRARY_REVISION,
			 VMA_STATS_VERSION, h->release[0], h->release[1], h->release[2],
			 h->release[3]);
		return -1;
	}
	if (h->max_sockets > VMA_STATS_SOCKETS_MAX) {
		snprintf(why, WHY_LEN, "is corrupt: it claims %u sockets, more than %d",
			 h->max_sockets, VMA_STATS_SOCKETS_MAX);
		return -1;
	}
	if (size < sizeof(*h) + h->max_sockets * SOCKET_BYTES) {
		snprintf(why, WHY_LEN, "is truncated: %zu bytes, but %u sockets need %zu", size,
			 h->max_sockets, sizeof(*h) + h->max_sockets * SOCKET_BYTES);
		return -1;
	}
	return 0;
}

static void header_clean(struct vma_stats_header *h)
{
	clean_text(h->library_version, sizeof(h->library_version));
	clean_text(h->program, sizeof(h->program));
	for (unsigned i = 0; i < VMA_STATS_RINGS; i++) {
		clean_text(h->rings[i].type, sizeof(h->rings[i].type));
		clean_text(h->rings[i].ifname, sizeof(h->rings[i].ifname));
		clean_text(h->rings[i].mode, sizeof(h->rings[i].mode));
	}
}

static void socket_clean(struct vma_stats_socket *s)
{
	const struct vma_stats_base *b = &s->base;

	if (!s->enabled) {
		memset(s, 0, sizeof(*s));
		return;
	}
	if (s->num_groups > VMA_STATS_GROUPS)
		s->num_groups = VMA_STATS_GROUPS;
	for (unsigned i = 0; i < VMA_STATS_SOCKET_COUNTERS; i++) {
		__u64 *c = field_of(s, &socket_counters[i]);

		if (b->generation == s->generation && *c >= b->counter[i])
			*c -= b->counter[i];
	}
}

/* Looks of which each found that a socket had closed meanwhile. */
#define LOOKS_MAX 100

/* Whether what the open and the closed sockets have counted is of one moment: see closed_sockets.
 */
static void counts_take(struct snapshot *s, const void *bytes)
{
	const char *from = bytes;
	const __u32 *moves = &((const struct vma_stats_header *)bytes)->closed_sockets.generation;
	const size_t closed = offsetof(struct vma_stats_header, closed_sockets);

	for (unsigned i = 0; i < LOOKS_MAX; i++) {
		__u32 before = __atomic_load_n(moves, __ATOMIC_ACQUIRE);

		stats_copy_words(&s->h.closed_sockets, from + closed, SOCKET_BYTES);
		stats_copy_words(s->sockets, from + sizeof(s->h), s->h.max_sockets * SOCKET_BYTES);
		/* stats_copy_words() acquires each word: this comes after them. */
		if (before % 2 == 0 && __atomic_load_n(moves, __ATOMIC_RELAXED) == before)
			return;
	}
}

int snapshot_take(struct snapshot *s, const void *bytes, size_t size, char why[WHY_LEN])
{
	memset(s, 0, sizeof(*s));
	/* The first 32 bytes say whether the rest can be understood. */
	if (size < 32) {
		snprintf(why, WHY_LEN, "is truncated: %zu bytes", size);
		return -1;
	}
	stats_copy_words(&s->h, bytes, size < sizeof(s->h) ? size : sizeof(s->h));
	if (header_check(&s->h, size, why))
		return -1;
	s->sockets = calloc(s->h.max_sockets + 1, SOCKET_BYTES);
	if (!s->sockets) {
		snprintf(why, WHY_LEN, "cannot be read: out of memory");
		return -1;
	}
	counts_take(s, bytes);
	header_clean(&s->h);
	for (unsigned i = 0; i < s->h.max_sockets; i++)
		socket_clean(&s->sockets[i]);
	return 0;
}

void snapshot_sum(struct vma_stats_socket *sum, const struct snapshot *s)
{
	memset(sum, 0, sizeof(*sum));
	for (unsigned c = 0; c < VMA_STATS_SOCKET_COUNTERS; c++) {
		const struct field *f = &socket_counters[c];
		__u64 *total = field_of(sum, f);

		*total = *field_of((void *)&s->h.closed_sockets, f);
		/*
		 * A socket that is not enabled is zero. What was zeroed by a tool is counted: it
		 * will be in the sum of the closed ones.
		 */
		for (unsigned i = 0; i < s->h.max_sockets; i++) {
			const struct vma_stats_socket *one = &s->sockets[i];

			*total += *field_of(&s->sockets[i], f);
			if (one->base.generation == one->generation)
				*total += one->base.counter[c];
		}
	}
}

int snapshot_clone(struct snapshot *to, const struct snapshot *from)
{
	*to = *from;
	to->sockets = calloc(from->h.max_sockets + 1, SOCKET_BYTES);
	if (!to->sockets)
		return -1;
	memcpy(to->sockets, from->sockets, from->h.max_sockets * SOCKET_BYTES);
	return 0;
}

void snapshot_free(struct snapshot *s)
{
	free(s->sockets);
	s->sockets = NULL;
}

/*
 * A counter that went back belongs to a new owner of the block (or was zeroed): all of it is new.
 */
static void rate(__u64 *now, __u64 before, unsigned seconds)
{
	*now = (*now >= before ? *now - before : *now) / seconds;
}

static void block_delta(void *now, const void *before, const struct field *fields, unsigned seconds)
{
	for (const struct field *f = fields; f->name; f++)
		if (f->counts)
			rate(field_of(now, f), *field_of((void *)before, f), seconds);
}

void snapshot_delta(struct snapshot *now, const struct snapshot *before, unsigned seconds)
{
	static const struct vma_stats_socket none;

	for (unsigned i = 0; i < now->h.max_sockets; i++) {
		struct vma_stats_socket *n = &now->sockets[i];
		const struct vma_stats_socket *b =
			i < before->h.max_sockets ? &before->sockets[i] : &none;

		if (b->generation != n->generation)
			b = &none;
		for (unsigned c = 0; c < VMA_STATS_SOCKET_COUNTERS; c++)
			rate(field_of(n, &socket_counters[c]),
			     *field_of((void *)b, &socket_counters[c]), seconds);
	}
	for (unsigned c = 0; c < VMA_STATS_SOCKET_COUNTERS; c++)
		rate(field_of(&now->h.closed_sockets, &socket_counters[c]),
		     *field_of((void *)&before->h.closed_sockets, &socket_counters[c]), seconds);
	block_delta(&now->h.closed_rings, &before->h.closed_rings, ring_fields, seconds);
	for (unsigned i = 0; i < VMA_STATS_RINGS; i++)
		block_delta(&now->h.rings[i], &before->h.rings[i], ring_fields, seconds);
	for (unsigned i = 0; i < VMA_STATS_CQS; i++)
		block_delta(&now->h.cqs[i], &before->h.cqs[i], cq_fields, seconds);
	for (unsigned i = 0; i < VMA_STATS_POOLS; i++)
		block_delta(&now->h.pools[i], &before->h.pools[i], pool_fields, seconds);
	block_delta(&now->h.select, &before->h.select, iomux_fields, seconds);
	block_delta(&now->h.poll, &before->h.poll, iomux_fields, seconds);
	for (unsigned i = 0; i < VMA_STATS_EPOLLS; i++)
		block_delta(&now->h.epoll[i], &before->h.epoll[i], iomux_fields, seconds);
}
