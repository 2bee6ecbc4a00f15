/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ring's bookkeeping without a device: free stacks, descriptors from outside, chains of
 * buffers, receive and completion rings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring_fake.h"
#include "stack/stack.h"

static int setup(void **state)
{
	return fake_setup(state, UMEM_RX_CHUNKS);
}

/* Hands the chunk that the fill ring offers at position `at` back as received. */
static void deliver(struct fake *f, uint32_t at, uint32_t len, uint32_t options)
{
	f->rx[f->index[0]++ % SIZE] = (struct xdp_desc){f->fill[at] + XDP_HEADROOM, len, options};
}

static void test_a_chunk_freed_last_is_taken_first(void **state)
{
	uint32_t index[4], got;
	struct chunk_stack s = {.max = 4, .index = index};

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		assert_true(chunk_push(&s, 10 + i));
	assert_false(chunk_push(&s, 99));
	for (uint32_t i = 4; i-- > 0;) {
		assert_true(chunk_pop(&s, &got));
		assert_int_equal(got, 10 + i);
	}
	assert_false(chunk_pop(&s, &got));
}

static void test_a_descriptor_outside_the_umem_names_no_buffer(void **state)
{
	struct fake *f = *state;
	const struct xdp_umem *u = &f->x->umem;
	const uint64_t end = (uint64_t)UMEM_CHUNKS * UMEM_CHUNK;

	assert_ptr_equal(umem_desc_buf(u, 0, 0), &u->bufs[0]);
	assert_ptr_equal(umem_desc_buf(u, 4096 + 256, 3840), &u->bufs[1]);
	assert_null(umem_desc_buf(u, 4096 + 256, 3841));
	assert_ptr_equal(umem_desc_buf(u, end - 1, 1), &u->bufs[UMEM_CHUNKS - 1]);
	assert_null(umem_desc_buf(u, end - 1, 2));
	assert_null(umem_desc_buf(u, end, 0));
	assert_null(umem_desc_buf(u, UINT64_MAX, 1));
	assert_null(umem_desc_buf(u, UINT64_MAX - 255, 256));
	assert_null(umem_desc_buf(u, 0, UINT32_MAX));
	assert_null(umem_desc_buf(u, 4095, UINT32_MAX - 4094));
}

static void test_every_chunk_for_receiving_is_given_to_the_kernel_once(void **state)
{
	struct fake *f = *state;
	uint8_t seen[UMEM_RX_CHUNKS] = {0};

	assert_int_equal(f->index[2], UMEM_RX_CHUNKS);
	for (uint32_t i = 0; i < UMEM_RX_CHUNKS; i++) {
		assert_int_equal(f->fill[i] % UMEM_CHUNK, 0);
		assert_int_equal(seen[f->fill[i] / UMEM_CHUNK]++, 0);
	}
	assert_int_equal(f->x->umem.rx_free.num, 0);
}

static void test_received_chunks_go_back_to_the_fill_ring(void **state)
{
	struct fake *f = *state;
	struct buf *pkts[SIZE];

	for (uint32_t i = 0; i < 40; i++)
		deliver(f, i, 100, 0);
	assert_int_equal(xdp_poll(&f->x->ring, pkts, 16), 16);
	assert_int_equal(f->index[1], 16);
	assert_int_equal(xdp_poll(&f->x->ring, pkts + 16, SIZE), 24);
	assert_int_equal(xdp_poll(&f->x->ring, pkts + 40, 1), 0);
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(pkts[i]->total, 100);
		assert_ptr_equal(pkts[i]->data, f->x->umem.base + f->fill[i] + XDP_HEADROOM);
		buf_free(pkts[i]);
	}
	assert_int_equal(f->x->umem.rx_free.num, 40);
	xdp_poll(&f->x->ring, pkts, 1); /* an empty poll refills */
	assert_int_equal(f->x->umem.rx_free.num, 0);
	assert_int_equal(f->index[2], UMEM_RX_CHUNKS + 40);
	assert_int_equal(f->x->filled, UMEM_RX_CHUNKS);
}

