/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "wait/own.h"
#include "wait/quota.h"
#include "wait/spin.h"
#include "wait/wait.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "stats/stats.h"

/*
 * The figures: a sleep with its wake-up costs 5 to 50 us, by the machine, and two programs that
 * both spin answer each other in 7 (docs/bench.md). A window begins at what a dear wake-up costs,
 * and ends where an answer comes too late to make up for the spin even there.
 */
#define WINDOW_MOST_NS 204800u
enum spin_level {
	LEVEL_UNKNOWN,
	LEVEL_NONE, /* its waits are too long */
	LEVEL_LEAST,
	LEVEL_FIRST = LEVEL_LEAST + 3,
	LEVEL_MOST = LEVEL_LEAST + 5,
};

/* What an event caught by spinning is worth, and the share of the time that may be lost: 1/32. */
#define BUDGET_HIT_NS 20000
#define BUDGET_MOST_NS 1000000
#define BUDGET_TIME_SHIFT 5

/* A gap this long between two looks, or a yield that takes so long: somebody else ran. */
#define GAP_NS 30000u
#define YIELD_LATE_NS 10000u
#define YIELD_EVERY_NS 10000u
/* For so long a thread that shares its processor does not spin; doubled while that goes on. */
#define SHARED_FIRST_NS 1000000ull
#define SHARED_MOST_NS 1000000000ull
/* Looked at when so much was lost; less than this part (1/8) of the time is not sharing. */
#define SHARED_SUM_NS 200000u
#define SHARED_SPAN_NS 20000000u /* of the time before, so much counts */
#define SHARED_SMALL_SHIFT 3

/* Longer spins, at most so many at a time: a place is free when its stamp is older than this. */
#define PLACES_MOST 64u
#define PLACE_STALE_NS 50000u

/*
 * A crowded wait counts one, any other takes away CROWDED_LESS; at CROWDED_ENOUGH the kernel had
 * better serve the socket, at CROWDED_SOON where it has others of the crowd.
 */
#define CROWDED_ENOUGH 31u
#define CROWDED_SOON 8u
#define CROWDED_LESS 4u
/* Of a crowd that the kernel serves more and more of, the last ones belong to it as well. */
#define CROWD_LASTS_NS 10000000000ull
/* Of wait_spin_memory.seen. */
#define LEVEL_BITS 3u
#define LEVEL_MASK ((1u << LEVEL_BITS) - 1)
_Static_assert(LEVEL_MOST <= LEVEL_MASK && CROWDED_ENOUGH << LEVEL_BITS <= UINT8_MAX,
	       "struct wait_spin_memory has room for both");

/*
 * Who spins for longer than a moment stamps one with each yield. Nobody has to give it back, so
 * neither a fork() nor a cancelled thread leaves one taken.
 */
static _Atomic uint64_t places[PLACES_MOST];
static unsigned num_places;
/* Of the process, by wait_start(). */
static _Atomic unsigned num_processors = UINT_MAX;
static _Atomic uint64_t crowd_until_ns;
static pthread_once_t places_once = PTHREAD_ONCE_INIT;

/* Those that the thread (0: this one) may run on; 0 where that cannot be said. */
static unsigned processors(pid_t thread)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (libc_raw(SYS_sched_getaffinity, thread, sizeof(set), (long)(uintptr_t)&set, 0, 0, 0) >
	    0)
		return (unsigned)CPU_COUNT(&set);
	return 0;
}

/*
 * What wait_processors() says, where the first thread may run on so many. A program that has pinned
 * itself to one processor may have threads on others.
 */
static void processors_note(unsigned first)
{
	unsigned self = processors(0), n = first > self ? first : self;

	atomic_store_explicit(&num_processors, first && self && n > 1 ? n : UINT_MAX,
			      memory_order_relaxed);
}

/* One less than there are processors: somebody may have to run for what is waited for. */
static void places_count(void)
{
	unsigned n = processors(0);

	n = n > 2 ? n - 1 : 1;
	num_places = n < PLACES_MOST ? n : PLACES_MOST;
}

void wait_start(void)
{
	/* Of the process: its threads may be pinned, this one, too. */
	unsigned first = processors(getpid());
	struct wait_quota q = quota_read("", first ? first : 2);

	processors_note(first);
	quota_set(q);
	if (q.cpu_ns)
		log_debug("the control group allows %u us of processor time in %u us: waits spin "
			  "until half of it is used",
			  (unsigned)(q.cpu_ns / 1000), (unsigned)(q.period_ns / 1000));
}

