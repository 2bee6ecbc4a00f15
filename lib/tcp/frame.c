/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tcp/frame.h"

#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <sys/socket.h>

#include "proto/proto.h"

#define CHECK_OFF 16u /* of the checksum in the TCP header */

static uint32_t write_v4(struct tcp_frame_hdr *h, const struct tcp_frame_spec *spec)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.frag_off = spec->df ? htons(IP_DF) : 0,
		.protocol = IPPROTO_TCP,
	};

	memcpy(&ip.saddr, &spec->src.s6_addr[12], 4);
	memcpy(&ip.daddr, &spec->dst.s6_addr[12], 4);
	memcpy(h->bytes + ETH_HLEN, &ip, sizeof(ip));
	h->ip_sum = csum_add(0, &ip, sizeof(ip));
	h->pseudo = csum_add(0, &ip.saddr, 8);
	return sizeof(ip);
}

static uint32_t write_v6(struct tcp_frame_hdr *h, const struct tcp_frame_spec *spec)
{
	struct ip6_hdr ip = {.ip6_nxt = IPPROTO_TCP, .ip6_src = spec->src, .ip6_dst = spec->dst};

	memcpy(h->bytes + ETH_HLEN, &ip, sizeof(ip));
	h->pseudo = csum_add(0, &ip.ip6_src, 32);
	return sizeof(ip);
}

void tcp_frame_init(struct tcp_frame_hdr *h, const struct tcp_frame_spec *spec)
{
	uint16_t type = htons(spec->family == AF_INET ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	uint32_t ip_len;

	memset(h, 0, sizeof(*h));
	memcpy(h->bytes, spec->dmac, ETH_ALEN);
	memcpy(h->bytes + ETH_ALEN, spec->smac, ETH_ALEN);
	memcpy(h->bytes + 2 * ETH_ALEN, &type, sizeof(type));
	h->family = spec->family;
	h->ttl = spec->ttl;
	ip_len = spec->family == AF_INET ? write_v4(h, spec) : write_v6(h, spec);
	h->len = (uint8_t)(ETH_HLEN + ip_len);
	h->pseudo += htons(IPPROTO_TCP);
}

static void patch_v4(const struct tcp_frame_hdr *h, uint8_t *ip, uint32_t tcp_len, uint8_t tos,
		     uint8_t ttl)
{
	uint16_t total = htons((uint16_t)(tcp_len + sizeof(struct iphdr))), id = htons(h->ip_id);
	uint16_t check = (uint16_t)~csum_fold(h->ip_sum + htons(tos) + total + id +
					      htons((uint16_t)(ttl << 8)));

	ip[offsetof(struct iphdr, tos)] = tos;
	memcpy(ip + offsetof(struct iphdr, tot_len), &total, 2);
	memcpy(ip + offsetof(struct iphdr, id), &id, 2);
	ip[offsetof(struct iphdr, ttl)] = ttl;
	memcpy(ip + offsetof(struct iphdr, check), &check, 2);
}

static void patch_v6(uint8_t *ip, uint32_t tcp_len, uint8_t tos, uint8_t ttl)
{
	uint32_t flow = htonl(6u << 28 | (uint32_t)tos << 20);
	uint16_t plen = htons((uint16_t)tcp_len);

	memcpy(ip, &flow, sizeof(flow));
	memcpy(ip + offsetof(struct ip6_hdr, ip6_plen), &plen, 2);
	ip[offsetof(struct ip6_hdr, ip6_hlim)] = ttl;
}

/*
 * Link and network header for tx, which becomes `packets` packets; returns where the TCP header
 * goes.
 */
static uint8_t *write_headers(struct tcp_frame_hdr *h, uint8_t *frame, const struct tcp_tx *tx,
			      uint32_t packets)
{
	uint32_t tcp_len = tx->hdr_len + tx->len;
	uint8_t ttl = tx->ttl ? tx->ttl : h->ttl;

	memcpy(frame, h->bytes, sizeof(h->bytes));
	if (h->family == AF_INET) {
		patch_v4(h, frame + ETH_HLEN, tcp_len, tx->tos, ttl);
		h->ip_id = (uint16_t)(h->ip_id + packets);
	} else {
		patch_v6(frame + ETH_HLEN, tcp_len, tx->tos, ttl);
	}
	return frame + h->len;
}

uint32_t tcp_frame(struct tcp_frame_hdr *h, uint8_t *frame, const struct tcp_tx *tx)
{
	uint8_t *th = write_headers(h, frame, tx, 1);
	uint64_t sum = h->pseudo + htons((uint16_t)(tx->hdr_len + tx->len));
	uint16_t check;

	sum = csum_copy(sum, th, tx->hdr, tx->hdr_len);
	if (tx->iovcnt == 1 && tx->len)
		sum = csum_copy(sum, th + tx->hdr_len, tx->iov[0].iov_base, tx->len);
	else
		sum = csum_copy_iov(sum, th + tx->hdr_len, tx->iov, tx->iovcnt);
	check = (uint16_t)~csum_fold(sum);
	memcpy(th + CHECK_OFF, &check, sizeof(check));
	return h->len + tx->hdr_len + tx->len;
}

uint32_t tcp_frame_gso(struct tcp_frame_hdr *h, uint8_t *frame, const struct tcp_tx *tx)
{
	uint32_t packets = tx->mss && tx->len > tx->mss ? (tx->len + tx->mss - 1) / tx->mss : 1;
	uint8_t *th = write_headers(h, frame, tx, packets);
	uint16_t check = csum_fold(h->pseudo + htons((uint16_t)(tx->hdr_len + tx->len)));

	memcpy(th, tx->hdr, tx->hdr_len);
	memcpy(th + CHECK_OFF, &check, sizeof(check));
	return (uint32_t)h->len + tx->hdr_len;
}
