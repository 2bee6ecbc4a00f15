/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Open addressing with linear probing and a sequence counter. The words of a slot are atomics: the
 * writer makes seq odd and stores them with release, the reader loads them with acquire and looks
 * at seq again; a reader that saw any new word therefore sees the odd seq (or a later one) and
 * starts over.
 */
#include "net/hash.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "runtime/runtime.h"

/* Slots at first; doubled when half of them are used. */
#define SLOTS_MIN 64u
/* Attempts of a reader before it queues for the writer's lock. */
#define READ_SPINS 64

struct net_table_slots {
	uint32_t mask;
	uint32_t stride; /* words in a slot: the tag and the record */
	struct net_table_slots *older; /* keeps what readers may still look at reachable */
	_Atomic uint64_t w[]; /* a slot: its tag (0: empty, else the hash) and the record */
};

static uint64_t secret[2];

void net_table_seed(void)
{
	struct timespec now;

	if (secret[0])
		return;
	if (libc_raw(SYS_getrandom, (long)(uintptr_t)secret, sizeof(secret), GRND_NONBLOCK, 0, 0,
		     0) != (long)sizeof(secret)) {
		/* Early boot: the pool is not ready. Guessable is better than waiting. */
		clock_gettime(CLOCK_MONOTONIC, &now);
		secret[0] = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u;
		secret[1] = (uint64_t)(uintptr_t)&now * 0xc2b2ae3d27d4eb4fu;
	}
	secret[0] |= 1;
	secret[1] |= 1;
}

uint64_t net_table_hash(const void *words, unsigned count)
{
	uint64_t h = secret[0], w;
	unsigned __int128 product;

	for (unsigned i = 0; i < count; i++) {
		memcpy(&w, (const char *)words + 8 * i, 8);
		product = (unsigned __int128)(w ^ h) * (secret[1] + 2 * i);
		h = (uint64_t)product ^ (uint64_t)(product >> 64) ^ secret[0];
	}
	return h;
}

/* The tag of a record or key; never 0. */
static uint64_t tag_of(const struct net_table *t, const void *key)
{
	return net_table_hash(key, t->hash_words) | (uint64_t)1 << 63;
}

static _Atomic uint64_t *slot_at(struct net_table_slots *s, uint32_t i)
{
	return &s->w[(size_t)i * s->stride];
}

static void slot_load(const _Atomic uint64_t *slot, uint64_t *rec, unsigned words)
{
	for (unsigned i = 0; i < words; i++)
		rec[i] = atomic_load_explicit(&slot[1 + i], memory_order_acquire);
}

static void slot_store(_Atomic uint64_t *slot, uint64_t tag, const uint64_t *rec, unsigned words)
{
	for (unsigned i = 0; i < words; i++)
		atomic_store_explicit(&slot[1 + i], rec[i], memory_order_release);
	atomic_store_explicit(slot, tag, memory_order_release);
}

static uint64_t slot_tag(const _Atomic uint64_t *slot)
{
	return atomic_load_explicit(slot, memory_order_acquire);
}

/* Only the writer changes seq. */
static void write_begin(struct net_table *t)
{
	uint32_t seq = atomic_load_explicit(&t->seq, memory_order_relaxed);

	atomic_store_explicit(&t->seq, seq + 1, memory_order_relaxed);
}

static void write_end(struct net_table *t)
{
	uint32_t seq = atomic_load_explicit(&t->seq, memory_order_relaxed);

	atomic_store_explicit(&t->seq, seq + 1, memory_order_release);
}

/* The slot's index or -1; rec holds its record. */
static int64_t probe(const struct net_table *t, struct net_table_slots *s, const void *key,
		     net_table_match match, const void *arg, uint64_t *rec)
{
	uint64_t tag = tag_of(t, key), found;
	uint32_t i = (uint32_t)tag & s->mask;

	for (uint32_t n = 0; n <= s->mask; n++, i = (i + 1) & s->mask) {
		_Atomic uint64_t *slot = slot_at(s, i);

		found = slot_tag(slot);
		if (!found)
			return -1;
		if (found != tag)
			continue;
		slot_load(slot, rec, t->words);
		if (match ? match(rec, arg) : !memcmp(rec, key, 8 * (size_t)t->key_words))
			return i;
	}
	return -1;
}

static bool find_locked(struct net_table *t, const void *key, net_table_match match,
			const void *arg, uint64_t *rec)
{
	sigset_t old;
	struct net_table_slots *s;
	bool found;

	net_table_lock(t, &old);
	s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	found = s && probe(t, s, key, match, arg, rec) >= 0;
	net_table_unlock(t, &old);
	return found;
}

bool net_table_find(struct net_table *t, const void *key, net_table_match match, const void *arg,
		    void *rec)
{
	uint64_t copy[TABLE_WORDS_MAX];
	struct net_table_slots *s;
	bool found = false;
	uint32_t seq;
	int tries;

	for (tries = 0; tries < READ_SPINS; tries++) {
		seq = atomic_load_explicit(&t->seq, memory_order_acquire);
		s = atomic_load_explicit(&t->slots, memory_order_acquire);
		if (!s)
			return false;
		if (seq & 1)
			continue;
		found = probe(t, s, key, match, arg, copy) >= 0;
		if (atomic_load_explicit(&t->seq, memory_order_relaxed) == seq)
			break;
	}
	/*
	 * The writer was preempted in mid-change (perhaps by us, a real-time thread): sleep until
	 * it is done.
	 */
	if (tries == READ_SPINS)
		found = find_locked(t, key, match, arg, copy);
	if (found)
		memcpy(rec, copy, 8 * (size_t)t->words);
	return found;
}

