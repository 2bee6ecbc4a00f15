/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of TCP: the engine (RFC 9293 and its kin). It does no I/O, reads no clock and has no
 * globals: segments, time and memory come through calls, segments and events leave through struct
 * tcp_env. Its users are TCP sockets, the simulator, the fuzzers and the conformance tests. One
 * tcp_stack and everything in it belongs to one lock, held around every call.
 *
 * Every received segment: engine.c (the way in), options.c, conn_table.c, input.c (header
 * prediction), ack.c, rate.c, input_data.c, recv.c. Every sent one: send.c, output.c, frame.c, cc/.
 * Both: queue/ (the send buffer, the retransmission queue, reassembly). Timers: timers.c. Each
 * connection: calls.c, conn.c, handshake/ (how it begins), settings.c. Rare: recovery/ (segments
 * are lost), time_wait.c, control.c, mtu/, icmp.c, repair.c (a connection is handed to the kernel),
 * info.c, conn_stats.c, conn_ext.c.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include "tcp/engine.h"
#include "tcp/frame.h"
#include "tcp/icmp.h"
#include "tcp/options.h"

#endif
