/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading and writing, in every form with one message. */
#include "preload/preload.h"

#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/memory.h"
#include "preload/message.h"
#include "preload/poll_calls.h"
#include "preload/trace.h"

/* Newer than this libc. */
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x100
#endif
/* Flags of preadv2 and pwritev2 that the kernel takes of a socket. */
#define RWF_KNOWN                                                                                  \
	(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND | RWF_NOSIGNAL)

/* The same as flags of recv() and send(). */
static int message_flags(int flags)
{
	return (flags & RWF_NOWAIT ? MSG_DONTWAIT : 0) | (flags & RWF_NOSIGNAL ? MSG_NOSIGNAL : 0);
}

ssize_t message_recvmsg(struct vfd *v, int fd, void *buf, size_t len, int flags,
			struct sockaddr *addr, socklen_t *alen)
{
	struct iovec iov = {buf, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t ret;

	if (addr) {
		if (!alen)
			return fail(EFAULT);
		msg.msg_name = addr;
		msg.msg_namelen = *alen;
	}
	ret = v->ops->recvmsg(v, fd, &msg, flags);
	if (ret >= 0 && addr)
		*alen = msg.msg_namelen;
	return ret;
}

ssize_t message_sendmsg(struct vfd *v, int fd, const void *buf, size_t len, int flags,
			const struct sockaddr *addr, socklen_t alen)
{
	struct iovec iov = {(void *)buf, len};
	struct msghdr msg = {
		.msg_name = (void *)addr, .msg_namelen = alen, .msg_iov = &iov, .msg_iovlen = 1};

	return v->ops->sendmsg(v, fd, &msg, flags);
}

PACKETS_BODY ssize_t do_read(int fd, void *buf, size_t len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->recvmsg)
		return libc.read(fd, buf, len);
	/*
	 * Unlike recv(), a read of nothing takes nothing and never waits (socket(7), "SYS V
	 * behaviour").
	 */
	if (!len)
		return memory_data(buf, 0) ? 0 : fail(EFAULT);
	if (unlikely(!memory_byte(buf)))
		return CANCELLABLE(memory_bad_recv(v, fd, buf, len, 0));
	return CANCELLABLE(message_recv(v, fd, buf, len, 0, NULL, NULL));
}

PRELOAD_PACKETS(ssize_t, read, (int fd, void *buf, size_t len), (fd, buf, len),
		"read(%d, %zu bytes)", fd, len)
PRELOAD_ALIAS(__read, read);

PRELOAD ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		return libc.__read_chk(fd, buf, len, room); /* aborts */
	return read(fd, buf, len);
}

PACKETS_BODY ssize_t do_write(int fd, const void *buf, size_t len)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg)
		return libc.write(fd, buf, len);
	if (unlikely(!memory_data(buf, len)))
		return CANCELLABLE(memory_bad_send(v, fd, buf, len, 0, NULL, 0));
	return CANCELLABLE(message_send(v, fd, buf, message_most(len), 0, NULL, 0));
}

PRELOAD_PACKETS(ssize_t, write, (int fd, const void *buf, size_t len), (fd, buf, len),
		"write(%d, %zu bytes)", fd, len)
PRELOAD_ALIAS(__write, write);

/* The bytes that iov holds, or -1 with the kernel's EINVAL. */
static ssize_t iov_total(const struct iovec *iov, int n)
{
	size_t sum = 0;

	if (n < 0 || n > IOV_MAX)
		return fail(EINVAL);
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > SSIZE_MAX || sum + iov[i].iov_len > SSIZE_MAX)
			return fail(EINVAL);
		sum += iov[i].iov_len;
	}
	return (ssize_t)sum;
}

/* msg's first buffers only, because the next one is bad: what comes does not reach that far, or the
 * call ends short. */