/* A thread of the program, as VMA_CQ_POLL_BATCH_MAX says; the frames are nobody's. */
static void test_a_poll_takes_no_more_than_is_set(void **state)
{
	static const struct ring_ops ops = {.poll = xdp_poll};
	static const unsigned most[] = {1, 16, 3, 128}, taken[] = {1, 16, 3, 20};
	struct fake *f = *state;
	struct vma_stats_ring stats = {.drop_other = 0};
	struct stack st = {.open = true, .ring = &f->x->ring, .stats = &stats};

	f->x->ring.ops = &ops;
	for (uint32_t i = 0; i < 40; i++)
		deliver(f, i, 64, 0);
	for (unsigned i = 0; i < 4; i++) {
		params.cq_poll_batch_max = (int)most[i];
		assert_int_equal(stack_poll_called(&st), taken[i]);
	}
	assert_int_equal(stack_poll_called(&st), 0);
	assert_int_equal(stats.drop_other + stats.drop_malformed, 40);
}

static void test_a_chain_may_arrive_in_two_polls(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	deliver(f, 0, 3840, XDP_PKT_CONTD);
	deliver(f, 1, 3840, XDP_PKT_CONTD);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	deliver(f, 2, 20, 0);
	deliver(f, 3, 60, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->total, 7700);
	assert_int_equal(b->frag->len, 3840);
	assert_int_equal(b->frag->frag->len, 20);
	assert_null(b->frag->frag->frag);
	buf_free(b);
	assert_int_equal(f->x->umem.rx_free.num, 3);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->total, 60);
	buf_free(b);
}

static void test_a_bad_descriptor_drops_its_frame_only(void **state)
{
	struct fake *f = *state;
	struct buf *pkts[8];

	deliver(f, 0, 3840, XDP_PKT_CONTD);
	f->rx[f->index[0]++] = (struct xdp_desc){UINT64_MAX, 10, XDP_PKT_CONTD};
	deliver(f, 1, 3840, XDP_PKT_CONTD);
	deliver(f, 2, 10, 0);
	deliver(f, 3, 64, 0);
	f->rx[f->index[0]++] =
		(struct xdp_desc){f->fill[3] + XDP_HEADROOM, 64, 0}; /* handed out already */
	assert_int_equal(xdp_poll(&f->x->ring, pkts, 8), 1);
	assert_int_equal(pkts[0]->total, 64);
	assert_int_equal(f->x->counters.rx_drop_invalid, 2);
	assert_int_equal(f->x->umem.rx_free.num, 3);
	buf_free(pkts[0]);
	/* One is lost: what named no chunk came in some chunk's place. */
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS - 1);
}

static void test_an_endless_chain_is_dropped(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < SIZE; i++)
			deliver(f, round * SIZE + i, 100, XDP_PKT_CONTD);
		assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	}
	assert_int_equal(f->x->counters.rx_drop_invalid, 1);
	deliver(f, 3 * SIZE, 100, 0); /* its end */
	deliver(f, 3 * SIZE + 1, 77, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->total, 77);
	buf_free(b);
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS);
}

static void test_held_frames_move_to_the_heap_and_back(void **state)
{
	struct fake *f = *state;
	struct buf *held[UMEM_RX_CHUNKS], *b;
	uint32_t n = 0, heap = 0;

	for (; n < 1800; n++) {
		deliver(f, n, 64, 0);
		memset(f->x->umem.base + f->fill[n] + XDP_HEADROOM, (int)n, 64);
		assert_int_equal(xdp_poll(&f->x->ring, &held[n], 1), 1);
		assert_int_equal(held[n]->data[63], (uint8_t)n);
		heap += held[n]->pool == &f->x->heap_pool;
	}
	assert_in_range(heap, 200, 300);
	assert_int_equal(buf_copies(), heap);
	while (n)
		buf_free(held[--n]);
	assert_int_equal(buf_copies(), 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS);
}

