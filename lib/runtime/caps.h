/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What this thread may do (capabilities(7)). */
#ifndef RUNTIME_CAPS_H
#define RUNTIME_CAPS_H

#include <linux/capability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPS_BIT(cap) (1ull << (cap))

/* All of these (CAPS_BIT() of each) are effective. False, too, when it cannot be told. */
bool caps_have(uint64_t caps);
/* The capabilities of a thread; a bit each. */
struct caps_sets {
	uint64_t effective, permitted;
};

/* This thread's. All zero when it cannot be told. */
struct caps_sets caps_own(void);
/*
 * Of those in mask, this thread keeps what `other` has: effective what is effective there,
 * permitted what is permitted there. Of the others it keeps what it has, and what is effective
 * there becomes so. It gets nothing that it was not permitted. 0 or negative errno.
 */
int caps_follow(const struct caps_sets *other, uint64_t mask);
/*
 * Of those in mask, what this thread is permitted becomes effective: seteuid() of a user that is
 * not root leaves nothing effective. Returns what it was, for caps_lower().
 */
struct caps_sets caps_raise(uint64_t mask);
/* What is effective is as before caps_raise(). */
void caps_lower(const struct caps_sets *before);
/*
 * Text for the end of a log line: which of these are missing, "" when none is. Of CAP_BPF and
 * CAP_PERFMON none is while CAP_SYS_ADMIN is there.
 */
const char *caps_missing(uint64_t caps, char *text, size_t size);

#endif
