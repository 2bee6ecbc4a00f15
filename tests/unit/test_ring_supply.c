/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How much of a fill ring is filled: all of it, or half of it under a stream of merged segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "ring_fake.h"

#define HALF (UMEM_RX_CHUNKS / 2)
#define PIECE 3840u /* a chunk without the kernel's headroom */
#define LARGEST 17u /* pieces of a frame of 64 KiB */

static int setup(void **state)
{
	return fake_setup(state, UMEM_RX_CHUNKS);
}

static int setup_small(void **state)
{
	return fake_setup(state, HALF);
}

static uint16_t port; /* of the frames' stream */

/* One frame of so many pieces arrives, is polled and given back. */
static void frame(struct fake *f, uint32_t pieces, uint32_t burst)
{
	struct buf *b;

	for (uint32_t i = 0; i < pieces; i++) {
		uint64_t addr = f->fill[f->index[3]++ & f->s->fill.mask] + XDP_HEADROOM;

		if (!i && burst)
			((struct vma_gso_burst *)(f->x->umem.base + addr))[-1] =
				(struct vma_gso_burst){.magic = VMA_GSO_BURST_MAGIC,
						       .size = (uint16_t)(pieces * PIECE / burst),
						       .count = (uint16_t)burst};
		if (!i) {
			f->x->umem.base[addr + 14] = 0x45;
			memcpy(f->x->umem.base + addr + 34, &port, sizeof(port));
		}
		f->rx[f->index[0]++ & f->s->rx.mask] =
			(struct xdp_desc){addr, PIECE, i + 1 < pieces ? XDP_PKT_CONTD : 0};
	}
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 1);
	assert_int_equal(b->total, pieces * PIECE);
	buf_free(b);
	assert_int_equal(f->x->umem.rx_free.num + f->x->filled, UMEM_RX_CHUNKS);
}

static void frames(struct fake *f, uint32_t n, uint32_t pieces)
{
	while (n--)
		frame(f, pieces, 0);
}

/* What the kernel has, when nothing is on its way: the rest of the last batch is put in first. */
static uint32_t supply(struct fake *f)
{
	struct buf *b;

	f->s->refill_at = f->s->held_back;
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	f->s->refill_at += 32;
	assert_int_equal(f->index[2] - f->index[3], f->x->filled);
	return f->x->filled;
}

static void test_merged_segments_go_round_in_half_of_the_ring(void **state)
{
	struct fake *f = *state;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	frames(f, 1000, LARGEST);
	assert_int_equal(supply(f), HALF);
}

static void test_other_frames_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	frames(f, 3000, 1);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	frames(f, 1000, 3); /* MTU 9000 */
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	/* Half of the chunks: nobody's stream. */
	for (unsigned i = 0; i < 200; i++) {
		frames(f, 1, LARGEST);
		frames(f, LARGEST, 1);
	}
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_bursts_of_datagrams_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	f->x->gso_bursts = true;
	for (unsigned i = 0; i < 300; i++)
		frame(f, LARGEST, 48);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_the_ring_is_filled_again_behind_the_stream(void **state)
{
	struct fake *f = *state;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	frames(f, 3000, 1);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

static void test_a_kernel_that_runs_dry_gets_everything_for_a_while(void **state)
{
	struct fake *f = *state;
	uint32_t consumer;

	frames(f, 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	/* Frames have taken nearly all chunks and wait in the receive ring. */
	consumer = f->index[3];
	f->index[3] = f->index[2] - 100;
	rx_refill(f->x, f->s);
	f->index[3] = consumer;
	assert_int_equal(f->x->filled, UMEM_RX_CHUNKS);
	frames(f, 2000, LARGEST);
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	frames(f, 3000, LARGEST);
	assert_int_equal(supply(f), HALF);
}

static void test_each_streams_frames_count(void **state)
{
	struct fake *f = *state;

	for (unsigned i = 0; i < 400; i++) {
		port = (uint16_t)(i % 2);
		frames(f, 1, LARGEST);
	}
	assert_int_equal(supply(f), HALF);
	for (unsigned i = 0; i < 400; i++) {
		port = (uint16_t)(i % 40);
		frames(f, 1, LARGEST);
	}
	port = 0;
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
}

/* As the kernel would have it at a refill, with so many chunks of those that it had under way. */
static void under_way(struct fake *f, uint32_t chunks)
{
	uint32_t consumer = f->index[3];

	f->index[3] = f->index[2] - (f->s->supply - f->s->held_back - chunks);
	rx_refill(f->x, f->s);
	f->index[3] = consumer;
}

static void test_many_streams_have_the_whole_ring(void **state)
{
	struct fake *f = *state;

	/* More than the half would do for, now and then: it is not even tried. */
	for (unsigned i = 0; i < 300; i++) {
		frames(f, 60, LARGEST);
		under_way(f, HALF - 100);
		assert_int_equal(f->s->held_back, 0);
	}
	assert_int_equal(supply(f), UMEM_RX_CHUNKS);
	/* They have become few, */
	frames(f, 64 * 61 + 200, LARGEST);
	assert_int_equal(supply(f), HALF);
	/* and are many now and then: the half is tried more and more rarely. */
	for (uint32_t wait = 1; wait <= 16; wait *= 2) {
		under_way(f, HALF - 100);
		assert_int_equal(f->s->held_back, 0);
		frames(f, wait * 64 * 60, LARGEST);
		assert_int_equal(f->s->held_back, 0);
		frames(f, wait * 64 + 200, LARGEST);
		assert_int_equal(f->s->held_back, UMEM_RX_CHUNKS - HALF);
	}
	/* After good times it is tried soon again. */
	frames(f, 2 * 64 * 64 * 60, LARGEST);
	assert_int_equal(f->s->keep_full_next, 64);
}

static void test_a_small_ring_is_always_full(void **state)
{
	struct fake *f = *state;

	frames(f, 400, LARGEST);
	assert_int_equal(supply(f), HALF);
	assert_int_equal(f->s->held_back, 0);
}

/* Has the kernel been told that there are chunks? */
static bool was_told(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}

/* A driver that found no chunk sets the flag and does not look again, also when one came then. */
static void test_a_driver_that_sleeps_is_told_of_chunks_by_who_polls(void **state)
{
	struct fake *f = *state;
	uint32_t flags = XDP_RING_NEED_WAKEUP;
	struct buf *b;
	int device[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, device), 0);
	f->s->fd = device[0];
	f->s->fill.flags = &flags;
	f->x->zerocopy = true;
	assert_int_equal(send(device[1], "", 1, 0), 1);
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	assert_true(was_told(device[0]));
	assert_int_equal(send(device[1], "", 1, 0), 1);
	assert_false(xdp_arm(&f->x->ring));
	assert_true(was_told(device[0]));
	/* It is awake, or there is nothing that it could be told of. */
	assert_int_equal(send(device[1], "", 1, 0), 1);
	flags = 0;
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	flags = XDP_RING_NEED_WAKEUP;
	f->index[3] = f->index[2];
	assert_int_equal(xdp_poll(&f->x->ring, &b, 1), 0);
	assert_false(was_told(device[0]));
	close(device[0]);
	close(device[1]);
}

/* The kernel's side of opening: a file that rings can be mapped of, and a bind that takes all. */
static int fake_socket(int domain, int type, int protocol)
{
	(void)domain;
	(void)type;
	(void)protocol;
	return memfd_create("xsk", 0);
}

static int fake_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	(void)fd;
	(void)level;
	(void)name;
	(void)value;
	(void)len;
	return 0;
}

