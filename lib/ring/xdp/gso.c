/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Large frames: an AF_PACKET socket takes them with a virtio-net header, the kernel or the device cuts them. */
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "ring/xdp/xdp.h"
#include "runtime/libc.h"
#include "runtime/log.h"

/* Newer than linux-libc-dev 6.1 (the kernel has it since 6.2). */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define GSO_MAX_FRAME (14 + 65535)
#define GSO_MAX_IOV 64

void gso_open(struct xdp_ring *x)
{
	/* Protocol 0: the socket receives nothing. */
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_ifindex = x->ring.ifindex};
	int fd, one = 1, size = 8 << 20;

	x->gso_fd = -1;
	fd = libc.socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0 || libc.setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    libc.bind(fd, (struct sockaddr *)&a, sizeof(a))) {
		log_debug("ring/xdp: %s: no AF_PACKET socket for large frames: %s", x->ring.ifname,
			  strerror(errno));
		if (fd >= 0)
			libc.close(fd);
		return;
	}
	/* Both only make it faster. */
	(void)libc.setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	(void)libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	x->gso_fd = fd;
	x->ring.caps.max_gso = GSO_MAX_FRAME;
}

static uint8_t gso_type(const struct ring_gso *g)
{
	if (g->proto == IPPROTO_UDP)
		return VIRTIO_NET_HDR_GSO_UDP_L4;
	return g->family == AF_INET ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
}

int xdp_send_gso(struct ring *r, const struct iovec *iov, int iovcnt, const struct ring_gso *g)
{
	struct xdp_ring *x = xdp_ring(r);
	struct virtio_net_hdr h = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.hdr_len = g->hdr_len,
		.csum_start = g->l4_off,
		.csum_offset = g->csum_off,
	};
	struct iovec v[GSO_MAX_IOV + 1];
	struct msghdr m = {.msg_iov = v};
	size_t total = 0;

	if (x->gso_fd < 0)
		return -EOPNOTSUPP;
	if (iovcnt < 1 || iovcnt > GSO_MAX_IOV || iov[0].iov_len < g->hdr_len)
		return -EINVAL;
	v[0] = (struct iovec){&h, sizeof(h)};
	for (int i = 0; i < iovcnt; i++) {
		v[i + 1] = iov[i];
		total += iov[i].iov_len;
	}
	m.msg_iovlen = (size_t)iovcnt + 1;
	if (total > r->caps.max_gso)
		return -EMSGSIZE;
	/* A frame of one segment is an ordinary one: the kernel refuses the mark on it. */
	if (g->gso_size && total > (size_t)g->hdr_len + g->gso_size) {
		h.gso_type = gso_type(g);
		h.gso_size = g->gso_size;
	}
	if (libc.sendmsg(x->gso_fd, &m, MSG_DONTWAIT) < 0) {
		int err = errno;

		if (err == EINVAL && h.gso_type == VIRTIO_NET_HDR_GSO_UDP_L4)
			return -EOPNOTSUPP; /* a kernel before 6.2 */
		if (err != EAGAIN && err != ENOBUFS)
			log_debug("ring/xdp: %s: sendmsg(AF_PACKET, %zu bytes): %s", r->ifname,
				  total, strerror(err));
		return -err;
	}
	__atomic_fetch_add(&x->counters.tx_gso_frames, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&x->counters.tx_bytes, total, __ATOMIC_RELAXED);
	return 0;
}
