/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One buffer in or out of an object of ours, whichever form its operations have. */
#ifndef PRELOAD_MESSAGE_H
#define PRELOAD_MESSAGE_H

#include "socket/vfd.h"

/* v has recvmsg. As recvfrom(2). */
ssize_t message_recv(struct vfd *v, int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
		     socklen_t *alen);
/* v has sendmsg. As sendto(2). */
ssize_t message_send(struct vfd *v, int fd, const void *buf, size_t len, int flags,
		     const struct sockaddr *addr, socklen_t alen);

#endif
