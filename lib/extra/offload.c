/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What of the program is offloaded, as it says itself: by thread, and by rules. */
#include <pthread.h>
#include <stdlib.h>

#include "config/config.h"
#include "extra/internal.h"

/* Threads that something was said of. One that ends leaves its entry; its id may come again. */
struct said {
	struct said *next;
	pthread_t thread;
	_Atomic bool offload;
};

static struct said *_Atomic all_said;

static struct said *find(pthread_t thread)
{
	struct said *s = atomic_load_explicit(&all_said, memory_order_acquire);

	while (s && !pthread_equal(s->thread, thread))
		s = s->next;
	return s;
}

bool extra_offloads_here(void)
{
	struct said *s = find(pthread_self());

	return s ? atomic_load_explicit(&s->offload, memory_order_relaxed)
		 : params.offloaded_sockets != 0;
}

int extra_thread_offload(int offload, pthread_t tid)
{
	struct said *s = find(tid);

	if (offload != 0 && offload != 1)
		return extra_fail(EINVAL);
	if (s) {
		atomic_store_explicit(&s->offload, offload, memory_order_relaxed);
		return 0;
	}
	s = malloc(sizeof(*s));
	if (!s)
		return extra_fail(ENOMEM);
	s->thread = tid;
	atomic_store_explicit(&s->offload, offload, memory_order_relaxed);
	s->next = atomic_load_explicit(&all_said, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&all_said, &s->next, s, memory_order_release,
						      memory_order_relaxed))
		;
	return 0;
}

int extra_add_conf_rule(const char *line)
{
	return extra_result(line ? rules_add_top(line) : -EINVAL);
}
