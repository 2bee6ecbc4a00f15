/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A sockaddr and what it says: a v4-mapped address and a port in host byte order. */
#ifndef SOCKET_SOCKADDR_H
#define SOCKET_SOCKADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * False when sa is no usable AF_INET or AF_INET6 address of at least its family's length; *scope is
 * written in any case.
 */
bool sock_addr_get(const struct sockaddr *sa, socklen_t len, struct in6_addr *addr, uint16_t *port,
		   uint32_t *scope);
/*
 * Writes the address in the form that a socket of `domain` gives, a sockaddr_in or a sockaddr_in6;
 * returns its length.
 */
socklen_t sock_addr_put(int domain, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			void *out);

/*
 * Gives the `full` bytes of ss to the caller of accept(), getpeername() and their like, as the
 * kernel does: as many as *len says, and *len is full then. 0, -EFAULT without len, or without addr
 * where something is to be written, -EINVAL where *len is negative.
 */
int sock_addr_give(const struct sockaddr_storage *ss, socklen_t full, struct sockaddr *addr,
		   socklen_t *len);

static inline bool sock_addr_is_multicast(const struct in6_addr *a)
{
	return IN6_IS_ADDR_V4MAPPED(a) ? IN_MULTICAST((uint32_t)a->s6_addr[12] << 24)
				       : IN6_IS_ADDR_MULTICAST(a);
}

#endif
