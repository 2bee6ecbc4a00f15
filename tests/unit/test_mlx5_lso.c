/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Large frames on the mlx5 send queue: the descriptor byte by byte, every place in the queue, and
 * what the ring makes of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/mlx5.h"
#include "ring/mlx5/pool.h"
#include "ring/mlx5/queue/wqe.h"
#include "runtime/libc.h"
#include "config/params.h"

#define CHUNK 2048u
#define TCP_HEADER 66u /* with the time stamp option */
#define UDP_HEADER 42u

/* What left. */
static struct {
	uint8_t frame[64][2048];
	uint32_t len[64];
	unsigned num;
} out;

static void sent(struct soft *s, const uint8_t *frame, uint32_t len)
{
	(void)s;
	if (out.num < 64 && len <= sizeof(out.frame[0])) {
		memcpy(out.frame[out.num], frame, len);
		out.len[out.num] = len;
	}
	out.num++;
}

static int restore(void **state)
{
	(void)state;
	if (soft)
		soft->o.ops->close(&soft->o);
	memset(&out, 0, sizeof(out));
	soft_config = (struct soft_config){.cqe_size = 64,
					   .min_inline = 18,
					   .bf_size = 256,
					   .max_frame = 1514,
					   .max_tso = 65536};
	return 0;
}

/*
 * Headers of a TCP segment (FIN, PSH, ACK, a time stamp) or of a datagram from 10.0.0.1
 * to 10.0.0.2.
 */
static void header_fill(uint8_t *h, bool tcp)
{
	static const uint8_t start[34] = {2, 0, 0,    0, 0,    2,    2,	 0, 0,	  0, 0,	 1,
					  8, 0, 0x45, 0, 0xff, 0xff, 0,	 7, 0x40, 0, 64, 17,
					  0, 0, 10,   0, 0,    1,    10, 0, 0,	  2};
	static const uint8_t tcp_start[32] = {0, 80,   0x12, 0x34, 0, 0, 0x10, 0, 0, 0, 0,
					      1, 0x80, 0x19, 1,	   0, 0, 0,    0, 0, 1, 1,
					      8, 10,   1,    2,	   3, 4, 5,    6, 7, 8};
	static const uint8_t udp_start[8] = {0, 53, 0x12, 0x34, 0xff, 0xff, 0, 0};

	memcpy(h, start, sizeof(start));
	if (tcp) {
		h[23] = 6;
		memcpy(h + 34, tcp_start, sizeof(tcp_start));
	} else {
		memcpy(h + 34, udp_start, sizeof(udp_start));
	}
}

/* A send queue on the device in software. */
struct world {
	struct mlx5_memory memory;
	struct sq sq;
};

static struct world *world_make(uint32_t bbs)
{
	struct world *w = calloc(1, sizeof(*w));
	struct mlx5_want want = {.tx_wre = 64, .rx_wre = 64, .max_inline = 204, .ask_every = 64};
	struct sq_config config = {.max_inline = 204, .ask_every = 64};
	struct mlx5_objects *o;

	assert_int_equal(memory_init(&w->memory, PAGES_ANON, CHUNK, 1, 256), 0);
	want.base = w->memory.base;
	want.bytes = w->memory.bytes;
	soft_config.sq_bbs = bbs;
	assert_int_equal(mlx5_objects_open(NULL, &o), 0);
	soft->sent = sent;
	assert_int_equal(o->ops->start(o, &want), 0);
	config.qpn = o->qpn;
	config.lkey = o->lkey;
	config.min_inline = o->min_inline;
	assert_int_equal(sq_init(&w->sq, &o->qp, &o->tx_cq, &config), 0);
	return w;
}

static void world_free(struct world *w)
{
	sq_fini(&w->sq);
	assert_int_equal(w->memory.tx.num_free, w->memory.tx.num);
	soft->o.ops->close(&soft->o);
	memory_fini(&w->memory);
	free(w);
}

