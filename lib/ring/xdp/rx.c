/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reception: from the XSKs' rings to chains of struct buf, and the fill rings' supply. */
#include <errno.h>
#include <net/ethernet.h>
#include <string.h>

#include "config/config.h"
#include "mem/mem.h"
#include "ring/xdp/mode.h"
#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

/*
 * Descriptors of the largest frame, in pieces of a chunk without its headroom: 512 KiB, the
 * kernel's GSO_MAX_SIZE, where an interface has BIG TCP (64 KiB elsewhere).
 */
#define CHAIN_MAX ((512u << 10) / (UMEM_CHUNK - XDP_HEADROOM) + 2)
/*
 * Of this part of a ring's chunks, when no user holds them: with fewer, frames are copied to the
 * heap; with a quarter of that they are dropped if it fails.
 */
#define CHUNKS_LOW_PART 4

/*
 * The kernel takes the chunks of a fill ring in turn, and a stream of merged segments goes through
 * a full ring of them thousands of times a second: 8 MiB, of which it finds nothing in a cache of
 * this processor or of its own. While such frames are most of what comes, half of the ring stays
 * empty. That is still more than a TCP's window of them, but not than those of many: for more
 * than a few streams, and where more than three quarters of the half were under way or unread, the
 * ring is full. So it is for datagrams, which no window bounds.
 */
#define SUPPLY_BULK (UMEM_RX_CHUNKS / 2)
#define SUPPLY_STREAMS 4
#define SUPPLY_BULK_TAKEN (SUPPLY_BULK / 4 * 3)
/* Chunks from one judgement to the next. */
#define SUPPLY_JUDGED 1024u
/*
 * Judgements that are left out after the half was too little: a reader that stays away for long.
 * Twice as many each time, for frames may be lost then, and a TCP that loses all that it has under
 * way waits for 200 ms; half as many again after that many good ones.
 */
#define SUPPLY_KEEP_FULL 64u
#define SUPPLY_KEEP_FULL_MOST (1u << 20)
/*
 * No datagram that is not marked as a GSO burst, and no frame of the usual MTUs, is so large: it is
 * merged TCP segments.
 */
#define MERGED_MIN 16384u
#define STREAM_HASH 0x9e3779b1u

static void supply_hold_back(struct xsk *s, uint32_t n)
{
	s->refill_at += n - s->held_back;
	s->held_back = n;
}

/* Which streams there are, by their ports: two may look like one, and with options in front too. */
static void merged_note(struct xsk *s, const struct buf *b)
{
	const uint8_t *ip = b->data + ETH_HLEN, *tcp;
	uint32_t ports;

	s->merged += b->total;
	if (b->len < ETH_HLEN + 40 + sizeof(ports))
		return;
	tcp = ip + (*ip >> 4 == 6 ? 40 : 20);
	memcpy(&ports, tcp, sizeof(ports));
	s->streams |= 1u << (ports * STREAM_HASH >> 27);
}

/* How much of the ring is filled, by what came since the last time. */
static __attribute__((noinline)) void supply_judge(struct xsk *s)
{
	bool bulk = s->merged >= SUPPLY_JUDGED * 3ull / 4 * (UMEM_CHUNK - XDP_HEADROOM) &&
		    __builtin_popcount(s->streams) <= SUPPLY_STREAMS;

	s->judged = s->fill.head;
	s->merged = s->streams = 0;
	if (s->keep_full) {
		s->keep_full--;
		return;
	}
	if (s->held_back && s->keep_full_next > SUPPLY_KEEP_FULL &&
	    ++s->calm >= s->keep_full_next) {
		s->keep_full_next /= 2;
		s->calm = 0;
	}
	supply_hold_back(s, bulk && s->supply > SUPPLY_BULK ? s->supply - SUPPLY_BULK : 0);
}

/* Has the kernel nearly run dry, or would it have with half of the ring? It gets all there is. */
static __attribute__((noinline)) void supply_look(struct xsk *s)
{
	uint32_t left = s->fill.head - __atomic_load_n(s->fill.consumer, __ATOMIC_RELAXED);
	uint32_t next = s->keep_full_next ? s->keep_full_next : SUPPLY_KEEP_FULL;

	/* Just after the half was chosen there is still more. */
	if (left + SUPPLY_BULK_TAKEN >= s->supply - s->held_back)
		return;
	if (s->held_back) {
		supply_hold_back(s, 0);
		s->keep_full = next;
		s->calm = 0;
		s->keep_full_next = next < SUPPLY_KEEP_FULL_MOST ? 2 * next : next;
	} else if (s->keep_full < SUPPLY_KEEP_FULL) {
		s->keep_full = SUPPLY_KEEP_FULL;
	}
}

