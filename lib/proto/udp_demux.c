/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto/udp_demux.h"

#include <string.h>
#include <sys/socket.h>

void udp_demux_init(struct udp_demux *d, uint64_t seed)
{
	memset(d, 0, sizeof(*d));
	d->seed = seed | 1;
}

static unsigned mix(const struct udp_demux *d, uint64_t key)
{
	key = (key ^ d->seed) * 0x9e3779b97f4a7c15ull;
	key ^= key >> 32;
	key *= d->seed;
	return (unsigned)(key >> 40) % UDP_DEMUX_BUCKETS;
}

static unsigned hash_bound(const struct udp_demux *d, uint16_t lport)
{
	return lport % UDP_DEMUX_BUCKETS ^ (unsigned)(d->seed % UDP_DEMUX_BUCKETS);
}

static unsigned hash_connected(const struct udp_demux *d, const struct in6_addr *remote,
			       uint16_t lport, uint16_t rport)
{
	uint64_t hi, lo;

	memcpy(&hi, &remote->s6_addr[0], 8);
	memcpy(&lo, &remote->s6_addr[8], 8);
	return mix(d, hi * 0xff51afd7ed558ccdull ^ lo ^
			      ((uint64_t)lport << 48 | (uint64_t)rport << 32));
}

static unsigned hash_bind(const struct udp_demux *d, const struct udp_bind *b)
{
	return b->connected ? hash_connected(d, &b->remote, b->lport, b->rport)
			    : hash_bound(d, b->lport);
}

/* The kernel puts these to the end (udp_lib_get_port()). */
static bool stands_last(const struct udp_bind *b)
{
	return b->family == AF_INET6 && b->reuseport;
}

/*
 * In the order of the kernel's chain: among equals without SO_REUSEPORT the last one bound
 * receives, whenever each of them has come to this table.
 */
static bool stands_before(const struct udp_bind *a, const struct udp_bind *b)
{
	if (stands_last(a) != stands_last(b))
		return stands_last(b);
	return stands_last(b) ? a->order <= b->order : a->order > b->order;
}

void udp_demux_add(struct udp_demux *d, struct udp_bind *b)
{
	struct udp_bind **head = &d->bucket[hash_bind(d, b)];

	while (*head && stands_before(*head, b))
		head = &(*head)->next;
	b->next = *head;
	*head = b;
	d->num_connected += b->connected;
}

void udp_demux_remove(struct udp_demux *d, struct udp_bind *b)
{
	struct udp_bind **p = &d->bucket[hash_bind(d, b)];

	while (*p && *p != b)
		p = &(*p)->next;
	if (!*p)
		return;
	*p = b->next;
	b->next = NULL;
	d->num_connected -= b->connected;
}

static inline bool matches(const struct udp_bind *b, const struct buf_meta *m)
{
	if (b->lport != m->dport)
		return false;
	if (m->family == AF_INET ? b->family == AF_INET6 && b->v6only : b->family == AF_INET)
		return false;
	if (!b->local_any && !IN6_ARE_ADDR_EQUAL(&b->local, &m->dst))
		return false;
	if (b->connected && (b->rport != m->sport || !IN6_ARE_ADDR_EQUAL(&b->remote, &m->src)))
		return false;
	return !b->bound_if || b->bound_if == (int)m->ifindex;
}

bool udp_bind_matches(const struct udp_bind *b, const struct buf_meta *m)
{
	return matches(b, m);
}

/*
 * The kernel's compute_score(): the more is fixed, the better. The local address is looked at
 * before.
 */
static int score(const struct udp_bind *b, const struct buf_meta *m)
{
	return (b->family == m->family) + 8 * b->connected + 4 * (b->bound_if != 0);
}

