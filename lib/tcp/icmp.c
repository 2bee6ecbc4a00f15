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
/* RFC 4443, 3.1; netinet/icmp6.h ends before them */
#define UNREACH_POLICY 5
#define UNREACH_REJECT_ROUTE 6
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
	static const uint8_t unreach[NR_ICMP_UNREACH + 1] = {
		[ICMP_NET_UNREACH] = TCP_ICMP_UNREACH_NET,
		[ICMP_HOST_UNREACH] = TCP_ICMP_UNREACH_HOST,
		[ICMP_PROT_UNREACH] = TCP_ICMP_UNREACH_PROTO,
		[ICMP_PORT_UNREACH] = TCP_ICMP_UNREACH_PORT,
		[ICMP_FRAG_NEEDED] = TCP_ICMP_FRAG_NEEDED,
		[ICMP_SR_FAILED] = TCP_ICMP_SOURCE_ROUTE,
		[ICMP_NET_UNKNOWN] = TCP_ICMP_REFUSED_NET,
		[ICMP_HOST_UNKNOWN] = TCP_ICMP_HOST_UNKNOWN,
		[ICMP_HOST_ISOLATED] = TCP_ICMP_HOST_ISOLATED,
		[ICMP_NET_ANO] = TCP_ICMP_REFUSED_NET,
		[ICMP_HOST_ANO] = TCP_ICMP_REFUSED_HOST,
		[ICMP_NET_UNR_TOS] = TCP_ICMP_REFUSED_NET,
		[ICMP_HOST_UNR_TOS] = TCP_ICMP_REFUSED_HOST,
		[ICMP_PKT_FILTERED] = TCP_ICMP_REFUSED_HOST,
		[ICMP_PREC_VIOLATION] = TCP_ICMP_REFUSED_HOST,
		[ICMP_PREC_CUTOFF] = TCP_ICMP_REFUSED_HOST,
	};
	uint16_t mtu;

	if (icmp[0] == ICMP_TIME_EXCEEDED) {
		out->kind = TCP_ICMP_REFUSED_HOST;
		return true;
	}
	if (icmp[0] == ICMP_PARAMETERPROB) {
		out->kind = TCP_ICMP_PROTOCOL;
		return true;
	}
	if (icmp[0] != ICMP_DEST_UNREACH || icmp[1] > NR_ICMP_UNREACH)
		return false;
	out->kind = (enum tcp_icmp)unreach[icmp[1]];
	if (out->kind == TCP_ICMP_FRAG_NEEDED) {
		memcpy(&mtu, icmp + 6, 2);
		out->mtu = ntohs(mtu);
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

static enum tcp_icmp unreach_v6(uint8_t code)
{
	switch (code) {
	case ICMP6_DST_UNREACH_NOROUTE:
		return TCP_ICMP_UNREACH_NET;
	case ICMP6_DST_UNREACH_BEYONDSCOPE:
	case ICMP6_DST_UNREACH_ADDR:
		return TCP_ICMP_UNREACH_HOST;
	case ICMP6_DST_UNREACH_NOPORT:
		return TCP_ICMP_UNREACH_PORT;
	case ICMP6_DST_UNREACH_ADMIN:
	case UNREACH_POLICY:
	case UNREACH_REJECT_ROUTE:
		return TCP_ICMP_PROHIBITED;
	default:
		return TCP_ICMP_PROTOCOL;
	}
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
		out->kind = TCP_ICMP_REFUSED_HOST;
		return true;
	case ICMP6_PARAM_PROB:
		out->kind = TCP_ICMP_PROTOCOL;
		return true;
	case ICMP6_DST_UNREACH:
		out->kind = unreach_v6(icmp[1]);
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
