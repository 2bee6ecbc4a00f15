/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/atfork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/log.h"

static struct {
	void (*prepare)(void), (*parent)(void), (*child)(void);
	_Atomic bool valid; /* written last */
} handlers[ATFORK_MAX];

static _Atomic unsigned num;

void atfork_add(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	unsigned i = atomic_fetch_add(&num, 1);

	if (i < ATFORK_MAX) {
		handlers[i].prepare = prepare;
		handlers[i].parent = parent;
		handlers[i].child = child;
		atomic_store_explicit(&handlers[i].valid, true, memory_order_release);
		pthread_atfork(prepare, parent, child);
	} else {
		log_panic("more than %d parts of the library follow fork()", ATFORK_MAX);
	}
}

static bool is_valid(unsigned i)
{
	return atomic_load_explicit(&handlers[i].valid, memory_order_acquire);
}

void atfork_prepare(void)
{
	for (unsigned i = ATFORK_MAX; i-- > 0;) {
		if (is_valid(i) && handlers[i].prepare)
			handlers[i].prepare();
	}
}

void atfork_parent(void)
{
	for (unsigned i = 0; i < ATFORK_MAX; i++) {
		if (is_valid(i) && handlers[i].parent)
			handlers[i].parent();
	}
}

void atfork_child(void)
{
	for (unsigned i = 0; i < ATFORK_MAX; i++) {
		if (is_valid(i) && handlers[i].child)
			handlers[i].child();
	}
}
