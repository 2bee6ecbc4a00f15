/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The blocks of the statistics pages, and the control words that tools write there. */
#include "stats/stats.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "config/config.h"
#include "stats/area.h"

/* Who gets no memory counts into these, all together. */
static struct {
	struct vma_stats_socket socket;
	struct vma_stats_ring ring;
	struct vma_stats_cq cq;
	struct vma_stats_pool pool;
	struct vma_stats_iomux iomux;
} spill;

/* A free bit of one word, now taken; -1 if there is none below n. */
static int bit_take(uint32_t *used, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!(*used & 1u << i)) {
			*used |= 1u << i;
			return (int)i;
		}
	}
	return -1;
}

/* The socket blocks begin behind the header, whether a file is mapped there or not. */
static struct vma_stats_socket *area_sockets(struct stats_area *a)
{
	return (struct vma_stats_socket *)(stats_area_pages(a) + sizeof(struct vma_stats_header));
}

/* The lowest free one, so that those beyond the file's end are used last. Mutex held. */
static struct vma_stats_socket *socket_slot(void)
{
	struct stats_area *a = stats_area_get();

	for (unsigned word = 0; a && word < VMA_STATS_SOCKETS_MAX / 64; word++) {
		unsigned bit = a->sockets[word] == UINT64_MAX
				       ? 0
				       : (unsigned)__builtin_ctzll(~a->sockets[word]) + 1;

		if (bit) {
			a->sockets[word] |= 1ull << (bit - 1);
			return &area_sockets(a)[word * 64 + bit - 1];
		}
	}
	return NULL;
}

/* A block's next life. */
static void socket_begin(struct vma_stats_socket *s, int fd)
{
	uint32_t generation = s->generation + 1;

	memset(s, 0, sizeof(*s));
	s->generation = generation;
	s->fd = fd;
	__atomic_store_n(&s->enabled, 1, __ATOMIC_RELEASE);
}

/* A block in the pages. NULL: all are taken. */
static struct vma_stats_socket *socket_in_pages(int fd)
{
	struct vma_stats_socket *s;

	pthread_mutex_lock(&stats_mutex);
	s = socket_slot();
	if (s)
		socket_begin(s, fd);
	pthread_mutex_unlock(&stats_mutex);
	return s;
}

struct vma_stats_socket *stats_socket_if_shown(int fd)
{
	bool written = (params.stats_file && *params.stats_file) || log_enabled(LOG_DEBUG);

	return written ? stats_socket_get(fd) : socket_in_pages(fd);
}

struct vma_stats_socket *stats_socket_get(int fd)
{
	struct vma_stats_socket *s = socket_in_pages(fd);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return &spill.socket;
	socket_begin(s, fd);
	return s;
}

int stats_socket_slot(const struct vma_stats_socket *s)
{
	struct stats_area *a;
	int slot = -1;

	pthread_mutex_lock(&stats_mutex);
	a = stats_area_of(s);
	if (a && a == stats_area)
		slot = (int)(s - area_sockets(a));
	pthread_mutex_unlock(&stats_mutex);
	return slot;
}

void stats_blocks_hold(void)
{
	pthread_mutex_lock(&stats_mutex);
}

void stats_blocks_drop(void)
{
	pthread_mutex_unlock(&stats_mutex);
}

