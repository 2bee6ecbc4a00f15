/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One buffer in or out of an object of ours, whichever form its operations have. */
#ifndef PRELOAD_MESSAGE_H
#define PRELOAD_MESSAGE_H

#include <errno.h>
#include <stdbool.h>

#include "fd/fd.h"

/* The kernel moves no more in one call, whatever it is asked for: the result fits an int. */
#define MESSAGE_MOST 0x7ffff000u

static inline size_t message_most(size_t len)
{
	return len < MESSAGE_MOST ? len : MESSAGE_MOST;
}

/* io.c: the two below for objects that have the long forms only. */
__attribute__((noinline)) ssize_t message_recvmsg(struct vfd *v, int fd, void *buf, size_t len,
						  int flags, struct sockaddr *addr,
						  socklen_t *alen);
__attribute__((noinline)) ssize_t message_sendmsg(struct vfd *v, int fd, const void *buf,
						  size_t len, int flags,
						  const struct sockaddr *addr, socklen_t alen);

/* io.c: v's recvmsg and sendmsg with the program's msg, any pointer of which may be bad. */
ssize_t message_recv_checked(struct vfd *v, int fd, struct msghdr *msg, int flags);
ssize_t message_send_checked(struct vfd *v, int fd, const struct msghdr *msg, int flags);

/*
 * io.c: msg is about to be sent by libc. Who gets a descriptor by it (SCM_RIGHTS) gets the kernel's
 * socket.
 */
void message_give_rights(const struct msghdr *msg);

/*
 * What is sent with these flags by a kernel socket is not to be sent: -1 and EINVAL are the answer,
 * as the original's.
 */
static inline bool message_is_dummy(int flags)
{
	if (__builtin_expect(!(flags & VMA_SND_FLAGS_DUMMY), 1))
		return false;
	errno = EINVAL;
	return true;
}

/* v has recvmsg. As recvfrom(2). */
static inline ssize_t message_recv(struct vfd *v, int fd, void *buf, size_t len, int flags,
				   struct sockaddr *addr, socklen_t *alen)
{
	if (__builtin_expect(v->ops->recvfrom != NULL, 1))
		return v->ops->recvfrom(v, buf, len, vfd_call(fd, flags), addr, alen);
	return message_recvmsg(v, fd, buf, len, flags, addr, alen);
}

/* v has sendmsg. As sendto(2). */
static inline ssize_t message_send(struct vfd *v, int fd, const void *buf, size_t len, int flags,
				   const struct sockaddr *addr, socklen_t alen)
{
	if (__builtin_expect(v->ops->sendto != NULL, 1))
		return v->ops->sendto(v, buf, len, vfd_call(fd, flags), addr, alen);
	return message_sendmsg(v, fd, buf, len, flags, addr, alen);
}

#endif
