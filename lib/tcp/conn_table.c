/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The 4-tuple table. It doubles when there are as many nodes as buckets; the old buckets move a few
 * at each addition, so that no segment waits for a million nodes to be moved.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp/internal.h"

#define FIRST_BUCKETS 64u
#define MAX_BUCKETS (1u << 30)
#define MOVED_AT_ONCE 2u /* old buckets for each addition: done long before the next doubling */

static inline uint32_t hash_tuple(const struct tcp_table *t, const struct tcp_tuple *tuple)
{
	uint64_t words[5];

	words[0] = (uint64_t)tuple->lport << 16 | tuple->rport;
	if (tuple->family == AF_INET) {
		memcpy(&words[1], &tuple->local.s6_addr[12], 4);
		memcpy((uint8_t *)&words[1] + 4, &tuple->remote.s6_addr[12], 4);
		return (uint32_t)siphash(t->key, words, 16);
	}
	memcpy(&words[1], &tuple->local, 16);
	memcpy(&words[3], &tuple->remote, 16);
	return (uint32_t)siphash(t->key, words, 40);
}

static inline bool same_tuple(const struct tcp_tuple *a, const struct tcp_tuple *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* Where the chain of a hash begins: in the old buckets if that one has not moved. */
static inline struct tcp_node **chain(const struct tcp_table *t, uint32_t hash)
{
	if (t->old && (hash & t->old_mask) >= t->moved)
		return &t->old[hash & t->old_mask];
	return &t->bucket[hash & t->mask];
}

int tcp_table_init(struct tcp_table *t, const struct tcp_env *env, const uint64_t key[2])
{
	*t = (struct tcp_table){.mask = FIRST_BUCKETS - 1, .key = {key[0], key[1]}};
	t->bucket = env->alloc(env->ctx, FIRST_BUCKETS * sizeof(struct tcp_node *));
	return t->bucket ? 0 : -ENOMEM;
}

static void free_old(struct tcp_table *t, const struct tcp_env *env)
{
	if (t->old)
		env->free(env->ctx, t->old, (t->old_mask + (size_t)1) * sizeof(struct tcp_node *));
	t->old = NULL;
}

void tcp_table_fini(struct tcp_table *t, const struct tcp_env *env)
{
	free_old(t, env);
	if (t->bucket)
		env->free(env->ctx, t->bucket, (t->mask + (size_t)1) * sizeof(struct tcp_node *));
	t->bucket = NULL;
	t->count = 0;
}

struct tcp_node *tcp_table_find(const struct tcp_table *t, const struct tcp_tuple *tuple)
{
	uint32_t hash = hash_tuple(t, tuple);
	struct tcp_node *n = *chain(t, hash);

	while (n && (n->hash != hash || !same_tuple(&n->tuple, tuple)))
		n = n->next;
	return n;
}

static void each_of(struct tcp_node *const *bucket, uint32_t from, uint32_t mask,
		    void (*fn)(const struct tcp_node *n, void *arg), void *arg)
{
	for (uint32_t i = from; i <= mask; i++) {
		for (const struct tcp_node *n = bucket[i]; n; n = n->next)
			fn(n, arg);
	}
}

void tcp_table_each(const struct tcp_table *t, void (*fn)(const struct tcp_node *n, void *arg),
		    void *arg)
{
	each_of(t->bucket, 0, t->mask, fn, arg);
	if (t->old)
		each_of(t->old, t->moved, t->old_mask, fn, arg);
}

/* Moves the next old buckets; the last one ends the doubling. */
static void move_some(struct tcp_table *t, const struct tcp_env *env)
{
	for (unsigned i = 0; i < MOVED_AT_ONCE && t->old; i++) {
		struct tcp_node *n = t->old[t->moved++];

		while (n) {
			struct tcp_node *next = n->next, **to = &t->bucket[n->hash & t->mask];

			n->next = *to;
			*to = n;
			n = next;
		}
		if (t->moved > t->old_mask)
			free_old(t, env);
	}
}

static void grow(struct tcp_table *t, const struct tcp_env *env)
{
	uint32_t buckets = (t->mask + 1) * 2;
	struct tcp_node **fresh;

	if (t->old || t->mask + 1 >= MAX_BUCKETS)
		return;
	fresh = env->alloc(env->ctx, buckets * sizeof(struct tcp_node *));
	if (!fresh)
		return;
	t->old = t->bucket;
	t->old_mask = t->mask;
	t->moved = 0;
	t->bucket = fresh;
	t->mask = buckets - 1;
}

void tcp_table_add(struct tcp_table *t, const struct tcp_env *env, struct tcp_node *n)
{
	struct tcp_node **to;

	if (t->count > t->mask)
		grow(t, env);
	move_some(t, env);
	n->hash = hash_tuple(t, &n->tuple);
	to = chain(t, n->hash);
	n->next = *to;
	*to = n;
	t->count++;
}

/* The link that points to n, which must be there. */
static struct tcp_node **link_of(struct tcp_table *t, const struct tcp_node *n)
{
	struct tcp_node **at = chain(t, n->hash);

	while (*at != n)
		at = &(*at)->next;
	return at;
}

void tcp_table_del(struct tcp_table *t, struct tcp_node *n)
{
	*link_of(t, n) = n->next;
	n->next = NULL;
	t->count--;
}

void tcp_table_replace(struct tcp_table *t, struct tcp_node *old, struct tcp_node *n)
{
	n->hash = old->hash;
	n->next = old->next;
	*link_of(t, old) = n;
	old->next = NULL;
}
