/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The mlx5 ring as the stack sees it: buffers, sleeping, errors of the device, and the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <endian.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "../mlx5_device/soft.h"
#include "ring/mlx5/mlx5.h"
#include "mellanox/vma_extra.h"
#include "ring/mlx5/moderation.h"
#include "ring/mlx5/internal.h"
#include "runtime/libc.h"
#include "runtime/lock.h"
#include "config/params.h"

static uint8_t last[2048];
static uint32_t last_len;
static unsigned frames;

static void sent(struct soft *s, const uint8_t *frame, uint32_t len)
{
	(void)s;
	memcpy(last, frame, len < sizeof(last) ? len : sizeof(last));
	last_len = len;
	frames++;
}

static uint8_t wanted_tag[4];
static unsigned tagged; /* frames sent that have it */

static void sent_tagged(struct soft *s, const uint8_t *frame, uint32_t len)
{
	sent(s, frame, len);
	tagged += len >= 18 && !memcmp(frame + 12, wanted_tag, sizeof(wanted_tag));
}

/* On the loopback interface, which is everywhere; its MTU makes large buffers, so few of them. */
static int setup(void **state)
{
	struct ring *r;

	libc_load();
	params.rx_wre = 32;
	params.tx_wre = 32;
	params.rx_wre_batching = 8;
	params.tx_wre_batching = 4;
	params.tx_max_inline = 204;
	params.qp_compensation_level = 16;
	params.rx_bufs = 1000;
	params.cq_keep_qp_full = 1;
	soft_config = (struct soft_config){
		.cqe_size = 64, .min_inline = 18, .bf_size = 256, .max_frame = 1514};
	frames = tagged = 0;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	soft->sent = sent;
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	struct ring *r = *state;

	r->ops->close(r);
	assert_null(soft);
	return 0;
}

static int post(struct ring *r, uint32_t len, uint8_t with)
{
	struct buf *b = ring_tx_alloc(r, len);
	int err;

	assert_non_null(b);
	assert_true(b->room >= len);
	memset(b->data, with, len);
	b->len = b->total = len;
	err = ring_post(r, b);
	if (err)
		buf_free(b);
	return err;
}

static void receive(uint32_t len, uint8_t with)
{
	uint8_t frame[1514];

	memset(frame, with, len);
	assert_true(soft_receive(soft, frame, len));
}

static void frames_go_both_ways(void **state)
{
	struct ring *r = *state;
	struct buf *b[4];

	assert_true(r->caps.tx_csum && r->caps.rx_csum);
	for (unsigned i = 0; i < 200; i++) {
		uint32_t len = i & 1 ? 60 + i % 100 : 1000 + i;

		assert_int_equal(post(r, len, (uint8_t)i), 0);
		assert_int_equal(ring_kick(r), 0);
		assert_int_equal(soft_run(soft, 9), 1);
		assert_int_equal(last_len, len);
		assert_int_equal(last[len - 1], (uint8_t)i);
		assert_false(r->ops->pending(r));
		receive(len, (uint8_t)i);
		assert_true(r->ops->pending(r));
		assert_int_equal(ring_poll(r, b, 4), 1);
		assert_int_equal(b[0]->total, len);
		assert_int_equal(b[0]->data[len - 1], (uint8_t)i);
		buf_free(b[0]);
	}
	assert_int_equal(r->counters->tx_packets, 200);
	assert_int_equal(r->counters->rx_packets, 200);
	assert_int_equal(r->counters->tx_bytes, r->counters->rx_bytes);
	assert_int_equal(soft->dev.complaints, 0);
}

/* Buffers that the device was told of so far. */
static uint32_t given(void)
{
	uint32_t index;

	memcpy(&index, soft->rq.dbrec, sizeof(index));
	return be32toh(index);
}

static void buffers_are_given_back_so_many_at_a_time(void **state)
{
	static const struct {
		int set;
		uint32_t is;
	} batches[] = {{1, 1}, {4, 4}, {8, 8}, {64, 16}}; /* half of the 32 places at most */
	struct ring *r = *state;
	int ifindex = r->ifindex;

	for (unsigned k = 0; k < sizeof(batches) / sizeof(batches[0]); k++) {
		uint32_t before, times = 0;

		r->ops->close(r);
		params.rx_wre_batching = batches[k].set;
		assert_int_equal(mlx5_ring_open(ifindex, &r), 0);
		*state = r;
		before = given();
		for (unsigned i = 0; i < 128; i++) {
			struct buf *b[2];

			receive(100, (uint8_t)i);
			/* Who asks for one leaves it to the next. */
			assert_int_equal(ring_poll(r, b, 2), 1);
			buf_free(b[0]);
			if (given() == before)
				continue;
			assert_int_equal(given() - before, batches[k].is);
			before = given();
			times++;
		}
		assert_int_equal(times, 128 / batches[k].is);
	}
}

static struct soft *sent_by;

static void note_sender(struct soft *s, const uint8_t *frame, uint32_t len)
{
	sent_by = s;
	sent(s, frame, len);
}

/* Sends a frame of r's, which the device d is to have, and gives it one back. */
static void one_each_way(struct ring *r, struct soft *d, uint8_t with)
{
	uint8_t frame[1000];
	struct buf *b;

	sent_by = NULL;
	assert_int_equal(post(r, sizeof(frame), with), 0);
	assert_int_equal(ring_kick(r), 0);
	for (struct soft *s = soft; s; s = s->next)
		soft_run(s, 9);
	assert_ptr_equal(sent_by, d);
	assert_int_equal(last[999], with);
	memset(frame, with, sizeof(frame));
	assert_true(soft_receive(d, frame, sizeof(frame)));
	assert_int_equal(ring_poll(r, &b, 1), 1);
	assert_int_equal(b->data[999], with);
	buf_free(b);
}

