/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What TCP and UDP sockets share: addresses as a program writes them, SO_MAX_PACING_RATE, time
 * limits, and the Extra API: receiving without a copy, and the callback. The sockets themselves are
 * the inner rooms socket/tcp and socket/udp, each with a header of its own (sock.h).
 */
#ifndef SOCKET_SOCKET_H
#define SOCKET_SOCKET_H

#include "socket/addr.h"
#include "socket/pacing.h"
#include "socket/show.h"
#include "socket/timeout.h"
#include "socket/told.h"
#include "socket/zcopy.h"

#endif