uint32_t rx_supply(struct xdp_ring *x, struct xsk_ring *f, uint32_t n)
{
	uint32_t index, done = 0;

	for (; done < n && chunk_pop(&x->umem.rx_free, &index); done++) {
		if (x->share)
			chunk_owner_set(&x->umem, index, OWNER_NOBODY);
		/* pending() looks without the lock */
		__atomic_store_n(&f->addr[f->head++ & f->mask], (uint64_t)index << UMEM_CHUNK_SHIFT,
				 __ATOMIC_RELAXED);
	}
	x->filled += done;
	/* release: the kernel must see the entries before the index that gives them to it */
	__atomic_store_n(f->producer, f->head, __ATOMIC_RELEASE);
	return done;
}

/*
 * Some drivers (i40e) set the flag and do not look again: what is in the fill ring by then would
 * wait for a refill, which a ring that gets nothing never has. For who polls: one load.
 */
static inline void rx_tell_again(const struct xsk *s)
{
	const struct xsk_ring *f = &s->fill;

	if (__builtin_expect(__atomic_load_n(f->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP,
			     0) &&
	    __atomic_load_n(f->consumer, __ATOMIC_RELAXED) !=
		    __atomic_load_n(f->producer, __ATOMIC_RELAXED))
		rx_tell(s, f);
}

/* Not inline: GCC's ThreadSanitizer would complain of the fence there. */
__attribute__((noinline)) void rx_tell(const struct xsk *s, const struct xsk_ring *f)
{
	/*
	 * It sets the flag and looks at the ring once more; so we publish, then look at the flag.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	if (__atomic_load_n(f->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP)
		(void)raw.recvfrom(s->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

void rx_refill(struct xdp_ring *x, struct xsk *s)
{
	struct xsk_ring *f = &s->fill;

	if (__builtin_expect(x->share != NULL, 0)) {
		share_refill(x, s);
		return;
	}
	if (f->head - s->judged >= SUPPLY_JUDGED)
		supply_judge(s);
	if (s->held_back && pool_others(x->pool))
		supply_hold_back(s, 0); /* they may need it */
	/* What others of a pool have taken would look like ours. */
	if ((s->held_back || s->merged) && !pool_others(x->pool))
		supply_look(s);
	if (s->missing > s->held_back)
		s->missing -= x->pool ? pool_supply(x, s, s->missing - s->held_back)
				      : rx_supply(x, f, s->missing - s->held_back);
	if (__builtin_expect(x->zerocopy, 0))
		rx_tell(s, f);
}

/* The heap_pool's free: one less of the copies that VMA_RX_BUFS limits. */
static void heap_buf_free(struct buf_pool *pool, struct buf *b)
{
	struct xdp_ring *x =
		(struct xdp_ring *)((char *)pool - offsetof(struct xdp_ring, heap_pool));

	buf_copy_end();
	x->heap_origin->free(x->heap_origin, b);
}

/*
 * Of the chunks that are x's part, those that no user holds; with a share it may be in debt to the
 * others for a moment.
 */
static inline int32_t chunks_ours(const struct xdp_ring *x)
{
	return (int32_t)(x->umem.rx_free.num + x->filled);
}

void rx_low(struct xdp_ring *x)
{
	x->chunks_low = pool_others(x->pool) ? x->part - POOL_HELD_MAX : x->part / CHUNKS_LOW_PART;
}

/*
 * Generic mode takes chunks from a fill ring under a lock of the receiving socket, before Linux
 * 6.15: two sockets of one queue may get the same one. Who has it first keeps it.
 */
static inline bool rx_contended(const struct xdp_ring *x)
{
	return x->generic && (x->share || pool_others(x->pool));
}

void rx_init(struct xdp_ring *x, uint32_t heap_bufs_max)
{
	x->generic = x->port->mode == PORT_GENERIC;
	x->part = x->joined ? pool_rx_spare(x->num_queues) : x->umem.rx_free.num;
	x->filled = x->part - x->umem.rx_free.num;
	rx_low(x);
	x->heap_pool.free = heap_buf_free;
	x->heap_bufs_max = heap_bufs_max;
	/* No driver says which frames. Of damaged ones one in 65,536 has such a sum by chance. */
	x->rx_flags = mode_partial_sums(x->port) ? BUF_CSUM_PARTIAL_OK : 0;
	for (unsigned i = 0; i < x->num_queues; i++)
		rx_refill(x, &x->xsk[i]);
}

/*
 * A copy of b on the heap, or NULL: no memory, or the process has VMA_RX_BUFS copies. b stays the
 * caller's.
 */
static struct buf *copy_out(struct xdp_ring *x, const struct buf *b)
{
	struct buf *c;

	if (!buf_copy_begin(x->heap_bufs_max))
		return NULL;
	c = buf_heap_alloc(b->len);
	if (!c) {
		buf_copy_end();
		return NULL;
	}
	memcpy(c->data, b->data, b->len);
	c->len = b->len;
	c->total = b->total;
	c->flags = b->flags;
	c->gso_size = b->gso_size;
	c->gso_count = b->gso_count;
	c->hw_ns = b->hw_ns;
	x->heap_origin = c->pool;
	c->pool = &x->heap_pool;
	return c;
}

/*
 * When users hold so many chunks that the fill rings could run dry, the frame moves to the heap.
 * Returns the frame to hand out, NULL when it had to be dropped.
 */
static struct buf *move_to_heap(struct xdp_ring *x, struct buf *b)
{
	int32_t ours = chunks_ours(x);
	struct buf *head = NULL, **tail = &head, *c, *from;

	for (from = b; from; from = from->frag) {
		c = copy_out(x, from);
		if (!c)
			break;
		*tail = c;
		tail = &c->frag;
	}
	if (!from) {
		head->total = b->total;
		buf_free(b);
		return head;
	}
	buf_free(head);
	if (ours >= (int32_t)x->chunks_low / 4)
		return b;
	buf_free(b);
	stat_add(&x->counters.rx_drop_no_buf, 1);
	return NULL;
}

/* Ends a chain that cannot be completed. */
static void chain_drop(struct xdp_ring *x, struct xsk *s)
{
	buf_free(s->chain_head);
	s->chain_head = NULL;
	s->chain_len = 0;
	stat_add(&x->counters.rx_drop_invalid, 1);
}

/*
 * The slow part of taking a descriptor: a frame of several. Returns the frame when b was its last
 * piece.
 */
static struct buf *chain_add(struct xdp_ring *x, struct xsk *s, struct buf *b, bool more)
{
	struct buf *head;

	if (s->chain_bad) { /* the frame is lost already: throw the rest after it */
		buf_free(b);
		s->chain_bad = more;
		return NULL;
	}
	if (s->chain_head) {
		s->chain_tail->frag = b;
		s->chain_head->total += b->len;
	} else {
		s->chain_head = b;
	}
	s->chain_tail = b;
	if (++s->chain_len > CHAIN_MAX) {
		chain_drop(x, s);
		s->chain_bad = more;
		return NULL;
	}
	if (more)
		return NULL;
	head = s->chain_head;
	s->chain_head = NULL;
	s->chain_len = 0;
	return head;
}

/* The descriptor does not name a chunk that the kernel holds. */
static void desc_invalid(struct xdp_ring *x, struct xsk *s, const struct xdp_desc *d)
{
	bool more = d->options & XDP_PKT_CONTD;

	log_debug("ring/xdp: %s: descriptor addr %#llx len %u lies outside the UMEM's free chunks",
		  x->ring.ifname, (unsigned long long)d->addr, d->len);
	if (s->chain_head)
		chain_drop(x, s);
	else if (!s->chain_bad)
		stat_add(&x->counters.rx_drop_invalid, 1);
	s->chain_bad = more;
}

/* b becomes the len received bytes at addr, the caller's. The kernel has one chunk less. */
static inline void take(struct xdp_ring *x, struct buf *b, uint64_t addr, uint32_t len)
{
	umem_buf_take(&x->umem, b, addr);
	b->frag = NULL;
	b->data = x->umem.base + addr;
	b->len = len;
	b->total = len;
	b->refs = 1;
	b->flags = x->rx_flags;
	b->gso_size = 0;
	b->gso_count = 0;
	x->filled--;
	chunk_owner_set(&x->umem, (uint32_t)(addr >> UMEM_CHUNK_SHIFT), x->umem.me);
}

/*
 * Has the steering program marked the frame at addr as a GSO burst? addr lies in a chunk of ours.
 */
static inline bool gso_burst_marked(const struct xdp_ring *x, uint64_t addr)
{
	return x->gso_bursts && (addr & (UMEM_CHUNK - 1)) >= sizeof(struct vma_gso_burst) &&
	       ((const struct vma_gso_burst *)(x->umem.base + addr))[-1].magic ==
		       VMA_GSO_BURST_MAGIC;
}

/*
 * Reads the mark and wipes it: for a frame that has no room in front of it the steering program
 * cannot write that it is none.
 */
static void gso_burst_take(struct xdp_ring *x, struct buf *b, const struct xdp_desc *d)
{
	struct vma_gso_burst *t = (struct vma_gso_burst *)(x->umem.base + d->addr) - 1;

	t->magic = 0;
	b->gso_size = t->size;
	b->gso_count = t->count;
}

/*
 * The device's time, which the steering program may have written in front of the frame. Wiped as
 * gso_burst_take() does.
 */
static void stamp_take(struct xdp_ring *x, struct buf *b, uint64_t addr)
{
	struct vma_rx_stamp t;

	if ((addr & (UMEM_CHUNK - 1)) < sizeof(t))
		return;
	memcpy(&t, x->umem.base + addr - sizeof(t), sizeof(t));
	if (t.magic != VMA_RX_STAMP_MAGIC)
		return;
	memset(x->umem.base + addr - sizeof(t), 0, sizeof(t));
	b->hw_ns = t.ns;
	b->flags |= BUF_HW_TIME;
}

/*
 * Does the frame hold as many datagrams as it was marked with? The kernel vouches for the checksum
 * of a GSO burst.
 */
static bool gso_burst_check(struct xdp_ring *x, struct buf *b)
{
	const uint32_t hdr_min = ETH_HEADER + 20 + 8, hdr_max = ETH_HEADER + 40 + 8;
	uint64_t bytes = (uint64_t)b->gso_size * b->gso_count;

	if (b->gso_count < 2 || b->total <= hdr_min + bytes - b->gso_size ||
	    b->total > hdr_max + bytes) {
		log_debug("ring/xdp: %s: a frame of %u bytes is marked as %u datagrams of %u",
			  x->ring.ifname, b->total, b->gso_count, b->gso_size);
		stat_add(&x->counters.rx_drop_invalid, 1);
		buf_free(b);
		return false;
	}
	b->flags |= BUF_CSUM_PARTIAL_OK;
	stat_add(&x->counters.rx_gso_frames, 1);
	stat_add(&x->counters.rx_packets, b->gso_count - 1u);
	return true;
}

/*
 * Any descriptor: a damaged one, a GSO burst, a part of a larger frame, or when chunks are short.
 * Returns the frame to hand out, or NULL.
 */
static __attribute__((noinline)) struct buf *take_odd(struct xdp_ring *x, struct xsk *s,
						      const struct xdp_desc *d)
{
	struct buf *b = umem_desc_buf(&x->umem, d->addr, d->len);

	if (!b || b->refs) {
		x->filled -= !b; /* the chunk is lost; one that we have was counted when it came */
		desc_invalid(x, s, d);
		return NULL;
	}
	if (rx_contended(x) &&
	    !chunk_owner_take(&x->umem, (uint32_t)(d->addr >> UMEM_CHUNK_SHIFT), x->umem.me)) {
		x->filled--; /* the kernel has left out another one, which is lost */
		desc_invalid(x, s, d);
		return NULL;
	}
	take(x, b, d->addr, d->len);
	/* Of a frame's parts the first one is marked. */
	if (!s->chain_head && !s->chain_bad) {
		if (gso_burst_marked(x, d->addr))
			gso_burst_take(x, b, d);
		if (x->stamping)
			stamp_take(x, b, d->addr);
	}
	if ((d->options & XDP_PKT_CONTD) || s->chain_head || s->chain_bad) {
		b = chain_add(x, s, b, d->options & XDP_PKT_CONTD);
		if (!b)
			return NULL;
	}
	if (b->gso_size && !gso_burst_check(x, b))
		return NULL;
	if (b->total >= MERGED_MIN && !b->gso_size)
		merged_note(s, b);
	return chunks_ours(x) < (int32_t)x->chunks_low ? move_to_heap(x, b) : b;
}

/*
 * Nothing has come: time to fetch what is only ours of the next frame, should the fill ring name it
 * (see prefetch_frame()). With some thousand chunks in turn it has left the nearest cache since it
 * was used last.
 */
static unsigned rx_idle(struct xdp_ring *x, struct xsk *s)
{
	/*
	 * Where rings share the fill ring another thread may be writing there: it is a guess in any
	 * case.
	 */
	uint64_t chunk =
		__atomic_load_n(&s->fill.addr[s->rx.head & s->fill.mask], __ATOMIC_RELAXED);
	const struct buf *b = umem_desc_buf(&x->umem, chunk, 0);

	__builtin_prefetch(b, 1);
	__builtin_prefetch((const uint8_t *)b + 64, 1);
	if (__builtin_expect(params.rx_prefetch_bytes_before_poll, 0))
		prefetch_bytes(x->umem.base + chunk + XDP_HEADROOM,
			       params.rx_prefetch_bytes_before_poll);
	if (__builtin_expect(s->missing >= s->refill_at && x->umem.rx_free.num, 0))
		rx_refill(x, s);
	if (__builtin_expect(x->zerocopy, 0))
		rx_tell_again(s);
	return 0;
}

static inline __attribute__((always_inline)) unsigned rx_queue(struct xdp_ring *x, struct xsk *s,
							       struct buf **pkts, unsigned max)
{
	struct xsk_ring *r = &s->rx;
	uint32_t head = r->head, start;
	uint64_t bytes = 0;
	unsigned n = 0;
	bool odd;

	if (head == r->seen) {
		/* acquire: descriptors and frames up to the producer index must be read after it */
		r->seen = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
		if (head == r->seen && __builtin_expect(x->busy_poll, 0)) {
			xsk_drive(s);
			r->seen = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE);
		}
		if (head == r->seen)
			return rx_idle(x, s);
	}
	start = head;
	/*
	 * False: no larger frame has begun, there are chunks enough even if none of this batch is
	 * given back, nobody else can be given the same ones, and nobody wants stamps.
	 */
	odd = s->chain_head || s->chain_bad || chunks_ours(x) < (int32_t)(x->chunks_low + max) ||
	      rx_contended(x) || x->stamping;
	for (; n < max && head != r->seen; head++) {
		/*
		 * Each word is read once: another process could change it. One by one: a copy of
		 * the struct would go through the thread's stack.
		 */
		const volatile struct xdp_desc *d = &r->desc[head & r->mask];
		uint64_t addr = d->addr;
		uint32_t len = d->len, options = d->options;
		struct buf *b = umem_desc_buf(&x->umem, addr, len);

		if (__builtin_expect(!odd && b && !b->refs && !(options & XDP_PKT_CONTD) &&
					     !gso_burst_marked(x, addr),
				     1)) {
			take(x, b, addr, len);
		} else {
			odd = true;
			b = take_odd(x, s, &(struct xdp_desc){addr, len, options});
			if (!b)
				continue;
		}
		bytes += b->total;
		pkts[n++] = b;
	}
	__atomic_store_n(&r->head, head, __ATOMIC_RELAXED); /* pending() looks without the lock */
	/*
	 * release: the kernel may overwrite the descriptors once it sees them consumed; they have
	 * been read by then
	 */
	__atomic_store_n(r->consumer, head, __ATOMIC_RELEASE);
	s->missing += head - start;
	if (s->missing >= s->refill_at)
		rx_refill(x, s);
	stat_add(&x->counters.rx_packets, n);
	stat_add(&x->counters.rx_bytes, bytes);
	return n;
}

