/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The 64-bit fields of the blocks by name. */
#include <stddef.h>

#include "snapshot.h"

#define COUNTER(type, field)                                                                       \
	{                                                                                          \
#field, offsetof(struct type, field), true                                         \
	}
#define GAUGE(type, field)                                                                         \
	{                                                                                          \
#field, offsetof(struct type, field), false                                        \
	}
#define PART(part, field)                                                                          \
	{                                                                                          \
#field, offsetof(struct vma_stats_socket, part.field), true                        \
	}
#define PARTS(part)                                                                                \
	PART(part, packets), PART(part, bytes), PART(part, eagain), PART(part, errors),            \
		PART(part, os_packets), PART(part, os_bytes), PART(part, os_eagain),               \
		PART(part, os_errors)
#define END                                                                                        \
	{                                                                                          \
		NULL, 0, false                                                                     \
	}

/*
 * The order of struct vma_stats_base: a change here is a new VMA_STATS_VERSION. The first 16 are rx
 * and tx.
 */
const struct field socket_counters[VMA_STATS_SOCKET_COUNTERS] = {
	PARTS(rx),
	PARTS(tx),
	COUNTER(vma_stats_socket, rx_poll_hit),
	COUNTER(vma_stats_socket, rx_poll_miss),
	COUNTER(vma_stats_socket, rx_poll_os_hit),
	COUNTER(vma_stats_socket, rx_drop_packets),
	COUNTER(vma_stats_socket, rx_drop_bytes),
	COUNTER(vma_stats_socket, rx_ring_migrations),
	COUNTER(vma_stats_socket, tx_ring_migrations),
	COUNTER(vma_stats_socket, tx_retransmits),
	COUNTER(vma_stats_socket, tx_dummy),
};

const struct field socket_gauges[] = {
	GAUGE(vma_stats_socket, rx_ready_packets),     GAUGE(vma_stats_socket, rx_ready_bytes),
	GAUGE(vma_stats_socket, rx_ready_packets_max), GAUGE(vma_stats_socket, rx_ready_bytes_max),
	GAUGE(vma_stats_socket, rx_ready_limit),       GAUGE(vma_stats_socket, rx_zcopy_buffers),
	GAUGE(vma_stats_socket, tx_ready_bytes),       END,
};

#define TCP(field)                                                                                 \
	{                                                                                          \
#field, offsetof(struct vma_stats_tcp, field), false                               \
	}

const struct field tcp_fields[] = {
	TCP(mss),
	TCP(advmss),
	TCP(wscale),
	TCP(snd_wscale),
	TCP(rcv_wscale),
	TCP(rcv_nxt),
	TCP(rcv_wup),
	TCP(rcv_wnd),
	TCP(snd_una),
	TCP(snd_nxt),
	TCP(snd_wnd),
	TCP(snd_wnd_max),
	TCP(snd_wl1),
	TCP(write_seq),
	TCP(cwnd),
	TCP(ssthresh),
	TCP(unacked),
	TCP(sacked),
	TCP(lost),
	TCP(rto_us),
	TCP(srtt_us),
	TCP(rttvar_us),
	TCP(retries),
	TCP(retransmits),
	TCP(rcvbuf),
	TCP(rcvbuf_used),
	TCP(sndbuf),
	TCP(sndbuf_used),
	TCP(reordered_bytes),
	TCP(flags),
	END,
};

const struct field ring_fields[] = {
	COUNTER(vma_stats_ring, rx_packets),
	COUNTER(vma_stats_ring, rx_bytes),
	COUNTER(vma_stats_ring, tx_packets),
	COUNTER(vma_stats_ring, tx_bytes),
	COUNTER(vma_stats_ring, tx_gso_frames),
	COUNTER(vma_stats_ring, rx_drop_no_buf),
	COUNTER(vma_stats_ring, rx_drop_invalid),
	COUNTER(vma_stats_ring, tx_drop_oversize),
	COUNTER(vma_stats_ring, tx_full),
	COUNTER(vma_stats_ring, kicks),
	COUNTER(vma_stats_ring, interrupts_requested),
	COUNTER(vma_stats_ring, interrupts_received),
	COUNTER(vma_stats_ring, retransmits),
	COUNTER(vma_stats_ring, drop_malformed),
	COUNTER(vma_stats_ring, drop_checksum),
	COUNTER(vma_stats_ring, drop_no_socket),
	COUNTER(vma_stats_ring, drop_other),
	GAUGE(vma_stats_ring, moderation_frames),
	GAUGE(vma_stats_ring, moderation_usec),
	END,
};

const struct field cq_fields[] = {
	COUNTER(vma_stats_cq, drops),
	GAUGE(vma_stats_cq, queue_len),
	GAUGE(vma_stats_cq, drained_max),
	GAUGE(vma_stats_cq, pool_len),
	END,
};

const struct field pool_fields[] = {
	GAUGE(vma_stats_pool, size),
	COUNTER(vma_stats_pool, no_buffers),
	END,
};

const struct field iomux_fields[] = {
	COUNTER(vma_stats_iomux, ready_os),
	COUNTER(vma_stats_iomux, ready_offloaded),
	COUNTER(vma_stats_iomux, poll_hit),
	COUNTER(vma_stats_iomux, poll_miss),
	COUNTER(vma_stats_iomux, timeouts),
	COUNTER(vma_stats_iomux, errors),
	END,
};
