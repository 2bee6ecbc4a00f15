/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The room of what TCP and UDP sockets share: addresses as a program writes them,
 * SO_MAX_PACING_RATE, time limits, and the Extra API. The sockets themselves are rooms of their
 * own, socket/tcp and socket/udp, each with a header (sock.h). Used by these two, by handovers, and
 * by what stands above them.
 *
 * Every call with an address: sockaddr.c; every wait with a limit: timeout.h. Programs of the Extra
 * API: show.c (the receive callback), completion.c (SocketXtreme), zcopy.c (receiving without a
 * copy). Rare: pacing.h, inode.h.
 */
#ifndef SOCKET_SOCKET_H
#define SOCKET_SOCKET_H

#include "socket/sockaddr.h"
#include "socket/inode.h"
#include "socket/pacing.h"
#include "socket/show.h"
#include "socket/timeout.h"
#include "socket/completion.h"
#include "socket/zcopy.h"

#endif
