/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* recvfrom_zcopy() of the Extra API: what both protocols have of it. */
#ifndef SOCKET_ZCOPY_H
#define SOCKET_ZCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "mellanox/vma_extra.h"
#include "mem/mem.h"

/* Its arguments. */
struct zcopy {
	void *buf;
	size_t len; /* bytes */
	int *flags;
	struct sockaddr *from; /* may be NULL, and so may fromlen */
	socklen_t *fromlen;
};

/* How many pieces of one packet z has room for; 0: not for the packet itself. */
static inline size_t zcopy_room(const struct zcopy *z)
{
	const size_t head = sizeof(struct vma_packets_t) + sizeof(struct vma_packet_t);

	return z->len < head ? 0 : (z->len - head) / sizeof(struct iovec);
}

/* z has room for all pieces of b. */
bool zcopy_fits(const struct zcopy *z, const struct buf *b);
/* Tells the program of b, which fits, by the name id, and that it was not copied. */
void zcopy_put(const struct zcopy *z, const struct buf *b, void *id);

#endif