static uint8_t payload_byte(uint32_t at, unsigned seed)
{
	return (uint8_t)(at * 7 + (at >> 8) + seed * 31);
}

static struct buf *payload_make(struct world *w, uint32_t len, unsigned seed)
{
	struct buf *first = NULL, **at = &first;
	uint32_t done = 0;

	while (done < len) {
		struct buf *b = pool_get(&w->memory.tx, CHUNK);

		assert_non_null(b);
		b->len = len - done < CHUNK ? len - done : CHUNK;
		for (uint32_t i = 0; i < b->len; i++)
			b->data[i] = payload_byte(done + i, seed);
		done += b->len;
		*at = b;
		at = &b->frag;
	}
	return first;
}

static void a_large_frame_in_its_wqe(void **state)
{
	/*
	 * Control: index 0, TSO; queue pair 0x1234, 8 units; a completion. Ethernet: checksums,
	 * segments of 1448 bytes, 66 bytes of headers, two of them here and 64 behind; then two
	 * data segments.
	 */
	static const uint8_t golden[32] = {
		0, 0, 0, 0x0e, 0,    0x12, 0x34, 8,    0, 0, 0, 8, 0, 0,  0, 0,
		0, 0, 0, 0,    0xc0, 0,	   0x05, 0xa8, 0, 0, 0, 0, 0, 66, 2, 0,
	};
	uint8_t header[TCP_HEADER], *wqe;
	struct world *w;
	struct buf *b;

	(void)state;
	w = world_make(64);
	header_fill(header, true);
	b = payload_make(w, 3000, 1);
	assert_int_equal(sq_post_lso(&w->sq, header, TCP_HEADER, 1448, b, NULL), 0);
	wqe = w->sq.wqes;
	assert_memory_equal(wqe, golden, 32);
	assert_memory_equal(wqe + 32, header + 2, 64);
	assert_int_equal(get32(wqe + 96), 2048);
	assert_int_equal(get32(wqe + 100), be32toh(w->sq.lkey));
	assert_int_equal(get64(wqe + 104), (uint64_t)(uintptr_t)b->data);
	assert_int_equal(get32(wqe + 112), 952);
	assert_int_equal(get64(wqe + 120), (uint64_t)(uintptr_t)b->frag->data);
	assert_int_equal(w->sq.pi, 2);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(out.num, 3);
	sq_reclaim(&w->sq);
	assert_int_equal(w->memory.tx.num_free, w->memory.tx.num);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void a_wqe_of_another_unit_count_names_it(void **state)
{
	uint8_t header[UDP_HEADER];
	struct world *w;

	(void)state;
	w = world_make(64);
	header_fill(header, false);
	/* 2 and three of headers (40 bytes behind the first two), and 5 buffers. */
	assert_int_equal(
		sq_post_lso(&w->sq, header, UDP_HEADER, 1000, payload_make(w, 9000, 1), NULL), 0);
	assert_int_equal(w->sq.wqes[7], 10);
	assert_int_equal(get16(w->sq.wqes + 28), UDP_HEADER);
	assert_int_equal(get16(w->sq.wqes + 22), 1000);
	assert_int_equal(w->sq.pi, 3);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(out.num, 9);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

/* The segments of a frame of len bytes of payload are what a peer expects. */
static void segments_check(uint32_t len, uint32_t mss, bool tcp, unsigned seed)
{
	uint32_t header = tcp ? TCP_HEADER : UDP_HEADER;
	unsigned n = (len + mss - 1) / mss;

	assert_int_equal(out.num, n);
	for (unsigned i = 0; i < n; i++) {
		uint32_t part = i + 1 < n ? mss : len - i * mss, wrong = 0;
		const uint8_t *f = out.frame[i];
		struct mdev_seen seen;

		assert_int_equal(out.len[i], header + part);
		mdev_look(f, out.len[i], &seen);
		assert_int_equal(seen.ok, 7);
		assert_int_equal(get16(f + 18), 7 + i);
		if (tcp) {
			assert_int_equal(get32(f + 38), 0x1000 + i * mss);
			assert_int_equal(f[47], i + 1 < n ? 0x10 : 0x19);
		} else {
			assert_int_equal(get16(f + 38), 8 + part);
		}
		for (uint32_t k = 0; k < part; k++)
			wrong += f[header + k] != payload_byte(i * mss + k, seed);
		assert_int_equal(wrong, 0);
	}
}

static void at_every_place_of_the_queue_it_arrives(void **state)
{
	static const uint32_t lengths[] = {1,	 1447,	1449,  2047,  2048, 2049,
					   4097, 14480, 20000, 40000, 65000};
	uint8_t header[TCP_HEADER];

	(void)state;
	for (unsigned bbs = 32; bbs <= 128; bbs *= 2) {
		struct world *w = world_make(bbs);
		unsigned seed = 0;

		for (unsigned lap = 0; lap < 100; lap++) {
			for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]);
			     i++, seed++) {
				bool tcp = (lap + i) & 1;
				uint32_t len = tcp || lengths[i] < 1448 ? lengths[i]
									: lengths[i] / 1448 * 1448;
				struct buf *b = payload_make(w, len, seed);

				header_fill(header, tcp);
				/* What the card copies into all datagrams. */
				if (!tcp)
					put16(header + 38, (u16)(8 + (len < 1448 ? len : 1448)));
				/* Now and then a short one in between: each start is met. */
				if (seed % 3 == 0) {
					struct buf *s = sq_slot(&w->sq, 60);

					if (!s)
						s = pool_get(&w->memory.tx, CHUNK);
					memset(s->data, 1, 60);
					s->len = 60;
					assert_int_equal(sq_post(&w->sq, s), 0);
					sq_kick(&w->sq);
					assert_int_equal(soft_run(soft, 9), 1);
				}
				out.num = 0;
				assert_int_equal(sq_post_lso(&w->sq, header,
							     tcp ? TCP_HEADER : UDP_HEADER, 1448, b,
							     NULL),
						 0);
				sq_kick(&w->sq);
				assert_int_equal(soft_run(soft, 9), 1);
				segments_check(len, 1448, tcp, seed);
				assert_int_equal(soft->dev.complaints, 0);
			}
		}
		world_free(w);
	}
}

