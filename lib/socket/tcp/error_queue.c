/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The error queue of a connection: the notifications of MSG_ZEROCOPY
 * (Documentation/networking/msg_zerocopy.rst). What is sent is copied, so a call is done with the
 * user's memory when it returns; its number is told then, with SO_EE_CODE_ZEROCOPY_COPIED as Linux
 * tells it over loopback and veth. Calls are numbered from 0 and end in order, so what waits is
 * always one range: the queue is two numbers, needs no memory and so never says ENOBUFS.
 */
#include <time.h> /* before the next, which uses it */

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>

#include "runtime/runtime.h"
#include "socket/tcp/internal.h"

/* sock_extended_err and the address of who reported it, which nobody did: zeroes. */
struct v4_err {
	struct sock_extended_err ee;
	struct sockaddr_in offender;
};

struct v6_err {
	struct sock_extended_err ee;
	struct sockaddr_in6 offender;
};

void tcp_sock_zerocopy_done(struct tcp_sock *s, uint32_t gen)
{
	int cancel;

	if (!s->zerocopy)
		return; /* the flag is ignored without SO_ZEROCOPY */
	cancel = tcp_sock_lock(s);
	/* Closed or handed over meanwhile, it may be another socket by now. */
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) == gen &&
	    tcp_sock_mode(s) == TCP_SOCK_CONN) {
		atomic_fetch_add_explicit(&s->zc_next, 1, memory_order_release);
		/*
		 * Only who polls is told: an error queue ends no call that waits for data or room
		 * (so no hint).
		 */
		vfd_notify(&s->v, EPOLLERR);
	}
	tcp_sock_unlock(s, cancel);
}

/* Takes all that waits, at most what 32 bits tell apart. False: nothing. */
static bool take_range(struct tcp_sock *s, struct sock_extended_err *ee)
{
	uint64_t lo, hi;
	int cancel = tcp_sock_lock(s);

	lo = atomic_load_explicit(&s->zc_told, memory_order_relaxed);
	hi = atomic_load_explicit(&s->zc_next, memory_order_acquire);
	if (hi - lo > UINT32_MAX)
		hi = lo + UINT32_MAX;
	atomic_store_explicit(&s->zc_told, hi, memory_order_relaxed);
	tcp_sock_unlock(s, cancel);
	if (lo == hi)
		return false;
	*ee = (struct sock_extended_err){
		.ee_origin = SO_EE_ORIGIN_ZEROCOPY,
		.ee_code = SO_EE_CODE_ZEROCOPY_COPIED,
		.ee_info = (uint32_t)lo,
		.ee_data = (uint32_t)(hi - 1),
	};
	return true;
}

ssize_t tcp_sock_recv_err(struct tcp_sock *s, int fd, struct msghdr *msg, int flags)
{
	struct v4_err v4 = {0};
	struct v6_err v6 = {0};
	struct tcp_sock_cmsgs m = {.at = msg->msg_control};

	if (!take_range(s, &v4.ee))
		/* what the kernel's socket has, or its EAGAIN */
		return libc.recvmsg(fd, msg, flags);
	v6.ee = v4.ee;
	msg->msg_namelen = 0;
	msg->msg_flags = MSG_ERRQUEUE | (flags & MSG_CMSG_CLOEXEC);
	m.left = msg->msg_control ? msg->msg_controllen : 0;
	if (s->domain == AF_INET6)
		tcp_sock_cmsg_put(&m, IPPROTO_IPV6, IPV6_RECVERR, &v6, sizeof(v6));
	else
		tcp_sock_cmsg_put(&m, IPPROTO_IP, IP_RECVERR, &v4, sizeof(v4));
	msg->msg_controllen = (size_t)(m.at - (uint8_t *)msg->msg_control);
	if (m.cut)
		msg->msg_flags |= MSG_CTRUNC;
	return 0;
}