static void each_ring_of_an_interface_has_queues_rules_and_counters_of_its_own(void **state)
{
	struct vma_flow_key key = {
		.local_port = 7000, .proto = 17, .local.byte = {[10] = 0xff, 0xff, 10, 0, 0, 1}};
	struct ring *r = *state, *more, *third;
	struct soft *first = soft, *second;

	soft_config.devices = 2;
	assert_int_equal(mlx5_ring_more(r, &more), 0);
	second = soft;
	assert_ptr_not_equal(first, second);
	assert_int_equal(more->ifindex, r->ifindex);
	assert_int_equal(mlx5_ring_more(r, &third), -EOPNOTSUPP);
	first->sent = second->sent = note_sender;

	assert_int_equal(more->ops->flow_add(more, &key, NULL), 0);
	assert_int_equal(first->flows, 0);
	assert_int_equal(second->flows, 1);
	for (unsigned i = 0; i < 100; i++) {
		one_each_way(r, first, (uint8_t)i);
		if (i % 3)
			one_each_way(more, second, (uint8_t)(i + 7));
	}
	assert_int_equal(r->counters->rx_packets, 100);
	assert_int_equal(more->counters->rx_packets, 66);
	assert_int_equal(more->counters->tx_packets, 66);
	assert_int_equal(first->dev.complaints + second->dev.complaints, 0);

	/* The first one goes, the other one goes on. */
	r->ops->close(r);
	*state = more;
	assert_ptr_equal(soft, second);
	one_each_way(more, second, 9);
	assert_int_equal(more->ops->flow_del(more, &key), 0);
}

static void a_short_frame_in_one_go(void **state)
{
	struct ring *r = *state;
	uint8_t header[64], data[64];

	memset(header, 'h', sizeof(header));
	memset(data, 'd', sizeof(data));
	assert_true(r->ops->send_short(r, header, data, 64));
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(last_len, 106);
	assert_int_equal(last[41], 'h');
	assert_int_equal(last[42], 'd');
	assert_int_equal(r->counters->tx_packets, 1);
	assert_int_equal(r->counters->tx_bytes, 106);
	assert_int_equal(soft->dev.complaints, 0);
}

static void a_full_queue_is_said_and_passes(void **state)
{
	struct ring *r = *state;
	unsigned n = 0;
	struct buf *b;

	/* 128 WQEBBs, but 32 buffers. */
	while ((b = ring_tx_alloc(r, 1000))) {
		b->len = b->total = 1000;
		assert_int_equal(ring_post(r, b), 0);
		n++;
	}
	assert_int_equal(n, 32);
	assert_int_equal(r->counters->tx_full, 1);
	/* tx_alloc() has rung for them. */
	assert_int_equal(soft_run(soft, 99), 32);
	assert_int_equal(post(r, 1000, 0), 0);
	assert_int_equal(soft->dev.complaints, 0);
}

static void a_frame_above_the_mtu_is_refused(void **state)
{
	struct ring *r = *state;
	static const uint8_t mac[6];

	r->ops->link_changed(r, 1500, mac);
	assert_int_equal(post(r, 1514, 0), 0);
	assert_int_equal(post(r, 1515, 0), -EMSGSIZE);
	assert_int_equal(r->counters->tx_drop_oversize, 1);
}

static void frames_move_to_the_heap_when_users_hold_too_many(void **state)
{
	struct ring *r = *state;
	struct ring_gauges g;
	struct buf *held[200];
	unsigned n = 0;

	for (; n < 200; n++) {
		receive(100, (uint8_t)n);
		assert_int_equal(ring_poll(r, held + n, 1), 1);
		assert_int_equal(held[n]->data[99], (uint8_t)n);
	}
	r->ops->gauges(r, &g);
	assert_true(g.rx_free >= 48 / 4 - 1); /* the device has places all the time */
	assert_int_equal(r->counters->rx_drop_no_buf, 0);
	while (n)
		buf_free(held[--n]);
	r->ops->gauges(r, &g);
	assert_int_equal(g.rx_free, 48);
	assert_int_equal(soft->dev.complaints, 0);
}

static void with_no_heap_left_frames_are_dropped_and_the_queue_stays_full(void **state)
{
	struct ring *r = *state;
	struct buf *held[200];
	unsigned n = 0;

	r->ops->close(r);
	params.rx_bufs = 1;
	assert_int_equal(mlx5_ring_open((int)if_nametoindex("lo"), &r), 0);
	*state = r;
	for (unsigned i = 0; i < 200; i++) {
		receive(100, (uint8_t)i);
		n += ring_poll(r, held + n, 1);
	}
	assert_true(r->counters->rx_drop_no_buf >= 100);
	assert_int_equal(n + r->counters->rx_drop_no_buf, 200);
	while (n)
		buf_free(held[--n]);
	assert_int_equal(soft->dev.complaints, 0);
}

static bool readable(struct ring *r)
{
	struct pollfd p = {.events = POLLIN};
	int fd = -1;

	assert_int_equal(r->ops->wait_fds(r, &fd, 1), 1);
	assert_int_equal(r->ops->wait_fds(r, &fd, 0), 0);
	p.fd = fd;
	return poll(&p, 1, 0) == 1;
}

static void whoever_sleeps_is_woken_once(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	for (unsigned i = 0; i < 6; i++) {
		assert_false(r->ops->arm(r));
		soft_run(soft, 9); /* it sees the doorbell */
		assert_false(readable(r));
		receive(60, 1);
		receive(60, 2);
		assert_true(readable(r));
		/* Something is there: no sleep. The event is taken. */
		assert_true(r->ops->arm(r));
		assert_false(readable(r));
		assert_int_equal(ring_poll(r, &b, 1), 1);
		buf_free(b);
		assert_int_equal(ring_poll(r, &b, 1), 1);
		buf_free(b);
	}
	assert_int_equal(r->counters->interrupts_requested, 6);
	assert_int_equal(r->counters->interrupts_received, 6);
	assert_int_equal(soft->dev.complaints, 0);
}

static void what_comes_while_arming_wakes_at_once(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	assert_false(r->ops->arm(r));
	receive(60, 1); /* before the device has seen the doorbell */
	soft_run(soft, 9);
	assert_true(readable(r));
	assert_int_equal(ring_poll(r, &b, 1), 1);
	buf_free(b);
}

static void after_a_send_error_there_are_new_queues(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	assert_int_equal(post(r, 1000, 1), 0);
	ring_kick(r);
	soft->want.bytes = 64; /* the registration shrinks behind our back */
	soft_run(soft, 9);
	assert_int_equal(frames, 0);
	assert_int_equal(post(r, 60, 1), 0); /* not seen yet */
	for (unsigned i = 0; i < 4; i++) /* until a completion is looked at */
		(void)post(r, 1000, 1);
	assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(soft->renewals, 1);
	assert_int_equal(post(r, 1000, 3), 0);
	ring_kick(r);
	assert_true(soft_run(soft, 9) > 0);
	assert_int_equal(last[999], 3);
	receive(60, 4);
	assert_int_equal(ring_poll(r, &b, 1), 1);
	buf_free(b);
}

