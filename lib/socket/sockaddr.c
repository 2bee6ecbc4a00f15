/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "socket/sockaddr.h"

bool sock_addr_get(const struct sockaddr *sa, socklen_t len, struct in6_addr *addr, uint16_t *port,
		   uint32_t *scope)
{
	*scope = 0;
	if (len < sizeof(sa_family_t))
		return false;
	if (sa->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
		const struct sockaddr_in *in = (const void *)sa;

		memset(addr, 0, 10);
		addr->s6_addr[10] = addr->s6_addr[11] = 0xff;
		memcpy(&addr->s6_addr[12], &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return true;
	}
	if (sa->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		*addr = in6->sin6_addr;
		*port = ntohs(in6->sin6_port);
		*scope = in6->sin6_scope_id;
		return true;
	}
	return false;
}

socklen_t sock_addr_put(int domain, const struct in6_addr *addr, uint16_t port, uint32_t scope,
			void *out)
{
	if (domain == AF_INET) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

		memcpy(&in.sin_addr, &addr->s6_addr[12], 4);
		memcpy(out, &in, sizeof(in));
		return sizeof(in);
	} else {
		struct sockaddr_in6 in6 = {
			.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *addr};

		if (IN6_IS_ADDR_LINKLOCAL(addr))
			in6.sin6_scope_id = scope;
		memcpy(out, &in6, sizeof(in6));
		return sizeof(in6);
	}
}

int sock_addr_give(const struct sockaddr_storage *ss, socklen_t full, struct sockaddr *addr,
		   socklen_t *len)
{
	socklen_t n;

	if (!len)
		return -EFAULT;
	if (*len > INT32_MAX)
		return -EINVAL;
	n = *len < full ? *len : full;
	if (n && !addr)
		return -EFAULT;
	if (n)
		memcpy(addr, ss, n);
	*len = full;
	return 0;
}
