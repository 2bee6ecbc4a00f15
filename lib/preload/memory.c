/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "preload/preload.h"

#include "preload/memory.h"

#include <limits.h>
#include <sys/socket.h>
#include <ucontext.h>

#ifdef MEMORY_TOUCH
/* memory_byte() makes one wherever it stands; both are relative to themselves. */
struct touch {
	int32_t at, bad;
};
extern const struct touch __start_vma_touches[] __attribute__((visibility("hidden")));
extern const struct touch __stop_vma_touches[] __attribute__((visibility("hidden")));

static uintptr_t place(const int32_t *offset)
{
	return (uintptr_t)offset + (uintptr_t)(intptr_t)*offset;
}

bool memory_recover(void *context)
{
	ucontext_t *u = context;
#if defined(__x86_64__)
	greg_t *pc = &u->uc_mcontext.gregs[REG_RIP];
#else
	unsigned long long *pc = &u->uc_mcontext.pc;
#endif
	size_t num = ((uintptr_t)__stop_vma_touches - (uintptr_t)__start_vma_touches) /
		     sizeof(struct touch);

	for (const struct touch *t = __start_vma_touches; num; num--, t++) {
		if (place(&t->at) != (uintptr_t)*pc)
			continue;
		*pc = (__typeof__(*pc))place(&t->bad);
		return true;
	}
	return false;
}
#else
bool memory_recover(void *context)
{
	(void)context;
	return false;
}
#endif

ssize_t memory_bad_send(struct vfd *v, int fd, const void *buf, size_t len, int flags,
			const struct sockaddr *addr, socklen_t alen)
{
	/*
	 * A datagram's kernel socket knows the destination, and says what is wrong first. The
	 * kernel refuses its own addresses before it looks at any socket.
	 */
	if (v->kind == VFD_UDP || !memory_data(buf, 0) || !memory_addr(addr, addr ? alen : 0))
		return libc.sendto(fd, buf, len, flags, addr, alen);
	/* A stream's state comes before its data. */
	if (v->ops->sendmsg(v, fd, &(struct msghdr){.msg_iov = NULL}, flags) < 0)
		return -1;
	return fail(EFAULT);
}

ssize_t memory_bad_recv(struct vfd *v, int fd, void *buf, size_t len, int flags)
{
	char byte;
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (!memory_data(buf, 0))
		return fail(EFAULT);
	if (memory_untouched(v, flags)) {
		iov = (struct iovec){buf, len};
		return v->ops->recvmsg(v, fd, &msg, flags);
	}
	/* As in the kernel: the datagram is lost, the stream keeps its bytes. */
	n = v->ops->recvmsg(v, fd, &msg, v->kind == VFD_UDP ? flags : flags | MSG_PEEK);
	return n > 0 ? fail(EFAULT) : n;
}

/* The structure of msg can be read, and holds no length and no address that the kernel refuses. */
static bool readable(const struct msghdr *msg)
{
	size_t sum = 0;

	if (!memory_ends(msg, sizeof(*msg)))
		return false;
	if (msg->msg_iovlen > IOV_MAX)
		return true; /* EMSGSIZE, whatever is there */
	if (!memory_ends(msg->msg_iov, msg->msg_iovlen * sizeof(*msg->msg_iov)))
		return false;
	for (size_t i = 0; i < msg->msg_iovlen; i++) {
		if (msg->msg_iov[i].iov_len > SSIZE_MAX - sum ||
		    !memory_data(msg->msg_iov[i].iov_base, 0))
			return false;
		sum += msg->msg_iov[i].iov_len;
	}
	return true;
}

int memory_send_vector(const struct msghdr *msg)
{
	size_t i = 0;

	if (!readable(msg) ||
	    !memory_optional(msg->msg_name,
			     msg->msg_namelen > MEMORY_ADDR_MAX ? 0 : msg->msg_namelen) ||
	    !memory_ends(msg->msg_control, msg->msg_controllen))
		return -1;
	if (msg->msg_iovlen > IOV_MAX)
		return IOV_MAX;
	while (i < msg->msg_iovlen &&
	       memory_ends(msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len))
		i++;
	return (int)i;
}

int memory_recv_vector(const struct msghdr *msg)
{
	size_t i = 0;

	if (!readable(msg))
		return -1;
	if (msg->msg_iovlen > IOV_MAX)
		return IOV_MAX;
	while (i < msg->msg_iovlen &&
	       (!msg->msg_iov[i].iov_len || memory_byte(msg->msg_iov[i].iov_base)))
		i++;
	return (int)i;
}
