/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "runtime/atfork.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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

/* --- before or after those of others */

enum order_state { ORDER_NOT_BEGUN, ORDER_WAITS, ORDER_REGISTERED };

static _Atomic int state = ORDER_NOT_BEGUN;
static _Atomic bool allocator_has_registered;
static void (*our_prepare)(void), (*our_parent)(void), (*our_child)(void);

void atfork_settle(void)
{
	int waits = ORDER_WAITS;

	if (atomic_load_explicit(&state, memory_order_relaxed) == ORDER_WAITS &&
	    atomic_compare_exchange_strong(&state, &waits, ORDER_REGISTERED))
		atfork_add(our_prepare, our_parent, our_child);
}

/* Where two addresses are in the list of what is loaded; 0: in the program itself. */
struct places {
	uintptr_t allocator, own;
	int at, allocator_at, own_at;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct places *p = arg;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;

		if (h->p_type != PT_LOAD)
			continue;
		if (p->allocator - from < h->p_memsz)
			p->allocator_at = p->at;
		if (p->own - from < h->p_memsz)
			p->own_at = p->at;
	}
	p->at++;
	return 0;
}

static bool same_object(const void *a, const void *b)
{
	Dl_info of_a, of_b;

	return dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
}

/* What stands before us is started after us. The program's own allocator is not waited for. */
static bool allocator_starts_later(void)
{
	struct places p = {.allocator = (uintptr_t)malloc, .own = (uintptr_t)look};

	dl_iterate_phdr(look, &p);
	return p.allocator_at && p.allocator_at < p.own_at;
}

/* Some register their handlers when they are asked for the first time. */
static void allocator_begin(void)
{
	void *volatile first = malloc(1);

	free(first);
}

void atfork_add_behind_allocator(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	our_prepare = prepare;
	our_parent = parent;
	our_child = child;
	atomic_store(&state, ORDER_WAITS);
	/* libc's has none; and it is before us in the list when we are loaded late. */
	if (same_object((void *)malloc, (void *)gnu_get_libc_version)) {
		atfork_settle();
		return;
	}
	allocator_begin();
	if (atomic_load(&allocator_has_registered) || !allocator_starts_later())
		atfork_settle();
}

bool atfork_is_allocators(void (*fn)(void))
{
	return atomic_load_explicit(&state, memory_order_relaxed) != ORDER_REGISTERED && fn &&
	       same_object((void *)fn, (void *)malloc);
}

void atfork_allocator_registered(void)
{
	atomic_store(&allocator_has_registered, true);
	atfork_settle();
}

/* --- of all */

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