/* VMA_RX_BUFS is for the process: what other rings have copied is not there for this one. */
static void test_copies_of_other_rings_count_too(void **state)
{
	struct fake *f = *state;
	struct buf *held[UMEM_RX_CHUNKS];
	uint32_t n = 0, heap = 0;

	for (unsigned i = 0; i < 900; i++)
		assert_true(buf_copy_begin(1000));
	for (; n < 1800; n++) {
		deliver(f, n, 64, 0);
		assert_int_equal(xdp_poll(&f->x->ring, &held[n], 1), 1);
		heap += held[n]->pool == &f->x->heap_pool;
	}
	assert_int_equal(heap, 100);
	while (n)
		buf_free(held[--n]);
	assert_int_equal(buf_copies(), 900);
	for (unsigned i = 0; i < 900; i++)
		buf_copy_end();
}

static void test_posted_buffers_come_back_through_the_completion_ring(void **state)
{
	struct fake *f = *state;
	struct buf *b = xdp_tx_alloc(&f->x->ring, 60), *kept = xdp_tx_alloc(&f->x->ring, 60);

	assert_int_equal(b->room, UMEM_CHUNK);
	b->data += 10;
	b->len = b->total = 60;
	kept->len = kept->total = 70;
	kept->refs++;
	assert_int_equal(xdp_post(&f->x->ring, b), 0);
	assert_int_equal(xdp_post(&f->x->ring, kept), 0);
	assert_int_equal(f->index[4], 2);
	assert_int_equal(f->tx[0].addr, b->addr + 10);
	assert_int_equal(f->tx[0].len, 60);
	f->comp[0] = f->tx[0].addr;
	f->comp[1] = f->tx[1].addr;
	f->comp[2] = UINT64_MAX; /* ignored */
	f->index[6] = 3;
	tx_reclaim(f->x);
	assert_int_equal(f->index[7], 3);
	assert_int_equal(f->x->umem.tx_free.num, UMEM_TX_CHUNKS - 1);
	assert_int_equal(kept->refs, 1);
	buf_free(kept);
	assert_int_equal(f->x->umem.tx_free.num, UMEM_TX_CHUNKS);
}

static void test_post_refuses_what_must_not_be_sent(void **state)
{
	struct fake *f = *state;
	struct buf *b = xdp_tx_alloc(&f->x->ring, 60), *heap = buf_heap_alloc(100);

	b->len = 1515;
	assert_int_equal(xdp_post(&f->x->ring, b), -EMSGSIZE);
	b->len = 0;
	assert_int_equal(xdp_post(&f->x->ring, b), -EINVAL);
	b->len = 100;
	b->data += UMEM_CHUNK - 99;
	assert_int_equal(xdp_post(&f->x->ring, b), -EINVAL);
	b->data += UMEM_CHUNK;
	assert_int_equal(xdp_post(&f->x->ring, b), -EINVAL);
	heap->len = 100;
	assert_int_equal(xdp_post(&f->x->ring, heap), -EINVAL);
	assert_int_equal(f->index[4], 0);
	assert_int_equal(f->x->counters.tx_drop_oversize, 1);
	buf_free(heap);
	buf_free(b);
}

static void test_a_full_transmit_ring_says_so_and_keeps_the_buffer_with_the_caller(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	for (uint32_t i = 0; i < SIZE; i++) {
		b = xdp_tx_alloc(&f->x->ring, 60);
		b->len = 64;
		assert_int_equal(xdp_post(&f->x->ring, b), 0);
	}
	b = xdp_tx_alloc(&f->x->ring, 60);
	b->len = 64;
	assert_int_equal(xdp_post(&f->x->ring, b), -ENOBUFS);
	assert_int_equal(f->x->counters.tx_full, 1);
	f->index[5] = 1; /* the kernel took one */
	assert_int_equal(xdp_post(&f->x->ring, b), 0);
}

