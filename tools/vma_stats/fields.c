/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields of the blocks by name, and what they are. */
#include <stddef.h>

#include "snapshot.h"

#define COUNTER(type, field, help)                                                                 \
	{                                                                                          \
#field, offsetof(struct type, field), true, help                                   \
	}
#define GAUGE(type, field, help)                                                                   \
	{                                                                                          \
#field, offsetof(struct type, field), false, help                                  \
	}
#define PART(part, field, help)                                                                    \
	{                                                                                          \
#field, offsetof(struct vma_stats_socket, part.field), true, help                  \
	}
/* The help of the two paths' fields is one: metrics tell the paths apart by a label. */
#define PARTS(part)                                                                                \
	PART(part, packets, "Packets that programs sent or received."),                            \
		PART(part, bytes, "Bytes that programs sent or received."),                        \
		PART(part, eagain, "Calls that would have blocked."),                              \
		PART(part, errors, "Calls that failed."), PART(part, os_packets, NULL),            \
		PART(part, os_bytes, NULL), PART(part, os_eagain, NULL),                           \
		PART(part, os_errors, NULL)
/* Those of waits stand in sockets and in sets. */
#define WAITS(type, field, name, help)                                                             \
	{                                                                                          \
		name, offsetof(struct type, waits.field), true, help                               \
	}
