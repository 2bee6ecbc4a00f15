/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP messages: any bytes, of either family, from memory that ends where they end. What is taken
 * has a family and ports.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp/icmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct icmp_tcp e;
	uint8_t *p;
	int family;

	if (!size)
		return 0;
	family = data[0] & 1 ? AF_INET6 : AF_INET;
	p = malloc(size - 1 ? size - 1 : 1);
	memcpy(p, data + 1, size - 1);
	if (icmp_tcp_parse(p, size - 1, family, &e) &&
	    (e.tuple.family != family || e.kind >= TCP_ICMP_COUNT ||
	     (e.mtu && e.kind != TCP_ICMP_FRAG_NEEDED)))
		abort();
	free(p);
	return 0;
}