static void a_full_queue_refuses_a_large_frame_and_keeps_what_it_has(void **state)
{
	uint8_t header[TCP_HEADER];
	struct world *w;
	struct buf *b;
	unsigned n = 0;

	(void)state;
	header_fill(header, true);
	w = world_make(32);
	for (;; n++) {
		b = payload_make(w, 20000, n);
		if (sq_post_lso(&w->sq, header, TCP_HEADER, 1448, b, NULL))
			break;
	}
	assert_int_equal(n, 32 / 4);
	assert_int_equal(b->refs, 1);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 99), n);
	assert_int_equal(sq_post_lso(&w->sq, header, TCP_HEADER, 1448, b, NULL), 0);
	sq_kick(&w->sq);
	assert_int_equal(soft_run(soft, 99), 1);
	assert_int_equal(soft->dev.complaints, 0);
	world_free(w);
}

static void what_is_no_large_frame_is_refused(void **state)
{
	uint8_t header[SQ_LSO_HEADER_MAX + 1] = {0};
	struct world *w;
	struct buf *b;

	(void)state;
	w = world_make(64);
	b = payload_make(w, 3000, 1);
	assert_int_equal(sq_post_lso(&w->sq, header, 17, 1448, b, NULL), -EINVAL);
	assert_int_equal(sq_post_lso(&w->sq, header, SQ_LSO_HEADER_MAX + 1, 1448, b, NULL),
			 -EINVAL);
	assert_int_equal(sq_post_lso(&w->sq, header, TCP_HEADER, 0, b, NULL), -EINVAL);
	assert_int_equal(sq_post_lso(&w->sq, header, TCP_HEADER, 1448, NULL, NULL), -EINVAL);
	buf_free(b);
	b = payload_make(w, (sq_lso_segments(TCP_HEADER) + 1) * CHUNK, 1);
	assert_int_equal(sq_post_lso(&w->sq, header, TCP_HEADER, 1448, b, NULL), -EINVAL);
	buf_free(b);
	world_free(w);
}