/* Whatever the device says that it was, also what nobody has named. */
static void after_an_error_with_any_syndrome_all_goes_on(void **state)
{
	static const uint8_t syndromes[] = {
		MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
		MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
		MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
		MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
		MLX5_CQE_SYNDROME_MW_BIND_ERR,
		MLX5_CQE_SYNDROME_BAD_RESP_ERR,
		MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,
		MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
		MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
		MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
		MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
		MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
		MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR,
		0x7f,
		0xff,
	};
	uint8_t frame[60] = {0};
	struct ring *r = *state;
	struct buf *b;

	for (unsigned i = 0; i < 2 * sizeof(syndromes); i++) {
		if (i & 1) {
			soft->rq.fail = syndromes[i / 2];
			assert_false(soft_receive(soft, frame, 60));
			assert_int_equal(ring_poll(r, &b, 1), 0);
		} else {
			soft->sq.fail = syndromes[i / 2];
			assert_int_equal(post(r, 1000, 1), 0);
			ring_kick(r);
			soft_run(soft, 9);
			assert_int_equal(r->ops->upkeep(r), 0);
		}
		assert_int_equal(soft->renewals, i + 1);
		assert_int_equal(post(r, 1000, (uint8_t)i), 0);
		ring_kick(r);
		assert_true(soft_run(soft, 9) > 0);
		assert_int_equal(last[999], (uint8_t)i);
		receive(60, (uint8_t)i);
		assert_int_equal(ring_poll(r, &b, 1), 1);
		assert_int_equal(b->data[59], (uint8_t)i);
		buf_free(b);
		for (unsigned k = 0; k < 40; k++) /* two seconds */
			assert_int_equal(r->ops->upkeep(r), 0);
	}
	assert_int_equal(r->counters->rx_drop_invalid, sizeof(syndromes));
	assert_int_equal(soft->unreleased, 0);
	assert_int_equal(soft->dev.complaints, 0);
}

static void a_send_error_is_seen_without_another_send(void **state)
{
	struct ring *r = *state;

	assert_int_equal(post(r, 1000, 1), 0);
	ring_kick(r);
	soft->want.bytes = 64; /* the registration shrinks behind our back */
	soft_run(soft, 9);
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->renewals, 1);
	assert_int_equal(post(r, 1000, 3), 0);
	ring_kick(r);
	assert_true(soft_run(soft, 9) > 0);
	assert_int_equal(last[999], 3);
}

static void who_sleeps_is_woken_by_the_new_queues(void **state)
{
	struct ring *r = *state;
	struct pollfd p = {.events = POLLIN};

	assert_int_equal(r->ops->wait_fds(r, &p.fd, 1), 1);
	assert_false(r->ops->arm(r));
	assert_int_equal(post(r, 1000, 1), 0);
	ring_kick(r);
	soft->want.bytes = 64; /* the registration shrinks behind our back */
	soft_run(soft, 9);
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->renewals, 1);
	soft_run(soft, 9);
	assert_int_equal(poll(&p, 1, 0), 0);
	receive(60, 1);
	assert_int_equal(poll(&p, 1, 0), 1);
}

static void new_queues_have_told_of_nothing_yet(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	assert_false(r->ops->arm(r));
	soft_run(soft, 9);
	receive(60, 1);
	assert_true(readable(r));
	assert_int_equal(ring_poll(r, &b, 1), 1);
	buf_free(b);
	assert_false(r->ops->arm(r));
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	soft_run(soft, 9);
	assert_false(readable(r));
	receive(60, 2);
	assert_true(readable(r));
	assert_int_equal(soft->dev.complaints, 0);
}

static void after_a_receive_error_there_are_new_queues(void **state)
{
	struct ring *r = *state;
	struct ring_gauges g;
	struct buf *b, *kept;

	receive(60, 1);
	assert_int_equal(ring_poll(r, &kept, 1), 1);
	soft->want.bytes = 64;
	{
		uint8_t frame[60] = {0};

		assert_false(soft_receive(soft, frame, 60));
	}
	assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(soft->renewals, 1);
	assert_int_equal(r->counters->rx_drop_invalid, 1);
	/* What a user held is still his. */
	assert_int_equal(kept->data[59], 1);
	buf_free(kept);
	receive(60, 2);
	assert_int_equal(ring_poll(r, &b, 1), 1);
	assert_int_equal(b->data[0], 2);
	buf_free(b);
	r->ops->gauges(r, &g);
	assert_int_equal(g.rx_free, 48);
	assert_int_equal(soft->dev.complaints, 0);
}

/* Whoever is on the wire may have a larger MTU, and an error would cost all that is in flight. */
static void a_frame_longer_than_the_mtu_costs_itself_alone(void **state)
{
	struct ring *r = *state;
	uint32_t room = r->caps.max_rx_frame;
	uint8_t *frame = calloc(1, room + 1000);
	struct ring_gauges g;
	struct buf *b[9];

	assert_non_null(frame);
	for (unsigned i = 1; i < 50; i++) {
		receive(60, 1);
		assert_true(soft_receive(soft, frame, room + 1));
		receive(61, 2);
		assert_true(soft_receive(soft, frame, room + 1000));
		if (i % 2) {
			assert_int_equal(ring_poll(r, b, 9), 2);
		} else {
			assert_int_equal(ring_poll(r, b, 1), 1);
			for (unsigned n = 0; n < 2 && !ring_poll(r, b + 1, 1);)
				n++;
			assert_int_equal(ring_poll(r, b + 2, 1), 0);
		}
		assert_int_equal(b[0]->len, 60);
		assert_int_equal(b[1]->len, 61);
		buf_free(b[0]);
		buf_free(b[1]);
		assert_int_equal(r->counters->rx_drop_invalid, 2 * i);
	}
	assert_int_equal(soft->renewals, 0);
	assert_int_equal(soft->dev.complaints, 0);
	r->ops->gauges(r, &g);
	assert_int_equal(g.rx_free, 48);
	free(frame);
}

static void interrupts_are_held_back_as_the_parameters_say(void **state)
{
	struct ring *r = *state;
	int ifindex = r->ifindex;

	r->ops->close(r);
	params.cq_moderation_enable = 1;
	params.cq_moderation_count = 48;
	params.cq_moderation_period_usec = 50;
	params.cq_aim_interval_msec = 0;
	assert_int_equal(mlx5_ring_open(ifindex, &r), 0);
	*state = r;
	assert_int_equal(soft->held_packets, 16); /* half of the 32 places */
	assert_int_equal(soft->held_usec, 50);
	/* New queues have it, too. */
	soft->held_packets = 0;
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->held_packets, 16);
	params.cq_moderation_enable = 0;
}

