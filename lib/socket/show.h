/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The receive callback of the Extra API: what both protocols tell it of a frame. */
#ifndef SOCKET_SHOW_H
#define SOCKET_SHOW_H

#include <netinet/in.h>
#include <stdint.h>
#include <time.h>

#include "mellanox/vma_extra.h"
#include "mem/mem.h"

/* Pieces of a frame that a callback is shown; no frame of a ring has more. */
#define SOCK_SHOW_PIECES 64u

struct sock_frame {
	int fd, domain; /* the socket's */
	const struct buf *b;
	const struct in6_addr *src, *dst; /* v4-mapped for IPv4 */
	uint16_t sport, dport; /* host order */
	uint32_t scope; /* of link-local addresses */
};

struct timespec sock_show_time(uint64_t ns);
/*
 * Runs the callback, which may end its thread. *info has what the protocol knows besides:
 * packet_id, the queue's counts, the device's time stamp; the rest is filled in.
 */
vma_recv_callback_retval_t sock_show(const struct sock_frame *f, struct vma_info_t *info,
				     vma_recv_callback_t fn, void *context);

#endif
