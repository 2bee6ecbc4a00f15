/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tcp/icmp.h"

#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#include "proto/proto.h"

#define ICMP_HLEN 8u
/* Of the quoted TCP header: ports and sequence number, all that RFC 792 promises. */
#define QUOTED 8u

static void map_v4(struct in6_addr *to, const void *v4)
{
	memset(to, 0, 10);
	to->s6_addr[10] = to->s6_addr[11] = 0xff;
	memcpy(&to->s6_addr[12], v4, 4);
}

/* Ports and sequence number of the quoted header at p. */
static void quoted(const uint8_t *p, struct icmp_tcp *out)
{
	uint16_t port;
	uint32_t seq;

	memcpy(&port, p, 2);
	out->tuple.lport = ntohs(port);
	memcpy(&port, p + 2, 2);
	out->tuple.rport = ntohs(port);
	memcpy(&seq, p + 4, 4);
	out->seq = ntohl(seq);
}

static bool kind_v4(const uint8_t *icmp, struct icmp_tcp *out)
{
	uint16_t mtu;

	if (icmp[0] == ICMP_TIME_EXCEEDED) {
		out->kind = TCP_ICMP_UNREACH_HOST;
		return true;
	}
	if (icmp[0] != ICMP_DEST_UNREACH)
		return false;
	switch (icmp[1]) {
	case ICMP_NET_UNREACH:
	case ICMP_NET_UNKNOWN:
	case ICMP_NET_ANO:
	case ICMP_NET_UNR_TOS:
		out->kind = TCP_ICMP_UNREACH_NET;
		break;
	case ICMP_PORT_UNREACH:
		out->kind = TCP_ICMP_UNREACH_PORT;
		break;
	case ICMP_FRAG_NEEDED:
		out->kind = TCP_ICMP_FRAG_NEEDED;
		memcpy(&mtu, icmp + 6, 2);
		out->mtu = ntohs(mtu);
		break;
	case ICMP_PROT_UNREACH:
		out->kind = TCP_ICMP_OTHER;
		break;
	default:
		out->kind = TCP_ICMP_UNREACH_HOST;
	}
	return true;
}

static bool parse_v4(const uint8_t *p, size_t len, struct icmp_tcp *out)
{
	const uint8_t *icmp, *quote;
	size_t hlen, qlen;

	if (len < sizeof(struct iphdr))
		return false;
	hlen = (size_t)(p[0] & 0xf) * 4;
	if (p[0] >> 4 != 4 || hlen < sizeof(struct iphdr) || p[9] != IPPROTO_ICMP ||
	    len < hlen + ICMP_HLEN + sizeof(struct iphdr) + QUOTED)
		return false;
	icmp = p + hlen;
	len -= hlen;
	if (csum_fold(csum_add(0, icmp, len)) != 0xffff || !kind_v4(icmp, out))
		return false;
	quote = icmp + ICMP_HLEN;
	qlen = (size_t)(quote[0] & 0xf) * 4;
	/* A fragment that is not the first quotes no ports. */
	if (quote[0] >> 4 != 4 || qlen < sizeof(struct iphdr) || quote[9] != IPPROTO_TCP ||
	    ((quote[6] & 0x1f) | quote[7]) || len < ICMP_HLEN + qlen + QUOTED)
		return false;
	out->tuple.family = AF_INET;
	map_v4(&out->tuple.local, quote + 12);
	map_v4(&out->tuple.remote, quote + 16);
	quoted(quote + qlen, out);
	return true;
}

static bool kind_v6(const uint8_t *icmp, struct icmp_tcp *out)
{
	uint32_t mtu;

	switch (icmp[0]) {
	case ICMP6_PACKET_TOO_BIG:
		out->kind = TCP_ICMP_FRAG_NEEDED;
		memcpy(&mtu, icmp + 4, 4);
		out->mtu = ntohl(mtu);
		return true;
	case ICMP6_TIME_EXCEEDED:
		out->kind = TCP_ICMP_UNREACH_HOST;
		return true;
	case ICMP6_DST_UNREACH:
		out->kind = icmp[1] == ICMP6_DST_UNREACH_NOROUTE  ? TCP_ICMP_UNREACH_NET
			    : icmp[1] == ICMP6_DST_UNREACH_NOPORT ? TCP_ICMP_UNREACH_PORT
								  : TCP_ICMP_UNREACH_HOST;
		return true;
	default:
		return false;
	}
}

/* Segments of ours have no extension headers: a quote that has some is not ours. */
static bool parse_v6(const uint8_t *p, size_t len, struct icmp_tcp *out)
{
	const uint8_t *quote = p + ICMP_HLEN;

	if (len < ICMP_HLEN + sizeof(struct ip6_hdr) + QUOTED || !kind_v6(p, out))
		return false;
	if (quote[0] >> 4 != 6 || quote[6] != IPPROTO_TCP)
		return false;
	out->tuple.family = AF_INET6;
	memcpy(&out->tuple.local, quote + 8, 16);
	memcpy(&out->tuple.remote, quote + 24, 16);
	quoted(quote + sizeof(struct ip6_hdr), out);
	return true;
}

bool icmp_tcp_parse(const uint8_t *p, size_t len, int family, struct icmp_tcp *out)
{
	memset(out, 0, sizeof(*out));
	return family == AF_INET ? parse_v4(p, len, out) : parse_v6(p, len, out);
}
