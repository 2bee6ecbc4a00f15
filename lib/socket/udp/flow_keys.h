/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which steering rules a socket needs on an interface. */
#ifndef SOCKET_UDP_FLOW_KEYS_H
#define SOCKET_UDP_FLOW_KEYS_H

#include "socket/udp/internal.h"

struct udp_keys {
	unsigned num;
	struct vma_flow_key key[UDP_KEYS_MAX];
};

/*
 * Fills keys for s (bound to a port) on the interface; none when its packets there are the
 * kernel's. s->lock is held.
 */
void udp_keys_make(const struct udp_sock *s, int ifindex, struct udp_keys *keys);
/*
 * Why no interface brings packets of s. VMA_WHY_NONE: it is to have none (a group that it is no
 * member of). s->lock is held.
 */
struct vma_stats_why udp_keys_why_none(const struct udp_sock *s);

#endif
