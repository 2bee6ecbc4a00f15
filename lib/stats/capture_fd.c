/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stats/capture_fd.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <string.h>

#include "stats/area.h"
#include "vma/capture.h"

/* What a socket and a frame have in common. Ports in host order. */
struct ends {
	struct vma_addr local, remote;
	uint16_t local_port, remote_port;
	uint8_t proto;
};

static void put_v4(struct vma_addr *a, const uint8_t *from)
{
	*a = (struct vma_addr){.byte = {[10] = 0xff, [11] = 0xff}};
	memcpy(&a->byte[12], from, 4);
}

/* Source and destination as local and remote. Where the ports are, 0: not of TCP or UDP. */
static size_t addresses(struct ends *e, const uint8_t *ip, size_t len)
{
	if (len >= 20 && ip[0] >> 4 == 4) {
		put_v4(&e->local, ip + 12);
		put_v4(&e->remote, ip + 16);
		e->proto = ip[9];
		return (ip[0] & 15u) * 4u;
	}
	if (len < 40 || ip[0] >> 4 != 6)
		return 0;
	memcpy(e->local.byte, ip + 8, 16);
	memcpy(e->remote.byte, ip + 24, 16);
	e->proto = ip[6];
	return 40;
}

static bool parse(struct ends *e, const struct stats_frame *f)
{
	const uint8_t *at = f->iov[0].iov_base;
	size_t len = f->iov[0].iov_len, ports;
	uint16_t port[2];

	if (len < ETH_HLEN)
		return false;
	at += ETH_HLEN;
	len -= ETH_HLEN;
	ports = addresses(e, at, len);
	if (!ports || len < ports + sizeof(port) ||
	    (e->proto != IPPROTO_TCP && e->proto != IPPROTO_UDP))
		return false;
	memcpy(port, at + ports, sizeof(port));
	e->local_port = ntohs(port[0]);
	e->remote_port = ntohs(port[1]);
	if (f->direction == VMA_CAPTURE_IN) {
		struct ends in = {.local = e->remote,
				  .remote = e->local,
				  .local_port = e->remote_port,
				  .remote_port = e->local_port,
				  .proto = e->proto};

		*e = in;
	}
	return true;
}

static bool same(const struct vma_addr *a, const struct vma_addr *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* No address, of either family. */
static bool is_any(const struct vma_addr *a)
{
	static const struct vma_addr v6, v4 = {.byte = {[10] = 0xff, [11] = 0xff}};

	return same(a, &v6) || same(a, &v4);
}

/* 0: it is not s's; the more, the better it fits. */
static unsigned fits(const struct vma_stats_socket *s, const struct ends *e)
{
	if (!s->enabled || s->proto != e->proto || s->local_port != e->local_port)
		return 0;
	if (s->remote_port)
		return s->remote_port == e->remote_port && same(&s->remote, &e->remote) ? 3 : 0;
	if (same(&s->local, &e->local))
		return 2;
	return is_any(&s->local) ||
	       /* a group's */
	       e->local.byte[0] == 0xff || e->local.byte[12] >> 4 == 14;
}

int stats_capture_fd(const struct stats_frame *f)
{
	/* No mutex: a block that is changed meanwhile may give a wrong number, no more. */
	struct stats_area *a = __atomic_load_n(&stats_area, __ATOMIC_RELAXED);
	const struct vma_stats_socket *sockets;
	unsigned best = 0, fit;
	struct ends e;
	int fd = -1;

	if (!a || !parse(&e, f))
		return -1;
	sockets =
		(struct vma_stats_socket *)(stats_area_pages(a) + sizeof(struct vma_stats_header));
	for (unsigned i = 0; i < VMA_STATS_SOCKETS_MAX && best < 3; i++) {
		uint64_t used = __atomic_load_n(&a->sockets[i / 64], __ATOMIC_RELAXED);

		if (!(used >> i % 64 & 1))
			continue;
		fit = fits(&sockets[i], &e);
		if (fit > best) {
			best = fit;
			fd = sockets[i].fd;
		}
	}
	return fd;
}
