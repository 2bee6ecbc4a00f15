/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames in the log, at LOG_FINER. They may be anything: nothing behind their end is read. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "mem/mem.h"
#include "ring/ring.h"
#include "runtime/runtime.h"

struct frame {
	const uint8_t *at; /* what is not looked at yet */
	uint32_t left; /* bytes of it that are there */
};

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

static bool skip(struct frame *f, uint32_t bytes)
{
	if (f->left < bytes)
		return false;
	f->at += bytes;
	f->left -= bytes;
	return true;
}

/* The ethertype behind all VLAN tags; 0: the frame is too short. */
static uint16_t link_type(struct frame *f)
{
	uint16_t type = ETH_P_8021Q;

	if (!skip(f, 2 * ETH_ALEN))
		return 0;
	while (f->left >= 2 && (type = be16(f->at)) == ETH_P_8021Q && f->left >= 4)
		skip(f, 4);
	return skip(f, 2) ? type : 0;
}

/* The protocol behind the IP header, and the addresses as text; -1: it is none, or cut. */
static int network(struct frame *f, uint16_t type, char src[INET6_ADDRSTRLEN],
		   char dst[INET6_ADDRSTRLEN])
{
	const uint8_t *ip = f->at;
	bool six = type == ETH_P_IPV6;
	uint32_t header = six ? 40 : f->left ? (ip[0] & 0xfu) * 4 : 0;

	if ((!six && (type != ETH_P_IP || header < 20)) || !skip(f, header) ||
	    !inet_ntop(six ? AF_INET6 : AF_INET, ip + (six ? 8 : 12), src, INET6_ADDRSTRLEN) ||
	    !inet_ntop(six ? AF_INET6 : AF_INET, ip + (six ? 24 : 16), dst, INET6_ADDRSTRLEN))
		return -1;
	return ip[six ? 6 : 9];
}

#define FLAGS_TEXT 40
/* "SYN,ACK" */
static const char *flags_text(char text[FLAGS_TEXT], uint8_t flags)
{
	static const char *const names[] = {"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"};
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < 8; i++)
		if (flags & 1u << i)
			len += (size_t)snprintf(text + len, FLAGS_TEXT - len, "%s%s",
						len ? "," : "", names[i]);
	return text;
}

static void frame_log(const struct ring *r, const char *way, const uint8_t *at, uint32_t there,
		      uint32_t total)
{
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN], flags[FLAGS_TEXT];
	struct frame f = {at, there};
	uint16_t type = link_type(&f);
	int proto = network(&f, type, src, dst);

	if (proto == IPPROTO_UDP && f.left >= 8)
		log_write(LOG_FINER, "%s %s: %s port %u to %s port %u: UDP, %u bytes", r->ifname,
			  way, src, be16(f.at), dst, be16(f.at + 2), total - (there - f.left) - 8u);
	else if (proto == IPPROTO_TCP && f.left >= 20)
		log_write(LOG_FINER,
			  "%s %s: %s port %u to %s port %u: TCP %s, seq %u, ack %u, window %u, "
			  "%u bytes",
			  r->ifname, way, src, be16(f.at), dst, be16(f.at + 2),
			  flags_text(flags, f.at[13]), be32(f.at + 4), be32(f.at + 8),
			  be16(f.at + 14), total - (there - f.left) - (f.at[12] >> 4) * 4u);
	else
		log_write(LOG_FINER, "%s %s: frame of type 0x%04x, %u bytes", r->ifname, way, type,
			  total);
}

void ring_frames_log(const struct ring *r, struct buf *const *pkts, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		frame_log(r, "in", pkts[i]->data, pkts[i]->len, pkts[i]->total);
}

void ring_sent_log(const struct ring *r, const struct buf *b)
{
	frame_log(r, "out", b->data, b->len, b->len);
}

void ring_gso_log(const struct ring *r, const struct iovec *iov, int iovcnt)
{
	uint32_t total = 0;

	for (int i = 0; i < iovcnt; i++)
		total += (uint32_t)iov[i].iov_len;
	frame_log(r, "out, in segments", iov->iov_base, (uint32_t)iov->iov_len, total);
}