/*
 * Writes in front of the frame that the fill ring offers at position `at` what the steering program
 * would.
 */
static struct vma_gso_burst *mark(struct fake *f, uint32_t at, uint16_t size, uint16_t count)
{
	struct vma_gso_burst *t =
		(struct vma_gso_burst *)(f->x->umem.base + f->fill[at] + XDP_HEADROOM) - 1;

	*t = (struct vma_gso_burst){.magic = VMA_GSO_BURST_MAGIC, .size = size, .count = count};
	return t;
}

static void test_a_marked_frame_is_a_burst_once(void **state)
{
	struct fake *f = *state;
	struct vma_gso_burst *t = mark(f, 0, 64, 3);
	struct buf *b;

	f->x->gso_bursts = true;
	deliver(f, 0, 42 + 150, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->gso_size, 64);
	assert_true(b->flags & BUF_CSUM_PARTIAL_OK);
	assert_int_equal(f->x->counters.rx_packets, 3);
	assert_int_equal(f->x->counters.rx_gso_frames, 1);
	assert_int_equal(t->magic, 0);
	buf_free(b);
	/* The next frame in the same chunk is nothing but a frame. */
	f->fill[1] = f->fill[0];
	deliver(f, 1, 42 + 150, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->gso_size, 0);
	assert_int_equal(f->x->counters.rx_packets, 4);
	buf_free(b);
}

static void test_a_mark_that_does_not_fit_its_frame_drops_it(void **state)
{
	static const struct {
		uint16_t size, count;
		uint32_t len;
		bool good;
	} cases[] = {
		{100, 2, 42 + 101, true},    {100, 2, 42 + 100, false},
		{100, 2, 42 + 200, true},    {100, 2, 62 + 200, true},
		{100, 2, 63 + 200, false},   {100, 1, 42 + 100, false},
		{100, 0, 42 + 100, false},   {65535, 65535, 42 + 100, false},
		{1, 65535, 42 + 100, false}, {65535, 2, 42 + 100, false},
		{1, 2, 20, false},
	};
	struct fake *f = *state;
	uint64_t dropped = 0;
	struct buf *b;

	f->x->gso_bursts = true;
	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		mark(f, i, cases[i].size, cases[i].count);
		deliver(f, i, cases[i].len, 0);
		assert_int_equal(xdp_poll(&f->x->ring, &b, 1), cases[i].good);
		dropped += !cases[i].good;
		assert_int_equal(f->x->counters.rx_drop_invalid, dropped);
		if (cases[i].good)
			buf_free(b);
	}
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS);
}

static void test_marks_are_not_looked_for_where_nobody_writes_them(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	mark(f, 0, 64, 3);
	deliver(f, 0, 42 + 150, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->gso_size, 0);
	buf_free(b);
	/* A frame at the start of its chunk: in front of it is another one's memory. */
	f->x->gso_bursts = true;
	*(struct vma_gso_burst *)(f->x->umem.base + f->fill[1] - sizeof(struct vma_gso_burst)) =
		(struct vma_gso_burst){.magic = VMA_GSO_BURST_MAGIC, .size = 64, .count = 3};
	f->rx[f->index[0]++ % SIZE] = (struct xdp_desc){f->fill[1], 42 + 150, 0};
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->gso_size, 0);
	buf_free(b);
}

/* A GSO burst in chunks of 3840 bytes, each byte of its payload its offset's remainder by 251. */
static struct buf *long_burst(struct fake *f, uint32_t pieces, uint16_t size, uint32_t bytes)
{
	struct buf *b = NULL;
	uint32_t done = 0;

