/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The TCP header and its options. Input: a segment, in exact memory. What is read must be what the
 * header says, and reading what tcp_hdr_write() makes of it must give the same again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* What the engine would write for the same meaning. */
static struct tcp_hdr_spec spec_of(const struct tcp_rx *rx)
{
	struct tcp_hdr_spec h = {
		.seq = rx->seq,
		.ack = rx->ack,
		.wnd = (uint16_t)rx->wnd,
		.urg = rx->urg,
		.flags = rx->flags,
		.ts = rx->has_ts,
		.tsval = rx->has_ts ? rx->tsval : 0,
		.tsecr = rx->has_ts ? rx->tsecr : 0,
		.sack_permitted = rx->sack_ok,
		.wscale_present = rx->has_wscale,
		.wscale = rx->has_wscale ? rx->wscale : 0,
		.mss = rx->has_mss ? rx->mss : 0,
		.num_sacks = rx->num_sacks,
		.fast_open = &rx->fast_open,
	};

	for (unsigned i = 0; i < rx->num_sacks; i++)
		h.sack[i] = rx->sack[i];
	return h;
}

static void check_again(const struct tcp_rx *rx)
{
	struct tcp_hdr_spec h = spec_of(rx);
	uint8_t mem[TCP_HDR_MAX];
	uint8_t len = tcp_hdr_write(mem, &h);
	struct buf b = {.data = mem, .len = len, .total = len};
	struct tcp_rx again;

	require(len >= 20 && len <= TCP_HDR_MAX && len % 4 == 0);
	require(tcp_rx_parse(&b, &again));
	require(again.len == 0 && again.seq == rx->seq && again.ack == rx->ack &&
		again.flags == rx->flags);
	require(again.wnd == rx->wnd && again.urg == rx->urg);
	require(again.has_ts == rx->has_ts && again.has_mss == rx->has_mss &&
		again.has_wscale == rx->has_wscale && again.sack_ok == rx->sack_ok);
	require(!rx->has_ts || (again.tsval == rx->tsval && again.tsecr == rx->tsecr));
	require(!rx->has_mss || again.mss == rx->mss);
	require(!rx->has_wscale || again.wscale == rx->wscale);
	/*
	 * A foreign header can hold a block more than ours with a time stamp in front: it pads
	 * less.
	 */
	require(again.num_sacks <= rx->num_sacks && again.num_sacks + 1 >= rx->num_sacks);
	require(!memcmp(again.sack, rx->sack, again.num_sacks * sizeof(again.sack[0])));
	/* Ours may have no room for a cookie behind options that it pads. */
	require(again.fast_open.len < 0 ||
		(again.fast_open.len == rx->fast_open.len &&
		 again.fast_open.exp == rx->fast_open.exp &&
		 !memcmp(again.fast_open.val, rx->fast_open.val, (size_t)rx->fast_open.len)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *mem = malloc(size ? size : 1);
	struct buf b = {.data = mem, .len = (uint32_t)size, .total = (uint32_t)size};
	struct tcp_rx rx;

	if (size)
		memcpy(mem, data, size);
	if (tcp_rx_parse(&b, &rx)) {
		require(b.data >= mem + 20 && b.data <= mem + 60 && b.data + b.len == mem + size);
		require(rx.len == b.len && rx.b == &b && b.total == b.len);
		require(rx.num_sacks <= TCP_SACK_MAX &&
			(!rx.has_wscale || rx.wscale <= TCP_WSCALE_MAX));
		require(!rx.has_mss || rx.mss >= TCP_MSS_MIN);
		require(rx.fast_open.len >= -1 && rx.fast_open.len <= (int)TCP_FAST_OPEN_MAX);
		check_again(&rx);
	} else {
		require(b.data == mem && b.len == size);
	}
	free(mem);
	return 0;
}