/* False: enough threads spin. Who has a place has it again, or another. */
static bool place_stamp(uint64_t now_ns)
{
	struct wait_spins *self = &wait_own()->spins;

	pthread_once(&places_once, places_count);
	for (unsigned i = 0; i < num_places; i++) {
		uint64_t stamp = atomic_load_explicit(&places[i], memory_order_relaxed);

		if (stamp != self->stamp_ns && stamp + PLACE_STALE_NS > now_ns)
			continue;
		if (atomic_compare_exchange_strong_explicit(&places[i], &stamp, now_ns,
							    memory_order_relaxed,
							    memory_order_relaxed)) {
			self->stamp_ns = now_ns;
			return true;
		}
	}
	return false;
}

static void budget_fill(uint64_t now_ns)
{
	struct wait_spins *self = &wait_own()->spins;
	uint64_t share = (now_ns - self->filled_ns) >> BUDGET_TIME_SHIFT;

	/* At its first wait filled_ns is 0: a whole budget. */
	self->budget_ns =
		share < BUDGET_MOST_NS ? self->budget_ns + (int64_t)share : BUDGET_MOST_NS;
	if (self->budget_ns > BUDGET_MOST_NS)
		self->budget_ns = BUDGET_MOST_NS;
	if (self->budget_ns <= 0)
		self->is_poor = true;
	else if (self->budget_ns >= BUDGET_MOST_NS / 2)
		self->is_poor = false;
	self->filled_ns = now_ns;
}

/*
 * Somebody else has had the processor for lost_ns. Where that is a small share of the time, it is
 * no reason to sleep. Otherwise he gets it, for longer each time that it happens soon.
 */
static void shared(uint64_t now_ns, uint64_t lost_ns)
{
	struct wait_spins *self = &wait_own()->spins;
	uint64_t passed = now_ns - self->lost_since_ns, ns;

	if (passed > SHARED_SPAN_NS)
		passed = SHARED_SPAN_NS;
	self->lost_ns += lost_ns;
	if (self->lost_ns < SHARED_SUM_NS)
		return;
	if (self->lost_ns >= passed >> SHARED_SMALL_SHIFT) {
		ns = passed < 4 * self->shared_for_ns ? 2 * self->shared_for_ns : SHARED_FIRST_NS;
		self->shared_for_ns = ns < SHARED_MOST_NS ? ns : SHARED_MOST_NS;
		self->shared_until_ns = now_ns + self->shared_for_ns;
	}
	self->lost_ns = 0;
	self->lost_since_ns = now_ns < self->shared_until_ns ? self->shared_until_ns : now_ns;
}

static uint64_t window_ns(unsigned level)
{
	return level == LEVEL_NONE ? 0 : WINDOW_MOST_NS >> (LEVEL_MOST - level);
}

/* Why a thread does not spin at now_ns, if it does not; VMA_SLEPTS: it does. */
static enum vma_slept kept_from(const struct wait_spins *self, uint64_t window, uint64_t now_ns)
{
	if (!window)
		return VMA_SLEPT_LONG;
	if (now_ns < self->shared_until_ns)
		return VMA_SLEPT_SHARED;
	if (self->is_poor)
		return VMA_SLEPT_BUDGET;
	return quota_near(now_ns) ? VMA_SLEPT_QUOTA : VMA_SLEPTS;
}

bool spin_begin(struct wait_spin *sp, struct wait_spin_memory *memory, uint64_t now_ns)
{
	struct wait_spins *self = &wait_own()->spins;
	unsigned level = atomic_load_explicit(&memory->seen, memory_order_relaxed) & LEVEL_MASK;
	uint64_t window = window_ns(level ? level : LEVEL_FIRST);

	budget_fill(now_ns);
	*sp = (struct wait_spin){.memory = memory,
				 .began_ns = now_ns,
				 .looked_ns = now_ns,
				 .until_ns = now_ns,
				 .lock_sleeps = lock_thread.sleeps,
				 .yield_ns = now_ns + YIELD_EVERY_NS};
	sp->why = kept_from(self, window, now_ns);
	sp->stopped = sp->why != VMA_SLEPTS;
	if (sp->stopped)
		return false;
	sp->why = VMA_SLEPT_WINDOW;
	sp->until_ns += window;
	return true;
}

/*
 * Gives the processor to whoever waits for it. False: somebody did, enough threads spin, or the
 * process has used enough of the processor.
 */