	mark(f, 0, size, (uint16_t)((bytes + size - 1) / size));
	for (uint32_t i = 0; i < pieces; i++) {
		uint32_t skip = i ? 0 : 42, n = i + 1 < pieces ? 3840 : bytes - done;

		for (uint32_t k = skip; k < n; k++)
			f->x->umem.base[f->fill[i] + XDP_HEADROOM + k] =
				(uint8_t)((done + k - skip) % 251);
		done += n - skip;
		deliver(f, i, n, i + 1 < pieces ? XDP_PKT_CONTD : 0);
	}
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	b = buf_skip(b, 42);
	assert_int_equal(b->total, bytes);
	return b;
}

static void test_a_burst_is_taken_apart_from_the_front(void **state)
{
	struct fake *f = *state;
	struct buf *b, *after = buf_heap_alloc(1);
	uint32_t off = 0;

	f->x->gso_bursts = true;
	b = long_burst(f, 3, 700, 9000);
	b->next = after;
	for (; b->total > 700; off += 700) {
		assert_int_equal(b->data[0], off % 251);
		b = buf_skip(b, 700);
		assert_int_equal(b->gso_size, 700);
		assert_ptr_equal(b->next, after);
		assert_int_equal(b->total, 9000 - off - 700);
	}
	assert_int_equal(b->total, 9000 % 700);
	/* Two chunks have been given back on the way. */
	assert_null(b->frag);
	assert_int_equal(f->x->umem.rx_free.num, 2);
	buf_free(b);
	buf_free(after);
	assert_int_equal(f->x->umem.rx_free.num, 3);
}

static void test_a_burst_is_cut_from_the_back(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	f->x->gso_bursts = true;
	b = long_burst(f, 3, 700, 9000);
	buf_cut(b, 9000);
	assert_int_equal(b->frag->frag->len, 9000 - 2 * 3840 + 42);
	buf_cut(b, 4000);
	assert_int_equal(b->total, 4000);
	assert_int_equal(b->frag->len, 4000 - 3840 + 42);
	assert_null(b->frag->frag);
	assert_int_equal(f->x->umem.rx_free.num, 1);
	buf_cut(b, 3840 - 42);
	assert_null(b->frag);
	buf_cut(b, 1);
	assert_int_equal(b->len, 1);
	buf_free(b);
	assert_int_equal(f->x->umem.rx_free.num, 3);
}

static void test_a_burst_on_the_heap_is_one_still(void **state)
{
	struct fake *f = *state;
	struct buf *held[UMEM_RX_CHUNKS];
	uint32_t n = 0;

	f->x->gso_bursts = true;
	do {
		mark(f, n, 64, 3);
		deliver(f, n, 42 + 150, 0);
		assert_int_equal(xdp_poll(&f->x->ring, &held[n], 1), 1);
	} while (held[n]->pool != &f->x->heap_pool && ++n < UMEM_RX_CHUNKS - 1);
	assert_ptr_equal(held[n]->pool, &f->x->heap_pool);
	assert_int_equal(held[n]->gso_size, 64);
	assert_int_equal(held[n]->total, 42 + 150);
	do
		buf_free(held[n]);
	while (n--);
}

/* What the steering program is told. */
static volatile uint32_t wanted;

/* As the steering program writes it in front of the frame that fill ring entry `at` will be. */
static void stamp(struct fake *f, uint32_t at, uint64_t ns, uint32_t magic)
{
	const struct vma_rx_stamp t = {.ns = ns, .magic = magic};

	memcpy(f->x->umem.base + f->fill[at] + XDP_HEADROOM - sizeof(t), &t, sizeof(t));
}