/* Each poll starts at the next queue, so that a busy one starves no other. */
static __attribute__((noinline)) unsigned rx_queues(struct xdp_ring *x, struct buf **pkts,
						    unsigned max)
{
	uint32_t q = x->next_queue;
	unsigned n = 0;

	x->next_queue = q + 1 == x->num_queues ? 0 : q + 1;
	for (uint32_t i = 0; i < x->num_queues && n < max; i++) {
		n += rx_queue(x, &x->xsk[q], pkts + n, max - n);
		q = q + 1 == x->num_queues ? 0 : q + 1;
	}
	return n;
}

unsigned xdp_poll(struct ring *ring, struct buf **pkts, unsigned max)
{
	struct xdp_ring *x = xdp_ring(ring);
	unsigned n =
		x->num_queues == 1 ? rx_queue(x, &x->xsk[0], pkts, max) : rx_queues(x, pkts, max);

	if (__builtin_expect(atomic_load_explicit(&x->stalled, memory_order_relaxed), 0))
		xdp_kick(ring);
	if (__builtin_expect(x->armed, 0) && n) {
		x->armed = false;
		stat_add(&x->counters.interrupts_received, 1);
	}
	return n;
}

unsigned xdp_poll_stamped(struct ring *ring, struct buf **pkts, unsigned max)
{
	struct xdp_ring *x = xdp_ring(ring);
	unsigned n;

	/* Once: the word is every member's. At the end of the process there may be no port. */
	if (!x->stamps_told && x->port) {
		__atomic_store_n(x->port->stamps, 1, __ATOMIC_RELAXED);
		x->stamps_told = true;
	}
	x->stamping = true;
	n = xdp_poll(ring, pkts, max);
	x->stamping = false;
	return n;
}