static void without_moderation_a_new_ring_holds_nothing_back(void **state)
{
	struct ring *r = *state;
	int ifindex = r->ifindex;
	struct ring_gauges g;

	r->ops->close(r);
	params.cq_moderation_enable = 0;
	params.cq_moderation_count = 48;
	params.cq_moderation_period_usec = 50;
	assert_int_equal(mlx5_ring_open(ifindex, &r), 0);
	*state = r;
	assert_int_equal(soft->held_packets, 0);
	assert_int_equal(soft->held_usec, 0);
	r->ops->gauges(r, &g);
	assert_int_equal(g.moderation_frames, 0);
	assert_int_equal(g.moderation_usec, 0);
}

static void interrupts_are_held_back_as_the_program_says(void **state)
{
	struct ring *r = *state;

	assert_int_equal(r->ops->moderate(r, 5, 7), 0);
	assert_int_equal(soft->held_packets, 5);
	assert_int_equal(soft->held_usec, 7);
	/* Half of the places at most, and new queues have it, too. */
	assert_int_equal(r->ops->moderate(r, 1000, 8), 0);
	soft->held_packets = 0;
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->held_packets, 16);
	assert_int_equal(soft->held_usec, 8);
}

static void what_the_program_has_said_the_traffic_does_not_change(void **state)
{
	struct ring_counters c = {0};
	struct mlx5_moderation m;

	(void)state;
	params.cq_moderation_enable = 1;
	params.cq_aim_interval_msec = 1;
	moderation_init(&m, 0);
	moderation_fix(&m, 3, 4);
	c.rx_packets = 1000000;
	c.rx_bytes = 1500000000;
	c.interrupts_received = 1000;
	assert_false(moderation_adapt(&m, &c, 1000));
	assert_int_equal(m.count, 3);
	params.cq_moderation_enable = 0;
}

static void without_an_interval_the_traffic_changes_nothing(void **state)
{
	struct ring_counters c = {0};
	struct mlx5_moderation m;

	(void)state;
	params.cq_moderation_enable = 1;
	params.cq_moderation_count = 8;
	params.cq_moderation_period_usec = 50;
	params.cq_aim_interrupts_rate_per_sec = 5000;
	params.cq_aim_max_count = 560;
	params.cq_aim_max_period_usec = 250;
	for (int interval = 1; interval >= 0; interval--) {
		params.cq_aim_interval_msec = interval;
		moderation_init(&m, 0);
		c.rx_packets = 1000000;
		c.rx_bytes = 1500000000;
		c.interrupts_received = 1000;
		/* The same traffic, which an interval would have it follow. */
		assert_int_equal(moderation_adapt(&m, &c, 1000), interval);
	}
	assert_int_equal(m.count, 8);
	assert_int_equal(m.usec, 50);
	params.cq_moderation_enable = 0;
}

static void the_programs_memory_is_the_devices_until_it_is_taken_back(void **state)
{
	struct ring *r = *state;
	static uint8_t memory[64];
	uint32_t key = 0;

	assert_int_equal(r->ops->memory_add(r, memory, sizeof(memory), &key), 0);
	assert_int_not_equal(key, 0);
	assert_ptr_equal(soft->lent.iov_base, memory);
	assert_int_equal(r->ops->memory_add(r, memory, sizeof(memory), &key), -EEXIST);
	assert_int_equal(r->ops->memory_del(r, memory, 1), -ENOENT);
	assert_int_equal(r->ops->memory_del(r, memory, sizeof(memory)), 0);
	assert_int_equal(r->ops->memory_del(r, memory, sizeof(memory)), -ENOENT);
}

static void a_program_sees_the_queues_where_the_device_has_them(void **state)
{
	struct vma_mlx_hw_device_data d;
	struct ring *r = *state;

	r->ops->describe(r, &d);
	assert_int_equal(d.valid_mask, DATA_VALID_SQ | DATA_VALID_RQ);
	assert_ptr_equal(d.sq_data.wq_data.buf, soft->o.qp.sq.buf);
	assert_int_equal(d.sq_data.wq_data.wqe_cnt, soft->o.qp.sq.wqe_cnt);
	assert_ptr_equal(d.rq_data.wq_data.buf, soft->o.qp.rq.buf);
	assert_ptr_equal(d.rq_data.wq_data.cq_data.buf, soft->o.rx_cq.buf);
	assert_int_equal(*d.rq_data.head - *d.rq_data.tail, soft->o.qp.rq.wqe_cnt);
	assert_int_equal(d.sq_data.sq_num, soft->o.qpn);
}

static void moderation_follows_the_traffic(void **state)
{
	struct ring_counters c = {.rx_packets = 0};
	struct mlx5_moderation m;

	(void)state;
	params.cq_moderation_enable = 1;
	params.rx_wre = 16000;
	params.cq_moderation_count = 48;
	params.cq_moderation_period_usec = 50;
	params.cq_aim_max_count = 560;
	params.cq_aim_max_period_usec = 250;
	params.cq_aim_interval_msec = 250;
	params.cq_aim_interrupts_rate_per_sec = 5000;
	moderation_init(&m, 1000);
	assert_int_equal(m.count, 48);
	/* A bulk stream of 100,000 packets a second: 20 of them an interrupt, 200 us apart. */
	c = (struct ring_counters){
		.rx_packets = 25000, .rx_bytes = 25000 * 1514, .interrupts_received = 100};
	assert_false(moderation_adapt(&m, &c, 1249));
	assert_true(moderation_adapt(&m, &c, 1250));
	assert_int_equal(m.count, 20);
	assert_int_equal(m.usec, 190);
	/* The same again is no change; with nobody asleep neither. */
	c.rx_packets += 25000, c.rx_bytes += 25000 * 1514, c.interrupts_received += 1;
	assert_false(moderation_adapt(&m, &c, 1500));
	c.rx_packets += 250, c.rx_bytes += 250 * 64;
	assert_false(moderation_adapt(&m, &c, 1750));
	/* Ten million a second: the limits. */
	c.rx_packets += 2500000, c.rx_bytes += 2500000 * 64, c.interrupts_received += 1;
	assert_true(moderation_adapt(&m, &c, 2000));
	assert_int_equal(m.count, 560);
	assert_int_equal(m.usec, 200);
	/* Questions and answers. */
	c.rx_packets += 250, c.rx_bytes += 250 * 64, c.interrupts_received += 250;
	assert_true(moderation_adapt(&m, &c, 2250));
	assert_int_equal(m.count, 48);
	assert_int_equal(m.usec, 50);
	params.cq_moderation_enable = 0;
	c.rx_packets += 2500000, c.interrupts_received += 1;
	assert_false(moderation_adapt(&m, &c, 3000));
}