static ssize_t recv_part(struct vfd *v, int fd, struct msghdr *msg, int flags, int good)
{
	struct msghdr part;
	ssize_t n;

	if (good < 0)
		return libc.recvmsg(fd, msg, flags);
	if (memory_untouched(v, flags))
		return v->ops->recvmsg(v, fd, msg, flags);
	if (!good)
		return memory_bad_recv(v, fd, NULL, 1, flags);
	part = *msg;
	part.msg_iovlen = (size_t)good;
	n = v->ops->recvmsg(v, fd, &part, flags);
	if (n < 0)
		return n;
	msg->msg_namelen = part.msg_namelen;
	msg->msg_controllen = part.msg_controllen;
	msg->msg_flags = part.msg_flags;
	return n;
}

/* What is written beside the data. As the kernel: a bad name fails when all is done. */
ssize_t message_recv_checked(struct vfd *v, int fd, struct msghdr *msg, int flags)
{
	int good = memory_recv_vector(msg);
	struct msghdr bare;
	ssize_t n;

	if (unlikely(good < 0 || (msg->msg_iovlen <= IOV_MAX && (size_t)good < msg->msg_iovlen)))
		return recv_part(v, fd, msg, flags, good);
	if (likely(memory_optional(msg->msg_name, msg->msg_namelen ? 1 : 0) &&
		   memory_optional(msg->msg_control, msg->msg_controllen)))
		return v->ops->recvmsg(v, fd, msg, flags);
	bare = *msg;
	bare.msg_name = bare.msg_control = NULL;
	bare.msg_namelen = 0;
	bare.msg_controllen = 0;
	n = v->ops->recvmsg(v, fd, &bare, flags);
	if (n >= 0 && !memory_optional(msg->msg_name, msg->msg_namelen ? 1 : 0))
		return fail(EFAULT);
	msg->msg_controllen = 0;
	return n;
}

ssize_t message_send_checked(struct vfd *v, int fd, const struct msghdr *msg, int flags)
{
	int good = memory_send_vector(msg);

	if (likely(good >= 0 && (msg->msg_iovlen > IOV_MAX || (size_t)good == msg->msg_iovlen)))
		return v->ops->sendmsg(v, fd, msg, flags);
	if (good < 0 || v->kind == VFD_UDP)
		return libc.sendmsg(fd, msg, flags);
	return memory_bad_send(v, fd, NULL, 1, flags, NULL, 0);
}

static ssize_t vector_recv(struct vfd *v, int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	ssize_t total;

	if (unlikely(n > 0 && n <= IOV_MAX && !memory_ends(iov, (size_t)n * sizeof(*iov))))
		return fail(EFAULT);
	total = iov_total(iov, n);
	return total > 0 ? CANCELLABLE(message_recv_checked(v, fd, &msg, flags)) : total;
}

/* Unlike write(), writev() of nothing sends nothing. */
static ssize_t vector_send(struct vfd *v, int fd, const struct iovec *iov, int n, int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
	ssize_t total;

	if (unlikely(n > 0 && n <= IOV_MAX && !memory_ends(iov, (size_t)n * sizeof(*iov))))
		return fail(EFAULT);
	total = iov_total(iov, n);
	return total > 0 ? CANCELLABLE(message_send_checked(v, fd, &msg, flags)) : total;
}

PACKETS_BODY ssize_t do_readv(int fd, const struct iovec *iov, int n)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->recvmsg)
		return libc.readv(fd, iov, n);
	return vector_recv(v, fd, iov, n, 0);
}

PRELOAD_PACKETS(ssize_t, readv, (int fd, const struct iovec *iov, int n), (fd, iov, n),
		"readv(%d, %d buffers)", fd, n)

PACKETS_BODY ssize_t do_writev(int fd, const struct iovec *iov, int n)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg)
		return libc.writev(fd, iov, n);
	return vector_send(v, fd, iov, n, 0);
}

PRELOAD_PACKETS(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n),
		"writev(%d, %d buffers)", fd, n)

/* A socket has no offset: the shadow socket gives the kernel's ESPIPE or EINVAL. */
PRELOAD ssize_t preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	return libc.preadv(fd, iov, n, off);
}
PRELOAD_ALIAS(preadv64, preadv);

PRELOAD ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
	return libc.pwritev(fd, iov, n, off);
}
PRELOAD_ALIAS(pwritev64, pwritev);