/*
 * Starts fetching what poll() will read of the frame at head from the cache of the processor that
 * wrote it. The kernel hands out chunks in the order in which it got them: the fill ring tells
 * which one it is before the descriptor has arrived. Only a guess.
 */
static inline void prefetch_frame(const struct xdp_ring *x, const struct xsk *s, uint32_t head)
{
	uint64_t chunk = __atomic_load_n(&s->fill.addr[head & s->fill.mask], __ATOMIC_RELAXED);
	const uint8_t *frame = x->umem.base + chunk + XDP_HEADROOM;

	__builtin_prefetch(&s->rx.desc[head & s->rx.mask]);
	__builtin_prefetch(
		/* the mark of a GSO burst is looked for there */
		frame - sizeof(struct vma_gso_burst));
	prefetch_bytes(frame, params.rx_prefetch_bytes);
}

bool xdp_pending(const struct ring *ring)
{
	const struct xdp_ring *x = (const struct xdp_ring *)ring;

	for (uint32_t i = 0; i < x->num_queues; i++) {
		const struct xsk_ring *r = &x->xsk[i].rx;

		uint32_t head = __atomic_load_n(&r->head, __ATOMIC_RELAXED);

		/*
		 * relaxed: only a hint; poll() looks again with the barrier that reading frames
		 * needs
		 */
		if (__atomic_load_n(r->producer, __ATOMIC_RELAXED) != head) {
			prefetch_frame(x, &x->xsk[i], head);
			return true;
		}
	}
	return atomic_load_explicit(&x->stalled, memory_order_relaxed);
}