/* A stream that would have its interrupts 190 us apart. */
static void no_interrupt_is_held_back_longer_than_set(void **state)
{
	const struct ring_counters bulk = {
		.rx_packets = 25000, .rx_bytes = 25000 * 1514, .interrupts_received = 100};

	(void)state;
	params.cq_moderation_enable = 1;
	params.rx_wre = 16000;
	params.cq_aim_max_count = 560;
	params.cq_aim_interval_msec = 250;
	params.cq_aim_interrupts_rate_per_sec = 5000;
	for (int most = 150; most <= 250; most += 40) {
		struct mlx5_moderation m;

		params.cq_aim_max_period_usec = most;
		moderation_init(&m, 1000);
		assert_true(moderation_adapt(&m, &bulk, 1250));
		assert_int_equal(m.usec, most < 190 ? most : 190);
		assert_int_equal(m.count, 20);
	}
	params.cq_moderation_enable = 0;
}

static void queues_that_the_device_gives_up_are_made_anew(void **state)
{
	struct ring *r = *state;
	struct buf *b;

	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->renewals, 0);
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->renewals, 1);
	assert_int_equal(post(r, 60, 3), 0);
	ring_kick(r);
	assert_int_equal(soft_run(soft, 9), 1);
	receive(60, 4);
	assert_int_equal(ring_poll(r, &b, 1), 1);
	buf_free(b);
	assert_int_equal(soft->dev.complaints, 0);
}

static void a_device_that_went_is_not_asked_again_at_once(void **state)
{
	struct ring *r = *state, *again;
	int ifindex = r->ifindex;

	soft->news = MLX5_DEVICE_GONE;
	assert_int_equal(r->ops->upkeep(r), -ENODEV);
	r->ops->close(r);
	assert_int_equal(mlx5_ring_open(ifindex, &again), -EOPNOTSUPP);
	assert_null(soft);
}

static const struct mlx5_object_ops *device_ops;
static struct ring *looked_at;

/*
 * Somebody who has no lock looks when only the new queues are there, and when they are not shown
 * yet.
 */
static int renew_and_look(struct mlx5_objects *o, const struct mlx5_want *want, void **old)
{
	int err = device_ops->renew(o, want, old);

	assert_false(looked_at->ops->pending(looked_at));
	return err;
}

static void queues_fail(struct ring *r)
{
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
}

static void who_looks_without_the_lock_finds_memory(void **state)
{
	struct mlx5_object_ops looking = *soft->o.ops;
	struct ring *r = *state;
	struct buf *b;

	looked_at = r;
	device_ops = soft->o.ops;
	looking.renew = renew_and_look;
	soft->o.ops = &looking;
	receive(60, 1); /* lost, with the old queue */
	assert_true(r->ops->pending(r));
	queues_fail(r);
	soft->o.ops = device_ops;
	assert_int_equal(soft->renewals, 1);
	assert_false(r->ops->pending(r));
	receive(60, 2);
	assert_true(r->ops->pending(r));
	assert_int_equal(ring_poll(r, &b, 1), 1);
	assert_int_equal(b->data[0], 2);
	buf_free(b);
	for (unsigned i = 0; i < 39; i++)
		assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->unreleased, 1);
	assert_int_equal(r->ops->upkeep(r), 0);
	assert_int_equal(soft->unreleased, 0);
}

/* What counts upkeeps, or is seen by them only, waits for no frame. */
static void who_has_something_to_do_does_not_rest(void **state)
{
	struct ring *r = *state;
	struct buf *b;
	int fd;

	soft->o.news_fd = 4711;
	assert_true(r->ops->rests(r, &fd));
	assert_int_equal(fd, 4711);
	queues_fail(r);
	for (unsigned i = 0; i < 40; i++) {
		assert_false(r->ops->rests(r, &fd));
		assert_int_equal(r->ops->upkeep(r), 0);
	}
	assert_true(r->ops->rests(r, &fd));
	/* Somebody wants time stamps: the clocks are compared now and then. */
	assert_int_equal(r->ops->poll_stamped(r, &b, 1), 0);
	assert_false(r->ops->rests(r, &fd));
	soft->o.news_fd = -1;
}

static void one_failure_after_the_other_does_not_pile_up_memory(void **state)
{
	struct ring *r = *state;
	unsigned upkeeps = 0;

	for (unsigned i = 0; i < 3; i++)
		queues_fail(r);
	assert_int_equal(soft->renewals, 3);
	assert_int_equal(soft->unreleased, 3);
	queues_fail(r);
	assert_int_equal(soft->renewals, 3);
	for (; soft->renewals == 3 && upkeeps < 1000; upkeeps++)
		assert_int_equal(r->ops->upkeep(r), 0);
	assert_in_range(upkeeps, 20, 80);
	assert_true(soft->unreleased <= 3);
	assert_int_equal(post(r, 60, 3), 0);
	receive(60, 4);
	assert_true(r->ops->pending(r));
}

static int renew_refused(struct mlx5_objects *o, const struct mlx5_want *want, void **old)
{
	(void)o;
	(void)want;
	(void)old;
	return -EIO;
}

static void without_new_queues_the_ring_is_silent_until_there_are_some(void **state)
{
	const struct mlx5_object_ops *good = soft->o.ops;
	struct mlx5_object_ops bad = *good;
	uint8_t frame[60] = {0}, header[64] = {0};
	struct ring *r = *state;
	struct buf *b;
	unsigned polls = 1;

	bad.renew = renew_refused;
	soft->o.ops = &bad;
	soft->want.bytes = 64;
	assert_false(soft_receive(soft, frame, 60));
	assert_int_equal(ring_poll(r, &b, 1), 0);
	b = ring_tx_alloc(r, 100);
	assert_non_null(b);
	b->len = 60;
	assert_int_equal(ring_post(r, b), -ENOBUFS);
	buf_free(b);
	assert_false(r->ops->send_short(r, header, header, 16));
	ring_kick(r);
	assert_false(r->ops->pending(r));
	assert_false(r->ops->arm(r));
	soft->o.ops = good;
	for (; !soft->renewals && polls < 100000; polls++)
		assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_true(polls > 1000);
	receive(60, 1);
	assert_int_equal(ring_poll(r, &b, 1), 1);
	buf_free(b);
	assert_int_equal(post(r, 60, 3), 0);
}

