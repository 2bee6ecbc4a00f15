/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of packets, all but TCP's state: the gate that parses what a ring has received,
 * checksums, UDP's headers and demultiplexing, the timer wheel. It does no I/O, reads no clock and
 * has no globals; the simulator and the fuzzers use it as the stacks do.
 *
 * Every received packet: pkt.h (or pkt_udp4.h on UDP's fast path), udp_demux.h. Every sent
 * datagram: udp_frame.h, csum.h. TCP's timers: wheel.h. Rare: pkt_plain.h, for packets that the
 * kernel module gives back, and siphash.h.
 */
#ifndef PROTO_PROTO_H
#define PROTO_PROTO_H

#include "proto/csum.h"
#include "proto/pkt.h"
#include "proto/pkt_plain.h"
#include "proto/pkt_udp4.h"
#include "proto/siphash.h"
#include "proto/udp_demux.h"
#include "proto/udp_frame.h"
#include "proto/wheel.h"

#endif