/* Adds n counters in a row; the mutex is held, which makes their writers one. */
static void add_words(void *to, const void *from, size_t offset, size_t n)
{
	uint64_t *t = (uint64_t *)((char *)to + offset);
	const uint64_t *f = (const uint64_t *)((const char *)from + offset);

	for (size_t i = 0; i < n; i++)
		__atomic_store_n(&t[i], t[i] + __atomic_load_n(&f[i], __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
}

#define ADD_WORDS(to, from, first, last)                                                           \
	add_words(to, from, offsetof(__typeof__(*(from)), first),                                  \
		  (offsetof(__typeof__(*(from)), last) - offsetof(__typeof__(*(from)), first)) /   \
				  sizeof(uint64_t) +                                               \
			  1)

/* What a block has counted stays in the process's sums. Mutex held. */
static void socket_closed(const struct vma_stats_socket *s)
{
	struct vma_stats_socket *sum = &stats_header_get()->closed_sockets;

	ADD_WORDS(sum, s, rx, rx_poll_os_hit);
	ADD_WORDS(sum, s, rx_drop_packets, rx_drop_bytes);
	ADD_WORDS(sum, s, rx_ring_migrations, tx_dummy);
	ADD_WORDS(sum, s, waits.spun, waits.why[VMA_SLEPTS - 1]);
}

void stats_socket_put(struct vma_stats_socket *s)
{
	struct stats_area *a;
	__u32 *moves;

	if (!s || s == &spill.socket)
		return;
	if (params.stats_file && *params.stats_file)
		stats_file_dump(params.stats_file, s);
	if (log_enabled(LOG_DEBUG))
		stats_socket_log_end(s);
	pthread_mutex_lock(&stats_mutex);
	moves = &stats_header_get()->closed_sockets.generation;
	a = stats_area_of(s);
	__atomic_store_n(moves, *moves + 1, __ATOMIC_RELAXED);
	atomic_thread_fence(memory_order_release);
	if (a) {
		size_t i = (size_t)(s - area_sockets(a));

		__atomic_store_n(&s->enabled, 0, __ATOMIC_RELEASE);
		a->sockets[i / 64] &= ~(1ull << i % 64);
	}
	socket_closed(s);
	__atomic_store_n(moves, *moves + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&stats_mutex);
	if (!a)
		free(s);
}

/*
 * The get and put of a block that stands in an array of the header; `used` is the area's word of
 * use bits. The block is zeroed; a private one when all are taken.
 */
#define BLOCK_GET(type, array, count, used)                                                        \
	({                                                                                         \
		struct stats_area *_a;                                                             \
		type *_b = NULL;                                                                   \
		int _i;                                                                            \
		pthread_mutex_lock(&stats_mutex);                                                  \
		_a = stats_area_get();                                                             \
		_i = _a ? bit_take(&_a->used, count) : -1;                                         \
		if (_i >= 0)                                                                       \
			_b = memset(&stats_header_get()->array[_i], 0, sizeof(type));              \
		pthread_mutex_unlock(&stats_mutex);                                                \
		_b ? _b : calloc(1, sizeof(type));                                                 \
	})

#define BLOCK_PUT(b, type, array, used, spilled)                                                   \
	do {                                                                                       \
		struct stats_area *_a;                                                             \
		if (!(b) || (b) == (spilled))                                                      \
			return;                                                                    \
		pthread_mutex_lock(&stats_mutex);                                                  \
		_a = stats_area_of(b);                                                             \
		if (_a) {                                                                          \
			__atomic_store_n(&(b)->enabled, 0, __ATOMIC_RELEASE);                      \
			_a->used &= ~(                                                             \
				1u << ((b) -                                                       \
				       ((struct vma_stats_header *)stats_area_pages(_a))->array)); \
		}                                                                                  \
		pthread_mutex_unlock(&stats_mutex);                                                \
		if (!_a)                                                                           \
			free(b);                                                                   \
	} while (0)

/* Is there a file, but no place in it? */
static bool is_hidden(const void *block)
{
	bool hidden;

	pthread_mutex_lock(&stats_mutex);
	hidden = stats_area_get() && !stats_area_of(block);
	pthread_mutex_unlock(&stats_mutex);
	return hidden;
}

struct vma_stats_ring *stats_ring_get(void)
{
	static _Atomic bool told;
	struct vma_stats_ring *r = BLOCK_GET(struct vma_stats_ring, rings, VMA_STATS_RINGS, rings);

	if (!r)
		return &spill.ring;
	if (is_hidden(r) && !atomic_exchange(&told, true))
		log_info("statistics: vma_stats shows %d rings; what further ones count it has "
			 "when they are closed, in the sums",
			 VMA_STATS_RINGS);
	__atomic_store_n(&r->enabled, 1, __ATOMIC_RELEASE);
	return r;
}

void stats_ring_put(struct vma_stats_ring *r)
{
	if (r && r != &spill.ring) {
		if (log_enabled(LOG_DEBUG))
			stats_ring_log_end(r);
		pthread_mutex_lock(&stats_mutex);
		ADD_WORDS(&stats_header_get()->closed_rings, r, rx_packets, dev_mem_oob);
		pthread_mutex_unlock(&stats_mutex);
	}
	BLOCK_PUT(r, struct vma_stats_ring, rings, rings, &spill.ring);
}

struct vma_stats_cq *stats_cq_get(void)
{
	struct vma_stats_cq *c = BLOCK_GET(struct vma_stats_cq, cqs, VMA_STATS_CQS, cqs);

	if (!c)
		return &spill.cq;
	__atomic_store_n(&c->enabled, 1, __ATOMIC_RELEASE);
	return c;
}

void stats_cq_put(struct vma_stats_cq *c)
{
	BLOCK_PUT(c, struct vma_stats_cq, cqs, cqs, &spill.cq);
}

struct vma_stats_pool *stats_pool_get(bool is_rx)
{
	struct vma_stats_pool *p = BLOCK_GET(struct vma_stats_pool, pools, VMA_STATS_POOLS, pools);

	if (!p)
		return &spill.pool;
	p->is_rx = is_rx;
	__atomic_store_n(&p->enabled, 1, __ATOMIC_RELEASE);
	return p;
}

void stats_pool_put(struct vma_stats_pool *p)
{
	BLOCK_PUT(p, struct vma_stats_pool, pools, pools, &spill.pool);
}

struct vma_stats_iomux *stats_iomux_get(int epfd)
{
	struct vma_stats_iomux *m;

	if (epfd == STATS_SELECT || epfd == STATS_POLL) {
		pthread_mutex_lock(&stats_mutex);
		m = epfd == STATS_SELECT ? &stats_header_get()->select : &stats_header_get()->poll;
		pthread_mutex_unlock(&stats_mutex);
	} else {
		m = BLOCK_GET(struct vma_stats_iomux, epoll, VMA_STATS_EPOLLS, epolls);
		if (!m)
			return &spill.iomux;
		m->epfd = epfd;
	}
	__atomic_store_n(&m->enabled, 1, __ATOMIC_RELEASE);
	return m;
}

/* select and poll have no slot: their blocks live as long as the process. */
static bool iomux_permanent(const struct vma_stats_iomux *m)
{
	bool permanent = m == &stats_header_spill.select || m == &stats_header_spill.poll;

	pthread_mutex_lock(&stats_mutex);
	for (struct stats_area *a = stats_area; a; a = a->older) {
		struct vma_stats_header *h = (struct vma_stats_header *)stats_area_pages(a);

		permanent = permanent || m == &h->select || m == &h->poll;
	}
	pthread_mutex_unlock(&stats_mutex);
	return permanent;
}

void stats_iomux_put(struct vma_stats_iomux *m)
{
	if (iomux_permanent(m))
		return;
	BLOCK_PUT(m, struct vma_stats_iomux, epoll, epolls, &spill.iomux);
}

/* ---- the control words */

/* One of them: the tool's new value if it is in range, else ours is written over it. */
static void follow(int *word, int *followed, int *live, int low, int high)
{
	int now = __atomic_load_n(live, __ATOMIC_RELAXED);
	int asked = __atomic_load_n(word, __ATOMIC_RELAXED);

	if (asked == *followed && now == *followed)
		return;
	if (asked != *followed && asked >= low && asked <= high)
		__atomic_store_n(live, now = asked, __ATOMIC_RELAXED);
	*followed = now;
	__atomic_store_n(word, now, __ATOMIC_RELAXED);
}

/* The block of slot i if it is fd's (0: any), copied out; not held while the log is written. */
static bool slot_copy(unsigned i, int fd, struct vma_stats_socket *to)
{
	bool is = false;

	pthread_mutex_lock(&stats_mutex);
	if (stats_area && stats_area->sockets[i / 64] & 1ull << i % 64) {
		stats_copy_words(to, &area_sockets(stats_area)[i], sizeof(struct vma_stats_socket));
		is = !fd || to->fd == fd;
	}
	pthread_mutex_unlock(&stats_mutex);
	return is;
}

void stats_sockets_log(int fd, int level)
{
	struct vma_stats_socket copy;
	bool any = false;

	for (unsigned i = 0; i < VMA_STATS_SOCKETS_MAX; i++) {
		if (slot_copy(i, fd, &copy)) {
			stats_socket_log(level, &copy);
			any = true;
		}
	}
	if (!any && fd)
		log_at(level, "fd %d: no statistics: it is not an offloaded socket", fd);
}

/* The block of ring i, copied out, if there is one. */
static bool ring_copy(unsigned i, struct vma_stats_ring *to)
{
	bool is = false;

	pthread_mutex_lock(&stats_mutex);
	if (stats_area && stats_area->rings & 1u << i) {
		stats_copy_words(to, &stats_header_get()->rings[i], sizeof(*to));
		is = true;
	}
	pthread_mutex_unlock(&stats_mutex);
	return is;
}

void stats_log_end(void)
{
	struct vma_stats_socket s;
	struct vma_stats_ring r;

	if (!log_enabled(LOG_DEBUG))
		return;
	for (unsigned i = 0; i < VMA_STATS_SOCKETS_MAX; i++)
		if (slot_copy(i, 0, &s))
			stats_socket_log_end(&s);
	for (unsigned i = 0; i < VMA_STATS_RINGS; i++)
		if (ring_copy(i, &r))
			stats_ring_log_end(&r);
}

/* A tool may have asked for a level that costs. */
static void warn_high_level(int before)
{
	if (before < LOG_DEBUG && log_enabled(LOG_DEBUG))
		log_high_level();
}

void stats_control(void (*dump_fd)(int fd, int level))
{
	int fd = VMA_STATS_DUMP_NONE, level = LOG_INFO;
	int before = __atomic_load_n(&log_level_now, __ATOMIC_RELAXED);

	pthread_mutex_lock(&stats_mutex);
	if (stats_has_file()) {
		struct vma_stats_header *h = stats_header_get();

		follow(&h->log_level, &stats_followed.level, &log_level_now, LOG_NONE, LOG_ALL);
		follow(&h->log_details, &stats_followed.details, &log_details_now, 0, 3);
		if (__atomic_load_n(&h->dump_fd, __ATOMIC_RELAXED) != VMA_STATS_DUMP_NONE) {
			/*
			 * Pairs with the tool's release: the level was written before the number.
			 */
			fd = __atomic_exchange_n(&h->dump_fd, VMA_STATS_DUMP_NONE,
						 __ATOMIC_ACQUIRE);
			level = __atomic_load_n(&h->dump_fd_level, __ATOMIC_RELAXED);
		}
	}
	pthread_mutex_unlock(&stats_mutex);
	warn_high_level(before);
	if (fd < 0)
		return;
	if (level < LOG_PANIC || level > LOG_ALL)
		level = LOG_INFO;
	(dump_fd ? dump_fd : stats_sockets_log)(fd, level);
}