/* libmlx5 has unmapped their memory: no index is published there. */
static void a_queue_that_is_gone_is_not_refilled(void **state)
{
	const struct mlx5_object_ops *good = soft->o.ops;
	struct mlx5_object_ops bad = *good;
	struct ring *r = *state;
	struct mlx5_ring *m = mlx5_ring(r);
	__be32 gone[2] = {0x5555, 0x5555};
	struct buf *b;

	bad.renew = renew_refused;
	soft->o.ops = &bad;
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	soft->o.ops = good;
	m->rq.dbrec = gone;
	m->refill_ci = 0x80000001u; /* the last queue had taken so many */
	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(gone[0], 0x5555);
}

static void a_ring_that_nobody_polls_tries_again_all_the_same(void **state)
{
	const struct mlx5_object_ops *good = soft->o.ops;
	struct mlx5_object_ops bad = *good;
	struct ring *r = *state;
	unsigned upkeeps = 0;

	bad.renew = renew_refused;
	soft->o.ops = &bad;
	soft->news = MLX5_QUEUES_FAILED;
	assert_int_equal(r->ops->upkeep(r), 0);
	soft->o.ops = good;
	for (; !soft->renewals && upkeeps < 1000; upkeeps++)
		assert_int_equal(r->ops->upkeep(r), 0);
	assert_in_range(upkeeps, 5, 50);
	assert_int_equal(post(r, 60, 3), 0);
}

static void flows_go_to_the_device(void **state)
{
	struct vma_flow_key key = {.proto = 17};
	struct vma_flow_info info = {.fd = 3};
	struct ring *r = *state;

	assert_int_equal(r->ops->flow_add(r, &key, &info), 0);
	assert_int_equal(soft->flows, 1);
	assert_int_equal(r->ops->flow_del(r, &key), 0);
	assert_int_equal(soft->flows, 0);
}

static int flow(struct ring *r, uint8_t high, uint8_t middle, uint16_t port, uint8_t bits)
{
	struct vma_flow_key key = {
		.local = {{[10] = 0xff,
			   [11] = 0xff,
			   [12] = high,
			   [13] = middle,
			   [14] = 2,
			   [15] = 3}},
		.local_port = port,
		.port_bits = bits,
		.proto = 17,
	};
	struct vma_flow_info info = {.fd = 3};

	return r->ops->flow_add(r, &key, &info);
}

static void a_full_table_is_the_sockets_to_say(void **state)
{
	struct ring *r = *state;

	soft_config.flows_max = 2;
	assert_int_equal(flow(r, 10, 0, 1, 0), 0);
	assert_int_equal(flow(r, 10, 0, 1, 0), -EEXIST);
	assert_int_equal(flow(r, 10, 0, 2, 0), 0);
	assert_int_equal(flow(r, 10, 0, 3, 0), -ENOSPC);
	assert_int_equal(flow(r, 10, 0, 64, 6), -ENOSPC);
	assert_true(r->caps.port_blocks);
	assert_int_equal(soft->flows, 2);
}

static void rules_of_several_ports_until_one_is_refused(void **state)
{
	struct ring *r = *state;

	assert_true(r->caps.port_blocks);
	assert_int_equal(flow(r, 10, 0, 64, 6), 0);
	soft_config.whole_ports = true;
	assert_int_equal(flow(r, 10, 0, 128, 6), -EOPNOTSUPP);
	assert_false(r->caps.port_blocks);
	assert_int_equal(flow(r, 10, 0, 128, 0), 0);
}

static int no_queues(struct mlx5_objects *o, const struct vma_flow_key *key)
{
	(void)o;
	(void)key;
	return -ENETDOWN;
}

/* Between two tries to have queues again, for one. */
static void a_rule_that_failed_for_another_reason_says_nothing_of_several_ports(void **state)
{
	const struct mlx5_object_ops *was = soft->o.ops;
	struct mlx5_object_ops ops = *was;
	struct ring *r = *state;

	ops.flow_add = no_queues;
	soft->o.ops = &ops;
	assert_int_equal(flow(r, 10, 0, 64, 6), -ENETDOWN);
	soft->o.ops = was;
	assert_true(r->caps.port_blocks);
	assert_int_equal(flow(r, 10, 0, 64, 6), 0);
	assert_int_equal(flow(r, 10, 0, 64, 6), -EEXIST);
	assert_true(r->caps.port_blocks);
}