#define SLEPT(text) "Sleeps because " text "."
#define SLEPT_SOCKET(constant, name, text)                                                         \
	WAITS(vma_stats_socket, why[VMA_SLEPT_##constant], "slept_" name, SLEPT(text)),
#define SLEPT_IOMUX(constant, name, text)                                                          \
	WAITS(vma_stats_iomux, why[VMA_SLEPT_##constant], "slept_" name, SLEPT(text)),
#define END                                                                                        \
	{                                                                                          \
		NULL, 0, false, NULL                                                               \
	}

/*
 * The order of struct vma_stats_base: a change here is a new VMA_STATS_VERSION. The first 16 are rx
 * and tx.
 */
const struct field socket_counters[VMA_STATS_SOCKET_COUNTERS] = {
	PARTS(rx),
	PARTS(tx),
	COUNTER(vma_stats_socket, rx_poll_hit, "Waits to receive that ended without a sleep."),
	COUNTER(vma_stats_socket, rx_poll_miss, "Waits to receive that slept."),
	COUNTER(vma_stats_socket, rx_poll_os_hit,
		"Waits to receive that ended with what came through the kernel."),
	COUNTER(vma_stats_socket, rx_drop_packets,
		"Packets dropped because the receive queue was full."),
	COUNTER(vma_stats_socket, rx_drop_bytes,
		"Bytes dropped because the receive queue was full."),
	COUNTER(vma_stats_socket, rx_ring_migrations, "Moves to another ring for receiving."),
	COUNTER(vma_stats_socket, tx_ring_migrations, "Moves to another ring for sending."),
	COUNTER(vma_stats_socket, tx_retransmits, "TCP segments sent again."),
	COUNTER(vma_stats_socket, tx_dummy, "Dummy messages, which warm the way and are not sent."),
	WAITS(vma_stats_socket, spun, "spun", "Waits that ended while the thread spun."),
	WAITS(vma_stats_socket, spun_in_vain, "spun_in_vain", "Waits that spun and then slept."),
	WAITS(vma_stats_socket, slept, "slept", "Waits that slept."),
	VMA_SLEPT_LIST(SLEPT_SOCKET)};

const struct field socket_gauges[] = {
	GAUGE(vma_stats_socket, rx_ready_packets,
	      "Packets that wait for the program; of a listener the clients that wait for "
	      "accept()."),
	GAUGE(vma_stats_socket, rx_ready_bytes, "Bytes that wait for the program."),
	GAUGE(vma_stats_socket, rx_ready_packets_max, "Most packets that ever waited."),
	GAUGE(vma_stats_socket, rx_ready_bytes_max, "Most bytes that ever waited."),
	GAUGE(vma_stats_socket, rx_ready_limit, "Bytes that may wait."),
	GAUGE(vma_stats_socket, rx_zcopy_buffers,
	      "Buffers that the program holds from receiving without a copy."),
	GAUGE(vma_stats_socket, tx_ready_bytes, "Bytes that wait to be sent or acknowledged."),
	END,
};

#define TCP(field, help)                                                                           \
	{                                                                                          \
#field, offsetof(struct vma_stats_tcp, field), false, help                         \
	}

/* Without a help are those that make no metric: sequence numbers, and what a counter has already.
 */
const struct field tcp_fields[] = {
	TCP(mss, "Bytes in a full segment."),
	TCP(advmss, "Bytes in a full segment that the peer was told."),
	TCP(wscale, "1 if both sides scale their windows."),
	TCP(snd_wscale, "Shift of the windows that the peer tells."),
	TCP(rcv_wscale, "Shift of the windows that the peer is told."),
	TCP(rcv_nxt, NULL),
	TCP(rcv_wup, NULL),
	TCP(rcv_wnd, "Receive window in bytes."),
	TCP(snd_una, NULL),
	TCP(snd_nxt, NULL),
	TCP(snd_wnd, "Send window in bytes."),
	TCP(snd_wnd_max, "Largest send window in bytes."),
	TCP(snd_wl1, NULL),
	TCP(write_seq, NULL),
	TCP(cwnd, "Congestion window in segments."),
	TCP(ssthresh, "Slow start threshold in segments."),
	TCP(unacked, "Segments sent and not acknowledged."),
	TCP(sacked, "Of them those that the peer has told it has."),
	TCP(lost, "Of them those that are taken for lost."),
	TCP(rto_us, "Retransmission time-out."),
	TCP(srtt_us, "Smoothed round trip time; 0: not measured yet."),
	TCP(rttvar_us, "Variation of the round trip time."),
	TCP(retries, "Times that the oldest segment was sent again."),
	TCP(retransmits, NULL),
	TCP(rcvbuf, "Receive buffer in bytes."),
	TCP(rcvbuf_used, "Memory used of the receive buffer."),
	TCP(sndbuf, "Send buffer in bytes."),
	TCP(sndbuf_used, "Memory used of the send buffer."),
	TCP(reordered_bytes, "Memory of what waits for a gap to close."),
	TCP(flags, NULL),
	TCP(rcv_wnd_max, "Largest receive window in bytes, as things are."),
	TCP(rtime_us, "Time until the retransmission timer ends; 0: it does not run."),
	TCP(unacked_first_len, NULL),
	TCP(unacked_last_seq, NULL),
	END,
};

const struct field ring_fields[] = {
	COUNTER(vma_stats_ring, rx_packets, "Packets received."),
	COUNTER(vma_stats_ring, rx_bytes, "Bytes received."),
	COUNTER(vma_stats_ring, tx_packets, "Packets sent."),
	COUNTER(vma_stats_ring, tx_bytes, "Bytes sent."),
	COUNTER(vma_stats_ring, tx_gso_frames, "Bursts of packets sent as one frame."),
	COUNTER(vma_stats_ring, rx_drop_no_buf, "Packets dropped for want of a buffer."),
	COUNTER(vma_stats_ring, rx_drop_invalid,
		"Frames dropped because their descriptors were not right."),
	COUNTER(vma_stats_ring, tx_drop_oversize,
		"Packets refused because they were longer than the MTU."),
	COUNTER(vma_stats_ring, tx_full, "Packets for which there was no room to send."),
	COUNTER(vma_stats_ring, kicks, "System calls made to send."),
	COUNTER(vma_stats_ring, interrupts_requested, "Times that a thread slept on the ring."),
	COUNTER(vma_stats_ring, interrupts_received, "Times that the ring woke a thread."),
	COUNTER(vma_stats_ring, retransmits, "TCP segments sent again."),
	COUNTER(vma_stats_ring, drop_malformed, "Packets dropped because they were malformed."),
	COUNTER(vma_stats_ring, drop_checksum, "Packets dropped because of their checksum."),
	COUNTER(vma_stats_ring, drop_no_socket, "Packets dropped because no socket wanted them."),
	COUNTER(vma_stats_ring, drop_other, "Packets dropped for other reasons."),
	GAUGE(vma_stats_ring, moderation_frames, "Frames that an interrupt waits for."),
	GAUGE(vma_stats_ring, moderation_usec, "Time that an interrupt waits."),
	GAUGE(vma_stats_ring, dev_mem_alloc, "Bytes of the device's memory to send from."),
	COUNTER(vma_stats_ring, dev_mem_bytes, "Bytes sent from the device's memory."),
	COUNTER(vma_stats_ring, dev_mem_packets, "Packets sent from the device's memory."),
	COUNTER(vma_stats_ring, dev_mem_oob, "Packets for which the device's memory had no room."),
	END,
};

const struct field cq_fields[] = {
	COUNTER(vma_stats_cq, drops, "Packets dropped."),
	GAUGE(vma_stats_cq, queue_len, "Packets that wait in the queue."),
	GAUGE(vma_stats_cq, drained_max, "Most packets taken from the queue at once."),
	GAUGE(vma_stats_cq, pool_len, "Buffers of the queue that are free."),
	END,
};

const struct field pool_fields[] = {
	GAUGE(vma_stats_pool, size, "Buffers of the pool that are free."),
	COUNTER(vma_stats_pool, no_buffers, "Times that the pool was empty."),
	END,
};

const struct field iomux_fields[IOMUX_FIELDS + 1] = {
	COUNTER(vma_stats_iomux, ready_os, "Descriptors of the kernel found ready."),
	COUNTER(vma_stats_iomux, ready_offloaded, "Offloaded descriptors found ready."),
	COUNTER(vma_stats_iomux, poll_hit, "Waits that ended without a sleep."),
	COUNTER(vma_stats_iomux, poll_miss, "Waits that found nothing before a sleep."),
	COUNTER(vma_stats_iomux, timeouts, "Calls that timed out."),
	COUNTER(vma_stats_iomux, errors, "Calls that failed."),
	WAITS(vma_stats_iomux, spun, "spun", "Waits that ended while the thread spun."),
	WAITS(vma_stats_iomux, spun_in_vain, "spun_in_vain", "Waits that spun and then slept."),
	WAITS(vma_stats_iomux, slept, "slept", "Waits that slept."),
	VMA_SLEPT_LIST(SLEPT_IOMUX) END,
};
