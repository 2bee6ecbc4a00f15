/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SocketXtreme: what both protocols write into a completion. */
#ifndef SOCKET_TOLD_H
#define SOCKET_TOLD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "mellanox/vma_extra.h"
#include "mem/mem.h"

/* SO_VMA_USER_DATA; else completions carry the number of the socket. */
struct told_user_data {
	uint64_t value;
	bool is_set;
};

static inline uint64_t told_user_data(const struct told_user_data *u, int fd)
{
	return u->is_set ? u->value : (uint64_t)fd;
}

/*
 * Of an IPv6 address there is no room but for family and port: the program finds AF_INET6 there.
 * port: host order.
 */
void told_src(const struct in6_addr *addr, uint16_t port, struct sockaddr_in *to);
/* Of b: when the device got it; 0: not known. */
struct timespec told_time(const struct buf *b);

#endif