static void groups_of_one_ethernet_address_share_a_rule(void **state)
{
	struct vma_flow_key key = {
		.local = {{[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 129, [14] = 2, [15] = 3}},
		.local_port = 1,
		.proto = 17};
	struct ring *r = *state;

	params.eth_mc_l2_only_rules = 1;
	assert_int_equal(flow(r, 239, 129, 1, 0), 0);
	assert_int_equal(flow(r, 239, 1, 1, 0), 0);
	assert_int_equal(flow(r, 239, 1, 2, 0), 0);
	assert_int_equal(soft->flows, 1);
	assert_int_equal(soft->rules[0].proto, 0);
	assert_int_equal(flow(r, 239, 2, 2, 0), 0);
	assert_int_equal(flow(r, 10, 2, 2, 0), 0);
	assert_int_equal(soft->flows, 3);
	assert_int_equal(r->ops->flow_del(r, &key), 0);
	key.local.byte[13] = 1;
	assert_int_equal(r->ops->flow_del(r, &key), 0);
	assert_int_equal(soft->flows, 3);
	key.local_port = 2;
	assert_int_equal(r->ops->flow_del(r, &key), 0);
	assert_int_equal(soft->flows, 2);
	assert_int_equal(r->ops->flow_del(r, &key), -ENOENT);
	params.eth_mc_l2_only_rules = 0;
}

/* The ring of lo has buffers of 64 KiB. */
static void a_larger_mtu_is_received_in_several_buffers(void **state)
{
	static uint8_t frame[200000];
	static const uint8_t mac[6];
	struct ring *r = *state;
	uint32_t was = r->caps.max_frame;
	struct buf *b[80];
	unsigned n;

	r->ops->link_changed(r, 1500, mac);
	assert_int_equal(soft->renewals, 0);
	r->ops->link_changed(r, 190000, mac);
	assert_int_equal(soft->renewals, 1);
	assert_in_range(r->caps.max_frame, was, was + 64);
	assert_in_range(r->caps.max_rx_frame, 190014, 300000);
	for (uint32_t i = 0; i < sizeof(frame); i++)
		frame[i] = (uint8_t)(i * 7 + (i >> 8));
	for (n = 1; n < 60; n++) {
		uint32_t at = 0;

		assert_true(soft_receive(soft, frame, n * 3000));
		assert_int_equal(ring_poll(r, b, n & 1 ? 1 : 9), 1);
		assert_int_equal(b[0]->total, n * 3000);
		for (struct buf *f = b[0]; f; at += f->len, f = f->frag)
			assert_memory_equal(f->data, frame + at, f->len);
		assert_int_equal(at, n * 3000);
		buf_free(b[0]);
	}
	/* Held by users: they move to the heap, whole. */
	for (n = 0; n < 80; n++) {
		assert_true(soft_receive(soft, frame, 150000 + n));
		assert_int_equal(ring_poll(r, &b[n], 1), 1);
	}
	for (n = 0; n < 80; n++) {
		uint32_t at = 0;

		for (struct buf *f = b[n]; f; at += f->len, f = f->frag)
			assert_memory_equal(f->data, frame + at, f->len);
		assert_int_equal(at, 150000 + n);
		buf_free(b[n]);
	}
	/* And back: what is there stays. */
	r->ops->link_changed(r, 1500, mac);
	assert_int_equal(soft->renewals, 1);
	assert_true(soft_receive(soft, frame, 1500));
	assert_int_equal(ring_poll(r, b, 1), 1);
	assert_null(b[0]->frag);
	buf_free(b[0]);
	assert_int_equal(soft->dev.complaints, 0);
}

/* The stack sees frames without the tag, the wire none without. */
static void a_ring_of_a_vlan_tags_and_untags(void **state)
{
	static const uint8_t mac[6], tag[4] = {0x81, 0x00, 0x01, 0x23};
	uint8_t frame[1514], wire[1518];
	struct ring *r = *state;
	struct buf *b;

	r->caps.max_gso = 0;
	mlx5_vlan_start((struct mlx5_ring *)r, 0x123);
	r->ops->link_changed(r, 1500, mac);
	soft->dev.max_frame = 1518;
	assert_int_equal(r->caps.max_frame, 1514);
	assert_null(r->ops->send_short);
	for (uint32_t i = 0; i < sizeof(frame); i++)
		frame[i] = (uint8_t)(i * 7 + 1);
	for (uint32_t len = 16; len <= 1514; len += 1 + len % 7) {
		memcpy(wire, frame, 12);
		memcpy(wire + 12, tag, 4);
		memcpy(wire + 16, frame + 12, len - 12);
		b = ring_tx_alloc(r, len);
		assert_true(b->room >= len);
		memcpy(b->data, frame, len);
		b->len = b->total = len;
		assert_int_equal(ring_post(r, b), 0);
		assert_int_equal(ring_kick(r), 0);
		assert_true(soft_run(soft, 9) > 0);
		assert_int_equal(last_len, len + 4);
		assert_memory_equal(last, wire, len + 4);
		wire[14] |= 0xe0; /* somebody's priority */
		assert_true(soft_receive(soft, wire, len + 4));
		assert_int_equal(ring_poll(r, &b, 1), 1);
		assert_int_equal(b->len, len);
		assert_int_equal(b->total, len);
		assert_memory_equal(b->data, frame, len);
		buf_free(b);
	}
	/* Another VLAN's, one without a tag, one that is none. */
	assert_int_equal(r->counters->rx_drop_invalid, 0);
	wire[15]++;
	assert_true(soft_receive(soft, wire, 100));
	assert_true(soft_receive(soft, frame, 100));
	wire[15]--;
	assert_true(soft_receive(soft, wire, 17));
	assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(ring_poll(r, &b, 1), 0);
	assert_int_equal(r->counters->rx_drop_invalid, 3);
	/* One that finds no place is as it was. */
	for (unsigned n = 0;; n++) {
		b = ring_tx_alloc(r, 1514);
		if (!b)
			break;
		memcpy(b->data, frame, 1514);
		b->len = b->total = 1514;
		if (ring_post(r, b)) {
			assert_memory_equal(b->data, frame, 1514);
			assert_int_equal(b->len, 1514);
			buf_free(b);
			break;
		}
		assert_in_range(n, 0, 200);
	}
	assert_int_equal(soft->dev.complaints, 0);
}

/* As sendmmsg() posts them: where the ring has a place, else by post(). */
static void a_burst_on_a_vlan_has_the_tag_on_each_frame(void **state)
{
	static const uint8_t mac[6], tag[4] = {0x81, 0x00, 0x01, 0x23};
	struct ring *r = *state;
	uint8_t frame[100];

	r->caps.max_gso = 0;
	mlx5_vlan_start((struct mlx5_ring *)r, 0x123);
	r->ops->link_changed(r, 1500, mac);
	soft->dev.mpw = mlx5_ring(r)->sq.mpw.able = true;
	memset(frame, 0x55, sizeof(frame));
	soft->sent = sent_tagged;
	memcpy(wanted_tag, tag, sizeof(tag));
	ring_burst_begin(r);
	for (unsigned n = 0; n < 5; n++) {
		uint8_t *at = r->ops->burst_add ? r->ops->burst_add(r, sizeof(frame)) : NULL;
		struct buf *b = at ? NULL : ring_tx_alloc(r, sizeof(frame));

		memcpy(at ? at : b->data, frame, sizeof(frame));
		if (at)
			continue;
		b->len = b->total = sizeof(frame);
		assert_int_equal(ring_post(r, b), 0);
	}
	ring_burst_end(r);
	assert_int_equal(ring_kick(r), 0);
	assert_int_equal(soft_run(soft, 9), 1);
	assert_int_equal(frames, 5);
	assert_int_equal(tagged, 5);
	assert_int_equal(soft->dev.complaints, 0);
}

static void an_mtu_beyond_all_buffers_is_refused(void **state)
{
	static const uint8_t mac[6];
	struct ring *r = *state;

	r->ops->link_changed(r, 2000000, mac);
	assert_int_equal(soft->renewals, 0);
	receive(60, 1);
}

static void the_rules_follow_the_interfaces_address(void **state)
{
	static const uint8_t was[6], mac[6] = {2, 0, 0, 0, 0, 7};
	struct ring *r = *state;

	r->ops->link_changed(r, 1400, was);
	assert_int_equal(soft->readdressed, 0);
	r->ops->link_changed(r, 1400, mac);
	r->ops->link_changed(r, 1500, mac);
	assert_int_equal(soft->readdressed, 1);
	assert_memory_equal(soft->mac, mac, 6);
}

static _Atomic unsigned done;

/* A thread that is to end: not in here, where its stack is locked. */
static void *cancelled(void *arg)
{
	struct vma_flow_key key = {.proto = 17};
	struct vma_flow_info info = {.fd = 3};
	struct ring *r = arg;
	struct buf *b;
	int was;

	pthread_cancel(pthread_self());
	(void)r->ops->arm(r);
	done++;
	(void)r->ops->flow_add(r, &key, &info);
	done++;
	(void)r->ops->flow_del(r, &key);
	done++;
	(void)ring_poll(r, &b, 1); /* finds an error */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	done += was == PTHREAD_CANCEL_ENABLE;
	return NULL;
}

static void nobody_is_cancelled_under_the_lock(void **state)
{
	uint8_t frame[60] = {0};
	struct ring *r = *state;
	pthread_t thread;

	soft->want.bytes = 64;
	assert_false(soft_receive(soft, frame, 60));
	done = 0;
	assert_int_equal(pthread_create(&thread, NULL, cancelled, r), 0);
	pthread_join(thread, NULL);
	assert_int_equal(done, 4);
	assert_int_equal(soft->renewals, 1);
}

static volatile uint32_t depth_seen;

/* At the first store to the doorbell's page. */
static void on_store(int sig)
{
	(void)sig;
	depth_seen = lock_thread.depth;
	mprotect(soft->uar, 4096, PROT_READ | PROT_WRITE);
}

/*
 * One that left for ever (siglongjmp) would leave nobody else to ring, one that sends might wait
 * for itself.
 */
static void signal_handlers_wait_while_it_rings(void **state)
{
	struct sigaction old, sa = {.sa_handler = on_store};
	struct ring *r = *state;

	sigaction(SIGSEGV, &sa, &old);
	assert_int_equal(post(r, 60, 1), 0);
	depth_seen = 0;
	assert_int_equal(mprotect(soft->uar, 4096, PROT_READ), 0);
	assert_int_equal(ring_kick(r), 0);
	sigaction(SIGSEGV, &old, NULL);
	assert_int_equal(depth_seen, 1);
	assert_int_equal(lock_thread.depth, 0);
	assert_int_equal(soft_run(soft, 9), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(frames_go_both_ways, setup, teardown),
		cmocka_unit_test_setup_teardown(buffers_are_given_back_so_many_at_a_time, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			each_ring_of_an_interface_has_queues_rules_and_counters_of_its_own, setup,
			teardown),
		cmocka_unit_test_setup_teardown(a_short_frame_in_one_go, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_queue_is_said_and_passes, setup, teardown),
		cmocka_unit_test_setup_teardown(a_frame_above_the_mtu_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(frames_move_to_the_heap_when_users_hold_too_many,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			with_no_heap_left_frames_are_dropped_and_the_queue_stays_full, setup,
			teardown),
		cmocka_unit_test_setup_teardown(whoever_sleeps_is_woken_once, setup, teardown),
		cmocka_unit_test_setup_teardown(what_comes_while_arming_wakes_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(after_a_send_error_there_are_new_queues, setup,
						teardown),
		cmocka_unit_test_setup_teardown(after_an_error_with_any_syndrome_all_goes_on, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_send_error_is_seen_without_another_send, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_sleeps_is_woken_by_the_new_queues, setup,
						teardown),
		cmocka_unit_test_setup_teardown(after_a_receive_error_there_are_new_queues, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_frame_longer_than_the_mtu_costs_itself_alone,
						setup, teardown),
		cmocka_unit_test_setup_teardown(new_queues_have_told_of_nothing_yet, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			without_new_queues_the_ring_is_silent_until_there_are_some, setup,
			teardown),
		cmocka_unit_test_setup_teardown(flows_go_to_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_table_is_the_sockets_to_say, setup,
						teardown),
		cmocka_unit_test_setup_teardown(rules_of_several_ports_until_one_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_rule_that_failed_for_another_reason_says_nothing_of_several_ports, setup,
			teardown),
		cmocka_unit_test_setup_teardown(groups_of_one_ethernet_address_share_a_rule, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_larger_mtu_is_received_in_several_buffers, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_ring_of_a_vlan_tags_and_untags, setup, teardown),
		cmocka_unit_test_setup_teardown(a_burst_on_a_vlan_has_the_tag_on_each_frame, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_mtu_beyond_all_buffers_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_rules_follow_the_interfaces_address, setup,
						teardown),
		cmocka_unit_test_setup_teardown(signal_handlers_wait_while_it_rings, setup,
						teardown),
		cmocka_unit_test_setup_teardown(nobody_is_cancelled_under_the_lock, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_looks_without_the_lock_finds_memory, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_has_something_to_do_does_not_rest, setup,
						teardown),
		cmocka_unit_test_setup_teardown(one_failure_after_the_other_does_not_pile_up_memory,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_queue_that_is_gone_is_not_refilled, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_ring_that_nobody_polls_tries_again_all_the_same,
						setup, teardown),
		cmocka_unit_test_setup_teardown(queues_that_the_device_gives_up_are_made_anew,
						setup, teardown),
		cmocka_unit_test_setup_teardown(interrupts_are_held_back_as_the_parameters_say,
						setup, teardown),
		cmocka_unit_test_setup_teardown(without_moderation_a_new_ring_holds_nothing_back,
						setup, teardown),
		cmocka_unit_test_setup_teardown(interrupts_are_held_back_as_the_program_says, setup,
						teardown),
		cmocka_unit_test(what_the_program_has_said_the_traffic_does_not_change),
		cmocka_unit_test_setup_teardown(
			the_programs_memory_is_the_devices_until_it_is_taken_back, setup, teardown),
		cmocka_unit_test_setup_teardown(a_program_sees_the_queues_where_the_device_has_them,
						setup, teardown),
		cmocka_unit_test(moderation_follows_the_traffic),
		cmocka_unit_test(no_interrupt_is_held_back_longer_than_set),
		cmocka_unit_test(without_an_interval_the_traffic_changes_nothing),
		/* The last: there is no ring afterwards. */
		cmocka_unit_test_setup(a_device_that_went_is_not_asked_again_at_once, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