/* --- the ring */

static struct ring *ring_make(uint32_t tx_wre)
{
	static const uint8_t mac[6];
	struct ring *r;

	libc_load();
	params.rx_wre = 32;
	params.tx_wre = (int)tx_wre;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 204;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	params.cq_keep_qp_full = 1;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	soft->sent = sent;
	r->ops->link_changed(r, 1500, mac);
	return r;
}

static void the_ring_has_the_device_cut(void **state)
{
	struct ring_gso g = {.hdr_len = UDP_HEADER,
			     .l4_off = 34,
			     .csum_off = 6,
			     .gso_size = 1000,
			     .proto = 17,
			     .family = AF_INET};
	uint8_t header[UDP_HEADER], data[9500];
	struct iovec iov[4];
	struct ring *r;

	(void)state;
	r = ring_make(32);
	assert_true(r->caps.max_gso >= 65535);
	assert_true(r->caps.gso_locked && r->caps.gso_in_order);
	header_fill(header, false);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = payload_byte(i, 5);
	iov[0] = (struct iovec){header, sizeof(header)};
	iov[1] = (struct iovec){data, 1};
	iov[2] = (struct iovec){data + 1, 0};
	iov[3] = (struct iovec){data + 1, sizeof(data) - 1};
	assert_int_equal(r->ops->send_gso(r, iov, 4, &g), 0);
	/* The last datagram is shorter: a frame of its own. */
	assert_int_equal(soft_run(soft, 9), 2);
	segments_check(sizeof(data), 1000, false, 5);
	assert_int_equal(r->counters->tx_gso_frames, 1);
	assert_int_equal(r->counters->tx_gso_packets, 10);
	assert_int_equal(r->counters->tx_gso_bytes, sizeof(data) + UDP_HEADER);
	/* A segment must fit the MTU. */
	g.gso_size = 1473;
	assert_int_equal(r->ops->send_gso(r, iov, 4, &g), -EMSGSIZE);
	g.gso_size = 0;
	assert_int_equal(r->ops->send_gso(r, iov, 4, &g), -EINVAL);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->close(r);
}

static void a_shorter_last_datagram_is_a_frame_of_its_own(void **state)
{
	static const uint32_t lengths[] = {1,	 999,  1000, 1001,  1999,
					   2000, 2001, 9001, 30000, 30017};
	struct ring_gso g = {.hdr_len = UDP_HEADER,
			     .l4_off = 34,
			     .csum_off = 6,
			     .gso_size = 1000,
			     .proto = 17,
			     .family = AF_INET};
	uint8_t header[UDP_HEADER], data[30017];
	struct ring *r;

	(void)state;
	r = ring_make(32);
	header_fill(header, false);
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = payload_byte(i, 9);
	/* As often as it takes to go round the queue. */
	for (unsigned i = 0; i < 200; i++) {
		uint32_t len = lengths[i % (sizeof(lengths) / sizeof(lengths[0]))];
		struct iovec iov[2] = {{header, sizeof(header)}, {data, len}};

		out.num = 0;
		assert_int_equal(r->ops->send_gso(r, iov, 2, &g), 0);
		assert_int_equal(soft_run(soft, 9), (len >= 1000) + (len % 1000 != 0));
		segments_check(len, 1000, false, 9);
		assert_int_equal(soft->dev.complaints, 0);
	}
	r->ops->close(r);
}