static bool yield(struct wait_spin *sp, uint64_t now_ns)
{
	uint64_t after;

	sp->why = quota_near(now_ns) ? VMA_SLEPT_QUOTA : VMA_SLEPT_CROWD;
	if (sp->why == VMA_SLEPT_QUOTA || !place_stamp(now_ns))
		return false;
	sp->why = VMA_SLEPT_SHARED;
	libc_raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	after = clock_monotonic_ns();
	if (after - now_ns > YIELD_LATE_NS) {
		shared(after, after - now_ns);
		return false;
	}
	sp->why = VMA_SLEPT_WINDOW;
	sp->looked_ns = after;
	sp->yield_ns = after + YIELD_EVERY_NS;
	return true;
}

bool spin_goes_on(struct wait_spin *sp, uint64_t now_ns)
{
	uint64_t gap = now_ns - sp->looked_ns;

	/* A sleep for a lock says nothing of the processor. */
	if (__builtin_expect(sp->lock_sleeps != lock_thread.sleeps, 0)) {
		sp->lock_sleeps = lock_thread.sleeps;
		gap = 0;
	}
	if (gap > GAP_NS) {
		shared(now_ns, gap); /* it has not spun in there */
		sp->why = VMA_SLEPT_SHARED;
		sp->stopped = true;
		return false;
	}
	sp->looked_ns = now_ns;
	if (now_ns >= sp->until_ns)
		sp->stopped = true;
	else if (now_ns >= sp->yield_ns)
		sp->stopped = !yield(sp, now_ns);
	return !sp->stopped;
}

/* What is remembered after a wait of so long; slept: the spin, if any, has not seen its end. */
static unsigned level_after(unsigned level, uint64_t took_ns, bool slept)
{
	if (!level)
		level = LEVEL_FIRST;
	if (took_ns > WINDOW_MOST_NS)
		return level > LEVEL_NONE ? level - 1 : level;
	return slept && level < LEVEL_MOST ? level + 1 : level;
}

unsigned wait_processors(void)
{
	return atomic_load_explicit(&num_processors, memory_order_relaxed);
}

bool wait_crowd_lasts(uint64_t now_ns)
{
	return now_ns < atomic_load_explicit(&crowd_until_ns, memory_order_relaxed);
}

bool wait_is_crowded(const struct wait_spin_memory *memory)
{
	unsigned crowded = atomic_load_explicit(&memory->seen, memory_order_relaxed) >> LEVEL_BITS;

	if (__builtin_expect(crowded < CROWDED_SOON, 1))
		return false;
	return crowded >= CROWDED_ENOUGH || wait_crowd_lasts(clock_monotonic_ns());
}

void wait_crowd_left(struct wait_spin_memory *memory, bool went)
{
	unsigned seen = atomic_load_explicit(&memory->seen, memory_order_relaxed);

	atomic_store_explicit(&memory->seen, (uint8_t)(seen & LEVEL_MASK), memory_order_relaxed);
	/* Those that go because others went do not make it last: it ends with the crowd. */
	if (went && seen >> LEVEL_BITS >= CROWDED_ENOUGH)
		atomic_store_explicit(&crowd_until_ns, clock_monotonic_ns() + CROWD_LASTS_NS,
				      memory_order_relaxed);
}

/* How crowded it was, after a wait that slept, or did not. */
static unsigned crowded_after(unsigned was, bool slept)
{
	if (slept && wait_crowded())
		return was < CROWDED_ENOUGH ? was + 1 : was;
	return was > CROWDED_LESS ? was - CROWDED_LESS : 0;
}

void spin_end(struct wait_spin *sp, bool came)
{
	struct wait_spins *self;
	unsigned was, is;
	uint64_t took;

	if (!sp->memory)
		return;
	self = &wait_own()->spins;
	self->budget_ns -= (int64_t)(sp->looked_ns - sp->began_ns);
	if (came && !sp->stopped)
		self->budget_ns += BUDGET_HIT_NS;
	if (!came)
		took = UINT64_MAX;
	else
		took = (sp->stopped ? clock_monotonic_ns() : sp->looked_ns) - sp->began_ns;
	was = atomic_load_explicit(&sp->memory->seen, memory_order_relaxed);
	is = level_after(was & LEVEL_MASK, took, sp->stopped) |
	     (came ? crowded_after(was >> LEVEL_BITS, sp->stopped) : was >> LEVEL_BITS)
		     << LEVEL_BITS;
	if (is != was)
		atomic_store_explicit(&sp->memory->seen, (uint8_t)is, memory_order_relaxed);
	sp->memory = NULL;
}

void wait_count(struct vma_stats_waits *to, bool spun, bool slept, bool came, enum vma_slept why)
{
	if (slept) {
		stats_add(&to->slept, 1);
		stats_add(&to->why[why], 1);
	}
	if (spun)
		stats_add(slept || !came ? &to->spun_in_vain : &to->spun, 1);
}
