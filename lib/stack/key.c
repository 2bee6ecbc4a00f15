/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "runtime/runtime.h"
#include "stack/key.h"

#define KEY(kind, value) ((uint64_t)(kind) << 56 | ((uint64_t)(value)&0xffffffffffffffull))

/* Threads that were pinned to each processor. */
static pthread_mutex_t pin_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned pinned[CPU_SETSIZE];
static __thread int my_cpu = -1; /* not -1: pinned, or not to be */

static uint64_t key_of_address(const struct in6_addr *a)
{
	uint64_t half[2];

	if (IN6_IS_ADDR_UNSPECIFIED(a))
		return KEY(STACK_BY_IP, 0);
	memcpy(half, a, sizeof(half));
	return KEY(STACK_BY_IP, half[0] * 31 ^ half[1] ^ half[1] >> 29);
}

/*
 * Of the processors that the thread may use, the one with the fewest threads of ours; the one where
 * it runs, if that is one of them.
 */
static int least_pinned(const cpu_set_t *allowed, int now)
{
	int best = now >= 0 && now < CPU_SETSIZE && CPU_ISSET(now, allowed) ? now : -1;

	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, allowed) && (best < 0 || pinned[i] < pinned[best]))
			best = i;
	}
	return best;
}

/* VMA_RING_ALLOCATION_LOGIC_*=31. Returns the processor that the thread is on from now on. */
static int pin_self(void)
{
	cpu_set_t set;
	int cpu, err;

	if (my_cpu >= 0)
		return my_cpu;
	cpu = sched_getcpu();
	pthread_mutex_lock(&pin_lock);
	err = pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
	if (!err && CPU_COUNT(&set) > 1) {
		cpu = least_pinned(&set, cpu);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		err = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	}
	if (err)
		log_warn("a thread cannot be pinned to processor %d "
			 "(VMA_RING_ALLOCATION_LOGIC_*=31): %s",
			 cpu, strerror(err));
	my_cpu = cpu < 0 ? 0 : cpu;
	if (my_cpu < CPU_SETSIZE)
		pinned[my_cpu]++;
	pthread_mutex_unlock(&pin_lock);
	return my_cpu;
}

void stack_keys_forked(void)
{
	/* Another thread of the parent may have held it. */
	pthread_mutex_init(&pin_lock, NULL);
	memset(pinned, 0, sizeof(pinned));
	if (my_cpu >= 0 && my_cpu < CPU_SETSIZE)
		pinned[my_cpu]++;
}

uint64_t stack_key_by(int logic, const struct stack_client *c)
{
	int cpu;

	switch (logic) {
	case STACK_BY_IP:
		return key_of_address(&c->local);
	case STACK_BY_SOCKET:
		return KEY(STACK_BY_SOCKET, c->socket + 1);
	case STACK_BY_THREAD:
		return KEY(STACK_BY_THREAD, lock_self());
	case STACK_BY_CORE:
		cpu = sched_getcpu();
		return KEY(STACK_BY_CORE, cpu < 0 ? 0 : cpu + 1);
	case STACK_BY_CORE_PINNED:
		return KEY(STACK_BY_CORE, pin_self() + 1);
	default:
		return 0;
	}
}

/* Keys of different profiles differ in bits that no logic uses. */
uint64_t stack_key_by_attr(stack_ring_attr w, int otherwise, const struct stack_client *c)
{
	int logic = stack_ring_attr_logic(w, otherwise);
	uint64_t profile = (w >> 40) % STACK_PROFILES, user = (uint32_t)w;

	return (logic == STACK_BY_USER ? KEY(STACK_BY_USER, user + 1) : stack_key_by(logic, c)) ^
	       profile << 61;
}

bool stack_mover_compare(struct stack_mover *m, uint64_t owner, uint64_t now)
{
	if (now == owner || now != m->candidate) {
		m->candidate = now == owner ? 0 : now;
		return false;
	}
	m->candidate = 0;
	return true;
}

enum stack_pick stack_pick(const struct stack_choice *rings, unsigned n, unsigned limit,
			   unsigned *at)
{
	unsigned least = 0;

	for (unsigned i = 0; i < n; i++) {
		/* The interface's own ring is everybody's who has no key, always. */
		if (rings[i].key && !rings[i].users) {
			*at = i;
			return STACK_PICK_IDLE;
		}
		if (rings[i].users < rings[least].users)
			least = i;
	}
	*at = least;
	return n && limit && n >= limit ? STACK_PICK_SHARE : STACK_PICK_NEW;
}