/* With offset -1 the v2 forms are readv() and writev() with flags. */
PACKETS_BODY ssize_t do_preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->recvmsg || off != -1)
		return libc.preadv2(fd, iov, n, off, flags);
	if (flags & ~RWF_KNOWN)
		return fail(EOPNOTSUPP);
	return vector_recv(v, fd, iov, n, message_flags(flags));
}

PRELOAD_PACKETS(ssize_t, preadv2, (int fd, const struct iovec *iov, int n, off_t off, int flags),
		(fd, iov, n, off, flags), "preadv2(%d, %d buffers, flags 0x%x)", fd, n,
		(unsigned)flags)
PRELOAD_ALIAS(preadv64v2, preadv2);

PACKETS_BODY ssize_t do_pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg || off != -1)
		return libc.pwritev2(fd, iov, n, off, flags);
	if (flags & ~RWF_KNOWN)
		return fail(EOPNOTSUPP);
	return vector_send(v, fd, iov, n, message_flags(flags));
}

PRELOAD_PACKETS(ssize_t, pwritev2, (int fd, const struct iovec *iov, int n, off_t off, int flags),
		(fd, iov, n, off, flags), "pwritev2(%d, %d buffers, flags 0x%x)", fd, n,
		(unsigned)flags)
PRELOAD_ALIAS(pwritev64v2, pwritev2);

PACKETS_BODY ssize_t do_recv(int fd, void *buf, size_t len, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->recvmsg)
		return libc.recv(fd, buf, len, flags);
	if (unlikely(len && !memory_byte(buf)))
		return CANCELLABLE(memory_bad_recv(v, fd, buf, len, flags));
	return CANCELLABLE(message_recv(v, fd, buf, len, flags, NULL, NULL));
}

PRELOAD_PACKETS(ssize_t, recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags),
		"recv(%d, %zu bytes, flags 0x%x)", fd, len, (unsigned)flags)

PRELOAD ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		return libc.__recv_chk(fd, buf, len, room, flags); /* aborts */
	return recv(fd, buf, len, flags);
}

/* recvfrom() that cannot give its data, or not the address: then the data are gone. */
static ssize_t recv_bad(struct vfd *v, int fd, void *buf, size_t len, int flags)
{
	if (len && !memory_byte(buf))
		return memory_bad_recv(v, fd, buf, len, flags);
	return message_recv(v, fd, buf, len, flags, NULL, NULL) < 0 ? -1 : fail(EFAULT);
}

PACKETS_BODY ssize_t do_recvfrom(int fd, void *buf, size_t len, int flags, __SOCKADDR_ARG addr,
				 socklen_t *alen)
{
	struct vfd *v = vfd_get(fd);

	if (v && likely(v->ops->recvmsg != NULL) &&
	    unlikely((likely(len != 0) && !memory_byte(buf)) ||
		     (addr.__sockaddr__ && !memory_out(addr.__sockaddr__, alen))))
		return CANCELLABLE(recv_bad(v, fd, buf, len, flags));
	if (v && likely(v->ops->recvfrom != NULL))
		return CANCELLABLE(v->ops->recvfrom(v, buf, len, vfd_call(fd, flags),
						    addr.__sockaddr__, alen));
	if (!v || !v->ops->recvmsg)
		return libc.recvfrom(fd, buf, len, flags, addr.__sockaddr__, alen);
	return CANCELLABLE(message_recvmsg(v, fd, buf, len, flags, addr.__sockaddr__, alen));
}

PRELOAD_PACKETS(ssize_t, recvfrom,
		(int fd, void *buf, size_t len, int flags, __SOCKADDR_ARG addr, socklen_t *alen),
		(fd, buf, len, flags, addr, alen), "recvfrom(%d, %zu bytes, flags 0x%x%s)", fd, len,
		(unsigned)flags, TRACE_GOT(ret, addr.__sockaddr__, alen))

PRELOAD ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags,
			       __SOCKADDR_ARG addr, socklen_t *alen)
{
	if (len > room)
		return libc.__recvfrom_chk(fd, buf, len, room, flags, addr.__sockaddr__,
					   alen); /* aborts */
	return recvfrom(fd, buf, len, flags, addr, alen);
}

