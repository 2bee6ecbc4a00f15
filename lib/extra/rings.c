/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The rings of a socket, and the headers that it sends with. */
#include <string.h>

#include "extra/internal.h"
#include "stack/stack.h"

int extra_stacks(int fd, struct stack *sts[], unsigned max)
{
	struct vfd *v = extra_socket(fd);

	if (!v)
		return -EINVAL;
	/* Who asks is about to wait for them. */
	v->ops->waited(v);
	return (int)(v->kind == VFD_UDP ? udp_stacks(v, sts, max) : tcp_sock_stacks(v, sts, max));
}

/* The open rings that the socket fd receives by, at most max; negative errno. */
static int rings(int fd, int *fds, int max)
{
	struct stack *sts[UDP_ATT_MAX];
	int n = extra_stacks(fd, sts, UDP_ATT_MAX), found = 0;

	/* That of a connect() under way may be still to come. */
	stacks_open_pending();
	for (int i = 0; i < n && found < max; i++) {
		int ring = stack_ring_fd(sts[i]);

		if (ring >= 0)
			fds[found++] = ring;
	}
	return n < 0 ? n : found;
}

int extra_rings_num(int fd)
{
	int fds[UDP_ATT_MAX];

	return extra_result(rings(fd, fds, UDP_ATT_MAX));
}

int extra_rings_fds(int fd, int *fds, int max)
{
	if (!fds || max <= 0)
		return extra_fail(EINVAL);
	return extra_result(rings(fd, fds, max));
}

int extra_tx_ring_fd(int fd, struct sockaddr *to, socklen_t tolen)
{
	struct vfd *v = extra_socket(fd);
	struct stack *st;
	int ring = -1;

	if (!v)
		return extra_fail(EINVAL);
	st = v->kind == VFD_UDP ? udp_tx_stack(v, fd, to, tolen) : tcp_sock_tx_stack(v);
	/* That of a connect() under way may be still to come. */
	stacks_open_pending();
	if (st)
		ring = stack_ring_fd(st);
	return ring >= 0 ? ring : extra_fail(ENODATA);
}

int extra_network_header(int fd, void *ptr, uint16_t *len)
{
	struct vfd *v = extra_socket(fd);
	uint8_t hdr[EXTRA_HEADER_MAX];
	int n;

	if (!v || !len)
		return extra_fail(EINVAL);
	n = v->kind == VFD_UDP ? udp_header(v, fd, hdr) : tcp_sock_header(v, hdr);
	if (n < 0)
		return extra_result(n);
	if (ptr && *len < n)
		return extra_fail(ENOBUFS);
	if (ptr)
		memcpy(ptr, hdr, (size_t)n);
	*len = (uint16_t)n;
	return 0;
}
