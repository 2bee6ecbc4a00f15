/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every frame of a ring for `vma_stats capture`: while it is captured the ring has other functions
 * in the place of its own ones, which give each frame to stats/capture.c and then call those.
 * Otherwise nothing asks whether there is a capture.
 */
#include "ring/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "stats/stats.h"
#include "vma/capture.h"

/* More pieces than that a frame does not have. */
#define PIECES 64

struct ring_capture {
	struct ring_ops ops; /* what ring.ops is while it is captured */
	const struct ring_ops *device; /* and else */
};

static uint64_t realtime_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct stats_frame frame(const struct ring *r, uint8_t direction, const struct iovec *iov,
				int n)
{
	return (struct stats_frame){.direction = direction,
				    .ifindex = r->ifindex,
				    .ifname = r->ifname,
				    .time_ns = realtime_ns(),
				    .iov = iov,
				    .iovcnt = n};
}

static int pieces(struct iovec *iov, const struct buf *b)
{
	int n = 0;

	for (; b && n < PIECES; b = b->frag)
		iov[n++] = (struct iovec){.iov_base = b->data, .iov_len = b->len};
	return n;
}

static unsigned received(const struct ring *r, struct buf *const *pkts, unsigned n)
{
	struct iovec iov[PIECES];
	struct stats_kept k;

	for (unsigned i = 0; i < n; i++) {
		struct stats_frame f = frame(r, VMA_CAPTURE_IN, iov, pieces(iov, pkts[i]));

		if (stats_capture_keep(&k, &f))
			stats_capture_done(&k);
	}
	return n;
}

static unsigned captured_poll(struct ring *r, struct buf **pkts, unsigned max)
{
	return received(r, pkts, r->capture->device->poll(r, pkts, max));
}

static unsigned captured_poll_stamped(struct ring *r, struct buf **pkts, unsigned max)
{
	return received(r, pkts, r->capture->device->poll_stamped(r, pkts, max));
}

static int captured_post(struct ring *r, struct buf *b)
{
	struct iovec iov[PIECES];
	struct stats_frame f = frame(r, VMA_CAPTURE_OUT, iov, pieces(iov, b));
	struct stats_kept k;
	/* Before: it is the ring's afterwards. */
	bool kept = stats_capture_keep(&k, &f);
	int err = r->capture->device->post(r, b);

	if (kept && err)
		stats_capture_void(&k);
	else if (kept)
		stats_capture_done(&k);
	return err;
}

static bool captured_send_short(struct ring *r, const void *hdr, const void *data, uint32_t len)
{
	const struct iovec iov[] = {{(void *)(uintptr_t)hdr, RING_SHORT_HEADER},
				    {(void *)(uintptr_t)data, len}};
	struct stats_frame f = frame(r, VMA_CAPTURE_OUT, iov, 2);
	struct stats_kept k;

	if (!r->capture->device->send_short(r, hdr, data, len))
		return false;
	if (stats_capture_keep(&k, &f))
		stats_capture_done(&k);
	return true;
}

/* What is written there later nobody would see: such a frame is posted. */
static uint8_t *captured_burst_add(struct ring *r, uint32_t len)
{
	(void)r;
	(void)len;
	return NULL;
}

static int captured_send_gso(struct ring *r, const struct iovec *iov, int iovcnt,
			     const struct ring_gso *g)
{
	struct stats_frame f = frame(r, VMA_CAPTURE_OUT, iov, iovcnt);
	struct stats_kept k;
	int err = r->capture->device->send_gso(r, iov, iovcnt, g);

	/* After: whether the program's memory can be read the ring has found out. */
	if (!err && stats_capture_keep(&k, &f))
		stats_capture_done(&k);
	return err;
}

static struct ring_capture *capture_new(const struct ring_ops *device)
{
	struct ring_capture *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	c->device = device;
	c->ops = *device;
	c->ops.poll = captured_poll;
	c->ops.poll_stamped = captured_poll_stamped;
	c->ops.post = captured_post;
	if (device->send_short)
		c->ops.send_short = captured_send_short;
	if (device->burst_add)
		c->ops.burst_add = captured_burst_add;
	if (device->send_gso)
		c->ops.send_gso = captured_send_gso;
	return c;
}

bool ring_captured(const struct ring *r)
{
	return r->capture && ring_ops(r) == &r->capture->ops;
}

void ring_capture_begin(struct ring *r)
{
	if (!r->capture)
		r->capture = capture_new(r->ops);
	if (r->capture)
		__atomic_store_n(&r->ops, &r->capture->ops, __ATOMIC_RELEASE);
}

void ring_capture_end(struct ring *r)
{
	if (r->capture)
		__atomic_store_n(&r->ops, r->capture->device, __ATOMIC_RELEASE);
}

void ring_close(struct ring *r)
{
	struct ring_capture *c = r->capture;

	r->ops->close(r);
	free(c);
}
