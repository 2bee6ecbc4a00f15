/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ancillary data, as the kernel's put_cmsg() writes it. */
#include <string.h>
#include <sys/socket.h>

#include "socket/tcp/internal.h"

void tcp_sock_cmsg_put(struct tcp_sock_cmsgs *m, int level, int type, const void *data, size_t len)
{
	struct cmsghdr h = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(len)};
	size_t took;

	if (m->left < h.cmsg_len)
		m->cut = true;
	if (m->left < sizeof(h))
		return;
	if (m->left < h.cmsg_len)
		h.cmsg_len = m->left;
	memcpy(m->at, &h, sizeof(h));
	memcpy(m->at + CMSG_LEN(0), data, h.cmsg_len - CMSG_LEN(0));
	took = m->left < CMSG_SPACE(len) ? m->left : CMSG_SPACE(len);
	m->at += took;
	m->left -= took;
}
