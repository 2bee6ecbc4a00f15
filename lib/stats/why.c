/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Why the kernel serves what it does: in a socket's block, in the log, and a sum at the end. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/runtime.h"
#include "stats/stats.h"

_Static_assert(VMA_WHYS <= 64, "a bit each in why_ever");

/* Sockets that have had it, by reason. */
static _Atomic unsigned sockets[VMA_WHYS];

/* s is NULL, or has not had it before. */
static bool is_new(struct vma_stats_socket *s, uint32_t reason)
{
	uint64_t bit = 1ull << reason;

	return !s || !(__atomic_fetch_or(&s->why_ever, bit, __ATOMIC_RELAXED) & bit);
}

static bool stands(const struct vma_stats_why *at, struct vma_stats_why why)
{
	return __atomic_load_n(&at->reason, __ATOMIC_RELAXED) == why.reason &&
	       __atomic_load_n(&at->detail, __ATOMIC_RELAXED) == why.detail;
}

static void put(struct vma_stats_why *at, struct vma_stats_why why)
{
	__atomic_store_n(&at->detail, why.detail, __ATOMIC_RELAXED);
	__atomic_store_n(&at->reason, why.reason, __ATOMIC_RELAXED);
}

static void tell(int fd, enum vma_why_path path, struct vma_stats_why why)
{
	char text[STATS_WHY_TEXT];

	stats_why_text(text, &why);
	if (path == VMA_WHY_SOCKET)
		log_details("fd %d goes on through the kernel: %s", fd, text);
	else
		log_details("fd %d %s through the kernel: %s", fd,
			    path == VMA_WHY_RX ? "receives" : "sends", text);
}

void stats_why(struct vma_stats_socket *s, int fd, enum vma_why_path path, struct vma_stats_why why)
{
	if (s && stands(&s->why[path], why))
		return;
	if (s)
		put(&s->why[path], why);
	if (!why.reason || !is_new(s, why.reason))
		return;
	atomic_fetch_add_explicit(&sockets[why.reason], 1, memory_order_relaxed);
	tell(fd, path, why);
}

/* What was over with the first datagram is no news at the end. */
static enum log_level level_of(unsigned reason)
{
	return reason == VMA_WHY_NEIGHBOUR ? LOG_DETAILS : LOG_INFO;
}

void stats_why_summary(void)
{
	for (unsigned i = 1; i < VMA_WHYS; i++) {
		unsigned n = atomic_load_explicit(&sockets[i], memory_order_relaxed);
		struct vma_stats_why why = {.reason = i};
		char text[STATS_WHY_TEXT];

		if (n)
			log_at(level_of(i), "through the kernel: %u socket%s: %s", n,
			       n == 1 ? "" : "s", stats_why_text(text, &why));
	}
}

void stats_whys_forked(void)
{
	for (unsigned i = 0; i < VMA_WHYS; i++)
		atomic_store_explicit(&sockets[i], 0, memory_order_relaxed);
}
