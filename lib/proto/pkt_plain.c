/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto/pkt_plain.h"

#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

#include "proto/csum.h"

static uint32_t finish(uint8_t *frame, uint16_t type, const void *ip, uint32_t ip_len,
		       const uint8_t *l4, uint32_t l4_len)
{
	struct ethhdr eth = {.h_proto = htons(type)};

	memcpy(frame, &eth, sizeof(eth));
	memcpy(frame + sizeof(eth), ip, ip_len);
	memcpy(frame + sizeof(eth) + ip_len, l4, l4_len);
	return (uint32_t)sizeof(eth) + ip_len + l4_len;
}

static uint32_t plain_v4(uint8_t *frame, const uint8_t *packet, uint32_t len)
{
	struct iphdr ip;
	uint32_t head, total;

	if (len < sizeof(ip))
		return 0;
	memcpy(&ip, packet, sizeof(ip));
	head = ip.ihl * 4u;
	total = ntohs(ip.tot_len);
	if (head < sizeof(ip) || total < head || total > len ||
	    ip.frag_off & htons(IP_MF | IP_OFFMASK))
		return 0;
	if (head > sizeof(ip)) {
		ip.ihl = 5;
		ip.tot_len = htons((uint16_t)(total - head + sizeof(ip)));
		ip.check = 0;
		ip.check = (uint16_t)~csum_fold(csum_ipv4_header((const uint8_t *)&ip));
	}
	return finish(frame, ETH_P_IP, &ip, sizeof(ip), packet + head, total - head);
}

/* RFC 8200, 4: hop-by-hop, routing and destination options are the kernel's business, and were. */
static uint32_t plain_v6(uint8_t *frame, const uint8_t *packet, uint32_t len)
{
	struct ip6_hdr ip;
	uint32_t at = sizeof(ip), end;
	uint8_t next;

	if (len < sizeof(ip))
		return 0;
	memcpy(&ip, packet, sizeof(ip));
	end = (uint32_t)sizeof(ip) + ntohs(ip.ip6_plen);
	if (end > len)
		return 0;
	next = ip.ip6_nxt;
	while (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS) {
		if (end - at < 8 || end - at < (packet[at + 1] + 1u) * 8)
			return 0;
		next = packet[at];
		at += (packet[at + 1] + 1u) * 8;
	}
	if (next != IPPROTO_TCP && next != IPPROTO_UDP)
		return 0;
	ip.ip6_nxt = next;
	ip.ip6_plen = htons((uint16_t)(end - at));
	return finish(frame, ETH_P_IPV6, &ip, sizeof(ip), packet + at, end - at);
}

uint32_t pkt_plain(uint8_t *frame, const uint8_t *packet, uint32_t len)
{
	if (len && packet[0] >> 4 == 4)
		return plain_v4(frame, packet, len);
	return len && packet[0] >> 4 == 6 ? plain_v6(frame, packet, len) : 0;
}
