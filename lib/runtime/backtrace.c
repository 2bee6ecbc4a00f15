/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/backtrace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdint.h>
#include <ucontext.h>

#define FRAMES_MAX 64

void backtrace_prepare(void)
{
	void *frame[1];

	(void)backtrace(frame, 1);
}

/* Where the thread was; NULL: not known. */
static const void *interrupted_at(const void *context)
{
#if defined(__x86_64__)
	const ucontext_t *c = context;

	return c ? (const void *)(uintptr_t)c->uc_mcontext.gregs[REG_RIP] : NULL;
#elif defined(__aarch64__)
	const ucontext_t *c = context;

	return c ? (const void *)(uintptr_t)c->uc_mcontext.pc : NULL;
#else
	(void)context;
	return NULL;
#endif
}

static void frame_log(enum log_level level, int number, void *at)
{
	struct dl_find_object found;
	const char *name;

	/* dladdr() takes a lock that the thread may hold. */
	if (_dl_find_object(at, &found)) {
		log_at(level, "#%-2d %p", number, at);
		return;
	}
	name = found.dlfo_link_map->l_name;
	log_at(level, "#%-2d %s(+0x%lx) [%p]", number, name && *name ? name : "the program",
	       (unsigned long)((uintptr_t)at - found.dlfo_link_map->l_addr), at);
}

void backtrace_log(enum log_level level, const void *context)
{
	const void *from = interrupted_at(context);
	void *frames[FRAMES_MAX];
	int n = backtrace(frames, FRAMES_MAX), first = 0;

	while (first < n && from && frames[first] != from)
		first++;
	if (first == n)
		first = 0;
	for (int i = first; i < n; i++)
		frame_log(level, i - first, frames[i]);
}
