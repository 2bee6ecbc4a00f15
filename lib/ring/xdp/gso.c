/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Large frames: an AF_PACKET socket takes them with a virtio-net header, the kernel or the device
 * cuts them.
 */
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "ring/xdp/xdp.h"
#include "runtime/runtime.h"

/* Newer than linux-libc-dev 6.1 (the kernel has it since 6.2). */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif
#define GSO_MAX_FRAME (14 + 65535)
#define GSO_MAX_IOV 129 /* the headers, and two parts of each of 64 datagrams */
/*
 * Past the queueing discipline there is nobody who would cut a frame for a device that cannot: it
 * is dropped (ENOBUFS). A veth cannot when its peer has a native XDP program, a card when its TSO
 * is off. After so many failures in a row the frames go through the discipline, where the kernel
 * cuts them; fail they there too, no more are tried for a while.
 */
#define GSO_FAILS_MAX 4u
#define GSO_PAUSE 1024u

void gso_open(struct xdp_ring *x)
{
	/* Protocol 0: the socket receives nothing. */
	struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_ifindex = x->ring.ifindex};
	int fd, one = 1, size = 8 << 20;

	x->gso_fd = -1;
	fd = OWN_FD(libc.socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
	if (fd < 0 || libc.setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) ||
	    libc.bind(fd, (struct sockaddr *)&a, sizeof(a))) {
		log_debug("ring/xdp: %s: no AF_PACKET socket for large frames: %s", x->ring.ifname,
			  strerror(errno));
		if (fd >= 0)
			own_fd_close(fd);
		return;
	}
	/* Both only make it faster. */
	x->gso_bypass = !libc.setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	(void)libc.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	x->gso_fd = fd;
	x->ring.caps.max_gso = GSO_MAX_FRAME;
	/*
	 * AF_PACKET and the XSK end in the same transmit queue, one frame after the other. A kernel
	 * that gives XSKs no GSO bursts would part them again at a peer of ours on this host: a
	 * burst to the kernel's socket, a single frame to the XSK.
	 */
	x->ring.caps.gso_in_order = x->gso_bursts && !x->zerocopy && x->port->num_tx_queues == 1;
}

static uint8_t gso_type(const struct ring_gso *g)
{
	if (g->proto == IPPROTO_UDP)
		return VIRTIO_NET_HDR_GSO_UDP_L4;
	return g->family == AF_INET ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
}

static bool gso_paused(struct xdp_ring *x)
{
	uint32_t fails = atomic_load_explicit(&x->gso_fails, memory_order_relaxed);

	if (__builtin_expect(fails < GSO_FAILS_MAX, 1))
		return false;
	/* The one try after the pause starts the next one when it fails. */
	fails = fails < GSO_FAILS_MAX + GSO_PAUSE ? fails + 1 : GSO_FAILS_MAX - 1;
	atomic_store_explicit(&x->gso_fails, fails, memory_order_relaxed);
	return true;
}

static void gso_count(struct xdp_ring *x, const struct ring_gso *g, size_t total)
{
	size_t payload = total - g->hdr_len;
	uint64_t packets = g->gso_size ? (payload + g->gso_size - 1) / g->gso_size : 1;

	__atomic_fetch_add(&x->counters.tx_gso_frames, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&x->counters.tx_gso_packets, packets ? packets : 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&x->counters.tx_gso_bytes, total, __ATOMIC_RELAXED);
}

/*
 * From now on the kernel cuts what the device does not. Any thread. What waits in the discipline is
 * overtaken by frames of the XSKs, which always go past it: so bursts of datagrams, which must keep
 * their order, are sent no more; TCP can put its segments in order again.
 */
static void gso_through_discipline(struct xdp_ring *x)
{
	int zero = 0;

	if (!atomic_exchange_explicit(&x->gso_bypass, false, memory_order_relaxed))
		return;
	__atomic_store_n(&x->ring.caps.gso_in_order, false, __ATOMIC_RELAXED);
	if (libc.setsockopt(x->gso_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &zero, sizeof(zero)))
		return;
	log_debug("ring/xdp: %s does not segment: the kernel does", x->ring.ifname);
	atomic_store_explicit(&x->gso_fails, 0, memory_order_relaxed);
}

/* What became of one send: whether to pause or to send past the discipline is decided by it. */
static int gso_failed(struct xdp_ring *x, int err, const struct virtio_net_hdr *h, size_t total)
{
	if (err == EINVAL && h->gso_type == VIRTIO_NET_HDR_GSO_UDP_L4)
		err = EOPNOTSUPP; /* a kernel before 6.2 */
	if (err == ENOBUFS || err == EOPNOTSUPP) {
		uint32_t fails =
			1 + atomic_fetch_add_explicit(&x->gso_fails, 1, memory_order_relaxed);

		if (err == ENOBUFS && fails >= GSO_FAILS_MAX)
			gso_through_discipline(x);
	} else if (err != EAGAIN) {
		log_debug("ring/xdp: %s: sendmsg(AF_PACKET, %zu bytes): %s", x->ring.ifname, total,
			  strerror(err));
	}
	return -err;
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
	int err;

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
	if (gso_paused(x))
		return -EAGAIN;
	err = tx_flush(x);
	if (err && !x->zerocopy)
		return err;
	/* Not libc's sendmsg(): that is a cancellation point (see xdp_kick()). */
	if (libc_raw(SYS_sendmsg, x->gso_fd, (long)(uintptr_t)&m, MSG_DONTWAIT, 0, 0, 0) < 0)
		return gso_failed(x, errno, &h, total);
	if (__builtin_expect(atomic_load_explicit(&x->gso_fails, memory_order_relaxed), 0))
		atomic_store_explicit(&x->gso_fails, 0, memory_order_relaxed);
	gso_count(x, g, total);
	return 0;
}
