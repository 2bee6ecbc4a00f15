/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate for received frames. Input: one byte of flags, one byte that says where the frame is cut
 * into fragments, the frame. Whatever comes out must lie inside what went in. Bit 2 of the flags:
 * the payload is a GSO burst, whose datagrams' size is in the bits above; taken apart it must be
 * the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/pkt.h"
#include "proto/pkt_plain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned freed;

static void count_free(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
	freed++;
}

static struct buf_pool pool = {.free = count_free};

/* Each fragment in memory of its own, so that AddressSanitizer sees a step outside. */
static void fill(struct buf *b, const uint8_t *from, size_t len)
{
	memset(b, 0, sizeof(*b));
	b->data = malloc(len ? len : 1);
	if (len)
		memcpy(b->data, from, len);
	b->len = b->total = (uint32_t)len;
	b->refs = 1;
	b->pool = &pool;
}

static uint64_t sum_of(const struct buf *b, uint32_t left)
{
	uint64_t sum = 0;

	for (; b && left; b = b->frag) {
		uint32_t n = b->len < left ? b->len : left;

		for (uint32_t i = 0; i < n; i++)
			sum += b->data[i];
		left -= n;
	}
	if (left)
		abort();
	return sum;
}

/* As the socket's queue does it: a few from the front, the rest cut to half, and so on. */
static void take_apart(struct buf *b, uint32_t size)
{
	uint64_t all = sum_of(b, b->total), parts = 0;
	unsigned fragments = b->frag ? 2 : 1, left = 0;

	freed = 0;
	b->gso_size = (uint16_t)size;
	while (b->total > size) {
		uint32_t total = b->total;

		parts += sum_of(b, size);
		b = buf_skip(b, size);
		if (b->total != total - size || b->gso_size != size)
			abort();
	}
	if (parts + sum_of(b, b->total) != all)
		abort();
	if (b->total > 1)
		buf_cut(b, b->total / 2);
	sum_of(b, b->total);
	for (const struct buf *f = b; f; f = f->frag)
		left++;
	if (freed + left != fragments)
		abort();
}

/* A packet from the module's fallback ring. */
static void from_the_kernel(const uint8_t *data, size_t size)
{
	uint8_t *packet = malloc(size), *frame = malloc(size + PKT_PLAIN_ROOM);
	struct buf b = {.data = frame, .flags = BUF_CSUM_OK, .refs = 1, .pool = &pool};

	memcpy(packet, data, size);
	b.len = b.total = pkt_plain(frame, packet, (uint32_t)size);
	if (b.len > size + PKT_PLAIN_ROOM)
		abort();
	if (b.len)
		(void)pkt_parse(&b);
	free(packet);
	free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf b[2];
	uint8_t *mem[2];
	enum pkt_result res;
	size_t first;

	if (size < 2 || size > 65536)
		return 0;
	from_the_kernel(data, size);
	first = (size_t)data[1] * 8 < size - 2 ? (size_t)data[1] * 8 : size - 2;
	if (data[1] == 255)
		first = size - 2;
	fill(&b[0], data + 2, first);
	fill(&b[1], data + 2 + first, size - 2 - first);
	mem[0] = b[0].data;
	mem[1] = b[1].data;
	if (b[1].len) {
		b[0].frag = &b[1];
		b[0].total += b[1].len;
	}
	b[0].flags = data[0] & (BUF_CSUM_OK | BUF_CSUM_PARTIAL_OK);
	res = pkt_parse(&b[0]);
	if (res == PKT_UDP || res == PKT_TCP) {
		if (b[0].data < mem[0] || b[0].data + b[0].len > mem[0] + first)
			abort();
		if (b[0].frag && b[1].len > size - 2 - first)
			abort();
		if (b[0].total != b[0].len + (b[0].frag ? b[1].len : 0))
			abort();
		if (b[0].total > 65535)
			abort();
		/* All of the TCP header is in the first fragment. */
		if (res == PKT_TCP && (b[0].len < 20 || b[0].len < (b[0].data[12] >> 4) * 4u))
			abort();
		if ((data[0] & 4) && b[0].total > 1u + (data[0] >> 3) * 50u)
			take_apart(&b[0], 1u + (data[0] >> 3) * 50u);
	}
	free(mem[0]);
	free(mem[1]);
	return 0;
}
