/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a program says by ioctl() of the table, in the form of control messages. */
#include <string.h>
#include <sys/socket.h>

#include "extra/internal.h"
#include "mem/mem.h"

#define ALLOC_FLAGS (VMA_IOCTL_USER_ALLOC_FLAG_TX | VMA_IOCTL_USER_ALLOC_FLAG_RX)

/* The one message that there is, which ends before `end`; 0 or -EINVAL. */
static int user_alloc_read(struct cmsghdr *c, const char *end,
			   struct vma_cmsg_ioctl_user_alloc_t *asked)
{
	if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != CMSG_VMA_IOCTL_USER_ALLOC ||
	    c->cmsg_len != CMSG_LEN(sizeof(*asked)) || end - (char *)c < (ptrdiff_t)c->cmsg_len)
		return -EINVAL;
	memcpy(asked, CMSG_DATA(c), sizeof(*asked));
	/* A ring has one memory for both ways. */
	if (!(asked->flags & ALLOC_FLAGS) || asked->flags & ~ALLOC_FLAGS || !asked->memalloc ||
	    !asked->memfree)
		return -EINVAL;
	return 0;
}

/* All messages are read before the last one counts. */
int extra_ioctl(void *cmsg_hdr, size_t cmsg_len)
{
	struct msghdr m = {.msg_control = cmsg_hdr, .msg_controllen = cmsg_len};
	struct vma_cmsg_ioctl_user_alloc_t asked;
	int err = -EINVAL;

	if (!cmsg_hdr)
		return extra_fail(EINVAL);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		err = user_alloc_read(c, (char *)cmsg_hdr + cmsg_len, &asked);
		if (err)
			break;
	}
	if (!err)
		err = allocator_set(
			&(struct allocator){.alloc = asked.memalloc, .free = asked.memfree});
	return extra_result(err);
}
