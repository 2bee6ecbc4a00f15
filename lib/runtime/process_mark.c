/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/process_mark.h"

#include <stdatomic.h>
#include <unistd.h>

static _Atomic uint32_t forks; /* from the process that has loaded the library to this one */
static pid_t loaded_by;

pid_t process_loaded_by(void)
{
	if (!loaded_by)
		loaded_by = getpid();
	return loaded_by;
}

__attribute__((constructor)) static void note_pid(void)
{
	process_loaded_by();
}

uint64_t process_mark(void)
{
	/* The pid, too: of a process that was made behind our back nobody has counted. */
	return (uint64_t)atomic_load_explicit(&forks, memory_order_relaxed) << 32 |
	       (uint32_t)getpid();
}

bool process_is_copy(void)
{
	return atomic_load_explicit(&forks, memory_order_relaxed) || getpid() != loaded_by;
}

void process_mark_forked(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}
