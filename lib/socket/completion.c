/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/completion.h"

#include <string.h>

#include "socket/sockaddr.h"
#include "socket/show.h"

void completion_src(const struct in6_addr *addr, uint16_t port, struct sockaddr_in *to)
{
	memset(to, 0, sizeof(*to));
	to->sin_family = IN6_IS_ADDR_V4MAPPED(addr) ? AF_INET : AF_INET6;
	to->sin_port = htons(port);
	if (to->sin_family == AF_INET)
		memcpy(&to->sin_addr, &addr->s6_addr[12], sizeof(to->sin_addr));
}

struct timespec completion_time(const struct buf *b)
{
	return sock_show_time(b->flags & BUF_HW_TIME ? b->hw_ns : 0);
}