static void test_the_devices_time_is_read_where_it_is_wanted(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	f->port.stamps = &wanted;
	wanted = 0;
	for (uint32_t i = 0; i < 4; i++)
		stamp(f, i, 1000 + i, i == 1 ? 0 : VMA_RX_STAMP_MAGIC);
	deliver(f, 0, 60, 0);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_false(b->flags & BUF_HW_TIME);
	assert_int_equal(wanted, 0);
	buf_free(b);
	for (uint32_t i = 1; i < 4; i++)
		deliver(f, i, 60, 0);
	assert_int_equal(xdp_poll_stamped(&f->x->ring, &b, 1), 1);
	assert_int_equal(wanted, 1); /* the program is told */
	assert_false(b->flags & BUF_HW_TIME); /* the driver had none */
	buf_free(b);
	assert_int_equal(xdp_poll_stamped(&f->x->ring, &b, 1), 1);
	assert_true(b->flags & BUF_HW_TIME);
	assert_int_equal(b->hw_ns, 1002);
	buf_free(b);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_false(b->flags & BUF_HW_TIME);
	buf_free(b);
}

/* A frame that begins with its chunk has nothing in front of it. */
static void test_no_time_is_read_outside_of_the_chunk(void **state)
{
	struct fake *f = *state;
	struct buf *b;

	f->port.stamps = &wanted;
	wanted = 0;
	for (uint32_t i = 0; i < 8; i++) {
		const struct vma_rx_stamp t = {.ns = 1, .magic = VMA_RX_STAMP_MAGIC};
		uint64_t addr = f->fill[i] + 2 * i;

		if (addr >= sizeof(t)) /* another chunk's last bytes */
			memcpy(f->x->umem.base + addr - sizeof(t), &t, sizeof(t));
		f->rx[f->index[0]++ % SIZE] = (struct xdp_desc){addr, 60, 0};
	}
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(xdp_poll_stamped(&f->x->ring, &b, 1), 1);
		assert_false(b->flags & BUF_HW_TIME);
		buf_free(b);
	}
}

static void test_a_copy_on_the_heap_has_the_devices_time(void **state)
{
	struct fake *f = *state;
	struct buf *held[UMEM_RX_CHUNKS];
	uint32_t n = 0;

	f->port.stamps = &wanted;
	wanted = 0;
	do {
		stamp(f, n, 5000 + n, VMA_RX_STAMP_MAGIC);
		deliver(f, n, 60, 0);
		assert_int_equal(xdp_poll_stamped(&f->x->ring, &held[n], 1), 1);
	} while (held[n]->pool != &f->x->heap_pool && ++n < UMEM_RX_CHUNKS - 1);
	assert_ptr_equal(held[n]->pool, &f->x->heap_pool);
	assert_true(held[n]->flags & BUF_HW_TIME);
	assert_int_equal(held[n]->hw_ns, 5000 + n);
	do
		buf_free(held[n]);
	while (n--);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, fake_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_chunk_freed_last_is_taken_first),
		TEST(a_descriptor_outside_the_umem_names_no_buffer),
		TEST(every_chunk_for_receiving_is_given_to_the_kernel_once),
		TEST(received_chunks_go_back_to_the_fill_ring),
		TEST(a_poll_takes_no_more_than_is_set),
		TEST(a_chain_may_arrive_in_two_polls),
		TEST(a_bad_descriptor_drops_its_frame_only),
		TEST(an_endless_chain_is_dropped),
		TEST(held_frames_move_to_the_heap_and_back),
		TEST(copies_of_other_rings_count_too),
		TEST(posted_buffers_come_back_through_the_completion_ring),
		TEST(post_refuses_what_must_not_be_sent),
		TEST(a_full_transmit_ring_says_so_and_keeps_the_buffer_with_the_caller),
		TEST(a_marked_frame_is_a_burst_once),
		TEST(a_mark_that_does_not_fit_its_frame_drops_it),
		TEST(marks_are_not_looked_for_where_nobody_writes_them),
		TEST(a_burst_is_taken_apart_from_the_front),
		TEST(a_burst_is_cut_from_the_back),
		TEST(a_burst_on_the_heap_is_one_still),
		TEST(the_devices_time_is_read_where_it_is_wanted),
		TEST(no_time_is_read_outside_of_the_chunk),
		TEST(a_copy_on_the_heap_has_the_devices_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