static int fake_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	(void)fd;
	(void)level;
	(void)name;
	memset(value, 0, *len);
	return 0;
}

static uint16_t bound;

static int fake_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	(void)fd;
	(void)len;
	bound = ((const struct sockaddr_xdp *)addr)->sxdp_flags;
	return 0;
}

/* A ring of the first process of a pool, or the first one of a share, as it is opened. */
static struct xdp_ring *opened(struct pool *pool, struct xdp_share *share)
{
	static struct ring_port port;
	const struct libc_table real = libc;
	struct xdp_ring *x = calloc(1, sizeof(*x) + sizeof(struct xsk));
	unsigned queue;

	assert_non_null(x);
	port = (struct ring_port){.mode = PORT_NATIVE};
	params.rx_wre = params.tx_wre = UMEM_RX_CHUNKS;
	x->num_queues = 1;
	x->port = &port;
	x->pool = pool;
	x->share = share;
	x->umem.num_rx = POOL_RX_CHUNKS;
	x->umem.num_chunks = POOL_CHUNKS;
	x->gso_fd = -1;
	libc.socket = fake_socket;
	libc.setsockopt = fake_setsockopt;
	libc.getsockopt = fake_getsockopt;
	libc.bind = fake_bind;
	assert_int_equal(xsk_open_all(x, &queue), 0);
	libc = real;
	return x;
}

/* Else the kernel frees a frame of several chunks whose head is ours already. */
static void test_what_zero_copy_can_bring_fits_the_receive_ring(void **state)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	struct xdp_ring *x = opened(pool, NULL);

	(void)state;
	assert_true(bound & XDP_ZEROCOPY);
	assert_true(bound & XDP_USE_SG);
	assert_int_equal(x->xsk[0].rx.size, UMEM_RX_CHUNKS);
	assert_int_equal(x->xsk[0].supply, UMEM_RX_CHUNKS);
	assert_int_equal(x->xsk[0].missing, UMEM_RX_CHUNKS);
	xsk_close_all(x);
	free(x);
	free(pool);
}

/* Their chunks together do not fit one's receive ring: no frames of several chunks. */
static void test_rings_of_a_share_take_frames_of_one_chunk_from_zero_copy(void **state)
{
	struct xdp_share *share = calloc(1, sizeof(*share));
	struct xdp_ring *x;

	(void)state;
	share->max = 2;
	x = opened(NULL, share);
	assert_true(bound & XDP_ZEROCOPY);
	assert_false(bound & XDP_USE_SG);
	xsk_close_all(x);
	free(x);
	free(share);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_merged_segments_go_round_in_half_of_the_ring,
						setup, fake_teardown),
		cmocka_unit_test_setup_teardown(test_other_frames_have_the_whole_ring, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_bursts_of_datagrams_have_the_whole_ring, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_the_ring_is_filled_again_behind_the_stream,
						setup, fake_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_kernel_that_runs_dry_gets_everything_for_a_while, setup,
			fake_teardown),
		cmocka_unit_test_setup_teardown(test_each_streams_frames_count, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_many_streams_have_the_whole_ring, setup,
						fake_teardown),
		cmocka_unit_test_setup_teardown(test_a_small_ring_is_always_full, setup_small,
						fake_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_driver_that_sleeps_is_told_of_chunks_by_who_polls, setup,
			fake_teardown),
		cmocka_unit_test_setup_teardown(test_what_zero_copy_can_bring_fits_the_receive_ring,
						setup, fake_teardown),
		cmocka_unit_test_setup_teardown(
			test_rings_of_a_share_take_frames_of_one_chunk_from_zero_copy, setup,
			fake_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