void net_table_lock(struct net_table *t, sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	pthread_mutex_lock(&t->lock);
}

void net_table_unlock(struct net_table *t, const sigset_t *old)
{
	pthread_mutex_unlock(&t->lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

/*
 * The first empty slot of the tag's probe sequence. There is one: the table is at most half full.
 */
static _Atomic uint64_t *empty_slot(struct net_table_slots *s, uint64_t tag)
{
	uint32_t i = (uint32_t)tag & s->mask;

	while (slot_tag(slot_at(s, i)))
		i = (i + 1) & s->mask;
	return slot_at(s, i);
}

/* Makes room for one more record. */
static int grow(struct net_table *t)
{
	struct net_table_slots *old = atomic_load_explicit(&t->slots, memory_order_relaxed), *s;
	uint32_t count = old ? old->mask + 1 : 0;
	uint64_t rec[TABLE_WORDS_MAX], tag;

	if (2 * (t->used + 1) <= count)
		return 0;
	count = count ? 2 * count : SLOTS_MIN;
	s = calloc(1, sizeof(*s) + (size_t)count * (1 + t->words) * 8);
	if (!s)
		return -ENOMEM;
	s->mask = count - 1;
	s->stride = 1 + t->words;
	s->older = old;
	for (uint32_t i = 0; old && i <= old->mask; i++) {
		tag = slot_tag(slot_at(old, i));
		if (!tag)
			continue;
		slot_load(slot_at(old, i), rec, t->words);
		slot_store(empty_slot(s, tag), tag, rec, t->words);
	}
	write_begin(t);
	atomic_store_explicit(&t->slots, s, memory_order_release);
	write_end(t);
	return 0;
}

int net_table_put(struct net_table *t, const void *rec)
{
	uint64_t next[TABLE_WORDS_MAX], now[TABLE_WORDS_MAX], tag = tag_of(t, rec);
	struct net_table_slots *s;
	int64_t at;
	int err, change = TABLE_ADDED;

	err = grow(t);
	if (err)
		return err;
	s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	memcpy(next, rec, 8 * (size_t)t->words);
	at = probe(t, s, rec, NULL, NULL, now);
	if (at >= 0) {
		change = memcmp(now, next, 8 * (size_t)(t->words - 1)) ? TABLE_CHANGED : TABLE_SAME;
		if (change == TABLE_SAME && now[t->words - 1] == next[t->words - 1])
			return TABLE_SAME;
	} else {
		t->used++;
	}
	write_begin(t);
	slot_store(at >= 0 ? slot_at(s, (uint32_t)at) : empty_slot(s, tag), tag, next, t->words);
	write_end(t);
	return change;
}

/* Empties slot i and moves up those behind it that would no longer be found. */
static void slot_remove(struct net_table *t, struct net_table_slots *s, uint32_t i)
{
	uint64_t rec[TABLE_WORDS_MAX], tag;
	uint32_t hole = i, home;

	write_begin(t);
	for (i = (i + 1) & s->mask; (tag = slot_tag(slot_at(s, i))) != 0; i = (i + 1) & s->mask) {
		home = (uint32_t)tag & s->mask;
		/* Its probe sequence, from its home slot to i, does not pass the hole. */
		if (((i - home) & s->mask) < ((i - hole) & s->mask))
			continue;
		slot_load(slot_at(s, i), rec, t->words);
		slot_store(slot_at(s, hole), tag, rec, t->words);
		hole = i;
	}
	atomic_store_explicit(slot_at(s, hole), 0, memory_order_release);
	write_end(t);
	t->used--;
}

bool net_table_del(struct net_table *t, const void *key)
{
	struct net_table_slots *s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	uint64_t rec[TABLE_WORDS_MAX];
	int64_t at = s ? probe(t, s, key, NULL, NULL, rec) : -1;

	if (at < 0)
		return false;
	slot_remove(t, s, (uint32_t)at);
	return true;
}

void net_table_evict(struct net_table *t)
{
	struct net_table_slots *s = atomic_load_explicit(&t->slots, memory_order_relaxed);

	if (!t->used)
		return;
	do {
		t->hand = (t->hand + 1) & s->mask;
	} while (!slot_tag(slot_at(s, t->hand)));
	slot_remove(t, s, t->hand);
}

unsigned net_table_sweep(struct net_table *t, net_table_visit drop, void *arg)
{
	struct net_table_slots *s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	uint64_t rec[TABLE_WORDS_MAX];
	unsigned dropped = 0;

	for (uint32_t i = 0; s && i <= s->mask;) {
		slot_load(slot_at(s, i), rec, t->words);
		if (slot_tag(slot_at(s, i)) && drop(rec, arg)) {
			/* Look at i again: another record may have moved there. */
			slot_remove(t, s, i);
			dropped++;
		} else {
			i++;
		}
	}
	return dropped;
}

void net_table_each(struct net_table *t, net_table_visit fn, void *arg)
{
	struct net_table_slots *s = atomic_load_explicit(&t->slots, memory_order_relaxed);
	uint64_t rec[TABLE_WORDS_MAX];

	for (uint32_t i = 0; s && i <= s->mask; i++) {
		if (!slot_tag(slot_at(s, i)))
			continue;
		slot_load(slot_at(s, i), rec, t->words);
		if (!fn(rec, arg))
			return;
	}
}

void net_table_forked(struct net_table *t)
{
	pthread_mutex_init(&t->lock, NULL);
	atomic_store(&t->slots, NULL);
	atomic_store(&t->seq, 0);
	t->used = 0;
	t->hand = 0;
}
