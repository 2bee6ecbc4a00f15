/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A hash table of small fixed records with lock-free readers: what every table of the mirror is
 * made of. Readers take no lock and may be signal handlers; a writer holds the table's lock with
 * signals blocked.
 */
#ifndef NET_HASH_H
#define NET_HASH_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TABLE_WORDS_MAX 18

struct net_table_slots;

/*
 * A record is a struct of 64-bit words without uninitialised padding: first the key (its first
 * hash_words are hashed), then the value, last one word that is stored but not compared.
 */
struct net_table {
	unsigned words;
	unsigned key_words;
	unsigned hash_words;
	uint32_t used; /* writer's */
	uint32_t hand; /* writer's: where net_table_evict() goes on */
	_Atomic uint32_t seq; /* odd while a writer changes slots */
	_Atomic(struct net_table_slots *)
		slots; /* never freed once published: a reader may still look */
	pthread_mutex_t lock;
};

#define TABLE_INIT(type, first_value, hash_bytes)                                                  \
	{                                                                                          \
		.words = sizeof(type) / 8, .key_words = offsetof(type, first_value) / 8,           \
		.hash_words = (hash_bytes) / 8, .lock = PTHREAD_MUTEX_INITIALIZER,                 \
	}
#define TABLE_CHECK(type, first_value)                                                             \
	_Static_assert(sizeof(type) % 8 == 0 && sizeof(type) / 8 <= TABLE_WORDS_MAX &&             \
			       offsetof(type, first_value) % 8 == 0,                               \
		       "a record is made of whole words")

enum net_table_change { TABLE_SAME, TABLE_CHANGED, TABLE_ADDED };

/*
 * True when rec is the one looked for. Must compare the hashed words too; may see a torn record,
 * whose answer is discarded.
 */
typedef bool (*net_table_match)(const void *rec, const void *arg);
typedef bool (*net_table_visit)(const void *rec, void *arg);

/*
 * Copies the record with the hashed words of `key` into rec: the one that match accepts, or the one
 * of the same key.
 */
bool net_table_find(struct net_table *t, const void *key, net_table_match match, const void *arg,
		    void *rec);

/* Blocks all signals and locks; `old` receives the mask to give back. */
void net_table_lock(struct net_table *t, sigset_t *old);
void net_table_unlock(struct net_table *t, const sigset_t *old);

/* The rest needs the lock. */
/* Inserts or replaces. What it did, or -ENOMEM. */
int net_table_put(struct net_table *t, const void *rec);
/* True when there was one. */
bool net_table_del(struct net_table *t, const void *key);
/* Removes an arbitrary record, in constant time on average. */
void net_table_evict(struct net_table *t);
/* Removes all that `drop` says true for; returns how many. */
unsigned net_table_sweep(struct net_table *t, net_table_visit drop, void *arg);
/* Visits all until fn says false. */
void net_table_each(struct net_table *t, net_table_visit fn, void *arg);

/*
 * In the child of a fork(): another thread may have been writing. The memory is abandoned, the
 * table empty.
 */
void net_table_forked(struct net_table *t);

/* Keyed by a secret of this process, so that strangers cannot choose colliding addresses. */
uint64_t net_table_hash(const void *words, unsigned count);
/* Draws the secret. Before the first net_table_put(). */
void net_table_seed(void);

#endif
