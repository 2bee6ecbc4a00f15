/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/show.h"

#include <sys/uio.h>

#include "fd/fd.h"
#include "socket/sockaddr.h"

struct timespec sock_show_time(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

vma_recv_callback_retval_t sock_show(const struct sock_frame *f, struct vma_info_t *info,
				     vma_recv_callback_t fn, void *context)
{
	union {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} src, dst;
	struct iovec iov[SOCK_SHOW_PIECES];
	vma_recv_callback_retval_t ret;
	struct vfd_held held;
	size_t n = 0;

	info->struct_sz = sizeof(*info);
	info->src = &src.in;
	info->dst = &dst.in;
	info->payload_sz = f->b->total;
	if (f->b->time_ns)
		info->sw_timestamp = sock_show_time(f->b->time_ns);
	sock_addr_put(f->domain, f->src, f->sport, f->scope, &src);
	sock_addr_put(f->domain, f->dst, f->dport, f->scope, &dst);
	for (const struct buf *b = f->b; b && n < SOCK_SHOW_PIECES; b = b->frag)
		iov[n++] = (struct iovec){.iov_base = b->data, .iov_len = b->len};
	held = vfd_hold_pause();
	ret = fn(f->fd, n, iov, info, context);
	vfd_hold_resume(held);
	return ret;
}
