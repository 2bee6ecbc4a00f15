/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proto/udp_frame.h"

#include <arpa/inet.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "mem/mem.h"
#include "proto/csum.h"

static uint32_t write_v4(struct udp_hdr *h, const struct udp_hdr_spec *spec)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = spec->tos,
		.frag_off = spec->df ? htons(IP_DF) : 0,
		.ttl = spec->ttl,
		.protocol = IPPROTO_UDP,
	};

	memcpy(&ip.saddr, &spec->src.s6_addr[12], 4);
	memcpy(&ip.daddr, &spec->dst.s6_addr[12], 4);
	memcpy(h->bytes + ETH_HLEN, &ip, sizeof(ip));
	h->ip_sum = csum_add(0, &ip, sizeof(ip));
	h->pseudo = csum_add(0, &ip.saddr, 8);
	return sizeof(ip);
}

static uint32_t write_v6(struct udp_hdr *h, const struct udp_hdr_spec *spec)
{
	struct ip6_hdr ip = {
		.ip6_flow = htonl(6u << 28 | (uint32_t)spec->tos << 20),
		.ip6_nxt = IPPROTO_UDP,
		.ip6_hlim = spec->ttl,
		.ip6_src = spec->src,
		.ip6_dst = spec->dst,
	};

	memcpy(h->bytes + ETH_HLEN, &ip, sizeof(ip));
	h->ip_sum = 0;
	h->pseudo = csum_add(0, &ip.ip6_src, 32);
	return sizeof(ip);
}

void udp_hdr_init(struct udp_hdr *h, const struct udp_hdr_spec *spec)
{
	uint16_t type = htons(spec->family == AF_INET ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	struct udphdr uh = {.source = htons(spec->sport), .dest = htons(spec->dport)};
	uint32_t off = ETH_HLEN;

	memset(h, 0, sizeof(*h));
	memcpy(h->bytes, spec->dmac, ETH_ALEN);
	memcpy(h->bytes + ETH_ALEN, spec->smac, ETH_ALEN);
	memcpy(h->bytes + 2 * ETH_ALEN, &type, sizeof(type));
	h->family = spec->family;
	h->df = spec->df;
	off += spec->family == AF_INET ? write_v4(h, spec) : write_v6(h, spec);
	memcpy(h->bytes + off, &uh, sizeof(uh));
	h->len = (uint8_t)(off + sizeof(uh));
	h->pseudo = csum_add(h->pseudo + htons(IPPROTO_UDP), &uh, sizeof(uh));
}

/* Patches lengths, identification and the IPv4 checksum; returns where the UDP header is. */
static uint8_t *write_headers(struct udp_hdr *h, uint8_t *frame, uint32_t udp_len)
{
	uint8_t *ip = frame + ETH_HLEN;
	uint16_t be;

	memcpy(frame, h->bytes, sizeof(h->bytes));
	if (h->family == AF_INET) {
		uint64_t sum = h->ip_sum;

		be = htons((uint16_t)(udp_len + sizeof(struct iphdr)));
		memcpy(ip + 2, &be, 2);
		sum += be;
		if (!h->df) {
			be = htons(h->ip_id++);
			memcpy(ip + 4, &be, 2);
			sum += be;
		}
		be = (uint16_t)~csum_fold(sum);
		memcpy(ip + 10, &be, 2);
	} else {
		be = htons((uint16_t)udp_len);
		memcpy(ip + 4, &be, 2);
	}
	return frame + h->len - sizeof(struct udphdr);
}

uint32_t udp_frame(struct udp_hdr *h, uint8_t *frame, const struct iovec *iov, int iovcnt,
		   uint32_t len)
{
	uint32_t udp_len = len + (uint32_t)sizeof(struct udphdr);
	uint8_t *uh = write_headers(h, frame, udp_len);
	uint16_t be = htons((uint16_t)udp_len);
	/* The length counts twice: in the pseudo header and in the UDP header. */
	uint64_t sum = h->pseudo + be + be;
	uint16_t check;

	if (iovcnt == 1 && len)
		sum = csum_copy(sum, uh + sizeof(struct udphdr), iov[0].iov_base, len);
	else
		sum = csum_copy_iov(sum, uh + sizeof(struct udphdr), iov, iovcnt);
	check = (uint16_t)~csum_fold(sum);
	if (check == 0)
		check = 0xffff; /* RFC 768: zero on the wire would mean "no checksum" */
	memcpy(uh + 4, &be, 2);
	memcpy(uh + 6, &check, 2);
	return h->len + len;
}

/* Payloads of no more bytes than that are copied without a call. */
#define SHORT_COPY 64u

uint32_t udp_frame_unsummed(struct udp_hdr *h, uint8_t *frame, const struct iovec *iov, int iovcnt,
			    uint32_t len)
{
	uint16_t udp_len = htons((uint16_t)(len + sizeof(struct udphdr))), ip_len, id;
	uint8_t *to = frame + h->len;

	memcpy(frame, h->bytes, sizeof(h->bytes));
	memcpy(to - 4, &udp_len, 2);
	if (__builtin_expect(h->family == AF_INET, 1)) {
		ip_len = htons((uint16_t)(len + sizeof(struct udphdr) + sizeof(struct iphdr)));
		memcpy(frame + ETH_HLEN + 2, &ip_len, 2);
		if (!h->df) {
			id = htons(h->ip_id++);
			memcpy(frame + ETH_HLEN + 4, &id, 2);
		}
	} else {
		memcpy(frame + ETH_HLEN + 4, &udp_len, 2);
	}
	if (iovcnt == 1 && len - 16 <= SHORT_COPY - 16) {
		copy_short(to, iov->iov_base, len);
	} else {
		for (int i = 0; i < iovcnt; to += iov[i++].iov_len) {
			if (iov[i].iov_len) /* the base may be NULL otherwise */
				memcpy(to, iov[i].iov_base, iov[i].iov_len);
		}
	}
	return h->len + len;
}

void udp_frame_gso(struct udp_hdr *h, uint8_t *frame, uint32_t len)
{
	uint32_t udp_len = len + (uint32_t)sizeof(struct udphdr);
	uint8_t *uh = write_headers(h, frame, udp_len);
	uint16_t be = htons((uint16_t)udp_len);
	uint64_t ports = 0;
	uint16_t check;

	/* h->pseudo holds the ports too; the partial checksum wants the pseudo header alone. */
	ports = csum_add(0, uh, 4);
	check = csum_fold(h->pseudo + be + (uint16_t)~csum_fold(ports));
	memcpy(uh + 4, &be, 2);
	memcpy(uh + 6, &check, 2);
}
