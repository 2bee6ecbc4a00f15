/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The error queue of a connection: the notifications of MSG_ZEROCOPY (Documentation/networking/msg_zerocopy.rst). What is sent
 * is copied, so a call is done with the user's memory when it returns; its number is told then, with SO_EE_CODE_ZEROCOPY_COPIED
 * as Linux tells it over loopback and veth. Calls are numbered from 0 and end in order, so what waits is always one range: the
 * queue is two numbers, needs no memory and so never says ENOBUFS.
 */
#include <time.h> /* before the next, which uses it */

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>

#include "runtime/libc.h"
#include "socket/tcp_int.h"

/* sock_extended_err and the address of who reported it, which nobody did: zeroes. */
struct v4_err {
	struct sock_extended_err ee;
	struct sockaddr_in offender;
};

struct v6_err {
	struct sock_extended_err ee;
	struct sockaddr_in6 offender;
};

void tsock_zerocopy_done(struct tsock *s, uint32_t gen)
{
	int cancel;

	if (!s->zerocopy)
		return; /* the flag is ignored without SO_ZEROCOPY */
	cancel = tsock_lock(s);
	/* Closed or gone home meanwhile, it may be another socket by now. */
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) == gen && tsock_mode(s) == TSOCK_CONN) {
		atomic_fetch_add_explicit(&s->zc_next, 1, memory_order_release);
		/* Only who polls is told: an error queue ends no call that waits for data or room (so no hint). */
		vfd_notify(&s->v, EPOLLERR);
	}
	tsock_unlock(s, cancel);
}

/* Takes all that waits, at most what 32 bits tell apart. False: nothing. */
static bool take_range(struct tsock *s, struct sock_extended_err *ee)
{
	uint64_t lo, hi;
	int cancel = tsock_lock(s);

	lo = atomic_load_explicit(&s->zc_told, memory_order_relaxed);
	hi = atomic_load_explicit(&s->zc_next, memory_order_acquire);
	if (hi - lo > UINT32_MAX)
		hi = lo + UINT32_MAX;
	atomic_store_explicit(&s->zc_told, hi, memory_order_relaxed);
	tsock_unlock(s, cancel);
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

/* put_cmsg() of the kernel, for the only header of a message: one that does not fit is left out, data is cut. */
static void put_cmsg(struct msghdr *msg, int level, int type, const void *data, size_t len)
{
	struct cmsghdr h = { .cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(len) };
	size_t room = msg->msg_control ? msg->msg_controllen : 0;

	msg->msg_controllen = 0;
	if (room < h.cmsg_len)
		msg->msg_flags |= MSG_CTRUNC;
	if (room < sizeof(h))
		return;
	if (room < h.cmsg_len)
		h.cmsg_len = room;
	memcpy(msg->msg_control, &h, sizeof(h));
	memcpy((uint8_t *)msg->msg_control + CMSG_LEN(0), data, h.cmsg_len - CMSG_LEN(0));
	msg->msg_controllen = room < CMSG_SPACE(len) ? room : CMSG_SPACE(len);
}

ssize_t tsock_recv_err(struct tsock *s, int fd, struct msghdr *msg, int flags)
{
	struct v4_err v4 = { 0 };
	struct v6_err v6 = { 0 };

	if (!take_range(s, &v4.ee))
		return libc.recvmsg(fd, msg, flags); /* what the kernel's socket has, or its EAGAIN */
	v6.ee = v4.ee;
	msg->msg_namelen = 0;
	msg->msg_flags = MSG_ERRQUEUE | (flags & MSG_CMSG_CLOEXEC);
	if (s->domain == AF_INET6)
		put_cmsg(msg, IPPROTO_IPV6, IPV6_RECVERR, &v6, sizeof(v6));
	else
		put_cmsg(msg, IPPROTO_IP, IP_RECVERR, &v4, sizeof(v4));
	return 0;
}
