/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the peer said last, once more: its FIN, its acknowledgement of ours. It will not say so
 * again, and TCP_REPAIR cannot tell a socket: the kernel gets it from us, as if from the wire, by
 * way of its own loopback.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

#include "handover/internal.h"
#include "tcp/tcp.h"
#include "runtime/runtime.h"

#define TTL 64

static uint32_t sum16(uint32_t sum, const void *p, size_t len)
{
	const uint8_t *at = p;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	return sum;
}

/* Its header, from the peer to us; returns the length. */
static uint8_t write_segment(uint8_t *to, const struct tcp_image *im, uint8_t flags, uint32_t ack)
{
	bool v4 = im->tuple.family == AF_INET;
	struct tcp_hdr_spec h = {
		.sport = im->tuple.rport,
		.dport = im->tuple.lport,
		.seq = im->rcv_nxt,
		.ack = ack,
		.wnd = (uint16_t)(im->snd_wnd >> im->snd_wscale),
		.flags = flags,
	};
	uint8_t len = tcp_hdr_write(to, &h);
	size_t skip = v4 ? 12 : 0;
	uint32_t sum = IPPROTO_TCP + len;
	uint16_t be;

	sum = sum16(sum, &im->tuple.remote.s6_addr[skip], 16 - skip);
	sum = sum16(sum, &im->tuple.local.s6_addr[skip], 16 - skip);
	sum = sum16(sum, to, len);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	be = htons((uint16_t)~sum);
	memcpy(to + 16, &be, sizeof(be));
	return len;
}

static int send_segment(const struct tcp_image *im, uint8_t flags, uint32_t ack)
{
	bool v4 = im->tuple.family == AF_INET;
	struct sockaddr_in to4 = {.sin_family = AF_INET};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = im->tuple.local};
	struct {
		union {
			struct iphdr v4;
			struct ip6_hdr v6;
		} ip;
		uint8_t tcp[TCP_HDR_MAX];
	} p;
	size_t ip_len = v4 ? sizeof(p.ip.v4) : sizeof(p.ip.v6), len;
	uint8_t *at = (uint8_t *)&p;
	int fd = OWN_FD(libc.socket(v4 ? AF_INET : AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)),
	    err = 0;

	if (fd < 0)
		return -errno;
	memset(&p, 0, sizeof(p));
	len = write_segment(at + ip_len, im, flags, ack);
	if (v4) {
		p.ip.v4.version = 4;
		p.ip.v4.ihl = 5;
		p.ip.v4.ttl = TTL;
		p.ip.v4.protocol = IPPROTO_TCP;
		memcpy(&p.ip.v4.saddr, &im->tuple.remote.s6_addr[12], 4);
		memcpy(&p.ip.v4.daddr, &im->tuple.local.s6_addr[12], 4);
		to4.sin_addr.s_addr = p.ip.v4.daddr;
	} else {
		p.ip.v6.ip6_flow = htonl(6u << 28);
		p.ip.v6.ip6_plen = htons((uint16_t)len);
		p.ip.v6.ip6_nxt = IPPROTO_TCP;
		p.ip.v6.ip6_hlim = TTL;
		p.ip.v6.ip6_src = im->tuple.remote;
		p.ip.v6.ip6_dst = im->tuple.local;
	}
	if (raw.sendto(fd, &p, ip_len + len, MSG_DONTWAIT,
		       v4 ? (struct sockaddr *)&to4 : (struct sockaddr *)&to6,
		       v4 ? sizeof(to4) : sizeof(to6)) < 0)
		err = -errno;
	own_fd_close(fd);
	return err;
}

int tcp_sock_fin_replay(const struct tcp_image *im)
{
	return send_segment(im, TCPHDR_FIN | TCPHDR_ACK, im->snd_una);
}

int tcp_sock_fin_acked(const struct tcp_image *im)
{
	return send_segment(im, im->fin_rcvd ? TCPHDR_FIN | TCPHDR_ACK : TCPHDR_ACK,
			    im->write_seq + 1);
}
