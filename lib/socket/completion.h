/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SocketXtreme: what both protocols write into a completion. */
#ifndef SOCKET_COMPLETION_H
#define SOCKET_COMPLETION_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "mellanox/vma_extra.h"
#include "mem/mem.h"

/*
 * SO_VMA_USER_DATA; else completions carry the number of the socket. Written under the socket's
 * lock, read without it.
 */
struct sock_user_data {
	_Atomic uint64_t value;
	_Atomic bool is_set;
};

static inline void sock_user_data_set(struct sock_user_data *u, uint64_t value)
{
	atomic_store_explicit(&u->value, value, memory_order_relaxed);
	atomic_store_explicit(&u->is_set, true, memory_order_release);
}

static inline void sock_user_data_clear(struct sock_user_data *u)
{
	atomic_store_explicit(&u->is_set, false, memory_order_relaxed);
}

static inline uint64_t sock_user_data(const struct sock_user_data *u, int fd)
{
	return atomic_load_explicit(&u->is_set, memory_order_acquire)
		       ? atomic_load_explicit(&u->value, memory_order_relaxed)
		       : (uint64_t)fd;
}

/*
 * Of an IPv6 address there is no room but for family and port: the program finds AF_INET6 there.
 * port: host order.
 */
void completion_src(const struct in6_addr *addr, uint16_t port, struct sockaddr_in *to);
/* Of b: when the device got it; 0: not known. */
struct timespec completion_time(const struct buf *b);

#endif