/* Which of n sockets of a group: the same for every packet of a flow. */
static unsigned pick(const struct udp_demux *d, const struct buf_meta *m, unsigned n)
{
	uint64_t lo;

	memcpy(&lo, &m->src.s6_addr[8], 8);
	lo = (lo ^ ((uint64_t)m->sport << 16 | m->dport) ^ d->seed) * 0x9e3779b97f4a7c15ull;
	return (unsigned)((lo >> 32) * n >> 32);
}

/* SO_REUSEPORT's groups are of one family, address and device (udp_reuseport_add_sock()). */
static bool same_group(const struct udp_bind *a, const struct udp_bind *b)
{
	return b->reuseport && !b->connected && a->lport == b->lport && a->family == b->family &&
	       a->v6only == b->v6only && a->bound_if == b->bound_if &&
	       IN6_ARE_ADDR_EQUAL(&a->local, &b->local);
}

/* The member of b's group, all of which is in the chain, that gets the datagram. */
static struct udp_bind *member(const struct udp_demux *d, struct udp_bind *chain,
			       struct udp_bind *b, const struct buf_meta *m)
{
	struct udp_bind *one = chain;
	unsigned n = 0, want;

	for (; one; one = one->next)
		n += same_group(b, one);
	want = pick(d, m, n);
	for (one = chain; one; one = one->next) {
		if (same_group(b, one) && want-- == 0)
			return one;
	}
	return b;
}

/*
 * The best match in a chain, of those bound to any address or of the others. A group ends the
 * search where the kernel meets it, which goes on only for single sockets (and, not here, for
 * groups of which a member is connected).
 */
static struct udp_bind *best_bound(const struct udp_demux *d, struct udp_bind *chain,
				   const struct buf_meta *m, bool any)
{
	struct udp_bind *best = NULL;
	int high = -1, s;

	for (struct udp_bind *b = chain; b; b = b->next) {
		if (b->local_any != any || !matches(b, m))
			continue;
		s = score(b, m);
		if (s <= high)
			continue;
		if (b->reuseport && !b->connected)
			return member(d, chain, b, m);
		best = b;
		high = s;
	}
	return best;
}

/* The best match in a chain of several: an address goes before all else. */
static __attribute__((noinline)) struct udp_bind *
best_of(const struct udp_demux *d, struct udp_bind *chain, const struct buf_meta *m)
{
	struct udp_bind *best = best_bound(d, chain, m, false);

	return best ? best : best_bound(d, chain, m, true);
}

static inline struct udp_bind *find_in(const struct udp_demux *d, unsigned bucket,
				       const struct buf_meta *m)
{
	struct udp_bind *b = d->bucket[bucket];

	if (!b)
		return NULL;
	if (__builtin_expect(b->next != NULL, 0))
		return best_of(d, b, m);
	/* The usual chain has one entry: nothing to compare. */
	return matches(b, m) ? b : NULL;
}

struct udp_bind *udp_demux_find(const struct udp_demux *d, const struct buf_meta *m)
{
	struct udp_bind *b = NULL;

	if (d->num_connected)
		b = find_in(d, hash_connected(d, &m->src, m->dport, m->sport), m);
	return b ? b : find_in(d, hash_bound(d, m->dport), m);
}

struct udp_bind *udp_demux_next(const struct udp_demux *d, const struct buf_meta *m,
				struct udp_bind *prev)
{
	unsigned bound = hash_bound(d, m->dport);
	struct udp_bind *b;

	/*
	 * First the chain of the connected ones, then that of the others; they may be one and the
	 * same chain.
	 */
	if (!prev || prev->connected) {
		b = prev ? prev->next : d->bucket[hash_connected(d, &m->src, m->dport, m->sport)];
		for (; b; b = b->next) {
			if (b->connected && udp_bind_matches(b, m))
				return b;
		}
	}
	b = prev && !prev->connected ? prev->next : d->bucket[bound];
	for (; b; b = b->next) {
		if (!b->connected && udp_bind_matches(b, m))
			return b;
	}
	return NULL;
}