unsigned xdp_wait_fds(struct ring *ring, int *fds, unsigned max)
{
	struct xdp_ring *x = xdp_ring(ring);
	unsigned n = 0;

	for (; n < x->num_queues && n < max; n++)
		fds[n] = x->xsk[n].fd;
	return n;
}

/*
 * kick() has given up, and nothing wakes a sleeper when there is room again. True: the device has
 * sent something since the last look, so the rest leaves soon. One that has not may stand still for
 * long: the internal thread tries again, which polls a ring that nobody polls.
 */
static bool sends_slowly(struct xdp_ring *x)
{
	const struct xsk *s = x->share ? x->share->ring[0]->xsk : x->xsk;
	/* relaxed: no chunk is taken by it */
	uint32_t done = __atomic_load_n(s->comp.producer, __ATOMIC_RELAXED);
	bool moved = done != x->done_seen;

	x->done_seen = done;
	return moved && atomic_load_explicit(&x->stalled, memory_order_relaxed);
}

bool xdp_arm(struct ring *ring)
{
	struct xdp_ring *x = xdp_ring(ring);
	bool waiting;

	/* Whoever sleeps cannot refill nor send what is left. */
	xdp_kick(ring);
	waiting = sends_slowly(x);
	for (uint32_t i = 0; i < x->num_queues; i++) {
		struct xsk *s = &x->xsk[i];

		if (s->missing && x->umem.rx_free.num)
			rx_refill(x, s);
		if (__builtin_expect(x->zerocopy, 0))
			rx_tell_again(s);
		if (s->rx.head != __atomic_load_n(s->rx.producer, __ATOMIC_ACQUIRE))
			waiting = true;
	}
	if (waiting)
		return true;
	if (x->pool)
		pool_rest(x);
	x->armed = true;
	stat_add(&x->counters.interrupts_requested, 1);
	return false;
}