static void without_room_for_the_last_datagram_none_leaves(void **state)
{
	struct ring_gso g = {.hdr_len = UDP_HEADER,
			     .l4_off = 34,
			     .csum_off = 6,
			     .gso_size = 1000,
			     .proto = 17,
			     .family = AF_INET};
	uint8_t header[UDP_HEADER], data[2500] = {0};
	struct iovec iov[2] = {{header, sizeof(header)}, {data, sizeof(data)}};
	struct ring_gauges gauges;
	struct ring *r;

	(void)state;
	r = ring_make(8);
	header_fill(header, false);
	/* A buffer for the two, one for the last: the fifth time there is none. */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(r->ops->send_gso(r, iov, 2, &g), 0);
	assert_int_equal(r->ops->send_gso(r, iov, 2, &g), -EAGAIN);
	r->ops->gauges(r, &gauges);
	assert_int_equal(gauges.tx_free, 0);
	assert_int_equal(soft_run(soft, 99), 8);
	assert_int_equal(out.num, 12);
	assert_int_equal(r->ops->send_gso(r, iov, 2, &g), 0);
	r->ops->close(r);
}

static void a_ring_without_buffers_says_try_again(void **state)
{
	struct ring_gso g = {.hdr_len = TCP_HEADER,
			     .l4_off = 34,
			     .csum_off = 16,
			     .gso_size = 1448,
			     .proto = 6,
			     .family = AF_INET};
	uint8_t header[TCP_HEADER], data[3000] = {0};
	struct iovec iov[2] = {{header, sizeof(header)}, {data, sizeof(data)}};
	struct ring_gauges gauges;
	struct ring *r;
	unsigned n = 0;

	(void)state;
	r = ring_make(8);
	header_fill(header, true);
	while (!r->ops->send_gso(r, iov, 2, &g))
		n++;
	assert_int_equal(n, 8);
	assert_int_equal(r->ops->send_gso(r, iov, 2, &g), -EAGAIN);
	assert_int_equal(soft_run(soft, 99), 8);
	assert_int_equal(out.num, 24);
	assert_int_equal(r->ops->send_gso(r, iov, 2, &g), 0);
	r->ops->gauges(r, &gauges);
	assert_int_equal(gauges.tx_free, 7);
	r->ops->close(r);
}

static void a_device_that_does_not_cut_is_not_asked(void **state)
{
	struct ring_gso g = {
		.hdr_len = UDP_HEADER, .l4_off = 34, .csum_off = 6, .gso_size = 1000, .proto = 17};
	uint8_t header[UDP_HEADER] = {0};
	struct iovec iov = {header, sizeof(header)};
	struct ring *r;

	(void)state;
	soft_config.max_tso = 0;
	r = ring_make(32);
	assert_int_equal(r->caps.max_gso, 0);
	assert_false(r->caps.gso_in_order);
	assert_int_equal(r->ops->send_gso(r, &iov, 1, &g), -EOPNOTSUPP);
	r->ops->close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_large_frame_in_its_wqe, restore),
		cmocka_unit_test_setup(a_wqe_of_another_unit_count_names_it, restore),
		cmocka_unit_test_setup(at_every_place_of_the_queue_it_arrives, restore),
		cmocka_unit_test_setup(a_full_queue_refuses_a_large_frame_and_keeps_what_it_has,
				       restore),
		cmocka_unit_test_setup(what_is_no_large_frame_is_refused, restore),
		cmocka_unit_test_setup(the_ring_has_the_device_cut, restore),
		cmocka_unit_test_setup(a_shorter_last_datagram_is_a_frame_of_its_own, restore),
		cmocka_unit_test_setup(without_room_for_the_last_datagram_none_leaves, restore),
		cmocka_unit_test_setup(a_ring_without_buffers_says_try_again, restore),
		cmocka_unit_test_setup(a_device_that_does_not_cut_is_not_asked, restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