PACKETS_BODY ssize_t do_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->recvmsg)
		return libc.recvmsg(fd, msg, flags);
	return CANCELLABLE(message_recv_checked(v, fd, msg, flags));
}

PRELOAD_PACKETS(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags),
		"recvmsg(%d, flags 0x%x%s)", fd, (unsigned)flags,
		ret < 0 ? "" : TRACE_GOT(ret, msg->msg_name, &msg->msg_namelen))

PACKETS_BODY ssize_t do_send(int fd, const void *buf, size_t len, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg)
		return message_is_dummy(flags) ? -1 : libc.send(fd, buf, len, flags);
	if (unlikely(!memory_data(buf, len)))
		return CANCELLABLE(memory_bad_send(v, fd, buf, len, flags, NULL, 0));
	return CANCELLABLE(message_send(v, fd, buf, message_most(len), flags, NULL, 0));
}

PRELOAD_PACKETS(ssize_t, send, (int fd, const void *buf, size_t len, int flags),
		(fd, buf, len, flags), "send(%d, %zu bytes, flags 0x%x)", fd, len, (unsigned)flags)
PRELOAD_ALIAS(__send, send);

PACKETS_BODY ssize_t do_sendto(int fd, const void *buf, size_t len, int flags,
			       __CONST_SOCKADDR_ARG addr, socklen_t alen)
{
	struct vfd *v = vfd_get(fd);

	if (v && likely(v->ops->sendmsg != NULL) &&
	    unlikely(!memory_data(buf, len) ||
		     (addr.__sockaddr__ && !memory_addr(addr.__sockaddr__, alen))))
		return CANCELLABLE(
			memory_bad_send(v, fd, buf, len, flags, addr.__sockaddr__, alen));
	if (v && likely(v->ops->sendto != NULL))
		return CANCELLABLE(v->ops->sendto(v, buf, message_most(len), vfd_call(fd, flags),
						  addr.__sockaddr__, alen));
	if (!v || !v->ops->sendmsg)
		return message_is_dummy(flags)
			       ? -1
			       : libc.sendto(fd, buf, len, flags, addr.__sockaddr__, alen);
	return CANCELLABLE(
		message_sendmsg(v, fd, buf, message_most(len), flags, addr.__sockaddr__, alen));
}

PRELOAD_PACKETS(ssize_t, sendto,
		(int fd, const void *buf, size_t len, int flags, __CONST_SOCKADDR_ARG addr,
		 socklen_t alen),
		(fd, buf, len, flags, addr, alen), "sendto(%d, %zu bytes, flags 0x%x, %s)", fd, len,
		(unsigned)flags, TRACE_ADDR(addr.__sockaddr__, alen))

void message_give_rights(const struct msghdr *msg)
{
	/* Else libc's call says EFAULT. */
	if (!memory_touchable() || !memory_ends(msg, sizeof(*msg)) || !msg->msg_control ||
	    !memory_ends(msg->msg_control, msg->msg_controllen))
		return;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, c)) {
		size_t left = msg->msg_controllen -
			      (size_t)((const char *)c - (const char *)msg->msg_control);
		struct vfd *given;
		int fd;

		if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > left)
			return; /* the kernel refuses the message */
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(fd) <= c->cmsg_len - CMSG_LEN(0);
		     at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			given = vfd_get(fd);
			if (given)
				vfd_give(given, STATS_WHY(PASSED));
		}
	}
}

PACKETS_BODY ssize_t do_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct vfd *v = vfd_get(fd);

	if (likely(!v) || !v->ops->sendmsg) {
		if (!table_empty() && msg)
			message_give_rights(msg);
		return message_is_dummy(flags) ? -1 : libc.sendmsg(fd, msg, flags);
	}
	return CANCELLABLE(message_send_checked(v, fd, msg, flags));
}

PRELOAD_PACKETS(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags),
		"sendmsg(%d, flags 0x%x%s)", fd, (unsigned)flags,
		ret < 0 ? "" : TRACE_GOT(ret, msg->msg_name, &msg->msg_namelen))
