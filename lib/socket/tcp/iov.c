/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A user's vectors, from somewhere in the middle on. */
#include "socket/tcp/internal.h"

int tcp_sock_iov_part(const struct iovec *iov, int cnt, size_t skip,
		      struct iovec part[TCP_SOCK_IOVS])
{
	int n = 0;

	for (int i = 0; i < cnt && n < TCP_SOCK_IOVS; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		part[n].iov_base = (uint8_t *)iov[i].iov_base + skip;
		part[n++].iov_len = iov[i].iov_len - skip;
		skip = 0;
	}
	return n;
}
